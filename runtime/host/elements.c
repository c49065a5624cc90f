/* Conversion of whole chunks. */
#include "runtime/host/elements.h"

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
