/* What docs/memory-model.md says of plans, on Llama-3.2-1B as the first report has it (two ranks of
 * a T4's memory, batch 1 of 512 tokens, bf16, recomputation, clipping) and on three ranks, where
 * nothing divides evenly. */
#include "../unit/unit.h"

#include "base/file.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"

typedef struct Case {
    FgArena *arena;
    FgDiags *diags;
    FgMachine machine;
    FgModule *graph;
    FgNumerics numerics;
} Case;

/* `untied`: the head has a weight of its own. */
static void begin(Case *c, uint32_t ranks, bool untied, int *failures)
{
    static const char tie[] = ", \"tied\": [\"lm_head.weight\"]}";
    *c = (Case){.arena = fg_arena_new(), .numerics = {FG_BF16, FG_BF16, FG_BF16, 1.0, 1, 0}};
    c->diags = fg_diags_new(c->arena);
    FgModelOptions options = {.numerics = c->numerics, .batch = 1, .seq = 512};
    char *text;
    size_t len;
    const char *error = NULL, *path = FG_SOURCE_DIR "/examples/llama-3.2-1b.json";
    CHECK(fg_file_read(c->arena, path, &text, &len, &error));
    CHECK(fg_machine_load(c->arena, c->diags, "2xT4", &c->machine));
    fg_machine_set_ranks(c->arena, &c->machine, ranks);
    const char *at = error ? NULL : strstr(text, tie);
    CHECK(at != NULL);
    if (at && untied)
        text = fg_arena_printf(c->arena,
                               "%.*s}, \"lm_head.weight\": {\"shape\": [\"vocab\", \"hidden\"]}%s",
                               (int)(at - text), text, at + sizeof tie - 1);
    c->graph = at ? fg_model_parse(c->arena, c->diags, path, text, strlen(text), &options) : NULL;
    CHECK(c->graph != NULL);
}

static FgCompiled compiled(Case *c, FgSchedule schedule, uint64_t memory, int *failures)
{
    FgCompiled out = {0};
    FgCompileOptions options = {.schedule = schedule,
                                .recompute = FG_RECOMPUTE_FULL,
                                .memory_bytes = memory,
                                .zero3 = FG_ZERO3_DEFAULTS};
    CHECK(c->graph && fg_compile(c->arena, c->graph, &c->machine, &c->numerics, &options, &out));
    return out;
}

/* M2: a weight that is used early and late is released between, and costs no more than two weights
 * used once each do. */
static void tied_weight_is_gathered_again(int *failures)
{
    Case tied, untied;
    begin(&tied, 2, false, failures);
    begin(&untied, 2, true, failures);
    FgCompiled a = compiled(&tied, FG_SCHEDULE_MINIMUM, UINT64_MAX, failures);
    FgCompiled b = compiled(&untied, FG_SCHEDULE_MINIMUM, UINT64_MAX, failures);
    if (a.module && b.module) {
        uint32_t bucket = a.module->params.data[0].bucket, gathers = 0;
        CHECK_STR(a.module->params.data[0].name, "model.embed_tokens.weight");
        for (uint32_t i = 0; i < a.module->nodes.len; i++)
            gathers += a.module->nodes.data[i].op == FG_OP_gather &&
                       a.module->nodes.data[i].bucket == bucket;
        CHECK(gathers >= 2);
        CHECK(a.ledger.arena_bytes <= b.ledger.arena_bytes);
        CHECK(a.ledger.peak_bytes < b.ledger.peak_bytes);
    }
    fg_arena_free(tied.arena);
    fg_arena_free(untied.arena);
}

/* M4: what Adam keeps stands in the plan at its size, padded: two f32 moments and an f32 master for
 * each element of a slice. */
static void states_are_in_the_plan(int *failures)
{
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        Case c;
        begin(&c, ranks, false, failures);
        FgCompiled out = compiled(&c, FG_SCHEDULE_COMPILED, UINT64_MAX / 4, failures);
        uint64_t elements = 0, sum = out.ledger.unused_bytes;
        for (uint32_t i = 0; out.module && i < out.module->buckets.len; i++)
            elements += out.module->buckets.data[i].elements / ranks;
        CHECK(elements >= 1235814400 / ranks);
        CHECK_EQ_U64(out.ledger.by_class[FG_MEM_OPTIMIZER], 8 * elements);
        CHECK_EQ_U64(out.ledger.by_class[FG_MEM_MASTER], 4 * elements);
        for (uint32_t i = 0; i < FG_N_MEM_CLASSES; i++)
            sum += out.ledger.by_class[i];
        CHECK_EQ_U64(sum, out.ledger.peak_bytes);
        fg_arena_free(c.arena);
    }
}

/* M5: an update writes states and nothing else: no gradient in another dtype, no temporary. */
static void updates_take_no_memory(int *failures)
{
    Case c;
    begin(&c, 2, false, failures);
    FgCompiled out = compiled(&c, FG_SCHEDULE_COMPILED, UINT64_MAX / 4, failures);
    uint32_t updates = 0;
    for (uint32_t i = 0; out.module && i < out.module->nodes.len; i++) {
        const FgNode *node = &out.module->nodes.data[i];
        if (node->op != FG_OP_adamw)
            continue;
        updates++;
        for (uint32_t k = 0; k < node->n_results; k++)
            CHECK(node->results[k] == FG_NO_ID ||
                  out.module->values.data[node->results[k]].kind == FG_VALUE_STATE);
    }
    CHECK(updates >= (out.module ? out.module->buckets.len : 1));
    fg_arena_free(c.arena);
}

/* M9, M10: a gather fills a buffer of the bytes that all slices have, in their dtype, padding
 * included. */
static void gathers_have_the_bytes_of_their_slices(int *failures)
{
    for (uint32_t ranks = 2; ranks <= 3; ranks++) {
        Case c;
        begin(&c, ranks, false, failures);
        FgCompiled out = compiled(&c, FG_SCHEDULE_COMPILED, UINT64_MAX / 4, failures);
        uint32_t gathers = 0;
        for (uint32_t i = 0; out.module && i < out.module->nodes.len; i++) {
            const FgNode *node = &out.module->nodes.data[i];
            if (node->op != FG_OP_gather)
                continue;
            const FgType *slice = out.module->values.data[node->operands[0]].type;
            const FgType *whole = out.module->values.data[node->results[0]].type;
            CHECK_EQ_U64(fg_type_bytes(whole), ranks * fg_type_bytes(slice));
            CHECK(whole->dtype == FG_BF16 && slice->dtype == FG_BF16);
            gathers++;
        }
        CHECK(gathers > 16);
        fg_arena_free(c.arena);
    }
}

/* M6: no margin and no constant stand between what is offered and what is planned: the floor
 * compiles to the byte, one byte less does not. */
static void budgets_are_exact(int *failures)
{
    Case c;
    begin(&c, 2, false, failures);
    FgCompiled least = compiled(&c, FG_SCHEDULE_MINIMUM, UINT64_MAX, failures);
    uint64_t memory = least.ledger.peak_bytes + c.machine.reserved_bytes;
    FgCompiled exact = compiled(&c, FG_SCHEDULE_COMPILED, memory, failures);
    CHECK(exact.fits && exact.ledger.peak_bytes <= least.ledger.peak_bytes);
    CHECK_EQ_U64(exact.budget_bytes, least.ledger.peak_bytes);
    CHECK(!compiled(&c, FG_SCHEDULE_COMPILED, memory - 1, failures).fits);
    fg_arena_free(c.arena);
}

UNIT_MAIN({"tied_weight_is_gathered_again", tied_weight_is_gathered_again},
          {"states_are_in_the_plan", states_are_in_the_plan},
          {"updates_take_no_memory", updates_take_no_memory},
          {"gathers_have_the_bytes_of_their_slices", gathers_have_the_bytes_of_their_slices},
          {"budgets_are_exact", budgets_are_exact})
