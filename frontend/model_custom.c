/* Custom nodes: a function of the user's with the shapes of what it makes, its cost, and its
 * gradient (docs/custom-kernels.md). What is read here becomes the attributes of the op `custom`.
 */
#include "frontend/model_custom.h"

#include <inttypes.h>
#include <string.h>

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))

static const char *const node_keys[] = {"op",     "in",    "out",      "name",
                                        "source", "cuda",  "function", "shapes",
                                        "dtypes", "flops", "bytes",    "gradient"};
static const char *const gradient_keys[] = {"function", "takes", "returns", "flops", "bytes"};

void fg_model_custom_form(ModelCx *cx, const FgJson *node)
{
    fg_json_check_keys(cx->json, node, "a 'custom' node", node_keys, N(node_keys));
    const FgJson *gradient = fg_json_want(cx->json, node, "gradient", FG_JSON_IS_OBJECT);
    if (gradient)
        fg_json_check_keys(cx->json, gradient, "a gradient", gradient_keys, N(gradient_keys));
}

/* One shape a result, one input or more. */
bool fg_model_custom_arity(ModelCx *cx, const Instance *it)
{
    const FgJson *shapes = fg_json_need(cx->json, it->json, "shapes", FG_JSON_IS_LIST);
    const FgJson *dtypes = fg_json_want(cx->json, it->json, "dtypes", FG_JSON_IS_LIST);
    if (!shapes)
        return false;
    if (it->n_in < 1) {
        fg_json_report(cx->json, it->json->loc, FG_D_ARITY,
                       "a custom function takes one input or more");
        return false;
    }
    if (it->n_out < 1 || it->n_out != shapes->n_items) {
        fg_json_report(cx->json, shapes->loc, FG_D_ARITY,
                       "'shapes' has %u shapes, 'out' names %u results; each result has one",
                       shapes->n_items, it->n_out);
        return false;
    }
    if (dtypes && dtypes->n_items != it->n_out) {
        fg_json_report(cx->json, dtypes->loc, FG_D_ARITY,
                       "'dtypes' has %u entries, 'out' names %u results; each result has one",
                       dtypes->n_items, it->n_out);
        return false;
    }
    return true;
}

/* ---- attributes ---- */

typedef struct Custom {
    ModelCx *cx;
    const Instance *it;
    const uint32_t *values; /* of the inputs; NULL: not known */
    FgAttr *attrs;          /* by row */
    const FgType **results;
    const CustomSource *host, *cuda;
} Custom;

static FgAttr *attr_of(const Custom *custom, const char *name)
{
    const FgOpInfo *info = fg_op_info(FG_OP_custom);
    uint32_t i = 0;
    while (i < info->n_attrs && strcmp(info->attrs[i].name, name) != 0)
        i++;
    FG_ASSERT(i < info->n_attrs);
    custom->attrs[i].set = true;
    return &custom->attrs[i];
}

static void set_text(const Custom *custom, const char *name, const char *text)
{
    attr_of(custom, name)->word = fg_intern(custom->cx->module->intern, text);
}

static bool read_sources(Custom *custom)
{
    ModelCx *cx = custom->cx;
    const FgJson *node = custom->it->json;
    const FgJson *host = fg_json_need(cx->json, node, "source", FG_JSON_IS_STRING);
    const FgJson *cuda = fg_json_want(cx->json, node, "cuda", FG_JSON_IS_STRING);
    custom->host = host ? fg_model_source(cx, host, false) : NULL;
    custom->cuda = cuda ? fg_model_source(cx, cuda, true) : NULL;
    if (!custom->host || (cuda && !custom->cuda))
        return false;
    set_text(custom, "source", custom->host->name);
    attr_of(custom, "digest")->i = custom->host->digest;
    if (cuda) {
        set_text(custom, "cuda", custom->cuda->name);
        attr_of(custom, "cuda_digest")->i = custom->cuda->digest;
    }
    return true;
}

static bool dtype_word(ModelCx *cx, const FgJson *value, FgDtype *out)
{
    static const char *const words[] = {"fp32", "bf16", "fp16", "f64", "i32", "i64"};
    if (!fg_json_is(cx->json, value, FG_JSON_IS_STRING, "a dtype"))
        return false;
    if (fg_dtype_parse(value->text, out))
        return true;
    if (fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE, "'%s' is no dtype", value->text))
        fg_json_suggest(cx->json, value->text, words, N(words));
    return false;
}

static bool read_results(Custom *custom)
{
    ModelCx *cx = custom->cx;
    const Instance *it = custom->it;
    const FgJson *shapes = fg_json_get(it->json, "shapes"),
                 *given = fg_json_get(it->json, "dtypes");
    FG_VEC(int64_t) list = {0};
    FgBuf words;
    bool ok = true;
    fg_buf_init(&words, cx->arena);
    custom->results = FG_NEW_ARRAY(cx->arena, const FgType *, it->n_out);
    for (uint32_t i = 0; i < it->n_out; i++) {
        const FgJson *shape = &shapes->items[i];
        FgDtype dtype = cx->module->numerics.compute;
        bool one = !given || dtype_word(cx, &given->items[i], &dtype);
        one = fg_json_is(cx->json, shape, FG_JSON_IS_LIST, "a shape") && one;
        custom->results[i] = one ? fg_model_type(cx, it->scope, shape, dtype) : NULL;
        ok = ok && custom->results[i];
        if (!ok)
            continue;
        fg_buf_printf(&words, "%s%s", i ? " " : "", fg_dtype_name(dtype));
        fg_vec_push(cx->arena, &list, (int64_t)shape->n_items);
        for (uint32_t d = 0; d < shape->n_items; d++)
            fg_vec_push(cx->arena, &list, custom->results[i]->dims[d]);
    }
    set_text(custom, "dtypes", fg_buf_text(&words));
    *attr_of(custom, "shapes") = (FgAttr){.set = true, .ints = list.data, .n_ints = list.len};
    return ok;
}

/* A count of operations or bytes; `element_bytes` is the compute dtype's size in its expression. */
static bool read_figure(const Custom *custom, const FgJson *object, const char *key,
                        const char *attr)
{
    ModelCx *cx = custom->cx;
    const FgJson *value = fg_json_get(object, key);
    Scope scope = {.outer = custom->it->scope,
                   .index = "element_bytes",
                   .iteration = fg_dtype_bytes(cx->module->numerics.compute)};
    int64_t figure = 0;
    if (!value)
        return true;
    if (!fg_model_int(cx, &scope, value, fg_arena_printf(cx->arena, "'%s'", key), &figure))
        return false;
    if (figure < 1) {
        fg_json_report(cx->json, value->loc, FG_D_BAD_VALUE,
                       "'%s' is %" PRId64 "; a cost is 1 or more, or left out", key, figure);
        return false;
    }
    attr_of(custom, attr)->f = (double)figure;
    return true;
}

/* The function's name, {dtype} replaced; NULL after a report. */
static const char *function_name(const Custom *custom, const FgJson *value)
{
    static const char mark[] = "{dtype}";
    FgBuf out;
    fg_buf_init(&out, custom->cx->arena);
    const char *rest = value->text;
    for (const char *at; (at = strstr(rest, mark)); rest = at + sizeof mark - 1) {
        fg_buf_put(&out, rest, (size_t)(at - rest));
        fg_buf_puts(&out, fg_dtype_name(custom->cx->module->numerics.compute));
    }
    fg_buf_puts(&out, rest);
    return fg_buf_text(&out);
}

/* ---- what a function takes ---- */

static void add_input(const Custom *custom, uint32_t i, CustomParams *out)
{
    const FgType *type = fg_value(custom->cx->module, custom->values[i])->type;
    fg_vec_push(custom->cx->arena, out,
                ((CustomParam){type->dtype, false, custom->it->in[i].text}));
}

static void add_result(const Custom *custom, uint32_t i, bool result, CustomParams *out)
{
    fg_vec_push(custom->cx->arena, out,
                ((CustomParam){custom->results[i]->dtype, result, custom->it->out[i].text}));
}

static bool check_forward(const Custom *custom)
{
    CustomParams params = {0};
    const Instance *it = custom->it;
    const FgJson *value = fg_json_need(custom->cx->json, it->json, "function", FG_JSON_IS_STRING);
    if (!value)
        return false;
    const char *function = function_name(custom, value);
    set_text(custom, "function", function);
    for (uint32_t i = 0; custom->values && i < it->n_in; i++)
        add_input(custom, i, &params);
    for (uint32_t i = 0; custom->values && i < it->n_out; i++)
        add_result(custom, i, true, &params);
    return !custom->values ||
           fg_model_signature(custom->cx, value, function, custom->host, custom->cuda, &params);
}

/* ---- the gradient ---- */

/* What a gradient function can take: inputs, results, gradients of results. */
static FgStrVec takeable(const Custom *custom)
{
    FgArena *arena = custom->cx->arena;
    const Instance *it = custom->it;
    FgStrVec names = {0};
    for (uint32_t i = 0; i < it->n_in; i++)
        fg_vec_push(arena, &names, it->in[i].text);
    for (uint32_t i = 0; i < it->n_out; i++)
        fg_vec_push(arena, &names, it->out[i].text);
    for (uint32_t i = 0; i < it->n_out; i++)
        fg_vec_push(arena, &names, fg_arena_printf(arena, "d(%s)", it->out[i].text));
    return names;
}

static bool is_float_result(const Custom *custom, uint32_t i)
{
    return fg_dtype_is_float(custom->results[i]->dtype);
}

static bool is_float_input(const Custom *custom, uint32_t i)
{
    return fg_dtype_is_float(fg_value(custom->cx->module, custom->values[i])->type->dtype);
}

/* Index of a name among the first `n`, past those that `list` has already; UINT32_MAX: none. */
static uint32_t index_of(const FgStrVec *names, uint32_t n, const char *name, const FgAttr *list,
                         bool once)
{
    for (uint32_t i = 0; i < n; i++) {
        bool taken = false;
        for (uint32_t k = 0; once && k < list->n_ints; k++)
            taken = taken || list->ints[k] == i;
        if (!taken && strcmp(names->data[i], name) == 0)
            return i;
    }
    return UINT32_MAX;
}

/* A name that no index was left for. Returns false. */
static bool undefined(const Custom *custom, const FgJson *name, const FgStrVec *names, uint32_t n,
                      bool once)
{
    FgJsonCx *json = custom->cx->json;
    FgAttr nothing = {0};
    bool there = index_of(names, n, name->text, &nothing, false) != UINT32_MAX;
    const char *what = there  ? "stands here once more than among the inputs"
                       : once ? "is no input of this node"
                              : "is no input, no result and no gradient of a result (written "
                                "d(result)) of this node";
    if (fg_json_report(json, name->loc, FG_D_UNDEFINED_VALUE, "'%s' %s", name->text, what) &&
        !there)
        fg_json_suggest(json, name->text, names->data, n);
    return false;
}

/* A list of names as indices into `names`; each once where `once`. */
static bool read_names(const Custom *custom, const FgJson *list, const FgStrVec *names, uint32_t n,
                       bool once, FgAttr *out)
{
    ModelCx *cx = custom->cx;
    int64_t *ints = FG_NEW_ARRAY(cx->arena, int64_t, list->n_items);
    *out = (FgAttr){.set = true, .ints = ints};
    for (uint32_t i = 0; i < list->n_items; i++) {
        const FgJson *name = &list->items[i];
        if (!fg_json_is(cx->json, name, FG_JSON_IS_STRING, "a name"))
            return false;
        uint32_t index = index_of(names, n, name->text, out, once);
        if (index == UINT32_MAX)
            return undefined(custom, name, names, n, once);
        ints[out->n_ints++] = index;
    }
    return true;
}

/* Without a list: all inputs, then the gradients of all results; or all inputs of floats. */
static void default_names(const Custom *custom, bool takes, FgAttr *out)
{
    const Instance *it = custom->it;
    int64_t *ints = FG_NEW_ARRAY(custom->cx->arena, int64_t, it->n_in + it->n_out);
    *out = (FgAttr){.set = true, .ints = ints};
    for (uint32_t i = 0; i < it->n_in; i++)
        if (takes || is_float_input(custom, i))
            ints[out->n_ints++] = i;
    for (uint32_t i = 0; takes && i < it->n_out; i++)
        if (is_float_result(custom, i))
            ints[out->n_ints++] = it->n_in + it->n_out + i;
}

static bool read_lists(const Custom *custom, const FgJson *gradient)
{
    ModelCx *cx = custom->cx;
    const Instance *it = custom->it;
    FgStrVec names = takeable(custom);
    const FgJson *takes = fg_json_want(cx->json, gradient, "takes", FG_JSON_IS_LIST);
    const FgJson *returns = fg_json_want(cx->json, gradient, "returns", FG_JSON_IS_LIST);
    FgAttr *to = attr_of(custom, "takes"), *from = attr_of(custom, "returns");
    default_names(custom, true, to);
    default_names(custom, false, from);
    if ((takes && !read_names(custom, takes, &names, names.len, false, to)) ||
        (returns && !read_names(custom, returns, &names, it->n_in, true, from)))
        return false;
    for (uint32_t i = 0; takes && i < to->n_ints; i++)
        if (to->ints[i] >= it->n_in + it->n_out &&
            !is_float_result(custom, (uint32_t)to->ints[i] - it->n_in - it->n_out)) {
            fg_json_report(cx->json, takes->items[i].loc, FG_D_BAD_VALUE,
                           "'%s': integers have no gradient", takes->items[i].text);
            return false;
        }
    for (uint32_t i = 0; returns && i < from->n_ints; i++)
        if (!is_float_input(custom, (uint32_t)from->ints[i])) {
            fg_json_report(cx->json, returns->items[i].loc, FG_D_BAD_VALUE,
                           "'%s': integers have no gradient", returns->items[i].text);
            return false;
        }
    if (from->n_ints == 0)
        fg_json_report(cx->json, gradient->loc, FG_D_BAD_VALUE,
                       "a gradient function returns one gradient or more");
    return from->n_ints > 0;
}

static bool check_gradient(const Custom *custom)
{
    ModelCx *cx = custom->cx;
    const Instance *it = custom->it;
    const FgJson *gradient = fg_json_get(it->json, "gradient");
    if (!gradient)
        return true;
    if (gradient->kind != FG_JSON_OBJECT)
        return false;
    const FgJson *value = fg_json_need(cx->json, gradient, "function", FG_JSON_IS_STRING);
    if (!value || !read_figure(custom, gradient, "flops", "gradient_flops") ||
        !read_figure(custom, gradient, "bytes", "gradient_bytes"))
        return false;
    const char *function = function_name(custom, value);
    set_text(custom, "gradient", function);
    if (!custom->values)
        return true;
    if (!read_lists(custom, gradient))
        return false;
    CustomParams params = {0};
    const FgAttr *takes = attr_of(custom, "takes"), *returns = attr_of(custom, "returns");
    for (uint32_t i = 0; i < takes->n_ints; i++) {
        uint32_t k = (uint32_t)takes->ints[i];
        if (k < it->n_in)
            add_input(custom, k, &params);
        else
            add_result(custom, (k - it->n_in) % it->n_out, false, &params);
    }
    for (uint32_t i = 0; i < returns->n_ints; i++) {
        add_input(custom, (uint32_t)returns->ints[i], &params);
        params.data[params.len - 1].result = true;
    }
    return fg_model_signature(cx, value, function, custom->host, custom->cuda, &params);
}

const FgAttr *fg_model_custom(ModelCx *cx, const Instance *it, const uint32_t *values)
{
    Custom custom = {.cx = cx, .it = it, .values = values};
    custom.attrs = FG_NEW_ARRAY(cx->arena, FgAttr, fg_op_info(FG_OP_custom)->n_attrs);
    if (it->failed) /* told already; the rest would only repeat it */
        return NULL;
    bool ok = read_sources(&custom);
    ok = read_results(&custom) && ok;
    ok = read_figure(&custom, it->json, "flops", "flops") && ok;
    ok = read_figure(&custom, it->json, "bytes", "bytes") && ok;
    if (!ok || !check_forward(&custom) || !check_gradient(&custom))
        return NULL;
    return custom.attrs;
}
