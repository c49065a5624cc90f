/* What happens to a bucket's gradient: zeroed gaps, AdamW on the owned slice, which may sum the
 * ranks' parts of it, and add the squares to the norm, as it reads them.
 *
 * A rank owns a slice of a bucket, and that slice holds pieces of parameters with gaps between
 * them (segments.cu). Blocks take equal shares of the slice and walk the pieces in theirs. */
#include "runtime/cuda/kernels/adamw.cuh"
#include "runtime/cuda/kernels/async.cuh"

enum { THREADS = 256, MOST_THREADS = 1024 };

/* ---- gradient buffers ---- */

template <class Word>
__global__ void __launch_bounds__(THREADS) gaps_kernel(Word *buffer, FgCudaSpan gaps)
{
    for (uint32_t i = blockIdx.y; i < gaps.n; i += gridDim.y) {
        FgCudaPiece gap = gaps.at[i];
        for (uint64_t at = gap.begin + (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < gap.end;
             at += (uint64_t)gridDim.x * THREADS)
            buffer[at] = 0;
    }
}

void fg_cuda_grad_buffer(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t buffer,
                         uint64_t bucket, uint64_t elements, uint64_t wire)
{
    (void)node;
    FgCudaSpan gaps = fg_cuda_gaps(cx, bucket, elements);
    if (gaps.n == 0)
        return;
    void *to = fg_cuda_at(cx, buffer);
    dim3 grid(8, gaps.n < 1024 ? gaps.n : 1024);
    if (fg_dtype_bytes(wire) == 2)
        gaps_kernel<uint16_t><<<grid, THREADS, 0, stream>>>((uint16_t *)to, gaps);
    else
        gaps_kernel<uint32_t><<<grid, THREADS, 0, stream>>>((uint32_t *)to, gaps);
    fg_launched(cx);
}

/* ---- AdamW ---- */

/* norm: where the squares of the gradient are added on the way, with NORM. */
template <bool NORM, bool PARTS, class G, class S, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    adamw_kernel(AdamWArrays<G, S> a, const float *set, bool factored, unsigned long long *norm,
                 FgCudaSpan pieces, uint64_t first, uint64_t elements, bool wide)
{
    const int V = 4;
    __shared__ Limbs limbs;
    WarpSquares<G> squares;
    if (set[FG_RT_S_VALID] == 0)
        return;
    if constexpr (NORM) {
        limbs_clear(&limbs);
        squares.begin();
    }
    AdamW s = adamw_scalars(set, factored);
    FgShare share = fg_block_share(elements, BLOCK * V); /* of the part, then of the slice */
    share.begin += first;
    share.end += first;
    unsigned lane = threadIdx.x % 32;
    fg_each_piece(pieces, share, [&](uint64_t begin, uint64_t end, bool decay) {
        float keep = decay ? s.keep : 1.0f;
        /* The same number of turns for all lanes of a warp. */
        for (uint64_t at = (begin / V + threadIdx.x - lane) * V; at < end; at += BLOCK * V) {
            float g[1][V];
            adamw_four<PARTS>(a, s, keep, at + lane * V, begin, end, wide, g[0]);
            if constexpr (NORM)
                squares.add(&limbs, g);
        }
    });
    if constexpr (NORM) {
        squares.window.flush(&limbs);
        limbs_add_to(&limbs, norm);
    }
}

/* ---- AdamW of a large slice, through shared memory ----
 * The memory's rate takes some 5 MB under way at once. Registers hold 64 KB of it a multiprocessor:
 * two thirds of the multiprocessors would have to work at it, beside products that want them.
 * Copies into shared memory hold three times as much, so that a third is enough. Each thread has a
 * place of its own in each stage and reads only what it has asked for itself: nobody waits for
 * another thread. */
enum { STAGES = 3 };

/* A stage: three states of four elements a thread, then PARTS gradients. */
template <int PARTS, class G> struct Stage {
    float4 w[MOST_THREADS], m[MOST_THREADS], v[MOST_THREADS];
    struct Four {
        G x[4];
    } __align__(4 * sizeof(G)) grad[PARTS][MOST_THREADS];

    template <class S> __device__ __forceinline__ void ask(const AdamWArrays<G, S> &a, uint64_t at)
    {
        unsigned t = threadIdx.x;
        fg_copy_async<16>(&w[t], a.w + at);
        fg_copy_async<16>(&m[t], a.m + at);
        fg_copy_async<16>(&v[t], a.v + at);
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            fg_copy_async<4 * sizeof(G)>(&grad[p][t], a.grad + p * a.part + at);
    }

    template <class S>
    __device__ __forceinline__ void update(const AdamWArrays<G, S> &a, const AdamW &s, float keep,
                                           uint64_t at, float (&g)[4]) const
    {
        unsigned t = threadIdx.x;
        float ws[4], ms[4], vs[4];
        fg_load<4>(&w[t].x, ws);
        fg_load<4>(&m[t].x, ms);
        fg_load<4>(&v[t].x, vs);
        fg_load<4>(grad[0][t].x, g);
        if constexpr (PARTS == 2) {
            float more[4];
            fg_load<4>(grad[1][t].x, more);
#pragma unroll
            for (int j = 0; j < 4; j++)
                g[j] = __fadd_rn(g[j], more[j]);
            round_sum<4, G>(g);
        }
        adamw_update(a, s, keep, at, g, ws, ms, vs);
    }
};

/* adamw_kernel for gradients of 16 bits in one part or two, all arrays aligned. */
template <bool NORM, int PARTS, class G, class S>
__global__ void __launch_bounds__(MOST_THREADS)
    staged_kernel(AdamWArrays<G, S> a, const float *set, bool factored, unsigned long long *norm,
                  FgCudaSpan pieces, uint64_t first, uint64_t elements)
{
    const uint64_t TURN = MOST_THREADS * 4;
    extern __shared__ __align__(16) unsigned char shared[];
    Stage<PARTS, G> *stages = reinterpret_cast<Stage<PARTS, G> *>(shared);
    __shared__ Limbs limbs;
    WarpSquares<G> squares;
    if (set[FG_RT_S_VALID] == 0)
        return;
    if constexpr (NORM) {
        limbs_clear(&limbs);
        squares.begin();
    }
    AdamW s = adamw_scalars(set, factored);
    FgShare share = fg_block_share(elements, TURN);
    share.begin += first;
    share.end += first;
    unsigned lane = threadIdx.x % 32;
    fg_each_piece(pieces, share, [&](uint64_t begin, uint64_t end, bool decay) {
        float keep = decay ? s.keep : 1.0f;
        uint64_t at = begin / 4 * 4 + threadIdx.x * 4; /* this thread's; ends are not whole fours */
        auto whole = [&](uint64_t x) { return x >= begin && x + 4 <= end; };
        for (int k = 0; k < STAGES; k++) {
            if (whole(at + k * TURN))
                stages[k].ask(a, at + k * TURN);
            fg_copies_close();
        }
        /* The same number of turns for all lanes of a warp. */
        for (int k = 0; at - lane * 4 < end; at += TURN, k = k + 1 == STAGES ? 0 : k + 1) {
            float g[1][4];
            fg_copies_await<STAGES - 1>();
            if (whole(at))
                stages[k].update(a, s, keep, at, g[0]);
            else
                adamw_four<PARTS == 2>(a, s, keep, at, begin, end, false, g[0]);
            if (whole(at + STAGES * TURN)) /* behind the update, which has read the place */
                stages[k].ask(a, at + STAGES * TURN);
            fg_copies_close();
            if constexpr (NORM)
                squares.add(&limbs, g);
        }
    });
    if constexpr (NORM) {
        squares.window.flush(&limbs);
        limbs_add_to(&limbs, norm);
    }
}

/* An array that holds elements `first` and on of the slice, as if it began with the slice. */
template <class T> static T *before(FgRtCx *cx, uint64_t offset, uint64_t first)
{
    return (T *)((uintptr_t)fg_cuda_at(cx, offset) - first * sizeof(T));
}

/* What an update works on: arrays of the elements `first` to first + elements of the slice. */
typedef struct Update {
    uint64_t grad, master, moment1, moment2, shard, norm, scalars;
    uint64_t first, elements, grad_dt, dt, set;
    uint32_t n_parts; /* of the gradient; 1: it is the sum */
} Update;

/* A kernel that keeps its multiprocessors to itself: one block each, by shared memory of which it
 * may use a part. */
template <class Kernel, class... Args>
static void launch_alone(FgRtCx *cx, cudaStream_t stream, Kernel *kernel, unsigned blocks,
                         Args... args)
{
    size_t room = (size_t)cx->shared_bytes - 4096; /* the rest: the norm's limbs */
    fg_cuda_check(
        cx, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room),
        "cudaFuncSetAttribute");
    kernel<<<blocks, MOST_THREADS, room, stream>>>(args...);
}

/* An update runs beside products, and both are slow where they share a multiprocessor: blocks of
 * small products wait until the last block of the update has gone. A large one therefore has some
 * for itself, as many as the memory's rate takes: three eighths with stages in shared memory, two
 * thirds with registers alone. */
template <bool NORM, bool PARTS, class G, class S>
static void launch(FgRtCx *cx, cudaStream_t stream, const Update &u, const AdamWArrays<G, S> &a,
                   FgCudaSpan pieces)
{
    const float *set = (const float *)fg_cuda_at(cx, u.scalars) + u.set * FG_RT_SET;
    bool factored = cx->program->clip > 0 || cx->program->scales_loss;
    bool wide = fg_aligned(a.grad) && fg_aligned(a.w) && fg_aligned(a.m) && fg_aligned(a.v) &&
                fg_aligned(a.shard) && a.part % 8 == 0;
    unsigned long long *norm = NORM ? (unsigned long long *)fg_cuda_at(cx, u.norm) : NULL;
    unsigned all = (unsigned)cx->n_sm, few = (all * 3 + 7) / 8, more = (all * 2 + 2) / 3;
    if (u.elements < (uint64_t)more * MOST_THREADS * 16) {
        adamw_kernel<NORM, PARTS, G, S, THREADS>
            <<<fg_blocks(cx, u.elements, THREADS * 4, 16), THREADS, 0, stream>>>(
                a, set, factored, norm, pieces, u.first, u.elements, wide);
        return;
    }
    if constexpr (sizeof(G) == 2 && sizeof(S) == 2) {
        const int PER = PARTS ? 2 : 1;
        if (wide && u.n_parts == PER &&
            (size_t)cx->shared_bytes >= 4096 + STAGES * sizeof(Stage<PER, G>)) {
            launch_alone(cx, stream, staged_kernel<NORM, PER, G, S>, few, a, set, factored, norm,
                         pieces, u.first, u.elements);
            return;
        }
    }
    launch_alone(cx, stream, adamw_kernel<NORM, PARTS, G, S, MOST_THREADS>, more, a, set, factored,
                 norm, pieces, u.first, u.elements, wide);
}

template <bool PARTS>
static void update(FgRtCx *cx, cudaStream_t stream, const Update &u, FgCudaSpan pieces)
{
    if (pieces.n == 0)
        return;
    if (u.master == FG_RT_NONE && u.dt != FG_RT_F32) {
        fg_cuda_raise(cx, "a shard that is not f32 has no master weights");
        return;
    }
    fg_with_floats(cx, u.grad_dt, u.dt, [&](auto g, auto s) {
        typedef decltype(g) G;
        typedef decltype(s) S;
        uint64_t weights = u.master == FG_RT_NONE ? u.shard : u.master;
        AdamWArrays<G, S> a = {before<const G>(cx, u.grad, u.first),
                               before<float>(cx, weights, u.first),
                               before<float>(cx, u.moment1, u.first),
                               before<float>(cx, u.moment2, u.first),
                               u.master == FG_RT_NONE ? NULL : before<S>(cx, u.shard, u.first),
                               u.elements,
                               u.n_parts};
        if (u.norm == FG_RT_NONE)
            launch<false, PARTS>(cx, stream, u, a, pieces);
        else
            launch<true, PARTS>(cx, stream, u, a, pieces);
    });
    fg_launched(cx);
}

void fg_cuda_adamw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad, uint64_t master,
                   uint64_t moment1, uint64_t moment2, uint64_t shard, uint64_t norm,
                   uint64_t scalars, uint64_t bucket, uint64_t elements, uint64_t grad_dt,
                   uint64_t dt, uint64_t set)
{
    (void)node;
    Update u = {grad, master,   moment1, moment2, shard, norm, scalars,
                0,    elements, grad_dt, dt,      set,   1};
    update<false>(cx, stream, u, fg_cuda_pieces(cx, bucket, elements));
}

/* Where no slice of a parameter is the rank's, the norm begins all the same. */
void fg_cuda_adamw_parts(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t parts,
                         uint64_t master, uint64_t moment1, uint64_t moment2, uint64_t shard,
                         uint64_t norm, uint64_t scalars, uint64_t bucket, uint64_t elements,
                         uint64_t part_dt, uint64_t dt, uint64_t adds)
{
    (void)node;
    uint32_t n = cx->program->ranks;
    FgCudaSpan pieces = fg_cuda_pieces(cx, bucket, elements);
    Update u = {parts, master,   moment1, moment2, shard,         norm, scalars,
                0,     elements, part_dt, dt,      FG_RT_CURRENT, n};
    if (norm != FG_RT_NONE && !adds)
        fg_cuda_check(
            cx,
            cudaMemsetAsync(fg_cuda_at(cx, norm), 0, FG_RT_NORM_LIMBS * sizeof(int64_t), stream),
            "cudaMemsetAsync");
    if (n > 1)
        update<true>(cx, stream, u, pieces);
    else
        update<false>(cx, stream, u, pieces);
}

void fg_cuda_adamw_part(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t grad,
                        uint64_t master, uint64_t moment1, uint64_t moment2, uint64_t shard,
                        uint64_t scalars, uint64_t bucket, uint64_t first, uint64_t elements,
                        uint64_t grad_dt, uint64_t dt, uint64_t set)
{
    (void)node;
    const FgRtProgram *program = cx->program;
    uint64_t slice =
        bucket < program->n_buckets ? program->buckets[bucket].elements / program->ranks : 0;
    if (first > slice || elements > slice - first) {
        fg_cuda_raise(cx, "elements %llu and on are not in the slice of bucket %llu",
                      (unsigned long long)first, (unsigned long long)bucket);
        return;
    }
    Update u = {grad,  master,   moment1, moment2, shard, FG_RT_NONE, scalars,
                first, elements, grad_dt, dt,      set,   1};
    update<false>(cx, stream, u, fg_cuda_pieces(cx, bucket, slice));
}
