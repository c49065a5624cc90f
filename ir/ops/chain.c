/* Fused chains: one pass over memory for several element-by-element ops (ir/chain.h).
 *
 * `repeat` says which element of an operand goes with element i of the result: 0 the i-th, m > 0
 * the one at i mod m (a row for every line), m < 0 the one at i / -m (a number for every line). */
#include "ir/chain.h"
#include "ir/ops/ops_util.h"

static bool operand_fits(FgModule *m, const FgNode *node, uint32_t k, int64_t elements)
{
    const FgType *x = fg_ops_in(m, node, k);
    int64_t step = fg_node_attr(node, "repeat")->ints[k], n = fg_type_elements(x);
    if (!fg_chain_takes(x->dtype))
        return fg_ops_error(m, node, "operand %u is %s, its elements must be f32, bf16 or f16", k,
                            fg_ops_text(m, x));
    bool fits = step == 0  ? n == elements
                : step > 0 ? n == step && elements % step == 0
                           : step > -elements - 1 && elements % step == 0 && n == elements / -step;
    return fits || fg_ops_error(m, node,
                                "operand %u is %s, which does not repeat by %lld to %lld "
                                "elements",
                                k, fg_ops_text(m, x), (long long)step, (long long)elements);
}

bool fg_infer_fused(FgModule *m, const FgNode *node, const FgType **types)
{
    FgChain chain;
    const char *error;
    const FgAttr *shape = fg_node_attr(node, "shape"), *repeat = fg_node_attr(node, "repeat");
    if (!fg_chain_parse(m->arena, fg_node_attr(node, "expression")->word, &chain, &error))
        return fg_ops_error(m, node, "%s", error);
    if (chain.n_operands != node->n_operands || repeat->n_ints != node->n_operands)
        return fg_ops_error(m, node, "the expression reads %u operands, repeat has %u, it has %u",
                            chain.n_operands, repeat->n_ints, node->n_operands);
    types[0] = fg_ops_type(m, node, chain.steps.data[chain.steps.len - 1].dtype, shape->n_ints,
                           shape->ints);
    for (uint32_t k = 0; types[0] && k < node->n_operands; k++) {
        if (!fg_ops_has(node, k))
            return fg_ops_error(m, node, "operand %u is left out", k);
        if (!operand_fits(m, node, k, fg_type_elements(types[0])))
            return false;
    }
    return types[0] != NULL;
}

/* Operands and result once; about four operations an element and step. */
void fg_cost_fused(const FgModule *m, const FgNode *node, FgCost *cost)
{
    uint32_t steps = 1;
    for (const char *at = fg_node_attr(node, "expression")->word; *at; at++)
        steps += *at == ';';
    fg_cost_elementwise(m, node, cost);
    cost->vector_flops = 4.0 * steps * (double)fg_type_elements(fg_ops_out(m, node, 0));
}
