/* The read-back against headers that are wrong: the annotations of calls are read as strictly as
 * the program is. Every case edits a copy of the header, and where it must the program with it. */
#include "../unit/unit.h"

#include "base/file.h"
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Case {
    const char *from, *to;       /* in fg_rt_calls.def or fg_rt.h, wherever it stands first */
    const char *line, *was, *is; /* in every line of the program that holds `line`; NULL: none */
    const char *message;
    bool with_plan;
} Case;

#define GATHER "\"read(shard, bytes) write(whole, bytes*ranks) comm(gather)\""
#define ANNOTATED(text) GATHER, "\"" text "\"", NULL, NULL, NULL

static const Variant plain = {.title = "mlp, clip",
                              .model = "examples/mlp.json",
                              .ranks = 2,
                              .precision = FG_BF16,
                              .clip = 1.0};
static const Case annotated[] = {
    {ANNOTATED("write(whole, bytes*ranks) comm(gather)"), "it gathers no bucket", false},
    {ANNOTATED("read(shard, bytes) write(whole, bytes*ranks+2) comm(gather)"),
     "it makes a copy of 49154 bytes of bucket embed.weight", false},
    {" atmost(set, 1)", "", "fg_rt_adamw(", ", 1);", ", 2);", "there is no set 2 of scalars",
     false},
    {ANNOTATED("read(shard, 1x)"), "a number is malformed", false},
    {ANNOTATED("read(shard, size(bytes))"), "argument 'bytes' is no dtype", false},
    {ANNOTATED("read(shard, ((((((((((((((((((((((((1)))))))))))))))))))))))))"),
     "it is nested too deep", false},
    {ANNOTATED("read(shard, 18446744073709551615*2)"), "a size overflows", false},
    {ANNOTATED("read(shard, 18446744073709551615+2)"), "a size overflows", false},
    {ANNOTATED("read(shard, bytes/0)"), "it divides by zero", false},
    {ANNOTATED("read(shard, bytes/7)"), "a size does not divide evenly", false},
    {ANNOTATED("comm(gathers)"), "there is no such communicator", false},
    {ANNOTATED("atmost(2, 1)"), "2 is more than the 1 that its rule allows", false},
    {ANNOTATED("reads(shard, bytes)"), "'reads' is no effect", false},
    {ANNOTATED("read(shard bytes)"), "',' is missing", false},
    {ANNOTATED("read(, bytes)"), "a name is missing", false},
    {ANNOTATED("read(other, bytes)"), "'other' is no integer argument", false},
    {"FG_EFFECTS(\"record(stream, event)\")", "", NULL, NULL, NULL,
     "fg_rt_record is no call whose effects are declared", false},
    {"fg_rt_record(FgRtCx *cx, FgRtStream stream, uint32_t event)",
     "fg_rt_record(FgRtCx *cx, FgRtStream stream, uint32_t event, ...)", "fg_rt_record(", ");",
     ", 1);", "the number of arguments is not that of the declaration", false},
};

/* Tables whose fields the header gives other types. */
static const Case typed[] = {
    {"uint32_t ranks, batch", "double ranks; uint32_t batch", NULL, NULL, NULL,
     "field 'ranks' is no integer", false},
    {"typedef struct FgRtInput {\n    const char *name;",
     "typedef struct FgRtInput {\n    int name;", ", FG_RT_I32, ", "{", "{0 * sizeof ",
     "field 'name' is no text", false},
    {"const FgRtParam *params;", "const void *params;", ".params = params", "= params", "= inputs",
     "'params' names a table of FgRtInput, not of FgRtParam", false},
};

/* A position table that is broadcast over the batch: calls with layouts, of which nothing but the
 * plan is left to speak. */
static const Variant strided = {.title = "gpt2",
                                .model = "tests/data/gpt2/model.json",
                                .schedule = FG_SCHEDULE_ZERO3,
                                .ranks = 2};
#define RULE " strided(layout, n, n_a, n_b)"
/* How fg_rt_calls.def declares fg_rt_binary. */
#define DT ",\n            uint64_t dt"
#define BINARY(a, b, y, rule, last)                                                                \
    "read(a, " a ") read(b, " b ") write(y, " y ") inplace(y, a) inplace(y, b)" rule               \
    "\",\n           (uint64_t kind, uint64_t a, uint64_t b, uint64_t y, uint64_t n_a, "           \
    "uint64_t n_b, uint64_t n, uint64_t layout" last ")"
static const Case layouts[] = {
    {RULE, "", "2048, 1024, 2048, 0, FG_RT_F32", "2048, 0,", "2048, FG_RT_NONE,",
     "it has a layout where it needs none, or none where it needs one", true},
    {RULE, "", "2048, 1024, 2048, 0, FG_RT_F32", "2048, 0,", "2048, 9999,",
     "its layout is none of the table", true},
    {BINARY("n_a*size(dt)", "n_b*size(dt)", "n*size(dt)", " strided(layout, n, n_a, n_b)", DT),
     BINARY("n_a*size(dt)", "n_b*size(dt)", "n*size(dt)", "", DT ", uint64_t more"),
     "fg_rt_binary(", "FG_RT_F32);", "FG_RT_F32, 0);", "it has more arguments than the plan says",
     true},
    {BINARY("n_a*size(dt)", "n_b*size(dt)", "n*size(dt)", " strided(layout, n, n_a, n_b)", DT),
     BINARY("n_a*4", "n_b*4", "n*4", "", ""), "fg_rt_binary(", ", FG_RT_F32);", ");",
     "it has too few arguments", true},
};

static const char *once(FgArena *arena, const char *text, const char *from, const char *to)
{
    const char *hit = strstr(text, from);
    return !hit ? text
                : fg_arena_printf(arena, "%.*s%s%s", (int)(hit - text), text, to,
                                  hit + strlen(from));
}

/* The program with a word changed in every line that holds another. */
static const char *in_lines(FgArena *arena, const char *text, const Case *c)
{
    FgBuf out;
    fg_buf_init(&out, arena);
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n');
        const char *line = fg_arena_strndup(arena, text, n);
        fg_buf_puts(&out,
                    c->line && strstr(line, c->line) ? once(arena, line, c->was, c->is) : line);
    }
    return fg_buf_text(&out);
}

static bool write_header(FgArena *arena, const char *folder, const Case *c)
{
    static const char *const files[] = {"fg_rt_calls.def", "fg_rt.h", "fg_custom.h", "fg_chain.h"};
    bool changed = false, ok = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text = NULL;
        size_t len = 0;
        const char *error;
        ok =
            ok && fg_file_read(arena, fg_arena_printf(arena, FG_SOURCE_DIR "/runtime/%s", files[i]),
                               &text, &len, &error);
        const char *now = ok && !changed ? once(arena, text, c->from, c->to) : text;
        changed = changed || now != text;
        ok = ok && fg_file_write(arena, fg_arena_printf(arena, "%s/%s", folder, files[i]), now,
                                 strlen(now), &error);
    }
    return ok && changed;
}

static void refuses(const Variant *variant, const Case *list, size_t n, int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    const char *error, *folder = fg_temp_dir(arena, &error);
    bool made = folder && program_make(arena, variant, &program);
    CHECK(made);
    for (size_t i = 0; made && i < n; i++) {
        FgArena *scratch = fg_arena_new();
        FgDiags *diags = fg_diags_new(scratch);
        const char *text = in_lines(scratch, program.text, &list[i]);
        FgReadbackRequest request = {"program.c", text, strlen(text), folder,
                                     list[i].with_plan ? program.plan : NULL};
        FgReadback out;
        FgBuf said;
        CHECK(write_header(scratch, folder, &list[i]));
        bool ok = fg_readback(scratch, diags, &request, &out);
        fg_buf_init(&said, scratch);
        fg_diags_render(diags, &said);
        bool right = !ok && strstr(fg_buf_text(&said), list[i].message);
        CHECK(right);
        if (!right)
            printf("case %zu, wanted: %s\nsaid: %s\n", i, list[i].message,
                   ok ? "(proved)" : fg_buf_text(&said));
        fg_arena_free(scratch);
    }
    if (folder)
        fg_temp_dir_remove(arena, folder);
    fg_arena_free(arena);
}

static void annotations_are_checked(int *failures)
{
    refuses(&plain, annotated, sizeof annotated / sizeof *annotated, failures);
}

static void types_are_checked(int *failures)
{
    refuses(&plain, typed, sizeof typed / sizeof *typed, failures);
}

static void layouts_are_the_plans(int *failures)
{
    refuses(&strided, layouts, sizeof layouts / sizeof *layouts, failures);
}

UNIT_MAIN({"annotations_are_checked", annotations_are_checked},
          {"types_are_checked", types_are_checked},
          {"layouts_are_the_plans", layouts_are_the_plans})
