/* pack_search: whether one part fits a capacity, by exact search.
 *
 * Only *canonical* placements are looked for: each item stands on the floor or right on another
 * one; every placement sinks into such a one. The search places an item at its min when no
 * neighbour left could stand below it there, or else bars it from there; both together are all
 * placements. The next item is the one that stands lowest, the one that had most part in failures
 * first. When nothing left crosses between two sections, both sides are searched alone. A box (what
 * is left between two sections) that failed is remembered by what was known of its items: another
 * way to the same box fails at once.
 *
 * Failures name the placements to blame; a placement that is not among them is no use undoing.
 *
 * The search is cut off and started again in another order, mostly soon, sometimes late (Luby,
 * Sinclair and Zuckerman's sequence): bad luck at the top of a tree costs a small tree. Failures
 * remembered stay true, weights stay useful. Steps are counted, so every machine finds the same.
 */
#include "passes/pack_state.h"

#include <stdlib.h>
#include <string.h>

#define MOST_MEETINGS (1u << 21)
#define SCANNED_A_STEP 1024 /* meetings looked at that count as one more step */
#define SHORT_RUN 32        /* steps an item */
#define MOST_REMEMBERED (1u << 18)

typedef struct Box {
    uint32_t first, n; /* items: list[first .. first + n) */
    uint32_t from, to; /* sections */
} Box;

typedef struct Rank {
    int64_t keys[3]; /* larger first */
    uint32_t item;
} Rank;

typedef struct FgPackSearch Search;
struct FgPackSearch {
    FgPackState state;
    const FgPackPart *part;
    uint64_t steps;
    Rank *ranks;            /* items in this run's order */
    uint32_t *rank;         /* item -> where it is there */
    FgIdVec list;           /* a stack: the items of the boxes of all levels */
    FG_VEC(Box) boxes;      /* a stack */
    uint64_t *failed, mask; /* what was known of boxes that failed */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* Of a box; never 0. Two boxes with one key are taken for the same. */
static uint64_t box_key(const Search *x, const Box *box)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < box->n; i++) {
        uint32_t item = x->list.data[box->first + i];
        const FgPackKnown *k = &x->state.known[item];
        key +=
            mix(mix((uint64_t)k->min * 0x9e3779b97f4a7c15u + item) + (uint64_t)x->state.low[item]);
    }
    return key ? key : 1;
}

/* No neighbour left could stand below it. */
static bool is_ready(const FgPackState *s, const FgPackKnown *k)
{
    for (uint32_t i = k->first; i < k->end; i++) {
        if (s->support[s->meetings[i].item] + s->meetings[i].below <= k->min)
            return false;
    }
    return true;
}

static bool comes_first(const Search *x, uint32_t a, uint32_t b)
{
    const FgPackKnown *p = &x->state.known[a], *q = &x->state.known[b];
    if (p->min != q->min)
        return p->min < q->min;
    if (p->weight < q->weight || p->weight > q->weight)
        return p->weight > q->weight;
    return x->rank[a] < x->rank[b];
}

/* FG_PACK_FLOOR: none can be placed. */
static uint32_t choose(const Search *x, const Box *box)
{
    uint32_t best = FG_PACK_FLOOR;
    for (uint32_t i = 0; i < box->n; i++) {
        uint32_t item = x->list.data[box->first + i];
        const FgPackKnown *k = &x->state.known[item];
        if (fg_pack_has(x->state.barred, item) ||
            (best != FG_PACK_FLOOR && !comes_first(x, item, best)))
            continue;
        if (is_ready(&x->state, k))
            best = item;
    }
    return best;
}

/* Divides what is left of a box where nothing crosses; smallest first, on the stack. */
static void split(Search *x, const Box *box)
{
    FgPackState *s = &x->state;
    uint32_t base = x->boxes.len;
    for (uint32_t from = box->from, to; from < box->to; from = to) {
        for (to = from + 1; to < box->to && s->crossing[to - 1 - s->from] > 0;)
            to++;
        Box part = {x->list.len, 0, from, to};
        for (uint32_t i = 0; i < box->n; i++) {
            uint32_t item = x->list.data[box->first + i];
            const FgPackKnown *k = &s->known[item];
            if (!k->placed && k->hull.from >= from && k->hull.from < to)
                fg_vec_push(s->arena, &x->list, item);
        }
        part.n = x->list.len - part.first;
        if (part.n == 0)
            continue;
        fg_vec_push(s->arena, &x->boxes, part);
        for (uint32_t i = x->boxes.len - 1; i > base && x->boxes.data[i - 1].n > part.n; i--) {
            x->boxes.data[i] = x->boxes.data[i - 1];
            x->boxes.data[i - 1] = part;
        }
    }
}

static FgPackVerdict solve(Search *x, Box box);

static FgPackVerdict solve_rest(Search *x, const Box *box)
{
    uint32_t list = x->list.len, boxes = x->boxes.len;
    FgPackVerdict verdict = FG_PACK_FOUND;
    split(x, box);
    uint32_t end = x->boxes.len;
    for (uint32_t i = boxes; i < end && verdict == FG_PACK_FOUND; i++)
        verdict = solve(x, x->boxes.data[i]);
    x->list.len = list;
    x->boxes.len = boxes;
    return verdict;
}

static void blame_box(Search *x, const Box *box)
{
    FgPackState *s = &x->state;
    memset(s->fail, 0, s->words * sizeof *s->fail);
    for (uint32_t i = 0; i < box->n; i++)
        fg_pack_blame(s, x->list.data[box->first + i]);
}

/* Tries the item at its min, then without; true when the box needs no more looking at. */
static bool try_item(Search *x, const Box *box, uint32_t item, FgPackVerdict *verdict)
{
    FgPackState *s = &x->state;
    uint32_t trail = s->trail.len;
    bool hat;
    *verdict = fg_pack_put(s, item, &hat) ? solve_rest(x, box) : FG_PACK_NONE;
    fg_pack_take(s, item, trail);
    if (*verdict != FG_PACK_NONE)
        return true;
    uint64_t bit = (uint64_t)1 << item % 64, *blamed = &s->fail[item / 64];
    if (!(*blamed & bit) || !hat) /* not its fault, or nothing above that it could make room for */
        return true;
    *blamed &= ~bit;
    return !fg_pack_bar(s, item);
}

static FgPackVerdict solve(Search *x, Box box)
{
    FgPackState *s = &x->state;
    uint64_t cost = 1 + s->scanned / SCANNED_A_STEP;
    s->scanned = 0;
    if (x->steps < cost) {
        x->steps = 0; /* that work is done: a run that cannot pay for it has nothing left */
        return FG_PACK_GAVE_UP;
    }
    x->steps -= cost;
    uint64_t key = box_key(x, &box);
    if (x->failed[key & x->mask] == key) {
        blame_box(x, &box);
        return FG_PACK_NONE;
    }
    uint32_t trail = s->trail.len, item;
    FgPackVerdict verdict = FG_PACK_NONE;
    do {
        item = choose(x, &box);
        if (item == FG_PACK_FLOOR)
            blame_box(x, &box);
    } while (item != FG_PACK_FLOOR && !try_item(x, &box, item, &verdict));
    fg_pack_undo(s, trail);
    if (verdict == FG_PACK_NONE)
        x->failed[key & x->mask] = key;
    return verdict;
}

/* ---- orders ---- */
static int by_keys(const void *a, const void *b)
{
    const Rank *x = a, *y = b;
    for (int i = 0; i < 3; i++)
        if (x->keys[i] != y->keys[i])
            return x->keys[i] > y->keys[i] ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* What an item may be ordered by. */
typedef enum Trait { TRAIT_LOAD, TRAIT_TIME, TRAIT_BYTES } Trait;

static int64_t trait_of(const FgPackState *s, const FgPackItem *x, Trait trait)
{
    int64_t load = 0, time = 0;
    for (uint32_t k = 0; k < x->n_spans; k++) {
        const FgPackReach *r = &s->m->reaches[x->span + k];
        time += r->to - r->from;
        for (uint32_t q = r->from; q < r->to; q++)
            load = s->m->load[q] > load ? s->m->load[q] : load;
    }
    return trait == TRAIT_LOAD ? load : trait == TRAIT_TIME ? time : x->bytes;
}

static const Trait orders[][3] = {
    {TRAIT_TIME, TRAIT_BYTES, TRAIT_LOAD},
    {TRAIT_LOAD, TRAIT_BYTES, TRAIT_TIME},
    {TRAIT_LOAD, TRAIT_TIME, TRAIT_BYTES},
};
#define N_ORDERS (sizeof orders / sizeof *orders)

static void set_order(Search *x, const Trait *order)
{
    FgPackState *s = &x->state;
    Rank *ranks = x->ranks;
    for (uint32_t i = 0; i < s->n; i++) {
        ranks[i].item = i;
        for (int k = 0; k < 3; k++)
            ranks[i].keys[k] = trait_of(s, s->known[i].item, order[k]);
    }
    qsort(ranks, s->n, sizeof *ranks, by_keys);
    for (uint32_t i = 0; i < s->n; i++)
        x->rank[ranks[i].item] = i;
}

static FgPackVerdict run(Search *x, uint64_t steps)
{
    FgPackState *s = &x->state;
    fg_pack_state_reset(s);
    x->list.len = x->boxes.len = 0;
    for (uint32_t i = 0; i < s->n; i++)
        fg_vec_push(s->arena, &x->list, i);
    x->steps = steps;
    return solve(x, (Box){0, s->n, x->part->from, x->part->to});
}

/* 1 1 2 1 1 2 4 1 1 2 ... from i = 1 on. */
static uint64_t luby(uint64_t i)
{
    for (;;) {
        uint64_t power = 1;
        while (2 * power <= i + 1)
            power *= 2;
        if (power == i + 1)
            return power / 2;
        i = i + 1 - power;
    }
}

FgPackSearch *fg_pack_search_new(FgArena *arena, const FgPackModel *m, const FgPackPart *part)
{
    Search *x = FG_NEW(arena, Search);
    if (!fg_pack_state_init(arena, m, part, MOST_MEETINGS, &x->state))
        return NULL;
    x->part = part;
    x->ranks = FG_NEW_ARRAY(arena, Rank, part->n + 1);
    x->rank = FG_NEW_ARRAY(arena, uint32_t, part->n + 1);
    return x;
}

/* Failures of another capacity say nothing here, nor do weights. */
static void begin(Search *x, int64_t capacity, uint64_t steps)
{
    FgPackState *s = &x->state;
    uint64_t size = 1024;
    while (size < MOST_REMEMBERED && size < 64 * (uint64_t)s->n && size < 4 * steps)
        size *= 2;
    if (!x->failed || size > x->mask + 1)
        x->failed = FG_NEW_ARRAY(s->arena, uint64_t, size);
    else
        memset(x->failed, 0, size * sizeof *x->failed);
    x->mask = size - 1;
    s->capacity = capacity;
    s->bump = 1;
    for (uint32_t i = 0; i < s->n; i++)
        s->known[i].weight = 0;
}

FgPackVerdict fg_pack_search(FgPackSearch *x, int64_t capacity, uint64_t *left,
                             int64_t *out_offsets)
{
    const FgPackState *s = &x->state;
    FgPackVerdict verdict = FG_PACK_GAVE_UP;
    if (*left > 0)
        begin(x, capacity, *left);
    for (uint64_t turn = 0; verdict == FG_PACK_GAVE_UP && *left > 0; turn++) {
        uint64_t steps = SHORT_RUN * (uint64_t)s->n * luby(turn + 1);
        steps = steps < *left ? steps : *left;
        set_order(x, orders[turn % N_ORDERS]);
        verdict = run(x, steps);
        *left -= steps - x->steps;
    }
    for (uint32_t i = 0; verdict == FG_PACK_FOUND && i < s->n; i++)
        out_offsets[s->m->by_part[x->part->first + i]] = s->known[i].offset;
    return verdict == FG_PACK_NONE && s->m->windows ? FG_PACK_GAVE_UP : verdict;
}
