/* Arithmetic shared by kernels: sums in a fixed order. Functions of one element are fg_chain.h's.
 */
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

/* A row's maximum and the sum of e^(x - maximum) over it: log-sum-exp = most + log(sum). */
typedef struct FgSoftmaxRow {
    float most;
    double sum;
} FgSoftmaxRow;
FgSoftmaxRow fg_softmax_row(const void *x, uint64_t dt, uint64_t first,
                            uint64_t cols); /* reduce.c */

#endif
