/* Our own attention on matrix units: f16 from sm_75, bf16 from sm_80; heads of up to 256 entries,
 * 128 backward.
 *
 * Four warps own a tile of 64 rows, 16 each: queries (forward, dq) or keys (dk and dv). They walk
 * over tiles of the other side in shared memory. Two building blocks make all three kernels:
 * `dot_rows` multiplies 16 rows with the rows of a tile, and its result, a matrix of scores in
 * registers, is in the very layout that `add_rows` takes as its left operand; so scores never leave
 * registers. With rows = keys the scores are transposed, which is what dk and dv need. f32
 * accumulation; every sum has one owner and a fixed order.
 *
 * Layout of m16n8 results, for lane = 4 g + t: element 0 and 1 are row g, columns 2 t and 2 t + 1;
 * 2 and 3 the same of row g + 8. Rows in shared memory are 8 entries longer than the tile: the 8
 * rows that a warp reads at once lie on different banks. */
#include <type_traits>

#include "runtime/cuda/kernels/attention.cuh"

namespace
{

constexpr int WARPS = 4, LANES = 32, ROWS = 16 * WARPS, PAD = 8;
constexpr float LOG2E = 1.4426950408889634f;

/* ---- instructions ---- */

template <typename T> __device__ uint32_t pack(float low, float high)
{
    T pair[2];
    narrow(low, &pair[0]);
    narrow(high, &pair[1]);
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/* c[16][8] += a[16][16] b[16][8] */
template <typename T>
__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, __half>)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    if constexpr (std::is_same_v<T,
                                 __half>) { /* bf16 does not come here: the launcher sees to it */
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b0));
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2]), "r"(a[3]), "r"(b1));
    }
#endif
}

/* Four 8 x 8 matrices, transposed, from rows in shared memory: each lane names one row. */
__device__ void load_transposed(uint32_t (&r)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

template <typename T> __device__ uint32_t pair_at(const T *p)
{
    return *reinterpret_cast<const uint32_t *>(p);
}

/* ---- tiles ---- */

/* Rows [row0, row0 + N) of one head to shared memory; zeros beyond the tensor. Whole 16-byte pieces
 * where rows are made of them. */
template <int N, int WIDE, typename T>
__device__ void load_tile(T *to, const T *from, int row0, int rows, size_t stride, int dim,
                          bool pieces)
{
    if (pieces) {
        for (int at = threadIdx.x; at < N * (WIDE / 8); at += WARPS * LANES) {
            int row = at / (WIDE / 8), col = at % (WIDE / 8) * 8;
            uint4 x = make_uint4(0, 0, 0, 0);
            if (row0 + row < rows && col < dim)
                x = *reinterpret_cast<const uint4 *>(from + (row0 + row) * stride + col);
            *reinterpret_cast<uint4 *>(to + row * (WIDE + PAD) + col) = x;
        }
        return;
    }
    for (int at = threadIdx.x; at < N * WIDE; at += WARPS * LANES) {
        int row = at / WIDE, col = at % WIDE;
        T zero;
        narrow(0.0f, &zero);
        to[row * (WIDE + PAD) + col] =
            row0 + row < rows && col < dim ? from[(row0 + row) * stride + col] : zero;
    }
}

template <int C> __device__ void clear(float (&x)[C][4])
{
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[c][i] = 0;
}

/* out[16][N] = a[16][WIDE] (b[N][WIDE])' */
template <int N, int WIDE, typename T>
__device__ void dot_rows(float (&out)[N / 8][4], const T *a, const T *b, int g, int t)
{
    clear(out);
#pragma unroll
    for (int k = 0; k < WIDE; k += 16) {
        const T *row = a + g * (WIDE + PAD) + k + 2 * t;
        uint32_t left[4] = {pair_at(row), pair_at(row + 8 * (WIDE + PAD)), pair_at(row + 8),
                            pair_at(row + 8 * (WIDE + PAD) + 8)};
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            const T *other = b + (8 * n + g) * (WIDE + PAD) + k + 2 * t;
            multiply<T>(out[n], left, pair_at(other), pair_at(other + 8));
        }
    }
}

/* sum[16][WIDE] += x[16][N] b[N][WIDE], x rounded to T */
template <int N, int WIDE, typename T>
__device__ void add_rows(float (&sum)[WIDE / 8][4], const float (&x)[N / 8][4], const T *b,
                         int lane)
{
#pragma unroll
    for (int k = 0; k < N; k += 16) {
        const float(&low)[4] = x[k / 8], (&high)[4] = x[k / 8 + 1];
        uint32_t left[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]),
                            pack<T>(high[0], high[1]), pack<T>(high[2], high[3])};
        const T *row = b + (k + lane % 16) * (WIDE + PAD) + lane / 16 * 8;
#pragma unroll
        for (int n = 0; n < WIDE; n += 16) {
            uint32_t right[4];
            load_transposed(right, row + n);
            multiply<T>(sum[n / 8], left, right[0], right[1]);
            multiply<T>(sum[n / 8 + 1], left, right[2], right[3]);
        }
    }
}

/* Rows row0 + g and row0 + g + 8, times a factor each. */
template <int WIDE, typename T>
__device__ void store_rows(T *to, const float (&x)[WIDE / 8][4], const float (&factor)[2], int row0,
                           int rows, size_t stride, int dim, int g, int t)
{
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = row0 + g + i / 2 * 8, col = 8 * n + 2 * t + i % 2;
            if (row < rows && col < dim)
                narrow(x[n][i] * factor[i / 2], to + row * stride + col);
        }
}

/* Over the four lanes that share a row. */
__device__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Whether every query of [q0, q0 + nq) sees every key of [k0, k0 + nk). */
__device__ bool all_see(const Shape &s, int q0, int nq, int k0, int nk)
{
    return q0 + nq <= s.seq_q && k0 + nk <= end_key(s, q0) && k0 >= first_key(s, q0 + nq - 1);
}

__device__ bool whole_pieces(const Shape &s)
{
    return s.dim % 8 == 0;
}

/* ---- forward ---- */

/* Scores of a tile become probabilities relative to the new maximum of their row; what was summed
 * so far fades. */
template <int N, int WIDE>
__device__ void softmax_rows(const Shape &s, float (&score)[N / 8][4], float (&most)[2],
                             float (&total)[2], float (&sum)[WIDE / 8][4], int row0, int k0,
                             bool all, int g, int t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                if (!all && !sees(s, row0 + g + 8 * h, k0 + 8 * n + 2 * t + i % 2))
                    score[n][i] = -INFINITY;
                top = fmaxf(top, score[n][i]);
            }
        top = fmaxf(most[h], quad_max(top));
        float scale = s.scale * LOG2E, base = top == -INFINITY ? 0.0f : top * scale, part = 0;
        float fade = most[h] == -INFINITY ? 0.0f : exp2f(fmaf(most[h], scale, -base));
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                score[n][i] = exp2f(fmaf(score[n][i], scale, -base));
                part += score[n][i];
            }
        total[h] = total[h] * fade + part;
        most[h] = top;
#pragma unroll
        for (int n = 0; n < WIDE / 8; n++) {
            sum[n][2 * h] *= fade;
            sum[n][2 * h + 1] *= fade;
        }
    }
}

template <int WIDE, int N, typename T>
__global__ void __launch_bounds__(WARPS *LANES) forward(Shape s, Tensors<T> in)
{
    extern __shared__ __align__(16) unsigned char shared[];
    T *q = reinterpret_cast<T *>(shared), *k = q + ROWS * (WIDE + PAD), *v = k + N * (WIDE + PAD);
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
    /* The longest rows first, where causal. */
    int head = blockIdx.x % s.heads, kv_head = head / (s.heads / s.kv_heads);
    int q0 = (gridDim.y - 1 - blockIdx.y) * ROWS, row0 = q0 + 16 * warp;
    size_t batch = blockIdx.x / s.heads;
    size_t q_stride = (size_t)s.heads * s.dim, k_stride = (size_t)s.kv_heads * s.dim;
    size_t q_at = batch * s.seq_q * q_stride + (size_t)head * s.dim;
    size_t k_at = batch * s.seq_k * k_stride + (size_t)kv_head * s.dim;
    bool pieces = whole_pieces(s);
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, sum[WIDE / 8][4], score[N / 8][4];
    clear(sum);
    load_tile<ROWS, WIDE>(q, in.q + q_at, q0, s.seq_q, q_stride, s.dim, pieces);
    int end = end_key(s, min(q0 + ROWS, s.seq_q) - 1);
    for (int k0 = first_key(s, q0) / N * N; k0 < end; k0 += N) {
        __syncthreads();
        load_tile<N, WIDE>(k, in.k + k_at, k0, s.seq_k, k_stride, s.dim, pieces);
        load_tile<N, WIDE>(v, in.v + k_at, k0, s.seq_k, k_stride, s.dim, pieces);
        __syncthreads();
        dot_rows<N, WIDE>(score, q + 16 * warp * (WIDE + PAD), k, g, t);
        softmax_rows<N, WIDE>(s, score, most, total, sum, row0, k0, all_see(s, q0, ROWS, k0, N), g,
                              t);
        add_rows<N, WIDE>(sum, score, v, lane);
    }
    float factor[2];
    for (int h = 0; h < 2; h++) {
        int query = row0 + g + 8 * h;
        float all = quad_sum(total[h]);
        factor[h] = all == 0 ? 0 : 1 / all; /* nothing seen: 0, and lse -inf */
        if (t == 0 && query < s.seq_q)
            in.lse[(batch * s.heads + head) * s.seq_q + query] =
                all == 0 ? -INFINITY : most[h] * s.scale + logf(all);
    }
    store_rows<WIDE>(in.o + q_at, sum, factor, row0, s.seq_q, q_stride, s.dim, g, t);
}

/* ---- backward ---- */

/* The dot product of two rows, in the parts of a thread: every PARTS-th piece of 8 entries. */
template <int PARTS, typename T>
__device__ float part_of_dot(const T *x, const T *y, int dim, int part, bool pieces)
{
    float sum = 0;
    if (!pieces) {
        for (int col = part; col < dim; col += PARTS)
            sum = fmaf(widen(x[col]), widen(y[col]), sum);
        return sum;
    }
    for (int col = 8 * part; col < dim; col += 8 * PARTS) {
        uint4 bits_x = *reinterpret_cast<const uint4 *>(x + col);
        uint4 bits_y = *reinterpret_cast<const uint4 *>(y + col);
        T some_x[8], some_y[8];
        memcpy(some_x, &bits_x, sizeof bits_x);
        memcpy(some_y, &bits_y, sizeof bits_y);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = fmaf(widen(some_x[i]), widen(some_y[i]), sum);
    }
    return sum;
}

/* For N queries from q0: lse in units of log 2, and delta = o . do. Zeros beyond the tensor. */
template <int N, typename T>
__device__ void load_stats(const Shape &s, float *lse, float *delta, const T *o, const T *d,
                           const float *from, int q0, size_t stride)
{
    constexpr int PARTS = WARPS * LANES / N;
    int query = q0 + threadIdx.x / PARTS, part = threadIdx.x % PARTS;
    float sum = 0;
    if (query < s.seq_q)
        sum = part_of_dot<PARTS>(o + query * stride, d + query * stride, s.dim, part,
                                 whole_pieces(s));
#pragma unroll
    for (int step = 1; step < PARTS; step *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (part == 0) {
        lse[query - q0] = query < s.seq_q ? from[query] * LOG2E : 0.0f;
        delta[query - q0] = sum;
    }
}

/* p = exp(score - lse) where seen, and ds = p (ds - delta), for one element. */
__device__ void score_gradient(float &p, float &ds, bool seen, float scale, float lse, float delta)
{
    p = seen ? exp2f(fmaf(p, scale, -lse)) : 0.0f;
    ds = p * (ds - delta);
}

/* dk and dv of 64 keys: over the query heads of the group in order, over the queries that see them.
 */
template <int WIDE, int N, typename T>
__global__ void __launch_bounds__(WARPS *LANES) backward_keys(Shape s, Tensors<T> in)
{
    extern __shared__ __align__(16) unsigned char shared[];
    T *k = reinterpret_cast<T *>(shared), *v = k + ROWS * (WIDE + PAD),
      *q = v + ROWS * (WIDE + PAD), *d = q + N * (WIDE + PAD);
    float *lse = reinterpret_cast<float *>(d + N * (WIDE + PAD)), *delta = lse + N;
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
    int kv_head = blockIdx.x % s.kv_heads, group = s.heads / s.kv_heads, k0 = blockIdx.y * ROWS;
    int mine = 16 * warp * (WIDE + PAD), row0 = k0 + 16 * warp;
    size_t batch = blockIdx.x / s.kv_heads;
    size_t q_stride = (size_t)s.heads * s.dim, k_stride = (size_t)s.kv_heads * s.dim;
    size_t k_at = batch * s.seq_k * k_stride + (size_t)kv_head * s.dim;
    bool pieces = whole_pieces(s);
    float dk[WIDE / 8][4], dv[WIDE / 8][4], p[N / 8][4], ds[N / 8][4];
    clear(dk);
    clear(dv);
    load_tile<ROWS, WIDE>(k, in.k + k_at, k0, s.seq_k, k_stride, s.dim, pieces);
    load_tile<ROWS, WIDE>(v, in.v + k_at, k0, s.seq_k, k_stride, s.dim, pieces);
    int end = end_query(s, min(k0 + ROWS, s.seq_k) - 1);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        size_t q_at = batch * s.seq_q * q_stride + (size_t)head * s.dim;
        for (int q0 = first_query(s, k0) / N * N; q0 < end; q0 += N) {
            __syncthreads();
            load_tile<N, WIDE>(q, in.q + q_at, q0, s.seq_q, q_stride, s.dim, pieces);
            load_tile<N, WIDE>(d, in.d + q_at, q0, s.seq_q, q_stride, s.dim, pieces);
            load_stats<N>(s, lse, delta, in.o + q_at, in.d + q_at,
                          in.lse + (batch * s.heads + head) * s.seq_q, q0, q_stride);
            __syncthreads();
            dot_rows<N, WIDE>(p, k + mine, q, g, t);
            dot_rows<N, WIDE>(ds, v + mine, d, g, t);
            bool all = all_see(s, q0, N, k0, ROWS);
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int query = 8 * n + 2 * t + i % 2;
                    bool seen = all || sees(s, q0 + query, row0 + g + i / 2 * 8);
                    score_gradient(p[n][i], ds[n][i], seen, s.scale * LOG2E, lse[query],
                                   delta[query]);
                }
            add_rows<N, WIDE>(dv, p, d, lane);
            add_rows<N, WIDE>(dk, ds, q, lane);
        }
    }
    const float scale[2] = {s.scale, s.scale}, one[2] = {1, 1};
    store_rows<WIDE>(in.dk + k_at, dk, scale, row0, s.seq_k, k_stride, s.dim, g, t);
    store_rows<WIDE>(in.dv + k_at, dv, one, row0, s.seq_k, k_stride, s.dim, g, t);
}

template <int WIDE, int N, typename T>
__global__ void __launch_bounds__(WARPS *LANES) backward_queries(Shape s, Tensors<T> in)
{
    extern __shared__ __align__(16) unsigned char shared[];
    T *q = reinterpret_cast<T *>(shared), *d = q + ROWS * (WIDE + PAD),
      *k = d + ROWS * (WIDE + PAD), *v = k + N * (WIDE + PAD);
    float *stats = reinterpret_cast<float *>(v + N * (WIDE + PAD)), *deltas = stats + ROWS;
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
    int head = blockIdx.x % s.heads, kv_head = head / (s.heads / s.kv_heads);
    int q0 = (gridDim.y - 1 - blockIdx.y) * ROWS, row0 = q0 + 16 * warp,
        mine = 16 * warp * (WIDE + PAD);
    size_t batch = blockIdx.x / s.heads;
    size_t q_stride = (size_t)s.heads * s.dim, k_stride = (size_t)s.kv_heads * s.dim;
    size_t q_at = batch * s.seq_q * q_stride + (size_t)head * s.dim;
    size_t k_at = batch * s.seq_k * k_stride + (size_t)kv_head * s.dim;
    bool pieces = whole_pieces(s);
    float dq[WIDE / 8][4], p[N / 8][4], ds[N / 8][4];
    clear(dq);
    load_tile<ROWS, WIDE>(q, in.q + q_at, q0, s.seq_q, q_stride, s.dim, pieces);
    load_tile<ROWS, WIDE>(d, in.d + q_at, q0, s.seq_q, q_stride, s.dim, pieces);
    load_stats<ROWS>(s, stats, deltas, in.o + q_at, in.d + q_at,
                     in.lse + (batch * s.heads + head) * s.seq_q, q0, q_stride);
    __syncthreads();
    const float lse[2] = {stats[16 * warp + g], stats[16 * warp + g + 8]};
    const float delta[2] = {deltas[16 * warp + g], deltas[16 * warp + g + 8]};
    int end = end_key(s, min(q0 + ROWS, s.seq_q) - 1);
    for (int k0 = first_key(s, q0) / N * N; k0 < end; k0 += N) {
        __syncthreads();
        load_tile<N, WIDE>(k, in.k + k_at, k0, s.seq_k, k_stride, s.dim, pieces);
        load_tile<N, WIDE>(v, in.v + k_at, k0, s.seq_k, k_stride, s.dim, pieces);
        __syncthreads();
        dot_rows<N, WIDE>(p, q + mine, k, g, t);
        dot_rows<N, WIDE>(ds, d + mine, v, g, t);
        bool all = all_see(s, q0, ROWS, k0, N);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = all || sees(s, row0 + g + i / 2 * 8, k0 + 8 * n + 2 * t + i % 2);
                score_gradient(p[n][i], ds[n][i], seen, s.scale * LOG2E, lse[i / 2], delta[i / 2]);
            }
        add_rows<N, WIDE>(dq, ds, k, lane);
    }
    const float scale[2] = {s.scale, s.scale};
    store_rows<WIDE>(in.dq + q_at, dq, scale, row0, s.seq_q, q_stride, s.dim, g, t);
}

/* ---- launches ---- */

/* Tiles as large as 64 KB of shared memory (sm_75) and the registers hold. */
template <int WIDE, typename T>
void run(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
         const FgCudaAttentionData *data, bool back)
{
    constexpr int NF = WIDE == 256 ? 16 : 64, NB = 32;
    constexpr size_t row = (WIDE + PAD) * sizeof(T), threads = WARPS * LANES;
    Shape s = device_shape(shape);
    Tensors<T> t = device_tensors<T>(data);
    uint64_t heads = shape->batch * shape->heads;
    if constexpr (WIDE <= 128) {
        if (back) {
            launch(cx, stream, "attention_back of keys", backward_keys<WIDE, NB, T>,
                   shape->batch * shape->kv_heads, shape->seq_k, ROWS, threads,
                   (2 * ROWS + 2 * NB) * row + 2 * NB * sizeof(float), s, t);
            launch(cx, stream, "attention_back of queries", backward_queries<WIDE, NB, T>, heads,
                   shape->seq_q, ROWS, threads,
                   (2 * ROWS + 2 * NB) * row + 2 * ROWS * sizeof(float), s, t);
            return;
        }
    }
    launch(cx, stream, "attention", forward<WIDE, NF, T>, heads, shape->seq_q, ROWS, threads,
           (ROWS + 2 * NF) * row, s, t);
}

template <typename T>
bool run_as(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
            const FgCudaAttentionData *data, bool back)
{
    if (shape->dim <= 64)
        run<64, T>(cx, stream, shape, data, back);
    else if (shape->dim <= 128)
        run<128, T>(cx, stream, shape, data, back);
    else if (shape->dim <= 256 && !back)
        run<256, T>(cx, stream, shape, data, back);
    else
        return false;
    return true;
}

} // namespace

bool fg_cuda_attention_mma(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
                           const FgCudaAttentionData *data, bool back)
{
    if (!(shape->scale > 0)) /* the maximum is taken before the scale */
        return false;
    if (shape->dt == FG_RT_F16 && cx->sm >= 75)
        return run_as<__half>(cx, stream, shape, data, back);
    if (shape->dt == FG_RT_BF16 && cx->sm >= 80)
        return run_as<__nv_bfloat16>(cx, stream, shape, data, back);
    return false;
}
