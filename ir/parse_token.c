/* The parser's lower half: tokens, lists, types, places, and the tables of what was mentioned. */
#include "ir/parse.h"

#include <stdarg.h>
#include <string.h>

void fg_parse_next(FgParser *p)
{
    p->t = fg_lex(&p->lex);
}

bool fg_parse_error(FgParser *p, FgLoc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(p->m->arena, format, args);
    va_end(args);
    fg_diag(p->m->diags, loc, FG_D_IR_SYNTAX, "%s", text);
    return false;
}

bool fg_parse_expected(FgParser *p, const char *what)
{
    if (p->t.kind != FG_TOKEN_BAD)
        fg_parse_error(p, p->t.loc, "expected %s", what);
    return false;
}

bool fg_parse_is_punct(const FgParser *p, char c)
{
    return p->t.kind == FG_TOKEN_PUNCT && p->t.punct == c;
}

bool fg_parse_is_word(const FgParser *p, const char *word)
{
    return p->t.kind == FG_TOKEN_WORD && strcmp(p->t.text, word) == 0;
}

bool fg_parse_take(FgParser *p, char c)
{
    if (!fg_parse_is_punct(p, c))
        return false;
    fg_parse_next(p);
    return true;
}

bool fg_parse_punct(FgParser *p, char c)
{
    return fg_parse_take(p, c) ||
           fg_parse_expected(p, fg_arena_printf(p->m->arena, c == '.' ? "'.%c'" : "'%c'", c));
}

bool fg_parse_word(FgParser *p, const char *what, const char **out)
{
    if (p->t.kind != FG_TOKEN_WORD)
        return fg_parse_expected(p, what);
    *out = p->t.text;
    fg_parse_next(p);
    return true;
}

bool fg_parse_string(FgParser *p, const char **out)
{
    if (p->t.kind != FG_TOKEN_STRING)
        return fg_parse_expected(p, "a quoted string");
    *out = p->t.text;
    fg_parse_next(p);
    return true;
}

bool fg_parse_symbol(FgParser *p, const char **out)
{
    if (p->t.kind != FG_TOKEN_SYMBOL)
        return fg_parse_expected(p, "a name that begins with @");
    *out = p->t.text;
    fg_parse_next(p);
    return true;
}

/* ---- numbers and lists ---- */
bool fg_parse_u64(FgParser *p, uint64_t *out)
{
    if (p->t.kind != FG_TOKEN_INT || p->t.negative)
        return fg_parse_expected(p, "a number");
    *out = p->t.whole;
    fg_parse_next(p);
    return true;
}

bool fg_parse_u32(FgParser *p, uint32_t *out)
{
    FgLoc loc = p->t.loc;
    uint64_t x;
    if (!fg_parse_u64(p, &x))
        return false;
    if (x >= UINT32_MAX)
        return fg_parse_error(p, loc, "the number does not fit 32 bits");
    *out = (uint32_t)x;
    return true;
}

bool fg_parse_i64(FgParser *p, int64_t *out)
{
    if (p->t.kind != FG_TOKEN_INT)
        return fg_parse_expected(p, "an integer");
    uint64_t limit = (uint64_t)INT64_MAX + p->t.negative;
    if (p->t.whole > limit)
        return fg_parse_error(p, p->t.loc, "the number does not fit 64 bits");
    *out = (int64_t)(p->t.negative ? 0 - p->t.whole : p->t.whole);
    fg_parse_next(p);
    return true;
}

bool fg_parse_double(FgParser *p, double *out)
{
    if (p->t.kind != FG_TOKEN_INT && p->t.kind != FG_TOKEN_FLOAT)
        return fg_parse_expected(p, "a number");
    *out = p->t.number;
    fg_parse_next(p);
    return true;
}

bool fg_parse_u32_list(FgParser *p, const uint32_t **out, uint32_t *out_n)
{
    FgIdVec ids = {0};
    if (!fg_parse_punct(p, '('))
        return false;
    while (!fg_parse_is_punct(p, ')')) {
        uint32_t id = 0;
        if ((ids.len && !fg_parse_punct(p, ',')) || !fg_parse_u32(p, &id))
            return false;
        fg_vec_push(p->m->arena, &ids, id);
    }
    *out = ids.data;
    *out_n = ids.len;
    return fg_parse_punct(p, ')');
}

bool fg_parse_i64_list(FgParser *p, const int64_t **out, uint32_t *out_n)
{
    FG_VEC(int64_t) ints = {0};
    if (!fg_parse_punct(p, '['))
        return false;
    while (!fg_parse_is_punct(p, ']')) {
        int64_t x = 0;
        if ((ints.len && !fg_parse_punct(p, ',')) || !fg_parse_i64(p, &x))
            return false;
        fg_vec_push(p->m->arena, &ints, x);
    }
    *out = ints.data;
    *out_n = ints.len;
    return fg_parse_punct(p, ']');
}

bool fg_parse_line_end(FgParser *p)
{
    if (p->t.kind == FG_TOKEN_END)
        return true;
    if (p->t.kind != FG_TOKEN_LINE)
        return fg_parse_expected(p, "the end of the line");
    fg_parse_next(p);
    return true;
}

void fg_parse_recover(FgParser *p)
{
    if (p->t.kind == FG_TOKEN_END)
        return;
    if (p->t.kind != FG_TOKEN_LINE) {
        fg_lex_skip_line(&p->lex);
        fg_parse_next(p);
    }
    if (p->t.kind == FG_TOKEN_LINE)
        fg_parse_next(p);
}

bool fg_parse_choice(FgParser *p, const char *what, const char *(*name)(uint32_t), uint32_t n,
                     uint32_t *out)
{
    FgLoc loc = p->t.loc;
    const char *word;
    if (!fg_parse_word(p, what, &word))
        return false;
    const char **names = FG_NEW_ARRAY(p->m->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = name(i);
        if (strcmp(names[i], word) == 0) {
            *out = i;
            return true;
        }
    }
    fg_parse_error(p, loc, "'%s' is not %s", word, what);
    const char *near = fg_closest(word, names, n);
    if (near)
        fg_diag_note(p->m->diags, FG_NOWHERE, "did you mean '%s'?", near);
    return false;
}

/* ---- types and places in a source ---- */
bool fg_parse_dtype(FgParser *p, FgDtype *out)
{
    if (p->t.kind != FG_TOKEN_WORD || !fg_dtype_parse(p->t.text, out))
        return fg_parse_expected(p, "an element type (f32, bf16, f16, f64, i32, i64)");
    fg_parse_next(p);
    return true;
}

bool fg_parse_type(FgParser *p, const FgType **out)
{
    FgDtype dtype;
    const int64_t *dims = NULL;
    uint32_t rank = 0;
    FgLoc loc = p->t.loc;
    if (!fg_parse_dtype(p, &dtype) || !fg_parse_i64_list(p, &dims, &rank))
        return false;
    int64_t bytes = fg_dtype_bytes(dtype);
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 1)
            return fg_parse_error(p, loc, "every dimension is at least 1");
        if (__builtin_mul_overflow(bytes, dims[i], &bytes))
            return fg_parse_error(p, loc, "the type has more than 2^63 bytes");
    }
    *out = fg_type(p->m, dtype, rank, dims);
    return true;
}

bool fg_parse_loc(FgParser *p, FgLoc *out)
{
    const char *name;
    uint32_t file, line, col;
    if (!fg_parse_punct(p, '(') || !fg_parse_string(p, &name) || !fg_parse_punct(p, ':') ||
        !fg_parse_u32(p, &line) || !fg_parse_punct(p, ':') || !fg_parse_u32(p, &col) ||
        !fg_parse_punct(p, ')'))
        return false;
    if (!fg_map_get(&p->files, name, &file)) {
        file = fg_diags_source(p->m->diags, name, NULL, 0);
        fg_map_add(&p->files, name, file);
    }
    *out = (FgLoc){file, line, col};
    return true;
}

/* ---- nodes and values by id ---- */
void fg_parse_room_for_node(FgParser *p, uint32_t id)
{
    while (p->m->nodes.len <= id) {
        FgNode hole = {.id = p->m->nodes.len,
                       .name = "",
                       .phase = FG_PHASE_FORWARD,
                       .layer = -1,
                       .origin = FG_NO_ID,
                       .bucket = FG_NO_ID};
        fg_vec_push(p->m->arena, &p->m->nodes, hole);
        fg_vec_push(p->m->arena, &p->node_seen, false);
    }
}

void fg_parse_room_for_value(FgParser *p, uint32_t id)
{
    while (p->m->values.len <= id) {
        fg_add_value(p->m, "", fg_type(p->m, FG_F32, 0, NULL));
        fg_vec_push(p->m->arena, &p->seen, (FgSeen){0});
    }
}

bool fg_parse_node_ref(FgParser *p, uint32_t *out)
{
    if (p->t.kind != FG_TOKEN_NODE)
        return fg_parse_expected(p, "a node (#12)");
    if (p->t.whole >= p->id_limit)
        return fg_parse_error(p, p->t.loc, "the number of this node is too large for the text");
    *out = (uint32_t)p->t.whole;
    fg_parse_room_for_node(p, *out);
    fg_parse_next(p);
    return true;
}

static uint32_t symbol_id(FgParser *p, const char *name)
{
    uint32_t id;
    if (!fg_map_get(&p->symbols, name, &id)) {
        id = p->next_value++;
        fg_map_add(&p->symbols, name, id);
    }
    return id;
}

bool fg_parse_value(FgParser *p, uint32_t *out)
{
    FgToken t = p->t;
    if (t.kind != FG_TOKEN_VALUE)
        return fg_parse_expected(p, "a value (%name.12)");
    if (t.has_id && t.whole >= p->id_limit)
        return fg_parse_error(p, t.loc, "the id of this value is too large for the text");
    *out = t.has_id ? (uint32_t)t.whole : symbol_id(p, t.text);
    fg_parse_room_for_value(p, *out);
    FgSeen *seen = &p->seen.data[*out];
    if (!seen->first.file)
        seen->first = t.loc;
    const char *name = *t.text ? t.text : NULL;
    if (name && seen->name && strcmp(name, seen->name) != 0)
        return fg_parse_error(p, t.loc, "value %u is called '%s' elsewhere", *out, seen->name);
    if (name)
        seen->name = name;
    fg_parse_next(p);
    return true;
}

static const char *mem_name(uint32_t i)
{
    return fg_mem_class_name((FgMemClass)i);
}

static bool parse_root(FgParser *p, FgValue *value)
{
    if (!fg_parse_value(p, &value->root))
        return false;
    return !fg_parse_take(p, '+') || fg_parse_u64(p, &value->root_offset);
}

bool fg_parse_place(FgParser *p, FgValue *value)
{
    for (;;) {
        bool in = fg_parse_is_word(p, "in"), mem = fg_parse_is_word(p, "mem");
        bool host = fg_parse_is_word(p, "host");
        if (!in && !mem && !host && !fg_parse_is_word(p, "at"))
            return true;
        fg_parse_next(p);
        if (host) {
            value->host = true;
            continue;
        }
        if (in) {
            if (!parse_root(p, value))
                return false;
            continue;
        }
        uint32_t class = (uint32_t)value->mem;
        if (!fg_parse_punct(p, '('))
            return false;
        if (mem ? !fg_parse_choice(p, "a memory class", mem_name, FG_N_MEM_CLASSES, &class)
                : !fg_parse_u64(p, &value->offset))
            return false;
        value->mem = (FgMemClass) class;
        if (!mem && value->host && value->offset < FG_HOST_BASE)
            value->offset += FG_HOST_BASE;
        if (!fg_parse_punct(p, ')'))
            return false;
    }
}

FgValue fg_parse_blank_value(FgParser *p, uint32_t id, const FgType *type)
{
    const char *name = p->seen.data[id].name;
    return (FgValue){.id = id,
                     .name = name ? name : "v",
                     .type = type,
                     .kind = FG_VALUE_RESULT,
                     .index = FG_NO_ID,
                     .def = FG_NO_ID,
                     .root = id,
                     .mem = FG_MEM_ACTIVATIONS,
                     .offset = FG_NO_OFFSET};
}

bool fg_parse_declare(FgParser *p, FgLoc loc, const FgValue *value)
{
    FgSeen *seen = &p->seen.data[value->id];
    if (seen->declared)
        return fg_parse_error(p, loc, "value %%%s.%u is declared twice", value->name, value->id);
    seen->declared = true;
    p->m->values.data[value->id] = *value;
    return true;
}
