/* estimate: time and memory of a step by compute node.
 *
 * Read off the schedule that gathers at use. Time is that of the compute stream with nothing in its
 * way, or as a simulated run of a better plan had it; memory is what lives at each compute node.
 * What a lever costs in bytes over which nodes is then a sum over an array, and the search need not
 * lower a plan to see that it cannot fit. What the estimate leaves out (placement loss, a
 * collective that runs later than it was issued) shows when the plan is lowered.
 */
#include "passes/estimate.h"

#include "passes/liveness.h"
#include "passes/simulate.h"

#include <stdlib.h>
#include <string.h>

static const FgFunc *main_body(const FgModule *sched)
{
    const FgFunc *step = fg_func((FgModule *)sched, "step");
    return step ? step : fg_func((FgModule *)sched, "last");
}

static uint64_t value_bytes(const FgModule *m, uint32_t v)
{
    return fg_type_bytes(m->values.data[v].type);
}

/* ---- time ---- */
/* How fast an engine is beside compute, and compute beside it. */
typedef struct Pair {
    double engine, compute;
} Pair;

/* What nodes are timed with; by engine, of those on other streams than compute. */
typedef struct Rates {
    const FgModule *module;
    const FgMachine *machine;
    Pair of[FG_N_ENGINES];
} Rates;

/* Large products and light work slow others in their own ways: the mean by their time. */
static Pair beside_compute(const FgMachine *machine, uint32_t engine, double share)
{
    bool running[FG_N_ENGINES] = {[FG_STREAM_COMPUTE] = true};
    double large[FG_N_ENGINES], light[FG_N_ENGINES], rest = 1 - share;
    running[engine] = true;
    fg_engine_speeds(machine, running, large);
    running[FG_STREAM_COMPUTE] = false;
    running[FG_ENGINE_LIGHT] = true;
    fg_engine_speeds(machine, running, light);
    return (Pair){rest * large[engine] + share * light[engine],
                  rest * large[FG_STREAM_COMPUTE] + share * light[FG_ENGINE_LIGHT]};
}

/* Of the time that compute takes in a body. */
static double light_share(const FgModule *m, const FgMachine *machine)
{
    const FgIdVec *order = &main_body(m)->order;
    double all = 0, light = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        FgCost cost;
        if (!fg_node_is_compute(node))
            continue;
        fg_node_cost(m, node, &cost);
        double seconds = fg_cost_seconds(m, machine, node, &cost);
        all += seconds;
        light += fg_engine_of(machine, node, &cost) == FG_ENGINE_LIGHT ? seconds : 0;
    }
    return all > 0 ? light / all : 0;
}

static Rates rates_of(const FgModule *m, const FgMachine *machine)
{
    Rates rates = {.module = m, .machine = machine};
    double light = light_share(m, machine);
    for (uint32_t e = 0; e < FG_N_ENGINES; e++)
        if (e != FG_STREAM_COMPUTE && e != FG_ENGINE_LIGHT)
            rates.of[e] = beside_compute(machine, e, light);
    return rates;
}

static double seconds_alone(const Rates *rates, const FgNode *node)
{
    return fg_node_seconds(rates->module, rates->machine, node);
}

/* Of a node on another stream than compute, while compute runs. */
static double seconds_beside(const Rates *rates, const FgNode *node)
{
    FgCost cost;
    fg_node_cost(rates->module, node, &cost);
    return fg_cost_seconds(rates->module, rates->machine, node, &cost) /
           rates->of[fg_engine_of(rates->machine, node, &cost)].engine;
}

static void add_gather(FgEstimate *estimate, const Rates *rates, const FgNode *node, uint32_t *seen,
                       uint32_t *last_end)
{
    const FgModule *m = rates->module;
    uint32_t first = 0, at = estimate->start.len;
    while (estimate->base->gathers.data[first].bucket != node->bucket)
        first++;
    double seconds = seconds_beside(rates, node);
    const FgPlanBucket *bucket = &estimate->base->buckets.data[node->bucket];
    FgGatherSite site = {.gather = first + seen[node->bucket],
                         .earliest = last_end[node->bucket],
                         .use = at,
                         .end = at,
                         .seconds = seconds,
                         .bytes = value_bytes(m, node->results[0]),
                         .may_round = seen[node->bucket] == 0 && !bucket->offload &&
                                      !bucket->travels && m->numerics.accumulate == 1 &&
                                      !fg_update_waits(&m->numerics)};
    seen[node->bucket]++;
    fg_vec_push(estimate->arena, &estimate->gathers, site);
}

/* What is left of a collective's gain where it comes in parts: the time that it takes beside
 * compute, what compute loses by it, and what the update reads more. */
static void consider_parts(const Rates *rates, const FgNode *node, FgReduceSite *site)
{
    FgNode other = *node;
    site->may_part =
        node->op == FG_OP_reduce_scatter && !fg_parts_refused(rates->module, node->bucket);
    if (!site->may_part)
        return;
    other.op = FG_OP_all_to_all;
    site->parts = seconds_beside(rates, &other);
    double more = (double)(site->bytes - site->own_bytes) / rates->machine->memory_rate;
    site->saved = site->seconds * (2 - rates->of[FG_STREAM_REDUCE].compute) -
                  site->parts * (2 - rates->of[FG_ENGINE_PARTS].compute) - more;
}

static void add_transfer(FgEstimate *estimate, const Rates *rates, const FgNode *node)
{
    const FgModule *m = rates->module;
    double seconds = seconds_beside(rates, node);
    uint32_t n = estimate->reduces.len;
    FgReduceSite *last = n > 0 ? &estimate->reduces.data[n - 1] : NULL;
    if (node->op == FG_OP_reduce_scatter || node->op == FG_OP_all_to_all) {
        FgReduceSite site = {.bucket = node->bucket,
                             .ready = estimate->start.len,
                             .read = estimate->start.len,
                             .seconds = seconds,
                             .bytes = value_bytes(m, node->operands[0]),
                             .own_bytes = value_bytes(m, node->results[0])};
        consider_parts(rates, node, &site);
        fg_vec_push(estimate->arena, &estimate->reduces, site);
    } else if (last && node->stream == FG_STREAM_REDUCE) {
        last->after += seconds;
    } else if (last && node->stream == FG_STREAM_COPY) {
        for (uint32_t i = 0; i < n; i++)
            if (estimate->reduces.data[i].bucket == node->bucket)
                last = &estimate->reduces.data[i];
        last->update += seconds;
        last->read = estimate->start.len;
    }
}

/* Parts of an update (states in host memory) are one site. */
static void add_pending(FgEstimate *estimate, const Rates *rates, const FgNode *node)
{
    const FgModule *m = rates->module;
    uint32_t n = estimate->pending.len;
    double seconds = seconds_alone(rates, node);
    if (n > 0 && estimate->pending.data[n - 1].bucket == node->bucket) {
        estimate->pending.data[n - 1].seconds += seconds;
        return;
    }
    FgPendingSite site = {node->bucket, estimate->start.len, seconds,
                          value_bytes(m, m->buckets.data[node->bucket].grad_shard)};
    fg_vec_push(estimate->arena, &estimate->pending, site);
}

static void close_gather(FgEstimate *estimate, uint32_t bucket, uint32_t *last_end)
{
    for (uint32_t k = estimate->gathers.len; k > 0; k--) {
        FgGatherSite *site = &estimate->gathers.data[k - 1];
        if (estimate->base->gathers.data[site->gather].bucket == bucket) {
            site->end = last_end[bucket] = estimate->start.len;
            return;
        }
    }
}

static void read_body(FgEstimate *estimate, FgArena *scratch, const FgModule *m,
                      const FgMachine *machine)
{
    const FgIdVec *order = &main_body(m)->order;
    uint32_t *seen = FG_NEW_ARRAY(scratch, uint32_t, m->buckets.len + 1);
    uint32_t *last_end = FG_NEW_ARRAY(scratch, uint32_t, m->buckets.len + 1);
    double now = 0;
    const Rates rates = rates_of(m, machine);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        if (node->op == FG_OP_gather) {
            add_gather(estimate, &rates, node, seen, last_end);
        } else if (node->op == FG_OP_release) {
            close_gather(estimate, node->bucket, last_end);
        } else if (fg_node_is_compute(node)) {
            fg_vec_push(estimate->arena, &estimate->start, now);
            now += seconds_alone(&rates, node);
        } else if ((node->op == FG_OP_adamw || node->op == FG_OP_adamw_part) &&
                   fg_node_attr(node, "pending")->i) {
            add_pending(estimate, &rates, node);
        } else if (!fg_node_is_name(node) && node->stream != FG_STREAM_COMPUTE) {
            add_transfer(estimate, &rates, node);
        }
    }
    fg_vec_push(estimate->arena, &estimate->start, now);
}

/* When updates end, by the times that the estimate has. */
static void time_updates(FgEstimate *estimate)
{
    double link_free = 0, copy_free = 0;
    for (uint32_t i = 0; i < estimate->reduces.len; i++) {
        FgReduceSite *site = &estimate->reduces.data[i];
        double ready = estimate->start.data[site->ready];
        double read = (ready > link_free ? ready : link_free) + site->seconds;
        link_free = read + site->after;
        copy_free = (read > copy_free ? read : copy_free) + site->update;
        site->updated = copy_free;
    }
}

void fg_estimate_times(FgArena *arena, FgArena *scratch, const FgModule *sched,
                       const FgMachine *machine, FgTimes *out)
{
    FgSimNode *run = FG_NEW_ARRAY(scratch, FgSimNode, sched->nodes.len + 1);
    double *updated = FG_NEW_ARRAY(arena, double, sched->buckets.len + 1);
    const FgIdVec *order = &main_body(sched)->order;
    fg_simulate_trace(scratch, sched, machine, run);
    *out = (FgTimes){.updated = updated};
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &sched->nodes.data[order->data[i]];
        double end = run[node->id].end_us * 1e-6;
        if (fg_node_is_compute(node)) {
            fg_vec_push(arena, &out->starts, run[node->id].start_us * 1e-6);
            fg_vec_push(arena, &out->ends, end);
        }
        if (node->stream == FG_STREAM_COPY && node->bucket != FG_NO_ID &&
            end > updated[node->bucket])
            updated[node->bucket] = end;
    }
}

void fg_estimate_retime(FgEstimate *estimate, const FgTimes *times)
{
    uint32_t n =
        estimate->start.len - 1 < times->starts.len ? estimate->start.len - 1 : times->starts.len;
    for (uint32_t i = 0; i < n; i++)
        estimate->start.data[i] = times->starts.data[i];
    estimate->start.data[n] = n > 0 ? times->ends.data[n - 1] : 0;
    for (uint32_t i = 0; i < estimate->reduces.len; i++)
        estimate->reduces.data[i].updated = times->updated[estimate->reduces.data[i].bucket];
}

/* ---- memory ---- */
/* Bytes that live before each place of the timeline, as changes: one entry a place and one more. */
static int64_t *changes_of(FgArena *scratch, const FgModule *m, int64_t *out_live)
{
    FgIntervalVec intervals = {0};
    uint32_t len;
    fg_intervals(scratch, m, &intervals, &len);
    int64_t *change = FG_NEW_ARRAY(scratch, int64_t, (size_t)len + 1);
    *out_live = 0;
    for (uint32_t i = 0; i < intervals.len; i++) {
        const FgInterval *x = &intervals.data[i];
        if (m->values.data[x->value].host)
            continue;
        change[x->begin] += (int64_t)x->bytes;
        change[x->end + 1] -= (int64_t)x->bytes;
        *out_live += x->end < x->begin ? (int64_t)x->bytes : 0;
    }
    return change;
}

/* What the order puts right before a compute node. */
static bool is_issued_late(const FgNode *node)
{
    return node->op == FG_OP_gather || node->op == FG_OP_fetch || node->op == FG_OP_hold;
}

/* Bytes that live at each place, the most over the bodies. The timeline begins with these. */
static void read_memory(FgEstimate *estimate, FgArena *scratch, const FgModule *m)
{
    static const char *const bodies[] = {"step", "first", "middle", "last"};
    uint32_t n = fg_place_of(estimate->start.len), at = 0;
    for (uint32_t i = 0; i < n; i++)
        fg_vec_push(estimate->arena, &estimate->live, 0);
    int64_t live, *change = changes_of(scratch, m, &live);
    for (uint32_t f = 0; f < sizeof bodies / sizeof *bodies; f++) {
        const FgFunc *body = fg_func((FgModule *)m, bodies[f]);
        uint32_t begun = 0;
        bool behind = false;
        for (uint32_t i = 0; body && i < body->order.len; i++) {
            const FgNode *node = &m->nodes.data[body->order.data[i]];
            bool compute = fg_node_is_compute(node);
            live += change[at++];
            begun += compute;
            behind = !compute && (behind || is_issued_late(node));
            uint32_t place = behind ? fg_place_before(begun) : fg_place_of(begun ? begun - 1 : 0);
            if (place < n && (uint64_t)live > estimate->live.data[place])
                estimate->live.data[place] = (uint64_t)live;
        }
    }
    for (uint32_t i = 1; i + 1 < n; i += 2) { /* where nothing stands between two nodes */
        const uint64_t *around = &estimate->live.data[i - 1];
        if (around[1] == 0)
            estimate->live.data[i] = around[0] < around[2] ? around[0] : around[2];
    }
}

/* ---- pairs ---- */
typedef struct Gap {
    FgKeepPair pair;
    double seconds;
} Gap;

static int by_gap(const void *a, const void *b)
{
    const Gap *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    return x->pair.first < y->pair.first ? -1 : x->pair.first > y->pair.first;
}

static void find_pairs(FgEstimate *estimate, FgArena *scratch)
{
    uint32_t n = estimate->base->gathers.len;
    uint32_t *site_of = FG_NEW_ARRAY(scratch, uint32_t, n + 1);
    memset(site_of, 0xff, n * sizeof *site_of);
    for (uint32_t i = 0; i < estimate->gathers.len; i++)
        site_of[estimate->gathers.data[i].gather] = i;
    FG_VEC(Gap) gaps = {0};
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t a = site_of[i], b = site_of[i + 1];
        if (a == FG_NO_ID || b == FG_NO_ID ||
            estimate->base->gathers.data[i].bucket != estimate->base->gathers.data[i + 1].bucket)
            continue;
        Gap gap = {{a, b},
                   estimate->start.data[estimate->gathers.data[b].use] -
                       estimate->start.data[estimate->gathers.data[a].end]};
        fg_vec_push(scratch, &gaps, gap);
    }
    if (gaps.len)
        qsort(gaps.data, gaps.len, sizeof *gaps.data, by_gap);
    for (uint32_t i = 0; i < gaps.len; i++)
        fg_vec_push(estimate->arena, &estimate->pairs, gaps.data[i].pair);
}

/* Buckets whose unnamed rows can be updated early (FgPlanBucket: early): one lookup, whose table
 * and states are here, and an update that does not wait for the norm. */
static void find_early(FgEstimate *estimate, const FgModule *m)
{
    for (uint32_t b = 0; b < estimate->base->buckets.len; b++) {
        const FgPlanBucket *bucket = &estimate->base->buckets.data[b];
        bool can = bucket->travels && !bucket->offload && m->buckets.data[b].lookups == 1 &&
                   !fg_update_waits(&m->numerics);
        if (can)
            fg_vec_push(estimate->arena, &estimate->early, b);
    }
}

void fg_estimate_build(FgArena *arena, FgArena *scratch, const FgModule *sched, const FgPlan *base,
                       const FgMachine *machine, FgEstimate *out)
{
    *out = (FgEstimate){.arena = arena, .base = base};
    read_body(out, scratch, sched, machine);
    time_updates(out);
    read_memory(out, scratch, sched);
    find_pairs(out, scratch);
    find_early(out, sched);
}
