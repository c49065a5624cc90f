/* Packing: items with lifetimes and sizes get addresses in one arena.
 *
 * An item is a piece of memory; its *spans* say when which bytes of it are in use. Mostly one span
 * covers all bytes; an item that lives round a period's cut has two, one with pauses has several.
 * Spans of one item do not overlap in time. Two items conflict where spans of both meet in time
 * and bytes; a placement lays one of them wholly above the other: whatever they share in time, the
 * upper one's first used byte is not below the lower one's last.
 *
 * Sizes and offsets are in bytes, or in any unit; the sum of all sizes (each rounded up to its
 * alignment) must stay below 2^60. Times are any numbers; only their order counts. */
#ifndef FG_PASSES_PACK_H
#define FG_PASSES_PACK_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

#define FG_PACK_MOST ((int64_t)1 << 60)

typedef struct FgPackSpan {
    int64_t from, to;  /* time, half open, from < to */
    int64_t low, high; /* bytes of the item in use then, 0 <= low < high <= its bytes */
} FgPackSpan;

typedef struct FgPackItem {
    int64_t bytes;          /* > 0 */
    int64_t align;          /* > 0; offsets are multiples of it */
    uint32_t span, n_spans; /* spans[span .. span + n_spans), in time; at least one */
    int64_t offset;         /* out */
} FgPackItem;

typedef struct FgPackProblem {
    FgPackItem *items;
    const FgPackSpan *spans;
    uint32_t n;
} FgPackProblem;

typedef struct FgPackEffort {
    uint32_t rounds;  /* placements by first fit, at least 1 */
    uint64_t steps;   /* steps of the exact search, all capacities together; 0: none */
    int64_t capacity; /* stop at the first placement not higher; 0: seek the lowest */
} FgPackEffort;

typedef struct FgPackResult {
    int64_t height;      /* of the placement found: the largest offset + bytes */
    int64_t lower_bound; /* no placement is lower: most bytes in use at once, or more where the
                            search proved it */
    uint64_t steps;      /* of the exact search, taken */
} FgPackResult;

/* Places all items: offsets in `problem->items`. Deterministic: the same problem and effort give
 * the same offsets on every machine. */
FgPackResult fg_pack(FgArena *scratch, FgPackProblem *problem, const FgPackEffort *effort);

#endif
