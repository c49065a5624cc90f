/* Maximum and sum of exponentials over a row, in one pass: log-sum-exp = most + log(sum); and the
 * gradient of a cross-entropy that follows from them.
 *
 * A thread has a few pieces of its row under way all the time, in places of its own in shared
 * memory: the registers of a full multiprocessor would not hold them beside the work. */
#ifndef FG_RUNTIME_CUDA_KERNELS_SOFTMAX_CUH
#define FG_RUNTIME_CUDA_KERNELS_SOFTMAX_CUH

#include "runtime/cuda/kernels/async.cuh"
#include "runtime/cuda/kernels/common.cuh"

typedef struct FgRowSoftmax {
    float most, sum;
} FgRowSoftmax;

/* Threads of a block for a long row, and copies that each has under way. */
enum { FG_ROW_STAGES = 2, FG_ROW_THREADS = 1024 };
/* Blocks of so many threads that a multiprocessor is to hold: all that one of sm_75 has is 1024. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { FG_ROW_BLOCKS = 1 };
#else
enum { FG_ROW_BLOCKS = 2 };
#endif

/* Bytes of dynamic shared memory of a block that calls fg_row_softmax. */
static inline size_t fg_row_softmax_bytes(unsigned threads)
{
    return FG_ROW_STAGES * sizeof(uint4) * threads;
}

/* A thread's maximum and sum so far: it rescales its sum when the maximum grows. */
template <class T> struct FgRunning {
    float most = -INFINITY, base = 0 /* the maximum, or 0 before there is one */, sum = 0;

    template <int N> __device__ void add(const float (&v)[N])
    {
        float top = v[0];
#pragma unroll
        for (int j = 1; j < N; j++)
            top = fmaxf(top, v[j]);
        if (top > most) {
            sum *= most == -INFINITY ? 0.0f : fg_added_exp<T>(most - top);
            most = base = top;
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            sum += fg_added_exp<T>(v[j] - base);
    }
};

/* Rows of nothing but -inf have sum 0. What fg_added_exp flushes is lost beside the exponential of
 * a thread's maximum, which is 1. */
template <class T>
__device__ inline FgRowSoftmax fg_row_softmax(const T *row, uint64_t cols, bool wide)
{
    const int V = FgElement<T>::PER_16;
    extern __shared__ uint4 stages[];
    uint4 *own = stages + threadIdx.x;
    const uint64_t head = fg_head(row, cols, wide), packs = (cols - head) / V;
    const uint4 *from = reinterpret_cast<const uint4 *>(row + head);
    auto ask = [&](unsigned stage, uint64_t i) {
        if (i < packs)
            fg_copy_async<16>(own + stage * blockDim.x, from + i);
        fg_copies_close();
    };
#pragma unroll
    for (int k = 0; k < FG_ROW_STAGES; k++)
        ask(k, threadIdx.x + k * blockDim.x);
    FgRunning<T> running;
    auto single = [&](uint64_t i) {
        float v[1] = {fg_get(row + i)};
        running.add(v);
    };
    for (uint64_t i = threadIdx.x; i < head; i += blockDim.x)
        single(i);
    unsigned stage = 0;
    for (uint64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        FgRaw<V, T> raw;
        float v[V];
        fg_copies_await<FG_ROW_STAGES - 1>();
        raw.words[0] = own[stage * blockDim.x];
        raw.split(v);
        ask(stage, i + FG_ROW_STAGES * blockDim.x); /* the place has been read */
        running.add(v);
        stage = stage + 1 == FG_ROW_STAGES ? 0 : stage + 1;
    }
    for (uint64_t i = head + packs * V + threadIdx.x; i < cols; i += blockDim.x)
        single(i);
    float most = running.most, sum = running.sum, top = fg_block_max(most);
    sum *= most == -INFINITY ? (sum == 0 ? 0.0f : 1.0f) : fg_added_exp<T>(most - top);
    return (FgRowSoftmax){top, fg_block_sum(sum)};
}

/* What a logit's gradient is, for fg_each_to: exp(value - lse) factor, and at the label, which is
 * `target` of the row or none of it, the same less the factor. */
template <class T> struct FgLossSlope {
    uint64_t target;
    float lse, factor;

    template <int N> __device__ void operator()(uint64_t i, float (&v)[N]) const
    {
        bool here = target - i < N;
        float own = 0;
        if (here) {
#pragma unroll
            for (int j = 0; j < N; j++)
                own = target - i == j ? v[j] : own;
            own = (expf(own - lse) - 1.0f) * factor;
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = fg_soft_exp<T>(v[j] - lse) * factor;
        if (here) {
#pragma unroll
            for (int j = 0; j < N; j++)
                v[j] = target - i == j ? own : v[j];
        }
    }
};

#endif
