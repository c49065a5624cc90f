/* The rules of a step whose loss is scaled: the scale goes in once, before anything reads the
 * loss's factor, and out once, when the norm and the loss of all ranks are there; nothing adds to
 * the loss after that. Each rank decides about the update from what all have alike. */
#include "passes/check_internal.h"

enum { R_SCALE = 62, R_SUM };

void fg_check_scale_in(FgCheckWalk *walk, const FgTraceNode *node)
{
    if (!walk->trace->scales || walk->scaled)
        fg_check_fail(walk->check, node, R_SCALE, "it scales the loss %s",
                      walk->scaled ? "a second time" : "of a program that does not");
    walk->scaled = true;
}

void fg_check_scale_factor(FgCheckWalk *walk, const FgTraceNode *node)
{
    bool scales = walk->trace->scales;
    if (scales != (node->kind == FG_TRACE_SCALE_STEP))
        fg_check_fail(walk->check, node, R_SCALE, "%s",
                      scales ? "it leaves the loss's scale in the gradient"
                             : "it takes out a scale of a loss that is not scaled");
}

void fg_check_scale_out(FgCheckWalk *walk, const FgTraceNode *node)
{
    if (!walk->scaled)
        fg_check_fail(walk->check, node, R_SCALE, "it takes out a scale that was not put in");
    if (!walk->loss_begun || (walk->trace->ranks > 1 && !walk->loss_reduced))
        fg_check_fail(walk->check, node, R_SUM, "it reads the loss before its sum over ranks");
}

/* What a step's work takes from the scalars is the loss's factor. */
void fg_check_scale_reads(FgCheckWalk *walk, const FgTraceNode *node)
{
    const FgTrace *trace = walk->trace;
    if (!trace->scales)
        return;
    if (node->kind == FG_TRACE_LOSS_ADD && walk->clipped)
        fg_check_fail(walk->check, node, R_SCALE,
                      "it adds to the loss after the scale was taken out");
    for (uint32_t i = 0; i < node->n_operands && node->kind == FG_TRACE_WORK; i++) {
        uint32_t v = node->operands[i];
        const FgTraceBuffer *root =
            v == FG_NO_ID ? NULL : &trace->buffers.data[walk->check->root[v]];
        if (root && root->state && root->role == FG_ROLE_SCALARS && !walk->scaled)
            fg_check_fail(walk->check, node, R_SCALE,
                          "it reads the loss's factor before the scale is in it");
    }
}
