/* Copies between the device and pinned host memory. The driver's copy engines do them beside
 * kernels, each direction with one of its own; captured into a graph they stay what they are. */
#include "runtime/cuda/cx.h"

void fg_cuda_stash(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                   uint64_t bytes)
{
    (void)node;
    fg_cuda_check(cx,
                  cudaMemcpyAsync(fg_cuda_at(cx, y), fg_cuda_at(cx, x), bytes,
                                  cudaMemcpyDeviceToHost, stream),
                  "a copy to host memory");
}

void fg_cuda_fetch(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                   uint64_t bytes)
{
    (void)node;
    fg_cuda_check(cx,
                  cudaMemcpyAsync(fg_cuda_at(cx, y), fg_cuda_at(cx, x), bytes,
                                  cudaMemcpyHostToDevice, stream),
                  "a copy from host memory");
}
