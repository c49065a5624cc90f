/* Sums over rows, column by column.
 *
 * Two steps over a scratch that is taken at start-up: blocks sum a group of rows each into rows of
 * partial sums, then the partial sums are added in the groups' order. Group sizes depend on the
 * shape and the device alone. The gradient of a gain needs each row's mean and scale first. Where a
 * block can hold whole rows it finds them on the way (norm_rows.cu); otherwise a step of its own
 * writes them, for as many rows at a time as the scratch holds. */
#include "runtime/cuda/kernels/columns.cuh"
#include "runtime/cuda/kernels/norm_rows.cuh"
#include "runtime/cuda/kernels/segments.cuh"

enum { LANES = 32, LINES = 8 }; /* threads of a block: along columns, along rows */
enum { FINISH_LINES = 32 };     /* so that few blocks have all partial sums under way at once */

template <class T, int V, bool STATS>
__global__ void __launch_bounds__(LANES *LINES)
    partial_kernel(const T *dy, const T *x, const FgRowStats *stats, float *partial, uint64_t rows,
                   uint64_t cols, uint64_t per_group, bool add)
{
    __shared__ float tile[LINES][LANES * V + 1];
    uint64_t col = ((uint64_t)blockIdx.x * LANES + threadIdx.x) * V;
    uint64_t begin = blockIdx.y * per_group, end = begin + per_group;
    end = end < rows ? end : rows;
    float sum[V] = {};
    if (col < cols) {
#pragma unroll 4
        for (uint64_t row = begin + threadIdx.y; row < end; row += LINES) {
            float d[V];
            fg_load<V>(dy + row * cols + col, d);
            if constexpr (STATS) {
                float z[V];
                fg_load<V>(x + row * cols + col, z);
                FgRowStats s = stats[row];
#pragma unroll
                for (int i = 0; i < V; i++)
                    sum[i] += d[i] * ((z[i] - s.x) * s.y);
            } else {
#pragma unroll
                for (int i = 0; i < V; i++)
                    sum[i] += d[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        tile[threadIdx.y][i * LANES + threadIdx.x] = sum[i];
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols)
        return;
    float *to = partial + blockIdx.y * cols + col;
#pragma unroll
    for (int i = 0; i < V; i++) {
        float total = add ? to[i] : 0.0f;
#pragma unroll
        for (int line = 0; line < LINES; line++)
            total += tile[line][i * LANES + threadIdx.x];
        to[i] = total;
    }
}

template <class W>
__global__ void __launch_bounds__(LANES *FINISH_LINES)
    finish_kernel(const float *partial, W *to, uint64_t groups, uint64_t cols, bool accumulate)
{
    __shared__ float tile[FINISH_LINES][LANES];
    uint64_t col = (uint64_t)blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
    if (col < cols)
#pragma unroll 8
        for (uint64_t group = threadIdx.y; group < groups; group += FINISH_LINES)
            sum += partial[group * cols + col];
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols)
        return;
    float total = 0;
#pragma unroll
    for (int line = 0; line < FINISH_LINES; line++)
        total += tile[line][threadIdx.x];
    fg_put(to + col, accumulate ? fg_get(to + col) + total : total);
}

typedef struct Groups {
    uint64_t n, rows_each;
} Groups;

/* Enough groups to fill the device, none below `least` rows, and no more partial sums than
 * `floats`. */
static Groups group_rows(const FgRtCx *cx, uint64_t rows, uint64_t cols, uint64_t tiles,
                         uint64_t least, uint64_t floats)
{
    uint64_t n = fg_ceil((uint64_t)cx->n_sm * 8, tiles), most = fg_ceil(rows, least);
    n = n < most ? n : most;
    n = n < floats / cols ? n : floats / cols;
    n = n < 65535 ? n : 65535;
    n = n ? n : 1;
    uint64_t each = rows ? fg_ceil(rows, n) : 1;
    return (Groups){fg_ceil(rows, each), each};
}

/* A call, read. */
typedef struct Columns {
    const void *dy;
    const FgStatsSource *source; /* NULL: plain sums */
    uint64_t rows, cols, dt;
    FgCudaScratch scratch;
    bool wide;
} Columns;

/* Tiles; statistics of rows first. Returns the number of groups. */
static uint64_t sum_tiles(FgRtCx *cx, cudaStream_t stream, const Columns *c)
{
    uint64_t size = fg_dtype_bytes(c->dt), chunk = c->source ? c->scratch.n_stats : c->rows;
    uint64_t tiles = fg_ceil(c->cols, (c->wide ? 16 / size : 1) * LANES);
    chunk = chunk < c->rows ? chunk : c->rows;
    Groups groups = group_rows(cx, chunk, c->cols, tiles, 16, c->scratch.partial_floats);
    dim3 grid((unsigned)tiles, (unsigned)groups.n), block(LANES, LINES);
    for (uint64_t first = 0; first < c->rows; first += chunk) {
        uint64_t n = c->rows - first < chunk ? c->rows - first : chunk;
        uint64_t skip = first * c->cols * size;
        const void *d = (const char *)c->dy + skip;
        const void *x = c->source ? (const char *)c->source->x + skip : NULL;
        if (c->source)
            fg_cuda_row_stats(cx, stream, c->source, first, n, c->cols, c->dt, c->scratch.stats);
        fg_with_float(cx, c->dt, [&](auto tag) {
            typedef decltype(tag) T;
            const int V = FgElement<T>::PER_16;
            auto *kernel =
                c->source ? (c->wide ? partial_kernel<T, V, true> : partial_kernel<T, 1, true>)
                          : (c->wide ? partial_kernel<T, V, false> : partial_kernel<T, 1, false>);
            kernel<<<grid, block, 0, stream>>>((const T *)d, (const T *)x, c->scratch.stats,
                                               c->scratch.partial, n, c->cols, groups.rows_each,
                                               first > 0);
        });
    }
    return groups.n;
}

/* to[cols] (+)= the partial sums of all groups. */
static void finish(FgRtCx *cx, cudaStream_t stream, const float *partial, uint64_t groups, void *to,
                   uint64_t cols, uint64_t wire, uint64_t accumulate)
{
    fg_with_float(cx, wire, [&](auto tag) {
        typedef decltype(tag) W;
        finish_kernel<W><<<(unsigned)fg_ceil(cols, LANES), dim3(LANES, FINISH_LINES), 0, stream>>>(
            partial, (W *)to, groups, cols, accumulate != 0);
    });
    fg_launched(cx);
}

bool fg_cuda_norm_back(FgRtCx *cx, cudaStream_t stream, const FgNormRows *rows, void *dw,
                       uint64_t wire, uint64_t accumulate)
{
    FgNormRows r = *rows;
    FgCudaScratch scratch = fg_cuda_scratch(cx, stream);
    r.partial = scratch.partial;
    r.floats = scratch.partial_floats;
    if (!scratch.partial || r.rows == 0 || !fg_cuda_norm_rows_fit(&r))
        return false;
    uint64_t groups = fg_cuda_norm_rows(cx, stream, &r);
    finish(cx, stream, r.partial, groups, dw, r.cols, wire, accumulate);
    return true;
}

void fg_cuda_columns(FgRtCx *cx, cudaStream_t stream, const void *dy, const FgStatsSource *source,
                     void *to, uint64_t rows, uint64_t cols, uint64_t dt, uint64_t wire,
                     uint64_t accumulate)
{
    Columns c = {dy, source, rows, cols, dt, fg_cuda_scratch(cx, stream), false};
    if (!c.scratch.partial || cols == 0)
        return;
    if (cols > c.scratch.partial_floats) {
        fg_cuda_raise(cx, "sums of %" PRIu64 " columns: at most %" PRIu64, cols,
                      c.scratch.partial_floats);
        return;
    }
    if (source) {
        FgNormRows r = {};
        r.x = source->x, r.dy = dy;
        r.rows = rows, r.cols = cols, r.dt = dt;
        r.centred = source->centred, r.eps = source->eps;
        if (fg_cuda_norm_back(cx, stream, &r, to, wire, accumulate))
            return;
    }
    uint64_t groups = 1;
    c.wide = cols % (16 / fg_dtype_bytes(dt)) == 0 && fg_aligned(dy) &&
             (!source || fg_aligned(source->x));
    if (rows == 0)
        fg_cuda_check(cx, cudaMemsetAsync(c.scratch.partial, 0, cols * sizeof(float), stream),
                      "cudaMemsetAsync");
    else
        groups = sum_tiles(cx, stream, &c);
    finish(cx, stream, c.scratch.partial, groups, to, cols, wire, accumulate);
}

void fg_cuda_column_sum(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t dy, uint64_t db,
                        uint64_t m, uint64_t n, uint64_t dt, uint64_t wire, uint64_t accumulate)
{
    (void)node;
    fg_cuda_columns(cx, stream, fg_cuda_at(cx, dy), NULL, fg_cuda_at(cx, db), m, n, dt, wire,
                    accumulate);
}
