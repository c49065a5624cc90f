/* Emission, loading and three steps of what a test compiled. */
#include "trained.h"

#include "base/file.h"
#include "base/map.h"
#include "codegen/codegen.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "runtime/trainer/loop.h"
#include "runtime/trainer/weights.h"

#include <dlfcn.h>
#include <stdlib.h>

#define STEPS 3

FgCompiled trained_compile(TrainedSetup *s, FgSchedule schedule, uint64_t memory)
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

void trained_say_errors(const TrainedSetup *s)
{
    FgBuf text;
    fg_buf_init(&text, s->arena);
    fg_diags_render(s->diags, &text);
    printf("model %llu: %s\n", (unsigned long long)s->seed, fg_buf_text(&text));
}

/* Emits, builds and loads; NULL after a message. */
static const FgRtProgram *load(TrainedSetup *s, const FgCompiled *compiled, const char *name,
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
static FgFeed make_feed(TrainedSetup *s, const FgRtProgram *program)
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

static uint64_t hash_store(TrainedSetup *s, const FgStore *store, uint64_t hash)
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

static bool steps(FgLoop *loop, FgFeed *feed, TrainedOutcome *out, FgFail *fail)
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

TrainedOutcome trained_run(TrainedSetup *s, const FgCompiled *compiled, const char *name,
                           bool checked)
{
    TrainedOutcome out = {0};
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

TrainedSetup trained_setup(uint64_t seed)
{
    TrainedSetup s = {.arena = fg_arena_new(), .seed = seed};
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

void trained_end(TrainedSetup *s, bool failed)
{
    if (failed)
        printf("model %llu\n", (unsigned long long)s->seed);
    fg_temp_dir_remove(s->arena, s->folder);
    fg_arena_free(s->arena);
}
