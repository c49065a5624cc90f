/* Strided access: a layout of FgRtProgram by value, as kernels take it. */
#ifndef FG_RUNTIME_CUDA_KERNELS_LAYOUT_CUH
#define FG_RUNTIME_CUDA_KERNELS_LAYOUT_CUH

#include <type_traits>

#include "runtime/cuda/kernels/common.cuh"

enum { FG_WALK_RANK = 8 };

typedef struct FgWalk {
    uint32_t rank; /* at least 1 */
    uint64_t dims[FG_WALK_RANK];
    uint64_t strides[2][FG_WALK_RANK]; /* elements, by operand */
} FgWalk;

/* The layout at an index of FgRtProgram.layouts with `operands` sets of strides (1 or 2):
 * dimensions of one element dropped, neighbours merged where all operands step through them evenly.
 * false: raised (also when more than FG_WALK_RANK dimensions remain). */
bool fg_walk_read(FgRtCx *cx, uint64_t index, uint32_t operands, FgWalk *out);

/* Whether the innermost dimension of every operand can be read V elements at a time (or is
 * repeated), at addresses aligned to them. */
bool fg_walk_is_wide(const FgWalk *walk, uint32_t operands, uint64_t v);

/* Elements of both operands at pack i (of V elements along the innermost dimension). */
template <int V, class Index>
__device__ inline void fg_walk_at(const FgWalk &walk, uint64_t i, uint64_t *a, uint64_t *b)
{
    Index rest = (Index)i;
    uint64_t at_a = 0, at_b = 0;
#pragma unroll
    for (int d = FG_WALK_RANK - 1; d > 0; d--) {
        if (d >= (int)walk.rank)
            continue;
        bool inner = d == (int)walk.rank - 1;
        Index dim = (Index)walk.dims[d] / (inner ? V : 1);
        Index next = rest / dim, place = rest - next * dim;
        uint64_t step = (uint64_t)place * (inner ? V : 1);
        at_a += step * walk.strides[0][d];
        at_b += step * walk.strides[1][d];
        rest = next;
    }
    uint64_t step = (uint64_t)rest * (walk.rank == 1 ? V : 1);
    *a = at_a + step * walk.strides[0][0];
    *b = at_b + step * walk.strides[1][0];
}

#endif
