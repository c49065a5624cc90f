/* Fixed plans: which parameters share a bucket, and gather/release intervals that gather at use and
 * release after it.
 *
 * Buckets. A layer's parameters (all uses in one iteration of a `repeat`) share a bucket; a
 * parameter outside layers, or used by several of them, has one of its own unless it is small
 * beside the largest (a final norm beside an embedding): then it joins the large one that is used
 * next. Buckets are alike in dtype and in whether a gradient reaches their parameters.
 *
 * Intervals. Uses of a bucket are cut where a bucket of another group (another layer, another
 * global bucket) is used between them: a tied embedding is gathered for the lookup, released, and
 * gathered again for the head; a layer once for its forward and once for its backward
 * (recomputation included).
 *
 * Other borders are those of peers: a bucket a module (what one node uses first), and the small
 * parameters of the whole model together. And the layer whose gradients come last can be cut in
 * two: the step ends with the reduction and the update of its smaller part then.
 *
 * Cost: linear in nodes, times the buckets for small globals. */
#include "passes/lower.h"

#include "base/map.h"

#include <stdlib.h>
#include <string.h>

/* A parameter this many times smaller than the largest of its kind joins a neighbour's bucket. */
#define SMALL_RATIO 16

typedef struct ParamFacts {
    int32_t layer;      /* the one layer that uses it, or -1 */
    uint32_t first_use; /* position in the order; FG_NO_ID: nothing reads it */
    bool persistent;    /* small enough to share a bucket with its like */
    bool several;       /* used by several layers */
    bool looked_up;     /* a table of a lookup */
    bool gradient;
} ParamFacts;

typedef struct Buckets {
    FgModule *graph;
    FgArena *scratch;
    FgPlan *plan;
    ParamFacts *facts;
    uint32_t *base;   /* value -> parameter */
    uint32_t *by_use; /* used parameters by first use */
    uint32_t n_used;
    uint32_t *bucket; /* parameter -> bucket */
    FgBorders borders;
    int32_t cut_layer; /* or -1 */
    uint32_t cut_use;  /* first uses from this position on are in the other bucket */
    FG_VEC(FgIdVec) members;
    FG_VEC(int32_t) layers; /* bucket -> layer or -1 */
} Buckets;

static const FgIdVec *step_order(const FgModule *graph)
{
    return &fg_func((FgModule *)graph, "step")->order;
}

/* It stays with the owners of its rows: a bucket of its own, and no gather. */
static bool is_sharded(const Buckets *b, uint32_t p)
{
    return b->graph->params.data[p].sharded;
}

static int64_t elements_of(const Buckets *b, uint32_t p)
{
    return fg_type_elements(b->graph->params.data[p].type);
}

static void collect_facts(Buckets *b)
{
    FgModule *g = b->graph;
    uint32_t n = g->params.len;
    b->facts = FG_NEW_ARRAY(b->scratch, ParamFacts, n + 1);
    b->by_use = FG_NEW_ARRAY(b->scratch, uint32_t, n + 1);
    b->bucket = FG_NEW_ARRAY(b->scratch, uint32_t, n + 1);
    bool *gradient = FG_NEW_ARRAY(b->scratch, bool, n + 1);
    fg_params_with_gradient(g, gradient);
    for (uint32_t p = 0; p < n; p++) {
        b->facts[p] = (ParamFacts){.layer = -1, .first_use = FG_NO_ID, .gradient = gradient[p]};
        b->bucket[p] = FG_NO_ID;
    }
    b->base = fg_param_bases(b->scratch, g);
    const FgIdVec *order = step_order(g);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(g, order->data[i]);
        for (uint32_t k = 0; k < node->n_operands && !fg_node_is_name(node); k++) {
            uint32_t v = node->operands[k], p = v == FG_NO_ID ? FG_NO_ID : b->base[v];
            if (p == FG_NO_ID)
                continue;
            ParamFacts *f = &b->facts[p];
            f->looked_up |= node->op == FG_OP_embedding;
            if (f->first_use == FG_NO_ID) {
                f->first_use = i;
                f->layer = node->layer;
                b->by_use[b->n_used++] = p;
            } else if (f->layer != node->layer) {
                f->several = true;
            }
        }
    }
    for (uint32_t p = 0; p < n; p++) {
        b->facts[p].persistent = !is_sharded(b, p) && elements_of(b, p) <= b->borders.persistence;
        if (b->facts[p].several || b->facts[p].persistent || is_sharded(b, p))
            b->facts[p].layer = -1;
    }
}

static bool alike(const Buckets *b, uint32_t p, uint32_t q)
{
    return b->facts[p].gradient == b->facts[q].gradient &&
           b->facts[p].persistent == b->facts[q].persistent &&
           b->graph->params.data[p].type->dtype == b->graph->params.data[q].type->dtype;
}

/* Do two parameters of one layer belong to the same unit? */
static bool together(const Buckets *b, uint32_t p, uint32_t q)
{
    const ParamFacts *x = &b->facts[p], *y = &b->facts[q];
    if (x->layer != y->layer)
        return false;
    if (b->borders.by_module)
        return x->first_use == y->first_use;
    return x->layer != b->cut_layer || (x->first_use < b->cut_use) == (y->first_use < b->cut_use);
}

/* Finds the layer that is used first of those with gradients, and where to cut it. */
static bool find_cut(Buckets *b)
{
    int64_t all = 0, before = 0;
    for (uint32_t i = 0; i < b->n_used; i++) {
        const ParamFacts *f = &b->facts[b->by_use[i]];
        if (f->layer < 0 || !f->gradient)
            continue;
        if (b->cut_layer < 0)
            b->cut_layer = f->layer;
        if (f->layer == b->cut_layer)
            all += elements_of(b, b->by_use[i]);
    }
    for (uint32_t i = 0; i < b->n_used; i++) {
        const ParamFacts *f = &b->facts[b->by_use[i]];
        if (f->layer < 0 || f->layer != b->cut_layer || !f->gradient)
            continue;
        bool enough = (double)before >= b->borders.cut * (double)all;
        if (enough && f->first_use > b->facts[b->by_use[i - 1]].first_use) {
            b->cut_use = f->first_use;
            return true;
        }
        before += elements_of(b, b->by_use[i]);
    }
    return false;
}

static uint32_t new_bucket(Buckets *b, uint32_t p)
{
    FgIdVec none = {0};
    fg_vec_push(b->scratch, &b->members, none);
    fg_vec_push(b->scratch, &b->layers, b->facts[p].layer);
    return b->members.len - 1;
}

static void join(Buckets *b, uint32_t p, uint32_t bucket)
{
    fg_vec_push(b->scratch, &b->members.data[bucket], p);
    b->bucket[p] = bucket;
}

/* The largest parameter outside layers that is like p. */
static int64_t largest_alike(const Buckets *b, uint32_t p)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < b->n_used; i++) {
        uint32_t q = b->by_use[i];
        int64_t n = elements_of(b, q);
        if (b->facts[q].layer < 0 && !is_sharded(b, q) && alike(b, p, q) && n > most)
            most = n;
    }
    return most;
}

static bool is_small(const Buckets *b, uint32_t p)
{
    return elements_of(b, p) * SMALL_RATIO < largest_alike(b, p);
}

/* The bucket outside layers, made already, whose next use after `from` comes first. */
static uint32_t next_used_bucket(const Buckets *b, uint32_t p)
{
    const FgIdVec *order = step_order(b->graph);
    for (uint32_t i = b->facts[p].first_use; i < order->len; i++) {
        const FgNode *node = fg_node(b->graph, order->data[i]);
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t v = node->operands[k], q = v == FG_NO_ID ? FG_NO_ID : b->base[v];
            if (q != FG_NO_ID && q != p && b->facts[q].layer < 0 && b->bucket[q] != FG_NO_ID &&
                !is_sharded(b, q) && alike(b, p, q))
                return b->bucket[q];
        }
    }
    return FG_NO_ID;
}

/* ---- a small parameter beside a bucket ---- */
static int64_t bucket_elements(const Buckets *b, uint32_t bucket)
{
    const FgIdVec *members = &b->members.data[bucket];
    int64_t n = 0;
    for (uint32_t i = 0; i < members->len; i++)
        n += fg_type_elements(b->graph->params.data[members->data[i]].type);
    return n;
}

/* A bucket made already that a node uses and that p could join, or FG_NO_ID; *out_uses: it uses p.
 */
static uint32_t bucket_of_node(const Buckets *b, const FgNode *node, uint32_t p, bool *out_uses)
{
    uint32_t found = FG_NO_ID;
    *out_uses = false;
    for (uint32_t k = 0; k < node->n_operands && !fg_node_is_name(node); k++) {
        uint32_t v = node->operands[k], q = v == FG_NO_ID ? FG_NO_ID : b->base[v];
        if (q == FG_NO_ID)
            continue;
        *out_uses |= q == p;
        if (b->bucket[q] != FG_NO_ID && !is_sharded(b, q) && alike(b, p, q))
            found = b->bucket[q];
    }
    return found;
}

/* Counts by bucket the runs of uses of p that it stands next to; returns how many runs there are.
 */
static uint32_t count_neighbours(const Buckets *b, uint32_t p, uint32_t *counts)
{
    const FgIdVec *order = step_order(b->graph);
    uint32_t runs = 0, last = FG_NO_ID;
    bool open = false; /* a run of which the bucket behind it is not known yet */
    for (uint32_t i = 0; i < order->len; i++) {
        bool uses;
        uint32_t bucket = bucket_of_node(b, fg_node(b->graph, order->data[i]), p, &uses);
        if (uses && !open) {
            runs++;
            open = true;
            if (last != FG_NO_ID)
                counts[last]++;
        }
        if (bucket == FG_NO_ID)
            continue;
        if (open && bucket != last)
            counts[bucket]++;
        open = false;
        last = bucket;
    }
    return runs;
}

/* The smallest bucket that is used just before or just behind each use of p. What joins it needs no
 * gather of its own, and lengthens the life of no more than it: a final norm goes with the last
 * layer, not with the head, whose weight can then go before its gradient comes. Tables of lookups
 * stay with the large ones, since the rows of a bucket travel or do not. FG_NO_ID: there is none.
 */
static uint32_t neighbour_bucket(const Buckets *b, uint32_t p)
{
    uint32_t *counts = FG_NEW_ARRAY(b->scratch, uint32_t, b->members.len + 1);
    uint32_t runs = count_neighbours(b, p, counts), best = FG_NO_ID;
    for (uint32_t k = 0; k < b->members.len; k++)
        if (counts[k] == runs && !b->facts[p].several && !b->facts[p].looked_up &&
            (best == FG_NO_ID || bucket_elements(b, k) < bucket_elements(b, best)))
            best = k;
    return best;
}

static void assign_layers_and_large(Buckets *b)
{
    for (uint32_t i = 0; i < b->n_used; i++) {
        uint32_t p = b->by_use[i], found = FG_NO_ID;
        if (b->facts[p].layer < 0 && !b->facts[p].persistent) {
            if (is_sharded(b, p) || b->borders.by_module || !is_small(b, p))
                join(b, p, new_bucket(b, p));
            continue;
        }
        for (uint32_t k = 0; k < b->members.len && found == FG_NO_ID; k++) {
            uint32_t q = b->members.data[k].data[0];
            if (alike(b, q, p) && (b->facts[p].persistent || together(b, p, q)))
                found = k;
        }
        join(b, p, found == FG_NO_ID ? new_bucket(b, p) : found);
    }
}

static void assign_small(Buckets *b)
{
    for (uint32_t i = 0; i < b->n_used; i++) {
        uint32_t p = b->by_use[i];
        if (b->bucket[p] != FG_NO_ID)
            continue;
        uint32_t bucket = neighbour_bucket(b, p);
        if (bucket == FG_NO_ID)
            bucket = next_used_bucket(b, p);
        join(b, p, bucket == FG_NO_ID ? new_bucket(b, p) : bucket);
    }
}

static const char *bucket_name(const Buckets *b, uint32_t bucket)
{
    FgArena *arena = b->graph->arena;
    uint32_t p = b->members.data[bucket].data[0];
    if (b->facts[p].persistent)
        return fg_arena_printf(arena, "persistent%s.%s", b->facts[p].gradient ? "" : ".frozen",
                               fg_dtype_name(b->graph->params.data[p].type->dtype));
    if (b->layers.data[bucket] < 0 || b->borders.by_module)
        return b->graph->params.data[p].name;
    const char *kind = b->facts[p].gradient ? "" : ".frozen";
    const char *pinned =
        b->graph->params.data[p].type->dtype == b->graph->numerics.compute
            ? ""
            : fg_arena_printf(arena, ".%s", fg_dtype_name(b->graph->params.data[p].type->dtype));
    const char *rest = b->layers.data[bucket] == b->cut_layer && b->facts[p].first_use >= b->cut_use
                           ? ".rest"
                           : "";
    return fg_arena_printf(arena, "layers.%d%s%s%s", (int)b->layers.data[bucket], rest, kind,
                           pinned);
}

/* A parameter may be called as a layer's bucket is. */
static const char *unique_name(Buckets *b, FgMap *names, uint32_t bucket)
{
    const char *name = bucket_name(b, bucket);
    while (!fg_map_add(names, name, bucket))
        name = fg_arena_printf(b->graph->arena, "%s.bucket", name);
    return fg_intern(b->graph->intern, name);
}

static void emit_buckets(Buckets *b)
{
    FgArena *arena = b->graph->arena;
    FgMap names;
    fg_map_init(&names, b->scratch);
    for (uint32_t k = 0; k < b->members.len; k++) {
        const FgIdVec *members = &b->members.data[k];
        uint32_t *params = FG_NEW_ARRAY(arena, uint32_t, members->len);
        memcpy(params, members->data, members->len * sizeof *params);
        FgPlanBucket bucket = {.name = unique_name(b, &names, k),
                               .params = params,
                               .n_params = members->len,
                               .pieces = 1};
        fg_vec_push(arena, &b->plan->buckets, bucket);
    }
}

/* ---- intervals ---- */

/* A group is what is gathered together in time: a layer, or one bucket outside layers. */
static int64_t group_of(const Buckets *b, uint32_t bucket)
{
    FG_ASSERT(bucket < b->layers.len);
    int32_t layer = b->layers.data[bucket];
    return layer >= 0 && !b->borders.by_module ? (int64_t)layer : -1 - (int64_t)bucket;
}

typedef struct OpenInterval {
    uint32_t first, last; /* uses */
    uint32_t n_uses;
    uint32_t epoch; /* number of group changes seen at the last use */
    bool open;
} OpenInterval;

static int by_bucket_then_use(const void *a, const void *b)
{
    const FgPlanGather *x = a, *y = b;
    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    return x->first_use < y->first_use ? -1 : x->first_use > y->first_use;
}

static void close_interval(Buckets *b, uint32_t bucket, OpenInterval *open)
{
    FgPlanGather gather = {.bucket = bucket, .first_use = open->first, .last_use = open->last};
    fg_vec_push(b->graph->arena, &b->plan->gathers, gather);
    open->open = false;
}

static void use_bucket(Buckets *b, uint32_t bucket, OpenInterval *open, uint32_t epoch)
{
    if (open->open && open->epoch != epoch)
        close_interval(b, bucket, open);
    if (!open->open) {
        open->open = true;
        open->first = open->n_uses;
    }
    open->last = open->n_uses++;
    open->epoch = epoch;
}

static void emit_intervals(Buckets *b)
{
    const FgIdVec *order = step_order(b->graph);
    uint32_t n = b->members.len, epoch = 0;
    OpenInterval *open = FG_NEW_ARRAY(b->scratch, OpenInterval, n + 1);
    int64_t group = INT64_MIN;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(b->graph, order->data[i]);
        uint32_t used =
            FG_NO_ID; /* each bucket is used once by a node, however many of its parameters */
        for (uint32_t k = 0; k < node->n_operands && !fg_node_is_name(node); k++) {
            uint32_t v = node->operands[k], p = v == FG_NO_ID ? FG_NO_ID : b->base[v];
            if (p == FG_NO_ID || b->bucket[p] == used || is_sharded(b, p))
                continue;
            used = b->bucket[p];
            if (group_of(b, used) != group) {
                group = group_of(b, used);
                epoch++;
            }
            use_bucket(b, used, &open[used], epoch);
        }
    }
    for (uint32_t k = 0; k < n; k++)
        if (open[k].open)
            close_interval(b, k, &open[k]);
    if (b->plan->gathers.len) /* all tables may be sharded */
        qsort(b->plan->gathers.data, b->plan->gathers.len, sizeof *b->plan->gathers.data,
              by_bucket_then_use);
}

void fg_plan_set_recomputed(FgPlan *plan, FgArena *arena, const FgIdVec *nodes)
{
    plan->recomputed = (FgIdVec){0};
    for (uint32_t i = 0; i < nodes->len; i++)
        fg_vec_push(arena, &plan->recomputed, nodes->data[i]);
}

FgPlan *fg_plan_fixed(FgModule *graph, FgArena *scratch, const char *name, FgRecompute recompute)
{
    return fg_plan_units(graph, scratch, name, recompute, (FgBorders){0});
}

FgPlan *fg_plan_units(FgModule *graph, FgArena *scratch, const char *name, FgRecompute recompute,
                      FgBorders borders)
{
    Buckets b = {.graph = graph,
                 .scratch = scratch,
                 .plan = FG_NEW(graph->arena, FgPlan),
                 .borders = borders,
                 .cut_layer = -1};
    b.plan->name = fg_intern(graph->intern, name);
    b.plan->recompute = recompute;
    if (recompute == FG_RECOMPUTE_SELECTIVE)
        fg_plan_set_recomputed(b.plan, graph->arena, &graph->plan->recomputed);
    collect_facts(&b);
    if (borders.cut > 0 && !find_cut(&b))
        return NULL;
    assign_layers_and_large(&b);
    assign_small(&b);
    emit_buckets(&b);
    emit_intervals(&b);
    return b.plan;
}

bool fg_plan_takes_parts(const FgPlan *plan)
{
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        if (plan->buckets.data[i].parts)
            return true;
    return false;
}

FgPlan *fg_plan_clone(const FgPlan *plan, FgArena *arena)
{
    FgPlan *copy = FG_NEW(arena, FgPlan);
    copy->name = plan->name;
    copy->recompute = plan->recompute;
    fg_plan_set_recomputed(copy, arena, &plan->recomputed);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        FgPlanBucket bucket = plan->buckets.data[i];
        uint32_t *params = FG_NEW_ARRAY(arena, uint32_t, bucket.n_params);
        memcpy(params, bucket.params, bucket.n_params * sizeof *params);
        bucket.params = params;
        fg_vec_push(arena, &copy->buckets, bucket);
    }
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        fg_vec_push(arena, &copy->gathers, plan->gathers.data[i]);
    for (uint32_t i = 0; i < plan->stashes.len; i++)
        fg_vec_push(arena, &copy->stashes, plan->stashes.data[i]);
    return copy;
}

/* plan{zero3}, plan{minimum}, each with ",full" or ",none" for recomputation, and then with
 * ",travels" for lookups that travel where that pays. Uses are numbered after the recompute, which
 * the pass of that name applies later: it is applied to a copy here. */
FgPassResult fg_pass_plan(FgPassCx *cx)
{
    const char *comma = strchr(cx->option, ',');
    size_t n = comma ? (size_t)(comma - cx->option) : strlen(cx->option);
    const char *name = fg_arena_strndup(cx->scratch, cx->option, n);
    const char *more = comma ? strchr(comma + 1, ',') : NULL;
    const char *recompute =
        !comma ? "none"
        : more ? fg_arena_strndup(cx->scratch, comma + 1, (size_t)(more - comma) - 1)
               : comma + 1;
    bool known = strcmp(name, "zero3") == 0 || strcmp(name, "minimum") == 0;
    bool full = strcmp(recompute, "full") == 0;
    bool travels = more && strcmp(more, ",travels") == 0;
    if (!known || (!full && strcmp(recompute, "none") != 0) || (more && !travels)) {
        fg_diag(cx->module->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                "plan{%s}: give zero3 or minimum, then ',full' to recompute layers or ',none', "
                "then ',travels' for lookups without a gather",
                cx->option);
        return FG_PASS_FAILED;
    }
    FgArena *arena = fg_arena_new();
    FgModule *copy = fg_module_clone(cx->module, arena);
    copy->plan = FG_NEW(arena, FgPlan);
    copy->plan->name = name;
    copy->plan->recompute = full ? FG_RECOMPUTE_FULL : FG_RECOMPUTE_NONE;
    FgPassCx inner = *cx;
    inner.module = copy;
    bool ok = fg_pass_recompute(&inner) != FG_PASS_FAILED;
    if (ok) {
        FgPlan *plan = fg_plan_fixed(copy, arena, name, copy->plan->recompute);
        if (travels)
            fg_plan_travel(plan, copy, arena, cx->machine);
        cx->module->plan = fg_plan_clone(plan, cx->module->arena);
        cx->module->plan->name = fg_intern(cx->module->intern, name);
        for (uint32_t i = 0; i < cx->module->plan->buckets.len; i++) {
            FgPlanBucket *bucket = &cx->module->plan->buckets.data[i];
            bucket->name = fg_intern(cx->module->intern, bucket->name);
        }
    }
    fg_arena_free(arena);
    return ok ? FG_PASS_CHANGED : FG_PASS_FAILED;
}
