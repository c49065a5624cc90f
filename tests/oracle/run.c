/* Whole functions: the nodes of a step one after the other, each by its formula, and the gradients
 * that its grad nodes add up. */
#include "tests/oracle/reference.h"

#include <string.h>

RefRun ref_run_new(FgArena *arena, const FgModule *module, double seed)
{
    RefRun run = {.module = module, .seed = seed};
    run.values = FG_NEW_ARRAY(arena, double *, module->values.len);
    run.grads = FG_NEW_ARRAY(arena, double *, module->params.len);
    for (uint32_t i = 0; i < module->values.len; i++)
        run.values[i] =
            FG_NEW_ARRAY(arena, double, (size_t)fg_type_elements(module->values.data[i].type));
    return run;
}

static void add_gradient(FgArena *arena, RefRun *run, const FgNode *node)
{
    int64_t param = fg_node_attr(node, "param")->i;
    int64_t n = fg_type_elements(run->module->params.data[param].type);
    if (!run->grads[param])
        run->grads[param] = FG_NEW_ARRAY(arena, double, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        run->grads[param][i] += run->values[node->operands[0]][i];
}

static bool run_node(FgArena *arena, RefRun *run, const FgNode *node)
{
    const double **in = FG_NEW_ARRAY(arena, const double *, node->n_operands);
    double **out = FG_NEW_ARRAY(arena, double *, node->n_results);
    for (uint32_t i = 0; i < node->n_operands; i++)
        in[i] = node->operands[i] == FG_NO_ID ? NULL : run->values[node->operands[i]];
    for (uint32_t i = 0; i < node->n_results; i++)
        out[i] = run->values[node->results[i]];
    if (!ref_eval_node(run->module, node, in, out))
        return false;
    if (node->op == FG_OP_loss_seed)
        out[0][0] = run->seed;
    if (node->op == FG_OP_grad)
        add_gradient(arena, run, node);
    return true;
}

bool ref_run(FgArena *arena, RefRun *run)
{
    const FgModule *m = run->module;
    for (uint32_t p = 0; p < m->params.len; p++)
        run->grads[p] = NULL;
    for (uint32_t f = 0; f < m->funcs.len; f++) {
        const FgFunc *func = &m->funcs.data[f];
        for (uint32_t i = 0; strcmp(func->name, "step") == 0 && i < func->order.len; i++) {
            if (!run_node(arena, run, &m->nodes.data[func->order.data[i]]))
                return false;
        }
    }
    return true;
}
