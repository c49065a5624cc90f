/* What a program says of its scaled loss: its precision, its flush, and where the plan has the
 * scaler. Faults of the calls are test_programs.c's (mutants_scaled.c). */
#include "../unit/unit.h"

#include "program.h"

static const Variant scaled = {.title = "mlp, fp16, 2 micro-steps",
                               .model = "examples/mlp.json",
                               .schedule = FG_SCHEDULE_COMPILED,
                               .ranks = 2,
                               .precision = FG_F16,
                               .accumulate = 2,
                               .recompute = FG_RECOMPUTE_NONE,
                               .vocab = FG_VOCAB_GATHERED};

static bool refused(const Program *program, const char *text)
{
    FgArena *scratch = fg_arena_new();
    Verdict alone = program_verdict(scratch, text, strlen(text), NULL);
    Verdict with = program_verdict(scratch, text, strlen(text), program->plan);
    bool both = !alone.ok && !with.ok;
    fg_arena_free(scratch);
    return both;
}

/* The text with a field's value changed. */
static const char *with(FgArena *arena, const Program *program, const char *from, const char *to,
                        int *failures)
{
    const char *at = strstr(program->text, from);
    CHECK(at != NULL);
    return at ? fg_arena_printf(arena, "%.*s%s%s", (int)(at - program->text), program->text, to,
                                at + strlen(from))
              : program->text;
}

static void every_fault_is_refused(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, &scaled, &program);
    CHECK(made);
    if (made) {
        Verdict right = program_verdict(arena, program.text, strlen(program.text), program.plan);
        CHECK(right.ok);
        CHECK(refused(&program, with(arena, &program, ".precision = \"fp16\"",
                                     ".precision = \"bf16\"", failures)));
        for (uint32_t v = 0; v < program.plan->values.len; v++)
            if (program.plan->values.data[v].role == FG_ROLE_SCALER)
                program.plan->values.data[v].offset += 16;
        right = program_verdict(arena, program.text, strlen(program.text), program.plan);
        CHECK(strstr(right.said, "its loss scaler does not lie where the plan puts it"));
        CHECK(refused(&program, with(arena, &program, "    .flush = body_flush,\n", "", failures)));
    }
    fg_arena_free(arena);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused})
