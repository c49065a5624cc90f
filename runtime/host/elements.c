/* Conversion of whole chunks, and the f16 format bit by bit. */
#include "runtime/host/elements.h"

float fg_f16_to_f32(uint16_t half)
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

uint16_t fg_f32_to_f16(float value)
{
    uint32_t bits = fg_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >=
        0x38800000u) /* normal: drop 13 bits, to nearest even; a carry moves the exponent */
        return (uint16_t)(sign |
                          ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
    /* Subnormal: adding 0.5 makes the unit in the last place 2^-24, so the addition rounds. */
    float shifted = fg_from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (fg_bits(shifted) - 0x3f000000u));
}

uint64_t fg_host_dtype_bytes(uint64_t dt)
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

const float *fg_load(const void *base, uint64_t dt, uint64_t first, uint64_t n, float *scratch)
{
    if (dt == FG_RT_F32)
        return (const float *)base + first;
    const uint16_t *half = (const uint16_t *)base + first;
    if (dt == FG_RT_BF16)
        for (uint64_t i = 0; i < n; i++)
            scratch[i] = fg_bf16_to_f32(half[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            scratch[i] = fg_f16_to_f32(half[i]);
    return scratch;
}

void fg_store(void *base, uint64_t dt, uint64_t first, uint64_t n, const float *values)
{
    if (dt == FG_RT_F32) {
        float *to = (float *)base + first;
        if (to != values)
            memmove(to, values, n * sizeof *to);
        return;
    }
    uint16_t *half = (uint16_t *)base + first;
    if (dt == FG_RT_BF16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = fg_f32_to_bf16(values[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            half[i] = fg_f32_to_f16(values[i]);
}

void fg_store_sum(void *base, uint64_t dt, uint64_t first, uint64_t n, const float *values,
                  bool accumulate)
{
    float old_scratch[FG_CHUNK], sum[FG_CHUNK];
    if (accumulate) {
        const float *old = fg_load(base, dt, first, n, old_scratch);
        for (uint64_t i = 0; i < n; i++)
            sum[i] = old[i] + values[i];
        values = sum;
    }
    fg_store(base, dt, first, n, values);
}
