/* recognise: finds what a model spells out in several nodes and one op does with less traffic.
 * Graph level, before autodiff.
 *
 * A product whose factor is an activation that nothing else reads becomes `gated`: one pass over
 * memory instead of two, nothing kept between them, and one rounding instead of two. This depends
 * on the graph alone, so every schedule has the same numbers.
 *
 *   %s = silu %gate
 *   %y = mul %s, %up      ->    %y = gated %gate, %up {kind = silu}
 */
#include "ir/op_table.h"
#include "passes/passes.h"

#include <string.h>

static bool is_activation(FgOp op)
{
    return op == FG_OP_silu || op == FG_OP_gelu || op == FG_OP_gelu_tanh || op == FG_OP_relu ||
           op == FG_OP_sigmoid || op == FG_OP_tanh;
}

static uint32_t *count_uses(FgArena *scratch, const FgModule *m, const FgIdVec *order)
{
    uint32_t *uses = FG_NEW_ARRAY(scratch, uint32_t, m->values.len + 1);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                uses[node->operands[k]]++;
    }
    if (m->loss != FG_NO_ID)
        uses[m->loss]++;
    return uses;
}

/* The activation behind factor `k` of a product, if it may move into it; otherwise NULL. */
static const FgNode *gate_of(const FgModule *m, const FgNode *mul, uint32_t k, const uint32_t *uses)
{
    const FgValue *factor = &m->values.data[mul->operands[k]];
    const FgValue *up = &m->values.data[mul->operands[1 - k]];
    if (factor->kind != FG_VALUE_RESULT || uses[factor->id] != 1 || factor->type != up->type)
        return NULL;
    const FgNode *def = &m->nodes.data[factor->def];
    return is_activation(def->op) ? def : NULL;
}

/* Turns the product at `id` into a gated activation that makes the same value. */
static void make_gated(FgModule *m, FgIdVec *order, uint32_t id, const FgNode *gate, uint32_t up)
{
    FgNode mul = *fg_node(m, id);
    uint32_t operands[] = {gate->operands[0], up};
    const char *kind = fg_op_info(gate->op)->name;
    FgBuilder build = {m, order, mul.loc, mul.name, mul.phase, mul.layer, mul.origin};
    FgNode *node = fg_node_new(&build, FG_OP_gated, operands, 2);
    fg_node_set_word(m, node, "kind", kind);
    fg_value(m, mul.results[0])->def = node->id; /* the product is its maker no longer */
    fg_node_finish_into(&build, node, mul.results, 1);
}

FgPassResult fg_pass_recognise(FgPassCx *cx)
{
    FgModule *m = cx->module;
    FgFunc *func = fg_func(m, "step");
    const FgIdVec old = func->order;
    const uint32_t *uses = count_uses(cx->scratch, m, &old);
    uint32_t n_nodes = m->nodes.len, found = 0;
    bool *dropped = FG_NEW_ARRAY(cx->scratch, bool, n_nodes + 1);
    FgIdVec order = {0};
    for (uint32_t i = 0; i < old.len; i++) {
        const FgNode *node = fg_node(m, old.data[i]);
        const FgNode *gate = NULL;
        uint32_t k = 0;
        for (; node->op == FG_OP_mul && k < 2 && !gate; k++)
            gate = gate_of(m, node, k, uses);
        if (!gate) {
            fg_vec_push(m->arena, &order, old.data[i]);
            continue;
        }
        FgNode copy = *gate; /* a new node moves the table */
        dropped[copy.id] = true;
        make_gated(m, &order, old.data[i], &copy, node->operands[2 - k]);
        found++;
    }
    func->order = (FgIdVec){0};
    for (uint32_t i = 0; i < order.len; i++) /* the activations went into their products */
        if (order.data[i] >= n_nodes || !dropped[order.data[i]])
            fg_vec_push(m->arena, &func->order, order.data[i]);
    return found ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
