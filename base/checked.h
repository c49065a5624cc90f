/* Arithmetic that says when it overflows. */
#ifndef FG_BASE_CHECKED_H
#define FG_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool fg_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool fg_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline uint64_t fg_round_up(uint64_t x, uint64_t multiple)
{
    return (x + multiple - 1) / multiple * multiple;
}

#endif
