/* The packer alone. Small instances, plain, circular, aligned and with pauses, against the optimum
 * that trying every order finds (an item stands where it falls on those before it: some order gives
 * the best placement); larger ones against a map of which byte is whose at which time. */
#include "../unit/unit.h"

#include "passes/pack_internal.h"
#include "random_model.h"

#include <stdlib.h>

#define MOST_ITEMS 160
#define MOST_TIME 80
#define BYTES_OF_MAP 40000

typedef struct Instance {
    FgPackItem items[MOST_ITEMS];
    FgPackSpan spans[3 * MOST_ITEMS];
    FgPackProblem problem;
    uint32_t n_spans;
    bool windows;
} Instance;

typedef enum Shape { PLAIN, CIRCULAR, PAUSES, WINDOWS } Shape;

static void add_span(Instance *x, FgPackItem *item, int64_t from, int64_t to, int64_t low,
                     int64_t high)
{
    if (from >= to)
        return;
    x->spans[x->n_spans++] = (FgPackSpan){from, to, low, high};
    item->n_spans++;
}

static void add_item(Instance *x, Random *r, Shape shape, uint32_t time, uint32_t most_bytes)
{
    FgPackItem *item = &x->items[x->problem.n++];
    int64_t bytes = 1 + random_below(r, most_bytes);
    int64_t a = random_below(r, time), b = random_below(r, time);
    *item = (FgPackItem){.bytes = bytes, .align = 1, .span = x->n_spans};
    if (random_below(r, 4) == 0)
        item->align = (int64_t)1 << random_below(r, 4);
    if (shape == CIRCULAR && b < a) {
        add_span(x, item, 0, b + 1, 0, bytes);
        add_span(x, item, a, time, 0, bytes);
        return;
    }
    int64_t from = a < b ? a : b, to = (a < b ? b : a) + 1;
    int64_t pause = from + (to - from) / 3, again = to - (to - from) / 3;
    if (shape < PAUSES || pause == from || again <= pause) {
        add_span(x, item, from, to, 0, bytes);
        return;
    }
    add_span(x, item, from, pause, 0, bytes);
    if (shape == WINDOWS)
        add_span(x, item, pause, again, bytes / 3, bytes - bytes / 3);
    add_span(x, item, again, to, 0, bytes);
}

static void make(Instance *x, uint64_t seed, Shape shape, uint32_t n, uint32_t time,
                 uint32_t most_bytes)
{
    Random r = {seed};
    memset(x, 0, sizeof *x);
    x->problem = (FgPackProblem){x->items, x->spans, 0};
    while (x->problem.n < n)
        add_item(x, &r, shape, time, most_bytes);
}

/* ---- the optimum, by trying every order ---- */
static bool share_time(const Instance *x, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < x->items[a].n_spans; i++)
        for (uint32_t k = 0; k < x->items[b].n_spans; k++) {
            const FgPackSpan *p = &x->spans[x->items[a].span + i];
            const FgPackSpan *q = &x->spans[x->items[b].span + k];
            if (p->from < q->to && q->from < p->to)
                return true;
        }
    return false;
}

static void try_orders(const Instance *x, uint32_t done, int64_t *at, int64_t height, int64_t *best)
{
    if (height >= *best)
        return;
    if (done == (1u << x->problem.n) - 1) {
        *best = height;
        return;
    }
    for (uint32_t i = 0; i < x->problem.n; i++) {
        if (done >> i & 1)
            continue;
        at[i] = 0;
        for (uint32_t k = 0; k < x->problem.n; k++) {
            if (!(done >> k & 1) || !share_time(x, i, k))
                continue;
            int64_t top = at[k] + x->items[k].bytes;
            at[i] = top > at[i] ? top : at[i];
        }
        while (at[i] % x->items[i].align)
            at[i]++;
        int64_t top = at[i] + x->items[i].bytes;
        try_orders(x, done | 1u << i, at, top > height ? top : height, best);
    }
}

static int64_t optimum(const Instance *x)
{
    int64_t at[MOST_ITEMS], best = INT64_MAX;
    try_orders(x, 0, at, 0, &best);
    return best;
}

/* ---- whose byte is it ---- */
static bool is_valid(const Instance *x, int64_t height)
{
    static uint8_t map[BYTES_OF_MAP];
    bool reached = false;
    for (int64_t t = 0; t < MOST_TIME; t++) {
        memset(map, 0, sizeof map);
        for (uint32_t i = 0; i < x->problem.n; i++) {
            const FgPackItem *item = &x->items[i];
            reached |= item->offset + item->bytes == height;
            if (item->offset < 0 || item->offset % item->align ||
                item->offset + item->bytes > height || height > BYTES_OF_MAP)
                return false;
            for (uint32_t k = 0; k < item->n_spans; k++) {
                const FgPackSpan *s = &x->spans[item->span + k];
                for (int64_t b = s->low; s->from <= t && t < s->to && b < s->high; b++)
                    if (map[item->offset + b]++)
                        return false;
            }
        }
    }
    return reached;
}

static FgPackResult pack(Instance *x, uint32_t rounds, uint64_t steps, int64_t capacity)
{
    FgArena *a = fg_arena_new();
    FgPackEffort effort = {rounds, steps, capacity};
    FgPackResult result = fg_pack(a, &x->problem, &effort);
    fg_arena_free(a);
    return result;
}

static void small_ones_are_optimal(int *failures)
{
    static Instance x;
    uint32_t above_bound = 0;
    for (uint64_t seed = 1; seed <= 1500 && *failures < 4; seed++) {
        Shape shape = (Shape)(seed % 3);
        make(&x, seed, shape, 2 + (uint32_t)(seed % 6), 3 + (uint32_t)(seed % 5), 12);
        int64_t best = optimum(&x);
        FgPackResult r = pack(&x, 1 + (uint32_t)(seed % 4), 1000000, 0);
        CHECK_EQ_U64(r.height, best);
        CHECK_EQ_U64(r.lower_bound, best);
        CHECK(is_valid(&x, r.height));
        FgPackResult fit = pack(&x, 1, 0, 0); /* no search: valid, and never below */
        CHECK(fit.height >= best && fit.lower_bound <= best && is_valid(&x, fit.height));
        above_bound += best > fit.lower_bound;
        r = pack(&x, 1, 1000000, best - 1);
        CHECK(best == 1 || (r.height == best && r.lower_bound == best));
    }
    CHECK(above_bound > 20); /* the bound alone would not do */
}

static void large_ones_are_valid(int *failures)
{
    static Instance x, again;
    uint32_t at_bound = 0, n = 0;
    for (uint64_t seed = 1; seed <= 40 && *failures < 4; seed++) {
        make(&x, seed, (Shape)(seed % 4), 20 + (uint32_t)(seed * 7 % 140), MOST_TIME, 100);
        FgPackResult fit = pack(&x, 8, 0, 0);
        CHECK(is_valid(&x, fit.height));
        FgPackResult r = pack(&x, 8, 4000, 0);
        CHECK(is_valid(&x, r.height));
        CHECK(r.height <= fit.height && r.height >= r.lower_bound && r.steps <= 4000);
        again = x;
        again.problem.items = again.items;
        again.problem.spans = again.spans;
        pack(&again, 8, 4000, 0);
        for (uint32_t i = 0; i < x.problem.n; i++)
            CHECK_EQ_U64(x.items[i].offset, again.items[i].offset);
        if (getenv("PP"))
            printf("%d n %u fit %ld r %ld lb %ld nodes %lu\n", (int)(seed % 4), x.problem.n,
                   fit.height, r.height, r.lower_bound, r.steps);
        at_bound += seed % 4 == PLAIN && r.height == r.lower_bound;
        n += seed % 4 == PLAIN;
    }
    CHECK(at_bound * 2 > n);
}

/* With windows the search may miss placements, but must say nothing false. */
static void windows_keep_apart(int *failures)
{
    static Instance x;
    for (uint64_t seed = 1; seed <= 400 && *failures < 4; seed++) {
        make(&x, seed, WINDOWS, 3 + (uint32_t)(seed % 10), 12, 20);
        FgPackResult r = pack(&x, 2, 2000, 0);
        CHECK(is_valid(&x, r.height) && r.lower_bound <= r.height);
    }
}

/* A capacity ends the work as soon as it is met. */
static void capacities(int *failures)
{
    static Instance x;
    make(&x, 7, PLAIN, 100, MOST_TIME, 100);
    FgPackResult best = pack(&x, 8, 20000, 0), roomy = pack(&x, 8, 20000, 2 * best.height);
    CHECK_EQ_U64(roomy.steps, 0);
    CHECK(roomy.height <= 2 * best.height && is_valid(&x, roomy.height));
    Instance none = {.problem = {0}};
    FgPackResult r = pack(&none, 1, 10, 0);
    CHECK_EQ_U64(r.height, 0);
}

/* A step of a model: each layer saves values from forward to backward, and has its weights gathered
 * in both and a gradient buffer; some weights are gathered for the next step. */
#define LAYERS 8
static void add_life(Instance *x, int64_t from, int64_t to, int64_t bytes)
{
    FgPackItem *item = &x->items[x->problem.n++];
    *item = (FgPackItem){.bytes = bytes, .align = 1, .span = x->n_spans};
    if (to > MOST_TIME)
        add_span(x, item, 0, to - MOST_TIME, 0, bytes);
    add_span(x, item, from, to < MOST_TIME ? to : MOST_TIME, 0, bytes);
}

static void make_layers(Instance *x, uint64_t seed)
{
    Random r = {seed};
    memset(x, 0, sizeof *x);
    x->problem = (FgPackProblem){x->items, x->spans, 0};
    uint32_t rounds = 1 + random_below(&r, 4);
    for (uint32_t k = 0; k < LAYERS; k++) {
        int64_t at = 5 * (int64_t)k, back = MOST_TIME - at - 5, ahead = random_below(&r, 8);
        int64_t end = MOST_TIME - 1 - random_below(&r, 12);
        for (uint32_t i = 0; i < 2; i++)
            add_life(x, at + i, back + 4 - i, 8);
        for (uint32_t i = 0; i < 8; i++)
            add_life(x, at + i / 2, back + 1 + random_below(&r, 4), 2);
        add_life(x, at, at + 2, 12);
        if (k < rounds)
            add_life(x, end, MOST_TIME + at + 5, 116);
        else
            add_life(x, at > ahead ? at - ahead : 0, at + 5, 116);
        add_life(x, back - ahead, back + 5, 116);
        add_life(x, back + 1, back + 5 + random_below(&r, 12), 116);
    }
}

/* What lives about as long, placed as one: never higher, mostly lower where there is a gap. */
static void blocks_are_no_higher(int *failures)
{
    static Instance x;
    uint32_t gaps = 0, lower = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        FgArena *a = fg_arena_new();
        make_layers(&x, seed);
        FgPackEffort effort = {8, 1000, 0};
        FgPackResult plain = fg_pack_plainly(a, &x.problem, &effort);
        fg_arena_free(a);
        FgPackResult r = pack(&x, 8, 1000, 0);
        CHECK(is_valid(&x, r.height) && r.height <= plain.height);
        gaps += plain.height > plain.lower_bound;
        lower += r.height < plain.height;
    }
    CHECK(gaps >= 8 && 2 * lower >= gaps);
}

UNIT_MAIN({"packing: small ones are optimal", small_ones_are_optimal},
          {"packing: large ones are valid, the same every time", large_ones_are_valid},
          {"packing: windows keep apart", windows_keep_apart},
          {"packing: blocks are no higher", blocks_are_no_higher},
          {"packing: capacities", capacities})
