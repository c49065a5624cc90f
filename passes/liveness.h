/* Circular liveness of a module with an issue order: which bytes are live at which position.
 *
 * The timeline is one period (`step`, or `first` `middle` `last`; `middle` stands once, for all its
 * repetitions), followed by every other function (`init`, `prologue`, `flush`), one position a
 * node. Nodes of all streams count: the issue order is total. A value that lives across the cut
 * between two periods also lives through the functions that run there. */
#ifndef FG_PASSES_LIVENESS_H
#define FG_PASSES_LIVENESS_H

#include "ir/ir.h"

/* One stretch in which a root value's memory is in use. A value with one fresh write a period has
 * one interval; a buffer that is written afresh several times a period has one for each. */
typedef struct FgInterval {
    uint32_t value;      /* a root */
    uint64_t bytes;      /* of its type */
    uint32_t begin, end; /* positions, inclusive; end < begin: from begin to the timeline's end, and
                            from 0 to end */
} FgInterval;

typedef FG_VEC(FgInterval) FgIntervalVec;

/* Intervals of everything that lives and dies: results of nodes, and states without a fixed place:
 * gradient shards, carried copies of buckets, and whatever state stands at or above state_bytes.
 * Needs no offsets. Sorted by begin, then value. `out` is overwritten and grows in `arena`. */
void fg_intervals(FgArena *arena, const FgModule *sched, FgIntervalVec *out,
                  uint32_t *out_timeline_len);

/* Those of `all` that lie in host memory, or those that do not. */
FgIntervalVec fg_intervals_in(FgArena *arena, const FgModule *sched, const FgIntervalVec *all,
                              bool host);

/* Most bytes live at once over the intervals, and the first position where that is. */
uint64_t fg_intervals_peak(FgArena *arena, const FgIntervalVec *intervals, uint32_t timeline_len,
                           uint32_t *out_position);

/* Node ids by position; arena-owned. */
FgIdVec fg_timeline(FgArena *arena, const FgModule *sched);

/* Where a node belongs, for people: "layers.15" of "layers.15.q_proj" in layer 15; the whole name
 * outside layers. Arena-owned, or the node's. */
const char *fg_node_place(FgArena *arena, const FgNode *node);

#endif
