/* Levers of offload: what a plan may keep in pinned host memory, in the order in which it pays. For
 * the search and for fg_compile; the passes only obey. */
#ifndef FG_PASSES_OFFLOAD_PLAN_H
#define FG_PASSES_OFFLOAD_PLAN_H

#include "passes/lower.h"

/* One thing that can leave the device. */
typedef struct FgOffloadStep {
    FgOffload what;
    uint32_t index; /* bucket of the plan, or value of the graph */
    uint64_t bytes; /* device memory that it saves a rank, about; host memory that it takes */
    double seconds; /* of copies a step, both directions, about */
} FgOffloadStep;

typedef FG_VEC(FgOffloadStep) FgOffloadLadder;

/* All that `classes` (FgOffload) may offload of a plan, fewest seconds a byte first. `graph`: graph
 * level, recompute applied, with its numerics; `plan` has its buckets. What is small beside the
 * largest activation, or is needed again at once, stays. Everything returned lives in `arena`. */
FgOffloadLadder fg_offload_ladder(FgArena *arena, FgModule *graph, const FgMachine *machine,
                                  const FgPlan *plan, uint32_t classes);

/* Sets the levers of the first `n` steps in a plan that has none of them; `arena` is the plan's.
 * Copies take place at the last moment: least memory. `piece_elements` bounds the parts in which
 * states travel for an update. */
void fg_offload_apply(FgArena *arena, FgPlan *plan, const FgModule *graph, const FgMachine *machine,
                      const FgOffloadLadder *ladder, uint32_t n, uint64_t piece_elements);

/* Moves the copies of a plan ahead by a model of time, each node at its own cost, so that they hide
 * behind compute: fetches by `slack` times what they take, stashes hold their memory that long. */
void fg_offload_time(FgArena *scratch, FgPlan *plan, FgModule *graph, const FgMachine *machine,
                     double slack);

#endif
