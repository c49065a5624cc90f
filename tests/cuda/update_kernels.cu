/* The calls that work on a bucket's gradient and states, against the host's: gaps, norm, clipping,
 * the loss's scale, AdamW in all its forms. */
#include "tests/cuda/kernel_cases.h"

/* Two buckets on two ranks, or three: pieces that begin and end anywhere, gaps, a parameter that is
 * cut. */
static const FgRtParam params[] = {
    {"a", 0, 0, 1000, 0, 1, FG_RT_NORMAL, 1, 1, 1, 0, 0},
    {"b", 0, 1024, 3001, 0, 1, FG_RT_NORMAL, 1, 1, 0, 0, 0},
    {"c", 0, 4096, 9, 0, 1, FG_RT_NORMAL, 1, 1, 1, 0, 0},
    {"d", 1, 3, 70000, 0, 1, FG_RT_NORMAL, 1, 1, 1, 0, 0},
};
static const uint32_t bucket_params[] = {0, 1, 2, 3};
static const FgRtBucket buckets[] = {
    {"x", FG_RT_BF16, 1, 4224, 0, 3, 0, 0, 0, 0, 0, 0},
    {"y", FG_RT_BF16, 1, 70080, 3, 1, 0, 0, 0, 0, 0, 0},
};

static FgRtProgram update_program(double clip, int scales_loss, uint32_t ranks = 2)
{
    FgRtProgram program = {};
    program.ranks = ranks;
    program.clip = clip;
    program.scales_loss = scales_loss;
    program.params = params;
    program.n_params = 4;
    program.buckets = buckets;
    program.n_buckets = 2;
    program.bucket_params = bucket_params;
    return program;
}

static void test_buffers(Rig &r)
{
    for (uint64_t wire : FLOATS)
        for (uint64_t bucket : {0, 1}) {
            uint64_t n = buckets[bucket].elements;
            r.begin();
            uint64_t to = r.normal(wire, n);
            r.changes(to, wire, n, SAME);
            CHECK(r, label("grad_buffer", wire, {bucket}), grad_buffer, to, bucket, n, wire);
        }
}

static void test_norm(Rig &r)
{
    for (uint64_t dt : FLOATS)
        for (uint64_t bucket : {0, 1})
            for (uint64_t accumulate : {0, 1})
                for (int kind = 0; kind < 4; kind++) {
                    uint64_t n = buckets[bucket].elements / 2;
                    r.begin();
                    uint64_t g = kind == 0   ? r.normal(dt, n, 1e-4)
                                 : kind == 1 ? r.bits(dt, n)
                                             : r.normal(dt, n, 1);
                    for (uint64_t i = 0; kind == 2 && i < n; i++) /* mostly zeros, and outliers */
                        r.set(g, dt, i, i % 97 == 0 ? r.get(g, dt, i) * 1e4 : 0);
                    if (kind == 3) {
                        r.set(g, dt, 5, INFINITY);
                        r.set(g, dt, 77, NAN);
                    }
                    uint64_t limbs = r.room(FG_RT_I64, FG_RT_NORM_LIMBS);
                    for (uint64_t i = 0; i < FG_RT_NORM_LIMBS; i++)
                        r.set(limbs, FG_RT_I64, i, i == 9 ? 12345 : 0);
                    r.changes(limbs, FG_RT_I64, FG_RT_NORM_LIMBS, LIMBS);
                    CHECK(r, label("norm_add", dt, {bucket, accumulate, (uint64_t)kind}), norm_add,
                          g, limbs, bucket, n, dt, accumulate);
                }
}

static void test_clip(Rig &r)
{
    static const int64_t limbs[][3] = {/* limb, value, value of the next */
                                       {0, 0, 0},       {10, 1, 0},          {9, 0xffffffff, 77},
                                       {0, 1, 0},       {9, -3, 1},          {17, 12345678901, 3},
                                       {8, 123, 45678}, {21, 0xffffffff, 1}, {5, 1, 1LL << 40}};
    for (double clip : {0.0, 1.0, 1e-3})
        for (const auto &l : limbs) {
            r.begin();
            uint64_t norm = r.room(FG_RT_I64, FG_RT_NORM_LIMBS);
            for (uint64_t i = 0; i < FG_RT_NORM_LIMBS; i++)
                r.set(norm, FG_RT_I64, i, 0);
            r.set(norm, FG_RT_I64, (uint64_t)l[0], (double)l[1]);
            r.set(norm, FG_RT_I64, (uint64_t)l[0] + 1, (double)l[2]);
            uint64_t scalars = r.positive(FG_RT_F32, FG_RT_SCALARS);
            r.changes(scalars, FG_RT_F32, FG_RT_SCALARS, SAME);
            CHECK(r, label("clip_factor", FG_RT_F32, {(uint64_t)l[0]}), clip_factor, norm, scalars,
                  clip);
        }
}

/* The end of a step with a scaled loss: updates, overflows of either sum, growth, a fixed scale. */
static void test_scale(Rig &r)
{
    enum { PLAIN, GROWS, OVERFLOWS, STANDS_ONE, LOSS_OVERFLOWS, FIXED, LEAST, N };
    const uint64_t f64 = FG_RT_F64, f32 = FG_RT_F32;
    for (double clip : {0.0, 1e-3})
        for (int kind = 0; kind < N; kind++) {
            r.begin();
            bool over = kind == OVERFLOWS || kind == STANDS_ONE || kind == FIXED || kind == LEAST;
            uint64_t norm = r.room(FG_RT_I64, FG_RT_NORM_LIMBS);
            for (uint64_t i = 0; i < FG_RT_NORM_LIMBS; i++)
                r.set(norm, FG_RT_I64, i, i == 10 ? 98765 : i == 9 ? 4321 : 0);
            if (over)
                r.set(norm, FG_RT_I64, FG_RT_NORM_LIMBS - 1, 3);
            uint64_t scalars = r.positive(f32, FG_RT_SCALARS);
            r.set(scalars, f32, FG_RT_S_BETA1, 0.9);
            r.set(scalars, f32, FG_RT_S_BETA2, 0.95);
            r.set(scalars, f32, FG_RT_S_WINDOW, kind == FIXED ? 0 : 5);
            r.set(scalars, f32, FG_RT_S_HYSTERESIS, 2);
            uint64_t scaler = r.room(f64, FG_RT_SCALER);
            for (uint64_t i = 0; i < FG_RT_SCALER; i++)
                r.set(scaler, f64, i, 0);
            r.set(scaler, f64, FG_RT_L_SCALE, kind == LEAST ? 1 : 65536);
            r.set(scaler, f64, FG_RT_L_GOOD, kind == GROWS ? 4 : 2);
            r.set(scaler, f64, FG_RT_L_LEFT, kind == STANDS_ONE ? 2 : 1);
            r.set(scaler, f64, FG_RT_L_UPDATES, 7);
            r.set(scaler, f64, FG_RT_L_POWER1, 0.478);
            r.set(scaler, f64, FG_RT_L_POWER2, 0.698);
            uint64_t loss = r.values(f64, {kind == LOSS_OVERFLOWS ? INFINITY : 310000.5});
            r.changes(scalars, f32, FG_RT_SCALARS, SAME);
            r.changes(scaler, f64, FG_RT_SCALER, SAME);
            r.changes(loss, f64, 1, SAME);
            CHECK(r, label("scale_step", f32, {(uint64_t)kind}), scale_step, norm, scalars, scaler,
                  loss, clip);
        }
    r.begin();
    uint64_t scaler = r.positive(f64, FG_RT_SCALER), scalars = r.positive(f32, FG_RT_SCALARS);
    r.set(scaler, f64, FG_RT_L_SCALE, 65536);
    r.changes(scalars, f32, FG_RT_SCALARS, SAME);
    CHECK(r, label("loss_scale", f32, {}), loss_scale, scaler, scalars);
}

/* ---- AdamW ---- */

/* What an update changes, over a slice of n elements, and its scalars. Moments have the host's
 * bits; weights differ by what root and quotient of a device do, 2 units in the last place of the
 * step. The step is of the order of the weights here, so that the tolerance, which goes by the
 * largest weight, is as narrow for it: 1 / 0.19 of a moment near 1 over a root near 1 / sqrt(0.05).
 */
struct Update {
    uint64_t master = NONE, m1, m2, shard, scalars, norm = NONE, n_sm;

    /* few: of the device's multiprocessors, so that a slice of these tests is a large one. */
    Update(Rig &r, uint64_t dt, uint64_t n, int few, uint64_t set = FG_RT_CURRENT, int valid = 1)
        : n_sm((uint64_t)r.cx.n_sm)
    {
        const uint64_t f32 = FG_RT_F32;
        const Compare weights = valid ? CLOSE : SAME;
        const double values[] = {0, 1, 0.9, 0.95, 1e-8, 0.1, 0.19, 0.05, 17, 0.6, (double)valid};
        if (few)
            r.cx.n_sm = few;
        m1 = r.normal(f32, n);
        m2 = r.positive(f32, n);
        shard = r.normal(dt, n);
        if (dt != f32) {
            master = r.normal(f32, n);
            r.changes(master, f32, n, weights);
        }
        r.changes(m1, f32, n, SAME);
        r.changes(m2, f32, n, SAME);
        r.changes(shard, dt, n, weights);
        scalars = r.room(f32, FG_RT_SCALARS);
        for (uint64_t i = 0; i < FG_RT_SCALARS; i++)
            r.set(scalars, f32, i, -1); /* the set that is not asked for */
        for (uint64_t i = 0; i < sizeof values / sizeof *values; i++)
            r.set(scalars, f32, set * FG_RT_SET + i, values[i]);
    }

    /* Squares are counted; `before` stands in one limb. */
    void count(Rig &r, double before)
    {
        norm = r.room(FG_RT_I64, FG_RT_NORM_LIMBS);
        for (uint64_t i = 0; i < FG_RT_NORM_LIMBS; i++)
            r.set(norm, FG_RT_I64, i, i == 3 ? before : 0);
        r.changes(norm, FG_RT_I64, FG_RT_NORM_LIMBS, LIMBS);
    }

    void end(Rig &r) const
    {
        r.cx.n_sm = (int)n_sm;
    }
};

static void test_adamw(Rig &r)
{
    for (uint64_t grad_dt : FLOATS)
        for (uint64_t dt : FLOATS)
            for (uint64_t bucket : {0, 1})
                for (uint64_t set : {FG_RT_CURRENT, FG_RT_PENDING})
                    for (int valid = 0; valid < 2; valid++)
                        for (int few : {0, 3}) {
                            uint64_t n = buckets[bucket].elements / 2;
                            r.begin();
                            uint64_t g = r.normal(grad_dt, n, 0.01);
                            Update u(r, dt, n, few, set, valid);
                            if (set == FG_RT_CURRENT)
                                u.count(r, 0);
                            CHECK(r,
                                  label("adamw", dt,
                                        {grad_dt, bucket, set, (uint64_t)valid, (uint64_t)few}),
                                  adamw, g, u.master, u.m1, u.m2, u.shard, u.norm, u.scalars,
                                  bucket, n, grad_dt, dt, (uint64_t)set);
                            u.end(r);
                        }
}

/* The rows that a set names, and all other elements: of a table whose rows lie aligned, on a rank
 * that owns it or not, and of one that is cut inside a row. */
static void test_adamw_rows(Rig &r)
{
    static const struct {
        uint64_t bucket, table, hidden, vocab;
    } tables[] = {{0, 0, 8, 125}, {1, 3, 7, 10000}};
    for (uint64_t dt : FLOATS)
        for (const auto &t : tables)
            for (uint32_t rank : {0u, 1u})
                for (uint64_t named : {0, 1})
                    for (int zero = 0; zero < 2; zero++)
                        for (int few : {0, 3}) {
                            uint64_t n = buckets[t.bucket].elements / 2;
                            uint64_t words = (t.vocab + 31) / 32;
                            r.adopt(update_program(0, 0), rank);
                            r.begin();
                            uint64_t g = zero ? NONE : r.normal(dt, n, 0.01);
                            uint64_t set = r.room(FG_RT_I32, words);
                            for (uint64_t i = 0; i < words; i++)
                                r.set(set, FG_RT_I32, i, i % 3 ? 1 << i % 20 : 0);
                            Update u(r, dt, n, few);
                            u.count(r, 0);
                            CHECK(r,
                                  label("adamw_rows", dt,
                                        {t.hidden, rank, named, (uint64_t)zero, (uint64_t)few}),
                                  adamw_rows, g, u.master, u.m1, u.m2, u.shard, u.norm, u.scalars,
                                  set, t.bucket, t.table, t.hidden, t.vocab, words, n, dt, dt,
                                  named);
                            u.end(r);
                        }
}

/* The ranks' parts are summed on the way, and counted as they are summed. */
static void test_adamw_parts(Rig &r)
{
    const uint64_t ranks = r.cx.program->ranks;
    for (uint64_t part_dt : FLOATS)
        for (uint64_t dt : FLOATS)
            for (uint64_t bucket : {0, 1})
                for (uint64_t adds = 0; adds < 3; adds++) /* 2: no norm */
                    for (int few : {0, 2}) {
                        uint64_t n = buckets[bucket].elements / ranks;
                        r.begin();
                        uint64_t parts = r.normal(part_dt, ranks * n, 0.01);
                        Update u(r, dt, n, few);
                        if (adds < 2)
                            u.count(r, 12345);
                        CHECK(
                            r,
                            label("adamw_parts", dt, {part_dt, ranks, bucket, adds, (uint64_t)few}),
                            adamw_parts, parts, u.master, u.m1, u.m2, u.shard, u.norm, u.scalars,
                            bucket, n, part_dt, dt, adds % 2);
                        u.end(r);
                    }
}

void test_update(Rig &r)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        r.adopt(update_program(rank == 0 ? 1.0 : 0.0, 0), rank);
        test_buffers(r);
        test_norm(r);
        test_clip(r);
        test_adamw(r);
    }
    test_adamw_rows(r);
    for (uint32_t ranks : {2, 3}) {
        r.adopt(update_program(0, 0, ranks), ranks - 1);
        test_adamw_parts(r);
    }
    r.adopt(update_program(0, 1), 0);
    test_scale(r);
    test_adamw(r);
}
