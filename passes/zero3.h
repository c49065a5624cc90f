/* The baseline: ZeRO-3 as DeepSpeed schedules it, by its own knobs.
 * Semantics: DeepSpeed 0.19, runtime/zero/partitioned_param_coordinator.py and stage3.py; names are
 * those of its configuration. All counts are elements. */
#ifndef FG_PASSES_ZERO3_H
#define FG_PASSES_ZERO3_H

#include "passes/estimate.h"

/* Buckets of the baseline, gathered at use: what its knobs are applied to. */
FgPlan *fg_zero3_base(FgModule *graph, FgArena *scratch, FgRecompute recompute,
                      const FgZero3 *knobs);
/* The base plan with keeps (reuse distance, persistence), prefetches and the gradients that wait
 * for a full reduce bucket. In the estimate's arena. */
FgPlan *fg_zero3_plan(const FgEstimate *base, FgArena *scratch, const FgModule *sched,
                      const FgZero3 *knobs);

#endif
