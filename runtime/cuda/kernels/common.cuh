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

/* V elements from an address that is aligned to them (to 16 bytes when they are more). */
template <int V, class T> __device__ inline void fg_load(const T *from, float (&out)[V])
{
    if constexpr (V == 1) {
        out[0] = fg_get(from);
    } else if constexpr (sizeof(T) == 4) {
        static_assert(V % 4 == 0, "whole vectors");
#pragma unroll
        for (int i = 0; i < V / 4; i++) {
            float4 q = reinterpret_cast<const float4 *>(from)[i];
            out[4 * i] = q.x;
            out[4 * i + 1] = q.y;
            out[4 * i + 2] = q.z;
            out[4 * i + 3] = q.w;
        }
    } else if constexpr (V == 4) {
        uint2 q = *reinterpret_cast<const uint2 *>(from);
        FgElement<T>::split(q.x, out);
        FgElement<T>::split(q.y, out + 2);
    } else {
        static_assert(V % 8 == 0, "whole vectors");
#pragma unroll
        for (int i = 0; i < V / 8; i++) {
            uint4 q = reinterpret_cast<const uint4 *>(from)[i];
            FgElement<T>::split(q.x, out + 8 * i);
            FgElement<T>::split(q.y, out + 8 * i + 2);
            FgElement<T>::split(q.z, out + 8 * i + 4);
            FgElement<T>::split(q.w, out + 8 * i + 6);
        }
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
            reinterpret_cast<float4 *>(to)[i] =
                make_float4(in[4 * i], in[4 * i + 1], in[4 * i + 2], in[4 * i + 3]);
    } else if constexpr (V == 4) {
        *reinterpret_cast<uint2 *>(to) =
            make_uint2(FgElement<T>::join(in[0], in[1]), FgElement<T>::join(in[2], in[3]));
    } else {
#pragma unroll
        for (int i = 0; i < V / 8; i++)
            reinterpret_cast<uint4 *>(to)[i] =
                make_uint4(FgElement<T>::join(in[8 * i], in[8 * i + 1]),
                           FgElement<T>::join(in[8 * i + 2], in[8 * i + 3]),
                           FgElement<T>::join(in[8 * i + 4], in[8 * i + 5]),
                           FgElement<T>::join(in[8 * i + 6], in[8 * i + 7]));
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

/* one(i) for single elements and many(i) for PER_16 of them from i on, which are aligned, such that
 * the block's threads pass over [0, cols) once. `wide` false: single elements throughout. */
template <class T, class One, class Many>
__device__ inline void fg_each(const T *row, uint64_t cols, bool wide, One one, Many many)
{
    const uint64_t per = FgElement<T>::PER_16;
    uint64_t head = cols;
    if (wide) {
        head = (16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T);
        head = head < cols ? head : cols;
    }
    uint64_t packs = (cols - head) / per;
    for (uint64_t i = threadIdx.x; i < head; i += blockDim.x)
        one(i);
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x)
        many(head + i * per);
    for (uint64_t i = head + packs * per + threadIdx.x; i < cols; i += blockDim.x)
        one(i);
}

/* y[i] = f(x[i]) over [0, cols); y may be x, and lies to 16 bytes as x does where `wide`. Loads of
 * several pieces are on their way before the first is stored. */
template <class T, class F>
__device__ inline void fg_each_to(const T *x, T *y, uint64_t cols, bool wide, F f)
{
    const int V = FgElement<T>::PER_16, BATCH = 4;
    uint64_t head = cols;
    if (wide) {
        head = (16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / sizeof(T);
        head = head < cols ? head : cols;
    }
    uint64_t packs = (cols - head) / V;
    for (uint64_t i = threadIdx.x; i < head; i += blockDim.x)
        fg_put(y + i, f(fg_get(x + i)));
    for (uint64_t at = threadIdx.x; at < packs; at += BATCH * blockDim.x) {
        float v[BATCH][V];
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u * blockDim.x < packs)
                fg_load<V>(x + head + (at + u * blockDim.x) * V, v[u]);
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u * blockDim.x < packs) {
#pragma unroll
                for (int j = 0; j < V; j++)
                    v[u][j] = f(v[u][j]);
                fg_store<V>(y + head + (at + u * blockDim.x) * V, v[u]);
            }
    }
    for (uint64_t i = head + packs * V + threadIdx.x; i < cols; i += blockDim.x)
        fg_put(y + i, f(fg_get(x + i)));
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
