/* The mini-language of the CALL column (args.h): one word is read into a Term, which either tells
 * its kind or, with a node at hand, its value. */
#include "codegen/args.h"

#include "codegen/custom.h"
#include "codegen/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ValueRef {
    bool given, is_result;
    uint32_t index;
} ValueRef;

typedef struct Word {
    const char *text;
    size_t len;
} Word;

/* `head` or `head(v)` or `head(v,more)`; layout's only argument is a word and stands in `more`. */
typedef struct Term {
    Word head;
    bool is_call;
    ValueRef v;
    Word more;
} Term;

typedef struct Eval {
    FgArgsCx *cx;
    const FgNode *node;
    const FgOpInfo *info;
} Eval;

static bool word_is(Word word, const char *text)
{
    return strlen(text) == word.len && memcmp(word.text, text, word.len) == 0;
}

static bool parse_ref(Word word, ValueRef *out)
{
    if (word.len < 2 || (word.text[0] != 'i' && word.text[0] != 'o'))
        return false;
    uint32_t index = 0;
    for (size_t i = 1; i < word.len; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            return false;
        index = index * 10 + (uint32_t)(word.text[i] - '0');
    }
    *out = (ValueRef){true, word.text[0] == 'o', index};
    return true;
}

static Term parse_term(Word word)
{
    Term term = {.head = word};
    const char *open = memchr(word.text, '(', word.len);
    if (!open) {
        parse_ref(word, &term.v);
        return term;
    }
    const char *end = word.text + word.len - 1;
    term.is_call = true;
    term.head.len = (size_t)(open - word.text);
    const char *comma = memchr(open, ',', (size_t)(end - open));
    Word first = {open + 1, (size_t)((comma ? comma : end) - open - 1)};
    if (comma)
        term.more = (Word){comma + 1, (size_t)(end - comma - 1)};
    if (!parse_ref(first, &term.v))
        term.more = first;
    return term;
}

/* The next word of the column, or false at its end. */
static bool next_word(const char **text, Word *out)
{
    const char *s = *text + strspn(*text, " ");
    *out = (Word){s, strcspn(s, " ")};
    *text = s + out->len;
    return out->len > 0;
}

/* Index of the attribute in the row, or -1. */
static int find_attr(const FgOpInfo *info, Word word)
{
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (word_is(word, info->attrs[i].name))
            return (int)i;
    }
    return -1;
}

static uint64_t choice_index(const char *choices, const char *word)
{
    Word choice;
    for (uint64_t i = 0; next_word(&choices, &choice); i++) {
        if (word_is(choice, word))
            return i;
    }
    FG_BUG("'%s' is no choice of its attribute", word);
}

/* ---- functions of one value ---- */
static uint32_t ref_id(const Eval *eval, ValueRef ref)
{
    uint32_t n = ref.is_result ? eval->node->n_results : eval->node->n_operands;
    const uint32_t *ids = ref.is_result ? eval->node->results : eval->node->operands;
    return ref.index < n ? ids[ref.index] : FG_NO_ID;
}

static const FgType *ref_type(const Eval *eval, ValueRef ref)
{
    uint32_t id = ref_id(eval, ref);
    if (id == FG_NO_ID)
        FG_BUG("%s needs %s %u", eval->info->name, ref.is_result ? "result" : "operand", ref.index);
    return eval->cx->module->values.data[id].type;
}

static int64_t product(const FgType *type, uint32_t from, uint32_t to)
{
    int64_t n = 1;
    for (uint32_t i = from; i < to; i++)
        n *= type->dims[i];
    return n;
}

static uint32_t dim_index(const Eval *eval, const FgType *type, int64_t k)
{
    int64_t at = k < 0 ? k + (int64_t)type->rank : k;
    if (at < 0 || at >= (int64_t)type->rank)
        FG_BUG("%s: a value of rank %u has no dimension %lld", eval->info->name, type->rank,
               (long long)k);
    return (uint32_t)at;
}

static uint32_t axis_of(const Eval *eval, const FgType *type)
{
    return dim_index(eval, type, fg_node_attr(eval->node, "axis")->i);
}

static int64_t value_n(const Eval *eval, const FgType *type)
{
    (void)eval;
    return fg_type_elements(type);
}

static int64_t value_rows(const Eval *eval, const FgType *type)
{
    (void)eval;
    return fg_type_rows(type);
}

static int64_t value_cols(const Eval *eval, const FgType *type)
{
    (void)eval;
    return fg_type_cols(type);
}

static int64_t value_bytes(const Eval *eval, const FgType *type)
{
    (void)eval;
    return (int64_t)fg_type_bytes(type);
}

static int64_t value_batch(const Eval *eval, const FgType *type)
{
    (void)eval;
    return product(type, 0, type->rank < 2 ? 0 : type->rank - 2);
}

static int64_t value_contracted(const Eval *eval, const FgType *type)
{
    return type->dims[dim_index(eval, type, fg_node_attr(eval->node, "ta")->i ? -2 : -1)];
}

static int64_t value_outer(const Eval *eval, const FgType *type)
{
    return product(type, 0, axis_of(eval, type));
}

static int64_t value_inner(const Eval *eval, const FgType *type)
{
    return product(type, axis_of(eval, type) + 1, type->rank);
}

typedef struct ValueFn {
    const char *name;
    int64_t (*run)(const Eval *eval, const FgType *type);
} ValueFn;

static const ValueFn value_fns[] = {
    {"n", value_n},         {"rows", value_rows},   {"cols", value_cols},
    {"bytes", value_bytes}, {"batch", value_batch}, {"contracted", value_contracted},
    {"outer", value_outer}, {"inner", value_inner},
};

static const ValueFn *find_fn(Word head)
{
    for (uint32_t i = 0; i < sizeof value_fns / sizeof *value_fns; i++) {
        if (word_is(head, value_fns[i].name))
            return &value_fns[i];
    }
    return NULL;
}

/* ---- kinds ---- */
static bool ref_exists(const FgOpInfo *info, ValueRef ref)
{
    const char *names = ref.is_result ? info->results : info->operands;
    Word word;
    for (uint32_t i = 0; next_word(&names, &word); i++) {
        if (i == ref.index)
            return true;
    }
    return false;
}

static bool is_integer(Word word)
{
    size_t i = word.len > 0 && word.text[0] == '-';
    if (i == word.len)
        return false;
    return strspn(word.text + i, "0123456789") >= word.len - i;
}

static const char *call_kind(const FgOpInfo *info, const Term *term)
{
    FgLayoutKind layout;
    int attr = find_attr(info, term->more);
    if (word_is(term->head, "layout"))
        return fg_layout_parse(term->more.text, term->more.len, &layout) ? "i" : NULL;
    if (!term->v.given || !ref_exists(info, term->v))
        return NULL;
    if (word_is(term->head, "dim"))
        return is_integer(term->more) || (attr >= 0 && info->attrs[attr].kind == FG_ATTR_INT)
                   ? "i"
                   : NULL;
    if (word_is(term->head, "dt") || find_fn(term->head))
        return "i";
    ValueRef other;
    if (word_is(term->head, "ratio"))
        return parse_ref(term->more, &other) && ref_exists(info, other) ? "f" : NULL;
    return word_is(term->head, "scale") && find_attr(info, (Word){"scale", 5}) >= 0 ? "f" : NULL;
}

/* Kinds of the term's arguments, or NULL when it means nothing for this row. */
static const char *term_kinds(const FgOpInfo *info, const Term *term)
{
    int attr = find_attr(info, term->head);
    if (term->is_call)
        return call_kind(info, term);
    if (term->v.given)
        return ref_exists(info, term->v) ? "i" : NULL;
    if (attr >= 0)
        return info->attrs[attr].kind == FG_ATTR_FLOAT  ? "f"
               : info->attrs[attr].kind == FG_ATTR_INTS ? NULL
                                                        : "i";
    if (word_is(term->head, "ws") || word_is(term->head, "operands"))
        return "ii";
    if (word_is(term->head, "bucket") || word_is(term->head, "elements"))
        return "i";
    if (term->head.len > 6 && memcmp(term->head.text, "FG_RT_", 6) == 0)
        return "i";
    return memchr(term->head.text, '.', term->head.len) ? "f" : NULL;
}

const char *fg_call_kinds(FgArena *arena, const FgOpInfo *info, const char **out_error)
{
    FgBuf kinds;
    fg_buf_init(&kinds, arena);
    const char *rest = info->call_args;
    Word word;
    while (next_word(&rest, &word)) {
        Term term = parse_term(word);
        const char *kind = term_kinds(info, &term);
        if (!kind) {
            *out_error = fg_arena_strndup(arena, word.text, word.len);
            return NULL;
        }
        fg_buf_puts(&kinds, kind);
    }
    return fg_buf_text(&kinds);
}

/* ---- values ---- */
static const char *dtype_symbol(FgDtype dtype)
{
    switch (dtype) {
    case FG_F32:
        return "FG_RT_F32";
    case FG_BF16:
        return "FG_RT_BF16";
    case FG_F16:
        return "FG_RT_F16";
    case FG_F64:
        return "FG_RT_F64";
    case FG_I32:
        return "FG_RT_I32";
    case FG_I64:
        return "FG_RT_I64";
    case FG_N_DTYPES:
    default:
        FG_BUG("no such dtype");
    }
}

uint64_t fg_value_address(const FgModule *module, uint32_t value)
{
    if (value == FG_NO_ID)
        return UINT64_MAX;
    const FgValue *v = &module->values.data[value];
    uint64_t inside = 0;
    while (v->root != v->id) {
        inside += v->root_offset;
        v = &module->values.data[v->root];
    }
    if (v->offset == FG_NO_OFFSET)
        FG_BUG("%%%s.%u has no address", v->name, v->id);
    return v->offset + inside;
}

static FgArg int_arg(uint64_t u)
{
    return (FgArg){.u = u, .symbol = u == UINT64_MAX ? "FG_RT_NONE" : NULL};
}

static FgArg address_arg(uint64_t at)
{
    FgArg arg = int_arg(at);
    arg.is_address = at != UINT64_MAX;
    return arg;
}

static FgArg float_arg(double f)
{
    return (FgArg){.is_float = true, .f = f};
}

static double attention_scale(const Eval *eval, const FgType *type)
{
    double scale = fg_node_attr(eval->node, "scale")->f;
    return scale != 0 ? scale : 1 / sqrt((double)fg_type_cols(type));
}

static FgArg call_arg(const Eval *eval, const Term *term)
{
    FgLayoutKind layout;
    if (word_is(term->head, "layout")) {
        if (!fg_layout_parse(term->more.text, term->more.len, &layout))
            FG_BUG("%s: no such layout", eval->info->name);
        return int_arg(fg_node_layout(eval->cx, eval->node, layout));
    }
    const FgType *type = ref_type(eval, term->v);
    const ValueFn *fn = find_fn(term->head);
    if (fn)
        return int_arg((uint64_t)fn->run(eval, type));
    if (word_is(term->head, "dt"))
        return (FgArg){.u = (uint64_t)type->dtype, .symbol = dtype_symbol(type->dtype)};
    if (word_is(term->head, "scale"))
        return float_arg(attention_scale(eval, type));
    if (word_is(term->head, "dim")) {
        int attr = find_attr(eval->info, term->more);
        FG_ASSERT(term->more.text);
        int64_t k = attr >= 0 ? eval->node->attrs[attr].i : strtoll(term->more.text, NULL, 10);
        return int_arg((uint64_t)type->dims[dim_index(eval, type, k)]);
    }
    ValueRef other;
    if (!word_is(term->head, "ratio") || !parse_ref(term->more, &other))
        FG_BUG("%s: '%.*s' is no function", eval->info->name, (int)term->head.len, term->head.text);
    return float_arg((double)fg_type_elements(type) /
                     (double)fg_type_elements(ref_type(eval, other)));
}

static FgArg attr_arg(const Eval *eval, int index)
{
    const FgAttrSpec *spec = &eval->info->attrs[index];
    const FgAttr *attr = &eval->node->attrs[index];
    if (spec->kind == FG_ATTR_FLOAT)
        return float_arg(attr->f);
    if (spec->kind == FG_ATTR_TEXT)
        return int_arg(fg_custom_index(eval->cx, eval->node));
    if (spec->kind == FG_ATTR_WORD)
        return int_arg(choice_index(spec->choices, attr->word));
    return int_arg((uint64_t)attr->i);
}

static uint64_t bucket_elements(const Eval *eval)
{
    if (eval->node->bucket >= eval->cx->module->buckets.len)
        FG_BUG("%s %u has no bucket", eval->info->name, eval->node->id);
    return eval->cx->module->buckets.data[eval->node->bucket].elements;
}

static FgArg plain_arg(const Eval *eval, const Term *term)
{
    int attr = find_attr(eval->info, term->head);
    if (term->v.given)
        return address_arg(fg_value_address(eval->cx->module, ref_id(eval, term->v)));
    if (attr >= 0)
        return attr_arg(eval, attr);
    if (word_is(term->head, "elements"))
        return int_arg(bucket_elements(eval));
    if (word_is(term->head, "bucket")) {
        bucket_elements(eval);
        return int_arg(eval->node->bucket);
    }
    const char *text = fg_arena_strndup(eval->cx->arena, term->head.text, term->head.len);
    if (memchr(term->head.text, '.', term->head.len))
        return float_arg(strtod(text, NULL));
    return (FgArg){.symbol = text};
}

void fg_args_cx_init(FgArgsCx *cx, FgArena *arena, const FgModule *module)
{
    *cx = (FgArgsCx){.arena = arena, .module = module, .workspace = UINT64_MAX};
    for (uint32_t i = 0; i < module->values.len; i++) {
        const FgValue *v = &module->values.data[i];
        if (v->kind == FG_VALUE_STATE && v->role == FG_ROLE_WORKSPACE) {
            cx->workspace = fg_value_address(module, v->id);
            cx->workspace_bytes = fg_type_bytes(v->type);
        }
    }
}

void fg_node_args(FgArgsCx *cx, const FgNode *node, FgArgs *out)
{
    Eval eval = {cx, node, fg_op_info(node->op)};
    const char *rest = eval.info->call_args;
    Word word;
    while (next_word(&rest, &word)) {
        Term term = parse_term(word);
        if (word_is(term.head, "ws") && !term.is_call) {
            fg_vec_push(cx->arena, out, int_arg(cx->workspace));
            fg_vec_push(cx->arena, out, ((FgArg){.u = cx->workspace_bytes}));
        } else if (word_is(term.head, "operands") && !term.is_call) {
            fg_vec_push(cx->arena, out, int_arg(fg_custom_operands(cx, node)));
            fg_vec_push(cx->arena, out, int_arg((uint64_t)node->n_operands + node->n_results));
        } else {
            FgArg arg = term.is_call ? call_arg(&eval, &term) : plain_arg(&eval, &term);
            fg_vec_push(cx->arena, out, arg);
        }
    }
}
