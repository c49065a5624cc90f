/* evaluate: a plan lowered, placed, and measured by ledger and simulator.
 *
 * Many choices of a search come to the same levers, of small models most: a plan that was seen
 * before is not lowered again, in this search or, with a memo, in others before it.
 */
#include "passes/memo.h"

#include "base/map.h"

#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

void fg_search_add_time(FgSearch *s, const char *name, double ms)
{
    for (uint32_t i = 0; i < s->times.len; i++)
        if (strcmp(s->times.data[i].name, name) == 0) {
            s->times.data[i].ms += ms;
            return;
        }
    fg_vec_push(s->arena, &s->times, ((FgPassTime){name, ms}));
}

void fg_search_add_times(FgSearch *s, const FgPassManager *pm)
{
    for (uint32_t i = 0; i < pm->times.len; i++)
        fg_search_add_time(s, pm->times.data[i].name, pm->times.data[i].ms);
}

/* ---- plans that were evaluated before ---- */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    return fg_hash_bytes(&value, sizeof value, hash);
}

/* Levers of a plan that decide what there is, with the graph that they are for. */
static uint64_t dist_key_of(const FgSearch *s, const FgPlan *plan)
{
    uint64_t h = mix((uint64_t)(uintptr_t)s->graph, plan->recompute);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        const FgPlanBucket *b = &plan->buckets.data[i];
        h = fg_hash_bytes(b->params, b->n_params * sizeof *b->params, mix(h, b->n_params));
        h = mix(mix(h, b->offload),
                (uint64_t)b->pieces * 8 + (b->travels ? 4u : 0u) + (b->early ? 2u : 0u) + b->parts);
    }
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        const FgPlanGather *g = &plan->gathers.data[i];
        h = mix(mix(mix(h, g->bucket), g->first_use), g->last_use);
        h = mix(mix(h, (uint64_t)g->fetch), (uint64_t)g->keep * 2 + g->round);
    }
    for (uint32_t i = 0; i < plan->stashes.len; i++) {
        const FgPlanStash *x = &plan->stashes.data[i];
        h = mix(mix(mix(h, x->value), (uint64_t)x->linger), (uint64_t)x->ahead);
    }
    return h;
}

/* All of them: with distances, which decide where it stands. */
static uint64_t key_of(const FgSearch *s, const FgPlan *plan, FgPlacing placing)
{
    uint64_t h = mix(dist_key_of(s, plan), placing);
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        h = mix(mix(h, (uint64_t)plan->buckets.data[i].linger),
                (uint64_t)plan->buckets.data[i].settle);
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        h = mix(h, (uint64_t)plan->gathers.data[i].ahead);
    return h;
}

static const char *placing_passes(FgPlacing placing)
{
    switch (placing) {
    case FG_PLACING_QUICK:
        return ",memplan{0},streams";
    case FG_PLACING_FITTING:
        return ",memplan{4,fit},streams";
    case FG_PLACING_NONE:
        return "";
    case FG_PLACING_THOROUGH:
        break;
    }
    return ",memplan,streams";
}

const char *fg_placing_pipeline(FgArena *arena, FgPlacing placing)
{
    return fg_arena_printf(arena, FG_PIPELINE_SCHED "%s", placing_passes(placing));
}

static bool run_passes(FgSearch *s, const FgPlan *plan, FgArena *arena, FgModule *m,
                       const char *pipeline)
{
    FgPassManager pm = {.arena = arena, .machine = s->machine, .budget = fg_search_budget(s, plan)};
    m->plan = fg_plan_clone(plan, arena);
    bool ok = fg_run_passes(&pm, m, pipeline);
    fg_search_add_times(s, &pm);
    return ok;
}

void fg_search_end(FgSearch *s)
{
    for (uint32_t i = 0; i < sizeof s->lowered / sizeof *s->lowered; i++) {
        fg_arena_free(s->lowered[i].arena);
        s->lowered[i] = (FgLowered){0};
    }
}

/* The plan lowered as far as that is alike for all distances: mostly that of one of the two plans
 * before. NULL after errors. */
static const FgModule *lower_to_dist(FgSearch *s, const FgPlan *plan)
{
    FgLowered *first = s->lowered, now = {.key = dist_key_of(s, plan)};
    if (first->module && first->key == now.key)
        return first->module;
    if (first[1].module && first[1].key == now.key) {
        now = first[1];
    } else {
        fg_arena_free(first[1].arena);
        now.arena = fg_arena_new();
        FgModule *m = fg_module_fork(s->graph, now.arena, false);
        now.module = run_passes(s, plan, now.arena, m, FG_PIPELINE_DIST) ? m : NULL;
    }
    first[1] = *first;
    *first = now;
    return now.module;
}

/* Everything but what the plan's figures are called, and the module in `arena`; it is gone with the
 * next plan unless it is to be kept. */
static bool lower(FgSearch *s, const FgPlan *plan, FgPlacing placing, bool keep, FgArena *arena,
                  FgEvaluation *out, FgModule **out_module)
{
    const FgModule *dist = keep ? NULL : lower_to_dist(s, plan);
    if (!keep && !dist)
        return false;
    FgModule *m = keep ? fg_module_fork(s->graph, arena, false) : fg_module_fork(dist, arena, true);
    const char *passes = fg_placing_pipeline(arena, placing);
    if (!keep)
        passes += sizeof FG_PIPELINE_DIST; /* those have run; its end counts for the comma */
    if (!run_passes(s, plan, arena, m, passes))
        return false;
    *out_module = m;
    double start = now_ms();
    out->graph = s->graph;
    out->placing = placing;
    fg_ledger(arena, m, &out->ledger);
    double middle = now_ms();
    if (placing != FG_PLACING_NONE)
        fg_simulate(arena, m, s->machine, &out->sim);
    fg_search_add_time(s, "ledger", middle - start);
    fg_search_add_time(s, "simulate", now_ms() - middle);
    return true;
}

static const FgEvaluation *seen_before(const FgSearch *s, uint64_t key)
{
    for (uint32_t i = s->seen.len; i > 0; i--)
        if (s->seen.data[i - 1].key == key)
            return &s->seen.data[i - 1].evaluation;
    return NULL;
}

/* ---- evaluation ---- */
/* Counts a plan, and gives it out as one that was lowered for this search. */
static void take(FgSearch *s, FgPlan *plan, uint64_t key, const FgEvaluation *now,
                 FgEvaluation *out)
{
    uint32_t kept = out->kept;
    *out = *now;
    out->plan = plan;
    out->kept = kept;
    out->ledger.peak_phase = fg_arena_strdup(s->arena, now->ledger.peak_phase);
    s->evaluated++;
    fg_vec_push(s->arena, &s->seen, ((FgSeenPlan){key, *out}));
}

/* Lowers a plan for its figures alone, unless the memo has them. */
static bool find_figures(FgSearch *s, const FgPlan *plan, FgPlacing placing, uint64_t key,
                         FgArena *arena, FgEvaluation *out)
{
    FgModule *m;
    FgMemo *memo = placing == FG_PLACING_FITTING ? NULL : s->memo; /* that is of one budget */
    const FgKnownPlan *known = memo ? fg_memo_find(memo, key) : NULL;
    if (known)
        *out = known->evaluation;
    else if (!lower(s, plan, placing, false, arena, out, &m))
        return false;
    if (memo && !known)
        fg_memo_add(memo, key, out);
    return true;
}

bool fg_search_bound(FgSearch *s, const FgPlan *plan, uint64_t *out)
{
    FgEvaluation now = {0};
    FgArena *arena = fg_arena_new();
    uint64_t key = key_of(s, plan, FG_PLACING_NONE);
    bool ok = find_figures(s, plan, FG_PLACING_NONE, key, arena, &now);
    *out = 0;
    for (uint32_t i = 0; i < FG_N_MEM_CLASSES && ok; i++)
        *out += now.ledger.by_class[i];
    fg_arena_free(arena);
    return ok;
}

bool fg_search_evaluate(FgSearch *s, FgPlan *plan, FgPlacing placing, FgEvaluation *out)
{
    uint64_t key = key_of(s, plan, placing);
    const FgEvaluation *before = seen_before(s, key);
    if (before) {
        uint32_t kept = out->kept;
        *out = *before;
        out->plan = plan;
        out->kept = kept;
        return true;
    }
    FgEvaluation now = {0};
    FgArena *arena = fg_arena_new();
    bool ok = find_figures(s, plan, placing, key, arena, &now);
    if (ok)
        take(s, plan, key, &now, out);
    fg_arena_free(arena);
    return ok;
}

bool fg_search_lower(FgSearch *s, FgPlan *plan, FgArena *arena, FgEvaluation *out,
                     const FgModule **out_module)
{
    uint64_t key = key_of(s, plan, FG_PLACING_QUICK);
    FgEvaluation now = {0};
    FgKnownPlan *known = s->memo ? fg_memo_find(s->memo, key) : NULL;
    FgModule *m = known ? known->module : NULL;
    if (m)
        now = known->evaluation;
    else if (!lower(s, plan, FG_PLACING_QUICK, true, s->memo ? s->memo->arena : arena, &now, &m))
        return false;
    if (s->memo)
        fg_memo_add(s->memo, key, &now)->module = m;
    take(s, plan, key, &now, out);
    *out_module = m;
    return true;
}

bool fg_search_times(FgSearch *s, const FgEvaluation *of, FgArena *arena, FgTimes *out)
{
    uint64_t key = key_of(s, of->plan, of->placing);
    FgKnownPlan *known = s->memo ? fg_memo_find(s->memo, key) : NULL;
    FgEvaluation now = *of, again = {0};
    FgModule *m;
    FgArena *scratch = fg_arena_new();
    bool ok = true;
    if (known && known->times) {
        *out = *known->times;
    } else if ((ok = lower(s, of->plan, of->placing, false, scratch, &now, &m))) {
        fg_estimate_times(s->memo ? s->memo->arena : arena, scratch, m, s->machine, out);
        if (s->memo)
            fg_memo_add_times(s->memo, key, &now, out);
    }
    if (ok)
        take(s, of->plan, key, &now, &again);
    fg_arena_free(scratch);
    return ok;
}
