/* Sums over rows, column by column.
 *
 * Two steps over a scratch that is taken at start-up: blocks sum tiles (some columns, a group of
 * rows) into rows of partial sums, then the partial sums are added in the groups' order. Group
 * sizes depend on the shape and the device alone. The gradient of a gain needs each row's mean and
 * scale first: a step of its own writes them, for as many rows at a time as the scratch holds. */
#include "runtime/cuda/kernels/columns.cuh"
#include "runtime/cuda/kernels/segments.cuh"

enum { LANES = 32, LINES = 8 }; /* threads of a block: along columns, along rows */

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
__global__ void finish_kernel(const float *partial, W *to, uint64_t groups, uint64_t cols,
                              bool accumulate)
{
    __shared__ float tile[LINES][LANES];
    uint64_t col = (uint64_t)blockIdx.x * LANES + threadIdx.x;
    float sum = 0;
    if (col < cols)
#pragma unroll 4
        for (uint64_t group = threadIdx.y; group < groups; group += LINES)
            sum += partial[group * cols + col];
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols)
        return;
    float total = 0;
    for (int line = 0; line < LINES; line++)
        total += tile[line][threadIdx.x];
    fg_put(to + col, accumulate ? fg_get(to + col) + total : total);
}

typedef struct Groups {
    uint64_t n, rows_each;
} Groups;

/* Enough groups to fill the device, none below 16 rows, and no more partial sums than `floats`. */
static Groups group_rows(const FgRtCx *cx, uint64_t rows, uint64_t cols, uint64_t tiles,
                         uint64_t floats)
{
    uint64_t n = fg_ceil((uint64_t)cx->n_sm * 8, tiles), most = fg_ceil(rows, 16);
    n = n < most ? n : most;
    n = n < floats / cols ? n : floats / cols;
    n = n < 65535 ? n : 65535;
    n = n ? n : 1;
    uint64_t each = rows ? fg_ceil(rows, n) : 1;
    return (Groups){fg_ceil(rows, each), each};
}

void fg_cuda_columns(FgRtCx *cx, cudaStream_t stream, const void *dy, const FgStatsSource *source,
                     void *to, uint64_t rows, uint64_t cols, uint64_t dt, uint64_t wire,
                     uint64_t accumulate)
{
    FgCudaScratch scratch = fg_cuda_scratch(cx, stream);
    if (!scratch.partial || cols == 0)
        return;
    if (cols > scratch.partial_floats) {
        fg_cuda_raise(cx, "sums of %" PRIu64 " columns: at most %" PRIu64, cols,
                      scratch.partial_floats);
        return;
    }
    uint64_t size = fg_dtype_bytes(dt), per = 16 / size;
    bool wide = cols % per == 0 && fg_aligned(dy) && (!source || fg_aligned(source->x));
    uint64_t tiles = fg_ceil(cols, (wide ? per : 1) * LANES);
    uint64_t chunk = source ? scratch.n_stats : rows;
    chunk = chunk < rows ? chunk : rows;
    Groups groups = group_rows(cx, chunk, cols, tiles, scratch.partial_floats);
    dim3 grid((unsigned)tiles, (unsigned)groups.n), block(LANES, LINES);
    if (rows == 0)
        fg_cuda_check(cx, cudaMemsetAsync(scratch.partial, 0, cols * sizeof(float), stream),
                      "cudaMemsetAsync");
    for (uint64_t first = 0; first < rows; first += chunk) {
        uint64_t n = rows - first < chunk ? rows - first : chunk;
        uint64_t skip = first * cols * size;
        const void *d = (const char *)dy + skip;
        const void *x = source ? (const char *)source->x + skip : NULL;
        if (source)
            fg_cuda_row_stats(cx, stream, source, first, n, cols, dt, scratch.stats);
        fg_with_float(cx, dt, [&](auto tag) {
            typedef decltype(tag) T;
            const int V = FgElement<T>::PER_16;
            auto *kernel = source
                               ? (wide ? partial_kernel<T, V, true> : partial_kernel<T, 1, true>)
                               : (wide ? partial_kernel<T, V, false> : partial_kernel<T, 1, false>);
            kernel<<<grid, block, 0, stream>>>((const T *)d, (const T *)x, scratch.stats,
                                               scratch.partial, n, cols, groups.rows_each,
                                               first > 0);
        });
    }
    fg_with_float(cx, wire, [&](auto tag) {
        typedef decltype(tag) W;
        finish_kernel<W><<<(unsigned)fg_ceil(cols, LANES), block, 0, stream>>>(
            scratch.partial, (W *)to, rows ? groups.n : 1, cols, accumulate != 0);
    });
    fg_launched(cx);
}

void fg_cuda_column_sum(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t dy, uint64_t db,
                        uint64_t m, uint64_t n, uint64_t dt, uint64_t wire, uint64_t accumulate)
{
    (void)node;
    fg_cuda_columns(cx, stream, fg_cuda_at(cx, dy), NULL, fg_cuda_at(cx, db), m, n, dt, wire,
                    accumulate);
}
