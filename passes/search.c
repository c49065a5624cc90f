/* search: the plan that is fastest and fits.
 *
 * Levers are set by a model of time on the compute stream (each node at its own cost, nothing in
 * its way): ahead   walking backwards, a gather must finish when it is needed and before the next
 * one on the link starts; it is issued at the latest compute node that leaves it that long (as late
 * as still hides it); linger  walking forwards, a reduction starts when its gradients are complete
 * and the link is free; its buffer is held until then; keep    a bucket whose next interval comes
 * soon stays gathered, nearest pairs first. Candidates are combinations of a few slacks and numbers
 * of kept buckets. Where one does not fit, what is early at its peak is taken back until it does:
 * prefetches of the latest needs first, then holds, then keeps. Each candidate is lowered and
 * simulated; the fixed plans are candidates too, so the result is never worse than they are. Effort
 * is bounded by counts.
 */
#include "passes/search.h"

#include <stdlib.h>
#include <string.h>

#define MAX_REPAIRS 24

/* ---- the model of time ---- */
typedef struct GatherSite {
    uint32_t gather; /* of the base plan */
    uint32_t use;    /* compute node of the first use */
    uint32_t end;    /* compute node after the last use */
    double seconds;
    uint64_t bytes;
} GatherSite;

typedef struct ReduceSite {
    uint32_t bucket;
    uint32_t ready; /* compute nodes before it */
    double seconds; /* until its buffer is read */
    double after;   /* more work on the same stream before the next */
    double update;  /* norm and update, on the copy stream */
    uint64_t bytes;
} ReduceSite;

typedef struct Model {
    FG_VEC(double) start;       /* compute node -> time; one more entry: the end */
    FG_VEC(GatherSite) gathers; /* in order of need */
    FG_VEC(ReduceSite) reduces; /* in order */
} Model;

static const FgFunc *main_body(const FgModule *sched)
{
    const FgFunc *step = fg_func((FgModule *)sched, "step");
    return step ? step : fg_func((FgModule *)sched, "last");
}

static uint64_t value_bytes(const FgModule *m, uint32_t v)
{
    return fg_type_bytes(m->values.data[v].type);
}

static void model_collective(FgSearch *s, const FgModule *m, const FgNode *node, Model *model,
                             uint32_t compute, uint32_t *seen)
{
    double seconds = fg_node_seconds(m, s->machine, node);
    if (node->op == FG_OP_gather) {
        uint32_t first = 0;
        while (m->plan->gathers.data[first].bucket != node->bucket)
            first++;
        GatherSite site = {first + seen[node->bucket]++, compute, compute,
                           seconds / s->machine->gather_beside_compute,
                           value_bytes(m, node->results[0])};
        fg_vec_push(s->arena, &model->gathers, site);
    } else if (node->op == FG_OP_reduce_scatter) {
        ReduceSite site = {node->bucket,
                           compute,
                           seconds / s->machine->reduce_beside_compute,
                           0,
                           0,
                           value_bytes(m, node->operands[0])};
        fg_vec_push(s->arena, &model->reduces, site);
    } else if (model->reduces.len > 0 && node->stream == FG_STREAM_REDUCE) {
        model->reduces.data[model->reduces.len - 1].after += seconds;
    } else if (model->reduces.len > 0 && node->stream == FG_STREAM_COPY) {
        model->reduces.data[model->reduces.len - 1].update +=
            seconds / s->machine->reduce_beside_compute;
    }
}

/* Reads the base schedule (gathers at use) into the model. */
static void build_model(FgSearch *s, const FgModule *m, Model *model)
{
    const FgIdVec *order = &main_body(m)->order;
    uint32_t *seen = FG_NEW_ARRAY(s->arena, uint32_t, m->buckets.len + 1);
    double now = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        if (node->stream != FG_STREAM_COMPUTE) {
            model_collective(s, m, node, model, model->start.len, seen);
        } else if (node->op == FG_OP_release) {
            for (uint32_t k = model->gathers.len; k > 0; k--)
                if (m->plan->gathers.data[model->gathers.data[k - 1].gather].bucket ==
                    node->bucket) {
                    model->gathers.data[k - 1].end = model->start.len;
                    break;
                }
        } else if (fg_node_is_compute(node)) {
            fg_vec_push(s->arena, &model->start, now);
            now += fg_node_seconds(m, s->machine, node);
        }
    }
    fg_vec_push(s->arena, &model->start, now);
}

/* Last compute node that starts no later than `time`. */
static uint32_t node_at(const Model *model, double time)
{
    uint32_t low = 0, high = model->start.len - 1;
    while (low < high) {
        uint32_t mid = (low + high + 1) / 2;
        if (model->start.data[mid] <= time)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* ---- levers ---- */
static FgPlanGather *gather_of_bucket_use(FgPlan *plan, uint32_t bucket, uint32_t first_use)
{
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        if (plan->gathers.data[i].bucket == bucket && plan->gathers.data[i].first_use == first_use)
            return &plan->gathers.data[i];
    return NULL;
}

static void set_ahead(FgPlan *plan, const FgPlan *base, const Model *model, double slack)
{
    double next_start = model->start.data[model->start.len - 1];
    for (uint32_t i = model->gathers.len; i > 0; i--) {
        const GatherSite *site = &model->gathers.data[i - 1];
        const FgPlanGather *b = &base->gathers.data[site->gather];
        FgPlanGather *gather = gather_of_bucket_use(plan, b->bucket, b->first_use);
        if (!gather) /* kept from before */
            continue;
        double need = model->start.data[site->use];
        double finish = need < next_start ? need : next_start;
        next_start = finish - slack * site->seconds;
        uint32_t at = next_start <= 0 ? 0 : node_at(model, next_start);
        gather->ahead = site->use - (at < site->use ? at : site->use);
    }
}

static void set_linger(FgPlan *plan, const Model *model, double slack)
{
    double free_at = 0, copy_free_at = 0;
    for (uint32_t i = 0; i < model->reduces.len; i++) {
        const ReduceSite *site = &model->reduces.data[i];
        double ready = model->start.data[site->ready];
        double start = ready > free_at ? ready : free_at, read = start + slack * site->seconds;
        free_at = start + site->seconds + site->after;
        uint32_t until = node_at(model, read) + 1;
        plan->buckets.data[site->bucket].linger = until > site->ready ? until - site->ready : 0;
        double begun = read > copy_free_at ? read : copy_free_at;
        copy_free_at = begun + site->update;
        until = node_at(model, begun + slack * site->update) + 1;
        plan->buckets.data[site->bucket].settle = until > site->ready ? until - site->ready : 0;
    }
}

/* Two neighbouring intervals of one bucket, and the time between them. */
typedef struct Pair {
    uint32_t bucket, first_use, next_use;
    double gap;
} Pair;

typedef FG_VEC(Pair) Pairs;

static int by_gap(const void *a, const void *b)
{
    const Pair *x = a, *y = b;
    if (x->gap < y->gap || x->gap > y->gap)
        return x->gap < y->gap ? -1 : 1;
    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    return x->first_use < y->first_use ? -1 : x->first_use > y->first_use;
}

static Pairs find_pairs(FgSearch *s, const FgPlan *base, const Model *model)
{
    Pairs pairs = {0};
    const GatherSite **site_of = FG_NEW_ARRAY(s->arena, const GatherSite *, base->gathers.len + 1);
    for (uint32_t i = 0; i < model->gathers.len; i++)
        site_of[model->gathers.data[i].gather] = &model->gathers.data[i];
    for (uint32_t i = 0; i + 1 < base->gathers.len; i++) {
        const FgPlanGather *a = &base->gathers.data[i], *b = a + 1;
        if (a->bucket != b->bucket || !site_of[i] || !site_of[i + 1])
            continue;
        double gap = model->start.data[site_of[i + 1]->use] - model->start.data[site_of[i]->end];
        Pair pair = {a->bucket, a->first_use, b->first_use, gap};
        fg_vec_push(s->arena, &pairs, pair);
    }
    if (pairs.len > 0)
        qsort(pairs.data, pairs.len, sizeof *pairs.data, by_gap);
    return pairs;
}

/* Joins the interval that starts at next_use to the one before it. */
static void keep_pair(FgPlan *plan, const Pair *pair)
{
    for (uint32_t i = 1; i < plan->gathers.len; i++) {
        FgPlanGather *g = &plan->gathers.data[i];
        if (g->bucket != pair->bucket || g->first_use != pair->next_use)
            continue;
        g[-1].last_use = g->last_use;
        memmove(g, g + 1, (plan->gathers.len - i - 1) * sizeof *g);
        plan->gathers.len--;
        return;
    }
}

static void unkeep_pair(FgArena *arena, FgPlan *plan, const Pair *pair)
{
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        FgPlanGather g = plan->gathers.data[i];
        if (g.bucket != pair->bucket || g.first_use >= pair->next_use ||
            g.last_use < pair->next_use)
            continue;
        fg_vec_push(arena, &plan->gathers, g);
        FgPlanGather *at = &plan->gathers.data[i];
        memmove(at + 1, at, (plan->gathers.len - 1 - i) * sizeof *at);
        at[0].last_use = pair->next_use - 1;
        at[1].first_use = pair->next_use;
        at[1].ahead = 0;
        return;
    }
}

uint32_t fg_plan_kept(const FgPlan *plan, const FgPlan *base)
{
    return base->gathers.len - plan->gathers.len;
}

/* ---- repair ---- */

/* Compute nodes issued up to the peak, in its function. */
static uint32_t compute_index(const FgModule *m, uint32_t peak_node)
{
    for (uint32_t f = 0; f < m->funcs.len; f++) {
        uint32_t n = 0;
        const FgIdVec *order = &m->funcs.data[f].order;
        for (uint32_t i = 0; i < order->len; i++) {
            const FgNode *node = &m->nodes.data[order->data[i]];
            n += fg_node_is_compute(node);
            if (order->data[i] == peak_node)
                return n;
        }
    }
    return 0;
}

/* Takes back what is early at the peak until `excess` bytes are saved. Returns false when nothing
 * is left to take back. */
static bool take_back(FgSearch *s, FgPlan *plan, const FgPlan *base, const Model *model,
                      const Pairs *pairs, uint32_t at, uint64_t excess)
{
    uint64_t saved = 0;
    for (uint32_t i = model->gathers.len; i > 0 && saved < excess;
         i--) { /* prefetches, latest need first */
        const GatherSite *site = &model->gathers.data[i - 1];
        const FgPlanGather *b = &base->gathers.data[site->gather];
        FgPlanGather *g = gather_of_bucket_use(plan, b->bucket, b->first_use);
        if (!g || g->ahead == 0 || site->use < at || (int64_t)site->use - g->ahead > (int64_t)at)
            continue;
        int64_t ahead = (int64_t)site->use - (int64_t)at - 1;
        g->ahead = ahead > 0 && ahead < g->ahead ? ahead : 0;
        saved += site->bytes;
    }
    for (uint32_t i = 0; i < model->reduces.len && saved < excess; i++) { /* holds, oldest first */
        const ReduceSite *site = &model->reduces.data[i];
        FgPlanBucket *bucket = &plan->buckets.data[site->bucket];
        int64_t longest = bucket->settle > bucket->linger ? bucket->settle : bucket->linger;
        if (longest == 0 || site->ready > at || (int64_t)site->ready + longest < (int64_t)at)
            continue;
        bucket->linger = bucket->settle = 0;
        saved += site->bytes;
    }
    for (uint32_t i = pairs->len; i > 0 && saved < excess; i--) { /* keeps, longest gap first */
        uint32_t before = plan->gathers.len;
        unkeep_pair(s->arena, plan, &pairs->data[i - 1]);
        if (plan->gathers.len == before)
            continue;
        saved += 1; /* frees its bytes only if it spans the peak: look again before going on */
        break;
    }
    return saved > 0;
}

bool fg_evaluation_better(const FgEvaluation *a, const FgEvaluation *b, uint64_t budget)
{
    bool fits_a = a->ledger.peak_bytes <= budget, fits_b = b->ledger.peak_bytes <= budget;
    if (fits_a != fits_b)
        return fits_a;
    if (a->sim.step_us < b->sim.step_us || a->sim.step_us > b->sim.step_us)
        return a->sim.step_us < b->sim.step_us;
    return a->ledger.peak_bytes < b->ledger.peak_bytes;
}

/* Evaluates a candidate, repairing it until it fits or nothing is left to take back; *best is
 * replaced by what is better. */
static bool try_plan(FgSearch *s, FgPlan *plan, const FgPlan *base, const Model *model,
                     const Pairs *pairs, FgEvaluation *best)
{
    for (uint32_t i = 0; i <= MAX_REPAIRS; i++) {
        FgArena *arena = fg_arena_new();
        FgModule *module;
        FgEvaluation now;
        bool ok = fg_search_evaluate(s, plan, arena, &now, &module);
        uint32_t at = ok ? compute_index(module, now.ledger.peak_node) : 0;
        fg_arena_free(arena);
        if (!ok)
            return false;
        if (now.ledger.peak_bytes <= s->budget) {
            if (fg_evaluation_better(&now, best, s->budget))
                *best = now;
            return true;
        }
        plan = fg_plan_clone(plan, s->arena);
        if (!take_back(s, plan, base, model, pairs, at, now.ledger.peak_bytes - s->budget))
            return true;
    }
    return true;
}

bool fg_search_compiled(FgSearch *s, const FgEvaluation *fixed, uint32_t n_fixed, FgEvaluation *out)
{
    static const double slacks[] = {1.1, 1.6, 2.5};
    *out = fixed[0];
    for (uint32_t i = 1; i < n_fixed; i++)
        if (fg_evaluation_better(&fixed[i], out, s->budget))
            *out = fixed[i];
    const FgPlan *base = fixed[0].plan;
    FgArena *arena = fg_arena_new();
    FgEvaluation again;
    FgModule *module;
    Model model = {0};
    bool ok = fg_search_evaluate(s, fixed[0].plan, arena, &again, &module);
    if (ok)
        build_model(s, module, &model);
    fg_arena_free(arena);
    if (!ok)
        return false;
    Pairs pairs = find_pairs(s, base, &model);
    for (uint32_t k = 0; k < 3 && ok; k++) {
        for (uint32_t quarter = 0; quarter <= 4 && ok; quarter++) {
            uint32_t kept = pairs.len * quarter / 4;
            if (quarter > 0 && kept == pairs.len * (quarter - 1) / 4)
                continue;
            FgPlan *plan = fg_plan_clone(base, s->arena);
            plan->name = "compiled";
            for (uint32_t i = 0; i < kept; i++)
                keep_pair(plan, &pairs.data[i]);
            set_ahead(plan, base, &model, slacks[k]);
            set_linger(plan, &model, slacks[k]);
            ok = try_plan(s, plan, base, &model, &pairs, out);
        }
    }
    return ok && out->ledger.peak_bytes <= s->budget;
}
