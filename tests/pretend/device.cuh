/* CUDA C++ as C++: the part of an emitted program that nvcc reads, for the pretended device.
 * Threads run one after the other, each to its end; e^x is the host's, so that results are. What
 * only reads such parts (readback/cuda.h) has the same few declarations. */
#ifndef FG_TESTS_PRETEND_DEVICE_CUH
#define FG_TESTS_PRETEND_DEVICE_CUH

#define __CUDACC__
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define expf pretend_exp

typedef void *cudaStream_t;
static struct {
    unsigned x;
} blockIdx, threadIdx, gridDim;

#include "runtime/fg_chain.h"

extern "C" bool pretend_capturing(void);

static inline float pretend_wide(float x)
{
    return x;
}

static inline float pretend_wide(FgBf16 x)
{
    return fg_from_bf16(x);
}

static inline float pretend_wide(FgF16 x)
{
    return fg_from_f16(x);
}

static inline void pretend_narrow(float *y, float x)
{
    *y = x;
}

static inline void pretend_narrow(FgBf16 *y, float x)
{
    *y = fg_to_bf16(x);
}

static inline void pretend_narrow(FgF16 *y, float x)
{
    *y = fg_to_f16(x);
}

template <class T> FgPack fg_pack(const T *x, int64_t p)
{
    FgPack out;
    for (int j = 0; j < FG_CHAIN_PACK; j++)
        out.v[j] = pretend_wide(x[FG_CHAIN_PACK * p + j]);
    return out;
}

template <class T> void fg_unpack(T *y, int64_t p, const FgPack &b)
{
    for (int j = 0; j < FG_CHAIN_PACK; j++)
        pretend_narrow(&y[FG_CHAIN_PACK * p + j], b.v[j]);
}

/* What stands for kernel<<<blocks, threads, 0, stream>>>(...). */
#define PRETEND_LAUNCH(kernel, blocks, threads, bytes, stream, ...)                                \
    do {                                                                                           \
        gridDim.x = (stream) && !pretend_capturing() ? (blocks) : 0;                               \
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)                                 \
            for (threadIdx.x = 0; threadIdx.x < (threads); threadIdx.x++)                          \
                kernel(__VA_ARGS__);                                                               \
    } while (0)

#endif
