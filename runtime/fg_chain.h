/* What generated functions of fused chains compute with: functions of one element, in f32, the same
 * for the runtimes' own element-wise calls; and, for GPUs, elements in packs of eight.
 *
 * The host's bits are defined here: no call of the runtime has formulas of its own for these. The
 * exponential alone differs on a GPU. Built without contraction, a chain rounds where it says so
 * and nowhere else. This header stands alone; C, C++ and CUDA read it alike. */
#ifndef FG_CHAIN_H
#define FG_CHAIN_H

#include "fg_custom.h"

#if defined(__CUDACC__) && !defined(__NVCC__)
/* A reader of programs, without CUDA's headers and without C++'s. */
extern "C" {
__host__ __device__ float expf(float);
__host__ __device__ float logf(float);
__host__ __device__ float sqrtf(float);
__host__ __device__ float tanhf(float);
__host__ __device__ float erfcf(float);
__host__ __device__ float powf(float, float);
}
#else
#include <math.h>
#endif

/* ---- rounding to a storage type and back ---- */
FG_INLINE float fg_round_bf16(float value)
{
    return fg_from_bf16(fg_to_bf16(value));
}

FG_INLINE float fg_round_f16(float value)
{
    return fg_from_f16(fg_to_f16(value));
}

/* ---- parts ---- */

/* e^x within 2 units in the last place, without branches or calls, so that loops over it become
 * vectors. x = n ln 2 + r: n by adding a number so large that the sum has no fraction bits, e^r by
 * Taylor's series to r^7 (|r| <= 0.35: rest below 1e-8), 2^n in two factors since n may leave the
 * range of exponents. NaN passes, infinities saturate. */
FG_INLINE float fg_exp(float x)
{
#if defined(__CUDACC__)
    return expf(x);
#else
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float whole = 0x1.8p23f;
    float shifted = x * 0x1.715476p+0f + whole;
    float n = shifted - whole;
    float r = x - n * 0x1.62e4p-1f; /* ln 2 in two parts; the first has so few bits that the product
                                       is exact */
    r = r - n * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    uint32_t biased = fg_bits(shifted) - fg_bits(whole) + 256; /* n + 256, above 0 */
    uint32_t low = biased >> 1, high = biased - low;           /* each is 128 too large */
    return p * fg_from_bits((low - 1) << 23) * fg_from_bits((high - 1) << 23);
#endif
}

FG_INLINE float fg_sigmoid(float x)
{
    return 1.0f / (1.0f + fg_exp(-x));
}

/* Phi, the normal distribution, and its density. */
FG_INLINE float fg_normal_cdf(float x)
{
    return 0.5f * erfcf(-x * 0.70710678f);
}

FG_INLINE float fg_normal_density(float x)
{
    return 0.39894228f * fg_exp(-0.5f * x * x);
}

/* gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) */
FG_INLINE float fg_gelu_inner(float x)
{
    return 2 * 0.79788456f * (x + 0.044715f * x * x * x);
}

FG_INLINE float fg_gelu_inner_slope(float x)
{
    return 2 * 0.79788456f * (1 + 3 * 0.044715f * x * x);
}

/* ---- functions of one element ---- */
FG_INLINE float fg_chain_neg(float x)
{
    return -x;
}

FG_INLINE float fg_chain_exp(float x)
{
    return fg_exp(x);
}

FG_INLINE float fg_chain_log(float x)
{
    return logf(x);
}

FG_INLINE float fg_chain_sqrt(float x)
{
    return sqrtf(x);
}

FG_INLINE float fg_chain_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}

FG_INLINE float fg_chain_tanh(float x)
{
    return tanhf(x);
}

FG_INLINE float fg_chain_sigmoid(float x)
{
    return fg_sigmoid(x);
}

FG_INLINE float fg_chain_relu(float x)
{
    return x < 0 ? 0 : x;
}

FG_INLINE float fg_chain_silu(float x)
{
    return x * fg_sigmoid(x);
}

FG_INLINE float fg_chain_gelu(float x)
{
    return x * fg_normal_cdf(x);
}

FG_INLINE float fg_chain_gelu_tanh(float x)
{
    return x * fg_sigmoid(fg_gelu_inner(x));
}

FG_INLINE float fg_chain_scale(float x, float a)
{
    return a * x;
}

FG_INLINE float fg_chain_add_scalar(float x, float a)
{
    return x + a;
}

FG_INLINE float fg_chain_pow(float x, float a)
{
    return powf(x, a);
}

/* ---- d f'(x) ---- */
FG_INLINE float fg_chain_neg_back(float x, float d)
{
    (void)x;
    return -d;
}

FG_INLINE float fg_chain_exp_back(float x, float d)
{
    return d * fg_exp(x);
}

FG_INLINE float fg_chain_log_back(float x, float d)
{
    return d / x;
}

FG_INLINE float fg_chain_sqrt_back(float x, float d)
{
    return 0.5f * d / sqrtf(x);
}

FG_INLINE float fg_chain_rsqrt_back(float x, float d)
{
    return -0.5f * d / (x * sqrtf(x));
}

FG_INLINE float fg_chain_tanh_back(float x, float d)
{
    float t = tanhf(x);
    return d * (1 - t * t);
}

FG_INLINE float fg_chain_sigmoid_back(float x, float d)
{
    float s = fg_sigmoid(x);
    return d * (s * (1 - s));
}

FG_INLINE float fg_chain_relu_back(float x, float d)
{
    return x > 0 ? d : 0;
}

FG_INLINE float fg_chain_silu_back(float x, float d)
{
    float s = fg_sigmoid(x);
    return d * (s * (1 + x * (1 - s)));
}

FG_INLINE float fg_chain_gelu_back(float x, float d)
{
    return d * (fg_normal_cdf(x) + x * fg_normal_density(x));
}

FG_INLINE float fg_chain_gelu_tanh_back(float x, float d)
{
    float s = fg_sigmoid(fg_gelu_inner(x));
    return d * (s + x * s * (1 - s) * fg_gelu_inner_slope(x));
}

FG_INLINE float fg_chain_pow_back(float x, float d, float a)
{
    return d * a * powf(x, a - 1);
}

/* ---- kernels ---- */
#if defined(__CUDACC__)

#define FG_KERNEL static __global__ void __launch_bounds__(256)
enum { FG_CHAIN_THREADS = 256, FG_CHAIN_MOST_BLOCKS = 16384, FG_CHAIN_PACK = 8 };

#define FG_DEVICE static __device__ __forceinline__

/* The thread's number in the whole grid, and how many there are. */
FG_DEVICE int64_t fg_thread(void)
{
    return (int64_t)blockIdx.x * FG_CHAIN_THREADS + (int64_t)threadIdx.x;
}

FG_DEVICE int64_t fg_threads(void)
{
    return (int64_t)gridDim.x * FG_CHAIN_THREADS;
}

/* Whole packs that a call's elements make: none unless every operand begins at a multiple of 16
 * bytes. */
static inline int64_t fg_chain_packs(const FgCustom *call)
{
    uint64_t low = (uint64_t)(uintptr_t)call->memory;
    for (uint32_t i = 0; i < call->n_operands; i++)
        low |= call->operands[i].offset;
    return low % 16 ? 0 : fg_custom_elements(call, call->n_operands - 1) / FG_CHAIN_PACK;
}

/* Blocks for so many packs, or elements where there are none: kernels loop over the rest. */
static inline unsigned fg_chain_blocks(int64_t n, int64_t packs)
{
    int64_t blocks = ((packs ? packs : n) + FG_CHAIN_THREADS - 1) / FG_CHAIN_THREADS;
    const int64_t most = FG_CHAIN_MOST_BLOCKS;
    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

static inline cudaStream_t fg_chain_stream(const FgCustom *call)
{
    return (cudaStream_t)call->stream;
}

struct FgPack {
    float v[8];
};

#if defined(__NVCC__)
/* Elements 8 p to 8 p + 7 of an array that begins at a multiple of 16 bytes. */
FG_DEVICE FgPack fg_pack(const float *x, int64_t p)
{
    const float4 a = reinterpret_cast<const float4 *>(x)[2 * p];
    const float4 b = reinterpret_cast<const float4 *>(x)[2 * p + 1];
    return FgPack{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

union FgPackWords {
    uint4 words;
    FgBf16 bf16[8];
    FgF16 f16[8];
    __device__ FgPackWords()
    {
    }
};

FG_DEVICE FgPack fg_pack(const FgBf16 *x, int64_t p)
{
    FgPackWords in;
    FgPack out;
    in.words = reinterpret_cast<const uint4 *>(x)[p];
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = fg_from_bf16(in.bf16[j]);
    return out;
}

FG_DEVICE FgPack fg_pack(const FgF16 *x, int64_t p)
{
    FgPackWords in;
    FgPack out;
    in.words = reinterpret_cast<const uint4 *>(x)[p];
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = fg_from_f16(in.f16[j]);
    return out;
}

FG_DEVICE void fg_unpack(float *y, int64_t p, const FgPack &b)
{
    reinterpret_cast<float4 *>(y)[2 * p] = make_float4(b.v[0], b.v[1], b.v[2], b.v[3]);
    reinterpret_cast<float4 *>(y)[2 * p + 1] = make_float4(b.v[4], b.v[5], b.v[6], b.v[7]);
}

FG_DEVICE void fg_unpack(FgBf16 *y, int64_t p, const FgPack &b)
{
    FgPackWords out;
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.bf16[j] = fg_to_bf16(b.v[j]);
    reinterpret_cast<uint4 *>(y)[p] = out.words;
}

FG_DEVICE void fg_unpack(FgF16 *y, int64_t p, const FgPack &b)
{
    FgPackWords out;
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.f16[j] = fg_to_f16(b.v[j]);
    reinterpret_cast<uint4 *>(y)[p] = out.words;
}
#else
/* As a reader sees them: what they do is this header's to say. */
template <class T> __device__ FgPack fg_pack(const T *x, int64_t p);
template <class T> __device__ void fg_unpack(T *y, int64_t p, const FgPack &b);
#endif

/* One element for all of a pack. */
FG_DEVICE FgPack fg_pack_of(float x)
{
    return FgPack{{x, x, x, x, x, x, x, x}};
}

#endif

#endif
