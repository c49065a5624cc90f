/* A sharded vocabulary on the rank that owns some of its rows: lookup, the head's statistics, its
 * loss and gradients. Rank r owns the rows from r * cols on; those from `vocab` on do not exist:
 * they are -inf in a log-sum-exp and have no gradient. Tokens of all ranks lie rank by rank. The
 * lookup knows slices of any bucket: they begin and end where they may. */
#include <inttypes.h>
#include <math.h>

#include "runtime/host/arith.h"
#include "runtime/host/kernels.h"

/* Which tokens a call works on: `rows` of all ranks, from `first` of each on. */
typedef struct Tokens {
    const int32_t *all; /* ids or labels */
    uint64_t stride;    /* of a rank in `all` */
    uint64_t first, each;
} Tokens;

static Tokens tokens_of(const FgRtCx *cx, uint64_t ids, uint64_t tokens, uint64_t first,
                        uint64_t rows)
{
    uint64_t ranks = cx->program->ranks;
    return (Tokens){fg_at(cx, ids), tokens / ranks, first, rows / ranks};
}

static int32_t token_at(const Tokens *tokens, uint64_t row)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): in the rank's memory. */
    return tokens->all[row / tokens->each * tokens->stride + tokens->first + row % tokens->each];
}

/* Owned columns that exist. */
static uint64_t columns_there(const FgRtCx *cx, uint64_t cols, uint64_t vocab)
{
    uint64_t begin = cx->rank * cols;
    return begin >= vocab ? 0 : fg_min(cols, vocab - begin);
}

/* -0.0, n times. */
static void fill_minus_zero(unsigned char *to, uint64_t n, uint64_t size)
{
    memset(to, 0, n * size);
    for (uint64_t i = 0; i < n; i++)
        to[i * size + size - 1] = 0x80;
}

void fg_host_lookup_rows(FgRtCx *cx, uint64_t ids, uint64_t shard, uint64_t y, uint64_t tokens,
                         uint64_t first, uint64_t rows, uint64_t hidden, uint64_t vocab,
                         uint64_t table, uint64_t elements, uint64_t dt)
{
    Tokens t = tokens_of(cx, ids, tokens, first, rows);
    uint64_t size = fg_rt_dtype_bytes(dt), from = cx->rank * elements, to = from + elements;
    for (uint64_t row = 0; row < rows; row++) {
        int32_t id = token_at(&t, row);
        if (id < 0 || (uint64_t)id >= vocab) {
            fg_rt_raise(cx, "token %" PRIu64 " is %" PRId32 "; the vocabulary has %" PRIu64 " rows",
                        row, id, vocab);
            return;
        }
        uint64_t at = table + (uint64_t)id * hidden;
        uint64_t low = at < from ? fg_min(from - at, hidden) : 0;
        uint64_t high = at + low < to ? fg_min(to - at, hidden) : low;
        unsigned char *out = fg_at(cx, y + row * hidden * size);
        fill_minus_zero(out, low, size);
        if (low < high)
            memcpy(out + low * size, fg_at(cx, shard + (at + low - from) * size),
                   (high - low) * size);
        fill_minus_zero(out + high * size, hidden - high, size);
    }
}

static bool is_ignored(int32_t label, uint64_t ignore)
{
    return (int64_t)label == (int64_t)ignore;
}

/* A label that is no word ends the group. */
static bool labels_are_valid(FgRtCx *cx, const Tokens *tokens, uint64_t rows, uint64_t ignore,
                             uint64_t vocab)
{
    for (uint64_t row = 0; row < rows; row++) {
        int32_t label = token_at(tokens, row);
        if (is_ignored(label, ignore) || (label >= 0 && (uint64_t)label < vocab))
            continue;
        fg_rt_raise(cx, "label %" PRIu64 " is %" PRId32 "; there are %" PRIu64 " classes", row,
                    label, vocab);
        return false;
    }
    return true;
}

void fg_host_vocab_stats(FgRtCx *cx, uint64_t logits, uint64_t labels, uint64_t stats,
                         uint64_t tokens, uint64_t first, uint64_t rows, uint64_t cols,
                         uint64_t vocab, uint64_t ignore, uint64_t dt)
{
    Tokens t = tokens_of(cx, labels, tokens, first, rows);
    const void *x = fg_at(cx, logits);
    float *out = fg_at(cx, stats);
    uint64_t there = columns_there(cx, cols, vocab);
    if (!labels_are_valid(cx, &t, rows, ignore, vocab))
        return;
    for (uint64_t row = 0; row < rows; row++, out += 3) {
        FgSoftmaxRow own = {-INFINITY, 0};
        if (there > 0)
            own = fg_softmax_row(x, dt, row * cols, there);
        int32_t label = token_at(&t, row);
        uint64_t at = (uint64_t)(int64_t)label - cx->rank * cols;
        bool counts = !is_ignored(label, ignore) && at < there;
        out[0] = own.most;
        out[1] = (float)own.sum;
        out[2] = counts ? fg_load_one(x, dt, row * cols + at) : 0;
    }
}

/* The log-sum-exp of a row, and its label's logit. */
static double combine(const float *stats, uint64_t ranks, uint64_t stride, double *out_target)
{
    float most = -INFINITY;
    double sum = 0, target = 0;
    for (uint64_t rank = 0; rank < ranks; rank++)
        most = stats[rank * stride] > most ? stats[rank * stride] : most;
    for (uint64_t rank = 0; rank < ranks; rank++) {
        const float *part = stats + rank * stride;
        if (part[1] != 0)
            sum += (double)part[1] * exp((double)part[0] - (double)most);
        target += (double)part[2];
    }
    *out_target = target;
    return (double)most + log(sum);
}

void fg_host_vocab_loss(FgRtCx *cx, uint64_t stats, uint64_t labels, uint64_t seed, uint64_t before,
                        uint64_t loss, uint64_t lse, uint64_t tokens, uint64_t first, uint64_t rows,
                        uint64_t vocab, uint64_t ignore)
{
    Tokens t = tokens_of(cx, labels, tokens, first, rows);
    const float *all = fg_at(cx, stats), *factor = fg_at(cx, seed), *earlier = fg_at(cx, before);
    float *row_lse = fg_at(cx, lse);
    double total = 0;
    if (!labels_are_valid(cx, &t, rows, ignore, vocab))
        return;
    for (uint64_t row = 0; row < rows; row++) {
        double target, value = combine(all + 3 * row, cx->program->ranks, 3 * rows, &target);
        row_lse[row] = (float)value;
        if (row / t.each == cx->rank && !is_ignored(token_at(&t, row), ignore))
            total += value - target;
    }
    *(float *)fg_at(cx, loss) = (float)((earlier ? (double)*earlier : 0) + (double)*factor * total);
}

void fg_host_vocab_dlogits(FgRtCx *cx, uint64_t logits, uint64_t labels, uint64_t lse,
                           uint64_t seed, uint64_t dlogits, uint64_t tokens, uint64_t first,
                           uint64_t rows, uint64_t cols, uint64_t vocab, uint64_t ignore,
                           uint64_t dt)
{
    Tokens t = tokens_of(cx, labels, tokens, first, rows);
    const void *x = fg_at(cx, logits);
    void *dx = fg_at(cx, dlogits);
    const float *row_lse = fg_at(cx, lse), factor = *(const float *)fg_at(cx, seed);
    uint64_t there = columns_there(cx, cols, vocab);
    float sx[FG_CHUNK], so[FG_CHUNK];
    if (!labels_are_valid(cx, &t, rows, ignore, vocab))
        return;
    for (uint64_t row = 0; row < rows; row++) {
        int32_t label = token_at(&t, row);
        uint64_t end = is_ignored(label, ignore) ? 0 : there;
        for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
            uint64_t n = fg_min(FG_CHUNK, cols - at), begin = row * cols + at;
            uint64_t live = at < end ? fg_min(n, end - at) : 0;
            uint64_t hit = (uint64_t)(int64_t)label - cx->rank * cols - at;
            const float *values = fg_load(x, dt, begin, n, sx);
            float *to = fg_dest(dx, dt, begin, so);
            float target = hit < live ? values[hit] : 0; /* read before `to` takes its place */
            for (uint64_t i = 0; i < live; i++)
                to[i] = fg_exp(values[i] - row_lse[row]) * factor;
            memset(to + live, 0, (n - live) * sizeof *to);
            if (hit < live)
                to[hit] = (fg_exp(target - row_lse[row]) - 1.0f) * factor;
            fg_store(dx, dt, begin, n, to);
        }
    }
}

void fg_host_vocab_dw(FgRtCx *cx, uint64_t x, uint64_t dlogits, uint64_t shard, uint64_t bucket,
                      uint64_t m, uint64_t n, uint64_t k, uint64_t dt, uint64_t shard_dt,
                      uint64_t accumulate, uint64_t ws, uint64_t ws_bytes)
{
    (void)bucket;
    fg_host_linear_dw(cx, x, dlogits, shard, m, n, k, 0, dt, shard_dt, accumulate, ws, ws_bytes);
}

void fg_host_vocab_db(FgRtCx *cx, uint64_t dlogits, uint64_t shard, uint64_t bucket, uint64_t m,
                      uint64_t n, uint64_t dt, uint64_t shard_dt, uint64_t accumulate)
{
    (void)bucket;
    fg_host_column_sum(cx, dlogits, shard, m, n, dt, shard_dt, accumulate);
}
