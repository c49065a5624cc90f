/* Types of the ops below graph level.
 *
 * Their results are values that exist already, so that shape inference has nothing to say of them.
 * But a call passes one dtype for several of its operands, and sizes of some alone: a gather moves
 * bytes, and what comes out is of the type that goes in; an update reads moments as f32, whatever
 * their values say. Each rule here is one that a runtime's call takes for granted. */
#include "ir/verify.h"

#include <inttypes.h>
#include <string.h>

typedef struct Cx {
    FgVerifier *v;
    const FgNode *node;
    const FgBucket *bucket; /* or NULL */
    uint64_t ranks;         /* at least 1 */
} Cx;

static const FgValue *value(const Cx *cx, uint32_t id)
{
    return &cx->v->m->values.data[id];
}

/* Operand or result `i`: FG_NO_ID where it is left out. */
static uint32_t in(const Cx *cx, uint32_t i)
{
    return i < cx->node->n_operands ? cx->node->operands[i] : FG_NO_ID;
}

static uint32_t out(const Cx *cx, uint32_t i)
{
    return i < cx->node->n_results ? cx->node->results[i] : FG_NO_ID;
}

static const FgType *type(const Cx *cx, uint32_t id)
{
    return value(cx, id)->type;
}

static uint64_t elements(const Cx *cx, uint32_t id)
{
    return (uint64_t)fg_type_elements(type(cx, id));
}

static uint64_t attr(const Cx *cx, const char *name)
{
    return (uint64_t)fg_node_attr(cx->node, name)->i; /* negative ones fit nowhere */
}

static void fail(const Cx *cx, uint32_t id, const char *why)
{
    fg_verify_fail_node(cx->v, cx->node, "%s is %s, %s", fg_verify_value_text(cx->v, id),
                        fg_verify_type_text(cx->v, type(cx, id)), why);
}

/* ---- what a value must be; left out, it is ---- */

static void want_dtype(const Cx *cx, uint32_t id, FgDtype dtype)
{
    if (id != FG_NO_ID && type(cx, id)->dtype != dtype)
        fail(cx, id, fg_arena_printf(cx->v->scratch, "not of %s", fg_dtype_name(dtype)));
}

static void want_like(const Cx *cx, uint32_t id, uint32_t other)
{
    if (id != FG_NO_ID && other != FG_NO_ID && type(cx, id) != type(cx, other))
        fail(cx, id,
             fg_arena_printf(cx->v->scratch, "not %s as %s is",
                             fg_verify_type_text(cx->v, type(cx, other)),
                             fg_verify_value_text(cx->v, other)));
}

/* Dimensions rows and cols; [rows] for cols 0, a scalar for both. */
static void want_shape(const Cx *cx, uint32_t id, FgDtype dtype, uint64_t rows, uint64_t cols)
{
    if (id == FG_NO_ID)
        return;
    const FgType *t = type(cx, id);
    uint32_t rank = cols ? 2 : rows ? 1 : 0;
    bool fits = t->dtype == dtype && t->rank == rank &&
                (rank < 1 || (uint64_t)t->dims[0] == rows) &&
                (rank < 2 || (uint64_t)t->dims[1] == cols);
    if (fits)
        return;
    FgArena *to = cx->v->scratch;
    const char *dims = !rows ? "" : fg_arena_printf(to, "%" PRIu64, rows);
    if (cols)
        dims = fg_arena_printf(to, "%s, %" PRIu64, dims, cols);
    fail(cx, id, fg_arena_printf(to, "not %s[%s]", fg_dtype_name(dtype), dims));
}

static void want_elements(const Cx *cx, uint32_t id, uint64_t n)
{
    if (id != FG_NO_ID && elements(cx, id) != n)
        fail(cx, id, fg_arena_printf(cx->v->scratch, "not of %" PRIu64 " elements", n));
}

static void want_role(const Cx *cx, uint32_t id, FgRole role)
{
    if (id != FG_NO_ID && (value(cx, id)->kind != FG_VALUE_STATE || value(cx, id)->role != role))
        fail(cx, id, fg_arena_printf(cx->v->scratch, "and not the state '%s'", fg_role_name(role)));
}

/* The loss's factor: the first of the scalars. */
static void want_seed(const Cx *cx, uint32_t id)
{
    want_shape(cx, id, FG_F32, 0, 0);
    const FgValue *x = value(cx, id);
    bool inside = fg_verify_is_value(cx->v, x->root);
    if (!inside || value(cx, x->root)->role != FG_ROLE_SCALARS ||
        x->root_offset != FG_SEED_SLOT * sizeof(float))
        fail(cx, id, "and not the factor among the scalars");
}

static void want(const Cx *cx, bool holds, const char *what)
{
    if (!holds)
        fg_verify_fail_node(cx->v, cx->node, "%s", what);
}

/* ---- pieces ---- */

/* The node of that op that makes a value, through names of it; or NULL. */
static const FgNode *maker(const Cx *cx, uint32_t id, FgOp op)
{
    const FgModule *m = cx->v->m;
    for (uint32_t steps = 0; id < m->values.len && steps < m->nodes.len; steps++) {
        const FgValue *x = value(cx, id);
        bool made = x->kind == FG_VALUE_RESULT && x->def < m->nodes.len;
        const FgNode *def = made ? &m->nodes.data[x->def] : NULL;
        if (!def || def->op == op)
            return def;
        if (!(fg_op_info(def->op)->flags & FG_OPF_VIEW) || def->n_operands == 0)
            return NULL;
        id = def->operands[0];
    }
    return NULL;
}

static uint64_t first_of(const FgNode *node)
{
    return (uint64_t)fg_node_attr(node, "first")->i;
}

/* What a call reads from token `first` on was collected from there on. */
static void want_piece(const Cx *cx, uint32_t id, uint64_t first)
{
    const FgNode *collect = maker(cx, id, FG_OP_collect);
    if (!collect)
        return;
    const FgType *t = type(cx, collect->results[0]);
    uint64_t cols = t->rank > 1 ? (uint64_t)fg_type_cols(t) : 1;
    if (first_of(collect) != first * cols)
        fail(cx, id, "and of other tokens");
}

/* ---- collectives ---- */

/* `part` holds the same number of elements for each rank: as many of each lie inside `n` elements
 * of `whole` from the attribute `first` on, in rows of the same width. */
static void want_range(const Cx *cx, uint32_t whole, uint32_t part)
{
    uint64_t first = attr(cx, "first"), n = elements(cx, part), all = elements(cx, whole);
    uint64_t cols = (uint64_t)(type(cx, part)->rank > 1 ? fg_type_cols(type(cx, part)) : 1);
    want(cx,
         n % (cx->ranks * cols) == 0 && first % cols == 0 && all % cols == 0 && first <= all &&
             n / cx->ranks <= all - first,
         "its parts are no whole rows inside what they are parts of");
}

/* The node that returns rows into a value, or NULL. */
static const FgNode *returns(const Cx *cx, uint32_t id)
{
    return maker(cx, id, FG_OP_return_rows);
}

/* Up to which element a value is there, rows returned to it one piece after another. */
static uint64_t returned(const Cx *cx, const FgNode *node)
{
    return (uint64_t)fg_node_attr(node, "first")->i + elements(cx, node->operands[1]) / cx->ranks;
}

static void want_next(const Cx *cx, uint32_t before, uint32_t y, uint32_t part)
{
    const FgNode *last = returns(cx, before);
    want(cx, attr(cx, "first") == (last ? returned(cx, last) : 0) && (last || before == FG_NO_ID),
         "its rows do not follow on those before them");
    uint64_t cols = (uint64_t)fg_type_cols(type(cx, part));
    const FgNode *dx = maker(cx, part, FG_OP_vocab_dx);
    const FgNode *rows =
        dx ? maker(cx, dx->operands[0], FG_OP_vocab_dlogits) : maker(cx, part, FG_OP_lookup_rows);
    want(cx, !rows || first_of(rows) * cols == attr(cx, "first"), "its rows are of other tokens");
    want(cx, (uint64_t)fg_type_cols(type(cx, y)) == cols, "its rows differ in width");
}

/* All but the next piece read a value whose rows are all there. */
static void want_returned(const Cx *cx)
{
    for (uint32_t i = 0; i < cx->node->n_operands; i++) {
        const FgNode *def = returns(cx, in(cx, i));
        if (def && cx->node->op != FG_OP_return_rows &&
            returned(cx, def) != elements(cx, def->results[0]))
            fail(cx, in(cx, i), "of which rows are missing");
    }
}

static void collective(const Cx *cx)
{
    uint32_t x = in(cx, 0), y = out(cx, 0);
    FgDtype wire = cx->v->m->numerics.wire;
    switch ((int)cx->node->op) {
    case FG_OP_gather:
        want_dtype(cx, x, cx->bucket->dtype);
        want_shape(cx, y, cx->bucket->dtype, cx->bucket->elements, 0);
        break;
    case FG_OP_reduce_scatter:
        want_shape(cx, x, wire, cx->bucket->elements, 0);
        break;
    case FG_OP_all_to_all:
        want_shape(cx, x, wire, cx->bucket->elements, 0);
        want_like(cx, y, x);
        break;
    case FG_OP_exchange:
        want_dtype(cx, y, type(cx, x)->dtype);
        want_elements(cx, y, elements(cx, x) * cx->ranks);
        break;
    case FG_OP_all_reduce:
        want(cx, x == y, "it works in place");
        want(cx, type(cx, y)->dtype == FG_I64 || type(cx, y)->dtype == FG_F64,
             "it adds up i64 or f64");
        break;
    case FG_OP_collect:
        want_dtype(cx, y, type(cx, x)->dtype);
        want_range(cx, x, y);
        break;
    case FG_OP_return_rows:
        want_like(cx, x, y);
        if (type(cx, in(cx, 1))->dtype != FG_F32)
            want_dtype(cx, in(cx, 1), type(cx, y)->dtype);
        want_range(cx, y, in(cx, 1));
        want_next(cx, x, y, in(cx, 1));
        break;
    default: /* rules[] sends no other here */
        break;
    }
}

/* Copies to and from host memory. */
static void copy(const Cx *cx)
{
    want_like(cx, out(cx, 0), in(cx, 0));
}

/* ---- lookups ---- */

/* Is there a table of `rows` rows of `cols` elements at element `at` of a bucket with that shard?
 */
static bool is_table(const Cx *cx, uint32_t shard, uint64_t at, uint64_t rows, uint64_t cols)
{
    const FgModule *m = cx->v->m;
    for (uint32_t i = 0; i < m->params.len; i++) {
        const FgParam *p = &m->params.data[i];
        const FgBucket *b = p->bucket < m->buckets.len ? &m->buckets.data[p->bucket] : NULL;
        if (b && b->shard < m->values.len && m->values.data[b->shard].type == type(cx, shard) &&
            (b->shard == shard || value(cx, shard)->kind != FG_VALUE_STATE) &&
            p->bucket_offset == at && (uint64_t)p->type->dims[0] == rows &&
            rows * cols == (uint64_t)fg_type_elements(p->type))
            return true;
    }
    return false;
}

static void lookup(const Cx *cx)
{
    uint32_t ids = in(cx, 0), x = in(cx, 1), y = out(cx, 0);
    want_dtype(cx, ids, FG_I32);
    if (cx->node->op == FG_OP_row_set) {
        want_shape(cx, y, FG_I32, (attr(cx, "vocab") + 31) / 32, 0);
    } else if (cx->node->op == FG_OP_lookup_dw) {
        const FgNode *collect = maker(cx, ids, FG_OP_collect);
        want_dtype(cx, x, cx->v->m->numerics.compute);
        if (collect)
            want_piece(cx, x, first_of(collect));
    } else {
        uint64_t cols = (uint64_t)fg_type_cols(type(cx, y));
        want(cx, is_table(cx, x, attr(cx, "table"), attr(cx, "vocab"), cols),
             "no such table lies in that shard");
        want_shape(cx, y, type(cx, x)->dtype, (uint64_t)fg_type_rows(type(cx, y)), cols);
        uint64_t n = elements(cx, ids), rows = (uint64_t)fg_type_rows(type(cx, y));
        want(cx,
             rows % cx->ranks == 0 && n % cx->ranks == 0 && attr(cx, "first") <= n &&
                 rows / cx->ranks <= n / cx->ranks - attr(cx, "first"),
             "its rows are not those of ids that are there");
    }
}

/* ---- a head in shards ---- */

/* Some sharded table has `vocab` rows, of which each rank owns `cols`. */
static bool is_owned(const Cx *cx, uint64_t vocab, uint64_t cols)
{
    const FgModule *m = cx->v->m;
    for (uint32_t i = 0; i < m->params.len; i++) {
        const FgParam *p = &m->params.data[i];
        if (!p->sharded || p->bucket >= m->buckets.len || (uint64_t)p->type->dims[0] != vocab)
            continue;
        uint64_t width = (uint64_t)fg_type_elements(p->type) / vocab;
        if (m->buckets.data[p->bucket].elements / cx->ranks == cols * width)
            return true;
    }
    return false;
}

/* Rows of tokens from `first` of each rank on; `labels` are all ranks'. */
static void want_tokens(const Cx *cx, uint64_t rows)
{
    uint64_t n = elements(cx, in(cx, 1));
    want_dtype(cx, in(cx, 1), FG_I32);
    want(cx,
         rows % cx->ranks == 0 && n % cx->ranks == 0 && attr(cx, "first") <= n / cx->ranks &&
             rows / cx->ranks <= n / cx->ranks - attr(cx, "first"),
         "its rows are not those of labels that are there");
}

static void logits(const Cx *cx)
{
    const FgType *x = type(cx, in(cx, 0));
    uint64_t rows = (uint64_t)fg_type_rows(x);
    want_dtype(cx, in(cx, 0), cx->v->m->numerics.compute);
    want_tokens(cx, rows);
    want(cx, is_owned(cx, attr(cx, "vocab"), (uint64_t)fg_type_cols(x)),
         "its columns are no owned rows of a sharded table");
    const FgNode *linear = maker(cx, in(cx, 0), FG_OP_linear);
    if (linear)
        want_piece(cx, linear->operands[0], attr(cx, "first"));
    if (cx->node->op == FG_OP_vocab_stats) {
        want_shape(cx, out(cx, 0), FG_F32, rows, 3);
        return;
    }
    want_shape(cx, in(cx, 2), FG_F32, rows, 0);
    want_seed(cx, in(cx, 3));
    want_like(cx, out(cx, 0), in(cx, 0));
}

static void loss(const Cx *cx)
{
    uint64_t rows = elements(cx, out(cx, 1));
    want_tokens(cx, rows);
    want_shape(cx, in(cx, 0), FG_F32, cx->ranks * rows, 3);
    const FgNode *all = maker(cx, in(cx, 0), FG_OP_collect);
    const FgNode *stats = all ? maker(cx, all->operands[0], FG_OP_vocab_stats) : NULL;
    want(cx,
         stats && first_of(stats) == attr(cx, "first") &&
             (uint64_t)fg_node_attr(stats, "vocab")->i == attr(cx, "vocab"),
         "its statistics are of other tokens, or of another table");
    want_seed(cx, in(cx, 2));
    want_shape(cx, in(cx, 3), FG_F32, 0, 0);
    want_shape(cx, out(cx, 0), FG_F32, 0, 0);
    want_shape(cx, out(cx, 1), FG_F32, rows, 0);
}

static void head(const Cx *cx)
{
    uint32_t a = in(cx, 0), b = in(cx, 1), y = out(cx, 0);
    uint64_t rows = (uint64_t)fg_type_rows(type(cx, a));
    want_dtype(cx, a, cx->v->m->numerics.compute);
    if (cx->node->op == FG_OP_vocab_db) {
        want_elements(cx, y, (uint64_t)fg_type_cols(type(cx, a)));
        return;
    }
    uint64_t cols = (uint64_t)fg_type_cols(type(cx, b));
    want_dtype(cx, b, type(cx, a)->dtype);
    if (cx->node->op == FG_OP_vocab_dx) {
        want_shape(cx, b, type(cx, a)->dtype, (uint64_t)fg_type_cols(type(cx, a)), cols);
        want_shape(cx, y, FG_F32, rows, cols);
    } else {
        const FgNode *dlogits = maker(cx, b, FG_OP_vocab_dlogits);
        if (dlogits)
            want_piece(cx, a, first_of(dlogits));
        want(cx, (uint64_t)fg_type_rows(type(cx, b)) == rows, "its operands differ in rows");
        want_elements(cx, y, (uint64_t)fg_type_cols(type(cx, a)) * cols);
    }
}

/* ---- gradients and updates ---- */

static void gradient(const Cx *cx)
{
    FgDtype wire = cx->v->m->numerics.wire;
    if (cx->node->op == FG_OP_grad_buffer) {
        want_shape(cx, out(cx, 0), wire, cx->bucket->elements, 0);
        return;
    }
    const FgType *x = type(cx, in(cx, 0)), *y = type(cx, out(cx, 0));
    want(cx, fg_dtype_is_float(x->dtype) && fg_type_elements(x) == fg_type_elements(y),
         "a gradient and its place differ in size");
    want_dtype(cx, out(cx, 0), wire);
}

static void update(const Cx *cx)
{
    bool rows = cx->node->op == FG_OP_adamw_rows;
    want_role(cx, in(cx, 1), FG_ROLE_SCALARS);
    if (!fg_verify_is_value(cx->v, cx->bucket->grad_shard))
        return; /* said of the bucket */
    FgDtype dtype = type(cx, cx->bucket->grad_shard)->dtype;
    want_dtype(cx, in(cx, 0), dtype);
    for (uint32_t i = 0; i < 3; i++)
        want_dtype(cx, out(cx, i), FG_F32);
    want_dtype(cx, out(cx, 3), cx->bucket->dtype);
    if (!rows)
        return;
    const FgNode *set = maker(cx, in(cx, 2), FG_OP_row_set); /* the checker refuses others */
    want(cx, !set || (uint64_t)fg_node_attr(set, "vocab")->i == attr(cx, "vocab"),
         "its rows are not those of a set of its table");
    want(cx, !strcmp(fg_node_attr(cx->node, "grad_dtype")->word, fg_dtype_name(dtype)),
         "its grad_dtype is not that of the bucket's gradient");
}

/* Norm, loss and scale: states of the step, each in its place; limits are those of the module. */
static void scalars(const Cx *cx)
{
    FgOp op = cx->node->op;
    if (op == FG_OP_norm_add) {
        want_role(cx, out(cx, 0), FG_ROLE_NORM);
    } else if (op == FG_OP_loss_add) {
        want_shape(cx, in(cx, 0), FG_F32, 0, 0);
        want_role(cx, out(cx, 0), FG_ROLE_LOSS);
    } else {
        want_role(cx, in(cx, 0), op == FG_OP_loss_scale ? FG_ROLE_SCALER : FG_ROLE_NORM);
        want_role(cx, out(cx, 0), FG_ROLE_SCALARS);
        want_role(cx, out(cx, 1), FG_ROLE_SCALER);
        want_role(cx, out(cx, 2), FG_ROLE_LOSS);
        want(cx,
             op == FG_OP_loss_scale || fg_node_attr(cx->node, "clip")->f == cx->v->m->numerics.clip,
             "it clips to another limit than the module's");
    }
}

/* ---- the ops ---- */

/* A view of a gathered copy is one parameter; one of a state, a part of it in its dtype. */
static void view(const Cx *cx)
{
    const FgModule *m = cx->v->m;
    const FgValue *x = value(cx, in(cx, 0)), *y = value(cx, out(cx, 0));
    uint64_t at = y->root_offset - x->root_offset, size = fg_dtype_bytes(x->type->dtype);
    want(cx, at % size == 0, "it begins inside an element");
    const FgNode *def = x->kind == FG_VALUE_RESULT ? &m->nodes.data[x->def] : NULL;
    bool gathered = def ? def->op == FG_OP_gather : x->role == FG_ROLE_GATHERED;
    uint32_t of = def ? def->bucket : x->index;
    if (!gathered || of >= m->buckets.len)
        return;
    const FgBucket *b = &m->buckets.data[of];
    for (uint32_t i = 0; i < b->n_params; i++) {
        const FgParam *p = b->params[i] < m->params.len ? &m->params.data[b->params[i]] : NULL;
        if (p && p->bucket_offset * size == at && p->type == y->type)
            return;
    }
    fail(cx, out(cx, 0), "and no parameter of the bucket");
}

typedef struct Rule {
    FgOp op;
    void (*holds)(const Cx *cx);
    bool bucket; /* which must be there */
} Rule;

static const Rule rules[] = {{FG_OP_gather, collective, true},
                             {FG_OP_reduce_scatter, collective, true},
                             {FG_OP_all_to_all, collective, true},
                             {FG_OP_exchange, collective, false},
                             {FG_OP_all_reduce, collective, false},
                             {FG_OP_collect, collective, false},
                             {FG_OP_return_rows, collective, false},
                             {FG_OP_stash, copy, false},
                             {FG_OP_fetch, copy, false},
                             {FG_OP_lookup_dw, lookup, false},
                             {FG_OP_lookup_rows, lookup, false},
                             {FG_OP_row_set, lookup, false},
                             {FG_OP_vocab_stats, logits, false},
                             {FG_OP_vocab_dlogits, logits, false},
                             {FG_OP_vocab_loss, loss, false},
                             {FG_OP_vocab_dx, head, false},
                             {FG_OP_vocab_dw, head, false},
                             {FG_OP_vocab_db, head, false},
                             {FG_OP_grad_buffer, gradient, true},
                             {FG_OP_grad_write, gradient, false},
                             {FG_OP_adamw, update, true},
                             {FG_OP_adamw_part, update, true},
                             {FG_OP_adamw_rows, update, true},
                             {FG_OP_adamw_parts, update, true},
                             {FG_OP_norm_add, scalars, false},
                             {FG_OP_loss_add, scalars, false},
                             {FG_OP_clip_factor, scalars, false},
                             {FG_OP_loss_scale, scalars, false},
                             {FG_OP_scale_step, scalars, false},
                             {FG_OP_view, view, false}};

void fg_verify_node_low_types(FgVerifier *v, const FgNode *node)
{
    const FgModule *m = v->m;
    Cx cx = {v, node, node->bucket < m->buckets.len ? &m->buckets.data[node->bucket] : NULL,
             m->ranks ? m->ranks : 1};
    want_returned(&cx);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == node->op && (cx.bucket || !rules[i].bucket))
            rules[i].holds(&cx);
}
