/* dce: removes nodes whose results nothing uses. Graph level.
 *
 * One walk over the order from the back: a node lives when it has an effect (after autodiff: the
 * grad nodes), makes the loss, or makes an operand of a node that lives. Parameters and inputs
 * stay, used or not.
 *
 *   %a = relu %x                                 %a = relu %x
 *   %b = exp %x                            ->
 *   loss %a                                      loss %a
 */
#include "ir/op_table.h"
#include "passes/passes.h"

static bool is_live(const FgModule *m, const FgNode *node, const bool *used)
{
    if (fg_op_info(node->op)->flags & FG_OPF_EFFECT)
        return true;
    for (uint32_t i = 0; i < node->n_results; i++) {
        if (used[node->results[i]] || node->results[i] == m->loss)
            return true;
    }
    return false;
}

FgPassResult fg_pass_dce(FgPassCx *cx)
{
    FgModule *m = cx->module;
    FgIdVec *order = &fg_func(m, "step")->order;
    bool *used = FG_NEW_ARRAY(cx->scratch, bool, m->values.len);
    bool *live = FG_NEW_ARRAY(cx->scratch, bool, m->nodes.len);
    for (uint32_t i = order->len; i-- > 0;) {
        const FgNode *node = fg_node(m, order->data[i]);
        if (!is_live(m, node, used))
            continue;
        live[node->id] = true;
        for (uint32_t k = 0; k < node->n_operands; k++) {
            if (node->operands[k] != FG_NO_ID)
                used[node->operands[k]] = true;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        if (live[order->data[i]])
            order->data[kept++] = order->data[i];
    }
    bool changed = kept != order->len;
    order->len = kept;
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
