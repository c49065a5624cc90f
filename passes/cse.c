/* cse: merges nodes that compute the same from the same operands. Graph level.
 *
 * One walk over the order with a hash table of the nodes seen: op, operands (ordered where the op
 * is commutative) and attributes, bit by bit. Ops with effects are never merged, and nothing is
 * merged across phases: backward nodes that repeat a forward one do so for its memory (recompute).
 * Constants, having no operands, merge by their attributes, so that sixteen layers share one rope
 * table. Linear in the nodes.
 *
 *   %t0 = rope_table {seq = 8, half = 4}         %t0 = rope_table {seq = 8, half = 4}
 *   %a = rope %q, %t0                            %a = rope %q, %t0
 *   %t1 = rope_table {seq = 8, half = 4}   ->
 *   %b = rope %k, %t1                            %b = rope %k, %t0
 */
#include "base/map.h"
#include "ir/op_table.h"
#include "passes/passes.h"
#include "passes/remap.h"

#include <string.h>

/* ---- operands as they count ---- */

/* Without omitted ones at the end. */
static uint32_t n_given(const FgNode *node)
{
    uint32_t n = node->n_operands;
    while (n > 0 && node->operands[n - 1] == FG_NO_ID)
        n--;
    return n;
}

static uint32_t operand(const FgNode *node, uint32_t i)
{
    bool swap = (fg_op_info(node->op)->flags & FG_OPF_COMMUTATIVE) && n_given(node) == 2 &&
                node->operands[0] > node->operands[1];
    return node->operands[swap ? 1 - i : i];
}

/* ---- hashing and equality ---- */

static uint64_t hash_attr(const FgAttr *attr, FgAttrKind kind, uint64_t seed)
{
    seed = fg_hash_bytes(&attr->set, sizeof attr->set, seed);
    switch (kind) {
    case FG_ATTR_INT:
    case FG_ATTR_BOOL:
        return fg_hash_bytes(&attr->i, sizeof attr->i, seed);
    case FG_ATTR_FLOAT:
        return fg_hash_bytes(&attr->f, sizeof attr->f, seed);
    case FG_ATTR_INTS:
        return fg_hash_bytes(attr->ints, attr->n_ints * sizeof *attr->ints, seed);
    case FG_ATTR_WORD:
    case FG_ATTR_TEXT:
        return fg_hash_bytes(&attr->word, sizeof attr->word, seed); /* interned */
    }
    return seed;
}

static uint64_t hash_node(const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    uint64_t hash = fg_hash_bytes(&node->op, sizeof node->op, (uint64_t)node->phase);
    for (uint32_t i = 0; i < n_given(node); i++) {
        uint32_t value = operand(node, i);
        hash = fg_hash_bytes(&value, sizeof value, hash);
    }
    for (uint32_t i = 0; i < info->n_attrs; i++)
        hash = hash_attr(&node->attrs[i], info->attrs[i].kind, hash);
    return hash;
}

static bool same_attr(const FgAttr *a, const FgAttr *b, FgAttrKind kind)
{
    if (a->set != b->set)
        return false;
    switch (kind) {
    case FG_ATTR_INT:
    case FG_ATTR_BOOL:
        return a->i == b->i;
    case FG_ATTR_FLOAT:
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case FG_ATTR_INTS:
        return a->n_ints == b->n_ints &&
               (a->n_ints == 0 || memcmp(a->ints, b->ints, a->n_ints * sizeof *a->ints) == 0);
    case FG_ATTR_WORD:
    case FG_ATTR_TEXT:
        return a->word == b->word;
    }
    return false;
}

static bool same_node(const FgNode *a, const FgNode *b)
{
    if (a->op != b->op || a->phase != b->phase || n_given(a) != n_given(b))
        return false;
    for (uint32_t i = 0; i < n_given(a); i++) {
        if (operand(a, i) != operand(b, i))
            return false;
    }
    const FgOpInfo *info = fg_op_info(a->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (!same_attr(&a->attrs[i], &b->attrs[i], info->attrs[i].kind))
            return false;
    }
    return true;
}

/* ---- table ---- */

typedef struct Table {
    FgModule *module;
    uint32_t *slots; /* node ids, FG_NO_ID where free; open addressing */
    uint32_t mask;
} Table;

static Table table_for(FgArena *scratch, FgModule *module, uint32_t n)
{
    uint32_t size = 16;
    while (size < 2 * n)
        size *= 2;
    Table table = {module, FG_NEW_ARRAY(scratch, uint32_t, size), size - 1};
    for (uint32_t i = 0; i < size; i++)
        table.slots[i] = FG_NO_ID;
    return table;
}

/* The first node that computes the same; the node itself when it is the first. */
static uint32_t find_or_add(Table *table, uint32_t id)
{
    const FgNode *node = fg_node(table->module, id);
    uint32_t slot = (uint32_t)hash_node(node) & table->mask;
    while (table->slots[slot] != FG_NO_ID) {
        if (same_node(fg_node(table->module, table->slots[slot]), node))
            return table->slots[slot];
        slot = (slot + 1) & table->mask;
    }
    table->slots[slot] = id;
    return id;
}

FgPassResult fg_pass_cse(FgPassCx *cx)
{
    FgModule *m = cx->module;
    FgIdVec *order = &fg_func(m, "step")->order;
    Table table = table_for(cx->scratch, m, order->len);
    FgRemap remap;
    fg_remap_init(&remap, cx->scratch, m);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < order->len; i++) {
        uint32_t id = order->data[i];
        fg_remap_operands(&remap, id);
        const FgNode *node = fg_node(m, id);
        uint32_t first = id;
        if (!(fg_op_info(node->op)->flags & (FG_OPF_EFFECT | FG_OPF_COLLECTIVE)))
            first = find_or_add(&table, id);
        if (first == id) {
            order->data[kept++] = id;
            continue;
        }
        for (uint32_t r = 0; r < node->n_results; r++)
            remap.to[node->results[r]] = fg_node(m, first)->results[r];
    }
    bool changed = kept != order->len;
    order->len = kept;
    m->loss = fg_remap_of(&remap, m->loss);
    return changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
