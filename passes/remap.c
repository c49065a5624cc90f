/* Values that stand for others. Walking an order from the front, every operand is mapped before its
 * node is looked at, so that a replacement is always final and no chains arise. */
#include "passes/remap.h"

#include <string.h>

void fg_remap_init(FgRemap *remap, FgArena *scratch, FgModule *module)
{
    remap->module = module;
    remap->to = FG_NEW_ARRAY(scratch, uint32_t, module->values.len);
    for (uint32_t i = 0; i < module->values.len; i++)
        remap->to[i] = i;
}

uint32_t fg_remap_of(const FgRemap *remap, uint32_t value)
{
    return value == FG_NO_ID ? FG_NO_ID : remap->to[value];
}

bool fg_remap_operands(const FgRemap *remap, uint32_t id)
{
    FgNode *node = fg_node(remap->module, id);
    bool changed = false;
    for (uint32_t i = 0; i < node->n_operands && !changed; i++)
        changed = fg_remap_of(remap, node->operands[i]) != node->operands[i];
    if (!changed)
        return false;
    uint32_t *operands = FG_NEW_ARRAY(remap->module->arena, uint32_t, node->n_operands);
    for (uint32_t i = 0; i < node->n_operands; i++)
        operands[i] = fg_remap_of(remap, node->operands[i]);
    node->operands = operands;
    return true;
}
