/* Functions of one element, and their gradients. */
#include "runtime/cuda/kernels/map.cuh"
#include "runtime/cuda/kernels/unary.cuh"

void fg_cuda_unary(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t kind, uint64_t x,
                   uint64_t y, uint64_t n, uint64_t dt, double a)
{
    (void)node;
    fg_with_unary(cx, kind, [&](auto k) {
        fg_with_float(cx, dt, [&](auto tag) {
            typedef decltype(tag) T;
            fg_map<1, false, T, T>(cx, stream, FgUnary<decltype(k)::value>{(float)a},
                                   fg_cuda_at(cx, x), NULL, fg_cuda_at(cx, y), n);
        });
    });
}

void fg_cuda_unary_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t kind, uint64_t x,
                        uint64_t dy, uint64_t dx, uint64_t n, uint64_t dt, double a)
{
    (void)node;
    fg_with_unary(cx, kind, [&](auto k) {
        fg_with_float(cx, dt, [&](auto tag) {
            typedef decltype(tag) T;
            fg_map<2, false, T, T>(cx, stream, FgSlope<decltype(k)::value>{(float)a},
                                   fg_cuda_at(cx, x), fg_cuda_at(cx, dy), fg_cuda_at(cx, dx), n);
        });
    });
}
