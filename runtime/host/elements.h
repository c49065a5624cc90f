/* Elements of the storage types, read and written as f32.
 *
 * Kernels work on chunks: fg_load gives a chunk as f32 (in place when it is f32 already, else
 * converted into scratch), fg_dest says where to compute a result chunk, fg_store rounds it into
 * place (once, to nearest even). A kernel whose result may be its operand's memory needs no more
 * care than to finish reading a chunk before it stores it. */
#ifndef FG_RUNTIME_HOST_ELEMENTS_H
#define FG_RUNTIME_HOST_ELEMENTS_H

#include "runtime/dtype.h"
#include "runtime/host/cx.h"

#define FG_CHUNK 512 /* elements; scratch of this size lies on the stack */

static inline uint64_t fg_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* `n` elements from index `first` of an f32, bf16 or f16 array. `scratch` holds n floats. */
const float *fg_load(const void *base, uint64_t dt, uint64_t first, uint64_t n, float *scratch);
static inline float *fg_dest(void *base, uint64_t dt, uint64_t first, float *scratch)
{
    return dt == FG_RT_F32 ? (float *)base + first : scratch;
}
/* Nothing to do where `values` came from fg_dest of an f32 array. */
void fg_store(void *base, uint64_t dt, uint64_t first, uint64_t n, const float *values);
/* Stores old value + value where accumulate is set, rounded once. n <= FG_CHUNK. */
void fg_store_sum(void *base, uint64_t dt, uint64_t first, uint64_t n, const float *values,
                  bool accumulate);

static inline float fg_load_one(const void *base, uint64_t dt, uint64_t index)
{
    float scratch;
    return *fg_load(base, dt, index, 1, &scratch);
}

static inline void fg_store_one(void *base, uint64_t dt, uint64_t index, float value)
{
    fg_store(base, dt, index, 1, &value);
}

#endif
