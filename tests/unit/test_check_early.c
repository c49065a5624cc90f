/* The checker's rules of updates that take their gradient otherwise than whole and summed: in two
 * calls, of the rows that no token names and of the others; and from the parts of all ranks. Each
 * case breaks the trace of a right schedule. */
#include "passes/lower.h"
#include "tests/unit/broken.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows that tokens name, and all others ---- */

static void travel_early(FgModule *graph, FgArena *arena, const FgMachine *machine)
{
    FgMachine slow = *machine; /* no gather pays */
    slow.gather = (FgCurve){0};
    fg_vec_push(arena, &slow.gather, ((FgCurvePoint){1, 1}));
    fg_vec_push(arena, &slow.gather, ((FgCurvePoint){1e9, 1e9}));
    fg_plan_travel(graph->plan, graph, arena, &slow);
    for (uint32_t i = 0; i < graph->plan->buckets.len; i++)
        graph->plan->buckets.data[i].early = graph->plan->buckets.data[i].travels;
}

/* The update of the rows that tokens name, or of the others. */
static FgTraceNode *rows_update(Broken *b, bool named)
{
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_ADAMW_ROWS &&
            b->trace.nodes.data[i].named == named)
            return &b->trace.nodes.data[i];
    FG_BUG("no update of rows");
}

static FgTraceBucket *table(Broken *b)
{
    return &b->trace.buckets.data[trace_first(b, FG_TRACE_ADAMW_ROWS)->bucket];
}

static void other_ids(Broken *b)
{
    FgTraceNode *lookup = trace_first(b, FG_TRACE_LOOKUP_DW);
    trace_operand(b, lookup, 0, lookup->operands[1]);
}

static void set_of_no_ids(Broken *b)
{
    trace_operand(b, trace_first(b, FG_TRACE_ROW_SET), 0,
                  trace_first(b, FG_TRACE_LOOKUP_DW)->operands[1]);
}

static void before_the_norm(Broken *b)
{
    b->trace.clips = true;
}

static void others_twice(Broken *b)
{
    trace_repeat(b, rows_update(b, false)->id, false);
}

static void two_lookups(Broken *b)
{
    table(b)->lookups = 2;
}

static void more_than_a_lookup(Broken *b)
{
    table(b)->writes = 1;
}

static void no_set(Broken *b)
{
    trace_operand(b, rows_update(b, false), 2, rows_update(b, false)->operands[1]);
}

static void named_alone(Broken *b)
{
    trace_drop(b, rows_update(b, false)->id);
}

static void named_never(Broken *b)
{
    trace_drop(b, rows_update(b, true)->id);
}

static const Fault alone_faults[] = {
    {"other ids", other_ids, "other ids than those by which bucket"},
    {"set of no ids", set_of_no_ids, "are not the ids of all ranks"},
    {"before the norm", before_the_norm, "before the norm is known"},
    {"others twice", others_twice, "that no token names a second time"},
    {"two lookups", two_lookups, "not one lookup alone adds to the gradient of bucket"},
    {"more than a lookup", more_than_a_lookup, "where the gradient lacks more than a lookup"},
    {"no set", no_set, "is no set of rows"},
    {"named alone", named_alone, "no update by the same set did the others before"},
    {"named never", named_never, "the step does not update all of bucket"},
};

/* ---- the same where a head is tied to the table: others have a gradient too ---- */

static void others_uncounted(Broken *b)
{
    trace_result(b, rows_update(b, false), 4, FG_NO_ID);
}

static void named_uncounted(Broken *b)
{
    trace_result(b, rows_update(b, true), 4, FG_NO_ID);
}

/* A node of the bucket that the rows are of, made once more between the two updates. */
static void between(Broken *b, FgTraceKind kind)
{
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == kind &&
            b->trace.nodes.data[i].bucket == rows_update(b, true)->bucket) {
            trace_repeat(b, i, false);
            trace_move(b, b->trace.nodes.len - 1, rows_update(b, true)->id, false);
            return;
        }
    FG_BUG("the table's bucket has no such node");
}

static void gathered_between(Broken *b)
{
    between(b, FG_TRACE_GATHER);
}

static void reduced_between(Broken *b)
{
    between(b, FG_TRACE_REDUCE_SCATTER);
}

static const Fault tied_faults[] = {
    {"others uncounted", others_uncounted, "where the others are not counted"},
    {"named uncounted", named_uncounted, "out of the norm, where the others are counted"},
    {"gathered between", gathered_between, "before the rows that tokens name are updated"},
    {"reduced between", reduced_between, "part of which an update has used"},
};

/* ---- gradients that come in parts ---- */

static void in_parts(FgModule *graph, FgArena *arena, const FgMachine *machine)
{
    (void)arena, (void)machine;
    for (uint32_t i = 0; i < graph->plan->buckets.len; i++)
        graph->plan->buckets.data[i].parts = true;
}

static void added_to_parts(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_ALL_TO_ALL)->id, false);
    b->trace.nodes.data[b->trace.nodes.len - 1].updates = true;
}

/* The first update of parts that takes the norm on its way, as one of a sum. */
static FgTraceNode *as_of_a_sum(Broken *b)
{
    for (uint32_t i = 0; i < b->trace.nodes.len; i++) {
        FgTraceNode *node = &b->trace.nodes.data[i];
        if (node->kind == FG_TRACE_ADAMW_PARTS && node->results[4] != FG_NO_ID) {
            node->kind = FG_TRACE_ADAMW;
            return node;
        }
    }
    FG_BUG("no update of parts takes the norm");
}

static void counted_in_parts(Broken *b)
{
    as_of_a_sum(b);
}

static void not_added_up(Broken *b)
{
    trace_result(b, as_of_a_sum(b), 4, FG_NO_ID);
}

static void sum_of_a_sum(Broken *b)
{
    trace_first(b, FG_TRACE_ADAMW)->kind = FG_TRACE_ADAMW_PARTS;
}

static const Fault parts_faults[] = {
    {"added to parts", added_to_parts, "which holds parts that are not summed yet"},
    {"counted in parts", counted_in_parts, "which is in parts that are not summed"},
    {"not added up", not_added_up, "from parts without adding them up"},
};

static const Fault sum_faults[] = {
    {"sum of a sum", sum_of_a_sum, "which is a sum"},
};

static void of_named_rows(int *failures)
{
    REFUSES(alone_faults, .model = "examples/mlp.json", .plan = "minimum", .batch = 1, .seq = 16,
            .levers = travel_early);
    REFUSES(tied_faults, .model = "tests/data/llama-odd/model.json", .plan = "minimum",
            .levers = travel_early);
}

static void of_parts(int *failures)
{
    REFUSES(parts_faults, .model = "examples/mlp.json", .plan = "minimum", .levers = in_parts);
    REFUSES(sum_faults, .model = "examples/mlp.json", .plan = "minimum");
}

UNIT_MAIN({"of_named_rows", of_named_rows}, {"of_parts", of_parts})
