/* Functions of one element and their derivatives, by kind; the formulas are fg_chain.h's. */
#ifndef FG_RUNTIME_CUDA_KERNELS_UNARY_CUH
#define FG_RUNTIME_CUDA_KERNELS_UNARY_CUH

#include <type_traits>

#include "runtime/cuda/kernels/common.cuh"

template <FgRtUnary KIND> struct FgUnary {
    float s;
    __device__ float operator()(float x, float, float) const
    {
        switch (KIND) {
        case FG_RT_NEG:
            return fg_chain_neg(x);
        case FG_RT_EXP:
            return fg_chain_exp(x);
        case FG_RT_LOG:
            return fg_chain_log(x);
        case FG_RT_SQRT:
            return fg_chain_sqrt(x);
        case FG_RT_RSQRT:
            return fg_chain_rsqrt(x);
        case FG_RT_TANH:
            return fg_chain_tanh(x);
        case FG_RT_SIGMOID:
            return fg_chain_sigmoid(x);
        case FG_RT_RELU:
            return fg_chain_relu(x);
        case FG_RT_SILU:
            return fg_chain_silu(x);
        case FG_RT_GELU:
            return fg_chain_gelu(x);
        case FG_RT_GELU_TANH:
            return fg_chain_gelu_tanh(x);
        case FG_RT_SCALE:
            return fg_chain_scale(x, s);
        case FG_RT_ADD_SCALAR:
            return fg_chain_add_scalar(x, s);
        case FG_RT_POW:
            return fg_chain_pow(x, s);
        }
        return x;
    }
};

template <FgRtUnary KIND> struct FgSlope {
    float s;
    __device__ float operator()(float x, float d, float) const
    {
        switch (KIND) {
        case FG_RT_NEG:
            return fg_chain_neg_back(x, d);
        case FG_RT_EXP:
            return fg_chain_exp_back(x, d);
        case FG_RT_LOG:
            return fg_chain_log_back(x, d);
        case FG_RT_SQRT:
            return fg_chain_sqrt_back(x, d);
        case FG_RT_RSQRT:
            return fg_chain_rsqrt_back(x, d);
        case FG_RT_TANH:
            return fg_chain_tanh_back(x, d);
        case FG_RT_SIGMOID:
            return fg_chain_sigmoid_back(x, d);
        case FG_RT_RELU:
            return fg_chain_relu_back(x, d);
        case FG_RT_SILU:
            return fg_chain_silu_back(x, d);
        case FG_RT_GELU:
            return fg_chain_gelu_back(x, d);
        case FG_RT_GELU_TANH:
            return fg_chain_gelu_tanh_back(x, d);
        case FG_RT_SCALE:
            return fg_chain_scale(d, s);
        case FG_RT_ADD_SCALAR:
            return d;
        case FG_RT_POW:
            return fg_chain_pow_back(x, d, s);
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
