/* The compile of a graph under given numerics, in steps: internal to fg_compile (compile.c has the
 * steps, numerics.c who takes them).
 *
 *   begin    the graph passes; what settings there are
 *   least    the plan of least memory, and the floor, whatever the budget
 *   quick    what one choice of levers makes of it: a hint of what a search would find (glance:
 *            that alone)
 *   search   the fastest plan that fits
 *   finish   the chosen plan lowered under the manager, and proved
 *
 * Each is false after errors in the graph's diagnostics. */
#ifndef FG_PASSES_COMPILE_RUN_H
#define FG_PASSES_COMPILE_RUN_H

#include "passes/search.h"
#include "passes/settings.h"

typedef struct FgRun {
    FgArena *arena;
    const FgCompileOptions *options;
    FgCompiled *out;
    FgModule *graph; /* after the graph passes */
    bool stopped;    /* by options->stop_after: out is complete */
    FgSearch search;
    FgSearchEnd end; /* of the best plan searched */
    FgSettings settings;
    FgEvaluation zero3, least, chosen;
} FgRun;

/* Fills *out as far as begin knows it. `memo`: of these numerics, or NULL. `diags`: where the graph
 * passes report; NULL: the graph's own. */
bool fg_run_begin(FgRun *run, FgArena *arena, const FgModule *graph, const FgMachine *machine,
                  const FgNumerics *numerics, const FgCompileOptions *options, FgMemo *memo,
                  FgDiags *diags, FgCompiled *out);
/* Sets run->least and the floor in run->out, and `fits`. */
bool fg_run_least(FgRun *run);
/* After `begin`, with two lowerings: the plan that gathers at use, on the first rung, and what one
 * choice of levers makes of it. Neither need fit. */
bool fg_run_glance(FgRun *run, FgEvaluation *at_use, FgEvaluation *fast);
/* After `least`: a plan that fits where one does, found with two lowerings beyond the fixed plans.
 */
bool fg_run_quick(FgRun *run, FgEvaluation *out);
/* After `least`, where that fits: run->chosen. */
bool fg_run_search(FgRun *run);
/* Figures of run->chosen (where nothing fits: of run->least), and the module where it fits. */
bool fg_run_finish(FgRun *run);

#endif
