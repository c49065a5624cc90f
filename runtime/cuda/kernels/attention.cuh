/* What both kinds of attention kernels share: the problem, its masks, conversions. */
#ifndef FG_RUNTIME_CUDA_KERNELS_ATTENTION_CUH
#define FG_RUNTIME_CUDA_KERNELS_ATTENTION_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "runtime/cuda/attention.h"

/* Kernels on matrix units (attention_mma.cu): whether they take the call, which they then have
 * launched. */
bool fg_cuda_attention_mma(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
                           const FgCudaAttentionData *data, bool back);

namespace
{

struct Shape {
    int seq_q, seq_k, heads, kv_heads, dim, causal, window;
    float scale;
};

template <typename T> struct Tensors {
    const T *q, *k, *v, *d;
    T *o, *dq, *dk, *dv;
    float *lse;
};

__device__ float widen(float x)
{
    return x;
}
__device__ float widen(__half x)
{
    return __half2float(x);
}
__device__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ void narrow(float x, float *to)
{
    *to = x;
}
__device__ void narrow(float x, __half *to)
{
    *to = __float2half_rn(x);
}
__device__ void narrow(float x, __nv_bfloat16 *to)
{
    *to = __float2bfloat16_rn(x);
}

/* The keys [begin, end) that a query sees, and the queries that see a key. */
__device__ int first_key(const Shape &s, int query)
{
    int first = query + s.seq_k - s.seq_q - s.window + 1;
    return s.window && first > 0 ? first : 0;
}

__device__ int end_key(const Shape &s, int query)
{
    int end = query + s.seq_k - s.seq_q + 1;
    return !s.causal ? s.seq_k : end < 0 ? 0 : min(end, s.seq_k);
}

__device__ bool sees(const Shape &s, int query, int key)
{
    return query < s.seq_q && key >= first_key(s, query) && key < end_key(s, query);
}

__device__ int first_query(const Shape &s, int key)
{
    int first = key - s.seq_k + s.seq_q;
    return s.causal && first > 0 ? first : 0;
}

__device__ int end_query(const Shape &s, int key)
{
    int end = key - s.seq_k + s.seq_q + s.window;
    return !s.window ? s.seq_q : end < 0 ? 0 : min(end, s.seq_q);
}

inline Shape device_shape(const FgCudaAttentionShape *shape)
{
    return {(int)shape->seq_q, (int)shape->seq_k,  (int)shape->heads,  (int)shape->kv_heads,
            (int)shape->dim,   (int)shape->causal, (int)shape->window, shape->scale};
}

template <typename T> Tensors<T> device_tensors(const FgCudaAttentionData *data)
{
    return {static_cast<const T *>(data->q),
            static_cast<const T *>(data->k),
            static_cast<const T *>(data->v),
            static_cast<const T *>(data->d),
            static_cast<T *>(data->o),
            static_cast<T *>(data->dq),
            static_cast<T *>(data->dk),
            static_cast<T *>(data->dv),
            data->lse};
}

/* One kernel over `heads` (of all batch entries) times the tiles of `rows`. */
template <typename Kernel, typename T>
void launch(FgRtCx *cx, cudaStream_t stream, const char *what, Kernel kernel, uint64_t heads,
            uint64_t rows, int tile, int threads, size_t bytes, const Shape &s, const Tensors<T> &t)
{
    uint64_t blocks = (rows + tile - 1) / tile;
    if (blocks > 65535 || heads > INT32_MAX) {
        fg_cuda_raise(cx, "%s: %llu rows of %llu heads exceed a grid", what,
                      (unsigned long long)rows, (unsigned long long)heads);
        return;
    }
    fg_cuda_check(
        cx, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        what);
    if (heads > 0 && blocks > 0)
        kernel<<<dim3((unsigned)heads, (unsigned)blocks), threads, bytes, stream>>>(s, t);
    fg_cuda_check(cx, cudaGetLastError(), what);
}

} // namespace

#endif
