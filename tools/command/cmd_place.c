/* place: a table of items with lifetimes and sizes; the same table with their offsets. */
#include "base/file.h"
#include "tools/command/command.h"
#include "tools/command/place.h"

#include <inttypes.h>
#include <string.h>

#define ROUNDS 24
#define DEFAULT_EFFORT 1000 /* thousands of steps */

static void say(FgArena *arena, FgDiags *diags)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_diags_render(diags, &text);
    fputs(fg_buf_text(&text), stderr);
}

static FgExit no_placement(const FgPackResult *result, int64_t capacity)
{
    fprintf(stderr,
            "foregather place: error: %s within %" PRId64 ": the lowest found has height %" PRId64
            ", and none is lower than %" PRId64 "\n",
            result->lower_bound > capacity ? "there is no placement" : "no placement was found",
            capacity, result->height, result->lower_bound);
    if (result->lower_bound <= capacity)
        fputs("a larger --effort searches longer\n", stderr);
    return FG_EXIT_DOES_NOT_FIT;
}

/* A line without one of its fields. */
static void print_line(FgPlaceText line, uint32_t without)
{
    const char *end = line.at + line.len, *before = "";
    for (uint32_t field = 0; line.at <= end; field++) {
        const char *comma = memchr(line.at, ',', (size_t)(end - line.at));
        size_t len = (size_t)((comma ? comma : end) - line.at);
        if (field != without) {
            fputs(before, stdout);
            fwrite(line.at, 1, len, stdout);
            before = ",";
        }
        line.at += len + 1;
    }
}

static void print_table(const FgPlaceTable *table)
{
    print_line(table->header, table->unprinted);
    fputs(",offset\n", stdout);
    for (uint32_t i = 0; i < table->problem.n; i++) {
        print_line(table->rows.data[i], table->unprinted);
        printf(",%" PRId64 "\n", table->problem.items[i].offset);
    }
}

FgExit fg_cmd_place(FgArena *arena, const FgFlags *flags)
{
    FgDiags *diags = fg_diags_new(arena);
    FgPlaceTable table;
    uint64_t capacity = 0;
    char *text;
    size_t len;
    const char *error;
    if (flags->files.len != 1)
        return fg_usage_error(flags->verb,
                              flags->files.len ? "place takes one table" : "no table given");
    if (flags->values[FG_FLAG_capacity])
        fg_parse_bytes(flags->values[FG_FLAG_capacity], &capacity);
    if (capacity >= (uint64_t)FG_PACK_MOST)
        return fg_usage_error(flags->verb, "--capacity is less than 2^60");
    const char *name = flags->files.data[0];
    if (!fg_file_read(arena, name, &text, &len, &error))
        fg_diag(diags, FG_NOWHERE, FG_D_IO, "%s", error);
    else
        fg_place_parse(arena, diags, name, text, len, &table);
    say(arena, diags);
    if (fg_diags_errors(diags) > 0)
        return FG_EXIT_INPUT;
    FgPackEffort effort = {ROUNDS, 0, (int64_t)capacity};
    effort.steps = 1000 * (uint64_t)fg_flags_count(flags, FG_FLAG_effort, DEFAULT_EFFORT);
    FgPackResult result = fg_pack(arena, &table.problem, &effort);
    if (capacity > 0 && result.height > (int64_t)capacity)
        return no_placement(&result, (int64_t)capacity);
    print_table(&table);
    fprintf(stderr,
            "placed %" PRIu32 " items: height %" PRId64 ", lower bound %" PRId64 ", %" PRIu64
            " steps of search\n",
            table.problem.n, result.height, result.lower_bound, result.steps);
    return FG_EXIT_OK;
}
