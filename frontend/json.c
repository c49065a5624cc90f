/* The tree: Jansson's values zipped with the scanner's positions. Both run in document order
 * (Jansson keeps the order of members, and a key given twice was refused before), so value n of one
 * is value n of the other. */
#include "frontend/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

void fg_json_init(FgJsonCx *cx, FgArena *arena, FgDiags *diags)
{
    *cx = (FgJsonCx){.arena = arena, .diags = diags};
    fg_map_init(&cx->reported, arena);
}

/* ---- the tree ---- */
static void convert(FgJsonCx *cx, json_t *from, const FgJsonTokens *tokens, uint32_t *next,
                    FgJson *to);

static void convert_list(FgJsonCx *cx, json_t *from, const FgJsonTokens *tokens, uint32_t *next,
                         FgJson *to)
{
    size_t n = json_array_size(from);
    FgJson *items = FG_NEW_ARRAY(cx->arena, FgJson, n);
    for (size_t i = 0; i < n; i++)
        convert(cx, json_array_get(from, i), tokens, next, &items[i]);
    to->items = items;
    to->n_items = (uint32_t)n;
}

static void convert_object(FgJsonCx *cx, json_t *from, const FgJsonTokens *tokens, uint32_t *next,
                           FgJson *to)
{
    FgJson *items = FG_NEW_ARRAY(cx->arena, FgJson, json_object_size(from));
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        FgJson *item = &items[to->n_items++];
        convert(cx, value, tokens, next, item);
        item->key = fg_arena_strdup(cx->arena, key);
    }
    to->items = items;
}

/* Recursion is bounded by the scanner's limit on nesting. */
static void convert(FgJsonCx *cx, json_t *from, const FgJsonTokens *tokens, uint32_t *next,
                    FgJson *to)
{
    FG_ASSERT(*next < tokens->len);
    const FgJsonToken *token = &tokens->data[*next];
    *to = (FgJson){.id = (*next)++, .loc = token->loc, .key_loc = token->key_loc};
    to->escaped = token->escaped;
    if (json_is_object(from)) {
        to->kind = FG_JSON_OBJECT;
        convert_object(cx, from, tokens, next, to);
    } else if (json_is_array(from)) {
        to->kind = FG_JSON_LIST;
        convert_list(cx, from, tokens, next, to);
    } else if (json_is_string(from)) {
        to->kind = FG_JSON_STRING;
        to->text = fg_arena_strdup(cx->arena, json_string_value(from));
    } else if (json_is_integer(from)) {
        to->kind = FG_JSON_INT;
        to->i = json_integer_value(from);
        to->f = (double)to->i;
    } else if (json_is_real(from)) {
        to->kind = FG_JSON_REAL;
        to->f = json_real_value(from);
    } else if (json_is_boolean(from)) {
        to->kind = FG_JSON_BOOL;
        to->i = json_is_true(from);
    } else {
        to->kind = FG_JSON_NULL;
    }
}

/* Where a byte of the text is. */
static FgLoc position(uint32_t file, const char *text, size_t len, size_t offset)
{
    FgLoc loc = {file, 1, 1};
    for (size_t i = 0; i < offset && i < len; i++) {
        loc.col++;
        if (text[i] == '\n') {
            loc.line++;
            loc.col = 1;
        }
    }
    return loc;
}

const FgJson *fg_json_parse(FgJsonCx *cx, const char *name, const char *text, size_t len)
{
    uint32_t file = fg_diags_source(cx->diags, name, text, len);
    FgJsonTokens tokens = {0};
    if (!fg_json_scan(cx, file, text, len, &tokens))
        return NULL;
    /* What the scanner leaves to Jansson: UTF-8, surrogates, the range of numbers. */
    json_error_t error;
    json_t *tree = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!tree) {
        /* Jansson's position is the end of what it read last: a number is shown from its start. */
        size_t offset = error.position > 0 ? (size_t)error.position - 1 : 0;
        while (offset > 0 && offset < len && strchr("+-.0123456789eE", text[offset - 1]) &&
               text[offset - 1])
            offset--;
        fg_json_report(cx, position(file, text, len, offset), FG_D_JSON_SYNTAX, "%s", error.text);
        return NULL;
    }
    FgJson *root = FG_NEW(cx->arena, FgJson);
    uint32_t next = 0;
    convert(cx, tree, &tokens, &next, root);
    json_decref(tree);
    FG_ASSERT(next == tokens.len);
    cx->n_values = next;
    return root;
}

/* ---- messages ---- */
bool fg_json_report(FgJsonCx *cx, FgLoc loc, FgDiagId id, const char *format, ...)
{
    cx->failed = true;
    const char *place = fg_arena_printf(cx->arena, "%d:%u:%u:%u", id, loc.file, loc.line, loc.col);
    if (loc.line && !fg_map_add(&cx->reported, place, 0))
        return false;
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(cx->arena, format, args);
    va_end(args);
    fg_diag(cx->diags, loc, id, "%s", text);
    return true;
}

void fg_json_suggest(FgJsonCx *cx, const char *word, const char *const *candidates, uint32_t n)
{
    const char *near = fg_closest(word, candidates, n);
    if (near)
        fg_diag_note(cx->diags, FG_NOWHERE, "did you mean '%s'?", near);
}

/* ---- checks ---- */
const FgJson *fg_json_get(const FgJson *object, const char *key)
{
    for (uint32_t i = 0; i < object->n_items; i++) {
        if (object->items[i].key && strcmp(object->items[i].key, key) == 0)
            return &object->items[i];
    }
    return NULL;
}

static const char *kind_name(FgJsonKind kind)
{
    static const char *const names[FG_N_JSON_KINDS] = {
        "null", "true or false", "an integer", "a number", "a string", "a list", "an object"};
    return names[kind];
}

bool fg_json_is(FgJsonCx *cx, const FgJson *value, int kinds, const char *what)
{
    if (kinds >> value->kind & 1)
        return true;
    FgBuf buf;
    fg_buf_init(&buf, cx->arena);
    bool number = (kinds & FG_JSON_IS_NUMBER) == FG_JSON_IS_NUMBER;
    for (int k = 0; k < FG_N_JSON_KINDS; k++) {
        if (!(kinds >> k & 1) || (number && k == FG_JSON_INT))
            continue;
        fg_buf_printf(&buf, "%s%s", buf.len ? " or " : "", kind_name((FgJsonKind)k));
    }
    fg_json_report(cx, value->loc, FG_D_WRONG_TYPE, "%s must be %s, not %s", what,
                   fg_buf_text(&buf), kind_name(value->kind));
    return false;
}

const FgJson *fg_json_want(FgJsonCx *cx, const FgJson *object, const char *key, int kinds)
{
    const FgJson *value = fg_json_get(object, key);
    if (!value)
        return NULL;
    const char *what = fg_arena_printf(cx->arena, "'%s'", key);
    return fg_json_is(cx, value, kinds, what) ? value : NULL;
}

const FgJson *fg_json_need(FgJsonCx *cx, const FgJson *object, const char *key, int kinds)
{
    if (fg_json_get(object, key))
        return fg_json_want(cx, object, key, kinds);
    /* Several keys may be missing at one place: the key is part of what makes the message new. */
    const char *place = fg_arena_printf(cx->arena, "missing %s:%u", key, object->id);
    cx->failed = true;
    if (fg_map_add(&cx->reported, place, 0))
        fg_diag(cx->diags, object->loc, FG_D_MISSING_KEY, "the key '%s' is missing", key);
    return NULL;
}

void fg_json_check_keys(FgJsonCx *cx, const FgJson *object, const char *what,
                        const char *const *keys, uint32_t n_keys)
{
    for (uint32_t i = 0; i < object->n_items; i++) {
        const FgJson *item = &object->items[i];
        bool known = strcmp(item->key, "comment") == 0;
        for (uint32_t k = 0; k < n_keys && !known; k++)
            known = strcmp(item->key, keys[k]) == 0;
        if (!known && fg_json_report(cx, item->key_loc, FG_D_UNKNOWN_KEY, "%s has no key '%s'",
                                     what, item->key))
            fg_json_suggest(cx, item->key, keys, n_keys);
    }
}
