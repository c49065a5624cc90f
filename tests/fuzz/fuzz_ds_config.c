/* DeepSpeed configurations. */
#include "fuzz.h"

#include "frontend/ds_config.h"

const char *const fuzz_seeds[] = {"tests/lit/cli/Inputs/ds_config.json",
                                  "tests/lit/cli/Inputs/ds_config_bad.json", NULL};
const char *const fuzz_words[] = {"\"auto\"",  "\"train_batch_size\"",
                                  "\"stage\"", "\"cpu\"",
                                  "\"betas\"", "-1",
                                  "1e308",     "null",
                                  "[]",        "{}",
                                  "5e8",       NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgDsConfig config;
    FgBuf said;
    char *text = fg_arena_strndup(arena, (const char *)data, size);
    int64_t batch, accumulate;
    if (fg_ds_config_parse(arena, diags, "ds_config.json", text, size, &config)) {
        uint32_t before = fg_diags_errors(diags);
        bool ok = fg_ds_config_batch(diags, &config, 65536, 0, 0, &batch, &accumulate);
        FG_ASSERT(ok == (fg_diags_errors(diags) == before));
    } else {
        FG_ASSERT(fg_diags_errors(diags) > 0);
    }
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    fg_arena_free(arena);
    return 0;
}
