/* Calls that treat every element alike: binary functions with broadcasting, casts, fills. */
#include "runtime/cuda/kernels/layout.cuh"
#include "runtime/cuda/kernels/map.cuh"

enum { THREADS = 256 };

/* ---- binary ---- */

template <FgRtBinary KIND> struct Binary {
    __device__ float operator()(float a, float b, float) const
    {
        switch (KIND) {
        case FG_RT_ADD:
            return a + b;
        case FG_RT_SUB:
            return a - b;
        case FG_RT_MUL:
            return a * b;
        case FG_RT_DIV:
            return a / b;
        }
        return a;
    }
};

template <class F> static void with_binary(FgRtCx *cx, uint64_t kind, F f)
{
    switch (kind) {
    case FG_RT_ADD:
        f(Binary<FG_RT_ADD>());
        break;
    case FG_RT_SUB:
        f(Binary<FG_RT_SUB>());
        break;
    case FG_RT_MUL:
        f(Binary<FG_RT_MUL>());
        break;
    case FG_RT_DIV:
        f(Binary<FG_RT_DIV>());
        break;
    default:
        fg_cuda_raise(cx, "binary function %" PRIu64 " does not exist", kind);
        break;
    }
}

/* V elements of an operand along the innermost dimension, whose stride there is 1 or 0. */
template <int V, class T>
static __device__ void load_operand(const T *from, uint64_t stride, float (&out)[V])
{
    if (V == 1 || stride != 0) {
        fg_load<V>(from, out);
        return;
    }
    float value = fg_get(from);
#pragma unroll
    for (int j = 0; j < V; j++)
        out[j] = value;
}

template <int V, class Index, class F, class T>
__global__ void __launch_bounds__(THREADS)
    broadcast_kernel(F f, const T *a, const T *b, T *y, FgWalk walk, uint64_t packs)
{
    uint64_t all = (uint64_t)gridDim.x * THREADS, last = walk.rank - 1;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < packs; i += all) {
        uint64_t at_a, at_b;
        fg_walk_at<V, Index>(walk, i, &at_a, &at_b);
        float va[V], vb[V], out[V];
        load_operand<V>(a + at_a, walk.strides[0][last], va);
        load_operand<V>(b + at_b, walk.strides[1][last], vb);
#pragma unroll
        for (int j = 0; j < V; j++)
            out[j] = f(va[j], vb[j], 0.0f);
        fg_store<V>(y + i * V, out);
    }
}

template <class T, class F>
static void broadcast(FgRtCx *cx, cudaStream_t stream, F f, const T *a, const T *b, T *y,
                      const FgWalk *walk, uint64_t n)
{
    const int V = FgElement<T>::PER_16;
    bool wide = fg_walk_is_wide(walk, 2, V) && fg_aligned(a) && fg_aligned(b) && fg_aligned(y);
    uint64_t packs = wide ? n / V : n;
    unsigned blocks = fg_blocks(cx, packs, THREADS, 32);
    bool small = n <= UINT32_MAX;
    auto *kernel =
        wide ? (small ? broadcast_kernel<V, uint32_t, F, T> : broadcast_kernel<V, uint64_t, F, T>)
             : (small ? broadcast_kernel<1, uint32_t, F, T> : broadcast_kernel<1, uint64_t, F, T>);
    kernel<<<blocks, THREADS, 0, stream>>>(f, a, b, y, *walk, packs);
    fg_launched(cx);
}

void fg_cuda_binary(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t kind, uint64_t a,
                    uint64_t b, uint64_t y, uint64_t n_a, uint64_t n_b, uint64_t n, uint64_t layout,
                    uint64_t dt)
{
    (void)node;
    (void)n_a; /* the effects need them */
    (void)n_b;
    FgWalk walk;
    if (n == 0 || (layout != FG_RT_NONE && !fg_walk_read(cx, layout, 2, &walk)))
        return;
    with_binary(cx, kind, [&](auto f) {
        fg_with_float(cx, dt, [&](auto tag) {
            typedef decltype(tag) T;
            if (layout == FG_RT_NONE)
                fg_map<2, false, T, T>(cx, stream, f, fg_cuda_at(cx, a), fg_cuda_at(cx, b),
                                       fg_cuda_at(cx, y), n);
            else
                broadcast<T>(cx, stream, f, (const T *)fg_cuda_at(cx, a),
                             (const T *)fg_cuda_at(cx, b), (T *)fg_cuda_at(cx, y), &walk, n);
        });
    });
}

/* ---- storage ---- */

struct Keep {
    __device__ float operator()(float x, float, float) const
    {
        return x;
    }
};

struct Accumulate {
    __device__ float operator()(float x, float, float old) const
    {
        return old + x;
    }
};

static __device__ double load_double(const void *base, uint64_t dt, uint64_t i)
{
    switch (dt) {
    case FG_RT_F64:
        return ((const double *)base)[i];
    case FG_RT_I32:
        return ((const int32_t *)base)[i];
    case FG_RT_I64:
        return (double)((const int64_t *)base)[i];
    case FG_RT_BF16:
        return fg_get((const FgBf16 *)base + i);
    case FG_RT_F16:
        return fg_get((const FgF16 *)base + i);
    default:
        return ((const float *)base)[i];
    }
}

/* To f32 by cutting, made odd when inexact: what a second rounding to fewer bits needs to come out
 * right. */
static __host__ __device__ float round_to_odd(double value)
{
    float cut = (float)value;
    if ((double)cut == value || value != value)
        return cut;
    union {
        float value;
        uint32_t bits;
    } u = {cut};
    if ((u.bits & 0x7fffffffu) == 0x7f800000u) /* rounded up to infinity: the largest is odd */
        return (u.bits -= 1, u.value);
    bool away = cut < 0 ? (double)cut < value : (double)cut > value;
    if (cut == 0)
        away = false;
    u.bits = (away ? u.bits - 1 : u.bits) | 1u;
    return u.value;
}

static __device__ void store_double(void *base, uint64_t dt, uint64_t i, double value)
{
    switch (dt) {
    case FG_RT_F64:
        ((double *)base)[i] = value;
        break;
    case FG_RT_I32:
        ((int32_t *)base)[i] = (int32_t)value;
        break;
    case FG_RT_I64:
        ((int64_t *)base)[i] = (int64_t)value;
        break;
    case FG_RT_F32:
        ((float *)base)[i] = (float)value;
        break;
    case FG_RT_BF16:
        fg_put((FgBf16 *)base + i, round_to_odd(value));
        break;
    default:
        fg_put((FgF16 *)base + i, round_to_odd(value));
        break;
    }
}

__global__ void cast_kernel(const void *x, void *y, uint64_t n, uint64_t from, uint64_t to)
{
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * THREADS)
        store_double(y, to, i, load_double(x, from, i));
}

static bool is_float32_or_less(uint64_t dt)
{
    return dt == FG_RT_F32 || dt == FG_RT_BF16 || dt == FG_RT_F16;
}

void fg_cuda_cast(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                  uint64_t n, uint64_t from, uint64_t to)
{
    (void)node;
    const void *in = fg_cuda_at(cx, x);
    void *out = fg_cuda_at(cx, y);
    if (n == 0)
        return;
    if (is_float32_or_less(from) && is_float32_or_less(to)) {
        fg_with_floats(cx, from, to, [&](auto a, auto b) {
            fg_map<1, false, decltype(a), decltype(b)>(cx, stream, Keep(), in, NULL, out, n);
        });
        return;
    }
    cast_kernel<<<fg_blocks(cx, n, THREADS, 16), THREADS, 0, stream>>>(in, out, n, from, to);
    fg_launched(cx);
}

void fg_cuda_grad_write(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t dw,
                        uint64_t n, uint64_t dt, uint64_t wire, uint64_t accumulate)
{
    (void)node;
    const void *in = fg_cuda_at(cx, x);
    void *out = fg_cuda_at(cx, dw);
    fg_with_floats(cx, dt, wire, [&](auto a, auto b) {
        if (accumulate)
            fg_map<1, true, decltype(a), decltype(b)>(cx, stream, Accumulate(), in, NULL, out, n);
        else
            fg_map<1, false, decltype(a), decltype(b)>(cx, stream, Keep(), in, NULL, out, n);
    });
}

/* `wide` times 16 bytes of the pattern, then the rest by elements. */
template <class Word>
__global__ void fill_kernel(Word *y, uint64_t n, Word value, uint4 pattern, uint64_t wide)
{
    uint64_t all = (uint64_t)gridDim.x * THREADS;
    uint64_t first = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    for (uint64_t i = first; i < wide; i += all)
        reinterpret_cast<uint4 *>(y)[i] = pattern;
    for (uint64_t i = wide * (16 / sizeof(Word)) + first; i < n; i += all)
        y[i] = value;
}

template <class Word>
static void fill(FgRtCx *cx, cudaStream_t stream, void *y, uint64_t n, const void *bits)
{
    const uint64_t per = 16 / sizeof(Word);
    Word value, words[16 / sizeof(Word)];
    uint4 pattern;
    memcpy(&value, bits, sizeof value);
    for (uint64_t i = 0; i < per; i++)
        words[i] = value;
    memcpy(&pattern, words, sizeof pattern);
    uint64_t wide = fg_aligned(y) ? n / per : 0;
    fill_kernel<Word><<<fg_blocks(cx, wide ? wide : n, THREADS, 16), THREADS, 0, stream>>>(
        (Word *)y, n, value, pattern, wide);
    fg_launched(cx);
}

void fg_cuda_fill(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t y, uint64_t n,
                  uint64_t dt, double value)
{
    (void)node;
    void *out = fg_cuda_at(cx, y);
    if (n == 0)
        return;
    float f32 = (float)value;
    FgBf16 bf16 = __float2bfloat16_rn(round_to_odd(value));
    FgF16 f16 = __float2half_rn(round_to_odd(value));
    int32_t i32 = (int32_t)value;
    int64_t i64 = (int64_t)value;
    switch (dt) {
    case FG_RT_F32:
        fill<uint32_t>(cx, stream, out, n, &f32);
        break;
    case FG_RT_BF16:
        fill<uint16_t>(cx, stream, out, n, &bf16);
        break;
    case FG_RT_F16:
        fill<uint16_t>(cx, stream, out, n, &f16);
        break;
    case FG_RT_F64:
        fill<uint64_t>(cx, stream, out, n, &value);
        break;
    case FG_RT_I32:
        fill<uint32_t>(cx, stream, out, n, &i32);
        break;
    case FG_RT_I64:
        fill<uint64_t>(cx, stream, out, n, &i64);
        break;
    default:
        fg_cuda_raise(cx, "dtype %" PRIu64 " does not exist", dt);
        break;
    }
}
