/* The search over plans: internal to fg_compile. */
#ifndef FG_PASSES_SEARCH_H
#define FG_PASSES_SEARCH_H

#include "passes/compile.h"
#include "passes/lower.h"

/* A plan lowered, measured by ledger and simulator. */
typedef struct FgEvaluation {
    FgPlan *plan;    /* in the search's arena */
    uint32_t kept;   /* gathers that it saves over gathering at each use */
    FgLedger ledger; /* text in the search's arena */
    FgSim sim;
} FgEvaluation;

typedef struct FgSearch {
    FgArena *arena;        /* plans and figures */
    const FgModule *graph; /* graph level, recompute applied */
    const FgMachine *machine;
    uint64_t budget;
    uint32_t evaluated;
    FG_VEC(FgPassTime) times;
} FgSearch;

/* Lowers a copy of the graph by the plan. With `keep` the sched module is built in that arena and
 * returned in *out_module, otherwise it is thrown away. False after errors in the module's
 * diagnostics. */
bool fg_search_evaluate(FgSearch *search, FgPlan *plan, FgArena *keep, FgEvaluation *out,
                        FgModule **out_module);

/* Improves *out, which fits the budget, by plans with the buckets of `base`, whose plan gathers at
 * use. False after errors. */
bool fg_search_compiled(FgSearch *search, const FgEvaluation *base, FgEvaluation *out);

/* fit first, then time, then memory. */
bool fg_evaluation_better(const FgEvaluation *a, const FgEvaluation *b, uint64_t budget);

#endif
