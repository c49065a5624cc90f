/* Cross-entropy over rows of logits, its gradient, and the step's loss.
 *
 * Forward: a block a row finds the log-sum-exp in one pass; then one block adds the rows' losses in
 * f64 in a fixed order. Backward: some blocks a row, in place where the gradient takes the logits'
 * memory. Rows whose label is `ignore` count nowhere; a label out of range is reported and counts
 * like that. */
#include "runtime/cuda/kernels/labels.cuh"
#include "runtime/cuda/kernels/softmax.cuh"

enum { SUM_THREADS = 1024, BACK_THREADS = 256 };

template <class T>
__global__ void __launch_bounds__(FG_ROW_THREADS, FG_ROW_BLOCKS)
    lse_kernel(const T *logits, float *lse, uint64_t cols, bool wide)
{
    FgRowSoftmax row = fg_row_softmax(logits + blockIdx.x * cols, cols, wide);
    if (threadIdx.x == 0)
        lse[blockIdx.x] = row.most + logf(row.sum);
}

template <class T>
__global__ void __launch_bounds__(SUM_THREADS)
    loss_kernel(const T *logits, const int32_t *labels, const float *seed, float *loss,
                const float *lse, uint64_t rows, uint64_t cols, int64_t ignore, int *device_error,
                uint32_t node)
{
    double sum = 0;
#pragma unroll 4
    for (uint64_t row = threadIdx.x; row < rows; row += SUM_THREADS) {
        int32_t label = labels[row];
        if (label_counts(label, ignore, cols, device_error, node))
            sum += (double)lse[row] - (double)fg_get(logits + row * cols + (uint64_t)label);
    }
    sum = fg_block_sum(sum);
    if (threadIdx.x == 0)
        *loss = (float)((seed ? (double)*seed : 1.0) * sum);
}

void fg_cuda_cross_entropy(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t logits,
                           uint64_t labels, uint64_t seed, uint64_t loss, uint64_t lse,
                           uint64_t rows, uint64_t cols, uint64_t ignore, uint64_t dt)
{
    if (rows > 0 && !fg_rows_fit(cx, rows))
        return;
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *x = (const T *)fg_cuda_at(cx, logits);
        float *row_lse = (float *)fg_cuda_at(cx, lse);
        unsigned threads = fg_row_threads(cols / FgElement<T>::PER_16, 4, FG_ROW_THREADS);
        if (rows > 0)
            lse_kernel<T><<<(unsigned)rows, threads, fg_row_softmax_bytes(threads), stream>>>(
                x, row_lse, cols, fg_aligned(x));
        loss_kernel<T><<<1, SUM_THREADS, 0, stream>>>(
            x, (const int32_t *)fg_cuda_at(cx, labels), (const float *)fg_cuda_at(cx, seed),
            (float *)fg_cuda_at(cx, loss), row_lse, rows, cols, (int64_t)ignore, cx->device_error,
            node);
    });
    fg_launched(cx);
}

template <class T>
__global__ void __launch_bounds__(BACK_THREADS)
    back_kernel(const T *logits, const int32_t *labels, const float *lse, const float *seed,
                const float *dloss, T *dlogits, uint64_t cols, uint32_t parts, int64_t ignore,
                bool wide, int *device_error, uint32_t node)
{
    uint32_t row = blockIdx.x / parts;
    FgPart part = {blockIdx.x - row * parts, parts};
    const T *x = logits + row * cols;
    T *dx = dlogits + row * cols;
    int32_t label = labels[row];
    if (!label_counts(label, ignore, cols, device_error, node)) {
        fg_each_zero(dx, 0, cols, wide, part);
        return;
    }
    float factor = (seed ? *seed : 1.0f) * (dloss ? *dloss : 1.0f);
    FgLossSlope<T> slope = {(uint64_t)label, lse[row], factor};
    fg_each_to(x, dx, cols, wide, part, slope);
}

void fg_cuda_cross_entropy_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t logits,
                                uint64_t labels, uint64_t lse, uint64_t seed, uint64_t dloss,
                                uint64_t dlogits, uint64_t rows, uint64_t cols, uint64_t ignore,
                                uint64_t dt)
{
    if (!fg_rows_fit(cx, rows))
        return;
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *x = (const T *)fg_cuda_at(cx, logits);
        T *dx = (T *)fg_cuda_at(cx, dlogits);
        uint64_t packs = cols / FgElement<T>::PER_16;
        unsigned threads = fg_row_threads(packs, FG_EACH_BATCH, BACK_THREADS);
        uint32_t parts = fg_row_parts(rows, packs, threads);
        back_kernel<T><<<(unsigned)rows * parts, threads, 0, stream>>>(
            x, (const int32_t *)fg_cuda_at(cx, labels), (const float *)fg_cuda_at(cx, lse),
            (const float *)fg_cuda_at(cx, seed), (const float *)fg_cuda_at(cx, dloss), dx, cols,
            parts, (int64_t)ignore, fg_aligned(x) && fg_aligned(dx), cx->device_error, node);
    });
    fg_launched(cx);
}

__global__ void loss_add_kernel(const float *loss, double *acc, bool accumulate)
{
    *acc = (accumulate ? *acc : 0.0) + (double)*loss;
}

void fg_cuda_loss_add(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t loss, uint64_t acc,
                      uint64_t accumulate)
{
    (void)node;
    loss_add_kernel<<<1, 1, 0, stream>>>((const float *)fg_cuda_at(cx, loss),
                                         (double *)fg_cuda_at(cx, acc), accumulate != 0);
    fg_launched(cx);
}
