/* Growth of the vectors: doubling, in a new block of the arena. The old block stays behind until
 * the arena goes, which costs at most as much again as the final array. */
#include "base/vec.h"

#include "base/diag.h"

#include <string.h>

void *fg_vec_grow(FgArena *arena, void *data, uint32_t len, uint32_t *cap, size_t size)
{
    if (len < *cap)
        return data;
    if (*cap > UINT32_MAX / 2)
        FG_BUG("a vector of more than %u elements", *cap);
    uint32_t wider = *cap ? *cap * 2 : 8;
    void *copy = fg_arena_alloc_array(arena, wider, size);
    if (len)
        memcpy(copy, data, (size_t)len * size);
    *cap = wider;
    return copy;
}
