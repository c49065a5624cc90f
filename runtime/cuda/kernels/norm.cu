/* RMSNorm and LayerNorm, forward and backward: one block a row.
 *
 * Both are y = z w + b with z = (x - mean) * scale, scale = 1 / sqrt(moment + eps) and mean 0 for
 * RMSNorm, so one set of kernels serves them. A row is read again for each pass over it; it lies in
 * the first cache by then. */
#include "runtime/cuda/kernels/columns.cuh"

template <class T, int V, bool CENTRED>
static __device__ FgRowStats row_stats(const T *x, uint64_t packs, float inverse_cols, float eps)
{
    float mean = 0, squares = 0;
    if constexpr (CENTRED) {
        float sum = 0;
#pragma unroll 4
        for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x) {
            float v[V];
            fg_load<V>(x + i * V, v);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum += v[j];
        }
        mean = fg_block_sum(sum) * inverse_cols;
    }
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        float v[V];
        fg_load<V>(x + i * V, v);
#pragma unroll
        for (int j = 0; j < V; j++)
            squares += (v[j] - mean) * (v[j] - mean);
    }
    float moment = fg_block_sum(squares) * inverse_cols;
    return make_float2(mean, 1.0f / sqrtf(moment + eps));
}

template <class T, int V, bool CENTRED>
__global__ void forward_kernel(const T *x, const T *w, const T *b, T *y, uint64_t cols,
                               float inverse_cols, float eps)
{
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    uint64_t packs = cols / V;
    FgRowStats s = row_stats<T, V, CENTRED>(x, packs, inverse_cols, eps);
#pragma unroll 2
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        float v[V], gain[V], out[V];
        fg_load<V>(x + i * V, v);
        fg_load<V>(w + i * V, gain);
#pragma unroll
        for (int j = 0; j < V; j++)
            out[j] = (v[j] - s.x) * s.y * gain[j];
        if (CENTRED && b) {
            float bias[V];
            fg_load<V>(b + i * V, bias);
#pragma unroll
            for (int j = 0; j < V; j++)
                out[j] += bias[j];
        }
        fg_store<V>(y + i * V, out);
    }
}

/* With g = dy w: dx = scale (g - mean(g) - z mean(g z)), without mean(g) for RMSNorm. `plus` (NULL:
 * none) is added; it may be dx. */
template <class T, int V, bool CENTRED>
__global__ void backward_kernel(const T *x, const T *w, const T *dy, const T *plus, T *dx,
                                uint64_t cols, float inverse_cols, float eps)
{
    x += blockIdx.x * cols;
    if (plus)
        plus += blockIdx.x * cols;
    dy += blockIdx.x * cols;
    dx += blockIdx.x * cols;
    uint64_t packs = cols / V;
    FgRowStats s = make_float2(0, 0);
    if constexpr (CENTRED)
        s = row_stats<T, V, true>(x, packs, inverse_cols, eps);
    float squares = 0, sum_g = 0, sum_gx = 0;
#pragma unroll 2
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        float v[V], gain[V], d[V];
        fg_load<V>(x + i * V, v);
        fg_load<V>(w + i * V, gain);
        fg_load<V>(dy + i * V, d);
#pragma unroll
        for (int j = 0; j < V; j++) {
            float g = d[j] * gain[j], c = v[j] - s.x;
            if constexpr (CENTRED)
                sum_g += g;
            else
                squares += c * c;
            sum_gx += g * c;
        }
    }
    sum_gx = fg_block_sum(sum_gx);
    if constexpr (CENTRED)
        sum_g = fg_block_sum(sum_g);
    else
        s.y = 1.0f / sqrtf(fg_block_sum(squares) * inverse_cols + eps);
    float mean_g = sum_g * inverse_cols, mean_gz = sum_gx * s.y * inverse_cols;
#pragma unroll 2
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        float v[V], gain[V], d[V], out[V];
        fg_load<V>(x + i * V, v);
        fg_load<V>(w + i * V, gain);
        fg_load<V>(dy + i * V, d);
#pragma unroll
        for (int j = 0; j < V; j++)
            out[j] = s.y * (d[j] * gain[j] - mean_g - (v[j] - s.x) * s.y * mean_gz);
        if (plus) {
            float more[V];
            fg_load<V>(plus + i * V, more);
#pragma unroll
            for (int j = 0; j < V; j++)
                out[j] += more[j];
        }
        fg_store<V>(dx + i * V, out);
    }
}

template <class T, int V, bool CENTRED>
__global__ void stats_kernel(const T *x, FgRowStats *stats, uint64_t cols, float inverse_cols,
                             float eps)
{
    FgRowStats s = row_stats<T, V, CENTRED>(x + blockIdx.x * cols, cols / V, inverse_cols, eps);
    if (threadIdx.x == 0)
        stats[blockIdx.x] = s;
}

typedef struct Rows {
    const void *x, *w, *b, *dy, *plus;
    void *out;
    uint64_t rows, cols, dt;
    bool centred;
    float eps;
} Rows;

static bool is_wide(const Rows *r)
{
    return r->cols % (16 / fg_dtype_bytes(r->dt)) == 0 && fg_aligned(r->x) && fg_aligned(r->w) &&
           fg_aligned(r->b) && fg_aligned(r->dy) && fg_aligned(r->plus) && fg_aligned(r->out);
}

static void forward(FgRtCx *cx, cudaStream_t stream, const Rows *r)
{
    if (!fg_rows_fit(cx, r->rows))
        return;
    bool wide = is_wide(r);
    fg_with_float(cx, r->dt, [&](auto tag) {
        typedef decltype(tag) T;
        const int V = FgElement<T>::PER_16;
        auto *kernel = r->centred
                           ? (wide ? forward_kernel<T, V, true> : forward_kernel<T, 1, true>)
                           : (wide ? forward_kernel<T, V, false> : forward_kernel<T, 1, false>);
        unsigned threads = fg_row_threads(wide ? r->cols / V : r->cols, 2, 512);
        kernel<<<(unsigned)r->rows, threads, 0, stream>>>((const T *)r->x, (const T *)r->w,
                                                          (const T *)r->b, (T *)r->out, r->cols,
                                                          1.0f / (float)r->cols, r->eps);
    });
    fg_launched(cx);
}

static void backward(FgRtCx *cx, cudaStream_t stream, const Rows *r)
{
    if (!fg_rows_fit(cx, r->rows))
        return;
    bool wide = is_wide(r);
    fg_with_float(cx, r->dt, [&](auto tag) {
        typedef decltype(tag) T;
        const int V = FgElement<T>::PER_16;
        auto *kernel = r->centred
                           ? (wide ? backward_kernel<T, V, true> : backward_kernel<T, 1, true>)
                           : (wide ? backward_kernel<T, V, false> : backward_kernel<T, 1, false>);
        unsigned threads = fg_row_threads(wide ? r->cols / V : r->cols, 2, 512);
        kernel<<<(unsigned)r->rows, threads, 0, stream>>>(
            (const T *)r->x, (const T *)r->w, (const T *)r->dy, (const T *)r->plus, (T *)r->out,
            r->cols, 1.0f / (float)r->cols, r->eps);
    });
    fg_launched(cx);
}

void fg_cuda_row_stats(FgRtCx *cx, cudaStream_t stream, const FgStatsSource *source, uint64_t first,
                       uint64_t rows, uint64_t cols, uint64_t dt, FgRowStats *stats)
{
    bool wide = cols % (16 / fg_dtype_bytes(dt)) == 0 && fg_aligned(source->x);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const int V = FgElement<T>::PER_16;
        auto *kernel = source->centred
                           ? (wide ? stats_kernel<T, V, true> : stats_kernel<T, 1, true>)
                           : (wide ? stats_kernel<T, V, false> : stats_kernel<T, 1, false>);
        unsigned threads = fg_row_threads(wide ? cols / V : cols, 4, 512);
        kernel<<<(unsigned)rows, threads, 0, stream>>>((const T *)source->x + first * cols, stats,
                                                       cols, 1.0f / (float)cols, source->eps);
    });
    fg_launched(cx);
}

static Rows rows_at(FgRtCx *cx, uint64_t x, uint64_t w, uint64_t out, uint64_t rows, uint64_t cols,
                    uint64_t dt, bool centred, double eps)
{
    Rows r = {};
    r.x = fg_cuda_at(cx, x);
    r.w = fg_cuda_at(cx, w);
    r.out = fg_cuda_at(cx, out);
    r.rows = rows;
    r.cols = cols;
    r.dt = dt;
    r.centred = centred;
    r.eps = (float)eps;
    return r;
}

void fg_cuda_rmsnorm(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                     uint64_t y, uint64_t rows, uint64_t cols, uint64_t dt, double eps)
{
    (void)node;
    Rows r = rows_at(cx, x, w, y, rows, cols, dt, false, eps);
    forward(cx, stream, &r);
}

void fg_cuda_rmsnorm_dx(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                        uint64_t dy, uint64_t plus, uint64_t dx, uint64_t rows, uint64_t cols,
                        uint64_t dt, double eps)
{
    (void)node;
    Rows r = rows_at(cx, x, w, dx, rows, cols, dt, false, eps);
    r.dy = fg_cuda_at(cx, dy);
    r.plus = fg_cuda_at(cx, plus);
    backward(cx, stream, &r);
}

void fg_cuda_rmsnorm_dw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t dy,
                        uint64_t dw, uint64_t rows, uint64_t cols, uint64_t dt, uint64_t wire,
                        uint64_t accumulate, double eps)
{
    (void)node;
    FgStatsSource source = {fg_cuda_at(cx, x), false, (float)eps};
    fg_cuda_columns(cx, stream, fg_cuda_at(cx, dy), &source, fg_cuda_at(cx, dw), rows, cols, dt,
                    wire, accumulate);
}

void fg_cuda_layernorm(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                       uint64_t b, uint64_t y, uint64_t rows, uint64_t cols, uint64_t dt,
                       double eps)
{
    (void)node;
    Rows r = rows_at(cx, x, w, y, rows, cols, dt, true, eps);
    r.b = fg_cuda_at(cx, b);
    forward(cx, stream, &r);
}

void fg_cuda_layernorm_dx(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                          uint64_t dy, uint64_t plus, uint64_t dx, uint64_t rows, uint64_t cols,
                          uint64_t dt, double eps)
{
    (void)node;
    Rows r = rows_at(cx, x, w, dx, rows, cols, dt, true, eps);
    r.dy = fg_cuda_at(cx, dy);
    r.plus = fg_cuda_at(cx, plus);
    backward(cx, stream, &r);
}

void fg_cuda_layernorm_dw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t dy,
                          uint64_t dw, uint64_t rows, uint64_t cols, uint64_t dt, uint64_t wire,
                          uint64_t accumulate, double eps)
{
    (void)node;
    FgStatsSource source = {fg_cuda_at(cx, x), true, (float)eps};
    fg_cuda_columns(cx, stream, fg_cuda_at(cx, dy), &source, fg_cuda_at(cx, dw), rows, cols, dt,
                    wire, accumulate);
}
