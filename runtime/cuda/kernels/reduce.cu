/* Sums over dimensions, and softmax with its gradient.
 *
 * Sums add in f64. Two kernels serve all layouts: a warp an element of the result, where x is dense
 * along a dropped dimension, and a thread an element otherwise, neighbours side by side. Where the
 * result has too few elements to fill the device, the dropped dimensions are split into shares, and
 * the shares' sums are added in order. */
#include "runtime/cuda/kernels/layout.cuh"
#include "runtime/cuda/kernels/segments.cuh"
#include "runtime/cuda/kernels/softmax.cuh"

enum { THREADS = 256, LANES = 32, LINES = 8 };

typedef struct Sum {
    FgWalk kept, dropped;             /* operand 0 is x; kept: operand 1 is y */
    uint64_t n, count, splits, share; /* results; summands of each, cut into shares */
    float scale;
    double *partial; /* [splits][n]; unused when splits is 1 */
} Sum;

template <class T> static __device__ void sum_store(const Sum &sum, T *y, uint64_t i, double total)
{
    uint64_t from, to;
    fg_walk_at<1, uint64_t>(sum.kept, i, &from, &to);
    fg_put(y + to, sum.scale * (float)total);
}

template <class T>
__global__ void __launch_bounds__(THREADS) sum_warps_kernel(const T *x, T *y, Sum sum)
{
    unsigned lane = threadIdx.x % 32;
    uint64_t all = (uint64_t)gridDim.x * (THREADS / 32);
    for (uint64_t i = (uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
         i < sum.n * sum.splits; i += all) {
        uint64_t result = i % sum.n, split = i / sum.n, from, unused, at;
        uint64_t end = (split + 1) * sum.share;
        end = end < sum.count ? end : sum.count;
        fg_walk_at<1, uint64_t>(sum.kept, result, &from, &unused);
        double total = 0;
        for (uint64_t j = split * sum.share + lane; j < end; j += 32) {
            fg_walk_at<1, uint64_t>(sum.dropped, j, &at, &unused);
            total += (double)fg_get(x + from + at);
        }
        total = fg_warp_sum(total);
        if (lane != 0)
            continue;
        if (sum.splits == 1)
            sum_store(sum, y, result, total);
        else
            sum.partial[split * sum.n + result] = total;
    }
}

template <class T>
__global__ void __launch_bounds__(LANES *LINES) sum_lines_kernel(const T *x, T *y, Sum sum)
{
    __shared__ double tile[LINES][LANES];
    uint64_t result = (uint64_t)blockIdx.x * LANES + threadIdx.x, split = blockIdx.y;
    uint64_t end = (split + 1) * sum.share, from, at, unused;
    end = end < sum.count ? end : sum.count;
    double total = 0;
    if (result < sum.n) {
        fg_walk_at<1, uint64_t>(sum.kept, result, &from, &unused);
        for (uint64_t j = split * sum.share + threadIdx.y; j < end; j += LINES) {
            fg_walk_at<1, uint64_t>(sum.dropped, j, &at, &unused);
            total += (double)fg_get(x + from + at);
        }
    }
    tile[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0 || result >= sum.n)
        return;
    total = 0;
    for (int line = 0; line < LINES; line++)
        total += tile[line][threadIdx.x];
    if (sum.splits == 1)
        sum_store(sum, y, result, total);
    else
        sum.partial[split * sum.n + result] = total;
}

/* A warp adds the shares of one result. */
template <class T> __global__ void __launch_bounds__(THREADS) sum_shares_kernel(T *y, Sum sum)
{
    unsigned lane = threadIdx.x % 32;
    uint64_t i = (uint64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (i >= sum.n)
        return;
    double total = 0;
    for (uint64_t split = lane; split < sum.splits; split += 32)
        total += sum.partial[split * sum.n + i];
    total = fg_warp_sum(total);
    if (lane == 0)
        sum_store(sum, y, i, total);
}

static void append(FgWalk *walk, const FgWalk *from, uint32_t dim)
{
    walk->dims[walk->rank] = from->dims[dim];
    walk->strides[0][walk->rank] = from->strides[0][dim];
    walk->strides[1][walk->rank] = from->strides[1][dim];
    walk->rank++;
}

/* Splits the layout's dimensions into those that y keeps and the others. */
static Sum sum_read(const FgWalk *walk, uint64_t n, float scale)
{
    Sum sum = {};
    sum.n = n;
    sum.count = sum.splits = 1;
    sum.scale = scale;
    for (uint32_t i = 0; i < walk->rank; i++) {
        bool dropped = walk->strides[1][i] == 0;
        append(dropped ? &sum.dropped : &sum.kept, walk, i);
        if (dropped)
            sum.count *= walk->dims[i];
    }
    sum.kept.rank += sum.kept.rank == 0; /* a dimension of zero strides */
    sum.dropped.rank += sum.dropped.rank == 0;
    return sum;
}

/* Shares for `jobs` blocks or warps to become `want`, none below `least` summands. */
static void sum_split(FgRtCx *cx, cudaStream_t stream, Sum *sum, uint64_t jobs, uint64_t want,
                      uint64_t least)
{
    uint64_t splits = fg_ceil(want, jobs), most = sum->count / least;
    splits = splits < most ? splits : most;
    if (splits > 1) {
        FgCudaScratch scratch = fg_cuda_scratch(cx, stream);
        uint64_t fit = scratch.partial_floats / 2 / sum->n;
        splits = splits < fit ? splits : fit;
        splits = splits < 65535 ? splits : 65535;
        sum->partial = (double *)scratch.partial;
    }
    splits = splits ? splits : 1;
    sum->share = fg_ceil(sum->count, splits);
    sum->splits = sum->count ? fg_ceil(sum->count, sum->share) : 1;
}

void fg_cuda_reduce_sum(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                        uint64_t n_x, uint64_t n, uint64_t layout, uint64_t dt, double scale)
{
    (void)node;
    (void)n_x; /* the effects need it */
    FgWalk walk;
    if (n == 0 || !fg_walk_read(cx, layout, 2, &walk))
        return;
    Sum sum = sum_read(&walk, n, (float)scale);
    uint32_t last = walk.rank - 1;
    bool by_warps = walk.strides[1][last] == 0 && walk.strides[0][last] <= 1;
    uint64_t tiles = fg_ceil(n, LANES);
    if (by_warps)
        sum_split(cx, stream, &sum, n, (uint64_t)cx->n_sm * 32, 1024);
    else
        sum_split(cx, stream, &sum, tiles, (uint64_t)cx->n_sm * 8, 64);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *from = (const T *)fg_cuda_at(cx, x);
        T *to = (T *)fg_cuda_at(cx, y);
        if (by_warps)
            sum_warps_kernel<T>
                <<<fg_blocks(cx, sum.n * sum.splits, THREADS / 32, 32), THREADS, 0, stream>>>(
                    from, to, sum);
        else
            sum_lines_kernel<T>
                <<<dim3((unsigned)tiles, (unsigned)sum.splits), dim3(LANES, LINES), 0, stream>>>(
                    from, to, sum);
        if (sum.splits > 1)
            sum_shares_kernel<T>
                <<<(unsigned)fg_ceil(n, THREADS / 32), THREADS, 0, stream>>>(to, sum);
    });
    fg_launched(cx);
}

/* ---- softmax ---- */

template <class T> __global__ void softmax_kernel(const T *x, T *y, uint64_t cols, bool wide)
{
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    FgRowSoftmax row = fg_row_softmax(x, cols, wide);
    __syncthreads(); /* y may be x */
    float scale = 1.0f / row.sum;
    fg_each_to(x, y, cols, wide, FgPart{0, 1}, [&](uint64_t, auto &v) {
        for (float &value : v)
            value = fg_soft_exp<T>(value - row.most) * scale;
    });
}

/* dx = y (dy - sum(y dy)) */
template <class T>
__global__ void softmax_back_kernel(const T *y, const T *dy, T *dx, uint64_t cols, bool wide)
{
    const int V = FgElement<T>::PER_16;
    y += blockIdx.x * cols;
    dy += blockIdx.x * cols;
    dx += blockIdx.x * cols;
    float dot = 0;
    fg_each(
        y, cols, wide, [&](uint64_t i) { dot += fg_get(y + i) * fg_get(dy + i); },
        [&](uint64_t i) {
            float p[V], d[V];
            fg_load<V>(y + i, p);
            fg_load<V>(dy + i, d);
#pragma unroll
            for (int j = 0; j < V; j++)
                dot += p[j] * d[j];
        });
    dot = fg_block_sum(dot);
    fg_each(
        y, cols, wide, [&](uint64_t i) { fg_put(dx + i, fg_get(y + i) * (fg_get(dy + i) - dot)); },
        [&](uint64_t i) {
            float p[V], d[V];
            fg_load<V>(y + i, p);
            fg_load<V>(dy + i, d);
#pragma unroll
            for (int j = 0; j < V; j++)
                p[j] *= d[j] - dot;
            fg_store<V>(dx + i, p);
        });
}

void fg_cuda_softmax(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                     uint64_t rows, uint64_t cols, uint64_t dt)
{
    (void)node;
    if (!fg_rows_fit(cx, rows))
        return;
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *from = (const T *)fg_cuda_at(cx, x);
        T *to = (T *)fg_cuda_at(cx, y);
        unsigned threads = fg_row_threads(cols / FgElement<T>::PER_16, 2, 1024);
        softmax_kernel<T><<<(unsigned)rows, threads, fg_row_softmax_bytes(threads), stream>>>(
            from, to, cols, fg_aligned(from) && fg_aligned(to));
    });
    fg_launched(cx);
}

void fg_cuda_softmax_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t y, uint64_t dy,
                          uint64_t dx, uint64_t rows, uint64_t cols, uint64_t dt)
{
    (void)node;
    if (!fg_rows_fit(cx, rows))
        return;
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *prob = (const T *)fg_cuda_at(cx, y), *grad = (const T *)fg_cuda_at(cx, dy);
        T *to = (T *)fg_cuda_at(cx, dx);
        unsigned threads = fg_row_threads(cols / FgElement<T>::PER_16, 2, 1024);
        softmax_back_kernel<T><<<(unsigned)rows, threads, 0, stream>>>(
            prob, grad, to, cols, fg_aligned(prob) && fg_aligned(grad) && fg_aligned(to));
    });
    fg_launched(cx);
}
