/* canon: brings nodes into one form and drops those that do nothing. Graph level.
 *
 * One walk over the order. Each node is first normalised (axes counted from the front, shapes
 * without -1), then chains are shortened (a reshape of a reshape, a transpose of a transpose), and
 * a node that leaves its operand as it is (identity reshape, transpose, slice, broadcast, cast;
 * scale by 1, add 0, power 1) is replaced by that operand. Nothing here changes a rounding: what is
 * folded copies elements. Inner nodes of chains that lose their last use are left to dce.
 *
 *   %a = reshape %x {shape = [2, -1]}            (dce)
 *   %b = reshape %a {shape = [4, 6]}       ->    %b = reshape %x {shape = [4, 6]}
 *   %c = transpose %b {perm = [0, 1]}            (dropped)
 *   %d = relu %c                                 %d = relu %b
 */
#include "ir/op_table.h"
#include "passes/passes.h"
#include "passes/remap.h"

#include <string.h>

/* ---- one form ---- */

static int64_t from_front(int64_t axis, uint32_t rank)
{
    return axis < 0 ? axis + (int64_t)rank : axis;
}

static bool set_ints(FgModule *m, FgNode *node, const char *attr, const int64_t *ints, uint32_t n)
{
    const FgAttr *old = fg_node_attr(node, attr);
    if (old->n_ints == n && (n == 0 || memcmp(old->ints, ints, n * sizeof *ints) == 0))
        return false;
    fg_node_set_ints(m, node, attr, ints, n);
    return true;
}

static bool axes_from_front(FgModule *m, FgNode *node, const char *attr, uint32_t rank,
                            FgArena *scratch)
{
    const FgAttr *axes = fg_node_attr(node, attr);
    int64_t *front = FG_NEW_ARRAY(scratch, int64_t, axes->n_ints);
    for (uint32_t i = 0; i < axes->n_ints; i++)
        front[i] = from_front(axes->ints[i], rank);
    return set_ints(m, node, attr, front, axes->n_ints);
}

static bool normalise(FgModule *m, FgNode *node, FgArena *scratch)
{
    FgOp op = node->op;
    if (op == FG_OP_reshape) {
        const FgType *y = fg_value(m, node->results[0])->type;
        return set_ints(m, node, "shape", y->dims, y->rank);
    }
    if (op == FG_OP_transpose || op == FG_OP_sum || op == FG_OP_mean) {
        uint32_t rank = fg_value(m, node->operands[0])->type->rank;
        return axes_from_front(m, node, op == FG_OP_transpose ? "perm" : "axes", rank, scratch);
    }
    if (op == FG_OP_slice || op == FG_OP_slice_back || op == FG_OP_concat) {
        uint32_t rank = fg_value(m, node->operands[0])->type->rank;
        int64_t axis = fg_node_attr(node, "axis")->i;
        fg_node_set_int(m, node, "axis", from_front(axis, rank));
        return axis < 0;
    }
    return false;
}

/* ---- chains ---- */

static void set_operand(FgModule *m, FgNode *node, uint32_t value)
{
    uint32_t *operands = FG_NEW_ARRAY(m->arena, uint32_t, 1);
    operands[0] = value;
    node->operands = operands;
}

/* A node of the same op that makes operand 0, or NULL. */
static const FgNode *maker_alike(FgModule *m, const FgNode *node)
{
    const FgValue *x = fg_value(m, node->operands[0]);
    if (x->kind != FG_VALUE_RESULT || fg_node(m, x->def)->op != node->op)
        return NULL;
    return fg_node(m, x->def);
}

static bool shorten(FgModule *m, FgNode *node, FgArena *scratch)
{
    if (node->op != FG_OP_reshape && node->op != FG_OP_transpose)
        return false;
    const FgNode *inner = maker_alike(m, node);
    if (!inner)
        return false;
    if (node->op == FG_OP_transpose) {
        const FgAttr *outer = fg_node_attr(node, "perm"), *first = fg_node_attr(inner, "perm");
        int64_t *perm = FG_NEW_ARRAY(scratch, int64_t, outer->n_ints);
        for (uint32_t i = 0; i < outer->n_ints; i++)
            perm[i] = first->ints[outer->ints[i]];
        fg_node_set_ints(m, node, "perm", perm, outer->n_ints);
    }
    set_operand(m, node, inner->operands[0]);
    return true;
}

/* ---- nodes that do nothing ---- */

static bool is_identity(const FgAttr *perm)
{
    for (uint32_t i = 0; i < perm->n_ints; i++) {
        if (perm->ints[i] != i)
            return false;
    }
    return true;
}

static bool does_nothing(FgModule *m, const FgNode *node)
{
    FgOp op = node->op;
    if (op == FG_OP_reshape || op == FG_OP_slice || op == FG_OP_broadcast || op == FG_OP_cast)
        return fg_value(m, node->operands[0])->type == fg_value(m, node->results[0])->type;
    if (op == FG_OP_transpose)
        return is_identity(fg_node_attr(node, "perm"));
    if (op == FG_OP_scale)
        return fg_node_attr(node, "factor")->f == 1;
    if (op == FG_OP_add_scalar)
        return fg_node_attr(node, "value")->f == 0;
    return op == FG_OP_pow && fg_node_attr(node, "exponent")->f == 1;
}

FgPassResult fg_pass_canon(FgPassCx *cx)
{
    FgModule *m = cx->module;
    FgIdVec *order = &fg_func(m, "step")->order;
    FgRemap remap;
    fg_remap_init(&remap, cx->scratch, m);
    bool changed = false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        uint32_t id = order->data[i];
        changed |= fg_remap_operands(&remap, id);
        FgNode *node = fg_node(m, id);
        changed |= normalise(m, node, cx->scratch);
        changed |= shorten(m, node, cx->scratch);
        if (does_nothing(m, node)) {
            remap.to[node->results[0]] = node->operands[0];
            changed = true;
            continue;
        }
        order->data[kept++] = id;
    }
    order->len = kept;
    m->loss = fg_remap_of(&remap, m->loss);
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
