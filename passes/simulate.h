/* Inside of the simulator: durations (passes/cost.c). */
#ifndef FG_PASSES_SIMULATE_H
#define FG_PASSES_SIMULATE_H

#include "ir/op_table.h"
#include "passes/compile.h"

/* Seconds of one node alone on its engine, its cost known already. */
double fg_cost_seconds(const FgModule *module, const FgMachine *machine, const FgNode *node,
                       const FgCost *cost);

#endif
