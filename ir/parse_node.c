/* Functions and their nodes:
 *
 *   func @name {
 *     [#id] [result {, result} =] op [operand {, operand}] [{attr = value, ...}] {field}
 *   } */
#include "ir/parse.h"

#include <string.h>

static const char *phase_name(uint32_t i)
{
    return fg_phase_name((FgPhase)i);
}

static const char *stream_name(uint32_t i)
{
    return fg_stream_name((FgStream)i);
}

/* ---- results and operands ---- */
static bool parse_result(FgParser *p, uint32_t node, uint32_t *out)
{
    FgLoc loc = p->t.loc;
    *out = FG_NO_ID;
    if (fg_parse_is_word(p, "_")) {
        fg_parse_next(p);
        return true;
    }
    if (!fg_parse_value(p, out))
        return false;
    if (!fg_parse_take(p, ':'))
        return p->seen.data[*out].declared ||
               fg_parse_error(p, loc, "the value needs a type where it is first made");
    const FgType *type;
    if (!fg_parse_type(p, &type))
        return false;
    FgValue v = fg_parse_blank_value(p, *out, type);
    v.def = node;
    return fg_parse_place(p, &v) && fg_parse_declare(p, loc, &v);
}

static bool at_value(const FgParser *p)
{
    return p->t.kind == FG_TOKEN_VALUE || fg_parse_is_word(p, "_");
}

static bool parse_results(FgParser *p, FgNode *node)
{
    FgIdVec ids = {0};
    if (!at_value(p))
        return true;
    do {
        uint32_t id;
        if (!parse_result(p, node->id, &id))
            return false;
        fg_vec_push(p->m->arena, &ids, id);
    } while (fg_parse_take(p, ','));
    node->results = ids.data;
    node->n_results = ids.len;
    return fg_parse_punct(p, '=');
}

static bool parse_operands(FgParser *p, FgNode *node)
{
    FgIdVec ids = {0};
    if (!at_value(p))
        return true;
    do {
        uint32_t id = FG_NO_ID;
        if (fg_parse_is_word(p, "_"))
            fg_parse_next(p);
        else if (!fg_parse_value(p, &id))
            return false;
        fg_vec_push(p->m->arena, &ids, id);
    } while (fg_parse_take(p, ','));
    node->operands = ids.data;
    node->n_operands = ids.len;
    return true;
}

static bool parse_op(FgParser *p, FgNode *node)
{
    FgLoc loc = p->t.loc;
    const char *word;
    if (!fg_parse_word(p, "an op", &word))
        return false;
    if (fg_op_parse(word, &node->op))
        return true;
    const char *names[FG_N_OPS];
    for (uint32_t i = 0; i < FG_N_OPS; i++)
        names[i] = fg_op_info((FgOp)i)->name;
    fg_parse_error(p, loc, "unknown op '%s'", word);
    const char *near = fg_closest(word, names, FG_N_OPS);
    if (near)
        fg_diag_note(p->m->diags, FG_NOWHERE, "did you mean '%s'?", near);
    return false;
}

/* ---- attributes ---- */
static bool parse_attr_value(FgParser *p, const FgAttrSpec *spec, FgAttr *attr)
{
    FgLoc loc = p->t.loc;
    const char *word;
    *attr = (FgAttr){.set = true};
    switch (spec->kind) {
    case FG_ATTR_INT:
        return fg_parse_i64(p, &attr->i);
    case FG_ATTR_FLOAT:
        return fg_parse_double(p, &attr->f);
    case FG_ATTR_INTS:
        return fg_parse_i64_list(p, &attr->ints, &attr->n_ints);
    case FG_ATTR_BOOL:
        if (!fg_parse_word(p, "true or false", &word))
            return false;
        attr->i = strcmp(word, "true") == 0;
        return attr->i || strcmp(word, "false") == 0 ||
               fg_parse_error(p, loc, "'%s' is not true or false", word);
    case FG_ATTR_TEXT:
        if (!fg_parse_string(p, &word))
            return false;
        attr->word = fg_intern(p->m->intern, word);
        return true;
    case FG_ATTR_WORD:
        if (!fg_parse_word(p, "a word", &attr->word))
            return false;
        return fg_word_in(spec->choices, attr->word) ||
               fg_parse_error(p, loc, "'%s' must be one of: %s", spec->name, spec->choices);
    }
    return false;
}

static bool parse_attr(FgParser *p, FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    FgLoc loc = p->t.loc;
    const char *name;
    if (!fg_parse_word(p, "an attribute", &name))
        return false;
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (strcmp(info->attrs[i].name, name) == 0)
            return fg_parse_punct(p, '=') && parse_attr_value(p, &info->attrs[i], &node->attrs[i]);
    }
    return fg_parse_error(p, loc, "'%s' has no attribute '%s'", info->name, name);
}

static bool parse_attrs(FgParser *p, FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    FgLoc loc = p->t.loc;
    node->attrs = FG_NEW_ARRAY(p->m->arena, FgAttr, info->n_attrs);
    for (uint32_t i = 0; i < info->n_attrs; i++)
        node->attrs[i] = fg_attr_default(p->m, &info->attrs[i]);
    if (fg_parse_take(p, '{')) {
        do {
            if (!parse_attr(p, node))
                return false;
        } while (fg_parse_take(p, ','));
        if (!fg_parse_punct(p, '}'))
            return false;
    }
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (info->attrs[i].required && !node->attrs[i].set)
            return fg_parse_error(p, loc, "'%s' needs the attribute '%s'", info->name,
                                  info->attrs[i].name);
    }
    return true;
}

/* ---- fields ---- */
static bool parse_waits(FgParser *p, FgNode *node)
{
    FgIdVec ids = {0};
    do {
        uint32_t id;
        if (!fg_parse_node_ref(p, &id))
            return false;
        fg_vec_push(p->m->arena, &ids, id);
    } while (fg_parse_take(p, ','));
    node->waits = ids.data;
    node->n_waits = ids.len;
    return true;
}

static bool parse_layer(FgParser *p, FgNode *node)
{
    FgLoc loc = p->t.loc;
    int64_t layer;
    if (!fg_parse_i64(p, &layer))
        return false;
    if (layer < -1 || layer > INT32_MAX)
        return fg_parse_error(p, loc, "a layer is -1 or an index");
    node->layer = (int32_t)layer;
    return true;
}

/* What stands between the parentheses of field `word`. */
static bool parse_field_value(FgParser *p, FgNode *node, const char *word, FgLoc loc)
{
    uint32_t i = 0;
    if (strcmp(word, "bucket") == 0)
        return fg_parse_u32(p, &node->bucket);
    if (strcmp(word, "name") == 0)
        return fg_parse_string(p, &node->name);
    if (strcmp(word, "layer") == 0)
        return parse_layer(p, node);
    if (strcmp(word, "origin") == 0)
        return fg_parse_node_ref(p, &node->origin);
    if (strcmp(word, "wait") == 0)
        return parse_waits(p, node);
    if (strcmp(word, "phase") == 0) {
        bool ok = fg_parse_choice(p, "a phase (start, forward, backward, update)", phase_name,
                                  FG_PHASE_UPDATE + 1, &i);
        node->phase = (FgPhase)i;
        return ok;
    }
    if (strcmp(word, "stream") == 0) {
        bool ok = fg_parse_choice(p, "a stream (compute, gather, reduce, copy, stash, fetch)",
                                  stream_name, FG_N_STREAMS, &i);
        node->stream = (FgStream)i;
        return ok;
    }
    return fg_parse_error(p, loc, "a node has no field '%s'", word);
}

static bool parse_field(FgParser *p, FgNode *node)
{
    FgLoc loc = p->t.loc;
    const char *word;
    if (!fg_parse_word(p, "a field or the end of the line", &word))
        return false;
    if (strcmp(word, "loc") == 0)
        return fg_parse_loc(p, &node->loc);
    return fg_parse_punct(p, '(') && parse_field_value(p, node, word, loc) &&
           fg_parse_punct(p, ')');
}

/* ---- nodes and functions ---- */
static bool parse_node_id(FgParser *p, uint32_t *out)
{
    FgLoc loc = p->t.loc;
    if (p->t.kind == FG_TOKEN_NODE) {
        if (!fg_parse_node_ref(p, out))
            return false;
    } else {
        *out = p->next_node++;
        fg_parse_room_for_node(p, *out);
    }
    if (p->node_seen.data[*out])
        return fg_parse_error(p, loc, "node #%u stands here a second time", *out);
    p->node_seen.data[*out] = true;
    return true;
}

static bool parse_node(FgParser *p, FgIdVec *order)
{
    uint32_t id;
    FgLoc loc = p->t.loc;
    if (!parse_node_id(p, &id))
        return false;
    FgNode node = {.id = id,
                   .name = "",
                   .loc = loc,
                   .phase = FG_PHASE_FORWARD,
                   .layer = -1,
                   .origin = FG_NO_ID,
                   .bucket = FG_NO_ID};
    if (!parse_results(p, &node) || !parse_op(p, &node) || !parse_operands(p, &node) ||
        !parse_attrs(p, &node))
        return false;
    while (p->t.kind == FG_TOKEN_WORD) {
        if (!parse_field(p, &node))
            return false;
    }
    p->m->nodes.data[id] = node;
    fg_vec_push(p->m->arena, order, id);
    return fg_parse_line_end(p);
}

bool fg_parse_func(FgParser *p)
{
    FgLoc loc = p->t.loc;
    const char *name;
    if (!fg_parse_symbol(p, &name))
        return false;
    if (fg_func(p->m, name))
        return fg_parse_error(p, loc, "function '%s' stands here a second time", name);
    if (!fg_parse_punct(p, '{') || !fg_parse_line_end(p))
        return false;
    FgIdVec order = {0};
    while (!fg_parse_take(p, '}')) {
        if (p->t.kind == FG_TOKEN_END)
            return fg_parse_expected(p, "'}' at the end of the function");
        if (p->t.kind == FG_TOKEN_LINE)
            fg_parse_next(p);
        else if (!parse_node(p, &order))
            fg_parse_recover(p);
    }
    fg_add_func(p->m, name)->order = order;
    return fg_parse_line_end(p);
}
