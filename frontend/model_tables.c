/* Inputs and parameters: their rows in the module, and the names that stand for them. */
#include "frontend/model_internal.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))

/* One of several words; the index, or -1 after a report. */
static int choice(ModelCx *cx, const FgJson *value, const char *const *words, uint32_t n)
{
    FgBuf all;
    fg_buf_init(&all, cx->arena);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(value->text, words[i]) == 0)
            return (int)i;
        fg_buf_printf(&all, "%s'%s'", i == 0 ? "" : i + 1 == n ? " or " : ", ", words[i]);
    }
    if (fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' must be %s, not '%s'",
                       value->key, fg_buf_text(&all), value->text))
        fg_json_suggest(cx->json, value->text, words, n);
    return -1;
}

/* An optional member "dtype" that must be one of `allowed` (a set of 1 << FgDtype). */
static FgDtype dtype_of(ModelCx *cx, const FgJson *object, FgDtype fallback, unsigned allowed)
{
    const FgJson *value = fg_json_want(cx->json, object, "dtype", FG_JSON_IS_STRING);
    FgDtype dtype = fallback;
    if (!value)
        return dtype;
    if (!fg_dtype_parse(value->text, &dtype) || !(allowed >> dtype & 1)) {
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' is no dtype for this",
                       value->text);
        return fallback;
    }
    return dtype;
}

/* ---- inputs ---- */
static void add_input(ModelCx *cx, const FgJson *item)
{
    static const char *const keys[] = {"role", "shape", "dtype"};
    static const char *const roles[] = {"tokens", "labels", "other"};
    Def def = {.kind = DEF_FAILED, .name = item->key, .loc = item->key_loc};
    const FgType *type = NULL;
    int role = -1;
    if (fg_model_check_name(cx, item->key_loc, item->key) &&
        fg_json_is(cx->json, item, FG_JSON_IS_OBJECT, "an input")) {
        fg_json_check_keys(cx->json, item, "an input", keys, N(keys));
        const FgJson *word = fg_json_need(cx->json, item, "role", FG_JSON_IS_STRING);
        role = word ? choice(cx, word, roles, N(roles)) : -1;
        const FgJson *shape = fg_json_need(cx->json, item, "shape", FG_JSON_IS_LIST);
        FgDtype dtype = dtype_of(cx, item, role == 2 ? cx->module->numerics.compute : FG_I32,
                                 role == 2 ? ~0u : 1u << FG_I32);
        type = shape ? fg_model_type(cx, cx->root, shape, dtype) : NULL;
    }
    if (type && role >= 0) {
        FgInput input = {.name = item->key,
                         .type = type,
                         .role = (FgInputRole)role,
                         .value = FG_NO_ID,
                         .loc = item->key_loc};
        def.kind = DEF_INPUT;
        def.index = fg_add_input(cx->module, &input);
    }
    fg_model_define(cx, cx->root, def);
}

/* Rows of a micro-step, which the trained program deals to the ranks; 0 without a dimension. */
static int64_t rows_of(const FgInput *input)
{
    return input->type->rank ? input->type->dims[0] : 0;
}

/* The input that says how many rows a micro-step has: the tokens or labels, else one that begins
 * with the dim `batch`, else the first. */
static const FgInput *row_input(const ModelCx *cx)
{
    const FgModule *m = cx->module;
    uint32_t index;
    bool named =
        fg_map_get(&cx->dim_index, "batch", &index) && cx->dims.data[index].state == DIM_DONE;
    for (uint32_t i = 0; i < m->inputs.len; i++)
        if (m->inputs.data[i].role != FG_INPUT_OTHER)
            return &m->inputs.data[i];
    for (uint32_t i = 0; named && i < m->inputs.len; i++)
        if (rows_of(&m->inputs.data[i]) == cx->dims.data[index].value)
            return &m->inputs.data[i];
    return m->inputs.len ? &m->inputs.data[0] : NULL;
}

static void check_rows(ModelCx *cx)
{
    const FgInput *first = row_input(cx);
    for (uint32_t i = 0; i < cx->module->inputs.len; i++) {
        const FgInput *input = &cx->module->inputs.data[i];
        if (rows_of(input) == rows_of(first) ||
            !fg_json_report(cx->json, input->loc, FG_D_BAD_VALUE,
                            "input '%s' does not begin with the %" PRId64
                            " rows of a micro-step, as '%s' does",
                            input->name, rows_of(first), first->name))
            continue;
        fg_diag_note(cx->json->diags, first->loc, "'%s' is here", first->name);
        fg_diag_note(cx->json->diags, FG_NOWHERE,
                     "rows are dealt to the ranks; what is the same for all of them is a "
                     "parameter with \"trainable\": false");
    }
}

void fg_model_inputs(ModelCx *cx, const FgJson *root)
{
    const FgJson *inputs = fg_json_need(cx->json, root, "inputs", FG_JSON_IS_OBJECT);
    for (uint32_t i = 0; inputs && i < inputs->n_items; i++)
        add_input(cx, &inputs->items[i]);
    /* The trained program has one token file: a second input of a role would read the same. */
    for (uint32_t i = 0; i < cx->module->inputs.len; i++) {
        const FgInput *input = &cx->module->inputs.data[i];
        for (uint32_t k = 0; k < i && input->role != FG_INPUT_OTHER; k++) {
            if (cx->module->inputs.data[k].role == input->role &&
                fg_json_report(cx->json, input->loc, FG_D_BAD_VALUE,
                               "a second input has the role of '%s'",
                               cx->module->inputs.data[k].name))
                fg_diag_note(cx->json->diags, cx->module->inputs.data[k].loc, "the first is here");
        }
    }
    check_rows(cx);
}

/* ---- parameters ---- */
static void read_init(ModelCx *cx, const FgJson *item, FgParam *param)
{
    static const char *const keys[] = {"normal", "uniform", "constant"};
    static const FgInit kinds[] = {FG_INIT_NORMAL, FG_INIT_UNIFORM, FG_INIT_CONSTANT};
    param->init = FG_INIT_NORMAL;
    param->init_scale = 0.02;
    const FgJson *init = fg_json_want(cx->json, item, "init", FG_JSON_IS_OBJECT);
    if (!init)
        return;
    fg_json_check_keys(cx->json, init, "an initialiser", keys, N(keys));
    uint32_t given = 0;
    for (uint32_t i = 0; i < N(keys); i++) {
        const FgJson *scale = fg_json_want(cx->json, init, keys[i], FG_JSON_IS_NUMBER);
        if (!scale)
            continue;
        given++;
        param->init = kinds[i];
        param->init_scale = scale->f;
        if (kinds[i] != FG_INIT_CONSTANT && scale->f < 0)
            fg_json_report(cx->json, scale->loc, FG_D_BAD_VALUE, "'%s' must not be negative",
                           keys[i]);
    }
    if (given != 1)
        fg_json_report(cx->json, init->loc, FG_D_BAD_VALUE,
                       "an initialiser is one of \"normal\", \"uniform\" and \"constant\"");
}

static void read_decay(ModelCx *cx, const FgJson *item, FgParam *param)
{
    const FgJson *trainable = fg_json_want(cx->json, item, "trainable", FG_JSON_IS_BOOL);
    const FgJson *decay = fg_json_want(cx->json, item, "decay", FG_JSON_IS_BOOL);
    param->trainable = !trainable || trainable->i;
    param->decay = cx->options->decay == FG_DECAY_ALL ||
                   (cx->options->decay == FG_DECAY_MATRICES && param->type->rank >= 2);
    if (decay)
        param->decay = decay->i != 0;
    param->decay = param->decay && param->trainable;
}

/* Other names of the tensor in weight files, and in this one. */
static void read_tied(ModelCx *cx, const Scope *scope, const FgJson *item, FgParam *param, Def def)
{
    const FgJson *tied = fg_json_want(cx->json, item, "tied", FG_JSON_IS_LIST);
    if (!tied)
        return;
    const char **names = FG_NEW_ARRAY(cx->arena, const char *, tied->n_items);
    for (uint32_t i = 0; i < tied->n_items; i++) {
        const FgJson *text = &tied->items[i];
        if (!fg_json_is(cx->json, text, FG_JSON_IS_STRING, "a tied name"))
            continue;
        const char *name = fg_model_name(cx, scope, text);
        if (!name)
            continue;
        names[param->n_tied++] = name;
        def.name = name;
        def.loc = text->loc;
        fg_model_define_param(cx, scope, def);
    }
    param->tied = names;
}

static void add_param(ModelCx *cx, Scope *scope, const FgJson *item)
{
    static const char *const keys[] = {"shape", "init", "tied", "trainable", "decay", "dtype"};
    const char *name = fg_model_substitute(cx, scope, item->key_loc, item->key);
    if (!name || !fg_model_check_name(cx, item->key_loc, name))
        return;
    Def def = {.kind = DEF_FAILED, .name = name, .loc = item->key_loc};
    FgParam param = {.loc = item->key_loc, .value = FG_NO_ID, .bucket = FG_NO_ID};
    param.name = fg_arena_printf(cx->arena, "%s%s", scope->prefix, name);
    if (fg_json_is(cx->json, item, FG_JSON_IS_OBJECT, "a parameter")) {
        fg_json_check_keys(cx->json, item, "a parameter", keys, N(keys));
        const FgJson *shape = fg_json_need(cx->json, item, "shape", FG_JSON_IS_LIST);
        FgDtype dtype = dtype_of(cx, item, cx->module->numerics.compute,
                                 1u << FG_F32 | 1u << FG_BF16 | 1u << FG_F16);
        if (shape && shape->n_items == 0)
            fg_json_report(cx->json, shape->loc, FG_D_BAD_VALUE,
                           "a parameter has one dimension or more");
        else if (shape)
            param.type = fg_model_type(cx, scope, shape, dtype);
    }
    if (param.type) {
        def.kind = DEF_PARAM;
        def.index = cx->module->params.len;
        read_init(cx, item, &param);
        read_decay(cx, item, &param);
    }
    /* The names of a parameter that failed are known too, so that their readers are not told again.
     */
    if (item->kind == FG_JSON_OBJECT)
        read_tied(cx, scope, item, &param, def);
    if (param.type)
        fg_add_param(cx->module, &param);
    if (scope->outer)
        fg_model_define(cx, scope, def);
    def.name = param.name;
    fg_model_define_param(cx, scope, def);
}

void fg_model_params(ModelCx *cx, Scope *scope, const FgJson *params)
{
    for (uint32_t i = 0; params && i < params->n_items; i++) {
        if (!fg_model_expand(cx, params->items[i].key_loc))
            return;
        add_param(cx, scope, &params->items[i]);
    }
}

/* ---- what nothing reads ---- */
void fg_model_unused_names(ModelCx *cx)
{
    for (uint32_t i = 0; i < cx->module->params.len; i++) {
        const FgParam *param = &cx->module->params.data[i];
        if (param->value == FG_NO_ID)
            fg_diag(cx->json->diags, param->loc, FG_D_UNUSED_NAME,
                    "nothing reads the parameter '%s': it stays as it is", param->name);
    }
    for (uint32_t i = 0; i < cx->defs.len; i++) {
        const Def *def = &cx->defs.data[i];
        if (def->kind == DEF_INPUT && !def->read)
            fg_diag(cx->json->diags, def->loc, FG_D_UNUSED_NAME, "nothing reads the input '%s'",
                    def->name);
    }
}
