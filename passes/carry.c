/* carry: copies that outlive the function that gathers them, tried on the best plan found.
 *
 * keep   with micro-steps: a bucket gathered once a step instead of once or twice a micro-step. It
 *        takes its bytes all through the step, so buckets are taken by the time that a byte saves,
 *        as many as fit; halving finds how many.
 * round  without clipping: the first gathers of a step run at the end of the step before, beside
 *        the last reductions and updates. Tried for the first one, two, four, ... buckets while
 *        that helps; right behind their updates, while the link of the gathers is idle, and as far
 *        ahead of the next step as they stand in the plan, which takes less memory.
 * late   where rows that no token names are updated early: the update as one call, since an early
 *        one slows the reductions that it runs beside.
 *
 * A change stays when the plan fits and is faster in simulation. */
#include "passes/search.h"

#include <stdlib.h>
#include <string.h>

typedef struct Saving {
    uint32_t bucket;
    double per_byte; /* seconds of one gather */
} Saving;

static int by_saving(const void *a, const void *b)
{
    const Saving *x = a, *y = b;
    if (x->per_byte > y->per_byte || x->per_byte < y->per_byte)
        return x->per_byte > y->per_byte ? -1 : 1;
    return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

static Saving *savings_of(const FgSearch *s, const FgPlan *plan, FgArena *scratch)
{
    const FgModule *m = s->graph;
    Saving *savings = FG_NEW_ARRAY(scratch, Saving, plan->buckets.len + 1);
    uint64_t *offsets = FG_NEW_ARRAY(scratch, uint64_t, m->params.len + 1);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        const FgPlanBucket *b = &plan->buckets.data[i];
        uint64_t elements = fg_bucket_layout(m, b->params, b->n_params, s->machine->ranks, offsets);
        double bytes =
            (double)elements * (double)fg_dtype_bytes(m->params.data[b->params[0]].type->dtype);
        savings[i] = (Saving){i, fg_curve_seconds(&s->machine->gather, bytes) / bytes};
    }
    if (plan->buckets.len > 0)
        qsort(savings, plan->buckets.len, sizeof *savings, by_saving);
    return savings;
}

/* One interval for all uses of a bucket, kept over the micro-steps. */
static void keep_bucket(FgPlan *plan, uint32_t bucket)
{
    uint32_t n = 0, first = FG_NO_ID;
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        FgPlanGather g = plan->gathers.data[i];
        if (g.bucket != bucket || first == FG_NO_ID)
            plan->gathers.data[n++] = g;
        if (g.bucket != bucket)
            continue;
        first = first == FG_NO_ID ? n - 1 : first;
        plan->gathers.data[first].last_use = g.last_use;
        plan->gathers.data[first].keep = true;
    }
    plan->gathers.len = n;
}

/* Takes the plan for the best one if it is better; *out_fits says whether it fits. */
static bool try_plan(FgSearch *s, FgPlan *plan, FgEvaluation *best, bool *out_fits)
{
    FgEvaluation now = {.kept = best->kept + best->plan->gathers.len - plan->gathers.len};
    plan->name = "compiled";
    if (!fg_search_evaluate(s, plan, FG_PLACING_QUICK, &now))
        return false;
    *out_fits = fg_search_fits(s, &now);
    if (*out_fits && fg_search_better(s, &now, best))
        *best = now;
    return true;
}

static bool keep(FgSearch *s, FgEvaluation *best)
{
    FgPlan *base = best->plan;
    FgArena *scratch = fg_arena_new();
    const Saving *savings = savings_of(s, base, scratch);
    uint32_t low = 0, high = base->buckets.len; /* so many fit; more than so many do not */
    bool ok = true;
    for (uint32_t n = high; low < high && ok; n = low + (high - low + 1) / 2) {
        FgPlan *plan = fg_plan_clone(base, s->arena);
        bool fits = false;
        for (uint32_t i = 0; i < n; i++)
            if (!(plan->buckets.data[savings[i].bucket].offload & FG_OFFLOAD_PARAMETERS))
                keep_bucket(plan, savings[i].bucket);
        ok = try_plan(s, plan, best, &fits);
        low = fits ? n : low;
        high = fits ? high : n - 1;
    }
    fg_arena_free(scratch);
    return ok;
}

/* Lets the gathers of the first `most` buckets run round the period; returns of how many it does.
 */
static uint32_t set_round(const FgSearch *s, FgPlan *plan, uint32_t most, bool early)
{
    bool micro_steps = s->graph->numerics.accumulate > 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->gathers.len && n < most; i++) {
        FgPlanGather *g = &plan->gathers.data[i];
        bool first = i == 0 || g[-1].bucket != g->bucket;
        const FgPlanBucket *bucket = &plan->buckets.data[g->bucket];
        if (!first || (micro_steps && !g->keep) || bucket->offload || bucket->travels)
            continue; /* of a bucket that travels, what is left to gather is the head */
        g->round = true;
        g->ahead = early ? (int64_t)s->graph->nodes.len : g->ahead;
        n++;
    }
    return n;
}

static bool run_round(FgSearch *s, FgEvaluation *best)
{
    const FgPlan *base = best->plan;
    bool better = true, more = true;
    for (uint32_t most = 1; better && more; most *= 2) {
        const FgPlan *before = best->plan;
        for (int early = 1; early >= 0; early--) {
            FgPlan *plan = fg_plan_clone(base, s->arena);
            bool fits = false;
            uint32_t n = set_round(s, plan, most, early);
            more = n == most;
            if (n > 0 && !try_plan(s, plan, best, &fits))
                return false;
        }
        better = best->plan != before || most < 4;
    }
    return true;
}

static bool update_late(FgSearch *s, FgEvaluation *best)
{
    FgPlan *plan = fg_plan_clone(best->plan, s->arena);
    bool any = false, fits;
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        any |= plan->buckets.data[i].early;
        plan->buckets.data[i].early = false;
    }
    return !any || try_plan(s, plan, best, &fits);
}

bool fg_search_carry(FgSearch *s, FgEvaluation *best)
{
    const FgNumerics *numerics = &s->graph->numerics;
    if (numerics->accumulate > 1 && !keep(s, best))
        return false;
    return fg_update_waits(numerics) || (run_round(s, best) && update_late(s, best));
}
