/* Calls on single elements and on shapes, and the storage types themselves. */
#include <stdlib.h>

#include "runtime/host/arith.h"
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

static const uint64_t DTYPES[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16};
enum { N_DTYPES = 3, N = 1100 }; /* over two chunks */

/* ---- storage types ---- */

static void bf16_rounds_to_nearest_even(int *failures)
{
    Rig rig = rig_open(1 << 16);
    const double specials[] = {0,      -0.0,    1,     1.00390625, 1.01171875,
                               3.4e38, -3.4e38, 1e-40, 9.1835e-41, INFINITY};
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        double got = (double)fg_bf16_to_f32(fg_f32_to_bf16((float)specials[i]));
        CHECK(got == rig_round(FG_RT_BF16, (double)(float)specials[i]));
    }
    for (int i = 0; i < 100000; i++) {
        double value = rig_round(FG_RT_F32, ldexp(rig_random(&rig), (int)(rig_random(&rig) * 140)));
        CHECK((double)fg_bf16_to_f32(fg_f32_to_bf16((float)value)) == rig_round(FG_RT_BF16, value));
    }
    CHECK(isnan(fg_bf16_to_f32(fg_f32_to_bf16(NAN))));
    CHECK(isnan(
        fg_bf16_to_f32(fg_f32_to_bf16(fg_from_bits(0x7f800001))))); /* the low bits alone say NaN */
    rig_close(&rig);
}

static void f16_rounds_to_nearest_even(int *failures)
{
    Rig rig = rig_open(1 << 16);
    for (uint32_t half = 0; half < 65536; half++) {
        float value = fg_f16_to_f32((uint16_t)half);
        CHECK(isnan(value) ? isnan(fg_f16_to_f32(fg_f32_to_f16(value)))
                           : fg_f32_to_f16(value) == half);
    }
    const double specials[] = {65504, 65519,   65520,   65536,     1e30,
                               -1e30, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-14};
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        CHECK((double)fg_f16_to_f32(fg_f32_to_f16((float)specials[i])) ==
              rig_round(FG_RT_F16, specials[i]));
    for (int i = 0; i < 100000; i++) {
        double value = rig_round(FG_RT_F32, ldexp(rig_random(&rig), (int)(rig_random(&rig) * 30)));
        CHECK((double)fg_f16_to_f32(fg_f32_to_f16((float)value)) == rig_round(FG_RT_F16, value));
    }
    rig_close(&rig);
}

static void exponential(int *failures)
{
    Rig rig = rig_open(1 << 16);
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        float x = (float)(rig_random(&rig) * 87);
        double expected = exp((double)x);
        double error = fabs((double)fg_exp(x) - expected) / expected;
        worst = error > worst ? error : worst;
    }
    CHECK(worst < 2.0 * 0x1p-23); /* measured 1.2e-7 */
    CHECK(fg_exp(0) == 1 && fg_exp(-INFINITY) == 0 && fg_exp(INFINITY) == INFINITY &&
          isnan(fg_exp(NAN)));
    CHECK_NEAR(fg_exp(-100), exp(-100), 1e-45); /* subnormal */
    rig_close(&rig);
}

static void cast(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16, FG_RT_F64};
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            if (types[from] == FG_RT_F16)
                continue; /* the rig writes no f16 */
            Rig rig = rig_open(1 << 16);
            Array x = rig_values(&rig, types[from], N, 5), y = rig_result(&rig, types[to], N);
            if (types[from] ==
                FG_RT_F64) { /* just above a tie of bf16: rounding twice would lose it */
                x.v[0] = 1 + 0x1p-8 + 0x1p-40;
                memcpy(fg_rt_memory(rig.cx, x.at), x.v, sizeof *x.v);
            }
            memcpy(y.v, x.v, N * sizeof *y.v);
            rig_begin(&rig);
            fg_rt_cast(rig.cx, 0, FG_COMPUTE, x.at, y.at, N, types[from], types[to]);
            rig_check(&rig, &y, 0, "cast", failures);
            rig_close(&rig);
        }
}

static void fill(int *failures)
{
    const uint64_t types[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16, FG_RT_F64};
    for (int i = 0; i < 4; i++) {
        Rig rig = rig_open(1 << 16);
        Array y = rig_result(&rig, types[i], N);
        for (uint64_t j = 0; j < N; j++)
            y.v[j] = 0.1;
        rig_begin(&rig);
        fg_rt_fill(rig.cx, 0, FG_COMPUTE, y.at, N, types[i], 0.1);
        rig_check(&rig, &y, 0, "fill", failures);
        rig_close(&rig);
    }
}

static void grad_write(int *failures)
{
    for (int i = 0; i < 8; i++) {
        uint64_t dt = DTYPES[i & 1], wire = DTYPES[i >> 1 & 1];
        Rig rig = rig_open(1 << 16);
        Array x = rig_values(&rig, dt, N, 1), dw = rig_values(&rig, wire, N, 1);
        for (uint64_t j = 0; j < N; j++)
            dw.v[j] = (i & 4 ? dw.v[j] : 0) + x.v[j];
        rig_begin(&rig);
        fg_rt_grad_write(rig.cx, 0, FG_COMPUTE, x.at, dw.at, N, dt, wire, i & 4);
        rig_check(&rig, &dw, 1e-7, "grad_write", failures);
        rig_close(&rig);
    }
}

/* ---- unary ---- */

static double formula(FgRtUnary kind, double a, double x)
{
    switch (kind) {
    case FG_RT_NEG:
        return -x;
    case FG_RT_EXP:
        return exp(x);
    case FG_RT_LOG:
        return log(x);
    case FG_RT_SQRT:
        return sqrt(x);
    case FG_RT_RSQRT:
        return 1 / sqrt(x);
    case FG_RT_TANH:
        return tanh(x);
    case FG_RT_SIGMOID:
        return 1 / (1 + exp(-x));
    case FG_RT_RELU:
        return x > 0 ? x : 0;
    case FG_RT_SILU:
        return x / (1 + exp(-x));
    case FG_RT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case FG_RT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case FG_RT_SCALE:
        return a * x;
    case FG_RT_ADD_SCALAR:
        return x + a;
    case FG_RT_POW:
        return pow(x, a);
    }
    return 0;
}

static void unary_case(uint64_t dt, FgRtUnary kind, bool in_place, int *failures)
{
    Rig rig = rig_open(1 << 16);
    bool positive =
        kind == FG_RT_LOG || kind == FG_RT_SQRT || kind == FG_RT_RSQRT || kind == FG_RT_POW;
    double a = dt == FG_RT_F32 ? 1.75 : -0.5, h = 1e-6;
    Array x = rig_values(&rig, dt == FG_RT_F16 ? FG_RT_F32 : dt, N, 4);
    Array half = rig_result(&rig, dt, N),
          ones = rig_values(&rig, dt == FG_RT_F16 ? FG_RT_F32 : dt, N, 1);
    rig_begin(&rig);
    if (positive) { /* x^2 + 1 by calls */
        fg_rt_binary(rig.cx, 0, FG_COMPUTE, FG_RT_MUL, x.at, x.at, x.at, N, N, N, FG_RT_NONE, x.dt);
        fg_rt_unary(rig.cx, 0, FG_COMPUTE, FG_RT_ADD_SCALAR, x.at, x.at, N, x.dt, 1);
    }
    if (dt == FG_RT_F16) {
        fg_rt_cast(rig.cx, 0, FG_COMPUTE, x.at, half.at, N, FG_RT_F32, FG_RT_F16);
        x = half;
        Array narrow = rig_result(&rig, dt, N);
        fg_rt_cast(rig.cx, 0, FG_COMPUTE, ones.at, narrow.at, N, FG_RT_F32, FG_RT_F16);
        ones = narrow;
    }
    Array y = rig_result(&rig, dt, N), dx = rig_result(&rig, dt, N);
    for (uint64_t i = 0; i < N; i++) {
        double at = rig_get(&rig, &x, i);
        y.v[i] = formula(kind, a, at);
        dx.v[i] = rig_get(&rig, &ones, i) * (formula(kind, a, at + h) - formula(kind, a, at - h)) /
                  (2 * h);
    }
    fg_rt_unary_back(rig.cx, 0, FG_COMPUTE, kind, x.at, ones.at, dx.at, N, dt, a);
    rig_check(&rig, &dx, 1e-6, "unary_back", failures);
    y.at = in_place ? x.at : y.at;
    fg_rt_unary(rig.cx, 0, FG_COMPUTE, kind, x.at, y.at, N, dt, a);
    rig_check(&rig, &y, 1e-6, "unary", failures);
    rig_close(&rig);
}

static void unary(int *failures)
{
    for (int d = 0; d < N_DTYPES; d++)
        for (int kind = FG_RT_NEG; kind <= FG_RT_POW; kind++)
            for (int in_place = 0; in_place < 2; in_place++)
                unary_case(DTYPES[d], (FgRtUnary)kind, in_place, failures);
}

/* In place and apart the compiler may run other loops; the bits are the same. */
static void in_place_changes_no_bit(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (uint64_t kind = FG_RT_NEG; kind <= FG_RT_POW; kind++) {
            Rig rig = rig_open(1 << 16);
            uint64_t dt = DTYPES[d], bytes = N * (dt == FG_RT_F32 ? 4 : 2);
            Array x = rig_values(&rig, dt, N, 4), y = rig_result(&rig, dt, N);
            Array z = rig_result(&rig, dt, N);
            rig_begin(&rig);
            fg_rt_unary(rig.cx, 0, FG_COMPUTE, kind, x.at, y.at, N, dt, 0.7);
            fg_rt_softmax(rig.cx, 0, FG_COMPUTE, x.at, z.at, N / 100, 100, dt);
            uint8_t *memory = fg_rt_memory(rig.cx, 0), *first = malloc(bytes);
            memcpy(first, memory + x.at, bytes);
            fg_rt_unary(rig.cx, 0, FG_COMPUTE, kind, x.at, x.at, N, dt, 0.7);
            CHECK(memcmp(memory + x.at, memory + y.at, bytes) == 0);
            memcpy(memory + x.at, first, bytes);
            rig_begin(&rig);
            fg_rt_softmax(rig.cx, 0, FG_COMPUTE, x.at, x.at, N / 100, 100, dt);
            CHECK(memcmp(memory + x.at, memory + z.at, bytes) == 0);
            rig_check_ok(&rig, "in place", failures);
            free(first);
            rig_close(&rig);
        }
}

/* ---- binary and shapes; layouts are tables of the program ---- */

static const int64_t LAYOUTS[] = {
    /* 0: [3, 4, 5], a dense, b [4, 1] */
    3, 3, 4, 5, 20, 5, 1, 0, 1, 0,
    /* 10: [3, 4], a [4] over rows, b dense */
    2, 3, 4, 0, 1, 4, 1,
    /* 17: [], both scalars */
    0,
    /* 18: x [3, 4, 5] transposed to [5, 3, 4] */
    3, 5, 3, 4, 1, 20, 5,
    /* 25: x [4] broadcast to [3, 4] */
    2, 3, 4, 0, 1,
    /* 30: x [3, 4, 5] summed to [4] */
    3, 3, 4, 5, 20, 5, 1, 0, 1, 0,
    /* 40: x [3, 4, 5] summed to [3, 1, 5] */
    3, 3, 4, 5, 20, 5, 1, 5, 0, 1,
    /* 50: x [3, 4, 5] summed to a scalar */
    3, 3, 4, 5, 20, 5, 1, 0, 0, 0};

static Rig open_layouts(void)
{
    FgRtProgram program = {.abi = FG_RT_ABI,
                           .ranks = 1,
                           .state_bytes = 1 << 16,
                           .layouts = LAYOUTS,
                           .n_layouts = sizeof LAYOUTS / sizeof *LAYOUTS};
    return rig_open_program(&program, (FgRtOptions){.checked = 1});
}

static double combine(int kind, double a, double b)
{
    return kind == FG_RT_ADD   ? a + b
           : kind == FG_RT_SUB ? a - b
           : kind == FG_RT_MUL ? a * b
                               : a / b;
}

static void binary_case(uint64_t dt, uint64_t layout, int in_place, int *failures)
{
    const int64_t *l = layout == FG_RT_NONE ? NULL : LAYOUTS + layout;
    uint64_t n = !l ? N : layout == 0 ? 60 : layout == 10 ? 12 : 1;
    uint64_t n_a = layout == 10 ? 4 : n, n_b = layout == 0 ? 4 : n;
    for (int kind = FG_RT_ADD; kind <= FG_RT_DIV; kind++) {
        Rig rig = open_layouts();
        Array a = rig_values(&rig, dt, n_a, 3), b = rig_values(&rig, dt, n_b, 3),
              y = rig_result(&rig, dt, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t ia = layout == 10 ? i % 4 : i, ib = layout == 0 ? i / 5 % 4 : i;
            y.v[i] = combine(kind, a.v[ia], b.v[ib]);
        }
        y.at = in_place == 1 && n_a == n ? a.at : in_place == 2 && n_b == n ? b.at : y.at;
        rig_begin(&rig);
        fg_rt_binary(rig.cx, 0, FG_COMPUTE, (uint64_t)kind, a.at, b.at, y.at, n_a, n_b, n, layout,
                     dt);
        rig_check(&rig, &y, 1e-7, "binary", failures);
        rig_close(&rig);
    }
}

static void binary(int *failures)
{
    const uint64_t layouts[] = {FG_RT_NONE, 0, 10, 17};
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 4; i++)
            for (int in_place = 0; in_place < 3; in_place++)
                binary_case(DTYPES[d], layouts[i], in_place, failures);
}

static void copy_strided(int *failures)
{
    for (int d = 0; d < 2; d++) {
        Rig rig = open_layouts();
        Array x = rig_values(&rig, DTYPES[d], 60, 1), row = rig_values(&rig, DTYPES[d], 4, 1);
        Array y = rig_result(&rig, DTYPES[d], 60), wide = rig_result(&rig, DTYPES[d], 12);
        for (uint64_t i = 0; i < 60; i++)
            y.v[i] = x.v[i % 4 * 5 + i / 4 % 3 * 20 + i / 12];
        for (uint64_t i = 0; i < 12; i++)
            wide.v[i] = row.v[i % 4];
        rig_begin(&rig);
        fg_rt_copy_strided(rig.cx, 0, FG_COMPUTE, x.at, y.at, 60, 60, 18, DTYPES[d]);
        fg_rt_copy_strided(rig.cx, 0, FG_COMPUTE, row.at, wide.at, 4, 12, 25, DTYPES[d]);
        rig_check(&rig, &y, 0, "transpose", failures);
        rig_check(&rig, &wide, 0, "broadcast", failures);
        fg_rt_copy_strided(rig.cx, 0, FG_COMPUTE, row.at, wide.at, 4, 12, 999, DTYPES[d]);
        CHECK(strstr(fg_rt_status(rig.cx).text, "layout 999") != NULL);
        rig_close(&rig);
    }
}

static void slices(int *failures)
{
    enum { OUTER = 3, DIM = 7, INNER = 2, START = 2, COUNT = 4 };
    for (int d = 0; d < 2; d++) {
        uint64_t dt = DTYPES[d];
        Rig rig = open_layouts();
        Array x = rig_values(&rig, dt, OUTER * DIM * INNER, 1),
              y = rig_result(&rig, dt, OUTER * COUNT * INNER);
        Array back = rig_result(&rig, dt, OUTER * DIM * INNER);
        Array both = rig_result(&rig, dt, OUTER * (DIM + COUNT) * INNER);
        for (uint64_t i = 0; i < OUTER; i++)
            for (uint64_t j = 0; j < DIM * INNER; j++) {
                double value = x.v[i * DIM * INNER + j];
                bool inside = j >= START * INNER && j < (START + COUNT) * INNER;
                both.v[i * (DIM + COUNT) * INNER + j] = value;
                back.v[i * DIM * INNER + j] = inside ? value : 0;
                if (inside)
                    y.v[i * COUNT * INNER + j - START * INNER] =
                        both.v[(i * (DIM + COUNT) + DIM) * INNER + j - START * INNER] = value;
            }
        rig_begin(&rig);
        fg_rt_slice(rig.cx, 0, FG_COMPUTE, x.at, y.at, OUTER, DIM, INNER, START, COUNT, dt);
        fg_rt_slice_back(rig.cx, 0, FG_COMPUTE, y.at, back.at, OUTER, DIM, INNER, START, COUNT, dt);
        fg_rt_concat(rig.cx, 0, FG_COMPUTE, x.at, y.at, both.at, OUTER, DIM, COUNT, INNER, dt);
        rig_check(&rig, &y, 0, "slice", failures);
        rig_check(&rig, &back, 0, "slice_back", failures);
        rig_check(&rig, &both, 0, "concat", failures);
        rig_close(&rig);
    }
}

static void reduce_sum(int *failures)
{
    for (int d = 0; d < 2; d++) {
        Rig rig = open_layouts();
        Array x = rig_values(&rig, DTYPES[d], 60, 1), y4 = rig_result(&rig, DTYPES[d], 4);
        Array y15 = rig_result(&rig, DTYPES[d], 15), y1 = rig_result(&rig, DTYPES[d], 1);
        for (uint64_t i = 0; i < 60; i++) {
            y4.v[i / 5 % 4] += 0.5 * x.v[i];
            y15.v[i / 20 * 5 + i % 5] += x.v[i];
            y1.v[0] += x.v[i] / 60;
        }
        rig_begin(&rig);
        fg_rt_reduce_sum(rig.cx, 0, FG_COMPUTE, x.at, y4.at, 60, 4, 30, DTYPES[d], 0.5);
        fg_rt_reduce_sum(rig.cx, 0, FG_COMPUTE, x.at, y15.at, 60, 15, 40, DTYPES[d], 1);
        fg_rt_reduce_sum(rig.cx, 0, FG_COMPUTE, x.at, y1.at, 60, 1, 50, DTYPES[d], 1.0 / 60);
        rig_check(&rig, &y4, 1e-6, "sum to [4]", failures);
        rig_check(&rig, &y15, 1e-6, "sum to [3, 1, 5]", failures);
        rig_check(&rig, &y1, 1e-6, "mean", failures);
        rig_close(&rig);
    }
}

UNIT_MAIN({"bf16_rounds_to_nearest_even", bf16_rounds_to_nearest_even},
          {"f16_rounds_to_nearest_even", f16_rounds_to_nearest_even}, {"exponential", exponential},
          {"cast", cast}, {"fill", fill}, {"grad_write", grad_write}, {"unary", unary},
          {"in_place_changes_no_bit", in_place_changes_no_bit}, {"binary", binary},
          {"copy_strided", copy_strided}, {"slices", slices}, {"reduce_sum", reduce_sum})
