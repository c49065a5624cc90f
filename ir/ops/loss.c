/* Losses. Cross-entropy is the sum over valid rows times a seed; the seed is 1 / (valid labels of
 * the whole global batch), so that the sum of the local losses over ranks and micro-steps is the
 * mean. */
#include "ir/ops/ops_util.h"

#include <string.h>

bool fg_infer_scalar(FgModule *m, const FgNode *node, const FgType **types)
{
    (void)node;
    types[0] = fg_type(m, FG_F32, 0, NULL);
    return true;
}

/* logits, labels and the scalar operand `seed`; *out_rows is the shape of labels in f32. */
static bool need_logits(FgModule *m, const FgNode *node, const FgType **out_rows)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 1) ||
        !fg_ops_need_dtype(m, node, 1, FG_I32))
        return false;
    const FgType *logits = fg_ops_in(m, node, 0), *labels = fg_ops_in(m, node, 1);
    if (labels->rank + 1 != logits->rank ||
        (labels->rank &&
         memcmp(labels->dims, logits->dims, labels->rank * sizeof *labels->dims) != 0)) {
        fg_ops_error(m, node, "logits is %s and labels is %s, labels must have one entry a row",
                     fg_ops_text(m, logits), fg_ops_text(m, labels));
        fg_diag_note(m->diags, FG_NOWHERE, "the last dimension of logits is the vocabulary");
        return false;
    }
    *out_rows = fg_type(m, FG_F32, labels->rank, labels->dims);
    return true;
}

bool fg_infer_cross_entropy(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *scalar = fg_type(m, FG_F32, 0, NULL);
    if (!need_logits(m, node, &types[1]) ||
        (fg_ops_has(node, 2) && !fg_ops_need_type(m, node, 2, scalar)))
        return false;
    types[0] = scalar;
    return true;
}

bool fg_infer_cross_entropy_back(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgType *scalar = fg_type(m, FG_F32, 0, NULL), *rows;
    if (!need_logits(m, node, &rows) || !fg_ops_need_type(m, node, 2, rows) ||
        !fg_ops_need_type(m, node, 3, scalar) ||
        (fg_ops_has(node, 4) && !fg_ops_need_type(m, node, 4, scalar)))
        return false;
    types[0] = fg_ops_in(m, node, 0);
    return true;
}

/* The loss of the module needs no dloss: its gradient is 1. Without a seed of its own, the loss's
 * gradient is the seed. */
bool fg_grad_cross_entropy(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t logits = node->operands[0], dloss = fg_grad_of(cx, node->results[0]);
    if (fg_grad_of(cx, node->results[1]) != FG_NO_ID)
        return fg_ops_no_gradient(cx, node, "result lse");
    uint32_t seed = fg_ops_has(node, 2) ? node->operands[2] : FG_NO_ID;
    if (fg_grad_wanted(cx, seed))
        return fg_ops_no_gradient(cx, node, "operand seed");
    if (seed == FG_NO_ID) {
        seed = dloss;
        dloss = FG_NO_ID;
    }
    uint32_t in[] = {logits, node->operands[1], node->results[1], seed, dloss};
    FgNode *back = fg_node_new(&cx->build, FG_OP_cross_entropy_back, in, dloss == FG_NO_ID ? 4 : 5);
    fg_node_set_int(m, back, "ignore_index", fg_node_attr(node, "ignore_index")->i);
    fg_grad_add(cx, logits, fg_node_finish(&cx->build, back, fg_ops_grad_hint(cx, logits)));
    return true;
}
