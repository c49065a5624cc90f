/* What is known of every byte of a rank's memory: who wrote it last, who has read it since, and
 * whether it may be read.
 *
 * Kept as disjoint segments that cover the memory; a range is split out of them on access and
 * joined again on write. */
#ifndef FG_RUNTIME_HOST_SHADOW_H
#define FG_RUNTIME_HOST_SHADOW_H

#include "runtime/host/cx.h"

/* One call's access: the tick of its stream's clock. Tick 0: none, or before all streams. */
typedef struct FgAccess {
    uint64_t tick;
    uint32_t node, stream;
    const char *call;
} FgAccess;

typedef enum FgSegmentState {
    FG_SEGMENT_EMPTY, /* never written */
    FG_SEGMENT_WRITTEN,
    FG_SEGMENT_RELEASED,
    FG_SEGMENT_SCRATCH /* a workspace, after its call */
} FgSegmentState;

typedef struct FgSegment {
    uint64_t begin; /* it ends where the next begins */
    FgSegmentState state;
    uint64_t write_begin, write_end; /* the whole range that the last write covered */
    FgAccess write, release;
    FgAccess reads[FG_RT_N_STREAMS]; /* since the last write, the latest of each stream */
} FgSegment;

typedef struct FgShadow {
    FgSegment *segments;
    size_t n, capacity;
    uint64_t bytes;
} FgShadow;

bool fg_shadow_open(FgShadow *shadow, uint64_t bytes);
void fg_shadow_close(FgShadow *shadow);
/* The segments of exactly [begin, end), begin < end <= bytes; valid until the next call. NULL: out
 * of memory. */
FgSegment *fg_shadow_range(FgShadow *shadow, uint64_t begin, uint64_t end, size_t *n);
/* Makes [begin, end) one segment of this state, written by `write`; forgets all earlier accesses.
 */
bool fg_shadow_write(FgShadow *shadow, uint64_t begin, uint64_t end, FgSegmentState state,
                     FgAccess write);

#endif
