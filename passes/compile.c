/* compile: graph passes once, then the search over plans, then the chosen plan lowered under the
 * manager and proved.
 *
 * Plans differ first in what backward computes again: the rungs of a ladder (recompute_choose.c).
 * The floor is the least packed peak of the fixed plan over three rungs, found without looking at
 * the budget; nothing fits below it and something fits at it, by construction. The search begins at
 * the first rung that fits: where ZeRO-3 fits, at none.
 */
#include "passes/compile.h"

#include "passes/recompute.h"
#include "passes/search.h"

#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define PROBES 4
#define LOWER "bucket,shard,reduce,update,order,inplace,memplan,streams"

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void add_time(FgSearch *s, const char *name, double ms)
{
    for (uint32_t i = 0; i < s->times.len; i++)
        if (strcmp(s->times.data[i].name, name) == 0) {
            s->times.data[i].ms += ms;
            return;
        }
    fg_vec_push(s->arena, &s->times, ((FgPassTime){name, ms}));
}

static void add_times(FgSearch *s, const FgPassManager *pm)
{
    for (uint32_t i = 0; i < pm->times.len; i++)
        add_time(s, pm->times.data[i].name, pm->times.data[i].ms);
}

bool fg_search_evaluate(FgSearch *s, FgPlan *plan, FgArena *keep, FgEvaluation *out,
                        FgModule **out_module)
{
    FgArena *arena = keep ? keep : fg_arena_new();
    FgModule *m = fg_module_clone(s->graph, arena);
    m->plan = fg_plan_clone(plan, arena);
    FgPassManager pm = {.arena = arena, .machine = s->machine, .budget = UINT64_MAX};
    bool ok = fg_run_passes(&pm, m, LOWER);
    add_times(s, &pm);
    s->evaluated++;
    if (ok) {
        double start = now_ms();
        out->plan = plan;
        fg_ledger(s->arena, m, &out->ledger);
        double middle = now_ms();
        fg_simulate(arena, m, s->machine, &out->sim);
        add_time(s, "ledger", middle - start);
        add_time(s, "simulate", now_ms() - middle);
    }
    if (out_module)
        *out_module = m;
    if (!keep)
        fg_arena_free(arena);
    return ok;
}

/* A set of recomputed nodes, applied: the graph that its plans lower, and the fixed plan on it. */
typedef struct Level {
    const FgModule *graph; /* NULL: not made yet */
    FgEvaluation fixed;    /* its plan comes with the graph */
    bool measured;         /* its figures are there too */
} Level;

typedef struct Compile {
    FgArena *arena;
    const FgCompileOptions *options;
    FgCompiled *out;
    FgModule *graph; /* after the graph passes */
    FgSearch search;
    FgLadder ladder;
    Level *levels;               /* by rung */
    FgIdVec probes;              /* rungs whose least peak is the floor, ascending */
    const FgEvaluation *zero3;   /* of the first rung, unless one was asked for by name */
    const FgEvaluation *minimum; /* of the last rung */
    const FgPlan *base;          /* the fixed plan that the chosen one started from */
} Compile;

static FgPassManager manager(Compile *c)
{
    FgPassManager pm = {.arena = c->arena,
                        .machine = c->search.machine,
                        .budget = c->out->budget_bytes,
                        .verify_each = c->options->verify_each,
                        .check_changed = c->options->verify_each,
                        .dump_dir = c->options->dump_dir,
                        .stop_after = c->options->stop_after};
    return pm;
}

/* What the fixed plan of a rung is called. */
static const char *level_name(const Compile *c, uint32_t rung)
{
    bool last = rung + 1 == c->ladder.rungs.len;
    if (last && (rung > 0 || c->options->schedule == FG_SCHEDULE_MINIMUM))
        return "minimum";
    return rung == 0 ? "zero3" : "compiled";
}

/* Recompute is a plan's lever, but the same for all plans of a level: applied once for them. */
static Level *level_graph(Compile *c, uint32_t rung)
{
    Level *l = &c->levels[rung];
    if (l->graph)
        return l;
    FgModule *m = fg_module_clone(c->graph, c->arena);
    m->plan = FG_NEW(c->arena, FgPlan);
    m->plan->name = "base";
    fg_recompute_apply(&c->ladder, rung, m->plan, c->arena);
    FgPassManager pm = manager(c);
    pm.dump_dir = pm.stop_after = NULL;
    if (!fg_run_passes(&pm, m, "recompute"))
        return NULL;
    add_times(&c->search, &pm);
    FgArena *scratch = fg_arena_new();
    l->fixed.plan = fg_plan_fixed(m, scratch, level_name(c, rung), m->plan->recompute);
    fg_arena_free(scratch);
    l->graph = m;
    return l;
}

/* A level with its fixed plan measured; NULL after errors. */
static Level *level(Compile *c, uint32_t rung)
{
    Level *l = level_graph(c, rung);
    if (!l || l->measured)
        return l;
    c->search.graph = l->graph;
    l->measured = fg_search_evaluate(&c->search, l->fixed.plan, NULL, &l->fixed, NULL);
    return l->measured ? l : NULL;
}

/* Bytes that no placement of the level's fixed plan can do without: a small part of the work of
 * measuring it. */
static bool level_bound(Compile *c, uint32_t rung, uint64_t *out)
{
    const Level *l = level_graph(c, rung);
    if (!l)
        return false;
    FgArena *arena = fg_arena_new();
    FgModule *m = fg_module_clone(l->graph, arena);
    m->plan = fg_plan_clone(l->fixed.plan, arena);
    FgPassManager pm = {.arena = arena, .machine = c->search.machine, .budget = UINT64_MAX};
    bool ok = fg_run_passes(&pm, m, "bucket,shard,reduce,update,order,inplace");
    add_times(&c->search, &pm);
    if (ok) {
        FgLedger ledger;
        fg_ledger(arena, m, &ledger);
        *out = 0;
        for (uint32_t i = 0; i < FG_N_MEM_CLASSES; i++)
            *out += ledger.by_class[i];
    }
    fg_arena_free(arena);
    return ok;
}

/* The rungs whose fixed plans the floor is measured on: the first, the last, and of a few between
 * them the one that promises least. */
static bool find_probes(Compile *c)
{
    uint32_t last = c->ladder.rungs.len - 1, best = 0;
    uint64_t least = UINT64_MAX, bytes;
    bool inner = c->options->schedule == FG_SCHEDULE_COMPILED && last > 1;
    for (uint32_t i = 1; i <= PROBES && inner; i++) {
        /* The last rung but one is the largest set that is computed again piece by piece. */
        uint32_t rung = (uint32_t)((uint64_t)(last - 1) * i / PROBES);
        if (!level_bound(c, rung, &bytes))
            return false;
        best = bytes <= least ? rung : best;
        least = bytes <= least ? bytes : least;
    }
    fg_vec_push(c->arena, &c->probes, 0);
    if (best > 0)
        fg_vec_push(c->arena, &c->probes, best);
    if (last > 0)
        fg_vec_push(c->arena, &c->probes, last);
    return true;
}

static bool prepare(Compile *c)
{
    double start = now_ms();
    fg_recompute_ladder(c->arena, c->graph, c->search.machine, c->options->recompute, &c->ladder);
    add_time(&c->search, "ladder", now_ms() - start);
    uint32_t n = c->ladder.rungs.len;
    c->levels = FG_NEW_ARRAY(c->arena, Level, n);
    if (!find_probes(c))
        return false;
    for (uint32_t i = 0; i < c->probes.len; i++)
        if (!level(c, c->probes.data[i]))
            return false;
    bool all = c->options->recompute == FG_RECOMPUTE_SELECTIVE;
    c->zero3 = &c->levels[all ? n - 1 : 0].fixed;
    c->minimum = &c->levels[n - 1].fixed;
    return true;
}

static uint64_t memory_for(const Compile *c, uint64_t peak)
{
    return (c->out->reserved_bytes + peak + MIB - 1) / MIB * MIB;
}

static bool fits(const Compile *c, const FgEvaluation *e)
{
    return e->ledger.peak_bytes <= c->out->budget_bytes;
}

/* The first rung at which the fixed plan fits, as far as halving finds it: by what the plans need
 * at least, then by what they take. A probe that fits ends the search. FG_NO_ID after errors. */
static uint32_t first_that_fits(Compile *c)
{
    uint32_t at = 0, tries = 3;
    while (!fits(c, &c->levels[c->probes.data[at]].fixed))
        at++;
    uint32_t known = c->probes.data[at], low = at == 0 ? known : c->probes.data[at - 1] + 1;
    for (uint32_t high = known; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t bytes;
        if (!level_bound(c, middle, &bytes))
            return FG_NO_ID;
        if (bytes <= c->out->budget_bytes)
            high = middle;
        else
            low = middle + 1;
    }
    for (; low < known && tries > 0; tries--) {
        const Level *l = level(c, low);
        if (!l)
            return FG_NO_ID;
        if (fits(c, &l->fixed))
            return low;
        low += 1 + (known - low) / 8;
    }
    return known;
}

static bool search_level(Compile *c, uint32_t rung, FgEvaluation *chosen)
{
    FgEvaluation found;
    const Level *l = level(c, rung);
    if (!l)
        return false;
    if (!fits(c, &l->fixed))
        return true;
    c->search.graph = l->graph;
    if (!fg_search_compiled(&c->search, &l->fixed, 1, &found) ||
        !fg_search_carry(&c->search, &found))
        return false;
    if (chosen->plan && !fg_evaluation_better(&found, chosen, c->out->budget_bytes))
        return true;
    *chosen = found;
    c->base = l->fixed.plan;
    return true;
}

/* The fastest over the smallest set that fits and a few larger ones: more recomputation leaves more
 * memory to hide communication with, and pays only while communication is exposed. */
static bool search_levels(Compile *c, FgEvaluation *chosen)
{
    uint32_t first = first_that_fits(c), n = c->ladder.rungs.len;
    if (first == FG_NO_ID)
        return false;
    *chosen = (FgEvaluation){0};
    if (!search_level(c, first, chosen))
        return false;
    double before = c->ladder.rungs.data[first].seconds;
    for (uint32_t part = 16; part > 1; part /= 4) {
        uint32_t rung = first + (n + part - 1) / part;
        if (rung >= n)
            break;
        double micro_steps = (double)c->graph->numerics.accumulate;
        double added = (c->ladder.rungs.data[rung].seconds - before) * 1e6 * micro_steps;
        if (added < chosen->sim.step_us - chosen->sim.compute_us && !search_level(c, rung, chosen))
            return false;
    }
    return true;
}

/* The evaluation of the schedule asked for; its figures also serve the report when it does not fit.
 */
static bool choose(Compile *c, FgEvaluation *chosen)
{
    const FgEvaluation *least = c->zero3;
    if (c->minimum->ledger.peak_bytes <= least->ledger.peak_bytes)
        least = c->minimum;
    if (c->options->schedule == FG_SCHEDULE_COMPILED)
        for (uint32_t i = 0; i < c->probes.len; i++) {
            const FgEvaluation *e = &c->levels[c->probes.data[i]].fixed;
            if (e->ledger.peak_bytes < least->ledger.peak_bytes)
                least = e;
        }
    *chosen = c->options->schedule == FG_SCHEDULE_ZERO3 ? *c->zero3 : *least;
    c->base = chosen->plan;
    c->out->smallest_memory_bytes = memory_for(c, chosen->ledger.peak_bytes);
    c->out->fits = fits(c, chosen);
    if (!c->out->fits || c->options->schedule != FG_SCHEDULE_COMPILED)
        return true;
    double start = now_ms();
    bool ok = search_levels(c, chosen);
    add_time(&c->search, "search", now_ms() - start);
    return ok;
}

static void count_plan(FgCompiled *out, const FgPlan *plan, const FgPlan *base)
{
    out->kept = fg_plan_kept(plan, base);
    for (uint32_t i = 1; i < plan->gathers.len; i++)
        out->regathered += plan->gathers.data[i].bucket == plan->gathers.data[i - 1].bucket;
}

/* The chosen plan once more from the graph, under the manager: dumps, verification, proof. */
static bool finish(Compile *c, const FgEvaluation *chosen)
{
    FgModule *m = c->graph;
    FgCompiled *out = c->out;
    m->plan = fg_plan_clone(chosen->plan, c->arena);
    FgPassManager pm = manager(c);
    if (!fg_run_passes(&pm, m, FG_PIPELINE_LOWER))
        return false;
    out->module = m;
    add_times(&c->search, &pm);
    if (pm.stopped)
        return true;
    double start = now_ms();
    FgProof proof;
    FgArena *scratch = fg_arena_new();
    bool proved = fg_check(scratch, m, out->budget_bytes, &proof);
    fg_arena_free(scratch);
    add_time(&c->search, "check", now_ms() - start);
    out->waits = proof.waits;
    out->reuses = proof.reuses;
    out->fingerprint = fg_module_fingerprint(m);
    return proved;
}

bool fg_compile(FgArena *arena, const FgModule *graph, const FgMachine *machine,
                const FgNumerics *numerics, const FgCompileOptions *options, FgCompiled *out)
{
    memset(out, 0, sizeof *out);
    Compile c = {.arena = arena, .options = options, .out = out};
    c.search = (FgSearch){.arena = arena, .machine = machine};
    out->memory_bytes =
        options->memory_bytes == UINT64_MAX ? machine->memory_bytes : options->memory_bytes;
    out->reserved_bytes = machine->reserved_bytes;
    out->budget_bytes =
        out->memory_bytes > out->reserved_bytes ? out->memory_bytes - out->reserved_bytes : 0;
    c.search.budget = out->budget_bytes;
    c.graph = fg_module_clone(graph, arena);
    c.graph->numerics = *numerics;
    FgPassManager pm = manager(&c);
    if (!fg_run_passes(&pm, c.graph, FG_PIPELINE_GRAPH))
        return false;
    add_times(&c.search, &pm);
    if (pm.stopped) {
        out->module = c.graph;
        out->fits = true;
        return true;
    }
    FgEvaluation chosen;
    if (!prepare(&c) || !choose(&c, &chosen))
        return false;
    out->ledger = chosen.ledger;
    out->sim = chosen.sim;
    out->zero3_step_us = c.zero3->sim.step_us;
    out->zero3_peak_bytes = c.zero3->ledger.peak_bytes;
    out->plans_tried = c.search.evaluated;
    count_plan(out, chosen.plan, c.base);
    bool ok = !out->fits || finish(&c, &chosen);
    for (uint32_t i = 0; i < c.search.times.len; i++)
        fg_vec_push(arena, &out->times, c.search.times.data[i]);
    return ok;
}
