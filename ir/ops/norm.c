/* RMSNorm and LayerNorm over the last dimension. Where both gradients are wanted one node makes
 * them, in one pass over x and dy; the gathered gain, a row, is held until then. */
#include "ir/ops/ops_util.h"

static bool need_weights(FgModule *m, const FgNode *node, uint32_t first, uint32_t last)
{
    const FgType *x = fg_ops_in(m, node, 0);
    const FgType *w = fg_type(m, x->dtype, 1, (int64_t[]){fg_type_cols(x)});
    for (uint32_t i = first; i <= last; i++) {
        if (fg_ops_has(node, i) && !fg_ops_need_type(m, node, i, w)) {
            fg_diag_note(m->diags, FG_NOWHERE, "x is %s, the weights span its last dimension",
                         fg_ops_text(m, x));
            return false;
        }
    }
    return true;
}

static bool need_eps(FgModule *m, const FgNode *node)
{
    return fg_node_attr(node, "eps")->f >= 0 ||
           fg_ops_error(m, node, "eps is %g, it must not be negative",
                        fg_node_attr(node, "eps")->f);
}

bool fg_infer_norm(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 1) ||
        !need_weights(m, node, 1, 2) || !need_eps(m, node))
        return false;
    types[0] = fg_ops_in(m, node, 0);
    return true;
}

bool fg_infer_norm_dx(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 1) ||
        !need_weights(m, node, 1, 1) || !fg_ops_need_type(m, node, 2, fg_ops_in(m, node, 0)))
        return false;
    types[0] = fg_ops_in(m, node, 0);
    return fg_ops_need_plus(m, node, types[0]);
}

/* Both gradients in one call: dx, then dw in the dtype that `to` says. */
bool fg_infer_norm_back(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_infer_norm_dx(m, node, types))
        return false;
    types[1] = fg_type(m, fg_ops_to(node, types[0]->dtype), 1, (int64_t[]){fg_type_cols(types[0])});
    return true;
}

static uint32_t finish_with_eps(FgGradCx *cx, const FgNode *node, FgNode *back, uint32_t value)
{
    fg_node_set_float(cx->build.module, back, "eps", fg_node_attr(node, "eps")->f);
    return fg_node_finish(&cx->build, back, fg_ops_grad_hint(cx, value));
}

/* The ops that make the gradients of a norm. */
typedef struct NormGrads {
    FgOp dx, dw, both;
} NormGrads;

static void add_norm_grads(FgGradCx *cx, const FgNode *node, NormGrads ops)
{
    uint32_t x = node->operands[0], w = node->operands[1];
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    bool wants_x = fg_grad_wanted(cx, x), wants_w = fg_grad_wanted(cx, w);
    if (wants_x && wants_w) {
        FgNode *both = fg_node_new(&cx->build, ops.both, (uint32_t[]){x, w, dy}, 3);
        fg_ops_set_to(cx, both, w);
        uint32_t id = both->id, d_x = finish_with_eps(cx, node, both, x);
        fg_grad_add(cx, x, d_x);
        uint32_t d_w = fg_node(cx->build.module, id)->results[1];
        fg_value(cx->build.module, d_w)->name = fg_ops_grad_hint(cx, w);
        fg_grad_add(cx, w, d_w);
    } else if (wants_x) {
        FgNode *dx = fg_node_new(&cx->build, ops.dx, (uint32_t[]){x, w, dy}, 3);
        fg_grad_add(cx, x, finish_with_eps(cx, node, dx, x));
    } else if (wants_w) {
        FgNode *dw = fg_node_new(&cx->build, ops.dw, (uint32_t[]){x, dy}, 2);
        fg_ops_set_to(cx, dw, w);
        fg_grad_add(cx, w, finish_with_eps(cx, node, dw, w));
    }
}

bool fg_grad_rmsnorm(FgGradCx *cx, const FgNode *node)
{
    add_norm_grads(cx, node, (NormGrads){FG_OP_rmsnorm_dx, FG_OP_rmsnorm_dw, FG_OP_rmsnorm_back});
    return true;
}

bool fg_grad_layernorm(FgGradCx *cx, const FgNode *node)
{
    add_norm_grads(cx, node,
                   (NormGrads){FG_OP_layernorm_dx, FG_OP_layernorm_dw, FG_OP_layernorm_back});
    if (fg_ops_has(node, 2) && fg_grad_wanted(cx, node->operands[2])) {
        uint32_t b = node->operands[2], dy = fg_grad_of(cx, node->results[0]);
        FgNode *db = fg_node_new(&cx->build, FG_OP_column_sum, &dy, 1);
        fg_ops_set_to(cx, db, b);
        fg_grad_add(cx, b, fg_node_finish(&cx->build, db, fg_ops_grad_hint(cx, b)));
    }
    return true;
}
