/* The checker against traces that no reader makes: it relies on nothing that the IR's parser or the
 * read-back has looked at before. Every case breaks the trace of a right schedule in memory. */
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"
#include "passes/trace.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

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

static const struct {
    const char *name;
    void (*plant)(Broken *);
    const char *message;
} faults[] = {
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
};

/* Its lookups' gradients travel as rows. */
static const FgModule *schedule(FgArena *arena, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgNumerics numerics = {.clip = 1.0, .accumulate = 1};
    FgModelOptions options = {.numerics = numerics};
    FgMachine machine;
    FgCompiled compiled = {0};
    FgCompileOptions how = {.schedule = FG_SCHEDULE_ZERO3, .memory_bytes = UINT64_MAX};
    CHECK(fg_machine_load(arena, diags, "host", &machine));
    FgModule *graph =
        fg_model_load(arena, diags, FG_SOURCE_DIR "/tests/data/llama-odd/model.json", &options);
    CHECK(graph && fg_compile(arena, graph, &machine, &numerics, &how, &compiled));
    return compiled.module;
}

static void every_fault_is_refused(int *failures)
{
    FgArena *arena = fg_arena_new();
    const FgModule *module = schedule(arena, failures);
    for (size_t i = 0; module && i < sizeof faults / sizeof *faults; i++) {
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
    fg_arena_free(arena);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused})
