/* Who uses a value, and whether a linear node is a head that can be worked on apart:
 * its logits go into the loss and nowhere else, and the gradient of the logits into the gradients
 * of the linear node's operands and nowhere else. Reshapes between them are looked through. */
#include "passes/vocab.h"

FgUses fg_uses(FgArena *arena, const FgModule *m)
{
    FgUses uses = {m, FG_NEW_ARRAY(arena, FgIdVec, m->values.len + 1)};
    const FgIdVec *order = &fg_func((FgModule *)m, "step")->order;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t v = node->operands[k];
            FgIdVec *of = v == FG_NO_ID ? NULL : &uses.of[v];
            if (of && (of->len == 0 || of->data[of->len - 1] != node->id))
                fg_vec_push(arena, of, node->id);
        }
    }
    return uses;
}

uint32_t fg_uses_only(const FgUses *uses, uint32_t value)
{
    return uses->of[value].len == 1 ? uses->of[value].data[0] : FG_NO_ID;
}

static const FgNode *node_of(const FgUses *uses, uint32_t id)
{
    return &uses->module->nodes.data[id];
}

/* The value under reshapes. */
static uint32_t base_of(const FgModule *m, uint32_t value)
{
    for (;;) {
        const FgValue *v = &m->values.data[value];
        const FgNode *def = v->kind == FG_VALUE_RESULT ? &m->nodes.data[v->def] : NULL;
        if (!def || def->op != FG_OP_reshape)
            return value;
        value = def->operands[0];
    }
}

/* A user of one op, at most one of it; sets *out. False for another, or a second one. */
static bool take(const FgNode *user, FgOp op, uint32_t *out)
{
    if (user->op != op || *out != FG_NO_ID)
        return false;
    *out = user->id;
    return true;
}

/* Users of the logits, through reshapes. */
static bool take_logits(const FgUses *uses, uint32_t value, FgHead *head)
{
    for (uint32_t i = 0; i < uses->of[value].len; i++) {
        const FgNode *user = node_of(uses, uses->of[value].data[i]);
        bool ok = user->op == FG_OP_reshape ? take_logits(uses, user->results[0], head)
                                            : take(user, FG_OP_cross_entropy, &head->loss) ||
                                                  take(user, FG_OP_cross_entropy_back, &head->back);
        if (!ok)
            return false;
    }
    return true;
}

/* Users of the gradient of the logits, through reshapes. */
static bool take_gradient(const FgUses *uses, uint32_t value, FgHead *head)
{
    for (uint32_t i = 0; i < uses->of[value].len; i++) {
        const FgNode *user = node_of(uses, uses->of[value].data[i]);
        bool ok = user->op == FG_OP_reshape ? take_gradient(uses, user->results[0], head)
                                            : take(user, FG_OP_linear_dx, &head->dx) ||
                                                  take(user, FG_OP_linear_dw, &head->dw) ||
                                                  take(user, FG_OP_column_sum, &head->db);
        if (!ok)
            return false;
    }
    return true;
}

static bool is_contribution(const FgUses *uses, uint32_t node)
{
    if (node == FG_NO_ID)
        return true;
    uint32_t user = fg_uses_only(uses, node_of(uses, node)->results[0]);
    return user != FG_NO_ID && node_of(uses, user)->op == FG_OP_grad;
}

static bool operand_given(const FgNode *node, uint32_t i)
{
    return node->n_operands > i && node->operands[i] != FG_NO_ID;
}

static bool same_operands(const FgUses *uses, const FgNode *linear, const FgHead *head)
{
    const FgModule *m = uses->module;
    uint32_t x = base_of(m, linear->operands[0]);
    const FgNode *dx = head->dx == FG_NO_ID ? NULL : node_of(uses, head->dx);
    const FgNode *dw = head->dw == FG_NO_ID ? NULL : node_of(uses, head->dw);
    return (!dx ||
            (dx->operands[1] == linear->operands[1] && !operand_given(dx, fg_op_plus(dx->op)))) &&
           (!dw || base_of(m, dw->operands[0]) == x);
}

bool fg_head_match(const FgUses *uses, uint32_t linear, FgHead *out, const char **out_why)
{
    const FgNode *node = node_of(uses, linear);
    *out = (FgHead){linear, FG_NO_ID, FG_NO_ID, FG_NO_ID, FG_NO_ID, FG_NO_ID};
    *out_why = "a layer of a repeat holds the head";
    if (node->layer >= 0)
        return false;
    *out_why = "something is added to the logits";
    if (operand_given(node, fg_op_plus(node->op)))
        return false;
    *out_why = "the logits go elsewhere than into the loss";
    if (!take_logits(uses, node->results[0], out) || out->loss == FG_NO_ID)
        return false;
    const FgNode *loss = node_of(uses, out->loss);
    *out_why = "a reshape between the head and the loss makes other rows of the logits";
    if (fg_type_cols(uses->module->values.data[node->results[0]].type) !=
        fg_type_cols(uses->module->values.data[loss->operands[0]].type))
        return false;
    *out_why = "the logits go elsewhere than into the loss";
    if (loss->results[0] != uses->module->loss || !operand_given(loss, 2) || loss->layer >= 0)
        return false;
    uint32_t lse_user = fg_uses_only(uses, loss->results[1]);
    if (uses->of[loss->results[1]].len > 0 && lse_user != out->back)
        return false;
    if (out->back == FG_NO_ID)
        return true;
    const FgNode *back = node_of(uses, out->back);
    *out_why = "the gradient of the logits goes elsewhere than into its operands'";
    return !operand_given(back, 4) && take_gradient(uses, back->results[0], out) &&
           is_contribution(uses, out->dw) && is_contribution(uses, out->db) &&
           same_operands(uses, node, out);
}
