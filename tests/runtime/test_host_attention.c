/* Attention and rope against the whole matrix of scores in double. */
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

static const uint64_t DTYPES[] = {FG_RT_F32, FG_RT_BF16};

typedef struct Shape {
    uint64_t batch, seq_q, seq_k, heads, kv_heads, dim, causal, window;
    double scale;
} Shape;

static const Shape SHAPES[] = {{1, 1, 1, 1, 1, 1, 1, 0, 0},
                               {2, 9, 9, 4, 2, 6, 1, 0, 0},
                               {1, 7, 7, 3, 1, 5, 0, 0, 0.7},
                               {1, 150, 150, 2, 1, 4, 1, 0, 0},
                               {1, 140, 140, 1, 1, 3, 0, 0, 0},
                               {1, 300, 300, 1, 1, 2, 1, 8, 0},
                               {1, 5, 150, 2, 2, 4, 1, 0, 0},
                               {1, 9, 5, 1, 1, 4, 1, 0, 0}, /* the first queries see nothing */
                               {1, 140, 270, 2, 1, 4, 1, 130, 0}};

static bool sees(const Shape *s, uint64_t i, uint64_t j)
{
    int64_t place = (int64_t)i + (int64_t)s->seq_k - (int64_t)s->seq_q, key = (int64_t)j;
    return (!s->causal || key <= place) && (!s->window || place - key < (int64_t)s->window);
}

static uint64_t q_row(const Shape *s, uint64_t b, uint64_t i, uint64_t h)
{
    return ((b * s->seq_q + i) * s->heads + h) * s->dim;
}

static uint64_t k_row(const Shape *s, uint64_t b, uint64_t j, uint64_t h)
{
    return ((b * s->seq_k + j) * s->kv_heads + h / (s->heads / s->kv_heads)) * s->dim;
}

static double dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

typedef struct Case {
    Array q, k, v, o, lse, d, dq, dk, dv;
} Case;

/* Probabilities of one query; returns the log-sum-exp. */
static double probabilities(const Shape *s, const Case *c, uint64_t b, uint64_t h, uint64_t i,
                            double *p)
{
    double scale = s->scale == 0 ? 1 / sqrt((double)s->dim) : s->scale, sum = 0, most = -INFINITY;
    for (uint64_t j = 0; j < s->seq_k; j++) {
        p[j] = sees(s, i, j)
                   ? scale * dot(c->q.v + q_row(s, b, i, h), c->k.v + k_row(s, b, j, h), s->dim)
                   : -INFINITY;
        most = p[j] > most ? p[j] : most;
    }
    for (uint64_t j = 0; j < s->seq_k; j++)
        sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
    for (uint64_t j = 0; j < s->seq_k && sum > 0; j++)
        p[j] /= sum;
    return most + log(sum);
}

static void forward(const Shape *s, Case *c, double *p)
{
    for (uint64_t b = 0; b < s->batch; b++)
        for (uint64_t h = 0; h < s->heads; h++)
            for (uint64_t i = 0; i < s->seq_q; i++) {
                c->lse.v[(b * s->heads + h) * s->seq_q + i] = probabilities(s, c, b, h, i, p);
                for (uint64_t j = 0; j < s->seq_k; j++)
                    for (uint64_t l = 0; l < s->dim; l++)
                        c->o.v[q_row(s, b, i, h) + l] += p[j] * c->v.v[k_row(s, b, j, h) + l];
            }
}

/* delta takes the rounded o, as the runtime does. */
static void backward(const Shape *s, Case *c, const double *o, double *p)
{
    double scale = s->scale == 0 ? 1 / sqrt((double)s->dim) : s->scale;
    for (uint64_t b = 0; b < s->batch; b++)
        for (uint64_t h = 0; h < s->heads; h++)
            for (uint64_t i = 0; i < s->seq_q; i++) {
                uint64_t q = q_row(s, b, i, h);
                probabilities(s, c, b, h, i, p);
                double delta = dot(o + q, c->d.v + q, s->dim);
                for (uint64_t j = 0; j < s->seq_k; j++) {
                    uint64_t k = k_row(s, b, j, h);
                    double ds = scale * p[j] * (dot(c->d.v + q, c->v.v + k, s->dim) - delta);
                    for (uint64_t l = 0; l < s->dim; l++) {
                        c->dv.v[k + l] += p[j] * c->d.v[q + l];
                        c->dq.v[q + l] += ds * c->k.v[k + l];
                        c->dk.v[k + l] += ds * c->q.v[q + l];
                    }
                }
            }
}

static void check_lse(Rig *rig, const Array *lse, int *failures)
{
    for (uint64_t i = 0; i < lse->n; i++)
        if (lse->v[i] == -INFINITY)
            CHECK(rig_get(rig, lse, i) == -INFINITY);
        else
            CHECK_NEAR(rig_get(rig, lse, i), lse->v[i], 1e-5);
}

static void attention_case(uint64_t dt, const Shape *s, int *failures)
{
    Rig rig = rig_open(1 << 20);
    uint64_t n_q = s->batch * s->seq_q * s->heads * s->dim,
             n_k = s->batch * s->seq_k * s->kv_heads * s->dim;
    Case c = {.q = rig_values(&rig, dt, n_q, 2),
              .k = rig_values(&rig, dt, n_k, 2),
              .v = rig_values(&rig, dt, n_k, 1)};
    c.o = rig_result(&rig, dt, n_q);
    c.lse = rig_result(&rig, FG_RT_F32, s->batch * s->heads * s->seq_q);
    c.d = rig_values(&rig, dt, n_q, 1);
    c.dq = rig_result(&rig, dt, n_q);
    c.dk = rig_result(&rig, dt, n_k);
    c.dv = rig_result(&rig, dt, n_k);
    Array p = rig_result(&rig, FG_RT_F64, s->seq_k), o = rig_result(&rig, FG_RT_F64, n_q);
    forward(s, &c, p.v);
    rig_begin(&rig);
    fg_rt_attention(rig.cx, 0, FG_COMPUTE, c.q.at, c.k.at, c.v.at, c.o.at, c.lse.at, s->batch,
                    s->seq_q, s->seq_k, s->heads, s->kv_heads, s->dim, s->causal, s->window, dt,
                    rig.ws, RIG_WORKSPACE, s->scale);
    rig_check(&rig, &c.o, RIG_TOLERANCE, "attention", failures);
    check_lse(&rig, &c.lse, failures);
    for (uint64_t i = 0; i < n_q; i++)
        o.v[i] = rig_get(&rig, &c.o, i);
    backward(s, &c, o.v, p.v);
    fg_rt_attention_back(rig.cx, 0, FG_COMPUTE, c.q.at, c.k.at, c.v.at, c.o.at, c.lse.at, c.d.at,
                         c.dq.at, c.dk.at, c.dv.at, s->batch, s->seq_q, s->seq_k, s->heads,
                         s->kv_heads, s->dim, s->causal, s->window, dt, rig.ws, RIG_WORKSPACE,
                         s->scale);
    rig_check(&rig, &c.dq, RIG_TOLERANCE, "attention dq", failures);
    rig_check(&rig, &c.dk, RIG_TOLERANCE, "attention dk", failures);
    rig_check(&rig, &c.dv, RIG_TOLERANCE, "attention dv", failures);
    rig_close(&rig);
}

static void attention(int *failures)
{
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
            attention_case(DTYPES[d], &SHAPES[i], failures);
}

/* ---- rope ---- */

enum { SEQ = 40, HALF = 5 };

static double reference_frequency(uint64_t i, double factor)
{
    double f = pow(500.0, -(double)i / (double)HALF), wave = 2 * acos(-1.0) / f;
    if (factor == 0 || wave < 32.0 / 4)
        return f;
    if (wave > 32.0 / 1)
        return f / factor;
    double s = (32 / wave - 1) / (4 - 1);
    return (1 - s) * f / factor + s * f;
}

static void rope_table_case(double factor, int *failures)
{
    Rig rig = rig_open(1 << 16);
    Array table = rig_result(&rig, FG_RT_F32, 2 * SEQ * HALF);
    for (uint64_t t = 0; t < SEQ; t++)
        for (uint64_t i = 0; i < HALF; i++) {
            double angle = (double)t * reference_frequency(i, factor);
            table.v[t * HALF + i] = cos(angle);
            table.v[(SEQ + t) * HALF + i] = sin(angle);
        }
    rig_begin(&rig);
    fg_rt_rope_table(rig.cx, 0, FG_COMPUTE, table.at, SEQ, HALF, 500.0, factor, 1, 4, 32);
    rig_check(&rig, &table, 1e-12, "rope_table", failures);
    rig_close(&rig);
}

static void rope_table(int *failures)
{
    rope_table_case(0, failures);
    rope_table_case(8, failures);
}

static void rope_case(uint64_t dt, bool inverse, bool in_place, uint64_t rest, int *failures)
{
    enum { BATCH = 2, LENGTH = 6, HEADS = 3 };
    Rig rig = rig_open(1 << 16);
    uint64_t dim = 2 * HALF + rest, n = BATCH * LENGTH * HEADS * dim;
    Array x = rig_values(&rig, dt, n, 1), table = rig_values(&rig, FG_RT_F32, 2 * LENGTH * HALF, 1);
    Array y = rig_result(&rig, dt, n);
    for (uint64_t row = 0; row < n / dim; row++) {
        uint64_t t = row / HEADS % LENGTH;
        memcpy(y.v + row * dim, x.v + row * dim, dim * sizeof *y.v);
        for (uint64_t i = 0; i < HALF; i++) {
            double a = x.v[row * dim + i], b = x.v[row * dim + HALF + i];
            double c = table.v[t * HALF + i],
                   s = table.v[(LENGTH + t) * HALF + i] * (inverse ? -1 : 1);
            y.v[row * dim + i] = a * c - b * s;
            y.v[row * dim + HALF + i] = b * c + a * s;
        }
    }
    if (in_place)
        y.at = x.at;
    rig_begin(&rig);
    fg_rt_rope(rig.cx, 0, FG_COMPUTE, x.at, table.at, y.at, BATCH, LENGTH, HEADS, dim, HALF,
               inverse, dt);
    rig_check(&rig, &y, 1e-6, "rope", failures);
    rig_close(&rig);
}

static void rope(int *failures)
{
    for (int i = 0; i < 16; i++)
        rope_case(DTYPES[i & 1], i & 2, i & 4, i & 8 ? 3 : 0, failures);
}

UNIT_MAIN({"attention", attention}, {"rope_table", rope_table}, {"rope", rope})
