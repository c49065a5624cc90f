/* Dense calls and lookups against loops in double, at f32 and bf16, in sizes below and above a
 * tile. */
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

static const uint64_t DTYPES[] = {FG_RT_F32, FG_RT_BF16};

typedef struct Size {
    uint64_t m, n, k;
} Size;
static const Size SIZES[] = {{1, 1, 1}, {5, 7, 3}, {3, 5, 1100}, {4, 600, 9}, {530, 2, 6}};

static void linear_case(uint64_t dt, Size s, uint64_t layout, bool bias, int *failures)
{
    Rig rig = rig_open(1 << 20);
    Array x = rig_values(&rig, dt, s.m * s.k, 1), w = rig_values(&rig, dt, s.n * s.k, 1);
    Array b = rig_values(&rig, dt, s.n, 1), y = rig_result(&rig, dt, s.m * s.n);
    for (uint64_t i = 0; i < s.m; i++)
        for (uint64_t j = 0; j < s.n; j++) {
            double sum = bias ? b.v[j] : 0;
            for (uint64_t l = 0; l < s.k; l++)
                sum += x.v[i * s.k + l] * w.v[layout ? l * s.n + j : j * s.k + l];
            y.v[i * s.n + j] = sum;
        }
    rig_begin(&rig);
    fg_rt_linear(rig.cx, 0, FG_COMPUTE, x.at, w.at, bias ? b.at : FG_RT_NONE, FG_RT_NONE, y.at, s.m,
                 s.n, s.k, layout, dt, rig.ws, RIG_WORKSPACE);
    rig_check(&rig, &y, RIG_TOLERANCE, "linear", failures);
    rig_close(&rig);
}

static void linear_dx_case(uint64_t dt, Size s, uint64_t layout, int *failures)
{
    Rig rig = rig_open(1 << 20);
    Array dy = rig_values(&rig, dt, s.m * s.n, 1), w = rig_values(&rig, dt, s.n * s.k, 1);
    Array dx = rig_result(&rig, dt, s.m * s.k);
    for (uint64_t i = 0; i < s.m; i++)
        for (uint64_t l = 0; l < s.k; l++)
            for (uint64_t j = 0; j < s.n; j++)
                dx.v[i * s.k + l] += dy.v[i * s.n + j] * w.v[layout ? l * s.n + j : j * s.k + l];
    rig_begin(&rig);
    fg_rt_linear_dx(rig.cx, 0, FG_COMPUTE, dy.at, w.at, FG_RT_NONE, dx.at, s.m, s.n, s.k, layout,
                    dt, rig.ws, RIG_WORKSPACE);
    rig_check(&rig, &dx, RIG_TOLERANCE, "linear_dx", failures);
    rig_close(&rig);
}

static void linear_dw_case(uint64_t dt, uint64_t wire, Size s, uint64_t layout, bool accumulate,
                           int *failures)
{
    Rig rig = rig_open(1 << 20);
    Array x = rig_values(&rig, dt, s.m * s.k, 1), dy = rig_values(&rig, dt, s.m * s.n, 1);
    Array dw = rig_values(&rig, wire, s.n * s.k, 3);
    for (uint64_t j = 0; j < s.n; j++)
        for (uint64_t l = 0; l < s.k; l++) {
            double *to = &dw.v[layout ? l * s.n + j : j * s.k + l];
            *to = accumulate ? *to : 0;
            for (uint64_t i = 0; i < s.m; i++)
                *to += dy.v[i * s.n + j] * x.v[i * s.k + l];
        }
    rig_begin(&rig);
    fg_rt_linear_dw(rig.cx, 0, FG_COMPUTE, x.at, dy.at, dw.at, s.m, s.n, s.k, layout, dt, wire,
                    accumulate, rig.ws, RIG_WORKSPACE);
    rig_check(&rig, &dw, RIG_TOLERANCE, "linear_dw", failures);
    rig_close(&rig);
}

static void linear(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
            for (uint64_t layout = 0; layout < 2; layout++) {
                linear_case(DTYPES[d], SIZES[i], layout, false, failures);
                linear_case(DTYPES[d], SIZES[i], layout, true, failures);
                linear_dx_case(DTYPES[d], SIZES[i], layout, failures);
                for (int wire = 0; wire < 2; wire++) {
                    linear_dw_case(DTYPES[d], DTYPES[wire], SIZES[i], layout, false, failures);
                    linear_dw_case(DTYPES[d], DTYPES[wire], SIZES[i], layout, true, failures);
                }
            }
}

static void matmul_case(uint64_t dt, uint64_t batch, Size s, bool ta, bool tb, int *failures)
{
    Rig rig = rig_open(1 << 20);
    Array a = rig_values(&rig, dt, batch * s.m * s.k, 1),
          b = rig_values(&rig, dt, batch * s.k * s.n, 1);
    Array y = rig_result(&rig, dt, batch * s.m * s.n);
    for (uint64_t g = 0; g < batch; g++)
        for (uint64_t i = 0; i < s.m; i++)
            for (uint64_t j = 0; j < s.n; j++)
                for (uint64_t l = 0; l < s.k; l++)
                    y.v[(g * s.m + i) * s.n + j] +=
                        a.v[g * s.m * s.k + (ta ? l * s.m + i : i * s.k + l)] *
                        b.v[g * s.k * s.n + (tb ? j * s.k + l : l * s.n + j)];
    rig_begin(&rig);
    fg_rt_matmul(rig.cx, 0, FG_COMPUTE, a.at, b.at, y.at, batch, s.m, s.n, s.k, ta, tb, dt, rig.ws,
                 RIG_WORKSPACE);
    rig_check(&rig, &y, RIG_TOLERANCE, "matmul", failures);
    rig_close(&rig);
}

static void matmul(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int t = 0; t < 4; t++) {
            matmul_case(DTYPES[d], 3, (Size){4, 5, 6}, t & 1, t & 2, failures);
            matmul_case(DTYPES[d], 1, (Size){2, 3, 700}, t & 1, t & 2, failures);
        }
}

static void column_sum_case(uint64_t dt, uint64_t wire, uint64_t m, uint64_t n, bool accumulate,
                            int *failures)
{
    Rig rig = rig_open(1 << 20);
    Array dy = rig_values(&rig, dt, m * n, 1), db = rig_values(&rig, wire, n, 1);
    for (uint64_t j = 0; j < n; j++) {
        db.v[j] = accumulate ? db.v[j] : 0;
        for (uint64_t i = 0; i < m; i++)
            db.v[j] += dy.v[i * n + j];
    }
    rig_begin(&rig);
    fg_rt_column_sum(rig.cx, 0, FG_COMPUTE, dy.at, db.at, m, n, dt, wire, accumulate);
    rig_check(&rig, &db, RIG_TOLERANCE, "column_sum", failures);
    rig_close(&rig);
}

static void column_sum(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int wire = 0; wire < 2; wire++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                column_sum_case(DTYPES[d], DTYPES[wire], 40, 3, accumulate, failures);
                column_sum_case(DTYPES[d], DTYPES[wire], 3, 700, accumulate, failures);
            }
}

/* What a product does not depend on: where it lies, how large the workspace is, what the result
 * held. */
static void products_depend_on_operands_alone(int *failures)
{
    enum { M = 37, N = 41, K = 530 };
    for (int d = 0; d < 2; d++) {
        uint64_t dt = DTYPES[d], size = dt == FG_RT_F32 ? 4 : 2;
        Rig rig = rig_open(1 << 20);
        Array x = rig_values(&rig, dt, M * K, 1), w = rig_values(&rig, dt, N * K, 1);
        Array first = rig_result(&rig, dt, M * N), second = rig_values(&rig, dt, M * N + 1, 1e9);
        uint64_t shifted = second.at + size; /* not aligned to a vector */
        rig_begin(&rig);
        fg_rt_linear(rig.cx, 0, FG_COMPUTE, x.at, w.at, FG_RT_NONE, FG_RT_NONE, first.at, M, N, K,
                     0, dt, rig.ws, RIG_WORKSPACE);
        fg_rt_linear(rig.cx, 0, FG_COMPUTE, x.at, w.at, FG_RT_NONE, FG_RT_NONE, shifted, M, N, K, 0,
                     dt, rig.ws, RIG_WORKSPACE / 2);
        rig_check_ok(&rig, "linear twice", failures);
        CHECK(memcmp(fg_rt_memory(rig.cx, first.at), fg_rt_memory(rig.cx, shifted), M * N * size) ==
              0);
        rig_close(&rig);
    }
}

static void workspace_too_small(int *failures)
{
    Rig rig = rig_open(1 << 16);
    Array x = rig_values(&rig, FG_RT_BF16, 64, 1), y = rig_result(&rig, FG_RT_BF16, 64);
    rig_begin(&rig);
    fg_rt_linear(rig.cx, 0, FG_COMPUTE, x.at, x.at, FG_RT_NONE, FG_RT_NONE, y.at, 8, 8, 8, 0,
                 FG_RT_BF16, rig.ws, 64);
    CHECK(strstr(fg_rt_status(rig.cx).text, "workspace has 64 bytes") != NULL);
    CHECK_STR(fg_rt_status(rig.cx).call, "linear");
    rig_close(&rig);
}

/* ---- lookup ---- */

enum { VOCAB = 11, HIDDEN = 600, TOKENS = 9 };
static const int32_t IDS[TOKENS] = {3, 0, 3, 10, 7, 0, 3, 10, 1};

static void embedding(int *failures)
{
    for (int d = 0; d < 2; d++) {
        Rig rig = rig_open(1 << 18);
        Array ids = rig_ids(&rig, IDS, TOKENS), w = rig_values(&rig, DTYPES[d], VOCAB * HIDDEN, 1);
        Array y = rig_result(&rig, DTYPES[d], TOKENS * HIDDEN);
        for (uint64_t t = 0; t < TOKENS; t++)
            memcpy(y.v + t * HIDDEN, w.v + (uint64_t)IDS[t] * HIDDEN, HIDDEN * sizeof *y.v);
        rig_begin(&rig);
        fg_rt_embedding(rig.cx, 0, FG_COMPUTE, ids.at, w.at, y.at, TOKENS, HIDDEN, VOCAB,
                        DTYPES[d]);
        rig_check(&rig, &y, 0, "embedding", failures);
        rig_close(&rig);
    }
}

static void embedding_dw_case(uint64_t dt, uint64_t wire, uint64_t padding, bool accumulate,
                              int *failures)
{
    Rig rig = rig_open(1 << 18);
    Array ids = rig_ids(&rig, IDS, TOKENS), dy = rig_values(&rig, dt, TOKENS * HIDDEN, 1);
    Array dw = rig_values(&rig, wire, VOCAB * HIDDEN, 1);
    if (!accumulate)
        memset(dw.v, 0, VOCAB * HIDDEN * sizeof *dw.v);
    for (uint64_t t = 0; t < TOKENS; t++)
        for (uint64_t j = 0; j < HIDDEN && (uint64_t)IDS[t] != padding; j++)
            dw.v[(uint64_t)IDS[t] * HIDDEN + j] += dy.v[t * HIDDEN + j];
    rig_begin(&rig);
    fg_rt_embedding_dw(rig.cx, 0, FG_COMPUTE, ids.at, dy.at, dw.at, TOKENS, HIDDEN, VOCAB, padding,
                       dt, wire, accumulate, rig.ws, RIG_WORKSPACE);
    rig_check(&rig, &dw, 1e-6, "embedding_dw", failures);
    rig_close(&rig);
}

static void embedding_dw(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int wire = 0; wire < 2; wire++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                embedding_dw_case(DTYPES[d], DTYPES[wire], FG_RT_NONE, accumulate, failures);
                embedding_dw_case(DTYPES[d], DTYPES[wire], 0, accumulate, failures);
            }
}

static void embedding_bad_id(int *failures)
{
    const int32_t bad[] = {1, VOCAB, -1};
    for (int i = 1; i < 3; i++) {
        Rig rig = rig_open(1 << 18);
        int32_t two[] = {bad[0], bad[i]};
        Array ids = rig_ids(&rig, two, 2), w = rig_values(&rig, FG_RT_F32, VOCAB * 4, 1);
        Array y = rig_result(&rig, FG_RT_F32, 2 * 4);
        rig_begin(&rig);
        fg_rt_embedding(rig.cx, 0, FG_COMPUTE, ids.at, w.at, y.at, 2, 4, VOCAB, FG_RT_F32);
        CHECK(strstr(fg_rt_status(rig.cx).text, "the vocabulary has 11 rows") != NULL);
        rig_close(&rig);
    }
}

UNIT_MAIN({"linear", linear}, {"matmul", matmul}, {"column_sum", column_sum},
          {"products_depend_on_operands_alone", products_depend_on_operands_alone},
          {"workspace_too_small", workspace_too_small}, {"embedding", embedding},
          {"embedding_dw", embedding_dw}, {"embedding_bad_id", embedding_bad_id})
