/* Calls that work by rows: normalisation, softmax, cross-entropy. References are formulas in
 * double; gradients are central differences of those formulas. */
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

static const uint64_t DTYPES[] = {FG_RT_F32, FG_RT_BF16};

/* ---- normalisation ---- */

typedef struct Norm {
    bool centred;
    uint64_t rows, cols;
    double eps;
} Norm;

/* sum over all elements of dy * y, as a function of x and w: its derivatives are dx and dw. */
static void norm_forward(Norm s, const double *x, const double *w, const double *b, double *y)
{
    for (uint64_t r = 0; r < s.rows; r++) {
        const double *row = x + r * s.cols;
        double mean = 0, moment = 0;
        for (uint64_t i = 0; i < s.cols && s.centred; i++)
            mean += row[i] / (double)s.cols;
        for (uint64_t i = 0; i < s.cols; i++)
            moment += (row[i] - mean) * (row[i] - mean) / (double)s.cols;
        for (uint64_t i = 0; i < s.cols; i++)
            y[r * s.cols + i] = (row[i] - mean) / sqrt(moment + s.eps) * w[i] + (b ? b[i] : 0);
    }
}

static double norm_dot(Norm s, const Array *x, const Array *w, const Array *dy, double *scratch)
{
    norm_forward(s, x->v, w->v, NULL, scratch);
    double sum = 0;
    for (uint64_t i = 0; i < s.rows * s.cols; i++)
        sum += dy->v[i] * scratch[i];
    return sum;
}

/* d norm_dot / d of[i] */
static double norm_slope(Norm s, const Array *x, const Array *w, const Array *dy, double *of,
                         double *scratch)
{
    const double h = 1e-5, value = *of;
    *of = value + h;
    double up = norm_dot(s, x, w, dy, scratch);
    *of = value - h;
    double down = norm_dot(s, x, w, dy, scratch);
    *of = value;
    return (up - down) / (2 * h);
}

static bool same_bits(Rig *rig, const Array *a, const Array *b)
{
    size_t size = a->dt == FG_RT_BF16 ? 2 : 4;
    return memcmp(fg_rt_memory(rig->cx, a->at), fg_rt_memory(rig->cx, b->at), a->n * size) == 0;
}

/* Both gradients in one call, dx in the memory of what is added to it: the bits of the two. */
static void both_case(uint64_t dt, uint64_t wire, Norm s, bool accumulate, int *failures)
{
    Rig rig = rig_open(1 << 18);
    uint64_t n = s.rows * s.cols;
    Array x = rig_values(&rig, dt, n, 2), w = rig_values(&rig, dt, s.cols, 1),
          dy = rig_values(&rig, dt, n, 1), plus = rig_values(&rig, dt, n, 1);
    Array dx = rig_result(&rig, dt, n), dw = rig_values(&rig, wire, s.cols, 1),
          both = rig_result(&rig, wire, s.cols);
    memcpy(fg_rt_memory(rig.cx, both.at), fg_rt_memory(rig.cx, dw.at),
           s.cols * (wire == FG_RT_BF16 ? 2 : 4));
    rig_begin(&rig);
    FgRtCx *cx = rig.cx;
    if (s.centred) {
        fg_rt_layernorm_dx(cx, 0, FG_COMPUTE, x.at, w.at, dy.at, plus.at, dx.at, s.rows, s.cols, dt,
                           s.eps);
        fg_rt_layernorm_dw(cx, 0, FG_COMPUTE, x.at, dy.at, dw.at, s.rows, s.cols, dt, wire,
                           accumulate, s.eps);
        fg_rt_layernorm_back(cx, 0, FG_COMPUTE, x.at, w.at, dy.at, plus.at, plus.at, both.at,
                             s.rows, s.cols, dt, wire, accumulate, s.eps);
    } else {
        fg_rt_rmsnorm_dx(cx, 0, FG_COMPUTE, x.at, w.at, dy.at, plus.at, dx.at, s.rows, s.cols, dt,
                         s.eps);
        fg_rt_rmsnorm_dw(cx, 0, FG_COMPUTE, x.at, dy.at, dw.at, s.rows, s.cols, dt, wire,
                         accumulate, s.eps);
        fg_rt_rmsnorm_back(cx, 0, FG_COMPUTE, x.at, w.at, dy.at, plus.at, plus.at, both.at, s.rows,
                           s.cols, dt, wire, accumulate, s.eps);
    }
    rig_check_ok(&rig, "norm back", failures);
    CHECK(same_bits(&rig, &dx, &plus));
    CHECK(same_bits(&rig, &dw, &both));
    rig_close(&rig);
}

static void norm_case(uint64_t dt, uint64_t wire, Norm s, bool accumulate, int *failures)
{
    Rig rig = rig_open(1 << 18);
    uint64_t n = s.rows * s.cols;
    Array x = rig_values(&rig, dt, n, 2), w = rig_values(&rig, dt, s.cols, 1),
          b = rig_values(&rig, dt, s.cols, 1);
    Array dy = rig_values(&rig, dt, n, 1), y = rig_result(&rig, dt, n),
          plain = rig_result(&rig, dt, n);
    Array dx = rig_result(&rig, dt, n), dw = rig_values(&rig, wire, s.cols, 1);
    norm_forward(s, x.v, w.v, s.centred ? b.v : NULL, y.v);
    norm_forward(s, x.v, w.v, NULL, plain.v);
    Array scratch = rig_result(&rig, FG_RT_F64, n);
    for (uint64_t i = 0; i < n; i++)
        dx.v[i] = norm_slope(s, &x, &w, &dy, &x.v[i], scratch.v);
    for (uint64_t i = 0; i < s.cols; i++)
        dw.v[i] = (accumulate ? dw.v[i] : 0) + norm_slope(s, &x, &w, &dy, &w.v[i], scratch.v);
    rig_begin(&rig);
    FgRtCx *cx = rig.cx;
    if (s.centred) {
        fg_rt_layernorm(cx, 0, FG_COMPUTE, x.at, w.at, b.at, y.at, s.rows, s.cols, dt, s.eps);
        fg_rt_layernorm(cx, 0, FG_COMPUTE, x.at, w.at, FG_RT_NONE, plain.at, s.rows, s.cols, dt,
                        s.eps);
        fg_rt_layernorm_dx(cx, 0, FG_COMPUTE, x.at, w.at, dy.at, FG_RT_NONE, dx.at, s.rows, s.cols,
                           dt, s.eps);
        fg_rt_layernorm_dw(cx, 0, FG_COMPUTE, x.at, dy.at, dw.at, s.rows, s.cols, dt, wire,
                           accumulate, s.eps);
    } else {
        fg_rt_rmsnorm(cx, 0, FG_COMPUTE, x.at, w.at, y.at, s.rows, s.cols, dt, s.eps);
        fg_rt_rmsnorm(cx, 0, FG_COMPUTE, x.at, w.at, plain.at, s.rows, s.cols, dt, s.eps);
        fg_rt_rmsnorm_dx(cx, 0, FG_COMPUTE, x.at, w.at, dy.at, FG_RT_NONE, dx.at, s.rows, s.cols,
                         dt, s.eps);
        fg_rt_rmsnorm_dw(cx, 0, FG_COMPUTE, x.at, dy.at, dw.at, s.rows, s.cols, dt, wire,
                         accumulate, s.eps);
    }
    rig_check(&rig, &y, RIG_TOLERANCE, "norm", failures);
    rig_check(&rig, &plain, RIG_TOLERANCE, "norm without bias", failures);
    rig_check(&rig, &dx, RIG_TOLERANCE, "norm dx", failures);
    rig_check(&rig, &dw, RIG_TOLERANCE, "norm dw", failures);
    rig_close(&rig);
}

static void norms(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int centred = 0; centred < 2; centred++) {
            norm_case(DTYPES[d], DTYPES[d], (Norm){centred, 4, 13, 1e-5}, false, failures);
            norm_case(DTYPES[d], DTYPES[d], (Norm){centred, 3, 530, 1e-6}, true,
                      failures); /* over a chunk */
            norm_case(DTYPES[d], DTYPES[!d], (Norm){centred, 1, 1, 1e-1}, false, failures);
        }
}

static void norm_gradients_together(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int centred = 0; centred < 2; centred++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                both_case(DTYPES[d], DTYPES[!d], (Norm){centred, 4, 13, 1e-5}, accumulate,
                          failures);
                both_case(DTYPES[d], DTYPES[d], (Norm){centred, 3, 530, 1e-6}, accumulate,
                          failures);
            }
}

/* ---- softmax ---- */

static void softmax_row(const double *x, uint64_t n, double *y)
{
    double most = x[0], sum = 0;
    for (uint64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (uint64_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    for (uint64_t i = 0; i < n; i++)
        y[i] = exp(x[i] - most) / sum;
}

static void softmax_case(uint64_t dt, uint64_t rows, uint64_t cols, bool in_place, int *failures)
{
    Rig rig = rig_open(1 << 18);
    Array x = rig_values(&rig, dt, rows * cols, 30),
          y = in_place ? x : rig_result(&rig, dt, rows * cols);
    Array dy = rig_values(&rig, dt, rows * cols, 1), dx = rig_result(&rig, dt, rows * cols);
    for (uint64_t r = 0; r < rows; r++)
        softmax_row(x.v + r * cols, cols, y.v + r * cols);
    rig_begin(&rig);
    fg_rt_softmax(rig.cx, 0, FG_COMPUTE, x.at, y.at, rows, cols, dt);
    rig_check(&rig, &y, 3e-6, "softmax", failures);
    /* The gradient takes the rounded y. */
    for (uint64_t r = 0; r < rows; r++) {
        double dot = 0;
        for (uint64_t i = r * cols; i < (r + 1) * cols; i++)
            dot += rig_get(&rig, &y, i) * dy.v[i];
        for (uint64_t i = r * cols; i < (r + 1) * cols; i++)
            dx.v[i] = rig_get(&rig, &y, i) * (dy.v[i] - dot);
    }
    fg_rt_softmax_back(rig.cx, 0, FG_COMPUTE, y.at, dy.at, dx.at, rows, cols, dt);
    rig_check(&rig, &dx, RIG_TOLERANCE, "softmax_back", failures);
    rig_close(&rig);
}

static void softmax(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int in_place = 0; in_place < 2; in_place++) {
            softmax_case(DTYPES[d], 5, 7, in_place, failures);
            softmax_case(DTYPES[d], 2, 1030, in_place, failures);
            softmax_case(DTYPES[d], 2, 1, in_place, failures);
        }
}

/* ---- cross-entropy ---- */

enum { ROWS = 6, IGNORE = -100 };

static void cross_entropy_case(uint64_t dt, uint64_t cols, bool in_place, bool with_dloss,
                               int *failures)
{
    Rig rig = rig_open(1 << 18);
    const int32_t last = (int32_t)cols - 1, targets[ROWS] = {2, IGNORE, 0, last, IGNORE, 1};
    Array x = rig_values(&rig, dt, ROWS * cols, 9), labels = rig_ids(&rig, targets, ROWS);
    Array seed = rig_values(&rig, FG_RT_F32, 1, 0.3), dloss = rig_values(&rig, FG_RT_F32, 1, 2);
    Array loss = rig_result(&rig, FG_RT_F32, 1), lse = rig_result(&rig, FG_RT_F32, ROWS);
    Array dx = in_place ? x : rig_result(&rig, dt, ROWS * cols),
          p = rig_result(&rig, FG_RT_F64, cols);
    for (uint64_t r = 0; r < ROWS; r++) {
        softmax_row(x.v + r * cols, cols, p.v);
        lse.v[r] = x.v[r * cols] - log(p.v[0]);
        if (targets[r] != IGNORE)
            loss.v[0] += seed.v[0] * (lse.v[r] - x.v[r * cols + (uint64_t)targets[r]]);
        for (uint64_t i = 0; i < cols; i++)
            dx.v[r * cols + i] = targets[r] == IGNORE
                                     ? 0
                                     : (p.v[i] - (i == (uint64_t)targets[r])) * seed.v[0] *
                                           (with_dloss ? dloss.v[0] : 1);
    }
    rig_begin(&rig);
    fg_rt_cross_entropy(rig.cx, 0, FG_COMPUTE, x.at, labels.at, seed.at, loss.at, lse.at, ROWS,
                        cols, (uint64_t)(int64_t)IGNORE, dt);
    rig_check(&rig, &loss, 1e-7, "loss", failures);
    rig_check(&rig, &lse, 1e-7, "lse", failures);
    fg_rt_cross_entropy_back(rig.cx, 0, FG_COMPUTE, x.at, labels.at, lse.at, seed.at,
                             with_dloss ? dloss.at : FG_RT_NONE, dx.at, ROWS, cols,
                             (uint64_t)(int64_t)IGNORE, dt);
    rig_check(&rig, &dx, 3e-6, "cross_entropy_back", failures);
    rig_close(&rig);
}

static void cross_entropy(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (int in_place = 0; in_place < 2; in_place++) {
            cross_entropy_case(DTYPES[d], 5, in_place, false, failures);
            cross_entropy_case(DTYPES[d], 1100, in_place, true, failures);
        }
}

static void cross_entropy_bad_label(int *failures)
{
    const int32_t bad[] = {5, -1};
    for (int i = 0; i < 2; i++) {
        Rig rig = rig_open(1 << 16);
        Array x = rig_values(&rig, FG_RT_F32, 5, 1), labels = rig_ids(&rig, &bad[i], 1);
        Array loss = rig_result(&rig, FG_RT_F32, 2);
        rig_begin(&rig);
        fg_rt_cross_entropy(rig.cx, 0, FG_COMPUTE, x.at, labels.at, FG_RT_NONE, loss.at,
                            loss.at + 4, 1, 5, (uint64_t)(int64_t)IGNORE, FG_RT_F32);
        CHECK(strstr(fg_rt_status(rig.cx).text, "there are 5 classes") != NULL);
        rig_close(&rig);
    }
}

static void loss_add(int *failures)
{
    Rig rig = rig_open(1 << 16);
    Array loss = rig_values(&rig, FG_RT_F32, 1, 1), acc = rig_result(&rig, FG_RT_F64, 1);
    rig_begin(&rig);
    fg_rt_loss_add(rig.cx, 0, FG_COMPUTE, loss.at, acc.at, 0);
    CHECK(rig_get(&rig, &acc, 0) == loss.v[0]);
    fg_rt_loss_add(rig.cx, 0, FG_COMPUTE, loss.at, acc.at, 1);
    CHECK(rig_get(&rig, &acc, 0) == 2 * loss.v[0]);
    rig_check_ok(&rig, "loss_add", failures);
    rig_close(&rig);
}

UNIT_MAIN({"norms", norms}, {"norm_gradients_together", norm_gradients_together},
          {"softmax", softmax}, {"cross_entropy", cross_entropy},
          {"cross_entropy_bad_label", cross_entropy_bad_label}, {"loss_add", loss_add})
