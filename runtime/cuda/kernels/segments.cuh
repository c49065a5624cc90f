/* What the kernels take at start-up, outside the plan's memory: tables of the parameters' places
 * and a scratch for sums over rows. */
#ifndef FG_RUNTIME_CUDA_KERNELS_SEGMENTS_CUH
#define FG_RUNTIME_CUDA_KERNELS_SEGMENTS_CUH

#include "runtime/cuda/kernels/common.cuh"

/* Elements [begin, end): of the owned slice (pieces of parameters), or of the whole bucket (gaps
 * between them). */
typedef struct FgCudaPiece {
    uint64_t begin, end;
    uint32_t decay, unused;
} FgCudaPiece;

typedef struct FgCudaSpan { /* device table of one bucket */
    const FgCudaPiece *at;
    uint32_t n;
} FgCudaSpan;

/* The owned pieces of a bucket whose slice (parts = ranks) or whole (parts = 1) has `elements`, in
 * order; gaps likewise. {NULL, 0} and raised when the program has no such bucket. */
FgCudaSpan fg_cuda_pieces(FgRtCx *cx, uint64_t bucket, uint64_t elements);
FgCudaSpan fg_cuda_gaps(FgRtCx *cx, uint64_t bucket, uint64_t elements);

typedef struct FgCudaScratch {
    float *partial; /* NULL: raised */
    uint64_t partial_floats;
    float2 *stats;
    uint64_t n_stats;
} FgCudaScratch;

/* Belongs to the compute stream; raises on another. */
FgCudaScratch fg_cuda_scratch(FgRtCx *cx, cudaStream_t stream);

#endif
