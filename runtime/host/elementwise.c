/* Calls that treat every element alike: unary functions and their derivatives, binary ones with
 * broadcasting, casts, fills, copies. The result may be the operand's memory: a chunk is read
 * before it is written. */
#include <inttypes.h>
#include <math.h>

#include "runtime/host/arith.h"
#include "runtime/host/kernels.h"
#include "runtime/host/layout.h"

#define EACH(expression)                                                                           \
    for (uint64_t i = 0; i < n; i++)                                                               \
        y[i] = (expression);                                                                       \
    break

/* Phi, the normal distribution, and its density. */
static float normal_cdf(float x)
{
    return 0.5f * erfcf(-x * 0.70710678f);
}

static float normal_density(float x)
{
    return 0.39894228f * fg_exp(-0.5f * x * x);
}

/* gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) */
static float gelu_inner(float x)
{
    return 2 * 0.79788456f * (x + 0.044715f * x * x * x);
}

static float gelu_inner_slope(float x)
{
    return 2 * 0.79788456f * (1 + 3 * 0.044715f * x * x);
}

static void unary_chunk(FgRtUnary kind, float a, const float *x, float *y, uint64_t n)
{
    switch (kind) {
    case FG_RT_NEG:
        EACH(-x[i]);
    case FG_RT_EXP:
        EACH(fg_exp(x[i]));
    case FG_RT_LOG:
        EACH(logf(x[i]));
    case FG_RT_SQRT:
        EACH(sqrtf(x[i]));
    case FG_RT_RSQRT:
        EACH(1.0f / sqrtf(x[i]));
    case FG_RT_TANH:
        EACH(tanhf(x[i]));
    case FG_RT_SIGMOID:
        EACH(fg_sigmoid(x[i]));
    case FG_RT_RELU:
        EACH(x[i] < 0 ? 0 : x[i]);
    case FG_RT_SILU:
        EACH(x[i] * fg_sigmoid(x[i]));
    case FG_RT_GELU:
        EACH(x[i] * normal_cdf(x[i]));
    case FG_RT_GELU_TANH:
        EACH(x[i] * fg_sigmoid(gelu_inner(x[i])));
    case FG_RT_SCALE:
        EACH(a * x[i]);
    case FG_RT_ADD_SCALAR:
        EACH(x[i] + a);
    case FG_RT_POW:
        EACH(powf(x[i], a));
    }
}

static float gelu_tanh_slope(float x)
{
    float s = fg_sigmoid(gelu_inner(x));
    return s + x * s * (1 - s) * gelu_inner_slope(x);
}

static float silu_slope(float x)
{
    float s = fg_sigmoid(x);
    return s * (1 + x * (1 - s));
}

static float sigmoid_slope(float x)
{
    float s = fg_sigmoid(x);
    return s * (1 - s);
}

static float tanh_slope(float x)
{
    float t = tanhf(x);
    return 1 - t * t;
}

static void slope_chunk(FgRtUnary kind, float a, const float *x, const float *d, float *y,
                        uint64_t n)
{
    switch (kind) {
    case FG_RT_NEG:
        EACH(-d[i]);
    case FG_RT_EXP:
        EACH(d[i] * fg_exp(x[i]));
    case FG_RT_LOG:
        EACH(d[i] / x[i]);
    case FG_RT_SQRT:
        EACH(0.5f * d[i] / sqrtf(x[i]));
    case FG_RT_RSQRT:
        EACH(-0.5f * d[i] / (x[i] * sqrtf(x[i])));
    case FG_RT_TANH:
        EACH(d[i] * tanh_slope(x[i]));
    case FG_RT_SIGMOID:
        EACH(d[i] * sigmoid_slope(x[i]));
    case FG_RT_RELU:
        EACH(x[i] > 0 ? d[i] : 0);
    case FG_RT_SILU:
        EACH(d[i] * silu_slope(x[i]));
    case FG_RT_GELU:
        EACH(d[i] * (normal_cdf(x[i]) + x[i] * normal_density(x[i])));
    case FG_RT_GELU_TANH:
        EACH(d[i] * gelu_tanh_slope(x[i]));
    case FG_RT_SCALE:
        EACH(a * d[i]);
    case FG_RT_ADD_SCALAR:
        EACH(d[i]);
    case FG_RT_POW:
        EACH(d[i] * a * powf(x[i], a - 1));
    }
}

static void binary_chunk(FgRtBinary kind, const float *a, const float *b, float *y, uint64_t n)
{
    switch (kind) {
    case FG_RT_ADD:
        EACH(a[i] + b[i]);
    case FG_RT_SUB:
        EACH(a[i] - b[i]);
    case FG_RT_MUL:
        EACH(a[i] * b[i]);
    case FG_RT_DIV:
        EACH(a[i] / b[i]);
    }
}

void fg_host_unary(FgRtCx *cx, uint64_t kind, uint64_t x, uint64_t y, uint64_t n, uint64_t dt,
                   double a)
{
    float sx[FG_CHUNK], sy[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        float *out = fg_dest(fg_at(cx, y), dt, at, sy);
        unary_chunk((FgRtUnary)kind, (float)a, fg_load(fg_at(cx, x), dt, at, count, sx), out,
                    count);
        fg_store(fg_at(cx, y), dt, at, count, out);
    }
}

void fg_host_unary_back(FgRtCx *cx, uint64_t kind, uint64_t x, uint64_t dy, uint64_t dx, uint64_t n,
                        uint64_t dt, double a)
{
    float sx[FG_CHUNK], sd[FG_CHUNK], so[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        float *out = fg_dest(fg_at(cx, dx), dt, at, so);
        slope_chunk((FgRtUnary)kind, (float)a, fg_load(fg_at(cx, x), dt, at, count, sx),
                    fg_load(fg_at(cx, dy), dt, at, count, sd), out, count);
        fg_store(fg_at(cx, dx), dt, at, count, out);
    }
}

/* ---- gated activations ---- */

void fg_host_gated(FgRtCx *cx, uint64_t kind, uint64_t gate, uint64_t up, uint64_t y, uint64_t n,
                   uint64_t dt)
{
    float sg[FG_CHUNK], su[FG_CHUNK], sy[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        const float *u = fg_load(fg_at(cx, up), dt, at, count, su);
        unary_chunk((FgRtUnary)kind, 0, fg_load(fg_at(cx, gate), dt, at, count, sg), sy, count);
        for (uint64_t i = 0; i < count; i++)
            sy[i] *= u[i];
        fg_store(fg_at(cx, y), dt, at, count, sy);
    }
}

void fg_host_gated_back(FgRtCx *cx, uint64_t kind, uint64_t gate, uint64_t up, uint64_t dy,
                        uint64_t dgate, uint64_t dup, uint64_t n, uint64_t dt)
{
    float sg[FG_CHUNK], su[FG_CHUNK], sd[FG_CHUNK], open[FG_CHUNK], slope[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        const float *g = fg_load(fg_at(cx, gate), dt, at, count, sg);
        const float *u = fg_load(fg_at(cx, up), dt, at, count, su);
        const float *d = fg_load(fg_at(cx, dy), dt, at, count, sd);
        unary_chunk((FgRtUnary)kind, 0, g, open, count);
        slope_chunk((FgRtUnary)kind, 0, g, d, slope, count);
        for (uint64_t i = 0; i < count; i++) {
            slope[i] *= u[i];
            open[i] *= d[i];
        }
        fg_store(fg_at(cx, dgate), dt, at, count, slope);
        fg_store(fg_at(cx, dup), dt, at, count, open);
    }
}

/* ---- binary ---- */

typedef struct Binary {
    FgRtBinary kind;
    uint64_t dt;
    const void *a, *b;
    void *y;
} Binary;

/* One line of the result: operands step by sa and sb elements. */
static void binary_line(const Binary *op, uint64_t a, uint64_t sa, uint64_t b, uint64_t sb,
                        uint64_t y, uint64_t n)
{
    float ta[FG_CHUNK], tb[FG_CHUNK], ty[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        const float *fa = fg_load_strided(op->a, op->dt, a + at * sa, sa, count, ta);
        const float *fb = fg_load_strided(op->b, op->dt, b + at * sb, sb, count, tb);
        float *out = fg_dest(op->y, op->dt, y + at, ty);
        binary_chunk(op->kind, fa, fb, out, count);
        fg_store(op->y, op->dt, y + at, count, out);
    }
}

static void binary_dims(const Binary *op, const FgLayout *layout, uint64_t dim, uint64_t a,
                        uint64_t b, uint64_t *y)
{
    uint64_t n = fg_layout_dim(layout, dim);
    uint64_t sa = fg_layout_stride(layout, 0, dim), sb = fg_layout_stride(layout, 1, dim);
    if (dim + 1 == layout->rank) {
        binary_line(op, a, sa, b, sb, *y, n);
        *y += n;
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        binary_dims(op, layout, dim + 1, a + i * sa, b + i * sb, y);
}

void fg_host_binary(FgRtCx *cx, uint64_t kind, uint64_t a, uint64_t b, uint64_t y, uint64_t n_a,
                    uint64_t n_b, uint64_t n, uint64_t layout, uint64_t dt)
{
    (void)n_a; /* the effects need them */
    (void)n_b;
    Binary op = {(FgRtBinary)kind, dt, fg_at(cx, a), fg_at(cx, b), fg_at(cx, y)};
    FgLayout strides;
    if (layout == FG_RT_NONE) {
        binary_line(&op, 0, 1, 0, 1, 0, n);
    } else if (fg_layout_read(cx, layout, 2, &strides)) {
        uint64_t at = 0;
        if (strides.rank == 0)
            binary_line(&op, 0, 1, 0, 1, 0, 1);
        else
            binary_dims(&op, &strides, 0, 0, 0, &at);
    }
}

/* ---- storage ---- */

/* To the nearest f32, but to odd when inexact: what a second rounding to fewer bits needs to come
 * out right. */
static float round_to_odd(double value)
{
    float near = (float)value;
    if ((double)near == value || isnan(value) || isinf(near))
        return near;
    uint32_t bits = fg_bits(near);
    if (bits & 1u)
        return near;
    bool away = fabs((double)near) > fabs(value);
    return fg_from_bits(away ? bits - 1 : bits + 1);
}

static double load_double(const void *base, uint64_t dt, uint64_t index)
{
    switch (dt) {
    case FG_RT_F64:
        return ((const double *)base)[index];
    case FG_RT_I32:
        return ((const int32_t *)base)[index];
    case FG_RT_I64:
        return (double)((const int64_t *)base)[index];
    default:
        return (double)fg_load_one(base, dt, index);
    }
}

static void store_double(void *base, uint64_t dt, uint64_t index, double value)
{
    switch (dt) {
    case FG_RT_F64:
        ((double *)base)[index] = value;
        break;
    case FG_RT_I32:
        ((int32_t *)base)[index] = (int32_t)value;
        break;
    case FG_RT_I64:
        ((int64_t *)base)[index] = (int64_t)value;
        break;
    case FG_RT_F32:
        ((float *)base)[index] = (float)value;
        break;
    default:
        fg_store_one(base, dt, index, round_to_odd(value));
        break;
    }
}

static bool is_float32_or_less(uint64_t dt)
{
    return dt == FG_RT_F32 || dt == FG_RT_BF16 || dt == FG_RT_F16;
}

void fg_host_cast(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t n, uint64_t from, uint64_t to)
{
    const void *in = fg_at(cx, x);
    void *out = fg_at(cx, y);
    if (!is_float32_or_less(from) || !is_float32_or_less(to)) {
        for (uint64_t i = 0; i < n; i++)
            store_double(out, to, i, load_double(in, from, i));
        return;
    }
    float scratch[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        fg_store(out, to, at, count, fg_load(in, from, at, count, scratch));
    }
}

void fg_host_fill(FgRtCx *cx, uint64_t y, uint64_t n, uint64_t dt, double value)
{
    void *out = fg_at(cx, y);
    for (uint64_t i = 0; i < n; i++)
        store_double(out, dt, i, value);
}

void fg_host_grad_write(FgRtCx *cx, uint64_t x, uint64_t dw, uint64_t n, uint64_t dt, uint64_t wire,
                        uint64_t accumulate)
{
    float scratch[FG_CHUNK];
    for (uint64_t at = 0; at < n; at += FG_CHUNK) {
        uint64_t count = fg_min(FG_CHUNK, n - at);
        fg_store_sum(fg_at(cx, dw), wire, at, count, fg_load(fg_at(cx, x), dt, at, count, scratch),
                     accumulate != 0);
    }
}
