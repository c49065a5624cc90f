/* What happens to a bucket's gradient: zeroed gaps, the exact norm, clipping, AdamW on the owned
 * slice.
 *
 * A rank owns a slice of a bucket, and that slice holds pieces of parameters with gaps between
 * them (segments.cu). Blocks take equal shares of the slice and walk the pieces in theirs.
 *
 * The norm is the fixed-point number of runtime/host/exact.c: every square is exact in it, sums of
 * integers do not depend on their order, so it may use atomics and still repeat. Most values never
 * reach the limbs one by one: a warp keeps a window of 64 bits of the number in registers, placed
 * by the largest values it has met, and adds each square at its place in the window by one shift.
 * What lies outside the window goes to the block's limbs in shared memory; a larger value moves the
 * window. */
#include "runtime/cuda/kernels/segments.cuh"

enum { THREADS = 256 };

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

/* ---- pieces ---- */

/* The first piece that ends after `at`. */
static __device__ uint32_t find_piece(FgCudaSpan pieces, uint64_t at)
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
typedef struct Share {
    uint64_t begin, end;
} Share;

static __device__ Share block_share(uint64_t elements, uint64_t unit)
{
    uint64_t units = (elements + unit - 1) / unit;
    uint64_t begin = units * blockIdx.x / gridDim.x * unit;
    uint64_t end = units * (blockIdx.x + 1) / gridDim.x * unit;
    return (Share){begin, end < elements ? end : elements};
}

/* ---- the exact norm ---- */

enum { LIMBS = FG_RT_NORM_LIMBS, FLAG = LIMBS - 1 };

/* Limbs of a block: low words, and the carries out of them. */
typedef struct Limbs {
    uint32_t low[LIMBS + 2], carries[LIMBS + 2];
} Limbs;

static __device__ void add_word(Limbs *limbs, uint32_t limb, uint32_t word)
{
    if (word && atomicAdd(&limbs->low[limb], word) > UINT32_MAX - word)
        atomicAdd(&limbs->carries[limb], 1u);
}

/* Adds value * 2^place (from the number's lowest bit). */
static __device__ __noinline__ void add_at(Limbs *limbs, uint32_t place, uint64_t value)
{
    uint32_t limb = place / 32, shift = place % 32;
    uint64_t low = (value & UINT32_MAX) << shift, high = (value >> 32) << shift;
    uint64_t middle = (low >> 32) + (high & UINT32_MAX);
    add_word(limbs, limb, (uint32_t)low);
    add_word(limbs, limb + 1, (uint32_t)middle);
    add_word(limbs, limb + 2, (uint32_t)((high >> 32) + (middle >> 32)));
}

/* BITS: significant bits of an element. A value is m * 2^e' with m of BITS bits, and its square
 * begins at place 2 * exponent + PLACE of the number. */
template <class T> struct Square;
template <> struct Square<float> {
    static const int BITS = 24, FLUSH = 64;
};
template <> struct Square<FgF16> {
    static const int BITS = 11, FLUSH = 128;
};
template <> struct Square<FgBf16> {
    static const int BITS = 8, FLUSH = 4096;
};
/* FLUSH: packs of 16 bytes after which a bin of 64 bits might overflow: elements * 2^(2 BITS + 31),
 * twice 2^55 an element for f32. */

/* A square on its own; the mantissa comes with the leading bit of normal numbers. */
template <int BITS, int PLACE>
static __device__ __noinline__ void add_alone(Limbs *limbs, uint32_t exponent, uint32_t mantissa)
{
    if (exponent == 255) {
        atomicAdd(&limbs->low[FLAG], 1u);
        return;
    }
    uint32_t m = exponent ? mantissa : mantissa & ~(1u << (BITS - 1));
    if (m != 0)
        add_at(limbs, 2 * (exponent ? exponent : 1) + PLACE, (uint64_t)m * m);
}

template <class T> struct Window {
    static const int PLACE = 20 + 2 * (24 - Square<T>::BITS);
    int base;                   /* place of the window's lowest bit */
    uint32_t seen;              /* largest exponent that fell outside the window */
    uint64_t low, middle, high; /* bins 32 bits apart: the sum of this lane; high: f32 alone */

    __device__ __forceinline__ void flush_bin(Limbs *limbs, int place, uint64_t bin)
    {
        uint64_t first = fg_warp_sum(bin & UINT32_MAX), second = fg_warp_sum(bin >> 32);
        if (threadIdx.x % 32 == 0) {
            add_at(limbs, place, first);
            add_at(limbs, place + 32, second);
        }
    }

    __device__ __forceinline__ void flush(Limbs *limbs)
    {
        flush_bin(limbs, base, low);
        flush_bin(limbs, base + 32, middle);
        if (Square<T>::BITS == 24)
            flush_bin(limbs, base + 64, high);
        low = middle = high = 0;
    }

    __device__ __forceinline__ void add(Limbs *limbs, float value)
    {
        const int B = Square<T>::BITS;
        uint32_t bits = __float_as_uint(value), exponent = bits >> 23 & 255u;
        uint32_t m = (bits >> (24 - B) & ((1u << (B - 1)) - 1)) | 1u << (B - 1);
        uint32_t place = 2 * exponent + PLACE - base;
        if (place >= 64) { /* below it, or above */
            if (bits << 1 == 0)
                return;
            add_alone<B, PLACE>(limbs, exponent, m);
            seen = exponent != 255 && exponent > seen ? exponent : seen;
            return;
        }
        if constexpr (B == 24) { /* two halves of the square, so that the bins have room */
            uint64_t square = (uint64_t)m * m;
            put(place, (uint32_t)square & 0xffffffu);
            put(place + 24, (uint32_t)(square >> 24));
        } else {
            put(place, m * m);
        }
    }

    __device__ __forceinline__ void put(uint32_t place, uint32_t value)
    {
        uint64_t shifted = (uint64_t)value << (place % 32);
        if (place < 32)
            low += shifted;
        else if (place < 64)
            middle += shifted;
        else
            high += shifted;
    }

    /* Moves the window to the warp's largest `top`; false when that is nothing. All lanes come. */
    __device__ __forceinline__ bool raise(uint32_t top)
    {
#pragma unroll
        for (int i = 16; i > 0; i >>= 1) {
            uint32_t other = __shfl_xor_sync(0xffffffffu, top, i);
            top = top > other ? top : other;
        }
        if (top > 0)
            move(top);
        return top > 0;
    }

    /* All lanes come. Moves the window when one has met a larger exponent. */
    __device__ __forceinline__ void settle(Limbs *limbs)
    {
        if (!__any_sync(0xffffffffu, 2 * (int)seen + PLACE >= base + 64))
            return;
        flush(limbs);
        raise(seen);
    }

    /* Never so low that a subnormal number would lie inside, nor up to infinity. */
    __device__ __forceinline__ void move(uint32_t top)
    {
        const int lowest = PLACE + 4, highest = 2 * 255 + PLACE - 64;
        base = 2 * ((int)top + 2) + PLACE - 63;
        base = base < lowest ? lowest : base > highest ? highest : base;
        seen = 0;
    }
};

/* V elements from `first` on; those outside [begin, end) are 0. */
template <int V, class T>
static __device__ void load_part(const T *from, uint64_t first, uint64_t begin, uint64_t end,
                                 bool wide, float (&out)[V])
{
    if (wide && first >= begin && first + V <= end) {
        fg_load<V>(from + first, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < V; j++)
        out[j] = first + j >= begin && first + j < end ? fg_get(from + first + j) : 0.0f;
}

template <int U, int V> static __device__ uint32_t largest_exponent(const float (&values)[U][V])
{
    float most = 0;
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int j = 0; j < V; j++)
            most = fmaxf(most, fabsf(values[u][j]));
    uint32_t exponent = __float_as_uint(most) >> 23;
    return exponent == 255 ? 0 : exponent;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    norm_kernel(const T *grad, unsigned long long *norm, FgCudaSpan pieces, uint64_t elements,
                bool wide)
{
    const int V = FgElement<T>::PER_16, UNROLL = 2;
    __shared__ Limbs limbs;
    for (unsigned i = threadIdx.x; i < LIMBS + 2; i += THREADS)
        limbs.low[i] = limbs.carries[i] = 0;
    __syncthreads();
    Share share = block_share(elements, THREADS * V);
    Window<T> window = {};
    window.move(0);
    bool placed = false;
    unsigned lane = threadIdx.x % 32;
    int count = 0;
    for (uint32_t i = find_piece(pieces, share.begin); i < pieces.n; i++) {
        uint64_t begin = pieces.at[i].begin, end = pieces.at[i].end;
        begin = begin > share.begin ? begin : share.begin;
        end = end < share.end ? end : share.end;
        if (begin >= end)
            break;
        /* The same number of turns for all lanes of a warp. */
        for (uint64_t at = begin / V + (threadIdx.x - lane) * UNROLL; at * V < end;
             at += THREADS * UNROLL) {
            float v[UNROLL][V];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                load_part<V>(grad, (at + lane + 32 * u) * V, begin, end, wide, v[u]);
            if (!placed) /* by the first values, so that few fall outside */
                placed = window.raise(largest_exponent(v));
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
#pragma unroll
                for (int j = 0; j < V; j++)
                    window.add(&limbs, v[u][j]);
            count += UNROLL;
            if (count >= Square<T>::FLUSH) {
                window.flush(&limbs);
                count = 0;
            }
            window.settle(&limbs);
        }
    }
    window.flush(&limbs);
    __syncthreads();
    if (threadIdx.x < LIMBS) {
        unsigned long long value = limbs.low[threadIdx.x];
        if (threadIdx.x > 0)
            value += limbs.carries[threadIdx.x - 1];
        if (value)
            atomicAdd(norm + threadIdx.x, value);
    }
}

void fg_cuda_norm_add(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad, uint64_t norm,
                      uint64_t bucket, uint64_t elements, uint64_t dt, uint64_t accumulate)
{
    (void)node;
    FgCudaSpan pieces = fg_cuda_pieces(cx, bucket, elements);
    unsigned long long *limbs = (unsigned long long *)fg_cuda_at(cx, norm);
    if (!accumulate)
        fg_cuda_check(cx, cudaMemsetAsync(limbs, 0, LIMBS * sizeof *limbs, stream),
                      "cudaMemsetAsync");
    if (pieces.n == 0)
        return;
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *from = (const T *)fg_cuda_at(cx, grad);
        unsigned blocks = fg_blocks(cx, elements, THREADS * FgElement<T>::PER_16 * 4, 8);
        norm_kernel<T>
            <<<blocks, THREADS, 0, stream>>>(from, limbs, pieces, elements, fg_aligned(from));
    });
    fg_launched(cx);
}

/* ---- clipping ---- */

/* The number as a double, rounded once; NaN when a value was not finite. */
static __device__ double exact_value(const long long *from)
{
    long long limbs[LIMBS];
    for (int i = 0; i < LIMBS; i++)
        limbs[i] = from[i];
    if (limbs[FLAG] != 0)
        return nan("");
    for (int i = 0; i + 1 < FLAG; i++) {
        limbs[i + 1] += limbs[i] >> 32;
        limbs[i] &= UINT32_MAX;
    }
    int top = FLAG - 1;
    while (top > 0 && limbs[top] == 0)
        top--;
    /* The leading 64 bits, the rest gathered into the lowest of them. */
    unsigned long long head = (unsigned long long)limbs[top];
    if (head == 0)
        return 0;
    int room = __clzll((long long)head), place = 32 * top - 320 - room;
    head <<= room;
    bool rest = false;
    for (int next = top - 1; next >= 0; next--) {
        unsigned long long limb = (unsigned long long)limbs[next];
        int shift = 32 * next - 320 - place;
        if (shift >= 0) {
            head |= limb << shift;
        } else {
            unsigned long long kept = -shift < 64 ? limb >> -shift : 0;
            head |= kept;
            rest = rest || (-shift < 64 ? (kept << -shift) != limb : limb != 0);
        }
    }
    return ldexp((double)(head | (rest ? 1u : 0u)), place);
}

__global__ void clip_kernel(const long long *norm, float *current, double clip)
{
    double length = sqrt(exact_value(norm));
    double factor = clip > 0 ? clip / (length + 1e-6) : 1.0;
    current[FG_RT_S_NORM] = (float)length;
    current[FG_RT_S_FACTOR] = (float)(factor > 1.0 ? 1.0 : factor);
}

void fg_cuda_clip_factor(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t norm,
                         uint64_t scalars, double clip)
{
    (void)node;
    clip_kernel<<<1, 1, 0, stream>>>((const long long *)fg_cuda_at(cx, norm),
                                     (float *)fg_cuda_at(cx, scalars) + FG_RT_CURRENT * FG_RT_SET,
                                     clip);
    fg_launched(cx);
}

/* ---- AdamW ----
 * The operations and their order are those of runtime/host/optimizer.c, without contraction: the
 * same bits. */
typedef struct AdamW {
    float factor, beta1, rest1, beta2, rest2, rate, correct1, correct2, eps, keep;
} AdamW;

static __device__ AdamW adamw_scalars(const float *set, bool clipped)
{
    AdamW s;
    s.factor = clipped ? set[FG_RT_S_FACTOR] : 1.0f;
    s.beta1 = set[FG_RT_S_BETA1];
    s.rest1 = __fsub_rn(1.0f, s.beta1);
    s.beta2 = set[FG_RT_S_BETA2];
    s.rest2 = __fsub_rn(1.0f, s.beta2);
    s.rate = set[FG_RT_S_LR];
    s.correct1 = set[FG_RT_S_CORRECT1];
    s.correct2 = set[FG_RT_S_CORRECT2];
    s.eps = set[FG_RT_S_EPS];
    s.keep = __fsub_rn(1.0f, __fmul_rn(s.rate, set[FG_RT_S_DECAY])); /* where decay applies */
    return s;
}

static __device__ void adamw_one(const AdamW &s, float keep, float grad, float &w, float &m,
                                 float &v)
{
    float g = __fmul_rn(grad, s.factor);
    m = __fadd_rn(__fmul_rn(s.beta1, m), __fmul_rn(s.rest1, g));
    v = __fadd_rn(__fmul_rn(s.beta2, v), __fmul_rn(__fmul_rn(s.rest2, g), g));
    float step =
        __fdiv_rn(__fdiv_rn(m, s.correct1), __fadd_rn(__fsqrt_rn(__fdiv_rn(v, s.correct2)), s.eps));
    w = __fsub_rn(__fmul_rn(w, keep), __fmul_rn(s.rate, step));
}

template <class G, class S> struct AdamWArrays {
    const G *grad;
    float *w, *m, *v;
    S *shard; /* NULL: w is the shard */
};

template <class G, class S>
__global__ void __launch_bounds__(THREADS)
    adamw_kernel(AdamWArrays<G, S> a, const float *set, bool clipped, FgCudaSpan pieces,
                 uint64_t elements, bool wide)
{
    const int V = 4;
    if (set[FG_RT_S_VALID] == 0)
        return;
    AdamW s = adamw_scalars(set, clipped);
    Share share = block_share(elements, THREADS * V);
    for (uint32_t i = find_piece(pieces, share.begin); i < pieces.n; i++) {
        uint64_t begin = pieces.at[i].begin, end = pieces.at[i].end;
        begin = begin > share.begin ? begin : share.begin;
        end = end < share.end ? end : share.end;
        if (begin >= end)
            break;
        float keep = pieces.at[i].decay ? s.keep : 1.0f;
        for (uint64_t at = (begin / V + threadIdx.x) * V; at < end; at += THREADS * V) {
            if (wide && at >= begin && at + V <= end) {
                float g[V], w[V], m[V], v[V];
                fg_load<V>(a.grad + at, g);
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
                continue;
            }
            for (uint64_t k = at > begin ? at : begin; k < at + V && k < end; k++) {
                float w = a.w[k], m = a.m[k], v = a.v[k];
                adamw_one(s, keep, fg_get(a.grad + k), w, m, v);
                a.w[k] = w;
                a.m[k] = m;
                a.v[k] = v;
                if (a.shard)
                    fg_put(a.shard + k, w);
            }
        }
    }
}

void fg_cuda_adamw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad, uint64_t master,
                   uint64_t moment1, uint64_t moment2, uint64_t shard, uint64_t scalars,
                   uint64_t bucket, uint64_t elements, uint64_t grad_dt, uint64_t dt, uint64_t set)
{
    (void)node;
    FgCudaSpan pieces = fg_cuda_pieces(cx, bucket, elements);
    if (pieces.n == 0)
        return;
    if (master == FG_RT_NONE && dt != FG_RT_F32) {
        fg_cuda_raise(cx, "a shard that is not f32 has no master weights");
        return;
    }
    const float *values = (const float *)fg_cuda_at(cx, scalars) + set * FG_RT_SET;
    fg_with_floats(cx, grad_dt, dt, [&](auto g, auto s) {
        typedef decltype(g) G;
        typedef decltype(s) S;
        AdamWArrays<G, S> a = {(const G *)fg_cuda_at(cx, grad),
                               (float *)fg_cuda_at(cx, master == FG_RT_NONE ? shard : master),
                               (float *)fg_cuda_at(cx, moment1), (float *)fg_cuda_at(cx, moment2),
                               master == FG_RT_NONE ? NULL : (S *)fg_cuda_at(cx, shard)};
        bool wide = fg_aligned(a.grad) && fg_aligned(a.w) && fg_aligned(a.m) && fg_aligned(a.v) &&
                    fg_aligned(a.shard);
        unsigned blocks = fg_blocks(cx, elements, THREADS * 4, 32);
        adamw_kernel<G, S><<<blocks, THREADS, 0, stream>>>(a, values, cx->program->clip > 0, pieces,
                                                           elements, wide);
    });
    fg_launched(cx);
}
