/* Sums of squares that are exact: the fixed-point number of runtime/host/exact.c.
 *
 * Every square is exact in it, and sums of integers do not depend on their order, so that it may
 * use atomics and still repeat. Most values never reach its limbs one by one: each warp keeps a
 * window, some exponents wide, placed by the largest values it has met, and sums squares there in
 * 64-bit registers. What lies outside the window goes to the block's limbs in shared memory; a
 * larger value moves the window.
 *
 * Values of 16 bits (ShortWindow): |x| times a power of two is an integer v below 2^23 when x lies
 * in one of the window's two bands. Adding 2^23 puts it into the mantissa of a float, so a square
 * costs a multiply-add of floats, a mask and a multiply-add of integers. Values of 32 bits
 * (LongWindow): mantissas are squared and shifted as integers. */
#ifndef FG_RUNTIME_CUDA_KERNELS_NORM_WINDOW_CUH
#define FG_RUNTIME_CUDA_KERNELS_NORM_WINDOW_CUH

#include "runtime/cuda/kernels/common.cuh"

enum { LIMBS = FG_RT_NORM_LIMBS, FLAG = LIMBS - 1 };

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

/* ---- a block's limbs; all threads come ---- */

static __device__ inline void limbs_clear(Limbs *limbs)
{
    for (unsigned i = threadIdx.x; i < LIMBS + 2; i += blockDim.x)
        limbs->low[i] = limbs->carries[i] = 0;
    __syncthreads();
}

static __device__ inline void limbs_add_to(const Limbs *limbs, unsigned long long *norm)
{
    __syncthreads();
    if (threadIdx.x >= LIMBS)
        return;
    unsigned long long value = limbs->low[threadIdx.x];
    if (threadIdx.x > 0)
        value += limbs->carries[threadIdx.x - 1];
    if (value)
        atomicAdd(norm + threadIdx.x, value);
}

/* The warp's sum of squares on its way: a window over the values that its lanes bring in turn. */
template <class T> struct WarpSquares {
    typename WindowOf<T>::Window window;
    bool placed;
    int count;

    __device__ void begin()
    {
        window = {};
        window.move(0);
        placed = false;
        count = 0;
    }

    /* U times V values of each lane; all lanes come. */
    template <int U, int V>
    __device__ __forceinline__ void add(Limbs *limbs, const float (&values)[U][V])
    {
        if (!placed) /* by the first values, so that few fall outside */
            placed = raise(window, largest_exponent(values));
#pragma unroll
        for (int u = 0; u < U; u++)
            window.add(limbs, values[u]);
        count += U * V;
        bool above = __any_sync(0xffffffffu, window.above());
        if (count + U * V > WindowOf<T>::Window::FLUSH || above) {
            window.flush(limbs);
            count = 0;
        }
        if (above)
            raise(window, window.seen);
    }
};

#endif
