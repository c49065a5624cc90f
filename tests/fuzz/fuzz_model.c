/* Model files: what the frontend accepts, the verifier accepts. */
#include "fuzz.h"

#include "frontend/model.h"

const char *const fuzz_seeds[] = {"examples/mlp.json", "examples/tiny-llama.json",
                                  "tests/data/gpt2/model.json", NULL};
const char *const fuzz_words[] = {
    "\"op\"",      "\"in\"",   "\"out\"",    "\"repeat\"",  "\"batch\"",  "\"linear\"",
    "\"reshape\"", "\"tied\"", "null",       "1e999",       "-1",         "[]",
    "{}",          "\"\"",     "4294967296", "\"seq * 2\"", "true",       "\"dtype\"",
    "\"slice\"",   "[[[[",     "\\u0000",    "0.5",         "\"params\"", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgNumerics numerics = {.accumulate = 1};
    FgModelOptions options = {.numerics = numerics};
    char *text = fg_arena_strndup(arena, (const char *)data, size);
    FgBuf said;
    FgModule *m = fg_model_parse(arena, diags, "m.json", text, size, &options);
    FG_ASSERT(m || fg_diags_errors(diags) > 0);
    FG_ASSERT(!m || fg_module_verify(m));
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    fg_arena_free(arena);
    return 0;
}
