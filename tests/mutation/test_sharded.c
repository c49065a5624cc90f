/* Faults in the calls that are a sharded vocabulary's alone: each dropped, and those that add made
 * twice, at every place of a program. With the plan all are refused; without it what would lose or
 * repeat a part of a gradient, and tokens that are collected in vain. (A piece whose call is gone
 * may find what the piece before left at the same address, which a program may mean.) */
#include "../unit/unit.h"

#include "program.h"

static const Variant sharded = {"tests/data/gpt2/model.json",
                                FG_SCHEDULE_COMPILED,
                                2,
                                FG_F32,
                                1.0,
                                1,
                                FG_RECOMPUTE_NONE,
                                "gpt2, vocabulary sharded",
                                NULL,
                                0,
                                FG_VOCAB_SHARDED};

typedef struct Kind {
    const char *entry;
    bool doubled; /* made twice; otherwise dropped */
    bool alone;   /* refused without the plan */
} Kind;

static const Kind kinds[] = {
    {"collect", false, false},     {"lookup_rows", false, false}, {"return_rows", false, false},
    {"vocab_stats", false, false}, {"vocab_loss", false, false},  {"vocab_dlogits", false, false},
    {"vocab_dx", false, false},    {"vocab_dw", false, true},     {"lookup_dw", false, true},
    {"vocab_dw", true, true},      {"lookup_dw", true, true},     {"collect", true, true},
};

static bool refused(const Program *program, const char *text, bool with_plan)
{
    FgArena *scratch = fg_arena_new();
    Verdict verdict =
        program_verdict(scratch, text, strlen(text), with_plan ? program->plan : NULL);
    fg_arena_free(scratch);
    return !verdict.ok;
}

/* Plants the fault at every call of the kind; how many there are. */
static uint32_t plant(FgArena *arena, const Program *program, const Kind *kind, int *failures)
{
    const char *call = fg_arena_printf(arena, "    fg_rt_%s(", kind->entry);
    uint32_t n = 0;
    for (const char *at = program->text; (at = strstr(at, call)); at++, n++) {
        const char *end = strchr(at, '\n') + 1;
        int before = (int)(at - program->text), length = (int)(end - at);
        const char *text = fg_arena_printf(
            arena, "%.*s%.*s%s", before, program->text, kind->doubled ? 2 * length : 0,
            kind->doubled ? fg_arena_printf(arena, "%.*s%.*s", length, at, length, at) : "", end);
        bool with = refused(program, text, true), alone = refused(program, text, false);
        CHECK(with);
        CHECK(alone || !kind->alone);
        if (!with || (!alone && kind->alone))
            printf("%s %s at %d passes\n", kind->entry, kind->doubled ? "doubled" : "dropped",
                   before);
    }
    return n;
}

static void every_fault_is_refused(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, &sharded, &program);
    CHECK(made);
    CHECK(made && !refused(&program, program.text, true));
    for (size_t i = 0; made && i < sizeof kinds / sizeof *kinds; i++) {
        uint32_t n = plant(arena, &program, &kinds[i], failures);
        CHECK(n > 0);
    }
    fg_arena_free(arena);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused})
