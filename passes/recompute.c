/* recompute: clones a layer's forward before its backward, where the plan says so. Graph level,
 * after autodiff.
 *
 * A layer is an iteration of the model's `repeat`. Of the values that its forward nodes make, those
 * that other layers use are borders and are kept; constants and views of parameters cost no memory
 * and are kept too. What the layer's own backward uses otherwise is computed again from the
 * borders, just before the first backward node of the layer: nodes that nothing backward needs,
 * like the last residual add, are not cloned. Linear in the nodes.
 *
 *   %n = rmsnorm %x, %w   layer(0)               %n = rmsnorm %x, %w              layer(0)
 *   %y = linear %n, %v    layer(0)               %y = linear %n, %v               layer(0)
 *   ...                                    ->    ...
 *   %d_v = linear_dw %n, %d_y  backward          %n2 = rmsnorm %x, %w   backward  layer(0)
 *                                                %d_v = linear_dw %n2, %d_y backward
 */
#include "passes/lower.h"
#include "passes/passes.h"

#include <string.h>

typedef struct Recompute {
    FgModule *module;
    FgIdVec forward;   /* forward nodes of layers, in order */
    int32_t *layer;    /* value -> the layer that could compute it again; -1: kept */
    bool *needed;      /* node -> it is computed again */
    uint32_t *clone;   /* value -> its second self, or FG_NO_ID */
    FgIdVec *by_layer; /* layer -> needed nodes, in order */
    uint32_t n_layers;
    FgIdVec order; /* the new one */
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

FgPassResult fg_pass_recompute(FgPassCx *cx)
{
    FgModule *m = cx->module;
    if (!m->plan || m->plan->recompute == FG_RECOMPUTE_NONE)
        return FG_PASS_UNCHANGED;
    FgFunc *step = fg_func(m, "step");
    Recompute r = {.module = m};
    find_layers(&r, cx->scratch, &step->order);
    if (!find_needed(&r, cx->scratch, &step->order))
        return FG_PASS_UNCHANGED;
    r.clone = FG_NEW_ARRAY(cx->scratch, uint32_t, m->values.len);
    memset(r.clone, 0xff, m->values.len * sizeof *r.clone); /* FG_NO_ID */
    write_order(&r, &step->order);
    step->order = r.order;
    return FG_PASS_CHANGED;
}
