/* RMSNorm and LayerNorm, forward and backward.
 *
 * Both are y = z w + b with z = (x - mean) * scale, scale = 1 / sqrt(moment + eps) and mean 0 for
 * RMSNorm, so one set of kernels serves them. Forward, some warps hold a row in registers;
 * gradients of such rows are norm_rows.cu's. A row of another kind has a block, which reads it
 * again for each pass; it lies in the first cache by then. */
#include "runtime/cuda/kernels/columns.cuh"

/* Two pieces a thread are fastest, of one, two, four and eight, at 2048 and 4096 columns of bf16.
 */
enum { HELD_THREADS = 128, MOST_WARPS = 16, PACKS = 2, MOST_PACKS = 8 };

/* ---- rows in registers ---- */

/* A sum over the warps of a row; all threads of the block must come, and twice in turn with another
 * half of `part`. */
static __device__ __forceinline__ float row_sum(float value, unsigned warps, float *part)
{
    value = fg_warp_sum(value);
    if (warps == 1)
        return value;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0)
        part[warp] = value;
    __syncthreads();
    return fg_warp_sum(lane < warps ? part[warp / warps * warps + lane] : 0.0f);
}

typedef struct Held {
    const void *x, *w, *b;
    void *y;
    FgRowStats *stats; /* given: all that is made */
    uint64_t rows;
    unsigned packs, warps; /* of a row */
    float inverse_cols, eps;
} Held;

/* `warps` warps a row, P pieces of 16 bytes a thread. Loads stand in no branch. */
template <class T, bool CENTRED, int P> __global__ void held_kernel(const Held a)
{
    constexpr int V = FgElement<T>::PER_16;
    __shared__ float part[2][MOST_WARPS];
    unsigned lanes = a.warps * 32, lane = threadIdx.x % lanes;
    uint64_t row = (uint64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    bool there = row < a.rows;
    uint64_t first = (there ? row : a.rows - 1) * a.packs;
    uint4 q[P];
#pragma unroll
    for (int p = 0; p < P; p++) {
        unsigned pack = p * lanes + lane;
        q[p] = static_cast<const uint4 *>(a.x)[first + (pack < a.packs ? pack : 0)];
    }
    float mean = 0, squares = 0;
    if constexpr (CENTRED) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            float v[V], sum = 0;
            fg_unpack<T>(q[p], v);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum += v[j];
            mean += p * lanes + lane < a.packs ? sum : 0.0f;
        }
        mean = row_sum(mean, a.warps, part[0]) * a.inverse_cols;
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        float v[V], sum = 0;
        fg_unpack<T>(q[p], v);
#pragma unroll
        for (int j = 0; j < V; j++)
            sum += (v[j] - mean) * (v[j] - mean);
        squares += p * lanes + lane < a.packs ? sum : 0.0f;
    }
    float scale = 1.0f / sqrtf(row_sum(squares, a.warps, part[1]) * a.inverse_cols + a.eps);
    if (!there)
        return;
    if (a.stats) {
        if (lane == 0)
            a.stats[row] = make_float2(mean, scale);
        return;
    }
#pragma unroll
    for (int p = 0; p < P; p++) {
        unsigned pack = p * lanes + lane;
        if (pack >= a.packs)
            break;
        float v[V], gain[V];
        fg_unpack<T>(q[p], v);
        fg_unpack<T>(static_cast<const uint4 *>(a.w)[pack], gain);
#pragma unroll
        for (int j = 0; j < V; j++)
            v[j] = (v[j] - mean) * scale * gain[j];
        if (CENTRED && a.b) {
            fg_unpack<T>(static_cast<const uint4 *>(a.b)[pack], gain);
#pragma unroll
            for (int j = 0; j < V; j++)
                v[j] += gain[j];
        }
        fg_store<V>(static_cast<T *>(a.y) + (first + pack) * V, v);
    }
}

/* ---- rows of any length at any address ---- */

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

/* What warps can hold: rows of x, whose statistics are `stats`, or which become r->out. false:
 * nothing is done. */
static bool held(FgRtCx *cx, cudaStream_t stream, const Rows *r, FgRowStats *stats)
{
    uint64_t packs = r->cols * fg_dtype_bytes(r->dt) / 16, warps = 1;
    while (warps < MOST_WARPS && warps * 32 * PACKS < packs)
        warps *= 2;
    uint64_t each = fg_ceil(packs, warps * 32), threads = warps * 32;
    if (!is_wide(r) || each > MOST_PACKS)
        return false;
    threads = threads < HELD_THREADS ? (uint64_t)HELD_THREADS : threads;
    Held a = {r->x,
              r->w,
              r->b,
              r->out,
              stats,
              r->rows,
              (unsigned)packs,
              (unsigned)warps,
              1.0f / (float)r->cols,
              r->eps};
    unsigned blocks = (unsigned)fg_ceil(r->rows, threads / (warps * 32));
    fg_with_float(cx, r->dt, [&](auto tag) {
        typedef decltype(tag) T;
        auto *kernel =
            each > 4   ? (r->centred ? held_kernel<T, true, 8> : held_kernel<T, false, 8>)
            : each > 2 ? (r->centred ? held_kernel<T, true, 4> : held_kernel<T, false, 4>)
            : each > 1 ? (r->centred ? held_kernel<T, true, 2> : held_kernel<T, false, 2>)
                       : (r->centred ? held_kernel<T, true, 1> : held_kernel<T, false, 1>);
        kernel<<<blocks, (unsigned)threads, 0, stream>>>(a);
    });
    fg_launched(cx);
    return true;
}

static void forward(FgRtCx *cx, cudaStream_t stream, const Rows *r)
{
    if (!fg_rows_fit(cx, r->rows) || held(cx, stream, r, NULL))
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

static FgNormRows norm_rows(const Rows *r)
{
    FgNormRows n = {};
    n.x = r->x, n.w = r->w, n.dy = r->dy, n.plus = r->plus;
    n.dx = r->out;
    n.rows = r->rows, n.cols = r->cols, n.dt = r->dt;
    n.centred = r->centred, n.eps = r->eps;
    return n;
}

static void backward(FgRtCx *cx, cudaStream_t stream, const Rows *r)
{
    if (!fg_rows_fit(cx, r->rows))
        return;
    FgNormRows n = norm_rows(r);
    if (fg_cuda_norm_rows_fit(&n)) {
        fg_cuda_norm_rows(cx, stream, &n);
        return;
    }
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
    Rows r = {};
    r.x = (const char *)source->x + first * cols * fg_dtype_bytes(dt);
    r.rows = rows, r.cols = cols, r.dt = dt;
    r.centred = source->centred, r.eps = source->eps;
    if (held(cx, stream, &r, stats))
        return;
    bool wide = is_wide(&r);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const int V = FgElement<T>::PER_16;
        auto *kernel = source->centred
                           ? (wide ? stats_kernel<T, V, true> : stats_kernel<T, 1, true>)
                           : (wide ? stats_kernel<T, V, false> : stats_kernel<T, 1, false>);
        unsigned threads = fg_row_threads(wide ? cols / V : cols, 4, 512);
        kernel<<<(unsigned)rows, threads, 0, stream>>>((const T *)r.x, stats, cols,
                                                       1.0f / (float)cols, r.eps);
    });
    fg_launched(cx);
}

/* Both gradients: at once where rows fit, one after the other elsewhere. */
static void backward_both(FgRtCx *cx, cudaStream_t stream, const Rows *r, void *dw, uint64_t wire,
                          uint64_t accumulate)
{
    FgNormRows n = norm_rows(r);
    if (fg_cuda_norm_back(cx, stream, &n, dw, wire, accumulate))
        return;
    backward(cx, stream, r);
    FgStatsSource source = {r->x, r->centred, r->eps};
    fg_cuda_columns(cx, stream, r->dy, &source, dw, r->rows, r->cols, r->dt, wire, accumulate);
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

void fg_cuda_rmsnorm_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                          uint64_t dy, uint64_t plus, uint64_t dx, uint64_t dw, uint64_t rows,
                          uint64_t cols, uint64_t dt, uint64_t wire, uint64_t accumulate,
                          double eps)
{
    (void)node;
    Rows r = rows_at(cx, x, w, dx, rows, cols, dt, false, eps);
    r.dy = fg_cuda_at(cx, dy);
    r.plus = fg_cuda_at(cx, plus);
    backward_both(cx, stream, &r, fg_cuda_at(cx, dw), wire, accumulate);
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

void fg_cuda_layernorm_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                            uint64_t dy, uint64_t plus, uint64_t dx, uint64_t dw, uint64_t rows,
                            uint64_t cols, uint64_t dt, uint64_t wire, uint64_t accumulate,
                            double eps)
{
    (void)node;
    Rows r = rows_at(cx, x, w, dx, rows, cols, dt, true, eps);
    r.dy = fg_cuda_at(cx, dy);
    r.plus = fg_cuda_at(cx, plus);
    backward_both(cx, stream, &r, fg_cuda_at(cx, dw), wire, accumulate);
}
