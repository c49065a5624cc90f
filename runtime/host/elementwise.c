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

static void unary_chunk(FgRtUnary kind, float a, const float *x, float *y, uint64_t n)
{
    switch (kind) {
    case FG_RT_NEG:
        EACH(fg_chain_neg(x[i]));
    case FG_RT_EXP:
        EACH(fg_chain_exp(x[i]));
    case FG_RT_LOG:
        EACH(fg_chain_log(x[i]));
    case FG_RT_SQRT:
        EACH(fg_chain_sqrt(x[i]));
    case FG_RT_RSQRT:
        EACH(fg_chain_rsqrt(x[i]));
    case FG_RT_TANH:
        EACH(fg_chain_tanh(x[i]));
    case FG_RT_SIGMOID:
        EACH(fg_chain_sigmoid(x[i]));
    case FG_RT_RELU:
        EACH(fg_chain_relu(x[i]));
    case FG_RT_SILU:
        EACH(fg_chain_silu(x[i]));
    case FG_RT_GELU:
        EACH(fg_chain_gelu(x[i]));
    case FG_RT_GELU_TANH:
        EACH(fg_chain_gelu_tanh(x[i]));
    case FG_RT_SCALE:
        EACH(fg_chain_scale(x[i], a));
    case FG_RT_ADD_SCALAR:
        EACH(fg_chain_add_scalar(x[i], a));
    case FG_RT_POW:
        EACH(fg_chain_pow(x[i], a));
    }
}

static void slope_chunk(FgRtUnary kind, float a, const float *x, const float *d, float *y,
                        uint64_t n)
{
    switch (kind) {
    case FG_RT_NEG:
        EACH(fg_chain_neg_back(x[i], d[i]));
    case FG_RT_EXP:
        EACH(fg_chain_exp_back(x[i], d[i]));
    case FG_RT_LOG:
        EACH(fg_chain_log_back(x[i], d[i]));
    case FG_RT_SQRT:
        EACH(fg_chain_sqrt_back(x[i], d[i]));
    case FG_RT_RSQRT:
        EACH(fg_chain_rsqrt_back(x[i], d[i]));
    case FG_RT_TANH:
        EACH(fg_chain_tanh_back(x[i], d[i]));
    case FG_RT_SIGMOID:
        EACH(fg_chain_sigmoid_back(x[i], d[i]));
    case FG_RT_RELU:
        EACH(fg_chain_relu_back(x[i], d[i]));
    case FG_RT_SILU:
        EACH(fg_chain_silu_back(x[i], d[i]));
    case FG_RT_GELU:
        EACH(fg_chain_gelu_back(x[i], d[i]));
    case FG_RT_GELU_TANH:
        EACH(fg_chain_gelu_tanh_back(x[i], d[i]));
    case FG_RT_SCALE:
        EACH(fg_chain_scale(d[i], a));
    case FG_RT_ADD_SCALAR:
        EACH(d[i]);
    case FG_RT_POW:
        EACH(fg_chain_pow_back(x[i], d[i], a));
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
