/* What compiles share that differ in the memory offered alone (FgMemo, compile.h): the graph after
 * its passes, settings, and the figures of every plan that was lowered. Internal to fg_compile. */
#ifndef FG_PASSES_MEMO_H
#define FG_PASSES_MEMO_H

#include "base/map.h"
#include "passes/settings.h"

typedef struct FgKnownPlan {
    uint64_t key;            /* passes/evaluate.c */
    FgEvaluation evaluation; /* but for its plan */
    FgModule *module;        /* placed quickly; NULL: nobody asked for it */
    const FgTimes *times;    /* of a run; NULL: likewise */
} FgKnownPlan;

struct FgMemo {
    FgArena *arena;
    const FgModule *asked; /* as it was given */
    FgModule *graph;       /* after its passes; NULL: nothing was compiled yet */
    FgSchedule schedule;
    FgSettings settings;
    FG_VEC(FgKnownPlan) plans;
    FgMap by_key; /* key in hexadecimal -> plan */
};

/* A plan by its key, or NULL; until the next is added. */
FgKnownPlan *fg_memo_find(const FgMemo *memo, uint64_t key);
/* Adds a plan that is not there yet. */
FgKnownPlan *fg_memo_add(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation);
void fg_memo_add_times(FgMemo *memo, uint64_t key, const FgEvaluation *evaluation,
                       const FgTimes *times);

#endif
