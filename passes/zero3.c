/* zero3: DeepSpeed's rules on the places of a lowered base plan.
 *
 * Persistent parameters stay gathered for the whole step. After a use, a parameter stays gathered
 * when it is used again before `max_reuse_distance` other elements are; at each use the following
 * ones are gathered until `prefetch_bucket_size` elements are on their way, while no more than
 * `max_live_parameters` are available. Gradients wait until the reduce bucket is full: they keep
 * their memory until then (their reduction is issued at once here, which only favours the
 * baseline, as does a reduce bucket that is no larger than what is in it).
 */
#include "passes/zero3.h"

#include <string.h>

/* With a reduce bucket, gradients also outlive their reduction and update as the compiled plans'
 * do: DeepSpeed keeps them until the optimizer's step. */
#define HOLD_SLACK 1.6

FgPlan *fg_zero3_base(FgModule *graph, FgArena *scratch, FgRecompute recompute,
                      const FgZero3 *knobs)
{
    FgBorders borders = {.by_module = knobs->by_module,
                         .persistence = knobs->param_persistence_threshold};
    return fg_plan_units(graph, scratch, "zero3", recompute, borders);
}

typedef struct Walk {
    const FgEstimate *base;
    const FgModule *sched;
    const FgZero3 *knobs;
    uint32_t n;
    int64_t *elements; /* site -> of its bucket */
    bool *persistent;  /* site */
    bool *joined;      /* site -> kept from the one before */
    uint32_t *next;    /* site -> the next of its bucket, or FG_NO_ID */
    uint32_t *ahead;   /* site */
} Walk;

static void read_sites(Walk *w, FgArena *scratch)
{
    uint32_t *last = FG_NEW_ARRAY(scratch, uint32_t, w->sched->buckets.len + 1);
    memset(last, 0xff, w->sched->buckets.len * sizeof *last);
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t b = w->base->base->gathers.data[w->base->gathers.data[i].gather].bucket;
        const FgBucket *bucket = &w->sched->buckets.data[b];
        const FgType *first = w->sched->params.data[bucket->params[0]].type;
        w->elements[i] = (int64_t)bucket->elements;
        w->persistent[i] = fg_type_elements(first) <= w->knobs->param_persistence_threshold;
        w->next[i] = FG_NO_ID;
        if (last[b] != FG_NO_ID)
            w->next[last[b]] = i;
        last[b] = i;
    }
}

/* A later use within the reuse distance keeps the bucket: elements of the uses between, each
 * counted as often as it is met. */
static void join_sites(Walk *w, FgArena *scratch)
{
    int64_t *before = FG_NEW_ARRAY(scratch, int64_t, w->n + 1);
    for (uint32_t i = 0; i < w->n; i++)
        before[i + 1] = before[i] + (w->persistent[i] ? 0 : w->elements[i]);
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t next = w->next[i];
        if (next != FG_NO_ID)
            w->joined[next] =
                w->persistent[i] || before[next] - before[i + 1] < w->knobs->max_reuse_distance;
    }
}

/* Where the stretch that begins at a site ends. */
static uint32_t stretch_end(const Walk *w, uint32_t site)
{
    while (w->next[site] != FG_NO_ID && w->joined[w->next[site]])
        site = w->next[site];
    return w->base->gathers.data[site].end;
}

static void prefetch_sites(Walk *w, FgArena *scratch)
{
    int64_t available = 0;
    bool *issued = FG_NEW_ARRAY(scratch, bool, w->n + 1);
    bool *ended = FG_NEW_ARRAY(scratch, bool, w->n + 1);
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const FgGatherSite *site = &w->base->gathers.data[i];
        for (uint32_t k = oldest; k < i; k++)
            if (issued[k] && !ended[k] && stretch_end(w, k) <= site->use) {
                available -= w->elements[k];
                ended[k] = true;
            }
        while (oldest < i && (ended[oldest] || !issued[oldest]))
            oldest++;
        if (w->joined[i] || w->persistent[i])
            continue;
        if (!issued[i])
            available += w->elements[i];
        issued[i] = true;
        int64_t room = w->knobs->max_live_parameters - available, asked = 0;
        int64_t limit =
            room < w->knobs->prefetch_bucket_size ? room : w->knobs->prefetch_bucket_size;
        for (uint32_t k = i + 1; k < w->n && asked < limit; k++) {
            if (issued[k] || w->joined[k] || w->persistent[k])
                continue;
            issued[k] = true;
            w->ahead[k] = w->base->gathers.data[k].use - site->use;
            asked += w->elements[k];
            available += w->elements[k];
        }
    }
}

static void write_gathers(const Walk *w, FgArena *scratch, FgPlan *plan)
{
    uint32_t n = w->base->base->gathers.len;
    uint32_t *site_of = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    for (uint32_t i = 0; i < w->n; i++)
        site_of[w->base->gathers.data[i].gather] = i;
    plan->gathers.len = 0;
    for (uint32_t i = 0; i < n; i++) {
        FgPlanGather g = w->base->base->gathers.data[i];
        g.ahead = w->ahead[site_of[i]];
        if (w->joined[site_of[i]])
            plan->gathers.data[plan->gathers.len - 1].last_use = g.last_use;
        else
            fg_vec_push(w->base->arena, &plan->gathers, g);
    }
}

/* Gradients in the reduce bucket keep their memory until the next one would overfill it. */
static void fill_reduce_buckets(const Walk *w, FgPlan *plan)
{
    uint32_t n = w->base->reduces.len, end = w->base->start.len - 1, first = 0;
    int64_t filled = 0;
    for (uint32_t i = 0; i <= n; i++) {
        const FgReduceSite *site = i < n ? &w->base->reduces.data[i] : NULL;
        int64_t more = site ? (int64_t)w->sched->buckets.data[site->bucket].elements : 0;
        if (site && filled + more <= w->knobs->reduce_bucket_size) {
            filled += more;
            continue;
        }
        uint32_t until = site ? site->ready : end;
        for (uint32_t k = first; k < i; k++) {
            const FgReduceSite *held = &w->base->reduces.data[k];
            int64_t *linger = &plan->buckets.data[held->bucket].linger;
            int64_t nodes = until > held->ready ? until - held->ready : 0;
            *linger = nodes > *linger ? nodes : *linger;
        }
        first = i;
        filled = more;
    }
}

FgPlan *fg_zero3_plan(const FgEstimate *base, FgArena *scratch, const FgModule *sched,
                      const FgZero3 *knobs)
{
    uint32_t n = base->gathers.len;
    Walk w = {.base = base, .sched = sched, .knobs = knobs, .n = n};
    w.elements = FG_NEW_ARRAY(scratch, int64_t, n + 1);
    w.persistent = FG_NEW_ARRAY(scratch, bool, n + 1);
    w.joined = FG_NEW_ARRAY(scratch, bool, n + 1);
    w.next = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    w.ahead = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    read_sites(&w, scratch);
    join_sites(&w, scratch);
    prefetch_sites(&w, scratch);
    FgPlan *plan = fg_plan_clone(base->base, base->arena);
    write_gathers(&w, scratch, plan);
    if (knobs->reduce_bucket_size > 0) {
        fg_estimate_holds(base, scratch, HOLD_SLACK, plan);
        fill_reduce_buckets(&w, plan);
    }
    return plan;
}
