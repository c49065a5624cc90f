/* What a node takes alone on its engine: the larger of its arithmetic and its memory traffic plus a
 * launch; a collective what the machine's curve says. */
#include "ir/op_table.h"
#include "passes/simulate.h"

static double matmul_rate(const FgMachine *machine, FgDtype dtype, bool light)
{
    if (dtype == FG_BF16)
        return light && machine->light_bf16 > 0.0 ? machine->light_bf16 : machine->matmul_bf16;
    if (dtype == FG_F16)
        return light && machine->light_f16 > 0.0 ? machine->light_f16 : machine->matmul_f16;
    return machine->matmul_f32;
}

uint32_t fg_engine_of(const FgMachine *machine, const FgNode *node, const FgCost *cost)
{
    if (node->stream == FG_STREAM_COMPUTE && cost->matmul_flops < machine->light_flops)
        return FG_ENGINE_LIGHT;
    if (node->stream == FG_STREAM_REDUCE && node->op == FG_OP_all_to_all)
        return FG_ENGINE_PARTS;
    return node->stream;
}

static double quotient(double work, double rate)
{
    return work > 0.0 && rate > 0.0 ? work / rate : 0.0;
}

double fg_collective_seconds(const FgMachine *machine, uint32_t ranks, FgOp op, double bytes)
{
    if (ranks <= 1) /* a copy on the device */
        return machine->launch_seconds + quotient(2.0 * bytes, machine->memory_rate);
    if (op == FG_OP_all_to_all && machine->all_to_all.len)
        return fg_curve_seconds(&machine->all_to_all, bytes);
    if (op == FG_OP_all_to_all || op == FG_OP_gather || op == FG_OP_exchange || op == FG_OP_collect)
        return fg_curve_seconds(&machine->gather, bytes);
    /* An all-reduce moves twice what a reduce-scatter does. */
    return fg_curve_seconds(&machine->reduce, op == FG_OP_all_reduce ? 2.0 * bytes : bytes);
}

/* Between the dims that were measured, the rate goes in a straight line. */
static double attention_rate(const FgMachine *machine, const FgNode *node, double dim)
{
    double rate = 0.0, below = 0.0;
    for (uint32_t i = 0; i < machine->attention.len; i++) {
        const FgAttentionRate *at = &machine->attention.data[i];
        double own = node->op == FG_OP_attention ? at->forward : at->backward;
        if (i > 0 && dim < at->dim)
            return dim > below ? rate + (own - rate) * (dim - below) / (at->dim - below) : rate;
        rate = own;
        below = at->dim;
    }
    return rate;
}

/* Of attention alone; 0 where its products run as others do. Softmax is in the rate. */
static double attention_seconds(const FgModule *module, const FgMachine *machine,
                                const FgNode *node, const FgCost *cost)
{
    if (node->op != FG_OP_attention && node->op != FG_OP_attention_back)
        return 0.0;
    const FgType *q = module->values.data[node->operands[0]].type;
    return q->dtype == FG_F32
               ? 0.0
               : quotient(cost->matmul_flops, attention_rate(machine, node, (double)q->dims[3]));
}

double fg_cost_seconds(const FgModule *module, const FgMachine *machine, const FgNode *node,
                       const FgCost *cost)
{
    const FgOpInfo *info = fg_op_info(node->op);
    if (!info->call || node->op == FG_OP_release) /* nothing reaches the device */
        return 0.0;
    if (node->op == FG_OP_stash || node->op == FG_OP_fetch)
        return fg_curve_seconds(node->op == FG_OP_stash ? &machine->stash : &machine->fetch,
                                cost->wire_bytes);
    if (info->flags & FG_OPF_COLLECTIVE)
        return fg_collective_seconds(machine, module->ranks, node->op, cost->wire_bytes);
    FgDtype dtype = node->n_operands && node->operands[0] != FG_NO_ID
                        ? module->values.data[node->operands[0]].type->dtype
                        : FG_F32;
    bool light = fg_engine_of(machine, node, cost) == FG_ENGINE_LIGHT;
    double flops = quotient(cost->matmul_flops, matmul_rate(machine, dtype, light)) +
                   quotient(cost->vector_flops, machine->vector_flops);
    double attention = attention_seconds(module, machine, node, cost);
    flops = attention > 0.0 ? attention : flops;
    double memory = quotient(cost->read_bytes + cost->write_bytes, machine->memory_rate);
    return machine->launch_seconds + (flops > memory ? flops : memory);
}

double fg_node_seconds(const FgModule *module, const FgMachine *machine, const FgNode *node)
{
    FgCost cost;
    fg_node_cost(module, node, &cost);
    return fg_cost_seconds(module, machine, node, &cost);
}
