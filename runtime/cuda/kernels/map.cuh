/* Calls that treat every element alike: one kernel template serves them.
 *
 * A functor takes up to two operands, and the result's old value where the call accumulates. The
 * result may be an operand's memory: a thread reads its elements before it writes them. */
#ifndef FG_RUNTIME_CUDA_KERNELS_MAP_CUH
#define FG_RUNTIME_CUDA_KERNELS_MAP_CUH

#include "runtime/cuda/kernels/common.cuh"

/* Blocks a multiprocessor at most: so many that a grid mostly covers its elements, since blocks
 * that come and go take less time than threads that come around again (measured: 2 to 4 %). */
enum { FG_MAP_THREADS = 256, FG_MAP_BLOCKS = 512 };

/* Packs of a thread that are under way at once. */
template <int OPERANDS> struct FgMapBatch {
    static const int N = OPERANDS == 1 ? 4 : 2;
};

/* y = f(a, b, old y); b is read when N is 2, y when OLD. `packs` of V elements, then single ones. A
 * block takes its batches side by side.
 */
template <int N, bool OLD, class F, class In, class Out>
__global__ void __launch_bounds__(FG_MAP_THREADS)
    fg_map_kernel(F f, const In *a, const In *b, Out *y, uint64_t n, uint64_t packs)
{
    const int V = FgElement<In>::PER_16 > FgElement<Out>::PER_16 ? FgElement<In>::PER_16
                                                                 : FgElement<Out>::PER_16;
    const int BATCH = FgMapBatch<N + OLD>::N;
    const uint64_t all = (uint64_t)gridDim.x * FG_MAP_THREADS;
    for (uint64_t at = (uint64_t)blockIdx.x * FG_MAP_THREADS * BATCH + threadIdx.x; at < packs;
         at += all * BATCH) {
        FgRaw<V, In> ra[BATCH], rb[BATCH];
        FgRaw<V, Out> before[BATCH];
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            uint64_t i = at + u * FG_MAP_THREADS;
            if (i < packs) {
                ra[u].load(a + i * V);
                if constexpr (N == 2)
                    rb[u].load(b + i * V);
                if constexpr (OLD)
                    before[u].load(y + i * V);
            }
        }
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            uint64_t i = at + u * FG_MAP_THREADS;
            if (i < packs) {
                float va[V], vb[V], old[V];
                ra[u].split(va);
                if constexpr (N == 2)
                    rb[u].split(vb);
                if constexpr (OLD)
                    before[u].split(old);
#pragma unroll
                for (int j = 0; j < V; j++)
                    va[j] = f(va[j], N == 2 ? vb[j] : 0.0f, OLD ? old[j] : 0.0f);
                fg_store<V>(y + i * V, va);
            }
        }
    }
    uint64_t first = (uint64_t)blockIdx.x * FG_MAP_THREADS + threadIdx.x;
    for (uint64_t i = packs * V + first; i < n; i += all)
        fg_put(y + i, f(fg_get(a + i), N == 2 ? fg_get(b + i) : 0.0f, OLD ? fg_get(y + i) : 0.0f));
}

template <int N, bool OLD, class In, class Out, class F>
static void fg_map(FgRtCx *cx, cudaStream_t stream, F f, const void *a, const void *b, void *y,
                   uint64_t n)
{
    if (n == 0)
        return;
    const int V = FgElement<In>::PER_16 > FgElement<Out>::PER_16 ? FgElement<In>::PER_16
                                                                 : FgElement<Out>::PER_16;
    uint64_t packs = fg_aligned(a) && fg_aligned(b) && fg_aligned(y) ? n / V : 0;
    unsigned blocks =
        fg_blocks(cx, packs ? packs : n, FG_MAP_THREADS * FgMapBatch<N + OLD>::N, FG_MAP_BLOCKS);
    fg_map_kernel<N, OLD><<<blocks, FG_MAP_THREADS, 0, stream>>>(f, (const In *)a, (const In *)b,
                                                                 (Out *)y, n, packs);
    fg_launched(cx);
}

#endif
