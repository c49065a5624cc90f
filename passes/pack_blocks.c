/* pack_blocks: items that live about as long are packed as one.
 *
 * What makes a placement hard for exact search is number: a model saves ten small values a layer
 * from forward to backward, and a hundred small decisions stand before the few that count. Small
 * items whose lives nearly agree are stacked to *blocks*, which live from the first of their begins
 * to the last of their ends; blocks and large items are placed by exact search. Then first fit
 * places the items themselves, in the order of addresses found: each sinks as far as it can, so
 * what a block wasted is mostly given back.
 *
 *   a   [--------)                 A block takes its bytes where one of its items is not there yet
 *   b     [-------)    block       or any more. It is made only where the load stays below the
 *       ..........                 height wanted, or a little above it.
 *
 * How much lives may differ, and how little is a little, is a trade between few blocks and loose
 * ones: several are tried, each with few steps. Deterministic, like all of packing. */
#include "passes/pack_internal.h"

#include <stdlib.h>
#include <string.h>

#define SMALL 64       /* of the bound, an n-th: a larger item is a block alone */
#define MOST_BYTES 32  /* of the bound, an n-th: of a block */
#define LOOK_BACK 64   /* blocks that an item may join: the last ones */
#define MOST_STEPS 16  /* of all steps, an n-th: for each way to make blocks */
#define BLOCK_ROUNDS 8 /* of first fit, for blocks */

typedef struct Way {
    uint32_t differ;    /* lives differ by no more than an n-th of both together */
    uint32_t thousands; /* of the height wanted: what the load may be above it */
} Way;

static const Way ways[] = {{8, 0}, {2, 0}, {4, 0}, {4, 15}, {2, 20}, {8, 10}};
#define N_WAYS (sizeof ways / sizeof *ways)

typedef struct Life {
    uint32_t from, to, item;
} Life;

typedef struct Blocks {
    const FgPackModel *m;
    FgPackProblem problem; /* of blocks */
    FgPackSpan *spans;
    uint32_t n_spans;
    uint32_t *block_of; /* item -> block */
    int64_t *load;      /* section -> bytes, as blocks take them */
    int64_t most;       /* that the load may become */
    uint32_t differ;
} Blocks;

static int by_begin(const void *a, const void *b)
{
    const Life *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to > y->to ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static Life *sort_by_begin(FgArena *scratch, const FgPackModel *m)
{
    Life *lives = FG_NEW_ARRAY(scratch, Life, m->n + 1);
    for (uint32_t i = 0; i < m->n; i++) {
        FgPackReach h = fg_pack_hull(m, i);
        lives[i] = (Life){h.from, h.to, i};
    }
    qsort(lives, m->n, sizeof *lives, by_begin);
    return lives;
}

/* Adds bytes to sections; returns whether the load there stays below its most. */
static bool add_load(Blocks *b, int64_t from, int64_t to, int64_t bytes)
{
    bool ok = true;
    for (int64_t s = from; s < to; s++) {
        b->load[s] += bytes;
        ok &= b->load[s] <= b->most;
    }
    return ok;
}

/* What a block and an item take together beyond what they take: the one that begins later, from
 * the other's begin; the one that ends earlier, to the other's end. Adds that to the load (sign 1)
 * or takes it away (-1). */
static bool widen(Blocks *b, const FgPackSpan *span, int64_t bytes, const Life *x, int64_t own,
                  int64_t sign)
{
    int64_t from = x->from, to = x->to;
    bool ok = from < span->from ? add_load(b, from, span->from, sign * bytes)
                                : add_load(b, span->from, from, sign * own);
    bool end = to > span->to ? add_load(b, span->to, to, sign * bytes)
                             : add_load(b, to, span->to, sign * own);
    return ok && end;
}

/* How much the lives of a block and an item differ; INT64_MAX where that is too much. */
static int64_t difference(const Blocks *b, const FgPackSpan *span, const Life *x)
{
    int64_t from = x->from < span->from ? x->from : span->from;
    int64_t to = x->to > span->to ? x->to : span->to;
    int64_t shorter = (int64_t)x->to - x->from;
    shorter = span->to - span->from < shorter ? span->to - span->from : shorter;
    int64_t more = to - from - shorter;
    return more * b->differ <= to - from ? more : INT64_MAX;
}

/* The block that an item joins, its load added; or one more than there are. */
static uint32_t find_block(Blocks *b, const Life *x)
{
    const FgPackItem *item = &b->m->items[x->item];
    uint32_t n = b->problem.n, best = n;
    int64_t least = INT64_MAX;
    if (item->n_spans > 1 || item->bytes > b->m->bound / SMALL)
        return n;
    for (uint32_t i = n > LOOK_BACK ? n - LOOK_BACK : 0; i < n; i++) {
        const FgPackItem *block = &b->problem.items[i];
        const FgPackSpan *span = &b->spans[block->span];
        if (block->n_spans > 1 || block->bytes + item->bytes > b->m->bound / MOST_BYTES)
            continue;
        int64_t now = difference(b, span, x);
        if (now >= least)
            continue;
        if (widen(b, span, block->bytes, x, item->bytes, 1)) {
            best = i;
            least = now;
        }
        widen(b, span, block->bytes, x, item->bytes, -1);
    }
    if (best < n)
        widen(b, &b->spans[b->problem.items[best].span], b->problem.items[best].bytes, x,
              item->bytes, 1);
    return best;
}

static void join(Blocks *b, uint32_t block, const Life *x)
{
    const FgPackItem *item = &b->m->items[x->item];
    FgPackItem *to = &b->problem.items[block];
    if (block == b->problem.n) {
        *to = (FgPackItem){0, item->align, b->n_spans, item->n_spans, 0};
        for (uint32_t k = 0; k < item->n_spans; k++) {
            const FgPackReach *r = &b->m->reaches[item->span + k];
            b->spans[b->n_spans++] = (FgPackSpan){r->from, r->to, 0, 0};
        }
        b->problem.n++;
    }
    b->block_of[x->item] = block;
    to->align = item->align > to->align ? item->align : to->align;
    to->bytes += fg_pack_align(item->bytes, item->align);
    FgPackSpan *spans = &b->spans[to->span];
    for (uint32_t k = 0; k < to->n_spans; k++)
        spans[k].high = to->bytes;
    if (to->n_spans == 1) {
        spans->from = x->from < spans->from ? x->from : spans->from;
        spans->to = x->to > spans->to ? x->to : spans->to;
    }
}

static void make_blocks(FgArena *scratch, const FgPackModel *m, const Life *lives, const Way *way,
                        int64_t goal, Blocks *out)
{
    uint32_t n_spans = 0;
    for (uint32_t i = 0; i < m->n; i++)
        n_spans += m->items[i].n_spans;
    *out = (Blocks){.m = m, .differ = way->differ};
    out->most = goal + goal / 1000 * way->thousands;
    out->problem.items = FG_NEW_ARRAY(scratch, FgPackItem, m->n + 1);
    out->problem.spans = out->spans = FG_NEW_ARRAY(scratch, FgPackSpan, n_spans + 1);
    out->block_of = FG_NEW_ARRAY(scratch, uint32_t, m->n + 1);
    out->load = FG_NEW_ARRAY(scratch, int64_t, m->n_sections + 1);
    memcpy(out->load, m->load, m->n_sections * sizeof *m->load);
    for (uint32_t i = 0; i < m->n; i++)
        join(out, find_block(out, &lives[i]), &lives[i]);
}

typedef struct Stood {
    int64_t offset;
    uint32_t block, nth; /* nth: of all items by their begin */
} Stood;

static int by_offset(const void *a, const void *b)
{
    const Stood *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Items in the order in which their blocks stand. */
static int64_t place_items(FgArena *scratch, const Blocks *b, const Life *lives, int64_t *out)
{
    uint32_t n = b->m->n;
    Stood *stood = FG_NEW_ARRAY(scratch, Stood, n + 1);
    uint32_t *order = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = b->block_of[lives[i].item];
        stood[i] = (Stood){b->problem.items[block].offset, block, i};
    }
    qsort(stood, n, sizeof *stood, by_offset);
    for (uint32_t i = 0; i < n; i++)
        order[i] = lives[stood[i].nth].item;
    return fg_pack_fit_order(scratch, b->m, order, out);
}

int64_t fg_pack_blocks(FgArena *scratch, const FgPackModel *m, uint64_t steps, int64_t goal,
                       int64_t height, int64_t *offsets)
{
    const Life *lives = sort_by_begin(scratch, m);
    int64_t *trial = FG_NEW_ARRAY(scratch, int64_t, m->n + 1);
    for (uint32_t i = 0; i < N_WAYS && height > goal && !m->windows; i++) {
        Blocks blocks;
        make_blocks(scratch, m, lives, &ways[i], goal, &blocks);
        if (blocks.problem.n == m->n)
            continue;
        FgPackEffort effort = {BLOCK_ROUNDS, steps / MOST_STEPS, goal};
        fg_pack_plainly(scratch, &blocks.problem, &effort);
        int64_t now = place_items(scratch, &blocks, lives, trial);
        if (now >= height)
            continue;
        height = now;
        memcpy(offsets, trial, m->n * sizeof *offsets);
    }
    return height;
}
