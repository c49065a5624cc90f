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

/* ---- device side ---- */

/* The first piece that ends after `at`. */
static __device__ inline uint32_t fg_find_piece(FgCudaSpan pieces, uint64_t at)
{
    uint32_t low = 0, high = pieces.n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (pieces.at[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The block's share of a slice: multiples of `unit` elements. */
typedef struct FgShare {
    uint64_t begin, end;
} FgShare;

static __device__ inline FgShare fg_block_share(uint64_t elements, uint64_t unit)
{
    uint64_t units = (elements + unit - 1) / unit;
    uint64_t begin = units * blockIdx.x / gridDim.x * unit;
    uint64_t end = units * (blockIdx.x + 1) / gridDim.x * unit;
    return (FgShare){begin, end < elements ? end : elements};
}

/* each(begin, end, decay): what the share has of every piece, in order. */
template <class Each>
static __device__ __forceinline__ void fg_each_piece(FgCudaSpan pieces, FgShare share, Each each)
{
    for (uint32_t i = fg_find_piece(pieces, share.begin); i < pieces.n; i++) {
        uint64_t begin = pieces.at[i].begin, end = pieces.at[i].end;
        begin = begin > share.begin ? begin : share.begin;
        end = end < share.end ? end : share.end;
        if (begin >= end)
            break;
        each(begin, end, pieces.at[i].decay != 0);
    }
}

#endif
