/* order: streams, and the place of gathers, fetches and holds in the issue order.
 *
 * dist -> sched. Gathers, reductions and what follows a reduction (norm, AdamW: on the copy
 * stream) have streams of their own; everything else is compute. A gather is issued `ahead` compute
 * nodes before its first use, never before the bucket's release of an earlier interval or its
 * update; several at one place stand in order of need. A gather round the period is counted from
 * the first use of the next one, and stands behind its bucket's update and the release of the copy
 * before. What a gather or a backward node needs from host memory is fetched as many compute nodes
 * earlier as the fetch says. A gradient buffer with `linger` is held that many compute nodes beyond
 * the issue of its reduction, and a gradient slice with `settle` beyond the issue of its update, so
 * that their memory is not wanted before it is likely to be free; what is stashed, likewise.
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
    uint32_t *updated;    /* bucket -> the same for a gather behind its update */
    uint32_t *first_read; /* bucket -> compute nodes before the first that reads a carried copy */
    uint32_t *stashed;    /* value -> compute nodes before its stash; 0 for other values */
    uint32_t shard_fetch; /* the fetch for the gather that follows, or FG_NO_ID */
    Inserts inserts;
} Cx;

static FgStream stream_of(FgOp op)
{
    switch ((int)op) {
    case FG_OP_gather:
        return FG_STREAM_GATHER;
    case FG_OP_reduce_scatter:
    case FG_OP_all_to_all:
    case FG_OP_exchange:
    case FG_OP_collect:
    case FG_OP_return_rows:
    case FG_OP_lookup_dw:
    case FG_OP_all_reduce:
    case FG_OP_loss_scale: /* out of compute's way; its first reader is the loss */
    case FG_OP_clip_factor:
    case FG_OP_scale_step:
        return FG_STREAM_REDUCE;
    case FG_OP_norm_add: /* bound by memory, while the link goes on with the next reduction */
    case FG_OP_adamw:
    case FG_OP_adamw_part:
    case FG_OP_adamw_rows:
    case FG_OP_row_set:
    case FG_OP_adamw_parts:
        return FG_STREAM_COPY;
    case FG_OP_stash:
        return FG_STREAM_STASH;
    case FG_OP_fetch:
        return FG_STREAM_FETCH;
    default:
        return FG_STREAM_COMPUTE;
    }
}

static void place_views(FgModule *m, const FgNode *node)
{
    if (node->op != FG_OP_reshape && node->op != FG_OP_rows)
        return;
    const FgValue *x = fg_value(m, node->operands[0]);
    FgValue *y = fg_value(m, node->results[0]);
    y->root = x->root;
    y->root_offset = x->root_offset + fg_view_offset(m, node);
    y->mem = x->mem;
}

/* Issues a fetch as many compute nodes before `need` as it says, never before `floor`. */
static void plan_fetch(Cx *cx, uint32_t id, uint32_t need, uint32_t floor, uint32_t first_use)
{
    int64_t ahead = fg_node_attr(fg_node(cx->m, id), "ahead")->i;
    uint32_t before = ahead > (int64_t)need ? 0 : (uint32_t)(need - ahead);
    Insert insert = {before < floor ? floor : before, 2 * first_use, id};
    fg_vec_push(cx->scratch, &cx->inserts, insert);
}

/* A gather stands where its first use is, or, for the next period, behind `n_compute` nodes of
 * this one: its first use lies as far behind the end as in this period behind the begin. */
static void plan_gather(Cx *cx, const FgNode *node, uint32_t n_compute)
{
    const FgPlan *plan = cx->m->plan;
    uint32_t b = node->bucket, first_use = n_compute, floor = cx->floor[b];
    const FgPlanGather *g = &plan->gathers.data[cx->plan_first[b]];
    if (g->round && fg_is_carried(cx->m, node->results[0])) {
        first_use += cx->first_read[b] == FG_NO_ID ? 0 : cx->first_read[b];
        floor = cx->updated[b] > floor ? cx->updated[b] : floor; /* a frozen one has no update */
    } else {
        g += cx->seen[b]++ + g->round;
    }
    uint32_t before = g->ahead > (int64_t)first_use ? 0 : (uint32_t)(first_use - g->ahead);
    if (before < floor)
        before = floor;
    if (cx->shard_fetch != FG_NO_ID)
        plan_fetch(cx, cx->shard_fetch, before, 0, first_use);
    cx->shard_fetch = FG_NO_ID;
    Insert insert = {before, 2 * first_use + 1, node->id};
    fg_vec_push(cx->scratch, &cx->inserts, insert);
}

/* A fetch that belongs to a gather stands before that; one of an activation before its use; those
 * of an update stay where they are. */
static bool takes_fetch(Cx *cx, const FgNode *node, uint32_t n_compute)
{
    if (node->op != FG_OP_fetch || node->phase == FG_PHASE_UPDATE || node->phase == FG_PHASE_START)
        return false;
    if (node->bucket != FG_NO_ID)
        cx->shard_fetch = node->id;
    else
        plan_fetch(cx, node->id, n_compute, cx->stashed[node->operands[0]], n_compute);
    return true;
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

/* Does the update end with this node? */
static bool ends_update(const FgModule *m, const FgNode *node)
{
    if (node->op == FG_OP_adamw_rows)
        return fg_node_attr(node, "named")->i != 0;
    if (node->op != FG_OP_adamw_part)
        return node->op == FG_OP_adamw || node->op == FG_OP_adamw_parts;
    const FgType *part = m->values.data[node->operands[0]].type;
    int64_t slice = (int64_t)(m->buckets.data[node->bucket].elements / m->ranks);
    return fg_node_attr(node, "first")->i + fg_type_elements(part) == slice;
}

static void plan_holds(Cx *cx, FgNode node, uint32_t n_compute)
{
    int64_t linger = node.op == FG_OP_stash ? fg_node_attr(&node, "linger")->i : 0;
    if (node.op == FG_OP_stash)
        cx->stashed[node.results[0]] = n_compute;
    if (linger > 0)
        plan_hold(cx, node, node.operands[0], n_compute, linger);
    bool ends = ends_update(cx->m, &node);
    bool reduces = node.op == FG_OP_reduce_scatter || node.op == FG_OP_all_to_all;
    if (!reduces && !ends)
        return;
    const FgPlanBucket *plan = &cx->m->plan->buckets.data[node.bucket];
    if (reduces && plan->linger > 0)
        plan_hold(cx, node, node.operands[0], n_compute, plan->linger);
    if (ends && plan->settle > 0)
        plan_hold(cx, node, cx->m->buckets.data[node.bucket].grad_shard, n_compute, plan->settle);
}

/* Remembers the first read of each carried copy. */
static void note_read(Cx *cx, const FgNode *node, uint32_t n_compute)
{
    for (uint32_t k = 0; k < node->n_operands && fg_node_is_compute(node); k++) {
        uint32_t v = node->operands[k];
        uint32_t root = v == FG_NO_ID ? FG_NO_ID : fg_value(cx->m, v)->root;
        if (root == FG_NO_ID || !fg_is_carried(cx->m, root))
            continue;
        uint32_t *first = &cx->first_read[fg_value(cx->m, root)->index];
        if (*first == FG_NO_ID)
            *first = n_compute;
    }
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
        if (takes_fetch(cx, node, n_compute))
            continue;
        if (node->op == FG_OP_gather) {
            plan_gather(cx, node, n_compute);
            continue;
        }
        fg_vec_push(m->arena, &rest, old->data[i]);
        if (node->op == FG_OP_release)
            cx->floor[node->bucket] = n_compute;
        if (ends_update(m, node)) /* stands before the next compute node, behind some names */
            cx->updated[node->bucket] = n_compute + 1;
        note_read(cx, node, n_compute);
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

/* Names what some node makes, and so must stand after it; a part of a state is always there. */
static bool names_result(FgModule *m, const FgNode *node)
{
    return fg_op_has(node->op, FG_OPF_VIEW) &&
           fg_value(m, fg_value(m, node->operands[0])->root)->kind == FG_VALUE_RESULT;
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
        if (compute || names_result(m, node)) /* the views of a gather stand before its first use */
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
    memset(cx->updated, 0, m->buckets.len * sizeof *cx->updated);
    memset(cx->first_read, 0xff, m->buckets.len * sizeof *cx->first_read);
    cx->inserts = (Inserts){0};
    cx->shard_fetch = FG_NO_ID;
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
    cx.updated = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    cx.first_read = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    cx.stashed = FG_NEW_ARRAY(pass->scratch, uint32_t, m->values.len + 1);
    for (uint32_t i = m->plan->gathers.len; i > 0; i--)
        cx.plan_first[m->plan->gathers.data[i - 1].bucket] = i - 1;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        order_function(&cx, f);
    m->level = FG_LEVEL_SCHED;
    return FG_PASS_CHANGED;
}
