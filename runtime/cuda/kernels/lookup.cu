/* Embedding lookup and its gradient.
 *
 * The gradient adds the tokens of each row in order, without atomics on floats: a first kernel
 * finds each token's place in the order by (id, position), by comparing it with all others (a
 * second for a million tokens would be long, for thousands it is microseconds), then a block a
 * token sums the rows of the tokens of its id, where it comes first of them. */
#include "runtime/cuda/kernels/common.cuh"

enum { ORDER_TOKENS = 32, ORDER_SHARES = 8, ORDER_TILE = 2048, SUM_THREADS = 256, SUM_UNROLL = 8 };

/* The id of a token; a bad one is reported and counts as 0. */
static __device__ uint32_t checked_id(const int32_t *ids, uint64_t t, uint64_t vocab,
                                      int *device_error, uint32_t node)
{
    int32_t id = ids[t];
    if (id >= 0 && (uint64_t)id < vocab)
        return (uint32_t)id;
    fg_report(device_error, node);
    return 0;
}

template <class Word>
__global__ void lookup_kernel(const int32_t *ids, const Word *w, Word *y, uint64_t words,
                              uint64_t vocab, int *device_error, uint32_t node)
{
    uint64_t t = blockIdx.x;
    const Word *from = w + checked_id(ids, t, vocab, device_error, node) * words;
    Word *to = y + t * words;
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < words; i += blockDim.x)
        to[i] = from[i];
}

template <class Word>
static void lookup(FgRtCx *cx, cudaStream_t stream, uint32_t node, const int32_t *ids,
                   const void *w, void *y, uint64_t tokens, uint64_t bytes, uint64_t vocab)
{
    uint64_t words = bytes / sizeof(Word);
    lookup_kernel<Word><<<(unsigned)tokens, fg_row_threads(words, 2, 256), 0, stream>>>(
        ids, (const Word *)w, (Word *)y, words, vocab, cx->device_error, node);
    fg_launched(cx);
}

void fg_cuda_embedding(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t ids, uint64_t w,
                       uint64_t y, uint64_t tokens, uint64_t hidden, uint64_t vocab, uint64_t dt)
{
    if (!fg_rows_fit(cx, tokens))
        return;
    const int32_t *id = (const int32_t *)fg_cuda_at(cx, ids);
    const void *from = fg_cuda_at(cx, w);
    void *to = fg_cuda_at(cx, y);
    uint64_t bytes = hidden * fg_dtype_bytes(dt);
    if (bytes % 16 == 0 && fg_aligned(from) && fg_aligned(to))
        lookup<uint4>(cx, stream, node, id, from, to, tokens, bytes, vocab);
    else if (bytes % 4 == 0)
        lookup<uint32_t>(cx, stream, node, id, from, to, tokens, bytes, vocab);
    else
        lookup<uint16_t>(cx, stream, node, id, from, to, tokens, bytes, vocab);
}

/* Tokens by (id, position): order[place] is the token; count[t] is the number of tokens of t's id
 * when t is the first of them, else 0; start[t] is t's place. */
typedef struct Order {
    uint32_t *order, *count, *start;
} Order;

/* A block places 32 tokens; its warps compare them with a share of the others each. */
__global__ void __launch_bounds__(ORDER_TOKENS *ORDER_SHARES)
    order_kernel(const int32_t *ids, uint32_t tokens, uint64_t vocab, Order out, int *device_error,
                 uint32_t node)
{
    __shared__ uint4 tile[ORDER_TILE / 4];
    __shared__ uint32_t sums[3][ORDER_TOKENS];
    const uint32_t THREADS = ORDER_TOKENS * ORDER_SHARES, none = UINT32_MAX;
    uint32_t lane = threadIdx.x % ORDER_TOKENS, share = threadIdx.x / ORDER_TOKENS;
    uint32_t first = blockIdx.x * ORDER_TOKENS, t = first + lane;
    uint32_t id = t < tokens ? checked_id(ids, t, vocab, device_error, node) : 0;
    uint32_t below = 0, same = 0, earlier = 0;
    if (share < 3)
        sums[share][lane] = 0;
    for (uint32_t base = 0; base < tokens; base += ORDER_TILE) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < ORDER_TILE; i += THREADS) {
            int32_t other = base + i < tokens ? ids[base + i] : 0;
            uint32_t value = other >= 0 && (uint64_t)other < vocab ? (uint32_t)other : 0;
            reinterpret_cast<uint32_t *>(tile)[i] = base + i < tokens ? value : none;
        }
        __syncthreads();
        const uint32_t each = ORDER_TILE / 4 / ORDER_SHARES;
        uint32_t tile_same = 0;
#pragma unroll 4
        for (uint32_t i = share * each; i < (share + 1) * each; i++) {
            uint4 q = tile[i];
            below += (q.x < id) + (q.y < id) + (q.z < id) + (q.w < id);
            tile_same += (q.x == id) + (q.y == id) + (q.z == id) + (q.w == id);
        }
        same += tile_same;
        if (base + ORDER_TILE <= first)
            earlier += tile_same;
        else if (base < first + ORDER_TOKENS) /* the tile with the tokens themselves */
            for (uint32_t i = share * each * 4; i < (share + 1) * each * 4; i++)
                earlier += reinterpret_cast<uint32_t *>(tile)[i] == id && base + i < t;
    }
    atomicAdd(&sums[0][lane], below);
    atomicAdd(&sums[1][lane], same);
    atomicAdd(&sums[2][lane], earlier);
    __syncthreads();
    if (share != 0 || t >= tokens)
        return;
    below = sums[0][lane];
    out.order[below + sums[2][lane]] = t;
    out.start[t] = below;
    out.count[t] = sums[2][lane] == 0 ? sums[1][lane] : 0;
}

template <int BYTES> struct Raw;
template <> struct Raw<16> {
    typedef uint4 Type;
};
template <> struct Raw<8> {
    typedef uint2 Type;
};
template <> struct Raw<4> {
    typedef uint32_t Type;
};
template <> struct Raw<2> {
    typedef uint16_t Type;
};

/* Where a table and a rank's slice lie in their bucket, in elements. */
typedef struct Slice {
    uint64_t table, begin, end;
} Slice;

/* Adds to the slice what of the tokens' rows lies in it. V elements are inside or outside together:
 * the launch sees to that. Most rows have one token, some hundreds: places of the next tokens are
 * read while rows of these come. */
template <class T, class W, int V>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_kernel(const int32_t *ids, const T *rows, W *shard, uint64_t hidden, uint64_t vocab,
               uint64_t padding, Order in, Slice slice, bool accumulate)
{
    typedef typename Raw<V *(int)sizeof(T)>::Type Pack;
    uint32_t t = blockIdx.x, n = in.count[t];
    uint64_t col = ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    uint64_t row = ids[t] >= 0 && (uint64_t)ids[t] < vocab ? (uint64_t)ids[t] : 0;
    uint64_t at = slice.table + row * hidden + col;
    if (n == 0 || row == padding || col >= hidden || at < slice.begin || at >= slice.end)
        return;
    W *to = shard + (at - slice.begin);
    float sum[V] = {}, old[V] = {};
    if (accumulate)
        fg_load<V>(to, old);
    const uint32_t *tokens = in.order + in.start[t];
    uint32_t next[SUM_UNROLL];
#pragma unroll
    for (uint32_t u = 0; u < SUM_UNROLL; u++)
        next[u] = u < n ? tokens[u] : 0;
    for (uint32_t k = 0; k < n; k += SUM_UNROLL) {
        Pack pack[SUM_UNROLL];
#pragma unroll
        for (uint32_t u = 0; u < SUM_UNROLL; u++)
            if (k + u < n)
                pack[u] = *reinterpret_cast<const Pack *>(rows + next[u] * hidden + col);
#pragma unroll
        for (uint32_t u = 0; u < SUM_UNROLL; u++)
            next[u] = k + SUM_UNROLL + u < n ? tokens[k + SUM_UNROLL + u] : 0;
#pragma unroll
        for (uint32_t u = 0; u < SUM_UNROLL; u++)
            if (k + u < n) {
                float d[V];
                fg_load<V>(reinterpret_cast<const T *>(&pack[u]), d);
#pragma unroll
                for (int j = 0; j < V; j++)
                    sum[j] += d[j];
            }
    }
    if (accumulate)
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] = old[j] + sum[j];
    fg_store<V>(to, sum);
}

/* Puts the tokens in order and adds their rows. */
static void add_rows(FgRtCx *cx, cudaStream_t stream, uint32_t node, const int32_t *ids,
                     const void *rows, void *shard, uint64_t tokens, uint64_t hidden,
                     uint64_t vocab, uint64_t padding, Slice slice, uint64_t dt, uint64_t shard_dt,
                     bool accumulate, uint32_t *space, uint64_t space_bytes)
{
    if (!fg_rows_fit(cx, tokens) || hidden == 0)
        return;
    uint64_t need = 3 * tokens * sizeof *space;
    if (!space || space_bytes < need) {
        fg_cuda_raise(cx, "the workspace has %" PRIu64 " bytes, %" PRIu64 " are needed",
                      space ? space_bytes : 0, need);
        return;
    }
    Order order = {space, space + tokens, space + 2 * tokens};
    order_kernel<<<(unsigned)fg_ceil(tokens, ORDER_TOKENS), ORDER_TOKENS * ORDER_SHARES, 0,
                   stream>>>(ids, (uint32_t)tokens, vocab, order, cx->device_error, node);
    fg_with_floats(cx, dt, shard_dt, [&](auto a, auto b) {
        typedef decltype(a) T;
        typedef decltype(b) W;
        const int V = sizeof(T) == 2 && sizeof(W) == 2 ? 8 : 4;
        const T *from = (const T *)rows;
        W *to = (W *)shard;
        bool wide = hidden % V == 0 && slice.table % V == 0 && slice.begin % V == 0 &&
                    slice.end % V == 0 && fg_aligned(from) && fg_aligned(to);
        uint64_t packs = hidden / (wide ? V : 1);
        unsigned threads = fg_row_threads(packs, 1, SUM_THREADS);
        dim3 grid((unsigned)tokens, (unsigned)fg_ceil(packs, threads));
        auto *kernel = wide ? sum_kernel<T, W, V> : sum_kernel<T, W, 1>;
        kernel<<<grid, threads, 0, stream>>>(ids, from, to, hidden, vocab, padding, order, slice,
                                             accumulate);
    });
    fg_launched(cx);
}

void fg_cuda_embedding_dw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t ids, uint64_t dy,
                          uint64_t dw, uint64_t tokens, uint64_t hidden, uint64_t vocab,
                          uint64_t padding, uint64_t dt, uint64_t wire, uint64_t accumulate,
                          uint64_t ws, uint64_t ws_bytes)
{
    if (!accumulate)
        fg_cuda_check(
            cx,
            cudaMemsetAsync(fg_cuda_at(cx, dw), 0, vocab * hidden * fg_dtype_bytes(wire), stream),
            "cudaMemsetAsync");
    Slice all = {0, 0, vocab * hidden};
    add_rows(cx, stream, node, (const int32_t *)fg_cuda_at(cx, ids), fg_cuda_at(cx, dy),
             fg_cuda_at(cx, dw), tokens, hidden, vocab, padding, all, dt, wire, accumulate != 0,
             (uint32_t *)fg_cuda_at(cx, ws), ws_bytes);
}

/* A lookup whose rows travel: all ranks' tokens are ordered as those of one batch are. */
void fg_cuda_lookup_dw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t ids, uint64_t rows,
                       uint64_t shard, uint64_t bucket, uint64_t tokens, uint64_t hidden,
                       uint64_t vocab, uint64_t first, uint64_t elements, uint64_t padding,
                       uint64_t dt, uint64_t shard_dt, uint64_t accumulate, uint64_t ws,
                       uint64_t ws_bytes)
{
    (void)bucket;
    if (!accumulate)
        fg_cuda_check(
            cx,
            cudaMemsetAsync(fg_cuda_at(cx, shard), 0, elements * fg_dtype_bytes(shard_dt), stream),
            "cudaMemsetAsync");
    Slice slice = {first, cx->rank * elements, (cx->rank + 1) * elements};
    add_rows(cx, stream, node, (const int32_t *)fg_cuda_at(cx, ids), fg_cuda_at(cx, rows),
             fg_cuda_at(cx, shard), tokens, hidden, vocab, padding, slice, dt, shard_dt,
             accumulate != 0, (uint32_t *)fg_cuda_at(cx, ws), ws_bytes);
}

/* ---- which rows tokens name ---- */

__global__ void set_kernel(const int32_t *ids, uint32_t *set, uint64_t tokens, uint64_t vocab,
                           int *device_error, uint32_t node)
{
    uint64_t t = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= tokens)
        return;
    uint32_t row = checked_id(ids, t, vocab, device_error, node);
    atomicOr(set + row / 32, 1u << row % 32);
}

void fg_cuda_row_set(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t ids, uint64_t set,
                     uint64_t tokens, uint64_t vocab, uint64_t words)
{
    uint32_t *bits = (uint32_t *)fg_cuda_at(cx, set);
    fg_cuda_check(cx, cudaMemsetAsync(bits, 0, words * sizeof *bits, stream), "cudaMemsetAsync");
    if (!fg_rows_fit(cx, tokens))
        return;
    set_kernel<<<(unsigned)fg_ceil(tokens, 256), 256, 0, stream>>>(
        (const int32_t *)fg_cuda_at(cx, ids), bits, tokens, vocab, cx->device_error, node);
    fg_launched(cx);
}
