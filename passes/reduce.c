/* reduce: gradients are written into one flat buffer a bucket, and reduced once complete.
 *
 * dist -> dist. A gradient op that can (FG_OPF_ACCUMULATE) writes straight into its parameter's
 * place in the buffer: the first contribution writes, later ones (a tied weight) add in the wire
 * dtype. What no op can write in place is copied by `grad_write`. The buffer begins before its
 * first contribution and is reduced right after its last.
 *
 *   %dw = linear_dw %x, %dy           %g  = grad_buffer
 *   grad %dw {param = 3}         ->   %dw = linear_dw %x, %dy         in %g+256
 *                                     %s  = reduce_scatter %g
 *
 * Where gradients of micro-steps add up whole (fg_sums_whole) the buffer is a state: `update`
 * leaves its begin to the first micro-step and its reduction to the last, and all others add.
 *
 * The gradient of a lookup whose rows travel (fg_rows_travel) never enters the buffer, which need
 * not wait for it: the rows of all ranks are exchanged, and each rank adds those that lie in its
 * slice, after the reduction.
 *
 *   %dw = embedding_dw %ids, %dy      %i = exchange %ids
 *   grad %dw {param = 0}         ->   %r = exchange %dy
 *                                     %s = lookup_dw %i, %r
 *
 * They go ahead of a reduction that became due at the same place, which nobody waits for as long.
 *
 * Where the plan says `parts`, the link does not sum: `all_to_all` brings the parts of all ranks to
 * the slice's owner, whose update adds them up. The slice's state is as large as they are.
 */
#include "passes/lower.h"

#include <string.h>

typedef struct Due {
    uint32_t bucket;
    uint32_t at; /* the node of its last contribution */
} Due;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    FgIdVec order;
    uint32_t *target;  /* value -> parameter whose gradient its node writes in place, or FG_NO_ID */
    uint32_t *travels; /* value -> parameter whose lookup it is, where rows travel, or FG_NO_ID */
    uint32_t *n_uses;  /* of values */
    uint32_t *left;    /* bucket -> contributions still to come */
    uint32_t *buffer;  /* bucket -> open gradient buffer, or FG_NO_ID */
    bool *dense;       /* parameter -> has a contribution to a buffer */
    bool *written;     /* parameter -> has one already */
    bool *begun;       /* bucket -> its gradient slice has a part */
    FG_VEC(Due) due;   /* complete, and not reduced yet */
    FgIdVec *waiting;  /* bucket -> lookups that wait for its reduction */
} Cx;

static bool writes_in_place(const Cx *cx, uint32_t value, const FgParam *param)
{
    const FgValue *v = fg_value(cx->m, value);
    if (v->kind != FG_VALUE_RESULT || cx->n_uses[value] != 1)
        return false;
    const FgNode *def = fg_node(cx->m, v->def);
    return fg_op_has(def->op, FG_OPF_ACCUMULATE) && def->results[def->n_results - 1] == value &&
           v->type->dtype == cx->m->numerics.wire &&
           fg_type_elements(v->type) == fg_type_elements(param->type);
}

/* What adds to the slice of a sharded table (`travel`): no buffer, no reduction. */
static bool is_part(const FgNode *node)
{
    return node->op == FG_OP_lookup_dw || node->op == FG_OP_vocab_dw || node->op == FG_OP_vocab_db;
}

static void find_targets(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(m, old->data[i]);
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                cx->n_uses[node->operands[k]]++;
    }
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(m, old->data[i]);
        if (is_part(node))
            m->buckets.data[node->bucket].lookups++;
        if (node->op != FG_OP_grad)
            continue;
        uint32_t p = (uint32_t)fg_node_attr(node, "param")->i;
        FgBucket *b = &m->buckets.data[m->params.data[p].bucket];
        if (cx->travels[node->operands[0]] == p) {
            b->lookups++;
            continue;
        }
        cx->left[m->params.data[p].bucket]++;
        cx->dense[p] = true;
        if (writes_in_place(cx, node->operands[0], &m->params.data[p]))
            cx->target[node->operands[0]] = p;
    }
    for (uint32_t b = 0; b < m->buckets.len; b++)
        m->buckets.data[b].writes = cx->left[b];
}

static FgBuilder builder_at(Cx *cx, const FgNode *node, const char *name)
{
    return (FgBuilder){cx->m, &cx->order, node->loc, name, node->phase, node->layer, node->id};
}

static void place_in_buffer(Cx *cx, uint32_t value, uint32_t p)
{
    FgModule *m = cx->m;
    const FgParam *param = &m->params.data[p];
    FgValue *v = fg_value(m, value);
    v->root = cx->buffer[param->bucket];
    v->root_offset = param->bucket_offset * fg_dtype_bytes(m->numerics.wire);
    v->mem = FG_MEM_GRADIENTS;
}

static uint32_t new_slice(Cx *cx, uint32_t p)
{
    FgModule *m = cx->m;
    const FgParam *param = &m->params.data[p];
    const FgType *type = fg_type(m, m->numerics.wire, param->type->rank, param->type->dims);
    uint32_t slice = fg_add_value(m, param->name, type);
    place_in_buffer(cx, slice, p);
    return slice;
}

/* Parameters of the bucket that lookups alone contribute to: zero until their rows come. */
static void clear_looked_up(Cx *cx, uint32_t bucket, const FgNode *at)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < m->buckets.data[bucket].n_params; i++) {
        uint32_t p = m->buckets.data[bucket].params[i];
        if (cx->dense[p])
            continue;
        uint32_t slice = new_slice(cx, p);
        const FgType *type = fg_value(m, slice)->type;
        FgBuilder build = builder_at(cx, at, m->params.data[p].name);
        FgNode *node = fg_node_new(&build, FG_OP_full, NULL, 0);
        fg_node_set_ints(m, node, "shape", type->dims, type->rank);
        fg_node_set_float(m, node, "value", 0);
        fg_node_set_word(m, node, "dtype", fg_dtype_name(type->dtype));
        fg_node_finish_into(&build, node, &slice, 1);
        m->buckets.data[bucket].writes++;
    }
}

static void open_buffer(Cx *cx, uint32_t bucket, const FgNode *at)
{
    if (cx->buffer[bucket] != FG_NO_ID)
        return;
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[bucket];
    int64_t n = (int64_t)b->elements;
    const char *name = fg_arena_printf(m->arena, "%s.grads", b->name);
    const FgType *type = fg_type(m, m->numerics.wire, 1, &n);
    uint32_t buffer = fg_sums_whole(&m->numerics)
                          ? fg_add_state(m, name, type, FG_ROLE_GRADIENTS, bucket, FG_MEM_GRADIENTS)
                          : fg_add_value(m, name, type);
    fg_value(m, buffer)->mem = FG_MEM_GRADIENTS;
    FgBuilder build = builder_at(cx, at, b->name);
    FgNode *node = fg_node_new(&build, FG_OP_grad_buffer, NULL, 0);
    node->bucket = bucket;
    fg_node_finish_into(&build, node, &buffer, 1);
    cx->buffer[bucket] = buffer;
    clear_looked_up(cx, bucket, at);
}

/* ---- lookups ---- */

static uint32_t exchange(Cx *cx, FgBuilder *build, uint32_t x, const FgType *type)
{
    FgModule *m = cx->m;
    const char *name = fg_arena_printf(m->arena, "%s.all", fg_value(m, x)->name);
    uint32_t all = fg_add_value(m, name, type);
    fg_value(m, all)->mem = FG_MEM_GRADIENTS;
    FgNode *node = fg_node_new(build, FG_OP_exchange, &x, 1);
    fg_node_finish_into(build, node, &all, 1);
    return all;
}

/* Where the update of other rows comes before the lookup's gradient, both go by the ids that the
 * lookup itself collected; FG_NO_ID where it did not. */
static uint32_t collected(const Cx *cx, uint32_t ids)
{
    for (uint32_t i = 0; i < cx->order.len; i++) {
        const FgNode *node = &cx->m->nodes.data[cx->order.data[i]];
        if (node->op == FG_OP_collect && node->operands[0] == ids)
            return node->results[0];
    }
    return FG_NO_ID;
}

static void reduce_due(Cx *cx);

static void emit_lookup(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgNode dw = *fg_node(m, id);
    const FgParam *param = &m->params.data[cx->travels[dw.results[0]]];
    const FgBucket *b = &m->buckets.data[param->bucket];
    const FgType *rows = fg_value(m, dw.operands[1])->type;
    int64_t dims[] = {fg_type_rows(rows) * m->ranks, fg_type_cols(rows)};
    FgBuilder build = builder_at(cx, &dw, dw.name);
    build.origin = dw.origin;
    bool early = m->plan->buckets.data[param->bucket].early;
    uint32_t all[2] = {early ? collected(cx, dw.operands[0]) : FG_NO_ID};
    if (all[0] == FG_NO_ID)
        all[0] = exchange(cx, &build, dw.operands[0], fg_type(m, FG_I32, 1, dims));
    all[1] = exchange(cx, &build, dw.operands[1], fg_type(m, rows->dtype, 2, dims));
    reduce_due(cx);
    FgNode *node = fg_node_new(&build, FG_OP_lookup_dw, all, 2);
    node->bucket = param->bucket;
    fg_node_set_int(m, node, "vocab", fg_node_attr(&dw, "vocab")->i);
    fg_node_set_int(m, node, "first", (int64_t)param->bucket_offset);
    fg_node_set_int(m, node, "padding_idx", fg_node_attr(&dw, "padding_idx")->i);
    fg_node_set_int(m, node, "accumulate", cx->begun[param->bucket]);
    fg_node_finish_into(&build, node, &b->grad_shard, 1);
    cx->begun[param->bucket] = true;
}

/* The lookups of a bucket that wait, once nothing dense is still to come. */
static void emit_lookups(Cx *cx, uint32_t bucket)
{
    FgIdVec *waiting = &cx->waiting[bucket];
    for (uint32_t i = 0; i < waiting->len && cx->left[bucket] == 0; i++)
        emit_lookup(cx, waiting->data[i]);
    waiting->len = cx->left[bucket] == 0 ? 0 : waiting->len;
}

/* ---- the order ---- */

/* One contribution has been written; after the last the bucket is due. */
static void contributed(Cx *cx, uint32_t p, uint32_t at)
{
    uint32_t bucket = cx->m->params.data[p].bucket;
    Due due = {bucket, at};
    cx->written[p] = true;
    if (--cx->left[bucket] == 0)
        fg_vec_push(cx->scratch, &cx->due, due);
}

static bool is_due(const Cx *cx, uint32_t bucket)
{
    for (uint32_t i = 0; i < cx->due.len; i++)
        if (cx->due.data[i].bucket == bucket)
            return true;
    return false;
}

static void reduce_bucket(Cx *cx, const Due *due)
{
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[due->bucket];
    FgNode at = *fg_node(m, due->at);
    FgBuilder build = builder_at(cx, &at, b->name);
    FgOp op = fg_bucket_in_parts(m, due->bucket) ? FG_OP_all_to_all : FG_OP_reduce_scatter;
    FgNode *node = fg_node_new(&build, op, &cx->buffer[due->bucket], 1);
    node->bucket = due->bucket;
    fg_node_finish_into(&build, node, &b->grad_shard, 1);
    cx->begun[due->bucket] = true;
    emit_lookups(cx, due->bucket);
}

static void reduce_due(Cx *cx)
{
    for (Due due; cx->due.len > 0;) {
        due = cx->due.data[0];
        cx->due.len--;
        memmove(cx->due.data, cx->due.data + 1, cx->due.len * sizeof due);
        reduce_bucket(cx, &due);
    }
}

static void copy_node(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgNode node = *fg_node(m, id);
    uint32_t last = node.n_results > 0 ? node.results[node.n_results - 1] : FG_NO_ID;
    uint32_t p = last != FG_NO_ID ? cx->target[last] : FG_NO_ID;
    uint32_t looked_up = node.n_results > 0 ? cx->travels[node.results[0]] : FG_NO_ID;
    if (looked_up != FG_NO_ID) {
        uint32_t bucket = m->params.data[looked_up].bucket;
        if (is_due(cx, bucket))
            reduce_due(cx);
        fg_vec_push(cx->scratch, &cx->waiting[bucket], id);
        emit_lookups(cx, bucket);
        return;
    }
    reduce_due(cx);
    if (is_part(&node)) {
        fg_node_set_int(m, fg_node(m, id), "accumulate", cx->begun[node.bucket]);
        cx->begun[node.bucket] = true;
    }
    if (p != FG_NO_ID) {
        open_buffer(cx, m->params.data[p].bucket, &node);
        place_in_buffer(cx, last, p);
        fg_node_set_int(m, fg_node(m, id), "accumulate", cx->written[p]);
    }
    fg_vec_push(m->arena, &cx->order, id);
    if (p != FG_NO_ID)
        contributed(cx, p, id);
}

static void write_gradient(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgNode grad = *fg_node(m, id);
    uint32_t g = grad.operands[0], p = (uint32_t)fg_node_attr(&grad, "param")->i;
    if (cx->target[g] == p || cx->travels[g] == p)
        return;
    reduce_due(cx);
    open_buffer(cx, m->params.data[p].bucket, &grad);
    uint32_t slice = new_slice(cx, p);
    FgBuilder build = builder_at(cx, &grad, grad.name);
    FgNode *node = fg_node_new(&build, FG_OP_grad_write, &g, 1);
    fg_node_set_int(m, node, "accumulate", cx->written[p]);
    fg_node_finish_into(&build, node, &slice, 1);
    contributed(cx, p, id);
}

static uint32_t *travelling(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (m->numerics.lookup == FG_LOOKUP_ROWS)
        return fg_rows_travel(pass->scratch, m, m->ranks);
    uint32_t *none = FG_NEW_ARRAY(pass->scratch, uint32_t, m->values.len + 1);
    memset(none, 0xff, m->values.len * sizeof *none);
    return none;
}

/* Gives the gradients that come in parts their room. */
static bool make_room_for_parts(FgModule *m)
{
    for (uint32_t b = 0; b < m->buckets.len; b++) {
        const FgBucket *bucket = &m->buckets.data[b];
        if (!m->plan || !m->plan->buckets.data[b].parts)
            continue;
        const char *why = fg_parts_refused(m, b);
        if (why) {
            fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN, "bucket @%s cannot come in parts: %s",
                    bucket->name, why);
            return false;
        }
        FgValue *grad = fg_value(m, bucket->grad_shard);
        int64_t n = (int64_t)bucket->elements;
        grad->type = fg_type(m, grad->type->dtype, 1, &n);
    }
    return true;
}

FgPassResult fg_pass_reduce(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (!fg_pass_is_first(m, FG_OP_grad_buffer, "reduce"))
        return FG_PASS_FAILED;
    Cx cx = {.m = m, .scratch = pass->scratch};
    FgIdVec old = fg_func(m, "step")->order;
    uint32_t n = m->values.len;
    cx.target = FG_NEW_ARRAY(pass->scratch, uint32_t, n + 1);
    memset(cx.target, 0xff, n * sizeof *cx.target);
    cx.n_uses = FG_NEW_ARRAY(pass->scratch, uint32_t, n + 1);
    cx.left = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    cx.buffer = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    memset(cx.buffer, 0xff, m->buckets.len * sizeof *cx.buffer);
    cx.dense = FG_NEW_ARRAY(pass->scratch, bool, m->params.len + 1);
    cx.written = FG_NEW_ARRAY(pass->scratch, bool, m->params.len + 1);
    cx.begun = FG_NEW_ARRAY(pass->scratch, bool, m->buckets.len + 1);
    cx.waiting = FG_NEW_ARRAY(pass->scratch, FgIdVec, m->buckets.len + 1);
    cx.travels = travelling(pass);
    find_targets(&cx, &old);
    if (!make_room_for_parts(m))
        return FG_PASS_FAILED;
    for (uint32_t i = 0; i < old.len; i++) {
        if (fg_node(m, old.data[i])->op == FG_OP_grad)
            write_gradient(&cx, old.data[i]);
        else
            copy_node(&cx, old.data[i]);
    }
    reduce_due(&cx);
    bool changed = m->buckets.len > 0 || /* their parts are stated now */
                   cx.order.len != old.len ||
                   memcmp(cx.order.data, old.data, old.len * sizeof *old.data) != 0;
    fg_func(m, "step")->order = cx.order;
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
