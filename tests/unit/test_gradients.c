/* Gradients: for each differentiable op a small graph goes through autodiff, the reference
 * interpreter evaluates it, and every parameter's gradient is compared with central differences of
 * the loss, all in double precision.
 *
 * The loss of a case is sum(result * weights) with fixed uneven weights, so that every element of
 * the result counts by itself; autodiff scales it by loss_seed. A case per line: a differentiable
 * op without one fails the walk. */
#include "passes/passes.h"
#include "tests/oracle/reference.h"
#include "tests/unit/graph.h"
#include "tests/unit/unit.h"

#define TOLERANCE 1e-6 /* of the largest gradient of the parameter; measured: below 1e-8 */
#define STEP 1e-5
#define SEED 0.37

/* Operands: a type each; '+' before it: positive values; '=': an input, not a parameter; i32 inputs
 * hold 0, 1, 2, ... modulo 5; '-': omitted. */
typedef struct Case {
    FgOp op;
    const char *operands, *attrs;
} Case;

static const Case op_cases[] = {
    {FG_OP_linear, "f32[3, 4] f32[5, 4]", ""},
    {FG_OP_linear, "f32[2, 3, 4] f32[4, 5] f32[5]", "layout=in_out"},
    {FG_OP_linear, "=f32[2, 3, 4] f32[5, 4] f32[5]", ""},
    {FG_OP_linear, "f32[3, 4] f32[5, 4] - f32[3, 5]", ""},
    {FG_OP_linear, "f32[3, 4] =f32[5, 4] f32[5] f32[3, 5]", ""},
    {FG_OP_matmul, "f32[2, 3, 4] f32[2, 4, 5]", ""},
    {FG_OP_matmul, "f32[2, 4, 3] f32[2, 4, 5]", "ta=1"},
    {FG_OP_matmul, "f32[3, 4] f32[5, 4]", "tb=1"},
    {FG_OP_matmul, "f32[2, 4, 3] f32[2, 5, 4]", "ta=1 tb=1"},
    {FG_OP_embedding, "=i32[2, 4] f32[5, 3]", ""},
    {FG_OP_embedding, "=i32[7] f32[6, 3]", ""},
    {FG_OP_rmsnorm, "f32[3, 4] f32[4]", ""},
    {FG_OP_rmsnorm, "f32[2, 3, 4] f32[4]", "eps=0.5"},
    {FG_OP_rmsnorm, "=f32[3, 4] f32[4]", ""},
    {FG_OP_rmsnorm, "f32[3, 4] =f32[4]", ""},
    {FG_OP_layernorm, "f32[3, 4] f32[4]", ""},
    {FG_OP_layernorm, "=f32[3, 4] =f32[4] f32[4]", ""},
    {FG_OP_layernorm, "f32[3, 4] =f32[4] f32[4]", ""},
    {FG_OP_layernorm, "f32[2, 3, 4] f32[4] f32[4]", "eps=0.5"},
    {FG_OP_rope, "f32[2, 3, 2, 4] =f32[2, 3, 2]", ""},
    {FG_OP_rope, "f32[1, 3, 2, 6] =f32[2, 3, 2]", "inverse=1"},
    {FG_OP_attention, "f32[2, 3, 2, 4] f32[2, 3, 2, 4] f32[2, 3, 2, 4]", ""},
    {FG_OP_attention, "f32[1, 4, 4, 2] f32[1, 4, 2, 2] f32[1, 4, 2, 2]", "window=2 scale=0.3"},
    {FG_OP_attention, "f32[1, 2, 2, 2] f32[1, 5, 1, 2] f32[1, 5, 1, 2]", "causal=1"},
    {FG_OP_attention, "f32[1, 3, 2, 2] f32[1, 4, 1, 2] f32[1, 4, 1, 2]", "causal=0"},
    {FG_OP_neg, "f32[6]", ""},
    {FG_OP_exp, "f32[6]", ""},
    {FG_OP_log, "+f32[6]", ""},
    {FG_OP_sqrt, "+f32[6]", ""},
    {FG_OP_rsqrt, "+f32[6]", ""},
    {FG_OP_tanh, "f32[6]", ""},
    {FG_OP_sigmoid, "f32[6]", ""},
    {FG_OP_relu, "f32[6]", ""},
    {FG_OP_silu, "f32[6]", ""},
    {FG_OP_gelu, "f32[6]", ""},
    {FG_OP_gelu_tanh, "f32[6]", ""},
    {FG_OP_scale, "f32[6]", "factor=-1.5"},
    {FG_OP_gated, "f32[2, 3] f32[2, 3]", "kind=silu"},
    {FG_OP_gated, "f32[6] =f32[6]", "kind=gelu_tanh"},
    {FG_OP_add_scalar, "f32[6]", "value=2.5"},
    {FG_OP_pow, "+f32[6]", "exponent=2.5"},
    {FG_OP_add, "f32[3, 4] f32[3, 4]", ""},
    {FG_OP_add, "f32[2, 3, 4] f32[3, 1]", ""},
    {FG_OP_add, "f32[4] f32[2, 3, 4]", ""},
    {FG_OP_sub, "f32[3, 4] f32[4]", ""},
    {FG_OP_sub, "f32[1, 4] f32[3, 1]", ""},
    {FG_OP_mul, "f32[3, 4] f32[3, 4]", ""},
    {FG_OP_mul, "f32[2, 3, 4] f32[]", ""},
    {FG_OP_mul, "f32[2, 1, 4] =f32[3, 1]", ""},
    {FG_OP_div, "f32[3, 4] +f32[3, 4]", ""},
    {FG_OP_div, "f32[4] +f32[3, 1]", ""},
    {FG_OP_div, "=f32[4] +f32[4]", ""},
    {FG_OP_cast, "f32[4]", "to=bf16"},
    {FG_OP_reshape, "f32[3, 4]", "shape=2,-1"},
    {FG_OP_transpose, "f32[2, 3, 4]", "perm=2,0,1"},
    {FG_OP_broadcast, "f32[3, 1]", "shape=2,3,4"},
    {FG_OP_slice, "f32[3, 4]", "axis=1 start=1 count=2"},
    {FG_OP_slice, "f32[3, 4, 2]", "axis=-3 start=2 count=1"},
    {FG_OP_concat, "f32[3, 4] f32[3, 2]", "axis=1"},
    {FG_OP_concat, "f32[1, 2] =f32[3, 2]", "axis=0"},
    {FG_OP_sum, "f32[3, 4]", ""},
    {FG_OP_sum, "f32[3, 4, 2]", "axes=0,2"},
    {FG_OP_sum, "f32[3, 4, 2]", "axes=-2 keep=1"},
    {FG_OP_mean, "f32[3, 4]", ""},
    {FG_OP_mean, "f32[3, 4, 2]", "axes=1"},
    {FG_OP_softmax, "f32[3, 4]", ""},
    {FG_OP_custom, "f32[2, 3] f32[2, 3]",
     "function=custom_pair source=x.c dtypes=f32+f32 shapes=2,2,3,2,2,3 gradient=custom_pair_back "
     "takes=0,1,4,5 returns=0,1"},
    {FG_OP_custom, "f32[6] =f32[6]",
     "function=custom_pair source=x.c dtypes=f32+f32 shapes=1,6,1,6 gradient=custom_pair_back "
     "takes=0,1,4,5 returns=0,1"},
    {FG_OP_cross_entropy, "f32[3, 5] =i32[3]", ""},
    {FG_OP_cross_entropy, "f32[2, 3, 5] =i32[2, 3] =f32[]", "ignore_index=2"},
};

/* ---- values ---- */

/* Uneven numbers in (-1, 1), or in (0.5, 1.5), alike in every run and nowhere near 0. */
static double element(uint32_t value, int64_t i, bool positive)
{
    uint64_t x = ((uint64_t)value * 7919 + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    double unit = (double)(x >> 40) / (double)(1 << 24);
    if (positive)
        return 0.5 + unit;
    return unit < 0.5 ? unit - 1 : unit;
}

static void fill(RefRun *run, uint32_t value, bool positive)
{
    const FgType *type = run->module->values.data[value].type;
    for (int64_t i = 0; i < fg_type_elements(type); i++)
        run->values[value][i] =
            type->dtype == FG_I32 ? (double)(i % 5) : element(value, i, positive);
}

/* ---- the comparison ---- */

static FgPassResult run_pass(FgModule *m, FgPassFn *pass)
{
    FgPassCx cx = {.module = m, .scratch = fg_arena_new(), .option = ""};
    FgPassResult result = pass(&cx);
    fg_arena_free(cx.scratch);
    return result;
}

static bool autodiff(Graph *g, int *failures)
{
    FgPassResult result = run_pass(g->module, fg_pass_autodiff);
    CHECK(result == FG_PASS_CHANGED);
    CHECK(fg_module_verify(g->module));
    if (result == FG_PASS_FAILED || fg_diags_errors(g->diags))
        printf("%s", graph_errors(g));
    return result == FG_PASS_CHANGED;
}

static double loss_of(Graph *g, RefRun *run, int *failures)
{
    CHECK(ref_run(g->arena, run));
    return run->values[g->module->loss][0];
}

static void compare_param(Graph *g, RefRun *run, uint32_t p, const char *what, int *failures)
{
    const FgParam *param = &g->module->params.data[p];
    int64_t n = fg_type_elements(param->type);
    double *w = run->values[param->value], worst = 0, largest = 0;
    double *grad = FG_NEW_ARRAY(g->arena, double, (size_t)n);
    loss_of(g, run, failures);
    CHECK(run->grads[p] != NULL);
    if (!run->grads[p])
        return;
    memcpy(grad, run->grads[p], (size_t)n * sizeof *grad);
    for (int64_t i = 0; i < n; i++) {
        double at = w[i];
        w[i] = at + STEP;
        double above = loss_of(g, run, failures);
        w[i] = at - STEP;
        double slope = (above - loss_of(g, run, failures)) / (2 * STEP);
        w[i] = at;
        worst = fmax(worst, fabs(slope - grad[i]));
        largest = fmax(largest, fabs(slope));
    }
    if (!(worst <= TOLERANCE * fmax(largest, 1e-3))) {
        printf("%s: gradient of %s is off by %.3g, largest %.3g\n", what, param->name, worst,
               largest);
        ++*failures;
    }
}

static void compare_all(Graph *g, RefRun *run, const char *what, int *failures)
{
    for (uint32_t p = 0; p < g->module->params.len; p++) {
        if (g->module->params.data[p].trainable)
            compare_param(g, run, p, what, failures);
    }
}

/* ---- one op ---- */

typedef struct Operands {
    uint32_t ids[8], n;
    bool positive[8];
} Operands;

static Operands make_operands(Graph *g, const char *text)
{
    Operands in = {.n = 0};
    for (const char *s = text; *s && in.n < 8; s += strspn(s, " ")) {
        const char *name = fg_arena_printf(g->arena, "p%u", in.n);
        in.positive[in.n] = *s == '+';
        bool input = *s == '=';
        if (*s == '-') {
            in.ids[in.n++] = FG_NO_ID;
            s++;
            continue;
        }
        s += *s == '+' || *s == '=';
        const FgType *type = graph_type(g, &s);
        if (!type)
            FG_BUG("no type in '%s'", text);
        in.ids[in.n++] = input ? graph_input(g, name, type) : graph_param(g, name, type, true);
    }
    return in;
}

static void run_case(const Case *c, int *failures)
{
    Graph g = graph_new();
    Operands in = make_operands(&g, c->operands);
    uint32_t y = graph_node(&g, c->op, in.ids, in.n, c->attrs);
    const char *what =
        fg_arena_printf(g.arena, "%s %s {%s}", fg_op_info(c->op)->name, c->operands, c->attrs);
    CHECK(y != FG_NO_ID);
    if (y == FG_NO_ID) {
        printf("%s: %s", what, graph_errors(&g));
        return;
    }
    uint32_t weights = graph_input(&g, "weights", fg_value(g.module, y)->type);
    uint32_t weighted = graph_node(&g, FG_OP_mul, (uint32_t[]){y, weights}, 2, "");
    g.module->loss = graph_node(&g, FG_OP_sum, &weighted, 1, "");
    if (autodiff(&g, failures)) {
        RefRun run = ref_run_new(g.arena, g.module, SEED);
        for (uint32_t i = 0; i < in.n; i++)
            if (in.ids[i] != FG_NO_ID)
                fill(&run, in.ids[i], in.positive[i]);
        fill(&run, weights, false);
        compare_all(&g, &run, what, failures);
    }
    graph_free(&g);
}

static void each_op(int *failures)
{
    for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++)
        run_case(&op_cases[i], failures);
}

static void every_differentiable_op_has_a_case(int *failures)
{
    for (uint32_t op = 0; op < FG_N_OPS; op++) {
        bool found = fg_op_info((FgOp)op)->grad == NULL;
        for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++)
            found |= op_cases[i].op == (FgOp)op;
        if (!found) {
            printf("%s has a gradient and no case\n", fg_op_info((FgOp)op)->name);
            ++*failures;
        }
    }
}

/* ---- a transformer ---- */

typedef struct Block {
    Graph g;
    uint32_t tokens, labels, h;
} Block;

static uint32_t param(Block *b, const char *name, const char *type)
{
    const char *full = fg_arena_printf(b->g.arena, "%s.%d", name, b->g.build.layer);
    return graph_param(&b->g, full, graph_type(&b->g, &type), true);
}

static uint32_t unary(Block *b, FgOp op, uint32_t x, const char *attrs)
{
    return graph_node(&b->g, op, &x, 1, attrs);
}

static uint32_t binary(Block *b, FgOp op, uint32_t x, uint32_t y)
{
    return graph_node(&b->g, op, (uint32_t[]){x, y}, 2, "");
}

static uint32_t project(Block *b, const char *name, const char *type, uint32_t x)
{
    return binary(b, FG_OP_linear, x, param(b, name, type));
}

/* Width 8, two query heads and one key head of 4, two rows of 3 tokens. Each layer has a rope table
 * of its own and takes a detour in its shapes: work for cse and canon. */
static void add_layer(Block *b, int32_t layer)
{
    b->g.build.layer = layer;
    uint32_t n = binary(b, FG_OP_rmsnorm, b->h, param(b, "norm1", "f32[8]"));
    uint32_t table = graph_node(&b->g, FG_OP_rope_table, NULL, 0, "seq=3 half=2");
    uint32_t q = unary(b, FG_OP_reshape, project(b, "q", "f32[8, 8]", n), "shape=6,-1");
    q = unary(b, FG_OP_reshape, q, "shape=2,3,2,4");
    uint32_t k = unary(b, FG_OP_reshape, project(b, "k", "f32[4, 8]", n), "shape=2,3,1,4");
    uint32_t v = unary(b, FG_OP_reshape, project(b, "v", "f32[4, 8]", n), "shape=2,3,1,4");
    q = binary(b, FG_OP_rope, q, table);
    k = binary(b, FG_OP_rope, k, table);
    uint32_t o = graph_node(&b->g, FG_OP_attention, (uint32_t[]){q, k, v}, 3, "");
    o = project(b, "o", "f32[8, 8]", unary(b, FG_OP_reshape, o, "shape=2,3,8"));
    uint32_t h = binary(b, FG_OP_add, b->h, o);
    n = binary(b, FG_OP_rmsnorm, h, param(b, "norm2", "f32[8]"));
    uint32_t gate = unary(b, FG_OP_silu, project(b, "gate", "f32[12, 8]", n), "");
    uint32_t up = project(b, "up", "f32[12, 8]", n);
    uint32_t down = project(b, "down", "f32[8, 12]", binary(b, FG_OP_mul, gate, up));
    b->h = binary(b, FG_OP_add, h, down);
    b->g.build.layer = -1;
}

/* Embedding tied to the head, two layers, cross-entropy with ignored labels. */
static Block transformer(void)
{
    Block b = {.g = graph_new()};
    const char *ids = "i32[2, 3]", *other = ids;
    b.tokens = graph_input(&b.g, "tokens", graph_type(&b.g, &ids));
    b.labels = graph_input(&b.g, "labels", graph_type(&b.g, &other));
    uint32_t w = param(&b, "embed", "f32[7, 8]");
    b.h = binary(&b, FG_OP_embedding, b.tokens, w);
    add_layer(&b, 0);
    add_layer(&b, 1);
    uint32_t n = binary(&b, FG_OP_rmsnorm, b.h, param(&b, "norm", "f32[8]"));
    uint32_t logits = binary(&b, FG_OP_linear, n, w);
    uint32_t seed = graph_node(&b.g, FG_OP_loss_seed, NULL, 0, "");
    b.g.module->loss = graph_node(&b.g, FG_OP_cross_entropy, (uint32_t[]){logits, b.labels, seed},
                                  3, "ignore_index=2");
    return b;
}

static RefRun filled_run(Block *b)
{
    RefRun run = ref_run_new(b->g.arena, b->g.module, SEED);
    for (uint32_t p = 0; p < b->g.module->params.len; p++)
        fill(&run, b->g.module->params.data[p].value, false);
    fill(&run, b->tokens, false);
    fill(&run, b->labels, false);
    return run;
}

static void whole_transformer(int *failures)
{
    Block b = transformer();
    if (autodiff(&b.g, failures)) {
        RefRun run = filled_run(&b);
        compare_all(&b.g, &run, "transformer", failures);
    }
    graph_free(&b.g);
}

static void compare_bits(Block *a, Block *b, int *failures)
{
    RefRun one = filled_run(a), other = filled_run(b);
    FgModule *m = a->g.module;
    CHECK(ref_run(a->g.arena, &one) && ref_run(b->g.arena, &other));
    for (uint32_t p = 0; p < m->params.len; p++) {
        size_t bytes = (size_t)fg_type_elements(m->params.data[p].type) * sizeof(double);
        CHECK(one.grads[p] && other.grads[p] && memcmp(one.grads[p], other.grads[p], bytes) == 0);
    }
}

/* Recomputing changes where values are made, not what they are: gradients agree to the last bit. */
static void recompute_changes_no_gradient(int *failures)
{
    Block plain = transformer(), again = transformer();
    CHECK(autodiff(&plain.g, failures) && autodiff(&again.g, failures));
    FgModule *m = again.g.module;
    m->plan = FG_NEW(m->arena, FgPlan);
    *m->plan = (FgPlan){.name = "test", .recompute = FG_RECOMPUTE_FULL};
    CHECK(run_pass(m, fg_pass_recompute) == FG_PASS_CHANGED);
    CHECK(fg_module_verify(m));
    CHECK(run_pass(m, fg_pass_recompute) == FG_PASS_UNCHANGED);
    compare_bits(&plain, &again, failures);
    graph_free(&plain.g);
    graph_free(&again.g);
}

static void simplifying_changes_no_gradient(int *failures)
{
    Block plain = transformer(), simple = transformer();
    FgModule *m = simple.g.module;
    uint32_t before = fg_func(m, "step")->order.len;
    CHECK(run_pass(m, fg_pass_canon) == FG_PASS_CHANGED);
    CHECK(run_pass(m, fg_pass_cse) == FG_PASS_CHANGED);
    CHECK(run_pass(m, fg_pass_dce) == FG_PASS_CHANGED);
    CHECK_EQ_U64(fg_func(m, "step")->order.len, before - 3); /* one table, two reshapes */
    CHECK(run_pass(m, fg_pass_canon) == FG_PASS_UNCHANGED);
    CHECK(run_pass(m, fg_pass_cse) == FG_PASS_UNCHANGED);
    CHECK(run_pass(m, fg_pass_dce) == FG_PASS_UNCHANGED);
    CHECK(autodiff(&plain.g, failures) && autodiff(&simple.g, failures));
    compare_bits(&plain, &simple, failures);
    graph_free(&plain.g);
    graph_free(&simple.g);
}

UNIT_MAIN({"each_op", each_op},
          {"every_differentiable_op_has_a_case", every_differentiable_op_has_a_case},
          {"whole_transformer", whole_transformer},
          {"recompute_changes_no_gradient", recompute_changes_no_gradient},
          {"simplifying_changes_no_gradient", simplifying_changes_no_gradient})
