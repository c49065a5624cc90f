/* Messages of the read-back, each for one edit of a program that is right: what it does not
 * understand, what its tables contradict, and what differs from the plan. Faults of many kinds at
 * many places are test_programs.c's; here every message is seen once. */
#include "../unit/unit.h"

#include "program.h"

typedef struct Edit {
    const char *from, *to; /* the first place; "" appends */
    const char *message;
    bool with_plan;
} Edit;

static const Variant clipped = {
    "examples/mlp.json", FG_SCHEDULE_COMPILED, 2, FG_BF16, 1.0, 1, FG_RECOMPUTE_NONE,
    "mlp, clip",         FG_VOCAB_GATHERED};
/* A position table that is broadcast over the batch: strided calls. */
static const Variant strided = {"tests/data/gpt2/model.json",
                                FG_SCHEDULE_ZERO3,
                                2,
                                FG_F32,
                                0,
                                1,
                                FG_RECOMPUTE_NONE,
                                "gpt2",
                                FG_VOCAB_GATHERED};

static const Edit edits[] = {
    /* lexical.c */
    {"static void body_init", "\xc3\xa9 static void body_init", "not ASCII", false},
    {"/* name, bucket", "/* \\\n name, bucket", "in a comment", false},
    {"\"mlp\"", "\"m\\\"lp?\?/\"", "a string that does not end in its line", false},
    /* parse.c */
    {".params = params", ".params = 0", "neither a constant", false},
    {".abi = 2,", ".abi = 2, .abi = 2,", "the compiler says: initializer overrides", false},
    {".abi = 2,", "1,", "'.field = value' is expected", false},
    {".abi = 2,", ".abi = 2, .wrong = 1,", "the compiler says: field designator", false},
    {"static const FgRtProgram program",
     "static const int64_t spare = 1;\n\nstatic const FgRtProgram program",
     "a table has its values in braces", false},
    {"static const FgRtProgram program",
     "static const FgRtNode spare = {\"\", \"\", \"\", 0, 0};\n\nstatic const FgRtProgram program",
     "a single value is no table", false},
    {"static const FgRtProgram program",
     "static const FgRtProgram spare = {.abi = 2};\n\nstatic const FgRtProgram program",
     "a second program", false},
    {"fg_rt_join(cx);", "fg_rt_join(cx); fg_rt_status(cx);",
     "the compiler says: call to undeclared", false},
    {"fg_rt_record(cx, FG_GATHER, ", "fg_rt_record(cx, FG_GATHER, (uint32_t)dims[0] + ",
     "a sign that an emitted program does not have", false},
    {"fg_rt_record(cx, FG_GATHER, ", "fg_rt_record(cx, FG_GATHER, *(const uint32_t *)cx + ",
     "an argument that is no constant", false},
    {"static void body_step(FgRtCx *cx)\n{\n",
     "static void body_step(FgRtCx *cx)\n{\n    body_step(cx);\n",
     "a function that is not defined before", false},
    {"const FgRtProgram *fg_program(void)", "static const FgRtProgram *other(void)",
     "a function with something unusual about it", false},
    /* tables.c */
    {".n_params = 15", ".n_params = 14", "'n_params' is 14, but the table has 15 rows", false},
    {"    .params = params,\n", "", "'params' names no table of the file", false},
    {".dims = dims", ".tied = 0, .dims = 0", "dims", false},
    {".inputs = inputs", ".inputs = (const FgRtInput *)0", "neither a constant", false},
    {".ranks = 2", ".ranks = 0", "ranks and micro-steps must be 1 or more", false},
    {", 1, 0},", ", 0, 0},", "cannot have a gradient of so many parts", false},
    {".clip = 1.0", ".clip = -1.0", "the clipping limit must be 0 or more", false},
    {"    {\"all\", ", "    {\"all\", 1", "the ledger's rows add up to", false},
    {"{\"embed.weight\", 0, 0, 24576, 0, 2,", "{\"embed.weight\", 0, 0, 24576, 900, 2,",
     "its dims lie outside the table of dims", false},
    {"    256, 96, /* embed.weight */", "    -256, 96, /* embed.weight */",
     "a dim that is not positive", false},
    {"FG_RT_NORMAL, 0.1, 1, 1, 0, 0}", "FG_RT_NORMAL, 0.1, 1, 1, 0, 3}",
     "its other names lie outside their table", false},
    {"FG_RT_BF16, 1, 24576, 0, 1, ", "FG_RT_BF16, 1, 24576, 0, 99, ",
     "the parameters of bucket embed.weight lie outside their table", false},
    {"FG_RT_BF16, 1, 24576, 0, 1, ", "FG_RT_I32, 1, 24576, 0, 1, ", "has no float dtype", false},
    {"FG_RT_BF16, 1, 24576, 0, 1, ", "FG_RT_BF16, 0, 24576, 0, 1, ", "must not be there", false},
    {"FG_RT_I32, 0, 512,", "FG_RT_F16 + 9, 0, 512,", "an input of no dtype", false},
    {".loss = ", ".loss = FG_RT_NONE + 0 * ", "the sum of losses have no place", false},
    /* trace.c */
    {".prologue = body_prologue", ".prologue = body_init", "names no function of the file", false},
    {"fg_rt_record(cx, FG_GATHER,", "fg_rt_record(cx, 7,", "there is no stream 7", false},
    {"    fg_rt_wait(cx, FG_COMPUTE,",
     "    fg_rt_record(cx, FG_GATHER, 0);\n    fg_rt_record(cx, FG_GATHER, 0);\n    fg_rt_wait(cx, "
     "FG_COMPUTE,",
     "is recorded a second time", false},
    {"fg_rt_gather(cx, ", "fg_rt_gather(cx, 900 + ", "its node is none of the table", false},
    {"fg_rt_join(cx);\n}", "fg_rt_join(cx);\n    fg_rt_join(cx);\n}",
     "a join that is not the end of its body", false},
    {"{\n    step_update(cx);", "{\n    fg_rt_record(cx, FG_COMPUTE, 0);\n    step_update(cx);",
     "on a stream that has no work yet", false},
    /* plan.c, plan_tables.c */
    {"FG_RT_NORMAL, 0.1, 1, 1, 0, 0}", "FG_RT_NORMAL, 0.1, 1, 0, 0, 0}",
     "parameter embed.weight is not as in the plan", true},
    {"{\"labels\", 1,", "{\"labels\", 2,", "input labels is not as in the plan", true},
    {"{\"layers.0\", FG_RT_BF16", "{\"layers.9\", FG_RT_BF16",
     "bucket layers.9 is not as in the plan", true},
    {".accumulate = 1", ".accumulate = 1, .batch = 1", "the compiler says: initializer", true},
};

/* The row: rank; dims; strides of the sum, strides of the row that is repeated. */
#define ROW "    2, 2, 1024, 1024, 1, 0, 1,"
static const Edit strided_edits[] = {
    {", 64, 320, 0, ", ", 64, 320, 64, ", "no table of bucket", false},
    {ROW, "    9, 2, 1024, 1024, 1, 0, 1,", "its layout is none of the table", false},
    {ROW, "    2, 0, 1024, 1024, 1, 0, 1,", "a dim of its layout is not positive", false},
    {ROW, "    2, 2, 1024, -1024, 1, 0, 1,", "is negative or too large", false},
    {ROW, "    2, 2, 1024, 2048, 1, 0, 1,", "its layout reaches element 3071", false},
    {ROW, "    2, 1, 1024, 1024, 1, 0, 1,", "does not walk as many elements", false},
    {ROW, "    2, 2, 1024, 1, 1, 0, 1,", "its layout walks another way than the plan's", true},
    {"2048, 1024, 2048, 0, FG_RT_F32", "2048, 1024, 2048, FG_RT_NONE, FG_RT_F32",
     "its operands differ in size, and it has no layout", false},
};

static const char *edited(FgArena *arena, const char *text, const Edit *edit, int *failures)
{
    const char *hit = strstr(text, edit->from);
    CHECK(hit != NULL);
    if (!hit)
        printf("not in the program: %s\n", edit->from);
    return hit ? fg_arena_printf(arena, "%.*s%s%s", (int)(hit - text), text, edit->to,
                                 hit + strlen(edit->from))
               : text;
}

static void refuses(const Variant *variant, const Edit *list, uint32_t n, int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, variant, &program);
    CHECK(made);
    for (uint32_t i = 0; made && i < n; i++) {
        FgArena *scratch = fg_arena_new();
        const char *text = edited(scratch, program.text, &list[i], failures);
        Verdict verdict =
            program_verdict(scratch, text, strlen(text), list[i].with_plan ? program.plan : NULL);
        bool said = !verdict.ok && strstr(verdict.said, list[i].message);
        CHECK(said);
        if (!said)
            printf("%s -> %s\nwanted: %s\nsaid: %s\n", list[i].from, list[i].to, list[i].message,
                   verdict.ok ? "(proved)" : verdict.said);
        fg_arena_free(scratch);
    }
    fg_arena_free(arena);
}

static void every_message_is_seen(int *failures)
{
    refuses(&clipped, edits, sizeof edits / sizeof *edits, failures);
}

static void strides_are_checked(int *failures)
{
    refuses(&strided, strided_edits, sizeof strided_edits / sizeof *strided_edits, failures);
}

UNIT_MAIN({"every_message_is_seen", every_message_is_seen},
          {"strides_are_checked", strides_are_checked})
