/* The proof of a schedule, from streams, waits and addresses alone (design: I3).
 *
 * It is written apart from the passes that make schedules and shares no code with them: it has its
 * own idea of liveness (what bytes hold) and of order (happens-before). It looks at a trace
 * (trace.h), which is made from a module (check_ir.c) or from an emitted program
 * (readback/). What it shows:
 *
 *   check_budget.c   states and arena within the budget
 *   check_memory.c   every buffer lies aligned inside its region
 *   check_clock.c    waits make no cycle; a communicator keeps to one stream; two accesses to the
 *                    same bytes, one of them a write, are ordered by happens-before
 *   check_content.c  over init, prologue, two periods, flush and a period after that, every read
 *                    finds what it names: made, not released, not overwritten, not stale
 *   check_offload.c  only copies touch host memory; what is updated of it goes back
 *   check_scale.c    a loss's scale goes in once and out once
 *   check_step.c     gathers and releases alternate; every gradient is reduced once with all
 *                    contributions; every bucket is updated once
 *   check_rows.c     rows of lookups and of sharded tables are added by their owners, once
 *
 * Cost: a few passes over the nodes; an access costs the number of runs of bytes that it covers. */
#include "passes/check_internal.h"

#include "passes/compile.h"

#include <string.h>

#define MOST_ERRORS 20

/* ---- reports ---- */

/* "#12 linear (layers.0.q)"; of a program "fg_rt_linear (layers.0.q)". */
const char *fg_check_node_text(const FgCheck *check, const FgTraceNode *node)
{
    const char *what = check->trace->emitted
                           ? fg_arena_printf(check->arena, "fg_rt_%s", node->entry)
                           : fg_arena_printf(check->arena, "#%u %s", node->id, node->op);
    return *node->name ? fg_arena_printf(check->arena, "%s (%s)", what, node->name) : what;
}

const char *fg_check_value_text(const FgCheck *check, uint32_t value)
{
    const FgTraceBuffer *buffer = &check->trace->buffers.data[value];
    return check->trace->emitted ? buffer->name
                                 : fg_arena_printf(check->arena, "%%%s.%u", buffer->name, value);
}

const char *fg_check_wait_text(const FgCheck *check, const FgTraceNode *node)
{
    return check->trace->emitted
               ? fg_arena_printf(check->arena, "a wait for an event recorded after line %u",
                                 node->loc.line)
               : fg_arena_printf(check->arena, "wait(#%u)", node->id);
}

void fg_check_fail(FgCheck *check, const FgTraceNode *node, uint32_t rule, const char *format, ...)
{
    bool *reported = &check->reported[(size_t)node->id * FG_CHECK_RULES + rule];
    if (check->errors >= MOST_ERRORS || *reported)
        return;
    *reported = true;
    check->errors++;
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(check->arena, format, args);
    va_end(args);
    const char *func = check->position[node->id] == FG_CHECK_NONE
                           ? ""
                           : check->trace->funcs.data[check->func[node->id]].name;
    fg_diag(check->trace->diags, node->loc, FG_D_NOT_PROVED, "%s in @%s: %s",
            fg_check_node_text(check, node), func, text);
}

void fg_check_fail_module(FgCheck *check, const char *format, ...)
{
    if (check->errors >= MOST_ERRORS)
        return;
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(check->arena, format, args);
    va_end(args);
    for (uint32_t i = 0; i < check->said.len; i++)
        if (!strcmp(check->said.data[i], text))
            return;
    fg_vec_push(check->arena, &check->said, text);
    check->errors++;
    fg_diag(check->trace->diags, FG_NOWHERE, FG_D_NOT_PROVED, "%s", text);
}

/* ---- tables ---- */

/* Where every node stands. False when one stands twice: then nothing else is worth a look. */
static bool index_nodes(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    bool ok = true;
    for (uint32_t i = 0; i < trace->nodes.len; i++)
        check->position[i] = FG_CHECK_NONE;
    for (uint32_t f = 0; f < trace->funcs.len; f++) {
        const FgIdVec *order = &trace->funcs.data[f].order;
        for (uint32_t i = 0; i < order->len; i++) {
            uint32_t id = order->data[i];
            if (check->position[id] != FG_CHECK_NONE) {
                fg_check_fail(check, &trace->nodes.data[id], 4, "it stands in the order twice");
                ok = false;
            }
            check->position[id] = i;
            check->func[id] = f;
            check->updates[id] = trace->nodes.data[id].updates;
        }
    }
    return ok;
}

static void index_buffers(FgCheck *check)
{
    for (uint32_t i = 0; i < check->trace->buffers.len; i++) {
        check->root[i] = check->trace->buffers.data[i].root;
        check->content[i] = check->trace->buffers.data[i].content;
    }
}

/* ---- rules without a place in time ---- */

/* A view must lie inside what it names. */
static void check_views(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    for (uint32_t i = 0; i < trace->nodes.len; i++) {
        const FgTraceNode *node = &trace->nodes.data[i];
        if (check->position[i] == FG_CHECK_NONE || node->kind != FG_TRACE_VIEW)
            continue;
        const FgTraceBuffer *inner = &trace->buffers.data[node->results[0]],
                            *outer = &trace->buffers.data[node->operands[0]];
        if (inner->root != outer->root || inner->at < outer->at ||
            inner->at - outer->at > outer->bytes ||
            inner->bytes > outer->bytes - (inner->at - outer->at))
            fg_check_fail(check, node, 5, "%s does not lie inside %s, which it names a part of",
                          fg_check_value_text(check, inner->id),
                          fg_check_value_text(check, outer->id));
    }
}

static bool has_func(const FgTrace *trace, const char *name)
{
    for (uint32_t i = 0; i < trace->funcs.len; i++)
        if (!strcmp(trace->funcs.data[i].name, name))
            return true;
    return false;
}

/* The functions that the trainer will call. */
static void check_funcs(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    int64_t steps = trace->accumulate;
    bool trains = false;
    for (uint32_t i = 0; i < trace->buckets.len; i++)
        trains |= trace->buckets.data[i].trainable;
    const struct {
        const char *name;
        bool needed;
    } funcs[] = {{"step", steps <= 1},
                 {"first", steps > 1},
                 {"middle", steps > 2},
                 {"last", steps > 1},
                 {"flush", trains && trace->clips}};
    for (uint32_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
        if (funcs[i].needed && !has_func(trace, funcs[i].name))
            fg_check_fail_module(check, "there is no @%s", funcs[i].name);
}

static void count(const FgCheck *check, FgProof *out)
{
    const FgTrace *trace = check->trace;
    for (uint32_t i = 0; i < trace->nodes.len; i++) {
        if (check->position[i] == FG_CHECK_NONE)
            continue;
        out->nodes += trace->nodes.data[i].entry != NULL;
        out->gathers += trace->nodes.data[i].kind == FG_TRACE_GATHER;
    }
}

bool fg_check_trace(FgArena *scratch, const FgTrace *trace, uint64_t budget, FgProof *out)
{
    uint32_t n = trace->nodes.len, v = trace->buffers.len;
    FgCheck check = {.arena = scratch,
                     .trace = trace,
                     .reported = FG_NEW_ARRAY(scratch, bool, (size_t)n *FG_CHECK_RULES),
                     .position = FG_NEW_ARRAY(scratch, uint32_t, n),
                     .func = FG_NEW_ARRAY(scratch, uint32_t, n),
                     .root = FG_NEW_ARRAY(scratch, uint32_t, v),
                     .content = FG_NEW_ARRAY(scratch, uint32_t, v),
                     .updates = FG_NEW_ARRAY(scratch, bool, n)};
    *out = (FgProof){0};
    if (!index_nodes(&check))
        return false;
    index_buffers(&check);
    check_funcs(&check);
    fg_check_budget(&check, budget);
    check_views(&check);
    fg_check_sides(&check);
    FgCheckSpace space;
    fg_check_space(&check, &space);
    fg_check_order(&check, &space, &out->waits, &out->reuses);
    fg_check_contents(&check, &space);
    count(&check, out);
    return check.errors == 0;
}
