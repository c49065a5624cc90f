/* Data that looks like a model's, and arithmetic outside the matrix units. */
#include "runtime/probe/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

enum { THREADS = 256, CHAINS = 8, TURNS = 4096 };

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

__device__ inline uint32_t scramble(uint64_t i)
{
    i *= 0x9e3779b97f4a7c15ull;
    i ^= i >> 29;
    i *= 0xbf58476d1ce4e5b9ull;
    return (uint32_t)(i >> 32);
}

/* The sum of four even bytes deviates by 147.8 from its mean of 510. */
template <class T> __global__ void __launch_bounds__(THREADS) fill(T *to, uint64_t n, float scale)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        uint32_t h = scramble(i + 1);
        float sum = (float)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24));
        put(to + i, (sum - 510.0f) * scale);
    }
}

__global__ void __launch_bounds__(THREADS) arithmetic(float *to)
{
    float x[CHAINS];
    uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int i = 0; i < CHAINS; i++)
        x[i] = (float)(threadIdx.x + i);
    for (int turn = 0; turn < TURNS; turn++)
#pragma unroll
        for (int i = 0; i < CHAINS; i++)
            x[i] = __fadd_rn(__fmul_rn(x[i], 0.999f), 0.001f);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += x[i];
    to[at] = sum;
}

} // namespace

extern "C" {

void fg_probe_fill(FgRtCx *cx, cudaStream_t stream, uint64_t to, uint64_t dt, uint64_t n,
                   double deviation)
{
    unsigned blocks = (unsigned)cx->n_sm * 8;
    float scale = (float)(deviation / 147.8);
    if (dt == FG_RT_F32)
        fill<<<blocks, THREADS, 0, stream>>>((float *)fg_cuda_at(cx, to), n, scale);
    else if (dt == FG_RT_BF16)
        fill<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)fg_cuda_at(cx, to), n, scale);
    else
        fill<<<blocks, THREADS, 0, stream>>>((__half *)fg_cuda_at(cx, to), n, scale);
    fg_cuda_check(cx, cudaGetLastError(), "kernel launch");
}

double fg_probe_arithmetic(FgRtCx *cx, cudaStream_t stream, uint64_t to)
{
    unsigned blocks = (unsigned)cx->n_sm * 32;
    arithmetic<<<blocks, THREADS, 0, stream>>>((float *)fg_cuda_at(cx, to));
    fg_cuda_check(cx, cudaGetLastError(), "kernel launch");
    return 2.0 * CHAINS * TURNS * THREADS * blocks;
}
}
