/* The search over plans: internal to fg_compile. */
#ifndef FG_PASSES_SEARCH_H
#define FG_PASSES_SEARCH_H

#include "passes/compile.h"
#include "passes/lower.h"

/* A plan lowered, measured by ledger and simulator. */
typedef struct FgEvaluation {
    FgPlan *plan;    /* in the search's arena */
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

/* The fastest plan that fits the budget. `fixed`: evaluations of the fixed plans, which are
 * candidates too. False when nothing fits or after errors. */
bool fg_search_compiled(FgSearch *search, const FgEvaluation *fixed, uint32_t n_fixed,
                        FgEvaluation *out);

/* Tries to carry gathered copies over micro-steps and round the period, on the best plan found, and
 * replaces it where that is better. False after errors. */
bool fg_search_carry(FgSearch *search, FgEvaluation *best);

/* fit first, then time, then memory. */
bool fg_evaluation_better(const FgEvaluation *a, const FgEvaluation *b, uint64_t budget);

/* Buckets that `plan` keeps gathered where `base` gathers them again. */
uint32_t fg_plan_kept(const FgPlan *plan, const FgPlan *base);

#endif
