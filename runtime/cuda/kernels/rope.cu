/* Rotary position embedding: the table of angles and the rotation. */
#include "runtime/cuda/kernels/common.cuh"

static const unsigned THREADS = 256;

typedef struct Scaling {
    double theta, factor, low, high, original;
} Scaling;

static __device__ double frequency(uint64_t i, uint64_t half, const Scaling &s)
{
    double f = pow(s.theta, -(double)i / (double)half);
    if (s.factor <= 0)
        return f;
    double wavelength = 2 * 3.14159265358979323846 / f;
    if (wavelength < s.original / s.high)
        return f;
    if (wavelength > s.original / s.low)
        return f / s.factor;
    double smooth = (s.original / wavelength - s.low) / (s.high - s.low);
    return (1 - smooth) * f / s.factor + smooth * f;
}

__global__ void table_kernel(float *table, uint64_t seq, uint64_t half, Scaling scaling)
{
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < seq * half;
         at += (uint64_t)gridDim.x * THREADS) {
        double angle = (double)(at / half) * frequency(at % half, half, scaling), sine, cosine;
        sincos(angle, &sine, &cosine);
        table[at] = (float)cosine;
        table[seq * half + at] = (float)sine;
    }
}

void fg_cuda_rope_table(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t table,
                        uint64_t seq, uint64_t half, double theta, double factor, double low,
                        double high, double original)
{
    (void)node;
    Scaling scaling = {theta, factor, low, high, original};
    table_kernel<<<fg_blocks(cx, seq * half, THREADS, 8), THREADS, 0, stream>>>(
        (float *)fg_cuda_at(cx, table), seq, half, scaling);
    fg_launched(cx);
}

/* chunks: groups of positions that a sequence is cut into. */
typedef struct Shape {
    uint32_t seq, heads, dim, half, chunks;
} Shape;

static const unsigned HEADS = 2; /* of a thread, all under way at once */

/* Threads along x go over pairs of a head, along y over heads, along z over positions of a
 * sequence: a thread reads its angles once for all of its heads. y may be x. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS, 4)
    rotate_kernel(const T *x, const float *table, T *y, Shape s, float sign)
{
    uint32_t sequence = blockIdx.x / s.chunks;
    uint32_t t = (blockIdx.x - sequence * s.chunks) * blockDim.z + threadIdx.z;
    uint32_t head = blockIdx.y * (blockDim.y * HEADS) + threadIdx.y;
    if (t >= s.seq || head >= s.heads)
        return;
    const float *cosine = table + (uint64_t)t * s.half, *sine = cosine + (uint64_t)s.seq * s.half;
    uint64_t from = (((uint64_t)sequence * s.seq + t) * s.heads + head) * s.dim;
    uint32_t step = blockDim.y * s.dim; /* to the thread's next head */
    uint32_t n = (s.heads - head + blockDim.y - 1) / blockDim.y;
    for (uint32_t pair = threadIdx.x * V; pair < s.half; pair += blockDim.x * V) {
        FgRaw<V, T> ra[HEADS], rb[HEADS];
        FgRaw<V, float> rc, rn;
        rc.load(cosine + pair);
        rn.load(sine + pair);
#pragma unroll
        for (int u = 0; u < HEADS; u++)
            if (u < n) {
                ra[u].load(x + from + u * step + pair);
                rb[u].load(x + from + u * step + pair + s.half);
            }
        float c[V], sines[V];
        rc.split(c);
        rn.split(sines);
#pragma unroll
        for (int u = 0; u < HEADS; u++)
            if (u < n) {
                float a[V], b[V];
                ra[u].split(a);
                rb[u].split(b);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    float aj = a[j], bj = b[j];
                    a[j] = aj * c[j] - bj * (sign * sines[j]);
                    b[j] = bj * c[j] + aj * (sign * sines[j]);
                }
                fg_store<V>(y + from + u * step + pair, a);
                fg_store<V>(y + from + u * step + pair + s.half, b);
            }
    }
    if (x == y)
        return;
    for (uint32_t i = 2 * s.half + threadIdx.x * V; i < s.dim; i += blockDim.x * V)
#pragma unroll 1
        for (uint32_t u = 0; u < HEADS && u < n; u++) {
            FgRaw<V, T> rest;
            rest.load(x + from + u * step + i);
            rest.store(y + from + u * step + i);
        }
}

/* Blocks of as many positions as make them full, but of one warp where others would idle. */
static unsigned block_positions(const FgRtCx *cx, uint64_t seq, uint64_t batch, uint64_t groups,
                                unsigned position)
{
    uint64_t n = THREADS / position, most = 64; /* along z */
    n = n < most ? n : most;
    n = n < seq ? n : seq;
    while (n * position > 32 && batch * fg_ceil(seq, n) * groups < 2 * (uint64_t)cx->n_sm)
        n = n / 2;
    return n ? (unsigned)n : 1;
}

void fg_cuda_rope(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t table,
                  uint64_t y, uint64_t batch, uint64_t seq, uint64_t heads, uint64_t dim,
                  uint64_t half, uint64_t inverse, uint64_t dt)
{
    (void)node;
    if (!fg_rows_fit(cx, batch * seq))
        return;
    if (heads * dim > INT32_MAX || heads > 65535) {
        fg_cuda_raise(cx, "%" PRIu64 " heads of %" PRIu64 " are too many", heads, dim);
        return;
    }
    const float *angles = (const float *)fg_cuda_at(cx, table);
    fg_with_float(cx, dt, [&](auto tag) {
        typedef decltype(tag) T;
        const int V = FgElement<T>::PER_16;
        const T *from = (const T *)fg_cuda_at(cx, x);
        T *to = (T *)fg_cuda_at(cx, y);
        bool wide = half % V == 0 && dim % V == 0 && fg_aligned(from) && fg_aligned(to) &&
                    fg_aligned(angles);
        auto *kernel = wide ? rotate_kernel<T, V> : rotate_kernel<T, 1>;
        uint64_t pairs = wide ? half / V : half, lanes = fg_ceil(heads, HEADS);
        pairs = pairs < THREADS ? pairs : (uint64_t)THREADS;
        lanes = lanes < THREADS / pairs ? lanes : THREADS / pairs;
        uint64_t groups = fg_ceil(heads, lanes * HEADS);
        dim3 block((unsigned)pairs, (unsigned)lanes);
        block.z = block_positions(cx, seq, batch, groups, block.x * block.y);
        Shape shape = {(uint32_t)seq, (uint32_t)heads, (uint32_t)dim, (uint32_t)half,
                       (uint32_t)fg_ceil(seq, block.z)};
        dim3 grid((unsigned)(batch * shape.chunks), (unsigned)groups);
        kernel<<<grid, block, 0, stream>>>(from, angles, to, shape, inverse ? -1.0f : 1.0f);
    });
    fg_launched(cx);
}
