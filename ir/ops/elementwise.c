/* Element by element: unary functions, scalars, broadcast binaries, casts, fills; and the cost of
 * everything that passes once over its operands. */
#include "ir/ops/ops_util.h"

#include <string.h>

/* ---- inference ---- */

bool fg_infer_same(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0))
        return false;
    types[0] = fg_ops_in(m, node, 0);
    return true;
}

/* A value and the gradient of its like. */
bool fg_infer_pair(FgModule *m, const FgNode *node, const FgType **types)
{
    return fg_infer_same(m, node, types) && fg_ops_need_type(m, node, 1, types[0]);
}

bool fg_infer_binary(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) ||
        !fg_ops_need_dtype(m, node, 1, fg_ops_in(m, node, 0)->dtype))
        return false;
    const FgType *a = fg_ops_in(m, node, 0), *b = fg_ops_in(m, node, 1);
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, rank + 1);
    for (uint32_t i = 0; i < rank; i++) {
        int64_t da = i < rank - a->rank ? 1 : a->dims[i - (rank - a->rank)];
        int64_t db = i < rank - b->rank ? 1 : b->dims[i - (rank - b->rank)];
        if (da != db && da != 1 && db != 1) {
            fg_ops_error(m, node, "a is %s and b is %s, sizes %lld and %lld do not broadcast",
                         fg_ops_text(m, a), fg_ops_text(m, b), (long long)da, (long long)db);
            fg_diag_note(m->diags, FG_NOWHERE,
                         "dimensions are aligned at the last one; a "
                         "missing one or a size of 1 is repeated");
            return false;
        }
        dims[i] = da == 1 ? db : da;
    }
    types[0] = fg_ops_type(m, node, a->dtype, rank, dims);
    return types[0] != NULL;
}

/* Operands of one type, and results of it. */
bool fg_infer_gated(FgModule *m, const FgNode *node, const FgType **types)
{
    return fg_infer_pair(m, node, types);
}

bool fg_infer_gated_back(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_infer_pair(m, node, types) || !fg_ops_need_type(m, node, 2, types[0]))
        return false;
    types[1] = types[0];
    return true;
}

bool fg_infer_cast(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *x = fg_ops_in(m, node, 0);
    FgDtype to;
    if (!fg_ops_need_float(m, node, 0))
        return false;
    if (!fg_dtype_parse(fg_node_attr(node, "to")->word, &to))
        FG_BUG("no dtype '%s'", fg_node_attr(node, "to")->word);
    types[0] = fg_ops_type(m, node, to, x->rank, x->dims);
    return types[0] != NULL;
}

bool fg_infer_full(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgAttr *shape = fg_node_attr(node, "shape");
    FgDtype dtype;
    if (!fg_dtype_parse(fg_node_attr(node, "dtype")->word, &dtype))
        FG_BUG("no dtype '%s'", fg_node_attr(node, "dtype")->word);
    types[0] = fg_ops_type(m, node, dtype, shape->n_ints, shape->ints);
    return types[0] != NULL;
}

/* ---- gradients ---- */

static void add_unary_back(FgGradCx *cx, const FgNode *node, double a)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    FgNode *dx = fg_node_new(&cx->build, FG_OP_unary_back, (uint32_t[]){x, dy}, 2);
    fg_node_set_word(m, dx, "kind", fg_op_info(node->op)->name);
    fg_node_set_float(m, dx, "a", a);
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
}

bool fg_grad_unary(FgGradCx *cx, const FgNode *node)
{
    add_unary_back(cx, node, 0);
    return true;
}

bool fg_grad_pow(FgGradCx *cx, const FgNode *node)
{
    add_unary_back(cx, node, fg_node_attr(node, "exponent")->f);
    return true;
}

bool fg_grad_scale(FgGradCx *cx, const FgNode *node)
{
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    FgNode *dx = fg_node_new(&cx->build, FG_OP_scale, &dy, 1);
    fg_node_set_float(cx->build.module, dx, "factor", fg_node_attr(node, "factor")->f);
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
    return true;
}

bool fg_grad_pass(FgGradCx *cx, const FgNode *node)
{
    fg_grad_add(cx, node->operands[0], fg_grad_of(cx, node->results[0]));
    return true;
}

bool fg_grad_plus(FgGradCx *cx, const FgNode *node)
{
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    for (uint32_t i = 0; i < 2; i++) {
        if (fg_grad_wanted(cx, node->operands[i]))
            fg_ops_grad_unbroadcast(cx, node->operands[i], dy);
    }
    return true;
}

bool fg_grad_sub(FgGradCx *cx, const FgNode *node)
{
    uint32_t a = node->operands[0], b = node->operands[1];
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    if (fg_grad_wanted(cx, a))
        fg_ops_grad_unbroadcast(cx, a, dy);
    if (fg_grad_wanted(cx, b))
        fg_ops_grad_unbroadcast(cx, b, fg_ops_emit(cx, FG_OP_neg, &dy, 1, fg_ops_grad_hint(cx, b)));
    return true;
}

bool fg_grad_mul(FgGradCx *cx, const FgNode *node)
{
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t value = node->operands[i], other = node->operands[1 - i];
        if (!fg_grad_wanted(cx, value))
            continue;
        uint32_t pair[] = {dy, other};
        fg_ops_grad_unbroadcast(cx, value,
                                fg_ops_emit(cx, FG_OP_mul, pair, 2, fg_ops_grad_hint(cx, value)));
    }
    return true;
}

bool fg_grad_gated(FgGradCx *cx, const FgNode *node)
{
    uint32_t gate = node->operands[0], up = node->operands[1];
    uint32_t operands[] = {gate, up, fg_grad_of(cx, node->results[0])};
    FgNode *back = fg_node_new(&cx->build, FG_OP_gated_back, operands, 3);
    fg_node_set_word(cx->build.module, back, "kind", fg_node_attr(node, "kind")->word);
    uint32_t id = back->id;
    fg_node_finish(&cx->build, back, fg_ops_grad_hint(cx, gate));
    const uint32_t *results = fg_node(cx->build.module, id)->results;
    if (fg_grad_wanted(cx, gate))
        fg_grad_add(cx, gate, results[0]);
    if (fg_grad_wanted(cx, up))
        fg_grad_add(cx, up, results[1]);
    return true;
}

/* y = a / b: da = dy / b, db = -da y. */
bool fg_grad_div(FgGradCx *cx, const FgNode *node)
{
    uint32_t a = node->operands[0], b = node->operands[1], y = node->results[0];
    uint32_t pair[] = {fg_grad_of(cx, y), b};
    uint32_t quotient = fg_ops_emit(cx, FG_OP_div, pair, 2, fg_ops_grad_hint(cx, a));
    if (fg_grad_wanted(cx, a))
        fg_ops_grad_unbroadcast(cx, a, quotient);
    if (fg_grad_wanted(cx, b)) {
        const char *hint = fg_ops_grad_hint(cx, b);
        uint32_t product = fg_ops_emit(cx, FG_OP_mul, (uint32_t[]){quotient, y}, 2, hint);
        fg_ops_grad_unbroadcast(cx, b, fg_ops_emit(cx, FG_OP_neg, &product, 1, hint));
    }
    return true;
}

bool fg_grad_cast(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    FgNode *dx = fg_node_new(&cx->build, FG_OP_cast, &dy, 1);
    fg_node_set_word(m, dx, "to", fg_dtype_name(fg_value(m, x)->type->dtype));
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
    return true;
}

/* ---- cost ---- */

/* One pass over what is read and written; about four operations an element of the largest tensor.
 */
void fg_cost_elementwise(const FgModule *m, const FgNode *node, FgCost *cost)
{
    *cost = (FgCost){0};
    int64_t most = 0;
    for (uint32_t i = 0; i < node->n_operands; i++) {
        if (!fg_ops_has(node, i))
            continue;
        const FgType *type = fg_ops_in(m, node, i);
        cost->read_bytes += (double)fg_type_bytes(type);
        most = fg_type_elements(type) > most ? fg_type_elements(type) : most;
    }
    for (uint32_t i = 0; i < node->n_results; i++) {
        const FgType *type = fg_ops_out(m, node, i);
        cost->write_bytes += (double)fg_type_bytes(type);
        if (fg_node_accumulates(node, i))
            cost->read_bytes += (double)fg_type_bytes(type);
        most = fg_type_elements(type) > most ? fg_type_elements(type) : most;
    }
    cost->vector_flops = 4 * (double)most;
}

void fg_cost_none(const FgModule *m, const FgNode *node, FgCost *cost)
{
    (void)m;
    (void)node;
    *cost = (FgCost){0};
}
