/* I5 by execution: random models run three steps under each schedule at the same rank count;
 * losses, norms, weights and moments must agree to the last bit, in f32, bf16 and f16, with
 * clipping and accumulation. Every program runs in the runtime's checked mode once: waits,
 * lifetimes and declared effects hold while real numbers flow. */
#include "trained.h"

#include "base/file.h"
#include "frontend/machine.h"
#include "frontend/model.h"

#include <math.h>
#include <string.h>

#define MODELS 12
#define OFFLOADED 8

/* Buckets whose lookups travel. */
static uint32_t travelling(const FgCompiled *compiled)
{
    const FgPlan *plan = compiled->module->plan;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        n += plan->buckets.data[i].travels;
    return n;
}

static void schedules_agree(int *failures)
{
    uint32_t travels = 0;
    for (uint64_t seed = 1; seed <= MODELS && *failures < 3; seed++) {
        TrainedSetup s = trained_setup(seed);
        FgCompiled zero3 = trained_compile(&s, FG_SCHEDULE_ZERO3, UINT64_MAX);
        FgCompiled least = trained_compile(&s, FG_SCHEDULE_MINIMUM, UINT64_MAX);
        FgCompiled most = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        FgCompiled tight = trained_compile(&s, FG_SCHEDULE_COMPILED,
                                           least.ledger.peak_bytes + least.reserved_bytes);
        CHECK(zero3.module && least.module && most.module && tight.module);
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        TrainedOutcome a = trained_run(&s, &zero3, "zero3", false),
                       b = trained_run(&s, &most, "compiled", false);
        TrainedOutcome c = trained_run(&s, &tight, "tight", true),
                       d = trained_run(&s, &most, "checked", true);
        CHECK(a.ok && b.ok && c.ok && d.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK_EQ_U64(a.hash, c.hash);
        CHECK_EQ_U64(a.hash, d.hash);
        CHECK(isfinite(a.loss) && a.loss > 0);
        travels += travelling(&most) > 0;
        trained_end(&s, *failures > 0);
    }
    CHECK(travels > 0);
}

/* Recomputation changes no bit either. */
static void recompute_agrees(int *failures)
{
    for (uint64_t seed = 101; seed < 107; seed++) {
        TrainedSetup s = trained_setup(seed);
        s.recompute = FG_RECOMPUTE_NONE;
        FgCompiled none = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.recompute = FG_RECOMPUTE_FULL;
        FgCompiled full = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.recompute = FG_RECOMPUTE_AUTO;
        FgCompiled least =
            trained_compile(&s, FG_SCHEDULE_COMPILED, 1); /* fits nothing: the floor */
        uint64_t floor = least.ledger.peak_bytes + least.reserved_bytes;
        uint64_t spare = none.ledger.peak_bytes - least.ledger.peak_bytes;
        FgCompiled tight = trained_compile(&s, FG_SCHEDULE_COMPILED, floor + spare / 3);
        CHECK(none.module && full.module && tight.module);
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        TrainedOutcome a = trained_run(&s, &none, "none", false),
                       b = trained_run(&s, &full, "full", true);
        TrainedOutcome c = trained_run(&s, &tight, "auto", true);
        CHECK(a.ok && b.ok && c.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK_EQ_U64(a.hash, c.hash);
        trained_end(&s, *failures > 0);
    }
}

/* Gradients that their updates add up have the bits of those that reductions do: the order is that
 * of the ranks, and a sum is rounded once. */
static void parts_agree(int *failures)
{
    static const FgDtype computes[] = {FG_F32, FG_BF16, FG_BF16};
    for (uint32_t i = 0; i < 3 && *failures == 0; i++) {
        TrainedSetup s = trained_setup(401 + i);
        s.numerics = (FgNumerics){.compute = computes[i],
                                  .wire = computes[i],
                                  .shard = computes[i],
                                  .accumulate = 1,
                                  .vocab = i ? FG_VOCAB_GATHERED : FG_VOCAB_SHARDED};
        FG_ASSERT(fg_machine_load(s.arena, s.diags, "host", &s.machine)); /* with its latencies */
        fg_machine_set_ranks(s.arena, &s.machine, i < 2 ? 2 : 3);
        s.reduce = FG_REDUCE_SCATTER;
        FgCompiled sums = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.reduce = FG_REDUCE_PARTS;
        FgCompiled parts = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        CHECK(sums.module && parts.module);
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        CHECK(fg_count_parts(sums.module) == 0 && fg_count_parts(parts.module) > 0);
        TrainedOutcome a = trained_run(&s, &sums, "sums", false),
                       b = trained_run(&s, &parts, "parts", true);
        CHECK(a.ok && b.ok && isfinite(a.loss));
        CHECK_EQ_U64(a.hash, b.hash);
        trained_end(&s, *failures > 0);
    }
}

/* The graph with sums and chains as nodes of their own, under ZeRO-3. False after errors. */
static bool unfolded(TrainedSetup *s, FgCompiled *out)
{
    const char *text = random_model(s->arena, s->seed), *last = ",fold";
    size_t length = strlen(FG_PIPELINE_UNFUSED) - strlen(last);
    FG_ASSERT(strcmp(FG_PIPELINE_UNFUSED + length, last) == 0);
    FgModelOptions options = {.numerics = s->numerics};
    FgModule *m = fg_model_parse(s->arena, s->diags, "random.json", text, strlen(text), &options);
    FgPassManager pm = {.arena = s->arena, .machine = &s->machine, .budget = UINT64_MAX};
    if (!m || !fg_run_passes(&pm, m, fg_arena_strndup(s->arena, FG_PIPELINE_UNFUSED, length)))
        return false;
    m->plan = fg_plan_fixed(m, s->arena, "zero3", FG_RECOMPUTE_NONE);
    *out = (FgCompiled){.module = m, .memory_bytes = 1u << 30};
    return fg_run_passes(&pm, m, FG_PIPELINE_LOWER);
}

static uint32_t count_plus(const FgModule *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        uint32_t plus = fg_op_plus(node->op);
        n += plus < node->n_operands && node->operands[plus] != FG_NO_ID;
    }
    return n;
}

/* A sum inside the op that makes its term has the bits of a node of its own in f32; in bf16 it is
 * rounded once less. */
static void folded_sums_agree(int *failures)
{
    uint32_t folded = 0;
    for (uint64_t seed = 1; seed <= 6 && *failures < 3; seed++) {
        TrainedSetup s = trained_setup(seed);
        s.recompute = FG_RECOMPUTE_NONE;
        FgCompiled sums = {0}, plus = trained_compile(&s, FG_SCHEDULE_ZERO3, UINT64_MAX);
        CHECK(plus.module && unfolded(&s, &sums));
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        TrainedOutcome a = trained_run(&s, &sums, "sums", false),
                       b = trained_run(&s, &plus, "plus", true);
        CHECK(a.ok && b.ok);
        if (s.numerics.compute == FG_F32)
            CHECK_EQ_U64(a.hash, b.hash);
        CHECK_NEAR(a.loss, b.loss, s.numerics.compute == FG_F32 ? 0 : 0.02 * a.loss);
        CHECK(count_plus(sums.module) == 0);
        folded += count_plus(plus.module) > 0;
        trained_end(&s, *failures > 0);
    }
    CHECK(folded > 2);
}

/* Nor does host memory, whatever lies there: any set of classes, whole or as much as the memory
 * asks for, under every schedule. */
static void offload_agrees(int *failures)
{
    uint32_t stashes = 0, parts = 0, automatic = 0;
    for (uint64_t seed = 201; seed < 201 + OFFLOADED && *failures < 3; seed++) {
        TrainedSetup s = trained_setup(seed);
        FgCompiled none = trained_compile(&s, FG_SCHEDULE_MINIMUM, UINT64_MAX);
        s.offload = 1 + (uint32_t)(seed % FG_OFFLOAD_ALL);
        FgCompiled some = trained_compile(&s, (FgSchedule)(seed % 3), UINT64_MAX);
        s.offload = FG_OFFLOAD_ALL;
        FgCompiled all = trained_compile(&s, (FgSchedule)((seed + 1) % 3), UINT64_MAX);
        s.offload = FG_OFFLOAD_NONE;
        s.offload_auto = true;
        FgCompiled half = trained_compile(&s, FG_SCHEDULE_COMPILED,
                                          none.ledger.peak_bytes + none.reserved_bytes - 4096);
        CHECK(none.module && some.module && all.module);
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        TrainedOutcome a = trained_run(&s, &none, "none", false),
                       b = trained_run(&s, &some, "some", true);
        TrainedOutcome c = trained_run(&s, &all, "all", true);
        CHECK(a.ok && b.ok && c.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK_EQ_U64(a.hash, c.hash);
        CHECK(all.ledger.host_bytes > 0 && none.ledger.host_bytes == 0);
        if (half.module) {
            TrainedOutcome d = trained_run(&s, &half, "half", true);
            CHECK(d.ok && half.offload);
            CHECK_EQ_U64(a.hash, d.hash);
            automatic++;
        }
        stashes += all.module->plan->stashes.len;
        for (uint32_t i = 0; i < all.module->plan->buckets.len; i++)
            parts += all.module->plan->buckets.data[i].pieces > 1;
        trained_end(&s, *failures > 0);
    }
    CHECK(stashes > OFFLOADED && parts > OFFLOADED && automatic > OFFLOADED / 2);
}

UNIT_MAIN({"schedules_agree", schedules_agree}, {"recompute_agrees", recompute_agrees},
          {"folded_sums_agree", folded_sums_agree}, {"offload_agrees", offload_agrees},
          {"parts_agree", parts_agree})
