/* pack: lifetimes and sizes -> addresses.
 *
 * First fit comes first: it is fast, and mostly it meets the liveness bound, which nothing beats.
 * Where it does not, exact search (pack_search.c) is asked whether each part that is too high fits
 * the bound; then, as long as there are steps left, heights between the bound and the best
 * placement, halving the distance. A height that was shown impossible raises the bound. Where that
 * leaves a gap, items that live about as long are placed as one (pack_blocks.c).
 *
 * All heights that a placement can have are multiples of the greatest common divisor of sizes and
 * alignments; only those are tried. Effort is counted, never timed, so every machine gets the same
 * addresses.
 */
#include "passes/pack_internal.h"

#include "base/diag.h"

#define MOST_OF_STEPS 2 /* one question may take an n-th of the steps that are left */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Heights are multiples of it. */
static int64_t grain_of(const FgPackProblem *p)
{
    int64_t grain = 0;
    uint32_t n_spans = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        grain = common_divisor(common_divisor(p->items[i].bytes, p->items[i].align), grain);
        n_spans += p->items[i].n_spans;
    }
    for (uint32_t i = 0; i < n_spans; i++)
        grain = common_divisor(common_divisor(p->spans[i].low, p->spans[i].high), grain);
    return grain;
}

typedef struct Packing {
    FgArena *arena; /* of the searches */
    const FgPackModel *m;
    int64_t *offsets, *trial;
    int64_t *heights;        /* of the parts */
    FgPackSearch **searches; /* of the parts that were asked about; NULL: not yet, or too large */
    uint64_t left;           /* steps */
} Packing;

static int64_t part_height(const Packing *p, const FgPackPart *part, const int64_t *offsets)
{
    int64_t height = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        uint32_t item = p->m->by_part[part->first + i];
        int64_t end = offsets[item] + p->m->items[item].bytes;
        height = end > height ? end : height;
    }
    return height;
}

static int64_t height_of(const Packing *p)
{
    int64_t height = 0;
    for (uint32_t k = 0; k < p->m->n_parts; k++)
        height = p->heights[k] > height ? p->heights[k] : height;
    return height;
}

static FgPackVerdict ask_part(Packing *p, uint32_t k, int64_t capacity, uint64_t *steps)
{
    if (!p->searches[k])
        p->searches[k] = fg_pack_search_new(p->arena, p->m, &p->m->parts[k]);
    if (!p->searches[k])
        return FG_PACK_GAVE_UP;
    return fg_pack_search(p->searches[k], capacity, steps, p->trial);
}

/* Whether all parts fit; what is found on the way is kept. */
static FgPackVerdict ask(Packing *p, int64_t capacity)
{
    FgPackVerdict verdict = FG_PACK_FOUND;
    uint64_t steps = (p->left + MOST_OF_STEPS - 1) / MOST_OF_STEPS;
    p->left -= steps;
    for (uint32_t k = 0; k < p->m->n_parts && verdict == FG_PACK_FOUND; k++) {
        const FgPackPart *part = &p->m->parts[k];
        if (p->heights[k] <= capacity)
            continue;
        verdict = ask_part(p, k, capacity, &steps);
        if (verdict != FG_PACK_FOUND)
            break;
        for (uint32_t i = 0; i < part->n; i++) {
            uint32_t item = p->m->by_part[part->first + i];
            p->offsets[item] = p->trial[item];
        }
        p->heights[k] = part_height(p, part, p->offsets);
    }
    p->left += steps;
    return verdict;
}

/* Largest multiple of the grain in [low, high) at or below the middle. */
static int64_t between(int64_t low, int64_t high, int64_t grain)
{
    int64_t mid = low + (high - low) / 2 / grain * grain;
    return mid < high ? mid : low;
}

/* Asks for heights until the best one is shown least, is not above the capacity wanted, or the
 * steps are spent. */
static void improve(Packing *p, const FgPackEffort *effort, int64_t grain, FgPackResult *out)
{
    int64_t low = fg_pack_align(out->lower_bound, grain), next = low;
    if (effort->capacity > low)
        next = effort->capacity / grain * grain;
    while (p->left > 0 && low < out->height && out->height > effort->capacity) {
        FgPackVerdict verdict = ask(p, next);
        out->height = height_of(p);
        if (verdict == FG_PACK_FOUND)
            next = low < out->height ? between(low, out->height, grain) : low;
        if (verdict == FG_PACK_FOUND)
            continue;
        if (verdict == FG_PACK_NONE && next + grain > out->lower_bound)
            out->lower_bound = next + grain;
        low = next + grain;
        next = between(low, out->height, grain);
    }
}

static FgPackResult pack(FgArena *scratch, FgPackProblem *problem, const FgPackEffort *effort,
                         bool blocks)
{
    FgPackResult out = {0};
    if (problem->n == 0)
        return out;
    const FgPackModel *m = fg_pack_model(scratch, problem);
    Packing p = {.m = m, .left = effort->steps};
    p.offsets = FG_NEW_ARRAY(scratch, int64_t, m->n);
    p.trial = FG_NEW_ARRAY(scratch, int64_t, m->n);
    p.heights = FG_NEW_ARRAY(scratch, int64_t, m->n_parts);
    out.lower_bound = m->bound;
    int64_t goal = m->bound > effort->capacity ? m->bound : effort->capacity;
    out.height = fg_pack_fit(scratch, m, effort->rounds, goal, p.offsets);
    if (out.height > goal && effort->steps > 0) {
        p.arena = fg_arena_new();
        p.searches = FG_NEW_ARRAY(scratch, FgPackSearch *, m->n_parts);
        for (uint32_t k = 0; k < m->n_parts; k++)
            p.heights[k] = part_height(&p, &m->parts[k], p.offsets);
        improve(&p, effort, grain_of(problem), &out);
        fg_arena_free(p.arena);
    }
    goal = out.lower_bound > effort->capacity ? out.lower_bound : effort->capacity;
    if (blocks && out.height > goal && effort->steps > 0)
        out.height = fg_pack_blocks(scratch, m, effort->steps, goal, out.height, p.offsets);
    out.steps = effort->steps - p.left;
    for (uint32_t i = 0; i < m->n; i++)
        problem->items[i].offset = p.offsets[i];
    return out;
}

FgPackResult fg_pack(FgArena *scratch, FgPackProblem *problem, const FgPackEffort *effort)
{
    return pack(scratch, problem, effort, true);
}

FgPackResult fg_pack_plainly(FgArena *scratch, FgPackProblem *problem, const FgPackEffort *effort)
{
    return pack(scratch, problem, effort, false);
}
