/* Strided access: the layouts of FgRtProgram and how a line of elements is read through one. */
#ifndef FG_RUNTIME_HOST_LAYOUT_H
#define FG_RUNTIME_HOST_LAYOUT_H

#include "runtime/host/elements.h"

/* [rank, dims..., strides of operand 0..., strides of operand 1...] */
typedef struct FgLayout {
    uint64_t rank;
    const int64_t *dims;
} FgLayout;

/* The layout at an index of FgRtProgram.layouts; `operands` sets of strides belong to it. false:
 * raised. */
bool fg_layout_read(FgRtCx *cx, uint64_t index, uint64_t operands, FgLayout *out);

static inline uint64_t fg_layout_dim(const FgLayout *layout, uint64_t dim)
{
    return (uint64_t)layout->dims[dim];
}

static inline uint64_t fg_layout_stride(const FgLayout *layout, uint64_t operand, uint64_t dim)
{
    return (uint64_t)layout->dims[(operand + 1) * layout->rank + dim];
}

/* `n` elements, `stride` apart, as f32; in place where that is possible, else in scratch. */
const float *fg_load_strided(const void *base, uint64_t dt, uint64_t first, uint64_t stride,
                             uint64_t n, float *scratch);

#endif
