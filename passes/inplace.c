/* inplace: a result takes the memory of an operand that ends there.
 *
 * sched -> sched. For element-by-element ops (FG_OPF_INPLACE) whose operand 0 (either one where the
 * op commutes, any of a chain), and for ops that add an operand to their result (FG_OPF_PLUS) whose
 * `plus`, is an activation with memory of its own, read for the last time by this node, and as
 * large as the result. The last access in issue order counts, over every name of the memory.
 *
 *   %y = silu %x                 ->   %y = silu %x                 in %x+0
 *   %h = linear %y, %w, _, %x    ->   %h = linear %y, %w, _, %x    in %x+0
 */
#include "passes/lower.h"

#include <string.h>

static void find_last_access(const FgModule *m, const FgIdVec *order, uint32_t *last)
{
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] != FG_NO_ID)
                last[m->values.data[node->operands[k]].root] = i;
        for (uint32_t k = 0; k < node->n_results; k++)
            if (node->results[k] != FG_NO_ID)
                last[m->values.data[node->results[k]].root] = i;
    }
}

/* How many of a node's first operands may give their memory. Of a chain all: one that is as large
 * as the result is read element by element. */
static uint32_t takeable(const FgNode *node)
{
    if (!fg_op_has(node->op, FG_OPF_INPLACE))
        return 0;
    if (node->op == FG_OP_fused)
        return node->n_operands;
    return fg_op_has(node->op, FG_OPF_COMMUTATIVE) ? 2 : 1;
}

/* Another operand in the same memory forbids writing over it: one that names it in another way (a
 * broadcast row of it), and the same value in a place whose memory the op may not take. */
static bool has_other_name(const FgModule *m, const FgNode *node, uint32_t at)
{
    uint32_t operand = node->operands[at];
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t v = node->operands[k];
        bool same = k == at || (v == operand && at < takeable(node) && k < takeable(node));
        if (v != FG_NO_ID && !same && m->values.data[v].root == m->values.data[operand].root)
            return true;
    }
    return false;
}

/* Whether the result may lie where operand `k` does, at position `at` of the order. */
static bool can_take(const FgModule *m, const FgNode *node, uint32_t k, const uint32_t *last,
                     uint32_t at)
{
    uint32_t operand = k < node->n_operands ? node->operands[k] : FG_NO_ID;
    if (operand == FG_NO_ID)
        return false;
    const FgValue *x = &m->values.data[operand], *root = &m->values.data[x->root];
    const FgValue *y = &m->values.data[node->results[0]];
    return root->kind == FG_VALUE_RESULT && root->mem == FG_MEM_ACTIVATIONS &&
           x->root_offset == 0 && y->root == y->id && last[x->root] == at &&
           !has_other_name(m, node, k) && fg_type_bytes(root->type) == fg_type_bytes(y->type) &&
           fg_type_bytes(x->type) == fg_type_bytes(y->type) && x->type->dtype == y->type->dtype;
}

/* A result whose root gave up its memory earlier in the order follows it. */
static void follow_roots(FgModule *m, const FgNode *node, const uint32_t *moved)
{
    for (uint32_t k = 0; k < node->n_results; k++) {
        FgValue *v = node->results[k] == FG_NO_ID ? NULL : fg_value(m, node->results[k]);
        if (v && v->root != v->id && moved[v->root] != FG_NO_ID)
            v->root = moved[v->root];
    }
}

/* The operand whose memory the result takes, or FG_NO_ID. */
static uint32_t source_of(const FgModule *m, const FgNode *node, const uint32_t *last, uint32_t at)
{
    uint32_t plus = fg_op_plus(node->op), n = takeable(node);
    for (uint32_t k = 0; k < n; k++)
        if (can_take(m, node, k, last, at))
            return node->operands[k];
    return can_take(m, node, plus, last, at) ? node->operands[plus] : FG_NO_ID;
}

/* `moved`: root that became part of another -> that one; walked in order, so names made later
 * follow. */
static bool share_function(FgModule *m, const FgIdVec *order, uint32_t *last, uint32_t *moved)
{
    bool changed = false;
    find_last_access(m, order, last);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = fg_node(m, order->data[i]);
        follow_roots(m, node, moved);
        uint32_t from = source_of(m, node, last, i);
        if (from == FG_NO_ID)
            continue;
        uint32_t y = node->results[0], root = fg_value(m, from)->root;
        last[root] = last[y];
        moved[y] = root;
        fg_value(m, y)->root = root;
        changed = true;
    }
    return changed;
}

FgPassResult fg_pass_inplace(FgPassCx *pass)
{
    FgModule *m = pass->module;
    bool changed = false;
    uint32_t *last = FG_NEW_ARRAY(pass->scratch, uint32_t, m->values.len + 1);
    uint32_t *moved = FG_NEW_ARRAY(pass->scratch, uint32_t, m->values.len + 1);
    for (uint32_t f = 0; f < m->funcs.len; f++) {
        memset(last, 0, m->values.len * sizeof *last);
        memset(moved, 0xff, m->values.len * sizeof *moved);
        changed |= share_function(m, &m->funcs.data[f].order, last, moved);
    }
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
