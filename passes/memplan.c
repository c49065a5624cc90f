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

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_EFFORT 24

static bool lives_always(const FgValue *v)
{
    return v->kind == FG_VALUE_STATE && v->role != FG_ROLE_GRAD_SHARD;
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

/* One item a value; a buffer written afresh several times a period has one address, so its
 * stretches become one. */
static FgPackItem *items_of(FgPassCx *cx, const FgIntervalVec *intervals, uint32_t *values,
                            uint32_t *out_n)
{
    FgPackItem *items = FG_NEW_ARRAY(cx->scratch, FgPackItem, intervals->len + 1);
    uint32_t *item_of = FG_NEW_ARRAY(cx->scratch, uint32_t, cx->module->values.len + 1), n = 0;
    memset(item_of, 0xff, cx->module->values.len * sizeof *item_of);
    for (uint32_t i = 0; i < intervals->len; i++) {
        const FgInterval *x = &intervals->data[i];
        uint32_t at = item_of[x->value];
        if (at == FG_NO_ID) {
            at = item_of[x->value] = n++;
            values[at] = x->value;
            items[at] = (FgPackItem){x->bytes, x->begin, x->end, 0};
        } else if (items[at].end >= items[at].begin) { /* sorted by begin: extend */
            if (x->end < x->begin || x->end > items[at].end)
                items[at].end = x->end;
        }
    }
    *out_n = n;
    return items;
}

/* Packs what lives and dies in one of the two memories above its states at `base`. */
static bool place_arena(FgPassCx *cx, const FgIntervalVec *all, uint32_t timeline, bool host,
                        uint64_t base, uint64_t *total)
{
    uint32_t effort = cx->option[0] ? (uint32_t)strtoul(cx->option, NULL, 10) : DEFAULT_EFFORT;
    FgIntervalVec intervals = fg_intervals_in(cx->scratch, cx->module, all, host);
    uint32_t n = 0, position = 0;
    for (uint32_t i = 0; i < intervals.len; i++)
        intervals.data[i].bytes = fg_round_up(intervals.data[i].bytes, FG_ALIGN_BYTES);
    uint64_t bound = fg_intervals_peak(cx->scratch, &intervals, timeline, &position);
    uint32_t *values = FG_NEW_ARRAY(cx->scratch, uint32_t, intervals.len + 1);
    FgPackItem *items = items_of(cx, &intervals, values, &n);
    uint64_t bytes = fg_pack(cx->scratch, items, n, bound, effort > 0 ? effort : 1);
    bool changed = *total != bytes;
    *total = bytes;
    for (uint32_t i = 0; i < n; i++)
        changed |= place(cx->module, values[i], base + items[i].offset);
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
