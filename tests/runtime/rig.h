/* A group of ranks without a model, for tests of single calls: memory handed out from the bottom,
 * arrays of doubles beside what the runtime holds, and comparisons that know how results are
 * rounded. */
#ifndef FG_TESTS_RUNTIME_RIG_H
#define FG_TESTS_RUNTIME_RIG_H

#include <stdbool.h>

#include "runtime/host/host.h"

enum { RIG_WORKSPACE = 4 << 20 };

typedef struct Rig {
    FgRtProgram program;
    FgRtGroup *group;
    FgRtCx *cx;    /* rank 0 */
    uint64_t next; /* of the memory to hand out */
    uint64_t ws;   /* a workspace of RIG_WORKSPACE bytes */
    uint64_t seed;
    double **kept; /* arrays to free */
    size_t n_kept;
} Rig;

/* An array in the memory of rank 0 and the same values in double. */
typedef struct Array {
    uint64_t at, n, dt;
    double *v;
} Array;

/* One rank in checked mode, `bytes` of states (so that all may be read) and a workspace behind
 * them. */
Rig rig_open(uint64_t bytes);
/* The same with a program that the caller has filled in; opens nothing when the group cannot be
 * made. */
Rig rig_open_program(const FgRtProgram *program, FgRtOptions options);
void rig_close(Rig *rig);
/* Call before the calls under test, after the operands are in place. */
void rig_begin(Rig *rig);
/* Runs a body on one thread a rank. */
void rig_run(Rig *rig, FgRtBody *body);

double rig_random(Rig *rig); /* in [-1, 1) */
/* Values of scale * random, rounded to dt. */
Array rig_values(Rig *rig, uint64_t dt, uint64_t n, double scale);
/* The given integers, as i32. */
Array rig_ids(Rig *rig, const int32_t *ids, uint64_t n);
Array rig_result(Rig *rig, uint64_t dt, uint64_t n); /* v: n zeros, for the reference */
double rig_get(Rig *rig, const Array *array, uint64_t index);
double rig_round(uint64_t dt, double value); /* to f32, bf16 or f16, once */

/* Every element is the rounding of a number within `tolerance` times the largest reference value of
 * its reference. Prints and counts what is not. */
void rig_check(Rig *rig, const Array *result, double tolerance, const char *what, int *failures);
/* The status is ok, else prints it. */
void rig_check_ok(Rig *rig, const char *what, int *failures);

#define RIG_TOLERANCE 1e-5 /* of f32 arithmetic over sums of some hundred terms */

#endif
