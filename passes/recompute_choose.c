/* The order in which values are given up: ladders of recomputed sets.
 *
 * What may be computed again are the nodes that `recompute(full)` would take: forward nodes of a
 * layer whose results only that layer uses. Layers are looked at one by one. In a layer, a value is
 * *saved* when backward, or a node that runs twice already, reads it and it is not computed again
 * itself. The next step of the layer is the node that frees bytes most cheaply: its own seconds,
 * and those of the nodes before it whose results are not saved and must be computed again for it
 * (the cascade), over the bytes of the saved results among them. Instead of a cascade an operand
 * may be kept, if that still leaves a gain: both are tried. Each step changes what is saved, so
 * that costs are counted anew after it: where the operands of a gated activation are computed
 * again anyway, the activation costs itself alone.
 *
 * Prices rise within a layer (a step that is cheaper than the one before it counts at the price of
 * that one, for it comes after it). Steps of all layers by price make the ladder. Steps of layers
 * alike have equal prices and go from the first layer on: its values wait longest for backward.
 *
 *   h -> rmsnorm n -> linear g, u -> gated y -> linear d; n, g, u and y are saved
 *     1. y from g and u (an element-wise op for one value)
 *     2. n from h
 *     3. g and u from n: a matrix product each, without a cascade since n is computed again
 *
 * Cost: for a layer of n nodes n steps, each of n cascades; linear in the layers. */
#include "passes/recompute.h"

#include "passes/compile.h"
#include "passes/lower.h"

#include <math.h>
#include <stdlib.h>

/* Nodes computed again together. */
typedef struct Step {
    double price;   /* seconds a byte, never less than the layer's step before */
    uint32_t index; /* in its layer */
    int32_t layer;
    uint32_t first, n; /* in `nodes` */
    uint64_t bytes;
    double seconds;
} Step;

typedef struct Choice {
    FgArena *scratch;
    const FgModule *module;
    const FgMachine *machine;
    bool cheap;        /* neither matrix products nor attention */
    uint32_t *base;    /* value -> what it is a view of; itself otherwise */
    bool *free;        /* base -> always there: parameters, inputs, constants */
    bool *candidate;   /* node */
    bool *again;       /* node: in the set */
    uint32_t *readers; /* base -> reads by backward and by nodes of the set */
    FgIdVec *by_layer; /* layer -> candidates, in order */
    double *node_cost; /* seconds */
    uint32_t *seen;    /* node or base -> number of the cascade that it was met in */
    uint32_t *kept;    /* base -> number of the cascade that keeps it */
    uint32_t n_layers, cascade;
    FgIdVec nodes; /* of all steps */
    FG_VEC(Step) steps;
} Choice;

/* ---- facts ---- */

static const FgIdVec *step_order(const Choice *c)
{
    return &fg_func((FgModule *)c->module, "step")->order;
}

static const FgNode *node_of(const Choice *c, uint32_t id)
{
    return &c->module->nodes.data[id];
}

static uint64_t bytes_of(const Choice *c, uint32_t value)
{
    return fg_type_bytes(c->module->values.data[value].type);
}

/* The node that makes a value of a set; FG_NO_ID: no node, or one that never runs twice. */
static uint32_t maker(const Choice *c, uint32_t base)
{
    const FgValue *value = &c->module->values.data[base];
    bool can = value->kind == FG_VALUE_RESULT && c->candidate[value->def];
    return can ? value->def : FG_NO_ID;
}

/* Bound by memory traffic: no sums of products. */
static bool is_cheap(const Choice *c, const FgNode *node)
{
    FgCost cost;
    fg_node_cost(c->module, node, &cost);
    return !(cost.matmul_flops > 0);
}

static void find_bases(Choice *c)
{
    const FgIdVec *order = step_order(c);
    const uint32_t *params = fg_param_bases(c->scratch, c->module);
    uint32_t n = c->module->values.len;
    c->base = FG_NEW_ARRAY(c->scratch, uint32_t, n + 1);
    c->free = FG_NEW_ARRAY(c->scratch, bool, n + 1);
    for (uint32_t v = 0; v < n; v++) {
        const FgValue *value = &c->module->values.data[v];
        c->base[v] = v;
        c->free[v] = value->kind != FG_VALUE_RESULT || params[v] != FG_NO_ID ||
                     fg_op_has(node_of(c, value->def)->op, FG_OPF_CONSTANT);
    }
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = node_of(c, order->data[i]);
        if (fg_op_has(node->op, FG_OPF_VIEW))
            c->base[node->results[0]] = c->base[node->operands[0]];
    }
}

/* Nodes of layers that compute; those whose results other layers use, or that make the loss, drop
 * out after. */
static void find_candidates(Choice *c)
{
    const FgModule *m = c->module;
    const FgIdVec *order = step_order(c);
    c->candidate = FG_NEW_ARRAY(c->scratch, bool, m->nodes.len + 1);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = node_of(c, order->data[i]);
        c->candidate[node->id] =
            node->phase == FG_PHASE_FORWARD && node->layer >= 0 && node->n_results > 0 &&
            !fg_op_has(node->op, FG_OPF_VIEW) && !fg_op_has(node->op, FG_OPF_CONSTANT) &&
            !fg_op_has(node->op, FG_OPF_EFFECT) && (!c->cheap || is_cheap(c, node));
    }
    if (m->loss != FG_NO_ID && m->values.data[c->base[m->loss]].kind == FG_VALUE_RESULT)
        c->candidate[m->values.data[c->base[m->loss]].def] = false;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = node_of(c, order->data[i]);
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t v = node->operands[k] == FG_NO_ID ? FG_NO_ID : c->base[node->operands[k]];
            if (v != FG_NO_ID && m->values.data[v].kind == FG_VALUE_RESULT &&
                node_of(c, m->values.data[v].def)->layer != node->layer)
                c->candidate[m->values.data[v].def] = false;
        }
    }
}

static void collect_layers(Choice *c)
{
    const FgIdVec *order = step_order(c);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = node_of(c, order->data[i]);
        if (c->candidate[node->id] && (uint32_t)node->layer >= c->n_layers)
            c->n_layers = (uint32_t)node->layer + 1;
    }
    c->by_layer = FG_NEW_ARRAY(c->scratch, FgIdVec, c->n_layers + 1);
    c->node_cost = FG_NEW_ARRAY(c->scratch, double, c->module->nodes.len + 1);
    c->readers = FG_NEW_ARRAY(c->scratch, uint32_t, c->module->values.len + 1);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = node_of(c, order->data[i]);
        if (c->candidate[node->id]) {
            fg_vec_push(c->scratch, &c->by_layer[node->layer], node->id);
            c->node_cost[node->id] = fg_node_seconds(c->module, c->machine, node);
        }
        if (node->phase != FG_PHASE_BACKWARD || fg_op_has(node->op, FG_OPF_VIEW))
            continue;
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                c->readers[c->base[node->operands[k]]]++;
    }
}

static void read_graph(Choice *c)
{
    find_bases(c);
    find_candidates(c);
    collect_layers(c);
    c->again = FG_NEW_ARRAY(c->scratch, bool, c->module->nodes.len + 1);
    c->seen = FG_NEW_ARRAY(c->scratch, uint32_t, c->module->nodes.len + 1);
    c->kept = FG_NEW_ARRAY(c->scratch, uint32_t, c->module->values.len + 1);
}

/* ---- cascades ---- */

/* What computing a node again entails. */
typedef struct Cascade {
    FgIdVec nodes; /* the node, then what must run before it, in no order */
    uint64_t freed, kept;
    double seconds;
} Cascade;

static bool is_saved(const Choice *c, uint32_t base)
{
    uint32_t node = maker(c, base);
    return c->readers[base] > 0 && (node == FG_NO_ID || !c->again[node]);
}

static void enter(Choice *c, Cascade *cascade, uint32_t id)
{
    const FgNode *node = node_of(c, id);
    c->seen[id] = c->cascade;
    fg_vec_push(c->scratch, &cascade->nodes, id);
    cascade->seconds += c->node_cost[id];
    for (uint32_t k = 0; k < node->n_results; k++)
        if (is_saved(c, node->results[k]))
            cascade->freed += bytes_of(c, node->results[k]);
}

/* `deep`: operands that are not saved are computed again too; otherwise they are kept. */
static void follow(Choice *c, uint32_t id, bool deep, Cascade *out)
{
    *out = (Cascade){.nodes = {out->nodes.data, 0, out->nodes.cap}};
    c->cascade++;
    enter(c, out, id);
    for (uint32_t i = 0; i < out->nodes.len; i++) {
        const FgNode *node = node_of(c, out->nodes.data[i]);
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t v = node->operands[k] == FG_NO_ID ? FG_NO_ID : c->base[node->operands[k]];
            if (v == FG_NO_ID || c->free[v])
                continue;
            uint32_t from = maker(c, v);
            if (from != FG_NO_ID && (c->again[from] || c->seen[from] == c->cascade))
                continue;
            if (is_saved(c, v) || c->kept[v] == c->cascade)
                continue;
            if (deep && from != FG_NO_ID) {
                enter(c, out, from);
            } else {
                c->kept[v] = c->cascade;
                out->kept += bytes_of(c, v);
            }
        }
    }
}

/* Seconds a byte; infinite where nothing is freed. */
static double price_of(const Cascade *cascade)
{
    return cascade->freed > cascade->kept
               ? cascade->seconds / (double)(cascade->freed - cascade->kept)
               : (double)INFINITY;
}

static bool frees(const Choice *c, uint32_t id)
{
    const FgNode *node = node_of(c, id);
    bool any = false;
    for (uint32_t k = 0; k < node->n_results && !c->again[id]; k++)
        any |= is_saved(c, node->results[k]);
    return any;
}

/* Enters a cascade into the set. */
static void take(Choice *c, const Cascade *cascade, int32_t layer, uint32_t index, double price)
{
    Step step = {price,
                 index,
                 layer,
                 c->nodes.len,
                 cascade->nodes.len,
                 cascade->freed - cascade->kept,
                 cascade->seconds};
    for (uint32_t i = 0; i < cascade->nodes.len; i++) {
        const FgNode *node = node_of(c, cascade->nodes.data[i]);
        c->again[node->id] = true;
        fg_vec_push(c->scratch, &c->nodes, node->id);
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                c->readers[c->base[node->operands[k]]]++;
    }
    fg_vec_push(c->scratch, &c->steps, step);
}

/* All steps of a layer, cheapest first. */
static void choose_in_layer(Choice *c, uint32_t layer)
{
    const FgIdVec *nodes = &c->by_layer[layer];
    Cascade now = {0}, best = {0};
    double least = 0;
    for (uint32_t index = 0;; index++) {
        double price = (double)INFINITY;
        for (uint32_t i = 0; i < nodes->len; i++) {
            for (int deep = 0; deep < 2 && frees(c, nodes->data[i]); deep++) {
                follow(c, nodes->data[i], deep != 0, &now);
                if (!(price_of(&now) < price))
                    continue;
                price = price_of(&now);
                Cascade other = best;
                best = now;
                now = other;
            }
        }
        if (!(price < (double)INFINITY))
            return;
        least = price > least ? price : least;
        take(c, &best, (int32_t)layer, index, least);
    }
}

/* ---- ladders ---- */

static int by_price(const void *a, const void *b)
{
    const Step *x = a, *y = b;
    if (x->price < y->price || x->price > y->price)
        return x->price < y->price ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* What recomputing layers whole frees and costs, of a choice without steps. */
static FgRung full_rung(Choice *c)
{
    FgRung rung = {.recompute = FG_RECOMPUTE_FULL};
    FgIdVec wanted = {0};
    c->cascade++;
    for (uint32_t layer = 0; layer < c->n_layers; layer++)
        for (uint32_t i = 0; i < c->by_layer[layer].len; i++)
            if (frees(c, c->by_layer[layer].data[i])) {
                c->seen[c->by_layer[layer].data[i]] = c->cascade;
                fg_vec_push(c->scratch, &wanted, c->by_layer[layer].data[i]);
            }
    for (uint32_t i = 0; i < wanted.len; i++) {
        const FgNode *node = node_of(c, wanted.data[i]);
        rung.seconds += c->node_cost[node->id];
        for (uint32_t k = 0; k < node->n_results; k++)
            rung.bytes += is_saved(c, node->results[k]) ? bytes_of(c, node->results[k]) : 0;
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t from =
                node->operands[k] == FG_NO_ID ? FG_NO_ID : maker(c, c->base[node->operands[k]]);
            if (from == FG_NO_ID || c->seen[from] == c->cascade)
                continue;
            c->seen[from] = c->cascade;
            fg_vec_push(c->scratch, &wanted, from);
        }
    }
    return rung;
}

static void climb(Choice *c, FgArena *arena, FgLadder *out)
{
    FgRung rung = {.recompute = FG_RECOMPUTE_SELECTIVE};
    for (uint32_t layer = 0; layer < c->n_layers; layer++)
        choose_in_layer(c, layer);
    if (c->steps.len > 0)
        qsort(c->steps.data, c->steps.len, sizeof *c->steps.data, by_price);
    for (uint32_t i = 0; i < c->steps.len; i++) {
        const Step *step = &c->steps.data[i];
        for (uint32_t k = 0; k < step->n; k++)
            fg_vec_push(arena, &out->nodes, c->nodes.data[step->first + k]);
        rung.n_nodes += step->n;
        rung.bytes += step->bytes;
        rung.seconds += step->seconds;
        fg_vec_push(arena, &out->rungs, rung);
    }
}

void fg_recompute_ladder(FgArena *arena, const FgModule *graph, const FgMachine *machine,
                         FgRecompute mode, FgLadder *out)
{
    FgRung none = {.recompute = FG_RECOMPUTE_NONE};
    *out = (FgLadder){0};
    if (mode == FG_RECOMPUTE_NONE) {
        fg_vec_push(arena, &out->rungs, none);
        return;
    }
    Choice c = {.scratch = fg_arena_new(),
                .module = graph,
                .machine = machine,
                .cheap = mode == FG_RECOMPUTE_SELECTIVE};
    read_graph(&c);
    FgRung full = full_rung(&c);
    if (mode == FG_RECOMPUTE_AUTO)
        fg_vec_push(arena, &out->rungs, none);
    if (mode != FG_RECOMPUTE_FULL)
        climb(&c, arena, out);
    bool any = full.seconds > 0;
    if (mode == FG_RECOMPUTE_FULL || (mode == FG_RECOMPUTE_AUTO && any))
        fg_vec_push(arena, &out->rungs, full);
    if (out->rungs.len == 0)
        fg_vec_push(arena, &out->rungs, none);
    fg_arena_free(c.scratch);
}

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void fg_recompute_apply(const FgLadder *ladder, uint32_t rung, FgPlan *plan, FgArena *arena)
{
    const FgRung *r = &ladder->rungs.data[rung];
    FgIdVec nodes = {ladder->nodes.data, r->n_nodes, r->n_nodes};
    plan->recompute = r->recompute;
    fg_plan_set_recomputed(plan, arena, &nodes);
    if (nodes.len > 0)
        qsort(plan->recomputed.data, plan->recomputed.len, sizeof(uint32_t), by_id);
}
