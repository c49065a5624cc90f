/* Sums over dimensions, and softmax with its gradient. */
#include <math.h>

#include "runtime/host/arith.h"
#include "runtime/host/kernels.h"
#include "runtime/host/layout.h"

/* ---- sums: recursion over dimensions, first over those that y keeps, then over the others ---- */

typedef struct Sum {
    FgLayout layout; /* operand 0 is x, operand 1 is y */
    const void *x;
    void *y;
    uint64_t dt;
    float scale;
} Sum;

/* The sum over the dropped dimensions from `dim` on, in x's order. */
static double sum_dropped(const Sum *sum, uint64_t dim, uint64_t x)
{
    const FgLayout *layout = &sum->layout;
    while (dim < layout->rank && fg_layout_stride(layout, 1, dim) != 0)
        dim++;
    if (dim == layout->rank)
        return (double)fg_load_one(sum->x, sum->dt, x);
    uint64_t n = fg_layout_dim(layout, dim), stride = fg_layout_stride(layout, 0, dim);
    double total = 0;
    for (uint64_t i = 0; i < n; i++)
        total += sum_dropped(sum, dim + 1, x + i * stride);
    return total;
}

static void sum_kept(const Sum *sum, uint64_t dim, uint64_t x, uint64_t y)
{
    const FgLayout *layout = &sum->layout;
    while (dim < layout->rank && fg_layout_stride(layout, 1, dim) == 0)
        dim++;
    if (dim == layout->rank) {
        fg_store_one(sum->y, sum->dt, y, sum->scale * (float)sum_dropped(sum, 0, x));
        return;
    }
    uint64_t n = fg_layout_dim(layout, dim);
    uint64_t sx = fg_layout_stride(layout, 0, dim), sy = fg_layout_stride(layout, 1, dim);
    for (uint64_t i = 0; i < n; i++)
        sum_kept(sum, dim + 1, x + i * sx, y + i * sy);
}

void fg_host_reduce_sum(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t n_x, uint64_t n,
                        uint64_t layout, uint64_t dt, double scale)
{
    (void)n_x; /* the effects need it */
    Sum sum = {.x = fg_at(cx, x), .y = fg_at(cx, y), .dt = dt, .scale = (float)scale};
    if (n > 0 && fg_layout_read(cx, layout, 2, &sum.layout))
        sum_kept(&sum, 0, 0, 0);
}

/* ---- softmax ---- */

static float row_max(const void *x, uint64_t dt, uint64_t first, uint64_t cols)
{
    float scratch[FG_CHUNK], most = -INFINITY;
    for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, cols - at);
        const float *values = fg_load(x, dt, first + at, n, scratch);
        for (uint64_t i = 0; i < n; i++)
            most = values[i] > most ? values[i] : most;
    }
    return most;
}

/* Sum of e^(x - most) over a row. */
static double row_exp_sum(const void *x, uint64_t dt, uint64_t first, uint64_t cols, float most)
{
    float scratch[FG_CHUNK], power[FG_CHUNK];
    FgLanes sum = {0};
    for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, cols - at);
        const float *values = fg_load(x, dt, first + at, n, scratch);
        for (uint64_t i = 0; i < n; i++)
            power[i] = fg_exp(values[i] - most);
        fg_lanes_add(&sum, power, n);
    }
    return fg_lanes_total(&sum);
}

FgSoftmaxRow fg_softmax_row(const void *x, uint64_t dt, uint64_t first, uint64_t cols)
{
    float most = row_max(x, dt, first, cols);
    return (FgSoftmaxRow){most, row_exp_sum(x, dt, first, cols, most)};
}

void fg_host_softmax(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t rows, uint64_t cols, uint64_t dt)
{
    float sx[FG_CHUNK], sy[FG_CHUNK];
    const void *in = fg_at(cx, x);
    void *out = fg_at(cx, y);
    for (uint64_t row = 0; row < rows; row++) {
        FgSoftmaxRow stats = fg_softmax_row(in, dt, row * cols, cols);
        float scale = (float)(1.0 / stats.sum);
        for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, cols - at), first = row * cols + at;
            const float *values = fg_load(in, dt, first, n, sx);
            float *to = fg_dest(out, dt, first, sy);
            for (uint64_t i = 0; i < n; i++)
                to[i] = fg_exp(values[i] - stats.most) * scale;
            fg_store(out, dt, first, n, to);
        }
    }
}

/* dx = y (dy - sum(y dy)) */
void fg_host_softmax_back(FgRtCx *cx, uint64_t y, uint64_t dy, uint64_t dx, uint64_t rows,
                          uint64_t cols, uint64_t dt)
{
    float sy[FG_CHUNK], sd[FG_CHUNK], so[FG_CHUNK];
    const void *prob = fg_at(cx, y), *grad = fg_at(cx, dy);
    void *out = fg_at(cx, dx);
    for (uint64_t row = 0; row < rows; row++) {
        FgLanes dot = {0};
        for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, cols - at), first = row * cols + at;
            fg_lanes_add_product(&dot, fg_load(prob, dt, first, n, sy),
                                 fg_load(grad, dt, first, n, sd), n);
        }
        float total = (float)fg_lanes_total(&dot);
        for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, cols - at), first = row * cols + at;
            const float *p = fg_load(prob, dt, first, n, sy), *d = fg_load(grad, dt, first, n, sd);
            float *to = fg_dest(out, dt, first, so);
            for (uint64_t i = 0; i < n; i++)
                to[i] = p[i] * (d[i] - total);
            fg_store(out, dt, first, n, to);
        }
    }
}
