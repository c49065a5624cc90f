/* Parameters over ranks: initial values and files do not depend on how many there are. */
#include "runtime/dtype.h"
#include "runtime/host/host.h"
#include "runtime/trainer/safetensors.h"
#include "runtime/trainer/weights.h"
#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

enum { N = BIGRAM_VOCAB * BIGRAM_VOCAB };

typedef struct Fixture {
    Bigram bigram;
    FgRtGroup *group;
    FgStore store;
} Fixture;

static void fixture_open(Fixture *f, uint32_t ranks, bool bf16)
{
    bigram_make(&f->bigram, ranks, 1, 1, 0, bf16);
    FgRtOptions options = {0};
    char error[256];
    f->group = fg_rt_group_new(&f->bigram.program, NULL, &options, error, sizeof error);
    fg_store_open(&f->store, &f->bigram.program, f->group);
}

static void fixture_close(Fixture *f)
{
    fg_store_close(&f->store);
    fg_rt_group_free(f->group);
}

static void init_is_rank_free(int *failures)
{
    float one[N], many[N], extra[3];
    Fixture f;
    fixture_open(&f, 1, false);
    fg_weights_init(&f.store, 42);
    fg_store_get(&f.store, 0, FG_PART_WEIGHT, 0, N, one);
    fg_store_get(&f.store, 1, FG_PART_WEIGHT, 0, 3, extra);
    CHECK(extra[0] != extra[1] && fabsf(extra[2]) < 1);
    fixture_close(&f);
    for (uint32_t ranks = 2; ranks <= 5; ranks++) {
        fixture_open(&f, ranks, false);
        fg_weights_init(&f.store, 42);
        fg_store_get(&f.store, 0, FG_PART_WEIGHT, 0, N, many);
        CHECK(memcmp(one, many, sizeof one) == 0);
        CHECK(one[N - 1] == fg_init_value(&f.bigram.program.params[0], 42, N - 1));
        /* the second rank's slice starts where the first one's ends */
        uint64_t slice = f.bigram.bucket.elements / ranks;
        FgRtCx *second = fg_rt_group_rank(f.group, 1);
        CHECK(memcmp(fg_rt_memory(second, f.bigram.bucket.shard), &one[slice], sizeof(float)) == 0);
        fixture_close(&f);
    }
    fixture_open(&f, 1, false);
    fg_weights_init(&f.store, 43);
    fg_store_get(&f.store, 0, FG_PART_WEIGHT, 0, N, many);
    CHECK(memcmp(one, many, sizeof one) != 0);
    fixture_close(&f);
}

static void moments_of(int *failures, FgRtInit kind, double mean_wanted, double deviation_wanted)
{
    const FgRtParam param = {.name = "p", .init = kind, .init_scale = 0.02};
    const uint64_t n = 20000;
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)fg_init_value(&param, 7, i);
        sum += x;
        squares += x * x;
    }
    double mean = sum / (double)n, deviation = sqrt(fmax(0, squares / (double)n - mean * mean));
    CHECK_NEAR(mean, mean_wanted, 0.0006); /* four deviations of the mean: 4 * 0.02 / sqrt(20000) */
    CHECK_NEAR(deviation, deviation_wanted, 0.0005);
}

static void distributions(int *failures)
{
    moments_of(failures, FG_RT_NORMAL, 0, 0.02);
    moments_of(failures, FG_RT_UNIFORM, 0, 0.02 / sqrt(3));
    moments_of(failures, FG_RT_CONSTANT, 0.02, 0);
}

static void masters_and_copies(int *failures)
{
    Fixture f;
    float in[N], out[N];
    uint16_t working[N];
    for (int i = 0; i < N; i++)
        in[i] = 1 + 0.001f * (float)i;
    fixture_open(&f, 3, true);
    fg_store_set(&f.store, 0, FG_PART_WEIGHT, 0, N, in);
    fg_store_get(&f.store, 0, FG_PART_WEIGHT, 0, N, out);
    fg_store_get_working(&f.store, 0, 0, N, working);
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(working[3] == fg_f32_to_bf16(in[3]) && working[N - 1] == fg_f32_to_bf16(in[N - 1]));
    fg_store_set(&f.store, 0, FG_PART_MOMENT2, 20, 5, in);
    fg_store_get(&f.store, 0, FG_PART_MOMENT2, 19, 7, out);
    CHECK(out[0] == 0 && out[1] == in[0] && out[5] == in[4] && out[6] == 0);
    CHECK(fg_store_is_trained(&f.store, 0) && !fg_store_is_trained(&f.store, 1));
    CHECK(fg_store_has_masters(&f.store));
    fixture_close(&f);
}

static void rounding(int *failures)
{
    CHECK_EQ_U64(fg_f32_to_bf16(1.0f), 0x3f80);
    CHECK_EQ_U64(fg_f32_to_bf16(1.00390625f), 0x3f80); /* half way: to even */
    CHECK_EQ_U64(fg_f32_to_bf16(1.01171875f), 0x3f82); /* half way: to even */
    CHECK_EQ_U64(fg_f32_to_bf16(1.003907f), 0x3f81);
    CHECK_EQ_U64(fg_f32_to_bf16(3.4e38f), 0x7f80);
    CHECK(isnan(fg_bf16_to_f32(fg_f32_to_bf16(NAN))));
    CHECK(fg_f16_to_f32(0x8001) == -0x1p-24f && fg_f16_to_f32(0x3555) == 0.333251953125f);
    CHECK(isinf(fg_f16_to_f32(0x7c00)) && isnan(fg_f16_to_f32(0x7e00)));
}

/* ---- files ---- */

static const void *give(void *cx, uint32_t index, FgFail *fail)
{
    (void)fail;
    return ((const void *const *)cx)[index];
}

typedef struct Entry {
    const char *name;
    FgStDtype dtype;
    int64_t rows, cols; /* cols 0: one dimension */
    int first;          /* value */
} Entry;

/* Loads a file of these tensors with values first, first + 1...; the failure's text, NULL when it
 * loads. */
static char *load(Fixture *f, const Entry *entries, uint32_t n, const char *prefix, uint32_t *extra)
{
    float f32[N + 1];
    uint16_t bf16[N + 1];
    int64_t dims[4][2];
    const void *sources[4];
    FgTensorOut tensors[4];
    for (int i = 0; i < N + 1; i++) {
        f32[i] = (float)i;
        bf16[i] = fg_f32_to_bf16((float)i);
    }
    for (uint32_t i = 0; i < n; i++) {
        dims[i][0] = entries[i].rows;
        dims[i][1] = entries[i].cols;
        sources[i] = entries[i].dtype == FG_ST_BF16 ? (const void *)(bf16 + entries[i].first)
                                                    : f32 + entries[i].first;
        tensors[i] =
            (FgTensorOut){entries[i].name, entries[i].dtype, entries[i].cols ? 2 : 1, dims[i]};
    }
    char *folder = scratch_new(), *path = scratch_path(folder, "w.safetensors");
    FgFail fail = {0};
    fg_safetensors_write(path, tensors, n, give, (void *)sources, &fail);
    FgSafetensors *file = fg_safetensors_open(path, &fail);
    if (file)
        fg_weights_load(&f->store, file, prefix, extra, &fail);
    fg_safetensors_close(file);
    scratch_remove(folder);
    free(path);
    free(folder);
    return fail.text;
}

static void loading(int *failures)
{
    const Entry plain[] = {
        {"table", FG_ST_F32, 8, 8, 0}, {"extra", FG_ST_F32, 3, 0, 0}, {"more", FG_ST_F32, 2, 0, 0}};
    const Entry tied[] = {{"m.head", FG_ST_BF16, 8, 8, 0}, {"m.extra", FG_ST_F32, 3, 0, 0}};
    uint32_t extra = 0;
    float out[N];
    Fixture f;
    fixture_open(&f, 3, true);
    CHECK(!load(&f, plain, 3, "", &extra));
    CHECK_EQ_U64(extra, 1);
    fg_store_get(&f.store, 0, FG_PART_WEIGHT, 0, N, out);
    CHECK(out[0] == 0 && out[21] == 21 && out[22] == 22 && out[63] == 63);
    fg_store_get(&f.store, 1, FG_PART_WEIGHT, 0, 3, out);
    CHECK(out[2] == 2);
    CHECK(!load(&f, tied, 2, "m.", &extra));
    CHECK_EQ_U64(extra, 0);
    fg_store_get(&f.store, 0, FG_PART_WEIGHT, 0, N, out);
    CHECK(out[63] == 63);
    fixture_close(&f);
}

static void loading_the_wrong_file(int *failures)
{
    const Entry prefixed[] = {{"model.table", FG_ST_F32, 8, 8, 0}, {"extr", FG_ST_F32, 3, 0, 0}};
    const Entry shapes[] = {{"table", FG_ST_F32, 4, 8, 0}, {"extra", FG_ST_I32, 3, 0, 0}};
    uint32_t extra;
    Fixture f;
    fixture_open(&f, 2, false);
    char *text = load(&f, prefixed, 2, "", &extra);
    CHECK(text &&
          strstr(text, "missing: table (there is 'model.table': --weights-prefix 'model.')"));
    CHECK(text && strstr(text, "missing: extra (there is 'extr')"));
    free(text);
    text = load(&f, shapes, 2, "", &extra);
    CHECK(text && strstr(text, "wrong: table is F32 [4, 8], this model has [8, 8]"));
    CHECK(text && strstr(text, "wrong: extra is I32 [3], this model has [3]"));
    free(text);
    fixture_close(&f);
}

/* A file may hold a tied parameter under both names, if they say the same. */
static void both_tied_names(int *failures)
{
    Entry both[] = {
        {"table", FG_ST_F32, 8, 8, 0}, {"extra", FG_ST_F32, 3, 0, 0}, {"head", FG_ST_F32, 8, 8, 0}};
    uint32_t extra = 9;
    Fixture f;
    fixture_open(&f, 2, false);
    CHECK(!load(&f, both, 3, "", &extra));
    CHECK_EQ_U64(extra, 0);
    both[2].dtype = FG_ST_BF16; /* which has all these values */
    CHECK(!load(&f, both, 3, "", &extra));
    both[2].first = 1;
    char *text = load(&f, both, 3, "", &extra);
    CHECK(text && strstr(text, "differ: table and head, two names of one tied parameter"));
    free(text);
    both[2].dtype = FG_ST_F32;
    text = load(&f, both, 3, "", &extra);
    CHECK(text && strstr(text, "differ: table and head, two names of one tied parameter"));
    free(text);
    both[2].rows = 7;
    text = load(&f, both, 3, "", &extra);
    CHECK(text && strstr(text, "wrong: head is F32 [7, 8], this model has [8, 8]"));
    free(text);
    fixture_close(&f);
}

UNIT_MAIN({"initial values do not depend on ranks", init_is_rank_free},
          {"distributions", distributions}, {"masters and copies", masters_and_copies},
          {"rounding", rounding}, {"loading", loading},
          {"loading the wrong file", loading_the_wrong_file},
          {"both names of a tied parameter", both_tied_names})
