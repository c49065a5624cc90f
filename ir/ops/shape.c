/* Ops that move elements and compute nothing: reshape, rows, transpose, broadcast, slice, concat.
 */
#include "ir/ops/ops_util.h"

#include "base/checked.h"

#include <string.h>

/* ---- inference ---- */

bool fg_infer_reshape(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *x = fg_ops_in(m, node, 0);
    const FgAttr *shape = fg_node_attr(node, "shape");
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, shape->n_ints + 1);
    int64_t known = 1, elements = fg_type_elements(x);
    uint32_t hole = FG_NO_ID;
    for (uint32_t i = 0; i < shape->n_ints; i++) {
        dims[i] = shape->ints[i];
        if (dims[i] == -1 && hole == FG_NO_ID) {
            hole = i;
            continue;
        }
        if (dims[i] < 1)
            return fg_ops_error(m, node,
                                "shape entry %lld, entries are at least 1, and one may be -1",
                                (long long)dims[i]);
        if (!fg_mul_i64(known, dims[i], &known))
            return fg_ops_error(m, node, "the shape has too many elements");
    }
    if (hole != FG_NO_ID && elements % known == 0)
        dims[hole] = elements / known;
    if (hole != FG_NO_ID ? elements % known != 0 : elements != known)
        return fg_ops_error(m, node, "x is %s with %lld elements, the shape %s %lld",
                            fg_ops_text(m, x), (long long)elements,
                            hole != FG_NO_ID ? "needs a multiple of" : "has", (long long)known);
    types[0] = fg_ops_type(m, node, x->dtype, shape->n_ints, dims);
    return types[0] != NULL;
}

bool fg_infer_transpose(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *x = fg_ops_in(m, node, 0);
    const FgAttr *perm = fg_node_attr(node, "perm");
    bool valid = perm->n_ints == x->rank;
    bool *seen = FG_NEW_ARRAY(m->arena, bool, x->rank + 1);
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, x->rank + 1);
    for (uint32_t i = 0; valid && i < x->rank; i++) {
        int64_t axis = fg_ops_axis(perm->ints[i], x->rank);
        valid = axis >= 0 && !seen[axis];
        if (valid) {
            seen[axis] = true;
            dims[i] = x->dims[axis];
        }
    }
    if (!valid)
        return fg_ops_error(m, node, "x is %s, perm must name each of its %u dimensions once",
                            fg_ops_text(m, x), x->rank);
    types[0] = fg_ops_type(m, node, x->dtype, x->rank, dims);
    return types[0] != NULL;
}

bool fg_infer_broadcast(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *x = fg_ops_in(m, node, 0);
    const FgAttr *shape = fg_node_attr(node, "shape");
    const FgType *y = fg_ops_type(m, node, x->dtype, shape->n_ints, shape->ints);
    if (!y)
        return false;
    bool valid = y->rank >= x->rank;
    for (uint32_t i = 0; valid && i < x->rank; i++)
        valid = x->dims[i] == 1 || x->dims[i] == y->dims[y->rank - x->rank + i];
    if (!valid)
        return fg_ops_error(m, node,
                            "x is %s and cannot be repeated to %s: dimensions are aligned at the "
                            "last one and only a size of 1 is repeated",
                            fg_ops_text(m, x), fg_ops_text(m, y));
    types[0] = y;
    return true;
}

/* `x` with `size` entries in one dimension. */
static const FgType *resized(FgModule *m, const FgNode *node, const FgType *x, int64_t axis,
                             int64_t size)
{
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, x->rank);
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    dims[axis] = size;
    return fg_ops_type(m, node, x->dtype, x->rank, dims);
}

static int64_t need_axis(FgModule *m, const FgNode *node)
{
    const FgType *x = fg_ops_in(m, node, 0);
    int64_t axis = fg_ops_axis(fg_node_attr(node, "axis")->i, x->rank);
    if (axis < 0)
        fg_ops_error(m, node, "axis %lld is no dimension of %s, which is %s",
                     (long long)fg_node_attr(node, "axis")->i, fg_ops_operand_name(m, node, 0),
                     fg_ops_text(m, x));
    return axis;
}

bool fg_infer_slice(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *x = fg_ops_in(m, node, 0);
    int64_t axis = need_axis(m, node);
    if (axis < 0)
        return false;
    int64_t start = fg_node_attr(node, "start")->i, count = fg_node_attr(node, "count")->i;
    if (start < 0 || count < 1 || start > x->dims[axis] || count > x->dims[axis] - start)
        return fg_ops_error(m, node,
                            "x is %s, %lld entries from %lld are not within dimension %lld",
                            fg_ops_text(m, x), (long long)count, (long long)start, (long long)axis);
    types[0] = resized(m, node, x, axis, count);
    return types[0] != NULL;
}

bool fg_infer_rows(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *x = fg_ops_in(m, node, 0);
    if (!fg_ops_need_rank(m, node, 0, 1))
        return false;
    int64_t first = fg_node_attr(node, "first")->i, count = fg_node_attr(node, "count")->i;
    if (first < 0 || count < 1 || first > x->dims[0] || count > x->dims[0] - first)
        return fg_ops_error(m, node, "x is %s, %lld entries from %lld are not within dimension 0",
                            fg_ops_text(m, x), (long long)count, (long long)first);
    types[0] = resized(m, node, x, 0, count);
    return types[0] != NULL;
}

bool fg_infer_slice_back(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *dy = fg_ops_in(m, node, 0);
    int64_t axis = need_axis(m, node);
    if (axis < 0)
        return false;
    int64_t start = fg_node_attr(node, "start")->i, size = fg_node_attr(node, "size")->i;
    if (start < 0 || start > size || dy->dims[axis] > size - start)
        return fg_ops_error(m, node, "dy is %s, it does not fit at %lld into a dimension of %lld",
                            fg_ops_text(m, dy), (long long)start, (long long)size);
    types[0] = resized(m, node, dy, axis, size);
    return types[0] != NULL;
}

bool fg_infer_concat(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *a = fg_ops_in(m, node, 0), *b = fg_ops_in(m, node, 1);
    int64_t axis = need_axis(m, node), total;
    if (axis < 0 || !fg_ops_need_dtype(m, node, 1, a->dtype))
        return false;
    bool valid = a->rank == b->rank;
    for (uint32_t i = 0; valid && i < a->rank; i++)
        valid = i == (uint64_t)axis || a->dims[i] == b->dims[i];
    if (!valid)
        return fg_ops_error(m, node, "a is %s and b is %s, all dimensions but %lld must be equal",
                            fg_ops_text(m, a), fg_ops_text(m, b), (long long)axis);
    if (!fg_add_i64(a->dims[axis], b->dims[axis], &total))
        return fg_ops_error(m, node, "the sizes of dimension %lld add up too far", (long long)axis);
    types[0] = resized(m, node, a, axis, total);
    return types[0] != NULL;
}

/* ---- gradients ---- */

bool fg_grad_reshape(FgGradCx *cx, const FgNode *node)
{
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    const FgType *type = fg_value(cx->build.module, x)->type;
    fg_grad_add(cx, x, fg_ops_reshape(cx, dy, type, fg_ops_grad_hint(cx, x)));
    return true;
}

bool fg_grad_transpose(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    const FgAttr *perm = fg_node_attr(node, "perm");
    int64_t *inverse = FG_NEW_ARRAY(m->arena, int64_t, perm->n_ints + 1);
    for (uint32_t i = 0; i < perm->n_ints; i++)
        inverse[fg_ops_axis(perm->ints[i], perm->n_ints)] = i;
    FgNode *dx = fg_node_new(&cx->build, FG_OP_transpose, &dy, 1);
    fg_node_set_ints(m, dx, "perm", inverse, perm->n_ints);
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
    return true;
}

bool fg_grad_broadcast(FgGradCx *cx, const FgNode *node)
{
    fg_ops_grad_unbroadcast(cx, node->operands[0], fg_grad_of(cx, node->results[0]));
    return true;
}

bool fg_grad_slice(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0], dy = fg_grad_of(cx, node->results[0]);
    const FgType *type = fg_value(m, x)->type;
    int64_t axis = fg_ops_axis(fg_node_attr(node, "axis")->i, type->rank);
    FgNode *dx = fg_node_new(&cx->build, FG_OP_slice_back, &dy, 1);
    fg_node_set_int(m, dx, "axis", axis);
    fg_node_set_int(m, dx, "start", fg_node_attr(node, "start")->i);
    fg_node_set_int(m, dx, "size", type->dims[axis]);
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
    return true;
}

bool fg_grad_concat(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    int64_t start = 0;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t part = node->operands[i];
        const FgType *type = fg_value(m, part)->type;
        int64_t axis = fg_ops_axis(fg_node_attr(node, "axis")->i, type->rank);
        if (fg_grad_wanted(cx, part)) {
            FgNode *slice = fg_node_new(&cx->build, FG_OP_slice, &dy, 1);
            fg_node_set_int(m, slice, "axis", axis);
            fg_node_set_int(m, slice, "start", start);
            fg_node_set_int(m, slice, "count", type->dims[axis]);
            fg_grad_add(cx, part, fg_node_finish(&cx->build, slice, fg_ops_grad_hint(cx, part)));
        }
        start += type->dims[axis];
    }
    return true;
}
