/* Narrow floats by bit arithmetic: no hardware format is assumed, results are the same everywhere.
 */
#include "runtime/trainer/number.h"

#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float fg_bf16_to_f32(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

uint16_t fg_f32_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* a NaN stays one: keep its top bits, make it quiet */
        return (uint16_t)((bits >> 16) | 0x40u);
    uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)((bits + round) >> 16);
}

float fg_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu,
             fraction = bits & 0x3ffu;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent)
        return from_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
    float small = ldexpf((float)fraction, -24);
    return sign ? -small : small;
}

size_t fg_dtype_bytes(FgRtDtype dtype)
{
    switch (dtype) {
    case FG_RT_BF16:
    case FG_RT_F16:
        return 2;
    case FG_RT_F32:
    case FG_RT_I32:
        return 4;
    case FG_RT_F64:
    case FG_RT_I64:
        return 8;
    }
    return 0;
}
