/* AdamW of the rows that a set names, or of all other elements: where a lookup's gradient comes
 * late, the others need not wait for it. */
#include "runtime/cuda/kernels/adamw.cuh"

enum { THREADS = 256, MOST_THREADS = 1024 };

/* A gradient that is zero and lies nowhere. */
struct Zero {
};
template <> struct WindowOf<Zero> : WindowOf<float> {
};
template <int V> static __device__ __forceinline__ void fg_load(const Zero *, float (&out)[V])
{
#pragma unroll
    for (int j = 0; j < V; j++)
        out[j] = 0;
}

typedef struct Rows {
    const uint32_t *set;
    uint64_t shift;    /* from an element of the slice to one of the table, mod 2^64 */
    uint64_t elements; /* of the table */
    uint32_t hidden;
} Rows;

static __device__ __forceinline__ bool is_named(const Rows &rows, uint64_t at)
{
    uint64_t element = at + rows.shift; /* far beyond the table where it lies before it */
    if (element >= rows.elements)
        return false;
    uint32_t row =
        element <= UINT32_MAX ? (uint32_t)element / rows.hidden : (uint32_t)(element / rows.hidden);
    return __ldg(rows.set + row / 32) >> row % 32 & 1;
}

/* The elements that no row of the set holds: adamw_kernel, but for those. `wide`: four elements lie
 * in one row. */
template <bool NORM, class G, class S, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    others_kernel(AdamWArrays<G, S> a, const float *set, unsigned long long *norm,
                  FgCudaSpan pieces, uint64_t elements, Rows rows, bool wide)
{
    const int V = 4;
    __shared__ Limbs limbs;
    WarpSquares<G> squares;
    if (set[FG_RT_S_VALID] == 0)
        return;
    if constexpr (NORM) {
        limbs_clear(&limbs);
        squares.begin();
    }
    AdamW s = adamw_scalars(set, false);
    FgShare share = fg_block_share(elements, BLOCK * V);
    unsigned lane = threadIdx.x % 32;
    fg_each_piece(pieces, share, [&](uint64_t begin, uint64_t end, bool decay) {
        float keep = decay ? s.keep : 1.0f;
        for (uint64_t base = (begin / V + threadIdx.x - lane) * V; base < end; base += BLOCK * V) {
            uint64_t at = base + lane * V;
            float g[1][V] = {};
            if (wide && at >= begin && at + V <= end) {
                if (!is_named(rows, at))
                    adamw_four<false>(a, s, keep, at, begin, end, true, g[0]);
            } else {
                for (int j = 0; j < V; j++) {
                    uint64_t k = at + j;
                    float one[V];
                    if (k < begin || k >= end || is_named(rows, k))
                        continue;
                    adamw_four<false>(a, s, keep, at, k, k + 1, false, one);
                    g[0][j] = one[j];
                }
            }
            if constexpr (NORM)
                squares.add(&limbs, g);
        }
    });
    if constexpr (NORM) {
        squares.window.flush(&limbs);
        limbs_add_to(&limbs, norm);
    }
}

/* The rows of the set, as far as they lie in the slice: a block takes 32 rows, of which it looks
 * at the set alone where none is named. */
template <bool NORM, class G, class S>
__global__ void __launch_bounds__(THREADS)
    named_kernel(AdamWArrays<G, S> a, const float *set, unsigned long long *norm, FgCudaSpan pieces,
                 uint64_t elements, Rows rows, uint64_t first_word, bool wide)
{
    const int V = 4;
    __shared__ Limbs limbs;
    WarpSquares<G> squares;
    uint64_t word = first_word + blockIdx.x;
    uint32_t bits = word * 32 * rows.hidden < rows.elements ? rows.set[word] : 0;
    if (bits == 0 || set[FG_RT_S_VALID] == 0)
        return;
    if constexpr (NORM) {
        limbs_clear(&limbs);
        squares.begin();
    }
    AdamW s = adamw_scalars(set, false);
    unsigned lane = threadIdx.x % 32;
    for (; bits; bits &= bits - 1) {
        /* Of the slice; the row may begin before it. */
        int64_t from = (int64_t)((word * 32 + __ffs((int)bits) - 1) * rows.hidden - rows.shift);
        int64_t to = from + rows.hidden;
        uint64_t begin = from < 0 ? 0 : (uint64_t)from;
        uint64_t end = to < 0 ? 0 : (uint64_t)to < elements ? (uint64_t)to : elements;
        if (begin >= end)
            continue;
        float keep = pieces.at[fg_find_piece(pieces, begin)].decay ? s.keep : 1.0f;
        for (uint64_t at = (begin / V + threadIdx.x - lane) * V; at < end; at += THREADS * V) {
            float g[1][V];
            adamw_four<false>(a, s, keep, at + lane * V, begin, end, wide, g[0]);
            if constexpr (NORM)
                squares.add(&limbs, g);
        }
    }
    if constexpr (NORM) {
        squares.window.flush(&limbs);
        limbs_add_to(&limbs, norm);
    }
}

typedef struct RowsUpdate {
    const float *set;
    unsigned long long *norm; /* NULL: not counted */
    FgCudaSpan pieces;
    Rows rows;
    uint64_t elements;
    bool wide;
} RowsUpdate;

/* A large one has two thirds of the multiprocessors for itself (optimizer.cu says why). */
template <bool NORM, class G, class S>
static void update_others(FgRtCx *cx, cudaStream_t stream, const AdamWArrays<G, S> &a,
                          const RowsUpdate &u)
{
    unsigned blocks = (unsigned)(cx->n_sm * 2 / 3);
    size_t room = (size_t)cx->shared_bytes - 4096;
    if (blocks > 0 && u.elements >= (uint64_t)blocks * MOST_THREADS * 16) {
        auto *kernel = others_kernel<NORM, G, S, MOST_THREADS>;
        fg_cuda_check(
            cx,
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room),
            "cudaFuncSetAttribute");
        kernel<<<blocks, MOST_THREADS, room, stream>>>(a, u.set, u.norm, u.pieces, u.elements,
                                                       u.rows, u.wide);
    } else {
        others_kernel<NORM, G, S, THREADS>
            <<<fg_blocks(cx, u.elements, THREADS * 4, 16), THREADS, 0, stream>>>(
                a, u.set, u.norm, u.pieces, u.elements, u.rows, u.wide);
    }
}

template <bool NORM, class G, class S>
static void update_named(FgRtCx *cx, cudaStream_t stream, const AdamWArrays<G, S> &a,
                         const RowsUpdate &u)
{
    uint64_t shift = u.rows.shift,
             end = shift + u.elements; /* of the table: [shift, end) is here */
    uint64_t first = (int64_t)shift < 0 ? 0 : shift / u.rows.hidden / 32;
    if ((int64_t)end <= 0 || first * 32 * u.rows.hidden >= u.rows.elements)
        return;
    end = end < u.rows.elements ? end : u.rows.elements;
    uint64_t words = fg_ceil(fg_ceil(end, u.rows.hidden), 32) - first;
    named_kernel<NORM><<<(unsigned)words, THREADS, 0, stream>>>(a, u.set, u.norm, u.pieces,
                                                                u.elements, u.rows, first, u.wide);
}

template <class G, class S>
static void update_rows(FgRtCx *cx, cudaStream_t stream, const AdamWArrays<G, S> &a,
                        const RowsUpdate &u, bool named)
{
    if (named && u.norm)
        update_named<true>(cx, stream, a, u);
    else if (named)
        update_named<false>(cx, stream, a, u);
    else if (u.norm)
        update_others<true>(cx, stream, a, u);
    else
        update_others<false>(cx, stream, a, u);
}

void fg_cuda_adamw_rows(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad,
                        uint64_t master, uint64_t moment1, uint64_t moment2, uint64_t shard,
                        uint64_t norm, uint64_t scalars, uint64_t set, uint64_t bucket,
                        uint64_t table, uint64_t hidden, uint64_t vocab, uint64_t words,
                        uint64_t elements, uint64_t grad_dt, uint64_t dt, uint64_t named)
{
    (void)node, (void)words;
    RowsUpdate u = {(const float *)fg_cuda_at(cx, scalars) + FG_RT_CURRENT * FG_RT_SET,
                    norm == FG_RT_NONE ? NULL : (unsigned long long *)fg_cuda_at(cx, norm),
                    fg_cuda_pieces(cx, bucket, elements),
                    {(const uint32_t *)fg_cuda_at(cx, set), cx->rank * elements - table,
                     vocab * hidden, (uint32_t)hidden},
                    elements,
                    false};
    if (u.pieces.n == 0 || hidden == 0)
        return;
    if (master == FG_RT_NONE && dt != FG_RT_F32) {
        fg_cuda_raise(cx, "a shard that is not f32 has no master weights");
        return;
    }
    float *w = (float *)fg_cuda_at(cx, master == FG_RT_NONE ? shard : master);
    float *m = (float *)fg_cuda_at(cx, moment1), *v = (float *)fg_cuda_at(cx, moment2);
    fg_with_floats(cx, grad_dt, dt, [&](auto g, auto s) {
        typedef decltype(g) G;
        typedef decltype(s) S;
        S *copy = master == FG_RT_NONE ? NULL : (S *)fg_cuda_at(cx, shard);
        const G *from = grad == FG_RT_NONE ? NULL : (const G *)fg_cuda_at(cx, grad);
        u.wide = fg_aligned(w) && fg_aligned(m) && fg_aligned(v) && fg_aligned(copy) &&
                 fg_aligned(from) && (hidden | u.rows.shift) % 4 == 0;
        if (from) {
            AdamWArrays<G, S> a = {from, w, m, v, copy, 0, 0};
            update_rows(cx, stream, a, u, named != 0);
        } else {
            u.norm = NULL; /* zeros count nothing */
            AdamWArrays<Zero, S> a = {NULL, w, m, v, copy, 0, 0};
            update_rows(cx, stream, a, u, named != 0);
        }
    });
    fg_launched(cx);
}
