/* travel: tokens travel to the owners of the rows of sharded tables, and lookups where the plan
 * says so.
 *
 * dist -> dist, after `bucket`. Of a table that `vocab` marked, nothing is gathered and no gradient
 * is reduced. A slice holds whole rows, so that every rank works on its own slice with the tokens
 * of all ranks, some (`chunk` of each rank) at a time:
 *
 * - lookup: ids are collected; every rank fills in the rows that it owns, -0.0 elsewhere; the sum
 *   over ranks returns to the token's rank (all terms but one are -0.0: it is exact)
 * - its gradient: ids and rows are collected; every rank adds those that name its own rows
 * - head: the hidden rows are collected; logits over the owned columns alone; maximum, sum and the
 *   label's logit of each row are collected and combined in rank order, which gives the loss of the
 *   own rows and the log-sum-exp of all; since the loss's seed is known before, backward follows at
 *   once: the gradient of the logits in their place, its product with the owned rows in f32, summed
 *   over ranks and returned; the rows' own gradient is added to the slice in f32
 *
 * The next piece's hidden rows are collected while this one's logits are made.
 *
 * Where the plan lets the lookups of a bucket travel, these alone do, all tokens at a time: what
 * else reads the bucket gathers it, and `reduce` sees to gradients.
 *
 *   %b = gather %s                        %i = collect %ids
 *   %w = view %b                          %r = lookup_rows %i, %s
 *   %x = embedding %ids, %w         ->    %x = return_rows _, %r
 *   %l = linear %y, %w                    ...
 */
#include "passes/vocab.h"

#include <string.h>

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    FgIdVec order;
    FgUses uses;
    uint32_t
        *param_of; /* value -> sharded parameter that it is the gathered view of, or FG_NO_ID */
    uint32_t *looked_up; /* value -> table of a bucket whose lookups travel, or FG_NO_ID */
    uint32_t *owned;     /* parameter -> view of the slice as rows, once made */
    bool *dropped;       /* node */
    FG_VEC(FgHead) heads;
    bool failed;
} Cx;

/* What a piece of a table's work is about. */
typedef struct Site {
    const FgNode *node; /* it stands for: a copy */
    uint32_t param;
    int64_t tokens, hidden, vocab; /* tokens of a rank */
} Site;

static const FgBucket *bucket_of(const Cx *cx, uint32_t param)
{
    return &cx->m->buckets.data[cx->m->params.data[param].bucket];
}

static FgBuilder builder_at(Cx *cx, const FgNode *node, FgPhase phase)
{
    return (FgBuilder){cx->m, &cx->order, node->loc, node->name, phase, node->layer, node->id};
}

/* Pieces are those of a sharded table. */
static int64_t chunk_of(const Cx *cx, const Site *site, int64_t first)
{
    int64_t chunk = cx->m->numerics.chunk, left = site->tokens - first;
    bool whole = !cx->m->params.data[site->param].sharded;
    return !whole && chunk > 0 && chunk < left ? chunk : left;
}

static uint32_t new_value(Cx *cx, const char *name, FgDtype dtype, int64_t rows, int64_t cols)
{
    int64_t dims[] = {rows, cols};
    return fg_add_value(cx->m, name, fg_type(cx->m, dtype, cols ? 2 : 1, dims));
}

static const FgType *type_of(const Cx *cx, uint32_t value)
{
    return cx->m->values.data[value].type;
}

/* ---- parts ---- */

/* Elements [first, first + n) of x of every rank. */
static uint32_t collect(Cx *cx, FgBuilder *b, uint32_t x, int64_t first, int64_t rows, int64_t cols)
{
    FgModule *m = cx->m;
    int64_t ranks = (int64_t)m->ranks;
    const char *name = fg_arena_printf(m->arena, "%s.all", fg_value(m, x)->name);
    uint32_t all = new_value(cx, name, type_of(cx, x)->dtype, ranks * rows, cols);
    FgNode *node = fg_node_new(b, FG_OP_collect, &x, 1);
    fg_node_set_int(m, node, "first", first * (cols ? cols : 1));
    fg_node_finish_into(b, node, &all, 1);
    return all;
}

/* Rows from `first` on of y, beside those of `before` (or FG_NO_ID); the last piece is y itself. */
static uint32_t return_rows(Cx *cx, FgBuilder *b, uint32_t before, uint32_t part, uint32_t y,
                            int64_t first, bool last)
{
    FgModule *m = cx->m;
    uint32_t out = last ? y : fg_add_value(m, fg_value(m, y)->name, type_of(cx, y));
    FgNode *node = fg_node_new(b, FG_OP_return_rows, (uint32_t[]){before, part}, 2);
    fg_node_set_int(m, node, "first", first * fg_type_cols(type_of(cx, part)));
    FgValue *v = fg_value(m, out);
    v->def = FG_NO_ID;
    if (before != FG_NO_ID)
        v->root = fg_value(m, before)->root;
    fg_node_finish_into(b, node, &out, 1);
    return out;
}

/* The slice of a sharded parameter under its own shape: the rank's rows of it. */
static uint32_t owned_rows(Cx *cx, FgBuilder *b, uint32_t param)
{
    FgModule *m = cx->m;
    if (cx->owned[param] != FG_NO_ID)
        return cx->owned[param];
    const FgParam *p = &m->params.data[param];
    uint32_t shard = bucket_of(cx, param)->shard;
    int64_t rows = (int64_t)fg_sharded_rows(p, m->ranks);
    int64_t cols = p->type->rank > 1 ? fg_type_elements(p->type) / p->type->dims[0] : 0;
    uint32_t view = new_value(cx, p->name, p->type->dtype, rows, cols);
    fg_value(m, view)->root = shard;
    fg_value(m, view)->mem = fg_value(m, shard)->mem;
    FgNode *node = fg_node_new(b, FG_OP_view, &shard, 1);
    fg_node_finish_into(b, node, &view, 1);
    return cx->owned[param] = view;
}

/* ---- lookups ---- */

static void emit_lookup(Cx *cx, const Site *site)
{
    FgModule *m = cx->m;
    FgBuilder b = builder_at(cx, site->node, site->node->phase);
    uint32_t y = site->node->results[0], before = FG_NO_ID;
    uint32_t in[] = {collect(cx, &b, site->node->operands[0], 0, site->tokens, 0),
                     bucket_of(cx, site->param)->shard};
    for (int64_t at = 0, n; at < site->tokens; at += n) {
        n = chunk_of(cx, site, at);
        uint32_t rows = new_value(cx, fg_value(m, y)->name, type_of(cx, y)->dtype,
                                  n * (int64_t)m->ranks, site->hidden);
        FgNode *node = fg_node_new(&b, FG_OP_lookup_rows, in, 2);
        fg_node_set_int(m, node, "vocab", site->vocab);
        fg_node_set_int(m, node, "first", at);
        fg_node_set_int(m, node, "table", (int64_t)m->params.data[site->param].bucket_offset);
        fg_node_finish_into(&b, node, &rows, 1);
        before = return_rows(cx, &b, before, rows, y, at, at + n == site->tokens);
    }
}

static void emit_lookup_dw(Cx *cx, const Site *site)
{
    FgModule *m = cx->m;
    FgBuilder b = builder_at(cx, site->node, site->node->phase);
    const FgBucket *bucket = bucket_of(cx, site->param);
    for (int64_t at = 0, n; at < site->tokens; at += n) {
        n = chunk_of(cx, site, at);
        uint32_t in[] = {collect(cx, &b, site->node->operands[0], at, n, 0),
                         collect(cx, &b, site->node->operands[1], at, n, site->hidden)};
        FgNode *node = fg_node_new(&b, FG_OP_lookup_dw, in, 2);
        node->bucket = m->params.data[site->param].bucket;
        fg_node_set_int(m, node, "vocab", site->vocab);
        fg_node_set_int(m, node, "first", 0);
        fg_node_set_int(m, node, "padding_idx", fg_node_attr(site->node, "padding_idx")->i);
        fg_node_finish_into(&b, node, &bucket->grad_shard, 1);
    }
}

/* ---- the head ---- */

typedef struct HeadCx {
    Site site; /* its node is the loss */
    FgBuilder forward, backward;
    uint32_t x, labels, seed;  /* of the rank; labels of all ranks */
    uint32_t w, b;             /* owned rows; b FG_NO_ID: no bias */
    uint32_t dx;               /* the gradient of x, or FG_NO_ID */
    uint32_t w_param, b_param; /* FG_NO_ID: no gradient wanted */
    uint32_t loss_before, dx_before;
    bool gradient; /* any is wanted */
} HeadCx;

static void set_site(Cx *cx, const HeadCx *h, FgNode *node, int64_t at)
{
    fg_node_set_int(cx->m, node, "vocab", h->site.vocab);
    fg_node_set_int(cx->m, node, "first", at);
    fg_node_set_int(cx->m, node, "ignore_index", fg_node_attr(h->site.node, "ignore_index")->i);
}

/* Statistics of one piece, combined: the loss so far and the rows' log-sum-exp, which it returns.
 */
static uint32_t emit_loss(Cx *cx, HeadCx *h, uint32_t logits, int64_t at, bool last)
{
    FgModule *m = cx->m;
    int64_t rows = fg_type_rows(type_of(cx, logits));
    uint32_t stats = new_value(cx, "stats", FG_F32, rows, 3);
    FgNode *node = fg_node_new(&h->forward, FG_OP_vocab_stats, (uint32_t[]){logits, h->labels}, 2);
    set_site(cx, h, node, at);
    fg_node_finish_into(&h->forward, node, &stats, 1);
    uint32_t all = collect(cx, &h->forward, stats, 0, rows, 3), loss = h->site.node->results[0];
    uint32_t in[] = {all, h->labels, h->seed, h->loss_before};
    uint32_t out[] = {last ? loss : fg_add_value(m, fg_value(m, loss)->name, type_of(cx, loss)),
                      new_value(cx, "lse", FG_F32, rows, 0)};
    fg_value(m, out[0])->def = FG_NO_ID;
    node = fg_node_new(&h->forward, FG_OP_vocab_loss, in, h->loss_before == FG_NO_ID ? 3 : 4);
    set_site(cx, h, node, at);
    fg_node_finish_into(&h->forward, node, out, 2);
    h->loss_before = out[0];
    return out[1];
}

static void emit_slice_gradient(Cx *cx, HeadCx *h, FgOp op, uint32_t param, const uint32_t *in,
                                uint32_t n)
{
    if (param == FG_NO_ID)
        return;
    FgNode *node = fg_node_new(&h->backward, op, in, n);
    node->bucket = cx->m->params.data[param].bucket;
    fg_node_finish_into(&h->backward, node, &bucket_of(cx, param)->grad_shard, 1);
}

/* `dx` before `dw`: what it returns travels while the rows' own gradient is made. */
static void emit_gradient(Cx *cx, HeadCx *h, uint32_t x, uint32_t logits, uint32_t lse, int64_t at,
                          bool last)
{
    FgModule *m = cx->m;
    const FgType *type = type_of(cx, logits);
    uint32_t in[] = {logits, h->labels, lse, h->seed};
    uint32_t dlogits = fg_add_value(m, "d_logits", type);
    FgNode *node = fg_node_new(&h->backward, FG_OP_vocab_dlogits, in, 4);
    set_site(cx, h, node, at);
    fg_node_finish_into(&h->backward, node, &dlogits, 1);
    if (h->dx != FG_NO_ID) {
        uint32_t part = new_value(cx, "d_part", FG_F32, fg_type_rows(type), h->site.hidden);
        node = fg_node_new(&h->backward, FG_OP_vocab_dx, (uint32_t[]){dlogits, h->w}, 2);
        fg_node_finish_into(&h->backward, node, &part, 1);
        h->dx_before = return_rows(cx, &h->backward, h->dx_before, part, h->dx, at, last);
    }
    emit_slice_gradient(cx, h, FG_OP_vocab_dw, h->w_param, (uint32_t[]){x, dlogits}, 2);
    emit_slice_gradient(cx, h, FG_OP_vocab_db, h->b_param, &dlogits, 1);
}

static void emit_pieces(Cx *cx, HeadCx *h)
{
    const Site *site = &h->site;
    uint32_t next = collect(cx, &h->forward, h->x, 0, chunk_of(cx, site, 0), site->hidden);
    for (int64_t at = 0, n; at < site->tokens; at += n) {
        n = chunk_of(cx, site, at);
        bool last = at + n == site->tokens;
        uint32_t x = next;
        if (!last)
            next = collect(cx, &h->forward, h->x, at + n, chunk_of(cx, site, at + n), site->hidden);
        uint32_t in[] = {x, h->w, h->b};
        FgNode *node = fg_node_new(&h->forward, FG_OP_linear, in, h->b == FG_NO_ID ? 2 : 3);
        uint32_t logits = fg_node_finish(&h->forward, node, "logits");
        if (logits == FG_NO_ID) {
            cx->failed = true;
            return;
        }
        uint32_t lse = emit_loss(cx, h, logits, at, last);
        if (h->gradient)
            emit_gradient(cx, h, x, logits, lse, at, last);
    }
}

static uint32_t result_of(const Cx *cx, uint32_t node)
{
    return node == FG_NO_ID ? FG_NO_ID : cx->m->nodes.data[node].results[0];
}

static void emit_head(Cx *cx, const FgHead *head)
{
    FgModule *m = cx->m;
    FgNode linear = *fg_node(m, head->linear), loss = *fg_node(m, head->loss);
    uint32_t w = cx->param_of[linear.operands[1]];
    uint32_t bias = linear.n_operands > 2 ? linear.operands[2] : FG_NO_ID;
    uint32_t b = bias == FG_NO_ID ? FG_NO_ID : cx->param_of[bias];
    HeadCx h = {.site = {.node = &loss,
                         .param = w,
                         .tokens = fg_type_elements(type_of(cx, loss.operands[1])),
                         .hidden = fg_type_cols(type_of(cx, linear.operands[0])),
                         .vocab = m->params.data[w].type->dims[0]},
                .x = linear.operands[0],
                .seed = loss.operands[2],
                .dx = result_of(cx, head->dx),
                .w_param = head->dw == FG_NO_ID ? FG_NO_ID : w,
                .b_param = head->db == FG_NO_ID ? FG_NO_ID : b,
                .loss_before = FG_NO_ID,
                .dx_before = FG_NO_ID,
                .gradient = head->back != FG_NO_ID};
    h.forward = builder_at(cx, &linear, FG_PHASE_FORWARD);
    h.backward = builder_at(cx, &linear, FG_PHASE_BACKWARD);
    h.w = owned_rows(cx, &h.forward, w);
    h.b = b == FG_NO_ID ? FG_NO_ID : owned_rows(cx, &h.forward, b);
    h.labels = collect(cx, &h.forward, loss.operands[1], 0, h.site.tokens, 0);
    emit_pieces(cx, &h);
}

/* ---- the walk ---- */

static bool is_sharded_bucket(const Cx *cx, uint32_t bucket)
{
    return cx->m->params.data[cx->m->buckets.data[bucket].params[0]].sharded;
}

/* The gathers that `bucket` left at the head, and the names of their parameters. */
static void drop_gathers(Cx *cx, const FgIdVec *old)
{
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(cx->m, old->data[i]);
        if (node->op == FG_OP_gather && is_sharded_bucket(cx, node->bucket)) {
            cx->dropped[node->id] = true;
            cx->param_of[node->results[0]] = cx->m->buckets.data[node->bucket].params[0];
        } else if (node->op == FG_OP_view && cx->param_of[node->operands[0]] != FG_NO_ID) {
            cx->dropped[node->id] = true;
            cx->param_of[node->results[0]] = cx->param_of[node->operands[0]];
        }
    }
}

/* The parameter that a view of a gathered bucket names. */
static uint32_t param_at(const Cx *cx, const FgBucket *bucket, uint64_t offset)
{
    for (uint32_t i = 0; i < bucket->n_params; i++) {
        const FgParam *p = &cx->m->params.data[bucket->params[i]];
        if (p->bucket_offset * fg_dtype_bytes(bucket->dtype) == offset)
            return bucket->params[i];
    }
    return FG_NO_ID;
}

/* Tables of the buckets whose lookups travel; false after an error. */
static bool find_tables(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    const bool *can = fg_tables_that_travel(cx->scratch, m, m->ranks);
    bool *found = FG_NEW_ARRAY(cx->scratch, bool, m->buckets.len + 1);
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *view = fg_node(m, old->data[i]);
        const FgValue *whole = view->op == FG_OP_view ? fg_value(m, view->operands[0]) : NULL;
        uint32_t bucket =
            whole && whole->kind == FG_VALUE_RESULT ? fg_node(m, whole->def)->bucket : FG_NO_ID;
        if (bucket == FG_NO_ID || !m->plan->buckets.data[bucket].travels)
            continue;
        uint64_t offset = fg_value(m, view->results[0])->root_offset;
        uint32_t p = param_at(cx, &m->buckets.data[bucket], offset);
        if (p == FG_NO_ID || !can[p])
            continue;
        cx->looked_up[view->results[0]] = p;
        found[bucket] = true;
    }
    for (uint32_t b = 0; b < m->buckets.len; b++)
        if (m->plan->buckets.data[b].travels && !found[b]) {
            fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                    "lookups of bucket @%s travel, but it holds no table that the ranks look up "
                    "fewer tokens in than it has rows",
                    m->buckets.data[b].name);
            return false;
        }
    return true;
}

static void drop(Cx *cx, uint32_t node)
{
    if (node != FG_NO_ID)
        cx->dropped[node] = true;
}

/* Reshapes of what a dropped node made, in order, so that chains of them follow. */
static void drop_names(Cx *cx, const FgIdVec *old)
{
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(cx->m, old->data[i]);
        if (node->op != FG_OP_reshape)
            continue;
        const FgValue *x = fg_value(cx->m, node->operands[0]);
        if (x->kind == FG_VALUE_RESULT && cx->dropped[x->def])
            cx->dropped[node->id] = true;
    }
}

static void find_heads(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(m, old->data[i]);
        FgHead head;
        const char *why;
        if (node->op == FG_OP_grad && m->params.data[fg_node_attr(node, "param")->i].sharded)
            drop(cx, node->id);
        if (node->op != FG_OP_linear || cx->param_of[node->operands[1]] == FG_NO_ID)
            continue;
        if (!fg_head_match(&cx->uses, node->id, &head, &why)) {
            fg_diag(m->diags, node->loc, FG_D_BAD_PLAN, "'%s' is sharded, but %s", node->name, why);
            cx->failed = true;
            return;
        }
        drop(cx, head.linear);
        drop(cx, head.back);
        drop_names(cx, old);
        drop(cx, head.dx);
        drop(cx, head.dw);
        drop(cx, head.db);
        fg_vec_push(cx->scratch, &cx->heads, head);
    }
}

/* The parameter whose sharded slice a lookup's gradient belongs to, or FG_NO_ID. */
static uint32_t gradient_of(const Cx *cx, const FgNode *node)
{
    uint32_t user = fg_uses_only(&cx->uses, node->results[0]);
    const FgNode *grad = user == FG_NO_ID ? NULL : fg_node(cx->m, user);
    if (!grad || grad->op != FG_OP_grad)
        return FG_NO_ID;
    uint32_t param = (uint32_t)fg_node_attr(grad, "param")->i;
    return cx->m->params.data[param].sharded ? param : FG_NO_ID;
}

static Site lookup_site(const Cx *cx, const FgNode *node, uint32_t param)
{
    const FgType *type = cx->m->params.data[param].type;
    return (Site){node, param, fg_type_elements(type_of(cx, node->operands[0])), type->dims[1],
                  type->dims[0]};
}

static void walk_node(Cx *cx, uint32_t id)
{
    FgNode node = *fg_node(cx->m, id);
    if (cx->dropped[id])
        return;
    for (uint32_t i = 0; i < cx->heads.len; i++)
        if (cx->heads.data[i].loss == id) {
            emit_head(cx, &cx->heads.data[i]);
            return;
        }
    uint32_t table = node.op == FG_OP_embedding      ? cx->param_of[node.operands[1]]
                     : node.op == FG_OP_embedding_dw ? gradient_of(cx, &node)
                                                     : FG_NO_ID;
    if (node.op == FG_OP_embedding && table == FG_NO_ID)
        table = cx->looked_up[node.operands[1]];
    if (table == FG_NO_ID) {
        fg_vec_push(cx->m->arena, &cx->order, id);
        return;
    }
    Site site = lookup_site(cx, &node, table);
    if (node.op == FG_OP_embedding)
        emit_lookup(cx, &site);
    else
        emit_lookup_dw(cx, &site);
}

FgPassResult fg_pass_travel(FgPassCx *pass)
{
    FgModule *m = pass->module;
    bool any = false;
    for (uint32_t p = 0; p < m->params.len; p++)
        any |= m->params.data[p].sharded;
    for (uint32_t b = 0; b < m->plan->buckets.len; b++)
        any |= m->plan->buckets.data[b].travels;
    if (!any)
        return FG_PASS_UNCHANGED;
    if (!fg_pass_is_first(m, FG_OP_collect, "travel"))
        return FG_PASS_FAILED;
    Cx cx = {.m = m, .scratch = pass->scratch, .uses = fg_uses(pass->scratch, m)};
    FgIdVec old = fg_func(m, "step")->order;
    uint32_t n = m->values.len;
    cx.param_of = FG_NEW_ARRAY(pass->scratch, uint32_t, n + 1);
    memset(cx.param_of, 0xff, n * sizeof *cx.param_of);
    cx.looked_up = FG_NEW_ARRAY(pass->scratch, uint32_t, n + 1);
    memset(cx.looked_up, 0xff, n * sizeof *cx.looked_up);
    cx.owned = FG_NEW_ARRAY(pass->scratch, uint32_t, m->params.len + 1);
    memset(cx.owned, 0xff, m->params.len * sizeof *cx.owned);
    cx.dropped = FG_NEW_ARRAY(pass->scratch, bool, m->nodes.len + 1);
    if (!find_tables(&cx, &old))
        return FG_PASS_FAILED;
    drop_gathers(&cx, &old);
    find_heads(&cx, &old);
    for (uint32_t i = 0; i < old.len && !cx.failed; i++)
        walk_node(&cx, old.data[i]);
    fg_func(m, "step")->order = cx.order;
    return cx.failed ? FG_PASS_FAILED : FG_PASS_CHANGED;
}
