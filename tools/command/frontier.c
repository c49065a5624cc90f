/* frontier: which memories to plan for, and the best plan for each.
 *
 * A plan found for less memory also fits more, and one that was found for much may need little: the
 * plan of a point is the fastest of all plans found that fit it. So the curve never rises, and no
 * point is worse than what compile finds with the same memory. The minimum comes first, then the
 * plan without a limit; where that becomes the best is narrowed down by halving. What points are
 * left go where the curve is both wide and steep, halfway by the square root of what exceeds the
 * minimum: dense where memory is short. */
#include "tools/command/frontier.h"

#include "passes/lower.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define NO_LIMIT (UINT64_MAX / 4) /* more than any plan takes */
#define SAME 1.001                /* steps that differ by less are as fast */
#define HALVINGS 4

const char *fg_frontier_tag_text(const FgFrontierPoint *p)
{
    if (p->tags & FG_TAG_MINIMUM)
        return p->tags & FG_TAG_ENOUGH ? "minimum, enough" : "minimum";
    if (p->tags & FG_TAG_ENOUGH)
        return "enough";
    return p->tags & FG_TAG_TENTH ? "minimum + 10 %" : "";
}

/* ---- levers ---- */
/* A second run of a forward node: same op, same names of results. */
static bool is_recomputed(const FgModule *m, const FgNode *node)
{
    if (node->phase != FG_PHASE_BACKWARD || node->origin == FG_NO_ID || !fg_node_is_compute(node))
        return false;
    const FgNode *origin = &m->nodes.data[node->origin];
    return origin->op == node->op && origin->phase == FG_PHASE_FORWARD && node->n_results &&
           origin->n_results &&
           strcmp(m->values.data[node->results[0]].name, m->values.data[origin->results[0]].name) ==
               0;
}

static FgLevers levers_of(FgArena *arena, const FgCompiled *c)
{
    const FgModule *m = c->module;
    const FgPlan *plan = m->plan;
    FgLevers out = {.plan = fg_arena_strdup(arena, plan->name),
                    .buckets = plan->buckets.len,
                    .gathers = plan->gathers.len,
                    .kept = c->kept,
                    .regathered = c->regathered,
                    .offloaded_bytes = c->ledger.host_bytes};
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        out.ahead += plan->gathers.data[i].ahead > 0;
    for (uint32_t f = 0; f < m->funcs.len; f++) {
        const FgFunc *func = &m->funcs.data[f];
        bool body = strcmp(func->name, "step") == 0 || strcmp(func->name, "last") == 0;
        for (uint32_t i = 0; body && i < func->order.len; i++)
            out.recomputed += is_recomputed(m, &m->nodes.data[func->order.data[i]]);
    }
    return out;
}

/* ---- plans ---- */
static FgFrontierPlan plan_of(FgArena *arena, const FgCompiled *c)
{
    FgFrontierPlan out = {.offered_bytes = c->memory_bytes,
                          .peak_bytes = c->ledger.peak_bytes,
                          .peak_phase = fg_arena_strdup(arena, c->ledger.peak_phase),
                          .step_us = c->sim.step_us,
                          .bound_us = c->sim.bound_us,
                          .bound_engine = c->sim.bound_engine,
                          .numerics = c->numerics};
    out.needs_bytes = (c->reserved_bytes + c->ledger.peak_bytes + MIB - 1) / MIB * MIB;
    out.levers = levers_of(arena, c);
    return out;
}

/* Plans for `memory` in an arena that goes away, keeps the figures. False after errors. */
static bool try_memory(FgSession *s, FgFrontier *f, uint64_t memory)
{
    FgArena *scratch = fg_arena_new();
    FgCompileOptions options = fg_session_options(s);
    FgCompiled c = {0};
    options.schedule = FG_SCHEDULE_COMPILED;
    options.memory_bytes = memory;
    options.memo = f->memo;
    bool ok = fg_compile(scratch, s->graph, &s->machine, &s->numerics, &options, &c);
    if (ok && c.fits) {
        FgFrontierPlan *plan = FG_NEW(f->arena, FgFrontierPlan);
        *plan = plan_of(f->arena, &c);
        fg_vec_push(f->arena, &f->plans, plan);
        if (f->plans.len == 1 || plan->step_us < f->fastest_us)
            f->fastest_us = plan->step_us;
    }
    fg_arena_free(scratch);
    return ok;
}

/* The fastest plan found that fits; of equals the one that needs least. */
static const FgFrontierPlan *best_for(const FgFrontier *f, uint64_t memory)
{
    const FgFrontierPlan *best = NULL;
    for (uint32_t i = 0; i < f->plans.len; i++) {
        const FgFrontierPlan *p = f->plans.data[i];
        if (p->needs_bytes > memory)
            continue;
        bool equal = best && !(p->step_us < best->step_us) && !(p->step_us > best->step_us);
        if (!best || p->step_us < best->step_us || (equal && p->needs_bytes < best->needs_bytes))
            best = p;
    }
    return best;
}

/* The least memory with which a plan as fast as the fastest is known. */
static uint64_t enough_of(const FgFrontier *f)
{
    uint64_t enough = UINT64_MAX;
    for (uint32_t i = 0; i < f->plans.len; i++)
        if (f->plans.data[i]->step_us <= f->fastest_us * SAME &&
            f->plans.data[i]->needs_bytes < enough)
            enough = f->plans.data[i]->needs_bytes;
    return enough;
}

/* ---- which memories ---- */
static uint64_t to_mib(double bytes)
{
    return (uint64_t)(bytes / (double)MIB + 0.5) * MIB;
}

static uint64_t tenth_of(const FgFrontier *f)
{
    uint64_t more = to_mib(1.1 * (double)f->minimum_bytes);
    return more < f->limit_bytes ? more : f->limit_bytes;
}

/* Narrows down from where on memory does not help. */
static bool find_enough(FgSession *s, FgFrontier *f)
{
    uint64_t low = f->minimum_bytes;
    for (uint32_t i = 0; i < HALVINGS; i++) {
        uint64_t high = enough_of(f), middle = (low + high) / 2 / MIB * MIB;
        if (middle <= low || middle >= high)
            return true;
        if (!try_memory(s, f, middle))
            return false;
        if (enough_of(f) > middle)
            low = middle;
    }
    return true;
}

static int by_memory(const void *a, const void *b)
{
    const FgFrontierPoint *x = a, *y = b;
    return x->memory_bytes < y->memory_bytes ? -1 : x->memory_bytes > y->memory_bytes;
}

static void add_point(FgFrontier *f, uint64_t memory, unsigned tags)
{
    for (uint32_t i = 0; i < f->points.len; i++)
        if (f->points.data[i].memory_bytes == memory) {
            f->points.data[i].tags |= tags;
            return;
        }
    FgFrontierPoint point = {memory, tags, NULL};
    fg_vec_push(f->arena, &f->points, point);
}

static void settle_points(FgFrontier *f)
{
    qsort(f->points.data, f->points.len, sizeof *f->points.data, by_memory);
    for (uint32_t i = 0; i < f->points.len; i++)
        f->points.data[i].plan = best_for(f, f->points.data[i].memory_bytes);
}

static double above(const FgFrontier *f, uint64_t memory)
{
    return sqrt((double)(memory - f->minimum_bytes));
}

/* The memory in the middle of the piece of the curve that is both wide and steep; 0 when no piece
 * can be parted. */
static uint64_t next_memory(const FgFrontier *f)
{
    const FgFrontierPoint *p = f->points.data;
    double wide = above(f, p[f->points.len - 1].memory_bytes) + 1.0, best = 0.0;
    double high = p[0].plan->step_us - f->fastest_us;
    uint64_t found = 0;
    for (uint32_t i = 0; i + 1 < f->points.len; i++) {
        double a = above(f, p[i].memory_bytes), b = above(f, p[i + 1].memory_bytes);
        double down = p[i].plan->step_us - p[i + 1].plan->step_us;
        double size = (b - a) / wide * (0.1 + (high > 0.0 ? down / high : 0.0));
        uint64_t middle = to_mib((double)f->minimum_bytes + (a + b) * (a + b) / 4.0);
        if (size > best && middle > p[i].memory_bytes && middle < p[i + 1].memory_bytes) {
            best = size;
            found = middle;
        }
    }
    return found;
}

static bool add_points(FgSession *s, FgFrontier *f, uint32_t n)
{
    settle_points(f);
    while (f->points.len < n) {
        uint64_t memory = next_memory(f);
        if (!memory)
            return true;
        if (!try_memory(s, f, memory))
            return false;
        add_point(f, memory, 0);
        settle_points(f);
    }
    return true;
}

/* With the last plans found, enough may be less: what stands beyond shows nothing. */
static void trim_points(FgFrontier *f)
{
    uint64_t enough = enough_of(f);
    uint32_t n = 0;
    add_point(f, enough, 0);
    for (uint32_t i = 0; i < f->points.len; i++) {
        FgFrontierPoint *p = &f->points.data[i];
        p->tags &= ~(unsigned)FG_TAG_ENOUGH;
        p->tags |= p->memory_bytes == enough ? FG_TAG_ENOUGH : 0u;
        if (p->memory_bytes <= enough || p->tags)
            f->points.data[n++] = *p;
    }
    f->points.len = n;
    settle_points(f);
}

/* ---- baselines ---- */
static bool add_mark(FgSession *s, FgFrontier *f, const char *name, const char *key, FgZero3 zero3)
{
    FgArena *scratch = fg_arena_new();
    FgCompileOptions options = fg_session_options(s);
    FgCompiled c = {0};
    options.schedule = FG_SCHEDULE_ZERO3;
    options.memory_bytes = NO_LIMIT;
    options.zero3 = zero3;
    bool ok = fg_compile(scratch, s->graph, &s->machine, &s->numerics, &options, &c);
    if (ok) {
        FgFrontierMark mark = {name, key, plan_of(f->arena, &c)};
        fg_vec_push(f->arena, &f->marks, mark);
    }
    fg_arena_free(scratch);
    return ok;
}

static bool add_marks(FgSession *s, FgFrontier *f)
{
    FgZero3 given = fg_session_options(s).zero3, defaults = FG_ZERO3_DEFAULTS,
            minimal = FG_ZERO3_MINIMAL;
    bool other = !fg_zero3_equal(&given, &defaults) && !fg_zero3_equal(&given, &minimal);
    return add_mark(s, f, "ZeRO-3, DeepSpeed's defaults", "zero3_defaults", defaults) &&
           add_mark(s, f, "ZeRO-3, gather at use", "zero3_minimal", minimal) &&
           (!other || add_mark(s, f, "ZeRO-3, knobs as given", "zero3_given", given));
}

/* Points where the baselines stand: between points the curve is drawn higher than it is, and no
 * baseline may seem to lie below it. */
static bool meet_marks(FgSession *s, FgFrontier *f)
{
    for (uint32_t i = 0; i < f->marks.len; i++) {
        uint64_t memory = f->marks.data[i].plan.needs_bytes;
        if (memory < f->minimum_bytes || memory > f->limit_bytes)
            continue;
        if (!try_memory(s, f, memory))
            return false;
        add_point(f, memory, 0);
    }
    return true;
}

/* ---- the whole ---- */
static FgExit find_minimum(FgSession *s, FgFrontier *f, FgCompiled *out_refused)
{
    FgCompileOptions options = fg_session_options(s);
    f->limit_bytes = options.memory_bytes;
    f->machine_bytes =
        options.memory_bytes == UINT64_MAX ? s->machine.memory_bytes : options.memory_bytes;
    options.schedule = FG_SCHEDULE_COMPILED;
    options.memory_bytes = 1; /* fits nothing: the fixed plans alone are made */
    options.memo = f->memo;
    if (!fg_compile(s->arena, s->graph, &s->machine, &s->numerics, &options, out_refused))
        return FG_EXIT_INPUT;
    f->minimum_bytes = out_refused->smallest_memory_bytes;
    out_refused->memory_bytes = f->machine_bytes;
    bool fits = out_refused->host_fits && f->minimum_bytes <= f->limit_bytes;
    return fits ? FG_EXIT_OK : FG_EXIT_DOES_NOT_FIT;
}

static FgExit find(FgSession *s, uint32_t points, FgFrontier *f, FgCompiled *out_refused)
{
    FgExit code = find_minimum(s, f, out_refused);
    if (code != FG_EXIT_OK)
        return code;
    uint64_t most = f->limit_bytes < NO_LIMIT ? f->limit_bytes : NO_LIMIT;
    if (!try_memory(s, f, f->minimum_bytes) || !try_memory(s, f, most) || !find_enough(s, f) ||
        !try_memory(s, f, tenth_of(f)))
        return FG_EXIT_INPUT;
    add_point(f, f->minimum_bytes, FG_TAG_MINIMUM);
    add_point(f, tenth_of(f), FG_TAG_TENTH);
    add_point(f, enough_of(f), FG_TAG_ENOUGH);
    if (!add_marks(s, f) || !meet_marks(s, f) || !add_points(s, f, points))
        return FG_EXIT_INPUT;
    trim_points(f);
    return FG_EXIT_OK;
}

FgExit fg_frontier_find(FgSession *s, uint32_t points, FgFrontier *f, FgCompiled *out_refused)
{
    *f = (FgFrontier){
        .arena = s->arena, .memo = fg_memo_new(), .graph = s->graph, .machine = &s->machine};
    f->ranks = s->machine.ranks;
    FgExit code = find(s, points, f, out_refused);
    fg_memo_free(f->memo);
    f->memo = NULL;
    return code;
}
