/* Attention, block by block, in f32: no matrix of scores is ever stored.
 *
 * Forward keeps, for a block of queries of one head, the running maximum, sum and weighted values
 * over blocks of keys. Backward recomputes probabilities from the saved log-sum-exp. It runs twice:
 * by blocks of keys for dk and dv (which sum over the query heads that share a key head), and by
 * blocks of queries for dq; so every sum has one owner and a fixed order. Block sizes are
 * constants; operands are converted to f32 in the workspace. */
#include <cblas.h>
#include <inttypes.h>
#include <math.h>

#include "runtime/host/arith.h"
#include "runtime/host/gemm.h"
#include "runtime/host/kernels.h"

#define BLOCK 128

/* A tensor [batch, seq, heads, dim] and the rows of one head of it. */
typedef struct Heads {
    void *data;
    uint64_t dt, seq, heads, dim;
} Heads;

static uint64_t head_row(const Heads *x, uint64_t batch, uint64_t head, uint64_t row)
{
    return ((batch * x->seq + row) * x->heads + head) * x->dim;
}

static void load_rows(const Heads *x, uint64_t batch, uint64_t head, uint64_t row, uint64_t n,
                      float *out)
{
    for (uint64_t i = 0; i < n; i++) {
        const float *from =
            fg_load(x->data, x->dt, head_row(x, batch, head, row + i), x->dim, out + i * x->dim);
        if (from != out + i * x->dim)
            memcpy(out + i * x->dim, from, x->dim * sizeof *out);
    }
}

static void store_rows(const Heads *x, uint64_t batch, uint64_t head, uint64_t row, uint64_t n,
                       const float *values)
{
    for (uint64_t i = 0; i < n; i++)
        fg_store(x->data, x->dt, head_row(x, batch, head, row + i), x->dim, values + i * x->dim);
}

typedef struct Attention {
    Heads q, k, v, o, d, dq, dk, dv; /* d: gradient of o */
    float *lse;                      /* [batch, heads, seq_q] */
    uint64_t batch, group;           /* query heads to a key head */
    bool causal;
    uint64_t window;
    float scale;
    /* Blocks in the workspace. */
    float *bq, *bk, *bv, *bo, *bd, *sum1, *sum2, *s, *ds, *most, *total, *delta;
} Attention;

/* c[m,n] = alpha op(a) op(b) + beta c, all dense. */
static void multiply(const float *a, bool ta, const float *b, bool tb, float *c, uint64_t m,
                     uint64_t n, uint64_t k, float alpha, float beta)
{
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                (int)m, (int)n, (int)k, alpha, a, (int)(ta ? m : k), b, (int)(tb ? k : n), beta, c,
                (int)n);
}

/* The keys [*begin, *end) that query `i` sees. */
static void visible(const Attention *at, uint64_t i, uint64_t *begin, uint64_t *end)
{
    int64_t place = (int64_t)i + (int64_t)at->k.seq - (int64_t)at->q.seq;
    int64_t last = at->causal ? place + 1 : (int64_t)at->k.seq;
    int64_t first = at->window ? place - (int64_t)at->window + 1 : 0;
    *begin = first > 0 ? (uint64_t)first : 0;
    *end = last > 0 ? fg_min((uint64_t)last, at->k.seq) : 0;
    if (*begin > *end)
        *begin = *end;
}

/* The part of key block [k0, k0 + n) that query i sees, relative to the block. */
static void visible_in(const Attention *at, uint64_t i, uint64_t k0, uint64_t n, uint64_t *begin,
                       uint64_t *end)
{
    visible(at, i, begin, end);
    *begin = *begin > k0 ? fg_min(*begin - k0, n) : 0;
    *end = *end > k0 ? fg_min(*end - k0, n) : 0;
}

/* Whether any query of the block sees any key of the block: rows see ranges whose ends grow. */
static bool blocks_meet(const Attention *at, uint64_t q0, uint64_t nq, uint64_t k0, uint64_t nk)
{
    uint64_t begin, end, unused;
    visible(at, q0, &begin, &unused);
    visible(at, q0 + nq - 1, &unused, &end);
    return begin < k0 + nk && end > k0;
}

static bool workspace(FgRtCx *cx, Attention *at, FgWorkspace ws)
{
    uint64_t dim = at->q.dim, rows = BLOCK * dim, tile = (uint64_t)BLOCK * BLOCK;
    if (dim > INT32_MAX / BLOCK) {
        fg_rt_raise(cx, "heads of %" PRIu64 " entries are too wide", dim);
        return false;
    }
    if (!fg_workspace_holds(cx, ws, 7 * rows + 2 * tile + (uint64_t)3 * BLOCK))
        return false;
    float *next = ws.data;
    float **const row_blocks[] = {&at->bq, &at->bk,   &at->bv,  &at->bo,
                                  &at->bd, &at->sum1, &at->sum2};
    for (size_t i = 0; i < sizeof row_blocks / sizeof *row_blocks; i++, next += rows)
        *row_blocks[i] = next;
    at->s = next;
    at->ds = at->s + tile;
    at->most = at->ds + tile;
    at->total = at->most + BLOCK;
    at->delta = at->total + BLOCK;
    return true;
}

/* ---- forward ---- */

/* Scores of a block become probabilities relative to the new running maximum; sums and values so
 * far are rescaled. */
static void softmax_block(const Attention *at, uint64_t q0, uint64_t nq, uint64_t k0, uint64_t nk)
{
    uint64_t dim = at->q.dim;
    for (uint64_t i = 0; i < nq; i++) {
        float *row = at->s + i * nk, most = at->most[i];
        uint64_t begin, end;
        visible_in(at, q0 + i, k0, nk, &begin, &end);
        for (uint64_t j = begin; j < end; j++)
            most = row[j] > most ? row[j] : most;
        float fade = at->most[i] == -INFINITY ? 0.0f : fg_exp(at->most[i] - most);
        memset(row, 0, begin * sizeof *row);
        for (uint64_t j = begin; j < end; j++)
            row[j] = fg_exp(row[j] - most);
        memset(row + end, 0, (nk - end) * sizeof *row);
        FgLanes sum = {0};
        fg_lanes_add(&sum, row, nk);
        at->total[i] = at->total[i] * fade + (float)fg_lanes_total(&sum);
        at->most[i] = most;
        for (uint64_t j = 0; j < dim; j++)
            at->sum1[i * dim + j] *= fade;
    }
}

static void forward_block(const Attention *at, uint64_t b, uint64_t h, uint64_t q0, uint64_t nq)
{
    uint64_t dim = at->q.dim;
    load_rows(&at->q, b, h, q0, nq, at->bq);
    memset(at->sum1, 0, nq * dim * sizeof(float));
    for (uint64_t i = 0; i < nq; i++) {
        at->most[i] = -INFINITY;
        at->total[i] = 0;
    }
    for (uint64_t k0 = 0; k0 < at->k.seq; k0 += BLOCK) {
        uint64_t nk = fg_min(BLOCK, at->k.seq - k0);
        if (!blocks_meet(at, q0, nq, k0, nk))
            continue;
        load_rows(&at->k, b, h / at->group, k0, nk, at->bk);
        load_rows(&at->v, b, h / at->group, k0, nk, at->bv);
        multiply(at->bq, false, at->bk, true, at->s, nq, nk, dim, at->scale, 0);
        softmax_block(at, q0, nq, k0, nk);
        multiply(at->s, false, at->bv, false, at->sum1, nq, dim, nk, 1, 1);
    }
    for (uint64_t i = 0; i < nq; i++) {
        float total = at->total[i], scale = total > 0 || total != total ? 1.0f / total : 0;
        for (uint64_t j = 0; j < dim; j++)
            at->sum1[i * dim + j] *= scale;
        at->lse[(b * at->q.heads + h) * at->q.seq + q0 + i] = at->most[i] + logf(total);
    }
    store_rows(&at->o, b, h, q0, nq, at->sum1);
}

/* ---- backward ---- */

/* A block of queries with the gradients of their outputs, and delta = o . do. */
static void load_queries(const Attention *at, uint64_t b, uint64_t h, uint64_t q0, uint64_t nq)
{
    uint64_t dim = at->q.dim;
    load_rows(&at->q, b, h, q0, nq, at->bq);
    load_rows(&at->d, b, h, q0, nq, at->bd);
    load_rows(&at->o, b, h, q0, nq, at->bo);
    for (uint64_t i = 0; i < nq; i++) {
        FgLanes dot = {0};
        fg_lanes_add_product(&dot, at->bo + i * dim, at->bd + i * dim, dim);
        at->delta[i] = (float)fg_lanes_total(&dot);
    }
}

/* s becomes the probabilities and ds the gradients of the scores, before the scale. */
static void score_gradients(const Attention *at, uint64_t b, uint64_t h, uint64_t q0, uint64_t nq,
                            uint64_t k0, uint64_t nk)
{
    uint64_t dim = at->q.dim;
    multiply(at->bq, false, at->bk, true, at->s, nq, nk, dim, at->scale, 0);
    multiply(at->bd, false, at->bv, true, at->ds, nq, nk, dim, 1, 0);
    for (uint64_t i = 0; i < nq; i++) {
        float *p = at->s + i * nk, *ds = at->ds + i * nk, delta = at->delta[i];
        float lse = at->lse[(b * at->q.heads + h) * at->q.seq + q0 + i];
        uint64_t begin, end;
        visible_in(at, q0 + i, k0, nk, &begin, &end);
        memset(p, 0, begin * sizeof *p);
        memset(ds, 0, begin * sizeof *ds);
        for (uint64_t j = begin; j < end; j++) {
            p[j] = fg_exp(p[j] - lse);
            ds[j] = p[j] * (ds[j] - delta);
        }
        memset(p + end, 0, (nk - end) * sizeof *p);
        memset(ds + end, 0, (nk - end) * sizeof *ds);
    }
}

/* dk and dv of a block of keys, over the query heads of the group in order. */
static void backward_keys(const Attention *at, uint64_t b, uint64_t kv, uint64_t k0, uint64_t nk)
{
    uint64_t dim = at->q.dim;
    load_rows(&at->k, b, kv, k0, nk, at->bk);
    load_rows(&at->v, b, kv, k0, nk, at->bv);
    memset(at->sum1, 0, nk * dim * sizeof(float));
    memset(at->sum2, 0, nk * dim * sizeof(float));
    for (uint64_t h = kv * at->group; h < (kv + 1) * at->group; h++)
        for (uint64_t q0 = 0; q0 < at->q.seq; q0 += BLOCK) {
            uint64_t nq = fg_min(BLOCK, at->q.seq - q0);
            if (!blocks_meet(at, q0, nq, k0, nk))
                continue;
            load_queries(at, b, h, q0, nq);
            score_gradients(at, b, h, q0, nq, k0, nk);
            multiply(at->ds, true, at->bq, false, at->sum1, nk, dim, nq, at->scale, 1);
            multiply(at->s, true, at->bd, false, at->sum2, nk, dim, nq, 1, 1);
        }
    store_rows(&at->dk, b, kv, k0, nk, at->sum1);
    store_rows(&at->dv, b, kv, k0, nk, at->sum2);
}

static void backward_queries(const Attention *at, uint64_t b, uint64_t h, uint64_t q0, uint64_t nq)
{
    uint64_t dim = at->q.dim;
    load_queries(at, b, h, q0, nq);
    memset(at->sum1, 0, nq * dim * sizeof(float));
    for (uint64_t k0 = 0; k0 < at->k.seq; k0 += BLOCK) {
        uint64_t nk = fg_min(BLOCK, at->k.seq - k0);
        if (!blocks_meet(at, q0, nq, k0, nk))
            continue;
        load_rows(&at->k, b, h / at->group, k0, nk, at->bk);
        load_rows(&at->v, b, h / at->group, k0, nk, at->bv);
        score_gradients(at, b, h, q0, nq, k0, nk);
        multiply(at->ds, false, at->bk, false, at->sum1, nq, dim, nk, at->scale, 1);
    }
    store_rows(&at->dq, b, h, q0, nq, at->sum1);
}

/* ---- entries ---- */

static Attention describe(FgRtCx *cx, uint64_t batch, uint64_t seq_q, uint64_t seq_k,
                          uint64_t heads, uint64_t kv_heads, uint64_t dim, uint64_t dt,
                          double scale)
{
    Heads query = {NULL, dt, seq_q, heads, dim}, key = {NULL, dt, seq_k, kv_heads, dim};
    if (kv_heads == 0 || heads % kv_heads != 0)
        fg_rt_raise(cx, "%" PRIu64 " query heads cannot share %" PRIu64 " key heads", heads,
                    kv_heads);
    return (Attention){.q = query,
                       .k = key,
                       .v = key,
                       .o = query,
                       .d = query,
                       .dq = query,
                       .dk = key,
                       .dv = key,
                       .batch = batch,
                       .group = kv_heads ? heads / kv_heads : 1,
                       .scale = (float)(scale == 0 ? 1 / sqrt((double)dim) : scale)};
}

void fg_host_attention(FgRtCx *cx, uint64_t q, uint64_t k, uint64_t v, uint64_t o, uint64_t lse,
                       uint64_t batch, uint64_t seq_q, uint64_t seq_k, uint64_t heads,
                       uint64_t kv_heads, uint64_t dim, uint64_t causal, uint64_t window,
                       uint64_t dt, uint64_t ws, uint64_t ws_bytes, double scale)
{
    Attention at = describe(cx, batch, seq_q, seq_k, heads, kv_heads, dim, dt, scale);
    at.q.data = fg_at(cx, q);
    at.k.data = fg_at(cx, k);
    at.v.data = fg_at(cx, v);
    at.o.data = fg_at(cx, o);
    at.lse = fg_at(cx, lse);
    at.causal = causal != 0;
    at.window = window;
    if (fg_rt_failed(cx) || !workspace(cx, &at, fg_workspace(cx, ws, ws_bytes)))
        return;
    for (uint64_t b = 0; b < batch; b++)
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t q0 = 0; q0 < seq_q; q0 += BLOCK)
                forward_block(&at, b, h, q0, fg_min(BLOCK, seq_q - q0));
}

void fg_host_attention_back(FgRtCx *cx, uint64_t q, uint64_t k, uint64_t v, uint64_t o,
                            uint64_t lse, uint64_t d, uint64_t dq, uint64_t dk, uint64_t dv,
                            uint64_t batch, uint64_t seq_q, uint64_t seq_k, uint64_t heads,
                            uint64_t kv_heads, uint64_t dim, uint64_t causal, uint64_t window,
                            uint64_t dt, uint64_t ws, uint64_t ws_bytes, double scale)
{
    Attention at = describe(cx, batch, seq_q, seq_k, heads, kv_heads, dim, dt, scale);
    at.q.data = fg_at(cx, q);
    at.k.data = fg_at(cx, k);
    at.v.data = fg_at(cx, v);
    at.o.data = fg_at(cx, o);
    at.d.data = fg_at(cx, d);
    at.dq.data = fg_at(cx, dq);
    at.dk.data = fg_at(cx, dk);
    at.dv.data = fg_at(cx, dv);
    at.lse = fg_at(cx, lse);
    at.causal = causal != 0;
    at.window = window;
    if (fg_rt_failed(cx) || !workspace(cx, &at, fg_workspace(cx, ws, ws_bytes)))
        return;
    for (uint64_t b = 0; b < batch; b++) {
        for (uint64_t kv = 0; kv < kv_heads; kv++)
            for (uint64_t k0 = 0; k0 < seq_k; k0 += BLOCK)
                backward_keys(&at, b, kv, k0, fg_min(BLOCK, seq_k - k0));
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t q0 = 0; q0 < seq_q; q0 += BLOCK)
                backward_queries(&at, b, h, q0, fg_min(BLOCK, seq_q - q0));
    }
}
