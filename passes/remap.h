/* Values that stand for others: shared by the passes that drop or merge nodes. */
#ifndef FG_PASSES_REMAP_H
#define FG_PASSES_REMAP_H

#include "ir/ir.h"

typedef struct FgRemap {
    FgModule *module;
    uint32_t *to; /* value -> the value that stands for it, itself at first */
} FgRemap;

/* For the values that exist now; memory from `scratch`. */
void fg_remap_init(FgRemap *remap, FgArena *scratch, FgModule *module);
/* FG_NO_ID stands for itself. */
uint32_t fg_remap_of(const FgRemap *remap, uint32_t value);
/* Rewrites the operands of a node; true when one changed. */
bool fg_remap_operands(const FgRemap *remap, uint32_t node);

#endif
