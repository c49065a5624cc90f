/* The checker against traces that no reader makes: it relies on nothing that the IR's parser or the
 * read-back has looked at before. Every case breaks the trace of a right schedule in memory. */
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"
#include "passes/trace.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

typedef struct Broken {
    FgArena *arena;
    FgTrace trace;
} Broken;

/* Of those that are in an order: a module's ids have holes. */
static FgTraceNode *first_of(Broken *b, FgTraceKind kind)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++)
        for (uint32_t i = 0; i < b->trace.funcs.data[f].order.len; i++) {
            FgTraceNode *node = &b->trace.nodes.data[b->trace.funcs.data[f].order.data[i]];
            if (node->kind == kind)
                return node;
        }
    FG_BUG("the schedule has no node of kind %d", (int)kind);
}

static FgTraceBuffer *buffer(Broken *b, uint32_t id)
{
    return &b->trace.buffers.data[id];
}

/* Puts a node into the order once more, right behind where it stands: the same one, or a new one
 * that does the same. */
static void repeat(Broken *b, uint32_t id, bool same)
{
    FgTraceNode copy = b->trace.nodes.data[id];
    copy.id = b->trace.nodes.len;
    copy.n_waits = 0;
    if (!same)
        fg_vec_push(b->arena, &b->trace.nodes, copy);
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        FgIdVec *order = &b->trace.funcs.data[f].order, now = {0};
        for (uint32_t i = 0; i < order->len; i++) {
            fg_vec_push(b->arena, &now, order->data[i]);
            if (order->data[i] == id)
                fg_vec_push(b->arena, &now, same ? id : copy.id);
        }
        *order = now;
    }
}

/* Takes a node out of the order. */
static void drop(Broken *b, uint32_t id)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        FgIdVec *order = &b->trace.funcs.data[f].order, now = {0};
        for (uint32_t i = 0; i < order->len; i++)
            if (order->data[i] != id)
                fg_vec_push(b->arena, &now, order->data[i]);
        *order = now;
    }
}

/* Puts a node right before another one, or right behind it. */
static void move(Broken *b, uint32_t id, uint32_t to, bool behind)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        FgIdVec *order = &b->trace.funcs.data[f].order, now = {0};
        for (uint32_t i = 0; i < order->len; i++) {
            if (order->data[i] == to && !behind)
                fg_vec_push(b->arena, &now, id);
            if (order->data[i] != id)
                fg_vec_push(b->arena, &now, order->data[i]);
            if (order->data[i] == to && behind)
                fg_vec_push(b->arena, &now, id);
        }
        *order = now;
    }
}

static void twice_in_order(Broken *b)
{
    repeat(b, first_of(b, FG_TRACE_GATHER)->id, true);
}

static void no_bucket(Broken *b)
{
    first_of(b, FG_TRACE_GATHER)->bucket = 1000;
}

static void copy_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_GATHER)->results[0])->bytes += 64;
}

static void begun_twice(Broken *b)
{
    repeat(b, first_of(b, FG_TRACE_GRAD_BUFFER)->id, false);
}

/* A release of the gradient buffer behind its begin, or of a value behind its making, twice. */
static void release(Broken *b, FgTraceKind made_by, int times)
{
    FgTraceNode *maker = first_of(b, made_by), *real = first_of(b, FG_TRACE_RELEASE);
    uint32_t at = maker->id;
    for (int i = 0; i < times; i++) {
        FgTraceNode node = *real;
        uint32_t *operand = FG_NEW_ARRAY(b->arena, uint32_t, 1);
        operand[0] = b->trace.nodes.data[at].results[0];
        node.operands = operand;
        repeat(b, at, false);
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
    buffer(b, first_of(b, FG_TRACE_REDUCE_SCATTER)->operands[0])->elements += 16;
}

static void slice_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_LOOKUP_DW)->results[0])->elements += 16;
}

static void exchange_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_EXCHANGE)->results[0])->bytes += 16;
}

static void exchanged_twice(Broken *b)
{
    repeat(b, first_of(b, FG_TRACE_EXCHANGE)->id, false);
}

static void norm_reduced_twice(Broken *b)
{
    for (uint32_t i = 0; i < b->trace.nodes.len; i++) {
        const FgTraceNode *node = &b->trace.nodes.data[i];
        if (node->kind == FG_TRACE_ALL_REDUCE &&
            buffer(b, node->operands[0])->role == FG_ROLE_NORM) {
            repeat(b, i, false);
            return;
        }
    }
}

static void factor_made_twice(Broken *b)
{
    repeat(b, first_of(b, FG_TRACE_CLIP_FACTOR)->id, false);
}

static void moment_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_ADAMW)->results[1])->elements += 16;
}

static void frozen_bucket_updated(Broken *b)
{
    b->trace.buckets.data[first_of(b, FG_TRACE_ADAMW)->bucket].trainable = false;
}

/* A wait that the program does not need: the same one twice. */
static void waits_twice(Broken *b)
{
    FgTraceNode *node = first_of(b, FG_TRACE_REDUCE_SCATTER);
    uint32_t *waits = FG_NEW_ARRAY(b->arena, uint32_t, 2);
    if (!node->n_waits)
        FG_BUG("the first reduction waits for nothing");
    waits[0] = waits[1] = node->waits[0];
    node->waits = waits;
    node->n_waits = 2;
    b->trace.emitted = true;
}

/* A node's results with one replaced. */
static void result(Broken *b, FgTraceNode *node, uint32_t at, uint32_t id)
{
    uint32_t *results = FG_NEW_ARRAY(b->arena, uint32_t, node->n_results);
    memcpy(results, node->results, node->n_results * sizeof *results);
    results[at] = id;
    node->results = results;
}

static void norm_elsewhere(Broken *b)
{
    result(b, first_of(b, FG_TRACE_NORM_ADD), 0, first_of(b, FG_TRACE_ADAMW)->results[1]);
}

static void moment_of_another(Broken *b)
{
    FgTraceNode *node = first_of(b, FG_TRACE_ADAMW);
    result(b, node, 1, node->results[2]);
}

/* As if it belonged to the step in which it stands. */
static void updated_too_early(Broken *b)
{
    first_of(b, FG_TRACE_ADAMW)->pending = false;
}

static void rows_added_twice(Broken *b)
{
    repeat(b, first_of(b, FG_TRACE_LOOKUP_DW)->id, false);
}

static void more_contributions(Broken *b)
{
    b->trace.buckets.data[first_of(b, FG_TRACE_REDUCE_SCATTER)->bucket].writes = 900;
}

/* The reduction of the bucket whose lookups travel as rows. */
static uint32_t reduction_beside_lookups(Broken *b)
{
    uint32_t bucket = first_of(b, FG_TRACE_LOOKUP_DW)->bucket;
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_REDUCE_SCATTER &&
            b->trace.nodes.data[i].bucket == bucket)
            return i;
    FG_BUG("the bucket is not reduced");
}

static void rows_before_reduction(Broken *b)
{
    move(b, reduction_beside_lookups(b), first_of(b, FG_TRACE_LOOKUP_DW)->id, true);
}

static void reduced_before_lookups(Broken *b)
{
    repeat(b, reduction_beside_lookups(b), false);
    b->trace.nodes.data[b->trace.nodes.len - 1].updates = true;
}

/* Something reads a gradient that its reduction may have spoilt. */
static void read_after_reduction(Broken *b)
{
    const FgTraceNode *reduce = first_of(b, FG_TRACE_REDUCE_SCATTER);
    uint32_t grad = reduce->operands[0], *operand = FG_NEW_ARRAY(b->arena, uint32_t, 1);
    FgTraceAccess *access = FG_NEW(b->arena, FgTraceAccess);
    *access = (FgTraceAccess){.buffer = grad, .read = true, .inplace = FG_NO_ID};
    operand[0] = grad;
    FgTraceNode node = *reduce;
    repeat(b, reduce->id, false);
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

/* ---- copies to and from host memory ---- */

static void reads_host_memory(Broken *b)
{
    first_of(b, FG_TRACE_FETCH)->kind = FG_TRACE_WORK;
}

static void part_further_on(Broken *b)
{
    first_of(b, FG_TRACE_ADAMW_PART)->first += 16;
}

static void part_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_ADAMW_PART)->operands[0])->bytes *= 8;
}

static void part_of_another_gradient(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_ADAMW_PART)->operands[0])->at += 64;
}

static void fetch_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_FETCH)->results[0])->bytes += 16;
}

/* A fetch of what the first update works on, right behind that; into its copy, or another one. */
static void fetch_again(Broken *b, bool same)
{
    const FgTraceNode *update = first_of(b, FG_TRACE_ADAMW_PART);
    uint32_t to = update->results[1], fetches = FG_NO_ID;
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_FETCH &&
            b->trace.nodes.data[i].results[0] == update->results[1])
            fetches = i;
    if (fetches == FG_NO_ID)
        FG_BUG("no fetch brings what is updated");
    for (uint32_t i = 0; i < b->trace.nodes.len && !same; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_FETCH &&
            buffer(b, b->trace.nodes.data[i].results[0])->bytes == buffer(b, to)->bytes &&
            b->trace.nodes.data[i].results[0] != update->results[2])
            to = b->trace.nodes.data[i].results[0];
    FgTraceNode fetch = b->trace.nodes.data[fetches];
    repeat(b, update->id, false);
    fetch.id = b->trace.nodes.len - 1;
    fetch.n_waits = 0;
    b->trace.nodes.data[fetch.id] = fetch;
    result(b, &b->trace.nodes.data[fetch.id], 0, to);
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
    uint32_t copy = first_of(b, FG_TRACE_ADAMW_PART)->results[1];
    for (uint32_t i = 0; i < b->trace.nodes.len; i++)
        if (b->trace.nodes.data[i].kind == FG_TRACE_STASH &&
            b->trace.nodes.data[i].operands[0] == copy)
            drop(b, i);
}

/* ---- a sharded vocabulary ---- */

static void collected_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_COLLECT)->results[0])->bytes += 1 << 20;
}

static void collected_twice(Broken *b)
{
    repeat(b, first_of(b, FG_TRACE_COLLECT)->id, false);
}

static void owned_slice_too_large(Broken *b)
{
    buffer(b, first_of(b, FG_TRACE_VOCAB_DW)->results[0])->elements += 16;
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
                const FgTraceBuffer *root = node->operands[k] == FG_NO_ID
                                                ? NULL
                                                : buffer(b, buffer(b, node->operands[k])->root);
                if (!root || !root->state || root->role != FG_ROLE_SHARD)
                    continue;
                move(b, node->id, order->data[0], false);
                return;
            }
        }
    }
    FG_BUG("nothing reads an owned slice");
}

/* ---- all ---- */

typedef struct Fault {
    const char *name;
    void (*plant)(Broken *);
    const char *message;
} Fault;

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
    {"updated too early", updated_too_early, "it updates before the clipping factor is known"},
};

static const Fault copies_faults[] = {
    {"fetch too large", fetch_too_large, "differ in size"},
    {"reads host memory", reads_host_memory, "which lies in host memory"},
    {"part further on", part_further_on, "the next are those from 0 on"},
    {"part too large", part_too_large, "it updates more than the slice of bucket"},
    {"part of another gradient", part_of_another_gradient,
     "is another part of the gradient than it updates"},
    {"fetched though newer", fetched_though_newer, "is newer; stash that first"},
    {"never stashed", never_stashed, "which an update has written"},
    {"fetched over an update", fetched_over_an_update, "whose update was not stashed"},
};

static const Fault vocab_faults[] = {
    {"slice read early", slice_read_early, "before the step's update"},
    {"collected too large", collected_too_large, "does not hold as much of the"},
    {"collected twice", collected_twice, "again before anything uses it"},
    {"owned slice too large", owned_slice_too_large, "does not have the size of a slice of bucket"},
};

static const FgModule *schedule(FgArena *arena, const char *model, FgVocab vocab, uint32_t offload,
                                int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgNumerics numerics = {FG_F32, FG_F32, FG_F32, 1.0, 1, FG_LOOKUP_DENSE, vocab, 0};
    FgModelOptions options = {.numerics = numerics};
    FgMachine machine;
    FgCompiled compiled = {0};
    FgCompileOptions how = {
        .schedule = FG_SCHEDULE_ZERO3, .memory_bytes = UINT64_MAX, .offload = offload};
    CHECK(fg_machine_load(arena, diags, "host", &machine));
    const char *path = fg_arena_printf(arena, "%s/%s", FG_SOURCE_DIR, model);
    FgModule *graph = fg_model_load(arena, diags, path, &options);
    CHECK(graph && fg_compile(arena, graph, &machine, &numerics, &how, &compiled));
    return compiled.module;
}

static void refuses(const FgModule *module, const Fault *faults, size_t n, int *failures)
{
    for (size_t i = 0; module && i < n; i++) {
        Broken b = {.arena = fg_arena_new()};
        FgProof proof;
        FgBuf said;
        fg_trace_module(b.arena, module, &b.trace);
        b.trace.diags = fg_diags_new(b.arena);
        CHECK(fg_check_trace(b.arena, &b.trace, UINT64_MAX, &proof));
        faults[i].plant(&b);
        bool ok = fg_check_trace(b.arena, &b.trace, UINT64_MAX, &proof);
        fg_buf_init(&said, b.arena);
        fg_diags_render(b.trace.diags, &said);
        bool right = !ok && strstr(fg_buf_text(&said), faults[i].message);
        CHECK(right);
        if (!right)
            printf("%s: wanted: %s\nsaid: %s\n", faults[i].name, faults[i].message,
                   ok ? "(proved)" : fg_buf_text(&said));
        fg_arena_free(b.arena);
    }
}
#define REFUSES(module, faults) refuses(module, faults, sizeof faults / sizeof *faults, failures)

static void of_rows(int *failures)
{
    FgArena *arena = fg_arena_new();
    REFUSES(schedule(arena, "tests/data/llama-odd/model.json", FG_VOCAB_GATHERED, 0, failures),
            rows_faults);
    fg_arena_free(arena);
}

static void of_copies(int *failures)
{
    FgArena *arena = fg_arena_new();
    REFUSES(schedule(arena, "examples/mlp.json", FG_VOCAB_GATHERED, FG_OFFLOAD_ALL, failures),
            copies_faults);
    fg_arena_free(arena);
}

static void of_a_sharded_vocabulary(int *failures)
{
    FgArena *arena = fg_arena_new();
    REFUSES(schedule(arena, "tests/data/llama-odd/model.json", FG_VOCAB_SHARDED, 0, failures),
            vocab_faults);
    fg_arena_free(arena);
}

UNIT_MAIN({"of_rows", of_rows}, {"of_copies", of_copies},
          {"of_a_sharded_vocabulary", of_a_sharded_vocabulary})
