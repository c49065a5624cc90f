/* From gradient to weights: the exact norm, clipping, AdamW over pieces of a bucket, gaps. */
#include <stdlib.h>

#include "runtime/host/elements.h"
#include "runtime/host/exact.h"
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

/* ---- the exact accumulator ---- */

static float wild(Rig *rig) /* any finite f32, subnormal ones too */
{
    return (float)ldexp(rig_random(rig), (int)(rig_random(rig) * 137) - 11);
}

static void norm_does_not_depend_on_order(int *failures)
{
    enum { COUNT = 5000, RANKS = 3 };
    Rig rig = rig_open(1 << 16);
    float *values = malloc(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++)
        values[i] = wild(&rig);
    int64_t first[FG_RT_NORM_LIMBS] = {0};
    fg_exact_add_squares(first, values, COUNT);
    for (int round = 0; round < 5; round++) {
        for (int i = COUNT - 1; i > 0; i--) {
            int j = (int)((rig_random(&rig) + 1) / 2 * i);
            float swap = values[i];
            values[i] = values[j];
            values[j] = swap;
        }
        int64_t again[FG_RT_NORM_LIMBS] = {0}, sum[FG_RT_NORM_LIMBS] = {0};
        fg_exact_add_squares(again, values, COUNT);
        CHECK(memcmp(first, again, sizeof first) == 0);
        for (int rank = 0; rank < RANKS; rank++) { /* ranks apart, then their sum */
            int64_t part[FG_RT_NORM_LIMBS] = {0};
            int begin = COUNT * rank / RANKS, end = COUNT * (rank + 1) / RANKS;
            fg_exact_add_squares(part, values + begin, (uint64_t)(end - begin));
            for (int i = 0; i < FG_RT_NORM_LIMBS; i++)
                sum[i] += part[i];
        }
        CHECK(fg_exact_value(sum) == fg_exact_value(first));
    }
    free(values);
    rig_close(&rig);
}

static void norm_is_exact(int *failures)
{
    Rig rig = rig_open(1 << 16);
    /* Integers whose sum of squares fits 64 bits: the exact sum is known. */
    for (int round = 0; round < 200; round++) {
        int64_t limbs[FG_RT_NORM_LIMBS] = {0};
        uint64_t expected = 0;
        int scale = (int)(rig_random(&rig) * 60);
        for (int i = 0; i < 100; i++) {
            uint64_t whole = (uint64_t)((rig_random(&rig) + 1) * 0x1p23);
            float value = (float)ldexp((double)whole, scale);
            expected += whole * whole;
            fg_exact_add_squares(limbs, &value, 1);
        }
        CHECK(fg_exact_value(limbs) == ldexp((double)expected, 2 * scale));
    }
    /* Ties: 2^53 + 1 + tiny rounds up, without tiny it rounds to even. */
    const float tie[] = {0x1p26f, 0x1p26f, 1, 0x1p-149f};
    int64_t limbs[FG_RT_NORM_LIMBS] = {0};
    fg_exact_add_squares(limbs, tie, 3);
    CHECK(fg_exact_value(limbs) == 0x1p53);
    fg_exact_add_squares(limbs, tie + 3, 1);
    CHECK(fg_exact_value(limbs) == 0x1p53 + 2);
    /* The ends of the range. */
    const float least = 0x1p-149f, most = 0x1.fffffep127f;
    int64_t small[FG_RT_NORM_LIMBS] = {0}, large[FG_RT_NORM_LIMBS] = {0};
    fg_exact_add_squares(small, &least, 1);
    fg_exact_add_squares(large, &most, 1);
    CHECK(fg_exact_value(small) == 0x1p-298);
    CHECK(fg_exact_value(large) == (double)most * (double)most);
    rig_close(&rig);
}

static void norm_of_what_is_not_finite(int *failures)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        int64_t limbs[FG_RT_NORM_LIMBS] = {0};
        const float good = 1;
        fg_exact_add_squares(limbs, &bad[i], 1);
        fg_exact_add_squares(limbs, &good, 1);
        CHECK(isnan(fg_exact_value(limbs)));
    }
    int64_t none[FG_RT_NORM_LIMBS] = {0};
    CHECK(fg_exact_value(none) == 0);
}

/* ---- a bucket of two parameters with gaps: [0, 5) decays, [8, 21) does not, 24 elements in all
 * ---- */

enum { ELEMENTS = 24, RANKS = 2, OWN = ELEMENTS / RANKS };
static const FgRtParam PARAMS[] = {
    {.name = "b", .offset = 8, .elements = 13, .trainable = 1},
    {.name = "a", .offset = 0, .elements = 5, .trainable = 1, .decay = 1}};
static const uint32_t BUCKET_PARAMS[] = {1, 0};
static const FgRtBucket BUCKET = {
    .name = "bucket", .trainable = 1, .elements = ELEMENTS, .n_params = 2};

static Rig open_bucket_of(double clip, uint32_t ranks)
{
    FgRtProgram program = {.abi = FG_RT_ABI,
                           .ranks = ranks,
                           .clip = clip,
                           .state_bytes = 1 << 14,
                           .params = PARAMS,
                           .buckets = &BUCKET,
                           .bucket_params = BUCKET_PARAMS,
                           .n_params = 2,
                           .n_buckets = 1};
    return rig_open_program(&program, (FgRtOptions){.checked = 1});
}

static Rig open_bucket(double clip)
{
    return open_bucket_of(clip, RANKS);
}

static bool is_gap(uint64_t i)
{
    return (i >= 5 && i < 8) || i >= 21;
}

static void grad_buffer(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16};
    for (int d = 0; d < 2; d++) {
        Rig rig = open_bucket(0);
        Array buffer = rig_values(&rig, types[d], ELEMENTS, 1);
        rig_begin(&rig);
        fg_rt_grad_buffer(rig.cx, 0, FG_COMPUTE, buffer.at, 0, ELEMENTS, types[d]);
        rig_check_ok(&rig, "grad_buffer", failures);
        for (uint64_t i = 0; i < ELEMENTS; i++)
            CHECK(!is_gap(i) || rig_get(&rig, &buffer, i) == 0);
        rig_close(&rig);
    }
}

/* Both ranks own a slice; this thread plays them one after the other. */
static void norm_add(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16};
    for (int d = 0; d < 2; d++)
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            Rig rig = open_bucket(0);
            Array grad = rig_values(&rig, types[d], OWN, 1),
                  norm = rig_result(&rig, FG_RT_I64, FG_RT_NORM_LIMBS);
            double expected = 0;
            for (uint64_t i = 0; i < OWN; i++)
                expected += is_gap(rank * OWN + i) ? 0 : grad.v[i] * grad.v[i];
            FgRtCx *cx = fg_rt_group_rank(rig.group, rank);
            memcpy(fg_rt_memory(cx, 0), fg_rt_memory(rig.cx, 0), rig.program.state_bytes);
            rig.cx = cx;
            rig_begin(&rig);
            fg_rt_norm_add(cx, 0, FG_COMPUTE, grad.at, norm.at, 0, OWN, types[d], 0);
            CHECK_NEAR(fg_exact_value(fg_rt_memory(cx, norm.at)), expected, 1e-15 * expected);
            fg_rt_norm_add(cx, 0, FG_COMPUTE, grad.at, norm.at, 0, OWN, types[d], 1);
            CHECK_NEAR(fg_exact_value(fg_rt_memory(cx, norm.at)), 2 * expected, 2e-15 * expected);
            rig_check_ok(&rig, "norm_add", failures);
            rig.cx = fg_rt_group_rank(rig.group, 0);
            rig_close(&rig);
        }
}

static void clip_factor(int *failures)
{
    const double clips[] = {0, 1, 100};
    for (int i = 0; i < 3; i++) {
        Rig rig = open_bucket(clips[i]);
        Array scalars = rig_values(&rig, FG_RT_F32, FG_RT_SCALARS, 1);
        Array norm = rig_result(&rig, FG_RT_I64, FG_RT_NORM_LIMBS);
        const float grad[] = {3, 4};
        fg_exact_add_squares(fg_rt_memory(rig.cx, norm.at), grad, 2);
        rig_begin(&rig);
        fg_rt_clip_factor(rig.cx, 0, FG_REDUCE, norm.at, scalars.at, clips[i]);
        scalars.v[FG_RT_S_NORM] = 5;
        scalars.v[FG_RT_S_FACTOR] = clips[i] == 1 ? 1 / (5 + 1e-6) : 1;
        rig_check(&rig, &scalars, 0, "clip_factor", failures);
        rig_close(&rig);
    }
}

/* A step with a scaled loss: the sum of squares is (4096 * 5)^2, the scale 4096. */
static void scaled_step(double window, double left, double scale, float worst, double loss,
                        float *set, double *scaler, int *failures)
{
    Rig rig = open_bucket(1);
    Array scalars = rig_values(&rig, FG_RT_F32, FG_RT_SCALARS, 1);
    Array norm = rig_result(&rig, FG_RT_I64, FG_RT_NORM_LIMBS);
    Array state = rig_values(&rig, FG_RT_F64, FG_RT_SCALER, 1);
    Array sum = rig_values(&rig, FG_RT_F64, 1, 1);
    const float grad[] = {3 * (float)scale, 4 * (float)scale, worst};
    float *current = fg_rt_memory(rig.cx, scalars.at);
    double *moving = fg_rt_memory(rig.cx, state.at), *total = fg_rt_memory(rig.cx, sum.at);
    fg_exact_add_squares(fg_rt_memory(rig.cx, norm.at), grad, 3);
    memset(current, 0, FG_RT_SCALARS * sizeof *current);
    memset(moving, 0, FG_RT_SCALER * sizeof *moving);
    current[FG_RT_S_SEED] = 0.125f;
    current[FG_RT_S_BETA1] = 0.5f;
    current[FG_RT_S_BETA2] = 0.75f;
    current[FG_RT_S_VALID] = 1;
    current[FG_RT_S_WINDOW] = (float)window;
    current[FG_RT_S_HYSTERESIS] = 3;
    moving[FG_RT_L_SCALE] = scale;
    moving[FG_RT_L_GOOD] = 4;
    moving[FG_RT_L_LEFT] = left;
    moving[FG_RT_L_UPDATES] = 2;
    moving[FG_RT_L_POWER1] = 0.25;
    moving[FG_RT_L_POWER2] = 0.5625;
    *total = loss * scale;
    rig_begin(&rig);
    fg_rt_loss_scale(rig.cx, 0, FG_REDUCE, state.at, scalars.at);
    CHECK(current[FG_RT_S_SEED] == 0.125f * (float)scale);
    fg_rt_scale_step(rig.cx, 0, FG_REDUCE, norm.at, scalars.at, state.at, sum.at, 1);
    rig_check_ok(&rig, "scale_step", failures);
    CHECK(*total == loss);
    CHECK(moving[FG_RT_L_USED] == scale);
    memcpy(set, current, FG_RT_SET * sizeof *set);
    memcpy(scaler, moving, FG_RT_SCALER * sizeof *scaler);
    rig_close(&rig);
}

static void scale_of_an_update(int *failures)
{
    float set[FG_RT_SET];
    double scaler[FG_RT_SCALER];
    scaled_step(9, 1, 4096, 0, 2.5, set, scaler, failures);
    CHECK(set[FG_RT_S_NORM] == 5 && set[FG_RT_S_VALID] == 1 && scaler[FG_RT_L_OVER] == 0);
    CHECK(set[FG_RT_S_FACTOR] == (float)(1 / (5 + 1e-6)) / 4096);
    CHECK(set[FG_RT_S_CORRECT1] == 0.875f && set[FG_RT_S_CORRECT2] == 0.578125f);
    CHECK(scaler[FG_RT_L_UPDATES] == 3 && scaler[FG_RT_L_SKIPPED] == 0);
    CHECK(scaler[FG_RT_L_POWER1] == 0.125 && scaler[FG_RT_L_POWER2] == 0.421875);
    CHECK(scaler[FG_RT_L_GOOD] == 5 && scaler[FG_RT_L_SCALE] == 4096);
    scaled_step(5, 1, 4096, 0, 2.5, set, scaler, failures);
    CHECK(scaler[FG_RT_L_GOOD] == 0 && scaler[FG_RT_L_SCALE] == 8192);
    CHECK(scaler[FG_RT_L_LEFT] == 3);
    scaled_step(5, 1, 0x1p64, 0, 2.5, set, scaler, failures);
    CHECK(scaler[FG_RT_L_SCALE] == 0x1p64);
    scaled_step(0, 1, 4096, 0, 2.5, set, scaler, failures); /* fixed */
    CHECK(scaler[FG_RT_L_GOOD] == 5 && scaler[FG_RT_L_SCALE] == 4096);
}

static void scale_of_an_overflow(int *failures)
{
    static const struct {
        double window, left, scale, next, next_left, loss;
        float worst;
    } cases[] = {{9, 1, 4096, 2048, 1, 2.5, INFINITY}, {9, 1, 4096, 2048, 1, 2.5, NAN},
                 {9, 1, 4096, 2048, 1, INFINITY, 0},   {9, 2, 4096, 4096, 1, 2.5, -INFINITY},
                 {9, 1, 1, 1, 1, 2.5, INFINITY},       {0, 1, 4096, 4096, 1, 2.5, INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float set[FG_RT_SET];
        double scaler[FG_RT_SCALER];
        scaled_step(cases[i].window, cases[i].left, cases[i].scale, cases[i].worst, cases[i].loss,
                    set, scaler, failures);
        CHECK(set[FG_RT_S_VALID] == 0 && scaler[FG_RT_L_OVER] == 1);
        CHECK(scaler[FG_RT_L_UPDATES] == 2 && scaler[FG_RT_L_SKIPPED] == 1);
        CHECK(scaler[FG_RT_L_POWER1] == 0.25 && scaler[FG_RT_L_GOOD] == 0);
        CHECK(scaler[FG_RT_L_SCALE] == cases[i].next);
        CHECK(scaler[FG_RT_L_LEFT] == cases[i].next_left);
    }
}

static void set_scalars(Rig *rig, const Array *scalars, uint64_t set, double valid)
{
    const float values[FG_RT_SET] = {
        [FG_RT_S_LR] = 0.01f,       [FG_RT_S_BETA1] = 0.9f,   [FG_RT_S_BETA2] = 0.99f,
        [FG_RT_S_EPS] = 1e-3f,      [FG_RT_S_DECAY] = 0.1f,   [FG_RT_S_CORRECT1] = 0.19f,
        [FG_RT_S_CORRECT2] = 0.02f, [FG_RT_S_FACTOR] = 0.25f, [FG_RT_S_VALID] = (float)valid};
    memcpy((float *)fg_rt_memory(rig->cx, scalars->at) + set * FG_RT_SET, values, sizeof values);
}

static void adamw_case(uint64_t dt, double clip, uint64_t set, double valid, int *failures)
{
    Rig rig = open_bucket(clip);
    Array grad = rig_values(&rig, dt, OWN, 1), m = rig_values(&rig, FG_RT_F32, OWN, 1);
    Array v = rig_values(&rig, FG_RT_F32, OWN, 1), w = rig_values(&rig, FG_RT_F32, OWN, 1);
    Array shard = dt == FG_RT_F32 ? w : rig_values(&rig, dt, OWN, 1);
    Array scalars = rig_values(&rig, FG_RT_F32, FG_RT_SCALARS, 1);
    for (uint64_t i = 0; i < OWN; i++) {
        v.v[i] = fabs(v.v[i]);
        ((float *)fg_rt_memory(rig.cx, v.at))[i] = (float)v.v[i];
        if (is_gap(i) || valid == 0)
            continue;
        double g = grad.v[i] * (clip > 0 ? 0.25 : 1);
        m.v[i] = 0.9 * m.v[i] + 0.1 * g;
        v.v[i] = 0.99 * v.v[i] + 0.01 * g * g;
        w.v[i] -= w.v[i] * (i < 5 ? 0.01 * 0.1 : 0) +
                  0.01 * (m.v[i] / 0.19) / (sqrt(v.v[i] / 0.02) + 1e-3);
        shard.v[i] = w.v[i];
    }
    set_scalars(&rig, &scalars, set, valid);
    bool counts = clip == 0;
    Array norm = rig_values(&rig, FG_RT_I64, FG_RT_NORM_LIMBS, 1);
    Array expected = rig_values(&rig, FG_RT_I64, FG_RT_NORM_LIMBS, 1);
    rig_begin(&rig);
    fg_rt_norm_add(rig.cx, 0, FG_REDUCE, grad.at, norm.at, 0, OWN, dt, 0);
    fg_rt_norm_add(rig.cx, 0, FG_REDUCE, grad.at, expected.at, 0, OWN, dt, 0);
    if (counts)
        fg_rt_norm_add(rig.cx, 0, FG_REDUCE, grad.at, expected.at, 0, OWN, dt, 1);
    fg_rt_adamw(rig.cx, 0, FG_REDUCE, grad.at, dt == FG_RT_F32 ? FG_RT_NONE : w.at, m.at, v.at,
                shard.at, counts ? norm.at : FG_RT_NONE, scalars.at, 0, OWN, dt, dt, set);
    CHECK(memcmp(fg_rt_memory(rig.cx, norm.at), fg_rt_memory(rig.cx, expected.at),
                 FG_RT_NORM_LIMBS * sizeof(int64_t)) == 0);
    rig_check(&rig, &m, 1e-6, "moment1", failures);
    rig_check(&rig, &v, 1e-6, "moment2", failures);
    rig_check(&rig, &w, 1e-6, "weights", failures);
    rig_check(&rig, &shard, 1e-6, "shard", failures);
    rig_close(&rig);
}

static void adamw(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16};
    for (int d = 0; d < 2; d++) {
        adamw_case(types[d], 0, FG_RT_CURRENT, 1, failures);
        adamw_case(types[d], 1, FG_RT_PENDING, 1, failures);
        adamw_case(types[d], 1, FG_RT_PENDING, 0, failures);
    }
}

/* All that an update leaves, one after the other. */
enum { STATES = 3 };

/* The gradient that the parts of all ranks come to, as a reduction makes it: bit for bit the same
 * update, and the same norm, begun or added to. */
static void adamw_parts_case(uint64_t dt, uint32_t ranks, uint64_t adds, int *failures)
{
    Rig rig = open_bucket_of(0, ranks);
    const uint64_t own = ELEMENTS / ranks, f32 = FG_RT_F32;
    Array parts = rig_values(&rig, dt, ELEMENTS, 1), grad = rig_values(&rig, dt, own, 1);
    Array w[STATES], again[STATES], shard[2];
    for (int i = 0; i < STATES; i++) {
        w[i] = rig_values(&rig, f32, own, 1);
        again[i] = rig_values(&rig, f32, own, 1);
        for (uint64_t k = 0; k < own && i == 2; k++) /* second moments */
            ((float *)fg_rt_memory(rig.cx, w[i].at))[k] = 0.25f;
        memcpy(fg_rt_memory(rig.cx, again[i].at), fg_rt_memory(rig.cx, w[i].at), own * 4);
    }
    shard[0] = rig_values(&rig, FG_RT_BF16, own, 1);
    shard[1] = rig_values(&rig, FG_RT_BF16, own, 1);
    memcpy(fg_rt_memory(rig.cx, shard[1].at), fg_rt_memory(rig.cx, shard[0].at), own * 2);
    for (uint64_t i = 0; i < own; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < ranks; r++)
            sum += (float)rig_get(&rig, &parts, r * own + i);
        fg_store_one(fg_rt_memory(rig.cx, grad.at), dt, i, sum);
    }
    Array scalars = rig_values(&rig, f32, FG_RT_SCALARS, 1);
    set_scalars(&rig, &scalars, FG_RT_CURRENT, 1);
    Array norm = rig_values(&rig, FG_RT_I64, FG_RT_NORM_LIMBS, 1);
    Array expected = rig_values(&rig, FG_RT_I64, FG_RT_NORM_LIMBS, 1);
    rig_begin(&rig);
    fg_rt_norm_add(rig.cx, 0, FG_COPY, grad.at, norm.at, 0, own, dt, 0);
    fg_rt_norm_add(rig.cx, 0, FG_COPY, grad.at, expected.at, 0, own, dt, 0);
    if (adds)
        fg_rt_norm_add(rig.cx, 0, FG_COPY, grad.at, expected.at, 0, own, dt, 1);
    fg_rt_adamw(rig.cx, 0, FG_COPY, grad.at, w[0].at, w[1].at, w[2].at, shard[0].at, FG_RT_NONE,
                scalars.at, 0, own, dt, FG_RT_BF16, FG_RT_CURRENT);
    fg_rt_adamw_parts(rig.cx, 0, FG_COPY, parts.at, again[0].at, again[1].at, again[2].at,
                      shard[1].at, norm.at, scalars.at, 0, own, dt, FG_RT_BF16, adds);
    rig_check_ok(&rig, "adamw_parts", failures);
    for (int i = 0; i < STATES; i++)
        CHECK(memcmp(fg_rt_memory(rig.cx, w[i].at), fg_rt_memory(rig.cx, again[i].at), own * 4) ==
              0);
    CHECK(memcmp(fg_rt_memory(rig.cx, shard[0].at), fg_rt_memory(rig.cx, shard[1].at), own * 2) ==
          0);
    CHECK(memcmp(fg_rt_memory(rig.cx, norm.at), fg_rt_memory(rig.cx, expected.at),
                 FG_RT_NORM_LIMBS * sizeof(int64_t)) == 0);
    rig_close(&rig);
}

static void adamw_parts(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16};
    for (int d = 0; d < 3; d++)
        for (uint32_t ranks = 1; ranks <= 3; ranks++)
            for (uint64_t adds = 0; adds < 2; adds++)
                adamw_parts_case(types[d], ranks, adds, failures);
}

static uint64_t bytes_of(uint64_t dt)
{
    return dt == FG_RT_F32 ? 4 : 2;
}

/* Two calls, of the rows that a set names and of all other elements, leave what one adamw does, bit
 * by bit, and count the same; without a gradient as with zeros. The table of 5 rows of 3 begins
 * before the slice, or ends inside it. */
static void rows_case(uint64_t dt, uint64_t table, bool zero, int *failures)
{
    const int32_t ids[] = {3, 1, 3};
    Array states[2][5], norms[2];
    Rig rig = open_bucket(0);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 5; i++) /* gradient, moments, weights, shard */
            states[k][i] = rig_values(&rig, i == 0 || i == 4 ? dt : FG_RT_F32, OWN, 1);
    Array scalars = rig_values(&rig, FG_RT_F32, FG_RT_SCALARS, 1);
    Array named = rig_values(&rig, FG_RT_I32, 3, 1), set = rig_values(&rig, FG_RT_I32, 1, 1);
    for (int k = 0; k < 2; k++)
        norms[k] = rig_values(&rig, FG_RT_I64, FG_RT_NORM_LIMBS, 1);
    set_scalars(&rig, &scalars, FG_RT_CURRENT, 1);
    memcpy(fg_rt_memory(rig.cx, named.at), ids, sizeof ids);
    memset(fg_rt_memory(rig.cx, norms[0].at), 0, FG_RT_NORM_LIMBS * sizeof(int64_t));
    memset(fg_rt_memory(rig.cx, norms[1].at), 0, FG_RT_NORM_LIMBS * sizeof(int64_t));
    if (zero)
        memset(fg_rt_memory(rig.cx, states[0][0].at), 0, OWN * bytes_of(dt));
    for (int i = 0; i < 5; i++) {
        uint64_t size = i == 0 || i == 4 ? bytes_of(dt) : 4;
        if (i == 2) /* a second moment */
            for (uint64_t e = 0; e < OWN; e++)
                ((float *)fg_rt_memory(rig.cx, states[0][i].at))[e] = 0.5f;
        memcpy(fg_rt_memory(rig.cx, states[1][i].at), fg_rt_memory(rig.cx, states[0][i].at),
               OWN * size);
    }
    const Array *a = states[0], *b = states[1];
    rig_begin(&rig);
    fg_rt_adamw(rig.cx, 0, FG_COPY, a[0].at, a[3].at, a[1].at, a[2].at, a[4].at, norms[0].at,
                scalars.at, 0, OWN, dt, dt, FG_RT_CURRENT);
    fg_rt_row_set(rig.cx, 0, FG_COPY, named.at, set.at, 3, 5, 1);
    for (uint64_t last = 0; last < 2; last++)
        fg_rt_adamw_rows(rig.cx, 0, FG_COPY, zero && !last ? FG_RT_NONE : b[0].at, b[3].at, b[1].at,
                         b[2].at, b[4].at, norms[1].at, scalars.at, set.at, 0, table, 3, 5, 1, OWN,
                         dt, dt, last);
    for (int i = 1; i < 5; i++)
        CHECK(memcmp(fg_rt_memory(rig.cx, a[i].at), fg_rt_memory(rig.cx, b[i].at),
                     OWN * (i == 4 ? bytes_of(dt) : 4)) == 0);
    CHECK(*(int32_t *)fg_rt_memory(rig.cx, set.at) == 10);
    CHECK(memcmp(fg_rt_memory(rig.cx, norms[0].at), fg_rt_memory(rig.cx, norms[1].at),
                 FG_RT_NORM_LIMBS * sizeof(int64_t)) == 0);
    rig_close(&rig);
}

static void adamw_of_rows(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16};
    for (int d = 0; d < 2; d++)
        for (uint64_t table = 0; table < ELEMENTS; table += 5) {
            rows_case(types[d], table, false, failures);
            rows_case(types[d], table, true, failures);
        }
}

static void wrong_bucket(int *failures)
{
    Rig rig = open_bucket(0);
    Array buffer = rig_values(&rig, FG_RT_F32, ELEMENTS, 1);
    rig_begin(&rig);
    fg_rt_grad_buffer(rig.cx, 0, FG_COMPUTE, buffer.at, 1, ELEMENTS, FG_RT_F32);
    CHECK(strstr(fg_rt_status(rig.cx).text, "bucket 1") != NULL);
    rig_close(&rig);
}

UNIT_MAIN({"norm_does_not_depend_on_order", norm_does_not_depend_on_order},
          {"norm_is_exact", norm_is_exact},
          {"norm_of_what_is_not_finite", norm_of_what_is_not_finite}, {"grad_buffer", grad_buffer},
          {"norm_add", norm_add}, {"clip_factor", clip_factor}, {"adamw", adamw},
          {"adamw_parts", adamw_parts}, {"adamw_of_rows", adamw_of_rows},
          {"scale_of_an_update", scale_of_an_update},
          {"scale_of_an_overflow", scale_of_an_overflow}, {"wrong_bucket", wrong_bucket})
