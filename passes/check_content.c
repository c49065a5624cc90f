/* The proof that every read finds what it names.
 *
 * The functions are run in the order in which a program runs them: init, prologue, two periods,
 * flush, and a period again (the seam after a flush, where no prologue runs). Every run of bytes
 * remembers the value whose contents it holds, the node that wrote it, the execution of the
 * function, and for a gathered copy the version of the weights. As conflicting accesses follow
 * happens-before (check_clock.c), and that follows the issue order, what a read finds on any device
 * is what it finds here.
 *
 * Middle bodies of accumulation run twice at most: every pair of neighbours that a longer period
 * has occurs in that. */
#include "passes/check_internal.h"

#include <string.h>

enum { R_EARLY = 20, R_UNWRITTEN, R_OVERWRITTEN, R_RELEASED, R_RUN, R_STALE, R_SPOILT, R_MIXED };

FgTraceKind fg_check_maker(const FgCheckWalk *walk, uint32_t value)
{
    const FgTraceBuffer *it = fg_check_buffer(walk, value);
    return !it->state && it->def < walk->trace->nodes.len ? walk->trace->nodes.data[it->def].kind
                                                          : FG_TRACE_WORK;
}

/* ---- reads ---- */

/* The bytes hold something else than what the read names. */
static void wrong_content(FgCheckWalk *walk, const FgTraceNode *node, uint32_t value,
                          const FgCheckFact *fact)
{
    FgCheck *check = walk->check;
    uint32_t root = check->root[value], held = fact->content - 1;
    const char *text = fg_check_value_text(check, value);
    uint32_t def = fg_check_buffer(walk, check->content[value])->def;
    if (!fg_check_buffer(walk, check->content[value])->state && def < walk->trace->nodes.len &&
        check->func[def] == check->func[node->id] && check->position[def] != FG_CHECK_NONE &&
        check->position[def] > check->position[node->id])
        fg_check_fail(check, node, R_EARLY, "it reads %s before %s makes it; issue that earlier",
                      text, fg_check_node_text(check, &walk->trace->nodes.data[def]));
    else if (!fact->content)
        fg_check_fail(check, node, R_UNWRITTEN, "it reads %s, whose bytes nothing has written",
                      text);
    else
        fg_check_fail(check, node, R_OVERWRITTEN,
                      "it reads %s, but %s wrote %s %s the same bytes; its memory was given away "
                      "too early",
                      text,
                      fact->writer == FG_CHECK_NONE
                          ? "the host"
                          : fg_check_node_text(check, &walk->trace->nodes.data[fact->writer]),
                      fg_check_value_text(check, held),
                      check->root[held] == root ? "in place into" : "into");
}

/* True when the contents are those that a read of `value` names. */
static bool names(const FgCheckWalk *walk, uint32_t value, const FgCheckFact *fact)
{
    const FgCheck *check = walk->check;
    if (!fact->content)
        return false;
    uint32_t held = fact->content - 1;
    if (held == check->content[value])
        return true;
    /* A gradient buffer read whole: its slices were written under their own names. */
    return value == check->root[value] && check->root[held] == value &&
           fg_check_maker(walk, value) == FG_TRACE_GRAD_BUFFER;
}

/* A gathered copy has the weights as they are now, on the step's side of its update: so all reads
 * of a step find the same weights, and the backward of a node reads what its forward read. */
static void read_weights(FgCheckWalk *walk, const FgTraceNode *node, uint32_t value,
                         const FgCheckFact *fact)
{
    uint32_t index = walk->trace->nodes.data[fact->writer].bucket;
    if (index >= walk->trace->buckets.len)
        return;
    const char *text = fg_check_value_text(walk->check, value);
    const char *name = walk->trace->buckets.data[index].name;
    if (fact->version != walk->buckets[index].version)
        fg_check_fail(walk->check, node, R_STALE,
                      "it reads stale weights: %s was gathered before the update of bucket %s; "
                      "gather it after that",
                      text, name);
    else if (!fg_check_on_its_side(walk, index))
        fg_check_fail(
            walk->check, node, R_MIXED,
            fg_check_updates_first(walk, index)
                ? "it reads %s before the update of bucket %s by the gradient of the step "
                  "before; update the weights before their first read"
                : "it reads %s after the update of bucket %s in this step; update the "
                  "weights after their last read",
            text, name);
}

static bool check_fact(FgCheckWalk *walk, const FgTraceNode *node, uint32_t value,
                       const FgCheckFact *fact)
{
    FgCheck *check = walk->check;
    uint32_t root = check->root[value], errors = check->errors;
    FgTraceKind maker = fg_check_maker(walk, root);
    if (!names(walk, value, fact)) {
        wrong_content(walk, node, value, fact);
        return false;
    }
    if (fact->released) {
        const FgTraceNode *release = &walk->trace->nodes.data[fact->released - 1];
        fg_check_fail(check, node, R_RELEASED,
                      "it reads %s after its release %s; release it later or gather it again",
                      fg_check_value_text(check, value), fg_check_node_text(check, release));
    } else if (fact->reduced && node->kind != FG_TRACE_REDUCE_SCATTER &&
               node->kind != FG_TRACE_ALL_TO_ALL) {
        fg_check_fail(check, node, R_SPOILT,
                      "it reads %s after its reduction, which may have spoilt it",
                      fg_check_value_text(check, value));
    } else if (maker == FG_TRACE_GATHER) {
        read_weights(walk, node, value, fact);
    } else if (!fg_check_buffer(walk, root)->state && fact->run != walk->run &&
               !fg_check_adds_up(walk, root, fact)) {
        fg_check_fail(
            check, node, R_RUN,
            "it reads %s as an earlier run of a function left it, before it is made again",
            fg_check_value_text(check, value));
    }
    return check->errors == errors;
}

static void read_value(FgCheckWalk *walk, const FgTraceNode *node, uint32_t value)
{
    FgCheckSpan span = walk->space->spans[value];
    if (span.lo >= span.hi)
        return;
    uint32_t at = fg_check_cells_find(&walk->cells, span.lo);
    for (; at < span.hi; at = fg_check_cells_next(&walk->cells, at))
        if (!check_fact(walk, node, value, fg_check_cells_at(&walk->cells, at)))
            return;
}

/* ---- writes ---- */

static void write_value(FgCheckWalk *walk, uint32_t writer, uint32_t value, uint32_t version)
{
    FgCheckSpan span = walk->space->spans[value];
    if (span.lo >= span.hi)
        return;
    FgCheckFact *fact = fg_check_cells_merge(&walk->cells, span);
    uint32_t root = walk->check->root[value]; /* a part of a state holds what the state holds */
    uint32_t content = fg_check_buffer(walk, root)->state ? walk->check->content[value] : value;
    *fact = (FgCheckFact){
        .content = content + 1, .writer = writer, .run = walk->run, .version = version};
}

/* A slice is a part of a gradient buffer under its own name. */
static bool is_slice(const FgCheckWalk *walk, uint32_t value)
{
    uint32_t root = walk->check->root[value];
    return root != value && fg_check_maker(walk, root) == FG_TRACE_GRAD_BUFFER;
}

static void run_node(FgCheckWalk *walk, const FgTraceNode *node, FgTraceAccessVec *accesses)
{
    if (fg_check_skipped(walk, node)) {
        fg_check_step_node(walk, node);
        return;
    }
    fg_check_accesses(walk->check, node, accesses);
    for (uint32_t i = 0; i < accesses->len; i++) {
        const FgTraceAccess *access = &accesses->data[i];
        if (access->write && !access->scratch && is_slice(walk, access->buffer))
            fg_check_slice(walk, node, access->buffer);
        else if (access->read)
            read_value(walk, node, access->buffer);
    }
    fg_check_step_node(walk, node);
    uint32_t version =
        node->bucket < walk->trace->buckets.len ? walk->buckets[node->bucket].version : 0;
    for (uint32_t i = 0; i < accesses->len; i++)
        if (accesses->data[i].write && !(accesses->data[i].read && accesses->data[i].scratch))
            write_value(walk, node->id, accesses->data[i].buffer, version);
}

/* ---- the run of a program ---- */

/* What the host puts in place: weights and moments before init, the batch before each body. */
static bool host_writes(const FgCheckWalk *walk, const FgTraceBuffer *value, bool start)
{
    if (!value->state || value->root != value->id)
        return false;
    if (value->role == FG_ROLE_INPUT)
        return true;
    if (value->role == FG_ROLE_SHARD) /* with a master, init casts it from that */
        return start && value->index < walk->trace->buckets.len &&
               walk->trace->buckets.data[value->index].master == FG_NO_ID;
    return start && (value->role == FG_ROLE_MASTER || value->role == FG_ROLE_MOMENT1 ||
                     value->role == FG_ROLE_MOMENT2 || value->role == FG_ROLE_SCALARS ||
                     value->role == FG_ROLE_SCALER);
}

static void host(FgCheckWalk *walk, bool start)
{
    for (uint32_t i = 0; i < walk->trace->buffers.len; i++)
        if (host_writes(walk, fg_check_buffer(walk, i), start))
            write_value(walk, FG_CHECK_NONE, i, 0);
}

static const FgTraceFunc *func_named(const FgTrace *trace, const char *name)
{
    for (uint32_t i = 0; i < trace->funcs.len; i++)
        if (!strcmp(trace->funcs.data[i].name, name))
            return &trace->funcs.data[i];
    return NULL;
}

static void run_func(FgCheckWalk *walk, const char *name)
{
    const FgTraceFunc *func = func_named(walk->trace, name);
    FgTraceAccessVec accesses = {0};
    if (!func)
        return;
    walk->run++;
    for (uint32_t i = 0; i < func->order.len; i++)
        run_node(walk, &walk->trace->nodes.data[func->order.data[i]], &accesses);
    fg_check_function_end(walk, func);
}

static void run_body(FgCheckWalk *walk, const char *name)
{
    host(walk, false);
    run_func(walk, name);
}

static void run_period(FgCheckWalk *walk)
{
    fg_check_step_begin(walk);
    if (walk->micro_steps == 1) {
        run_body(walk, "step");
    } else {
        run_body(walk, "first");
        for (uint32_t i = 2; i < walk->micro_steps; i++)
            run_body(walk, "middle");
        run_body(walk, "last");
    }
    fg_check_step_end(walk, false);
}

static void run_flush(FgCheckWalk *walk)
{
    if (!func_named(walk->trace, "flush"))
        return;
    fg_check_step_begin(walk);
    run_func(walk, "flush");
    fg_check_step_end(walk, true);
}

static uint32_t micro_steps(const FgTrace *trace)
{
    int64_t steps = trace->accumulate;
    return steps > 4 ? 4 : steps < 1 ? 1 : (uint32_t)steps;
}

void fg_check_contents(FgCheck *check, const FgCheckSpace *space)
{
    const FgTrace *trace = check->trace;
    uint32_t n = trace->buffers.len;
    FgCheckWalk walk = {.check = check,
                        .trace = trace,
                        .space = space,
                        .buckets = FG_NEW_ARRAY(check->arena, FgCheckBucket, trace->buckets.len),
                        .gathered = FG_NEW_ARRAY(check->arena, bool, n),
                        .carried = FG_NEW_ARRAY(check->arena, bool, n),
                        .released = FG_NEW_ARRAY(check->arena, bool, n),
                        .writes = FG_NEW_ARRAY(check->arena, uint32_t, n),
                        .begun = FG_NEW_ARRAY(check->arena, uint32_t, n),
                        .covers = FG_NEW_ARRAY(check->arena, uint32_t, n),
                        .open = FG_NEW_ARRAY(check->arena, bool, n),
                        .ids = FG_NEW_ARRAY(check->arena, uint32_t, n),
                        .origin = FG_NEW_ARRAY(check->arena, FgCheckOrigin, n),
                        .micro_steps = micro_steps(trace)};
    fg_check_cells_init(&walk.cells, check->arena, space->n, sizeof(FgCheckFact));
    for (uint32_t i = 0; i < trace->buckets.len; i++)
        walk.buckets[i].gradient = FG_NO_ID;
    walk.start = true;
    for (uint32_t i = 0; i < n; i++)
        walk.origin[i].state = FG_NO_ID;
    host(&walk, true);
    run_func(&walk, "init");
    run_func(&walk, "prologue");
    walk.start = false;
    for (uint32_t i = 0; i < n; i++)
        walk.carried[i] = walk.gathered[i];
    run_period(&walk);
    run_period(&walk);
    run_flush(&walk);
    run_period(&walk);
    for (uint32_t i = 0; i < n; i++)
        if (walk.gathered[i] && !walk.released[i])
            fg_check_fail_module(check, "the gathered %s is never released",
                                 fg_check_value_text(check, i));
}
