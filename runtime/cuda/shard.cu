/* What a reduction leaves in the wire's dtype, added to or widened into the shard. Bound by memory:
 * eight elements a thread and turn. */
#include "runtime/cuda/shard.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

enum { EACH = 8, THREADS = 256 };

__device__ inline float wide(float x)
{
    return x;
}
__device__ inline float wide(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ inline float wide(__half x)
{
    return __half2float(x);
}
__device__ inline void put(float *to, float x)
{
    *to = x;
}
__device__ inline void put(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}
__device__ inline void put(__half *to, float x)
{
    *to = __float2half_rn(x);
}

template <class T> struct alignas(EACH * sizeof(T)) Pack {
    T x[EACH];
};

template <class From, class To>
__global__ void __launch_bounds__(THREADS)
    add(const From *sum, To *shard, uint64_t n, bool accumulate)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS * EACH;
    for (uint64_t at = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * EACH; at < n; at += step) {
        if (at + EACH <= n) {
            Pack<From> from = *reinterpret_cast<const Pack<From> *>(sum + at);
            Pack<To> to = {};
            if (accumulate)
                to = *reinterpret_cast<const Pack<To> *>(shard + at);
            for (int i = 0; i < EACH; i++)
                put(&to.x[i], accumulate ? wide(to.x[i]) + wide(from.x[i]) : wide(from.x[i]));
            *reinterpret_cast<Pack<To> *>(shard + at) = to;
        } else {
            for (uint64_t i = at; i < n; i++)
                put(&shard[i], accumulate ? wide(shard[i]) + wide(sum[i]) : wide(sum[i]));
        }
    }
}

/* The same where the slice does not begin at a pack's border. */
template <class From, class To>
__global__ void __launch_bounds__(THREADS)
    add_unaligned(const From *sum, To *shard, uint64_t n, bool accumulate)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
        put(&shard[i], accumulate ? wide(shard[i]) + wide(sum[i]) : wide(sum[i]));
}

template <class T> bool packs(const T *p)
{
    return reinterpret_cast<uintptr_t>(p) % (EACH * sizeof(T)) == 0;
}

template <class From, class To>
void launch(FgRtCx *cx, cudaStream_t stream, const void *sum, void *shard, uint64_t n,
            bool accumulate)
{
    const From *from = static_cast<const From *>(sum);
    To *to = static_cast<To *>(shard);
    bool packed = packs(from) && packs(to);
    uint64_t items = packed ? (n + EACH - 1) / EACH : n, want = (items + THREADS - 1) / THREADS;
    uint64_t most = (uint64_t)cx->n_sm * 16;
    unsigned blocks = (unsigned)(want < most ? want : most);
    if (n == 0)
        return;
    if (packed)
        add<From, To><<<blocks, THREADS, 0, stream>>>(from, to, n, accumulate);
    else
        add_unaligned<From, To><<<blocks, THREADS, 0, stream>>>(from, to, n, accumulate);
    fg_cuda_check(cx, cudaGetLastError(), "kernel launch");
}

template <class From>
void to_dtype(FgRtCx *cx, cudaStream_t stream, const void *sum, void *shard, uint64_t dt,
              uint64_t n, bool accumulate)
{
    if (dt == FG_RT_F32)
        launch<From, float>(cx, stream, sum, shard, n, accumulate);
    else if (dt == FG_RT_BF16)
        launch<From, __nv_bfloat16>(cx, stream, sum, shard, n, accumulate);
    else
        launch<From, __half>(cx, stream, sum, shard, n, accumulate);
}

} // namespace

extern "C" void fg_cuda_shard_add(FgRtCx *cx, cudaStream_t stream, const void *sum, uint64_t wire,
                                  void *shard, uint64_t dt, uint64_t n, uint64_t accumulate)
{
    if (wire == FG_RT_F32)
        to_dtype<float>(cx, stream, sum, shard, dt, n, accumulate != 0);
    else if (wire == FG_RT_BF16)
        to_dtype<__nv_bfloat16>(cx, stream, sum, shard, dt, n, accumulate != 0);
    else
        to_dtype<__half>(cx, stream, sum, shard, dt, n, accumulate != 0);
}
