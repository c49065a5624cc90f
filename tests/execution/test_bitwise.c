/* I5 by execution: random models run three steps under each schedule at the same rank count;
 * losses, norms, weights and moments must agree to the last bit, in f32, bf16 and f16, with
 * clipping and accumulation. Every program runs in the runtime's checked mode once: waits,
 * lifetimes and declared effects hold while real numbers flow. The emitted C is built as a shared
 * object that this process loads. */
#include "../property/random_model.h"
#include "../unit/unit.h"

#include "base/file.h"
#include "base/map.h"
#include "codegen/codegen.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"
#include "passes/lower.h"
#include "runtime/trainer/loop.h"
#include "runtime/trainer/weights.h"

#include <dlfcn.h>
#include <stdlib.h>

#define MODELS 12
#define STEPS 3
#define OFFLOADED 8

typedef struct Setup {
    FgArena *arena;
    FgDiags *diags;
    FgMachine machine;
    FgNumerics numerics;
    FgRecompute recompute;
    uint32_t offload;
    FgReduceForm reduce;
    bool offload_auto, no_fuse;
    const char *folder;
    uint64_t seed;
    const char *model; /* NULL: a random one */
} Setup;

/* What a run leaves behind: one hash of everything, and the first step's loss for messages. */
typedef struct Outcome {
    uint64_t hash;
    double loss;
    bool ok;
} Outcome;

static FgCompiled compile(Setup *s, FgSchedule schedule, uint64_t memory)
{
    const char *text = s->model ? s->model : random_model(s->arena, s->seed);
    FgModelOptions options = {.numerics = s->numerics};
    FgCompiled out = {0};
    FgModule *graph =
        fg_model_parse(s->arena, s->diags, "random.json", text, strlen(text), &options);
    FgCompileOptions how = {.schedule = schedule,
                            .recompute = s->recompute,
                            .reduce = s->reduce,
                            .memory_bytes = memory,
                            .offload = s->offload,
                            .offload_auto = s->offload_auto,
                            .no_fuse = s->no_fuse};
    if (graph && !fg_compile(s->arena, graph, &s->machine, &s->numerics, &how, &out))
        out.module = NULL;
    return out;
}

static void say_errors(const Setup *s)
{
    FgBuf text;
    fg_buf_init(&text, s->arena);
    fg_diags_render(s->diags, &text);
    printf("model %llu: %s\n", (unsigned long long)s->seed, fg_buf_text(&text));
}

/* Emits, builds and loads; NULL after a message. */
static const FgRtProgram *load(Setup *s, const FgCompiled *compiled, const char *name,
                               void **out_handle)
{
    FgBuf text;
    fg_buf_init(&text, s->arena);
    FgEmitInfo info = {
        .version = "test", .source = "random.json", .memory_bytes = compiled->memory_bytes};
    fg_emit_c(s->arena, compiled->module, &info, &text);
    const char *c = fg_arena_printf(s->arena, "%s/%s.c", s->folder, name);
    const char *so = fg_arena_printf(s->arena, "%s/%s.so", s->folder, name), *error = "";
    const char *argv[] = {"cc",      "-std=c11", "-O0",
                          "-Wall",   "-Wextra",  "-Werror",
                          "-shared", "-fPIC",    "-I" FG_SOURCE_DIR "/runtime",
                          c,         "-o",       so,
                          NULL};
    if (!fg_file_write(s->arena, c, text.data, text.len, &error) ||
        fg_run(s->arena, argv, &error) != 0) {
        printf("%s\n", error);
        return NULL;
    }
    *out_handle = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    if (!*out_handle) {
        printf("%s\n", dlerror());
        return NULL;
    }
    const FgRtProgram *(*program)(void);
    void *symbol = dlsym(*out_handle, "fg_program");
    memcpy(&program, &symbol, sizeof program);
    return program();
}

/* The same tokens for every program of a model: rows of all ranks, some labels ignored. */
static FgFeed make_feed(Setup *s, const FgRtProgram *program)
{
    FgFeed feed = {.program = program,
                   .n_micro = program->accumulate,
                   .rows = program->batch * program->ranks};
    feed.blocks = FG_NEW_ARRAY(s->arena, unsigned char *, feed.n_micro * program->n_inputs);
    Random random = {s->seed};
    for (uint32_t i = 0; i < feed.n_micro * program->n_inputs; i++) {
        const FgRtInput *input = &program->inputs[i % program->n_inputs];
        uint64_t n = input->elements * program->ranks;
        int32_t *block = FG_NEW_ARRAY(s->arena, int32_t, n);
        for (uint64_t k = 0; k < n; k++) {
            block[k] = (int32_t)random_below(&random, 11);
            if (input->role == 1 && random_below(&random, 5) == 0)
                block[k] = -100;
            feed.valid += input->role == 1 && block[k] != -100;
        }
        feed.blocks[i] = (unsigned char *)block;
    }
    return feed;
}

static uint64_t hash_store(Setup *s, const FgStore *store, uint64_t hash)
{
    for (uint32_t p = 0; p < store->program->n_params; p++) {
        uint64_t n = store->program->params[p].elements;
        float *values = FG_NEW_ARRAY(s->arena, float, n);
        for (int part = FG_PART_WEIGHT; part <= FG_PART_MOMENT2; part++) {
            if (part != FG_PART_WEIGHT && !fg_store_is_trained(store, p))
                continue;
            fg_store_get(store, p, (FgPart)part, 0, n, values);
            hash = fg_hash_bytes(values, n * sizeof *values, hash);
        }
    }
    return hash;
}

static bool steps(FgLoop *loop, FgFeed *feed, Outcome *out, FgFail *fail)
{
    FgRates rates = {.lr = 1e-2,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .weight_decay = 0.1,
                     .window = 2,
                     .hysteresis = 1};
    for (uint64_t t = 1; t <= STEPS; t++) {
        FgRtResult result;
        rates.t = t;
        if (!fg_loop_step(loop, feed, &rates, fail) || !fg_loop_result(loop, &result, fail))
            return false;
        if (t == 1)
            out->loss = result.loss;
        out->hash = fg_hash_bytes(&result, sizeof result, out->hash);
    }
    return fg_loop_flush(loop, fail);
}

static Outcome run(Setup *s, const FgCompiled *compiled, const char *name, bool checked)
{
    Outcome out = {0};
    void *handle = NULL;
    const FgRtProgram *program = load(s, compiled, name, &handle);
    if (!program)
        return out;
    FgFail fail = {0};
    FgLoop loop;
    FgRtOptions options = {.checked = checked};
    out.ok = fg_loop_open(&loop, program, NULL, &options, &fail);
    if (out.ok) {
        fg_weights_init(&loop.store, 7);
        FgFeed feed = make_feed(s, program);
        FgScale scale = {.scale = s->seed % 8 ? 1024 : 0x1p40, .left = 1};
        if (program->scales_loss) /* that grows, or overflows in every step */
            fg_loop_set_scale(&loop, &scale, 0.9, 0.95);
        out.ok = fg_loop_start(&loop, &fail) && steps(&loop, &feed, &out, &fail);
    }
    if (out.ok)
        out.hash = hash_store(s, &loop.store, out.hash);
    else
        printf("model %llu %s: %s\n", (unsigned long long)s->seed, name, fail.text);
    fg_loop_close(&loop);
    dlclose(handle);
    return out;
}

/* A link whose collectives take a time for each byte and none to begin: bytes alone decide. */
static void without_latency(FgArena *arena, FgCurve *curve, double rate)
{
    *curve = (FgCurve){0};
    for (double bytes = 1; bytes < 2e6; bytes *= 1e6)
        fg_vec_push(arena, curve, ((FgCurvePoint){bytes, bytes / rate}));
}

/* Buckets whose lookups travel. */
static uint32_t travelling(const FgCompiled *compiled)
{
    const FgPlan *plan = compiled->module->plan;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        n += plan->buckets.data[i].travels;
    return n;
}

static Setup make_setup(uint64_t seed)
{
    Setup s = {.arena = fg_arena_new(), .seed = seed};
    Random random = {seed + 1000};
    s.diags = fg_diags_new(s.arena);
    s.numerics = (FgNumerics){.accumulate = 1};
    if (random_below(&random, 2))
        s.numerics.compute = s.numerics.wire = FG_BF16;
    if (seed % 4 == 0)
        s.numerics.compute = s.numerics.wire = FG_F16;
    s.numerics.clip = random_below(&random, 2) ? 0.5 : 0;
    s.numerics.accumulate = 1 + random_below(&random, 4);
    s.numerics.accumulate_in = (FgAccumulateIn)(s.numerics.accumulate > 1 && seed % 3 == 0);
    s.numerics.shard = fg_slice_dtype(&s.numerics);
    s.numerics.vocab = random_below(&random, 2) ? FG_VOCAB_SHARDED : FG_VOCAB_GATHERED;
    bool pieces = s.numerics.vocab == FG_VOCAB_SHARDED || random_below(&random, 3) > 0;
    s.numerics.chunk = pieces ? 1 + random_below(&random, 9) : 0;
    s.recompute = (FgRecompute)random_below(&random, FG_RECOMPUTE_AUTO + 1);
    FG_ASSERT(fg_machine_load(s.arena, s.diags, "host", &s.machine));
    fg_machine_set_ranks(s.arena, &s.machine, 1 + random_below(&random, 3));
    without_latency(s.arena, &s.machine.gather, 2e8);
    without_latency(s.arena, &s.machine.reduce, 1e9);
    const char *error = "";
    s.folder = fg_temp_dir(s.arena, &error);
    FG_ASSERT(s.folder);
    return s;
}

static void schedules_agree(int *failures)
{
    uint32_t travels = 0;
    for (uint64_t seed = 1; seed <= MODELS && *failures < 3; seed++) {
        Setup s = make_setup(seed);
        FgCompiled zero3 = compile(&s, FG_SCHEDULE_ZERO3, UINT64_MAX);
        FgCompiled least = compile(&s, FG_SCHEDULE_MINIMUM, UINT64_MAX);
        FgCompiled most = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        FgCompiled tight =
            compile(&s, FG_SCHEDULE_COMPILED, least.ledger.peak_bytes + least.reserved_bytes);
        CHECK(zero3.module && least.module && most.module && tight.module);
        if (*failures) {
            say_errors(&s);
            return;
        }
        Outcome a = run(&s, &zero3, "zero3", false), b = run(&s, &most, "compiled", false);
        Outcome c = run(&s, &tight, "tight", true), d = run(&s, &most, "checked", true);
        CHECK(a.ok && b.ok && c.ok && d.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK_EQ_U64(a.hash, c.hash);
        CHECK_EQ_U64(a.hash, d.hash);
        CHECK(isfinite(a.loss) && a.loss > 0);
        travels += travelling(&most) > 0;
        if (*failures)
            printf("model %llu\n", (unsigned long long)seed);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
    CHECK(travels > 0);
}

/* Keeps some buckets over the micro-steps, and lets some first gathers run round the period. */
static void carry_some(FgModule *m, Random *random)
{
    FgPlan *plan = m->plan;
    bool micro_steps = m->numerics.accumulate > 1, rounds = !fg_update_waits(&m->numerics);
    uint32_t n = 0;
    for (uint32_t i = 0, end; i < plan->gathers.len; i = end) {
        FgPlanGather g = plan->gathers.data[i];
        for (end = i + 1; end < plan->gathers.len && plan->gathers.data[end].bucket == g.bucket;)
            end++;
        if (micro_steps && random_below(random, 2)) {
            g.keep = true;
            g.last_use = plan->gathers.data[end - 1].last_use;
        }
        g.round = rounds && (g.keep || !micro_steps) && random_below(random, 2);
        g.ahead = random_below(random, 4);
        plan->gathers.data[n++] = g;
        for (uint32_t k = i + 1; k < end && !g.keep; k++)
            plan->gathers.data[n++] = plan->gathers.data[k];
    }
    plan->gathers.len = n;
}

/* Does a forward node stand in backward again? */
static bool runs_twice(const FgModule *m)
{
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        if (node->phase == FG_PHASE_BACKWARD && node->origin != FG_NO_ID &&
            (node->op == FG_OP_linear || node->op == FG_OP_attention || node->op == FG_OP_rmsnorm ||
             node->op == FG_OP_layernorm) &&
            m->nodes.data[node->origin].op == node->op) /* no gradient is one of these */
            return true;
    }
    return false;
}

/* Does the program carry a gathered copy over the border of a function? */
static bool carries(const FgModule *m)
{
    for (uint32_t v = 0; v < m->values.len; v++)
        if (fg_is_carried(m, v))
            return true;
    return false;
}

/* Is it the head of a sharded vocabulary, which makes logits once, a piece at a time? */
static bool is_sharded_head(const FgModule *m, const FgNode *node)
{
    if (node->op != FG_OP_linear)
        return false;
    const FgValue *weight = &m->values.data[node->operands[1]];
    return weight->kind == FG_VALUE_PARAM && m->params.data[weight->index].sharded;
}

/* Such a head runs once, and so does what it reads: its gradient is made in the same piece. */
static bool *nodes_of_heads(FgArena *arena, const FgModule *m)
{
    bool *out = FG_NEW_ARRAY(arena, bool, m->nodes.len + 1);
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        for (bool next = is_sharded_head(m, node); next;) {
            const FgValue *x = &m->values.data[node->operands[0]];
            out[node->id] = true;
            next = x->kind == FG_VALUE_RESULT;
            if (next)
                node = &m->nodes.data[x->def];
            out[node->id] = true;
            next = next && fg_op_has(node->op, FG_OPF_VIEW);
        }
    }
    return out;
}

/* Layers, modules, or layers of which one is cut: gathered at use. */
static FgPlan *random_borders(FgModule *m, FgArena *arena, Random *random)
{
    const FgBorders borders[] = {{0}, {.by_module = true}, {.cut = 0.1}, {.cut = 0.5}};
    uint64_t which = random_below(random, 4);
    FgPlan *plan = fg_plan_units(m, arena, "random", FG_RECOMPUTE_SELECTIVE, borders[which]);
    return plan ? plan : fg_plan_fixed(m, arena, "random", FG_RECOMPUTE_SELECTIVE);
}

/* The ZeRO-3 plan with a random set of forward nodes recomputed, borders and cascades among them,
 * and random copies carried, lowered and proved. False after errors. */
static bool random_set(Setup *s, Random *random, FgCompiled *out)
{
    const char *text = random_model(s->arena, s->seed);
    FgModelOptions options = {.numerics = s->numerics};
    FgModule *m = fg_model_parse(s->arena, s->diags, "random.json", text, strlen(text), &options);
    FgPassManager pm = {.arena = s->arena, .machine = &s->machine, .budget = UINT64_MAX};
    if (!m || !fg_run_passes(&pm, m, FG_PIPELINE_GRAPH))
        return false;
    FgIdVec some = {0};
    const bool *head = nodes_of_heads(s->arena, m);
    const FgIdVec *order = &fg_func(m, "step")->order;
    for (uint32_t id = 0; id < m->nodes.len; id++) {
        const FgNode *node = fg_node(m, id);
        bool stands = false, can = node->phase == FG_PHASE_FORWARD && node->n_results > 0 &&
                                   !fg_op_has(node->op, FG_OPF_CONSTANT) &&
                                   node->op != FG_OP_cross_entropy && node->op != FG_OP_loss_seed;
        can = can && !head[id];
        for (uint32_t i = 0; i < order->len && can; i++)
            stands = stands || order->data[i] == id;
        if (stands && node->results[0] != m->loss && random_below(random, 2))
            fg_vec_push(s->arena, &some, id);
    }
    FgModule *again = fg_module_clone(m, s->arena);
    again->plan = FG_NEW(s->arena, FgPlan);
    *again->plan = (FgPlan){.name = "random", .recompute = FG_RECOMPUTE_SELECTIVE};
    fg_plan_set_recomputed(again->plan, s->arena, &some);
    if (!fg_run_passes(&pm, again, "recompute"))
        return false;
    m->plan = random_borders(again, s->arena, random);
    fg_plan_travel(m->plan, again, s->arena, &s->machine);
    carry_some(m, random);
    FgProof proof;
    *out = (FgCompiled){.module = m, .memory_bytes = 1u << 30};
    return fg_run_passes(&pm, m, FG_PIPELINE_LOWER) && fg_module_verify(m) &&
           fg_check(s->arena, m, UINT64_MAX, &proof);
}

static void random_levers_agree(int *failures)
{
    uint32_t grown = 0, carried = 0;
    for (uint64_t seed = 201; seed <= 200 + MODELS / 3 && *failures < 3; seed++) {
        Setup s = make_setup(seed);
        Random random = {seed};
        s.recompute = FG_RECOMPUTE_NONE;
        FgCompiled none = compile(&s, FG_SCHEDULE_ZERO3, UINT64_MAX), some = {0};
        CHECK(none.module && random_set(&s, &random, &some));
        if (*failures) {
            say_errors(&s);
            return;
        }
        grown += runs_twice(some.module);
        carried += carries(some.module);
        Outcome a = run(&s, &none, "none", false), b = run(&s, &some, "some", true);
        CHECK(a.ok && b.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        if (*failures)
            printf("model %llu\n", (unsigned long long)seed);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
    CHECK(grown > MODELS / 8 && carried > MODELS / 12);
}

/* Recomputation changes no bit either. */
static void recompute_agrees(int *failures)
{
    for (uint64_t seed = 101; seed < 107; seed++) {
        Setup s = make_setup(seed);
        s.recompute = FG_RECOMPUTE_NONE;
        FgCompiled none = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.recompute = FG_RECOMPUTE_FULL;
        FgCompiled full = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.recompute = FG_RECOMPUTE_AUTO;
        FgCompiled least = compile(&s, FG_SCHEDULE_COMPILED, 1); /* fits nothing: the floor */
        uint64_t floor = least.ledger.peak_bytes + least.reserved_bytes;
        uint64_t spare = none.ledger.peak_bytes - least.ledger.peak_bytes;
        FgCompiled tight = compile(&s, FG_SCHEDULE_COMPILED, floor + spare / 3);
        CHECK(none.module && full.module && tight.module);
        if (*failures) {
            say_errors(&s);
            return;
        }
        Outcome a = run(&s, &none, "none", false), b = run(&s, &full, "full", true);
        Outcome c = run(&s, &tight, "auto", true);
        CHECK(a.ok && b.ok && c.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK_EQ_U64(a.hash, c.hash);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
}

/* Gradients that their updates add up have the bits of those that reductions do: the order is that
 * of the ranks, and a sum is rounded once. */
static void parts_agree(int *failures)
{
    static const FgDtype computes[] = {FG_F32, FG_BF16, FG_BF16};
    for (uint32_t i = 0; i < 3 && *failures == 0; i++) {
        Setup s = make_setup(401 + i);
        s.numerics = (FgNumerics){.compute = computes[i],
                                  .wire = computes[i],
                                  .shard = computes[i],
                                  .accumulate = 1,
                                  .vocab = i ? FG_VOCAB_GATHERED : FG_VOCAB_SHARDED};
        FG_ASSERT(fg_machine_load(s.arena, s.diags, "host", &s.machine)); /* with its latencies */
        fg_machine_set_ranks(s.arena, &s.machine, i < 2 ? 2 : 3);
        s.reduce = FG_REDUCE_SCATTER;
        FgCompiled sums = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.reduce = FG_REDUCE_PARTS;
        FgCompiled parts = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        CHECK(sums.module && parts.module);
        if (*failures) {
            say_errors(&s);
            return;
        }
        CHECK(fg_count_parts(sums.module) == 0 && fg_count_parts(parts.module) > 0);
        Outcome a = run(&s, &sums, "sums", false), b = run(&s, &parts, "parts", true);
        CHECK(a.ok && b.ok && isfinite(a.loss));
        CHECK_EQ_U64(a.hash, b.hash);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
}

/* The graph with sums and chains as nodes of their own, under ZeRO-3. False after errors. */
static bool unfolded(Setup *s, FgCompiled *out)
{
    const char *text = random_model(s->arena, s->seed), *last = ",fold";
    size_t length = strlen(FG_PIPELINE_UNFUSED) - strlen(last);
    FG_ASSERT(strcmp(FG_PIPELINE_UNFUSED + length, last) == 0);
    FgModelOptions options = {.numerics = s->numerics};
    FgModule *m = fg_model_parse(s->arena, s->diags, "random.json", text, strlen(text), &options);
    FgPassManager pm = {.arena = s->arena, .machine = &s->machine, .budget = UINT64_MAX};
    if (!m || !fg_run_passes(&pm, m, fg_arena_strndup(s->arena, FG_PIPELINE_UNFUSED, length)))
        return false;
    m->plan = fg_plan_fixed(m, s->arena, "zero3", FG_RECOMPUTE_NONE);
    *out = (FgCompiled){.module = m, .memory_bytes = 1u << 30};
    return fg_run_passes(&pm, m, FG_PIPELINE_LOWER);
}

static uint32_t count_plus(const FgModule *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        uint32_t plus = fg_op_plus(node->op);
        n += plus < node->n_operands && node->operands[plus] != FG_NO_ID;
    }
    return n;
}

/* A sum inside the op that makes its term has the bits of a node of its own in f32; in bf16 it is
 * rounded once less. */
static void folded_sums_agree(int *failures)
{
    uint32_t folded = 0;
    for (uint64_t seed = 1; seed <= 6 && *failures < 3; seed++) {
        Setup s = make_setup(seed);
        s.recompute = FG_RECOMPUTE_NONE;
        FgCompiled sums = {0}, plus = compile(&s, FG_SCHEDULE_ZERO3, UINT64_MAX);
        CHECK(plus.module && unfolded(&s, &sums));
        if (*failures) {
            say_errors(&s);
            return;
        }
        Outcome a = run(&s, &sums, "sums", false), b = run(&s, &plus, "plus", true);
        CHECK(a.ok && b.ok);
        if (s.numerics.compute == FG_F32)
            CHECK_EQ_U64(a.hash, b.hash);
        CHECK_NEAR(a.loss, b.loss, s.numerics.compute == FG_F32 ? 0 : 0.02 * a.loss);
        CHECK(count_plus(sums.module) == 0);
        folded += count_plus(plus.module) > 0;
        if (*failures)
            printf("model %llu\n", (unsigned long long)seed);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
    CHECK(folded > 2);
}

/* Nor does host memory, whatever lies there: any set of classes, whole or as much as the memory
 * asks for, under every schedule. */
static void offload_agrees(int *failures)
{
    uint32_t stashes = 0, parts = 0, automatic = 0;
    for (uint64_t seed = 201; seed < 201 + OFFLOADED && *failures < 3; seed++) {
        Setup s = make_setup(seed);
        FgCompiled none = compile(&s, FG_SCHEDULE_MINIMUM, UINT64_MAX);
        s.offload = 1 + (uint32_t)(seed % FG_OFFLOAD_ALL);
        FgCompiled some = compile(&s, (FgSchedule)(seed % 3), UINT64_MAX);
        s.offload = FG_OFFLOAD_ALL;
        FgCompiled all = compile(&s, (FgSchedule)((seed + 1) % 3), UINT64_MAX);
        s.offload = FG_OFFLOAD_NONE;
        s.offload_auto = true;
        FgCompiled half =
            compile(&s, FG_SCHEDULE_COMPILED, none.ledger.peak_bytes + none.reserved_bytes - 4096);
        CHECK(none.module && some.module && all.module);
        if (*failures) {
            say_errors(&s);
            return;
        }
        Outcome a = run(&s, &none, "none", false), b = run(&s, &some, "some", true);
        Outcome c = run(&s, &all, "all", true);
        CHECK(a.ok && b.ok && c.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK_EQ_U64(a.hash, c.hash);
        CHECK(all.ledger.host_bytes > 0 && none.ledger.host_bytes == 0);
        if (half.module) {
            Outcome d = run(&s, &half, "half", true);
            CHECK(d.ok && half.offload);
            CHECK_EQ_U64(a.hash, d.hash);
            automatic++;
        }
        stashes += all.module->plan->stashes.len;
        for (uint32_t i = 0; i < all.module->plan->buckets.len; i++)
            parts += all.module->plan->buckets.data[i].pieces > 1;
        if (*failures)
            printf("model %llu\n", (unsigned long long)seed);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
    CHECK(stashes > OFFLOADED && parts > OFFLOADED && automatic > OFFLOADED / 2);
}

/* ---- chains ---- */

/* Every step that a chain may have, forward where nothing is trained, backward behind a lookup that
 * is; operands that repeat by rows, by lines, and as one number; another dtype between. */
static const char all_steps[] =
    "{\"foregather\": 1, \"name\": \"chains\",\n"
    "  \"dims\": {\"batch\": 2, \"seq\": 5, \"vocab\": 11, \"hidden\": 12},\n"
    "  \"inputs\": {\"tokens\": {\"role\": \"tokens\", \"shape\": [\"batch\", \"seq\"]},\n"
    "    \"labels\": {\"role\": \"labels\", \"shape\": [\"batch\", \"seq\"]}},\n"
    "  \"params\": {\"embed\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 1}},\n"
    "    \"fixed\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 1}, "
    "\"trainable\": false},\n"
    "    \"row\": {\"shape\": [\"hidden\"], \"init\": {\"uniform\": 1}, \"trainable\": false},\n"
    "    \"one\": {\"shape\": [1], \"init\": {\"constant\": 0.7}, \"trainable\": false},\n"
    "    \"head\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 0.2}}},\n"
    "  \"nodes\": [{\"op\": \"embedding\", \"in\": [\"tokens\", \"fixed\"], \"out\": \"a0\"},\n"
    "    {\"op\": \"slice\", \"in\": [\"a0\"], \"out\": \"line\", \"axis\": 2, \"start\": 3, "
    "\"count\": 1},\n"
    "%s    {\"op\": \"embedding\", \"in\": [\"tokens\", \"embed\"], \"out\": \"b0\"},\n"
    "    {\"op\": \"add\", \"in\": [\"a%u\", \"b0\"], \"out\": \"b1\"},\n"
    "%s    {\"op\": \"linear\", \"in\": [\"b%u\", \"head\"], \"out\": \"logits\"},\n"
    "    {\"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"], \"out\": \"loss\"}],\n"
    "  \"loss\": \"loss\"}\n";

typedef struct StepText {
    const char *op, *more; /* "", or attributes, or after '+' a second operand */
} StepText;

/* Values stay where the next step is defined. */
static const StepText step_texts[] = {
    {"sigmoid", ""},
    {"scale", ", \"factor\": 0.7"},
    {"add_scalar", ", \"value\": 0.3"},
    {"sqrt", ""},
    {"pow", ", \"exponent\": 1.5"},
    {"rsqrt", ""},
    {"log", ""},
    {"neg", ""},
    {"exp", ""},
    {"mul", "+row"},
    {"cast", ""},
    {"tanh", ""},
    {"cast", ""},
    {"add", "+line"},
    {"silu", ""},
    {"sub", "+row"},
    {"gelu", ""},
    {"div", "+one"},
    {"gelu_tanh", ""},
    {"add", "+row"},
    {"relu", ""},
};
#define N_STEP_TEXTS (sizeof step_texts / sizeof *step_texts)

static const char *steps_text(FgArena *arena, char value, uint32_t first, const char *wide,
                              const char *narrow)
{
    FgBuf out;
    fg_buf_init(&out, arena);
    uint32_t casts = 0;
    for (uint32_t i = 0; i < N_STEP_TEXTS; i++) {
        const StepText *step = &step_texts[i];
        bool two = *step->more == '+';
        const char *other = two ? fg_arena_printf(arena, ", \"%s\"", step->more + 1) : "";
        fg_buf_printf(&out, "    {\"op\": \"%s\", \"in\": [\"%c%u\"%s], \"out\": \"%c%u\"",
                      step->op, value, first + i, other, value, first + i + 1);
        if (!strcmp(step->op, "cast"))
            fg_buf_printf(&out, ", \"to\": \"%s\"", casts++ ? narrow : wide);
        else if (!two)
            fg_buf_puts(&out, step->more);
        fg_buf_puts(&out, "},\n");
    }
    return fg_buf_text(&out);
}

static uint32_t count_fused(const FgModule *m)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.data[f].order.len; i++)
            n += m->nodes.data[m->funcs.data[f].order.data[i]].op == FG_OP_fused;
    return n;
}

/* A chain has the bits of the nodes that it stands for, in every dtype. */
static void chains_agree(int *failures)
{
    static const FgDtype computes[] = {FG_F32, FG_BF16, FG_F16};
    uint32_t fused = 0;
    for (uint64_t seed = 301; seed < 307 && *failures < 3; seed++) {
        Setup s = make_setup(seed);
        uint32_t own = (uint32_t)(seed - 301);
        if (own < 3) {
            s.numerics.compute = s.numerics.wire = computes[own];
            s.numerics.vocab = FG_VOCAB_GATHERED;
            s.numerics.chunk = 0;
            const char *narrow = fg_dtype_name(computes[own]), *wide = own ? "f32" : "bf16";
            s.model =
                fg_arena_printf(s.arena, all_steps, steps_text(s.arena, 'a', 0, wide, narrow),
                                (uint32_t)N_STEP_TEXTS, steps_text(s.arena, 'b', 1, wide, narrow),
                                (uint32_t)N_STEP_TEXTS + 1);
        }
        FgCompiled with = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.no_fuse = true;
        FgCompiled without = compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        CHECK(with.module && without.module);
        if (*failures) {
            say_errors(&s);
            return;
        }
        Outcome a = run(&s, &with, "fused", true), b = run(&s, &without, "unfused", false);
        CHECK(a.ok && b.ok && isfinite(a.loss));
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK(count_fused(without.module) == 0);
        CHECK(own >= 3 || count_fused(with.module) >= 6);
        fused += count_fused(with.module);
        if (*failures)
            printf("model %llu\n", (unsigned long long)seed);
        fg_temp_dir_remove(s.arena, s.folder);
        fg_arena_free(s.arena);
    }
    CHECK(fused > 24);
}

UNIT_MAIN({"chains_agree", chains_agree}, {"schedules_agree", schedules_agree},
          {"recompute_agrees", recompute_agrees}, {"random_levers_agree", random_levers_agree},
          {"folded_sums_agree", folded_sums_agree}, {"offload_agrees", offload_agrees},
          {"parts_agree", parts_agree})
