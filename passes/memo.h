/* What compiles share that differ in the memory offered alone (FgMemo, compile.h): the graph after
 * its passes, settings, and the figures of every plan that was lowered. Internal to fg_compile. */
#ifndef FG_PASSES_MEMO_H
#define FG_PASSES_MEMO_H

#include "passes/settings.h"

struct FgMemo {
    FgArena *arena;
    const FgModule *asked; /* as it was given */
    FgModule *graph;       /* after its passes; NULL: nothing was compiled yet */
    FgSchedule schedule;
    FgSettings settings;
    FG_VEC(FgSeenPlan) plans; /* their `plan` is not theirs */
    uint32_t *slots, n_slots; /* by key: plan + 1, or 0; a power of two */
};

/* Figures of a plan by its key (passes/evaluate.c), or NULL. */
const FgEvaluation *fg_memo_find(const FgMemo *memo, uint64_t key);
void fg_memo_add(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation);

#endif
