/* Code generation: the op table's CALL column against the runtime's call table, row by row;
 * layouts; a tiny module emitted. */
#include "codegen/args.h"
#include "codegen/codegen.h"
#include "codegen/ctext.h"
#include "codegen/layout.h"
#include "passes/lower.h"
#include "runtime/fg_rt.h"
#include "tests/unit/unit.h"

typedef struct Call {
    const char *name, *params, *fparams;
} Call;

static const Call calls[] = {
#define FG_RT_CALL(name, effects, params, args) {#name, #params, ""},
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs) {#name, #params, #fparams},
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F
    {"release", "(uint64_t buffer, uint64_t bytes)", ""},
};
#define N_CALLS (sizeof calls / sizeof *calls)

static void add_kinds(FgBuf *out, const char *params, const char *type, const char *kind)
{
    for (const char *p = params; (p = strstr(p, type)); p += strlen(type))
        fg_buf_puts(out, kind);
}

static const char *kinds_of(FgArena *arena, const Call *call)
{
    FgBuf kinds;
    fg_buf_init(&kinds, arena);
    add_kinds(&kinds, call->params, "uint64_t ", "i");
    add_kinds(&kinds, call->fparams, "double ", "f");
    return fg_buf_text(&kinds);
}

static const Call *find_call(const char *name)
{
    for (size_t i = 0; i < N_CALLS; i++) {
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    }
    return NULL;
}

/* Every row's arguments are those that its runtime entry takes. */
static void rows_agree(int *failures)
{
    FgArena *arena = fg_arena_new();
    for (uint32_t i = 0; i < FG_N_OPS; i++) {
        const FgOpInfo *info = fg_op_info((FgOp)i);
        if (!info->call)
            continue;
        const char *wrong = "";
        const char *kinds = fg_call_kinds(arena, info, &wrong);
        const Call *call = find_call(info->call);
        if (!kinds || !call) {
            printf("%s: %s '%s'\n", info->name, kinds ? "no entry" : "cannot read", wrong);
            ++*failures;
        } else if (strcmp(kinds, kinds_of(arena, call)) != 0) {
            printf("%s: arguments %s, but fg_rt_%s takes %s\n", info->name, kinds, info->call,
                   kinds_of(arena, call));
            ++*failures;
        }
    }
    fg_arena_free(arena);
}

static void every_call_has_an_op(int *failures)
{
    for (size_t c = 0; c < N_CALLS; c++) {
        bool used = false;
        for (uint32_t i = 0; i < FG_N_OPS; i++) {
            const char *call = fg_op_info((FgOp)i)->call;
            used = used || (call && strcmp(call, calls[c].name) == 0);
        }
        if (!used)
            printf("no op calls fg_rt_%s\n", calls[c].name);
        CHECK(used);
    }
}

static void bad_words(int *failures)
{
    static const char *const bad[] = {"i9",           "n(i7)",     "nonsense",
                                      "dim(i0,what)", "layout(x)", "ratio(i0)",
                                      "n(",           "scale(i0)", "1"};
    FgArena *arena = fg_arena_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FgOpInfo info = *fg_op_info(FG_OP_linear);
        info.call_args = bad[i];
        const char *wrong = NULL;
        CHECK(!fg_call_kinds(arena, &info, &wrong));
        CHECK_STR(wrong, bad[i]);
    }
    fg_arena_free(arena);
}

static void literals(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgBuf out;
    fg_buf_init(&out, arena);
    fg_c_string(&out, "a\"b\\c\n1?"
                      "?/\xc3\xa9");
    fg_c_comment(&out, " a */ b /* c\n");
    fg_c_u64(&out, (uint64_t)-100);
    CHECK_STR(fg_buf_text(&out), "\"a\\\"b\\\\c\\0121\\077?/\\303\\251\" a ?/ b ?* c?"
                                 "18446744073709551516u");
    fg_arena_free(arena);
}

/* ---- a module by hand ---- */
typedef struct Tiny {
    FgArena *arena;
    FgModule *m;
    FgBuilder build;
} Tiny;

static Tiny tiny_new(void)
{
    FgArena *arena = fg_arena_new();
    FgModule *m = fg_module_new(arena, fg_diags_new(arena), "tiny");
    m->numerics = (FgNumerics){.accumulate = 1};
    return (Tiny){arena, m, {.module = m, .name = "", .layer = -1, .origin = FG_NO_ID}};
}

static uint32_t state(Tiny *t, FgDtype dtype, uint32_t rank, const int64_t *dims, FgRole role,
                      uint64_t at)
{
    uint32_t v =
        fg_add_state(t->m, "s", fg_type(t->m, dtype, rank, dims), role, 0, FG_MEM_CONSTANTS);
    fg_value(t->m, v)->offset = at;
    return v;
}

static FgNode *last_node(Tiny *t)
{
    return fg_node(t->m, t->m->nodes.len - 1);
}

static FgArgs args_of(Tiny *t, FgArgsCx *cx)
{
    FgArgs args = {0};
    for (uint32_t i = 0; i < t->m->values.len; i++) {
        FgValue *v = fg_value(t->m, i);
        if (v->root == v->id && v->offset == FG_NO_OFFSET)
            v->offset = 1000 * i;
    }
    fg_args_cx_init(cx, t->arena, t->m);
    fg_node_args(cx, last_node(t), &args);
    return args;
}

static void matmul_arguments(int *failures)
{
    Tiny t = tiny_new();
    FgIdVec order = {0};
    t.build.order = &order;
    uint32_t a = state(&t, FG_F32, 3, (int64_t[]){6, 5, 4}, FG_ROLE_TABLE, 0);
    uint32_t b = state(&t, FG_F32, 3, (int64_t[]){6, 5, 7}, FG_ROLE_TABLE, 480);
    uint32_t ws = state(&t, FG_F32, 1, (int64_t[]){64}, FG_ROLE_WORKSPACE, 4096);
    FgNode *node = fg_node_new(&t.build, FG_OP_matmul, (uint32_t[]){a, b}, 2);
    fg_node_set_int(t.m, node, "ta", true);
    CHECK(fg_node_finish(&t.build, node, "y") != FG_NO_ID);
    FgArgsCx cx;
    FgArgs args = args_of(&t, &cx);
    static const uint64_t want[] = {0, 480, 0, 6, 4, 7, 5, 1, 0, FG_RT_F32, 4096, 256};
    CHECK_EQ_U64(args.len, sizeof want / sizeof *want);
    for (uint32_t i = 0; i < args.len; i++) {
        if (i != 2)
            CHECK_EQ_U64(args.data[i].u, want[i]);
    }
    CHECK_EQ_U64(fg_value(t.m, ws)->offset, 4096);
    fg_arena_free(t.arena);
}

static void check_layout(int *failures, const FgArgsCx *cx, uint64_t at, const int64_t *want,
                         uint32_t n)
{
    CHECK(at + n <= cx->layouts.len);
    for (uint32_t i = 0; i < n && at + i < cx->layouts.len; i++)
        CHECK_EQ_U64(cx->layouts.data[at + i], want[i]);
}

/* x[2,3,4] + b[4]: the two leading dimensions are walked as one. */
static void broadcast_layout(int *failures)
{
    Tiny t = tiny_new();
    FgIdVec order = {0};
    t.build.order = &order;
    uint32_t x = state(&t, FG_F32, 3, (int64_t[]){2, 3, 4}, FG_ROLE_TABLE, 0);
    uint32_t b = state(&t, FG_F32, 1, (int64_t[]){4}, FG_ROLE_TABLE, 96);
    FgNode *node = fg_node_new(&t.build, FG_OP_add, (uint32_t[]){x, b}, 2);
    CHECK(fg_node_finish(&t.build, node, "y") != FG_NO_ID);
    FgArgsCx cx;
    FgArgs args = args_of(&t, &cx);
    CHECK_STR(args.data[0].symbol, "FG_RT_ADD");
    check_layout(failures, &cx, args.data[7].u, (int64_t[]){2, 6, 4, 4, 1, 0, 1}, 7);
    fg_arena_free(t.arena);
}

static void transpose_and_reduce_layouts(int *failures)
{
    Tiny t = tiny_new();
    FgIdVec order = {0};
    t.build.order = &order;
    uint32_t x = state(&t, FG_F32, 4, (int64_t[]){2, 3, 4, 5}, FG_ROLE_TABLE, 0);
    FgNode *node = fg_node_new(&t.build, FG_OP_transpose, &x, 1);
    fg_node_set_ints(t.m, node, "perm", (int64_t[]){0, 2, 1, 3}, 4);
    CHECK(fg_node_finish(&t.build, node, "y") != FG_NO_ID);
    FgArgsCx cx;
    FgArgs args = args_of(&t, &cx);
    check_layout(failures, &cx, args.data[4].u, (int64_t[]){4, 2, 4, 3, 5, 60, 5, 20, 1}, 9);
    node = fg_node_new(&t.build, FG_OP_mean, &x, 1);
    fg_node_set_ints(t.m, node, "axes", (int64_t[]){-1, 1}, 2);
    CHECK(fg_node_finish(&t.build, node, "z") != FG_NO_ID);
    args = args_of(&t, &cx);
    check_layout(failures, &cx, args.data[4].u,
                 (int64_t[]){4, 2, 3, 4, 5, 60, 20, 5, 1, 4, 0, 1, 0}, 13);
    CHECK(args.data[6].is_float);
    CHECK_NEAR(args.data[6].f, 1.0 / 15, 0);
    fg_arena_free(t.arena);
}

/* ---- a whole file ---- */
static void emitted_file(int *failures)
{
    Tiny t = tiny_new();
    FgIdVec order = {0};
    t.build.order = &order;
    t.m->level = FG_LEVEL_SCHED;
    t.m->ranks = 2;
    uint32_t x = state(&t, FG_F32, 1, (int64_t[]){4}, FG_ROLE_TABLE, 0);
    state(&t, FG_F32, 1, (int64_t[]){32}, FG_ROLE_SCALARS, 256);
    state(&t, FG_F64, 0, NULL, FG_ROLE_LOSS, 512);
    t.build.name = "twice */";
    FgNode *node = fg_node_new(&t.build, FG_OP_scale, &x, 1);
    fg_node_set_float(t.m, node, "factor", 2);
    uint32_t y = fg_node_finish(&t.build, node, "y");
    t.build.name = "negated";
    t.build.phase = FG_PHASE_BACKWARD;
    t.build.layer = 3;
    uint32_t z = fg_node_finish(&t.build, fg_node_new(&t.build, FG_OP_neg, &y, 1), "z");
    fg_value(t.m, y)->offset = 768;
    fg_value(t.m, z)->offset = 1024;
    last_node(&t)->stream = FG_STREAM_REDUCE;
    last_node(&t)->waits = &order.data[0];
    last_node(&t)->n_waits = 1;
    FgNode *third = fg_node_new(&t.build, FG_OP_neg, &z, 1);
    uint32_t w = fg_node_finish(&t.build, third, "w");
    fg_value(t.m, w)->offset = 1280;
    fg_add_func(t.m, "step")->order = order;
    FgEmitRow row = {"constants", 640};
    FgEmitInfo info = {"1.2", "tiny.json", 0xabc, 5.5, 1u << 20, 4096, 0, &row, 1, false};
    FgBuf out;
    fg_buf_init(&out, t.arena);
    fg_emit_c(t.arena, t.m, &info, &out);
    const char *text = fg_buf_text(&out);
    static const char *const want[] = {
        "static void step_start(FgRtCx *cx)\n{\n"
        "    fg_rt_unary(cx, 0, FG_COMPUTE, FG_RT_SCALE, 0, 768, 4, FG_RT_F32, 2.0); /* twice ?/ "
        "*/\n"
        "    fg_rt_record(cx, FG_COMPUTE, 0);\n"
        "    fg_rt_wait(cx, FG_REDUCE, 0);\n"
        "    fg_rt_unary(cx, 1, FG_REDUCE, FG_RT_NEG, 768, 1024, 4, FG_RT_F32, 0.0); /* negated "
        "*/\n}\n",
        "static void step_backward_layer_3(FgRtCx *cx)\n{\n",
        "static void body_step(FgRtCx *cx)\n{\n    step_start(cx);\n    "
        "step_backward_layer_3(cx);\n"
        "    fg_rt_join(cx);\n}\n",
        "static void body_init(FgRtCx *cx)\n{\n    fg_rt_join(cx);\n}\n",
        "    .first = body_step,\n",
        "    .scalars = 256,\n    .loss = 512,\n    .norm = FG_RT_NONE,\n",
        "    .n_events = 1,\n",
        "    {\"constants\", 640},\n",
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        if (!strstr(text, want[i]))
            printf("not in the emitted text:\n%s\n", want[i]);
        CHECK(strstr(text, want[i]) != NULL);
    }
    if (*failures)
        printf("%s", text);
    fg_arena_free(t.arena);
}

static void versions_agree(int *failures)
{
    CHECK_EQ_U64(FG_CODEGEN_ABI, FG_RT_ABI);
    CHECK_EQ_U64(FG_SCALARS, FG_RT_SCALARS);
    CHECK_EQ_U64(FG_SCALER, FG_RT_SCALER);
    CHECK_EQ_U64(FG_SEED_SLOT, FG_RT_CURRENT * FG_RT_SET + FG_RT_S_SEED);
    CHECK_EQ_U64(FG_NORM_LIMBS, FG_RT_NORM_LIMBS);
    CHECK_EQ_U64(FG_STREAM_REDUCE, FG_REDUCE);
    CHECK_EQ_U64(FG_I64, FG_RT_I64);
    /* The choices of unary_back's `kind` are FgRtUnary's, in its order. */
    const FgAttrSpec *kind = &fg_op_info(FG_OP_unary_back)->attrs[0];
    CHECK_STR(kind->choices, "neg exp log sqrt rsqrt tanh sigmoid relu silu gelu gelu_tanh scale "
                             "add_scalar pow");
    CHECK_EQ_U64(FG_RT_POW, 13);
}

UNIT_MAIN({"rows_agree", rows_agree}, {"every_call_has_an_op", every_call_has_an_op},
          {"bad_words", bad_words}, {"literals", literals}, {"matmul_arguments", matmul_arguments},
          {"broadcast_layout", broadcast_layout},
          {"transpose_and_reduce_layouts", transpose_and_reduce_layouts},
          {"emitted_file", emitted_file}, {"versions_agree", versions_agree})
