/* offload: what the plan keeps in pinned host memory, and the copies that bring it.
 *
 * dist -> dist, between `reduce` and `update`. States of a bucket that the plan offloads are marked
 * as lying in host memory; `update` then works on them in parts (update_parts.c). A gather of such
 * a shard reads a copy that a `fetch` brings. An activation of the plan is stashed after its last
 * use in forward and fetched before its first use in backward, where a copy of it, with views made
 * again, takes its place. How early a fetch is issued and how long a stash holds its memory are
 * attributes, which `order` obeys.
 *
 *   %y = linear %x, %w                 %y = linear %x, %w
 *   ...                                %h = stash %x                     host
 *   %d = linear_dw %x, %dy       ->    ...
 *                                      %x2 = fetch %h
 *                                      %d = linear_dw %x2, %dy
 *
 * Cost: linear in nodes and stashes. */
#include "passes/lower.h"

#include <string.h>

/* One stash of the plan, in this function. */
typedef struct Site {
    uint32_t last, first;           /* positions: last use in forward, first in backward */
    uint32_t next_last, next_first; /* of the sites with the same position; FG_NO_ID ends */
    uint32_t host;                  /* the value in host memory */
} Site;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    FgIdVec order;     /* being written */
    Site *sites;       /* by stash of the plan */
    uint32_t *site_of; /* value -> the stash whose value it names; FG_NO_ID */
    uint32_t *copy;    /* value -> its second self in backward; FG_NO_ID: none yet */
    uint32_t n_values;
    uint32_t *plan_first, *seen; /* bucket -> its first gather in the plan; gathers met */
} Cx;

/* ---- states ---- */

static bool mark(FgModule *m, uint32_t state)
{
    if (state == FG_NO_ID)
        return false;
    fg_value(m, state)->host = true;
    return true;
}

static bool mark_states(FgModule *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->buckets.len; i++) {
        const FgBucket *b = &m->buckets.data[i];
        uint32_t offload = m->plan->buckets.data[i].offload;
        if (offload & FG_OFFLOAD_OPTIMIZER) {
            any |= mark(m, b->master);
            any |= mark(m, b->moment1);
            any |= mark(m, b->moment2);
        }
        if (offload & FG_OFFLOAD_PARAMETERS)
            any |= mark(m, b->shard);
    }
    return any;
}

bool fg_bucket_is_offloaded(const FgModule *m, uint32_t bucket)
{
    const FgBucket *b = &m->buckets.data[bucket];
    const uint32_t states[] = {b->shard, b->master, b->moment1, b->moment2};
    for (int i = 0; i < 4; i++)
        if (states[i] != FG_NO_ID && m->values.data[states[i]].host)
            return true;
    return false;
}

/* ---- gathers ---- */

static void fetch_shard(Cx *cx, uint32_t gather)
{
    FgModule *m = cx->m;
    FgNode node = *fg_node(m, gather);
    const FgBucket *b = &m->buckets.data[node.bucket];
    uint32_t shard = b->shard, at = cx->plan_first[node.bucket] + cx->seen[node.bucket]++;
    if (!fg_value(m, shard)->host)
        return;
    FgBuilder build = {m, &cx->order, node.loc, node.name, node.phase, node.layer, FG_NO_ID};
    FgValue old = *fg_value(m, shard);
    uint32_t *operand = FG_NEW_ARRAY(m->arena, uint32_t, 1);
    *operand = fg_add_value(m, old.name, old.type);
    fg_value(m, *operand)->mem = old.mem;
    FgNode *fetch = fg_node_new(&build, FG_OP_fetch, &shard, 1);
    fetch->bucket = node.bucket;
    fg_node_set_int(m, fetch, "ahead", m->plan->gathers.data[at].fetch);
    fg_node_finish_into(&build, fetch, operand, 1);
    fg_node(m, gather)->operands = operand;
}

/* ---- activations ---- */

static bool is_view(const FgNode *node)
{
    return fg_op_has(node->op, FG_OPF_VIEW);
}

static bool bad(const Cx *cx, uint32_t value, const char *why)
{
    fg_diag(cx->m->diags, FG_NOWHERE, FG_D_BAD_PLAN, "the plan stashes value %u, %s", value, why);
    return false;
}

/* Marks the values of the plan's stashes and finds the uses between which each is away. */
static bool find_sites(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    for (uint32_t s = 0; s < m->plan->stashes.len; s++) {
        uint32_t value = m->plan->stashes.data[s].value;
        if (value >= cx->n_values || fg_value(m, value)->kind != FG_VALUE_RESULT)
            return bad(cx, value, "which is no result");
        cx->sites[s] = (Site){FG_NO_ID, FG_NO_ID, FG_NO_ID, FG_NO_ID, FG_NO_ID};
        cx->site_of[value] = s;
    }
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(m, old->data[i]);
        bool backward = node->phase != FG_PHASE_FORWARD;
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t v = node->operands[k];
            Site *site =
                v == FG_NO_ID || cx->site_of[v] == FG_NO_ID ? NULL : &cx->sites[cx->site_of[v]];
            if (site && is_view(node))
                cx->site_of[node->results[0]] = cx->site_of[v];
            if (site && backward && site->first == FG_NO_ID)
                site->first = i;
            else if (site && !backward && !is_view(node))
                site->last = i;
        }
        for (uint32_t k = 0; k < node->n_results && !backward && !is_view(node); k++) {
            uint32_t v = node->results[k];
            if (v != FG_NO_ID && cx->site_of[v] != FG_NO_ID)
                cx->sites[cx->site_of[v]].last = i;
        }
    }
    for (uint32_t s = 0; s < m->plan->stashes.len; s++)
        if (cx->sites[s].last == FG_NO_ID || cx->sites[s].first == FG_NO_ID)
            return bad(cx, m->plan->stashes.data[s].value,
                       "which is not made in forward and used in backward");
    return true;
}

/* Sites by position: the first of each, the others linked behind it. */
static uint32_t *by_position(Cx *cx, uint32_t n, bool last)
{
    uint32_t *heads = FG_NEW_ARRAY(cx->scratch, uint32_t, n + 1);
    memset(heads, 0xff, n * sizeof *heads);
    for (uint32_t s = cx->m->plan->stashes.len; s-- > 0;) {
        Site *site = &cx->sites[s];
        uint32_t at = last ? site->last : site->first;
        *(last ? &site->next_last : &site->next_first) = heads[at];
        heads[at] = s;
    }
    return heads;
}

/* A copy between the value of a stash and its place in host memory. */
static uint32_t move(Cx *cx, uint32_t at, FgOp op, uint32_t from, const char *attr, int64_t number,
                     bool to_host)
{
    FgModule *m = cx->m;
    FgNode beside = *fg_node(m, at);
    FgValue old = *fg_value(m, from);
    FgBuilder build = {m, &cx->order, beside.loc, old.name, beside.phase, beside.layer, old.def};
    uint32_t to = fg_add_value(m, old.name, old.type);
    fg_value(m, to)->mem = old.mem;
    fg_value(m, to)->host = to_host;
    FgNode *node = fg_node_new(&build, op, &from, 1);
    fg_node_set_int(m, node, attr, number);
    fg_node_finish_into(&build, node, &to, 1);
    return to;
}

/* What stands for a name of a stashed value in backward: the fetched copy, or a view of that. */
static uint32_t second_self(Cx *cx, uint32_t value)
{
    FgModule *m = cx->m;
    if (cx->copy[value] != FG_NO_ID)
        return cx->copy[value];
    FgNode def = *fg_node(m, fg_value(m, value)->def);
    uint32_t operand = second_self(cx, def.operands[0]);
    FgValue old = *fg_value(m, value);
    uint32_t copy = fg_add_value(m, old.name, old.type);
    fg_value(m, copy)->mem = old.mem;
    FgBuilder build = {m, &cx->order, def.loc, def.name, FG_PHASE_BACKWARD, def.layer, def.id};
    FgNode *node = fg_node_new(&build, def.op, &operand, 1);
    node->attrs = def.attrs;
    fg_node_finish_into(&build, node, &copy, 1);
    cx->copy[value] = copy;
    return copy;
}

static void take_copies(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgNode node = *fg_node(m, id);
    uint32_t *operands = FG_NEW_ARRAY(m->arena, uint32_t, node.n_operands);
    for (uint32_t k = 0; k < node.n_operands; k++) {
        uint32_t v = operands[k] = node.operands[k];
        if (v != FG_NO_ID && v < cx->n_values && cx->site_of[v] != FG_NO_ID)
            operands[k] = second_self(cx, v);
    }
    fg_node(m, id)->operands = operands;
}

static void write_order(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    const FgPlanStash *stashes = m->plan->stashes.data;
    uint32_t *last = by_position(cx, old->len, true), *first = by_position(cx, old->len, false);
    for (uint32_t i = 0; i < old->len; i++) {
        uint32_t id = old->data[i];
        for (uint32_t s = first[i]; s != FG_NO_ID; s = cx->sites[s].next_first)
            cx->copy[stashes[s].value] =
                move(cx, id, FG_OP_fetch, cx->sites[s].host, "ahead", stashes[s].ahead, false);
        if (fg_node(m, id)->phase != FG_PHASE_FORWARD)
            take_copies(cx, id);
        if (fg_node(m, id)->op == FG_OP_gather)
            fetch_shard(cx, id);
        fg_vec_push(m->arena, &cx->order, id);
        for (uint32_t s = last[i]; s != FG_NO_ID; s = cx->sites[s].next_last)
            cx->sites[s].host =
                move(cx, id, FG_OP_stash, stashes[s].value, "linger", stashes[s].linger, true);
    }
}

FgPassResult fg_pass_offload(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (!m->plan || !fg_pass_is_first(m, FG_OP_fetch, "offload"))
        return m->plan ? FG_PASS_FAILED : FG_PASS_UNCHANGED;
    Cx cx = {.m = m, .scratch = pass->scratch, .n_values = m->values.len};
    if (!mark_states(m) && m->plan->stashes.len == 0)
        return FG_PASS_UNCHANGED;
    FgIdVec old = fg_func(m, "step")->order;
    cx.sites = FG_NEW_ARRAY(pass->scratch, Site, m->plan->stashes.len + 1);
    cx.site_of = FG_NEW_ARRAY(pass->scratch, uint32_t, cx.n_values + 1);
    cx.copy = FG_NEW_ARRAY(pass->scratch, uint32_t, cx.n_values + 1);
    memset(cx.site_of, 0xff, cx.n_values * sizeof *cx.site_of);
    memset(cx.copy, 0xff, cx.n_values * sizeof *cx.copy);
    cx.plan_first = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    cx.seen = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    for (uint32_t i = m->plan->gathers.len; i > 0; i--)
        cx.plan_first[m->plan->gathers.data[i - 1].bucket] = i - 1;
    if (!find_sites(&cx, &old))
        return FG_PASS_FAILED;
    write_order(&cx, &old);
    fg_func(m, "step")->order = cx.order;
    return FG_PASS_CHANGED;
}
