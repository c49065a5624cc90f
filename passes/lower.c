/* Facts about nodes, buckets and parameters that several lowering passes need. */
#include "passes/lower.h"

#include "base/checked.h"

bool fg_node_updates(const FgNode *node)
{
    if (node->op == FG_OP_adamw || node->op == FG_OP_all_reduce || node->op == FG_OP_clip_factor)
        return true;
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++)
        if (info->attrs[i].kind == FG_ATTR_BOOL && info->attrs[i].name[0] == 'a')
            return fg_node_attr(node, "accumulate")->i != 0;
    return false;
}

bool fg_pass_is_first(const FgModule *module, FgOp op, const char *pass)
{
    for (uint32_t f = 0; f < module->funcs.len; f++) {
        const FgIdVec *order = &module->funcs.data[f].order;
        for (uint32_t i = 0; i < order->len; i++) {
            const FgNode *node = &module->nodes.data[order->data[i]];
            if (node->op != op)
                continue;
            fg_diag(module->diags, node->loc, FG_D_WRONG_LEVEL,
                    "pass '%s' has run on this module already: it holds a %s", pass,
                    fg_op_info(op)->name);
            return false;
        }
    }
    return true;
}

uint64_t fg_bucket_layout(const FgModule *module, const uint32_t *params, uint32_t n,
                          uint32_t ranks, uint64_t *out_offsets)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        out_offsets[i] = at;
        at += (uint64_t)fg_type_elements(module->params.data[params[i]].type);
        at = fg_round_up(at, FG_ALIGN_ELEMENTS);
    }
    return fg_round_up(at, (uint64_t)ranks * FG_ALIGN_ELEMENTS);
}

void fg_params_with_gradient(const FgModule *graph, bool *out)
{
    for (uint32_t p = 0; p < graph->params.len; p++)
        out[p] = false;
    for (uint32_t f = 0; f < graph->funcs.len; f++) {
        const FgIdVec *order = &graph->funcs.data[f].order;
        for (uint32_t i = 0; i < order->len; i++) {
            const FgNode *node = &graph->nodes.data[order->data[i]];
            if (node->op == FG_OP_grad)
                out[fg_node_attr(node, "param")->i] = true;
        }
    }
}

uint32_t *fg_param_bases(FgArena *arena, const FgModule *graph)
{
    uint32_t *base = FG_NEW_ARRAY(arena, uint32_t, graph->values.len + 1);
    for (uint32_t v = 0; v < graph->values.len; v++) {
        const FgValue *value = &graph->values.data[v];
        base[v] = value->kind == FG_VALUE_PARAM ? value->index : FG_NO_ID;
    }
    for (uint32_t f = 0; f < graph->funcs.len; f++) {
        const FgIdVec *order = &graph->funcs.data[f].order;
        for (uint32_t i = 0; i < order->len; i++) {
            const FgNode *node = &graph->nodes.data[order->data[i]];
            if (fg_op_has(node->op, FG_OPF_VIEW))
                base[node->results[0]] = base[node->operands[0]];
        }
    }
    return base;
}
