/* The matrix product under all dense calls. */
#ifndef FG_RUNTIME_HOST_GEMM_H
#define FG_RUNTIME_HOST_GEMM_H

#include "runtime/host/cx.h"

typedef struct FgMatrix {
    const void *data;
    uint64_t dt, ld; /* ld: elements from one stored row to the next */
    bool transposed; /* stored the other way round */
} FgMatrix;

typedef struct FgProduct {
    void *data;
    uint64_t dt, ld;
    bool accumulate;  /* add to what is there */
    const void *bias; /* one value a column, in dt; NULL: none */
    const void *plus; /* a matrix like the result, which may be the result itself; NULL: none */
} FgProduct;

typedef struct FgWorkspace {
    float *data;
    uint64_t bytes;
} FgWorkspace;

static inline FgWorkspace fg_workspace(const FgRtCx *cx, uint64_t offset, uint64_t bytes)
{
    return (FgWorkspace){fg_at(cx, offset), bytes};
}
/* Raises an error and returns false when the workspace holds fewer than `floats`. */
bool fg_workspace_holds(FgRtCx *cx, FgWorkspace ws, uint64_t floats);

/* c[m,n] = a[m,k] b[k,n] (+ bias) (+ plus) (+ c), in this order; bias or plus where a, b and c have
 * one dtype. */
void fg_gemm(FgRtCx *cx, FgMatrix a, FgMatrix b, FgProduct c, uint64_t m, uint64_t n, uint64_t k,
             FgWorkspace ws);

#endif
