/* The proof of emitted programs against faults planted in their text (mutants.c): each fault of
 * each kind at many places, one at a time.
 *
 * A mutant must be refused without a plan: the proof of the program alone. Where it is not, the
 * fault makes another well-formed program (it computes something else, but neither races nor
 * leaves its memory), and the comparison with the plan must refuse it. Kinds for which that may
 * happen are marked in kinds.def; docs/proof.md argues why.
 *
 * The suite tries a sample that does not depend on chance. In the environment, FG_MUTANTS=all tries
 * every mutant, FG_MUTANTS=N up to N of each kind and program, FG_MUTANTS_ONLY=WORD those of the
 * programs whose titles hold the word, and FG_MUTANTS_SHOW=1 names those that only the comparison
 * refuses. */
#include "../unit/unit.h"

#include "mutants.h"

#include <stdlib.h>

#define LLAMA_ODD "tests/data/llama-odd/model.json"
#define GPT2 "tests/data/gpt2/model.json"
/* A link where bytes alone decide: lookups travel. */
#define NO_LATENCY FG_SOURCE_DIR "/tests/lit/passes/Inputs/no-latency.json"

/* The text is the same for the host and for GPUs but for the plan, which a machine's figures make,
 * and for kernels: test_chains.c's. */
static const Variant variants[] = {
    {.title = "mlp", .model = "examples/mlp.json", .ranks = 2, .sample = 5},
    {.title = "mlp, ZeRO-3, bf16, clip",
     .model = "examples/mlp.json",
     .schedule = FG_SCHEDULE_ZERO3,
     .ranks = 2,
     .precision = FG_BF16,
     .clip = 1.0,
     .sample = 4},
    {.title = "mlp, 3 ranks, clip, 3 micro-steps",
     .model = "examples/mlp.json",
     .ranks = 3,
     .clip = 1.0,
     .accumulate = 3,
     .sample = 5},
    {.title = "llama-odd, clip", .model = LLAMA_ODD, .ranks = 2, .clip = 1.0, .sample = 3},
    {.title = "llama-odd, lookups travel",
     .model = LLAMA_ODD,
     .machine = NO_LATENCY,
     .ranks = 2,
     .sample = 3},
    {.title = "llama-odd, lookups travel, named rows last, bf16, 2 micro-steps",
     .model = LLAMA_ODD,
     .machine = NO_LATENCY,
     .ranks = 2,
     .precision = FG_BF16,
     .accumulate = 2,
     .sample = 2},
    {.title = "tiny-llama", .model = "examples/tiny-llama.json", .ranks = 2, .sample = 1},
    {.title = "llama-odd, least memory, bf16, clip, 2 micro-steps, recompute",
     .model = LLAMA_ODD,
     .schedule = FG_SCHEDULE_MINIMUM,
     .ranks = 2,
     .precision = FG_BF16,
     .clip = 1.0,
     .accumulate = 2,
     .recompute = FG_RECOMPUTE_FULL,
     .sample = 2},
    {.title = "mlp for 2 T4, bf16, clip, gradients of 3 micro-steps add up whole",
     .model = "examples/mlp.json",
     .machine = "2xT4",
     .ranks = 2,
     .precision = FG_BF16,
     .clip = 1.0,
     .accumulate = 3,
     .accumulate_in = FG_IN_WHOLE,
     .sample = 5},
    {.title = "mlp for 2 T4, copies carried round the period",
     .model = "examples/mlp.json",
     .machine = "2xT4",
     .ranks = 2,
     .sample = 5},
    {.title = "mlp, 3 ranks, bf16, gradients in parts",
     .model = "examples/mlp.json",
     .ranks = 3,
     .precision = FG_BF16,
     .reduce = FG_REDUCE_PARTS,
     .sample = 4},
    {.title = "tiny-llama for 4 H200, bf16, clip",
     .model = "examples/tiny-llama.json",
     .machine = "4xH200",
     .ranks = 4,
     .precision = FG_BF16,
     .clip = 1.0,
     .sample = 1},
    {.title = "custom-activation, bf16, recompute",
     .model = "examples/custom-activation.json",
     .ranks = 2,
     .precision = FG_BF16,
     .recompute = FG_RECOMPUTE_FULL,
     .sample = 3},
    {.title = "custom-activation, bf16, clip, 2 micro-steps",
     .model = "examples/custom-activation.json",
     .ranks = 2,
     .precision = FG_BF16,
     .clip = 1.0,
     .accumulate = 2,
     .sample = 2},
    {.title = "mlp, bf16, all offloaded",
     .model = "examples/mlp.json",
     .ranks = 2,
     .precision = FG_BF16,
     .offload = FG_OFFLOAD_ALL,
     .sample = 5},
    {.title = "llama-odd, bf16, clip, 2 micro-steps, all offloaded",
     .model = LLAMA_ODD,
     .schedule = FG_SCHEDULE_ZERO3,
     .ranks = 2,
     .precision = FG_BF16,
     .clip = 1.0,
     .accumulate = 2,
     .offload = FG_OFFLOAD_ALL,
     .sample = 2},
    {.title = "mlp, 3 ranks, clip, optimizer offloaded",
     .model = "examples/mlp.json",
     .schedule = FG_SCHEDULE_ZERO3,
     .ranks = 3,
     .clip = 1.0,
     .offload = FG_OFFLOAD_OPTIMIZER,
     .sample = 4},
    {.title = "gpt2, vocabulary sharded, clip",
     .model = GPT2,
     .ranks = 2,
     .clip = 1.0,
     .vocab = FG_VOCAB_SHARDED,
     .chunk = 12,
     .sample = 3},
    {.title = "gpt2, 3 ranks, vocabulary sharded, bf16, 3 micro-steps, all offloaded",
     .model = GPT2,
     .schedule = FG_SCHEDULE_ZERO3,
     .ranks = 3,
     .precision = FG_BF16,
     .accumulate = 3,
     .offload = FG_OFFLOAD_ALL,
     .vocab = FG_VOCAB_SHARDED,
     .chunk = 32,
     .sample = 2},
    {.title = "llama-odd, head in pieces, bf16",
     .model = LLAMA_ODD,
     .ranks = 2,
     .precision = FG_BF16,
     .chunk = 8,
     .sample = 3},
    {.title = "mlp, fp16, 2 micro-steps",
     .model = "examples/mlp.json",
     .ranks = 2,
     .precision = FG_F16,
     .accumulate = 2,
     .sample = 3},
    {.title = "mlp for 2 T4, fp16, clip",
     .model = "examples/mlp.json",
     .machine = "2xT4",
     .ranks = 2,
     .precision = FG_F16,
     .clip = 1.0,
     .sample = 3},
    {.title = "llama-odd for 2 T4, vocabulary sharded, bf16",
     .model = LLAMA_ODD,
     .machine = "2xT4",
     .ranks = 2,
     .precision = FG_BF16,
     .vocab = FG_VOCAB_SHARDED,
     .chunk = 16,
     .sample = 3},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

typedef struct Count {
    uint32_t places, tried, alone, with_plan;
} Count;

typedef struct Run {
    const Program *program;
    const Kind *kind;
    Count *count;
    uint32_t every, seen; /* of this kind and program */
    bool counting;
    int *failures;
} Run;

static void try(void *context, const Mutant *mutant)
{
    Run *run = context;
    if (run->counting) {
        run->seen++;
        return;
    }
    if (run->seen++ % run->every)
        return;
    size_t len;
    const char *text = mutant_text(mutant, &len);
    run->count->tried++;
    Verdict verdict = program_verdict(mutant->arena, text, len, NULL);
    run->count->alone += !verdict.ok;
    const Line *line = &run->program->lines.data[mutant->line];
    if (verdict.ok && getenv("FG_MUTANTS_SHOW"))
        printf("%s: %s: %.*s\n", run->program->variant->title, run->kind->name, (int)line->len,
               line->text);
    bool alone = !verdict.ok || !run->kind->alone;
    if (verdict.ok)
        verdict = program_verdict(mutant->arena, text, len, run->program->plan);
    run->count->with_plan += !verdict.ok;
    if (!verdict.ok && alone)
        return;
    printf("%s: not refused%s although %s, at line %u:\n%.*s\n", run->program->variant->title,
           verdict.ok ? "" : " without the plan", run->kind->name, mutant->line + 1, (int)line->len,
           line->text);
    ++*run->failures;
}

static void try_kind(const Program *program, const Kind *kind, uint32_t sample, Count *count,
                     int *failures)
{
    const char *asked = getenv("FG_MUTANTS"); /* "all", or a number */
    bool all = asked && !strcmp(asked, "all");
    sample = asked && atoi(asked) > 0 ? (uint32_t)atoi(asked) : sample;
    Run run = {program, kind, count, 1, 0, true, failures};
    FgArena *arena = fg_arena_new();
    kind->make(program, arena, try, &run);
    count->places += run.seen;
    run.every = all || !run.seen ? 1 : (run.seen + sample - 1) / sample;
    run.seen = 0;
    run.counting = false;
    kind->make(program, arena, try, &run);
    fg_arena_free(arena);
}

static void every_fault_is_refused(int *failures)
{
    Count *counts = calloc(n_mutant_kinds, sizeof *counts), sum = {0, 0, 0, 0};
    for (uint32_t v = 0; v < N_VARIANTS && *failures < 40; v++) {
        FgArena *arena = fg_arena_new();
        Program program;
        const char *only = getenv("FG_MUTANTS_ONLY");
        if (only && !strstr(variants[v].title, only))
            continue;
        if (program_make(arena, &variants[v], &program))
            for (uint32_t k = 0; k < n_mutant_kinds; k++)
                try_kind(&program, &mutant_kinds[k], variants[v].sample, &counts[k], failures);
        else
            ++*failures;
        fg_arena_free(arena);
    }
    printf("| kind | places | tried | refused alone | with the plan |\n|---|---|---|---|---|\n");
    for (uint32_t k = 0; k < n_mutant_kinds; k++) {
        printf("| %s | %u | %u | %u | %u |\n", mutant_kinds[k].name, counts[k].places,
               counts[k].tried, counts[k].alone, counts[k].with_plan);
        sum.places += counts[k].places;
        sum.tried += counts[k].tried;
        sum.alone += counts[k].alone;
        sum.with_plan += counts[k].with_plan;
    }
    printf("| all | %u | %u | %u | %u |\n", sum.places, sum.tried, sum.alone, sum.with_plan);
    CHECK(getenv("FG_MUTANTS_ONLY") || sum.tried >= 2000);
    CHECK_EQ_U64(sum.with_plan, sum.tried);
    free(counts);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused})
