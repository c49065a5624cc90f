/* What a custom function sees: element types, and the call that it serves (docs/custom-kernels.md).
 *
 * A function of the user's takes a pointer for each operand, then one for each result, then the
 * call:
 *
 *   void custom_relu2(const float *x, float *y, const FgCustom *call)
 *
 * Operands and results count together from 0, in the order of the parameters. This header stands
 * alone; C, C++ and CUDA read it alike. */
#ifndef FG_CUSTOM_H
#define FG_CUSTOM_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define FG_INLINE static __host__ __device__ __forceinline__
#else
#define FG_INLINE static inline
#endif

/* ---- element types: float, double, int32_t, int64_t and these two, 16 bits each ---- */
#if defined(__CUDACC__) && defined(__NVCC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef __nv_bfloat16 FgBf16;
typedef __half FgF16;
#else
typedef struct FgBf16 {
    uint16_t bits;
} FgBf16;

typedef struct FgF16 {
    uint16_t bits;
} FgF16;
#endif

FG_INLINE uint32_t fg_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FG_INLINE float fg_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Conversions to narrow types round to nearest even; NaNs stay NaNs. */
FG_INLINE float fg_bf16_to_f32(uint16_t half)
{
    return fg_from_bits((uint32_t)half << 16);
}

FG_INLINE uint16_t fg_f32_to_bf16(float value)
{
    uint32_t bits = fg_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    int nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? bits >> 16 | 0x40u : rounded);
}

FG_INLINE float fg_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u,
             fraction = half & 0x3ffu;
    if (exponent == 31)
        return fg_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    return fg_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

FG_INLINE uint16_t fg_f32_to_f16(float value)
{
    uint32_t bits = fg_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* normal: drop 13 bits; a carry moves the exponent */
        uint32_t carry = 0xfffu + (magnitude >> 13 & 1u);
        return (uint16_t)(sign | ((magnitude - 0x38000000u + carry) >> 13));
    }
    /* Subnormal: adding 0.5 makes the unit in the last place 2^-24, so the addition rounds. */
    float shifted = fg_from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (fg_bits(shifted) - 0x3f000000u));
}

#if defined(__CUDACC__) && defined(__NVCC__)
FG_INLINE float fg_from_bf16(FgBf16 value)
{
    return __bfloat162float(value);
}

FG_INLINE FgBf16 fg_to_bf16(float value)
{
    return __float2bfloat16_rn(value);
}

FG_INLINE float fg_from_f16(FgF16 value)
{
    return __half2float(value);
}

FG_INLINE FgF16 fg_to_f16(float value)
{
    return __float2half_rn(value);
}
#else
FG_INLINE float fg_from_bf16(FgBf16 value)
{
    return fg_bf16_to_f32(value.bits);
}

FG_INLINE FgBf16 fg_to_bf16(float value)
{
    FgBf16 narrow;
    narrow.bits = fg_f32_to_bf16(value);
    return narrow;
}

FG_INLINE float fg_from_f16(FgF16 value)
{
    return fg_f16_to_f32(value.bits);
}

FG_INLINE FgF16 fg_to_f16(float value)
{
    FgF16 narrow;
    narrow.bits = fg_f32_to_f16(value);
    return narrow;
}
#endif

/* ---- the call ---- */

/* An operand or result, as the program's table states it. */
typedef struct FgRtOperand {
    uint32_t dtype;  /* FgRtDtype */
    int written;     /* a result */
    uint64_t offset; /* bytes from the start of the rank's memory */
    uint64_t elements;
    uint32_t dims_first, rank; /* into FgRtProgram.dims */
} FgRtOperand;

typedef struct FgCustom {
    const FgRtOperand *operands;
    uint32_t n_operands; /* results included */
    const int64_t *dims;
    unsigned char *memory; /* of the rank: host memory, or the GPU's */
    void *stream; /* cuda: the cudaStream_t that kernels are to be launched on; else NULL */
} FgCustom;

static inline int64_t fg_custom_elements(const FgCustom *call, uint32_t i)
{
    return (int64_t)call->operands[i].elements;
}

static inline uint32_t fg_custom_rank(const FgCustom *call, uint32_t i)
{
    return call->operands[i].rank;
}

/* Dimension k of operand i; negative k count from the end. */
static inline int64_t fg_custom_dim(const FgCustom *call, uint32_t i, int32_t k)
{
    const FgRtOperand *operand = &call->operands[i];
    return call->dims[operand->dims_first +
                      (k < 0 ? (uint32_t)((int32_t)operand->rank + k) : (uint32_t)k)];
}

/* Where operand i is; emitted programs call these. */
static inline const void *fg_custom_in(const FgCustom *call, uint32_t i)
{
    return call->memory + call->operands[i].offset;
}

static inline void *fg_custom_out(const FgCustom *call, uint32_t i)
{
    return call->memory + call->operands[i].offset;
}

/* How an emitted program hands a call on to the user's function. */
typedef void FgCustomFn(const FgCustom *call);

#endif
