/* head: the head and its loss in pieces of tokens, so that the logits never exist whole. Graph
 * level, after autodiff.
 *
 * Under the numerics `chunk=N` a head that is gathered (`vocab` left it so) makes the logits of N
 * tokens at a time. The loss's factor is known before (it counts labels alone), so a piece's
 * backward follows its forward at once, and one piece's logits are all that there is:
 *
 *   %l = linear %x, %w                        for each piece of N rows, in order:
 *   %s, %e = cross_entropy %l, %t, %f           %xi = rows %x, %ti = rows %t       names, no copies
 *   ...                                         %li = linear %xi, %w
 *   %dl = cross_entropy_back %l, ...     ->     %si, %ei = cross_entropy %li, %ti, %f
 *   %dx = linear_dx %dl, %w                     %dli = cross_entropy_back %li, ...  in %li's memory
 *   %dw = linear_dw %x, %dl                     %dxi = linear_dx %dli, %w
 *   grad %dw                                    grad (linear_dw %xi, %dli)
 *                                             %s = %s0 + %s1 + ...; %dx = %dx0 over %dx1 over ...
 *
 * What it changes: each row's logits, loss and dx are what they were. The loss adds up in f32, a
 * piece at a time. The weight's gradient is one contribution a piece: inside a piece it is summed
 * by the product's own accumulator, and rounded to the wire dtype where it is added to the
 * gradient buffer, once a piece instead of once. So this is numerics, alike for every schedule.
 *
 * N is rounded up to a multiple of 8, and is 0, in the module too, where all tokens are one piece.
 *
 * The parts of dx are put together two by two, equals first: log2(pieces) copies of its bytes. */
#include "passes/vocab.h"

#include <string.h>

/* A piece is so many tokens or a multiple: then its rows and its labels lie aligned. */
#define ALIGN_TOKENS 8

/* Rows of dx that are there, from the top of a stack on. */
typedef struct Part {
    uint32_t value, merged; /* merged: how many times two equals became one */
} Part;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    FgUses uses;
    FgIdVec order;
    bool *dropped; /* node */
    FgHead head;
    FgNode linear, loss; /* copies: nodes move while others are added */
    FgBuilder forward, backward;
    uint32_t x, labels; /* [tokens, hidden], [tokens] */
    uint32_t sum;       /* of the losses of the pieces so far */
    FG_VEC(Part) parts;
    bool failed;
} Cx;

static const FgType *type_of(const Cx *cx, uint32_t value)
{
    return cx->m->values.data[value].type;
}

/* ---- small nodes ---- */

static uint32_t finish(Cx *cx, FgBuilder *b, FgNode *node, const char *hint)
{
    uint32_t value = fg_node_finish(b, node, hint);
    cx->failed |= value == FG_NO_ID;
    return value;
}

/* The value with its leading dimensions as one, so that `rows` counts tokens. */
static uint32_t flatten(Cx *cx, uint32_t value, int64_t tokens)
{
    const FgType *type = type_of(cx, value);
    int64_t dims[] = {tokens, fg_type_elements(type) / tokens};
    bool is_row = value == cx->loss.operands[1]; /* labels: an entry a token */
    if (type->rank == (is_row ? 1u : 2u))
        return value;
    FgNode *node = fg_node_new(&cx->forward, FG_OP_reshape, &value, 1);
    fg_node_set_ints(cx->m, node, "shape", dims, is_row ? 1 : 2);
    return finish(cx, &cx->forward, node, fg_value(cx->m, value)->name);
}

static uint32_t rows(Cx *cx, uint32_t value, int64_t first, int64_t count)
{
    FgNode *node = fg_node_new(&cx->forward, FG_OP_rows, &value, 1);
    fg_node_set_int(cx->m, node, "first", first);
    fg_node_set_int(cx->m, node, "count", count);
    return finish(cx, &cx->forward, node, fg_value(cx->m, value)->name);
}

static void copy_attrs(FgNode *to, const FgNode *from)
{
    memcpy(to->attrs, from->attrs, fg_op_info(to->op)->n_attrs * sizeof *to->attrs);
}

/* ---- a piece ---- */

static void add_loss(Cx *cx, uint32_t loss)
{
    if (cx->sum == FG_NO_ID) {
        cx->sum = loss;
        return;
    }
    FgNode *node = fg_node_new(&cx->forward, FG_OP_add, (uint32_t[]){cx->sum, loss}, 2);
    cx->sum = finish(cx, &cx->forward, node, "loss");
}

/* The two parts at the top of the stack become one. */
static void merge_parts(Cx *cx)
{
    Part *a = &cx->parts.data[cx->parts.len - 2], *b = a + 1;
    FgNode *node = fg_node_new(&cx->backward, FG_OP_concat, (uint32_t[]){a->value, b->value}, 2);
    fg_node_set_int(cx->m, node, "axis", 0);
    a->value = finish(cx, &cx->backward, node, fg_value(cx->m, a->value)->name);
    a->merged++;
    cx->parts.len--;
}

static void add_part(Cx *cx, uint32_t value)
{
    fg_vec_push(cx->scratch, &cx->parts, ((Part){value, 0}));
    while (!cx->failed && cx->parts.len > 1 &&
           cx->parts.data[cx->parts.len - 1].merged == cx->parts.data[cx->parts.len - 2].merged)
        merge_parts(cx);
}

/* A piece's contribution to the gradient of weight or bias, like the whole head's node `like`. */
static void contribute(Cx *cx, uint32_t like, const uint32_t *operands, uint32_t n)
{
    if (like == FG_NO_ID || cx->failed)
        return;
    FgNode whole = *fg_node(cx->m, like);
    FgNode grad = *fg_node(cx->m, fg_uses_only(&cx->uses, whole.results[0]));
    FgNode *node = fg_node_new(&cx->backward, whole.op, operands, n);
    copy_attrs(node, &whole);
    uint32_t value = finish(cx, &cx->backward, node, fg_value(cx->m, whole.results[0])->name);
    node = fg_node_new(&cx->backward, FG_OP_grad, &value, 1);
    copy_attrs(node, &grad);
    fg_node_finish_into(&cx->backward, node, NULL, 0);
}

/* dx before dw, as autodiff has it. */
static void piece_backward(Cx *cx, uint32_t x, uint32_t labels, uint32_t logits, uint32_t lse)
{
    FgModule *m = cx->m;
    if (cx->head.back == FG_NO_ID || cx->failed)
        return;
    FgNode back = *fg_node(m, cx->head.back);
    uint32_t in[] = {logits, labels, lse, back.operands[3]};
    FgNode *node = fg_node_new(&cx->backward, FG_OP_cross_entropy_back, in, 4);
    copy_attrs(node, &back);
    uint32_t d_logits = finish(cx, &cx->backward, node, fg_value(m, back.results[0])->name);
    if (cx->head.dx != FG_NO_ID && !cx->failed) {
        FgNode whole = *fg_node(m, cx->head.dx);
        node = fg_node_new(&cx->backward, FG_OP_linear_dx,
                           (uint32_t[]){d_logits, cx->linear.operands[1]}, 2);
        copy_attrs(node, &whole);
        add_part(cx, finish(cx, &cx->backward, node, fg_value(m, whole.results[0])->name));
    }
    contribute(cx, cx->head.dw, (uint32_t[]){x, d_logits}, 2);
    contribute(cx, cx->head.db, &d_logits, 1);
}

static void piece(Cx *cx, int64_t first, int64_t count)
{
    FgModule *m = cx->m;
    uint32_t x = rows(cx, cx->x, first, count), labels = rows(cx, cx->labels, first, count);
    uint32_t in[] = {x, cx->linear.operands[1], FG_NO_ID};
    if (cx->linear.n_operands > 2)
        in[2] = cx->linear.operands[2];
    FgNode *node = fg_node_new(&cx->forward, FG_OP_linear, in, cx->linear.n_operands);
    copy_attrs(node, &cx->linear);
    uint32_t logits = finish(cx, &cx->forward, node, fg_value(m, cx->linear.results[0])->name);
    if (cx->failed)
        return;
    node = fg_node_new(&cx->forward, FG_OP_cross_entropy,
                       (uint32_t[]){logits, labels, cx->loss.operands[2]}, 3);
    copy_attrs(node, &cx->loss);
    uint32_t id = node->id;
    uint32_t loss = finish(cx, &cx->forward, node, fg_value(m, cx->loss.results[0])->name);
    if (cx->failed)
        return;
    uint32_t lse = fg_node(m, id)->results[1];
    fg_value(m, lse)->name = fg_value(m, cx->loss.results[1])->name;
    add_loss(cx, loss);
    piece_backward(cx, x, labels, logits, lse);
}

/* ---- the whole ---- */

/* `value`, made elsewhere in the old order, is now another name of `is`. */
static void rename_value(Cx *cx, FgBuilder *b, uint32_t value, uint32_t is)
{
    const FgType *type = type_of(cx, value);
    FgNode *node = fg_node_new(b, FG_OP_reshape, &is, 1);
    fg_node_set_ints(cx->m, node, "shape", type->dims, type->rank);
    fg_value(cx->m, value)->def = FG_NO_ID;
    fg_node_finish_into(b, node, &value, 1);
}

static int64_t tokens_of(const Cx *cx, const FgHead *head)
{
    return fg_type_elements(type_of(cx, cx->m->nodes.data[head->loss].operands[1]));
}

static void emit(Cx *cx)
{
    int64_t tokens = tokens_of(cx, &cx->head), chunk = cx->m->numerics.chunk;
    cx->forward = (FgBuilder){cx->m,           &cx->order,       cx->linear.loc,
                              cx->linear.name, FG_PHASE_FORWARD, cx->linear.layer,
                              cx->linear.id};
    cx->backward = cx->forward;
    cx->backward.phase = FG_PHASE_BACKWARD;
    cx->x = flatten(cx, cx->linear.operands[0], tokens);
    cx->labels = flatten(cx, cx->loss.operands[1], tokens);
    for (int64_t at = 0; at < tokens && !cx->failed; at += chunk)
        piece(cx, at, at + chunk < tokens ? chunk : tokens - at);
    if (cx->failed)
        return;
    rename_value(cx, &cx->forward, cx->loss.results[0], cx->sum);
    if (cx->parts.len == 0)
        return;
    while (cx->parts.len > 1 && !cx->failed)
        merge_parts(cx);
    uint32_t dx = fg_node(cx->m, cx->head.dx)->results[0];
    if (!cx->failed)
        rename_value(cx, &cx->backward, dx, cx->parts.data[0].value);
}

static void drop(Cx *cx, uint32_t node)
{
    if (node != FG_NO_ID)
        cx->dropped[node] = true;
}

static void drop_contribution(Cx *cx, uint32_t node)
{
    drop(cx, node);
    if (node != FG_NO_ID)
        drop(cx, fg_uses_only(&cx->uses, fg_node(cx->m, node)->results[0]));
}

/* What the pieces do instead, but for the loss, in whose place they stand. */
static void drop_whole(Cx *cx, const FgIdVec *old)
{
    drop(cx, cx->head.linear);
    drop(cx, cx->head.back);
    for (uint32_t i = 0; i < old->len; i++) { /* reshapes of the logits and of their gradient */
        const FgNode *node = fg_node(cx->m, old->data[i]);
        const FgValue *x = node->op == FG_OP_reshape ? fg_value(cx->m, node->operands[0]) : NULL;
        if (x && x->kind == FG_VALUE_RESULT && cx->dropped[x->def])
            cx->dropped[node->id] = true;
    }
    drop(cx, cx->head.dx);
    drop_contribution(cx, cx->head.dw);
    drop_contribution(cx, cx->head.db);
}

/* The linear node that makes the logits of the module's loss, through reshapes; or FG_NO_ID. */
static uint32_t find_linear(const FgModule *m)
{
    uint32_t value = m->loss;
    for (FgOp want = FG_OP_cross_entropy;;) {
        const FgValue *v = value == FG_NO_ID ? NULL : &m->values.data[value];
        if (!v || v->kind != FG_VALUE_RESULT)
            return FG_NO_ID;
        const FgNode *node = &m->nodes.data[v->def];
        if (node->op == FG_OP_linear && want == FG_OP_linear)
            return node->id;
        if (node->op == FG_OP_cross_entropy && want == FG_OP_cross_entropy)
            want = FG_OP_linear;
        else if (node->op != FG_OP_reshape)
            return FG_NO_ID;
        value = node->operands[0];
    }
}

bool fg_head_find(const FgUses *uses, FgHead *out, const char **out_why)
{
    uint32_t linear = find_linear(uses->module);
    *out_why = "the loss is no cross-entropy of what a linear node makes";
    return linear != FG_NO_ID && fg_head_match(uses, linear, out, out_why);
}

FgPassResult fg_pass_head(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (m->numerics.vocab != FG_VOCAB_GATHERED || m->numerics.chunk == 0)
        return FG_PASS_UNCHANGED;
    Cx cx = {.m = m, .scratch = pass->scratch, .uses = fg_uses(pass->scratch, m), .sum = FG_NO_ID};
    const char *why;
    if (!fg_head_find(&cx.uses, &cx.head, &why)) {
        FgLoc loc = m->loss == FG_NO_ID || fg_value(m, m->loss)->kind != FG_VALUE_RESULT
                        ? FG_NOWHERE
                        : fg_node(m, fg_value(m, m->loss)->def)->loc;
        fg_diag(m->diags, loc, FG_D_STAYS_WHOLE, "the head stays whole: %s", why);
        return FG_PASS_UNCHANGED;
    }
    int64_t chunk = (m->numerics.chunk + ALIGN_TOKENS - 1) / ALIGN_TOKENS * ALIGN_TOKENS;
    if (chunk >= tokens_of(&cx, &cx.head))
        chunk = 0;
    bool stated = chunk == m->numerics.chunk;
    m->numerics.chunk = chunk;
    if (chunk == 0)
        return stated ? FG_PASS_UNCHANGED : FG_PASS_CHANGED;
    cx.linear = *fg_node(m, cx.head.linear);
    cx.loss = *fg_node(m, cx.head.loss);
    cx.dropped = FG_NEW_ARRAY(pass->scratch, bool, m->nodes.len + 1);
    FgIdVec old = fg_func(m, "step")->order;
    drop_whole(&cx, &old);
    for (uint32_t i = 0; i < old.len && !cx.failed; i++) {
        if (old.data[i] == cx.head.loss)
            emit(&cx);
        else if (!cx.dropped[old.data[i]])
            fg_vec_push(m->arena, &cx.order, old.data[i]);
    }
    fg_func(m, "step")->order = cx.order;
    return cx.failed ? FG_PASS_FAILED : FG_PASS_CHANGED;
}
