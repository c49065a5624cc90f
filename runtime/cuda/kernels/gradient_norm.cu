/* The exact norm of gradients, clipping, and the end of a step whose loss is scaled.
 *
 * The norm is the fixed-point number of runtime/host/exact.c: every square is exact in it, and sums
 * of integers do not depend on their order, so that it may use atomics and still repeat. Most
 * values never reach its limbs one by one: each warp keeps a window, some exponents wide, placed by
 * the largest values it has met, and sums squares there in 64-bit registers. What lies outside the
 * window goes to the block's limbs in shared memory; a larger value moves the window.
 *
 * Values of 16 bits (ShortWindow): |x| times a power of two is an integer v below 2^23 when x lies
 * in one of the window's two bands. Adding 2^23 puts it into the mantissa of a float, so a square
 * costs a multiply-add of floats, a mask and a multiply-add of integers. Values of 32 bits
 * (LongWindow): mantissas are squared and shifted as integers. */
#include "runtime/cuda/kernels/segments.cuh"
#include "runtime/loss_scale.h"

enum { THREADS = 256, LIMBS = FG_RT_NORM_LIMBS, FLAG = LIMBS - 1 };

/* ---- limbs ---- */

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

/* The square of one value (bits of an f32). */
static __device__ __noinline__ void add_alone(Limbs *limbs, uint32_t bits)
{
    uint32_t exponent = bits >> 23 & 255u;
    uint64_t m = (bits & 0x7fffffu) | (exponent ? 0x800000u : 0u);
    if (exponent == 255)
        atomicAdd(&limbs->low[FLAG], 1u);
    else if (m != 0)
        add_at(limbs, 20 + 2 * (exponent ? exponent : 1), m * m);
}

/* Adds the warp's sum of a bin. All lanes come. */
static __device__ __forceinline__ void flush_bin(Limbs *limbs, int place, uint64_t bin)
{
    uint64_t low = fg_warp_sum(bin & UINT32_MAX), high = fg_warp_sum(bin >> 32);
    if (threadIdx.x % 32 == 0) {
        add_at(limbs, place, low);
        add_at(limbs, place + 32, high);
    }
}

static __device__ __forceinline__ uint32_t exponent_of(uint32_t bits)
{
    uint32_t exponent = bits >> 23 & 255u;
    return exponent == 255 ? 0 : exponent;
}

/* ---- windows ----
 * move(top): the window's upper end comes just above the exponent `top`. add: values in, all N of
 * one lane. above: this lane has met a value above the window. flush: the sums to the limbs. Before
 * more than FLUSH values of a lane a bin cannot overflow. */

/* BITS: significant bits of a value. Bands of BAND exponents: the upper ends at `top`. */
template <int BITS> struct ShortWindow {
    static const int BAND = 24 - BITS, FLUSH = 1 << 16;
    float upper, lower, border; /* factors of the bands; the least value of the upper one */
    uint32_t least;             /* twice the bits of the least value of the lower band, less 1 */
    int top;
    uint32_t seen;
    uint64_t high, low;

    __device__ __forceinline__ void move(uint32_t exponent)
    {
        top = (int)exponent + 2; /* room above */
        top = top < 38 ? 38 : top;
        upper = __uint_as_float((uint32_t)(276 - top) << 23); /* v < 2^23 */
        lower = __uint_as_float((uint32_t)(276 - top + BAND) << 23);
        border = __uint_as_float((uint32_t)(top - BAND + 1) << 23);
        least = ((uint32_t)(top - 2 * BAND + 1) << 24) - 1;
        seen = 0;
    }

    template <int N> __device__ __forceinline__ void add(Limbs *limbs, const float (&values)[N])
    {
        uint64_t sum_high = 0, sum_low = 0;
        uint32_t joined = 0, smallest = UINT32_MAX;
#pragma unroll
        for (int i = 0; i < N; i++) {
            float size = fabsf(values[i]);
            bool is_high = size >= border;
            uint32_t bits = __float_as_uint(__fmaf_rn(size, is_high ? upper : lower, 8388608.0f));
            uint32_t v = bits & 0x7fffffu, key = (__float_as_uint(size) << 1) - 1;
            joined |= bits;
            smallest = key < smallest ? key : smallest; /* of 0 it is the largest */
            if (is_high)
                sum_high += (uint64_t)v * v;
            else
                sum_low += (uint64_t)v * v;
        }
        /* All floats lay in [2^23, 2^24), and no v has lost bits. */
        if ((joined & 0xb4800000u) == 0 && smallest >= least) {
            high += sum_high;
            low += sum_low;
            return;
        }
        for (int i = 0; i < N; i++) {
            uint32_t bits = __float_as_uint(values[i]), exponent = exponent_of(bits);
            add_alone(limbs, bits);
            seen = exponent > seen ? exponent : seen;
        }
    }

    __device__ __forceinline__ bool above() const
    {
        return (int)seen > top;
    }

    __device__ __forceinline__ void flush(Limbs *limbs)
    {
        flush_bin(limbs, 22 + 2 * top, high);
        flush_bin(limbs, 22 + 2 * (top - BAND), low);
        high = low = 0;
    }
};

struct LongWindow {
    static const int FLUSH = 256; /* two additions below 2^55 each */
    int base;                     /* place of the window's lowest bit */
    uint32_t seen;
    uint64_t low, middle, high; /* bins 32 bits apart */

    __device__ __forceinline__ void move(uint32_t exponent)
    {
        base = 2 * ((int)exponent + 2) + 20 - 63;
        /* Never so low that a subnormal number would lie inside, nor up to infinity. */
        base = base < 24 ? 24 : base > 466 ? 466 : base;
        seen = 0;
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

    template <int N> __device__ __forceinline__ void add(Limbs *limbs, const float (&values)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            uint32_t bits = __float_as_uint(values[i]), exponent = exponent_of(bits);
            uint32_t place = 2 * (bits >> 23 & 255u) + 20 - (uint32_t)base;
            if (place < 64) { /* two halves of the square, so that the bins have room */
                uint32_t m = (bits & 0x7fffffu) | 0x800000u;
                uint64_t square = (uint64_t)m * m;
                put(place, (uint32_t)square & 0xffffffu);
                put(place + 24, (uint32_t)(square >> 24));
            } else if (bits << 1 != 0) {
                add_alone(limbs, bits);
                seen = exponent > seen ? exponent : seen;
            }
        }
    }

    __device__ __forceinline__ bool above() const
    {
        return 2 * (int)seen + 20 >= base + 64;
    }

    __device__ __forceinline__ void flush(Limbs *limbs)
    {
        flush_bin(limbs, base, low);
        flush_bin(limbs, base + 32, middle);
        flush_bin(limbs, base + 64, high);
        low = middle = high = 0;
    }
};

template <class T> struct WindowOf;
template <> struct WindowOf<float> {
    typedef LongWindow Window;
};
template <> struct WindowOf<FgBf16> {
    typedef ShortWindow<8> Window;
};
template <> struct WindowOf<FgF16> {
    typedef ShortWindow<11> Window;
};

/* The window's place by the warp's largest `exponent`; false when that is 0. All lanes come. */
template <class Window>
static __device__ __forceinline__ bool raise(Window &window, uint32_t exponent)
{
#pragma unroll
    for (int i = 16; i > 0; i >>= 1) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, exponent, i);
        exponent = exponent > other ? exponent : other;
    }
    if (exponent > 0)
        window.move(exponent);
    return exponent > 0;
}

/* ---- the kernel ---- */

/* V elements from `first` on; those outside [begin, end) are 0. */
template <int V, class T>
static __device__ __forceinline__ void load_part(const T *from, uint64_t first, uint64_t begin,
                                                 uint64_t end, bool wide, float (&out)[V])
{
    if (wide && first >= begin && first + V <= end) {
        fg_load<V>(from + first, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < V; j++)
        out[j] = first + j >= begin && first + j < end ? fg_get(from + first + j) : 0.0f;
}

template <int U, int V>
static __device__ __forceinline__ uint32_t largest_exponent(const float (&values)[U][V])
{
    uint32_t most = 0;
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int j = 0; j < V; j++) {
            uint32_t exponent = exponent_of(__float_as_uint(values[u][j]));
            most = exponent > most ? exponent : most;
        }
    return most;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    norm_kernel(const T *grad, unsigned long long *norm, FgCudaSpan pieces, uint64_t elements,
                bool wide)
{
    typedef typename WindowOf<T>::Window Window;
    const int V = FgElement<T>::PER_16, UNROLL = 2;
    __shared__ Limbs limbs;
    for (unsigned i = threadIdx.x; i < LIMBS + 2; i += THREADS)
        limbs.low[i] = limbs.carries[i] = 0;
    __syncthreads();
    FgShare share = fg_block_share(elements, THREADS * V);
    Window window = {};
    window.move(0);
    bool placed = false;
    unsigned lane = threadIdx.x % 32;
    int count = 0;
    for (uint32_t i = fg_find_piece(pieces, share.begin); i < pieces.n; i++) {
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
                placed = raise(window, largest_exponent(v));
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                window.add(&limbs, v[u]);
            count += UNROLL * V;
            bool above = __any_sync(0xffffffffu, window.above());
            if (count + UNROLL * V > Window::FLUSH || above) {
                window.flush(&limbs);
                count = 0;
            }
            if (above)
                raise(window, window.seen);
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

/* ---- a scaled loss ---- */

__global__ void loss_scale_kernel(const double *scaler, float *current)
{
    current[FG_RT_S_SEED] *= (float)scaler[FG_RT_L_SCALE];
}

void fg_cuda_loss_scale(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t scaler,
                        uint64_t scalars)
{
    (void)node;
    loss_scale_kernel<<<1, 1, 0, stream>>>((const double *)fg_cuda_at(cx, scaler),
                                           (float *)fg_cuda_at(cx, scalars) +
                                               FG_RT_CURRENT * FG_RT_SET);
    fg_launched(cx);
}

__global__ void scale_step_kernel(const long long *norm, float *current, double *scaler,
                                  double *loss, double clip)
{
    fg_scale_step(sqrt(exact_value(norm)), clip, current, scaler, loss);
}

void fg_cuda_scale_step(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t norm,
                        uint64_t scalars, uint64_t scaler, uint64_t loss, double clip)
{
    (void)node;
    scale_step_kernel<<<1, 1, 0, stream>>>(
        (const long long *)fg_cuda_at(cx, norm),
        (float *)fg_cuda_at(cx, scalars) + FG_RT_CURRENT * FG_RT_SET,
        (double *)fg_cuda_at(cx, scaler), (double *)fg_cuda_at(cx, loss), clip);
    fg_launched(cx);
}
