/* Facts about nodes, buckets and parameters that several lowering passes need. */
#include "passes/lower.h"

#include "base/checked.h"

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

uint64_t fg_sharded_rows(const FgParam *param, uint32_t ranks)
{
    uint64_t rows = (uint64_t)param->type->dims[0];
    return fg_round_up((rows + ranks - 1) / ranks, 8);
}

uint64_t fg_bucket_layout(const FgModule *module, const uint32_t *params, uint32_t n,
                          uint32_t ranks, uint64_t *out_offsets)
{
    uint64_t at = 0;
    const FgParam *first = &module->params.data[params[0]];
    if (first->sharded) {
        out_offsets[0] = 0;
        return ranks * fg_sharded_rows(first, ranks) *
               (uint64_t)(fg_type_elements(first->type) / first->type->dims[0]);
    }
    for (uint32_t i = 0; i < n; i++) {
        out_offsets[i] = at;
        at += (uint64_t)fg_type_elements(module->params.data[params[i]].type);
        at = fg_round_up(at, FG_ALIGN_ELEMENTS);
    }
    return fg_round_up(at, (uint64_t)ranks * FG_ALIGN_ELEMENTS);
}

const char *fg_parts_refused(const FgModule *m, uint32_t bucket)
{
    const FgBucket *b = &m->buckets.data[bucket];
    if (m->ranks < 2)
        return "there is one rank";
    if (!b->trainable)
        return "it is not trained";
    if (fg_update_waits(&m->numerics))
        return "its update waits for what is known of the whole gradient only";
    if (m->numerics.accumulate > 1)
        return "the gradients of micro-steps are added up";
    if (m->numerics.wire != m->numerics.shard)
        return "its gradient is summed in another type than it travels in";
    if (b->lookups > 0)
        return "rows are added to its gradient";
    return fg_bucket_is_offloaded(m, bucket) ? "its update travels in parts of its own" : NULL;
}

bool fg_bucket_in_parts(const FgModule *m, uint32_t bucket)
{
    const FgBucket *b = &m->buckets.data[bucket];
    return b->grad_shard != FG_NO_ID && m->ranks > 1 &&
           (uint64_t)fg_type_elements(m->values.data[b->grad_shard].type) == b->elements;
}

uint32_t fg_count_parts(const FgModule *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->buckets.len; i++)
        n += fg_bucket_in_parts(m, i);
    return n;
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

/* The lookup whose gradient is this contribution and nothing else, or NULL. */
static const FgNode *lookup_of(const FgModule *m, const FgNode *grad, const uint32_t *n_uses)
{
    uint32_t g = grad->operands[0];
    const FgValue *value = &m->values.data[g];
    const FgParam *param = &m->params.data[fg_node_attr(grad, "param")->i];
    const FgType *type = param->type;
    if (param->sharded || value->kind != FG_VALUE_RESULT || n_uses[g] != 1 ||
        fg_type_elements(value->type) != fg_type_elements(type))
        return NULL;
    const FgNode *def = &m->nodes.data[value->def];
    return def->op == FG_OP_embedding_dw ? def : NULL;
}

uint32_t *fg_rows_travel(FgArena *arena, const FgModule *m, uint32_t ranks)
{
    uint32_t *param = FG_NEW_ARRAY(arena, uint32_t, m->values.len + 1);
    uint32_t *n_uses = FG_NEW_ARRAY(arena, uint32_t, m->values.len + 1);
    int64_t *tokens = FG_NEW_ARRAY(arena, int64_t, m->params.len + 1);
    const FgIdVec *order = &fg_func((FgModule *)m, "step")->order;
    for (uint32_t v = 0; v < m->values.len; v++)
        param[v] = FG_NO_ID;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                n_uses[node->operands[k]]++;
    }
    for (int pass = 0; pass < 2; pass++) { /* count the tokens of each table, then decide */
        for (uint32_t i = 0; i < order->len; i++) {
            const FgNode *grad = &m->nodes.data[order->data[i]];
            const FgNode *dw = grad->op == FG_OP_grad ? lookup_of(m, grad, n_uses) : NULL;
            if (!dw)
                continue;
            uint32_t p = (uint32_t)fg_node_attr(grad, "param")->i;
            if (pass == 0)
                tokens[p] += fg_type_elements(m->values.data[dw->operands[0]].type);
            else if (tokens[p] <= (fg_node_attr(dw, "vocab")->i - 1) / (int64_t)ranks)
                param[grad->operands[0]] = p;
        }
    }
    return param;
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
