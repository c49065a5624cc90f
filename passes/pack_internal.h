/* Internal to passes/pack*.c: the problem in sections.
 *
 * A *section* is a maximal set of spans that meet at one moment; others add nothing. Time is
 * counted in sections from here on, and a span covers sections [from, to). Sections between which
 * no item crosses divide the problem into *parts* that share nothing. */
#ifndef FG_PASSES_PACK_INTERNAL_H
#define FG_PASSES_PACK_INTERNAL_H

#include "passes/pack.h"

typedef struct FgPackReach {
    uint32_t from, to; /* sections, half open */
    int64_t low, high;
} FgPackReach;

typedef struct FgPackPart {
    uint32_t from, to; /* sections, half open */
    uint32_t first, n; /* item ids: FgPackModel.by_part[first .. first + n) */
} FgPackPart;

typedef struct FgPackModel {
    const FgPackItem *items;
    uint32_t n;
    FgPackReach *reaches; /* parallel to the problem's spans */
    int64_t *load;        /* section -> bytes in use */
    uint32_t n_sections;
    bool windows;      /* some span uses a part of its item only */
    uint32_t *by_part; /* items, part by part */
    FgPackPart *parts;
    uint32_t n_parts;
    int64_t bound; /* the largest load, or an item's size */
} FgPackModel;

FgPackModel *fg_pack_model(FgArena *arena, const FgPackProblem *problem);

/* First and last section of an item, half open. */
static inline FgPackReach fg_pack_hull(const FgPackModel *m, uint32_t item)
{
    const FgPackItem *x = &m->items[item];
    const FgPackReach *r = &m->reaches[x->span];
    return (FgPackReach){r[0].from, r[x->n_spans - 1].to, 0, x->bytes};
}

/* Of items one of which has several spans. */
bool fg_pack_distance_of_spans(const FgPackModel *m, uint32_t lower, uint32_t upper, int64_t *out);

/* How far `upper` must be above `lower` when it is the upper one: false when they never meet. */
static inline bool fg_pack_distance(const FgPackModel *m, uint32_t lower, uint32_t upper,
                                    int64_t *out)
{
    const FgPackItem *x = &m->items[lower], *y = &m->items[upper];
    if (x->n_spans + y->n_spans > 2)
        return fg_pack_distance_of_spans(m, lower, upper, out);
    const FgPackReach *a = &m->reaches[x->span], *b = &m->reaches[y->span];
    *out = a->high - b->low;
    return a->from < b->to && b->from < a->to;
}

static inline int64_t fg_pack_align(int64_t x, int64_t align)
{
    return align == 1 ? x : (x + align - 1) / align * align;
}

/* ---- pack_fit.c: first fit ---- */
/* Several orders, the best repaired, at most `rounds` placements of all items; stops at `goal`.
 * Offsets of the best into out_offsets; returns its height. */
int64_t fg_pack_fit(FgArena *scratch, const FgPackModel *m, uint32_t rounds, int64_t goal,
                    int64_t *out_offsets);

/* First fit in a given order of all items; returns the height. */
int64_t fg_pack_fit_order(FgArena *scratch, const FgPackModel *m, const uint32_t *order,
                          int64_t *out_offsets);

/* ---- pack_blocks.c: items that live about as long as one ---- */
/* Improves a placement of that height, `offsets`, until it is not above the goal or all ways to
 * make blocks were tried; returns its height. `steps`: what exact search of all items may take,
 * of which this takes parts. */
int64_t fg_pack_blocks(FgArena *scratch, const FgPackModel *m, uint64_t steps, int64_t goal,
                       int64_t height, int64_t *offsets);
/* fg_pack without blocks. */
FgPackResult fg_pack_plainly(FgArena *scratch, FgPackProblem *problem, const FgPackEffort *effort);

/* ---- pack_search.c: exact search ---- */
typedef enum FgPackVerdict { FG_PACK_FOUND, FG_PACK_NONE, FG_PACK_GAVE_UP } FgPackVerdict;
typedef struct FgPackSearch FgPackSearch;
/* What all questions about a part need; NULL where it is too large for exact search. */
FgPackSearch *fg_pack_search_new(FgArena *arena, const FgPackModel *m, const FgPackPart *part);
/* A placement of the part that is not higher than `capacity`, offsets of its items in
 * out_offsets. *left: steps allowed; what was taken is subtracted. */
FgPackVerdict fg_pack_search(FgPackSearch *search, int64_t capacity, uint64_t *left,
                             int64_t *out_offsets);

#endif
