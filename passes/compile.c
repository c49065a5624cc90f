/* compile: graph passes once, then the search over plans, then the chosen plan lowered under the
 * manager and proved.
 *
 * The floor is the least packed peak of the fixed plans, found without looking at the budget;
 * nothing fits below it and something fits at it, by construction.
 */
#include "passes/compile.h"

#include "passes/search.h"
#include "passes/zero3.h"

#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define LOWER "bucket,travel,shard,reduce,update,order,inplace,memplan,streams"

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

typedef struct Compile {
    FgArena *arena;
    const FgCompileOptions *options;
    FgCompiled *out;
    FgModule *graph; /* after the graph passes */
    FgSearch search;
    FgEvaluation zero3, layers, modules; /* the last two gather at use, a layer or a module each */
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

/* Gather at use, lowered and read; then the baseline's knobs on its places. */
static bool evaluate_zero3(Compile *c, FgModule *graph)
{
    FgArena *scratch = fg_arena_new();
    FgPlan *base = fg_zero3_base(graph, scratch, c->options->recompute, &c->options->zero3);
    FgEvaluation at_use;
    FgModule *module;
    bool ok = fg_search_evaluate(&c->search, base, scratch, &at_use, &module);
    if (ok) {
        FgEstimate estimate;
        fg_estimate_build(c->arena, scratch, module, base, c->search.machine, &estimate);
        FgPlan *plan = fg_zero3_plan(&estimate, scratch, module, &c->options->zero3);
        ok = fg_search_evaluate(&c->search, plan, NULL, &c->zero3, NULL);
        c->zero3.kept = base->gathers.len - plan->gathers.len;
    }
    fg_arena_free(scratch);
    return ok;
}

static bool evaluate_at_use(Compile *c, FgModule *graph, bool by_module, FgEvaluation *out)
{
    FgArena *scratch = fg_arena_new();
    FgPlan *plan = fg_plan_units(graph, scratch, "minimum", c->options->recompute, by_module, 0);
    fg_arena_free(scratch);
    out->kept = 0;
    return fg_search_evaluate(&c->search, plan, NULL, out, NULL);
}

/* Recompute is a plan's lever, but the same for every plan of one compilation: applied once for the
 * search. */
static bool prepare(Compile *c)
{
    FgModule *m = fg_module_clone(c->graph, c->arena);
    m->plan = FG_NEW(c->arena, FgPlan);
    m->plan->name = "base";
    m->plan->recompute = c->options->recompute;
    FgPassManager pm = manager(c);
    pm.dump_dir = pm.stop_after = NULL;
    if (!fg_run_passes(&pm, m, "recompute"))
        return false;
    c->search.graph = m;
    return evaluate_zero3(c, m) && evaluate_at_use(c, m, false, &c->layers) &&
           evaluate_at_use(c, m, true, &c->modules);
}

static uint64_t memory_for(const Compile *c, uint64_t peak)
{
    return (c->out->reserved_bytes + peak + MIB - 1) / MIB * MIB;
}

static const FgEvaluation *lesser(const FgEvaluation *a, const FgEvaluation *b)
{
    return b->ledger.peak_bytes < a->ledger.peak_bytes ? b : a;
}

/* The fastest plan that fits: the fixed plans, then what the search makes of coarse buckets, or of
 * fine ones where coarse ones do not fit. */
static bool search_compiled(Compile *c, FgEvaluation *best)
{
    uint64_t budget = c->out->budget_bytes;
    const FgEvaluation *fixed[] = {&c->layers, &c->modules, &c->zero3};
    *best = *fixed[0];
    for (uint32_t i = 1; i < 3; i++)
        if (fg_evaluation_better(fixed[i], best, budget))
            *best = *fixed[i];
    bool coarse = c->layers.ledger.peak_bytes <= budget;
    double start = now_ms();
    bool ok = fg_search_compiled(&c->search, coarse ? &c->layers : &c->modules, best);
    add_time(&c->search, "search", now_ms() - start);
    return ok;
}

/* The evaluation of the schedule asked for; its figures also serve the report when it does not fit.
 */
static bool choose(Compile *c, FgEvaluation *chosen)
{
    const FgEvaluation *minimum = lesser(&c->layers, &c->modules);
    switch (c->options->schedule) {
    case FG_SCHEDULE_ZERO3:
        *chosen = c->zero3;
        break;
    case FG_SCHEDULE_MINIMUM:
        *chosen = *minimum;
        break;
    case FG_SCHEDULE_COMPILED:
        *chosen = *lesser(minimum, &c->zero3);
        break;
    }
    c->out->smallest_memory_bytes = memory_for(c, chosen->ledger.peak_bytes);
    c->out->fits = chosen->ledger.peak_bytes <= c->out->budget_bytes;
    if (!c->out->fits || c->options->schedule != FG_SCHEDULE_COMPILED)
        return true;
    return search_compiled(c, chosen);
}

static void count_plan(FgCompiled *out, const FgEvaluation *chosen)
{
    const FgPlan *plan = chosen->plan;
    out->kept = chosen->kept;
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
    out->numerics = c.graph->numerics;
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
    out->zero3_step_us = c.zero3.sim.step_us;
    out->zero3_peak_bytes = c.zero3.ledger.peak_bytes;
    out->plans_tried = c.search.evaluated;
    count_plan(out, &chosen);
    bool ok = !out->fits || finish(&c, &chosen);
    for (uint32_t i = 0; i < c.search.times.len; i++)
        fg_vec_push(arena, &out->times, c.search.times.data[i]);
    return ok;
}
