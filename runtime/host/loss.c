/* Cross-entropy over rows of logits, its gradient, and the step's loss. Rows whose label is
 * `ignore` count nowhere. */
#include <inttypes.h>
#include <math.h>

#include "runtime/host/arith.h"
#include "runtime/host/kernels.h"

static bool is_ignored(int32_t label, uint64_t ignore)
{
    return (int64_t)label ==
           (int64_t)ignore; /* the argument is a negative number in two's complement */
}

static bool label_is_valid(FgRtCx *cx, int32_t label, uint64_t row, uint64_t cols)
{
    if (label >= 0 && (uint64_t)label < cols)
        return true;
    fg_rt_raise(cx, "label %" PRIu64 " is %" PRId32 "; there are %" PRIu64 " classes", row, label,
                cols);
    return false;
}

void fg_host_cross_entropy(FgRtCx *cx, uint64_t logits, uint64_t labels, uint64_t seed,
                           uint64_t loss, uint64_t lse, uint64_t rows, uint64_t cols,
                           uint64_t ignore, uint64_t dt)
{
    const void *x = fg_at(cx, logits);
    const int32_t *label = fg_at(cx, labels);
    float *row_lse = fg_at(cx, lse);
    double total = 0;
    for (uint64_t row = 0; row < rows; row++) {
        FgSoftmaxRow stats = fg_softmax_row(x, dt, row * cols, cols);
        double value = (double)stats.most + log(stats.sum);
        row_lse[row] = (float)value;
        if (is_ignored(label[row], ignore))
            continue;
        if (!label_is_valid(cx, label[row], row, cols))
            return;
        total += value - (double)fg_load_one(x, dt, row * cols + (uint64_t)label[row]);
    }
    const float *factor = fg_at(cx, seed);
    *(float *)fg_at(cx, loss) = (float)((factor ? (double)*factor : 1.0) * total);
}

void fg_host_cross_entropy_back(FgRtCx *cx, uint64_t logits, uint64_t labels, uint64_t lse,
                                uint64_t seed, uint64_t dloss, uint64_t dlogits, uint64_t rows,
                                uint64_t cols, uint64_t ignore, uint64_t dt)
{
    const void *x = fg_at(cx, logits);
    void *dx = fg_at(cx, dlogits);
    const int32_t *label = fg_at(cx, labels);
    const float *row_lse = fg_at(cx, lse), *s = fg_at(cx, seed), *d = fg_at(cx, dloss);
    float factor = (s ? *s : 1.0f) * (d ? *d : 1.0f), sx[FG_CHUNK], so[FG_CHUNK];
    for (uint64_t row = 0; row < rows; row++) {
        bool ignored = is_ignored(label[row], ignore);
        if (!ignored && !label_is_valid(cx, label[row], row, cols))
            return;
        for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, cols - at), first = row * cols + at;
            const float *values = fg_load(x, dt, first, n, sx);
            float *to = fg_dest(dx, dt, first, so);
            uint64_t hit = (uint64_t)(int64_t)label[row] - at;
            if (ignored) {
                memset(to, 0, n * sizeof *to);
            } else {
                float target = hit < n ? values[hit] : 0; /* read before `to` takes its place */
                for (uint64_t i = 0; i < n; i++)
                    to[i] = fg_exp(values[i] - row_lse[row]) * factor;
                if (hit < n)
                    to[hit] = (fg_exp(target - row_lse[row]) - 1.0f) * factor;
            }
            fg_store(dx, dt, first, n, to);
        }
    }
}

void fg_host_loss_add(FgRtCx *cx, uint64_t loss, uint64_t acc, uint64_t accumulate)
{
    double *sum = fg_at(cx, acc);
    *sum = (accumulate ? *sum : 0.0) + (double)*(const float *)fg_at(cx, loss);
}
