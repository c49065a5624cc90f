/* Matrix products by OpenBLAS, one thread.
 *
 * Results are cut into tiles of fixed size. All-f32 products without accumulation go to sgemm a
 * tile at a time, straight into the result, or into the workspace where something else is added to
 * it. Of all others panels of the operands are converted into the workspace, chunks of k add up in
 * an f32 tile there, and the tile is rounded once into the result. The tile size is a constant,
 * never derived from the workspace, since it decides the order of additions. */
#include <cblas.h>
#include <inttypes.h>
#include <limits.h>

#include "runtime/host/elements.h"
#include "runtime/host/gemm.h"

#define TILE 512

bool fg_workspace_holds(FgRtCx *cx, FgWorkspace ws, uint64_t floats)
{
    if (ws.data && floats <= ws.bytes / sizeof(float))
        return true;
    fg_rt_raise(cx, "the workspace has %" PRIu64 " bytes, %" PRIu64 " are needed",
                ws.data ? ws.bytes : 0, floats * (uint64_t)sizeof(float));
    return false;
}

static void sgemm(const float *a, uint64_t lda, bool ta, const float *b, uint64_t ldb, bool tb,
                  float *c, uint64_t ldc, uint64_t m, uint64_t n, uint64_t k, float beta)
{
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* `rows` x `cols` of a matrix from (row, col) as f32, in its stored orientation; *ld is its row
 * distance. */
static const float *panel(FgMatrix x, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols,
                          float *scratch, uint64_t *ld)
{
    uint64_t first = x.transposed ? col : row, at = x.transposed ? row : col;
    uint64_t n_lines = x.transposed ? cols : rows, length = x.transposed ? rows : cols;
    if (x.dt == FG_RT_F32) {
        *ld = x.ld;
        return (const float *)x.data + first * x.ld + at;
    }
    *ld = length;
    for (uint64_t i = 0; i < n_lines; i++)
        fg_load(x.data, x.dt, (first + i) * x.ld + at, length, scratch + i * length);
    return scratch;
}

/* Adds bias and plus to values[cols] of row `row` of the result, from column `col` on. */
static void add_row(const FgProduct *c, uint64_t row, uint64_t col, uint64_t cols, float *values)
{
    for (uint64_t at = 0; at < cols; at += FG_CHUNK) {
        uint64_t n = fg_min(FG_CHUNK, cols - at);
        float scratch[FG_CHUNK];
        if (c->bias) {
            const float *bias = fg_load(c->bias, c->dt, col + at, n, scratch);
            for (uint64_t i = 0; i < n; i++)
                values[at + i] += bias[i];
        }
        if (c->plus) {
            const float *plus = fg_load(c->plus, c->dt, row * c->ld + col + at, n, scratch);
            for (uint64_t i = 0; i < n; i++)
                values[at + i] += plus[i];
        }
    }
}

/* values[cols] (+ bias) (+ plus) into row `row` of the result from column `col`. */
static void store_row(const FgProduct *c, uint64_t row, uint64_t col, uint64_t cols, float *values)
{
    add_row(c, row, col, cols, values);
    for (uint64_t at = 0; at < cols; at += FG_CHUNK)
        fg_store_sum(c->data, c->dt, row * c->ld + col + at, fg_min(FG_CHUNK, cols - at),
                     values + at, c->accumulate);
}

static void tiled(FgRtCx *cx, FgMatrix a, FgMatrix b, FgProduct c, uint64_t m, uint64_t n,
                  uint64_t k, FgWorkspace ws)
{
    uint64_t tm = fg_min(TILE, m), tn = fg_min(TILE, n), tk = fg_min(TILE, k);
    if (!fg_workspace_holds(cx, ws, tm * tk + tk * tn + tm * tn))
        return;
    float *pa = ws.data, *pb = pa + tm * tk, *pc = pb + tk * tn;
    for (uint64_t i = 0; i < m; i += tm)
        for (uint64_t j = 0; j < n; j += tn) {
            uint64_t rows = fg_min(tm, m - i), cols = fg_min(tn, n - j);
            for (uint64_t l = 0; l < k; l += tk) {
                uint64_t depth = fg_min(tk, k - l), lda, ldb;
                const float *fa = panel(a, i, l, rows, depth, pa, &lda);
                const float *fb = panel(b, l, j, depth, cols, pb, &ldb);
                sgemm(fa, lda, a.transposed, fb, ldb, b.transposed, pc, cols, rows, cols, depth,
                      l ? 1.0f : 0.0f);
            }
            for (uint64_t r = 0; r < rows; r++)
                store_row(&c, i + r, j, cols, pc + r * cols);
        }
}

/* All in f32: tiles of the result over the whole of k. With `plus`, which may be the result, a tile
 * is made in the workspace; the product has the same bits. */
static void direct(FgRtCx *cx, FgMatrix a, FgMatrix b, FgProduct c, uint64_t m, uint64_t n,
                   uint64_t k, FgWorkspace ws)
{
    if (c.plus && !fg_workspace_holds(cx, ws, fg_min(TILE, m) * fg_min(TILE, n)))
        return;
    for (uint64_t i = 0; i < m; i += TILE)
        for (uint64_t j = 0; j < n; j += TILE) {
            uint64_t rows = fg_min(TILE, m - i), cols = fg_min(TILE, n - j), lda, ldb;
            const float *fa = panel(a, i, 0, rows, k, NULL, &lda);
            const float *fb = panel(b, 0, j, k, cols, NULL, &ldb);
            float *out = c.plus ? ws.data : (float *)c.data + i * c.ld + j;
            uint64_t ld = c.plus ? cols : c.ld;
            sgemm(fa, lda, a.transposed, fb, ldb, b.transposed, out, ld, rows, cols, k, 0.0f);
            for (uint64_t r = 0; r < rows && c.plus; r++)
                store_row(&c, i + r, j, cols, out + r * ld);
            for (uint64_t r = 0; r < rows && c.bias && !c.plus; r++)
                add_row(&c, i + r, j, cols, out + r * ld);
        }
}

/* Without terms: bias and plus alone. */
static void empty(const FgProduct *c, uint64_t m, uint64_t n)
{
    float zero[FG_CHUNK];
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j += FG_CHUNK) {
            memset(zero, 0, sizeof zero);
            store_row(c, i, j, fg_min(FG_CHUNK, n - j), zero);
        }
}

void fg_gemm(FgRtCx *cx, FgMatrix a, FgMatrix b, FgProduct c, uint64_t m, uint64_t n, uint64_t k,
             FgWorkspace ws)
{
    if (m == 0 || n == 0)
        return;
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX || a.ld > INT_MAX || b.ld > INT_MAX ||
        c.ld > INT_MAX) {
        fg_rt_raise(cx,
                    "a product of %" PRIu64 " x %" PRIu64 " x %" PRIu64
                    " is too large for the matrix library",
                    m, n, k);
        return;
    }
    if (k == 0)
        empty(&c, m, n);
    else if (a.dt == FG_RT_F32 && b.dt == FG_RT_F32 && c.dt == FG_RT_F32 && !c.accumulate)
        direct(cx, a, b, c, m, n, k, ws);
    else
        tiled(cx, a, b, c, m, n, k, ws);
}
