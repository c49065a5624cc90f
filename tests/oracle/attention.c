/* Rotary positions and attention, from the definitions: every pair of a query and a key by itself.
 */
#include "tests/oracle/formulas.h"

#include <math.h>
#include <stdlib.h>

void ref_rope_table(double *table, int64_t seq, int64_t half, double theta, double factor,
                    double low, double high, double original)
{
    const double two_pi = 6.28318530717958647692;
    for (int64_t i = 0; i < half; i++) {
        double f = pow(theta, -(double)i / (double)half);
        double wave = two_pi / f;
        double smooth = (original / wave - low) / (high - low);
        if (factor > 0 && wave > original / low)
            f = f / factor;
        else if (factor > 0 && wave >= original / high)
            f = (1 - smooth) * f / factor + smooth * f;
        for (int64_t t = 0; t < seq; t++) {
            table[t * half + i] = cos((double)t * f);
            table[(seq + t) * half + i] = sin((double)t * f);
        }
    }
}

void ref_rope(const double *x, const double *table, double *y, int64_t batch, int64_t seq,
              int64_t heads, int64_t dim, int64_t half, bool inverse)
{
    for (int64_t row = 0; row < batch * seq * heads; row++, x += dim, y += dim) {
        int64_t t = row / heads % seq;
        for (int64_t j = 0; j < dim; j++)
            y[j] = x[j];
        for (int64_t i = 0; i < half; i++) {
            double c = table[t * half + i], s = table[(seq + t) * half + i];
            s = inverse ? -s : s;
            y[i] = x[i] * c - x[half + i] * s;
            y[half + i] = x[half + i] * c + x[i] * s;
        }
    }
}

/* ---- attention ---- */

static bool sees(const RefAttention *at, int64_t i, int64_t j)
{
    int64_t position = i + at->seq_k - at->seq_q;
    if (at->causal && j > position)
        return false;
    return at->window == 0 || position - j < at->window;
}

static int64_t query_at(const RefAttention *at, int64_t b, int64_t i, int64_t h)
{
    return ((b * at->seq_q + i) * at->heads + h) * at->dim;
}

static int64_t key_at(const RefAttention *at, int64_t b, int64_t j, int64_t h)
{
    int64_t group = at->heads / at->kv_heads;
    return ((b * at->seq_k + j) * at->kv_heads + h / group) * at->dim;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++)
        sum += a[d] * b[d];
    return sum;
}

static double scale_of(const RefAttention *at)
{
    return at->scale != 0 ? at->scale : 1 / sqrt((double)at->dim);
}

/* p[j]: probabilities of one query; returns its log-sum-exp. A query that sees nothing has all
 * zeros. */
static double probabilities(const RefAttention *at, const double *q, const double *k, int64_t b,
                            int64_t i, int64_t h, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < at->seq_k; j++) {
        p[j] = -INFINITY;
        if (sees(at, i, j))
            p[j] = scale_of(at) * dot(q + query_at(at, b, i, h), k + key_at(at, b, j, h), at->dim);
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = 0; j < at->seq_k; j++) {
        p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - most);
        sum += p[j];
    }
    for (int64_t j = 0; j < at->seq_k && sum > 0; j++)
        p[j] /= sum;
    return most + log(sum);
}

void ref_attention(const RefAttention *at, const double *q, const double *k, const double *v,
                   double *o, double *lse)
{
    double *p = malloc((size_t)at->seq_k * sizeof *p);
    for (int64_t row = 0; p && row < at->batch * at->seq_q * at->heads; row++) {
        int64_t h = row % at->heads, i = row / at->heads % at->seq_q;
        int64_t b = row / at->heads / at->seq_q;
        lse[(b * at->heads + h) * at->seq_q + i] = probabilities(at, q, k, b, i, h, p);
        double *out = o + query_at(at, b, i, h);
        for (int64_t d = 0; d < at->dim; d++) {
            out[d] = 0;
            for (int64_t j = 0; j < at->seq_k; j++)
                out[d] += p[j] * v[key_at(at, b, j, h) + d];
        }
    }
    free(p);
}

/* One query's share of all three gradients. */
static void add_query(const RefAttention *at, const double *q, const double *k, const double *v,
                      const double *d, double *dq, double *dk, double *dv, int64_t row, double *p)
{
    int64_t h = row % at->heads, i = row / at->heads % at->seq_q;
    int64_t b = row / at->heads / at->seq_q, query = query_at(at, b, i, h);
    double mean = 0;
    probabilities(at, q, k, b, i, h, p);
    for (int64_t j = 0; j < at->seq_k; j++)
        mean += p[j] * dot(d + query, v + key_at(at, b, j, h), at->dim);
    for (int64_t j = 0; j < at->seq_k; j++) {
        int64_t key = key_at(at, b, j, h);
        double ds = p[j] * (dot(d + query, v + key, at->dim) - mean) * scale_of(at);
        for (int64_t c = 0; c < at->dim; c++) {
            dq[query + c] += ds * k[key + c];
            dk[key + c] += ds * q[query + c];
            dv[key + c] += p[j] * d[query + c];
        }
    }
}

void ref_attention_back(const RefAttention *at, const double *q, const double *k, const double *v,
                        const double *d, double *dq, double *dk, double *dv)
{
    double *p = malloc((size_t)at->seq_k * sizeof *p);
    for (int64_t i = 0; i < at->batch * at->seq_q * at->heads * at->dim; i++)
        dq[i] = 0;
    for (int64_t i = 0; i < at->batch * at->seq_k * at->kv_heads * at->dim; i++)
        dk[i] = dv[i] = 0;
    for (int64_t row = 0; p && row < at->batch * at->seq_q * at->heads; row++)
        add_query(at, q, k, v, d, dq, dk, dv, row, p);
    free(p);
}
