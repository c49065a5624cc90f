/* Gated activations: f(gate) up, and both gradients in one pass. */
#include "runtime/cuda/kernels/map.cuh"
#include "runtime/cuda/kernels/unary.cuh"

template <FgRtUnary KIND, class T> struct Gated {
    __device__ float operator()(float gate, float up, float) const
    {
        return FgUnary<KIND, T>{0}(gate, 0, 0) * up;
    }
};

/* dgate may be gate. */
template <FgRtUnary KIND, class T>
__global__ void __launch_bounds__(FG_MAP_THREADS)
    gated_back_kernel(const T *gate, const T *up, const T *dy, T *dgate, T *dup, uint64_t n,
                      uint64_t packs)
{
    const int V = FgElement<T>::PER_16;
    uint64_t all = (uint64_t)gridDim.x * FG_MAP_THREADS;
    uint64_t first = (uint64_t)blockIdx.x * FG_MAP_THREADS + threadIdx.x;
    FgUnary<KIND, T> open = {0};
    FgSlope<KIND, T> slope = {0};
    for (uint64_t i = first; i < packs; i += all) {
        float g[V], u[V], d[V];
        fg_load<V>(gate + i * V, g);
        fg_load<V>(up + i * V, u);
        fg_load<V>(dy + i * V, d);
#pragma unroll
        for (int j = 0; j < V; j++) {
            u[j] *= slope(g[j], d[j], 0);
            d[j] *= open(g[j], 0, 0);
        }
        fg_store<V>(dgate + i * V, u);
        fg_store<V>(dup + i * V, d);
    }
    for (uint64_t i = packs * V + first; i < n; i += all) {
        float g = fg_get(gate + i), u = fg_get(up + i), d = fg_get(dy + i);
        fg_put(dgate + i, slope(g, d, 0) * u);
        fg_put(dup + i, open(g, 0, 0) * d);
    }
}

void fg_cuda_gated(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t kind, uint64_t gate,
                   uint64_t up, uint64_t y, uint64_t n, uint64_t dt)
{
    (void)node;
    fg_with_unary(cx, kind, [&](auto k) {
        fg_with_float(cx, dt, [&](auto tag) {
            typedef decltype(tag) T;
            fg_map<2, false, T, T>(cx, stream, Gated<decltype(k)::value, T>(), fg_cuda_at(cx, gate),
                                   fg_cuda_at(cx, up), fg_cuda_at(cx, y), n);
        });
    });
}

void fg_cuda_gated_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t kind,
                        uint64_t gate, uint64_t up, uint64_t dy, uint64_t dgate, uint64_t dup,
                        uint64_t n, uint64_t dt)
{
    (void)node;
    const void *g = fg_cuda_at(cx, gate), *u = fg_cuda_at(cx, up), *d = fg_cuda_at(cx, dy);
    void *dg = fg_cuda_at(cx, dgate), *du = fg_cuda_at(cx, dup);
    if (n == 0)
        return;
    bool wide = fg_aligned(g) && fg_aligned(u) && fg_aligned(d) && fg_aligned(dg) && fg_aligned(du);
    fg_with_unary(cx, kind, [&](auto k) {
        fg_with_float(cx, dt, [&](auto tag) {
            typedef decltype(tag) T;
            uint64_t packs = wide ? n / FgElement<T>::PER_16 : 0;
            gated_back_kernel<decltype(k)::value, T>
                <<<fg_blocks(cx, packs ? packs : n, FG_MAP_THREADS, 32), FG_MAP_THREADS, 0,
                   stream>>>((const T *)g, (const T *)u, (const T *)d, (T *)dg, (T *)du, n, packs);
        });
    });
    fg_launched(cx);
}
