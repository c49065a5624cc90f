/* frontier: the curve of memory against step time. */
#include "base/file.h"
#include "tools/command/frontier.h"

#define FEWEST 3
#define USUAL 12

enum { TEXT, JSON, SVG }; /* choices of --format */

static FgExit write(FgSession *s, const FgFrontier *f)
{
    const char *path = s->flags->values[FG_FLAG_output], *error;
    uint32_t format = fg_flags_choice(s->flags, FG_FLAG_curve_format);
    FgBuf text;
    fg_buf_init(&text, s->arena);
    if (format == TEXT)
        fg_frontier_text(s, f, &text);
    else if (format == JSON)
        fg_frontier_json(f, &text);
    else
        fg_frontier_svg(f, &text);
    if (!fg_file_write(s->arena, path ? path : "-", fg_buf_text(&text), text.len, &error))
        return fg_session_fail(s, error);
    fg_session_flush(s);
    return FG_EXIT_OK;
}

FgExit fg_cmd_frontier(FgArena *arena, const FgFlags *flags)
{
    FgSession s;
    FgFrontier frontier;
    FgCompiled refused = {0};
    const char *path = flags->values[FG_FLAG_output];
    int64_t points = fg_flags_count(flags, FG_FLAG_points, USUAL);
    if (points < FEWEST)
        return fg_usage_error(flags->verb,
                              "--points takes at least %d: the minimum, a tenth more, "
                              "and where more stops helping",
                              FEWEST);
    if (path) {
        FgExit writable = fg_check_outputs(arena, flags, &(FgOutput){path, false}, 1);
        if (writable != FG_EXIT_OK)
            return writable;
    }
    FgExit code = fg_session_open(&s, arena, flags);
    if (code != FG_EXIT_OK)
        return code;
    code = fg_frontier_find(&s, (uint32_t)points, &frontier, &refused);
    if (code == FG_EXIT_DOES_NOT_FIT)
        fg_print_refusal(&s, &refused);
    else if (code != FG_EXIT_OK)
        code = fg_session_failed(&s);
    return code == FG_EXIT_OK ? write(&s, &frontier) : code;
}
