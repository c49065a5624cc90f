/* plan_travel: lookups that need no gather.
 *
 * A table is gathered for a lookup only to read the few rows that the batch names. Where the
 * gradient of its lookups travels as rows (fg_rows_travel), so may the lookup itself: the ids of
 * all ranks are collected, every rank fills in what it owns of their rows, and the sum over ranks
 * returns to the token's rank. What a rank does not own it fills in as -0.0, and x + -0.0 is x for
 * every x, so this changes no bit: it is a lever of the plan (`travels` of a bucket), taken where
 * the transfers are shorter than the gather. What else reads the bucket (a tied head) still gathers
 * it; a table that is only looked up is never gathered.
 *
 * Uses are numbered over what still reads the gathered bucket, so intervals are numbered anew. */
#include "passes/lower.h"
#include "passes/simulate.h"

#include <string.h>

bool *fg_tables_that_travel(FgArena *arena, const FgModule *m, uint32_t ranks)
{
    bool *can = FG_NEW_ARRAY(arena, bool, m->params.len + 1);
    const uint32_t *param = fg_rows_travel(arena, m, ranks);
    for (uint32_t v = 0; v < m->values.len; v++)
        if (param[v] != FG_NO_ID)
            can[param[v]] = true;
    return can;
}

typedef struct Cx {
    FgPlan *plan;
    const FgModule *graph;
    FgArena *scratch;
    const FgMachine *machine;
    const bool *can;      /* by parameter */
    const uint32_t *base; /* value -> parameter */
    bool *holds;          /* parameter -> the bucket at hand holds it */
} Cx;

/* The table that a node looks rows up in, where these can travel; FG_NO_ID. */
static uint32_t table_of(const Cx *cx, const FgNode *node)
{
    if (node->op != FG_OP_embedding)
        return FG_NO_ID;
    const FgValue *w = &cx->graph->values.data[node->operands[1]];
    return w->kind == FG_VALUE_PARAM && cx->can[w->index] ? w->index : FG_NO_ID;
}

/* Does the node read the bucket at hand? */
static bool uses_bucket(const Cx *cx, const FgNode *node)
{
    bool uses = false;
    for (uint32_t k = 0; k < node->n_operands && !fg_node_is_name(node); k++) {
        uint32_t v = node->operands[k], p = v == FG_NO_ID ? FG_NO_ID : cx->base[v];
        uses |= p != FG_NO_ID && cx->holds[p];
    }
    return uses;
}

/* Seconds on the links for one lookup: ids out, rows back. */
static double seconds_of(const Cx *cx, const FgNode *node)
{
    const FgModule *m = cx->graph;
    double ranks = (double)cx->machine->ranks;
    double ids = (double)fg_type_bytes(m->values.data[node->operands[0]].type);
    double rows = (double)fg_type_bytes(m->values.data[node->results[0]].type);
    return fg_collective_seconds(cx->machine, cx->machine->ranks, FG_OP_collect, ranks * ids) +
           fg_collective_seconds(cx->machine, cx->machine->ranks, FG_OP_return_rows, ranks * rows);
}

/* Has the bucket lookups that can travel, all of them faster than one gather? */
static bool pays(const Cx *cx, const FgPlanBucket *bucket)
{
    const FgIdVec *order = &fg_func((FgModule *)cx->graph, "step")->order;
    uint64_t *offsets = FG_NEW_ARRAY(cx->scratch, uint64_t, bucket->n_params);
    uint64_t elements =
        fg_bucket_layout(cx->graph, bucket->params, bucket->n_params, cx->machine->ranks, offsets);
    FgDtype dtype = cx->graph->params.data[bucket->params[0]].type->dtype;
    double gather = fg_collective_seconds(cx->machine, cx->machine->ranks, FG_OP_gather,
                                          (double)elements * (double)fg_dtype_bytes(dtype));
    double lookups = 0;
    bool any = false;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &cx->graph->nodes.data[order->data[i]];
        uint32_t table = table_of(cx, node);
        if (table == FG_NO_ID || !cx->holds[table])
            continue;
        any = true;
        lookups += seconds_of(cx, node);
    }
    return any && lookups < gather;
}

/* Uses of the bucket at hand, old number -> new one: as many as remain before it. One entry more
 * than there are uses. */
static FgIdVec new_numbers(const Cx *cx)
{
    const FgIdVec *order = &fg_func((FgModule *)cx->graph, "step")->order;
    FgIdVec numbers = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &cx->graph->nodes.data[order->data[i]];
        if (!uses_bucket(cx, node))
            continue;
        fg_vec_push(cx->scratch, &numbers, n);
        n += table_of(cx, node) == FG_NO_ID;
    }
    fg_vec_push(cx->scratch, &numbers, n);
    return numbers;
}

/* Intervals over the remaining uses; those that serve none vanish. */
static void renumber(const Cx *cx, uint32_t bucket)
{
    FgIdVec numbers = new_numbers(cx);
    FgPlan *plan = cx->plan;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        FgPlanGather g = plan->gathers.data[i];
        if (g.bucket == bucket) {
            uint32_t first = numbers.data[g.first_use], end = numbers.data[g.last_use + 1];
            if (first == end)
                continue;
            g.first_use = first;
            g.last_use = end - 1;
        }
        plan->gathers.data[kept++] = g;
    }
    plan->gathers.len = kept;
}

void fg_plan_travel(FgPlan *plan, const FgModule *graph, FgArena *scratch, const FgMachine *machine)
{
    Cx cx = {.plan = plan, .graph = graph, .scratch = scratch, .machine = machine};
    cx.can = fg_tables_that_travel(scratch, graph, machine->ranks);
    cx.base = fg_param_bases(scratch, graph);
    cx.holds = FG_NEW_ARRAY(scratch, bool, graph->params.len + 1);
    for (uint32_t b = 0; b < plan->buckets.len; b++) {
        FgPlanBucket *bucket = &plan->buckets.data[b];
        memset(cx.holds, 0, graph->params.len * sizeof *cx.holds);
        bool any = false;
        for (uint32_t k = 0; k < bucket->n_params; k++) {
            cx.holds[bucket->params[k]] = true;
            any |= cx.can[bucket->params[k]];
        }
        if (!any || (bucket->offload & FG_OFFLOAD_PARAMETERS) || !pays(&cx, bucket))
            continue;
        bucket->travels = true;
        renumber(&cx, b);
    }
}
