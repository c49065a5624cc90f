/* An interpreter of graph-level IR in double precision: the living definition of the ops, forward
 * and backward.
 *
 * Dtypes are ignored: nothing is rounded. Tensors are dense, row-major doubles, ids and labels too.
 */
#ifndef FG_TESTS_ORACLE_REFERENCE_H
#define FG_TESTS_ORACLE_REFERENCE_H

#include "ir/ir.h"

/* Evaluates one node. operands[i] is NULL for an omitted operand; results[i] has the room of result
 * i (with attribute `accumulate`, what it holds is added to). False for an op that is not of the
 * graph level. loss_seed gives 1. */
bool ref_eval_node(const FgModule *module, const FgNode *node, const double *const *operands,
                   double *const *results);

/* A run of the module's "step": values[id] is filled by the caller for parameters and inputs, by
 * ref_run for the rest. */
typedef struct RefRun {
    const FgModule *module;
    double **values; /* value -> its elements; all allocated, zeroed */
    double seed;     /* what loss_seed gives */
    double **grads;  /* parameter -> sum of its gradient contributions, NULL where none */
} RefRun;

RefRun ref_run_new(FgArena *arena, const FgModule *module, double seed);
bool ref_run(FgArena *arena, RefRun *run);

#endif
