/* Maximum and sum of exponentials over a row, in one pass: log-sum-exp = most + log(sum). */
#ifndef FG_RUNTIME_CUDA_KERNELS_SOFTMAX_CUH
#define FG_RUNTIME_CUDA_KERNELS_SOFTMAX_CUH

#include "runtime/cuda/kernels/common.cuh"

typedef struct FgRowSoftmax {
    float most, sum;
} FgRowSoftmax;

/* Each thread keeps a maximum of its own and rescales its sum when that grows. Rows of nothing but
 * -inf have sum 0. */
template <class T>
__device__ inline FgRowSoftmax fg_row_softmax(const T *row, uint64_t cols, bool wide)
{
    const int V = FgElement<T>::PER_16;
    float most = -INFINITY, sum = 0;
    auto rebase = [&](float value) {
        if (value > most) {
            sum *= most == -INFINITY ? 0.0f : fg_soft_exp<T>(most - value);
            most = value;
        }
    };
    fg_each(
        row, cols, wide,
        [&](uint64_t i) {
            float value = fg_get(row + i);
            rebase(value);
            sum += fg_soft_exp<T>(value - (most == -INFINITY ? 0.0f : most));
        },
        [&](uint64_t i) {
            float v[V];
            fg_load<V>(row + i, v);
            float top = v[0];
#pragma unroll
            for (int j = 1; j < V; j++)
                top = fmaxf(top, v[j]);
            rebase(top);
            float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
            for (int j = 0; j < V; j++)
                sum += fg_soft_exp<T>(v[j] - base);
        });
    float top = fg_block_max(most);
    sum *= most == -INFINITY ? (sum == 0 ? 0.0f : 1.0f) : fg_soft_exp<T>(most - top);
    return (FgRowSoftmax){top, fg_block_sum(sum)};
}

#endif
