/* fuse: element-by-element nodes that feed each other become one node, one pass over memory.
 * Graph level, after autodiff: what backward reads is kept, and no chain hides it.
 *
 *   %p = mul %d, %w         (each row by its weight)
 *   %s = add %x, %p    ->   %s = fused %x, %d, %w {expression = "mul(x1, x2) f32; add(x0, t0) f32",
 * ...}
 *
 * The expression rounds where the nodes did, so the bits are theirs. What is fused depends on the
 * graph alone: every schedule has the same nodes, and recomputation clones them like others.
 *
 * A node moves into its reader when nothing else reads its result, both have as many elements, lie
 * in one layer and phase, and no work stands between the two in the order but what moves too (views
 * and marks are no work). A chain's operands are there when its first node would run, so that
 * fusing takes no more memory than the nodes did. It has at most MOST_OPERANDS operands, since a
 * kernel holds all of them in registers.
 *
 * Linear in the nodes. */
#include "ir/chain.h"
#include "passes/lower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_OPERANDS 8

typedef struct Fuse {
    FgModule *module;
    FgArena *scratch;
    uint32_t n_nodes; /* before: chains that are made join nothing more */
    uint32_t *uses;   /* value */
    uint32_t *place;  /* node: counts nodes that do work; 0 for what no chain takes */
    uint32_t *start;  /* node: place of the first node of its chain */
    uint32_t *size;   /* node: operands of its chain, at most */
    bool *joined;     /* node: it moves into its reader */
} Fuse;

/* A chain as it grows; operands by value and repetition. */
typedef struct Growth {
    FgChain chain;
    FgIdVec operands;
    FG_VEC(int64_t) repeat;
} Growth;

/* ---- which nodes ---- */

/* The attribute that a step takes for its number; NULL: none. */
static const char *number_of(FgOp op)
{
    return op == FG_OP_scale        ? "factor"
           : op == FG_OP_add_scalar ? "value"
           : op == FG_OP_pow        ? "exponent"
           : op == FG_OP_unary_back ? "a"
                                    : NULL;
}

/* The step that a node is, without its operands; false where it is none. A gated activation is a
 * product: the activation is a step before it. */
static bool step_of(const FgModule *m, const FgNode *node, FgChainStep *out)
{
    const char *name = fg_op_info(node->op)->name, *number = number_of(node->op);
    char back[32];
    if (node->n_results != 1)
        return false;
    *out = (FgChainStep){.dtype = m->values.data[node->results[0]].type->dtype};
    if (node->op == FG_OP_unary_back) {
        snprintf(back, sizeof back, "%s_back", fg_node_attr(node, "kind")->word);
        name = back;
    }
    if (node->op == FG_OP_gated || node->op == FG_OP_cast)
        name = node->op == FG_OP_gated ? "mul" : "keep";
    if (number)
        out->number = (double)(float)fg_node_attr(node, number)->f;
    return fg_chain_op_parse(name, strlen(name), &out->op) && isfinite(out->number);
}

/* Which element of an operand goes with one of the result: as the op's `repeat`. False for a
 * repetition that is neither of rows nor within them. */
static bool repetition(const FgType *x, const FgType *y, int64_t *out)
{
    int64_t n = fg_type_elements(x), all = fg_type_elements(y), inner = 1;
    uint32_t skip = 0, r = y->rank;
    *out = 0;
    if (n == all)
        return true;
    while (skip < x->rank && x->dims[skip] == 1)
        skip++;
    uint32_t rank = x->rank - skip, k = 0;
    while (k < rank && x->dims[x->rank - 1 - k] == y->dims[r - 1 - k])
        k++;
    if (k == rank) { /* the last dimensions: a row */
        *out = n;
        return true;
    }
    k = 0;
    while (k < x->rank && x->dims[x->rank - 1 - k] == 1)
        inner *= y->dims[r - 1 - k++];
    for (; k < r; k++)
        if (k >= x->rank ? y->dims[r - 1 - k] != 1 : x->dims[x->rank - 1 - k] != y->dims[r - 1 - k])
            return false;
    *out = -inner;
    return true;
}

static bool can_fuse(const FgModule *m, const FgNode *node)
{
    FgChainStep step;
    int64_t repeat;
    if (!step_of(m, node, &step) || !fg_chain_takes(step.dtype))
        return false;
    const FgType *y = m->values.data[node->results[0]].type;
    for (uint32_t k = 0; k < node->n_operands; k++) {
        const FgType *x = m->values.data[node->operands[k]].type;
        if (!fg_chain_takes(x->dtype) || !repetition(x, y, &repeat))
            return false;
    }
    return true;
}

static void count(Fuse *f, const FgIdVec *order)
{
    uint32_t place = 1;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(f->module, order->data[i]);
        bool works = !fg_op_has(node->op, FG_OPF_VIEW) && node->op != FG_OP_grad;
        f->place[node->id] = works && can_fuse(f->module, node) ? place : 0;
        place += works;
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                f->uses[node->operands[k]]++;
    }
    if (f->module->loss != FG_NO_ID)
        f->uses[f->module->loss]++;
}

/* ---- which of them join ---- */

/* The node behind an operand, if it is like its reader and serves it alone; otherwise NULL. */
static const FgNode *candidate(const Fuse *f, const FgNode *reader, uint32_t operand)
{
    const FgModule *m = f->module;
    const FgValue *x = &m->values.data[operand];
    if (x->kind != FG_VALUE_RESULT || f->uses[operand] != 1 || x->def >= f->n_nodes)
        return NULL;
    const FgNode *def = &m->nodes.data[x->def];
    const FgType *y = m->values.data[reader->results[0]].type;
    bool can = f->place[def->id] != 0 && def->phase == reader->phase &&
               def->layer == reader->layer && fg_type_elements(x->type) == fg_type_elements(y);
    return can ? def : NULL;
}

/* Takes what stands right before the chain, as long as there is something and room for it. */
static void join(Fuse *f, const FgNode *node)
{
    uint32_t start = f->place[node->id], size = node->n_operands;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t k = 0; k < node->n_operands; k++) {
            const FgNode *def = candidate(f, node, node->operands[k]);
            if (!def || f->joined[def->id] || f->place[def->id] + 1 != start ||
                size - 1 + f->size[def->id] > MOST_OPERANDS)
                continue;
            f->joined[def->id] = true;
            start = f->start[def->id];
            size += f->size[def->id] - 1;
            more = true;
        }
    }
    f->start[node->id] = start;
    f->size[node->id] = size;
}

/* ---- the expression ---- */

static FgChainArg operand_of(Fuse *f, Growth *g, uint32_t value, const FgType *y)
{
    int64_t repeat;
    if (!repetition(f->module->values.data[value].type, y, &repeat))
        FG_BUG("a repetition that no chain has");
    uint32_t k = 0;
    while (k < g->operands.len && (g->operands.data[k] != value || g->repeat.data[k] != repeat))
        k++;
    if (k == g->operands.len) {
        fg_vec_push(f->scratch, &g->operands, value);
        fg_vec_push(f->scratch, &g->repeat, repeat);
    }
    return (FgChainArg){false, k};
}

/* f(gate) up: the activation is a step of its own, which is not rounded. */
static FgChainArg activation(Fuse *f, Growth *g, const FgNode *node, FgChainArg gate)
{
    const char *kind = fg_node_attr(node, "kind")->word;
    FgChainStep open = {.args = {gate}, .dtype = FG_F32};
    if (!fg_chain_op_parse(kind, strlen(kind), &open.op))
        FG_BUG("'%s' is no step of a chain", kind);
    fg_vec_push(f->scratch, &g->chain.steps, open);
    return (FgChainArg){true, g->chain.steps.len - 1};
}

/* Adds the steps of what joins the node, then its own. */
static FgChainArg grow(Fuse *f, Growth *g, const FgNode *node)
{
    FgChainStep step;
    const FgType *y = f->module->values.data[node->results[0]].type;
    if (!step_of(f->module, node, &step))
        FG_BUG("a node that is no step of a chain");
    for (uint32_t k = 0; k < node->n_operands; k++) {
        const FgNode *def = candidate(f, node, node->operands[k]);
        bool inside = def && f->joined[def->id];
        step.args[k] = inside ? grow(f, g, def) : operand_of(f, g, node->operands[k], y);
    }
    if (node->op == FG_OP_gated)
        step.args[0] = activation(f, g, node, step.args[0]);
    fg_vec_push(f->scratch, &g->chain.steps, step);
    return (FgChainArg){true, g->chain.steps.len - 1};
}

/* Operands in the order in which the steps name them. */
static void renumber(Fuse *f, Growth *g)
{
    uint32_t n = g->operands.len, next = 0;
    uint32_t *number = FG_NEW_ARRAY(f->scratch, uint32_t, n + 1);
    uint32_t *operands = FG_NEW_ARRAY(f->scratch, uint32_t, n + 1);
    int64_t *repeat = FG_NEW_ARRAY(f->scratch, int64_t, n + 1);
    memset(number, 0xff, n * sizeof *number); /* FG_NO_ID */
    for (uint32_t i = 0; i < g->chain.steps.len; i++) {
        FgChainStep *step = &g->chain.steps.data[i];
        for (uint32_t k = 0; k < fg_chain_info(step->op)->n_operands; k++) {
            FgChainArg *arg = &step->args[k];
            if (arg->is_step)
                continue;
            if (number[arg->index] == FG_NO_ID) {
                operands[next] = g->operands.data[arg->index];
                repeat[next] = g->repeat.data[arg->index];
                number[arg->index] = next++;
            }
            arg->index = number[arg->index];
        }
    }
    g->operands.data = operands;
    g->repeat.data = repeat;
}

/* The chain that ends with the node, which it replaces. */
static void make_fused(Fuse *f, FgIdVec *order, uint32_t id)
{
    FgModule *m = f->module;
    Growth g = {0};
    FgNode last = *fg_node(m, id);
    const FgType *y = fg_value(m, last.results[0])->type;
    grow(f, &g, &last);
    renumber(f, &g);
    FgBuilder build = {m, order, last.loc, last.name, last.phase, last.layer, last.origin};
    FgNode *node = fg_node_new(&build, FG_OP_fused, g.operands.data, g.operands.len);
    fg_node_set_word(m, node, "expression", fg_chain_text(m->arena, &g.chain));
    fg_node_set_ints(m, node, "shape", y->dims, y->rank);
    fg_node_set_ints(m, node, "repeat", g.repeat.data, g.repeat.len);
    fg_value(m, last.results[0])->def = node->id; /* the last node is its maker no longer */
    fg_node_finish_into(&build, node, last.results, 1);
}

FgPassResult fg_pass_fuse(FgPassCx *cx)
{
    FgModule *m = cx->module;
    FgFunc *func = fg_func(m, "step");
    const FgIdVec old = func->order;
    uint32_t n = m->nodes.len;
    Fuse f = {.module = m,
              .n_nodes = n,
              .scratch = cx->scratch,
              .uses = FG_NEW_ARRAY(cx->scratch, uint32_t, m->values.len + 1),
              .place = FG_NEW_ARRAY(cx->scratch, uint32_t, n + 1),
              .start = FG_NEW_ARRAY(cx->scratch, uint32_t, n + 1),
              .size = FG_NEW_ARRAY(cx->scratch, uint32_t, n + 1),
              .joined = FG_NEW_ARRAY(cx->scratch, bool, n + 1)};
    uint32_t found = 0;
    FgIdVec order = {0};
    count(&f, &old);
    for (uint32_t i = 0; i < old.len; i++)
        if (f.place[old.data[i]])
            join(&f, fg_node(m, old.data[i]));
    for (uint32_t i = 0; i < old.len; i++) {
        uint32_t id = old.data[i];
        if (f.joined[id])
            continue;
        if (f.place[id] && f.start[id] != f.place[id]) {
            make_fused(&f, &order, id);
            found++;
        } else {
            fg_vec_push(m->arena, &order, id);
        }
    }
    if (!found)
        return FG_PASS_UNCHANGED;
    func->order = order;
    return FG_PASS_CHANGED;
}
