/* settings: rungs of recomputation with their fixed plans, as far as anybody asks.
 *
 * The floor is measured on a few rungs: none, full, and of some between them the one whose bytes
 * live at once are fewest. Finding the first rung that fits halves the ladder by that bound, which
 * needs no placement, and places only at the end.
 */
#include "passes/settings.h"

#include "passes/zero3.h"

#include <string.h>

/* States travel for an update in parts of at most so many elements: a smaller one takes less of the
 * device, and more calls. */
#define PIECE ((uint64_t)8 << 20)
#define LEAST_PIECE ((uint64_t)4 << 20)
#define COPY_SLACK 1.2 /* time a host copy is given over what it takes */
#define PROBES 4
#define PLACED_TRIES 3 /* rungs that are placed before the next probe is taken instead */

static bool run_quietly(FgSettings *s, FgModule *m, FgArena *arena, const char *passes)
{
    FgPassManager pm = {.arena = arena,
                        .machine = s->search->machine,
                        .budget = UINT64_MAX,
                        .verify_each = s->options->verify_each,
                        .check_changed = s->options->verify_each};
    bool ok = fg_run_passes(&pm, m, passes);
    fg_search_add_times(s->search, &pm);
    return ok;
}

bool fg_setting_enter(FgSettings *s, uint32_t rung)
{
    FgSetting *setting = &s->by_rung[rung];
    if (!setting->graph) {
        FgArena *arena = s->arena;
        FgModule *m = fg_module_clone(s->graph, arena);
        m->plan = FG_NEW(arena, FgPlan);
        m->plan->name = "base";
        fg_recompute_apply(&s->ladder, rung, m->plan, arena);
        if (!run_quietly(s, m, arena, "recompute"))
            return false;
        setting->graph = m;
    }
    s->search->graph = setting->graph;
    return true;
}

/* ---- what leaves the device ---- */
/* Steps of a plan's ladder that save what is asked for, or all that the host has memory for. */
static uint32_t count_steps(const FgSettings *s, const FgOffloadLadder *ladder)
{
    uint64_t saved = 0;
    uint32_t n = 0;
    for (; n < ladder->len && saved < s->offload_bytes; n++) {
        uint64_t bytes = ladder->data[n].bytes;
        if (s->options->offload_auto && saved + bytes + bytes / 16 > s->search->host_budget)
            break;
        saved += bytes;
    }
    return n;
}

/* Writes the offload levers into a fixed plan of the graph; returns the classes. */
static uint32_t offload(FgSettings *s, FgModule *graph, FgPlan *plan, uint64_t piece)
{
    uint32_t classes = s->options->offload_auto ? (uint32_t)FG_OFFLOAD_ALL : s->options->offload,
             used = 0;
    if (!classes || !s->offload_bytes || !s->search->host_budget)
        return 0;
    FgArena *arena = s->arena;
    FgOffloadLadder ladder = fg_offload_ladder(arena, graph, s->search->machine, plan, classes);
    uint32_t n = count_steps(s, &ladder);
    fg_offload_apply(arena, plan, graph, s->search->machine, &ladder, n, piece);
    for (uint32_t i = 0; i < n; i++)
        used |= ladder.data[i].what;
    return used;
}

void fg_settings_offload(FgSettings *s, uint64_t bytes)
{
    s->offload_bytes = bytes;
    for (uint32_t i = 0; i < s->ladder.rungs.len; i++)
        for (int unit = 0; unit < FG_N_UNITS; unit++) {
            s->by_rung[i].at_use[unit].plan = NULL;
            s->by_rung[i].measured[unit] = false;
        }
}

/* ---- fixed plans ---- */
/* Gathers at use, with what the setting offloads in parts of at most `piece` elements. NULL where a
 * cut is asked for and nothing can be cut. */
static FgPlan *make_at_use(FgSettings *s, uint32_t rung, FgBorders borders, uint64_t piece,
                           uint32_t *out_offloaded)
{
    FgModule *graph = s->by_rung[rung].graph;
    FgArena *scratch = fg_arena_new();
    FgPlan *plan =
        fg_plan_units(graph, scratch, "minimum", s->ladder.rungs.data[rung].recompute, borders);
    *out_offloaded = plan ? offload(s, graph, plan, piece) : 0;
    if (plan &&
        !fg_update_waits(&graph->numerics)) /* else the link idles during the first update */
        fg_plan_travel(plan, graph, scratch, s->search->machine);
    fg_arena_free(scratch);
    return plan;
}

static FgBorders borders_of(FgUnit unit)
{
    return (FgBorders){.by_module = unit == FG_UNIT_MODULE};
}

static FgPlan *plan_at_use(FgSettings *s, uint32_t rung, FgUnit unit)
{
    FgSetting *setting = &s->by_rung[rung];
    if (!setting->at_use[unit].plan)
        setting->at_use[unit].plan =
            make_at_use(s, rung, borders_of(unit), LEAST_PIECE, &setting->offloaded[unit]);
    return setting->at_use[unit].plan;
}

FgPlan *fg_setting_plan(FgSettings *s, uint32_t rung, FgUnit unit)
{
    return fg_setting_enter(s, rung) ? plan_at_use(s, rung, unit) : NULL;
}

const FgEvaluation *fg_setting_at_use(FgSettings *s, uint32_t rung, FgUnit unit)
{
    FgPlan *plan = fg_setting_plan(s, rung, unit);
    FgSetting *setting = &s->by_rung[rung];
    if (!plan)
        return NULL;
    if (!setting->measured[unit] &&
        !fg_search_evaluate(s->search, plan, FG_PLACING_THOROUGH, &setting->at_use[unit]))
        return NULL;
    setting->measured[unit] = true;
    return &setting->at_use[unit];
}

const FgEvaluation *fg_setting_least(FgSettings *s, uint32_t rung)
{
    const FgEvaluation *layers = fg_setting_at_use(s, rung, FG_UNIT_LAYER);
    const FgEvaluation *modules = layers ? fg_setting_at_use(s, rung, FG_UNIT_MODULE) : NULL;
    if (!modules)
        return NULL;
    return modules->ledger.peak_bytes < layers->ledger.peak_bytes ? modules : layers;
}

bool fg_setting_timed(FgSettings *s, uint32_t rung, FgUnit unit, FgEvaluation *out)
{
    if (!fg_setting_enter(s, rung))
        return false;
    uint32_t offloaded;
    FgPlan *plan = make_at_use(s, rung, borders_of(unit), PIECE, &offloaded);
    FgArena *scratch = fg_arena_new();
    fg_offload_time(scratch, plan, s->by_rung[rung].graph, s->search->machine, COPY_SLACK);
    fg_arena_free(scratch);
    *out = (FgEvaluation){0};
    return fg_search_evaluate(s->search, plan, FG_PLACING_THOROUGH, out);
}

bool fg_setting_cut(FgSettings *s, uint32_t rung, double cut, FgPlan **out)
{
    *out = NULL;
    if (!fg_setting_enter(s, rung))
        return false;
    if (s->by_rung[rung].offloaded[FG_UNIT_LAYER])
        return true;
    uint32_t offloaded;
    *out = make_at_use(s, rung, (FgBorders){.cut = cut}, PIECE, &offloaded);
    return true;
}

static bool bound_of(FgSettings *s, uint32_t rung, FgUnit unit, uint64_t *out)
{
    FgPlan *plan = fg_setting_plan(s, rung, unit);
    return plan && fg_search_bound(s->search, plan, out);
}

static bool find_probes(FgSettings *s)
{
    uint32_t last = s->ladder.rungs.len - 1, best = 0;
    uint64_t least = UINT64_MAX, bytes;
    bool inner = s->options->schedule == FG_SCHEDULE_COMPILED && last > 1;
    for (uint32_t i = 1; i <= PROBES && inner; i++) {
        /* The last rung but one is the largest set that is computed again piece by piece. */
        uint32_t rung = (uint32_t)((uint64_t)(last - 1) * i / PROBES);
        if (!bound_of(s, rung, FG_UNIT_MODULE, &bytes))
            return false;
        best = bytes <= least ? rung : best;
        least = bytes <= least ? bytes : least;
    }
    fg_vec_push(s->arena, &s->probes, 0);
    if (best > 0)
        fg_vec_push(s->arena, &s->probes, best);
    if (last > 0)
        fg_vec_push(s->arena, &s->probes, last);
    return true;
}

bool fg_settings_open(FgSettings *s, FgArena *arena, FgSearch *search, const FgModule *graph,
                      const FgCompileOptions *options)
{
    *s = (FgSettings){.arena = arena, .search = search, .graph = graph, .options = options};
    s->offload_bytes = options->offload_auto ? 0 : FG_OFFLOAD_EVERYTHING;
    fg_recompute_ladder(arena, graph, search->machine, options->recompute, &s->ladder);
    s->by_rung = FG_NEW_ARRAY(arena, FgSetting, s->ladder.rungs.len);
    return find_probes(s);
}

void fg_settings_take(FgSettings *s, FgSearch *search, const FgCompileOptions *options)
{
    s->search = search;
    s->options = options;
    fg_settings_offload(s, options->offload_auto ? 0 : FG_OFFLOAD_EVERYTHING);
}

/* The first rung from `low` on, below `high`, whose bound is within the budget; `high` if none. */
static bool first_by_bound(FgSettings *s, FgUnit unit, uint32_t *low, uint32_t high)
{
    while (*low < high) {
        uint32_t middle = *low + (high - *low) / 2;
        uint64_t bytes;
        if (!bound_of(s, middle, unit, &bytes))
            return false;
        if (bytes <= s->search->budget)
            high = middle;
        else
            *low = middle + 1;
    }
    return true;
}

bool fg_settings_first_fit(FgSettings *s, FgUnit unit, uint32_t *out_rung)
{
    uint32_t low = 0, known = FG_NO_ID;
    for (uint32_t i = 0; i < s->probes.len && known == FG_NO_ID; i++) {
        const FgEvaluation *e = fg_setting_at_use(s, s->probes.data[i], unit);
        if (!e)
            return false;
        if (fg_search_fits(s->search, e))
            known = s->probes.data[i];
        else
            low = s->probes.data[i] + 1;
    }
    *out_rung = known;
    if (known == FG_NO_ID)
        return true;
    if (!first_by_bound(s, unit, &low, known))
        return false;
    for (uint32_t tries = 0; low < known && tries < PLACED_TRIES; tries++) {
        const FgEvaluation *e = fg_setting_at_use(s, low, unit);
        if (!e)
            return false;
        if (fg_search_fits(s->search, e)) {
            *out_rung = low;
            return true;
        }
        low += 1 + (known - low) / 8;
    }
    return true;
}

bool fg_settings_zero3(FgSettings *s, FgEvaluation *out)
{
    bool all = s->options->recompute == FG_RECOMPUTE_SELECTIVE;
    uint32_t rung = all ? s->ladder.rungs.len - 1 : 0;
    if (!fg_setting_enter(s, rung))
        return false;
    FgArena *scratch = fg_arena_new();
    const FgZero3 *knobs = &s->options->zero3;
    FgModule *graph = s->by_rung[rung].graph;
    FgPlan *base = fg_zero3_base(graph, scratch, s->ladder.rungs.data[rung].recompute, knobs);
    if (offload(s, graph, base, PIECE))
        fg_offload_time(scratch, base, graph, s->search->machine, COPY_SLACK);
    FgEvaluation at_use = {0};
    const FgModule *module;
    bool ok = fg_search_lower(s->search, base, scratch, &at_use, &module);
    if (ok) {
        FgEstimate estimate;
        fg_estimate_build(s->search->arena, scratch, module, base, s->search->machine, &estimate);
        FgPlan *plan = fg_zero3_plan(&estimate, scratch, module, knobs);
        ok = fg_search_evaluate(s->search, plan, FG_PLACING_THOROUGH, out);
        out->kept = base->gathers.len - plan->gathers.len;
    }
    fg_arena_free(scratch);
    return ok;
}
