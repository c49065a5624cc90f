/* Ops below graph level: their results are values that exist already (states, slices of buffers),
 * so inference only takes over their types; what they cost is traffic. */
#include "ir/ops/ops_util.h"

bool fg_infer_none(FgModule *m, const FgNode *node, const FgType **types)
{
    (void)m;
    (void)node;
    (void)types;
    return true;
}

bool fg_infer_given(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!node->results)
        FG_BUG("%s must be finished into its results", fg_op_info(node->op)->name);
    for (uint32_t i = 0; i < node->n_results; i++)
        types[i] = node->results[i] == FG_NO_ID ? NULL : m->values.data[node->results[i]].type;
    return true;
}

bool fg_infer_view(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_infer_given(m, node, types))
        return false;
    const FgType *x = fg_ops_in(m, node, 0);
    return fg_type_bytes(types[0]) <= fg_type_bytes(x) ||
           fg_ops_error(m, node, "x is %s, a view of it cannot be %s", fg_ops_text(m, x),
                        fg_ops_text(m, types[0]));
}

static double tensor_bytes(const FgModule *m, uint32_t value)
{
    return value == FG_NO_ID ? 0 : (double)fg_type_bytes(m->values.data[value].type);
}

/* On the wire: the whole buffer, which is the larger side of a gather or a reduce_scatter. */
void fg_cost_collective(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double in = tensor_bytes(m, node->operands[0]), out = tensor_bytes(m, node->results[0]);
    *cost = (FgCost){.read_bytes = in, .write_bytes = out, .wire_bytes = in > out ? in : out};
}

/* What all ranks sent is summed; the rank's own rows are written, beside what stands there. */
void fg_cost_return_rows(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double part = tensor_bytes(m, node->operands[1]);
    double own = part / (m->ranks ? m->ranks : 1);
    *cost = (FgCost){.read_bytes = part + own, .write_bytes = own, .wire_bytes = part};
}

/* Elements that the rows named by a set have in a slice, about: those of all tokens, each once. */
static double named_elements(const FgModule *m, const FgNode *node, double slice)
{
    const FgValue *set = &m->values.data[node->operands[2]];
    const FgNode *def = set->kind == FG_VALUE_RESULT ? &m->nodes.data[set->def] : NULL;
    if (!def || def->op != FG_OP_row_set)
        return slice;
    double tokens = (double)fg_type_elements(fg_ops_in(m, def, 0));
    double own = tokens * (double)fg_node_attr(node, "hidden")->i / (m->ranks ? m->ranks : 1);
    return own < slice ? own : slice;
}

/* As fg_cost_adamw, of the elements that are named, or of all others; the latter are read past. */
void fg_cost_adamw_rows(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double slice = (double)fg_type_elements(fg_ops_out(m, node, 1));
    double named = named_elements(m, node, slice);
    double share = (fg_node_attr(node, "named")->i ? named : slice - named) / slice;
    double updated = tensor_bytes(m, node->results[1]) + tensor_bytes(m, node->results[2]);
    double master = tensor_bytes(m, node->results[0]), shard = tensor_bytes(m, node->results[3]);
    updated += master > 0 ? master : shard;
    *cost = (FgCost){.vector_flops = 15 * slice * share,
                     .read_bytes = (tensor_bytes(m, node->operands[0]) + updated) * share +
                                   tensor_bytes(m, node->operands[2]),
                     .write_bytes = (updated + (master > 0 ? shard : 0)) * share};
}

/* The gradient in, or the ranks' parts of it; moments, and the master or else the shard, both ways;
 * the shard out: 28 bytes a parameter at bf16 and at fp32. */
void fg_cost_adamw(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double elements = (double)fg_type_elements(m->values.data[node->results[1]].type);
    double updated = tensor_bytes(m, node->results[1]) + tensor_bytes(m, node->results[2]);
    double master = tensor_bytes(m, node->results[0]), shard = tensor_bytes(m, node->results[3]);
    updated += master > 0 ? master : shard;
    *cost = (FgCost){.vector_flops = 15 * elements,
                     .read_bytes = tensor_bytes(m, node->operands[0]) + updated,
                     .write_bytes = updated + (master > 0 ? shard : 0)};
}
