/* pack_fit: first fit in several orders.
 *
 * Orders: by size, by size x time, by time, and each of these with what is live where most is
 * first; then the best order is repaired: what ends highest is placed first in the next round.
 * Placing an item scans those already placed by address, so a round costs O(n^2) simple steps;
 * rounds are counted, and fewer where there are very many items.
 */
#include "passes/pack_internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_STEPS ((uint64_t)4 << 28) /* of all rounds together */

typedef struct Sorted {
    int64_t load, key; /* larger first */
    uint32_t item;
} Sorted;

typedef struct Placed {
    int64_t begin, end; /* addresses */
    uint32_t from, to;  /* sections, from the first span to the last */
    uint32_t item;
} Placed;

typedef struct Fit {
    const FgPackModel *m;
    uint32_t *order; /* items in the order of this round */
    Placed *placed;  /* so far, by address */
    int64_t *offsets, *best;
    int64_t best_height;
    Sorted *sorted;
} Fit;

static bool meet(const FgPackModel *m, uint32_t a, uint32_t b)
{
    int64_t distance;
    return (m->items[a].n_spans == 1 && m->items[b].n_spans == 1) ||
           fg_pack_distance(m, a, b, &distance);
}

/* The lowest address, given what is placed. */
static int64_t lowest(const Fit *f, uint32_t item, uint32_t n_placed)
{
    const FgPackItem *x = &f->m->items[item];
    FgPackReach h = fg_pack_hull(f->m, item);
    int64_t at = 0;
    for (uint32_t i = 0; i < n_placed; i++) {
        const Placed *y = &f->placed[i];
        if (y->end <= at || y->to <= h.from || h.to <= y->from || !meet(f->m, item, y->item))
            continue;
        if (y->begin >= at + x->bytes)
            break;
        at = fg_pack_align(y->end, x->align);
    }
    return at;
}

/* With windows a gap is not what addresses say: pairs decide, until nothing moves it up. */
static int64_t lowest_by_pairs(const Fit *f, uint32_t item, uint32_t n_placed)
{
    const FgPackItem *x = &f->m->items[item];
    int64_t at = 0, above, below;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < n_placed; i++) {
            const Placed *y = &f->placed[i];
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

static void place(Fit *f, uint32_t item, uint32_t n_placed)
{
    FgPackReach h = fg_pack_hull(f->m, item);
    int64_t at = f->m->windows ? lowest_by_pairs(f, item, n_placed) : lowest(f, item, n_placed);
    f->offsets[item] = at;
    uint32_t low = 0, high = n_placed;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (f->placed[mid].begin < at)
            low = mid + 1;
        else
            high = mid;
    }
    memmove(&f->placed[low + 1], &f->placed[low], (n_placed - low) * sizeof *f->placed);
    f->placed[low] = (Placed){at, at + f->m->items[item].bytes, h.from, h.to, item};
}

/* Places all in f->order; returns the height. */
static int64_t place_all(Fit *f)
{
    int64_t height = 0;
    for (uint32_t i = 0; i < f->m->n; i++) {
        uint32_t item = f->order[i];
        place(f, item, i);
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
    return x->item < y->item ? -1 : x->item > y->item;
}

#define N_ORDERS 6 /* three weights, plain and with what is live where most is first */

static Sorted weigh(const Fit *f, uint32_t item, uint32_t which)
{
    const FgPackItem *x = &f->m->items[item];
    Sorted out = {0, 0, item};
    int64_t time = 0;
    for (uint32_t k = 0; k < x->n_spans; k++) {
        const FgPackReach *r = &f->m->reaches[x->span + k];
        time += r->to - r->from;
        for (uint32_t q = r->from; which >= 3 && q < r->to; q++)
            out.load = f->m->load[q] > out.load ? f->m->load[q] : out.load;
    }
    int64_t area; /* saturates, which only weakens the order */
    if (__builtin_mul_overflow(x->bytes, time, &area))
        area = INT64_MAX;
    out.key = which % 3 == 0 ? x->bytes : which % 3 == 1 ? area : time;
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

int64_t fg_pack_fit(FgArena *scratch, const FgPackModel *m, uint32_t rounds, int64_t goal,
                    int64_t *out_offsets)
{
    Fit f = {.m = m, .best_height = INT64_MAX, .best = out_offsets};
    uint32_t n = m->n, done = 0, best_order = 0;
    uint64_t most = MOST_STEPS / ((uint64_t)n * n + 1) + 1;
    rounds = rounds < most ? rounds : (uint32_t)most;
    f.order = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    f.placed = FG_NEW_ARRAY(scratch, Placed, n + 1);
    f.offsets = FG_NEW_ARRAY(scratch, int64_t, n + 1);
    f.sorted = FG_NEW_ARRAY(scratch, Sorted, n + 1);
    uint32_t *spare = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    for (; done == 0 || (done < N_ORDERS && done < rounds && f.best_height > goal); done++) {
        int64_t before = f.best_height;
        sort_order(&f, done);
        place_all(&f);
        if (f.best_height < before)
            best_order = done;
    }
    if (done < rounds && f.best_height > goal)
        sort_order(&f, best_order);
    for (; done < rounds && f.best_height > goal; done++)
        move_top_first(&f, spare, place_all(&f));
    return f.best_height;
}
