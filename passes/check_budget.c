/* The bound on memory: states and arena within the budget.
 *
 * Where they are not, a note says what a person would ask next: how many gathered buckets and
 * gradient buffers the schedule holds at once where it holds the most, and what the states take. */
#include "passes/check_internal.h"

typedef struct Held {
    uint32_t gathered, gradients;
    uint64_t gathered_bytes, gradient_bytes;
} Held;

typedef struct Walk {
    const FgCheck *check;
    uint32_t *last; /* buffer -> position of the last access to its memory in this function */
    bool *held;     /* by buffer */
    Held now, most;
    const FgTraceNode *fullest;
    const char *func;
} Walk;

static FgTraceKind maker(const FgTrace *trace, uint32_t buffer)
{
    const FgTraceBuffer *it = &trace->buffers.data[buffer];
    return it->state || it->def >= trace->nodes.len ? FG_TRACE_WORK
                                                    : trace->nodes.data[it->def].kind;
}

static void hold(Walk *walk, uint32_t buffer, bool held)
{
    const FgTrace *trace = walk->check->trace;
    uint64_t bytes = trace->buffers.data[buffer].bytes;
    if (walk->held[buffer] == held)
        return;
    walk->held[buffer] = held;
    bool gathered = maker(trace, buffer) == FG_TRACE_GATHER;
    uint32_t *n = gathered ? &walk->now.gathered : &walk->now.gradients;
    uint64_t *sum = gathered ? &walk->now.gathered_bytes : &walk->now.gradient_bytes;
    *n = held ? *n + 1 : *n - 1;
    *sum = held ? *sum + bytes : *sum - bytes;
}

/* Copies that are released before they are gathered live into the function, and gradients that are
 * added to before they begin. */
static void begin(Walk *walk, const FgTraceFunc *func)
{
    const FgTrace *trace = walk->check->trace;
    bool *seen = FG_NEW_ARRAY(walk->check->arena, bool, trace->buffers.len + 1);
    for (uint32_t i = 0; i < trace->buffers.len; i++)
        hold(walk, i, false);
    for (uint32_t i = 0; i < func->order.len; i++) {
        const FgTraceNode *node = &trace->nodes.data[func->order.data[i]];
        for (uint32_t k = 0; k < node->n_accesses; k++) {
            uint32_t root = trace->buffers.data[node->accesses[k].buffer].root;
            walk->last[root] = i;
            if (!seen[root] && maker(trace, root) == FG_TRACE_GRAD_BUFFER)
                hold(walk, root, node->kind != FG_TRACE_GRAD_BUFFER);
            seen[root] |= maker(trace, root) == FG_TRACE_GRAD_BUFFER;
        }
        if (node->kind == FG_TRACE_GATHER)
            seen[trace->buffers.data[node->results[0]].root] = true;
        if (node->kind != FG_TRACE_RELEASE)
            continue;
        uint32_t root = trace->buffers.data[node->operands[0]].root;
        if (!seen[root] && maker(trace, root) == FG_TRACE_GATHER)
            hold(walk, root, true);
    }
}

static void run(Walk *walk, const FgTraceFunc *func)
{
    const FgTrace *trace = walk->check->trace;
    begin(walk, func);
    for (uint32_t i = 0; i < func->order.len; i++) {
        const FgTraceNode *node = &trace->nodes.data[func->order.data[i]];
        bool makes = node->kind == FG_TRACE_GATHER || node->kind == FG_TRACE_GRAD_BUFFER;
        if (makes)
            hold(walk, trace->buffers.data[node->results[0]].root, true);
        if (makes && walk->now.gathered_bytes + walk->now.gradient_bytes >
                         walk->most.gathered_bytes + walk->most.gradient_bytes) {
            walk->most = walk->now;
            walk->fullest = node;
            walk->func = func->name;
        }
        if (node->kind == FG_TRACE_RELEASE)
            hold(walk, trace->buffers.data[node->operands[0]].root, false);
        for (uint32_t k = 0; k < node->n_accesses; k++) {
            uint32_t root = trace->buffers.data[node->accesses[k].buffer].root;
            if (walk->last[root] == i && maker(trace, root) == FG_TRACE_GRAD_BUFFER)
                hold(walk, root, false);
        }
    }
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void explain(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    Walk walk = {.check = check,
                 .last = FG_NEW_ARRAY(check->arena, uint32_t, trace->buffers.len + 1),
                 .held = FG_NEW_ARRAY(check->arena, bool, trace->buffers.len + 1)};
    for (uint32_t i = 0; i < trace->funcs.len; i++)
        run(&walk, &trace->funcs.data[i]);
    if (walk.fullest)
        fg_diag_note(trace->diags, walk.fullest->loc,
                     "at %s in @%s, %u gathered bucket%s (%s) and %u gradient buffer%s (%s) are "
                     "held at once; the states alone take %s",
                     fg_check_node_text(check, walk.fullest), walk.func, walk.most.gathered,
                     plural(walk.most.gathered),
                     fg_bytes_text(check->arena, walk.most.gathered_bytes), walk.most.gradients,
                     plural(walk.most.gradients),
                     fg_bytes_text(check->arena, walk.most.gradient_bytes),
                     fg_bytes_text(check->arena, trace->state_bytes));
}

void fg_check_budget(FgCheck *check, uint64_t budget)
{
    const FgTrace *trace = check->trace;
    uint64_t peak = trace->state_bytes + trace->arena_bytes;
    if (peak >= trace->state_bytes && peak <= budget)
        return;
    uint32_t errors = check->errors;
    fg_check_fail_module(check, "states (%s) and arena (%s) exceed the budget of %s by %s",
                         fg_bytes_text(check->arena, trace->state_bytes),
                         fg_bytes_text(check->arena, trace->arena_bytes),
                         fg_bytes_text(check->arena, budget),
                         fg_bytes_text(check->arena, peak - budget));
    if (check->errors > errors)
        explain(check);
}
