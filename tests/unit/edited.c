/* edited.h */
#include "tests/unit/edited.h"

#include "ir/ir.h"
#include "passes/compile.h"
#include "tests/unit/unit.h"

#include <string.h>

const char *text_edited(FgArena *arena, const char *text, const char *from, const char *to,
                        int *failures)
{
    const char *hit = strstr(text, from);
    CHECK(hit != NULL);
    return hit ? fg_arena_printf(arena, "%.*s%s%s", (int)(hit - text), text, to, hit + strlen(from))
               : text;
}

const char *text_moved(FgArena *arena, const char *text, const char *line, const char *before,
                       int *failures)
{
    const char *begin = strstr(text, line), *end = begin ? strchr(begin, '\n') : NULL;
    CHECK(end != NULL);
    if (!end)
        return text;
    const char *moved = fg_arena_strndup(arena, begin, (size_t)(end + 1 - begin));
    text = text_edited(arena, text, moved, "", failures);
    return text_edited(arena, text, before, fg_arena_printf(arena, "%s%s", moved, before),
                       failures);
}

const char *text_verdict(FgArena *arena, const char *text, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgModule *m = fg_module_parse(arena, diags, "tiny.fg", text, strlen(text));
    FgProof proof;
    FgBuf out;
    fg_buf_init(&out, arena);
    CHECK(m != NULL && fg_module_verify(m));
    bool ok = m && fg_check(arena, m, UINT64_MAX, &proof);
    fg_diags_render(diags, &out);
    CHECK(ok == (fg_diags_errors(diags) == 0));
    return fg_buf_text(&out);
}
