/* Arithmetic shared by kernels: sums in a fixed order, and an exponential that compilers can
 * vectorise. */
#ifndef FG_RUNTIME_HOST_ARITH_H
#define FG_RUNTIME_HOST_ARITH_H

#include "runtime/host/elements.h"

/* Sums run in 8 lanes of f64, element i in lane i mod 8 of the whole row, lanes added in order at
 * the end: the value depends on the elements alone, whatever the chunking (chunks are multiples of
 * 8). */
#define FG_LANES 8
typedef struct FgLanes {
    double lane[FG_LANES];
} FgLanes;

static inline double fg_lanes_total(const FgLanes *sum)
{
    double total = 0;
    for (int i = 0; i < FG_LANES; i++)
        total += sum->lane[i];
    return total;
}

/* sum += a[i] * b[i] */
static inline void fg_lanes_add_product(FgLanes *sum, const float *a, const float *b, uint64_t n)
{
    uint64_t whole = n / FG_LANES * FG_LANES;
    for (uint64_t i = 0; i < whole; i += FG_LANES)
        for (uint64_t j = 0; j < FG_LANES; j++)
            sum->lane[j] += (double)a[i + j] * (double)b[i + j];
    for (uint64_t i = whole; i < n; i++)
        sum->lane[i - whole] += (double)a[i] * (double)b[i];
}

static inline void fg_lanes_add(FgLanes *sum, const float *a, uint64_t n)
{
    uint64_t whole = n / FG_LANES * FG_LANES;
    for (uint64_t i = 0; i < whole; i += FG_LANES)
        for (uint64_t j = 0; j < FG_LANES; j++)
            sum->lane[j] += (double)a[i + j];
    for (uint64_t i = whole; i < n; i++)
        sum->lane[i - whole] += (double)a[i];
}

/* e^x within 2 units in the last place, without branches or calls, so that loops over it become
 * vectors. x = n ln 2 + r: n by adding a number so large that the sum has no fraction bits, e^r by
 * Taylor's series to r^7 (|r| <= 0.35: rest below 1e-8), 2^n in two factors since n may leave the
 * range of exponents. NaN passes, infinities saturate. */
static inline float fg_exp(float x)
{
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
}

/* A row's maximum and the sum of e^(x - maximum) over it: log-sum-exp = most + log(sum). */
typedef struct FgSoftmaxRow {
    float most;
    double sum;
} FgSoftmaxRow;
FgSoftmaxRow fg_softmax_row(const void *x, uint64_t dt, uint64_t first,
                            uint64_t cols); /* reduce.c */

static inline float fg_sigmoid(float x)
{
    return 1.0f / (1.0f + fg_exp(-x));
}

#endif
