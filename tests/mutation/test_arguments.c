/* Refusals of the read-back that take a wrong number at one place: the k-th argument of a call, or
 * the k-th field of a row. Each is seen once, on the program of one model, whatever its layout is.
 * test_rejects.c has those that a fixed text finds. */
#include "../unit/unit.h"

#include "program.h"

#include <string.h>

/* Before an argument or a field: it becomes another number, and stays a constant. */
typedef struct Spot {
    const char *after; /* what stands before the first of them */
    uint32_t k;
    const char *prefix;
    const char *message;
    bool with_plan;
} Spot;

#define BUCKET "buckets[] = {\n    {"
#define INSTEAD(text) text " + 0 * "

static const Spot spots[] = {
    /* tables.c */
    {BUCKET, 6, "1048576 * 64 + ", "outside the memory of states", false},
    {BUCKET, 6, "8 + ", "which is no multiple of 16", false},
    {BUCKET, 6, "16 + ", "the master of bucket embed.weight overlap", false},
    {BUCKET, 11, "2 + ", "the gradient slice of bucket embed.weight has", false},
    {"bucket_params[] = {\n    ", 0, "99 + ", "names a parameter that is not there, or twice",
     false},
    {"params[] = {\n    {", 2, "64 + ", "overlaps another one or leaves bucket embed.weight",
     false},
    {"{\"layers.0\", FG_RT_BF16, ", 3, INSTEAD("3"), "is in no bucket's list", false},
    {".n_events = ", 0, INSTEAD("16777217"), "too many events", false},
    /* args.c */
    {"fg_rt_adamw(", 10, "900 + ", "there is no bucket 900", false},
    {"fg_rt_adamw(", 11, "16 + ", "elements of bucket embed.weight instead of", false},
    {"fg_rt_clip_factor(", 5, "2 * ", "it clips to another limit than the program states", false},
    /* trace.c */
    {"fg_rt_record(", 2, "900 + ", "event 900 is none of the program's", false},
    {"fg_rt_wait(", 2, "900 + ", "is none of the program's", false},
    /* names.c */
    {"fg_rt_unary(", 6, INSTEAD("64"), "which is no whole value: it lies in", false},
    {"fg_rt_release(", 4, INSTEAD("64"), "not a whole value", false},
    {"fg_rt_adamw(", 4, "16 + ", "which is not exactly the master of bucket", false},
    {"fg_rt_loss_add(", 4, "1024 + ", "where no state lies", false},
    {"fg_rt_linear_dw(", 5, "16 + ", "where no parameter lies", false},
    {"fg_rt_reduce_scatter(", 4, "-16 + ", "which is not the gradient slice of the bucket", false},
    /* plan.c */
    {"static void flush_update(FgRtCx *cx)\n{\n    fg_rt_adamw(", 2, INSTEAD("FG_COMPUTE"),
     "it is on stream compute", true},
};

static const Variant variant = {.title = "mlp, clip",
                                .model = "examples/mlp.json",
                                .ranks = 2,
                                .precision = FG_BF16,
                                .clip = 1.0};

/* The text with `more` in the place of `drop` bytes at `at`. */
static const char *spliced(FgArena *arena, const char *text, const char *at, size_t drop,
                           const char *more)
{
    return fg_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, more, at + drop);
}

static const char *place(const char *text, const char *after, uint32_t k)
{
    const char *at = strstr(text, after);
    at = at ? at + strlen(after) : NULL;
    for (; at && k; k--) {
        at = strstr(at, ", ");
        at = at ? at + 2 : NULL;
    }
    return at;
}

static void refused(const Program *program, const char *text, const FgModule *plan,
                    const char *message, int *failures)
{
    FgArena *scratch = fg_arena_new();
    Verdict verdict = program_verdict(scratch, text, strlen(text), plan);
    bool said = !verdict.ok && strstr(verdict.said, message);
    CHECK(said);
    if (!said)
        printf("%s: wanted: %s\nsaid: %s\n", program->variant->title, message,
               verdict.ok ? "(proved)" : verdict.said);
    fg_arena_free(scratch);
}

static void numbers_are_checked(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, &variant, &program);
    CHECK(made);
    for (uint32_t i = 0; made && i < sizeof spots / sizeof *spots; i++) {
        const Spot *spot = &spots[i];
        const char *at = place(program.text, spot->after, spot->k);
        CHECK(at != NULL);
        if (!at)
            printf("not in the program: %s\n", spot->after);
        else
            refused(&program, spliced(arena, program.text, at, 0, spot->prefix),
                    spot->with_plan ? program.plan : NULL, spot->message, failures);
    }
    fg_arena_free(arena);
}

/* ---- lines that move, and numbers that the program's tables give ---- */

/* The first line that begins so, with its end. */
static const char *line_of(FgArena *arena, const char *text, const char *begin)
{
    const char *at = strstr(text, begin);
    return at ? fg_arena_printf(arena, "%.*s", (int)(strchr(at, '\n') + 1 - at), at) : "";
}

static const char *before(FgArena *arena, const char *text, const char *here, const char *more,
                          int *failures)
{
    const char *at = strstr(text, here);
    CHECK(at && *more);
    return at ? spliced(arena, text, at, 0, more) : text;
}

/* Where the bucket that is reduced first was gathered. */
static unsigned long long gathered(const Program *program)
{
    uint64_t elements = FG_RB_NONE, at = 0;
    for (uint32_t i = 0; i < program->lines.len && elements == FG_RB_NONE; i++)
        if (line_is(&program->lines.data[i], "reduce_scatter"))
            elements = line_arg(&program->lines.data[i], "elements");
    for (uint32_t i = 0; i < program->lines.len; i++)
        if (line_is(&program->lines.data[i], "gather") &&
            line_arg(&program->lines.data[i], "bytes") == elements) /* bf16, two ranks */
            at = line_arg(&program->lines.data[i], "whole");
    return at;
}

static unsigned long long embedded(const Program *program)
{
    for (uint32_t i = 0; i < program->lines.len; i++)
        if (line_is(&program->lines.data[i], "embedding"))
            return line_arg(&program->lines.data[i], "y");
    return 0;
}

static void lines_are_checked(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    if (!program_make(arena, &variant, &program)) {
        ++*failures;
        return;
    }
    const char *text = program.text;
    const FgRbBucket *bucket = &program.tables.buckets.data[0];
    unsigned long long shard = bucket->shard, bytes = bucket->elements / 2 * 2;
    const char *more = spliced(arena, text, place(text, ".n_ledger = ", 0), 0, "1 + ");
    more = spliced(arena, more, place(more, "{\"all\", ", 0), 0,
                   "18446744073709551615u}, {\"more\", ");
    refused(&program, more, NULL, "the ledger's sum overflows", failures);
    more = spliced(arena, text, place(text, "fg_rt_cast(", 3), 0, "2 + ");
    more = spliced(arena, more, place(more, "fg_rt_cast(", 5), 0, INSTEAD("64"));
    refused(&program, more, NULL, "is no part of", failures);
    /* Tokens where the result goes, and that for the first time. */
    refused(&program,
            spliced(arena, text, place(text, "fg_rt_embedding(", 3), 0,
                    fg_arena_printf(arena, INSTEAD("%llu"), embedded(&program))),
            NULL, "bytes that nothing has written", failures);
    /* A release before anything reads the copy, and one of a state. */
    refused(&program,
            before(arena, text, "    fg_rt_embedding(", line_of(arena, text, "    fg_rt_release("),
                   failures),
            NULL, "which nothing has read", failures);
    refused(&program,
            before(arena, text, "    fg_rt_embedding(",
                   fg_arena_printf(arena, "    fg_rt_release(cx, 0, FG_COMPUTE, %llu, %llu);\n",
                                   shard, bytes),
                   failures),
            NULL, "which lives from step to step", failures);
    /* A gather of a gradient's slice, which is as large as the shard; the reduction of a copy of
     * weights, as large as the gradient. */
    refused(
        &program,
        spliced(arena, text, place(text, "fg_rt_gather(", 3), 0,
                fg_arena_printf(arena, INSTEAD("%llu"), (unsigned long long)bucket->grad_shard)),
        NULL, "which is no bucket's shard", failures);
    refused(&program,
            spliced(arena, text, place(text, "fg_rt_reduce_scatter(", 3), 0,
                    fg_arena_printf(arena, INSTEAD("%llu"), gathered(&program))),
            NULL, "which is no gradient buffer", failures);
    /* A call whose result the same call overwrites. */
    refused(&program,
            before(arena, text, "    fg_rt_embedding(",
                   line_of(arena, text, "    fg_rt_embedding("), failures),
            NULL, "nothing reads what it writes", failures);
    refused(&program,
            before(arena, text, "    fg_rt_join(cx);",
                   "    fg_rt_record(cx, FG_COMPUTE, 0);\n    fg_rt_wait(cx, FG_COPY, 0);\n",
                   failures),
            NULL, "ends with a wait that orders nothing", failures);
    refused(&program,
            before(arena, text, "static void body_init",
                   "static void nothing(FgRtCx *cx)\n{\n}\n\n", failures),
            NULL, "an empty function", failures);
    /* Weights that are made twice, and a wait more: well formed, but not the plan's. */
    const char *end = strstr(text, "}\n\nstatic void body_init"), *last = end - 1;
    while (last > text && last[-1] != '\n')
        last--;
    refused(&program,
            spliced(arena, text, end, 0, fg_arena_printf(arena, "%.*s", (int)(end - last), last)),
            program.plan, "calls, the plan", failures);
    unsigned long long events = program.tables.n_events;
    more = before(arena, text, "    fg_rt_wait(cx, FG_COMPUTE, ",
                  fg_arena_printf(arena,
                                  "    fg_rt_record(cx, FG_COPY, %llu);\n"
                                  "    fg_rt_wait(cx, FG_COMPUTE, %llu);\n",
                                  events, events),
                  failures);
    more = spliced(arena, more, place(more, ".n_events = ", 0), 0, "1 + ");
    refused(&program, more, program.plan, "it waits for other calls than those of the plan",
            failures);
    fg_arena_free(arena);
}

/* The last piece of a head has no gradient of its weight: the hidden rows are not read to their
 * end. */
static void pieces_are_counted(int *failures)
{
    static const Variant pieces = {.title = "llama-odd, head in pieces",
                                   .model = "tests/data/llama-odd/model.json",
                                   .ranks = 2,
                                   .precision = FG_BF16,
                                   .chunk = 8};
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, &pieces, &program);
    const Line *last = NULL;
    uint64_t rows = 0;
    CHECK(made);
    for (uint32_t i = 0; made && i < program.lines.len; i++) {
        const Line *line = &program.lines.data[i];
        rows = line_is(line, "cross_entropy") ? line_arg(line, "rows") : rows;
        if (rows && line_is(line, "linear_dw") && line_arg(line, "m") == rows)
            last = line;
    }
    CHECK(last != NULL);
    if (last)
        refused(&program, spliced(arena, program.text, last->text, last->len, ""), NULL,
                "reads pieces of", failures);
    fg_arena_free(arena);
}

UNIT_MAIN({"numbers_are_checked", numbers_are_checked}, {"lines_are_checked", lines_are_checked},
          {"pieces_are_counted", pieces_are_counted})
