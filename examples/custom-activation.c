/* A gated activation of one's own, for the CPU: y = max(gate, 0)^2 up, and its gradient, in one
 * pass each. The same for GPUs is custom-activation.cu; docs/custom-kernels.md explains both.
 *
 * The model names custom_relu2_{dtype}: one function for each element type that it may be compiled
 * for. Each computes in float and rounds once. */
#include "fg_custom.h"

static float same(float x)
{
    return x;
}

/* dy/dup = max(gate, 0)^2, dy/dgate = 2 max(gate, 0) up */
#define RELU2(dtype, T, FROM, TO)                                                                  \
    void custom_relu2_##dtype(const T *gate, const T *up, T *y, const FgCustom *call)              \
    {                                                                                              \
        int64_t n = fg_custom_elements(call, 0);                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float g = FROM(gate[i]), r = g > 0 ? g : 0;                                            \
            y[i] = TO(r * r * FROM(up[i]));                                                        \
        }                                                                                          \
    }                                                                                              \
    void custom_relu2_back_##dtype(const T *gate, const T *up, const T *dy, T *dgate, T *dup,      \
                                   const FgCustom *call)                                           \
    {                                                                                              \
        int64_t n = fg_custom_elements(call, 0);                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float g = FROM(gate[i]), r = g > 0 ? g : 0, d = FROM(dy[i]);                           \
            dgate[i] = TO(2 * (d * FROM(up[i]) * r));                                              \
            dup[i] = TO(d * (r * r));                                                              \
        }                                                                                          \
    }

RELU2(f32, float, same, same)
RELU2(bf16, FgBf16, fg_from_bf16, fg_to_bf16)
RELU2(f16, FgF16, fg_from_f16, fg_to_f16)
