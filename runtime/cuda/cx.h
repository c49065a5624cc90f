/* One rank on one GPU: internal to runtime/cuda.
 *
 * A process has one rank. Its context owns one device allocation (states and arena), pinned host
 * memory for what is offloaded, the streams, the events, the NCCL communicators and the library
 * handles. Every call of the ABI enters through one wrapper (calls.c), which checks the sticky
 * status and then calls fg_cuda_<name> with the same arguments; these only launch work on `stream`
 * and report through fg_cuda_check. Nothing in a step allocates or synchronises, so that a period
 * can be captured into a CUDA graph. */
#ifndef FG_RUNTIME_CUDA_CX_H
#define FG_RUNTIME_CUDA_CX_H

#include "runtime/fg_rt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FgRtGroup FgRtGroup;

typedef struct FgCudaFail { /* sticky */
    int failed;
    uint32_t node;
    char call[64], text[256];
} FgCudaFail;

typedef struct FgCudaAttention
    FgCudaAttention;                  /* plans of library attention, by shape; attention.cc */
typedef struct FgCudaGemm FgCudaGemm; /* chosen matmul algorithms, by shape; gemm.c */

struct FgRtCx {
    FgRtGroup *group; /* core.h */
    const FgRtProgram *program;
    uint32_t rank, ranks;
    unsigned char *memory; /* device */
    unsigned char *host;   /* pinned; NULL where the plan has nothing there */
    cudaStream_t streams[FG_RT_N_STREAMS];
    cudaEvent_t *events; /* program->n_events */
    cudaEvent_t join[FG_RT_N_STREAMS];
    ncclComm_t gather, reduce; /* one stream each */
    ncclComm_t parts; /* of gradients in parts, on the reduce stream; NULL: there are none */
    FgCudaGemm *gemm;
    FgCudaAttention *attention;
    int *device_error; /* device word: kernels store node + 1 of the first bad token or label; read
                          between steps */
    const void
        *segments; /* device tables of parameters by bucket, for norm and update; segments.cu */
    int builtin_attention; /* --attention builtin: never the library's */
    int deterministic;     /* only calls that repeat bit by bit */
    int rehearsing; /* start-up, before the prologue: calls that build plans do so, and run once on
                       an arena of garbage */
    int sm;         /* compute capability: 90 */
    int n_sm, shared_bytes; /* multiprocessors; shared memory that a block may have */
    const char *call;       /* the one being made, and its node; NULL between calls */
    uint32_t node;
    FgCudaFail fail;
};

static inline void *fg_cuda_at(const FgRtCx *cx, uint64_t offset)
{
    if (offset == FG_RT_NONE)
        return NULL;
    return offset >= FG_RT_HOST ? cx->host + (offset - FG_RT_HOST) : cx->memory + offset;
}

/* Records the first error: `what` is the library call. */
void fg_cuda_check(FgRtCx *cx, cudaError_t error, const char *what);
void fg_cuda_raise(FgRtCx *cx, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for node `node` (UINT32_MAX: none) and its call, whatever runs now. */
void fg_cuda_fail_at(FgRtCx *cx, uint32_t node, const char *call, const char *text);

/* What the kernels take at start-up, outside the plan's memory: tables of parameters' places and a
 * scratch of sums over rows, for `segments`. NULL: raised. */
const void *fg_cuda_segments_new(FgRtCx *cx);
void fg_cuda_segments_free(const void *segments);
/* The library handle and the algorithms chosen so far, for `gemm`. NULL: raised. */
FgCudaGemm *fg_cuda_gemm_new(FgRtCx *cx);
void fg_cuda_gemm_free(FgCudaGemm *gemm);

/* The kernels: fg_cuda_<call>, same arguments as the call after the stream. */
#define FG_RT_CALL(name, effects, params, args)                                                    \
    void fg_cuda_##name(FgRtCx *cx, cudaStream_t stream, uint32_t node, FG_RT_UNPAREN params);
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs)                                  \
    void fg_cuda_##name(FgRtCx *cx, cudaStream_t stream, uint32_t node, FG_RT_UNPAREN params,      \
                        FG_RT_UNPAREN fparams);
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F

#ifdef __cplusplus
}
#endif

#endif
