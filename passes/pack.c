/* pack: lifetimes and sizes -> addresses.
 *
 * First fit in several orders (size, size x duration, duration, and what is live at the peak first
 * by each of these), the best kept; then the best order is repaired: what ends highest is placed
 * first in the next round, until the liveness bound is met or the effort is spent. Placing an item
 * scans those already placed by address, so a round costs O(n^2) simple steps; effort counts
 * rounds, never time, so that every machine gets the same addresses.
 */
#include "passes/lower.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

typedef struct Sorted {
    uint64_t key;
    uint32_t item;
    bool first; /* before all that are not */
} Sorted;

typedef struct Placed {  /* side by side for the scan */
    uint64_t begin, end; /* addresses */
    uint32_t from, to;   /* time, as in FgPackItem */
} Placed;

typedef struct Packer {
    FgPackItem *items;
    uint32_t n, timeline;
    uint32_t *order;   /* items in the order of this round */
    Placed *placed;    /* so far, by address */
    uint64_t *offsets; /* of this round */
    uint64_t *best;
    uint64_t best_size;
    bool *at_peak; /* item is live where most is live */
} Packer;

static bool same_time(const FgPackItem *a, const Placed *b)
{
    bool wraps_a = a->end < a->begin, wraps_b = b->to < b->from;
    if (wraps_a && wraps_b)
        return true;
    if (wraps_a)
        return b->to >= a->begin || b->from <= a->end;
    if (wraps_b)
        return a->end >= b->from || a->begin <= b->to;
    return a->begin <= b->to && b->from <= a->end;
}

static void place(Packer *p, uint32_t item, uint32_t n_placed)
{
    const FgPackItem *x = &p->items[item];
    uint64_t at = 0;
    for (uint32_t i = 0; i < n_placed; i++) {
        const Placed *y = &p->placed[i];
        if (y->end <= at || !same_time(x, y))
            continue;
        if (y->begin >= at + x->bytes)
            break;
        at = y->end;
    }
    p->offsets[item] = at;
    uint32_t low = 0, high = n_placed;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (p->placed[mid].begin < at)
            low = mid + 1;
        else
            high = mid;
    }
    memmove(&p->placed[low + 1], &p->placed[low], (n_placed - low) * sizeof *p->placed);
    p->placed[low] = (Placed){at, at + x->bytes, x->begin, x->end};
}

/* Places all in p->order; returns the size. */
static uint64_t place_all(Packer *p)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t item = p->order[i];
        place(p, item, i);
        uint64_t end = p->offsets[item] + p->items[item].bytes;
        if (end > size)
            size = end;
    }
    if (size < p->best_size) {
        p->best_size = size;
        memcpy(p->best, p->offsets, p->n * sizeof *p->best);
    }
    return size;
}

static uint64_t duration(const Packer *p, const FgPackItem *x)
{
    return x->end >= x->begin ? x->end - x->begin + 1 : p->timeline - x->begin + x->end + 1;
}

static int by_key_down(const void *a, const void *b)
{
    const Sorted *x = a, *y = b;
    if (x->first != y->first)
        return x->first ? -1 : 1;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

#define N_ORDERS 6 /* three weights, plain and with what is live at the peak first */

static void sort_order(Packer *p, Sorted *sorted, uint32_t which)
{
    uint32_t weight = which % 3;
    for (uint32_t i = 0; i < p->n; i++) {
        const FgPackItem *x = &p->items[i];
        uint64_t d = duration(p, x);
        /* 2^20 positions and 2^44 bytes fit the product; beyond it saturates, which only weakens
         * the order */
        uint64_t area;
        if (__builtin_mul_overflow(x->bytes, d, &area))
            area = UINT64_MAX;
        sorted[i].item = i;
        sorted[i].first = which >= 3 && p->at_peak[i];
        sorted[i].key = weight == 0 ? x->bytes : weight == 1 ? area : d;
    }
    qsort(sorted, p->n, sizeof *sorted, by_key_down);
    for (uint32_t i = 0; i < p->n; i++)
        p->order[i] = sorted[i].item;
}

static bool live_at(const FgPackItem *x, uint32_t t)
{
    return x->end >= x->begin ? x->begin <= t && t <= x->end : t >= x->begin || t <= x->end;
}

static void find_peak(Packer *p, FgArena *scratch)
{
    uint64_t *change = FG_NEW_ARRAY(scratch, uint64_t, p->timeline + 1); /* modulo 2^64 */
    uint64_t live = 0, most = 0;
    uint32_t peak = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const FgPackItem *x = &p->items[i];
        change[x->begin] += x->bytes;
        change[x->end + 1] -= x->bytes;
        if (x->end < x->begin)
            live += x->bytes;
    }
    for (uint32_t t = 0; t < p->timeline; t++) {
        live += change[t];
        if (live > most) {
            most = live;
            peak = t;
        }
    }
    for (uint32_t i = 0; i < p->n; i++)
        p->at_peak[i] = live_at(&p->items[i], peak);
}

/* The items that reach the top go first; the rest keeps its order. */
static void move_top_first(Packer *p, uint32_t *spare, uint64_t size)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->offsets[p->order[i]] + p->items[p->order[i]].bytes == size)
            spare[n++] = p->order[i];
    for (uint32_t i = 0; i < p->n; i++)
        if (p->offsets[p->order[i]] + p->items[p->order[i]].bytes != size)
            spare[n++] = p->order[i];
    memcpy(p->order, spare, p->n * sizeof *spare);
}

uint64_t fg_pack(FgArena *scratch, FgPackItem *items, uint32_t n, uint64_t bound, uint32_t effort)
{
    Packer p = {.items = items, .n = n, .best_size = UINT64_MAX};
    for (uint32_t i = 0; i < n; i++) {
        items[i].bytes = fg_round_up(items[i].bytes, FG_ALIGN_BYTES);
        if (items[i].begin >= p.timeline)
            p.timeline = items[i].begin + 1;
        if (items[i].end >= p.timeline)
            p.timeline = items[i].end + 1;
    }
    if (n == 0)
        return 0;
    p.order = FG_NEW_ARRAY(scratch, uint32_t, n);
    p.placed = FG_NEW_ARRAY(scratch, Placed, n + 1);
    p.offsets = FG_NEW_ARRAY(scratch, uint64_t, n);
    p.best = FG_NEW_ARRAY(scratch, uint64_t, n);
    p.at_peak = FG_NEW_ARRAY(scratch, bool, n);
    find_peak(&p, scratch);
    Sorted *sorted = FG_NEW_ARRAY(scratch, Sorted, n);
    uint32_t *spare = FG_NEW_ARRAY(scratch, uint32_t, n), rounds = 0, best_order = 0;
    for (uint32_t which = 0; which < N_ORDERS && rounds < effort && p.best_size > bound;
         which++, rounds++) {
        uint64_t before = p.best_size;
        sort_order(&p, sorted, which);
        place_all(&p);
        if (p.best_size < before)
            best_order = which;
    }
    sort_order(&p, sorted, best_order);
    for (; rounds < effort && p.best_size > bound; rounds++)
        move_top_first(&p, spare, place_all(&p));
    for (uint32_t i = 0; i < n; i++)
        items[i].offset = p.best[i];
    return p.best_size;
}
