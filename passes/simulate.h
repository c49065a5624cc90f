/* Inside of the simulator: durations (passes/cost.c), joint rates (passes/joint.c). */
#ifndef FG_PASSES_SIMULATE_H
#define FG_PASSES_SIMULATE_H

#include "ir/op_table.h"
#include "passes/compile.h"

/* Seconds of one node alone on its engine, its cost known already. */
double fg_cost_seconds(const FgModule *module, const FgMachine *machine, const FgNode *node,
                       const FgCost *cost);

/* The engine that a node is work of (compile.h): its stream, but for gradients in parts and for
 * light work. */
uint32_t fg_engine_of(const FgMachine *machine, const FgNode *node, const FgCost *cost);

/* Seconds of a collective over whole buffers of so many bytes (FgCost: wire_bytes). */
double fg_collective_seconds(const FgMachine *machine, uint32_t ranks, FgOp op, double bytes);

/* Speeds of the engines that run, beside each other; `running` and `out` by engine. */
void fg_engine_speeds(const FgMachine *machine, const bool *running, double *out);

/* The least time in which each engine does its work (seconds alone, by engine) at the rates that
 * they have beside each other, in any order (passes/joint.c). *out_price, by engine: by how much it
 * falls for a second less of that work. */
double fg_joint_bound(const FgMachine *machine, const double *work, double *out_price);

#endif
