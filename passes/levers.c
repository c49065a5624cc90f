/* levers: a plan that suits a choice of slack, keeps and memory, from the estimate alone.
 *
 * Keeps first, the shortest gap first, each only if its bytes fit all the way; then the gathers
 * that run round the period. Then prefetches: a walk backwards finds the latest issue that still
 * hides each gather (it must finish when it is needed, and before the next one on the link starts);
 * a walk forwards grants it from there, or from the first compute node after which its bytes fit up
 * to its use. Gradients come in parts where that saves time and their bytes fit where they arrive.
 * Holds of gradient buffers and slices until their transfer is likely done. Prefetches come before
 * holds, behind them, or whoever wants its memory earlier first: as the choice says, as far as they
 * fit.
 */
#include "passes/estimate.h"

#include <string.h>

typedef struct Levers {
    const FgEstimate *estimate;
    const FgLeverChoice *choice;
    FgPlan *plan;
    uint64_t *live;   /* place -> bytes, with what is granted so far */
    uint32_t n;       /* places */
    bool *joined;     /* gather site -> kept from the one before: no gather of its own */
    bool *round;      /* gather site -> it runs in the step before */
    uint32_t *latest; /* gather site -> the node before which to issue it, if its bytes fit */
    double link_free, copy_free; /* of reductions; of updates: when they are done so far */
    uint32_t *plan_at; /* gather site -> its gather in the base plan, less what was joined before */
} Levers;

static bool fits(const Levers *l, uint32_t begin, uint32_t end, uint64_t bytes)
{
    for (uint32_t i = begin; i < end && i < l->n; i++)
        if (l->live[i] + bytes > l->choice->arena_limit)
            return false;
    return true;
}

static void grant(Levers *l, uint32_t begin, uint32_t end, uint64_t bytes)
{
    for (uint32_t i = begin; i < end && i < l->n; i++)
        l->live[i] += bytes;
}

/* The first node, not before `begin`, from which on `bytes` fit from their issue up to `end`, a
 * place; `limit`: there is none before that. */
static uint32_t first_fit(const Levers *l, uint32_t begin, uint32_t limit, uint32_t end,
                          uint64_t bytes)
{
    uint32_t place = end, first = fg_place_before(begin);
    while (place > first && l->live[place - 1] + bytes <= l->choice->arena_limit)
        place--;
    uint32_t node = place == first ? begin : place / 2 + 1;
    return node < limit ? node : limit;
}

/* How many of the nodes from `begin` to `end` `bytes` fit beside. */
static uint32_t last_fit(const Levers *l, uint32_t begin, uint32_t end, uint64_t bytes)
{
    uint32_t at = begin;
    while (at < end && fits(l, fg_place_before(at), fg_place_before(at + 1), bytes))
        at++;
    return at;
}

/* Last compute node that starts no later than `time`. */
static uint32_t node_at(const FgEstimate *estimate, double time)
{
    uint32_t low = 0, high = estimate->start.len - 1;
    while (low < high) {
        uint32_t mid = (low + high + 1) / 2;
        if (estimate->start.data[mid] <= time)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static void keep_pairs(Levers *l)
{
    const FgEstimate *estimate = l->estimate;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < estimate->pairs.len && kept < l->choice->kept; i++) {
        const FgGatherSite *a = &estimate->gathers.data[estimate->pairs.data[i].first];
        const FgGatherSite *b = &estimate->gathers.data[estimate->pairs.data[i].next];
        uint32_t begin = fg_place_before(a->end), end = fg_place_before(b->use);
        if (!fits(l, begin, end, a->bytes))
            continue;
        grant(l, begin, end, a->bytes);
        l->joined[estimate->pairs.data[i].next] = true;
        kept++;
    }
}

/* The plan's gathers: the base's, with joined ones merged into those before them. */
static void write_gathers(Levers *l)
{
    const FgEstimate *estimate = l->estimate;
    const FgPlan *base = estimate->base;
    uint32_t *merged = l->plan_at; /* by gather of the base first */
    bool *joined = FG_NEW_ARRAY(estimate->arena, bool, base->gathers.len + 1);
    for (uint32_t i = 0; i < estimate->gathers.len; i++)
        joined[estimate->gathers.data[i].gather] = l->joined[i];
    l->plan->gathers.len = 0;
    for (uint32_t i = 0; i < base->gathers.len; i++) {
        FgPlanGather g = base->gathers.data[i];
        if (joined[i])
            l->plan->gathers.data[l->plan->gathers.len - 1].last_use = g.last_use;
        else
            fg_vec_push(estimate->arena, &l->plan->gathers, g);
        merged[i] = l->plan->gathers.len - 1;
    }
}

/* The first node behind the bucket's update; 0 where it has none. */
static uint32_t behind_update(const FgEstimate *estimate, uint32_t bucket)
{
    for (uint32_t i = 0; i < estimate->reduces.len; i++) {
        const FgReduceSite *site = &estimate->reduces.data[i];
        if (site->bucket != bucket)
            continue;
        uint32_t at = node_at(estimate, site->updated) + 1;
        return at > site->read ? at : site->read;
    }
    return 0;
}

/* The first gathers of a step that may run at the end of the step before: their copies live when it
 * begins. */
static void take_round(Levers *l)
{
    const FgEstimate *estimate = l->estimate;
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; i < estimate->gathers.len && n < l->choice->round; i++) {
        const FgGatherSite *site = &estimate->gathers.data[i];
        uint32_t last = fg_place_before(site->use);
        if (!site->may_round || seen++ < l->choice->left || !fits(l, 0, last, site->bytes))
            continue;
        grant(l, 0, last, site->bytes);
        l->plan->gathers.data[l->plan_at[site->gather]].ahead = site->use;
        l->round[i] = true;
        n++;
    }
}

/* Issues them when their update is done: sooner they would stand in the way of gathers that
 * backward waits for. Not before node `first`. Those that do not fit there begin the step. */
static void place_round(Levers *l, uint32_t first)
{
    const FgEstimate *estimate = l->estimate;
    uint32_t end = estimate->start.len - 1; /* what stands there follows the last node */
    uint32_t n = 0;
    for (uint32_t i = 0; i < estimate->gathers.len; i++) {
        const FgGatherSite *site = &estimate->gathers.data[i];
        if (!l->round[i])
            continue;
        FgPlanGather *g = &l->plan->gathers.data[l->plan_at[site->gather]];
        uint32_t begin = behind_update(estimate, g->bucket);
        begin = begin < first ? first : begin < end ? begin : end;
        if (first == end && end > n) /* in the order of updates, the first bucket's last */
            begin = end - n;
        n++;
        begin = first_fit(l, begin, end, fg_place_of(end), site->bytes);
        if (!fits(l, fg_place_before(begin), l->n, site->bytes))
            continue;
        grant(l, fg_place_before(begin), l->n, site->bytes);
        g->round = true;
        g->ahead = site->use + (int64_t)(end - begin);
    }
}

/* The node before which the last of the other gathers is issued. */
static uint32_t last_issue(const Levers *l)
{
    for (uint32_t i = l->estimate->gathers.len; i > 0; i--) {
        const FgGatherSite *site = &l->estimate->gathers.data[i - 1];
        if (!l->joined[i - 1] && !l->round[i - 1])
            return site->use - (uint32_t)l->plan->gathers.data[l->plan_at[site->gather]].ahead;
    }
    return 0;
}

/* The latest issue of each gather that still hides it, and the ones behind it on the link. */
static void find_latest(Levers *l, FgArena *scratch)
{
    const FgEstimate *estimate = l->estimate;
    l->latest = FG_NEW_ARRAY(scratch, uint32_t, estimate->gathers.len + 1);
    double next_start = estimate->start.data[estimate->start.len - 1];
    for (uint32_t i = estimate->gathers.len; i > 0; i--) {
        const FgGatherSite *site = &estimate->gathers.data[i - 1];
        if (l->joined[i - 1] || l->round[i - 1])
            continue;
        double need = estimate->start.data[site->use];
        double finish = need < next_start ? need : next_start;
        next_start = finish - l->choice->slack * site->seconds;
        uint32_t at = next_start <= 0 ? 0 : node_at(estimate, next_start);
        l->latest[i - 1] = at < site->use ? at : site->use;
    }
}

static void prefetch(Levers *l, uint32_t i)
{
    const FgGatherSite *site = &l->estimate->gathers.data[i];
    if (l->joined[i] || l->round[i])
        return;
    uint32_t begin = l->latest[i] > site->earliest ? l->latest[i] : site->earliest;
    uint32_t last = fg_place_before(site->use);
    begin = begin < site->use ? first_fit(l, begin, site->use, last, site->bytes) : site->use;
    grant(l, fg_place_before(begin), last, site->bytes);
    l->plan->gathers.data[l->plan_at[site->gather]].ahead = site->use - begin;
}

/* How long to hold `bytes` that are read until `time`. */
static int64_t hold(Levers *l, uint32_t ready, double time, uint64_t bytes)
{
    uint32_t until = node_at(l->estimate, time) + 1;
    if (until <= ready)
        return 0;
    uint32_t end = last_fit(l, ready, until, bytes);
    grant(l, fg_place_before(ready), fg_place_before(end), bytes);
    return end - ready;
}

static bool wants_parts(const FgReduceSite *site, bool whatever)
{
    return site->may_part && (whatever || site->saved > 0);
}

bool fg_estimate_wants_parts(const FgEstimate *estimate, bool whatever)
{
    for (uint32_t i = 0; i < estimate->reduces.len; i++)
        if (wants_parts(&estimate->reduces.data[i], whatever))
            return true;
    return false;
}

/* The parts of a gradient arrive, and are read, between the compute nodes around its reduction. */
static void take_parts(Levers *l)
{
    for (uint32_t i = 0; i < l->estimate->reduces.len; i++) {
        const FgReduceSite *site = &l->estimate->reduces.data[i];
        uint32_t at = fg_place_of(site->ready > 0 ? site->ready - 1 : 0);
        uint64_t more = site->bytes - site->own_bytes;
        if (!wants_parts(site, l->choice->all_parts) || !fits(l, at, at + 1, more))
            continue;
        grant(l, at, at + 1, more);
        l->plan->buckets.data[site->bucket].parts = true;
    }
}

/* Of the gradient buffer of a reduction, and of its slice. */
static void hold_gradient(Levers *l, uint32_t i)
{
    const FgReduceSite *site = &l->estimate->reduces.data[i];
    FgPlanBucket *bucket = &l->plan->buckets.data[site->bucket];
    double slack = l->choice->slack, ready = l->estimate->start.data[site->ready];
    double start = ready > l->link_free ? ready : l->link_free;
    double seconds = bucket->parts ? site->parts : site->seconds;
    double read = start + slack * seconds;
    l->link_free = start + seconds + site->after;
    bucket->linger = hold(l, site->ready, read, site->bytes);
    double begun = read > l->copy_free ? read : l->copy_free;
    l->copy_free = begun + site->update;
    if (l->estimate->pending.len == 0)
        bucket->settle = hold(l, site->read, begun + slack * site->update,
                              bucket->parts ? site->bytes : site->own_bytes);
}

/* Prefetches and holds, in the order of the choice. */
static void share_memory(Levers *l)
{
    uint32_t gather = 0, reduce = 0;
    while (gather < l->estimate->gathers.len || reduce < l->estimate->reduces.len) {
        bool more_gathers = gather < l->estimate->gathers.len;
        bool more_reduces = reduce < l->estimate->reduces.len;
        bool first = l->choice->order == FG_ORDER_PREFETCHES;
        if (l->choice->order == FG_ORDER_TIME && more_gathers && more_reduces)
            first = l->latest[gather] <= l->estimate->reduces.data[reduce].ready;
        if (more_gathers && (first || !more_reduces))
            prefetch(l, gather++);
        else
            hold_gradient(l, reduce++);
    }
}

/* Pending updates are issued together, and run one behind the other. */
static void settle_pending(Levers *l)
{
    const FgEstimate *estimate = l->estimate;
    double copy_free = 0;
    for (uint32_t i = 0; i < estimate->pending.len; i++) {
        const FgPendingSite *site = &estimate->pending.data[i];
        double issued = estimate->start.data[site->ready];
        double begun = issued > copy_free ? issued : copy_free;
        copy_free = begun + site->seconds;
        l->plan->buckets.data[site->bucket].settle =
            hold(l, site->ready, begun + l->choice->slack * site->seconds, site->own_bytes);
    }
}

FgPlan *fg_estimate_plan(const FgEstimate *estimate, FgArena *scratch, const FgLeverChoice *choice)
{
    Levers l = {.estimate = estimate, .choice = choice, .n = estimate->live.len};
    l.plan = fg_plan_clone(estimate->base, estimate->arena);
    l.plan->name = "compiled";
    l.live = FG_NEW_ARRAY(scratch, uint64_t, l.n + 1);
    memcpy(l.live, estimate->live.data, l.n * sizeof *l.live);
    l.joined = FG_NEW_ARRAY(scratch, bool, estimate->gathers.len + 1);
    l.round = FG_NEW_ARRAY(scratch, bool, estimate->gathers.len + 1);
    l.plan_at = FG_NEW_ARRAY(scratch, uint32_t, estimate->base->gathers.len + 1);
    for (uint32_t i = 0; i < estimate->early.len; i++)
        l.plan->buckets.data[estimate->early.data[i]].early = true;
    keep_pairs(&l);
    write_gathers(&l);
    take_round(&l);
    if (choice->place != FG_ROUND_BEHIND)
        place_round(&l, choice->place == FG_ROUND_END ? estimate->start.len - 1 : 0);
    if (choice->parts)
        take_parts(&l);
    find_latest(&l, scratch);
    share_memory(&l);
    if (choice->place == FG_ROUND_BEHIND)
        place_round(&l, last_issue(&l));
    settle_pending(&l);
    return l.plan;
}

void fg_estimate_holds(const FgEstimate *estimate, FgArena *scratch, double slack, FgPlan *plan)
{
    FgLeverChoice choice = {.slack = slack, .arena_limit = UINT64_MAX};
    Levers l = {.estimate = estimate, .choice = &choice, .plan = plan, .n = estimate->live.len};
    l.live = FG_NEW_ARRAY(scratch, uint64_t, l.n + 1);
    for (uint32_t i = 0; i < estimate->reduces.len; i++)
        hold_gradient(&l, i);
    settle_pending(&l);
}
