/* autodiff: adds the backward pass. Graph level.
 *
 * The ops know their own gradients (GRAD in ir/ops.def); this pass decides where they are of use
 * and calls them in the reverse of the forward order. A value is *wanted* when it is a trainable
 * parameter or computed from one: only wanted values receive gradients, so branches that end in
 * frozen parameters or inputs are never emitted. A node runs backward when a gradient reached one
 * of its results.
 *
 * The loss is local: the step's loss is the sum over ranks and micro-steps. A cross-entropy with a
 * seed carries the factor itself, and its gradient is 1; any other loss is multiplied by loss_seed
 * here, which then is its gradient.
 *
 *   %y = linear %x, %w                           %y = linear %x, %w
 *   %l, %lse = cross_entropy %y, %t, %s    ->    %l, %lse = cross_entropy %y, %t, %s
 *   loss %l                                      %d_y = cross_entropy_back %y, %t, %lse, %s
 *                                                %d_w = linear_dw %x, %d_y
 *                                                grad %d_w {param = 0}
 */
#include "ir/op_table.h"
#include "passes/passes.h"

/* ---- which values want a gradient ---- */

static bool *find_wanted(FgPassCx *cx, const FgIdVec *order)
{
    FgModule *m = cx->module;
    bool *wanted = FG_NEW_ARRAY(cx->scratch, bool, m->values.len);
    for (uint32_t i = 0; i < m->values.len; i++) {
        const FgValue *value = fg_value(m, i);
        wanted[i] = value->kind == FG_VALUE_PARAM && m->params.data[value->index].trainable;
    }
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        bool any = false;
        for (uint32_t k = 0; k < node->n_operands && !any; k++)
            any = node->operands[k] != FG_NO_ID && wanted[node->operands[k]];
        for (uint32_t k = 0; k < node->n_results; k++)
            wanted[node->results[k]] =
                any && fg_dtype_is_float(fg_value(m, node->results[k])->type->dtype);
    }
    return wanted;
}

/* ---- the loss ---- */

/* True for a loss that is scaled already: a cross-entropy with a seed. */
static bool is_seeded(FgModule *m)
{
    const FgValue *loss = fg_value(m, m->loss);
    if (loss->kind != FG_VALUE_RESULT)
        return false;
    const FgNode *node = fg_node(m, loss->def);
    return node->op == FG_OP_cross_entropy && node->results[0] == m->loss && node->n_operands > 2 &&
           node->operands[2] != FG_NO_ID;
}

static FgLoc loss_loc(FgModule *m)
{
    const FgValue *loss = fg_value(m, m->loss);
    return loss->kind == FG_VALUE_RESULT ? fg_node(m, loss->def)->loc : FG_NOWHERE;
}

static bool check_loss(FgModule *m, const FgIdVec *order)
{
    if (m->loss == FG_NO_ID) {
        fg_diag(m->diags, FG_NOWHERE, FG_D_IR_INVALID, "autodiff needs a loss");
        return false;
    }
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        if (node->phase == FG_PHASE_BACKWARD) {
            fg_diag(m->diags, node->loc, FG_D_IR_INVALID, "autodiff: a backward pass is there");
            return false;
        }
    }
    return true;
}

/* Makes the loss an f32 of rank 0, and the seed that will scale it. */
static uint32_t make_seed(FgBuilder *b)
{
    FgModule *m = b->module;
    uint32_t loss = m->loss;
    const char *name = fg_value(m, loss)->name;
    if (fg_value(m, loss)->type->rank > 0) {
        FgNode *scalar = fg_node_new(b, FG_OP_reshape, &loss, 1);
        fg_node_set_ints(m, scalar, "shape", NULL, 0);
        loss = fg_node_finish(b, scalar, name);
    }
    if (fg_value(m, loss)->type->dtype != FG_F32) {
        FgNode *cast = fg_node_new(b, FG_OP_cast, &loss, 1);
        fg_node_set_word(m, cast, "to", "f32");
        loss = fg_node_finish(b, cast, name);
    }
    m->loss = loss;
    return fg_node_finish(b, fg_node_new(b, FG_OP_loss_seed, NULL, 0), "seed");
}

/* ---- the walk ---- */

static bool run_backward(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    const FgOpInfo *info = fg_op_info(node->op);
    bool reached = false, any = false;
    for (uint32_t i = 0; i < node->n_results; i++)
        reached |= fg_grad_of(cx, node->results[i]) != FG_NO_ID;
    if (node->op == FG_OP_cross_entropy)
        reached |= node->results[0] == m->loss;
    for (uint32_t i = 0; i < node->n_operands; i++)
        any |= fg_grad_wanted(cx, node->operands[i]);
    if (!reached || !any)
        return true;
    if (!info->grad) {
        fg_diag(m->diags, node->loc, FG_D_NO_GRADIENT, "%s has no gradient: %s", info->name,
                info->no_grad);
        return false;
    }
    cx->build.loc = node->loc;
    cx->build.name = node->name;
    cx->build.layer = node->layer;
    cx->build.origin = node->id;
    return info->grad(cx, node);
}

/* A trainable parameter without a contribution: said once, not an error. */
static void note_untrained(FgModule *m, FgArena *scratch, const FgIdVec *order)
{
    bool *reached = FG_NEW_ARRAY(scratch, bool, m->params.len);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        if (node->op == FG_OP_grad)
            reached[fg_node_attr(node, "param")->i] = true;
    }
    for (uint32_t i = 0; i < m->params.len; i++) {
        const FgParam *param = &m->params.data[i];
        if (param->trainable && param->value != FG_NO_ID && !reached[i])
            fg_diag(m->diags, param->loc, FG_D_UNTRAINED,
                    "the loss does not depend on parameter '%s': it is not trained", param->name);
    }
}

FgPassResult fg_pass_autodiff(FgPassCx *cx)
{
    FgModule *m = cx->module;
    FgIdVec *order = &fg_func(m, "step")->order;
    if (!check_loss(m, order))
        return FG_PASS_FAILED;
    FgGradCx grad = {.build = {.module = m,
                               .order = order,
                               .loc = loss_loc(m),
                               .name = "loss",
                               .phase = FG_PHASE_FORWARD,
                               .layer = -1,
                               .origin = FG_NO_ID}};
    bool seeded = is_seeded(m);
    uint32_t seed = seeded ? FG_NO_ID : make_seed(&grad.build), unscaled = m->loss;
    uint32_t n_forward = order->len, n_values = m->values.len;
    grad.wanted = find_wanted(cx, order);
    grad.grad = FG_NEW_ARRAY(cx->scratch, uint32_t, n_values);
    for (uint32_t i = 0; i < n_values; i++)
        grad.grad[i] = FG_NO_ID;
    if (!seeded) {
        FgNode *scaled = fg_node_new(&grad.build, FG_OP_mul, (uint32_t[]){unscaled, seed}, 2);
        m->loss = fg_node_finish(&grad.build, scaled, "loss");
    }
    grad.build.phase = FG_PHASE_BACKWARD;
    if (!seeded)
        fg_grad_add(&grad, unscaled, seed);
    bool ok = true;
    for (uint32_t i = n_forward; i-- > 0;) {
        FgNode node = *fg_node(m, order->data[i]); /* stays valid while nodes are added */
        ok &= run_backward(&grad, &node);
    }
    if (!ok)
        return FG_PASS_FAILED;
    note_untrained(m, cx->scratch, order);
    return FG_PASS_CHANGED;
}
