/* Gradients of RMSNorm and LayerNorm, x and dy read once.
 *
 * With c = x - mean, z = c scale and g = dy w: dx = scale (g - mean(g) - z mean(g z)), without mean
 * and mean(g) for RMSNorm, and dw = sum over rows of dy z. A block takes a share of the rows, ROWS
 * at a time, a thread the same P pieces of 16 bytes of each, so that a row's sums are known while
 * it is still in registers, and what a share adds to dw stays there until the share ends. The rows
 * behind are on their way all the while: two groups of rows in turn, packed as they lie in memory.
 * Loads stand in no branch (a thread without columns reads those of the first, and rows behind the
 * last are the last), so that all of a group are under way at once. Products that a compiler could
 * contract are written out: gradients are the same bits whether one of them is made or both. */
#include "runtime/cuda/kernels/norm_rows.cuh"

enum { THREADS = 512, WARPS = THREADS / 32, LEAST_PACKS = 32 };

/* ---- sums over the block ---- */

/* The sum over the warp of value i, in the i-th of N groups of lanes: each step adds lanes that are
 * as far apart as in fg_warp_sum, but sends what another group keeps. */
template <int N> static __device__ __forceinline__ float warp_sums(const float (&v)[N])
{
    static_assert(N == 1 || N == 2 || N == 4, "groups of lanes");
    unsigned lane = threadIdx.x % 32;
    bool high = lane & 16, odd = lane & 8;
    float one;
    if constexpr (N == 4) {
        float a = high ? v[2] : v[0], b = high ? v[3] : v[1];
        a += __shfl_xor_sync(0xffffffffu, high ? v[0] : v[2], 16);
        b += __shfl_xor_sync(0xffffffffu, high ? v[1] : v[3], 16);
        one = odd ? b : a;
        one += __shfl_xor_sync(0xffffffffu, odd ? a : b, 8);
    } else {
        one = high ? v[N - 1] : v[0];
        one += __shfl_xor_sync(0xffffffffu, high ? v[0] : v[N - 1], 16);
        one += __shfl_xor_sync(0xffffffffu, one, 8);
    }
#pragma unroll
    for (int i = 4; i > 0; i >>= 1)
        one += __shfl_xor_sync(0xffffffffu, one, i);
    return one;
}

/* Sums of several values of each thread over the block; all threads get them, and each is added up
 * in the same order whatever N is. `part` holds zeros for warps that are not there. One barrier:
 * calls in turn use the two halves of `part` in turn. */
template <int N>
static __device__ __forceinline__ void block_sums(float (&values)[N], float (*part)[WARPS])
{
    constexpr unsigned LANES = 32 / N, HALF = LANES < 16 ? LANES : 16;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned group = lane / LANES, k = lane % HALF;
    float sum = warp_sums(values);
    if (lane % LANES == 0)
        part[group][warp] = sum;
    __syncthreads();
    sum = part[group][k];
    if (HALF == 8)
        sum += part[group][k + 8];
#pragma unroll
    for (int i = HALF / 2; i > 0; i >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, i);
#pragma unroll
    for (int i = 0; i < N; i++)
        values[i] = __shfl_sync(0xffffffffu, sum, i * LANES);
}

/* ---- a group of rows ---- */

typedef struct Args {
    const char *x, *w, *dy, *plus;
    char *dx;
    float *partial;
    uint64_t rows, per_share, row_bytes;
    unsigned packs;
    float inverse_cols, eps;
} Args;

template <int ROWS, int P> struct Group {
    uint4 x[ROWS][P], dy[ROWS][P], plus[ROWS][P];
};

/* Where a thread's pieces lie in a row, and which of them there are. */
template <int P> struct Place {
    unsigned at[P];
    bool has[P];
};

template <bool DX, int ROWS, int P>
static __device__ __forceinline__ void load(const Args &a, const Place<P> &place, uint64_t row,
                                            uint64_t end, Group<ROWS, P> &g)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        uint64_t from = (row + r < end ? row + r : end - 1) * a.row_bytes;
#pragma unroll
        for (int p = 0; p < P; p++) {
            g.x[r][p] = *reinterpret_cast<const uint4 *>(a.x + from + place.at[p]);
            g.dy[r][p] = *reinterpret_cast<const uint4 *>(a.dy + from + place.at[p]);
            if (DX && a.plus)
                g.plus[r][p] = *reinterpret_cast<const uint4 *>(a.plus + from + place.at[p]);
        }
    }
}

/* What becomes of a row, with t = dy scale: dw += t c, dx = t w - c slope - shift. */
template <int ROWS> struct Moments {
    float mean[ROWS], scale[ROWS], slope[ROWS], shift[ROWS];
};

/* sums[k] and, where N is twice as many as rows, sums[ROWS + k] of row k: those of f(x, g). */
template <class T, int N, int ROWS, int P, class F>
static __device__ __forceinline__ void add_up(const Group<ROWS, P> &g, const uint4 (&w)[P],
                                              const Place<P> &place, float (&sums)[N], F f)
{
    constexpr int V = FgElement<T>::PER_16;
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[i] = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int p = 0; p < P; p++) {
            float x[V], d[V], gain[V], one = 0, two = 0;
            fg_unpack<T>(g.x[r][p], x);
            fg_unpack<T>(g.dy[r][p], d);
            fg_unpack<T>(w[p], gain);
#pragma unroll
            for (int j = 0; j < V; j++)
                f(r, x[j], __fmul_rn(d[j], gain[j]), one, two);
            sums[r] += place.has[p] ? one : 0.0f;
            if constexpr (N > ROWS)
                sums[ROWS + r] += place.has[p] ? two : 0.0f;
        }
}

template <class T, bool CENTRED, bool DX, int ROWS, int P>
static __device__ __forceinline__ void find_moments(const Args &a, const Group<ROWS, P> &g,
                                                    const uint4 (&w)[P], const Place<P> &place,
                                                    float (*part)[WARPS], Moments<ROWS> &m)
{
    constexpr int N = DX ? 2 * ROWS : ROWS;
    float sums[N] = {};
    if constexpr (CENTRED) {
        add_up<T>(g, w, place, sums, [](int, float x, float gain, float &one, float &two) {
            one += x;
            two += gain;
        });
        block_sums(sums, part);
        part += N;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        m.mean[r] = __fmul_rn(sums[r], a.inverse_cols);
        m.shift[r] = sums[N - ROWS + r] * a.inverse_cols;
    }
    add_up<T>(g, w, place, sums, [&](int r, float x, float gain, float &one, float &two) {
        float c = CENTRED ? x - m.mean[r] : x;
        one = fmaf(c, c, one);
        two = fmaf(gain, c, two);
    });
    block_sums(sums, part);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float scale = rsqrtf(fmaf(sums[r], a.inverse_cols, a.eps));
        m.scale[r] = scale;
        m.slope[r] = sums[N - ROWS + r] * a.inverse_cols * scale * scale * scale;
        m.shift[r] = __fmul_rn(m.shift[r], scale);
    }
}

template <class T, bool CENTRED, bool DX, bool DW, int ROWS, int P>
static __device__ __forceinline__ void
finish_rows(const Args &a, const Group<ROWS, P> &g, const uint4 (&w)[P], const Place<P> &place,
            uint64_t row, uint64_t end, const Moments<ROWS> &m,
            float (&sum)[P][FgElement<T>::PER_16])
{
    constexpr int V = FgElement<T>::PER_16;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row + r >= end)
            break;
#pragma unroll
        for (int p = 0; p < P; p++) {
            float x[V], d[V], gain[V], out[V] = {};
            fg_unpack<T>(g.x[r][p], x);
            fg_unpack<T>(g.dy[r][p], d);
            fg_unpack<T>(w[p], gain);
            if (DX && a.plus)
                fg_unpack<T>(g.plus[r][p], out);
#pragma unroll
            for (int j = 0; j < V; j++) {
                float c = CENTRED ? x[j] - m.mean[r] : x[j], t = __fmul_rn(d[j], m.scale[r]);
                if constexpr (DW)
                    sum[p][j] = fmaf(t, c, sum[p][j]);
                if constexpr (DX && CENTRED)
                    out[j] -= m.shift[r];
                if constexpr (DX)
                    out[j] = fmaf(-c, m.slope[r], fmaf(t, gain[j], out[j]));
            }
            if (DX && place.has[p])
                fg_store<V>(reinterpret_cast<T *>(a.dx + (row + r) * a.row_bytes + place.at[p]),
                            out);
        }
    }
}

/* ---- a share of the rows ---- */

template <class T, bool CENTRED, bool DX, bool DW, int ROWS, int P>
__global__ void __launch_bounds__(THREADS) rows_kernel(const Args a)
{
    constexpr int V = FgElement<T>::PER_16;
    __shared__ float part[2][(CENTRED ? 2 : 1) * (DX ? 2 : 1) * ROWS][WARPS];
    for (unsigned i = threadIdx.x; i < sizeof part / sizeof ***part; i += blockDim.x)
        (**part)[i] = 0;
    __syncthreads();
    uint64_t begin = blockIdx.x * a.per_share;
    uint64_t end = begin + a.per_share < a.rows ? begin + a.per_share : a.rows;
    Place<P> place;
    uint4 w[P] = {};
    float sum[P][V] = {};
#pragma unroll
    for (int p = 0; p < P; p++) {
        unsigned pack = p * blockDim.x + threadIdx.x;
        place.has[p] = pack < a.packs;
        place.at[p] = place.has[p] ? pack * 16 : 0;
        if constexpr (DX)
            w[p] = *reinterpret_cast<const uint4 *>(a.w + place.at[p]);
    }
    auto work = [&](const Group<ROWS, P> &g, uint64_t row, int half) {
        Moments<ROWS> m;
        find_moments<T, CENTRED, DX>(a, g, w, place, part[half], m);
        finish_rows<T, CENTRED, DX, DW>(a, g, w, place, row, end, m, sum);
    };
    Group<ROWS, P> one, two;
    load<DX>(a, place, begin, end, one);
    for (uint64_t row = begin; row < end; row += 2 * ROWS) {
        if (row + ROWS < end)
            load<DX>(a, place, row + ROWS, end, two);
        work(one, row, 0);
        if (row + ROWS >= end)
            break;
        if (row + 2 * ROWS < end)
            load<DX>(a, place, row + 2 * ROWS, end, one);
        work(two, row + ROWS, 1);
    }
    if constexpr (DW)
#pragma unroll
        for (int p = 0; p < P; p++)
            if (place.has[p])
                fg_store<V>(a.partial + ((uint64_t)blockIdx.x * a.packs +
                                         (uint64_t)(p * blockDim.x + threadIdx.x)) *
                                            V,
                            sum[p]);
}

/* ---- host side ---- */

static uint64_t packs_of(const FgNormRows *r)
{
    return r->cols * fg_dtype_bytes(r->dt) / 16;
}

bool fg_cuda_norm_rows_fit(const FgNormRows *r)
{
    return r->cols * fg_dtype_bytes(r->dt) % 16 == 0 && packs_of(r) >= LEAST_PACKS &&
           packs_of(r) <= 2 * THREADS && (!r->partial || r->cols <= r->floats) &&
           fg_aligned(r->x) && fg_aligned(r->w) && fg_aligned(r->dy) && fg_aligned(r->plus) &&
           fg_aligned(r->dx);
}

template <class T, bool CENTRED, int ROWS, int P>
static void launch(const FgNormRows *r, const Args &a, unsigned blocks, unsigned threads,
                   cudaStream_t stream)
{
    auto *kernel = r->dx && r->partial ? rows_kernel<T, CENTRED, true, true, ROWS, P>
                   : r->dx             ? rows_kernel<T, CENTRED, true, false, ROWS, P>
                                       : rows_kernel<T, CENTRED, false, true, ROWS, P>;
    kernel<<<blocks, threads, 0, stream>>>(a);
}

uint64_t fg_cuda_norm_rows(FgRtCx *cx, cudaStream_t stream, const FgNormRows *r)
{
    uint64_t packs = packs_of(r), each = packs > THREADS ? 2 : 1, group = 2 / each;
    unsigned threads = (unsigned)fg_ceil(fg_ceil(packs, each), 32) * 32;
    uint64_t resident = THREADS / threads; /* blocks; one where each would have a turn or two */
    if (r->rows < cx->n_sm * resident * group * 2)
        resident = 1;
    uint64_t shares = (uint64_t)cx->n_sm * resident;
    uint64_t most = r->partial ? r->floats / r->cols : shares;
    shares = shares < most ? shares : most;
    uint64_t per_share = fg_ceil(fg_ceil(r->rows, shares), group) * group;
    shares = fg_ceil(r->rows, per_share);
    Args a = {(const char *)r->x,
              (const char *)r->w,
              (const char *)r->dy,
              (const char *)r->plus,
              (char *)r->dx,
              r->partial,
              r->rows,
              per_share,
              packs * 16,
              (unsigned)packs,
              1.0f / (float)r->cols,
              r->eps};
    fg_with_float(cx, r->dt, [&](auto tag) {
        typedef decltype(tag) T;
        auto *start = r->centred ? (each == 1 ? launch<T, true, 2, 1> : launch<T, true, 1, 2>)
                                 : (each == 1 ? launch<T, false, 2, 1> : launch<T, false, 1, 2>);
        start(r, a, (unsigned)shares, threads, stream);
    });
    fg_launched(cx);
    return shares;
}
