/* The rules of what is summed over a step: the norm counts the gradient of each bucket once, after
 * its last reduction, begins from zero, and is complete and summed over the ranks before a factor
 * is made of it; the loss likewise. */
#include "passes/check_internal.h"

enum { R_NORM = 64, R_NORM_TWICE, R_NORM_FIRST, R_CLIP, R_LOSS, R_APART };

/* Does the node add to what the norm holds, instead of beginning it? */
static bool adds_to(const FgTraceNode *node, uint32_t norm)
{
    for (uint32_t i = 0; i < node->n_accesses; i++)
        if (node->accesses[i].buffer == norm && node->accesses[i].write)
            return node->accesses[i].read;
    return false;
}

void fg_check_count_norm(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket,
                         uint32_t norm)
{
    FgCheck *check = walk->check;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    bool early = node->kind == FG_TRACE_ADAMW_ROWS && !node->named;
    if (!fg_check_reads_gradient(walk, node) || !fg_check_complete(walk, node->bucket, early))
        fg_check_fail(check, node, R_NORM,
                      "it counts the gradient of %s before the reductions of all micro-steps",
                      bucket->name);
    if (state->normed || walk->norm_reduced)
        fg_check_fail(check, node, R_NORM_TWICE, "it counts the gradient of %s %s", bucket->name,
                      state->normed ? "a second time" : "after the norm was reduced");
    if (state->apart && node->kind != FG_TRACE_ADAMW_PARTS)
        fg_check_fail(check, node, R_APART,
                      "it counts the gradient of %s, which is in parts that are not summed",
                      bucket->name);
    if (adds_to(node, norm) != walk->norm_begun)
        fg_check_fail(check, node, R_NORM_FIRST,
                      "the first norm_add of a step must start from zero, and only that");
    if (fg_check_buffer(walk, check->root[norm])->role != FG_ROLE_NORM)
        fg_check_fail(check, node, R_NORM, "it counts the gradient of %s in %s, which is no norm",
                      bucket->name, fg_check_text(walk, norm));
    state->normed = !early;
    walk->norm_begun = true;
}

void fg_check_norm_add(FgCheckWalk *walk, const FgTraceNode *node)
{
    const FgTraceBucket *bucket = fg_check_bucket(walk, node);
    if (bucket && node->n_results > 0)
        fg_check_count_norm(walk, node, bucket, node->results[0]);
}

/* Does the norm hold all buckets? Reports the first that it does not. */
static void norm_complete(FgCheckWalk *walk, const FgTraceNode *node)
{
    for (uint32_t i = 0; i < walk->trace->buckets.len; i++) {
        if (walk->trace->buckets.data[i].trainable && !walk->buckets[i].normed) {
            fg_check_fail(walk->check, node, R_NORM,
                          "it takes the norm before bucket %s is counted in it",
                          walk->trace->buckets.data[i].name);
            return;
        }
    }
}

void fg_check_all_reduce(FgCheckWalk *walk, const FgTraceNode *node)
{
    const FgTraceBuffer *root = fg_check_buffer(walk, walk->check->root[node->operands[0]]);
    if (root->role == FG_ROLE_LOSS) {
        if (walk->loss_reduced || !walk->loss_begun)
            fg_check_fail(walk->check, node, R_LOSS, "it sums the loss over ranks %s",
                          walk->loss_reduced ? "a second time" : "before it is there");
        walk->loss_reduced = true;
    }
    if (root->role != FG_ROLE_NORM)
        return;
    norm_complete(walk, node);
    if (walk->norm_reduced)
        fg_check_fail(walk->check, node, R_NORM_TWICE, "it sums the norm over ranks a second time");
    walk->norm_reduced = true;
}

void fg_check_clip_factor(FgCheckWalk *walk, const FgTraceNode *node)
{
    fg_check_scale_factor(walk, node);
    norm_complete(walk, node);
    if (walk->trace->ranks > 1 && !walk->norm_reduced)
        fg_check_fail(walk->check, node, R_CLIP, "it reads the norm before its sum over ranks");
    if (walk->clipped)
        fg_check_fail(walk->check, node, R_CLIP, "it makes the factor of this step a second time");
    walk->clipped = true;
}

void fg_check_scale_step(FgCheckWalk *walk, const FgTraceNode *node)
{
    fg_check_clip_factor(walk, node);
    fg_check_scale_out(walk, node);
}

void fg_check_loss_add(FgCheckWalk *walk, const FgTraceNode *node)
{
    if (walk->check->updates[node->id] != walk->loss_begun)
        fg_check_fail(walk->check, node, R_LOSS,
                      "the first loss_add of a step must start from zero, and only that");
    if (walk->loss_reduced)
        fg_check_fail(walk->check, node, R_LOSS, "it adds to the loss after its sum over ranks");
    walk->loss_begun = true;
}
