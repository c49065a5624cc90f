/* What pays: the order of the ladder is seconds of copies for a byte of device memory.
 *
 *   optimizer    once a step: master and moments in and out
 *   activations  once a micro-step: out in forward, in for backward
 *   parameters   in for each gather of each micro-step, in and out for the update
 *
 * Times are those of a model: compute nodes one after the other at their own cost, nothing in their
 * way, and one queue for all fetches, walked backwards from the last need. */
#include "passes/offload_plan.h"

#include "passes/compile.h"

#include <stdlib.h>
#include <string.h>

#define MIN_GAP 6        /* compute nodes for which a stashed activation has to be away */
#define SMALL_RATIO 1024 /* an activation this many times smaller than the largest stays */
#define MIN_PIECES 4     /* so that both directions overlap */
#define MOST_PIECES 64 /* of a bucket: a schedule does not grow with the bytes, whatever they are  \
                        */
#define MOST_EARLY 3   /* a fetch is issued at most so many of its own times ahead */

/* ---- facts about the graph ---- */
typedef struct Need { /* an activation in backward, or the use that a gather serves */
    uint32_t at;      /* compute node */
    double seconds;   /* of the fetch */
    double before;    /* seconds that the gather takes after it */
    int64_t *lever;
} Need;

typedef struct Facts {
    FgArena *arena;
    FgModule *m;
    const FgMachine *machine;
    const FgIdVec *order;
    double *start; /* compute node -> time; one more: the end */
    uint32_t n_compute;
    uint32_t *compute;      /* position -> compute nodes before it */
    uint32_t *stands_for;   /* value -> the one that owns its memory, through views */
    uint32_t *last, *first; /* such a value -> compute nodes at its last use in forward and its
                               first in backward; FG_NO_ID */
} Facts;

static bool is_view(const FgNode *node)
{
    return fg_op_has(node->op, FG_OPF_VIEW);
}

static bool is_work(const FgNode *node)
{
    return !is_view(node) && node->op != FG_OP_grad && node->op != FG_OP_loss_seed &&
           !fg_op_has(node->op, FG_OPF_CONSTANT);
}

static void see_node(Facts *f, uint32_t position)
{
    const FgNode *node = &f->m->nodes.data[f->order->data[position]];
    bool backward = node->phase != FG_PHASE_FORWARD;
    uint32_t at = f->compute[position];
    if (is_view(node)) {
        f->stands_for[node->results[0]] = f->stands_for[node->operands[0]];
        if (!backward)
            return;
    }
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t v = node->operands[k] == FG_NO_ID ? FG_NO_ID : f->stands_for[node->operands[k]];
        if (v == FG_NO_ID)
            continue;
        if (!backward)
            f->last[v] = at;
        else if (f->first[v] == FG_NO_ID)
            f->first[v] = at;
    }
    for (uint32_t k = 0; k < node->n_results && !backward; k++)
        if (node->results[k] != FG_NO_ID)
            f->last[node->results[k]] = at;
}

static Facts find_facts(FgArena *arena, FgModule *graph, const FgMachine *machine)
{
    Facts f = {.arena = arena, .m = graph, .machine = machine};
    f.order = &fg_func(graph, "step")->order;
    f.start = FG_NEW_ARRAY(arena, double, f.order->len + 1);
    f.compute = FG_NEW_ARRAY(arena, uint32_t, f.order->len + 1);
    f.stands_for = FG_NEW_ARRAY(arena, uint32_t, graph->values.len + 1);
    f.last = FG_NEW_ARRAY(arena, uint32_t, graph->values.len + 1);
    f.first = FG_NEW_ARRAY(arena, uint32_t, graph->values.len + 1);
    memset(f.last, 0xff, graph->values.len * sizeof *f.last);
    memset(f.first, 0xff, graph->values.len * sizeof *f.first);
    for (uint32_t v = 0; v < graph->values.len; v++)
        f.stands_for[v] = v;
    double now = 0;
    for (uint32_t i = 0; i < f.order->len; i++) {
        const FgNode *node = &graph->nodes.data[f.order->data[i]];
        f.compute[i] = f.n_compute;
        see_node(&f, i);
        if (!is_work(node))
            continue;
        f.start[f.n_compute++] = now;
        now += fg_node_seconds(graph, machine, node);
    }
    f.start[f.n_compute] = now;
    return f;
}

/* ---- the ladder ---- */

static double copies(const FgMachine *machine, double bytes, double fetches, double stashes)
{
    return fetches * fg_curve_seconds(&machine->fetch, bytes) +
           stashes * fg_curve_seconds(&machine->stash, bytes);
}

static uint64_t slice_elements(FgArena *scratch, const FgModule *graph, const FgMachine *machine,
                               const FgPlanBucket *bucket)
{
    uint64_t *offsets = FG_NEW_ARRAY(scratch, uint64_t, bucket->n_params + 1);
    return fg_bucket_layout(graph, bucket->params, bucket->n_params, machine->ranks, offsets) /
           machine->ranks;
}

static double intervals_of(const FgPlan *plan, uint32_t bucket)
{
    double n = 0;
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        n += plan->gathers.data[i].bucket == bucket;
    return n;
}

static void add_buckets(const Facts *f, const FgPlan *plan, uint32_t classes, FgOffloadLadder *out)
{
    bool *gradient = FG_NEW_ARRAY(f->arena, bool, f->m->params.len + 1);
    double micro = (double)f->m->numerics.accumulate;
    fg_params_with_gradient(f->m, gradient);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        const FgPlanBucket *b = &plan->buckets.data[i];
        FgDtype dtype = f->m->params.data[b->params[0]].type->dtype;
        uint64_t n = slice_elements(f->arena, f->m, f->machine, b);
        bool trained = gradient[b->params[0]];
        uint64_t shard = n * fg_dtype_bytes(dtype), optimizer = n * (dtype == FG_F32 ? 8 : 12);
        if ((classes & FG_OFFLOAD_OPTIMIZER) && trained)
            fg_vec_push(f->arena, out,
                        ((FgOffloadStep){FG_OFFLOAD_OPTIMIZER, i, optimizer,
                                         copies(f->machine, (double)optimizer, 1, 1)}));
        /* The slice of a sharded table is read in place. */
        if ((classes & FG_OFFLOAD_PARAMETERS) && !f->m->params.data[b->params[0]].sharded)
            fg_vec_push(
                f->arena, out,
                ((FgOffloadStep){FG_OFFLOAD_PARAMETERS, i, shard,
                                 copies(f->machine, (double)shard,
                                        micro * intervals_of(plan, i) + trained, trained)}));
    }
}

/* Made by work of forward that is no parameter's, read again in backward after a while. */
static bool can_leave(const Facts *f, const uint32_t *params, const FgNode *node, uint32_t v)
{
    return v != FG_NO_ID && is_work(node) && node->phase == FG_PHASE_FORWARD &&
           params[v] == FG_NO_ID && v != f->m->loss && f->first[v] != FG_NO_ID &&
           f->last[v] != FG_NO_ID && f->first[v] >= f->last[v] + MIN_GAP;
}

static void add_activations(const Facts *f, FgOffloadLadder *out)
{
    const uint32_t *params = fg_param_bases(f->arena, f->m);
    double micro = (double)f->m->numerics.accumulate;
    uint64_t largest = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < f->order->len; i++) {
            const FgNode *node = &f->m->nodes.data[f->order->data[i]];
            for (uint32_t k = 0; k < node->n_results; k++) {
                uint32_t v = node->results[k];
                if (!can_leave(f, params, node, v))
                    continue;
                uint64_t bytes = fg_type_bytes(f->m->values.data[v].type);
                if (pass == 0)
                    largest = bytes > largest ? bytes : largest;
                else if (bytes * SMALL_RATIO >= largest)
                    fg_vec_push(f->arena, out,
                                ((FgOffloadStep){FG_OFFLOAD_ACTIVATIONS, v, bytes,
                                                 copies(f->machine, (double)bytes, micro, micro)}));
            }
        }
    }
}

static int by_price(const void *a, const void *b)
{
    const FgOffloadStep *x = a, *y = b;
    double p = x->seconds * (double)y->bytes, q = y->seconds * (double)x->bytes;
    if (p < q || p > q)
        return p < q ? -1 : 1;
    if (x->what != y->what)
        return x->what < y->what ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

FgOffloadLadder fg_offload_ladder(FgArena *arena, FgModule *graph, const FgMachine *machine,
                                  const FgPlan *plan, uint32_t classes)
{
    FgOffloadLadder out = {0};
    Facts f = find_facts(arena, graph, machine);
    add_buckets(&f, plan, classes, &out);
    if (classes & FG_OFFLOAD_ACTIVATIONS)
        add_activations(&f, &out);
    if (out.len)
        qsort(out.data, out.len, sizeof *out.data, by_price);
    return out;
}

/* ---- levers ---- */

static int by_value(const void *a, const void *b)
{
    const FgPlanStash *x = a, *y = b;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Equal parts, each at most as long as asked for, but where these were too many. */
static int64_t pieces_of(uint64_t slice, uint64_t most)
{
    uint64_t n = (slice + most - 1) / most, can = slice / FG_ALIGN_ELEMENTS;
    n = n < MIN_PIECES ? MIN_PIECES : n;
    n = n > MOST_PIECES ? MOST_PIECES : n;
    n = n > can ? can : n;
    return n ? (int64_t)n : 1;
}

void fg_offload_apply(FgArena *arena, FgPlan *plan, const FgModule *graph, const FgMachine *machine,
                      const FgOffloadLadder *ladder, uint32_t n, uint64_t piece_elements)
{
    for (uint32_t i = 0; i < n && i < ladder->len; i++) {
        const FgOffloadStep *step = &ladder->data[i];
        if (step->what == FG_OFFLOAD_ACTIVATIONS) {
            fg_vec_push(arena, &plan->stashes, ((FgPlanStash){step->index, 0, 0}));
            continue;
        }
        FgPlanBucket *bucket = &plan->buckets.data[step->index];
        bucket->offload |= step->what;
        bucket->pieces = pieces_of(slice_elements(arena, graph, machine, bucket), piece_elements);
    }
    if (plan->stashes.len)
        qsort(plan->stashes.data, plan->stashes.len, sizeof *plan->stashes.data, by_value);
}

/* ---- time ---- */

/* Last compute node that starts no later than `time`. */
static uint32_t node_at(const Facts *f, double time)
{
    uint32_t low = 0, high = f->n_compute;
    while (low < high) {
        uint32_t mid = (low + high + 1) / 2;
        if (f->start[mid] <= time)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

typedef FG_VEC(Need) Needs;

/* The first uses of the plan's gathers whose shards are fetched: uses are counted as `shard` does.
 */
static void add_gathers(const Facts *f, FgPlan *plan, Needs *needs)
{
    const uint32_t *params = fg_param_bases(f->arena, f->m);
    uint32_t *bucket_of = FG_NEW_ARRAY(f->arena, uint32_t, f->m->params.len + 1);
    uint32_t *uses = FG_NEW_ARRAY(f->arena, uint32_t, plan->buckets.len + 1);
    uint32_t *seen = FG_NEW_ARRAY(f->arena, uint32_t, plan->buckets.len + 1); /* 1 + position */
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        for (uint32_t k = 0; k < plan->buckets.data[i].n_params; k++)
            bucket_of[plan->buckets.data[i].params[k]] = i;
    for (uint32_t i = 0; i < f->order->len; i++) {
        const FgNode *node = &f->m->nodes.data[f->order->data[i]];
        for (uint32_t k = 0; k < node->n_operands && !is_view(node); k++) {
            uint32_t v = node->operands[k], p = v == FG_NO_ID ? FG_NO_ID : params[v];
            if (p == FG_NO_ID || seen[bucket_of[p]] == i + 1)
                continue;
            uint32_t b = bucket_of[p], use = uses[b]++;
            seen[b] = i + 1;
            for (uint32_t g = 0; g < plan->gathers.len; g++) {
                FgPlanGather *gather = &plan->gathers.data[g];
                if (gather->bucket != b || gather->first_use != use ||
                    !(plan->buckets.data[b].offload & FG_OFFLOAD_PARAMETERS))
                    continue;
                double bytes =
                    (double)(slice_elements(f->arena, f->m, f->machine, &plan->buckets.data[b]) *
                             fg_dtype_bytes(f->m->params.data[p].type->dtype));
                Need need = {f->compute[i], copies(f->machine, bytes, 1, 0),
                             fg_curve_seconds(&f->machine->gather, bytes * f->machine->ranks),
                             &gather->fetch};
                fg_vec_push(f->arena, needs, need);
            }
        }
    }
}

static void add_stashes(const Facts *f, FgPlan *plan, double slack, Needs *needs)
{
    for (uint32_t i = 0; i < plan->stashes.len; i++) {
        FgPlanStash *stash = &plan->stashes.data[i];
        double bytes = (double)fg_type_bytes(f->m->values.data[stash->value].type);
        uint32_t last = f->last[stash->value], first = f->first[stash->value];
        if (last == FG_NO_ID || first == FG_NO_ID)
            continue;
        double until = f->start[last] + slack * copies(f->machine, bytes, 0, 1);
        uint32_t held = node_at(f, until);
        stash->linger = held > last ? held - last : 0;
        if (stash->linger > (int64_t)(first - last) / 2)
            stash->linger = (int64_t)(first - last) / 2;
        Need need = {first, copies(f->machine, bytes, 1, 0), 0, &stash->ahead};
        fg_vec_push(f->arena, needs, need);
    }
}

static int by_need(const void *a, const void *b)
{
    const Need *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->lever < y->lever ? -1 : x->lever > y->lever;
}

void fg_offload_time(FgArena *scratch, FgPlan *plan, FgModule *graph, const FgMachine *machine,
                     double slack)
{
    Needs needs = {0};
    Facts f = find_facts(scratch, graph, machine);
    add_gathers(&f, plan, &needs);
    add_stashes(&f, plan, slack, &needs);
    if (needs.len)
        qsort(needs.data, needs.len, sizeof *needs.data, by_need);
    double next = f.start[f.n_compute];
    for (uint32_t i = needs.len; i-- > 0;) {
        const Need *need = &needs.data[i];
        double due = f.start[need->at] - need->before, takes = slack * need->seconds;
        double begin = (due < next ? due : next) - takes;
        if (begin < due - MOST_EARLY * takes)
            begin = due - MOST_EARLY * takes;
        next = begin;
        uint32_t at = begin <= 0 ? 0 : node_at(&f, begin);
        *need->lever = need->at > at ? need->at - at : 0;
    }
}
