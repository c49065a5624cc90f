/* What every kernel file needs: elements as f32, wide accesses, reductions, choice of types, sizes
 * of launches.
 *
 * Elements are read in their dtype, computed with in f32 and rounded once (to nearest even) when
 * they are stored. Accesses are 16 bytes wide where addresses allow it; kernels take that as an
 * argument and fall back to single elements. Sums run in a fixed tree over fixed shares of the
 * elements: no atomics on floats, so that a call repeats bit by bit on the same kind of device. */
#ifndef FG_RUNTIME_CUDA_KERNELS_COMMON_CUH
#define FG_RUNTIME_CUDA_KERNELS_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <inttypes.h>

#include "runtime/cuda/cx.h"

typedef __nv_bfloat16 FgBf16;
typedef __half FgF16;

/* ---- elements ---- */

template <class T> struct FgElement; /* PER_16: elements in 16 bytes; conversions of pairs */

template <> struct FgElement<float> {
    static const int PER_16 = 4;
};

template <> struct FgElement<FgBf16> {
    static const int PER_16 = 8;
    static __device__ void split(uint32_t word, float *out)
    {
        out[0] = __uint_as_float(word << 16);
        out[1] = __uint_as_float(word & 0xffff0000u);
    }
    static __device__ uint32_t join(float low, float high)
    {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&pair);
    }
};

template <> struct FgElement<FgF16> {
    static const int PER_16 = 8;
    static __device__ void split(uint32_t word, float *out)
    {
        float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&word));
        out[0] = pair.x;
        out[1] = pair.y;
    }
    static __device__ uint32_t join(float low, float high)
    {
        __half2 pair = __floats2half2_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&pair);
    }
};

static __device__ inline float fg_get(const float *from)
{
    return *from;
}
static __device__ inline float fg_get(const FgBf16 *from)
{
    return __bfloat162float(*from);
}
static __device__ inline float fg_get(const FgF16 *from)
{
    return __half2float(*from);
}
static __device__ inline void fg_put(float *to, float value)
{
    *to = value;
}
static __device__ inline void fg_put(FgBf16 *to, float value)
{
    *to = __float2bfloat16_rn(value);
}
static __device__ inline void fg_put(FgF16 *to, float value)
{
    *to = __float2half_rn(value);
}

/* Stores, spelled out: the compiler cuts assignments of 16 bytes into four where it does not see
 * that they belong together, and such a quarter costs as much as the whole. */
static __device__ __forceinline__ void fg_put_words(void *to, uint4 q)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(q.x), "r"(q.y), "r"(q.z),
                 "r"(q.w)
                 : "memory");
}
static __device__ __forceinline__ void fg_put_words(void *to, uint2 q)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(q.x), "r"(q.y) : "memory");
}

/* V elements as they lie in memory. Kernels that wait for memory load several before they look into
 * the first: in this form more of them are under way for the same registers. */
template <int V, class T> struct FgRaw {
    static const int WORDS = V * (int)sizeof(T) / 16;
    static_assert(WORDS * 16 == V * (int)sizeof(T), "whole vectors");
    uint4 words[WORDS];
    __device__ void load(const T *from)
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            words[i] = reinterpret_cast<const uint4 *>(from)[i];
    }
    __device__ void store(T *to) const
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            fg_put_words(to + i * (V / WORDS), words[i]);
    }
    __device__ void split(float (&out)[V]) const
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            uint4 q = words[i];
            if constexpr (sizeof(T) == 4) {
                out[4 * i] = __uint_as_float(q.x);
                out[4 * i + 1] = __uint_as_float(q.y);
                out[4 * i + 2] = __uint_as_float(q.z);
                out[4 * i + 3] = __uint_as_float(q.w);
            } else {
                FgElement<T>::split(q.x, out + 8 * i);
                FgElement<T>::split(q.y, out + 8 * i + 2);
                FgElement<T>::split(q.z, out + 8 * i + 4);
                FgElement<T>::split(q.w, out + 8 * i + 6);
            }
        }
    }
};

template <class T> struct FgRaw<1, T> {
    T element;
    __device__ void load(const T *from)
    {
        element = *from;
    }
    __device__ void store(T *to) const
    {
        *to = element;
    }
    __device__ void split(float (&out)[1]) const
    {
        out[0] = fg_get(&element);
    }
};

/* V elements from an address that is aligned to them (to 16 bytes when they are more). */
template <int V, class T> __device__ inline void fg_load(const T *from, float (&out)[V])
{
    if constexpr (V == 4 && sizeof(T) == 2) {
        uint2 q = *reinterpret_cast<const uint2 *>(from);
        FgElement<T>::split(q.x, out);
        FgElement<T>::split(q.y, out + 2);
    } else {
        FgRaw<V, T> raw;
        raw.load(from);
        raw.split(out);
    }
}

/* The elements of 16 bytes that were loaded as they lie. */
template <class T> __device__ inline void fg_unpack(uint4 q, float (&out)[FgElement<T>::PER_16])
{
    if constexpr (sizeof(T) == 4) {
        out[0] = __uint_as_float(q.x);
        out[1] = __uint_as_float(q.y);
        out[2] = __uint_as_float(q.z);
        out[3] = __uint_as_float(q.w);
    } else {
        FgElement<T>::split(q.x, out);
        FgElement<T>::split(q.y, out + 2);
        FgElement<T>::split(q.z, out + 4);
        FgElement<T>::split(q.w, out + 6);
    }
}

template <int V, class T> __device__ inline void fg_store(T *to, const float (&in)[V])
{
    if constexpr (V == 1) {
        fg_put(to, in[0]);
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < V / 4; i++)
            fg_put_words(to + 4 * i,
                         make_uint4(__float_as_uint(in[4 * i]), __float_as_uint(in[4 * i + 1]),
                                    __float_as_uint(in[4 * i + 2]),
                                    __float_as_uint(in[4 * i + 3])));
    } else if constexpr (V == 4) {
        fg_put_words(
            to, make_uint2(FgElement<T>::join(in[0], in[1]), FgElement<T>::join(in[2], in[3])));
    } else {
#pragma unroll
        for (int i = 0; i < V / 8; i++)
            fg_put_words(to + 8 * i, make_uint4(FgElement<T>::join(in[8 * i], in[8 * i + 1]),
                                                FgElement<T>::join(in[8 * i + 2], in[8 * i + 3]),
                                                FgElement<T>::join(in[8 * i + 4], in[8 * i + 5]),
                                                FgElement<T>::join(in[8 * i + 6], in[8 * i + 7])));
    }
}

/* The exponential where its error vanishes in the rounding to T: arguments of softmax. */
template <class T> __device__ inline float fg_soft_exp(float x)
{
    if constexpr (sizeof(T) == 4)
        return expf(x);
    else
        return __expf(x);
}

/* The same where what has no normal form may be 0, since it is added to 1 or more before anyone
 * sees it. A third of the instructions of __expf are for such results. */
template <class T> __device__ inline float fg_added_exp(float x)
{
    if constexpr (sizeof(T) == 4) {
        return expf(x);
    } else {
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.4426950408889634f));
        return power;
    }
}

/* ---- reductions: every thread gets the result; all threads of the block must come ---- */

template <class T> __device__ inline T fg_warp_sum(T value)
{
#pragma unroll
    for (int i = 16; i > 0; i >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, i);
    return value;
}

static __device__ inline float fg_warp_max(float value)
{
#pragma unroll
    for (int i = 16; i > 0; i >>= 1)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, i));
    return value;
}

/* blockDim.x is a multiple of 32; one-dimensional blocks. */
template <class T> __device__ inline T fg_block_sum(T value)
{
    __shared__ T part[32];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = blockDim.x / 32;
    value = fg_warp_sum(value);
    if (n == 1)
        return value;
    if (lane == 0)
        part[warp] = value;
    __syncthreads();
    value = fg_warp_sum(lane < n ? part[lane] : T(0));
    __syncthreads();
    return value;
}

static __device__ inline float fg_block_max(float value)
{
    __shared__ float part[32];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = blockDim.x / 32;
    value = fg_warp_max(value);
    if (n == 1)
        return value;
    if (lane == 0)
        part[warp] = value;
    __syncthreads();
    value = fg_warp_max(lane < n ? part[lane] : -INFINITY);
    __syncthreads();
    return value;
}

/* ---- rows of any length at any address ---- */

/* Elements before the first that lies at a multiple of 16 bytes; all of them where not `wide`. */
template <class T> __device__ inline uint64_t fg_head(const T *row, uint64_t cols, bool wide)
{
    uint64_t head = (16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T);
    return wide && head < cols ? head : cols;
}

/* one(i) for single elements and many(i) for PER_16 of them from i on, which are aligned, such that
 * the block's threads pass over [0, cols) once. `wide` false: single elements throughout. */
template <class T, class One, class Many>
__device__ inline void fg_each(const T *row, uint64_t cols, bool wide, One one, Many many)
{
    const uint64_t per = FgElement<T>::PER_16;
    uint64_t head = fg_head(row, cols, wide), packs = (cols - head) / per;
    for (uint64_t i = threadIdx.x; i < head; i += blockDim.x)
        one(i);
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x)
        many(head + i * per);
    for (uint64_t i = head + packs * per + threadIdx.x; i < cols; i += blockDim.x)
        one(i);
}

/* Which of the blocks that share a row this one is. */
typedef struct FgPart {
    uint32_t at, of;
} FgPart;

enum { FG_EACH_BATCH = 4 }; /* pieces of a thread that are under way at once */

/* y[i] = f(x[i]) over this part of [0, cols), where f(i, v) replaces values from i on, one or
 * PER_16 of them. y may be x, and lies to 16 bytes as x does where `wide`. */
template <class T, class F>
__device__ inline void fg_each_to(const T *x, T *y, uint64_t cols, bool wide, FgPart part, F f)
{
    const int V = FgElement<T>::PER_16;
    const uint64_t head = fg_head(x, cols, wide), packs = (cols - head) / V;
    const uint64_t first = (uint64_t)part.at * blockDim.x + threadIdx.x;
    const uint64_t all = (uint64_t)part.of * blockDim.x;
    auto single = [&](uint64_t i) {
        float v[1] = {fg_get(x + i)};
        f(i, v);
        fg_put(y + i, v[0]);
    };
    for (uint64_t i = first; i < head; i += all)
        single(i);
    for (uint64_t at = (uint64_t)part.at * FG_EACH_BATCH * blockDim.x + threadIdx.x; at < packs;
         at += FG_EACH_BATCH * all) {
        FgRaw<V, T> raw[FG_EACH_BATCH];
#pragma unroll
        for (int u = 0; u < FG_EACH_BATCH; u++)
            if (at + u * blockDim.x < packs)
                raw[u].load(x + head + (at + u * blockDim.x) * V);
#pragma unroll
        for (int u = 0; u < FG_EACH_BATCH; u++)
            if (at + u * blockDim.x < packs) {
                uint64_t i = head + (at + u * blockDim.x) * V;
                float v[V];
                raw[u].split(v);
                f(i, v);
                fg_store<V>(y + i, v);
            }
    }
    for (uint64_t i = head + packs * V + first; i < cols; i += all)
        single(i);
}

/* This part of [begin, cols) is 0. */
template <class T>
__device__ inline void fg_each_zero(T *row, uint64_t begin, uint64_t cols, bool wide, FgPart part)
{
    const int V = FgElement<T>::PER_16;
    T *from = row + begin;
    const uint64_t n = cols - begin, head = fg_head(from, n, wide), packs = (n - head) / V;
    const uint64_t first = (uint64_t)part.at * blockDim.x + threadIdx.x;
    const uint64_t all = (uint64_t)part.of * blockDim.x;
    for (uint64_t i = first; i < head; i += all)
        fg_put(from + i, 0.0f);
    for (uint64_t i = first; i < packs; i += all)
        fg_put_words(from + head + i * V, make_uint4(0, 0, 0, 0));
    for (uint64_t i = head + packs * V + first; i < n; i += all)
        fg_put(from + i, 0.0f);
}

/* ---- bad tokens and labels ---- */

/* Keeps the first node that met one. */
static __device__ inline void fg_report(int *device_error, uint32_t node)
{
    atomicCAS(device_error, 0, (int)(node + 1));
}

/* ---- host side ---- */

static inline bool fg_aligned(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

static inline uint64_t fg_ceil(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for `units` pieces of work, `threads` a block; at most `per_sm` on each multiprocessor, so
 * that kernels loop over the rest. */
static inline unsigned fg_blocks(const FgRtCx *cx, uint64_t units, uint64_t threads,
                                 uint64_t per_sm)
{
    uint64_t want = fg_ceil(units, threads), most = (uint64_t)cx->n_sm * per_sm;
    want = want < most ? want : most;
    return want ? (unsigned)want : 1u;
}

/* Threads for a row of `packs` pieces, some pieces each. */
static inline unsigned fg_row_threads(uint64_t packs, uint64_t each, unsigned most)
{
    uint64_t threads = fg_ceil(fg_ceil(packs ? packs : 1, each), 32) * 32;
    return threads < most ? (unsigned)threads : most;
}

/* Blocks of `threads` that share a row of `packs`, so that a thread has one batch; as many as a
 * grid of so many rows, at least one and at most INT32_MAX, takes. */
static inline uint32_t fg_row_parts(uint64_t rows, uint64_t packs, uint64_t threads)
{
    uint64_t want = fg_ceil(packs ? packs : 1, threads * FG_EACH_BATCH), most = INT32_MAX / rows;
    return (uint32_t)(want < most ? want : most);
}

static inline uint64_t fg_dtype_bytes(uint64_t dt)
{
    return dt == FG_RT_BF16 || dt == FG_RT_F16 ? 2 : dt == FG_RT_F64 || dt == FG_RT_I64 ? 8 : 4;
}

static inline void fg_launched(FgRtCx *cx)
{
    fg_cuda_check(cx, cudaGetLastError(), "kernel launch");
}

/* A grid of one block a row. false: raised, or there is nothing to do. */
static inline bool fg_rows_fit(FgRtCx *cx, uint64_t rows)
{
    if (rows > INT32_MAX)
        fg_cuda_raise(cx, "%" PRIu64 " rows in one call are too many", rows);
    return rows > 0 && rows <= INT32_MAX;
}

/* f(T()) with the type of a floating-point dtype. */
template <class F> static void fg_with_float(FgRtCx *cx, uint64_t dt, F f)
{
    switch (dt) {
    case FG_RT_F32:
        f(float());
        break;
    case FG_RT_BF16:
        f(FgBf16());
        break;
    case FG_RT_F16:
        f(FgF16());
        break;
    default:
        fg_cuda_raise(cx, "dtype %" PRIu64 " is not f32, bf16 or f16", dt);
        break;
    }
}

template <class F> static void fg_with_floats(FgRtCx *cx, uint64_t dt, uint64_t other, F f)
{
    fg_with_float(cx, dt, [&](auto a) { fg_with_float(cx, other, [&](auto b) { f(a, b); }); });
}

#endif
