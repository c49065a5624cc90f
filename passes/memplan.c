/* memplan: every value gets its address.
 *
 * sched -> sched. States that live always stand at the bottom, in table order. What lives and dies
 * within a period (activations, gathered buckets, gradient buffers, gradient shards) is packed
 * above them into one arena by lifetime in issue order; a value that lives round the period's cut
 * wraps. Host memory is laid out in the same way, in addresses of its own. Reusing an address may
 * make one stream wait for another: `streams` adds those waits.
 */
#include "passes/liveness.h"
#include "passes/lower.h"
#include "passes/pack.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* Of the search over plans, which packs once a plan: enough for every example, and milliseconds. */
#define DEFAULT_EFFORT 8
#define QUICK_ROUNDS 4 /* of first fit, at least; effort 0 does nothing else */
#define STEPS_PER_EFFORT 16384
/* A step of exact search takes time in proportion to the items; with many there are fewer. */
#define MOST_EXACT 6000 /* items: with more, exact search finds nothing in reasonable time */
#define MOST_WORK ((uint64_t)1 << 22)

static bool lives_always(const FgValue *v)
{
    return v->kind == FG_VALUE_STATE && v->role != FG_ROLE_GRAD_SHARD &&
           v->role != FG_ROLE_GATHERED && v->role != FG_ROLE_GRADIENTS;
}

/* Sets an address; true when it is another one. */
static bool place(FgModule *m, uint32_t value, uint64_t offset)
{
    bool moved = fg_value(m, value)->offset != offset;
    fg_value(m, value)->offset = offset;
    return moved;
}

static bool place_states(FgModule *m, bool host, uint64_t *total)
{
    bool moved = false;
    uint64_t at = 0, base = host ? FG_HOST_BASE : 0;
    for (uint32_t i = 0; i < m->values.len; i++) {
        FgValue *v = fg_value(m, i);
        if (!lives_always(v) || v->host != host)
            continue;
        moved |= place(m, i, base + at);
        at = fg_round_up(at + fg_type_bytes(v->type), FG_ALIGN_BYTES);
    }
    moved |= *total != at;
    *total = at;
    return moved;
}

typedef struct Arena {
    FgPackProblem problem;
    uint32_t *values; /* item -> value */
} Arena;

/* One item a value. A buffer written afresh several times a period has one address and several
 * spans: between them its memory serves others. One that lives round the cut begins with what is
 * left of the period before. */
static void find_items(FgPassCx *cx, const FgIntervalVec *intervals, uint32_t timeline, Arena *out)
{
    FgArena *scratch = cx->scratch;
    uint32_t n_values = cx->module->values.len, n = 0, at = 0;
    uint32_t *count = FG_NEW_ARRAY(scratch, uint32_t, n_values + 1); /* spans; then where next */
    FgPackSpan *spans = FG_NEW_ARRAY(scratch, FgPackSpan, 2 * (size_t)intervals->len + 1);
    FgPackItem *items = FG_NEW_ARRAY(scratch, FgPackItem, intervals->len + 1);
    out->values = FG_NEW_ARRAY(scratch, uint32_t, intervals->len + 1);
    for (uint32_t i = 0; i < intervals->len; i++) {
        const FgInterval *x = &intervals->data[i];
        count[x->value] += x->end < x->begin ? 2 : 1;
    }
    for (uint32_t i = 0; i < intervals->len; i++) {
        const FgInterval *x = &intervals->data[i];
        if (count[x->value] == 0)
            continue; /* has its item */
        items[n] = (FgPackItem){(int64_t)x->bytes, FG_ALIGN_BYTES, at, count[x->value], 0};
        out->values[n++] = x->value;
        at += count[x->value];
        count[x->value] = 0;
    }
    uint32_t *next = count;
    for (uint32_t i = 0; i < n; i++)
        next[out->values[i]] = items[i].span;
    for (uint32_t i = 0; i < intervals->len; i++) {
        const FgInterval *x = &intervals->data[i];
        if (x->end < x->begin) {
            FgPackSpan head = {0, (int64_t)x->end + 1, 0, (int64_t)x->bytes};
            spans[next[x->value]++] = head;
        }
    }
    for (uint32_t i = 0; i < intervals->len; i++) {
        const FgInterval *x = &intervals->data[i];
        int64_t end = x->end < x->begin ? timeline : (int64_t)x->end + 1;
        spans[next[x->value]++] = (FgPackSpan){x->begin, end, 0, (int64_t)x->bytes};
    }
    out->problem = (FgPackProblem){items, spans, n};
}

/* memplan{N,fit}: what fits the budget above `base` is low enough. */
static FgPackEffort effort_of(const FgPassCx *cx, uint32_t n_items, uint64_t base)
{
    bool fit = strstr(cx->option, ",fit") != NULL && cx->budget <= INT64_MAX;
    int64_t capacity = fit && cx->budget > base ? (int64_t)(cx->budget - base) : 0;
    uint64_t effort = cx->option[0] ? strtoul(cx->option, NULL, 10) : DEFAULT_EFFORT;
    uint64_t steps = effort * STEPS_PER_EFFORT, most = effort * MOST_WORK / (n_items + 1);
    uint32_t rounds = effort > QUICK_ROUNDS ? (uint32_t)effort : QUICK_ROUNDS;
    steps = steps < most ? steps : most;
    return (FgPackEffort){rounds, n_items <= MOST_EXACT ? steps : 0, capacity};
}

/* Packs what lives and dies in one of the two memories above its states at `base`. */
static bool place_arena(FgPassCx *cx, const FgIntervalVec *all, uint32_t timeline, bool host,
                        uint64_t base, uint64_t *total)
{
    FgIntervalVec intervals = fg_intervals_in(cx->scratch, cx->module, all, host);
    for (uint32_t i = 0; i < intervals.len; i++)
        intervals.data[i].bytes = fg_round_up(intervals.data[i].bytes, FG_ALIGN_BYTES);
    Arena arena;
    find_items(cx, &intervals, timeline, &arena);
    FgPackEffort effort = effort_of(cx, arena.problem.n, base);
    uint64_t bytes = (uint64_t)fg_pack(cx->scratch, &arena.problem, &effort).height;
    bool changed = *total != bytes;
    *total = bytes;
    for (uint32_t i = 0; i < arena.problem.n; i++)
        changed |=
            place(cx->module, arena.values[i], base + (uint64_t)arena.problem.items[i].offset);
    return changed;
}

FgPassResult fg_pass_memplan(FgPassCx *cx)
{
    FgModule *m = cx->module;
    bool changed = place_states(m, false, &m->state_bytes);
    changed |= place_states(m, true, &m->host_state_bytes);
    FgIntervalVec intervals = {0};
    uint32_t timeline = 0;
    fg_intervals(cx->scratch, m, &intervals, &timeline);
    changed |= place_arena(cx, &intervals, timeline, false, m->state_bytes, &m->arena_bytes);
    changed |= place_arena(cx, &intervals, timeline, true, FG_HOST_BASE + m->host_state_bytes,
                           &m->host_arena_bytes);
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
