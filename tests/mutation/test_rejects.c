/* Messages of the read-back, each for one edit of a program that is right: what it does not
 * understand, what its tables contradict, and what differs from the plan. Faults of many kinds at
 * many places are test_programs.c's; here every message is seen once. */
#include "../unit/unit.h"

#include "program.h"

#include <sys/resource.h>

typedef struct Edit {
    const char *from, *to; /* the first place; "" appends */
    const char *message;
    bool with_plan;
} Edit;

static const Variant clipped = {.title = "mlp, clip",
                                .model = "examples/mlp.json",
                                .ranks = 2,
                                .precision = FG_BF16,
                                .clip = 1.0};
/* A position table that is broadcast over the batch: strided calls. */
static const Variant strided = {.title = "gpt2",
                                .model = "tests/data/gpt2/model.json",
                                .schedule = FG_SCHEDULE_ZERO3,
                                .ranks = 2};

static const Variant rotating = {.title = "tiny-llama",
                                 .model = "examples/tiny-llama.json",
                                 .schedule = FG_SCHEDULE_ZERO3,
                                 .ranks = 2};

static const Edit edits[] = {
    /* lexical.c */
    {"static void body_init", "\xc3\xa9 static void body_init", "not ASCII", false},
    {"/* name, bucket", "/* \\\n name, bucket", "in a comment", false},
    {"\"mlp\"", "\"m\\\"lp?\?/\"", "a string that does not end in its line", false},
    /* parse.c */
    {".params = params", ".params = 0", "neither a constant", false},
    {".abi = 6,", ".abi = 2, .abi = 2,", "the compiler says: initializer overrides", false},
    {".abi = 6,", "1,", "'.field = value' is expected", false},
    {".abi = 6,", ".abi = 2, .wrong = 1,", "the compiler says: field designator", false},
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
    {"fg_rt_join(cx);", "fg_program()->first(cx); fg_rt_join(cx);",
     "a call of something that is no function", false},
    {"    {\"all\", ", "    {(const char *)dims, ", "a constant for a field is expected", false},
    {"FgRtLedgerRow ledger[] = {\n    {", "FgRtLedgerRow ledger[] = {\n    (FgRtLedgerRow){",
     "a row in braces is expected", false},
    /* types.c: what lies in the arena, in a state, in a gradient buffer */
    {"u, FG_RT_BF16); /* loss", "u, FG_RT_F16); /* loss",
     "it takes logits for f16, but y of logits holds bf16", false},
    {"FG_RT_F32, FG_RT_BF16); /* embed.weight", "FG_RT_F32, FG_RT_F16); /* embed.weight",
     "it takes y for f16, but the shard of bucket embed.weight holds bf16", false},
    {"FG_RT_BF16, FG_RT_BF16, 0); /* logits", "FG_RT_BF16, FG_RT_F16, 0); /* logits",
     "for f16, but the gradient buffer of head.weight holds bf16", false},
    /* tables.c */
    {".n_params = 15", ".n_params = 14", "'n_params' is 14, but the table has 15 rows", false},
    {"    .params = params,\n", "", "'params' names no table of the file", false},
    {".dims = dims", ".tied = 0, .dims = 0", "dims", false},
    {".inputs = inputs", ".inputs = (const FgRtInput *)0", "neither a constant", false},
    {".abi = ", ".abi = 1 + ", "written for another runtime interface", false},
    {".reserved_bytes = 0", ".reserved_bytes = 0, .host_state_bytes = 16",
     "exceed the host memory offered", false},
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
    /* trace.c, args.c */
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
    /* the checker: weights that start as another half of the master */
    {"FG_COMPUTE, 28672, 4096, 12288,", "FG_COMPUTE, 28672 + 1024, 4096, 12288 / 2,",
     "from what is not the same part of the bucket's master", false},
    /* plan.c, plan_tables.c */
    {"FG_RT_NORMAL, 0.1, 1, 1, 0, 0}", "FG_RT_NORMAL, 0.1, 1, 0, 0, 0}",
     "parameter embed.weight is not as in the plan", true},
    {"{\"labels\", 1,", "{\"labels\", 2,", "input labels is not as in the plan", true},
    {"{\"layers.0\", FG_RT_BF16", "{\"layers.9\", FG_RT_BF16",
     "bucket layers.9 is not as in the plan", true},
    {"\"mlp.json\", ", "\"mlp.json\", 1", "it names another place in the model", true},
    {"\"mlp.json\", ", "\"mlp.json\", -32 + ", "it names another place in the model", true},
    {"\"mlp.json\", ", "\"mlq.json\", ", "it names another place in the model", true},
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

/* custom.c, and what the tables and calls of custom functions must keep to. */
static const Variant custom = {
    .title = "custom-activation", .model = "examples/custom-activation.json", .ranks = 2};

#define DECLARED "void custom_relu2_f32(const float *, const float *, float *, const FgCustom *);"
#define CALLED                                                                                     \
    "    custom_relu2_f32(fg_custom_in(call, 0), fg_custom_in(call, 1), fg_custom_out(call, 2), "  \
    "call);"
static const Edit custom_edits[] = {
    {DECLARED, DECLARED "\nvoid other(const float *, const FgCustom *);", "a declaration", false},
    {DECLARED, DECLARED "\n" DECLARED, "a second declaration of this function", false},
    {DECLARED, "static " DECLARED, "the compiler says: function", false},
    {DECLARED, DECLARED "\nvoid custom_more(const float *, const FgCustom *);",
     "a declared function is in no table", false},
    {"{\"custom_relu2_back_f32\", call_custom_relu2_back_f32, 3, 2}",
     "{\"custom_relu2_f32\", call_custom_relu2_f32, 2, 1}", "a second row for custom_relu2_f32",
     false},
    {DECLARED, "int custom_relu2_f32(const float *, const float *, float *, const FgCustom *);",
     "a user's function returns nothing", false},
    {DECLARED, "void custom_relu2_f32(const float *, const float *, float *, FgCustom *);",
     "the compiler says: passing", false},
    {DECLARED, "void custom_relu2_f32(const float *, const float *, float *, const void *);",
     "the last parameter of a user's function", false},
    {DECLARED, "void custom_relu2_f32(const char *, const float *, float *, const FgCustom *);",
     "a parameter that is no pointer to elements", false},
    {DECLARED, "void custom_relu2_f32(volatile float *, const float *, float *, const FgCustom *);",
     "the compiler says:", false},
    {"static void call_custom_relu2_f32(", "void call_custom_relu2_f32(",
     "a function that is no 'static void NAME(const FgCustom *call)'", false},
    {CALLED, CALLED "\n" CALLED, "it does more than to hand its call on", false},
    {CALLED, "    fg_custom_in(call, 0);", "it calls something that is no user's function", false},
    {CALLED,
     "    custom_relu2_f32(fg_custom_in(call, 1), fg_custom_in(call, 0), fg_custom_out(call, 2), "
     "call);",
     "it does not hand the operands on in their order", false},
    {"static void call_custom_relu2_back_f32",
     "static void call_again(const FgCustom *call)\n{\n" CALLED "\n}\n\n"
     "static void call_custom_relu2_back_f32",
     "a second function that hands calls on", false},
    {"{\"custom_relu2_f32\", call_custom_relu2_f32,", "{\"custom_relu2_f32\", 0,",
     "a constant for a field is expected", false},
    {"{\"custom_relu2_f32\", call_custom_relu2_f32,",
     "{\"custom_relu2_f32\", call_custom_relu2_back_f32,",
     "it names no user's function, or another one's call", false},
    {"call_custom_relu2_f32, 2, 1}", "call_custom_relu2_f32, 2, 2}",
     "takes 3 operands and results, not 4", false},
    {"call_custom_relu2_f32, 2, 1}", "call_custom_relu2_f32, 1, 2}",
     "operands of custom_relu2_f32 are const", false},
    {"    {\"custom_relu2_f32\", call_custom_relu2_f32, 2, 1},\n", "", "but the table has 1 rows",
     false},
    {".n_customs = 2", ".n_customs = 3", "but the table has 2 rows", false},
    {"    {FG_RT_F32, 0, ", "    {FG_RT_BF16, 0, ", "another element type", false},
    {"    {FG_RT_F32, 0, ", "    {9, 0, ", "an operand of no dtype", false},
    {"    {FG_RT_F32, 1, ", "    {FG_RT_F32, 2, ", "an operand is written (1) or read (0)", false},
    {"    {FG_RT_F32, 0, ", "    {FG_RT_F32, 1, ", "another direction", false},
    {"fg_rt_custom(cx, ", "fg_rt_custom(cx, 0 * ", "calls fg_rt_custom", true},
    {", FG_COMPUTE, 0, 0, 3);", ", FG_COMPUTE, 7, 0, 3);", "there is no custom function 7", false},
    {", FG_COMPUTE, 0, 0, 3);", ", FG_COMPUTE, 0, 0, 2);", "takes 3 operands", false},
    {", FG_COMPUTE, 0, 0, 3);", ", FG_COMPUTE, 0, 900, 3);", "its operands are none", false},
    {"    8, 64, 256, /* operands", "    64, 8, 256, /* operands", "or has another shape", true},
};

/* chain.c, and what calls of chains must keep to; for the host, then for GPUs. */
static const Variant chains = {
    .title = "chains", .model = "tests/data/chains/model.json", .ranks = 2};
static const Variant kernels = {.title = "chains for GPUs",
                                .model = "tests/data/chains/model.json",
                                .machine = "2xT4",
                                .ranks = 2};

#define ONE_MORE                                                                                   \
    "FG_INLINE float value_fused_7(float x0)\n{\n    return x0;\n}\n\n"                            \
    "static void fused_7(const float *x0, float *y, const FgCustom *call)\n{\n"                    \
    "    int64_t n = fg_custom_elements(call, 1);\n    for (int64_t i = 0; i < n; i++)\n"          \
    "        y[i] = value_fused_7(x0[i]);\n}\n\n"
static const Edit chain_edits[] = {
    {"static void call_fused_0",
     "FG_INLINE float value_other(float x0)\n{\n    return x0;\n}\n\nstatic void call_fused_0",
     "a second function of that name, or no chain's", false},
    {"x0 + x1;", "x0 + x1 + x1;", "an element of a chain has another form", false},
    {"i < n;", "i < n - 1;", "the loop of a chain has another form", false},
    {"static void call_fused_0",
     "static void fused_7(float *y, const FgCustom *call)\n{\n}\n\nstatic void call_fused_0",
     "stand in their order, each once", false},
    {"static void fused_0(", "void fused_0(", "the loop of a chain has another form", false},
    {"static void call_fused_0", ONE_MORE "static void call_fused_0",
     "a declared function is in no table", false},
    {"static void call_fused_0",
     "FG_INLINE float value_fused_7(float x0)\n{\n    return x0;\n}\n\nstatic void call_fused_0",
     "a chain that nothing declares", false},
    {"static void call_fused_0",
     "void fused_7(const float *, float *, const FgCustom *);\n\nstatic void call_fused_0",
     "a chain whose function is not there", false},
    {"fg_rt_fused(", "fg_rt_custom(", "the compiler says: too many arguments", false},
    {", FG_COMPUTE, 0, 0, 5, 128);", ", FG_COMPUTE, 0, 0, 5, 129);",
     "its result has another number of elements", false},
    {", FG_COMPUTE, 0, 0, 5, 128);", ", FG_COMPUTE, 9, 0, 5, 128);",
     "there is no chain's function 9", false},
    {", FG_COMPUTE, 0, 0, 5, 128);", ", FG_COMPUTE, 0, 0, 4, 1);", "a chain writes its result",
     false},
    {"x1[i % 16]", "x1[i % 8]", "operand 1 of fused_0 has 16 elements, its function reads 8",
     false},
    {"x1[i % 16]", "x1[i / 8]", "its function does something else than", true},
    {" - x2", " + x2", "its function does something else than", true},
};

static const Edit kernel_edits[] = {
    {"\n#endif\n", "\n", "a part that does not end", false},
    {"\n#else\n", "\n", "a directive;", false},
    {"\n#else\n", "\n#else\nFG_INLINE float value_fused_0(float x0)\n{\n    return x0;\n}\n",
     "a second function of that name", false},
    {"\n#endif\n", "\n#endif\n;\n", "text behind the end of both parts", false},
    {"\n#else\n", "\n#if 1\n", "a directive;", false},
    {"\n#else\n", "\n#else\nstatic int more;\n", "the part for CUDA holds functions of chains",
     false},
    {"\n#else\n", "\n#else\nvoid f(void);\n", "stand in their order, each once", false},
    {"p < packs;", "p < packs + 1;", "a kernel of a chain has another form", false},
    {"fg_chain_blocks(n, packs)", "fg_chain_blocks(n, 0)", "the launch of a chain has another form",
     false},
    {"void fused_0(const float *, const float *,", "void fused_0(const float *, const FgBf16 *,",
     "a chain whose function has other operands", false},
    {"void fused_1(const float *, ", "void fused_1(", "the compiler says:", false},
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

/* With another name everywhere, and with the second operand in the place of the first, a program is
 * well formed, but it is not the plan's. */
static void only_the_plan_tells(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, &custom, &program);
    CHECK(made);
    if (made) {
        const FgRbOperand *rows = program.tables.operands.data;
        const char *first =
            fg_arena_printf(arena, "{FG_RT_F32, 0, %llu,", (unsigned long long)rows[0].offset);
        const char *second =
            fg_arena_printf(arena, "{FG_RT_F32, 0, %llu,", (unsigned long long)rows[1].offset);
        Edit operand = {first, second, "", true};
        Edit name = {"relu2_f32", "rest2_f32", "", true};
        const char *other = edited(arena, program.text, &operand, failures), *text = program.text;
        while (strstr(text, name.from))
            text = edited(arena, text, &name, failures);
        Verdict verdict = program_verdict(arena, other, strlen(other), program.plan);
        CHECK(program_verdict(arena, other, strlen(other), NULL).ok);
        CHECK(!verdict.ok);
        verdict = program_verdict(arena, text, strlen(text), program.plan);
        CHECK(program_verdict(arena, text, strlen(text), NULL).ok);
        CHECK(!verdict.ok && strstr(verdict.said, "it calls another function than"));
    }
    fg_arena_free(arena);
}

static void nothing_is_no_program(int *failures)
{
    FgArena *arena = fg_arena_new();
    static const char text[] = "#include \"fg_rt.h\"\n";
    Verdict verdict = program_verdict(arena, text, sizeof text - 1, NULL);
    CHECK(!verdict.ok && strstr(verdict.said, "there is no program"));
    fg_arena_free(arena);
}

/* Runs first, before the library is there. */
static void libclang_must_load(int *failures)
{
    struct rlimit before, none;
    FgArena *arena = fg_arena_new();
    static const char text[] = "#include \"fg_rt.h\"\n";
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    Verdict verdict = program_verdict(arena, text, sizeof text - 1, NULL);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(!verdict.ok && strstr(verdict.said, "libclang 19 cannot be loaded"));
    fg_arena_free(arena);
}

/* The plan's sizes are its own: one with a dim less than its op needs is no plan of the program. */
static void plans_lack_nothing(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program;
    bool made = program_make(arena, &rotating, &program);
    CHECK(made);
    for (uint32_t i = 0; made && i < program.plan->nodes.len; i++) {
        const FgNode *node = &program.plan->nodes.data[i];
        if (node->op != FG_OP_rope)
            continue;
        FgValue *table = &program.plan->values.data[node->operands[1]];
        FgType *flat = FG_NEW(arena, FgType);
        *flat = *table->type;
        flat->rank = 1;
        int64_t *dims = FG_NEW_ARRAY(arena, int64_t, 1);
        dims[0] = (int64_t)fg_type_elements(table->type);
        flat->dims = dims;
        table->type = flat;
    }
    Verdict verdict = {true, ""};
    if (made) {
        const Edit print = {
            ".fingerprint = ",
            fg_arena_printf(arena, ".fingerprint = %lluu + 0 * ",
                            (unsigned long long)fg_module_fingerprint(program.plan)),
            "", true};
        const char *text = edited(arena, program.text, &print, failures);
        verdict = program_verdict(arena, text, strlen(text), program.plan);
    }
    CHECK(!verdict.ok && strstr(verdict.said, "its plan lacks an operand, or a dim of one"));
    if (!strstr(verdict.said, "its plan lacks"))
        printf("said: %s\n", verdict.said);
    fg_arena_free(arena);
}

/* A plan that is another one in one respect each. */
static void plans_are_the_programs(int *failures)
{
    FgArena *arena = fg_arena_new();
    Program program, other;
    CHECK(program_make(arena, &clipped, &program) && program_make(arena, &rotating, &other));
    if (*failures)
        return;
    size_t len = strlen(program.text);
    Verdict verdict = program_verdict(arena, program.text, len, other.plan);
    CHECK(strstr(verdict.said, "it has other parameters, buckets or inputs than the plan"));
    for (uint32_t i = 0; i < program.plan->nodes.len; i++) {
        FgNode *node = &program.plan->nodes.data[i];
        if (node->op == FG_OP_adamw)
            fg_node_set_int(program.plan, node, "pending", 0);
    }
    const Edit print = {".fingerprint = ",
                        fg_arena_printf(arena, ".fingerprint = %lluu + 0 * ",
                                        (unsigned long long)fg_module_fingerprint(program.plan)),
                        "", true};
    const char *text = edited(arena, program.text, &print, failures);
    verdict = program_verdict(arena, text, strlen(text), program.plan);
    CHECK(strstr(verdict.said, "it adds or belongs elsewhere"));
    for (uint32_t v = 0; v < program.plan->values.len; v++)
        if (program.plan->values.data[v].role == FG_ROLE_SCALARS)
            program.plan->values.data[v].offset += 16;
    verdict = program_verdict(arena, program.text, len, program.plan);
    CHECK(strstr(verdict.said, "its scalars do not lie where the plan puts them"));
    fg_arena_free(arena);
}

static void strides_are_checked(int *failures)
{
    refuses(&strided, strided_edits, sizeof strided_edits / sizeof *strided_edits, failures);
}

static void custom_functions_are_checked(int *failures)
{
    refuses(&custom, custom_edits, sizeof custom_edits / sizeof *custom_edits, failures);
}

static void chains_are_checked(int *failures)
{
    refuses(&chains, chain_edits, sizeof chain_edits / sizeof *chain_edits, failures);
    refuses(&kernels, kernel_edits, sizeof kernel_edits / sizeof *kernel_edits, failures);
}

UNIT_MAIN({"libclang_must_load", libclang_must_load},
          {"every_message_is_seen", every_message_is_seen},
          {"plans_lack_nothing", plans_lack_nothing},
          {"plans_are_the_programs", plans_are_the_programs},
          {"only_the_plan_tells", only_the_plan_tells},
          {"nothing_is_no_program", nothing_is_no_program},
          {"strides_are_checked", strides_are_checked},
          {"custom_functions_are_checked", custom_functions_are_checked},
          {"chains_are_checked", chains_are_checked})
