/* The part of a reduction that the library does not do. */
#ifndef FG_RUNTIME_CUDA_SHARD_H
#define FG_RUNTIME_CUDA_SHARD_H

#include "runtime/cuda/cx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* shard[i] (+)= sum[i], in f32, rounded once; sum in dtype `wire`, shard in dt. */
void fg_cuda_shard_add(FgRtCx *cx, cudaStream_t stream, const void *sum, uint64_t wire, void *shard,
                       uint64_t dt, uint64_t n, uint64_t accumulate);

#ifdef __cplusplus
}
#endif

#endif
