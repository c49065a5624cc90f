/* IR text: what is parsed prints and parses to the same text, and a schedule that the verifier
 * accepts can be checked. */
#include "fuzz.h"

#include "passes/compile.h"

#include <string.h>

const char *const fuzz_seeds[] = {"tests/lit/ir/graph.fg", "tests/lit/ir/dist.fg",
                                  "tests/lit/ir/sched.fg", NULL};
const char *const fuzz_words[] = {
    "%x.1",   "#0",      "wait(",     "bucket(", "in %x+0",    "at(16)",
    "gather", "release", "adamw",     "_",       "..",         "loc(",
    "f32[",   "state",   "func @a {", "}",       "4294967295", "-9223372036854775808",
    "nan",    "{",       NULL};

static const char *print(FgArena *arena, const FgModule *m)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_module_print(m, &text);
    return fg_buf_text(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgProof proof;
    char *text = fg_arena_strndup(arena, (const char *)data, size);
    FgModule *m = fg_module_parse(arena, diags, "m.fg", text, size);
    FG_ASSERT(m || fg_diags_errors(diags) > 0);
    if (m) {
        const char *once = print(arena, m);
        FgModule *again = fg_module_parse(arena, fg_diags_new(arena), "m.fg", once, strlen(once));
        FG_ASSERT(again && !strcmp(print(arena, again), once));
        if (fg_module_verify(m) && m->level == FG_LEVEL_SCHED)
            fg_check(arena, m, UINT64_MAX, &proof);
    }
    FgBuf said;
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    fg_arena_free(arena);
    return 0;
}
