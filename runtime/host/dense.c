/* Linear layers and matrix products: each is one fg_gemm with the right transpositions. */
#include "runtime/host/arith.h"
#include "runtime/host/gemm.h"
#include "runtime/host/kernels.h"

void fg_host_linear(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t b, uint64_t plus, uint64_t y,
                    uint64_t m, uint64_t n, uint64_t k, uint64_t layout, uint64_t dt, uint64_t ws,
                    uint64_t ws_bytes)
{
    FgMatrix in = {fg_at(cx, x), dt, k, false};
    FgMatrix weight = {fg_at(cx, w), dt, layout ? n : k, layout == 0};
    FgProduct out = {fg_at(cx, y), dt, n, false, fg_at(cx, b), fg_at(cx, plus)};
    fg_gemm(cx, in, weight, out, m, n, k, fg_workspace(cx, ws, ws_bytes));
}

void fg_host_linear_dx(FgRtCx *cx, uint64_t dy, uint64_t w, uint64_t plus, uint64_t dx, uint64_t m,
                       uint64_t n, uint64_t k, uint64_t layout, uint64_t dt, uint64_t ws,
                       uint64_t ws_bytes)
{
    FgMatrix in = {fg_at(cx, dy), dt, n, false};
    FgMatrix weight = {fg_at(cx, w), dt, layout ? n : k, layout != 0};
    FgProduct out = {.data = fg_at(cx, dx), .dt = dt, .ld = k, .plus = fg_at(cx, plus)};
    fg_gemm(cx, in, weight, out, m, k, n, fg_workspace(cx, ws, ws_bytes));
}

void fg_host_vocab_dx(FgRtCx *cx, uint64_t dlogits, uint64_t w, uint64_t part, uint64_t m,
                      uint64_t n, uint64_t k, uint64_t dt, uint64_t ws, uint64_t ws_bytes)
{
    FgMatrix in = {fg_at(cx, dlogits), dt, n, false}, rows = {fg_at(cx, w), dt, k, false};
    FgProduct out = {.data = fg_at(cx, part), .dt = FG_RT_F32, .ld = k};
    fg_gemm(cx, in, rows, out, m, k, n, fg_workspace(cx, ws, ws_bytes));
}

void fg_host_linear_dw(FgRtCx *cx, uint64_t x, uint64_t dy, uint64_t dw, uint64_t m, uint64_t n,
                       uint64_t k, uint64_t layout, uint64_t dt, uint64_t wire, uint64_t accumulate,
                       uint64_t ws, uint64_t ws_bytes)
{
    uint64_t rows = layout ? k : n, cols = layout ? n : k;
    FgMatrix left = {fg_at(cx, layout ? x : dy), dt, rows, true};
    FgMatrix right = {fg_at(cx, layout ? dy : x), dt, cols, false};
    FgProduct out = {.data = fg_at(cx, dw), .dt = wire, .ld = cols, .accumulate = accumulate != 0};
    fg_gemm(cx, left, right, out, rows, cols, m, fg_workspace(cx, ws, ws_bytes));
}

void fg_host_matmul(FgRtCx *cx, uint64_t a, uint64_t b, uint64_t y, uint64_t batch, uint64_t m,
                    uint64_t n, uint64_t k, uint64_t ta, uint64_t tb, uint64_t dt, uint64_t ws,
                    uint64_t ws_bytes)
{
    uint64_t size = fg_rt_dtype_bytes(dt);
    for (uint64_t i = 0; i < batch; i++) {
        FgMatrix left = {fg_at(cx, a + i * m * k * size), dt, ta ? m : k, ta != 0};
        FgMatrix right = {fg_at(cx, b + i * k * n * size), dt, tb ? k : n, tb != 0};
        FgProduct out = {.data = fg_at(cx, y + i * m * n * size), .dt = dt, .ld = n};
        fg_gemm(cx, left, right, out, m, n, k, fg_workspace(cx, ws, ws_bytes));
    }
}

void fg_host_column_sum(FgRtCx *cx, uint64_t dy, uint64_t db, uint64_t m, uint64_t n, uint64_t dt,
                        uint64_t wire, uint64_t accumulate)
{
    for (uint64_t col = 0; col < n; col += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - col);
        float sum[FG_CHUNK] = {0}, scratch[FG_CHUNK];
        for (uint64_t row = 0; row < m; row++) {
            const float *from = fg_load(fg_at(cx, dy), dt, row * n + col, count, scratch);
            for (uint64_t i = 0; i < count; i++)
                sum[i] += from[i];
        }
        fg_store_sum(fg_at(cx, db), wire, col, count, sum, accumulate != 0);
    }
}
