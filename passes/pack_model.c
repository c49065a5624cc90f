/* pack_model: times become sections, the problem falls into parts.
 *
 * One sweep over the ends of all spans. A section is closed by the first end after a start: only
 * there is the set of what is live not contained in that of a neighbour. So a long timeline with
 * few changes costs as little as a short one.
 *
 *   time     0 1 2 3 4 5 6          section   0 1 2
 *   a        [-----)                a         [0,1)
 *   b          [-------)      ->    b         [0,2)
 *   c                [---)          c         [1,2)
 */
#include "passes/pack_internal.h"

#include "base/diag.h"

#include <stdlib.h>

typedef struct End {
    int64_t time;
    uint32_t span;
    bool start; /* ends come before starts: spans are half open */
} End;

static int by_time(const void *a, const void *b)
{
    const End *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->start != y->start)
        return x->start ? 1 : -1;
    return x->span < y->span ? -1 : x->span > y->span;
}

static uint32_t count_spans(const FgPackProblem *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        FG_ASSERT(p->items[i].bytes > 0 && p->items[i].align > 0 && p->items[i].n_spans > 0);
        n += p->items[i].n_spans;
    }
    return n;
}

static void find_sections(FgArena *arena, const FgPackProblem *p, FgPackModel *m)
{
    uint32_t n = count_spans(p);
    End *ends = FG_NEW_ARRAY(arena, End, 2 * (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const FgPackSpan *s = &p->spans[i];
        FG_ASSERT(s->from < s->to && s->low < s->high);
        ends[2 * i] = (End){s->from, i, true};
        ends[2 * i + 1] = (End){s->to, i, false};
    }
    qsort(ends, 2 * (size_t)n, sizeof *ends, by_time);
    m->reaches = FG_NEW_ARRAY(arena, FgPackReach, n + 1);
    bool started = false;
    for (uint32_t i = 0; i < 2 * n; i++) {
        FgPackReach *r = &m->reaches[ends[i].span];
        if (ends[i].start) {
            r->from = m->n_sections;
            r->low = p->spans[ends[i].span].low;
            r->high = p->spans[ends[i].span].high;
        } else {
            m->n_sections += started;
            r->to = m->n_sections;
        }
        started = ends[i].start;
    }
}

static void add_loads(FgArena *arena, FgPackModel *m)
{
    m->load = FG_NEW_ARRAY(arena, int64_t, m->n_sections + 1);
    for (uint32_t i = 0; i < m->n; i++) {
        const FgPackItem *x = &m->items[i];
        for (uint32_t k = 0; k < x->n_spans; k++) {
            const FgPackReach *r = &m->reaches[x->span + k];
            m->load[r->from] += r->high - r->low;
            m->load[r->to] -= r->high - r->low;
            m->windows |= r->low != 0 || r->high != x->bytes;
        }
        if (x->bytes > m->bound)
            m->bound = x->bytes;
    }
    for (uint32_t s = 0; s < m->n_sections; s++) {
        m->load[s] += s ? m->load[s - 1] : 0;
        if (m->load[s] > m->bound)
            m->bound = m->load[s];
    }
}

/* Parts end where no item goes on. Items are put in the order in which they begin. */
static void find_parts(FgArena *arena, FgPackModel *m)
{
    uint32_t *until = FG_NEW_ARRAY(arena, uint32_t, m->n_sections + 1), reach = 0;
    uint32_t *begun = FG_NEW_ARRAY(arena, uint32_t, m->n_sections + 2); /* items that do before */
    for (uint32_t i = 0; i < m->n; i++) {
        FgPackReach h = fg_pack_hull(m, i);
        begun[h.from + 1]++;
        until[h.from] = h.to > until[h.from] ? h.to : until[h.from];
    }
    m->parts = FG_NEW_ARRAY(arena, FgPackPart, m->n_sections + 1);
    for (uint32_t s = 0; s < m->n_sections; s++) {
        begun[s + 1] += begun[s];
        if (s == reach)
            m->parts[m->n_parts++] = (FgPackPart){.from = s, .first = begun[s]};
        reach = until[s] > reach ? until[s] : reach;
        m->parts[m->n_parts - 1].to = reach;
        m->parts[m->n_parts - 1].n = begun[s + 1] - m->parts[m->n_parts - 1].first;
    }
    m->by_part = FG_NEW_ARRAY(arena, uint32_t, m->n + 1);
    for (uint32_t i = 0; i < m->n; i++)
        m->by_part[begun[fg_pack_hull(m, i).from]++] = i;
}

FgPackModel *fg_pack_model(FgArena *arena, const FgPackProblem *problem)
{
    FgPackModel *m = FG_NEW(arena, FgPackModel);
    m->items = problem->items;
    m->n = problem->n;
    find_sections(arena, problem, m);
    add_loads(arena, m);
    find_parts(arena, m);
    return m;
}

bool fg_pack_distance_of_spans(const FgPackModel *m, uint32_t lower, uint32_t upper, int64_t *out)
{
    const FgPackItem *x = &m->items[lower], *y = &m->items[upper];
    const FgPackReach *a = &m->reaches[x->span], *b = &m->reaches[y->span];
    uint32_t i = 0, k = 0;
    bool meet = false;
    while (i < x->n_spans && k < y->n_spans) {
        if (a[i].from < b[k].to && b[k].from < a[i].to) {
            int64_t d = a[i].high - b[k].low;
            if (!meet || d > *out)
                *out = d;
            meet = true;
        }
        if (a[i].to <= b[k].to)
            i++;
        else
            k++;
    }
    return meet;
}
