/* why: the grounds for waits, and the room for gathers.
 *
 * A wait is an edge without a label: `streams` found two accesses of one byte, one of them a write.
 * Which bytes, and whose, is found again here by comparing what the two nodes touch. Where both
 * name the same root it is data (written, then read) or an overwrite; where the roots differ, one
 * value took the place of another, and only memory makes the node wait.
 *
 * The room of a gather is walked backwards from its place: one compute node at a time for as long
 * as the bytes that live there and the gather's own fit the budget together. Placement may lose a
 * little more than that. */
#include "passes/why.h"

#include "passes/liveness.h"
#include "passes/lower.h"

#include <stdlib.h>
#include <string.h>

const char *fg_why_name(FgWhy why)
{
    static const char *const names[] = {"start", "engine", "data", "overwrite", "memory"};
    return names[why];
}

const char *fg_barrier_name(FgBarrier barrier)
{
    static const char *const names[] = {"start", "release", "update", "memory"};
    return names[barrier];
}

/* ---- grounds of a wait ---- */
typedef struct Access {
    uint32_t value, root;
    uint64_t begin, end;
    bool write;
} Access;

typedef FG_VEC(Access) Accesses;

static uint32_t root_of(const FgModule *m, uint32_t value)
{
    while (m->values.data[value].root != value)
        value = m->values.data[value].root;
    return value;
}

static void add_access(FgArena *arena, const FgModule *m, uint32_t value, bool write, Accesses *out)
{
    if (value == FG_NO_ID)
        return;
    const FgValue *v = &m->values.data[value];
    uint64_t begin = m->values.data[v->root].offset + v->root_offset;
    Access access = {value, root_of(m, value), begin, begin + fg_type_bytes(v->type), write};
    fg_vec_push(arena, out, access);
}

static Accesses accesses_of(FgArena *arena, const FgModule *m, const FgNode *node)
{
    Accesses out = {0};
    for (uint32_t i = 0; i < node->n_operands; i++)
        add_access(arena, m, node->operands[i], node->op == FG_OP_release, &out);
    for (uint32_t i = 0; i < node->n_results; i++)
        add_access(arena, m, node->results[i], true, &out);
    for (uint32_t v = 0; fg_op_has(node->op, FG_OPF_WORKSPACE) && v < m->values.len; v++)
        if (m->values.data[v].kind == FG_VALUE_STATE && m->values.data[v].role == FG_ROLE_WORKSPACE)
            add_access(arena, m, v, true, &out);
    return out;
}

static FgWhy grounds(const FgModule *m, const Access *mine, const Access *theirs)
{
    if (m->values.data[mine->root].role == FG_ROLE_WORKSPACE || mine->root != theirs->root)
        return FG_WHY_MEMORY;
    return theirs->write && !mine->write ? FG_WHY_DATA : FG_WHY_OVERWRITE;
}

/* What orders two nodes: data before overwriting before memory, the most bytes of the first. */
static FgAwaited compare(FgArena *arena, const FgModule *m, const FgNode *node, const FgNode *other)
{
    FgAwaited out = {FG_WHY_OVERWRITE, other->id, FG_NO_ID, 0};
    Accesses mine = accesses_of(arena, m, node), theirs = accesses_of(arena, m, other);
    for (uint32_t i = 0; i < mine.len; i++)
        for (uint32_t k = 0; k < theirs.len; k++) {
            const Access *a = &mine.data[i], *b = &theirs.data[k];
            uint64_t begin = a->begin > b->begin ? a->begin : b->begin;
            uint64_t end = a->end < b->end ? a->end : b->end;
            if (begin >= end || !(a->write || b->write))
                continue;
            FgWhy why = grounds(m, a, b);
            bool better = out.value == FG_NO_ID || why < out.why ||
                          (why == out.why && end - begin > out.bytes);
            if (better)
                out = (FgAwaited){why, other->id, b->value, end - begin};
        }
    return out;
}

static const FgFunc *func_of(const FgModule *m, uint32_t node, uint32_t *out_at)
{
    for (uint32_t f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.data[f].order.len; i++)
            if (m->funcs.data[f].order.data[i] == node) {
                *out_at = i;
                return &m->funcs.data[f];
            }
    FG_BUG("node %u stands in no function", node);
}

/* The work before a node on its stream; FG_NO_ID when there is none. */
static uint32_t forerunner(const FgModule *m, const FgSimNode *run, uint32_t id)
{
    uint32_t at;
    const FgFunc *func = func_of(m, id, &at);
    while (at-- > 0) {
        const FgNode *before = &m->nodes.data[func->order.data[at]];
        if (before->stream == m->nodes.data[id].stream &&
            run[before->id].end_us > run[before->id].start_us)
            return before->id;
    }
    return FG_NO_ID;
}

FgAwaitedVec fg_awaits(FgArena *arena, const FgModule *sched, const FgSimNode *run, uint32_t id)
{
    FgAwaitedVec out = {0};
    const FgNode *node = &sched->nodes.data[id];
    uint32_t before = forerunner(sched, run, id);
    if (before != FG_NO_ID) {
        FgAwaited engine = {FG_WHY_ENGINE, before, FG_NO_ID, 0};
        fg_vec_push(arena, &out, engine);
    }
    for (uint32_t i = 0; i < node->n_waits; i++)
        fg_vec_push(arena, &out, compare(arena, sched, node, &sched->nodes.data[node->waits[i]]));
    return out;
}

FgAwaited fg_decides(FgArena *arena, const FgModule *sched, const FgSimNode *run, uint32_t id)
{
    FgAwaitedVec all = fg_awaits(arena, sched, run, id);
    FgAwaited out = {FG_WHY_START, FG_NO_ID, FG_NO_ID, 0};
    for (uint32_t i = 0; i < all.len; i++)
        if (out.node == FG_NO_ID || run[all.data[i].node].end_us > run[out.node].end_us)
            out = all.data[i];
    return out.node != FG_NO_ID && run[out.node].end_us > 0.0
               ? out
               : (FgAwaited){FG_WHY_START, FG_NO_ID, FG_NO_ID, 0};
}

/* ---- room for a gather ---- */
typedef struct Room {
    FgArena *arena;
    const FgModule *m;
    FgIntervalVec intervals;
    FgIdVec timeline;
    uint64_t *live; /* by position */
    uint64_t arena_budget;
} Room;

static bool covers(const FgInterval *it, uint32_t at)
{
    return it->begin <= it->end ? it->begin <= at && at <= it->end
                                : at >= it->begin || at <= it->end;
}

static void room_init(Room *r, FgArena *arena, const FgModule *m, uint64_t budget)
{
    uint32_t len;
    *r = (Room){.arena = arena, .m = m, .timeline = fg_timeline(arena, m)};
    r->arena_budget = budget > m->state_bytes ? budget - m->state_bytes : 0;
    FgIntervalVec all = {0};
    fg_intervals(arena, m, &all, &len);
    r->intervals = fg_intervals_in(arena, m, &all, false);
    int64_t *change = FG_NEW_ARRAY(arena, int64_t, (size_t)len + 1), live = 0;
    r->live = FG_NEW_ARRAY(arena, uint64_t, (size_t)len + 1);
    for (uint32_t i = 0; i < r->intervals.len; i++) {
        const FgInterval *x = &r->intervals.data[i];
        change[x->begin] += (int64_t)x->bytes;
        change[x->end + 1] -= (int64_t)x->bytes;
        live += x->end < x->begin ? (int64_t)x->bytes : 0;
    }
    for (uint32_t at = 0; at < len; at++) {
        live += change[at];
        r->live[at] = (uint64_t)live;
    }
}

static int by_bytes(const void *a, const void *b)
{
    const FgTenant *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->place, y->place);
}

/* A bucket's buffer by the bucket, another value by the layer of the node that makes it. */
static FgTenant tenant_of(const Room *r, const FgInterval *it)
{
    const FgModule *m = r->m;
    const FgValue *value = &m->values.data[it->value];
    FgTenant out = {value->mem, FG_PHASE_START, value->name, it->bytes, 1};
    const FgNode *def = &m->nodes.data[r->timeline.data[it->begin]];
    if (def->bucket != FG_NO_ID)
        out.place = m->buckets.data[def->bucket].name;
    else
        out.place = fg_node_place(r->arena, def);
    out.phase = def->phase;
    return out;
}

static void list_tenants(Room *r, uint32_t at, FgRoom *out)
{
    for (uint32_t i = 0; i < r->intervals.len; i++) {
        if (!covers(&r->intervals.data[i], at))
            continue;
        FgTenant one = tenant_of(r, &r->intervals.data[i]);
        uint32_t k = 0;
        while (k < out->tenants.len &&
               (out->tenants.data[k].mem != one.mem || out->tenants.data[k].phase != one.phase ||
                strcmp(out->tenants.data[k].place, one.place) != 0))
            k++;
        if (k == out->tenants.len) {
            fg_vec_push(r->arena, &out->tenants, one);
        } else {
            out->tenants.data[k].bytes += one.bytes;
            out->tenants.data[k].values++;
        }
    }
    if (out->tenants.len)
        qsort(out->tenants.data, out->tenants.len, sizeof *out->tenants.data, by_bytes);
}

static bool writes(const FgModule *m, const FgNode *node, uint32_t root)
{
    for (uint32_t i = 0; i < node->n_results; i++)
        if (node->results[i] != FG_NO_ID && root_of(m, node->results[i]) == root)
            return true;
    return false;
}

/* Is the node one before which the gather may not stand, whatever the memory? */
static bool bars(const FgModule *m, const FgNode *gather, const FgNode *node, FgBarrier *out)
{
    if (node->op == FG_OP_release && node->bucket != FG_NO_ID && node->bucket == gather->bucket) {
        *out = FG_BARRIER_RELEASE;
        return true;
    }
    *out = FG_BARRIER_UPDATE;
    return writes(m, node, root_of(m, gather->operands[0]));
}

void fg_gather_room(FgArena *arena, const FgModule *sched, uint64_t budget, uint32_t gather,
                    FgRoom *out)
{
    Room r;
    uint32_t at, before = 0;
    const FgNode *node = &sched->nodes.data[gather];
    const FgFunc *func = func_of(sched, gather, &at);
    room_init(&r, arena, sched, budget);
    while (r.timeline.data[before] != func->order.data[0])
        before++; /* positions of the timeline that other functions take */
    *out = (FgRoom){.barrier = FG_BARRIER_START, .node = FG_NO_ID};
    out->needs_bytes = fg_type_bytes(sched->values.data[root_of(sched, node->results[0])].type);
    while (at-- > 0) {
        const FgNode *other = &sched->nodes.data[func->order.data[at]];
        uint64_t live = r.live[before + at];
        bool fits = live + out->needs_bytes <= r.arena_budget;
        if (bars(sched, node, other, &out->barrier)) {
            out->node = other->id;
            return;
        }
        if (fits) {
            out->earlier += fg_node_is_compute(other);
            continue;
        }
        out->barrier = FG_BARRIER_MEMORY;
        out->node = other->id;
        out->live_bytes = live;
        out->left_bytes = r.arena_budget > live ? r.arena_budget - live : 0;
        list_tenants(&r, before + at, out);
        return;
    }
    out->barrier = FG_BARRIER_START;
}
