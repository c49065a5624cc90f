/* Functions of one element and their derivatives, by kind; formulas as in
 * runtime/host/elementwise.c.
 */
#ifndef FG_RUNTIME_CUDA_KERNELS_UNARY_CUH
#define FG_RUNTIME_CUDA_KERNELS_UNARY_CUH

#include <type_traits>

#include "runtime/cuda/kernels/common.cuh"

/* Where the result is rounded to 16 bits, the fast forms are exact enough: within 3e-7 of it. */
template <class T> static __device__ inline float fg_sigmoid(float x)
{
    if constexpr (sizeof(T) == 4)
        return 1.0f / (1.0f + expf(-x));
    else
        return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* Phi, the normal distribution, and its density. */
static __device__ inline float fg_normal_cdf(float x)
{
    return 0.5f * erfcf(-x * 0.70710678f);
}

static __device__ inline float fg_normal_density(float x)
{
    return 0.39894228f * expf(-0.5f * x * x);
}

/* gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2 u) */
static __device__ inline float fg_gelu_inner(float x)
{
    return 2 * 0.79788456f * (x + 0.044715f * x * x * x);
}

static __device__ inline float fg_gelu_inner_slope(float x)
{
    return 2 * 0.79788456f * (1 + 3 * 0.044715f * x * x);
}

/* T: what the result is stored as. */
template <FgRtUnary KIND, class T> struct FgUnary {
    float s;
    __device__ float operator()(float x, float, float) const
    {
        switch (KIND) {
        case FG_RT_NEG:
            return -x;
        case FG_RT_EXP:
            return expf(x);
        case FG_RT_LOG:
            return logf(x);
        case FG_RT_SQRT:
            return sqrtf(x);
        case FG_RT_RSQRT:
            return 1.0f / sqrtf(x);
        case FG_RT_TANH:
            return tanhf(x);
        case FG_RT_SIGMOID:
            return fg_sigmoid<T>(x);
        case FG_RT_RELU:
            return x < 0 ? 0 : x;
        case FG_RT_SILU:
            return x * fg_sigmoid<T>(x);
        case FG_RT_GELU:
            return x * fg_normal_cdf(x);
        case FG_RT_GELU_TANH:
            return x * fg_sigmoid<T>(fg_gelu_inner(x));
        case FG_RT_SCALE:
            return s * x;
        case FG_RT_ADD_SCALAR:
            return x + s;
        case FG_RT_POW:
            return powf(x, s);
        }
        return x;
    }
};

template <FgRtUnary KIND, class T> struct FgSlope {
    float s;
    __device__ float operator()(float x, float d, float) const
    {
        switch (KIND) {
        case FG_RT_NEG:
            return -d;
        case FG_RT_EXP:
            return d * expf(x);
        case FG_RT_LOG:
            return d / x;
        case FG_RT_SQRT:
            return 0.5f * d / sqrtf(x);
        case FG_RT_RSQRT:
            return -0.5f * d / (x * sqrtf(x));
        case FG_RT_TANH: {
            float t = tanhf(x);
            return d * (1 - t * t);
        }
        case FG_RT_SIGMOID: {
            float t = fg_sigmoid<T>(x);
            return d * (t * (1 - t));
        }
        case FG_RT_RELU:
            return x > 0 ? d : 0;
        case FG_RT_SILU: {
            float t = fg_sigmoid<T>(x);
            return d * (t * (1 + x * (1 - t)));
        }
        case FG_RT_GELU:
            return d * (fg_normal_cdf(x) + x * fg_normal_density(x));
        case FG_RT_GELU_TANH: {
            float t = fg_sigmoid<T>(fg_gelu_inner(x));
            return d * (t + x * t * (1 - t) * fg_gelu_inner_slope(x));
        }
        case FG_RT_SCALE:
            return s * d;
        case FG_RT_ADD_SCALAR:
            return d;
        case FG_RT_POW:
            return d * s * powf(x, s - 1);
        }
        return d;
    }
};

/* f(constant of the kind) */
template <class F> static void fg_with_unary(FgRtCx *cx, uint64_t kind, F f)
{
#define KIND(name)                                                                                 \
    case name:                                                                                     \
        f(std::integral_constant<FgRtUnary, name>());                                              \
        break
    switch (kind) {
        KIND(FG_RT_NEG);
        KIND(FG_RT_EXP);
        KIND(FG_RT_LOG);
        KIND(FG_RT_SQRT);
        KIND(FG_RT_RSQRT);
        KIND(FG_RT_TANH);
        KIND(FG_RT_SIGMOID);
        KIND(FG_RT_RELU);
        KIND(FG_RT_SILU);
        KIND(FG_RT_GELU);
        KIND(FG_RT_GELU_TANH);
        KIND(FG_RT_SCALE);
        KIND(FG_RT_ADD_SCALAR);
        KIND(FG_RT_POW);
    default:
        fg_cuda_raise(cx, "unary function %" PRIu64 " does not exist", kind);
        break;
    }
#undef KIND
}

#endif
