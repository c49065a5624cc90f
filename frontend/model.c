/* The model loader, from a file to a module at graph level; see model_internal.h for its parts. */
#include "frontend/model.h"

#include "base/file.h"
#include "frontend/model_internal.h"

#define FORMAT_VERSION 1

static void check_version(ModelCx *cx, const FgJson *root)
{
    const FgJson *version = fg_json_need(cx->json, root, "foregather", FG_JSON_IS_INT);
    if (version && version->i != FORMAT_VERSION)
        fg_json_report(cx->json, version->loc, FG_D_BAD_VALUE,
                       "this program reads version %d of the format, not %lld", FORMAT_VERSION,
                       (long long)version->i);
}

/* A model that was read without errors and has nothing to train has no training step. Every value
 * leads to the loss, so a parameter that is read is one that the loss depends on. */
static void check_trains(ModelCx *cx, const FgJson *root)
{
    if (cx->json->failed)
        return;
    const FgJson *params = fg_json_get(root, "params");
    FgLoc loc = params ? params->loc : root->loc;
    for (uint32_t i = 0; i < cx->module->params.len; i++) {
        const FgParam *param = &cx->module->params.data[i];
        if (param->trainable && param->value != FG_NO_ID)
            return;
    }
    if (cx->module->params.len)
        fg_json_report(cx->json, loc, FG_D_BAD_VALUE,
                       "the loss depends on no parameter that is trained");
    else if (fg_json_report(cx->json, loc, FG_D_BAD_VALUE, "the model has no parameters"))
        fg_diag_note(cx->json->diags, FG_NOWHERE,
                     "parameters stand in \"params\" of the model or of a repeat");
}

static FgModule *load(ModelCx *cx, FgArena *arena, const FgJson *root)
{
    static const char *const keys[] = {"foregather", "name",  "dims", "inputs",
                                       "params",     "nodes", "loss"};
    if (!fg_json_is(cx->json, root, FG_JSON_IS_OBJECT, "a model"))
        return NULL;
    fg_json_check_keys(cx->json, root, "a model", keys, sizeof keys / sizeof *keys);
    check_version(cx, root);
    const FgJson *name = fg_json_want(cx->json, root, "name", FG_JSON_IS_STRING);
    bool named = name && fg_model_check_name(cx, name->loc, name->text);
    cx->module = fg_module_new(arena, cx->json->diags, named ? name->text : "model");
    cx->module->numerics = cx->options->numerics;
    cx->module->loss = FG_NO_ID;
    fg_model_dims(cx, root);
    fg_model_inputs(cx, root);
    fg_model_params(cx, cx->root, fg_json_want(cx->json, root, "params", FG_JSON_IS_OBJECT));
    const FgJson *nodes = fg_json_need(cx->json, root, "nodes", FG_JSON_IS_LIST);
    if (nodes)
        fg_model_nodes(cx, cx->root, nodes);
    fg_model_order(cx, root);
    fg_model_build(cx);
    check_trains(cx, root);
    if (cx->json->failed)
        return NULL;
    fg_model_unused_names(cx);
    return cx->module;
}

FgModule *fg_model_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                         size_t len, const FgModelOptions *options)
{
    /* The tree, scopes and instances die with the load; texts that the module keeps are interned in
     * it. */
    FgArena *scratch = fg_arena_new();
    FgJsonCx json;
    fg_json_init(&json, scratch, diags);
    const FgJson *root = fg_json_parse(&json, name, text, len);
    FgModule *module = NULL;
    if (root) {
        ModelCx cx = {.arena = scratch, .path = name, .json = &json, .options = options};
        fg_map_init(&cx.dim_index, scratch);
        fg_map_init(&cx.param_names, scratch);
        fg_map_init(&cx.source_index, scratch);
        fg_map_init(&cx.function_owner, scratch);
        fg_map_init(&cx.signature_answers, scratch);
        cx.read = FG_NEW_ARRAY(scratch, bool, json.n_values);
        cx.on_cycle = FG_NEW_ARRAY(scratch, bool, json.n_values);
        cx.root = FG_NEW(scratch, Scope);
        *cx.root = (Scope){.prefix = "", .layer = -1};
        fg_map_init(&cx.root->names, scratch);
        module = load(&cx, arena, root);
    }
    fg_arena_free(scratch);
    return module;
}

FgModule *fg_model_load(FgArena *arena, FgDiags *diags, const char *path,
                        const FgModelOptions *options)
{
    char *text;
    size_t len;
    const char *error;
    if (fg_file_read(arena, path, &text, &len, &error))
        return fg_model_parse(arena, diags, path, text, len, options);
    fg_diag(diags, FG_NOWHERE, FG_D_IO, "%s", error);
    return NULL;
}
