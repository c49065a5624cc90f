/* What plans differ in before buckets and gathers: the setting of a search. Internal to fg_compile.
 *
 * A setting is a rung of the ladder of recomputed sets (recompute.h), with so many bytes of what
 * may be offloaded in host memory. Its graph and its fixed plans are made and measured when they
 * are asked for, once. */
#ifndef FG_PASSES_SETTINGS_H
#define FG_PASSES_SETTINGS_H

#include "passes/offload_plan.h"
#include "passes/recompute.h"
#include "passes/search.h"

typedef enum FgUnit { FG_UNIT_LAYER, FG_UNIT_MODULE, FG_N_UNITS } FgUnit;

typedef struct FgSetting {
    FgModule *graph; /* recompute applied; NULL: not made yet */
    /* Gather at use, release after it, a unit at a time: where searches begin, and the least that
     * the setting takes. */
    FgEvaluation at_use[FG_N_UNITS];
    bool measured[FG_N_UNITS];
    uint32_t offloaded[FG_N_UNITS]; /* FgOffload: classes of which the plan offloads some */
} FgSetting;

typedef struct FgSettings {
    FgArena *arena; /* graphs and plans: lives as long as the memo, where there is one */
    FgSearch *search;
    const FgModule *graph; /* after the graph passes, without clones */
    const FgCompileOptions *options;
    FgLadder ladder;
    FgSetting *by_rung;
    FgIdVec probes;         /* rungs whose least peak is the floor, ascending */
    uint64_t offload_bytes; /* to offload at least, as far as there is what to; cheapest first */
} FgSettings;

#define FG_OFFLOAD_EVERYTHING UINT64_MAX

/* The ladder, and the rungs that the floor is measured on: without looking at the budget. False
 * after errors, here and below. */
bool fg_settings_open(FgSettings *settings, FgArena *arena, FgSearch *search, const FgModule *graph,
                      const FgCompileOptions *options);
/* Settings that another search of the same question has opened, for this one. */
void fg_settings_take(FgSettings *settings, FgSearch *search, const FgCompileOptions *options);
/* Forgets all fixed plans; those to come offload at least so much. */
void fg_settings_offload(FgSettings *settings, uint64_t bytes);
/* The fixed plan of a setting with its host copies ahead of their need; false after errors. */
bool fg_setting_timed(FgSettings *settings, uint32_t rung, FgUnit unit, FgEvaluation *out);
/* A plan of layers that gathers at use, with the borders of a cut (FgBorders); *out is NULL where
 * nothing can be cut, or something is offloaded. Enters the setting. */
bool fg_setting_cut(FgSettings *settings, uint32_t rung, double cut, FgPlan **out);
/* Makes a setting's graph the search's. */
bool fg_setting_enter(FgSettings *settings, uint32_t rung);
/* The plan of a setting that gathers at use, not measured; NULL after errors. Enters the setting.
 */
FgPlan *fg_setting_plan(FgSettings *settings, uint32_t rung, FgUnit unit);
/* The measured fixed plan of a setting; NULL after errors. Enters the setting. */
const FgEvaluation *fg_setting_at_use(FgSettings *settings, uint32_t rung, FgUnit unit);
/* The one of a setting's fixed plans that takes less. */
const FgEvaluation *fg_setting_least(FgSettings *settings, uint32_t rung);
/* The first rung whose plan of that unit fits, as far as halving finds it, given that the rung of
 * some probe does; FG_NO_ID when none does. */
bool fg_settings_first_fit(FgSettings *settings, FgUnit unit, uint32_t *out_rung);
/* The baseline, by its knobs, on the rung that it recomputes by. */
bool fg_settings_zero3(FgSettings *settings, FgEvaluation *out);

#endif
