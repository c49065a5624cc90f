/* Ladders of recomputed sets: their order against prices found by hand, their figures against what
 * the sets themselves add up to, and the time they take. */
#include "base/arena.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"
#include "passes/lower.h"
#include "passes/recompute.h"
#include "tests/unit/unit.h"

#include <time.h>

/* Memory 1e9 bytes a second, 1e9 flops, no launch cost: seconds of an element-wise op on 1,000
 * bytes in and out are 2e-6. */
static FgMachine plain_machine(FgArena *arena)
{
    FgMachine m = {.name = "plain", .ranks = 2, .ranks_per_node = 2, .memory_bytes = 1u << 30};
    m.matmul_f32 = m.matmul_bf16 = m.matmul_f16 = 1e9;
    m.vector_flops = 1e12;
    m.memory_rate = 1e9;
    FgCurvePoint points[] = {{0, 2e-6}, {1e6, 5e-3}};
    for (int i = 0; i < 2; i++) {
        fg_vec_push(arena, &m.gather, points[i]);
        fg_vec_push(arena, &m.reduce, points[i]);
    }
    return m;
}

/* Two layers alike: a norm, a product of it that backward does not read, a relu of the product, an
 * add on top. Backward reads norm and relu of each. */
#define LAYER(i, x, n, y, r, h)                                                                    \
    "  %" n " : f32[50, 10] = rmsnorm %" x ", %g.0 layer(" i ")\n"                                 \
    "  %" y " : f32[50, 10] = linear %" n ", %w.1 layer(" i ")\n"                                  \
    "  %" r " : f32[50, 10] = relu %" y " layer(" i ")\n"                                          \
    "  %" h " : f32[50, 10] = add %" x ", %" r " layer(" i ")\n"
#define BACK(i, x, n, r, t, u)                                                                     \
    "  %" t " : f32[50, 10] = mul %" n ", %" r " phase(backward) layer(" i ")\n"                   \
    "  %" u " : f32[50, 10] = mul %" t ", %" x " phase(backward) layer(" i ")\n"
#define TWO_LAYERS                                                                                 \
    "module @two level(graph)\n"                                                                   \
    "param 0 @g : f32[10] trainable value(%g.0)\n"                                                 \
    "param 1 @w : f32[10, 10] trainable value(%w.1)\n"                                             \
    "input 0 @x : f32[50, 10] value(%x.2)\n"                                                       \
    "loss %l.11\n"                                                                                 \
    "func @step {\n" LAYER("0", "x.2", "n.3", "y.4", "r.5", "h.6")                                 \
        LAYER("1", "h.6", "n.7", "y.8", "r.9", "h.10") "  %l.11 : f32[] = sum %h.10\n"

static FgModule *parsed(FgArena *arena, const char *text, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgModule *m = fg_module_parse(arena, diags, "test.fg", text, strlen(text));
    CHECK(m != NULL && fg_module_verify(m));
    return m;
}

/* "none; #0; #0 #4; ..." */
static const char *ladder_text(FgArena *arena, const FgLadder *ladder)
{
    FgBuf out;
    fg_buf_init(&out, arena);
    for (uint32_t i = 0; i < ladder->rungs.len; i++) {
        FgPlan plan = {0};
        fg_recompute_apply(ladder, i, &plan, arena);
        fg_buf_puts(&out, i ? "; " : "");
        if (plan.recompute != FG_RECOMPUTE_SELECTIVE)
            fg_buf_puts(&out, plan.recompute == FG_RECOMPUTE_FULL ? "full" : "none");
        for (uint32_t k = 0; k < plan.recomputed.len; k++)
            fg_buf_printf(&out, "%s#%u", k ? " " : "", plan.recomputed.data[k]);
    }
    return fg_buf_text(&out);
}

/* The norm moves 4,040 bytes for 2,000; the relu alone would leave its operand to be kept, which
 * gains nothing, so that it costs its product too. First layers go first. */
static void cheapest_first(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine machine = plain_machine(arena);
    FgModule *m = parsed(arena,
                         TWO_LAYERS BACK("1", "h.6", "n.7", "r.9", "t.12", "u.13")
                             BACK("0", "x.2", "n.3", "r.5", "t.14", "u.15") "}\n",
                         failures);
    FgLadder ladder;
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_AUTO, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "none; #0; #0 #4; #0 #1 #2 #4; #0 #1 #2 #4 #5 #6; full");
    const FgRung *rungs = ladder.rungs.data;
    CHECK(rungs[0].bytes == 0 && !(rungs[0].seconds > 0));
    CHECK_EQ_U64(rungs[1].bytes, 2000);
    CHECK_NEAR(rungs[1].seconds, 4.04e-6, 1e-12);
    CHECK_EQ_U64(rungs[2].bytes, 4000);
    CHECK_EQ_U64(rungs[3].bytes, 6000);
    /* the product: 2 * 50 * 10 * 10 flops; the relu: 4,000 bytes */
    CHECK_NEAR(rungs[3].seconds - rungs[2].seconds, 10e-6 + 4e-6, 1e-12);
    CHECK_EQ_U64(rungs[4].bytes, rungs[5].bytes);
    CHECK_NEAR(rungs[4].seconds, rungs[5].seconds, 1e-12);
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_SELECTIVE, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "#0; #0 #4");
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_FULL, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "full");
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_NONE, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "none");
    fg_arena_free(arena);
}

/* A border that backward does not read would have to be kept for the norm: that gains nothing. */
static void borders_count(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine machine = plain_machine(arena);
    FgModule *m = parsed(arena,
                         TWO_LAYERS "  %t.12 : f32[50, 10] = mul %n.7, %n.3 phase(backward)\n"
                                    "}\n",
                         failures);
    FgLadder ladder;
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_SELECTIVE, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "none"); /* read outside their layers */
    m = parsed(arena, TWO_LAYERS BACK("1", "r.9", "n.7", "n.7", "t.12", "u.13") "}\n", failures);
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_SELECTIVE, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "none");
    fg_arena_free(arena);
}

/* Without layers there is nothing to choose. */
static void no_layers(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine machine = plain_machine(arena);
    FgModule *m = parsed(arena,
                         "module @flat level(graph)\n"
                         "input 0 @x : f32[4] value(%x.0)\n"
                         "loss %l.2\n"
                         "func @step {\n"
                         "  %a.1 : f32[4] = exp %x.0\n"
                         "  %l.2 : f32[] = sum %a.1\n"
                         "  %b.3 : f32[4] = mul %a.1, %x.0 phase(backward)\n"
                         "}\n",
                         failures);
    FgLadder ladder;
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_AUTO, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "none");
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_SELECTIVE, &ladder);
    CHECK_STR(ladder_text(arena, &ladder), "none");
    fg_arena_free(arena);
}

static FgModule *llama(FgArena *arena, int64_t layers, FgMachine *machine, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgNumerics numerics = {.compute = FG_BF16, .wire = FG_BF16, .shard = FG_BF16, .accumulate = 1};
    FgModelOptions options = {.numerics = numerics};
    FgDimOverride dim = {"layers", layers};
    fg_vec_push(arena, &options.dims, dim);
    CHECK(fg_machine_load(arena, diags, "2xH200", machine));
    FgModule *m =
        fg_model_load(arena, diags, FG_SOURCE_DIR "/examples/llama-3.2-1b.json", &options);
    FgPassManager pm = {.arena = arena, .machine = machine, .budget = UINT64_MAX};
    CHECK(m != NULL);
    if (m) {
        m->numerics = numerics;
        CHECK(fg_run_passes(&pm, m, FG_PIPELINE_GRAPH));
    }
    return m;
}

/* Bytes of forward results that backward reads, clones of the set not among them, and the seconds
 * of the clones: read off the graph that the pass makes. */
static void measure(FgArena *arena, const FgModule *m, const FgMachine *machine, uint64_t *bytes,
                    double *seconds)
{
    bool *read = FG_NEW_ARRAY(arena, bool, m->values.len);
    const uint32_t *params = fg_param_bases(arena, m);
    const FgIdVec *order = &fg_func((FgModule *)m, "step")->order;
    *bytes = 0;
    *seconds = 0;
    for (uint32_t i = order->len; i > 0; i--) {
        const FgNode *node = &m->nodes.data[order->data[i - 1]];
        bool view = fg_op_has(node->op, FG_OPF_VIEW);
        bool backward = node->phase == FG_PHASE_BACKWARD && !view;
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID && (backward || (view && read[node->results[0]])))
                read[node->operands[k]] = true;
        for (uint32_t k = 0; k < node->n_results; k++)
            if (node->phase == FG_PHASE_FORWARD && !view && read[node->results[k]] &&
                params[node->results[k]] == FG_NO_ID && !fg_op_has(node->op, FG_OPF_CONSTANT))
                *bytes += fg_type_bytes(m->values.data[node->results[k]].type);
        if (backward && node->origin != FG_NO_ID && m->nodes.data[node->origin].op == node->op &&
            m->nodes.data[node->origin].phase == FG_PHASE_FORWARD)
            *seconds += fg_node_seconds(m, machine, node);
    }
}

/* Every figure of a ladder is what the pass makes of its rung. */
static void figures_are_true(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine machine;
    FgModule *m = llama(arena, 3, &machine, failures);
    FgLadder ladder;
    fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_AUTO, &ladder);
    CHECK(ladder.rungs.len > 10);
    uint64_t all, bytes;
    double seconds, already; /* gradients that are the op itself, like the inverse rope */
    measure(arena, m, &machine, &all, &already);
    for (uint32_t i = 0; i < ladder.rungs.len; i++) {
        const FgRung *rung = &ladder.rungs.data[i];
        FgModule *copy = fg_module_clone(m, arena);
        copy->plan = FG_NEW(arena, FgPlan);
        copy->plan->name = "test";
        fg_recompute_apply(&ladder, i, copy->plan, arena);
        FgPassManager pm = {.arena = arena, .machine = &machine, .budget = UINT64_MAX};
        CHECK(fg_run_passes(&pm, copy, "recompute") && fg_module_verify(copy));
        measure(arena, copy, &machine, &bytes, &seconds);
        CHECK_EQ_U64(rung->bytes, all - bytes);
        CHECK_NEAR(rung->seconds, seconds - already, 1e-9 * seconds);
        CHECK(i == 0 ||
              (rung->bytes >= rung[-1].bytes && rung->seconds > rung[-1].seconds * (1 - 1e-9)));
    }
    fg_arena_free(arena);
}

/* 126 layers: a rung for each value and layer, in time that grows with the layers. */
static void deep_models_are_quick(int *failures)
{
    double took[2];
    for (int i = 0; i < 2; i++) {
        FgArena *arena = fg_arena_new();
        FgMachine machine;
        FgModule *m = llama(arena, i ? 126 : 14, &machine, failures);
        FgLadder ladder;
        clock_t start = clock();
        fg_recompute_ladder(arena, m, &machine, FG_RECOMPUTE_AUTO, &ladder);
        took[i] = (double)(clock() - start) / CLOCKS_PER_SEC;
        CHECK(ladder.rungs.len > (i ? 126u : 14u) * 4);
        fg_arena_free(arena);
    }
    printf("  14 layers %.1f ms, 126 layers %.1f ms\n", took[0] * 1e3, took[1] * 1e3);
    CHECK(took[1] < 0.1 || took[1] < 20 * took[0]); /* 9 times the layers; slack for slow builds */
}

UNIT_MAIN({"cheapest_first", cheapest_first}, {"borders_count", borders_count},
          {"no_layers", no_layers}, {"figures_are_true", figures_are_true},
          {"deep_models_are_quick", deep_models_are_quick})
