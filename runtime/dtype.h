/* Storage types: their size, and their values as f32. Conversions to narrow types round to nearest
 * even; NaNs stay NaNs. */
#ifndef FG_RUNTIME_DTYPE_H
#define FG_RUNTIME_DTYPE_H

#include <string.h>

#include "runtime/fg_rt.h"

/* Bytes of an element; 0 for no dtype. */
static inline uint64_t fg_rt_dtype_bytes(uint64_t dt)
{
    switch (dt) {
    case FG_RT_BF16:
    case FG_RT_F16:
        return 2;
    case FG_RT_F32:
    case FG_RT_I32:
        return 4;
    case FG_RT_F64:
    case FG_RT_I64:
        return 8;
    default:
        return 0;
    }
}

static inline uint32_t fg_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fg_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float fg_bf16_to_f32(uint16_t half)
{
    return fg_from_bits((uint32_t)half << 16);
}

static inline uint16_t fg_f32_to_bf16(float value)
{
    uint32_t bits = fg_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    int nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(nan ? bits >> 16 | 0x40u : rounded);
}

static inline float fg_f16_to_f32(uint16_t half)
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

static inline uint16_t fg_f32_to_f16(float value)
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

#endif
