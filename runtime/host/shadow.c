/* Segments in one sorted vector: a plan has a few hundred live buffers, so moving its tail costs
 * less than a tree. */
#include "runtime/host/shadow.h"

#include <stdlib.h>
#include <string.h>

bool fg_shadow_open(FgShadow *shadow, uint64_t bytes)
{
    *shadow = (FgShadow){calloc(64, sizeof *shadow->segments), 1, 64, bytes};
    return shadow->segments != NULL;
}

void fg_shadow_close(FgShadow *shadow)
{
    free(shadow->segments);
    *shadow = (FgShadow){0};
}

/* The segment that holds a byte. */
static size_t find(const FgShadow *shadow, uint64_t byte)
{
    size_t low = 0, high = shadow->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (shadow->segments[middle].begin <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Makes a segment begin at `byte` (< bytes) and returns its index; n when byte is the end. */
static bool split(FgShadow *shadow, uint64_t byte, size_t *index)
{
    *index = shadow->n;
    if (byte >= shadow->bytes)
        return true;
    size_t at = find(shadow, byte);
    if (shadow->segments[at].begin == byte) {
        *index = at;
        return true;
    }
    if (shadow->n == shadow->capacity) {
        size_t capacity = 2 * shadow->capacity;
        FgSegment *grown = realloc(shadow->segments, capacity * sizeof *grown);
        if (!grown)
            return false;
        shadow->segments = grown;
        shadow->capacity = capacity;
    }
    FgSegment *segment = shadow->segments + at;
    memmove(segment + 1, segment, (shadow->n - at) * sizeof *segment);
    segment[1].begin = byte;
    shadow->n++;
    *index = at + 1;
    return true;
}

FgSegment *fg_shadow_range(FgShadow *shadow, uint64_t begin, uint64_t end, size_t *n)
{
    size_t first, last;
    if (!split(shadow, begin, &first) || !split(shadow, end, &last))
        return NULL;
    *n = last - first;
    return shadow->segments + first;
}

bool fg_shadow_write(FgShadow *shadow, uint64_t begin, uint64_t end, FgSegmentState state,
                     FgAccess write)
{
    size_t n;
    FgSegment *segment = fg_shadow_range(shadow, begin, end, &n);
    if (!segment)
        return false;
    *segment = (FgSegment){
        .begin = begin, .state = state, .write_begin = begin, .write_end = end, .write = write};
    size_t after = (size_t)(shadow->segments + shadow->n - (segment + n));
    memmove(segment + 1, segment + n, after * sizeof *segment);
    shadow->n -= n - 1;
    return true;
}
