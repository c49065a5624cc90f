/* The exact sum of squares: FG_RT_NORM_LIMBS int64 limbs of 32 significant bits (runtime/fg_rt.h).
 */
#ifndef FG_RUNTIME_HOST_EXACT_H
#define FG_RUNTIME_HOST_EXACT_H

#include <stdint.h>

/* Adds the squares of n values, exactly, in any order; the limbs are left canonical: all but the
 * last below 2^32. */
void fg_exact_add_squares(int64_t *limbs, const float *values, uint64_t n);
/* The sum, rounded once to double; NaN when any value was infinite or not a number. Limbs need not
 * be canonical. */
double fg_exact_value(const int64_t *limbs);

#endif
