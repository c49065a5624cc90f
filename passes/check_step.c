/* The rules of a training step, on top of the contents of memory: a gathered copy is gathered once
 * and released once, in turn; each slice of a gradient buffer is written, then added to, then
 * reduced once with all slices in place, and what each micro-step since its begin adds; rows of
 * lookups are exchanged, and added once to the reduced gradient; each trainable bucket is updated
 * exactly once a period, with the reductions of all micro-steps of one step; what came in parts,
 * one of each rank, is added up by the update and read by nothing else. Norm, clipping and loss
 * have rules of their own (check_norm.c).
 *
 * With clipping the update is pending: it belongs to the step before, and the device skips it where
 * there is none (the first period, and the one after a flush). So it is where the loss is scaled:
 * the scale goes in once, before anything reads the loss's factor, and out once, when the norm and
 * the loss of all ranks are there. */
#include "passes/check_internal.h"

#include <string.h>

enum {
    R_AGAIN = 30,
    R_RELEASE,
    R_GIVEN_AWAY,
    R_SIZE,
    R_BUCKET,
    R_BEGUN,
    R_NOT_BEGUN,
    R_LATE,
    R_FIRST,
    R_LOST,
    R_REDUCED,
    R_PART,
    R_UNUSED,
    R_ADDS,
    R_PARTIAL,
    R_TWICE,
    R_CLIP,
    R_ROWS,
    R_APART
};

const FgTraceBucket *fg_check_bucket(FgCheckWalk *walk, const FgTraceNode *node)
{
    if (node->bucket < walk->trace->buckets.len)
        return &walk->trace->buckets.data[node->bucket];
    fg_check_fail(walk->check, node, R_BUCKET, "it names no bucket");
    return NULL;
}

/* ---- gathered copies ---- */

static void gather(FgCheckWalk *walk, const FgTraceNode *node)
{
    const FgTraceBucket *bucket = fg_check_bucket(walk, node);
    if (!bucket)
        return;
    uint32_t copy = walk->check->root[node->results[0]], shard = node->operands[0];
    if (!fg_check_is_shard(walk, shard, bucket, walk->buckets[node->bucket].version))
        fg_check_fail(walk->check, node, R_BUCKET,
                      "it gathers %s, which is not the shard of %s as it is now",
                      fg_check_text(walk, shard), bucket->name);
    if (fg_check_buffer(walk, copy)->bytes !=
        fg_check_buffer(walk, shard)->bytes * walk->trace->ranks)
        fg_check_fail(walk->check, node, R_SIZE, "%s is not %u times as large as %s",
                      fg_check_text(walk, copy), walk->trace->ranks, fg_check_text(walk, shard));
    if (walk->buckets[node->bucket].named)
        fg_check_fail(walk->check, node, R_BUCKET,
                      "it gathers %s before the rows that tokens name are updated",
                      fg_check_text(walk, shard));
    if (walk->buckets[node->bucket].parted && shard == bucket->shard)
        fg_check_fail(walk->check, node, R_BUCKET,
                      "it gathers %s between the parts of its update: some of the weights are new, "
                      "some are not",
                      fg_check_text(walk, shard));
    if (walk->gathered[copy])
        fg_check_fail(walk->check, node, R_AGAIN,
                      "it gathers %s again, which was not released since the last time",
                      fg_check_text(walk, copy));
    walk->gathered[copy] = true;
}

static void release(FgCheckWalk *walk, const FgTraceNode *node)
{
    FgCheck *check = walk->check;
    uint32_t root = check->root[node->operands[0]];
    FgTraceKind maker = fg_check_maker(walk, root);
    if (maker == FG_TRACE_GATHER && !walk->gathered[root]) {
        fg_check_fail(check, node, R_RELEASE,
                      "it releases %s, which is not gathered here: a gather has one release",
                      fg_check_text(walk, root));
        return;
    }
    if (walk->open[root])
        fg_check_fail(check, node, R_RELEASE, "it releases %s before its reduction",
                      fg_check_text(walk, root));
    walk->gathered[root] = false;
    walk->released[root] = true;
    FgCheckSpan span = walk->space->spans[root];
    if (span.lo >= span.hi)
        return;
    fg_check_cells_split(&walk->cells, span);
    for (uint32_t i = span.lo; i < span.hi; i = fg_check_cells_next(&walk->cells, i)) {
        FgCheckFact *fact = fg_check_cells_at(&walk->cells, i);
        if (!fact->content || check->root[fact->content - 1] != root)
            fg_check_fail(check, node, R_GIVEN_AWAY,
                          "it releases %s, whose bytes hold %s: memory was given away before the "
                          "release",
                          fg_check_text(walk, root),
                          fact->content ? fg_check_text(walk, fact->content - 1) : "nothing");
        else if (fact->released)
            fg_check_fail(check, node, R_RELEASE, "it releases %s a second time",
                          fg_check_text(walk, root));
        else
            fact->released = node->id + 1;
    }
}

/* ---- gradients ---- */

static void grad_buffer(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t buffer = walk->check->root[node->results[0]];
    if (walk->open[buffer])
        fg_check_fail(walk->check, node, R_BEGUN, "it begins %s again before its reduction",
                      fg_check_text(walk, buffer));
    walk->open[buffer] = true;
    walk->begun[buffer] = walk->run;
    walk->writes[buffer] = walk->covers[buffer] = 0;
}

void fg_check_slice(FgCheckWalk *walk, const FgTraceNode *node, uint32_t value)
{
    FgCheck *check = walk->check;
    FgCheckSpan span = walk->space->spans[value];
    uint32_t root = check->root[value];
    walk->writes[root]++;
    if (span.lo >= span.hi)
        return;
    uint32_t at = fg_check_cells_find(&walk->cells, span.lo);
    for (; at < span.hi; at = fg_check_cells_next(&walk->cells, at)) {
        const FgCheckFact *fact = fg_check_cells_at(&walk->cells, at);
        uint32_t held = fact->content - 1;
        if (!fact->content || check->root[held] != root ||
            (fact->run != walk->run && !fg_check_adds_up(walk, root, fact))) {
            fg_check_fail(check, node, R_NOT_BEGUN,
                          "it writes a gradient into %s, which has not begun (grad_buffer)",
                          fg_check_text(walk, root));
            return;
        }
        if (fact->reduced || fact->released)
            fg_check_fail(check, node, R_LATE,
                          "it contributes to %s after its reduction: the contribution is lost",
                          fg_check_text(walk, root));
        bool written = held != root;
        if (check->updates[node->id] && (!written || walk->space->spans[held].lo != span.lo ||
                                         walk->space->spans[held].hi != span.hi))
            fg_check_fail(check, node, R_FIRST,
                          "it adds to %s, which no earlier contribution has written; the first one "
                          "must not accumulate",
                          fg_check_text(walk, value));
        if (!check->updates[node->id] && written)
            fg_check_fail(check, node, R_LOST,
                          "it overwrites %s of an earlier contribution; it must accumulate",
                          fg_check_text(walk, held));
    }
}

/* Has a contribution written exactly this parameter's slice of the buffer? */
static bool slice_written(FgCheckWalk *walk, uint32_t buffer, const FgTraceParam *param)
{
    FgCheck *check = walk->check;
    const FgTraceBuffer *it = fg_check_buffer(walk, buffer);
    uint64_t size = it->elements ? it->bytes / it->elements : 1;
    uint64_t begin = it->at + param->offset * size;
    uint64_t end = begin + param->elements * size;
    FgCheckSpan want = {fg_check_bound(walk->space, begin), fg_check_bound(walk->space, end)};
    if (want.hi >= walk->space->n || walk->space->bounds[want.lo] != begin ||
        walk->space->bounds[want.hi] != end)
        return false;
    uint32_t at = fg_check_cells_find(&walk->cells, want.lo);
    for (; at < want.hi; at = fg_check_cells_next(&walk->cells, at)) {
        const FgCheckFact *fact = fg_check_cells_at(&walk->cells, at);
        uint32_t held = fact->content - 1;
        if (!fact->content || held == buffer || check->root[held] != buffer ||
            walk->space->spans[held].lo != want.lo || walk->space->spans[held].hi != want.hi)
            return false;
    }
    return true;
}

static void check_parts(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket,
                        uint32_t buffer)
{
    for (uint32_t i = 0; i < bucket->n_params; i++) {
        const FgTraceParam *param = &bucket->params[i];
        if (!slice_written(walk, buffer, param))
            fg_check_fail(walk->check, node, R_PART,
                          "it reduces %s before the gradient of \"%s\" is written there",
                          fg_check_text(walk, buffer), param->name);
    }
    uint32_t micro_steps = walk->covers[buffer] + 1;
    if (bucket->writes != FG_NO_ID && walk->writes[buffer] != micro_steps * bucket->writes)
        fg_check_fail(walk->check, node, R_PART, "it reduces %s after %u of %u contributions",
                      fg_check_text(walk, buffer), walk->writes[buffer],
                      micro_steps * bucket->writes);
    FgCheckSpan span = walk->space->spans[buffer];
    if (span.lo >= span.hi)
        return;
    fg_check_cells_split(&walk->cells, span);
    for (uint32_t i = span.lo; i < span.hi; i = fg_check_cells_next(&walk->cells, i))
        ((FgCheckFact *)fg_check_cells_at(&walk->cells, i))->reduced = node->id + 1;
}

void fg_check_part(FgCheckWalk *walk, const FgTraceNode *node, uint32_t slice)
{
    FgCheck *check = walk->check;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    bool begun = state->reductions || state->lookups;
    if (state->named && node->kind != FG_TRACE_LOOKUP_DW)
        fg_check_fail(check, node, R_LATE,
                      "it adds to the gradient of %s, part of which an update has used",
                      walk->trace->buckets.data[node->bucket].name);
    if (!check->updates[node->id]) {
        if (begun && !state->used)
            fg_check_fail(
                check, node, R_UNUSED,
                "it overwrites the reduced gradient of %s that no update has used; it must "
                "accumulate, or follow the update",
                walk->trace->buckets.data[node->bucket].name);
        state->reductions = state->lookups = 0;
        state->used = false;
        state->gradient = slice;
        state->apart = node->kind == FG_TRACE_ALL_TO_ALL;
    } else if (state->apart) {
        fg_check_fail(check, node, R_APART,
                      "it adds to %s, which holds parts that are not summed yet",
                      fg_check_text(walk, slice));
    } else if (!begun || state->used || state->gradient != slice) {
        fg_check_fail(check, node, R_ADDS, "it adds to %s, which holds no gradient of this step",
                      fg_check_text(walk, slice));
    }
}

/* Reductions of a step; one of a buffer that adds up over micro-steps is one of each of them. */
static uint32_t reductions_of(const FgCheckWalk *walk, const FgTraceBucket *bucket)
{
    return bucket->writes ? walk->micro_steps : 0;
}

bool fg_check_complete(const FgCheckWalk *walk, uint32_t index, uint32_t less)
{
    const FgTraceBucket *bucket = &walk->trace->buckets.data[index];
    const FgCheckBucket *state = &walk->buckets[index];
    return state->reductions == reductions_of(walk, bucket) &&
           state->lookups + less == walk->micro_steps * bucket->lookups;
}

static bool is_complete(const FgCheckWalk *walk, uint32_t index)
{
    return fg_check_complete(walk, index, 0);
}

/* "2 of 3 reductions", with lookups where there are any. */
static const char *parts_text(const FgCheckWalk *walk, uint32_t index)
{
    const FgTraceBucket *bucket = &walk->trace->buckets.data[index];
    const FgCheckBucket *state = &walk->buckets[index];
    FgArena *arena = walk->check->arena;
    const char *reductions = fg_arena_printf(arena, "%u of %u reductions", state->reductions,
                                             reductions_of(walk, bucket));
    return bucket->lookups ? fg_arena_printf(arena, "%s and %u of %u lookups", reductions,
                                             state->lookups, walk->micro_steps * bucket->lookups)
                           : reductions;
}

/* A reduction leaves a sum of the slice's size, or parts as large as the buffer. */
static bool fits_slice(const FgCheckWalk *walk, const FgTraceNode *node,
                       const FgTraceBucket *bucket)
{
    uint32_t buffer = walk->check->root[node->operands[0]], slice = node->results[0];
    if (node->kind == FG_TRACE_ALL_TO_ALL)
        return fg_check_buffer(walk, slice)->bytes == fg_check_buffer(walk, buffer)->bytes;
    return fg_check_elements(walk, slice) * walk->trace->ranks == bucket->elements;
}

static void reduce(FgCheckWalk *walk, const FgTraceNode *node)
{
    FgCheck *check = walk->check;
    const FgTraceBucket *bucket = fg_check_bucket(walk, node);
    if (!bucket)
        return;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    uint32_t buffer = check->root[node->operands[0]], slice = node->results[0];
    if (fg_check_maker(walk, buffer) != FG_TRACE_GRAD_BUFFER || !walk->open[buffer])
        fg_check_fail(check, node, R_REDUCED,
                      "it reduces %s, which has not begun or was reduced already: gradients would "
                      "count twice",
                      fg_check_text(walk, buffer));
    walk->open[buffer] = false;
    if (fg_check_elements(walk, buffer) != bucket->elements || !fits_slice(walk, node, bucket))
        fg_check_fail(check, node, R_SIZE, "%s and %s do not have the sizes of bucket %s",
                      fg_check_text(walk, buffer), fg_check_text(walk, slice), bucket->name);
    check_parts(walk, node, bucket, buffer);
    fg_check_part(walk, node, slice);
    if (state->lookups != state->reductions * bucket->lookups)
        fg_check_fail(check, node, R_ROWS,
                      "it reduces a gradient of %s before the lookups of the micro-step before",
                      bucket->name);
    state->reductions += walk->covers[buffer] + 1;
}

/* Does the node read the gradient that the bucket's slice holds? */
/* ---- updates ---- */

static bool is_pending(const FgTraceNode *node)
{
    return (node->kind == FG_TRACE_ADAMW || node->kind == FG_TRACE_ADAMW_PART) && node->pending;
}

bool fg_check_skipped(const FgCheckWalk *walk, const FgTraceNode *node)
{
    return !walk->valid && is_pending(node);
}

static void check_states(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket)
{
    const uint32_t want[] = {bucket->master, bucket->moment1, bucket->moment2, bucket->shard};
    for (uint32_t i = 0; i < 4 && i < node->n_results; i++) {
        if (node->results[i] != want[i])
            fg_check_fail(walk->check, node, R_BUCKET,
                          "its result %u is not the state of bucket %s", i, bucket->name);
        else if (want[i] != FG_NO_ID &&
                 fg_check_elements(walk, want[i]) * walk->trace->ranks != bucket->elements)
            fg_check_fail(walk->check, node, R_SIZE, "%s does not have the size of a slice of %s",
                          fg_check_text(walk, want[i]), bucket->name);
    }
}

static void check_gradient(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket)
{
    FgCheck *check = walk->check;
    const FgCheckBucket *state = &walk->buckets[node->bucket];
    if (!fg_check_reads_gradient(walk, node))
        fg_check_fail(check, node, R_PARTIAL,
                      "it updates bucket %s from %s, which is not its "
                      "reduced gradient",
                      bucket->name,
                      node->operands[0] == FG_NO_ID ? "nothing"
                                                    : fg_check_text(walk, node->operands[0]));
    else if (!is_complete(walk, node->bucket))
        fg_check_fail(check, node, R_PARTIAL, "it updates bucket %s with %s of a step",
                      bucket->name, parts_text(walk, node->bucket));
    else if (state->used)
        fg_check_fail(check, node, R_TWICE, "it applies a gradient of bucket %s a second time",
                      bucket->name);
    if (state->apart != (node->kind == FG_TRACE_ADAMW_PARTS))
        fg_check_fail(check, node, R_APART,
                      state->apart
                          ? "it updates bucket %s from parts without adding them up"
                          : "it adds up parts of the gradient of bucket %s, which is a sum",
                      bucket->name);
    if (walk->trace->clips && !is_pending(node) && !walk->clipped)
        fg_check_fail(check, node, R_CLIP, "it updates before the clipping factor is known");
}

static void adamw(FgCheckWalk *walk, const FgTraceNode *node)
{
    FgCheck *check = walk->check;
    const FgTraceBucket *bucket = fg_check_bucket(walk, node);
    if (!bucket)
        return;
    bool part = node->kind == FG_TRACE_ADAMW_PART, rows = node->kind == FG_TRACE_ADAMW_ROWS;
    if (!part && node->n_results > 4 && node->results[4] != FG_NO_ID)
        fg_check_count_norm(walk, node, bucket, node->results[4]);
    FgCheckBucket *state = &walk->buckets[node->bucket];
    bool last = part   ? fg_check_adamw_part(walk, node, bucket)
                : rows ? fg_check_adamw_rows(walk, node, bucket)
                       : true;
    if (!part)
        check_states(walk, node, bucket);
    if (last && ++state->updates > 1)
        fg_check_fail(check, node, R_TWICE, "it updates bucket %s a second time in a step",
                      bucket->name);
    if (fg_check_skipped(walk, node) || (rows && !last))
        return;
    check_gradient(walk, node, bucket);
    state->used = last;
    state->version += last;
}

void fg_check_step_node(FgCheckWalk *walk, const FgTraceNode *node)
{
    static const struct {
        FgTraceKind kind;
        void (*rule)(FgCheckWalk *walk, const FgTraceNode *node);
    } rules[] = {{FG_TRACE_GATHER, gather},
                 {FG_TRACE_RELEASE, release},
                 {FG_TRACE_GRAD_BUFFER, grad_buffer},
                 {FG_TRACE_REDUCE_SCATTER, reduce},
                 {FG_TRACE_ALL_TO_ALL, reduce},
                 {FG_TRACE_EXCHANGE, fg_check_exchange},
                 {FG_TRACE_LOOKUP_DW, fg_check_lookup_dw},
                 {FG_TRACE_COLLECT, fg_check_collect},
                 {FG_TRACE_RETURN_ROWS, fg_check_return_rows},
                 {FG_TRACE_VOCAB_DW, fg_check_vocab_dw},
                 {FG_TRACE_NORM_ADD, fg_check_norm_add},
                 {FG_TRACE_ALL_REDUCE, fg_check_all_reduce},
                 {FG_TRACE_CLIP_FACTOR, fg_check_clip_factor},
                 {FG_TRACE_LOSS_SCALE, fg_check_scale_in},
                 {FG_TRACE_SCALE_STEP, fg_check_scale_step},
                 {FG_TRACE_ADAMW, adamw},
                 {FG_TRACE_ADAMW_PART, adamw},
                 {FG_TRACE_ADAMW_ROWS, adamw},
                 {FG_TRACE_ROW_SET, fg_check_row_set},
                 {FG_TRACE_ADAMW_PARTS, adamw},
                 {FG_TRACE_LOSS_ADD, fg_check_loss_add},
                 {FG_TRACE_FETCH, fg_check_fetch},
                 {FG_TRACE_STASH, fg_check_stash},
                 {FG_TRACE_WORK, fg_check_first_copy}};
    fg_check_slice_read(walk, node);
    fg_check_scale_reads(walk, node);
    for (uint32_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].kind == node->kind)
            rules[i].rule(walk, node);
    fg_check_collected_use(walk, node);
}

/* ---- borders ---- */

void fg_check_step_begin(FgCheckWalk *walk)
{
    walk->norm_begun = walk->norm_reduced = walk->clipped = false;
    walk->loss_begun = walk->loss_reduced = walk->scaled = false;
    for (uint32_t i = 0; i < walk->trace->buckets.len; i++) {
        walk->buckets[i].updates = 0;
        walk->buckets[i].normed = false;
    }
}

static void bucket_end(FgCheckWalk *walk, uint32_t index, bool flush)
{
    const FgTraceBucket *bucket = &walk->trace->buckets.data[index];
    const FgCheckBucket *state = &walk->buckets[index];
    const char *where = flush ? "@flush" : "the step";
    if (!bucket->trainable) {
        if (state->updates)
            fg_check_fail_module(walk->check, "%s updates bucket %s, which is not trainable", where,
                                 bucket->name);
        return;
    }
    bool part = state->parted || state->named;
    if (!state->updates || part)
        fg_check_fail_module(walk->check, "%s does not update %sbucket %s", where,
                             part ? "all of " : "", bucket->name);
    bool pending = walk->trace->clips && !flush;
    if (!flush && !is_complete(walk, index))
        fg_check_fail_module(walk->check, "%s ends with %s of bucket %s", where,
                             parts_text(walk, index), bucket->name);
    else if (pending && state->used)
        fg_check_fail_module(walk->check, "%s does not reduce the gradient of bucket %s", where,
                             bucket->name);
    else if (!pending && !state->used)
        fg_check_fail_module(walk->check, "%s leaves the reduced gradient of bucket %s unused",
                             where, bucket->name);
}

void fg_check_step_end(FgCheckWalk *walk, bool flush)
{
    for (uint32_t i = 0; i < walk->trace->buckets.len; i++)
        bucket_end(walk, i, flush);
    if (!flush && walk->trace->clips && !walk->clipped)
        fg_check_fail_module(walk->check, "the step makes no clipping factor");
    if (walk->loss_begun && !walk->loss_reduced && walk->trace->ranks > 1)
        fg_check_fail_module(walk->check, "the step does not sum its loss over ranks");
    walk->valid = !flush && walk->trace->clips;
    for (uint32_t i = 0; i < walk->trace->buffers.len; i++)
        if (walk->gathered[i] != walk->carried[i])
            fg_check_fail_module(
                walk->check, "%s is %s at the end of a step, but %s before the first one",
                fg_check_text(walk, i), walk->gathered[i] ? "gathered" : "released",
                walk->carried[i] ? "gathered" : "not");
}

/* A gradient buffer that is open at the end of a micro-step adds up: the next one goes on with it,
 * once this one has contributed all that it has. */
static void add_up(FgCheckWalk *walk, const FgTraceFunc *func, uint32_t buffer)
{
    uint32_t def = fg_check_buffer(walk, buffer)->def;
    uint32_t bucket = walk->trace->nodes.data[def].bucket;
    uint32_t writes =
        bucket < walk->trace->buckets.len ? walk->trace->buckets.data[bucket].writes : FG_NO_ID;
    uint32_t want = ++walk->covers[buffer] * writes;
    if (writes != FG_NO_ID && walk->writes[buffer] != want)
        fg_check_fail_module(walk->check, "@%s ends with %u of %u contributions to %s", func->name,
                             walk->writes[buffer], want, fg_check_text(walk, buffer));
}

void fg_check_function_end(FgCheckWalk *walk, const FgTraceFunc *func)
{
    for (uint32_t i = 0; i < walk->trace->buffers.len; i++) {
        FgTraceKind maker = fg_check_maker(walk, i);
        if (walk->open[i] && maker == FG_TRACE_GRAD_BUFFER &&
            (!strcmp(func->name, "first") || !strcmp(func->name, "middle"))) {
            add_up(walk, func, i);
            continue;
        }
        if (walk->open[i])
            fg_check_fail_module(walk->check, "@%s never %s %s", func->name,
                                 maker == FG_TRACE_EXCHANGE  ? "adds"
                                 : maker == FG_TRACE_COLLECT ? "uses"
                                                             : "reduces",
                                 fg_check_text(walk, i));
        walk->open[i] = false;
    }
    fg_check_copies_end(walk, func);
}
