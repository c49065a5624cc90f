/* The rules of rows that travel: of lookups, whose gradient is added by the rows' owners, and of
 * tables whose rows stay with their owners (a sharded vocabulary).
 *
 * What is exchanged or collected is used, once where it is added up. Each part that a slice's
 * gradient has besides its reductions is added once a micro-step, in one order whatever the
 * schedule: the reduction, then lookups. A slice that nothing gathers is read between the updates
 * of two steps. */
#include "passes/check_internal.h"

enum { R_NAMED = 58, R_ROWS, R_SLICE, R_SIZE };

/* ---- lookups ---- */

void fg_check_exchange(FgCheckWalk *walk, const FgTraceNode *node)
{
    FgCheck *check = walk->check;
    uint32_t all = check->root[node->results[0]], own = node->operands[0];
    if (fg_check_buffer(walk, all)->bytes != fg_check_buffer(walk, own)->bytes * walk->trace->ranks)
        fg_check_fail(check, node, R_SIZE, "%s is not %u times as large as %s",
                      fg_check_text(walk, all), walk->trace->ranks, fg_check_text(walk, own));
    if (walk->open[all])
        fg_check_fail(check, node, R_ROWS, "it exchanges %s again before a lookup adds it",
                      fg_check_text(walk, all));
    walk->open[all] = true;
}

/* The rows of all ranks, or their ids: exchanged, and not added yet. Ids that were collected may
 * have had other uses. */
static void take_rows(FgCheckWalk *walk, const FgTraceNode *node, uint32_t operand)
{
    uint32_t rows = walk->check->root[operand];
    FgTraceKind maker = fg_check_maker(walk, rows);
    if (maker == FG_TRACE_COLLECT && operand == node->operands[0])
        walk->open[rows] = true;
    if ((maker != FG_TRACE_EXCHANGE && maker != FG_TRACE_COLLECT) || !walk->open[rows])
        fg_check_fail(walk->check, node, R_ROWS,
                      "it adds %s, which was not exchanged or was added already: gradients would "
                      "count twice",
                      fg_check_text(walk, rows));
    walk->open[rows] = false;
}

/* Sums run in one order, whatever the schedule: of each micro-step the reduction, then lookups. */
void fg_check_lookup_dw(FgCheckWalk *walk, const FgTraceNode *node)
{
    FgCheck *check = walk->check;
    const FgTraceBucket *bucket = fg_check_bucket(walk, node);
    if (!bucket)
        return;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    uint32_t slice = node->results[0];
    take_rows(walk, node, node->operands[0]);
    take_rows(walk, node, node->operands[1]);
    if (fg_check_elements(walk, slice) * walk->trace->ranks != bucket->elements)
        fg_check_fail(check, node, R_SIZE, "%s does not have the size of a slice of bucket %s",
                      fg_check_text(walk, slice), bucket->name);
    fg_check_part(walk, node, slice);
    if (state->named && walk->ids[state->named - 1] != check->root[node->operands[0]])
        fg_check_fail(check, node, R_NAMED,
                      "it adds rows by other ids than those by which bucket %s is updated",
                      bucket->name);
    if (bucket->writes && state->lookups >= state->reductions * bucket->lookups)
        fg_check_fail(check, node, R_ROWS,
                      "it adds a lookup's rows to %s before the reduction of the micro-step, or a "
                      "second time",
                      fg_check_text(walk, slice));
    state->lookups++;
}

/* ---- an update of the rows that tokens name, and of all others ---- */

void fg_check_row_set(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t ids = walk->check->root[node->operands[0]];
    if (fg_check_maker(walk, ids) != FG_TRACE_COLLECT)
        fg_check_fail(walk->check, node, R_NAMED, "%s are not the ids of all ranks",
                      fg_check_text(walk, ids));
    walk->ids[walk->check->root[node->results[0]]] = ids;
}

/* The elements of all other rows: their gradient lacks the lookup alone. Where that begins the
 * gradient, they have none, and no operand says so. */
static void update_others(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket)
{
    FgCheck *check = walk->check;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    uint32_t grad = node->operands[0];
    if (walk->trace->clips)
        fg_check_fail(check, node, R_NAMED, "it updates bucket %s before the norm is known",
                      bucket->name);
    if (state->named || state->updates)
        fg_check_fail(check, node, R_NAMED,
                      "it updates the rows of bucket %s that no token names a second time",
                      bucket->name);
    if (bucket->lookups != 1)
        fg_check_fail(check, node, R_NAMED,
                      "not one lookup alone adds to the gradient of bucket %s", bucket->name);
    bool begun = !state->used && (state->reductions || state->lookups);
    if (grad == FG_NO_ID ? begun || bucket->writes || walk->micro_steps > 1
                         : check->content[grad] != state->gradient || state->used ||
                               !fg_check_complete(walk, node->bucket, 1))
        fg_check_fail(check, node, R_NAMED,
                      "it updates bucket %s where the gradient lacks more than a lookup",
                      bucket->name);
    state->named = 1 + check->root[node->operands[2]];
    state->named_counts = grad == FG_NO_ID || node->results[4] != FG_NO_ID;
}

bool fg_check_adamw_rows(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket)
{
    FgCheck *check = walk->check;
    FgCheckBucket *state = &walk->buckets[node->bucket];
    uint32_t set = check->root[node->operands[2]];
    if (fg_check_maker(walk, set) != FG_TRACE_ROW_SET)
        fg_check_fail(check, node, R_NAMED, "%s is no set of rows", fg_check_text(walk, set));
    if (!node->named) {
        update_others(walk, node, bucket);
        return false;
    }
    if (state->named != set + 1)
        fg_check_fail(check, node, R_NAMED,
                      "it updates the named rows of bucket %s alone: no update by the same set "
                      "did the others before",
                      bucket->name);
    else if (!state->named_counts && node->results[4] != FG_NO_ID)
        fg_check_fail(check, node, R_NAMED,
                      "it counts the named rows of bucket %s in the norm, where the others are "
                      "not counted",
                      bucket->name);
    else if (state->named_counts && node->results[4] == FG_NO_ID && !state->normed &&
             bucket->writes)
        fg_check_fail(check, node, R_NAMED,
                      "it leaves the named rows of bucket %s out of the norm, where the others "
                      "are counted",
                      bucket->name);
    state->named = 0;
    return true;
}

/* ---- a sharded vocabulary ---- */

/* The tokens of all ranks: a part of what each has, as long on each. */
void fg_check_collect(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t all = walk->check->root[node->results[0]];
    uint64_t bytes = fg_check_buffer(walk, all)->bytes,
             own = fg_check_buffer(walk, node->operands[0])->bytes;
    if (bytes % walk->trace->ranks || bytes / walk->trace->ranks > own)
        fg_check_fail(walk->check, node, R_SIZE, "%s does not hold as much of the %s of each rank",
                      fg_check_text(walk, all), fg_check_text(walk, node->operands[0]));
    if (walk->open[all])
        fg_check_fail(walk->check, node, R_ROWS, "it collects %s again before anything uses it",
                      fg_check_text(walk, all));
    walk->open[all] = true;
}

/* What is collected is used by the function that collects it. */
void fg_check_collected_use(FgCheckWalk *walk, const FgTraceNode *node)
{
    for (uint32_t i = 0; i < node->n_operands && node->kind != FG_TRACE_VIEW; i++) {
        uint32_t v = node->operands[i];
        if (v != FG_NO_ID && fg_check_maker(walk, walk->check->root[v]) == FG_TRACE_COLLECT)
            walk->open[walk->check->root[v]] = false;
    }
}

/* What is returned may be spoilt. */
void fg_check_return_rows(FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t part = node->operands[node->n_operands - 1];
    FgCheckSpan span = walk->space->spans[part];
    if (span.lo >= span.hi)
        return;
    fg_check_cells_split(&walk->cells, span);
    for (uint32_t i = span.lo; i < span.hi; i = fg_check_cells_next(&walk->cells, i))
        ((FgCheckFact *)fg_check_cells_at(&walk->cells, i))->reduced = node->id + 1;
}

/* Owned rows of a head: a part of the slice's gradient, as a lookup's rows are. */
void fg_check_vocab_dw(FgCheckWalk *walk, const FgTraceNode *node)
{
    const FgTraceBucket *bucket = fg_check_bucket(walk, node);
    if (!bucket)
        return;
    uint32_t slice = node->results[0];
    if (fg_check_elements(walk, slice) * walk->trace->ranks != bucket->elements)
        fg_check_fail(walk->check, node, R_SIZE,
                      "%s does not have the size of a slice of bucket %s",
                      fg_check_text(walk, slice), bucket->name);
    fg_check_part(walk, node, slice);
    walk->buckets[node->bucket].lookups++;
}

/* Does the node read weights for something else than to gather, update or keep them? Copies that
 * are no state's become something else, as other work does. */
static bool uses_weights(const FgCheckWalk *walk, const FgTraceNode *node)
{
    static const FgTraceKind others[] = {
        FG_TRACE_VIEW,       FG_TRACE_HOLD,       FG_TRACE_RELEASE,
        FG_TRACE_GATHER,     FG_TRACE_FETCH,      FG_TRACE_ADAMW,
        FG_TRACE_ADAMW_PART, FG_TRACE_ADAMW_ROWS, FG_TRACE_ADAMW_PARTS};
    for (uint32_t i = 0; i < sizeof others / sizeof *others; i++)
        if (node->kind == others[i])
            return false;
    return !walk->start && (node->kind != FG_TRACE_STASH ||
                            !fg_check_buffer(walk, walk->check->root[node->results[0]])->state);
}

/* The weights of a step are the same for all that reads them: where nothing is gathered, the slice
 * is read between the updates of two steps, and so is a copy of it that was fetched. */
void fg_check_slice_read(FgCheckWalk *walk, const FgTraceNode *node)
{
    if (!uses_weights(walk, node))
        return;
    for (uint32_t i = 0; i < node->n_operands; i++) {
        uint32_t v = node->operands[i], root = v == FG_NO_ID ? v : walk->check->root[v];
        if (root == FG_NO_ID)
            continue;
        bool slice = fg_check_buffer(walk, root)->state;
        const FgCheckOrigin *origin = &walk->origin[root];
        uint32_t home = slice ? root : origin->state;
        const FgTraceBuffer *state = home == FG_NO_ID ? NULL : fg_check_buffer(walk, home);
        if (!state || state->role != FG_ROLE_SHARD || state->index >= walk->trace->buckets.len)
            continue;
        const char *name = walk->trace->buckets.data[state->index].name;
        bool first = fg_check_updates_first(walk, state->index);
        if (!fg_check_on_its_side(walk, state->index) || fg_check_is_mixed(walk, state->index))
            fg_check_fail(walk->check, node, R_SLICE,
                          "it reads the weights of %s %s the step's update", name,
                          first ? "before" : "after");
        else if (!slice &&
                 (origin->mixed || origin->version != walk->buckets[state->index].version))
            fg_check_fail(walk->check, node, R_SLICE,
                          "it reads weights of %s that were fetched before their update", name);
    }
}
