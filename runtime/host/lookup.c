/* Embedding lookup and its gradient: of the whole table, or of a rank's slice from the rows of all
 * ranks. */
#include <inttypes.h>

#include "runtime/host/elements.h"
#include "runtime/host/gemm.h"
#include "runtime/host/kernels.h"

static bool ids_are_valid(FgRtCx *cx, const int32_t *ids, uint64_t tokens, uint64_t vocab)
{
    for (uint64_t t = 0; t < tokens; t++)
        if (ids[t] < 0 || (uint64_t)ids[t] >= vocab) {
            fg_rt_raise(cx, "token %" PRIu64 " is %" PRId32 "; the vocabulary has %" PRIu64 " rows",
                        t, ids[t], vocab);
            return false;
        }
    return true;
}

void fg_host_embedding(FgRtCx *cx, uint64_t ids, uint64_t w, uint64_t y, uint64_t tokens,
                       uint64_t hidden, uint64_t vocab, uint64_t dt)
{
    const int32_t *id = fg_at(cx, ids);
    if (!ids_are_valid(cx, id, tokens, vocab))
        return;
    uint64_t row = hidden * fg_rt_dtype_bytes(dt);
    for (uint64_t t = 0; t < tokens; t++)
        memcpy(fg_at(cx, y + t * row), fg_at(cx, w + (uint64_t)id[t] * row), row);
}

/* Token numbers by id, equal ids by position: merge sort from `order` with `spare`, n each. Returns
 * the sorted one. */
static const uint32_t *sort_tokens(const int32_t *ids, uint64_t n, uint32_t *order, uint32_t *spare)
{
    for (uint64_t i = 0; i < n; i++)
        order[i] = (uint32_t)i; /* NOLINT(clang-analyzer-core.NullDereference): a workspace */
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t begin = 0; begin < n; begin += 2 * width) {
            uint64_t middle = fg_min(begin + width, n), end = fg_min(begin + 2 * width, n);
            uint64_t left = begin, right = middle;
            for (uint64_t to = begin; to < end; to++) {
                bool take_left =
                    left < middle && (right >= end || ids[order[left]] <= ids[order[right]]);
                spare[to] = order[take_left ? left++ : right++];
            }
        }
        uint32_t *swap = order;
        order = spare;
        spare = swap;
    }
    return order;
}

/* Columns [begin, end) of one row of the gradient: the sum of dy[tokens[0..n)], by chunks, into
 * dw[to...]. */
static void sum_row(const void *dy, uint64_t dt, const uint32_t *tokens, uint64_t n,
                    uint64_t hidden, uint64_t begin, uint64_t end, void *dw, uint64_t wire,
                    uint64_t to, bool accumulate)
{
    for (uint64_t col = begin; col < end; col += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, end - col);
        float sum[FG_CHUNK] = {0}, scratch[FG_CHUNK];
        for (uint64_t t = 0; t < n; t++) {
            const float *from = fg_load(dy, dt, tokens[t] * hidden + col, count, scratch);
            for (uint64_t i = 0; i < count; i++)
                sum[i] += from[i];
        }
        fg_store_sum(dw, wire, to + col - begin, count, sum, accumulate);
    }
}

/* The tokens by id, in the workspace; NULL after an error. */
static const uint32_t *order_of(FgRtCx *cx, const int32_t *ids, uint64_t tokens, uint64_t vocab,
                                uint64_t ws, uint64_t ws_bytes)
{
    if (tokens > UINT32_MAX) {
        fg_rt_raise(cx, "%" PRIu64 " tokens in one call are too many", tokens);
        return NULL;
    }
    FgWorkspace scratch = fg_workspace(cx, ws, ws_bytes);
    if (!ids_are_valid(cx, ids, tokens, vocab) || !fg_workspace_holds(cx, scratch, 2 * tokens))
        return NULL;
    uint32_t *space = (uint32_t *)(void *)scratch.data;
    return sort_tokens(ids, tokens, space, space + tokens);
}

/* One past the last token in order, from `begin`, that has the id of order[begin]. */
static uint64_t same_id(const int32_t *ids, const uint32_t *order, uint64_t begin, uint64_t tokens)
{
    uint64_t end = begin + 1;
    while (end < tokens && ids[order[end]] == ids[order[begin]])
        end++;
    return end;
}

void fg_host_embedding_dw(FgRtCx *cx, uint64_t ids, uint64_t dy, uint64_t dw, uint64_t tokens,
                          uint64_t hidden, uint64_t vocab, uint64_t padding, uint64_t dt,
                          uint64_t wire, uint64_t accumulate, uint64_t ws, uint64_t ws_bytes)
{
    const int32_t *id = fg_at(cx, ids);
    const uint32_t *order = order_of(cx, id, tokens, vocab, ws, ws_bytes);
    if (!order)
        return;
    if (!accumulate)
        memset(fg_at(cx, dw), 0, vocab * hidden * fg_rt_dtype_bytes(wire));
    for (uint64_t begin = 0, end; begin < tokens; begin = end) {
        uint64_t row = (uint64_t)id[order[begin]];
        end = same_id(id, order, begin, tokens);
        if (row != padding)
            sum_row(fg_at(cx, dy), dt, order + begin, end - begin, hidden, 0, hidden, fg_at(cx, dw),
                    wire, row * hidden, accumulate != 0);
    }
}

void fg_host_row_set(FgRtCx *cx, uint64_t ids, uint64_t set, uint64_t tokens, uint64_t vocab,
                     uint64_t words)
{
    const int32_t *id = fg_at(cx, ids);
    uint32_t *bits = fg_at(cx, set);
    if (!ids_are_valid(cx, id, tokens, vocab))
        return;
    memset(bits, 0, words * sizeof *bits);
    for (uint64_t t = 0; t < tokens; t++)
        bits[(uint32_t)id[t] / 32] |= (uint32_t)1 << ((uint32_t)id[t] % 32);
}

/* The part of a row that lies in the slice of elements [from, from + elements) of the bucket. */
void fg_host_lookup_dw(FgRtCx *cx, uint64_t ids, uint64_t rows, uint64_t shard, uint64_t bucket,
                       uint64_t tokens, uint64_t hidden, uint64_t vocab, uint64_t first,
                       uint64_t elements, uint64_t padding, uint64_t dt, uint64_t shard_dt,
                       uint64_t accumulate, uint64_t ws, uint64_t ws_bytes)
{
    (void)bucket;
    const int32_t *id = fg_at(cx, ids);
    const uint32_t *order = order_of(cx, id, tokens, vocab, ws, ws_bytes);
    if (!order)
        return;
    uint64_t from = cx->rank * elements, to = from + elements;
    if (!accumulate)
        memset(fg_at(cx, shard), 0, elements * fg_rt_dtype_bytes(shard_dt));
    for (uint64_t begin = 0, end; begin < tokens; begin = end) {
        uint64_t row = (uint64_t)id[order[begin]], at = first + row * hidden;
        end = same_id(id, order, begin, tokens);
        uint64_t low = at < from ? from : at, high = fg_min(at + hidden, to);
        if (row != padding && low < high)
            sum_row(fg_at(cx, rows), dt, order + begin, end - begin, hidden, low - at, high - at,
                    fg_at(cx, shard), shard_dt, low - from, accumulate != 0);
    }
}
