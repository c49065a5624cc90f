/* A gated activation of one's own, for GPUs: y = max(gate, 0)^2 up, and its gradient, in one pass
 * each. The same for the CPU is custom-activation.c.
 *
 * A function launches on the stream of its call, and waits for nothing: steps are captured into
 * graphs. It is extern "C", so that the program, which is C, can call it. */
#include "fg_custom.h"

static __device__ float same(float x)
{
    return x;
}

static unsigned blocks(int64_t n)
{
    return (unsigned)((n + 255) / 256);
}

#define RELU2(dtype, T, FROM, TO)                                                                  \
    static __global__ void relu2_##dtype(const T *gate, const T *up, T *y, int64_t n)              \
    {                                                                                              \
        int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;                                       \
        if (i >= n)                                                                                \
            return;                                                                                \
        float g = FROM(gate[i]), r = g > 0 ? g : 0;                                                \
        y[i] = TO(r * r * FROM(up[i]));                                                            \
    }                                                                                              \
    static __global__ void relu2_back_##dtype(const T *gate, const T *up, const T *dy, T *dgate,   \
                                              T *dup, int64_t n)                                   \
    {                                                                                              \
        int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;                                       \
        if (i >= n)                                                                                \
            return;                                                                                \
        float g = FROM(gate[i]), r = g > 0 ? g : 0, d = FROM(dy[i]);                               \
        dgate[i] = TO(2 * (d * FROM(up[i]) * r));                                                  \
        dup[i] = TO(d * (r * r));                                                                  \
    }                                                                                              \
    extern "C" void custom_relu2_##dtype(const T *gate, const T *up, T *y, const FgCustom *call)   \
    {                                                                                              \
        int64_t n = fg_custom_elements(call, 0);                                                   \
        relu2_##dtype<<<blocks(n), 256, 0, (cudaStream_t)call->stream>>>(gate, up, y, n);          \
    }                                                                                              \
    extern "C" void custom_relu2_back_##dtype(const T *gate, const T *up, const T *dy, T *dgate,   \
                                              T *dup, const FgCustom *call)                        \
    {                                                                                              \
        int64_t n = fg_custom_elements(call, 0);                                                   \
        relu2_back_##dtype<<<blocks(n), 256, 0, (cudaStream_t)call->stream>>>(gate, up, dy, dgate, \
                                                                              dup, n);             \
    }

RELU2(f32, float, same, same)
RELU2(bf16, FgBf16, fg_from_bf16, fg_to_bf16)
RELU2(f16, FgF16, fg_from_f16, fg_to_f16)
