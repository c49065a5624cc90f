/* Tables of the parameters' places, made once: the pieces of each bucket that this rank owns and
 * the gaps between a bucket's parameters. One device allocation holds them and the scratch of sums
 * over rows. */
#include "runtime/cuda/kernels/segments.cuh"

#include <stdlib.h>

enum { PARTIAL_BYTES = 4 << 20, STATS_BYTES = 1 << 20 };

typedef struct FgCudaSegments {
    char *device; /* scratch, then the pieces */
    const FgCudaPiece *pieces;
    uint32_t *owned_first, *gaps_first; /* by bucket, into pieces; n_buckets + 1 entries */
} FgCudaSegments;

static const FgRtParam *bucket_param(const FgRtProgram *program, const FgRtBucket *bucket,
                                     uint32_t n)
{
    return &program->params[program->bucket_params[bucket->params_first + n]];
}

static uint32_t add_owned(const FgRtCx *cx, const FgRtBucket *bucket, FgCudaPiece *out)
{
    uint64_t slice = bucket->elements / cx->program->ranks, from = cx->rank * slice;
    uint32_t n = 0;
    for (uint32_t i = 0; i < bucket->n_params; i++) {
        const FgRtParam *param = bucket_param(cx->program, bucket, i);
        uint64_t begin = param->offset > from ? param->offset : from;
        uint64_t end = param->offset + param->elements;
        end = end < from + slice ? end : from + slice;
        if (begin < end)
            out[n++] = (FgCudaPiece){begin - from, end - from, param->decay != 0, 0};
    }
    return n;
}

static uint32_t add_gaps(const FgRtCx *cx, const FgRtBucket *bucket, FgCudaPiece *out)
{
    uint64_t at = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < bucket->n_params; i++) {
        const FgRtParam *param = bucket_param(cx->program, bucket, i);
        if (at < param->offset)
            out[n++] = (FgCudaPiece){at, param->offset, 0, 0};
        at = param->offset + param->elements;
    }
    if (at < bucket->elements)
        out[n++] = (FgCudaPiece){at, bucket->elements, 0, 0};
    return n;
}

void fg_cuda_segments_free(const void *segments)
{
    FgCudaSegments *s = (FgCudaSegments *)(uintptr_t)segments;
    if (!s)
        return;
    cudaFree(s->device);
    free(s->owned_first);
    free(s->gaps_first);
    free(s);
}

const void *fg_cuda_segments_new(FgRtCx *cx)
{
    const FgRtProgram *program = cx->program;
    size_t most = 1, n = program->n_buckets;
    for (uint32_t i = 0; i < n; i++)
        most += 2 * (size_t)program->buckets[i].n_params + 1;
    FgCudaSegments *s = (FgCudaSegments *)calloc(1, sizeof *s);
    FgCudaPiece *pieces = (FgCudaPiece *)calloc(most, sizeof *pieces);
    if (s) {
        s->owned_first = (uint32_t *)calloc(n + 1, sizeof(uint32_t));
        s->gaps_first = (uint32_t *)calloc(n + 1, sizeof(uint32_t));
    }
    if (!s || !pieces || !s->owned_first || !s->gaps_first) {
        fg_cuda_raise(cx, "out of memory for the tables of parameters");
        fg_cuda_segments_free(s);
        free(pieces);
        return NULL;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->owned_first[i] = at;
        at += add_owned(cx, &program->buckets[i], pieces + at);
    }
    s->owned_first[n] = at;
    for (uint32_t i = 0; i < n; i++) {
        s->gaps_first[i] = at;
        at += add_gaps(cx, &program->buckets[i], pieces + at);
    }
    s->gaps_first[n] = at;
    uint64_t scratch = PARTIAL_BYTES + STATS_BYTES;
    cudaError_t error = cudaMalloc((void **)&s->device, scratch + at * sizeof *pieces);
    if (error == cudaSuccess && at > 0)
        error =
            cudaMemcpy(s->device + scratch, pieces, at * sizeof *pieces, cudaMemcpyHostToDevice);
    s->pieces = (const FgCudaPiece *)(s->device + scratch);
    free(pieces);
    if (error != cudaSuccess) {
        fg_cuda_check(cx, error, "tables of parameters");
        fg_cuda_segments_free(s);
        return NULL;
    }
    return s;
}

static const FgCudaSegments *find(FgRtCx *cx, uint64_t bucket, uint64_t elements, uint64_t parts)
{
    const FgRtProgram *program = cx->program;
    if (cx->segments && bucket < program->n_buckets &&
        program->buckets[bucket].elements == elements * parts)
        return (const FgCudaSegments *)cx->segments;
    fg_cuda_raise(cx, "bucket %" PRIu64 " with %" PRIu64 " elements is not in the program's table",
                  bucket, elements * parts);
    return NULL;
}

FgCudaSpan fg_cuda_pieces(FgRtCx *cx, uint64_t bucket, uint64_t elements)
{
    const FgCudaSegments *s = find(cx, bucket, elements, cx->program->ranks);
    if (!s)
        return (FgCudaSpan){NULL, 0};
    uint32_t first = s->owned_first[bucket];
    return (FgCudaSpan){s->pieces + first, s->owned_first[bucket + 1] - first};
}

FgCudaSpan fg_cuda_gaps(FgRtCx *cx, uint64_t bucket, uint64_t elements)
{
    const FgCudaSegments *s = find(cx, bucket, elements, 1);
    if (!s)
        return (FgCudaSpan){NULL, 0};
    uint32_t first = s->gaps_first[bucket];
    return (FgCudaSpan){s->pieces + first, s->gaps_first[bucket + 1] - first};
}

FgCudaScratch fg_cuda_scratch(FgRtCx *cx, cudaStream_t stream)
{
    const FgCudaSegments *s = (const FgCudaSegments *)cx->segments;
    if (!s || stream != cx->streams[FG_COMPUTE]) {
        fg_cuda_raise(cx, "sums over rows run on the compute stream alone");
        return (FgCudaScratch){NULL, 0, NULL, 0};
    }
    return (FgCudaScratch){(float *)s->device, PARTIAL_BYTES / sizeof(float),
                           (float2 *)(s->device + PARTIAL_BYTES), STATS_BYTES / sizeof(float2)};
}
