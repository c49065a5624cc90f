/* Instances to IR nodes, in order: attributes are read by the op's row, operands taken from what
 * was built before, types inferred by the builder. An instance that lacks an operand still has its
 * attributes checked. */
#include "frontend/model_internal.h"

#include <string.h>

bool fg_model_op_allowed(FgOp op)
{
    const FgOpInfo *info = fg_op_info(op);
    if (!(info->levels & FG_OPL_GRAPH) || op == FG_OP_loss_seed)
        return false;
    /* Backward ops have operands and no gradient of their own; constants have neither. */
    return info->grad || !*info->operands;
}

/* ---- attributes ---- */
static bool read_word(ModelCx *cx, const FgJson *value, const FgAttrSpec *spec, FgAttr *out)
{
    if (!fg_json_is(cx->json, value, FG_JSON_IS_STRING,
                    fg_arena_printf(cx->arena, "'%s'", spec->name)))
        return false;
    FgStrVec choices = {0};
    for (const char *p = spec->choices; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        fg_vec_push(cx->arena, &choices, fg_arena_strndup(cx->arena, p, n));
        p += n;
    }
    for (uint32_t i = 0; i < choices.len; i++) {
        if (strcmp(choices.data[i], value->text) == 0) {
            out->word = fg_intern(cx->module->intern, value->text);
            return true;
        }
    }
    if (fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must be one of: %s", spec->name,
                       spec->choices))
        fg_json_suggest(cx->json, value->text, choices.data, choices.len);
    return false;
}

static bool read_ints(ModelCx *cx, const Scope *scope, const FgJson *value, const FgAttrSpec *spec,
                      FgAttr *out)
{
    if (!fg_json_is(cx->json, value, FG_JSON_IS_LIST,
                    fg_arena_printf(cx->arena, "'%s'", spec->name)))
        return false;
    int64_t *ints = FG_NEW_ARRAY(cx->arena, int64_t, value->n_items);
    const char *what = fg_arena_printf(cx->arena, "an entry of '%s'", spec->name);
    bool ok = true;
    for (uint32_t i = 0; i < value->n_items; i++)
        ok = fg_model_int(cx, scope, &value->items[i], what, &ints[i]) && ok;
    out->ints = ints;
    out->n_ints = value->n_items;
    return ok;
}

static bool read_attr(ModelCx *cx, const Instance *it, const FgAttrSpec *spec, FgAttr *out)
{
    const FgJson *value = fg_json_get(it->json, spec->name);
    *out = (FgAttr){.set = value != NULL};
    if (!value)
        return !spec->required || fg_json_need(cx->json, it->json, spec->name, 0);
    const char *what = fg_arena_printf(cx->arena, "'%s'", spec->name);
    bool ok = false;
    switch (spec->kind) {
    case FG_ATTR_INT:
        ok = fg_model_int(cx, it->scope, value, what, &out->i);
        break;
    case FG_ATTR_BOOL:
        ok = fg_json_is(cx->json, value, FG_JSON_IS_BOOL, what);
        out->i = value->i;
        break;
    case FG_ATTR_FLOAT:
        ok = fg_json_is(cx->json, value, FG_JSON_IS_NUMBER, what);
        out->f = value->f;
        break;
    case FG_ATTR_INTS:
        ok = read_ints(cx, it->scope, value, spec, out);
        break;
    case FG_ATTR_TEXT: /* of custom alone, which model_custom.c reads */
        break;
    case FG_ATTR_WORD:
        ok = read_word(cx, value, spec, out);
        break;
    }
    return ok;
}

/* One entry an attribute of the row; NULL after reports. */
static const FgAttr *read_attrs(ModelCx *cx, const Instance *it)
{
    const FgOpInfo *info = fg_op_info(it->op);
    FgAttr *attrs = FG_NEW_ARRAY(cx->arena, FgAttr, info->n_attrs);
    bool ok = true;
    for (uint32_t i = 0; i < info->n_attrs; i++)
        ok = read_attr(cx, it, &info->attrs[i], &attrs[i]) && ok;
    return ok ? attrs : NULL;
}

static void set_attrs(FgModule *module, FgNode *node, const FgAttr *attrs)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        const char *name = info->attrs[i].name;
        if (!attrs[i].set)
            continue;
        switch (info->attrs[i].kind) {
        case FG_ATTR_INT:
        case FG_ATTR_BOOL:
            fg_node_set_int(module, node, name, attrs[i].i);
            break;
        case FG_ATTR_FLOAT:
            fg_node_set_float(module, node, name, attrs[i].f);
            break;
        case FG_ATTR_INTS:
            fg_node_set_ints(module, node, name, attrs[i].ints, attrs[i].n_ints);
            break;
        case FG_ATTR_WORD:
        case FG_ATTR_TEXT:
            fg_node_set_word(module, node, name, attrs[i].word);
            break;
        }
    }
}

/* ---- nodes ---- */
/* The IR value of a definition; FG_NO_ID when the instance that makes it failed. */
static uint32_t value_of(ModelCx *cx, uint32_t id)
{
    const Def *def = &cx->defs.data[id];
    if (def->kind == DEF_PARAM)
        return fg_param_value(cx->module, def->index);
    if (def->kind == DEF_INPUT)
        return cx->module->inputs.data[def->index].value;
    const Instance *it = &cx->instances.data[def->index];
    return it->values ? it->values[def->result] : FG_NO_ID;
}

static const uint32_t *operand_values(ModelCx *cx, Instance *it)
{
    uint32_t *values = FG_NEW_ARRAY(cx->arena, uint32_t, it->n_in + 1);
    for (uint32_t i = 0; i < it->n_in; i++) {
        values[i] = value_of(cx, it->operands[i]);
        if (values[i] == FG_NO_ID)
            return NULL;
    }
    return values;
}

static void note_operands(ModelCx *cx, const Instance *it, const uint32_t *values)
{
    for (uint32_t i = 0; i < it->n_in; i++) {
        const FgType *type = fg_value(cx->module, values[i])->type;
        FgBuf text;
        fg_buf_init(&text, cx->arena);
        fg_buf_printf(&text, "%s[", fg_dtype_name(type->dtype));
        for (uint32_t d = 0; d < type->rank; d++)
            fg_buf_printf(&text, "%s%lld", d ? ", " : "", (long long)type->dims[d]);
        fg_diag_note(cx->json->diags, cx->defs.data[it->operands[i]].loc,
                     "'%s' is %s], defined here", it->in[i].text, fg_buf_text(&text));
    }
}

/* Types of the results: at least 1 everywhere, and not overflowing. */
static bool check_results(ModelCx *cx, const Instance *it, uint32_t first)
{
    const FgNode *node = fg_node(cx->module, fg_value(cx->module, first)->def);
    for (uint32_t r = 0; r < node->n_results; r++) {
        const FgType *type = fg_value(cx->module, node->results[r])->type;
        if (!fg_model_count_bytes(cx, it->json->loc, type))
            return false;
    }
    return true;
}

/* The scalar that a cross entropy is multiplied with, when it is the loss. */
static uint32_t loss_seed(FgBuilder *build)
{
    FgNode *node = fg_node_new(build, FG_OP_loss_seed, NULL, 0);
    return fg_node_finish(build, node, "seed");
}

static bool is_loss(ModelCx *cx, uint32_t instance)
{
    if (cx->loss_def == FG_NO_ID)
        return false;
    const Def *def = &cx->defs.data[cx->loss_def];
    return def->index == instance && def->result == 0;
}

/* The first result of the node, or FG_NO_ID after a report. */
static uint32_t make_node(ModelCx *cx, FgBuilder *build, Instance *it, const uint32_t *values,
                          const FgAttr *attrs, bool loss)
{
    uint32_t operands[3], n = it->n_in;
    const char *hint = fg_model_name(cx, it->scope, &it->out[0]);
    if (!hint)
        return FG_NO_ID;
    if (it->op == FG_OP_concat) {
        /* a, b, c, ... is concat(concat(a, b), c) and so on. */
        uint32_t result = values[0];
        for (uint32_t i = 1; i < n && result != FG_NO_ID; i++) {
            FgNode *node = fg_node_new(build, it->op, (uint32_t[]){result, values[i]}, 2);
            set_attrs(cx->module, node, attrs);
            result = fg_node_finish(build, node, hint);
        }
        return result;
    }
    if (it->op == FG_OP_cross_entropy && loss) {
        operands[0] = values[0];
        operands[1] = values[1];
        operands[2] = loss_seed(build);
        values = operands;
        n = 3;
    }
    FgNode *node = fg_node_new(build, it->op, values, n);
    set_attrs(cx->module, node, attrs);
    return fg_node_finish(build, node, hint);
}

static const char *node_name(ModelCx *cx, const Instance *it)
{
    const FgJson *given = fg_json_want(cx->json, it->json, "name", FG_JSON_IS_STRING);
    const char *name = fg_model_name(cx, it->scope, given ? given : &it->out[0]);
    return fg_arena_printf(cx->arena, "%s%s", it->scope->prefix, name ? name : "");
}

/* The builder names the first result; the others are known by the file's names too. */
static void name_results(ModelCx *cx, const Instance *it, uint32_t first)
{
    const FgNode *node = fg_node(cx->module, fg_value(cx->module, first)->def);
    for (uint32_t i = 1; i < it->n_out; i++) {
        const char *name = fg_model_name(cx, it->scope, &it->out[i]);
        char *plain = fg_arena_strdup(cx->arena, name ? name : "v");
        for (char *p = plain; *p; p++) {
            if (strchr("-/:", *p))
                *p = '_';
        }
        fg_value(cx->module, node->results[i])->name = fg_intern(cx->module->intern, plain);
    }
}

static void build_instance(ModelCx *cx, FgBuilder *build, uint32_t index)
{
    Instance *it = &cx->instances.data[index];
    bool loss = is_loss(cx, index);
    if (it->op == FG_OP_cross_entropy && !loss && !it->failed && cx->loss_def != FG_NO_ID &&
        fg_json_report(cx->json, it->json->loc, FG_D_BAD_LOSS,
                       "a cross_entropy that is not the loss"))
        fg_diag_note(cx->json->diags, FG_NOWHERE,
                     "its mean over the labels of all ranks is only known for the loss itself");
    bool custom = it->known && it->op == FG_OP_custom;
    const FgAttr *attrs = it->known && !custom ? read_attrs(cx, it) : NULL;
    const uint32_t *values = (attrs || custom) && !it->failed ? operand_values(cx, it) : NULL;
    if (custom)
        attrs = fg_model_custom(cx, it, values);
    if (!values || !attrs)
        return;
    build->loc = it->json->loc;
    build->layer = it->scope->layer;
    build->name = fg_intern(cx->module->intern, node_name(cx, it));
    uint32_t errors = fg_diags_errors(cx->json->diags);
    uint32_t first = make_node(cx, build, it, values, attrs, loss);
    if (first == FG_NO_ID) {
        cx->json->failed = true;
        if (fg_diags_errors(cx->json->diags) > errors)
            note_operands(cx, it, values);
        return;
    }
    if (!check_results(cx, it, first))
        return;
    name_results(cx, it, first);
    const FgNode *node = fg_node(cx->module, fg_value(cx->module, first)->def);
    it->values = FG_NEW_ARRAY(cx->arena, uint32_t, node->n_results);
    memcpy(it->values, node->results, node->n_results * sizeof *it->values);
}

static void set_loss(ModelCx *cx)
{
    if (cx->loss_def == FG_NO_ID)
        return;
    uint32_t value = value_of(cx, cx->loss_def);
    if (value == FG_NO_ID)
        return;
    const FgType *type = fg_value(cx->module, value)->type;
    if (type->rank == 0 && fg_dtype_is_float(type->dtype)) {
        cx->module->loss = value;
        return;
    }
    const Def *def = &cx->defs.data[cx->loss_def];
    if (fg_json_report(cx->json, def->loc, FG_D_BAD_LOSS, "the loss '%s' is no scalar", def->name))
        fg_diag_note(cx->json->diags, FG_NOWHERE, "make one with 'mean', 'sum' or 'cross_entropy'");
}

void fg_model_build(ModelCx *cx)
{
    FgFunc *step = fg_add_func(cx->module, "step");
    FgBuilder build = {.module = cx->module,
                       .order = &step->order,
                       .phase = FG_PHASE_FORWARD,
                       .layer = -1,
                       .origin = FG_NO_ID};
    for (uint32_t i = 0; i < cx->order.len; i++)
        build_instance(cx, &build, cx->order.data[i]);
    set_loss(cx);
}
