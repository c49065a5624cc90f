/* Which values backward computes again: ladders of ever larger sets (passes/recompute_choose.c). */
#ifndef FG_PASSES_RECOMPUTE_H
#define FG_PASSES_RECOMPUTE_H

#include "passes/passes.h"

/* One set of recomputed nodes, and what it is good for by the cost model; the schedule decides. */
typedef struct FgRung {
    FgRecompute recompute; /* never FG_RECOMPUTE_AUTO */
    uint32_t n_nodes;      /* SELECTIVE: the first so many of the ladder's nodes */
    uint64_t bytes;        /* of values that need not live from forward to backward, a rank */
    double seconds;        /* of compute that is done twice, a micro-step */
} FgRung;

typedef struct FgLadder {
    FgIdVec nodes;        /* forward nodes of the graph, in the order in which the sets grow */
    FG_VEC(FgRung) rungs; /* at least one; sets grow from one to the next */
} FgLadder;

/* The sets that `mode` allows, smallest first; everything lives in `arena`. `graph` is at graph
 * level, after autodiff, without clones.
 *   NONE       one rung that recomputes nothing
 *   FULL       one rung that recomputes layers whole
 *   AUTO       nothing, then value by value, cheapest seconds a byte first, then FULL; no more than
 *              the first where no value of a layer is kept for backward
 *   SELECTIVE  the same without matrix products and attention; nothing and FULL are left out,
 * unless there is no value to choose Layers alike are treated alike: a value of theirs is
 * recomputed in the first layers of the model, in one more from rung to rung. */
void fg_recompute_ladder(FgArena *arena, const FgModule *graph, const FgMachine *machine,
                         FgRecompute mode, FgLadder *out);

/* Writes a rung into a plan; its memory comes from `arena`. */
void fg_recompute_apply(const FgLadder *ladder, uint32_t rung, FgPlan *plan, FgArena *arena);

#endif
