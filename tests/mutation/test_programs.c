/* The proof of emitted programs against faults planted in their text (mutants.c): each fault of
 * each kind at many places, one at a time.
 *
 * A mutant must be refused without a plan: the proof of the program alone. Where it is not, the
 * fault makes another well-formed program (it computes something else, but neither races nor
 * leaves its memory), and the comparison with the plan must refuse it. Kinds for which that may
 * happen are marked; docs/proof.md argues why.
 *
 * The suite tries a sample that does not depend on chance. In the environment, FG_MUTANTS=all tries
 * every mutant, and FG_MUTANTS_SHOW=1 names those that only the comparison refuses. */
#include "../unit/unit.h"

#include "mutants.h"

#include <stdlib.h>

/* The text is the same for the host and for GPUs but for the plan, which a machine's figures make.
 */
static const Variant variants[] = {
    {"examples/mlp.json", FG_SCHEDULE_COMPILED, 2, FG_F32, 0, 1, FG_RECOMPUTE_NONE, "mlp", NULL, 0,
     FG_VOCAB_GATHERED, 0},
    {"examples/mlp.json", FG_SCHEDULE_ZERO3, 2, FG_BF16, 1.0, 1, FG_RECOMPUTE_NONE,
     "mlp, ZeRO-3, bf16, clip", NULL, 0, FG_VOCAB_GATHERED, 0},
    {"examples/mlp.json", FG_SCHEDULE_COMPILED, 3, FG_F32, 1.0, 3, FG_RECOMPUTE_NONE,
     "mlp, 3 ranks, clip, 3 micro-steps", NULL, 0, FG_VOCAB_GATHERED, 0},
    {"tests/data/llama-odd/model.json", FG_SCHEDULE_COMPILED, 2, FG_F32, 1.0, 1, FG_RECOMPUTE_NONE,
     "llama-odd, clip", NULL, 0, FG_VOCAB_GATHERED, 0},
    {"examples/tiny-llama.json", FG_SCHEDULE_COMPILED, 2, FG_F32, 0, 1, FG_RECOMPUTE_NONE,
     "tiny-llama", NULL, 0, FG_VOCAB_GATHERED, 0},
    {"examples/tiny-llama.json", FG_SCHEDULE_MINIMUM, 2, FG_BF16, 1.0, 2, FG_RECOMPUTE_FULL,
     "tiny-llama, least memory, bf16, clip, 2 micro-steps, recompute", NULL, 0, FG_VOCAB_GATHERED,
     0},
    {"examples/mlp.json", FG_SCHEDULE_COMPILED, 2, FG_BF16, 1.0, 2, FG_RECOMPUTE_NONE,
     "mlp for 2 T4, bf16, clip, 2 micro-steps", "2xT4", 0, FG_VOCAB_GATHERED, 0},
    {"examples/tiny-llama.json", FG_SCHEDULE_COMPILED, 4, FG_BF16, 1.0, 1, FG_RECOMPUTE_NONE,
     "tiny-llama for 4 H200, bf16, clip", "4xH200", 0, FG_VOCAB_GATHERED, 0},
    {"examples/custom-activation.json", FG_SCHEDULE_COMPILED, 2, FG_BF16, 0, 1, FG_RECOMPUTE_FULL,
     "custom-activation, bf16, recompute", NULL, 0, FG_VOCAB_GATHERED, 0},
    {"examples/custom-activation.json", FG_SCHEDULE_COMPILED, 2, FG_BF16, 1.0, 2, FG_RECOMPUTE_NONE,
     "custom-activation, bf16, clip, 2 micro-steps", NULL, 0, FG_VOCAB_GATHERED, 0},
    {"examples/mlp.json", FG_SCHEDULE_COMPILED, 2, FG_BF16, 0, 1, FG_RECOMPUTE_NONE,
     "mlp, bf16, all offloaded", NULL, FG_OFFLOAD_ALL, FG_VOCAB_GATHERED, 0},
    {"tests/data/llama-odd/model.json", FG_SCHEDULE_MINIMUM, 2, FG_BF16, 1.0, 2, FG_RECOMPUTE_NONE,
     "llama-odd, least memory, bf16, clip, 2 micro-steps, all offloaded", NULL, FG_OFFLOAD_ALL,
     FG_VOCAB_GATHERED, 0},
    {"examples/mlp.json", FG_SCHEDULE_ZERO3, 3, FG_F32, 1.0, 1, FG_RECOMPUTE_NONE,
     "mlp, 3 ranks, clip, optimizer offloaded", NULL, FG_OFFLOAD_OPTIMIZER, FG_VOCAB_GATHERED, 0},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)
/* At most so many mutants of a kind in the suite: more of the small programs. */
static const uint32_t samples[N_VARIANTS] = {18, 18, 14, 13, 5, 4, 18, 4, 6, 4, 10, 4, 10};

typedef struct Count {
    uint32_t places, tried, alone, with_plan;
} Count;

typedef struct Run {
    const Program *program;
    const char *kind;
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
        printf("%s: %s: %.*s\n", run->program->variant->title, run->kind, (int)line->len,
               line->text);
    if (verdict.ok)
        verdict = program_verdict(mutant->arena, text, len, run->program->plan);
    run->count->with_plan += !verdict.ok;
    if (!verdict.ok)
        return;
    printf("%s: not refused although %s, at line %u:\n%.*s\n", run->program->variant->title,
           run->kind, mutant->line + 1, (int)line->len, line->text);
    ++*run->failures;
}

static void try_kind(const Program *program, const Kind *kind, uint32_t sample, Count *count,
                     int *failures)
{
    const char *all = getenv("FG_MUTANTS");
    Run run = {program, kind->name, count, 1, 0, true, failures};
    FgArena *arena = fg_arena_new();
    kind->make(program, arena, try, &run);
    count->places += run.seen;
    run.every = all ? 1 : run.seen / sample + 1;
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
        if (program_make(arena, &variants[v], &program))
            for (uint32_t k = 0; k < n_mutant_kinds; k++)
                try_kind(&program, &mutant_kinds[k], samples[v], &counts[k], failures);
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
    CHECK(sum.tried >= 2000);
    CHECK_EQ_U64(sum.with_plan, sum.tried);
    free(counts);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused})
