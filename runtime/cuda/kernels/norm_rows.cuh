/* Gradients of norms by blocks that hold whole rows in registers. */
#ifndef FG_RUNTIME_CUDA_KERNELS_NORM_ROWS_CUH
#define FG_RUNTIME_CUDA_KERNELS_NORM_ROWS_CUH

#include "runtime/cuda/kernels/common.cuh"

/* What a call is about. dx is made where it is given (then w is, too; `plus` may be dx, or NULL:
 * none); sums of dy z over shares of the rows where `partial` is: one row of `cols` floats a share,
 * `floats` in all at most. */
typedef struct FgNormRows {
    const void *x, *w, *dy, *plus;
    void *dx;
    float *partial;
    uint64_t floats, rows, cols, dt;
    bool centred;
    float eps;
} FgNormRows;

/* Whether rows are narrow enough, and all that is given lies to 16 bytes. */
bool fg_cuda_norm_rows_fit(const FgNormRows *r);
/* For rows that fit, at least one of them. Returns the number of shares. What dx is does not depend
 * on whether sums are made too, nor do they on dx. */
uint64_t fg_cuda_norm_rows(FgRtCx *cx, cudaStream_t stream, const FgNormRows *r);

#endif
