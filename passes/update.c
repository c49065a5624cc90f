/* update: what a training step adds to forward and backward, and the functions it is made of.
 *
 * dist -> dist. Constants and the first working copies of the weights move to @init. Every local
 * loss is added up and summed over ranks; the exact norm follows each reduction. Without clipping
 * AdamW follows right after, or takes the norm on its way, and frees the gradient. With clipping
 * the step begins with the update of the step before (`pending`; the period is cut between norm and
 * update) and @flush is that update alone. So it is where the loss is scaled: the update waits
 * until all gradients are known to be finite. With accumulation the body is emitted three times:
 * @first overwrites loss and gradient shards, @middle adds, @last adds, takes norms and updates;
 * the runtime runs @middle as often as needed, so the program does not grow with the number of
 * micro-steps. Gradients that add up whole (fg_sums_whole) begin in @first, and every contribution
 * of another body adds to them; @last reduces them, and that begins the slices.
 *
 * Where the plan says `early`, a bucket's update is made in two calls: of the elements in rows that
 * no token of this micro-step names, which is all but few, once the rest of the gradient is there;
 * and of the others after the lookup's rows.
 *
 * A copy of a bucket that is carried over micro-steps is gathered in @first and released in @last.
 * One that runs round the period is gathered at the end of the step, behind its update, for the
 * next one, and in @prologue for the first.
 */
#include "passes/lower.h"

#include <string.h>

typedef struct Body {
    const char *name;
    bool first, last; /* of the step's micro-steps */
} Body;

/* A bucket whose update is made in two calls. */
typedef struct Early {
    uint32_t bucket;
    uint32_t lookup; /* the base's lookup_dw */
    uint32_t ready;  /* place in the base behind which the first call may stand */
    uint32_t place;  /* of the lookup: before which it must */
    uint32_t set;    /* the set of named rows, once the first call stands in this body */
} Early;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    FgIdVec base;  /* forward, backward and reductions */
    FgIdVec order; /* being written */
    uint32_t *map; /* value of the base -> value of this body */
    uint32_t n_map;
    uint32_t scalars, loss_sum, norm;
    uint32_t scaler; /* FG_NO_ID: the loss is not scaled */
    bool clone, norm_begun;
    FG_VEC(Early) early;
    uint32_t *parts;     /* bucket -> parts of its gradient that this micro-step has still to add */
    uint32_t *last_read; /* bucket -> place in the base of the last node that reads its weights */
    FgIdVec due;         /* buckets whose gradient is there and whose update is not */
} Cx;

static uint32_t state_of(const FgModule *m, FgRole role)
{
    for (uint32_t v = 0; v < m->values.len; v++)
        if (m->values.data[v].kind == FG_VALUE_STATE && m->values.data[v].role == role)
            return v;
    return FG_NO_ID;
}

static FgBuilder builder(Cx *cx, const char *name, FgPhase phase)
{
    return (FgBuilder){cx->m, &cx->order, FG_NOWHERE, name, phase, -1, FG_NO_ID};
}

/* What works on a bucket stands, for messages, where its first parameter was written. */
static FgBuilder bucket_builder(Cx *cx, uint32_t bucket, FgPhase phase)
{
    const FgBucket *b = &cx->m->buckets.data[bucket];
    FgLoc loc = cx->m->params.data[b->params[0]].loc;
    return (FgBuilder){cx->m, &cx->order, loc, b->name, phase, -1, FG_NO_ID};
}

/* Nodes without operands that give the same every step run once; their results become states. */
static void hoist_constants(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < old->len; i++) {
        FgNode *node = fg_node(m, old->data[i]);
        if (!fg_op_has(node->op, FG_OPF_CONSTANT)) {
            fg_vec_push(m->arena, &cx->base, old->data[i]);
            continue;
        }
        FgValue *v = fg_value(m, node->results[0]);
        v->kind = FG_VALUE_STATE;
        v->role = FG_ROLE_TABLE;
        v->index = 0;
        v->mem = FG_MEM_CONSTANTS;
        node->phase = FG_PHASE_START;
        fg_vec_push(m->arena, &cx->order, old->data[i]);
    }
}

static void cast_masters(Cx *cx)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < m->buckets.len; i++) {
        const FgBucket *b = &m->buckets.data[i];
        if (b->master == FG_NO_ID)
            continue;
        FgBuilder build = bucket_builder(cx, i, FG_PHASE_START);
        if (fg_bucket_is_offloaded(m, i)) {
            fg_emit_cast_parts(m, cx->scratch, &build, i);
            continue;
        }
        FgNode *node = fg_node_new(&build, FG_OP_cast, &b->master, 1);
        node->bucket = i;
        fg_node_set_word(m, node, "to", fg_dtype_name(b->dtype));
        fg_node_finish_into(&build, node, &b->shard, 1);
    }
}

/* The update of a gradient in parts, which counts in the norm on its way, or begins it. */
static void emit_adamw_parts(Cx *cx, uint32_t bucket)
{
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[bucket];
    FgBuilder build = bucket_builder(cx, bucket, FG_PHASE_UPDATE);
    uint32_t operands[] = {b->grad_shard, cx->scalars};
    uint32_t results[] = {b->master, b->moment1, b->moment2, b->shard, cx->norm};
    FgNode *node = fg_node_new(&build, FG_OP_adamw_parts, operands, 2);
    node->bucket = bucket;
    fg_node_set_int(m, node, "adds", cx->norm_begun);
    fg_node_finish_into(&build, node, results, 5);
    cx->norm_begun = true;
}

/* `counts`: the squares of the gradient go to the norm in the same pass. */
static void emit_adamw(Cx *cx, uint32_t bucket, bool pending, bool counts)
{
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[bucket];
    FgBuilder build = bucket_builder(cx, bucket, FG_PHASE_UPDATE);
    if (fg_bucket_is_offloaded(m, bucket)) {
        fg_emit_update_parts(m, cx->scratch, &build, bucket, cx->scalars, pending);
        return;
    }
    uint32_t operands[] = {b->grad_shard, cx->scalars};
    uint32_t results[] = {b->master, b->moment1, b->moment2, b->shard,
                          counts ? cx->norm : FG_NO_ID};
    FgNode *node = fg_node_new(&build, FG_OP_adamw, operands, 2);
    node->bucket = bucket;
    fg_node_set_int(m, node, "pending", pending);
    fg_node_finish_into(&build, node, results, 5);
}

/* The bucket whose weights the node is the first to want: it gathers them, or reads the slice of a
 * sharded table; FG_NO_ID. */
static uint32_t bucket_wanted(const FgModule *m, const FgNode *node)
{
    if (node->op == FG_OP_gather)
        return node->bucket;
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t v = node->operands[k];
        const FgValue *root = v == FG_NO_ID ? NULL : &m->values.data[m->values.data[v].root];
        if (root && root->kind == FG_VALUE_STATE && root->role == FG_ROLE_SHARD)
            return root->index;
    }
    return FG_NO_ID;
}

/* A gather whose copy is there when the step begins. */
static bool is_round(const Cx *cx, const FgNode *node)
{
    if (node->op != FG_OP_gather || !fg_is_carried(cx->m, node->results[0]))
        return false;
    const FgPlan *plan = cx->m->plan;
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        if (plan->gathers.data[i].bucket == node->bucket)
            return plan->gathers.data[i].round;
    return false;
}

/* The update of the step before, buckets in the order in which this step gathers them. */
static void emit_pending_updates(Cx *cx)
{
    FgModule *m = cx->m;
    bool *done = FG_NEW_ARRAY(cx->scratch, bool, m->buckets.len + 1);
    for (uint32_t i = 0; i < cx->base.len; i++) {
        const FgNode *node = fg_node(m, cx->base.data[i]);
        uint32_t b = bucket_wanted(m, node);
        if (b == FG_NO_ID || done[b] || !m->buckets.data[b].trainable)
            continue;
        done[b] = true;
        emit_adamw(cx, b, true, false);
    }
}

/* The bucket whose weights a value holds: the owned slice, or a gathered copy; FG_NO_ID. */
static uint32_t bucket_held(const FgModule *m, uint32_t value)
{
    const FgValue *root = value == FG_NO_ID ? NULL : &m->values.data[m->values.data[value].root];
    if (!root)
        return FG_NO_ID;
    if (root->kind == FG_VALUE_STATE)
        return root->role == FG_ROLE_SHARD || root->role == FG_ROLE_GATHERED ? root->index
                                                                             : FG_NO_ID;
    const FgNode *def =
        root->kind == FG_VALUE_RESULT && root->def != FG_NO_ID ? &m->nodes.data[root->def] : NULL;
    return def && def->op == FG_OP_gather ? def->bucket : FG_NO_ID;
}

/* A node may read weights after the last contribution to their gradient: of %w * %x the gradient of
 * %w may come before that of %x, which reads %w. All of a step reads the same weights, so the
 * update stands behind that. Gathers for the next step have no place in the base yet. */
static void find_last_reads(Cx *cx)
{
    cx->last_read = FG_NEW_ARRAY(cx->scratch, uint32_t, cx->m->buckets.len + 1);
    for (uint32_t i = 0; i < cx->base.len; i++) {
        const FgNode *node = fg_node(cx->m, cx->base.data[i]);
        for (uint32_t k = 0; k < node->n_operands && node->op != FG_OP_release; k++) {
            uint32_t b = bucket_held(cx->m, node->operands[k]);
            if (b != FG_NO_ID)
                cx->last_read[b] = i;
        }
    }
}

/* The value of the body at hand for one of the base. */
static uint32_t body_value(const Cx *cx, uint32_t v)
{
    return v != FG_NO_ID && v < cx->n_map && cx->map[v] != FG_NO_ID ? cx->map[v] : v;
}

/* ---- updates in two calls ---- */

/* What the two calls wait for: all that reads the slice as it was, and the reduction. */
static Early find_early(const Cx *cx, uint32_t bucket)
{
    Early early = {bucket, FG_NO_ID, cx->last_read[bucket], 0, FG_NO_ID};
    for (uint32_t i = 0; i < cx->base.len; i++) {
        const FgNode *node = fg_node(cx->m, cx->base.data[i]);
        bool own = node->bucket == bucket;
        if (own && node->op == FG_OP_lookup_dw) {
            early.lookup = node->id;
            early.place = i;
        } else if (own && node->op == FG_OP_reduce_scatter && i > early.ready) {
            early.ready = i;
        }
    }
    return early;
}

/* False after an error: the plan wants of a bucket what its update cannot do. */
static bool find_all_early(Cx *cx)
{
    const FgModule *m = cx->m;
    for (uint32_t b = 0; b < m->buckets.len; b++) {
        const FgPlanBucket *plan = &m->plan->buckets.data[b];
        if (!plan->early)
            continue;
        const char *wrong = !plan->travels                  ? "but its lookups do not travel"
                            : fg_update_waits(&m->numerics) ? "but the update waits for the norm"
                            : plan->offload                 ? "but its states lie in host memory"
                            : m->buckets.data[b].lookups != 1
                                ? "but not one lookup alone adds to its gradient"
                                : NULL;
        if (wrong) {
            fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                    "bucket @%s is updated early where no token names a row, %s",
                    m->buckets.data[b].name, wrong);
            return false;
        }
        fg_vec_push(cx->scratch, &cx->early, find_early(cx, b));
    }
    return true;
}

/* `named`: of the set's rows; otherwise of all other elements. */
static void emit_adamw_rows(Cx *cx, const Early *early, bool named, bool whole, bool counts)
{
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[early->bucket];
    FgNode lookup = *fg_node(m, early->lookup);
    FgBuilder build = bucket_builder(cx, early->bucket, FG_PHASE_UPDATE);
    uint32_t operands[] = {whole ? b->grad_shard : FG_NO_ID, cx->scalars, early->set};
    uint32_t results[] = {b->master, b->moment1, b->moment2, b->shard,
                          counts ? cx->norm : FG_NO_ID};
    FgNode *node = fg_node_new(&build, FG_OP_adamw_rows, operands, 3);
    node->bucket = early->bucket;
    fg_node_set_int(m, node, "table", fg_node_attr(&lookup, "first")->i);
    fg_node_set_int(m, node, "hidden", fg_type_cols(fg_value(m, lookup.operands[1])->type));
    fg_node_set_int(m, node, "vocab", fg_node_attr(&lookup, "vocab")->i);
    fg_node_set_word(m, node, "grad_dtype", fg_dtype_name(fg_value(m, b->grad_shard)->type->dtype));
    fg_node_set_int(m, node, "named", named);
    fg_node_finish_into(&build, node, results, 5);
}

static uint32_t emit_row_set(Cx *cx, const Early *early, uint32_t ids)
{
    FgModule *m = cx->m;
    int64_t vocab = fg_node_attr(fg_node(m, early->lookup), "vocab")->i, words = (vocab + 31) / 32;
    FgBuilder build = bucket_builder(cx, early->bucket, FG_PHASE_UPDATE);
    uint32_t set = fg_add_value(m, "rows", fg_type(m, FG_I32, 1, &words));
    FgNode *node = fg_node_new(&build, FG_OP_row_set, &ids, 1);
    fg_node_set_int(m, node, "vocab", vocab);
    fg_node_finish_into(&build, node, &set, 1);
    return set;
}

/* After node `at` of the base: the first calls that may stand there. A gradient that the lookup
 * alone makes is zero before it; others are counted, so the norm has to have begun. */
static void emit_early_updates(Cx *cx, uint32_t at)
{
    for (uint32_t i = 0; i < cx->early.len; i++) {
        Early *early = &cx->early.data[i];
        bool zero =
            cx->m->buckets.data[early->bucket].writes == 0 && cx->m->numerics.accumulate == 1;
        if (early->set != FG_NO_ID || at < early->ready || at >= early->place ||
            (!zero && !cx->norm_begun))
            continue;
        early->set =
            emit_row_set(cx, early, body_value(cx, fg_node(cx->m, early->lookup)->operands[0]));
        emit_adamw_rows(cx, early, false, !zero, !zero);
    }
}

/* The bucket whose first call stands in this body, or NULL. */
static const Early *begun_early(const Cx *cx, uint32_t bucket)
{
    for (uint32_t i = 0; i < cx->early.len; i++)
        if (cx->early.data[i].bucket == bucket && cx->early.data[i].set != FG_NO_ID)
            return &cx->early.data[i];
    return NULL;
}

/* The first norm_add of a step begins the norm; where updates follow at once and are whole, the
 * others are theirs. */
static void emit_norm_and_update(Cx *cx, uint32_t bucket)
{
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[bucket];
    bool waits = fg_update_waits(&m->numerics);
    bool counts = cx->norm_begun && !waits && !fg_bucket_is_offloaded(m, bucket);
    if (!counts) {
        FgBuilder build = bucket_builder(cx, bucket, FG_PHASE_UPDATE);
        FgNode *node = fg_node_new(&build, FG_OP_norm_add, &b->grad_shard, 1);
        node->bucket = bucket;
        fg_node_set_int(m, node, "accumulate", cx->norm_begun);
        fg_node_finish_into(&build, node, &cx->norm, 1);
        cx->norm_begun = true;
    }
    const Early *early = begun_early(cx, bucket);
    if (early)
        emit_adamw_rows(cx, early, true, true, counts);
    else if (!waits)
        emit_adamw(cx, bucket, false, counts);
}

static void emit_loss_add(Cx *cx, uint32_t loss, bool first)
{
    FgBuilder build = builder(cx, "loss", FG_PHASE_FORWARD);
    FgNode *node = fg_node_new(&build, FG_OP_loss_add, &loss, 1);
    fg_node_set_int(cx->m, node, "accumulate", !first);
    fg_node_finish_into(&build, node, &cx->loss_sum, 1);
}

static void emit_all_reduce(Cx *cx, uint32_t state, const char *name)
{
    FgBuilder build = builder(cx, name, FG_PHASE_UPDATE);
    FgNode *node = fg_node_new(&build, FG_OP_all_reduce, &state, 1);
    fg_node_finish_into(&build, node, &state, 1);
}

static void emit_loss_scale(Cx *cx)
{
    FgBuilder build = builder(cx, "loss scale", FG_PHASE_FORWARD);
    FgNode *node = fg_node_new(&build, FG_OP_loss_scale, &cx->scaler, 1);
    fg_node_finish_into(&build, node, &cx->scalars, 1);
}

/* What the norm of the whole gradient comes to, into the scalars; of a scaled loss this takes the
 * sum of all losses too. */
static void emit_factor(Cx *cx)
{
    FgModule *m = cx->m;
    bool scales = cx->scaler != FG_NO_ID;
    FgBuilder build = builder(cx, scales ? "loss scale" : "gradient norm", FG_PHASE_UPDATE);
    FgNode *node = fg_node_new(&build, scales ? FG_OP_scale_step : FG_OP_clip_factor, &cx->norm, 1);
    uint32_t results[] = {cx->scalars, cx->scaler, cx->loss_sum};
    fg_node_set_float(m, node, "clip", m->numerics.clip);
    fg_node_finish_into(&build, node, results, scales ? 3 : 1);
}

static void emit_step_end(Cx *cx)
{
    if (cx->norm_begun)
        emit_all_reduce(cx, cx->norm, "gradient norm");
    if (cx->norm_begun && cx->scaler == FG_NO_ID)
        emit_factor(cx);
    emit_all_reduce(cx, cx->loss_sum, "loss");
    if (cx->norm_begun && cx->scaler != FG_NO_ID)
        emit_factor(cx);
}

/* ---- bodies ---- */
static uint32_t clone_value(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgValue old = *fg_value(m, id);
    if (old.kind == FG_VALUE_STATE)
        return id;
    uint32_t copy = fg_add_value(m, old.name, old.type);
    FgValue *v = fg_value(m, copy);
    v->mem = old.mem;
    v->host = old.host;
    if (old.root != old.id) {
        v->root = body_value(cx, old.root);
        v->root_offset = old.root_offset;
    }
    cx->map[id] = copy;
    return copy;
}

static uint32_t clone_node(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgNode old = *fg_node(m, id);
    uint32_t *operands = FG_NEW_ARRAY(cx->scratch, uint32_t, old.n_operands + 1);
    uint32_t *results = FG_NEW_ARRAY(cx->scratch, uint32_t, old.n_results + 1);
    for (uint32_t k = 0; k < old.n_operands; k++)
        operands[k] = body_value(cx, old.operands[k]);
    for (uint32_t k = 0; k < old.n_results; k++)
        results[k] = clone_value(cx, old.results[k]);
    FgBuilder build = {m, &cx->order, old.loc, old.name, old.phase, old.layer, old.origin};
    FgNode *node = fg_node_new(&build, old.op, operands, old.n_operands);
    node->bucket = old.bucket;
    memcpy(node->attrs, old.attrs, fg_op_info(old.op)->n_attrs * sizeof *old.attrs);
    fg_node_finish_into(&build, node, results, old.n_results);
    return cx->order.data[cx->order.len - 1];
}

/* A reduction or a lookup: the first part of the first micro-step begins the gradient slice, the
 * last part of the last one completes it. */
static void finish_part(Cx *cx, FgNode *node, const Body *body)
{
    uint32_t bucket = node->bucket;
    if (node->op == FG_OP_all_to_all) {
        fg_vec_push(cx->scratch, &cx->due, bucket);
        return;
    }
    bool adds = fg_node_attr(node, "accumulate")->i != 0;
    bool whole = node->op == FG_OP_reduce_scatter && fg_is_summed(cx->m, node->operands[0]);
    fg_node_set_int(cx->m, node, "accumulate", adds || (!body->first && !whole));
    if (--cx->parts[bucket] == 0 && body->last)
        fg_vec_push(cx->scratch, &cx->due, bucket);
}

/* After node `at` of the base: the updates whose gradients are there, in their order, but those
 * whose weights this step still reads. */
static void emit_due_updates(Cx *cx, uint32_t at)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cx->due.len; i++) {
        uint32_t bucket = cx->due.data[i];
        if (cx->last_read[bucket] > at)
            cx->due.data[kept++] = bucket;
        else if (fg_bucket_in_parts(cx->m, bucket))
            emit_adamw_parts(cx, bucket);
        else
            emit_norm_and_update(cx, bucket);
    }
    cx->due.len = kept;
}

/* Gathers into the carried copies that run round the period, in order of need. */
static void emit_round_gathers(Cx *cx)
{
    for (uint32_t i = 0; i < cx->base.len; i++) {
        const FgNode *node = fg_node(cx->m, cx->base.data[i]);
        if (!is_round(cx, node))
            continue;
        uint32_t bucket = node->bucket, shard = node->operands[0], whole = node->results[0];
        FgBuilder build = bucket_builder(cx, bucket, FG_PHASE_UPDATE);
        FgNode *gather = fg_node_new(&build, FG_OP_gather, &shard, 1);
        gather->bucket = bucket;
        fg_node_finish_into(&build, gather, &whole, 1);
    }
}

/* Does a node of the base stand in this body? Of a carried copy there is one gather and one
 * release, of a gradient that adds up whole one begin and one reduction. */
static bool stands_in(const Cx *cx, const FgNode *node, const Body *body)
{
    if (node->op == FG_OP_gather && fg_is_carried(cx->m, node->results[0]))
        return body->first && !is_round(cx, node);
    if (node->op == FG_OP_release && fg_is_carried(cx->m, node->operands[0]))
        return body->last;
    if (node->op == FG_OP_grad_buffer && fg_is_summed(cx->m, node->results[0]))
        return body->first;
    if (node->op == FG_OP_reduce_scatter && fg_is_summed(cx->m, node->operands[0]))
        return body->last;
    return true;
}

/* A contribution to a gradient that adds up whole. */
static bool contributes_whole(const Cx *cx, const FgNode *node)
{
    uint32_t last = node->n_results > 0 ? node->results[node->n_results - 1] : FG_NO_ID;
    if (last == FG_NO_ID)
        return false;
    uint32_t root = cx->m->values.data[last].root;
    return root != last && fg_is_summed(cx->m, root);
}

static void emit_body(Cx *cx, const Body *body)
{
    FgModule *m = cx->m;
    cx->order = (FgIdVec){0};
    cx->norm_begun = false;
    for (uint32_t i = 0; i < cx->early.len; i++)
        cx->early.data[i].set = FG_NO_ID;
    for (uint32_t b = 0; b < m->buckets.len; b++)
        cx->parts[b] = (m->buckets.data[b].writes > 0) + m->buckets.data[b].lookups;
    memset(cx->map, 0xff, cx->n_map * sizeof *cx->map);
    if (body->first && cx->scaler != FG_NO_ID)
        emit_loss_scale(cx);
    if (body->first && fg_update_waits(&m->numerics))
        emit_pending_updates(cx);
    uint32_t loss = m->loss;
    for (uint32_t i = 0; i < cx->base.len; i++) {
        uint32_t id = cx->base.data[i];
        if (!stands_in(cx, fg_node(m, id), body))
            continue;
        if (cx->clone)
            id = clone_node(cx, id);
        else
            fg_vec_push(m->arena, &cx->order, id);
        FgNode *node = fg_node(m, id);
        if (!body->first && contributes_whole(cx, node))
            fg_node_set_int(m, node, "accumulate", true);
        if (node->n_results > 0 && node->results[0] == body_value(cx, loss))
            emit_loss_add(cx, body_value(cx, loss), body->first);
        if (node->op == FG_OP_reduce_scatter || node->op == FG_OP_all_to_all ||
            node->op == FG_OP_lookup_dw || node->op == FG_OP_vocab_dw || node->op == FG_OP_vocab_db)
            finish_part(cx, node, body);
        emit_due_updates(cx, i);
        if (body->last)
            emit_early_updates(cx, i);
    }
    if (body->last) {
        emit_step_end(cx);
        emit_round_gathers(cx);
    }
    fg_add_func(m, body->name)->order = cx->order;
}

static void emit_bodies(Cx *cx)
{
    FgModule *m = cx->m;
    int64_t k = m->numerics.accumulate;
    cx->n_map = m->values.len;
    cx->map = FG_NEW_ARRAY(cx->scratch, uint32_t, cx->n_map + 1);
    m->funcs.len = 0;
    Body only = {"step", true, true}, first = {"first", true, false},
         middle = {"middle", false, false}, last = {"last", false, true};
    cx->clone = k > 1;
    if (k == 1) {
        emit_body(cx, &only);
        return;
    }
    emit_body(cx, &first);
    if (k > 2)
        emit_body(cx, &middle);
    emit_body(cx, &last);
    m->loss = body_value(cx, m->loss);
}

FgPassResult fg_pass_update(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (!fg_pass_is_first(m, FG_OP_loss_add, "update"))
        return FG_PASS_FAILED;
    Cx cx = {.m = m, .scratch = pass->scratch};
    FgIdVec old = fg_func(m, "step")->order;
    cx.scalars = state_of(m, FG_ROLE_SCALARS);
    cx.loss_sum = state_of(m, FG_ROLE_LOSS);
    cx.norm = state_of(m, FG_ROLE_NORM);
    cx.scaler = state_of(m, FG_ROLE_SCALER);
    cx.parts = FG_NEW_ARRAY(pass->scratch, uint32_t, m->buckets.len + 1);
    hoist_constants(&cx, &old);
    cast_masters(&cx);
    find_last_reads(&cx);
    FgIdVec init = cx.order;
    if (!find_all_early(&cx))
        return FG_PASS_FAILED;
    emit_bodies(&cx);
    if (init.len > 0)
        fg_add_func(m, "init")->order = init;
    cx.order = (FgIdVec){0};
    emit_round_gathers(&cx);
    if (cx.order.len > 0)
        fg_add_func(m, "prologue")->order = cx.order;
    if (m->numerics.clip > 0 || cx.scaler != FG_NO_ID) {
        cx.order = (FgIdVec){0};
        emit_pending_updates(&cx);
        fg_add_func(m, "flush")->order = cx.order;
    }
    return FG_PASS_CHANGED;
}
