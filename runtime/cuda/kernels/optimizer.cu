/* What happens to a bucket's gradient: zeroed gaps, AdamW on the owned slice, which may sum the
 * ranks' parts of it, and add the squares to the norm, as it reads them.
 *
 * A rank owns a slice of a bucket, and that slice holds pieces of parameters with gaps between
 * them (segments.cu). Blocks take equal shares of the slice and walk the pieces in theirs. */
#include "runtime/cuda/kernels/norm_window.cuh"
#include "runtime/cuda/kernels/segments.cuh"

enum { THREADS = 256, MOST_THREADS = 1024 };

/* ---- gradient buffers ---- */

template <class Word>
__global__ void __launch_bounds__(THREADS) gaps_kernel(Word *buffer, FgCudaSpan gaps)
{
    for (uint32_t i = blockIdx.y; i < gaps.n; i += gridDim.y) {
        FgCudaPiece gap = gaps.at[i];
        for (uint64_t at = gap.begin + (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < gap.end;
             at += (uint64_t)gridDim.x * THREADS)
            buffer[at] = 0;
    }
}

void fg_cuda_grad_buffer(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t buffer,
                         uint64_t bucket, uint64_t elements, uint64_t wire)
{
    (void)node;
    FgCudaSpan gaps = fg_cuda_gaps(cx, bucket, elements);
    if (gaps.n == 0)
        return;
    void *to = fg_cuda_at(cx, buffer);
    dim3 grid(8, gaps.n < 1024 ? gaps.n : 1024);
    if (fg_dtype_bytes(wire) == 2)
        gaps_kernel<uint16_t><<<grid, THREADS, 0, stream>>>((uint16_t *)to, gaps);
    else
        gaps_kernel<uint32_t><<<grid, THREADS, 0, stream>>>((uint32_t *)to, gaps);
    fg_launched(cx);
}

/* ---- AdamW ----
 * The operations and their order are those of runtime/host/optimizer.c, without contraction: the
 * moments have the same bits. Root and quotient are those of the special function units, within 2
 * units in the last place of the step, which is itself a small part of the weight: exact ones take
 * twice the instructions, and the update waits for its instructions rather than for memory. A root
 * below the least normal number is 0, where eps is all that counts. */
typedef struct AdamW {
    float factor, beta1, rest1, beta2, rest2, rate, root, eps, keep;
} AdamW;

static __device__ AdamW adamw_scalars(const float *set, bool factored)
{
    AdamW s;
    s.factor = factored ? set[FG_RT_S_FACTOR] : 1.0f;
    s.beta1 = set[FG_RT_S_BETA1];
    s.rest1 = __fsub_rn(1.0f, s.beta1);
    s.beta2 = set[FG_RT_S_BETA2];
    s.rest2 = __fsub_rn(1.0f, s.beta2);
    s.rate = __fdiv_rn(set[FG_RT_S_LR], set[FG_RT_S_CORRECT1]);
    s.root = __fdiv_rn(1.0f, __fsqrt_rn(set[FG_RT_S_CORRECT2]));
    s.eps = set[FG_RT_S_EPS];
    s.keep = __fsub_rn(1.0f, __fmul_rn(set[FG_RT_S_LR], set[FG_RT_S_DECAY])); /* where it decays */
    return s;
}

static __device__ void adamw_one(const AdamW &s, float keep, float grad, float &w, float &m,
                                 float &v)
{
    float g = __fmul_rn(grad, s.factor);
    m = __fadd_rn(__fmul_rn(s.beta1, m), __fmul_rn(s.rest1, g));
    v = __fadd_rn(__fmul_rn(s.beta2, v), __fmul_rn(__fmul_rn(s.rest2, g), g));
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
    root = __fadd_rn(__fmul_rn(root, s.root), s.eps);
    w = __fsub_rn(__fmul_rn(w, keep), __fmul_rn(s.rate, __fdividef(m, root)));
}

template <class G, class S> struct AdamWArrays {
    const G *grad; /* the sum, or n_parts of it, `part` elements each */
    float *w, *m, *v;
    S *shard; /* NULL: w is the shard */
    uint64_t part;
    uint32_t n_parts; /* at least 2 where there are any */
};

/* The gradient of V elements: with PARTS the parts' sum in rank order, in f32, rounded once. The
 * first two parts are on their way before the sum waits for either. */
template <bool PARTS, int V, class G, class S>
static __device__ __forceinline__ void gradient(const AdamWArrays<G, S> &a, uint64_t at,
                                                float (&g)[V])
{
    fg_load<V>(a.grad + at, g);
    if constexpr (PARTS) {
        float more[V];
        fg_load<V>(a.grad + a.part + at, more);
#pragma unroll
        for (int j = 0; j < V; j++)
            g[j] = __fadd_rn(g[j], more[j]);
        for (uint32_t p = 2; p < a.n_parts; p++) {
            fg_load<V>(a.grad + p * a.part + at, more);
#pragma unroll
            for (int j = 0; j < V; j++)
                g[j] = __fadd_rn(g[j], more[j]);
        }
#pragma unroll
        for (int j = 0; j < V; j++) {
            G rounded;
            fg_put(&rounded, g[j]);
            g[j] = fg_get(&rounded);
        }
    }
}

/* Elements at .. at + 4 of those in [begin, end); their gradients come back in g, 0 elsewhere. */
template <bool PARTS, class G, class S>
static __device__ __forceinline__ void adamw_four(const AdamWArrays<G, S> &a, const AdamW &s,
                                                  float keep, uint64_t at, uint64_t begin,
                                                  uint64_t end, bool wide, float (&g)[4])
{
    const int V = 4;
    if (wide && at >= begin && at + V <= end) {
        float w[V], m[V], v[V];
        gradient<PARTS>(a, at, g);
        fg_load<V>(a.w + at, w);
        fg_load<V>(a.m + at, m);
        fg_load<V>(a.v + at, v);
#pragma unroll
        for (int j = 0; j < V; j++)
            adamw_one(s, keep, g[j], w[j], m[j], v[j]);
        fg_store<V>(a.w + at, w);
        fg_store<V>(a.m + at, m);
        fg_store<V>(a.v + at, v);
        if (a.shard)
            fg_store<V>(a.shard + at, w);
        return;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint64_t k = at + j;
        g[j] = 0;
        if (k < begin || k >= end)
            continue;
        float w = a.w[k], m = a.m[k], v = a.v[k];
        float one[1];
        gradient<PARTS>(a, k, one);
        g[j] = one[0];
        adamw_one(s, keep, g[j], w, m, v);
        a.w[k] = w;
        a.m[k] = m;
        a.v[k] = v;
        if (a.shard)
            fg_put(a.shard + k, w);
    }
}

/* norm: where the squares of the gradient are added on the way, with NORM. */
template <bool NORM, bool PARTS, class G, class S, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    adamw_kernel(AdamWArrays<G, S> a, const float *set, bool factored, unsigned long long *norm,
                 FgCudaSpan pieces, uint64_t first, uint64_t elements, bool wide)
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
    AdamW s = adamw_scalars(set, factored);
    FgShare share = fg_block_share(elements, BLOCK * V); /* of the part, then of the slice */
    share.begin += first;
    share.end += first;
    unsigned lane = threadIdx.x % 32;
    for (uint32_t i = fg_find_piece(pieces, share.begin); i < pieces.n; i++) {
        uint64_t begin = pieces.at[i].begin, end = pieces.at[i].end;
        begin = begin > share.begin ? begin : share.begin;
        end = end < share.end ? end : share.end;
        if (begin >= end)
            break;
        float keep = pieces.at[i].decay ? s.keep : 1.0f;
        /* The same number of turns for all lanes of a warp. */
        for (uint64_t at = (begin / V + threadIdx.x - lane) * V; at < end; at += BLOCK * V) {
            float g[1][V];
            adamw_four<PARTS>(a, s, keep, at + lane * V, begin, end, wide, g[0]);
            if constexpr (NORM)
                squares.add(&limbs, g);
        }
    }
    if constexpr (NORM) {
        squares.window.flush(&limbs);
        limbs_add_to(&limbs, norm);
    }
}

/* ---- AdamW of the rows that a set names, or of all other elements ---- */

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
    for (uint32_t i = fg_find_piece(pieces, share.begin); i < pieces.n; i++) {
        uint64_t begin = pieces.at[i].begin, end = pieces.at[i].end;
        begin = begin > share.begin ? begin : share.begin;
        end = end < share.end ? end : share.end;
        if (begin >= end)
            break;
        float keep = pieces.at[i].decay ? s.keep : 1.0f;
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
    }
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

/* A large one in the blocks that `update` takes. */
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

/* An array that holds elements `first` and on of the slice, as if it began with the slice. */
template <class T> static T *before(FgRtCx *cx, uint64_t offset, uint64_t first)
{
    return (T *)((uintptr_t)fg_cuda_at(cx, offset) - first * sizeof(T));
}

/* What an update works on: arrays of the elements `first` to first + elements of the slice. */
typedef struct Update {
    uint64_t grad, master, moment1, moment2, shard, norm, scalars;
    uint64_t first, elements, grad_dt, dt, set;
    uint32_t n_parts; /* of the gradient; 1: it is the sum */
} Update;

/* An update runs beside products, and both are slow where they share a multiprocessor: blocks of
 * small products wait until the last block of the update has gone. A large one therefore takes two
 * thirds of the multiprocessors for itself, one block each (shared memory that it does not use
 * keeps a second one away), which is enough for the memory's rate. */
template <bool NORM, bool PARTS, class G, class S>
static void launch(FgRtCx *cx, cudaStream_t stream, const Update &u, const AdamWArrays<G, S> &a,
                   FgCudaSpan pieces)
{
    const float *set = (const float *)fg_cuda_at(cx, u.scalars) + u.set * FG_RT_SET;
    bool factored = cx->program->clip > 0 || cx->program->scales_loss;
    bool wide = fg_aligned(a.grad) && fg_aligned(a.w) && fg_aligned(a.m) && fg_aligned(a.v) &&
                fg_aligned(a.shard) && a.part % 8 == 0;
    unsigned long long *norm = NORM ? (unsigned long long *)fg_cuda_at(cx, u.norm) : NULL;
    unsigned blocks = (unsigned)(cx->n_sm * 2 / 3);
    size_t room = (size_t)cx->shared_bytes - 4096; /* the rest: the norm's limbs */
    if (blocks > 0 && u.elements >= (uint64_t)blocks * MOST_THREADS * 16) {
        auto *kernel = adamw_kernel<NORM, PARTS, G, S, MOST_THREADS>;
        fg_cuda_check(
            cx,
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room),
            "cudaFuncSetAttribute");
        kernel<<<blocks, MOST_THREADS, room, stream>>>(a, set, factored, norm, pieces, u.first,
                                                       u.elements, wide);
    } else {
        adamw_kernel<NORM, PARTS, G, S, THREADS>
            <<<fg_blocks(cx, u.elements, THREADS * 4, 16), THREADS, 0, stream>>>(
                a, set, factored, norm, pieces, u.first, u.elements, wide);
    }
}

template <bool PARTS>
static void update(FgRtCx *cx, cudaStream_t stream, const Update &u, FgCudaSpan pieces)
{
    if (pieces.n == 0)
        return;
    if (u.master == FG_RT_NONE && u.dt != FG_RT_F32) {
        fg_cuda_raise(cx, "a shard that is not f32 has no master weights");
        return;
    }
    fg_with_floats(cx, u.grad_dt, u.dt, [&](auto g, auto s) {
        typedef decltype(g) G;
        typedef decltype(s) S;
        uint64_t weights = u.master == FG_RT_NONE ? u.shard : u.master;
        AdamWArrays<G, S> a = {before<const G>(cx, u.grad, u.first),
                               before<float>(cx, weights, u.first),
                               before<float>(cx, u.moment1, u.first),
                               before<float>(cx, u.moment2, u.first),
                               u.master == FG_RT_NONE ? NULL : before<S>(cx, u.shard, u.first),
                               u.elements,
                               u.n_parts};
        if (u.norm == FG_RT_NONE)
            launch<false, PARTS>(cx, stream, u, a, pieces);
        else
            launch<true, PARTS>(cx, stream, u, a, pieces);
    });
    fg_launched(cx);
}

void fg_cuda_adamw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad, uint64_t master,
                   uint64_t moment1, uint64_t moment2, uint64_t shard, uint64_t norm,
                   uint64_t scalars, uint64_t bucket, uint64_t elements, uint64_t grad_dt,
                   uint64_t dt, uint64_t set)
{
    (void)node;
    Update u = {grad, master,   moment1, moment2, shard, norm, scalars,
                0,    elements, grad_dt, dt,      set,   1};
    update<false>(cx, stream, u, fg_cuda_pieces(cx, bucket, elements));
}

/* Where no slice of a parameter is the rank's, the norm begins all the same. */
void fg_cuda_adamw_parts(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t parts,
                         uint64_t master, uint64_t moment1, uint64_t moment2, uint64_t shard,
                         uint64_t norm, uint64_t scalars, uint64_t bucket, uint64_t elements,
                         uint64_t part_dt, uint64_t dt, uint64_t adds)
{
    (void)node;
    uint32_t n = cx->program->ranks;
    FgCudaSpan pieces = fg_cuda_pieces(cx, bucket, elements);
    Update u = {parts, master,   moment1, moment2, shard,         norm, scalars,
                0,     elements, part_dt, dt,      FG_RT_CURRENT, n};
    if (norm != FG_RT_NONE && !adds)
        fg_cuda_check(
            cx,
            cudaMemsetAsync(fg_cuda_at(cx, norm), 0, FG_RT_NORM_LIMBS * sizeof(int64_t), stream),
            "cudaMemsetAsync");
    if (n > 1)
        update<true>(cx, stream, u, pieces);
    else
        update<false>(cx, stream, u, pieces);
}

void fg_cuda_adamw_part(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad,
                        uint64_t master, uint64_t moment1, uint64_t moment2, uint64_t shard,
                        uint64_t scalars, uint64_t bucket, uint64_t first, uint64_t elements,
                        uint64_t grad_dt, uint64_t dt, uint64_t set)
{
    (void)node;
    const FgRtProgram *program = cx->program;
    uint64_t slice =
        bucket < program->n_buckets ? program->buckets[bucket].elements / program->ranks : 0;
    if (first > slice || elements > slice - first) {
        fg_cuda_raise(cx, "elements %llu and on are not in the slice of bucket %llu",
                      (unsigned long long)first, (unsigned long long)bucket);
        return;
    }
    Update u = {grad,  master,   moment1, moment2, shard, FG_RT_NONE, scalars,
                first, elements, grad_dt, dt,      set,   1};
    update<false>(cx, stream, u, fg_cuda_pieces(cx, bucket, slice));
}
