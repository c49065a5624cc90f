/* How a verb ends after a compilation without a result: bad input, or a bug of ours. */
#include "tools/command/session.h"
#include "unit.h"

/* The exit code when planning has reported this. */
static FgExit ends_with(FgDiagId id)
{
    FgArena *arena = fg_arena_new();
    FgFlags flags = {.verb = FG_VERB_COMPILE};
    FgSession session = {.arena = arena, .flags = &flags, .diags = fg_diags_new(arena)};
    fg_diag(session.diags, FG_NOWHERE, FG_D_UNUSED_NAME, "a note");
    fg_diag(session.diags, FG_NOWHERE, id, "what was wrong");
    FgExit code = fg_session_failed(&session);
    fg_arena_free(arena);
    return code;
}

static void schedules_are_ours(int *failures)
{
    CHECK_EQ_U64(ends_with(FG_D_NOT_PROVED), FG_EXIT_INTERNAL);
    CHECK_EQ_U64(ends_with(FG_D_BAD_PLAN), FG_EXIT_INTERNAL);
    CHECK_EQ_U64(ends_with(FG_D_SHAPE), FG_EXIT_INTERNAL);
}

static void models_are_not(int *failures)
{
    CHECK_EQ_U64(ends_with(FG_D_NO_GRADIENT), FG_EXIT_INPUT);
    CHECK_EQ_U64(ends_with(FG_D_OVERFLOW), FG_EXIT_INPUT);
}

UNIT_MAIN({"schedules_are_ours", schedules_are_ours}, {"models_are_not", models_are_not})
