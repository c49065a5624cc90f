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

/* How much of a plan leaves the device. */
typedef struct FgOffloadWish {
    uint32_t classes; /* FgOffload: of which it may be */
    uint64_t bytes;   /* of device memory to save, about; UINT64_MAX: everything */
    uint64_t most;    /* bytes of host memory that may be taken, about */
} FgOffloadWish;

/* Sets the levers of the shortest run of the plan's ladder that grants the wish, or of what `most`
 * allows. */
void fg_offload_grant(FgArena *arena, FgPlan *plan, FgModule *graph, const FgMachine *machine,
                      const FgOffloadWish *wish, uint64_t piece_elements);
/* The classes of which something lies in host memory. */
uint32_t fg_offload_classes(const FgPlan *plan);

/* States travel for an update in parts of at most so many elements: smaller ones take less of the
 * device, and more calls. */
#define FG_OFFLOAD_PIECE ((uint64_t)8 << 20)
#define FG_OFFLOAD_LEAST_PIECE ((uint64_t)4 << 20)

/* Moves the copies of a plan ahead by a model of time, each node at its own cost, so that they hide
 * behind compute: fetches by `slack` times what they take, stashes hold their memory that long. */
void fg_offload_time(FgArena *scratch, FgPlan *plan, FgModule *graph, const FgMachine *machine,
                     double slack);

#endif
