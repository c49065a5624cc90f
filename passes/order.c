/* order: streams, and the place of gathers and holds in the issue order.
 *
 * dist -> sched. Gathers, reductions and what follows a reduction (norm, AdamW: on the copy
 * stream) have streams of their own; everything else is compute. A gather is issued `ahead` compute
 * nodes before its first use, never before the bucket's release of an earlier interval or its
 * update; several at one place stand in order of need. A gradient buffer with `linger` is held that
 * many compute nodes beyond the issue of its reduction, and a gradient slice with `settle` beyond
 * the issue of its update, so that their memory is not wanted before it is likely to be free.
 */
#include "passes/lower.h"

#include <stdlib.h>
#include <string.h>

typedef struct Insert {
    uint32_t
        before;   /* compute node, counted from 0 in the function; the count itself: at the end */
    uint32_t key; /* order among those at one place */
    uint32_t node;
} Insert;

typedef FG_VEC(Insert) Inserts;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    uint32_t *plan_first; /* bucket -> its first gather in the plan */
    uint32_t *seen;       /* bucket -> gathers met in this function */
    uint32_t *floor;      /* bucket -> first compute node before which its next gather may stand */
    Inserts inserts;
} Cx;

static FgStream stream_of(FgOp op)
{
    switch ((int)op) {
    case FG_OP_gather:
        return FG_STREAM_GATHER;
    case FG_OP_reduce_scatter:
    case FG_OP_exchange:
    case FG_OP_collect:
    case FG_OP_return_rows:
    case FG_OP_lookup_dw:
    case FG_OP_all_reduce:
    case FG_OP_clip_factor:
        return FG_STREAM_REDUCE;
    case FG_OP_norm_add: /* bound by memory, while the link goes on with the next reduction */
    case FG_OP_adamw:
        return FG_STREAM_COPY;
    default:
        return FG_STREAM_COMPUTE;
    }
}

static void place_views(FgModule *m, const FgNode *node)
{
    if (node->op != FG_OP_reshape)
        return;
    const FgValue *x = fg_value(m, node->operands[0]);
    FgValue *y = fg_value(m, node->results[0]);
    y->root = x->root;
    y->root_offset = x->root_offset;
    y->mem = x->mem;
}

static void plan_gather(Cx *cx, const FgNode *node, uint32_t first_use)
{
    const FgPlan *plan = cx->m->plan;
    uint32_t b = node->bucket;
    int64_t ahead = plan->gathers.data[cx->plan_first[b] + cx->seen[b]++].ahead;
    uint32_t before = ahead > (int64_t)first_use ? 0 : (uint32_t)(first_use - ahead);
    if (before < cx->floor[b])
        before = cx->floor[b];
    Insert insert = {before, first_use, node->id};
    fg_vec_push(cx->scratch, &cx->inserts, insert);
}

/* Holds `value`, which `reader` reads last, for `nodes` more compute nodes. */
static void plan_hold(Cx *cx, FgNode reader, uint32_t value, uint32_t n_compute, int64_t nodes)
{
    FgIdVec unplaced = {0};
    FgBuilder build = {cx->m,        &unplaced,    reader.loc, reader.name,
                       reader.phase, reader.layer, reader.id};
    FgNode *node = fg_node_new(&build, FG_OP_hold, &value, 1);
    node->bucket = reader.bucket;
    Insert insert = {n_compute + (uint32_t)nodes, 0, node->id};
    fg_node_finish_into(&build, node, NULL, 0);
    fg_vec_push(cx->scratch, &cx->inserts, insert);
}

static void plan_holds(Cx *cx, FgNode node, uint32_t n_compute)
{
    if (node.op != FG_OP_reduce_scatter && node.op != FG_OP_adamw)
        return;
    const FgPlanBucket *plan = &cx->m->plan->buckets.data[node.bucket];
    if (node.op == FG_OP_reduce_scatter && plan->linger > 0)
        plan_hold(cx, node, node.operands[0], n_compute, plan->linger);
    if (node.op == FG_OP_adamw && plan->settle > 0)
        plan_hold(cx, node, cx->m->buckets.data[node.bucket].grad_shard, n_compute, plan->settle);
}

/* Sets streams and finds out where gathers and holds go; returns the other nodes in order. */
static FgIdVec scan(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    FgIdVec rest = {0};
    uint32_t n_compute = 0;
    for (uint32_t i = 0; i < old->len; i++) {
        FgNode *node = fg_node(m, old->data[i]);
        node->stream = stream_of(node->op);
        place_views(m, node);
        if (node->op == FG_OP_gather) {
            plan_gather(cx, node, n_compute);
            continue;
        }
        fg_vec_push(m->arena, &rest, old->data[i]);
        if (node->op == FG_OP_release)
            cx->floor[node->bucket] = n_compute;
        n_compute += fg_node_is_compute(node);
        plan_holds(cx, *node, n_compute);
    }
    return rest;
}

static int by_place(const void *a, const void *b)
{
    const Insert *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void merge(Cx *cx, FgFunc *func, const FgIdVec *rest)
{
    FgModule *m = cx->m;
    if (cx->inserts.len > 0)
        qsort(cx->inserts.data, cx->inserts.len, sizeof *cx->inserts.data, by_place);
    FgIdVec order = {0};
    uint32_t n_compute = 0, at = 0;
    for (uint32_t i = 0; i < rest->len; i++) {
        const FgNode *node = fg_node(m, rest->data[i]);
        bool compute = fg_node_is_compute(node);
        if (compute || fg_node_is_name(node)) /* the views of a gather stand before its first use */
            for (; at < cx->inserts.len && cx->inserts.data[at].before <= n_compute; at++)
                fg_vec_push(m->arena, &order, cx->inserts.data[at].node);
        n_compute += compute;
        fg_vec_push(m->arena, &order, rest->data[i]);
    }
    for (; at < cx->inserts.len; at++)
        fg_vec_push(m->arena, &order, cx->inserts.data[at].node);
    func->order = order;
}

static void order_function(Cx *cx, uint32_t f)
{
    FgModule *m = cx->m;
    memset(cx->seen, 0, m->buckets.len * sizeof *cx->seen);
    memset(cx->floor, 0, m->buckets.len * sizeof *cx->floor);
    cx->inserts = (Inserts){0};
    FgIdVec rest = scan(cx, &m->funcs.data[f].order);
    merge(cx, &m->funcs.data[f], &rest);
}

FgPassResult fg_pass_order(FgPassCx *pass)
{
    FgModule *m = pass->module;
    Cx cx = {.m = m, .scratch = pass->scratch};
    cx.plan_first = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    cx.seen = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    cx.floor = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    for (uint32_t i = m->plan->gathers.len; i > 0; i--)
        cx.plan_first[m->plan->gathers.data[i - 1].bucket] = i - 1;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        order_function(&cx, f);
    m->level = FG_LEVEL_SCHED;
    return FG_PASS_CHANGED;
}
