/* Random models in native JSON, for properties that must hold for every model. */
#ifndef FG_TESTS_RANDOM_MODEL_H
#define FG_TESTS_RANDOM_MODEL_H

#include "base/arena.h"

#include <stdint.h>

/* A small deterministic generator (splitmix64). */
typedef struct Random {
    uint64_t state;
} Random;

uint64_t random_next(Random *r);
uint32_t random_below(Random *r, uint32_t n); /* n > 0 */

/* Text of a valid model: a stack of random blocks over an embedding, tied or not, with shared,
 * frozen and unused parameters, layers in a `repeat`, odd sizes. The same seed gives the same text.
 */
const char *random_model(FgArena *arena, uint64_t seed);

#endif
