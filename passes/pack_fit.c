/* pack_fit: first fit in several orders.
 *
 * Orders: by size, by size x time, by time, and each of these with what is live where most is
 * first; then the best order is repaired: what ends highest is placed first in the next round.
 *
 * An item's address is the lowest gap among those placed that share time with it, looked at by
 * address. Most items are *brief*: to find what they meet the sections are divided into blocks of
 * some, and each block has a lane, what is placed there by address; the lanes of an item's few
 * blocks and that of all items that last longer are merged on the way up, until the gap. An item
 * that lasts looks at everything placed. So a round takes time in proportion to the items and to
 * what is live beside each, times few; and for each item that lasts, to all. Rounds are counted,
 * and fewer where there are very many items.
 */
#include "passes/pack_internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_STEPS ((uint64_t)4 << 28) /* of all rounds together, were each item to look at all */
#define BLOCK_ITEMS 32                 /* items a block, about */
#define MOST_BLOCKS 4                  /* that a brief item touches */

typedef struct Sorted {
    int64_t load, key; /* larger first */
    uint32_t from;     /* then the earlier: alike items in this order leave no gap */
    int64_t time;      /* then the longer: those round the cut nest */
    uint32_t item;
} Sorted;

typedef struct Placed {
    int64_t begin, end; /* addresses */
    uint32_t from, to;  /* sections, from the first span to the last */
    uint32_t item;
} Placed;

typedef struct Lane { /* what is placed, by address */
    Placed *data;
    uint32_t n;
} Lane;

typedef struct Fit {
    const FgPackModel *m;
    uint32_t *order; /* items in the order of this round */
    uint32_t block;  /* sections a block */
    Lane *lanes;     /* block -> the brief items there */
    uint32_t n_blocks;
    Lane lasting, all; /* the others; everything, but for the last `fresh` by the time only */
    uint32_t fresh;
    int64_t *offsets, *best;
    int64_t best_height;
    Sorted *sorted;
} Fit;

/* With windows pairs decide, not addresses: no item is brief. */
static bool is_brief(const Fit *f, FgPackReach h)
{
    return !f->m->windows && (h.to - 1) / f->block - h.from / f->block < MOST_BLOCKS;
}

static bool meet(const FgPackModel *m, uint32_t a, uint32_t b)
{
    int64_t distance;
    return (m->items[a].n_spans == 1 && m->items[b].n_spans == 1) ||
           fg_pack_distance(m, a, b, &distance);
}

/* Is it in the way of an item with that hull, which stands at `at` or above? */
static bool stands_by(const Fit *f, uint32_t item, FgPackReach h, int64_t at, const Placed *y)
{
    return y->end > at && y->to > h.from && h.to > y->from && meet(f->m, item, y->item);
}

/* The lowest address of an item, given what is placed in some lanes; they are used up. */
static int64_t lowest(const Fit *f, uint32_t item, Lane *lanes, uint32_t n)
{
    const FgPackItem *x = &f->m->items[item];
    FgPackReach h = fg_pack_hull(f->m, item);
    for (int64_t at = 0;;) {
        const Placed *next = NULL;
        for (uint32_t i = 0; i < n; i++) {
            Lane *lane = &lanes[i];
            while (lane->n > 0 && !stands_by(f, item, h, at, lane->data)) {
                lane->data++;
                lane->n--;
            }
            if (lane->n > 0 && (!next || lane->data->begin < next->begin))
                next = lane->data;
        }
        if (!next || next->begin >= at + x->bytes)
            return at;
        at = fg_pack_align(next->end, x->align);
    }
}

static int64_t lowest_of_brief(const Fit *f, uint32_t item)
{
    FgPackReach h = fg_pack_hull(f->m, item);
    Lane lanes[MOST_BLOCKS + 1] = {f->lasting};
    uint32_t n = 1;
    for (uint32_t k = h.from / f->block; k <= (h.to - 1) / f->block; k++)
        lanes[n++] = f->lanes[k];
    return lowest(f, item, lanes, n);
}

/* With windows a gap is not what addresses say: pairs decide, until nothing moves it up. */
static int64_t lowest_by_pairs(const Fit *f, uint32_t item)
{
    const FgPackItem *x = &f->m->items[item];
    int64_t at = 0, above, below;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < f->all.n; i++) {
            const Placed *y = &f->all.data[i];
            if (!fg_pack_distance(f->m, y->item, item, &above) ||
                !fg_pack_distance(f->m, item, y->item, &below) || at >= y->begin + above ||
                y->begin >= at + below)
                continue;
            at = fg_pack_align(y->begin + above, x->align);
            moved = true;
        }
    }
    return at;
}

static int by_begin(const void *a, const void *b)
{
    const Placed *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Puts the fresh ones of f->all in their places. `spare` holds as many. */
static void sort_fresh(Fit *f, Placed *spare)
{
    uint32_t n = f->fresh, old = f->all.n - n, at = f->all.n;
    Placed *all = f->all.data;
    memcpy(spare, all + old, n * sizeof *spare);
    qsort(spare, n, sizeof *spare, by_begin);
    while (n > 0)
        all[--at] = old > 0 && all[old - 1].begin > spare[n - 1].begin ? all[--old] : spare[--n];
    f->fresh = 0;
}

static void insert(Lane *lane, const Placed *x)
{
    uint32_t low = 0, high = lane->n;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (lane->data[mid].begin < x->begin)
            low = mid + 1;
        else
            high = mid;
    }
    memmove(&lane->data[low + 1], &lane->data[low], (lane->n - low) * sizeof *lane->data);
    lane->data[low] = *x;
    lane->n++;
}

static void place(Fit *f, uint32_t item, Placed *spare)
{
    FgPackReach h = fg_pack_hull(f->m, item);
    int64_t at;
    bool brief = is_brief(f, h);
    if (brief) {
        at = lowest_of_brief(f, item);
    } else if (f->m->windows) {
        at = lowest_by_pairs(f, item);
    } else {
        sort_fresh(f, spare);
        Lane all = f->all;
        at = lowest(f, item, &all, 1);
    }
    f->offsets[item] = at;
    Placed x = {at, at + f->m->items[item].bytes, h.from, h.to, item};
    f->all.data[f->all.n++] = x;
    f->fresh++;
    if (!brief)
        insert(&f->lasting, &x);
    for (uint32_t k = h.from / f->block; brief && k <= (h.to - 1) / f->block; k++)
        insert(&f->lanes[k], &x);
}

/* Places all in f->order; returns the height. Unless it is wanted `wholly`, stops where that is not
 * below the best. */
static int64_t place_all(Fit *f, Placed *spare, bool wholly)
{
    int64_t height = 0;
    f->all.n = f->lasting.n = f->fresh = 0;
    for (uint32_t k = 0; k < f->n_blocks; k++)
        f->lanes[k].n = 0;
    for (uint32_t i = 0; i < f->m->n && (wholly || height < f->best_height); i++) {
        uint32_t item = f->order[i];
        place(f, item, spare);
        int64_t end = f->offsets[item] + f->m->items[item].bytes;
        height = end > height ? end : height;
    }
    if (height < f->best_height) {
        f->best_height = height;
        memcpy(f->best, f->offsets, f->m->n * sizeof *f->best);
    }
    return height;
}

static int by_key_down(const void *a, const void *b)
{
    const Sorted *x = a, *y = b;
    if (x->load != y->load)
        return x->load > y->load ? -1 : 1;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->time != y->time)
        return x->time > y->time ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

#define N_ORDERS 6 /* three weights, plain and with what is live where most is first */

static Sorted weigh(const Fit *f, uint32_t item, uint32_t which)
{
    const FgPackItem *x = &f->m->items[item];
    Sorted out = {0, 0, f->m->reaches[x->span].from, 0, item};
    for (uint32_t k = 0; k < x->n_spans; k++) {
        const FgPackReach *r = &f->m->reaches[x->span + k];
        out.time += r->to - r->from;
        for (uint32_t q = r->from; which >= 3 && q < r->to; q++)
            out.load = f->m->load[q] > out.load ? f->m->load[q] : out.load;
    }
    int64_t area; /* saturates, which only weakens the order */
    if (__builtin_mul_overflow(x->bytes, out.time, &area))
        area = INT64_MAX;
    out.key = which % 3 == 0 ? x->bytes : which % 3 == 1 ? area : out.time;
    return out;
}

static void sort_order(Fit *f, uint32_t which)
{
    for (uint32_t i = 0; i < f->m->n; i++)
        f->sorted[i] = weigh(f, i, which);
    qsort(f->sorted, f->m->n, sizeof *f->sorted, by_key_down);
    for (uint32_t i = 0; i < f->m->n; i++)
        f->order[i] = f->sorted[i].item;
}

/* The items that reach the top go first; the rest keeps its order. */
static void move_top_first(Fit *f, uint32_t *spare, int64_t height)
{
    uint32_t n = 0;
    for (int rest = 0; rest < 2; rest++)
        for (uint32_t i = 0; i < f->m->n; i++) {
            uint32_t item = f->order[i];
            bool top = f->offsets[item] + f->m->items[item].bytes == height;
            if (top == !rest)
                spare[n++] = item;
        }
    memcpy(f->order, spare, n * sizeof *spare);
}

/* Blocks, and lanes that hold what may come. */
static void find_lanes(FgArena *scratch, Fit *f)
{
    const FgPackModel *m = f->m;
    uint32_t n_lasting = 0, n_blocks = m->n / BLOCK_ITEMS + 1;
    f->block = (m->n_sections + n_blocks - 1) / n_blocks;
    f->n_blocks = (m->n_sections + f->block - 1) / f->block;
    f->lanes = FG_NEW_ARRAY(scratch, Lane, f->n_blocks + 1);
    for (uint32_t i = 0; i < m->n; i++) {
        FgPackReach h = fg_pack_hull(m, i);
        bool brief = is_brief(f, h);
        n_lasting += !brief;
        for (uint32_t k = h.from / f->block; brief && k <= (h.to - 1) / f->block; k++)
            f->lanes[k].n++;
    }
    for (uint32_t k = 0; k < f->n_blocks; k++)
        f->lanes[k].data = FG_NEW_ARRAY(scratch, Placed, f->lanes[k].n + 1);
    f->lasting.data = FG_NEW_ARRAY(scratch, Placed, n_lasting + 1);
    f->all.data = FG_NEW_ARRAY(scratch, Placed, m->n + 1);
}

static void begin(FgArena *scratch, const FgPackModel *m, int64_t *best, Fit *f)
{
    *f = (Fit){.m = m, .best_height = INT64_MAX, .best = best};
    f->order = FG_NEW_ARRAY(scratch, uint32_t, m->n + 1);
    f->offsets = FG_NEW_ARRAY(scratch, int64_t, m->n + 1);
    find_lanes(scratch, f);
}

int64_t fg_pack_fit_order(FgArena *scratch, const FgPackModel *m, const uint32_t *order,
                          int64_t *out_offsets)
{
    Fit f;
    begin(scratch, m, out_offsets, &f);
    memcpy(f.order, order, m->n * sizeof *order);
    return place_all(&f, FG_NEW_ARRAY(scratch, Placed, m->n + 1), true);
}

int64_t fg_pack_fit(FgArena *scratch, const FgPackModel *m, uint32_t rounds, int64_t goal,
                    int64_t *out_offsets)
{
    Fit f;
    uint32_t n = m->n, done = 0, best_order = 0;
    uint64_t most = MOST_STEPS / ((uint64_t)n * n + 1) + 1;
    rounds = rounds < most ? rounds : (uint32_t)most;
    begin(scratch, m, out_offsets, &f);
    Placed *placed = FG_NEW_ARRAY(scratch, Placed, n + 1);
    f.sorted = FG_NEW_ARRAY(scratch, Sorted, n + 1);
    uint32_t *spare = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    for (; done == 0 || (done < N_ORDERS && done < rounds && f.best_height > goal); done++) {
        int64_t before = f.best_height;
        sort_order(&f, done);
        place_all(&f, placed, false);
        if (f.best_height < before)
            best_order = done;
    }
    if (done < rounds && f.best_height > goal)
        sort_order(&f, best_order);
    for (; done < rounds && f.best_height > goal; done++)
        move_top_first(&f, spare, place_all(&f, placed, true));
    return f.best_height;
}
