/* A sharded vocabulary on the rank that owns some of its rows: lookup, the head's statistics, its
 * loss, and the gradient of its logits.
 *
 * Rank r owns the rows from r * cols on; those from `vocab` on do not exist: they are -inf in a
 * log-sum-exp and have no gradient. Tokens of all ranks lie rank by rank. A block works on a row;
 * the ranks' statistics are combined in rank order, in f64, so that every rank finds the same bits.
 */
#include "runtime/cuda/kernels/labels.cuh"
#include "runtime/cuda/kernels/softmax.cuh"

enum { LSE_THREADS = 128, SUM_THREADS = 1024, BACK_THREADS = 256 };

/* Which tokens a call works on: `each` of every rank, from `first` of each on. */
typedef struct Tokens {
    const int32_t *all; /* ids or labels */
    uint64_t stride;    /* of a rank in `all` */
    uint64_t first, each;
} Tokens;

static Tokens tokens_of(const FgRtCx *cx, uint64_t ids, uint64_t tokens, uint64_t first,
                        uint64_t rows)
{
    Tokens t = {(const int32_t *)fg_cuda_at(cx, ids), tokens / cx->ranks, first, rows / cx->ranks};
    return t;
}

static __device__ int32_t token_at(const Tokens &t, uint64_t row)
{
    return t.all[row / t.each * t.stride + t.first + row % t.each];
}

/* Owned columns that exist. */
static uint64_t columns_there(const FgRtCx *cx, uint64_t cols, uint64_t vocab)
{
    uint64_t begin = cx->rank * cols, left = begin < vocab ? vocab - begin : 0;
    return left < cols ? left : cols;
}

/* ---- lookup ---- */

/* A word of -0.0; `pattern`: four bytes of it. */
static __device__ void set_word(uint4 &word, uint32_t pattern)
{
    word = make_uint4(pattern, pattern, pattern, pattern);
}
static __device__ void set_word(uint32_t &word, uint32_t pattern)
{
    word = pattern;
}
static __device__ void set_word(uint16_t &word, uint32_t pattern)
{
    word = (uint16_t)(pattern >> 16);
}

/* Where the table and the rank's slice lie in their bucket, in words. */
typedef struct Slice {
    uint64_t table, begin, words;
} Slice;

template <class Word>
__global__ void rows_kernel(Tokens t, const Word *shard, Word *y, uint64_t words, Slice slice,
                            uint64_t vocab, uint32_t pattern, int *device_error, uint32_t node)
{
    int32_t id = token_at(t, blockIdx.x);
    bool bad = id < 0 || (uint64_t)id >= vocab;
    if (bad)
        fg_report(device_error, node);
    /* large where it lies below */
    uint64_t at = slice.table + (bad ? 0 : (uint64_t)id) * words - slice.begin;
    Word *to = y + blockIdx.x * words, none;
    set_word(none, pattern);
    for (uint64_t i = threadIdx.x; i < words; i += blockDim.x)
        to[i] = at + i < slice.words && !bad ? shard[at + i] : none;
}

template <class Word>
static void lookup(FgRtCx *cx, cudaStream_t stream, uint32_t node, Tokens t, const void *shard,
                   void *y, uint64_t rows, uint64_t hidden, uint64_t table, uint64_t elements,
                   uint64_t vocab, uint64_t size)
{
    uint64_t words = hidden * size / sizeof(Word), own = elements * size / sizeof(Word);
    Slice slice = {table * size / sizeof(Word), cx->rank * own, own};
    rows_kernel<Word><<<(unsigned)rows, fg_row_threads(words, 2, 256), 0, stream>>>(
        t, (const Word *)shard, (Word *)y, words, slice, vocab,
        size == 2 ? 0x80008000u : 0x80000000u, cx->device_error, node);
    fg_launched(cx);
}

void fg_cuda_lookup_rows(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t ids,
                         uint64_t shard, uint64_t y, uint64_t tokens, uint64_t first, uint64_t rows,
                         uint64_t hidden, uint64_t vocab, uint64_t table, uint64_t elements,
                         uint64_t dt)
{
    if (!fg_rows_fit(cx, rows))
        return;
    Tokens t = tokens_of(cx, ids, tokens, first, rows);
    const void *from = fg_cuda_at(cx, shard);
    void *to = fg_cuda_at(cx, y);
    uint64_t size = fg_dtype_bytes(dt), borders = (hidden | table | elements) * size;
    if (borders % 16 == 0 && fg_aligned(from) && fg_aligned(to))
        lookup<uint4>(cx, stream, node, t, from, to, rows, hidden, table, elements, vocab, size);
    else if (borders % 4 == 0)
        lookup<uint32_t>(cx, stream, node, t, from, to, rows, hidden, table, elements, vocab, size);
    else
        lookup<uint16_t>(cx, stream, node, t, from, to, rows, hidden, table, elements, vocab, size);
}

/* ---- statistics ---- */

template <class T>
__global__ void __launch_bounds__(FG_ROW_THREADS, FG_ROW_BLOCKS)
    stats_kernel(const T *logits, Tokens t, float *stats, uint64_t cols, uint64_t there,
                 uint64_t begin, uint64_t vocab, int64_t ignore, bool wide, int *device_error,
                 uint32_t node)
{
    const T *x = logits + blockIdx.x * cols;
    FgRowSoftmax row = fg_row_softmax(x, there, wide);
    if (threadIdx.x != 0)
        return;
    int32_t label = token_at(t, blockIdx.x);
    uint64_t at = (uint64_t)(int64_t)label - begin;
    bool counts = label_counts(label, ignore, vocab, device_error, node) && at < there;
    float *out = stats + 3 * (uint64_t)blockIdx.x;
    out[0] = row.most;
    out[1] = row.sum;
    out[2] = counts ? fg_get(x + at) : 0.0f;
}

void fg_cuda_vocab_stats(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t logits,
                         uint64_t labels, uint64_t stats, uint64_t tokens, uint64_t first,
                         uint64_t rows, uint64_t cols, uint64_t vocab, uint64_t ignore, uint64_t dt)
{
    if (!fg_rows_fit(cx, rows))
        return;
    Tokens t = tokens_of(cx, labels, tokens, first, rows);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *x = (const T *)fg_cuda_at(cx, logits);
        unsigned threads = fg_row_threads(cols / FgElement<T>::PER_16, 4, FG_ROW_THREADS);
        stats_kernel<T><<<(unsigned)rows, threads, fg_row_softmax_bytes(threads), stream>>>(
            x, t, (float *)fg_cuda_at(cx, stats), cols, columns_there(cx, cols, vocab),
            cx->rank * cols, vocab, (int64_t)ignore, fg_aligned(x), cx->device_error, node);
    });
    fg_launched(cx);
}

/* ---- loss ---- */

typedef struct Combined {
    double lse, target;
} Combined;

static __device__ Combined combine(const float *stats, uint64_t ranks, uint64_t stride)
{
    float most = -INFINITY;
    double sum = 0, target = 0;
    for (uint64_t r = 0; r < ranks; r++)
        most = fmaxf(most, stats[r * stride]);
    for (uint64_t r = 0; r < ranks; r++) {
        const float *part = stats + r * stride;
        if (part[1] != 0)
            sum += (double)part[1] * exp((double)part[0] - (double)most);
        target += (double)part[2];
    }
    Combined out = {(double)most + log(sum), target};
    return out;
}

__global__ void __launch_bounds__(LSE_THREADS)
    lse_kernel(const float *stats, float *lse, uint64_t ranks, uint64_t rows)
{
    uint64_t row = (uint64_t)blockIdx.x * LSE_THREADS + threadIdx.x;
    if (row < rows)
        lse[row] = (float)combine(stats + 3 * row, ranks, 3 * rows).lse;
}

/* The own rows, in a fixed order. */
__global__ void __launch_bounds__(SUM_THREADS)
    loss_kernel(const float *stats, Tokens t, const float *seed, const float *before, float *loss,
                uint64_t ranks, uint64_t rows, uint64_t begin, uint64_t vocab, int64_t ignore,
                int *device_error, uint32_t node)
{
    double sum = 0;
    for (uint64_t i = threadIdx.x; i < t.each; i += SUM_THREADS) {
        uint64_t row = begin + i;
        if (!label_counts(token_at(t, row), ignore, vocab, device_error, node))
            continue;
        Combined of = combine(stats + 3 * row, ranks, 3 * rows);
        sum += of.lse - of.target;
    }
    sum = fg_block_sum(sum);
    if (threadIdx.x == 0)
        *loss = (float)((before ? (double)*before : 0.0) + (double)*seed * sum);
}

void fg_cuda_vocab_loss(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t stats,
                        uint64_t labels, uint64_t seed, uint64_t before, uint64_t loss,
                        uint64_t lse, uint64_t tokens, uint64_t first, uint64_t rows,
                        uint64_t vocab, uint64_t ignore)
{
    if (!fg_rows_fit(cx, rows))
        return;
    Tokens t = tokens_of(cx, labels, tokens, first, rows);
    const float *all = (const float *)fg_cuda_at(cx, stats);
    lse_kernel<<<(unsigned)fg_ceil(rows, LSE_THREADS), LSE_THREADS, 0, stream>>>(
        all, (float *)fg_cuda_at(cx, lse), cx->ranks, rows);
    loss_kernel<<<1, SUM_THREADS, 0, stream>>>(
        all, t, (const float *)fg_cuda_at(cx, seed), (const float *)fg_cuda_at(cx, before),
        (float *)fg_cuda_at(cx, loss), cx->ranks, rows, cx->rank * t.each, vocab, (int64_t)ignore,
        cx->device_error, node);
    fg_launched(cx);
}

/* ---- gradients ---- */

template <class T>
__global__ void __launch_bounds__(BACK_THREADS)
    back_kernel(const T *logits, Tokens t, const float *lse, const float *seed, T *dlogits,
                uint64_t cols, uint32_t parts, uint64_t there, uint64_t begin, uint64_t vocab,
                int64_t ignore, bool wide, int *device_error, uint32_t node)
{
    uint32_t row = blockIdx.x / parts;
    FgPart part = {blockIdx.x - row * parts, parts};
    const T *x = logits + row * cols;
    T *dx = dlogits + row * cols;
    int32_t label = token_at(t, row);
    bool counts = label_counts(label, ignore, vocab, device_error, node);
    uint64_t end = counts ? there : 0;
    FgLossSlope<T> slope = {(uint64_t)(int64_t)label - begin, lse[row], *seed};
    fg_each_to(x, dx, end, wide, part, slope);
    fg_each_zero(dx, end, cols, wide, part);
}

void fg_cuda_vocab_dlogits(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t logits,
                           uint64_t labels, uint64_t lse, uint64_t seed, uint64_t dlogits,
                           uint64_t tokens, uint64_t first, uint64_t rows, uint64_t cols,
                           uint64_t vocab, uint64_t ignore, uint64_t dt)
{
    if (!fg_rows_fit(cx, rows))
        return;
    Tokens t = tokens_of(cx, labels, tokens, first, rows);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *x = (const T *)fg_cuda_at(cx, logits);
        T *dx = (T *)fg_cuda_at(cx, dlogits);
        uint64_t packs = cols / FgElement<T>::PER_16;
        unsigned threads = fg_row_threads(packs, FG_EACH_BATCH, BACK_THREADS);
        uint32_t parts = fg_row_parts(rows, packs, threads);
        back_kernel<T><<<(unsigned)rows * parts, threads, 0, stream>>>(
            x, t, (const float *)fg_cuda_at(cx, lse), (const float *)fg_cuda_at(cx, seed), dx, cols,
            parts, columns_there(cx, cols, vocab), cx->rank * cols, vocab, (int64_t)ignore,
            fg_aligned(x) && fg_aligned(dx), cx->device_error, node);
    });
    fg_launched(cx);
}

void fg_cuda_vocab_db(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t dlogits,
                      uint64_t shard, uint64_t bucket, uint64_t m, uint64_t n, uint64_t dt,
                      uint64_t shard_dt, uint64_t accumulate)
{
    (void)bucket;
    fg_cuda_column_sum(cx, stream, node, dlogits, shard, m, n, dt, shard_dt, accumulate);
}
