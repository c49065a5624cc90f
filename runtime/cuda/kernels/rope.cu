/* Rotary position embedding: the table of angles and the rotation. */
#include "runtime/cuda/kernels/common.cuh"

enum { THREADS = 256 };

typedef struct Scaling {
    double theta, factor, low, high, original;
} Scaling;

static __device__ double frequency(uint64_t i, uint64_t half, const Scaling &s)
{
    double f = pow(s.theta, -(double)i / (double)half);
    if (s.factor <= 0)
        return f;
    double wavelength = 2 * 3.14159265358979323846 / f;
    if (wavelength < s.original / s.high)
        return f;
    if (wavelength > s.original / s.low)
        return f / s.factor;
    double smooth = (s.original / wavelength - s.low) / (s.high - s.low);
    return (1 - smooth) * f / s.factor + smooth * f;
}

__global__ void table_kernel(float *table, uint64_t seq, uint64_t half, Scaling scaling)
{
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < seq * half;
         at += (uint64_t)gridDim.x * THREADS) {
        double angle = (double)(at / half) * frequency(at % half, half, scaling), sine, cosine;
        sincos(angle, &sine, &cosine);
        table[at] = (float)cosine;
        table[seq * half + at] = (float)sine;
    }
}

void fg_cuda_rope_table(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t table,
                        uint64_t seq, uint64_t half, double theta, double factor, double low,
                        double high, double original)
{
    (void)node;
    Scaling scaling = {theta, factor, low, high, original};
    table_kernel<<<fg_blocks(cx, seq * half, THREADS, 8), THREADS, 0, stream>>>(
        (float *)fg_cuda_at(cx, table), seq, half, scaling);
    fg_launched(cx);
}

typedef struct Shape {
    uint32_t seq, heads, dim, half;
} Shape;

/* A block a position: its threads go over the heads' pairs. y may be x. */
template <class T, int V>
__global__ void rotate_kernel(const T *x, const float *table, T *y, Shape s, float sign)
{
    uint64_t position = blockIdx.x, first = position * s.heads * s.dim;
    uint64_t t = position % s.seq;
    const float *cosine = table + t * s.half, *sine = cosine + (uint64_t)s.seq * s.half;
    uint32_t per_head = s.half / V, rest = s.dim - 2 * s.half;
    for (uint32_t i = threadIdx.x; i < s.heads * per_head; i += blockDim.x) {
        uint32_t head = i / per_head, pair = (i - head * per_head) * V;
        uint64_t at = first + (uint64_t)head * s.dim + pair;
        float a[V], b[V], c[V], n[V], ra[V], rb[V];
        fg_load<V>(x + at, a);
        fg_load<V>(x + at + s.half, b);
        fg_load<V>(cosine + pair, c);
        fg_load<V>(sine + pair, n);
#pragma unroll
        for (int j = 0; j < V; j++) {
            ra[j] = a[j] * c[j] - b[j] * (sign * n[j]);
            rb[j] = b[j] * c[j] + a[j] * (sign * n[j]);
        }
        fg_store<V>(y + at, ra);
        fg_store<V>(y + at + s.half, rb);
    }
    if (x == y || rest == 0)
        return;
    for (uint32_t i = threadIdx.x; i < s.heads * rest; i += blockDim.x) {
        uint64_t at = first + (uint64_t)(i / rest) * s.dim + 2 * s.half + i % rest;
        y[at] = x[at];
    }
}

void fg_cuda_rope(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t table,
                  uint64_t y, uint64_t batch, uint64_t seq, uint64_t heads, uint64_t dim,
                  uint64_t half, uint64_t inverse, uint64_t dt)
{
    (void)node;
    if (!fg_rows_fit(cx, batch * seq))
        return;
    if (heads * dim > INT32_MAX) {
        fg_cuda_raise(cx, "%" PRIu64 " heads of %" PRIu64 " are too many", heads, dim);
        return;
    }
    Shape shape = {(uint32_t)seq, (uint32_t)heads, (uint32_t)dim, (uint32_t)half};
    const float *angles = (const float *)fg_cuda_at(cx, table);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const int V = FgElement<T>::PER_16;
        const T *from = (const T *)fg_cuda_at(cx, x);
        T *to = (T *)fg_cuda_at(cx, y);
        bool wide = half % V == 0 && dim % V == 0 && fg_aligned(from) && fg_aligned(to) &&
                    fg_aligned(angles);
        auto *kernel = wide ? rotate_kernel<T, V> : rotate_kernel<T, 1>;
        unsigned threads = fg_row_threads(heads * half / (wide ? V : 1), 1, 256);
        kernel<<<(unsigned)(batch * seq), threads, 0, stream>>>(from, angles, to, shape,
                                                                inverse ? -1.0f : 1.0f);
    });
    fg_launched(cx);
}
