/* fold: a sum goes into the op that makes one of its terms. Graph level, after autodiff.
 *
 * linear, its gradient for x and the norms' gradients take an operand `plus` (FG_OPF_PLUS): it is
 * added to the result before the one rounding. A sum of two values of one type, of which the one
 * made later comes from such an op and goes nowhere else, is that op with the earlier one as its
 * `plus`: no pass over memory for the sum, and nothing for the term alone. The residual stream and
 * the gradients that meet in it add up so, and where several linear ops read one value, each adds
 * to the gradient what the one before it made.
 *
 *   %o = linear %a, %w
 *   %h = add %x, %o          ->    %h = linear %a, %w, _, %x
 *
 * The op stays where it stands, where the earlier term is there. The term made earlier cannot take
 * the later one: it would have to move, and what it reads to live longer. This depends on the graph
 * alone, so every schedule has the same numbers. Heads of sharded tables stay as they are, for
 * `travel` makes other nodes of them. Linear in the nodes.
 */
#include "ir/op_table.h"
#include "passes/passes.h"

typedef struct Fold {
    FgModule *m;
    uint32_t *uses;  /* value -> how often it is read, the loss once more */
    uint32_t *place; /* value -> where it is made: 1 + position in the order; 0: there before */
} Fold;

static void read_order(Fold *f, FgArena *scratch, const FgIdVec *order)
{
    const FgModule *m = f->m;
    f->uses = FG_NEW_ARRAY(scratch, uint32_t, m->values.len + 1);
    f->place = FG_NEW_ARRAY(scratch, uint32_t, m->values.len + 1);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                f->uses[node->operands[k]]++;
        for (uint32_t k = 0; k < node->n_results; k++)
            f->place[node->results[k]] = i + 1;
    }
    if (m->loss != FG_NO_ID)
        f->uses[m->loss]++;
}

static bool reads_sharded(const FgModule *m, const FgNode *node)
{
    const FgValue *w = &m->values.data[node->operands[1]];
    return w->kind == FG_VALUE_PARAM && m->params.data[w->index].sharded;
}

/* The node that can make the sum instead of its term `k` alone, or NULL. It stays in the sum's
 * phase and layer, so that what can be computed again is the same. */
static const FgNode *maker_of(const Fold *f, const FgNode *sum, uint32_t k)
{
    const FgValue *term = &f->m->values.data[sum->operands[k]];
    const FgValue *other = &f->m->values.data[sum->operands[1 - k]];
    if (term->kind != FG_VALUE_RESULT || term->type != other->type || f->uses[term->id] != 1 ||
        f->place[term->id] <= f->place[other->id])
        return NULL;
    const FgNode *maker = &f->m->nodes.data[term->def];
    uint32_t plus = fg_op_plus(maker->op);
    bool can = plus != FG_NO_ID && maker->results[0] == term->id && maker->phase == sum->phase &&
               maker->layer == sum->layer &&
               (plus >= maker->n_operands || maker->operands[plus] == FG_NO_ID);
    return can && !reads_sharded(f->m, maker) ? maker : NULL;
}

/* The maker makes the sum itself: the sum's node stands in no order any more. */
static void fold_into(Fold *f, uint32_t maker, uint32_t plus, const FgNode *sum)
{
    FgModule *m = f->m;
    FgNode *node = fg_node(m, maker);
    uint32_t at = fg_op_plus(node->op), term = node->results[0], y = sum->results[0];
    uint32_t *operands = FG_NEW_ARRAY(m->arena, uint32_t, at + 1);
    for (uint32_t k = 0; k < at; k++)
        operands[k] = k < node->n_operands ? node->operands[k] : FG_NO_ID;
    operands[at] = plus;
    uint32_t *results = FG_NEW_ARRAY(m->arena, uint32_t, node->n_results);
    for (uint32_t k = 0; k < node->n_results; k++)
        results[k] = k ? node->results[k] : y;
    node->operands = operands;
    node->n_operands = at + 1;
    node->results = results;
    fg_value(m, y)->def = maker;
    fg_value(m, term)->def = sum->id;
    f->place[y] = f->place[term];
}

FgPassResult fg_pass_fold(FgPassCx *pass)
{
    FgModule *m = pass->module;
    FgIdVec *order = &fg_func(m, "step")->order;
    Fold f = {.m = m};
    read_order(&f, pass->scratch, order);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]), *maker = NULL;
        uint32_t k = 0;
        for (; node->op == FG_OP_add && k < 2 && !maker; k++)
            maker = maker_of(&f, node, k);
        if (maker)
            fold_into(&f, maker->id, node->operands[2 - k], node);
        else
            order->data[kept++] = node->id;
    }
    bool changed = kept < order->len;
    order->len = kept;
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
