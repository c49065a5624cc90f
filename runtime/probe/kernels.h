/* Kernels of the probe alone. */
#ifndef FG_RUNTIME_PROBE_KERNELS_H
#define FG_RUNTIME_PROBE_KERNELS_H

#include "runtime/cuda/cx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n elements of dt (f32, bf16, f16), nearly normal with this deviation: a chip that multiplies
 * zeros takes less power and runs faster. */
void fg_probe_fill(FgRtCx *cx, cudaStream_t stream, uint64_t to, uint64_t dt, uint64_t n,
                   double deviation);
/* Products and sums in registers, each rounded by itself; returns how many there are. */
double fg_probe_arithmetic(FgRtCx *cx, cudaStream_t stream, uint64_t to);

#ifdef __cplusplus
}
#endif

#endif
