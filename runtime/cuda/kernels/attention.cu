/* Our own attention, for what the library has no plan for: f32, GPUs before sm_80, any head
 * dimension up to 256.
 *
 * A block of 256 threads owns a tile of queries (forward, dq) or of keys (dk and dv) of one head
 * and walks over the tiles of the other side that it sees; scores never leave shared memory.
 * Forward keeps the running maximum and sum of each query; backward recomputes probabilities from
 * the saved log-sum-exp. Every result has one owner and a fixed order of sums, so runs repeat bit
 * by bit. dk and dv sum over the query heads that share a key head in that block, and nothing is
 * repeated in memory.
 *
 * Threads form a 16 x 16 square: thread (tx, ty) has the rows ty + 16 r and the columns tx + 16 c
 * of every tile. Rows in shared memory are one word longer than the tile, which keeps the 16 rows
 * that a warp reads at once on different banks. All arithmetic is f32, whatever the operands are.
 */
#include <inttypes.h>

#include "runtime/cuda/kernels/attention.cuh"

namespace
{

constexpr int SIDE = 16, THREADS = SIDE * SIDE;

/* Rows [row0, row0 + ROWS) of one head, dim entries each, to shared memory; zeros beyond the
 * tensor. */
template <int ROWS, int WIDE, typename T>
__device__ void load_tile(float *to, const T *from, int row0, int rows, size_t stride, int dim)
{
    for (int at = threadIdx.x; at < ROWS * WIDE; at += THREADS) {
        int row = at / WIDE, col = at % WIDE;
        bool there = row0 + row < rows && col < dim;
        to[row * (WIDE + 1) + col] = there ? widen(from[(row0 + row) * stride + col]) : 0.0f;
    }
}

/* out[r][c] = sum over d of a[row][d] b[col][d]. */
template <int R, int C, int WIDE>
__device__ void dot_rows(float (&out)[R][C], const float *a, const float *b, int dim, int tx,
                         int ty)
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            out[r][c] = 0;
#pragma unroll 4
    for (int d = 0; d < dim; d++) {
        float x[R], y[C];
#pragma unroll
        for (int r = 0; r < R; r++)
            x[r] = a[(ty + SIDE * r) * (WIDE + 1) + d];
#pragma unroll
        for (int c = 0; c < C; c++)
            y[c] = b[(tx + SIDE * c) * (WIDE + 1) + d];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < C; c++)
                out[r][c] = fmaf(x[r], y[c], out[r][c]);
    }
}

/* sum[r][c] += over i of a(row, i) b[i][col]; TRANSPOSED: a is stored [i][row]. */
template <bool TRANSPOSED, int INNER, int R, int C, int WIDE_A, int WIDE>
__device__ void add_product(float (&sum)[R][C], const float *a, const float *b, int tx, int ty)
{
#pragma unroll 4
    for (int i = 0; i < INNER; i++) {
        float x[R], y[C];
#pragma unroll
        for (int r = 0; r < R; r++)
            x[r] = TRANSPOSED ? a[i * (WIDE_A + 1) + ty + SIDE * r]
                              : a[(ty + SIDE * r) * (WIDE_A + 1) + i];
#pragma unroll
        for (int c = 0; c < C; c++)
            y[c] = b[i * (WIDE + 1) + tx + SIDE * c];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int c = 0; c < C; c++)
                sum[r][c] = fmaf(x[r], y[c], sum[r][c]);
    }
}

template <int R, int C, typename T>
__device__ void store_tile(T *to, const float (&from)[R][C], const float *factor, int row0,
                           int rows, size_t stride, int dim, int tx, int ty)
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            int row = row0 + ty + SIDE * r, col = tx + SIDE * c;
            if (row < rows && col < dim)
                narrow(from[r][c] * factor[r], to + row * stride + col);
        }
}

/* Over the 16 threads of a row. */
__device__ float row_max(float x)
{
    for (int step = SIDE / 2; step; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

__device__ float row_sum(float x)
{
    for (int step = SIDE / 2; step; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* ---- forward ---- */

/* Scores of a tile become probabilities relative to the new maximum; what was summed so far fades.
 */
template <int R, int C, int D, int NK>
__device__ void softmax_tile(const Shape &s, float (&score)[R][C], float (&most)[R],
                             float (&total)[R], float (&sum)[R][D], float *p, int q0, int k0,
                             int tx, int ty)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        int query = q0 + ty + SIDE * r;
        float top = -INFINITY;
#pragma unroll
        for (int c = 0; c < C; c++) {
            score[r][c] = sees(s, query, k0 + tx + SIDE * c) ? score[r][c] * s.scale : -INFINITY;
            top = fmaxf(top, score[r][c]);
        }
        top = fmaxf(most[r], row_max(top));
        float fade = most[r] == -INFINITY ? 0.0f : expf(most[r] - top), part = 0;
#pragma unroll
        for (int c = 0; c < C; c++) {
            float x = score[r][c] == -INFINITY ? 0.0f : expf(score[r][c] - top);
            part += x;
            p[(ty + SIDE * r) * (NK + 1) + tx + SIDE * c] = x;
        }
        total[r] = total[r] * fade + row_sum(part);
        most[r] = top;
#pragma unroll
        for (int d = 0; d < D; d++)
            sum[r][d] *= fade;
    }
}

template <int WIDE, int NQ, int NK, typename T>
__global__ void __launch_bounds__(THREADS) forward(Shape s, Tensors<T> t)
{
    constexpr int R = NQ / SIDE, C = NK / SIDE, D = WIDE / SIDE;
    extern __shared__ float shared[];
    float *q = shared, *kv = q + NQ * (WIDE + 1), *p = kv + NK * (WIDE + 1);
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    int head = blockIdx.x % s.heads, kv_head = head / (s.heads / s.kv_heads), q0 = blockIdx.y * NQ;
    size_t batch = blockIdx.x / s.heads;
    size_t q_stride = (size_t)s.heads * s.dim, k_stride = (size_t)s.kv_heads * s.dim;
    size_t q_at = batch * s.seq_q * q_stride + (size_t)head * s.dim;
    size_t k_at = batch * s.seq_k * k_stride + (size_t)kv_head * s.dim;
    float most[R], total[R], sum[R][D], score[R][C];
    for (int r = 0; r < R; r++) {
        most[r] = -INFINITY;
        total[r] = 0;
        for (int d = 0; d < D; d++)
            sum[r][d] = 0;
    }
    load_tile<NQ, WIDE>(q, t.q + q_at, q0, s.seq_q, q_stride, s.dim);
    int end = end_key(s, min(q0 + NQ, s.seq_q) - 1);
    for (int k0 = first_key(s, q0) / NK * NK; k0 < end; k0 += NK) {
        __syncthreads();
        load_tile<NK, WIDE>(kv, t.k + k_at, k0, s.seq_k, k_stride, s.dim);
        __syncthreads();
        dot_rows<R, C, WIDE>(score, q, kv, s.dim, tx, ty);
        softmax_tile<R, C, D, NK>(s, score, most, total, sum, p, q0, k0, tx, ty);
        __syncthreads();
        load_tile<NK, WIDE>(kv, t.v + k_at, k0, s.seq_k, k_stride, s.dim);
        __syncthreads();
        add_product<false, NK, R, D, NK, WIDE>(sum, p, kv, tx, ty);
    }
    float factor[R];
    for (int r = 0; r < R; r++) {
        int query = q0 + ty + SIDE * r;
        factor[r] = total[r] == 0 ? 0 : 1 / total[r]; /* nothing seen: 0, and lse -inf */
        if (tx == 0 && query < s.seq_q)
            t.lse[(batch * s.heads + head) * s.seq_q + query] = most[r] + logf(total[r]);
    }
    store_tile(t.o + q_at, sum, factor, q0, s.seq_q, q_stride, s.dim, tx, ty);
}

/* ---- backward ---- */

/* delta[row] = o . do for a tile of queries, in registers of the row's threads. */
template <int R, typename T>
__device__ void row_deltas(float (&delta)[R], const T *o, const T *d, int row0, int rows,
                           size_t stride, int dim, int tx, int ty)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        int row = row0 + ty + SIDE * r;
        float part = 0;
        if (row < rows)
            for (int col = tx; col < dim; col += SIDE)
                part = fmaf(widen(o[row * stride + col]), widen(d[row * stride + col]), part);
        delta[r] = row_sum(part);
    }
}

/* score becomes the probability, from the log-sum-exp. */
template <int R, int C>
__device__ void probabilities(const Shape &s, float (&score)[R][C], const float *lse, int q0,
                              int k0, int tx, int ty)
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            int query = q0 + ty + SIDE * r;
            score[r][c] = sees(s, query, k0 + tx + SIDE * c)
                              ? expf(fmaf(score[r][c], s.scale, -lse[query]))
                              : 0.0f;
        }
}

template <int R, int C, int NK>
__device__ void keep_tile(float *to, const float (&from)[R][C], int tx, int ty)
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            to[(ty + SIDE * r) * (NK + 1) + tx + SIDE * c] = from[r][c];
}

template <int R, int C>
__device__ void score_gradients(float (&ds)[R][C], const float (&p)[R][C], const float (&delta)[R])
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            ds[r][c] = p[r][c] * (ds[r][c] - delta[r]);
}

/* dk and dv of a tile of keys: over the query heads of the group in order, over the queries that
 * see it. */
template <int WIDE, int N, typename T>
__global__ void __launch_bounds__(THREADS) backward_keys(Shape s, Tensors<T> t)
{
    constexpr int R = N / SIDE, D = WIDE / SIDE;
    extern __shared__ float shared[];
    float *k = shared, *v = k + N * (WIDE + 1), *x = v + N * (WIDE + 1), *p = x + N * (WIDE + 1),
          *ds = p + N * (N + 1);
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    int kv_head = blockIdx.x % s.kv_heads, group = s.heads / s.kv_heads, k0 = blockIdx.y * N;
    size_t batch = blockIdx.x / s.kv_heads;
    size_t q_stride = (size_t)s.heads * s.dim, k_stride = (size_t)s.kv_heads * s.dim;
    size_t k_at = batch * s.seq_k * k_stride + (size_t)kv_head * s.dim;
    float dk[R][D] = {}, dv[R][D] = {}, prob[R][R], grad[R][R], delta[R];
    load_tile<N, WIDE>(k, t.k + k_at, k0, s.seq_k, k_stride, s.dim);
    load_tile<N, WIDE>(v, t.v + k_at, k0, s.seq_k, k_stride, s.dim);
    int end = end_query(s, min(k0 + N, s.seq_k) - 1);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        size_t q_at = batch * s.seq_q * q_stride + (size_t)head * s.dim;
        const float *lse = t.lse + (batch * s.heads + head) * s.seq_q;
        for (int q0 = first_query(s, k0) / N * N; q0 < end; q0 += N) {
            __syncthreads();
            load_tile<N, WIDE>(x, t.q + q_at, q0, s.seq_q, q_stride, s.dim);
            __syncthreads();
            dot_rows<R, R, WIDE>(prob, x, k, s.dim, tx, ty);
            probabilities(s, prob, lse, q0, k0, tx, ty);
            keep_tile<R, R, N>(p, prob, tx, ty);
            __syncthreads();
            load_tile<N, WIDE>(x, t.d + q_at, q0, s.seq_q, q_stride, s.dim);
            row_deltas(delta, t.o + q_at, t.d + q_at, q0, s.seq_q, q_stride, s.dim, tx, ty);
            __syncthreads();
            dot_rows<R, R, WIDE>(grad, x, v, s.dim, tx, ty);
            score_gradients(grad, prob, delta);
            keep_tile<R, R, N>(ds, grad, tx, ty);
            add_product<true, N, R, D, N, WIDE>(dv, p, x, tx, ty);
            __syncthreads();
            load_tile<N, WIDE>(x, t.q + q_at, q0, s.seq_q, q_stride, s.dim);
            __syncthreads();
            add_product<true, N, R, D, N, WIDE>(dk, ds, x, tx, ty);
        }
    }
    float scale[R], one[R];
    for (int r = 0; r < R; r++) {
        scale[r] = s.scale;
        one[r] = 1;
    }
    store_tile(t.dk + k_at, dk, scale, k0, s.seq_k, k_stride, s.dim, tx, ty);
    store_tile(t.dv + k_at, dv, one, k0, s.seq_k, k_stride, s.dim, tx, ty);
}

template <int WIDE, int N, typename T>
__global__ void __launch_bounds__(THREADS) backward_queries(Shape s, Tensors<T> t)
{
    constexpr int R = N / SIDE, D = WIDE / SIDE;
    extern __shared__ float shared[];
    float *q = shared, *d = q + N * (WIDE + 1), *x = d + N * (WIDE + 1), *ds = x + N * (WIDE + 1);
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    int head = blockIdx.x % s.heads, kv_head = head / (s.heads / s.kv_heads), q0 = blockIdx.y * N;
    size_t batch = blockIdx.x / s.heads;
    size_t q_stride = (size_t)s.heads * s.dim, k_stride = (size_t)s.kv_heads * s.dim;
    size_t q_at = batch * s.seq_q * q_stride + (size_t)head * s.dim;
    size_t k_at = batch * s.seq_k * k_stride + (size_t)kv_head * s.dim;
    const float *lse = t.lse + (batch * s.heads + head) * s.seq_q;
    float dq[R][D] = {}, prob[R][R], grad[R][R], delta[R], scale[R];
    load_tile<N, WIDE>(q, t.q + q_at, q0, s.seq_q, q_stride, s.dim);
    load_tile<N, WIDE>(d, t.d + q_at, q0, s.seq_q, q_stride, s.dim);
    row_deltas(delta, t.o + q_at, t.d + q_at, q0, s.seq_q, q_stride, s.dim, tx, ty);
    int end = end_key(s, min(q0 + N, s.seq_q) - 1);
    for (int k0 = first_key(s, q0) / N * N; k0 < end; k0 += N) {
        __syncthreads();
        load_tile<N, WIDE>(x, t.v + k_at, k0, s.seq_k, k_stride, s.dim);
        __syncthreads();
        dot_rows<R, R, WIDE>(grad, d, x, s.dim, tx, ty);
        __syncthreads();
        load_tile<N, WIDE>(x, t.k + k_at, k0, s.seq_k, k_stride, s.dim);
        __syncthreads();
        dot_rows<R, R, WIDE>(prob, q, x, s.dim, tx, ty);
        probabilities(s, prob, lse, q0, k0, tx, ty);
        score_gradients(grad, prob, delta);
        keep_tile<R, R, N>(ds, grad, tx, ty);
        __syncthreads();
        add_product<false, N, R, D, N, WIDE>(dq, ds, x, tx, ty);
    }
    for (int r = 0; r < R; r++)
        scale[r] = s.scale;
    store_tile(t.dq + q_at, dq, scale, q0, s.seq_q, q_stride, s.dim, tx, ty);
}

/* ---- launches ---- */

/* Tiles as large as 64 KB of shared memory (sm_75) hold. */
template <int WIDE, typename T>
void run(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape, const Shape &s,
         const Tensors<T> &t, bool back)
{
    constexpr int NQ = WIDE == 64 ? 64 : 32,
                  NK = WIDE == 256   ? 16
                       : WIDE == 128 ? 32
                                     : 64,
                  N = WIDE == 256 ? 16 : 32;
    constexpr size_t rows = N * (WIDE + 1), tile = N * (N + 1);
    uint64_t heads = shape->batch * shape->heads;
    if (!back) {
        constexpr size_t floats = (NQ + NK) * (WIDE + 1) + NQ * (NK + 1);
        launch(cx, stream, "attention", forward<WIDE, NQ, NK, T>, heads, shape->seq_q, NQ, THREADS,
               floats * sizeof(float), s, t);
        return;
    }
    launch(cx, stream, "attention_back of keys", backward_keys<WIDE, N, T>,
           shape->batch * shape->kv_heads, shape->seq_k, N, THREADS,
           (3 * rows + 2 * tile) * sizeof(float), s, t);
    launch(cx, stream, "attention_back of queries", backward_queries<WIDE, N, T>, heads,
           shape->seq_q, N, THREADS, (3 * rows + tile) * sizeof(float), s, t);
}

template <typename T>
void run_as(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
            const FgCudaAttentionData *data, bool back)
{
    Shape s = device_shape(shape);
    Tensors<T> t = device_tensors<T>(data);
    if (shape->dim <= 64)
        run<64>(cx, stream, shape, s, t, back);
    else if (shape->dim <= 128)
        run<128>(cx, stream, shape, s, t, back);
    else
        run<256>(cx, stream, shape, s, t, back);
}

void attention(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
               const FgCudaAttentionData *data, bool back)
{
    const uint64_t limit = INT32_MAX / 4; /* places and windows are summed in int */
    if (shape->dim == 0 || shape->dim > FG_CUDA_ATTENTION_DIM) {
        fg_cuda_raise(cx, "attention over heads of %" PRIu64 " entries: at most %d are supported",
                      shape->dim, FG_CUDA_ATTENTION_DIM);
        return;
    }
    if (shape->seq_q > limit || shape->seq_k > limit || shape->heads > limit) {
        fg_cuda_raise(cx, "attention over %" PRIu64 " and %" PRIu64 " places is too long",
                      shape->seq_q, shape->seq_k);
        return;
    }
    FgCudaAttentionShape bounded = *shape;
    if (bounded.window > limit)
        bounded.window = limit;
    if (fg_cuda_attention_mma(cx, stream, &bounded, data, back))
        return;
    switch (shape->dt) {
    case FG_RT_F32:
        run_as<float>(cx, stream, &bounded, data, back);
        break;
    case FG_RT_F16:
        run_as<__half>(cx, stream, &bounded, data, back);
        break;
    case FG_RT_BF16:
        run_as<__nv_bfloat16>(cx, stream, &bounded, data, back);
        break;
    default:
        fg_cuda_raise(cx, "attention has no kernel for dtype %" PRIu64, shape->dt);
    }
}

} // namespace

void fg_cuda_attention_builtin(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
                               const FgCudaAttentionData *data)
{
    attention(cx, stream, shape, data, false);
}

void fg_cuda_attention_back_builtin(FgRtCx *cx, cudaStream_t stream,
                                    const FgCudaAttentionShape *shape,
                                    const FgCudaAttentionData *data)
{
    attention(cx, stream, shape, data, true);
}
