/* The search over plans: internal to fg_compile. */
#ifndef FG_PASSES_SEARCH_H
#define FG_PASSES_SEARCH_H

#include "passes/compile.h"
#include "passes/estimate.h"
#include "passes/lower.h"

/* A plan lowered, measured by ledger and simulator. */
typedef enum FgPlacing {
    FG_PLACING_THOROUGH, /* memplan's default */
    FG_PLACING_QUICK,    /* first fit alone */
    FG_PLACING_FITTING,  /* as thorough, but content with what fits the budget */
    FG_PLACING_NONE      /* figures are of what lives at once, whatever its place */
} FgPlacing;

typedef struct FgEvaluation {
    FgPlan *plan;          /* in the search's arena */
    const FgModule *graph; /* that the plan is for: the search's when it was evaluated */
    uint32_t kept;         /* gathers that it saves over gathering at each use */
    FgPlacing placing;     /* that its figures are of */
    FgLedger ledger;       /* text in the search's arena */
    FgSim sim;
} FgEvaluation;

typedef struct FgSeenPlan {
    uint64_t key; /* hash of its levers, graph and placing */
    FgEvaluation evaluation;
} FgSeenPlan;

/* A plan lowered up to where distances (ahead, linger, settle) begin to count. */
typedef struct FgLowered {
    FgArena *arena;
    FgModule *module; /* NULL: none */
    uint64_t key;     /* of all other levers */
} FgLowered;

typedef struct FgSearch {
    FgArena *arena;        /* plans and figures */
    FgMemo *memo;          /* or NULL */
    const FgModule *graph; /* graph level, recompute applied */
    const FgMachine *machine;
    uint64_t budget, host_budget;
    FgReduceForm reduce;
    uint32_t evaluated;
    FG_VEC(FgSeenPlan) seen;
    FgLowered lowered[2]; /* the one used last first */
    FG_VEC(FgPassTime) times;
} FgSearch;

/* Gives back what the search keeps outside of its arena. */
void fg_search_end(FgSearch *search);

/* What a plan comes to: lowers a copy of the graph by it, unless that is known. False after errors
 * in the graph's diagnostics, here and below. */
bool fg_search_evaluate(FgSearch *search, FgPlan *plan, FgPlacing placing, FgEvaluation *out);
/* The same, quickly placed, with the sched module: in `arena`, or the memo's. */
bool fg_search_lower(FgSearch *search, FgPlan *plan, FgArena *arena, FgEvaluation *out,
                     const FgModule **out_module);
/* A run of a plan that was evaluated, in `arena` or the memo's. */
bool fg_search_times(FgSearch *search, const FgEvaluation *of, FgArena *arena, FgTimes *out);
/* Bytes that no placement of the plan can do without: a small part of the work of evaluating it. */
bool fg_search_bound(FgSearch *search, const FgPlan *plan, uint64_t *out);
/* The lowering of dist and sched, with that placing. */
const char *fg_placing_pipeline(FgArena *arena, FgPlacing placing);
void fg_search_add_time(FgSearch *search, const char *name, double ms);
void fg_search_add_times(FgSearch *search, const FgPassManager *manager);

/* Improves *out, which fits the budget, by plans with the buckets of `base`, whose plan gathers at
 * use; *out_choice led to it, where one is found. False after errors. */
bool fg_search_compiled(FgSearch *search, const FgEvaluation *base, FgEvaluation *out,
                        FgLeverChoice *out_choice);
/* Tries the choice that led to *best, and those around it, with the buckets of `base`, a plan that
 * gathers at use; both are replaced where that is better, which changes best->plan. False after
 * errors. */
bool fg_search_borders(FgSearch *search, FgPlan *base, FgLeverChoice *choice, FgEvaluation *best);

/* Where a search ended: the choice that led to its best plan, and the plan that gathers at use with
 * the same buckets, for that graph. */
typedef struct FgSearchEnd {
    FgPlan *base; /* NULL: no search led to the best plan */
    const FgModule *graph;
    FgLeverChoice choice;
} FgSearchEnd;

/* At the very end, beside the best plan: a few more or fewer gathers round the period, and without
 * the first. *best is replaced by what is better. False after errors. */
bool fg_search_refine(FgSearch *search, const FgSearchEnd *end, FgEvaluation *best);

/* Where gradients may come in parts (without being asked for, with two ranks) and some would: sets
 * that in the choice. */
void fg_search_choose_parts(const FgSearch *search, const FgEstimate *estimate,
                            FgLeverChoice *choice);
/* What may live in the arena by a choice that was made so far, beside states. */
uint64_t fg_search_arena(const FgSearch *search, const FgLeverChoice *choice, uint64_t states);
/* What a plan may take of the budget: less where it needs another communicator. */
uint64_t fg_search_budget(const FgSearch *search, const FgPlan *plan);
bool fg_search_fits(const FgSearch *search, const FgEvaluation *evaluation);

/* Places the fastest plans seen that missed the budget by their placement alone once more, and
 * replaces the best by what then is better. Where compute waits for communication. */
bool fg_search_misses(FgSearch *search, FgEvaluation *best);

/* Tries to carry gathered copies over micro-steps and round the period, on the best plan found, and
 * replaces it where that is better. False after errors. */
bool fg_search_carry(FgSearch *search, FgEvaluation *best);

/* fit first, then time, then memory. */
bool fg_search_better(const FgSearch *search, const FgEvaluation *a, const FgEvaluation *b);

#endif
