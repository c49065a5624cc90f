/* The bookkeeping of backward: gradients that reached a value, contributions that leave it.
 *
 * A value's contributions are summed as they come, by `add` in its dtype. A parameter has no sum
 * here: each of its contributions becomes a `grad` node, because the gradient is added up in the
 * wire dtype, in a bucket's buffer, by passes that know the buckets. */
#include "ir/ops/ops_util.h"

#include <string.h>

uint32_t fg_grad_of(const FgGradCx *cx, uint32_t value)
{
    return value == FG_NO_ID ? FG_NO_ID : cx->grad[value];
}

bool fg_grad_wanted(const FgGradCx *cx, uint32_t value)
{
    return value != FG_NO_ID && cx->wanted[value];
}

void fg_grad_add(FgGradCx *cx, uint32_t value, uint32_t contribution)
{
    FgModule *m = cx->build.module;
    if (contribution == FG_NO_ID)
        FG_BUG("the gradient of %%%s.%u has no type", fg_value(m, value)->name, value);
    if (!fg_grad_wanted(cx, value))
        return;
    if (fg_value(m, value)->kind == FG_VALUE_PARAM) {
        FgNode *node = fg_node_new(&cx->build, FG_OP_grad, &contribution, 1);
        fg_node_set_int(m, node, "param", fg_value(m, value)->index);
        fg_node_finish(&cx->build, node, "");
        return;
    }
    if (cx->grad[value] == FG_NO_ID) {
        cx->grad[value] = contribution;
        return;
    }
    uint32_t pair[] = {cx->grad[value], contribution};
    cx->grad[value] = fg_ops_emit(cx, FG_OP_add, pair, 2, fg_ops_grad_hint(cx, value));
}

uint32_t fg_ops_emit(FgGradCx *cx, FgOp op, const uint32_t *operands, uint32_t n, const char *hint)
{
    return fg_node_finish(&cx->build, fg_node_new(&cx->build, op, operands, n), hint);
}

const char *fg_ops_grad_hint(FgGradCx *cx, uint32_t value)
{
    FgModule *m = cx->build.module;
    return fg_intern(m->intern, fg_arena_printf(m->arena, "d_%s", fg_value(m, value)->name));
}

uint32_t fg_ops_reshape(FgGradCx *cx, uint32_t x, const FgType *like, const char *hint)
{
    FgModule *m = cx->build.module;
    if (fg_ops_same_dims(fg_value(m, x)->type, like))
        return x;
    FgNode *node = fg_node_new(&cx->build, FG_OP_reshape, &x, 1);
    fg_node_set_ints(m, node, "shape", like->dims, like->rank);
    return fg_node_finish(&cx->build, node, hint);
}

void fg_ops_set_to(FgGradCx *cx, FgNode *node, uint32_t weight)
{
    FgModule *m = cx->build.module;
    const FgValue *w = fg_value(m, weight);
    FgDtype dtype = w->kind == FG_VALUE_PARAM ? m->numerics.wire : w->type->dtype;
    fg_node_set_word(m, node, "to", fg_dtype_name(dtype));
}

/* A bias-like parameter, [n] repeated over rows of n: column_sum adds it straight into the wire
 * dtype. */
static bool is_row_parameter(const FgValue *value, const FgType *full)
{
    return value->kind == FG_VALUE_PARAM && value->type->rank == 1 && full->rank > 1 &&
           value->type->dims[0] == full->dims[full->rank - 1];
}

void fg_ops_grad_unbroadcast(FgGradCx *cx, uint32_t value, uint32_t dy)
{
    FgModule *m = cx->build.module;
    const FgType *full = fg_value(m, dy)->type, *type = fg_value(m, value)->type;
    const char *hint = fg_ops_grad_hint(cx, value);
    if (is_row_parameter(fg_value(m, value), full)) {
        FgNode *node = fg_node_new(&cx->build, FG_OP_column_sum, &dy, 1);
        fg_ops_set_to(cx, node, value);
        fg_grad_add(cx, value, fg_node_finish(&cx->build, node, hint));
        return;
    }
    int64_t *axes = FG_NEW_ARRAY(m->arena, int64_t, full->rank + 1);
    uint32_t n_axes = 0, lead = full->rank - type->rank;
    for (uint32_t i = 0; i < full->rank; i++) {
        if (i < lead || (type->dims[i - lead] == 1 && full->dims[i] != 1))
            axes[n_axes++] = i;
    }
    if (n_axes > 0) {
        FgNode *node = fg_node_new(&cx->build, FG_OP_sum, &dy, 1);
        fg_node_set_ints(m, node, "axes", axes, n_axes);
        dy = fg_node_finish(&cx->build, node, hint);
    }
    fg_grad_add(cx, value, fg_ops_reshape(cx, dy, type, hint));
}

bool fg_ops_no_gradient(const FgGradCx *cx, const FgNode *node, const char *what)
{
    fg_diag(cx->build.module->diags, node->loc, FG_D_NO_GRADIENT, "%s has no gradient for its %s",
            fg_op_info(node->op)->name, what);
    return false;
}
