/* compile, under given numerics: graph passes once, then the search over settings and plans, then
 * the chosen plan lowered under the manager and proved. numerics.c takes these steps.
 *
 * Plans differ first in what backward computes again: the rungs of a ladder (settings.c). The floor
 * is the least packed peak of the fixed plans over a few rungs, found without looking at the
 * budget; nothing fits below it and something fits at it, by construction. The search begins at the
 * first rung that fits: where ZeRO-3 fits, at none.
 */
#include "passes/compile_run.h"

#include "passes/estimate.h"
#include "passes/memo.h"

#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define OFFLOAD_TRIES 8
#define QUICK_SLACK 1.6  /* time that a transfer is given over what it takes */
#define POLISH_COST 1.01 /* of the step: what a smaller arena may cost */

/* Of a layer's elements, in the bucket that is reduced last. */
static const double CUTS[] = {1.0 / 8, 1.0 / 3};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static FgPassManager manager(FgRun *c)
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

static uint64_t memory_for(const FgRun *c, uint64_t peak)
{
    return (c->out->reserved_bytes + peak + MIB - 1) / MIB * MIB;
}

static bool fits(const FgRun *c, const FgEvaluation *e)
{
    return fg_search_fits(&c->search, e);
}

static void take_better(const FgRun *c, const FgEvaluation *candidate, FgEvaluation *best)
{
    if (fg_search_better(&c->search, candidate, best))
        *best = *candidate;
}

/* The layer whose gradients come last, cut: the step ends with less to reduce and to update. */
static bool search_cuts(FgRun *c, uint32_t rung, FgSearchEnd *end, FgEvaluation *found)
{
    for (uint32_t i = 0; i < sizeof CUTS / sizeof *CUTS; i++) {
        FgPlan *plan;
        const FgPlan *before = found->plan;
        if (!fg_setting_cut(&c->settings, rung, CUTS[i], &plan) ||
            (plan && !fg_search_borders(&c->search, plan, &end->choice, found)))
            return false;
        end->base = found->plan == before ? end->base : plan;
    }
    return true;
}

static bool search_from(FgRun *c, uint32_t rung, FgUnit unit, const FgEvaluation *base,
                        FgEvaluation *best)
{
    FgEvaluation found = *base;
    FgSearchEnd end = {.base = base->plan, .graph = base->graph};
    if (!fg_search_compiled(&c->search, base, &found, &end.choice) ||
        (unit == FG_UNIT_LAYER && !search_cuts(c, rung, &end, &found)) ||
        !fg_search_carry(&c->search, &found))
        return false;
    take_better(c, &found, best);
    if (best->plan == found.plan)
        c->end = end;
    return true;
}

/* What the search makes of a setting: with coarse buckets, or fine ones where coarse ones do not
 * fit; with host copies at the last moment, and ahead of their need. */
static bool search_rung(FgRun *c, uint32_t rung, FgEvaluation *best)
{
    for (int unit = 0; unit < FG_N_UNITS; unit++) {
        const FgEvaluation *base = fg_setting_at_use(&c->settings, rung, (FgUnit)unit);
        if (!base)
            return false;
        if (!fits(c, base))
            continue;
        if (!search_from(c, rung, (FgUnit)unit, base, best))
            return false;
        FgEvaluation timed;
        return !c->settings.by_rung[rung].offloaded[unit] ||
               (fg_setting_timed(&c->settings, rung, (FgUnit)unit, &timed) &&
                search_from(c, rung, (FgUnit)unit, &timed, best));
    }
    return true;
}

/* The fastest over the smallest recomputed set that fits and a few larger ones: these leave more
 * memory to hide communication with, and pay only while communication is exposed. */
static bool search_rungs(FgRun *c, FgEvaluation *best)
{
    const FgLadder *ladder = &c->settings.ladder;
    uint32_t first, n = ladder->rungs.len;
    if (!fg_settings_first_fit(&c->settings, FG_UNIT_LAYER, &first) ||
        (first == FG_NO_ID && !fg_settings_first_fit(&c->settings, FG_UNIT_MODULE, &first)))
        return false;
    if (first == FG_NO_ID)
        return true;
    if (!search_rung(c, first, best))
        return false;
    double micro_steps = (double)c->graph->numerics.accumulate;
    for (uint32_t part = 16; part > 1; part /= 4) {
        uint32_t rung = first + (n + part - 1) / part;
        if (rung >= n)
            break;
        double added = ladder->rungs.data[rung].seconds - ladder->rungs.data[first].seconds;
        if (added * 1e6 * micro_steps < best->sim.step_us - best->sim.compute_us &&
            !search_rung(c, rung, best))
            return false;
    }
    return true;
}

static bool search_compiled(FgRun *c, FgEvaluation *best)
{
    take_better(c, &c->zero3, best);
    double start = now_ms();
    c->end = (FgSearchEnd){0};
    bool ok = search_rungs(c, best) && fg_search_misses(&c->search, best) &&
              fg_search_refine(&c->search, &c->end, best);
    fg_search_add_time(&c->search, "search", now_ms() - start);
    return ok;
}

/* ---- the floor ---- */
/* The plan of the schedule asked for that takes least: over all probes, and the baseline. Its peak
 * is the floor. False after errors. */
static bool find_least(FgRun *c, FgEvaluation *out)
{
    FgSettings *s = &c->settings;
    if (!fg_settings_zero3(s, &c->zero3))
        return false;
    *out = c->zero3;
    for (uint32_t i = 0; i < s->probes.len && c->options->schedule != FG_SCHEDULE_ZERO3; i++) {
        const FgEvaluation *e = fg_setting_least(s, s->probes.data[i]);
        if (!e)
            return false;
        if (e->ledger.peak_bytes <= out->ledger.peak_bytes)
            *out = *e;
    }
    return true;
}

static bool measure_zero3(FgRun *c, FgEvaluation *out)
{
    if (!fg_settings_zero3(&c->settings, &c->zero3))
        return false;
    *out = c->zero3;
    return true;
}

/* Offload by need: nothing where what `measure` finds fits so, else the least, cheapest first, that
 * is found to fit, looking where the estimates point. *out_floor: the least peak with nothing and
 * with all offloaded. */
static bool offload_as_needed(FgRun *c, bool (*measure)(FgRun *, FgEvaluation *),
                              FgEvaluation *least, uint64_t *out_floor)
{
    FgEvaluation all;
    uint64_t budget = c->out->budget_bytes;
    fg_settings_offload(&c->settings, 0);
    if (!measure(c, least))
        return false;
    uint64_t none = *out_floor = least->ledger.peak_bytes;
    fg_settings_offload(&c->settings, FG_OFFLOAD_EVERYTHING);
    if (!measure(c, &all))
        return false;
    if (all.ledger.peak_bytes < none && all.ledger.host_bytes <= c->search.host_budget)
        *out_floor = all.ledger.peak_bytes;
    if (none <= budget || *out_floor == none) {
        fg_settings_offload(&c->settings, 0);
        return measure(c, least);
    }
    if (!fits(c, &all)) {
        *least = all;
        return true;
    }
    uint64_t bytes = none - budget;
    for (uint32_t i = 0; i < OFFLOAD_TRIES; i++) {
        fg_settings_offload(&c->settings, bytes);
        if (!measure(c, least))
            return false;
        if (fits(c, least))
            return true;
        uint64_t over = least->ledger.peak_bytes > budget ? least->ledger.peak_bytes - budget : 1;
        bytes += over + bytes / 8;
    }
    fg_settings_offload(&c->settings, FG_OFFLOAD_EVERYTHING);
    return measure(c, least);
}

/* A search that places quickly may leave holes: the plan that it chose is placed thoroughly, where
 * the waits that this brings cost next to nothing. */
static bool polish(FgRun *c, FgEvaluation *chosen)
{
    FgEvaluation again = *chosen;
    if (chosen->placing == FG_PLACING_THOROUGH ||
        chosen->ledger.arena_bytes == chosen->ledger.arena_bound_bytes)
        return true;
    c->search.graph = chosen->graph;
    if (!fg_search_evaluate(&c->search, chosen->plan, FG_PLACING_THOROUGH, &again))
        return false;
    bool worse = fits(c, &c->zero3) && again.sim.step_us > c->zero3.sim.step_us;
    if (fits(c, &again) && !worse && again.sim.step_us <= chosen->sim.step_us * POLISH_COST)
        *chosen = again;
    return true;
}

bool fg_run_least(FgRun *c)
{
    uint64_t floor;
    if (c->options->offload_auto) {
        if (!offload_as_needed(c, find_least, &c->least, &floor))
            return false;
    } else {
        if (!find_least(c, &c->least))
            return false;
        floor = c->least.ledger.peak_bytes;
    }
    c->out->smallest_memory_bytes = memory_for(c, floor);
    c->out->host_fits = c->least.ledger.host_bytes <= c->out->host_memory_bytes;
    c->out->fits = fits(c, &c->least);
    c->chosen = c->least;
    return true;
}

/* Less in host memory may be enough for a plan that fits, and more of it faster: where the baseline
 * needs more, it may have it, and so may the plans of a search. */
static bool search_as_zero3_offloads(FgRun *c, FgEvaluation *best)
{
    FgEvaluation zero3;
    uint64_t floor;
    if (!offload_as_needed(c, measure_zero3, &zero3, &floor))
        return false;
    return !fits(c, &zero3) || search_compiled(c, best);
}

bool fg_run_search(FgRun *c)
{
    c->chosen = c->least;
    if (!c->out->fits || c->options->schedule != FG_SCHEDULE_COMPILED)
        return true;
    if (!search_compiled(c, &c->chosen))
        return false;
    if (c->options->offload_auto && !fits(c, &c->zero3) && !search_as_zero3_offloads(c, &c->chosen))
        return false;
    return polish(c, &c->chosen);
}

bool fg_run_glance(FgRun *c, FgEvaluation *at_use, FgEvaluation *fast)
{
    FgPlan *base = fg_setting_plan(&c->settings, 0, FG_UNIT_LAYER);
    FgArena *arena = fg_arena_new();
    *at_use = *fast = (FgEvaluation){0};
    const FgModule *module;
    bool ok = base && fg_search_lower(&c->search, base, arena, at_use, &module);
    if (ok) {
        FgEstimate estimate;
        fg_estimate_build(c->arena, arena, module, base, c->search.machine, &estimate);
        FgLeverChoice choice = {.slack = QUICK_SLACK, .kept = estimate.pairs.len};
        fg_search_choose_parts(&c->search, &estimate, &choice);
        choice.arena_limit = fg_search_arena(&c->search, &choice, module->state_bytes);
        FgPlan *plan = fg_estimate_plan(&estimate, arena, &choice);
        ok = fg_search_evaluate(&c->search, plan, FG_PLACING_QUICK, fast);
    }
    fg_arena_free(arena);
    return ok;
}

bool fg_run_quick(FgRun *c, FgEvaluation *out)
{
    FgEvaluation at_use, fast;
    *out = c->least;
    take_better(c, &c->zero3, out);
    if (!c->out->fits || c->options->schedule != FG_SCHEDULE_COMPILED)
        return true;
    if (!fg_run_glance(c, &at_use, &fast))
        return false;
    take_better(c, &at_use, out);
    take_better(c, &fast, out);
    return true;
}

/* Classes of which a plan keeps some in host memory. */
static uint32_t offloaded_classes(const FgPlan *plan)
{
    uint32_t classes = plan->stashes.len ? (uint32_t)FG_OFFLOAD_ACTIVATIONS : 0;
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        classes |= plan->buckets.data[i].offload;
    return classes;
}

static void count_plan(FgCompiled *out, const FgEvaluation *chosen)
{
    const FgPlan *plan = chosen->plan;
    out->kept = chosen->kept;
    for (uint32_t i = 1; i < plan->gathers.len; i++)
        out->regathered += plan->gathers.data[i].bucket == plan->gathers.data[i - 1].bucket;
}

/* The chosen plan once more from the graph, under the manager: dumps, verification, proof. */
static bool lower_chosen(FgRun *c, const FgEvaluation *chosen)
{
    FgModule *m = fg_module_clone(c->graph, c->arena);
    FgCompiled *out = c->out;
    m->plan = fg_plan_clone(chosen->plan, c->arena);
    FgPassManager pm = manager(c);
    if (pm.stop_after && strcmp(pm.stop_after, "plan") == 0) {
        out->module = m;
        return true;
    }
    const char *pipeline =
        fg_arena_printf(c->arena, "recompute,%s", fg_placing_pipeline(c->arena, chosen->placing));
    if (!fg_run_passes(&pm, m, pipeline))
        return false;
    out->module = m;
    fg_search_add_times(&c->search, &pm);
    if (pm.stopped)
        return true;
    double start = now_ms();
    FgProof proof;
    FgArena *scratch = fg_arena_new();
    bool proved = fg_check(scratch, m, out->budget_bytes, &proof);
    fg_arena_free(scratch);
    fg_search_add_time(&c->search, "check", now_ms() - start);
    out->waits = proof.waits;
    out->reuses = proof.reuses;
    out->fingerprint = fg_module_fingerprint(m);
    return proved;
}

/* ---- the beginning ---- */
static bool run_graph_passes(FgRun *c, const FgModule *graph, const FgNumerics *numerics,
                             FgDiags *diags)
{
    const FgCompileOptions *options = c->options;
    c->graph = fg_module_clone(graph, c->search.memo ? c->search.memo->arena : c->arena);
    c->graph->numerics = *numerics;
    c->graph->diags = diags ? diags : graph->diags;
    FgPassManager pm = manager(c);
    if (!fg_run_passes(&pm, c->graph, options->no_fuse ? FG_PIPELINE_UNFUSED : FG_PIPELINE_GRAPH))
        return false;
    c->graph->diags = graph->diags;
    fg_search_add_times(&c->search, &pm);
    c->out->numerics = c->graph->numerics;
    c->stopped = pm.stopped;
    if (pm.stopped) {
        c->out->module = c->graph;
        c->out->fits = true;
    }
    return true;
}

static bool open_settings(FgRun *c, const FgModule *graph)
{
    FgMemo *memo = c->search.memo;
    if (!fg_settings_open(&c->settings, memo ? memo->arena : c->arena, &c->search, c->graph,
                          c->options))
        return false;
    if (memo) {
        memo->asked = graph;
        memo->schedule = c->options->schedule;
        memo->graph = c->graph;
        memo->settings = c->settings;
    }
    return true;
}

static void take_memo(FgRun *c, const FgModule *graph)
{
    const FgMemo *memo = c->search.memo;
    FG_ASSERT(memo->asked == graph && memo->schedule == c->options->schedule);
    c->graph = memo->graph;
    c->out->numerics = c->graph->numerics;
    c->settings = memo->settings;
    fg_settings_take(&c->settings, &c->search, c->options);
}

bool fg_run_begin(FgRun *c, FgArena *arena, const FgModule *graph, const FgMachine *machine,
                  const FgNumerics *numerics, const FgCompileOptions *options, FgMemo *memo,
                  FgDiags *diags, FgCompiled *out)
{
    *out = (FgCompiled){0};
    *c = (FgRun){.arena = arena, .options = options, .out = out};
    c->search =
        (FgSearch){.arena = arena, .memo = memo, .machine = machine, .reduce = options->reduce};
    out->memory_bytes =
        options->memory_bytes == UINT64_MAX ? machine->memory_bytes : options->memory_bytes;
    out->reserved_bytes = machine->reserved_bytes;
    out->budget_bytes =
        out->memory_bytes > out->reserved_bytes ? out->memory_bytes - out->reserved_bytes : 0;
    out->host_memory_bytes = fg_machine_host_bytes(machine);
    c->search.budget = out->budget_bytes;
    c->search.host_budget = out->host_memory_bytes;
    if (c->search.memo && c->search.memo->graph) {
        take_memo(c, graph);
        return true;
    }
    return run_graph_passes(c, graph, numerics, diags) && (c->stopped || open_settings(c, graph));
}

bool fg_run_finish(FgRun *c)
{
    FgCompiled *out = c->out;
    const FgEvaluation *chosen = &c->chosen;
    if (out->fits && fg_plan_takes_parts(chosen->plan)) {
        out->reserved_bytes += c->search.machine->reserved_parts;
        out->budget_bytes = fg_search_budget(&c->search, chosen->plan);
    }
    out->offload = offloaded_classes(chosen->plan);
    out->ledger = chosen->ledger;
    out->sim = chosen->sim;
    out->zero3_step_us = c->zero3.sim.step_us;
    out->zero3_peak_bytes = c->zero3.ledger.peak_bytes;
    out->plans_tried = c->search.evaluated;
    count_plan(out, chosen);
    bool ok = !out->fits || lower_chosen(c, chosen);
    for (uint32_t i = 0; i < c->search.times.len; i++)
        fg_vec_push(c->arena, &out->times, c->search.times.data[i]);
    return ok;
}
