/* The checker against traces that no reader makes: it relies on nothing that the IR's parser or the
 * read-back has looked at before. Every case breaks the trace of a right schedule in memory. */
#include "tests/unit/broken.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static void twice_in_order(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_GATHER)->id, true);
}

static void no_bucket(Broken *b)
{
    trace_first(b, FG_TRACE_GATHER)->bucket = 1000;
}

static void copy_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_GATHER)->results[0])->bytes += 64;
}

static void begun_twice(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_GRAD_BUFFER)->id, false);
}

/* A release of the gradient buffer behind its begin, or of a value behind its making, twice. */
static void release(Broken *b, FgTraceKind made_by, int times)
{
    FgTraceNode *maker = trace_first(b, made_by), *real = trace_first(b, FG_TRACE_RELEASE);
    uint32_t at = maker->id;
    for (int i = 0; i < times; i++) {
        FgTraceNode node = *real;
        uint32_t *operand = FG_NEW_ARRAY(b->arena, uint32_t, 1);
        operand[0] = b->trace.nodes.data[at].results[0];
        node.operands = operand;
        trace_repeat(b, at, false);
        node.id = b->trace.nodes.len - 1;
        node.stream = b->trace.nodes.data[at].stream;
        node.n_waits = 0;
        b->trace.nodes.data[node.id] = node;
    }
}

static void released_before_reduction(Broken *b)
{
    release(b, FG_TRACE_GRAD_BUFFER, 1);
}

static void released_twice(Broken *b)
{
    for (uint32_t i = 0; i < b->trace.nodes.len; i++) {
        FgTraceNode *node = &b->trace.nodes.data[i];
        if (node->entry && !strcmp(node->entry, "linear")) {
            node->kind = FG_TRACE_LOOKUP_DW; /* for a moment, to be found */
            release(b, FG_TRACE_LOOKUP_DW, 2);
            b->trace.nodes.data[i].kind = FG_TRACE_WORK;
            return;
        }
    }
}

static void gradient_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_REDUCE_SCATTER)->operands[0])->elements += 16;
}

static void slice_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_LOOKUP_DW)->results[0])->elements += 16;
}

static void exchange_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_EXCHANGE)->results[0])->bytes += 16;
}

static void exchanged_twice(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_EXCHANGE)->id, false);
}

static void norm_reduced_twice(Broken *b)
{
    for (uint32_t i = 0; i < b->trace.nodes.len; i++) {
        const FgTraceNode *node = &b->trace.nodes.data[i];
        if (node->kind == FG_TRACE_ALL_REDUCE &&
            trace_buffer(b, node->operands[0])->role == FG_ROLE_NORM) {
            trace_repeat(b, i, false);
            return;
        }
    }
}

static void factor_made_twice(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_CLIP_FACTOR)->id, false);
}

static void moment_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_ADAMW)->results[1])->elements += 16;
}

static void frozen_bucket_updated(Broken *b)
{
    b->trace.buckets.data[trace_first(b, FG_TRACE_ADAMW)->bucket].trainable = false;
}

/* A wait that the program does not need: the same one twice. */
static void waits_twice(Broken *b)
{
    FgTraceNode *node = trace_first(b, FG_TRACE_REDUCE_SCATTER);
    uint32_t *waits = FG_NEW_ARRAY(b->arena, uint32_t, 2);
    if (!node->n_waits)
        FG_BUG("the first reduction waits for nothing");
    waits[0] = waits[1] = node->waits[0];
    node->waits = waits;
    node->n_waits = 2;
    b->trace.emitted = true;
}

static void norm_elsewhere(Broken *b)
{
    trace_result(b, trace_first(b, FG_TRACE_NORM_ADD), 0,
                 trace_first(b, FG_TRACE_ADAMW)->results[1]);
}

static void moment_of_another(Broken *b)
{
    FgTraceNode *node = trace_first(b, FG_TRACE_ADAMW);
    trace_result(b, node, 1, node->results[2]);
}

/* As if it belonged to the step in which it stands. */
static void updated_too_early(Broken *b)
{
    trace_first(b, FG_TRACE_ADAMW)->pending = false;
}

static void rows_added_twice(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_LOOKUP_DW)->id, false);
}

static void more_contributions(Broken *b)
{
    b->trace.buckets.data[trace_first(b, FG_TRACE_REDUCE_SCATTER)->bucket].writes = 900;
}

/* The reduction of the bucket whose lookups travel as rows. */
static uint32_t reduction_beside_lookups(Broken *b)
{
    uint32_t bucket = trace_first(b, FG_TRACE_LOOKUP_DW)->bucket;
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_REDUCE_SCATTER &&
            b->trace.nodes.data[i].bucket == bucket)
            return i;
    FG_BUG("the bucket is not reduced");
}

static void rows_before_reduction(Broken *b)
{
    trace_move(b, reduction_beside_lookups(b), trace_first(b, FG_TRACE_LOOKUP_DW)->id, true);
}

static void reduced_before_lookups(Broken *b)
{
    trace_repeat(b, reduction_beside_lookups(b), false);
    b->trace.nodes.data[b->trace.nodes.len - 1].updates = true;
}

/* Something reads a gradient that its reduction may have spoilt. */
static void read_after_reduction(Broken *b)
{
    const FgTraceNode *reduce = trace_first(b, FG_TRACE_REDUCE_SCATTER);
    uint32_t grad = reduce->operands[0], *operand = FG_NEW_ARRAY(b->arena, uint32_t, 1);
    FgTraceAccess *access = FG_NEW(b->arena, FgTraceAccess);
    *access = (FgTraceAccess){.buffer = grad, .read = true, .inplace = FG_NO_ID};
    operand[0] = grad;
    FgTraceNode node = *reduce;
    trace_repeat(b, reduce->id, false);
    node.id = b->trace.nodes.len - 1;
    node.kind = FG_TRACE_WORK;
    node.bucket = FG_NO_ID;
    node.comm = 0;
    node.updates = false;
    node.operands = operand;
    node.n_operands = 1;
    node.n_results = node.n_waits = 0;
    node.accesses = access;
    node.n_accesses = 1;
    b->trace.nodes.data[node.id] = node;
}

/* The update of the step before, behind the reduction of this one. */
static void updated_too_late(Broken *b)
{
    const FgTraceNode *update = trace_first(b, FG_TRACE_ADAMW);
    for (uint32_t f = 0; f < b->trace.funcs.len; f++)
        if (!strcmp(b->trace.funcs.data[f].name, "step"))
            trace_move(b, update->id,
                       b->trace.funcs.data[f].order.data[b->trace.funcs.data[f].order.len - 1],
                       true);
}

/* ---- copies to and from host memory ---- */

static void reads_host_memory(Broken *b)
{
    trace_first(b, FG_TRACE_FETCH)->kind = FG_TRACE_WORK;
}

static void part_further_on(Broken *b)
{
    trace_first(b, FG_TRACE_ADAMW_PART)->first += 16;
}

static void part_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_ADAMW_PART)->operands[0])->bytes *= 8;
}

static void part_of_another_step(Broken *b)
{
    trace_first(b, FG_TRACE_ADAMW_PART)->pending ^= true;
}

static void part_of_another_gradient(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_ADAMW_PART)->operands[0])->at += 64;
}

static void fetch_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_FETCH)->results[0])->bytes += 16;
}

/* A fetch of what the first update works on, right behind that; into its copy, or another one. */
static void fetch_again(Broken *b, bool same)
{
    const FgTraceNode *update = trace_first(b, FG_TRACE_ADAMW_PART);
    uint32_t to = update->results[1], fetches = FG_NO_ID;
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_FETCH &&
            b->trace.nodes.data[i].results[0] == update->results[1])
            fetches = i;
    if (fetches == FG_NO_ID)
        FG_BUG("no fetch brings what is updated");
    for (uint32_t i = 0; i < b->trace.nodes.len && !same; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_FETCH &&
            trace_buffer(b, b->trace.nodes.data[i].results[0])->bytes ==
                trace_buffer(b, to)->bytes &&
            b->trace.nodes.data[i].results[0] != update->results[2])
            to = b->trace.nodes.data[i].results[0];
    FgTraceNode fetch = b->trace.nodes.data[fetches];
    trace_repeat(b, update->id, false);
    fetch.id = b->trace.nodes.len - 1;
    fetch.n_waits = 0;
    b->trace.nodes.data[fetch.id] = fetch;
    trace_result(b, &b->trace.nodes.data[fetch.id], 0, to);
}

static void fetched_over_an_update(Broken *b)
{
    fetch_again(b, true);
}

static void fetched_though_newer(Broken *b)
{
    fetch_again(b, false);
}

static void never_stashed(Broken *b)
{
    uint32_t copy = trace_first(b, FG_TRACE_ADAMW_PART)->results[1];
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_STASH &&
            b->trace.nodes.data[i].operands[0] == copy)
            trace_drop(b, i);
}

static void stashed_twice(Broken *b)
{
    uint32_t copy = trace_first(b, FG_TRACE_ADAMW_PART)->results[1];
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_STASH &&
            b->trace.nodes.data[i].operands[0] == copy) {
            trace_repeat(b, i, false);
            return;
        }
}

/* ---- a sharded vocabulary ---- */

static void collected_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_COLLECT)->results[0])->bytes += 1 << 20;
}

static void collected_twice(Broken *b)
{
    trace_repeat(b, trace_first(b, FG_TRACE_COLLECT)->id, false);
}

static void owned_slice_too_large(Broken *b)
{
    trace_buffer(b, trace_first(b, FG_TRACE_VOCAB_DW)->results[0])->elements += 16;
}

/* The first call that reads an owned slice, before the update that stands before it. */
static void slice_read_early(Broken *b)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        const FgIdVec *order = &b->trace.funcs.data[f].order;
        for (uint32_t i = 0; i < order->len && !strcmp(b->trace.funcs.data[f].name, "step"); i++) {
            const FgTraceNode *node = &b->trace.nodes.data[order->data[i]];
            if (node->kind != FG_TRACE_WORK || !node->n_operands)
                continue;
            for (uint32_t k = 0; k < node->n_operands; k++) {
                const FgTraceBuffer *root =
                    node->operands[k] == FG_NO_ID
                        ? NULL
                        : trace_buffer(b, trace_buffer(b, node->operands[k])->root);
                if (!root || !root->state || root->role != FG_ROLE_SHARD)
                    continue;
                trace_move(b, node->id, order->data[0], false);
                return;
            }
        }
    }
    FG_BUG("nothing reads an owned slice");
}

/* Its lookups' gradients travel as rows. */
static const Fault rows_faults[] = {
    {"twice in order", twice_in_order, "it stands in the order twice"},
    {"no bucket", no_bucket, "it names no bucket"},
    {"copy too large", copy_too_large, "is not 2 times as large as"},
    {"begun twice", begun_twice, "again before its reduction"},
    {"released before reduction", released_before_reduction, "before its reduction"},
    {"released twice", released_twice, "a second time"},
    {"gradient too large", gradient_too_large, "do not have the sizes of bucket"},
    {"slice too large", slice_too_large, "does not have the size of a slice of bucket"},
    {"exchange too large", exchange_too_large, "is not 2 times as large as"},
    {"exchanged twice", exchanged_twice, "again before a lookup adds it"},
    {"norm reduced twice", norm_reduced_twice, "it sums the norm over ranks a second time"},
    {"factor made twice", factor_made_twice, "it makes the factor of this step a second time"},
    {"moment too large", moment_too_large, "does not have the size of a slice of"},
    {"frozen bucket updated", frozen_bucket_updated, "which is not trainable"},
    {"rows added twice", rows_added_twice, "which was not exchanged or was added already"},
    {"rows before reduction", rows_before_reduction, "before the reduction of the micro-step"},
    {"more contributions", more_contributions, "of 900 contributions"},
    {"reduced before lookups", reduced_before_lookups,
     "before the lookups of the micro-step before"},
    {"read after reduction", read_after_reduction, "after its reduction, which may have spoilt"},
    {"waits twice", waits_twice, "is implied by its stream and its other waits"},
    {"norm elsewhere", norm_elsewhere, "which is no norm"},
    {"moment of another", moment_of_another, "its result 1 is not the state of bucket"},
    {"updated too late", updated_too_late, "the step does not reduce the gradient of bucket"},
    {"updated too early", updated_too_early, "it updates before the clipping factor is known"},
};

static const Fault copies_faults[] = {
    {"fetch too large", fetch_too_large, "differ in size"},
    {"reads host memory", reads_host_memory, "which lies in host memory"},
    {"part further on", part_further_on, "the next are those from 0 on"},
    {"part too large", part_too_large, "it updates more than the slice of bucket"},
    {"part of another step", part_of_another_step, "with the scalars of another step"},
    {"part of another gradient", part_of_another_gradient,
     "is another part of the gradient than it updates"},
    {"fetched though newer", fetched_though_newer, "is newer; stash that first"},
    {"stashed twice", stashed_twice, "which is no newer than what lies in"},
    {"never stashed", never_stashed, "which an update has written"},
    {"fetched over an update", fetched_over_an_update, "whose update was not stashed"},
};

static const Fault vocab_faults[] = {
    {"slice read early", slice_read_early, "before the step's update"},
    {"collected too large", collected_too_large, "does not hold as much of the"},
    {"collected twice", collected_twice, "again before anything uses it"},
    {"owned slice too large", owned_slice_too_large, "does not have the size of a slice of bucket"},
};

static void of_rows(int *failures)
{
    REFUSES(rows_faults, .model = "tests/data/llama-odd/model.json", .plan = "zero3", .clip = 1.0);
}

static void of_copies(int *failures)
{
    REFUSES(copies_faults, .model = "examples/mlp.json", .plan = "zero3", .clip = 1.0,
            .offload = FG_OFFLOAD_ALL);
}

static void of_a_sharded_vocabulary(int *failures)
{
    REFUSES(vocab_faults, .model = "tests/data/llama-odd/model.json", .plan = "zero3", .clip = 1.0,
            .vocab = FG_VOCAB_SHARDED);
}

UNIT_MAIN({"of_rows", of_rows}, {"of_copies", of_copies},
          {"of_a_sharded_vocabulary", of_a_sharded_vocabulary})
