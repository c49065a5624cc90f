/* Circular liveness, and the ledger read off it.
 *
 * A root value (one that owns memory; views and in-place results share their root's) is born by a
 * *fresh* write: a node that has the root itself among its results, does not read it, and does not
 * accumulate into it. It lives to the last node that touches it or an alias of it before the next
 * fresh write; a `release` touches what it names, so a life can be stretched by one. The period is
 * a circle: accesses before the first fresh write of a period belong to the life that began in the
 * period before, and that interval wraps. One walk in issue order finds all intervals, in time
 * linear in the accesses.
 *
 * Views are names: a view node is no access.
 *
 *   0  %g = gather %s          %g: [0, 3]
 *   1  %w = view %g
 *   2  %y = linear %x, %w      %y: [2, 2]
 *   3  release %g
 */
#include "passes/liveness.h"

#include "base/checked.h"
#include "ir/op_table.h"
#include "passes/compile.h"
#include "passes/lower.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

/* What the walk knows of a root. */
typedef struct Life {
    uint32_t begin, last; /* the open stretch; begin NEVER: none yet in this walk */
    uint32_t head;        /* last access before the first fresh write; NEVER: none */
    bool everywhere;      /* lives across the cut: covers the functions after the period too */
} Life;

typedef struct Walk {
    FgArena *arena;
    const FgModule *module;
    FgIntervalVec *out;
    Life *lives;     /* by value id */
    FgIdVec touched; /* roots of the current walk */
    uint32_t total;
} Walk;

static bool is_period(const FgFunc *func)
{
    return !strcmp(func->name, "step") || !strcmp(func->name, "first") ||
           !strcmp(func->name, "middle") || !strcmp(func->name, "last");
}

static const FgFunc *func_named(const FgModule *module, const char *name)
{
    for (uint32_t i = 0; i < module->funcs.len; i++)
        if (!strcmp(module->funcs.data[i].name, name))
            return &module->funcs.data[i];
    return NULL;
}

static void append(FgArena *arena, FgIdVec *out, const FgFunc *func)
{
    for (uint32_t i = 0; func && i < func->order.len; i++)
        fg_vec_push(arena, out, func->order.data[i]);
}

/* The period's functions in the order in which they run, then the others; *out_period counts the
 * former's nodes. */
static FgIdVec timeline(FgArena *arena, const FgModule *module, uint32_t *out_period)
{
    static const char *const period[] = {"step", "first", "middle", "last"};
    FgIdVec out = {0};
    for (uint32_t i = 0; i < sizeof period / sizeof *period; i++)
        append(arena, &out, func_named(module, period[i]));
    *out_period = out.len;
    for (uint32_t i = 0; i < module->funcs.len; i++)
        if (!is_period(&module->funcs.data[i]))
            append(arena, &out, &module->funcs.data[i]);
    return out;
}

FgIdVec fg_timeline(FgArena *arena, const FgModule *sched)
{
    uint32_t period;
    return timeline(arena, sched, &period);
}

static uint32_t root_of(const FgModule *module, uint32_t value)
{
    while (module->values.data[value].root != value)
        value = module->values.data[value].root;
    return value;
}

/* Does the value's memory come and go, instead of standing in the state region? */
static bool comes_and_goes(const FgModule *module, const FgValue *value)
{
    if (value->kind != FG_VALUE_STATE)
        return value->kind == FG_VALUE_RESULT;
    if (value->host)
        return false;
    if (value->offset != FG_NO_OFFSET)
        return value->offset >= module->state_bytes;
    return value->role == FG_ROLE_GRAD_SHARD || value->role == FG_ROLE_GATHERED ||
           value->role == FG_ROLE_GRADIENTS;
}

/* Does a node read what this result held? */
static bool accumulates(const FgNode *node, uint32_t result)
{
    return node->op == FG_OP_adamw_part || fg_node_accumulates(node, result);
}

static void emit(Walk *walk, uint32_t value, uint32_t begin, uint32_t end)
{
    FgInterval interval = {value, fg_type_bytes(walk->module->values.data[value].type), begin, end};
    fg_vec_push(walk->arena, walk->out, interval);
}

static void touch(Walk *walk, uint32_t root, uint32_t at, bool fresh)
{
    if (!comes_and_goes(walk->module, &walk->module->values.data[root]))
        return;
    Life *life = &walk->lives[root];
    if (life->begin == NEVER && life->head == NEVER)
        fg_vec_push(walk->arena, &walk->touched, root);
    if (fresh) {
        if (life->begin != NEVER && life->begin != at)
            emit(walk, root, life->begin, life->last);
        life->begin = life->last = at;
    } else if (life->begin != NEVER) {
        life->last = at;
    } else {
        life->head = at;
    }
}

static void visit(Walk *walk, const FgNode *node, uint32_t at)
{
    const FgModule *module = walk->module;
    if (fg_op_info(node->op)->flags & FG_OPF_VIEW)
        return;
    for (uint32_t i = 0; i < node->n_operands; i++)
        if (node->operands[i] != FG_NO_ID)
            touch(walk, root_of(module, node->operands[i]), at, false);
    for (uint32_t i = 0; i < node->n_results; i++) {
        uint32_t id = node->results[i];
        if (id == FG_NO_ID)
            continue;
        uint32_t root = root_of(module, id);
        bool reads = accumulates(node, i);
        for (uint32_t j = 0; j < node->n_operands && !reads; j++)
            reads = node->operands[j] != FG_NO_ID && root_of(module, node->operands[j]) == root;
        touch(walk, root, at, id == root && !reads);
    }
}

/* Closes the lives of the period: what was read before it was written came from the period before.
 */
static void close_period(Walk *walk)
{
    for (uint32_t i = 0; i < walk->touched.len; i++) {
        Life *life = &walk->lives[walk->touched.data[i]];
        if (life->head == NEVER) {
            emit(walk, walk->touched.data[i], life->begin, life->last);
        } else {
            life->everywhere = true;
            if (life->begin == NEVER)
                emit(walk, walk->touched.data[i], 0, walk->total - 1);
            else
                emit(walk, walk->touched.data[i], life->begin, life->head);
        }
        life->begin = life->last = life->head = NEVER;
    }
    walk->touched.len = 0;
}

/* Closes the lives of a function that stands alone, whose nodes begin at `start`. */
static void close_alone(Walk *walk, uint32_t start)
{
    for (uint32_t i = 0; i < walk->touched.len; i++) {
        Life *life = &walk->lives[walk->touched.data[i]];
        if (!life->everywhere) {
            if (life->head != NEVER)
                emit(walk, walk->touched.data[i], start, life->head);
            if (life->begin != NEVER)
                emit(walk, walk->touched.data[i], life->begin, life->last);
        }
        life->begin = life->last = life->head = NEVER;
    }
    walk->touched.len = 0;
}

static int by_begin(const void *a, const void *b)
{
    const FgInterval *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

void fg_intervals(FgArena *arena, const FgModule *sched, FgIntervalVec *out,
                  uint32_t *out_timeline_len)
{
    uint32_t period;
    FgIdVec order = timeline(arena, sched, &period);
    Walk walk = {.arena = arena, .module = sched, .out = out, .total = order.len};
    walk.lives = FG_NEW_ARRAY(arena, Life, sched->values.len);
    for (uint32_t i = 0; i < sched->values.len; i++)
        walk.lives[i] = (Life){NEVER, NEVER, NEVER, false};
    out->len = 0;
    uint32_t at = 0;
    for (; at < period; at++)
        visit(&walk, &sched->nodes.data[order.data[at]], at);
    close_period(&walk);
    for (uint32_t i = 0; i < sched->funcs.len; i++) {
        const FgFunc *func = &sched->funcs.data[i];
        if (is_period(func))
            continue;
        uint32_t start = at;
        for (uint32_t k = 0; k < func->order.len; k++, at++)
            visit(&walk, &sched->nodes.data[order.data[at]], at);
        close_alone(&walk, start);
    }
    if (out->len)
        qsort(out->data, out->len, sizeof *out->data, by_begin);
    *out_timeline_len = order.len;
}

FgIntervalVec fg_intervals_in(FgArena *arena, const FgModule *sched, const FgIntervalVec *all,
                              bool host)
{
    FgIntervalVec out = {0};
    for (uint32_t i = 0; i < all->len; i++)
        if (sched->values.data[all->data[i].value].host == host)
            fg_vec_push(arena, &out, all->data[i]);
    return out;
}

uint64_t fg_intervals_peak(FgArena *arena, const FgIntervalVec *intervals, uint32_t timeline_len,
                           uint32_t *out_position)
{
    uint64_t *begins = FG_NEW_ARRAY(arena, uint64_t, (size_t)timeline_len + 1);
    uint64_t *ends = FG_NEW_ARRAY(arena, uint64_t, (size_t)timeline_len + 1);
    uint64_t live = 0, peak = 0;
    *out_position = 0;
    for (uint32_t i = 0; i < intervals->len; i++) {
        const FgInterval *it = &intervals->data[i];
        begins[it->begin] += it->bytes;
        ends[it->end] += it->bytes;
        live += it->end < it->begin ? it->bytes : 0;
    }
    for (uint32_t at = 0; at < timeline_len; at++) {
        live += begins[at];
        if (live > peak) {
            peak = live;
            *out_position = at;
        }
        live -= ends[at];
    }
    return peak;
}

/* ---- ledger ---- */

static bool covers(const FgInterval *it, uint32_t at)
{
    return it->begin <= it->end ? it->begin <= at && at <= it->end
                                : at >= it->begin || at <= it->end;
}

static int by_offset(const void *a, const void *b)
{
    const FgValue *x = *(const FgValue *const *)a, *y = *(const FgValue *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* States of one memory by class. Bytes between two states (alignment) count with the state before
 * them. */
static void count_states(FgArena *scratch, const FgModule *sched, bool host, uint64_t *by_class)
{
    uint64_t low = host ? FG_HOST_BASE : 0,
             high = low + (host ? sched->host_state_bytes : sched->state_bytes);

    FG_VEC(const FgValue *) states = {0};
    for (uint32_t i = 0; i < sched->values.len; i++) {
        const FgValue *value = &sched->values.data[i];
        if (value->kind != FG_VALUE_STATE || value->root != value->id || value->host != host ||
            comes_and_goes(sched, value))
            continue;
        if (value->offset == FG_NO_OFFSET)
            by_class[value->mem] += fg_type_bytes(value->type);
        else
            fg_vec_push(scratch, &states, value);
    }
    if (states.len)
        qsort(states.data, states.len, sizeof *states.data, by_offset);
    for (uint32_t i = 0; i < states.len; i++) {
        uint64_t end = i + 1 < states.len ? states.data[i + 1]->offset : high;
        uint64_t begin = i ? states.data[i]->offset : low;
        by_class[states.data[i]->mem] += end - begin;
    }
}

const char *fg_node_place(FgArena *arena, const FgNode *node)
{
    if (node->layer < 0)
        return node->name;
    const char *number = fg_arena_printf(arena, ".%d", (int)node->layer);
    for (const char *hit = strstr(node->name, number); hit; hit = strstr(hit + 1, number)) {
        const char *end = hit + strlen(number);
        if (*end == '.' || !*end)
            return fg_arena_strndup(arena, node->name, (size_t)(end - node->name));
    }
    return fg_arena_printf(arena, "layer %d", (int)node->layer);
}

/* Host memory by class, where most of it is in use. */
static void count_host(FgArena *scratch, const FgModule *sched, const FgIntervalVec *all,
                       uint32_t len, FgLedger *out)
{
    FgIntervalVec intervals = fg_intervals_in(scratch, sched, all, true);
    uint32_t at;
    out->host_bytes = sched->host_state_bytes + sched->host_arena_bytes;
    count_states(scratch, sched, true, out->host_by_class);
    fg_intervals_peak(scratch, &intervals, len, &at);
    for (uint32_t i = 0; i < intervals.len; i++)
        if (covers(&intervals.data[i], at))
            out->host_by_class[sched->values.data[intervals.data[i].value].mem] +=
                intervals.data[i].bytes;
}

void fg_ledger(FgArena *scratch, const FgModule *sched, FgLedger *out)
{
    *out = (FgLedger){.peak_node = FG_NO_ID, .peak_phase = ""};
    FgIntervalVec all = {0};
    uint32_t len, at;
    fg_intervals(scratch, sched, &all, &len);
    FgIntervalVec intervals = fg_intervals_in(scratch, sched, &all, false);
    for (uint32_t i = 0; i < intervals.len; i++) /* as placed: what alignment takes goes with it */
        intervals.data[i].bytes = fg_round_up(intervals.data[i].bytes, FG_ALIGN_BYTES);
    count_host(scratch, sched, &all, len, out);
    count_states(scratch, sched, false, out->by_class);
    out->arena_bound_bytes = fg_intervals_peak(scratch, &intervals, len, &at);
    out->arena_bytes = sched->arena_bytes;
    out->peak_bytes = sched->state_bytes + sched->arena_bytes;
    out->unused_bytes = sched->arena_bytes > out->arena_bound_bytes
                            ? sched->arena_bytes - out->arena_bound_bytes
                            : 0;
    for (uint32_t i = 0; i < intervals.len; i++)
        if (covers(&intervals.data[i], at))
            out->by_class[sched->values.data[intervals.data[i].value].mem] +=
                intervals.data[i].bytes;
    if (!len)
        return;
    const FgNode *node = &sched->nodes.data[fg_timeline(scratch, sched).data[at]];
    const char *place = fg_node_place(scratch, node);
    out->peak_node = node->id;
    out->peak_phase = *place ? fg_arena_printf(scratch, "%s %s", fg_phase_name(node->phase), place)
                             : fg_phase_name(node->phase);
}
