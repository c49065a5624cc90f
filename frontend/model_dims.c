/* Dims: numbers, or exact expressions of other dims in any order; and the sizes that are computed
 * from them. */
#include "frontend/model_internal.h"

#include "base/checked.h"
#include "frontend/expr.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define CHAIN_LIMIT                                                                                \
    50 /* dims that refer to dims that refer ...: bounds the recursion, with the next */
#define BYTES_LIMIT ((uint64_t)1 << 62)

typedef struct Lookup {
    ModelCx *cx;
    const Scope *scope;  /* indices that the expression may name; NULL in "dims" */
    const FgJson *value; /* the string */
    int depth;
} Lookup;

static bool evaluate(Lookup *lookup, int64_t *out);

/* A byte of a string in the file; its start where escapes hide the columns. */
static FgLoc inside(const FgJson *string, size_t at)
{
    FgLoc loc = string->loc;
    if (!string->escaped)
        loc.col += (uint32_t)at + 1;
    return loc;
}

static bool dim_value(ModelCx *cx, Dim *dim, FgLoc loc, int depth, int64_t *out)
{
    if (dim->state == DIM_BUSY) {
        if (fg_json_report(cx->json, loc, FG_D_DIM_CYCLE, "the dim '%s' is defined by itself",
                           dim->name))
            fg_diag_note(cx->json->diags, dim->json->key_loc, "'%s' is defined here", dim->name);
    } else if (dim->state == DIM_NEW && depth > CHAIN_LIMIT) {
        fg_json_report(cx->json, loc, FG_D_BAD_EXPRESSION,
                       "more than %d dims are defined by each other here", CHAIN_LIMIT);
    } else if (dim->state == DIM_NEW) {
        Lookup inner = {cx, NULL, dim->json, depth};
        dim->state = DIM_BUSY;
        bool ok = dim->json->kind == FG_JSON_INT ? (dim->value = dim->json->i, true)
                                                 : evaluate(&inner, &dim->value);
        if (ok && dim->value < 1) {
            fg_json_report(cx->json, dim->json->loc, FG_D_BAD_VALUE,
                           "the dim '%s' is %" PRId64 "; dims are 1 or more", dim->name,
                           dim->value);
            ok = false;
        }
        dim->state = ok ? DIM_DONE : DIM_FAILED;
    }
    *out = dim->value;
    return dim->state == DIM_DONE;
}

static bool look_up(void *user, const char *name, size_t at, int64_t *out)
{
    Lookup *lookup = user;
    ModelCx *cx = lookup->cx;
    for (const Scope *scope = lookup->scope; scope && scope->index; scope = scope->outer) {
        if (strcmp(scope->index, name) == 0) {
            *out = scope->iteration;
            return true;
        }
    }
    uint32_t index;
    FgLoc loc = inside(lookup->value, at);
    if (fg_map_get(&cx->dim_index, name, &index))
        return dim_value(cx, &cx->dims.data[index], loc, lookup->depth + 1, out);
    if (fg_json_report(cx->json, loc, FG_D_UNKNOWN_DIM, "there is no dim '%s'", name)) {
        FgStrVec names = {0};
        for (uint32_t i = 0; i < cx->dims.len; i++)
            fg_vec_push(cx->arena, &names, cx->dims.data[i].name);
        fg_json_suggest(cx->json, name, names.data, names.len);
    }
    return false;
}

static bool evaluate(Lookup *lookup, int64_t *out)
{
    FgExprError error;
    if (fg_expr_eval(lookup->cx->arena, lookup->value->text, look_up, lookup, out, &error))
        return true;
    if (error.text)
        fg_json_report(lookup->cx->json, inside(lookup->value, error.at), error.id, "%s",
                       error.text);
    lookup->cx->json->failed = true;
    return false;
}

bool fg_model_int(ModelCx *cx, const Scope *scope, const FgJson *value, const char *what,
                  int64_t *out)
{
    if (!fg_json_is(cx->json, value, FG_JSON_IS_INT | FG_JSON_IS_STRING, what))
        return false;
    *out = value->i;
    Lookup lookup = {cx, scope, value, 0};
    return value->kind == FG_JSON_INT || evaluate(&lookup, out);
}

/* ---- the table ---- */
static bool dim_name_ok(const char *name)
{
    if (!isalpha((unsigned char)*name) && *name != '_')
        return false;
    while (isalnum((unsigned char)*name) || *name == '_')
        name++;
    return *name == '\0';
}

static void override(ModelCx *cx, FgLoc loc, const char *option, const char *name, int64_t value)
{
    uint32_t index;
    if (!fg_map_get(&cx->dim_index, name, &index)) {
        cx->json->failed = true;
        fg_diag(cx->json->diags, loc, FG_D_UNKNOWN_DIM, "%s: the model has no dim '%s'", option,
                name);
        FgStrVec names = {0};
        for (uint32_t i = 0; i < cx->dims.len; i++)
            fg_vec_push(cx->arena, &names, cx->dims.data[i].name);
        fg_json_suggest(cx->json, name, names.data, names.len);
        return;
    }
    Dim *dim = &cx->dims.data[index];
    dim->value = value;
    dim->state = DIM_DONE;
    if (value < 1) {
        cx->json->failed = true;
        fg_diag(cx->json->diags, dim->json->key_loc, FG_D_BAD_VALUE,
                "%s: the dim '%s' is %" PRId64 "; dims are 1 or more", option, name, value);
        dim->state = DIM_FAILED;
    }
}

static void overrides(ModelCx *cx, FgLoc loc)
{
    const FgModelOptions *options = cx->options;
    if (options->batch)
        override(cx, loc, "--batch", "batch", options->batch);
    if (options->seq)
        override(cx, loc, "--seq", "seq", options->seq);
    for (uint32_t i = 0; i < options->dims.len; i++)
        override(cx, loc, "--dim", options->dims.data[i].name, options->dims.data[i].value);
}

void fg_model_dims(ModelCx *cx, const FgJson *root)
{
    const FgJson *dims = fg_json_want(cx->json, root, "dims", FG_JSON_IS_OBJECT);
    for (uint32_t i = 0; dims && i < dims->n_items; i++) {
        const FgJson *item = &dims->items[i];
        if (!dim_name_ok(item->key)) {
            fg_json_report(cx->json, item->key_loc, FG_D_BAD_VALUE,
                           "'%s' is no name for a dim: letters, digits and '_' make one",
                           item->key);
            continue;
        }
        Dim dim = {.name = item->key, .json = item, .state = DIM_NEW};
        if (!fg_json_is(cx->json, item, FG_JSON_IS_INT | FG_JSON_IS_STRING, "a dim"))
            dim.state = DIM_FAILED;
        fg_map_add(&cx->dim_index, dim.name, cx->dims.len);
        fg_vec_push(cx->arena, &cx->dims, dim);
    }
    overrides(cx, dims ? dims->loc : root->loc);
    for (uint32_t i = 0; i < cx->dims.len; i++) {
        Dim *dim = &cx->dims.data[i];
        int64_t ignored;
        dim_value(cx, dim, dim->json->loc, 0, &ignored);
    }
}

/* ---- sizes ---- */
static bool count_elements(const FgType *type, uint64_t *out)
{
    *out = 1;
    for (uint32_t i = 0; i < type->rank; i++) {
        if (__builtin_mul_overflow(*out, (uint64_t)type->dims[i], out) || *out >= BYTES_LIMIT)
            return false;
    }
    return true;
}

bool fg_model_count_bytes(ModelCx *cx, FgLoc loc, const FgType *type)
{
    uint64_t bytes;
    if (count_elements(type, &bytes) &&
        !__builtin_mul_overflow(bytes, (uint64_t)fg_dtype_bytes(type->dtype), &bytes) &&
        bytes < BYTES_LIMIT && cx->bytes + bytes < BYTES_LIMIT) {
        cx->bytes += bytes;
        return true;
    }
    fg_json_report(cx->json, loc, FG_D_OVERFLOW,
                   "the sizes of this model overflow here (2^62 bytes)");
    return false;
}

const FgType *fg_model_type(ModelCx *cx, const Scope *scope, const FgJson *shape, FgDtype dtype)
{
    int64_t *dims = FG_NEW_ARRAY(cx->arena, int64_t, shape->n_items);
    bool ok = true;
    for (uint32_t i = 0; i < shape->n_items; i++) {
        const FgJson *item = &shape->items[i];
        if (!fg_model_int(cx, scope, item, "a size", &dims[i])) {
            ok = false;
        } else if (dims[i] < 1) {
            fg_json_report(cx->json, item->loc, FG_D_BAD_VALUE,
                           "this size is %" PRId64 "; sizes are 1 or more", dims[i]);
            ok = false;
        }
    }
    FgType type = {dtype, shape->n_items, dims};
    if (!ok || !fg_model_count_bytes(cx, shape->loc, &type))
        return NULL;
    return fg_type(cx->module, dtype, shape->n_items, dims);
}
