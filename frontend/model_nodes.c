/* The node list: checks each node's form and unrolls repeats into instances. Names are only written
 * down here; they are looked up when all are known. */
#include "frontend/model_internal.h"

#include <inttypes.h>
#include <string.h>

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))
#define EXPAND_LIMIT 1000000u /* a guard against a mistyped count, far beyond any model */

static bool report_expansion(ModelCx *cx, FgLoc loc)
{
    fg_json_report(cx->json, loc, FG_D_OVERFLOW,
                   "the repeats of this model unroll to more than %u nodes", EXPAND_LIMIT);
    return false;
}

bool fg_model_expand(ModelCx *cx, FgLoc loc)
{
    return cx->expanded++ < EXPAND_LIMIT || report_expansion(cx, loc);
}

/* ---- one node ---- */
static bool parse_op(ModelCx *cx, const FgJson *word, FgOp *out)
{
    if (fg_op_parse(word->text, out) && fg_model_op_allowed(*out))
        return true;
    if (fg_json_report(cx->json, word->loc, FG_D_UNKNOWN_OP, "unknown op '%s'", word->text)) {
        FgStrVec names = {0};
        for (int op = 0; op < FG_N_OPS; op++) {
            if (fg_model_op_allowed((FgOp)op))
                fg_vec_push(cx->arena, &names, fg_op_info((FgOp)op)->name);
        }
        fg_json_suggest(cx->json, word->text, names.data, names.len);
    }
    return false;
}

/* A string, or a list of strings: the items and their number. False after a report. */
static bool string_list(ModelCx *cx, const FgJson *value, const FgJson **out, uint32_t *out_n)
{
    *out = NULL;
    *out_n = 0;
    if (!value)
        return true;
    const char *what = fg_arena_printf(cx->arena, "'%s'", value->key);
    if (!fg_json_is(cx->json, value, FG_JSON_IS_STRING | FG_JSON_IS_LIST, what))
        return false;
    *out = value->kind == FG_JSON_LIST ? value->items : value;
    *out_n = value->kind == FG_JSON_LIST ? value->n_items : 1;
    bool ok = true;
    for (uint32_t i = 0; i < *out_n; i++)
        ok = fg_json_is(cx->json, &(*out)[i], FG_JSON_IS_STRING, "a name") && ok;
    return ok;
}

static void check_node_keys(ModelCx *cx, const FgJson *node, const FgOpInfo *info)
{
    if (info == fg_op_info(FG_OP_custom)) {
        fg_model_custom_form(cx, node);
        return;
    }
    FgStrVec keys = {0};
    static const char *const common[] = {"op", "in", "out", "name"};
    for (uint32_t i = 0; i < N(common); i++)
        fg_vec_push(cx->arena, &keys, common[i]);
    for (uint32_t i = 0; i < info->n_attrs; i++)
        fg_vec_push(cx->arena, &keys, info->attrs[i].name);
    const char *what = fg_arena_printf(cx->arena, "a '%s' node", info->name);
    fg_json_check_keys(cx->json, node, what, keys.data, keys.len);
}

/* The numbers of inputs and outputs. `concat` takes a chain, `cross_entropy` gets its seed from the
 * loader. */
static bool check_arity(ModelCx *cx, const Instance *it)
{
    const FgOpInfo *info = fg_op_info(it->op);
    uint32_t min, max, results;
    if (it->op == FG_OP_custom)
        return fg_model_custom_arity(cx, it);
    fg_op_arity(it->op, &min, &max, &results);
    if (it->op == FG_OP_concat)
        max = UINT32_MAX;
    if (it->op == FG_OP_cross_entropy)
        max = 2;
    if (it->n_in < min || it->n_in > max) {
        const FgJson *in = fg_json_get(it->json, "in");
        FgLoc loc = in ? in->loc : it->json->loc;
        const char *few = it->n_in < min ? "at least" : "at most";
        uint32_t limit = it->n_in < min ? min : max;
        if (fg_json_report(cx->json, loc, FG_D_ARITY, "'%s' takes %s %u input%s, not %u",
                           info->name, min == max ? "exactly" : few, limit, limit == 1 ? "" : "s",
                           it->n_in))
            fg_diag_note(cx->json->diags, FG_NOWHERE, "%s: %s", info->name, info->doc);
        return false;
    }
    if (it->n_out < 1 || it->n_out > results) {
        fg_json_report(cx->json, it->json->loc, FG_D_ARITY, "'%s' makes %u value%s; 'out' names %u",
                       info->name, results, results == 1 ? "" : "s", it->n_out);
        return false;
    }
    return true;
}

static void define_outputs(ModelCx *cx, Scope *scope, const Instance *it, uint32_t index)
{
    for (uint32_t i = 0; i < it->n_out; i++) {
        if (it->out[i].kind != FG_JSON_STRING)
            continue;
        const char *name = fg_model_name(cx, scope, &it->out[i]);
        if (!name)
            continue;
        Def def = {.kind = DEF_RESULT, .index = index, .result = i, .name = name};
        def.loc = it->out[i].loc;
        fg_model_define(cx, scope, def);
    }
}

static void add_node(ModelCx *cx, Scope *scope, const FgJson *node)
{
    Instance it = {.json = node, .scope = scope};
    const FgJson *op = fg_json_need(cx->json, node, "op", FG_JSON_IS_STRING);
    const FgJson *out = fg_json_need(cx->json, node, "out", FG_JSON_IS_STRING | FG_JSON_IS_LIST);
    bool known = op && parse_op(cx, op, &it.op);
    bool in_ok = string_list(cx, fg_json_get(node, "in"), &it.in, &it.n_in);
    bool out_ok = string_list(cx, out, &it.out, &it.n_out);
    if (known)
        check_node_keys(cx, node, fg_op_info(it.op));
    it.known = known;
    it.failed = !known || !in_ok || !out || !out_ok;
    it.failed = it.failed || !check_arity(cx, &it);
    if (!in_ok)
        it.n_in = 0;
    define_outputs(cx, scope, &it, cx->instances.len);
    fg_vec_push(cx->arena, &cx->instances, it);
}

/* ---- repeats ---- */
typedef struct Repeat {
    const FgJson *json, *carry, *params, *nodes;
    const char *index;
    int64_t count;
} Repeat;

static void check_carry(ModelCx *cx, Repeat *repeat)
{
    static const char *const keys[] = {"from", "next"};
    for (uint32_t i = 0; repeat->carry && i < repeat->carry->n_items; i++) {
        const FgJson *item = &repeat->carry->items[i];
        if (!fg_json_is(cx->json, item, FG_JSON_IS_OBJECT, "a carried value"))
            continue;
        fg_json_check_keys(cx->json, item, "a carried value", keys, N(keys));
        const FgJson *from = fg_json_need(cx->json, item, "from", FG_JSON_IS_STRING);
        fg_json_need(cx->json, item, "next", FG_JSON_IS_STRING);
        /* Outside, the name stands for what the repeat ends with. */
        if (from && strcmp(from->text, item->key) == 0)
            fg_json_report(cx->json, from->loc, FG_D_CYCLE,
                           "the carried value '%s' starts from itself", item->key);
    }
}

static bool read_repeat(ModelCx *cx, const Scope *scope, const FgJson *json, Repeat *repeat)
{
    static const char *const keys[] = {"repeat", "index", "prefix", "carry", "params", "nodes"};
    *repeat = (Repeat){.json = json, .index = "i"};
    fg_json_check_keys(cx->json, json, "a repeat", keys, N(keys));
    const FgJson *count = fg_json_get(json, "repeat");
    const FgJson *index = fg_json_want(cx->json, json, "index", FG_JSON_IS_STRING);
    fg_json_want(cx->json, json, "prefix", FG_JSON_IS_STRING);
    repeat->carry = fg_json_want(cx->json, json, "carry", FG_JSON_IS_OBJECT);
    repeat->params = fg_json_want(cx->json, json, "params", FG_JSON_IS_OBJECT);
    repeat->nodes = fg_json_need(cx->json, json, "nodes", FG_JSON_IS_LIST);
    check_carry(cx, repeat);
    if (index && fg_model_check_name(cx, index->loc, index->text))
        repeat->index = index->text;
    if (!fg_model_int(cx, scope, count, "'repeat'", &repeat->count))
        return false;
    if (repeat->count < 1) {
        fg_json_report(cx->json, count->loc, FG_D_BAD_VALUE,
                       "this repeat is made %" PRId64 " times; 1 is the least", repeat->count);
        return false;
    }
    if (!repeat->nodes)
        return false;
    /* Said before anything is unrolled; nested repeats are counted as they unroll. */
    int64_t body = 1 + (int64_t)repeat->nodes->n_items;
    return repeat->count <= EXPAND_LIMIT / body || report_expansion(cx, count->loc);
}

static Scope *iteration_scope(ModelCx *cx, const Scope *outer, const Repeat *repeat, int64_t i)
{
    Scope *scope = FG_NEW(cx->arena, Scope);
    *scope = (Scope){.outer = outer, .index = repeat->index, .iteration = i};
    scope->layer = outer->outer ? outer->layer : (int32_t)i;
    scope->prefix = outer->prefix;
    fg_map_init(&scope->names, cx->arena);
    const FgJson *prefix = fg_json_get(repeat->json, "prefix");
    if (prefix && prefix->kind == FG_JSON_STRING) {
        const char *text = fg_model_substitute(cx, scope, prefix->loc, prefix->text);
        if (text && (!*text || fg_model_check_name(cx, prefix->loc, text)))
            scope->prefix = fg_arena_printf(cx->arena, "%s%s", outer->prefix, text);
    }
    return scope;
}

/* Names for the carried values in `scope`: aliases of the member `key` as seen from `target`. NULL,
 * when the repeat could not be unrolled, makes names that are known to have failed. */
static void define_carried(ModelCx *cx, Scope *scope, const Repeat *repeat, const Scope *target,
                           const char *key)
{
    for (uint32_t k = 0; repeat->carry && k < repeat->carry->n_items; k++) {
        const FgJson *item = &repeat->carry->items[k];
        const FgJson *text = item->kind == FG_JSON_OBJECT ? fg_json_get(item, key) : NULL;
        bool ok = target && text && text->kind == FG_JSON_STRING;
        Def def = {.kind = ok ? DEF_ALIAS : DEF_FAILED, .name = item->key, .loc = item->key_loc};
        def.scope = target;
        def.target = text;
        fg_model_define(cx, scope, def);
    }
}

static void add_repeat(ModelCx *cx, Scope *scope, const FgJson *json)
{
    Repeat repeat;
    const Scope *last = scope;
    bool ok = read_repeat(cx, scope, json, &repeat);
    for (int64_t i = 0; ok && i < repeat.count; i++) {
        ok = fg_model_expand(cx, json->loc);
        if (!ok)
            break;
        Scope *inner = iteration_scope(cx, scope, &repeat, i);
        define_carried(cx, inner, &repeat, last, i == 0 ? "from" : "next");
        fg_model_params(cx, inner, repeat.params);
        fg_model_nodes(cx, inner, repeat.nodes);
        last = inner;
    }
    cx->repeat_failed = cx->repeat_failed || !ok;
    define_carried(cx, scope, &repeat, ok ? last : NULL, "next");
}

void fg_model_nodes(ModelCx *cx, Scope *scope, const FgJson *nodes)
{
    for (uint32_t i = 0; i < nodes->n_items; i++) {
        const FgJson *item = &nodes->items[i];
        if (!fg_json_is(cx->json, item, FG_JSON_IS_OBJECT, "a node"))
            continue;
        if (!fg_model_expand(cx, item->loc))
            return;
        if (fg_json_get(item, "repeat"))
            add_repeat(cx, scope, item);
        else
            add_node(cx, scope, item);
    }
}
