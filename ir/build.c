/* Building nodes: operands and attributes first, then `finish`, which infers the results and
 * appends the node to an order. A node that fails to finish stays in the table, stands in no
 * function, and is not printed. */
#include "ir/op_fns.h"
#include "ir/text.h"

#include <string.h>

static const uint32_t *copy_ids(FgArena *arena, const uint32_t *ids, uint32_t n)
{
    uint32_t *copy = FG_NEW_ARRAY(arena, uint32_t, n);
    if (n)
        memcpy(copy, ids, n * sizeof *ids);
    return copy;
}

/* The first word of a list of choices is its default. */
static const char *first_word(FgModule *module, const char *words)
{
    return fg_internn(module->intern, words, strcspn(words, " "));
}

FgAttr fg_attr_default(FgModule *module, const FgAttrSpec *spec)
{
    FgAttr a = {.set = !spec->required && !spec->optional};
    if (!a.set)
        return a;
    if (spec->kind == FG_ATTR_FLOAT)
        a.f = spec->number;
    else if (spec->kind == FG_ATTR_WORD)
        a.word = first_word(module, spec->choices);
    else if (spec->kind == FG_ATTR_TEXT)
        a.word = fg_intern(module->intern, "");
    else if (spec->kind != FG_ATTR_INTS)
        a.i = (int64_t)spec->number;
    return a;
}

FgNode *fg_node_new(FgBuilder *builder, FgOp op, const uint32_t *operands, uint32_t n_operands)
{
    FgModule *m = builder->module;
    const FgOpInfo *info = fg_op_info(op);
    FG_ASSERT(m->nodes.len != FG_NO_ID);
    FgNode node = {.op = op,
                   .id = m->nodes.len,
                   .operands = copy_ids(m->arena, operands, n_operands),
                   .n_operands = n_operands,
                   .attrs = FG_NEW_ARRAY(m->arena, FgAttr, info->n_attrs),
                   .name = fg_intern(m->intern, builder->name ? builder->name : ""),
                   .loc = builder->loc,
                   .phase = builder->phase,
                   .layer = builder->layer,
                   .origin = builder->origin,
                   .bucket = FG_NO_ID,
                   .stream = FG_STREAM_COMPUTE};
    for (uint32_t i = 0; i < info->n_attrs; i++)
        node.attrs[i] = fg_attr_default(m, &info->attrs[i]);
    fg_vec_push(m->arena, &m->nodes, node);
    return &m->nodes.data[m->nodes.len - 1];
}

/* ---- attributes ---- */
static uint32_t attr_index(const FgNode *node, const char *attr)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (strcmp(info->attrs[i].name, attr) == 0)
            return i;
    }
    FG_BUG("op '%s' has no attribute '%s'", info->name, attr);
}

static FgAttr *attr_to_set(FgNode *node, const char *attr, FgAttrKind kind, FgAttrKind or_kind)
{
    uint32_t i = attr_index(node, attr);
    FgAttrKind is = fg_op_info(node->op)->attrs[i].kind;
    if (is != kind && is != or_kind)
        FG_BUG("attribute '%s' of op '%s' is of another kind", attr, fg_op_info(node->op)->name);
    node->attrs[i].set = true;
    return &node->attrs[i];
}

void fg_node_set_int(FgModule *module, FgNode *node, const char *attr, int64_t value)
{
    (void)module;
    attr_to_set(node, attr, FG_ATTR_INT, FG_ATTR_BOOL)->i = value;
}

void fg_node_set_float(FgModule *module, FgNode *node, const char *attr, double value)
{
    (void)module;
    attr_to_set(node, attr, FG_ATTR_FLOAT, FG_ATTR_FLOAT)->f = value;
}

void fg_node_set_ints(FgModule *module, FgNode *node, const char *attr, const int64_t *values,
                      uint32_t n)
{
    FgAttr *a = attr_to_set(node, attr, FG_ATTR_INTS, FG_ATTR_INTS);
    int64_t *copy = FG_NEW_ARRAY(module->arena, int64_t, n);
    if (n)
        memcpy(copy, values, n * sizeof *values);
    a->ints = copy;
    a->n_ints = n;
}

void fg_node_set_word(FgModule *module, FgNode *node, const char *attr, const char *word)
{
    attr_to_set(node, attr, FG_ATTR_WORD, FG_ATTR_TEXT)->word = fg_intern(module->intern, word);
}

const FgAttr *fg_node_attr(const FgNode *node, const char *attr)
{
    return &node->attrs[attr_index(node, attr)];
}

/* ---- finishing ---- */
static bool attrs_given(FgModule *m, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (info->attrs[i].required && !node->attrs[i].set) {
            fg_diag(m->diags, node->loc, FG_D_IR_INVALID, "'%s' needs the attribute '%s'",
                    info->name, info->attrs[i].name);
            return false;
        }
    }
    return true;
}

static bool operands_given(FgModule *m, const FgNode *node)
{
    uint32_t min, max, results;
    fg_op_arity(node->op, &min, &max, &results);
    bool all_there = node->n_operands >= min && node->n_operands <= max;
    for (uint32_t i = 0; i < min && all_there; i++)
        all_there = node->operands[i] != FG_NO_ID;
    if (all_there)
        return true;
    fg_diag(m->diags, node->loc, FG_D_IR_INVALID, "'%s' takes the operands '%s', %u were given",
            fg_op_info(node->op)->name, fg_op_info(node->op)->operands, node->n_operands);
    return false;
}

uint64_t fg_view_offset(const FgModule *m, const FgNode *node)
{
    const FgType *y = m->values.data[node->results[0]].type;
    if (node->op != FG_OP_rows)
        return 0;
    return (uint64_t)fg_node_attr(node, "first")->i *
           (fg_type_bytes(y) / (uint64_t)fg_node_attr(node, "count")->i);
}

/* A view made below the graph level lies in its operand's memory from the start. */
static void link_view(FgModule *m, const FgNode *node)
{
    if (m->level == FG_LEVEL_GRAPH || !(fg_op_info(node->op)->flags & FG_OPF_VIEW))
        return;
    const FgValue *x = fg_value(m, node->operands[0]);
    FgValue *y = fg_value(m, node->results[0]);
    y->root = x->root;
    y->root_offset = x->root_offset + fg_view_offset(m, node);
    y->mem = x->mem;
}

uint32_t fg_node_finish(FgBuilder *builder, FgNode *node, const char *hint)
{
    FgModule *m = builder->module;
    const FgOpInfo *info = fg_op_info(node->op);
    if (!operands_given(m, node) || !attrs_given(m, node))
        return FG_NO_ID;
    uint32_t n = fg_node_results(node);
    if (info->infer == fg_infer_given || info->infer == fg_infer_view)
        FG_BUG("results of '%s' are given, not inferred: use fg_node_finish_into", info->name);
    const FgType **types = FG_NEW_ARRAY(m->arena, const FgType *, n);
    if (!info->infer(m, node, types))
        return FG_NO_ID;
    uint32_t *results = FG_NEW_ARRAY(m->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = i ? fg_arena_printf(m->arena, "%s_%u", hint, i) : hint;
        results[i] = fg_add_value(m, name, types[i]);
        fg_value(m, results[i])->def = node->id;
    }
    node->results = results;
    node->n_results = n;
    link_view(m, node);
    fg_vec_push(m->arena, builder->order, node->id);
    return n ? results[0] : FG_NO_ID;
}

void fg_node_finish_into(FgBuilder *builder, FgNode *node, const uint32_t *results,
                         uint32_t n_results)
{
    FgModule *m = builder->module;
    node->results = copy_ids(m->arena, results, n_results);
    node->n_results = n_results;
    for (uint32_t i = 0; i < n_results; i++) {
        if (results[i] == FG_NO_ID)
            continue;
        FgValue *v = fg_value(m, results[i]);
        if (v->kind == FG_VALUE_RESULT && v->def == FG_NO_ID)
            v->def = node->id;
    }
    fg_vec_push(m->arena, builder->order, node->id);
}
