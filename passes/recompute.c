/* recompute: clones forward nodes into backward, where the plan says so. Graph level, after
 * autodiff.
 *
 * Full. A layer is an iteration of the model's `repeat`. Of the values that its forward nodes make,
 * those that other layers use are borders and are kept; constants and views of parameters cost no
 * memory and are kept too. What the layer's own backward uses otherwise is computed again from the
 * borders, just before the first backward node of the layer: nodes that nothing backward needs,
 * like the last residual add, are not cloned.
 *
 *   %n = rmsnorm %x, %w   layer(0)               %n = rmsnorm %x, %w              layer(0)
 *   %y = linear %n, %v    layer(0)               %y = linear %n, %v               layer(0)
 *   ...                                    ->    ...
 *   %d_v = linear_dw %n, %d_y  backward          %n2 = rmsnorm %x, %w   backward  layer(0)
 *                                                %d_v = linear_dw %n2, %d_y backward
 *
 * Selective. The nodes that the plan names, in layers or not, are cloned one by one, each just
 * before the first backward node that reads one of its results, so that few live at once. A clone
 * whose operand is named too reads the operand's clone, which is made before it; whatever the
 * number of readers, a node is cloned once. A view is computed again with what it is a view of.
 *
 * A clone has the op and the attributes of its node: it makes the same bits. Linear in the nodes,
 * but for the sorting of what one reader asks for. */
#include "passes/lower.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

typedef struct Recompute {
    FgModule *module;
    FgIdVec forward;   /* forward nodes of layers, in order */
    int32_t *layer;    /* value -> the layer that could compute it again; -1: kept */
    bool *needed;      /* node -> it is computed again */
    uint32_t *clone;   /* value -> its second self, or FG_NO_ID */
    FgIdVec *by_layer; /* layer -> needed nodes, in order */
    uint32_t n_layers;
    uint32_t *position; /* selective: node -> place in the old order */
    FgIdVec order;      /* the new one */
} Recompute;

/* ---- what can and must be computed again ---- */

/* A value can be computed again when a forward node of a layer makes it, and only that layer uses
 * it. */
static void find_layers(Recompute *r, FgArena *scratch, const FgIdVec *order)
{
    FgModule *m = r->module;
    const uint32_t *params = fg_param_bases(scratch, m);
    r->layer = FG_NEW_ARRAY(scratch, int32_t, m->values.len);
    memset(r->layer, -1, m->values.len * sizeof *r->layer);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        for (uint32_t k = 0; k < node->n_operands; k++) {
            if (node->operands[k] != FG_NO_ID && r->layer[node->operands[k]] != node->layer)
                r->layer[node->operands[k]] = -1;
        }
        if (node->phase != FG_PHASE_FORWARD || node->layer < 0 ||
            fg_op_has(node->op, FG_OPF_CONSTANT) || fg_op_has(node->op, FG_OPF_EFFECT))
            continue;
        fg_vec_push(scratch, &r->forward, node->id);
        if ((uint32_t)node->layer >= r->n_layers)
            r->n_layers = (uint32_t)node->layer + 1;
        for (uint32_t k = 0; k < node->n_results; k++) {
            if (params[node->results[k]] == FG_NO_ID && node->results[k] != m->loss)
                r->layer[node->results[k]] = node->layer;
        }
    }
}

static bool need_operands(Recompute *r, const FgNode *node)
{
    bool any = false;
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t value = node->operands[k];
        if (value == FG_NO_ID || r->layer[value] < 0)
            continue;
        r->needed[fg_value(r->module, value)->def] = true;
        any = true;
    }
    return any;
}

static bool find_needed(Recompute *r, FgArena *scratch, const FgIdVec *order)
{
    FgModule *m = r->module;
    r->needed = FG_NEW_ARRAY(scratch, bool, m->nodes.len);
    r->by_layer = FG_NEW_ARRAY(scratch, FgIdVec, r->n_layers);
    bool any = false;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        if (node->phase == FG_PHASE_BACKWARD)
            any |= need_operands(r, node);
    }
    for (uint32_t i = r->forward.len; i-- > 0;) {
        const FgNode *node = fg_node(m, r->forward.data[i]);
        if (r->needed[node->id])
            need_operands(r, node);
    }
    for (uint32_t i = 0; i < r->forward.len; i++) {
        const FgNode *node = fg_node(m, r->forward.data[i]);
        if (r->needed[node->id])
            fg_vec_push(scratch, &r->by_layer[node->layer], node->id);
    }
    return any;
}

/* ---- clones ---- */

/* Operands with the clones of what was computed again; memory from the module's arena. */
static uint32_t *with_clones(const Recompute *r, const FgNode *node)
{
    uint32_t *operands = FG_NEW_ARRAY(r->module->arena, uint32_t, node->n_operands);
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t value = node->operands[k];
        bool cloned = value != FG_NO_ID && r->layer[value] >= 0 && r->clone[value] != FG_NO_ID;
        operands[k] = cloned ? r->clone[value] : value;
    }
    return operands;
}

static void clone_node(Recompute *r, uint32_t id)
{
    FgModule *m = r->module;
    FgNode node = *fg_node(m, id);
    FgBuilder b = {.module = m,
                   .order = &r->order,
                   .loc = node.loc,
                   .name = node.name,
                   .phase = FG_PHASE_BACKWARD,
                   .layer = node.layer,
                   .origin = id};
    FgNode *copy = fg_node_new(&b, node.op, with_clones(r, &node), node.n_operands);
    uint32_t copy_id = copy->id, n_attrs = fg_op_info(node.op)->n_attrs;
    if (n_attrs)
        memcpy(copy->attrs, node.attrs, n_attrs * sizeof *copy->attrs);
    const char *hint = node.n_results ? fg_value(m, node.results[0])->name : "";
    fg_node_finish(&b, copy, hint);
    for (uint32_t k = 0; k < node.n_results; k++) {
        uint32_t result = fg_node(m, copy_id)->results[k];
        fg_value(m, result)->name = fg_value(m, node.results[k])->name;
        r->clone[node.results[k]] = result;
    }
}

static void write_order(Recompute *r, const FgIdVec *order)
{
    FgModule *m = r->module;
    for (uint32_t i = 0; i < order->len; i++) {
        uint32_t id = order->data[i];
        const FgNode *node = fg_node(m, id);
        if (node->phase == FG_PHASE_BACKWARD && node->layer >= 0 &&
            (uint32_t)node->layer < r->n_layers) {
            FgIdVec *clones = &r->by_layer[node->layer];
            for (uint32_t k = 0; k < clones->len; k++)
                clone_node(r, clones->data[k]);
            clones->len = 0; /* only before the layer's first backward node */
            fg_node(m, id)->operands = with_clones(r, fg_node(m, id));
        }
        fg_vec_push(m->arena, &r->order, id);
    }
}

static void start_clones(Recompute *r, FgArena *scratch)
{
    size_t n = r->module->values.len;
    r->clone = FG_NEW_ARRAY(scratch, uint32_t, n);
    memset(r->clone, 0xff, n * sizeof *r->clone); /* FG_NO_ID */
}

static bool full(Recompute *r, FgArena *scratch, const FgIdVec *order)
{
    find_layers(r, scratch, order);
    if (!find_needed(r, scratch, order))
        return false;
    start_clones(r, scratch);
    write_order(r, order);
    return true;
}

/* ---- selective ---- */

static bool can_repeat(const FgModule *m, const FgNode *node)
{
    bool can = node->phase == FG_PHASE_FORWARD && node->n_results > 0 &&
               !fg_op_has(node->op, FG_OPF_CONSTANT) && !fg_op_has(node->op, FG_OPF_EFFECT);
    for (uint32_t k = 0; k < node->n_results; k++)
        can = can && node->results[k] != m->loss;
    return can;
}

/* Reads the plan's nodes and the views of what they make; false after an error. */
static bool find_named(Recompute *r, FgArena *scratch, const FgIdVec *order)
{
    FgModule *m = r->module;
    const FgIdVec *named = &m->plan->recomputed;
    r->layer = FG_NEW_ARRAY(scratch, int32_t, m->values.len);
    memset(r->layer, -1, m->values.len * sizeof *r->layer);
    r->needed = FG_NEW_ARRAY(scratch, bool, m->nodes.len);
    r->position = FG_NEW_ARRAY(scratch, uint32_t, m->nodes.len);
    memset(r->position, 0xff, m->nodes.len * sizeof *r->position);
    for (uint32_t i = 0; i < order->len; i++)
        r->position[order->data[i]] = i;
    for (uint32_t i = 0; i < named->len; i++) {
        uint32_t id = named->data[i];
        if (id >= m->nodes.len || r->position[id] == FG_NO_ID || !can_repeat(m, fg_node(m, id))) {
            fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                    "the plan recomputes #%u, which is no forward node that can run twice", id);
            return false;
        }
        r->needed[id] = true;
    }
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        bool again = r->needed[node->id] ||
                     (fg_op_has(node->op, FG_OPF_VIEW) && node->phase == FG_PHASE_FORWARD &&
                      r->layer[node->operands[0]] >= 0);
        for (uint32_t k = 0; k < node->n_results && again; k++)
            r->layer[node->results[k]] = node->layer < 0 ? 0 : node->layer;
    }
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds the places of nodes that must be cloned before `node` can read its operands. */
static void want_operands(Recompute *r, FgArena *scratch, const FgNode *node, FgIdVec *places)
{
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t value = node->operands[k];
        if (value == FG_NO_ID || r->layer[value] < 0 || r->clone[value] != FG_NO_ID)
            continue;
        fg_vec_push(scratch, places, r->position[fg_value(r->module, value)->def]);
        r->clone[value] = value; /* asked for; its clone takes this place */
    }
}

static void clone_for(Recompute *r, FgArena *scratch, const FgIdVec *order, const FgNode *reader)
{
    FgIdVec places = {0};
    want_operands(r, scratch, reader, &places);
    for (uint32_t i = 0; i < places.len; i++)
        want_operands(r, scratch, fg_node(r->module, order->data[places.data[i]]), &places);
    if (places.len > 0)
        qsort(places.data, places.len, sizeof *places.data, by_number);
    for (uint32_t i = 0; i < places.len; i++)
        if (i == 0 || places.data[i] != places.data[i - 1]) /* two results of one node */
            clone_node(r, order->data[places.data[i]]);
}

static bool selective(Recompute *r, FgArena *scratch, const FgIdVec *order)
{
    FgModule *m = r->module;
    uint32_t before = m->nodes.len;
    start_clones(r, scratch);
    for (uint32_t i = 0; i < order->len; i++) {
        uint32_t id = order->data[i];
        if (fg_node(m, id)->phase == FG_PHASE_BACKWARD) {
            FgNode reader = *fg_node(m, id); /* stays valid while nodes are added */
            clone_for(r, scratch, order, &reader);
            fg_node(m, id)->operands = with_clones(r, &reader);
        }
        fg_vec_push(m->arena, &r->order, id);
    }
    return m->nodes.len > before;
}

FgPassResult fg_pass_recompute(FgPassCx *cx)
{
    FgModule *m = cx->module;
    if (!m->plan || m->plan->recompute == FG_RECOMPUTE_NONE)
        return FG_PASS_UNCHANGED;
    FgFunc *step = fg_func(m, "step");
    Recompute r = {.module = m};
    bool named = m->plan->recompute == FG_RECOMPUTE_SELECTIVE;
    if (named && !find_named(&r, cx->scratch, &step->order))
        return FG_PASS_FAILED;
    if (!(named ? selective : full)(&r, cx->scratch, &step->order))
        return FG_PASS_UNCHANGED;
    step->order = r.order;
    return FG_PASS_CHANGED;
}
