/* evaluate: a plan lowered, placed, and measured by ledger and simulator.
 *
 * Many choices of a search come to the same levers, of small models most: a plan that was seen
 * before is not lowered again.
 */
#include "passes/search.h"

#include "base/map.h"

#include <string.h>
#include <time.h>

#define LOWER FG_PIPELINE_SCHED ","

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

const char *fg_placing_pipeline(FgPlacing placing)
{
    switch (placing) {
    case FG_PLACING_QUICK:
        return LOWER "memplan{0},streams";
    case FG_PLACING_FITTING:
        return LOWER "memplan{4,fit},streams";
    case FG_PLACING_THOROUGH:
        break;
    }
    return LOWER "memplan,streams";
}

static bool lower(FgSearch *s, FgPlan *plan, FgPlacing placing, FgArena *arena, FgEvaluation *out,
                  FgModule **out_module)
{
    FgModule *m = fg_module_clone(s->graph, arena);
    m->plan = fg_plan_clone(plan, arena);
    FgPassManager pm = {.arena = arena, .machine = s->machine, .budget = fg_search_budget(s, plan)};
    bool ok = fg_run_passes(&pm, m, fg_placing_pipeline(placing));
    fg_search_add_times(s, &pm);
    *out_module = m;
    if (!ok)
        return false;
    double start = now_ms();
    out->plan = plan;
    out->graph = s->graph;
    out->placing = placing;
    fg_ledger(s->arena, m, &out->ledger);
    double middle = now_ms();
    fg_simulate(arena, m, s->machine, &out->sim);
    fg_search_add_time(s, "ledger", middle - start);
    fg_search_add_time(s, "simulate", now_ms() - middle);
    return true;
}

/* ---- plans that were evaluated before ---- */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    return fg_hash_bytes(&value, sizeof value, hash);
}

/* All levers of a plan, with the graph that they are for. */
static uint64_t key_of(const FgSearch *s, const FgPlan *plan, FgPlacing placing)
{
    uint64_t h = mix(mix((uint64_t)(uintptr_t)s->graph, placing), plan->recompute);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        const FgPlanBucket *b = &plan->buckets.data[i];
        h = fg_hash_bytes(b->params, b->n_params * sizeof *b->params, mix(h, b->n_params));
        h = mix(mix(mix(mix(h, (uint64_t)b->linger), (uint64_t)b->settle), b->offload),
                (uint64_t)b->pieces * 8 + (b->travels ? 4u : 0u) + (b->early ? 2u : 0u) + b->parts);
    }
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        const FgPlanGather *g = &plan->gathers.data[i];
        h = mix(mix(mix(h, g->bucket), g->first_use), g->last_use);
        h = mix(mix(h, (uint64_t)g->ahead), (uint64_t)g->fetch);
        h = mix(h, (uint64_t)g->keep * 2 + g->round);
    }
    for (uint32_t i = 0; i < plan->stashes.len; i++) {
        const FgPlanStash *x = &plan->stashes.data[i];
        h = mix(mix(mix(h, x->value), (uint64_t)x->linger), (uint64_t)x->ahead);
    }
    return h;
}

static const FgEvaluation *seen_before(const FgSearch *s, uint64_t key)
{
    for (uint32_t i = s->seen.len; i > 0; i--)
        if (s->seen.data[i - 1].key == key)
            return &s->seen.data[i - 1].evaluation;
    return NULL;
}

bool fg_search_evaluate(FgSearch *s, FgPlan *plan, FgPlacing placing, FgArena *keep,
                        FgEvaluation *out, FgModule **out_module)
{
    uint64_t key = key_of(s, plan, placing);
    const FgEvaluation *before = keep ? NULL : seen_before(s, key);
    if (before) {
        uint32_t kept = out->kept;
        *out = *before;
        out->plan = plan;
        out->kept = kept;
        return true;
    }
    FgArena *arena = keep ? keep : fg_arena_new();
    FgModule *m;
    bool ok = lower(s, plan, placing, arena, out, &m);
    s->evaluated++;
    if (ok)
        fg_vec_push(s->arena, &s->seen, ((FgSeenPlan){key, *out}));
    if (out_module)
        *out_module = m;
    if (!keep)
        fg_arena_free(arena);
    return ok;
}
