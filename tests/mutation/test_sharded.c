/* Faults in the calls that are a sharded vocabulary's alone, or those of a head in pieces: each
 * dropped, and those that add made twice, at every place of a program. With the plan all are
 * refused; without it what would lose or repeat a part of a gradient, and tokens that are collected
 * in vain. (A piece whose call is gone may find what the piece before left at the same address,
 * which a program may mean.) */
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
                                FG_VOCAB_SHARDED,
                                3};

/* The head alone in pieces: hidden rows and labels are read a part at a time. */
static const Variant pieces = {"tests/data/gpt2/model.json",
                               FG_SCHEDULE_COMPILED,
                               2,
                               FG_F32,
                               1.0,
                               1,
                               FG_RECOMPUTE_NONE,
                               "gpt2, head in pieces",
                               NULL,
                               0,
                               FG_VOCAB_GATHERED,
                               8};

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

/* Each walks over the labels: a piece that is left out is missed without the plan. */
static const Kind piece_kinds[] = {{"cross_entropy", false, true},
                                   {"cross_entropy_back", false, true}};

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

static void plant_all(const Variant *variant, const Kind *all, size_t n_kinds, uint32_t at_least,
                      int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, variant, &program);
    CHECK(made);
    CHECK(made && !refused(&program, program.text, true));
    for (size_t i = 0; made && i < n_kinds; i++) {
        uint32_t n = plant(arena, &program, &all[i], failures);
        CHECK(n >= at_least);
    }
    fg_arena_free(arena);
}

static void every_fault_is_refused(int *failures)
{
    plant_all(&sharded, kinds, sizeof kinds / sizeof *kinds, 1, failures);
}

static void missing_pieces_are_refused(int *failures)
{
    plant_all(&pieces, piece_kinds, sizeof piece_kinds / sizeof *piece_kinds, 2, failures);
}

UNIT_MAIN({"every_fault_is_refused", every_fault_is_refused},
          {"missing_pieces_are_refused", missing_pieces_are_refused})
