/* Machine files. */
#include "fuzz.h"

#include "frontend/machine.h"

const char *const fuzz_seeds[] = {"tests/lit/codegen/Inputs/machine.json", NULL};
const char *const fuzz_words[] = {"\"ranks\"", "\"memory\"", "\"reserved\"", "\"gather\"",
                                  "[0, 0]",    "-1",         "1e308",        "null",
                                  "[]",        "{}",         "\"16GiB\"",    NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgMachine machine;
    FgBuf said;
    char *text = fg_arena_strndup(arena, (const char *)data, size);
    if (fg_machine_parse(arena, diags, "machine.json", text, size, &machine))
        fg_machine_set_ranks(arena, &machine, 3);
    else
        FG_ASSERT(fg_diags_errors(diags) > 0);
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    fg_arena_free(arena);
    return 0;
}
