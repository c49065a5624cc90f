/* Calls that move elements without changing them, and the reading of layouts.
 *
 * Elements are moved as words of their size, or 16 bytes at a time where sizes, strides and
 * addresses allow it. */
#include "runtime/cuda/kernels/layout.cuh"

enum { THREADS = 256, TILE = 32, TILE_LINES = 8 };

/* ---- layouts ---- */

/* Appends a dimension, inside of those there are. */
static bool append_dim(FgWalk *walk, uint64_t dim, const uint64_t *strides, uint32_t operands)
{
    if (walk->rank > 0) {
        uint32_t last = walk->rank - 1;
        bool even = true;
        for (uint32_t k = 0; k < operands; k++)
            even = even && walk->strides[k][last] == strides[k] * dim;
        if (walk->dims[last] == 1 || even) {
            walk->dims[last] *= dim;
            for (uint32_t k = 0; k < operands; k++)
                walk->strides[k][last] = strides[k];
            return true;
        }
    }
    if (walk->rank == FG_WALK_RANK)
        return false;
    walk->dims[walk->rank] = dim;
    for (uint32_t k = 0; k < operands; k++)
        walk->strides[k][walk->rank] = strides[k];
    walk->rank++;
    return true;
}

bool fg_walk_read(FgRtCx *cx, uint64_t index, uint32_t operands, FgWalk *out)
{
    const FgRtProgram *program = cx->program;
    uint64_t rank = index < program->n_layouts ? (uint64_t)program->layouts[index] : 0;
    if (index >= program->n_layouts || rank * (operands + 1) > program->n_layouts - index - 1) {
        fg_cuda_raise(cx, "layout %" PRIu64 " lies outside the program's table", index);
        return false;
    }
    const int64_t *row = program->layouts + index + 1;
    *out = (FgWalk){};
    for (uint64_t i = 0; i < rank; i++) {
        uint64_t strides[2] = {(uint64_t)row[rank + i],
                               operands > 1 ? (uint64_t)row[2 * rank + i] : 0};
        if (row[i] == 1)
            continue;
        if (!append_dim(out, (uint64_t)row[i], strides, operands)) {
            fg_cuda_raise(cx,
                          "a strided call over %" PRIu64 " dimensions: at most %d that cannot be "
                          "merged are possible on the GPU",
                          rank, FG_WALK_RANK);
            return false;
        }
    }
    if (out->rank == 0) {
        out->rank = 1;
        out->dims[0] = 1;
    }
    return true;
}

bool fg_walk_is_wide(const FgWalk *walk, uint32_t operands, uint64_t v)
{
    uint32_t last = walk->rank - 1;
    if (walk->dims[last] % v != 0)
        return false;
    for (uint32_t k = 0; k < operands; k++) {
        uint64_t inner = walk->strides[k][last];
        if (inner > 1)
            return false;
        for (uint32_t i = 0; inner == 1 && i < last; i++)
            if (walk->strides[k][i] % v != 0)
                return false;
    }
    return true;
}

/* ---- strided copies ---- */

template <class Word> struct Words { /* 16 bytes of them */
    static const int N = 16 / sizeof(Word);
};

template <class Word, bool WIDE, class Index>
__global__ void __launch_bounds__(THREADS)
    strided_kernel(const Word *x, Word *y, FgWalk walk, uint64_t packs)
{
    const int V = WIDE ? Words<Word>::N : 1;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < packs;
         i += (uint64_t)gridDim.x * THREADS) {
        uint64_t from, unused;
        fg_walk_at<V, Index>(walk, i, &from, &unused);
        if constexpr (!WIDE) {
            y[i] = x[from];
        } else if (walk.strides[0][walk.rank - 1] == 1) {
            reinterpret_cast<uint4 *>(y)[i] = *reinterpret_cast<const uint4 *>(x + from);
        } else {
            Word value = x[from];
#pragma unroll
            for (int j = 0; j < V; j++)
                y[i * V + j] = value;
        }
    }
}

/* The innermost dimension strides through x while another, `dim`, lies dense in it: tiles of both
 * go through shared memory, so that reads and writes are both in line. blockIdx.x: tiles along the
 * innermost dimension, y: along `dim`, z: all other dimensions. */
template <class Word>
__global__ void __launch_bounds__(TILE *TILE_LINES)
    transpose_kernel(const Word *x, Word *y, FgWalk walk, uint32_t dim)
{
    __shared__ Word tile[TILE][TILE + 1];
    uint32_t last = walk.rank - 1;
    uint64_t rest = blockIdx.z, from = 0, to = 0, dense = 1, dense_dim = 0;
    for (uint32_t i = walk.rank; i-- > 0;) {
        if (i == dim)
            dense_dim = dense;
        if (i != dim && i != last) {
            uint64_t place = rest % walk.dims[i];
            rest /= walk.dims[i];
            from += place * walk.strides[0][i];
            to += place * dense;
        }
        dense *= walk.dims[i];
    }
    uint64_t column = (uint64_t)blockIdx.x * TILE, line = (uint64_t)blockIdx.y * TILE;
    for (uint32_t i = threadIdx.y; i < TILE; i += TILE_LINES)
        if (column + i < walk.dims[last] && line + threadIdx.x < walk.dims[dim])
            tile[i][threadIdx.x] =
                x[from + (column + i) * walk.strides[0][last] + line + threadIdx.x];
    __syncthreads();
    for (uint32_t i = threadIdx.y; i < TILE; i += TILE_LINES)
        if (line + i < walk.dims[dim] && column + threadIdx.x < walk.dims[last])
            y[to + (line + i) * dense_dim + column + threadIdx.x] = tile[threadIdx.x][i];
}

/* The dimension that lies dense in x when the innermost does not; the rank when there is none worth
 * a transposition. */
static uint32_t dense_dim(const FgWalk *walk)
{
    uint32_t last = walk->rank - 1;
    if (walk->strides[0][last] < 2 || walk->dims[last] < 8)
        return walk->rank;
    for (uint32_t i = 0; i < last; i++)
        if (walk->strides[0][i] == 1 && walk->dims[i] >= 8)
            return i;
    return walk->rank;
}

template <class Word>
static void copy_strided(FgRtCx *cx, cudaStream_t stream, const Word *x, Word *y, uint64_t n,
                         const FgWalk *walk)
{
    uint32_t last = walk->rank - 1, dim = dense_dim(walk);
    if (dim < walk->rank) {
        uint64_t lines = fg_ceil(walk->dims[dim], TILE);
        uint64_t others = n / (walk->dims[dim] * walk->dims[last]);
        if (lines <= 65535 && others <= 65535) {
            dim3 grid((unsigned)fg_ceil(walk->dims[last], TILE), (unsigned)lines, (unsigned)others);
            transpose_kernel<Word><<<grid, dim3(TILE, TILE_LINES), 0, stream>>>(x, y, *walk, dim);
            fg_launched(cx);
            return;
        }
    }
    bool wide = fg_walk_is_wide(walk, 1, Words<Word>::N) && fg_aligned(x) && fg_aligned(y);
    uint64_t packs = wide ? n / Words<Word>::N : n;
    bool small = n <= UINT32_MAX;
    auto *kernel =
        wide ? (small ? strided_kernel<Word, true, uint32_t> : strided_kernel<Word, true, uint64_t>)
             : (small ? strided_kernel<Word, false, uint32_t>
                      : strided_kernel<Word, false, uint64_t>);
    kernel<<<fg_blocks(cx, packs, THREADS, 32), THREADS, 0, stream>>>(x, y, *walk, packs);
    fg_launched(cx);
}

void fg_cuda_copy_strided(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                          uint64_t n_x, uint64_t n, uint64_t layout, uint64_t dt)
{
    (void)node;
    (void)n_x; /* the effects need it */
    FgWalk walk;
    if (n == 0 || !fg_walk_read(cx, layout, 1, &walk))
        return;
    const void *from = fg_cuda_at(cx, x);
    void *to = fg_cuda_at(cx, y);
    switch (fg_dtype_bytes(dt)) {
    case 2:
        copy_strided<uint16_t>(cx, stream, (const uint16_t *)from, (uint16_t *)to, n, &walk);
        break;
    case 4:
        copy_strided<uint32_t>(cx, stream, (const uint32_t *)from, (uint32_t *)to, n, &walk);
        break;
    default:
        copy_strided<uint64_t>(cx, stream, (const uint64_t *)from, (uint64_t *)to, n, &walk);
        break;
    }
}

/* ---- lines put together and cut ----
 * y is [lines, width]. Entry (line, place) is a[line * a_width + place + a_from] where place <
 * border_high and place >= border_low; b[line * b_width + place - border_high] from border_high on,
 * where there is a b; zero elsewhere. All counts in words. */
typedef struct Lines {
    uint64_t lines, width, a_width, low, high, b_width;
    int64_t a_from;
    const void *a, *b;
    void *y;
} Lines;

template <class Word, class Index>
__global__ void __launch_bounds__(THREADS) lines_kernel(Lines l, uint64_t n)
{
    const Word *a = (const Word *)l.a, *b = (const Word *)l.b;
    Word *y = (Word *)l.y;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * THREADS) {
        Index line = (Index)i / (Index)l.width;
        uint64_t place = (Index)i - line * (Index)l.width;
        Word value = {};
        if (place >= l.low && place < l.high)
            value = a[(int64_t)(line * l.a_width + place) + l.a_from];
        else if (b && place >= l.high)
            value = b[line * l.b_width + place - l.high];
        y[i] = value;
    }
}

template <class Word> static void move_as(FgRtCx *cx, cudaStream_t stream, const Lines *l)
{
    uint64_t n = l->lines * l->width;
    unsigned blocks = fg_blocks(cx, n, THREADS, 32);
    if (n <= UINT32_MAX)
        lines_kernel<Word, uint32_t><<<blocks, THREADS, 0, stream>>>(*l, n);
    else
        lines_kernel<Word, uint64_t><<<blocks, THREADS, 0, stream>>>(*l, n);
    fg_launched(cx);
}

/* Widths come in bytes; the largest word that divides them all and the addresses is used. */
static void move_lines(FgRtCx *cx, cudaStream_t stream, Lines l)
{
    uint64_t all = l.width | l.a_width | l.low | l.high | l.b_width | (uint64_t)l.a_from |
                   (uintptr_t)l.a | (uintptr_t)l.b | (uintptr_t)l.y;
    if (l.lines == 0 || l.width == 0)
        return;
    uint64_t word = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 2;
    l.width /= word;
    l.a_width /= word;
    l.low /= word;
    l.high /= word;
    l.b_width /= word;
    l.a_from /= (int64_t)word;
    if (word == 16)
        move_as<uint4>(cx, stream, &l);
    else if (word == 8)
        move_as<uint64_t>(cx, stream, &l);
    else if (word == 4)
        move_as<uint32_t>(cx, stream, &l);
    else
        move_as<uint16_t>(cx, stream, &l);
}

void fg_cuda_slice(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t y,
                   uint64_t outer, uint64_t dim, uint64_t inner, uint64_t start, uint64_t count,
                   uint64_t dt)
{
    (void)node;
    uint64_t size = fg_dtype_bytes(dt) * inner;
    Lines l = {outer,
               count * size,
               dim * size,
               0,
               count * size,
               0,
               (int64_t)(start * size),
               fg_cuda_at(cx, x),
               NULL,
               fg_cuda_at(cx, y)};
    move_lines(cx, stream, l);
}

void fg_cuda_slice_back(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t dy, uint64_t dx,
                        uint64_t outer, uint64_t dim, uint64_t inner, uint64_t start,
                        uint64_t count, uint64_t dt)
{
    (void)node;
    uint64_t size = fg_dtype_bytes(dt) * inner;
    Lines l = {outer,
               dim * size,
               count * size,
               start * size,
               (start + count) * size,
               0,
               -(int64_t)(start * size),
               fg_cuda_at(cx, dy),
               NULL,
               fg_cuda_at(cx, dx)};
    move_lines(cx, stream, l);
}

void fg_cuda_concat(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t a, uint64_t b,
                    uint64_t y, uint64_t outer, uint64_t dim_a, uint64_t dim_b, uint64_t inner,
                    uint64_t dt)
{
    (void)node;
    uint64_t size = fg_dtype_bytes(dt) * inner;
    Lines l = {outer,
               (dim_a + dim_b) * size,
               dim_a * size,
               0,
               dim_a * size,
               dim_b * size,
               0,
               fg_cuda_at(cx, a),
               fg_cuda_at(cx, b),
               fg_cuda_at(cx, y)};
    move_lines(cx, stream, l);
}
