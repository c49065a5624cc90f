/* Tables of items to place; what is accepted must be placed as it says. */
#include "fuzz.h"

#include "tools/command/place.h"

const char *const fuzz_seeds[] = {"tests/lit/cli/Inputs/items.csv", NULL};
const char *const fuzz_words[] = {"id,lower,upper,size\n",
                                  "alignment",
                                  "gaps",
                                  "hint",
                                  "offset",
                                  "end",
                                  "2-3@1:2",
                                  " ",
                                  "9223372036854775807",
                                  "-1152921504606846976",
                                  ",",
                                  "\r\n",
                                  "0",
                                  NULL};

#define MOST_ITEMS 64 /* of what is placed, so that a run is short */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgPlaceTable table;
    FgBuf said;
    char *text = fg_arena_strndup(arena, (const char *)data, size);
    bool ok = fg_place_parse(arena, diags, "items.csv", text, size, &table);
    FG_ASSERT(ok == (fg_diags_errors(diags) == 0));
    if (ok && table.problem.n <= MOST_ITEMS) {
        FgPackEffort effort = {2, 100, 0};
        FgPackResult result = fg_pack(arena, &table.problem, &effort);
        for (uint32_t i = 0; i < table.problem.n; i++) {
            const FgPackItem *x = &table.problem.items[i];
            FG_ASSERT(x->offset >= 0 && x->offset % x->align == 0);
            FG_ASSERT(x->offset + x->bytes <= result.height);
        }
    }
    fg_buf_init(&said, arena);
    fg_diags_render(diags, &said);
    fg_arena_free(arena);
    return 0;
}
