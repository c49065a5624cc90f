/* The exact norm of gradients, and clipping. norm_window.cuh says how squares are summed; where an
 * update follows at once, AdamW's kernel sums them itself (optimizer.cu). */
#include "runtime/cuda/kernels/norm_window.cuh"
#include "runtime/cuda/kernels/segments.cuh"
#include "runtime/loss_scale.h"

enum { THREADS = 256 };

/* V elements from `first` on; those outside [begin, end) are 0. */
template <int V, class T>
static __device__ __forceinline__ void load_part(const T *from, uint64_t first, uint64_t begin,
                                                 uint64_t end, bool wide, float (&out)[V])
{
    if (wide && first >= begin && first + V <= end) {
        fg_load<V>(from + first, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < V; j++)
        out[j] = first + j >= begin && first + j < end ? fg_get(from + first + j) : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    norm_kernel(const T *grad, unsigned long long *norm, FgCudaSpan pieces, uint64_t elements,
                bool wide)
{
    const int V = FgElement<T>::PER_16, UNROLL = 2;
    __shared__ Limbs limbs;
    limbs_clear(&limbs);
    FgShare share = fg_block_share(elements, THREADS * V);
    WarpSquares<T> squares;
    squares.begin();
    unsigned lane = threadIdx.x % 32;
    fg_each_piece(pieces, share, [&](uint64_t begin, uint64_t end, bool) {
        /* The same number of turns for all lanes of a warp. */
        for (uint64_t at = begin / V + (threadIdx.x - lane) * UNROLL; at * V < end;
             at += THREADS * UNROLL) {
            float v[UNROLL][V];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                load_part<V>(grad, (at + lane + 32 * u) * V, begin, end, wide, v[u]);
            squares.add(&limbs, v);
        }
    });
    squares.window.flush(&limbs);
    limbs_add_to(&limbs, norm);
}

void fg_cuda_norm_add(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad, uint64_t norm,
                      uint64_t bucket, uint64_t elements, uint64_t dt, uint64_t accumulate)
{
    (void)node;
    FgCudaSpan pieces = fg_cuda_pieces(cx, bucket, elements);
    unsigned long long *limbs = (unsigned long long *)fg_cuda_at(cx, norm);
    if (!accumulate)
        fg_cuda_check(cx, cudaMemsetAsync(limbs, 0, LIMBS * sizeof *limbs, stream),
                      "cudaMemsetAsync");
    if (pieces.n == 0)
        return;
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const T *from = (const T *)fg_cuda_at(cx, grad);
        unsigned blocks = fg_blocks(cx, elements, THREADS * FgElement<T>::PER_16 * 4, 8);
        norm_kernel<T>
            <<<blocks, THREADS, 0, stream>>>(from, limbs, pieces, elements, fg_aligned(from));
    });
    fg_launched(cx);
}

/* ---- clipping ---- */

/* The number as a double, rounded once; NaN when a value was not finite. */
static __device__ double exact_value(const long long *from)
{
    long long limbs[LIMBS];
    for (int i = 0; i < LIMBS; i++)
        limbs[i] = from[i];
    if (limbs[FLAG] != 0)
        return nan("");
    for (int i = 0; i + 1 < FLAG; i++) {
        limbs[i + 1] += limbs[i] >> 32;
        limbs[i] &= UINT32_MAX;
    }
    int top = FLAG - 1;
    while (top > 0 && limbs[top] == 0)
        top--;
    /* The leading 64 bits, the rest gathered into the lowest of them. */
    unsigned long long head = (unsigned long long)limbs[top];
    if (head == 0)
        return 0;
    int room = __clzll((long long)head), place = 32 * top - 320 - room;
    head <<= room;
    bool rest = false;
    for (int next = top - 1; next >= 0; next--) {
        unsigned long long limb = (unsigned long long)limbs[next];
        int shift = 32 * next - 320 - place;
        if (shift >= 0) {
            head |= limb << shift;
        } else {
            unsigned long long kept = -shift < 64 ? limb >> -shift : 0;
            head |= kept;
            rest = rest || (-shift < 64 ? (kept << -shift) != limb : limb != 0);
        }
    }
    return ldexp((double)(head | (rest ? 1u : 0u)), place);
}

__global__ void clip_kernel(const long long *norm, float *current, double clip)
{
    double length = sqrt(exact_value(norm));
    double factor = clip > 0 ? clip / (length + 1e-6) : 1.0;
    current[FG_RT_S_NORM] = (float)length;
    current[FG_RT_S_FACTOR] = (float)(factor > 1.0 ? 1.0 : factor);
}

void fg_cuda_clip_factor(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t norm,
                         uint64_t scalars, double clip)
{
    (void)node;
    clip_kernel<<<1, 1, 0, stream>>>((const long long *)fg_cuda_at(cx, norm),
                                     (float *)fg_cuda_at(cx, scalars) + FG_RT_CURRENT * FG_RT_SET,
                                     clip);
    fg_launched(cx);
}

/* ---- a scaled loss ---- */

__global__ void loss_scale_kernel(const double *scaler, float *current)
{
    current[FG_RT_S_SEED] *= (float)scaler[FG_RT_L_SCALE];
}

void fg_cuda_loss_scale(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t scaler,
                        uint64_t scalars)
{
    (void)node;
    loss_scale_kernel<<<1, 1, 0, stream>>>((const double *)fg_cuda_at(cx, scaler),
                                           (float *)fg_cuda_at(cx, scalars) +
                                               FG_RT_CURRENT * FG_RT_SET);
    fg_launched(cx);
}

__global__ void scale_step_kernel(const long long *norm, float *current, double *scaler,
                                  double *loss, double clip)
{
    fg_scale_step(sqrt(exact_value(norm)), clip, current, scaler, loss);
}

void fg_cuda_scale_step(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t norm,
                        uint64_t scalars, uint64_t scaler, uint64_t loss, double clip)
{
    (void)node;
    scale_step_kernel<<<1, 1, 0, stream>>>(
        (const long long *)fg_cuda_at(cx, norm),
        (float *)fg_cuda_at(cx, scalars) + FG_RT_CURRENT * FG_RT_SET,
        (double *)fg_cuda_at(cx, scaler), (double *)fg_cuda_at(cx, loss), clip);
    fg_launched(cx);
}
