/* RMSNorm and LayerNorm, forward and backward, by rows.
 *
 * Both are y = (x - mean) * scale * w + b with the row's mean (0 for RMSNorm) and scale = 1 /
 * sqrt(moment + eps), so one set of loops serves them. Statistics are recomputed in the backward
 * calls from x: keeping them would cost a buffer in the plan. The gradients of w are sums over rows
 * in order; their statistics are recomputed once for each chunk of columns. */
#include <math.h>

#include "runtime/host/arith.h"
#include "runtime/host/kernels.h"

typedef struct Stats {
    float mean, scale;
} Stats;

typedef struct Rows {
    const void *x;
    uint64_t dt, cols;
    bool centred;
    double eps;
} Rows;

static Stats row_stats(const Rows *rows, uint64_t row)
{
    float scratch[FG_CHUNK], centred[FG_CHUNK];
    double mean = 0;
    if (rows->centred) {
        FgLanes sum = {0};
        for (uint64_t at = 0; at < rows->cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, rows->cols - at);
            fg_lanes_add(&sum, fg_load(rows->x, rows->dt, row * rows->cols + at, n, scratch), n);
        }
        mean = fg_lanes_total(&sum) / (double)rows->cols;
    }
    FgLanes squares = {0};
    for (uint64_t at = 0; at < rows->cols; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, rows->cols - at);
        const float *x = fg_load(rows->x, rows->dt, row * rows->cols + at, n, scratch);
        if (rows->centred) {
            for (uint64_t i = 0; i < n; i++)
                centred[i] = x[i] - (float)mean;
            x = centred;
        }
        fg_lanes_add_product(&squares, x, x, n);
    }
    double moment = fg_lanes_total(&squares) / (double)rows->cols;
    return (Stats){(float)mean, (float)(1.0 / sqrt(moment + rows->eps))};
}

static void forward(const Rows *rows, const void *w, const void *b, void *y, uint64_t n_rows)
{
    float sx[FG_CHUNK], sw[FG_CHUNK], sb[FG_CHUNK], sy[FG_CHUNK];
    uint64_t dt = rows->dt;
    for (uint64_t row = 0; row < n_rows; row++) {
        Stats stats = row_stats(rows, row);
        for (uint64_t at = 0; at < rows->cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, rows->cols - at), first = row * rows->cols + at;
            const float *x = fg_load(rows->x, dt, first, n, sx), *gain = fg_load(w, dt, at, n, sw);
            float *out = fg_dest(y, dt, first, sy);
            for (uint64_t i = 0; i < n; i++)
                out[i] = (x[i] - stats.mean) * stats.scale * gain[i];
            if (b) {
                const float *bias = fg_load(b, dt, at, n, sb);
                for (uint64_t i = 0; i < n; i++)
                    out[i] += bias[i];
            }
            fg_store(y, dt, first, n, out);
        }
    }
}

/* With z = (x - mean) scale and g = dy w: dx = scale (g - mean(g) - z mean(g z)), without mean(g)
 * for RMSNorm. `plus` (NULL: none) is added; it may be dx. */
static void backward_x(const Rows *rows, const void *w, const void *dy, const void *plus, void *dx,
                       uint64_t n_rows)
{
    float sx[FG_CHUNK], sw[FG_CHUNK], sd[FG_CHUNK], so[FG_CHUNK], sp[FG_CHUNK], g[FG_CHUNK],
        z[FG_CHUNK];
    uint64_t dt = rows->dt, cols = rows->cols;
    for (uint64_t row = 0; row < n_rows; row++) {
        Stats stats = row_stats(rows, row);
        FgLanes sum_g = {0}, sum_gz = {0};
        float mean_g = 0, mean_gz = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
                uint64_t n = fg_min(FG_CHUNK, cols - at), first = row * cols + at;
                const float *x = fg_load(rows->x, dt, first, n, sx),
                            *gain = fg_load(w, dt, at, n, sw);
                const float *d = fg_load(dy, dt, first, n, sd);
                for (uint64_t i = 0; i < n; i++) {
                    g[i] = d[i] * gain[i];
                    z[i] = (x[i] - stats.mean) * stats.scale;
                }
                if (pass == 0) {
                    fg_lanes_add(&sum_g, g, n);
                    fg_lanes_add_product(&sum_gz, g, z, n);
                    continue;
                }
                float *out = fg_dest(dx, dt, first, so);
                for (uint64_t i = 0; i < n; i++)
                    z[i] = stats.scale * (g[i] - mean_g - z[i] * mean_gz);
                const float *more = plus ? fg_load(plus, dt, first, n, sp) : NULL;
                for (uint64_t i = 0; i < n; i++)
                    out[i] = more ? z[i] + more[i] : z[i];
                fg_store(dx, dt, first, n, out);
            }
            mean_g = rows->centred ? (float)(fg_lanes_total(&sum_g) / (double)cols) : 0;
            mean_gz = (float)(fg_lanes_total(&sum_gz) / (double)cols);
        }
    }
}

/* dw = sum over rows of dy z */
static void backward_w(const Rows *rows, const void *dy, void *dw, uint64_t n_rows, uint64_t wire,
                       bool accumulate)
{
    float sx[FG_CHUNK], sd[FG_CHUNK];
    for (uint64_t at = 0; at < rows->cols; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, rows->cols - at);
        float sum[FG_CHUNK] = {0};
        for (uint64_t row = 0; row < n_rows; row++) {
            Stats stats = row_stats(rows, row);
            uint64_t first = row * rows->cols + at;
            const float *x = fg_load(rows->x, rows->dt, first, n, sx);
            const float *d = fg_load(dy, rows->dt, first, n, sd);
            for (uint64_t i = 0; i < n; i++)
                sum[i] += d[i] * ((x[i] - stats.mean) * stats.scale);
        }
        fg_store_sum(dw, wire, at, n, sum, accumulate);
    }
}

/* The result of dx may lie in the memory of `plus`, which the sum for dw does not read. */
static void backward_both(FgRtCx *cx, const Rows *rows, uint64_t w, uint64_t dy, uint64_t plus,
                          uint64_t dx, uint64_t dw, uint64_t n_rows, uint64_t wire, bool accumulate)
{
    backward_x(rows, fg_at(cx, w), fg_at(cx, dy), fg_at(cx, plus), fg_at(cx, dx), n_rows);
    backward_w(rows, fg_at(cx, dy), fg_at(cx, dw), n_rows, wire, accumulate);
}

void fg_host_rmsnorm(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t y, uint64_t rows, uint64_t cols,
                     uint64_t dt, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, false, eps};
    forward(&in, fg_at(cx, w), NULL, fg_at(cx, y), rows);
}

void fg_host_rmsnorm_dx(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t dy, uint64_t plus, uint64_t dx,
                        uint64_t rows, uint64_t cols, uint64_t dt, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, false, eps};
    backward_x(&in, fg_at(cx, w), fg_at(cx, dy), fg_at(cx, plus), fg_at(cx, dx), rows);
}

void fg_host_rmsnorm_dw(FgRtCx *cx, uint64_t x, uint64_t dy, uint64_t dw, uint64_t rows,
                        uint64_t cols, uint64_t dt, uint64_t wire, uint64_t accumulate, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, false, eps};
    backward_w(&in, fg_at(cx, dy), fg_at(cx, dw), rows, wire, accumulate != 0);
}

void fg_host_rmsnorm_back(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t dy, uint64_t plus,
                          uint64_t dx, uint64_t dw, uint64_t rows, uint64_t cols, uint64_t dt,
                          uint64_t wire, uint64_t accumulate, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, false, eps};
    backward_both(cx, &in, w, dy, plus, dx, dw, rows, wire, accumulate != 0);
}

void fg_host_layernorm(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t b, uint64_t y, uint64_t rows,
                       uint64_t cols, uint64_t dt, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, true, eps};
    forward(&in, fg_at(cx, w), fg_at(cx, b), fg_at(cx, y), rows);
}

void fg_host_layernorm_dx(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t dy, uint64_t plus,
                          uint64_t dx, uint64_t rows, uint64_t cols, uint64_t dt, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, true, eps};
    backward_x(&in, fg_at(cx, w), fg_at(cx, dy), fg_at(cx, plus), fg_at(cx, dx), rows);
}

void fg_host_layernorm_dw(FgRtCx *cx, uint64_t x, uint64_t dy, uint64_t dw, uint64_t rows,
                          uint64_t cols, uint64_t dt, uint64_t wire, uint64_t accumulate,
                          double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, true, eps};
    backward_w(&in, fg_at(cx, dy), fg_at(cx, dw), rows, wire, accumulate != 0);
}

void fg_host_layernorm_back(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t dy, uint64_t plus,
                            uint64_t dx, uint64_t dw, uint64_t rows, uint64_t cols, uint64_t dt,
                            uint64_t wire, uint64_t accumulate, double eps)
{
    Rows in = {fg_at(cx, x), dt, cols, true, eps};
    backward_both(cx, &in, w, dy, plus, dx, dw, rows, wire, accumulate != 0);
}
