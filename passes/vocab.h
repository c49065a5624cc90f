/* What the passes `vocab`, `head` and `travel` share: who uses a value, and the shape of a head
 * with its loss. Both levels look alike here: a parameter is a value, at graph level the
 * parameter's own, at level dist a view of its gathered bucket. */
#ifndef FG_PASSES_VOCAB_H
#define FG_PASSES_VOCAB_H

#include "passes/lower.h"

/* Nodes of @step by the values they read; a node that reads a value twice stands there once. */
typedef struct FgUses {
    const FgModule *module;
    FgIdVec *of; /* by value */
} FgUses;

FgUses fg_uses(FgArena *arena, const FgModule *module);

/* A head and its loss: linear -> cross_entropy, whose value is the module's loss, and what autodiff
 * made of them. Node ids; FG_NO_ID where a gradient is not wanted. */
typedef struct FgHead {
    uint32_t linear, loss, back; /* linear, cross_entropy, cross_entropy_back */
    uint32_t dx, dw, db;         /* linear_dx, linear_dw, column_sum */
} FgHead;

/* The head that begins with a `linear` node; false, with a reason
 * for people, where the logits or their gradient are used in any other way. Gradients of weight and
 * bias are each one `grad` node. */
bool fg_head_match(const FgUses *uses, uint32_t linear, FgHead *out, const char **out_why);
/* The head whose logits go into the module's loss; false with a reason where there is none, or one
 * that does not match. */
bool fg_head_find(const FgUses *uses, FgHead *out, const char **out_why);
/* The one node that reads the value, or FG_NO_ID. */
uint32_t fg_uses_only(const FgUses *uses, uint32_t value);

#endif
