/* Sums and means over axes, and softmax. */
#include "ir/ops/ops_util.h"

/* reduced[i]: dimension i is summed over. False when an axis is out of range or named twice. */
static bool reduced_axes(const FgNode *node, uint32_t rank, bool *reduced)
{
    const FgAttr *axes = fg_node_attr(node, "axes");
    for (uint32_t i = 0; i < rank; i++)
        reduced[i] = axes->n_ints == 0;
    for (uint32_t i = 0; i < axes->n_ints; i++) {
        int64_t axis = fg_ops_axis(axes->ints[i], rank);
        if (axis < 0 || reduced[axis])
            return false;
        reduced[axis] = true;
    }
    return true;
}

bool fg_infer_reduce(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0))
        return false;
    const FgType *x = fg_ops_in(m, node, 0);
    bool *reduced = FG_NEW_ARRAY(m->arena, bool, x->rank + 1);
    if (!reduced_axes(node, x->rank, reduced))
        return fg_ops_error(m, node, "x is %s, axes must name some of its %u dimensions once each",
                            fg_ops_text(m, x), x->rank);
    bool keep = fg_node_attr(node, "keep")->i != 0;
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, x->rank + 1);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (!reduced[i] || keep)
            dims[rank++] = reduced[i] ? 1 : x->dims[i];
    }
    types[0] = fg_ops_type(m, node, x->dtype, rank, dims);
    return types[0] != NULL;
}

/* dx = factor dy, repeated along the summed axes. */
static void add_repeated(FgGradCx *cx, const FgNode *node, double factor)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    const FgType *type = fg_value(m, x)->type;
    const char *hint = fg_ops_grad_hint(cx, x);
    if (factor != 1) {
        FgNode *scale = fg_node_new(&cx->build, FG_OP_scale, &dy, 1);
        fg_node_set_float(m, scale, "factor", factor);
        dy = fg_node_finish(&cx->build, scale, hint);
    }
    bool *reduced = FG_NEW_ARRAY(m->arena, bool, type->rank + 1);
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, type->rank + 1);
    reduced_axes(node, type->rank, reduced);
    for (uint32_t i = 0; i < type->rank; i++)
        dims[i] = reduced[i] ? 1 : type->dims[i];
    if (fg_value(m, dy)->type->rank > 0) /* a scalar repeats as it is */
        dy = fg_ops_reshape(cx, dy, fg_type(m, type->dtype, type->rank, dims), hint);
    if (fg_value(m, dy)->type != type) {
        FgNode *repeat = fg_node_new(&cx->build, FG_OP_broadcast, &dy, 1);
        fg_node_set_ints(m, repeat, "shape", type->dims, type->rank);
        dy = fg_node_finish(&cx->build, repeat, hint);
    }
    fg_grad_add(cx, x, dy);
}

bool fg_grad_sum(FgGradCx *cx, const FgNode *node)
{
    add_repeated(cx, node, 1);
    return true;
}

bool fg_grad_mean(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    int64_t all = fg_type_elements(fg_value(m, node->operands[0])->type);
    int64_t left = fg_type_elements(fg_value(m, node->results[0])->type);
    add_repeated(cx, node, (double)left / (double)all);
    return true;
}

bool fg_grad_softmax(FgGradCx *cx, const FgNode *node)
{
    uint32_t x = node->operands[0], y = node->results[0];
    uint32_t pair[] = {y, fg_grad_of(cx, y)};
    fg_grad_add(cx, x, fg_ops_emit(cx, FG_OP_softmax_back, pair, 2, fg_ops_grad_hint(cx, x)));
    return true;
}
