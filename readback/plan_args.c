/* Every argument of a call against the plan's node: a reader of its own for the CALL column of
 * ops.def (the words are explained in codegen/args.h), so that a slip of the emitter shows.
 *
 * Strided layouts are compared by meaning: both walk the same elements in the same order. */
#include "ir/op_table.h"
#include "readback/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Cx {
    FgArena *arena;
    const FgRbSource *source;
    const FgRbTables *tables;
    const FgModule *plan;
    const FgNode *node;
    const FgOpInfo *info;
    const FgRbCall *call;
    uint32_t at; /* index of the next argument */
    const char *wrong;
} Cx;

static void wrong(Cx *cx, const char *text)
{
    if (!cx->wrong)
        cx->wrong = text;
}

/* ---- arguments ---- */

static const FgRbCell *next_arg(Cx *cx)
{
    static const FgRbCell absent;
    if (cx->at >= cx->call->entry->params.len) {
        wrong(cx, "it has too few arguments");
        return &absent;
    }
    return &cx->call->args[cx->at++];
}

static const char *last_name(const Cx *cx)
{
    return cx->call->entry->params.data[cx->at - 1];
}

static void want_whole(Cx *cx, uint64_t value)
{
    const FgRbCell *cell = next_arg(cx);
    if (cell->kind != FG_RB_INT || cell->u != value)
        wrong(cx, fg_arena_printf(cx->arena, "argument %s is %llu instead of %llu", last_name(cx),
                                  (unsigned long long)cell->u, (unsigned long long)value));
}

static void want_real(Cx *cx, double value)
{
    const FgRbCell *cell = next_arg(cx);
    if (cell->kind != FG_RB_FLOAT || cell->f != value)
        wrong(cx, fg_arena_printf(cx->arena, "argument %s is %s instead of %s", last_name(cx),
                                  fg_double_text(cx->arena, cell->f),
                                  fg_double_text(cx->arena, value)));
}

/* ---- values ---- */

/* "i0" or "o1": the value, or FG_NO_ID for one that is left out; false for another word. */
static bool value_of(const Cx *cx, const char *word, uint32_t *out)
{
    FG_ASSERT(word);
    if ((*word != 'i' && *word != 'o') || !word[1] ||
        strspn(word + 1, "0123456789") != strlen(word + 1))
        return false;
    uint32_t index = (uint32_t)strtoul(word + 1, NULL, 10);
    bool operand = *word == 'i';
    uint32_t n = operand ? cx->node->n_operands : cx->node->n_results;
    *out = index >= n ? FG_NO_ID : operand ? cx->node->operands[index] : cx->node->results[index];
    return true;
}

static int64_t index_in(const FgType *type, int64_t k)
{
    return k < 0 ? k + (int64_t)type->rank : k;
}

static uint64_t dim_at(Cx *cx, const FgType *type, int64_t k)
{
    k = index_in(type, k);
    if (k >= 0 && k < (int64_t)type->rank)
        return (uint64_t)type->dims[k];
    wrong(cx, "its plan lacks an operand, or a dim of one");
    return 0;
}

static const FgType *type_of(Cx *cx, const char *word)
{
    static const FgType none;
    uint32_t value;
    if (value_of(cx, word, &value) && value != FG_NO_ID)
        return cx->plan->values.data[value].type;
    (void)dim_at(cx, &none, 0); /* an operand that the plan lacks has no dims */
    return &none;
}

static uint64_t address_of(const FgModule *plan, uint32_t value)
{
    uint64_t inside = 0;
    while (value != FG_NO_ID && plan->values.data[value].root != value) {
        inside += plan->values.data[value].root_offset;
        value = plan->values.data[value].root;
    }
    return value == FG_NO_ID ? FG_RB_NONE : plan->values.data[value].offset + inside;
}

static uint64_t product(const FgType *type, int64_t from, int64_t to)
{
    uint64_t n = 1;
    for (int64_t i = from; i < to; i++)
        n *= (uint64_t)type->dims[i];
    return n;
}

static int64_t attr_int(const Cx *cx, const char *name)
{
    for (uint32_t i = 0; i < cx->info->n_attrs; i++)
        if (!strcmp(cx->info->attrs[i].name, name))
            return cx->node->attrs[i].i;
    return 0;
}

/* ---- layouts ---- */

typedef struct Walk {
    uint32_t rank;
    const int64_t *dims, *strides;
} Walk;

/* Where the walk's operand is at its i-th step. */
static uint64_t place(const Walk *walk, uint64_t i)
{
    uint64_t at = 0;
    for (uint32_t d = walk->rank; d-- > 0;) {
        at += i % (uint64_t)walk->dims[d] * (uint64_t)walk->strides[d];
        i /= (uint64_t)walk->dims[d];
    }
    return at;
}

/* The same place at every step that moves one digit of either walk, and at many others. */
static bool same_walk(const Walk *a, const Walk *b, uint64_t n)
{
    const Walk *walks[] = {a, b};
    uint64_t some = n < 4096 ? 1 : n / 4093 + 1;
    for (uint64_t i = 0; i < n; i += some)
        if (place(a, i) != place(b, i))
            return false;
    for (uint32_t w = 0; w < 2; w++) {
        uint64_t step = 1;
        for (uint32_t d = walks[w]->rank; d-- > 0;) {
            uint64_t dim = (uint64_t)walks[w]->dims[d];
            for (uint64_t k = 1; k < dim; k = k < 64 ? k + 1 : k * 2)
                if (place(a, k * step) != place(b, k * step))
                    return false;
            step *= dim;
        }
    }
    return place(a, n - 1) == place(b, n - 1);
}

/* Strides of a dense operand that is repeated where its dim is 1, aligned at the last dim. */
static const int64_t *repeated(Cx *cx, const FgType *operand, const FgType *over)
{
    int64_t *strides = FG_NEW_ARRAY(cx->arena, int64_t, over->rank + 1), step = 1;
    for (uint32_t i = 0; i < over->rank && i < operand->rank; i++) {
        int64_t dim = operand->dims[operand->rank - 1 - i];
        strides[over->rank - 1 - i] = dim == 1 ? 0 : step;
        step *= dim;
    }
    return strides;
}

static const int64_t *permuted(Cx *cx, const FgType *operand, const FgAttr *perm)
{
    int64_t *strides = FG_NEW_ARRAY(cx->arena, int64_t, operand->rank + 1);
    for (uint32_t i = 0; i < perm->n_ints; i++)
        strides[i] = (int64_t)product(operand, index_in(operand, perm->ints[i]) + 1, operand->rank);
    return strides;
}

/* Of the result of a sum over axes, walked with its operand. */
static const int64_t *summed(Cx *cx, const FgType *operand, const FgAttr *axes)
{
    int64_t *strides = FG_NEW_ARRAY(cx->arena, int64_t, operand->rank + 1), step = 1;
    for (int64_t d = (int64_t)operand->rank; d-- > 0;) {
        bool gone = axes->n_ints == 0;
        for (uint32_t i = 0; i < axes->n_ints; i++)
            gone = gone || index_in(operand, axes->ints[i]) == d;
        strides[d] = gone ? 0 : step;
        step *= gone ? 1 : operand->dims[d];
    }
    return strides;
}

/* The row that the argument names walks `over` with these strides. */
static void want_walk(Cx *cx, uint64_t layout, const FgType *over, const int64_t *const *strides,
                      uint32_t n)
{
    const FgRbTable *table = cx->tables->layouts;
    uint64_t rank = table && layout < table->n_rows ? table->cells[layout].u : 0;
    if (rank == 0 || rank > 64 || layout + rank * (1 + n) >= table->n_rows) {
        wrong(cx, "its layout is none of the table");
        return;
    }
    int64_t *row = FG_NEW_ARRAY(cx->arena, int64_t, rank * (1 + n));
    for (uint64_t i = 0; i < rank * (1 + n); i++)
        row[i] = (int64_t)table->cells[layout + 1 + i].u;
    for (uint32_t k = 0; k < n; k++) {
        Walk mine = {(uint32_t)rank, row, row + rank * (1 + k)};
        Walk planned = {over->rank, over->dims, strides[k]};
        if (!same_walk(&mine, &planned, product(over, 0, over->rank)))
            wrong(cx, "its layout walks another way than the plan's");
    }
}

static void want_layout(Cx *cx, const char *kind)
{
    const FgType *x = type_of(cx, "i0"), *y = type_of(cx, "o0");
    const FgRbCell *cell = next_arg(cx);
    const int64_t *strides[2] = {NULL, NULL};
    if (!strcmp(kind, "binary")) {
        const FgType *b = type_of(cx, "i1");
        bool dense = fg_type_elements(x) == fg_type_elements(y) &&
                     fg_type_elements(b) == fg_type_elements(y);
        if (dense != (cell->u == FG_RB_NONE))
            wrong(cx, "it has a layout where it needs none, or none where it needs one");
        if (dense || cx->wrong)
            return;
        strides[0] = repeated(cx, x, y);
        strides[1] = repeated(cx, b, y);
        want_walk(cx, cell->u, y, strides, 2);
    } else if (!strcmp(kind, "transpose")) {
        strides[0] = permuted(cx, x, fg_node_attr(cx->node, "perm"));
        want_walk(cx, cell->u, y, strides, 1);
    } else if (!strcmp(kind, "broadcast")) {
        strides[0] = repeated(cx, x, y);
        want_walk(cx, cell->u, y, strides, 1);
    } else if (!strcmp(kind, "reduce")) {
        strides[0] = repeated(cx, x, x);
        strides[1] = summed(cx, x, fg_node_attr(cx->node, "axes"));
        want_walk(cx, cell->u, x, strides, 2);
    } else { /* a kind that is not known here has no layout that would do */
        want_walk(cx, FG_RB_NONE, x, strides, 0);
    }
}

/* ---- words ---- */

static uint64_t choice(const char *choices, const char *word)
{
    uint64_t index = 0;
    for (size_t n; *choices; choices += n + strspn(choices + n, " "), index++) {
        n = strcspn(choices, " ");
        if (n == strlen(word) && !memcmp(choices, word, n))
            return index;
    }
    return UINT64_MAX;
}

/* The row of the custom function of that name. */
static void want_custom(Cx *cx, const char *function)
{
    uint64_t row = next_arg(cx)->u;
    if (row >= cx->tables->customs.len || strcmp(cx->tables->customs.data[row]->name, function))
        wrong(cx, fg_arena_printf(cx->arena, "it calls another function than %s", function));
}

/* The row of a chain with the node's expression and repetitions. */
static void want_chain(Cx *cx, const char *expression)
{
    uint64_t row = next_arg(cx)->u;
    const FgRbChain *chain =
        row < cx->tables->customs.len ? cx->tables->customs.data[row]->chain : NULL;
    const FgAttr *repeat = fg_node_attr(cx->node, "repeat");
    bool same = chain && chain->n == repeat->n_ints &&
                !strcmp(fg_chain_text(cx->arena, &chain->value), expression);
    for (uint32_t k = 0; same && k < chain->n; k++)
        same = chain->repeat[k] == repeat->ints[k];
    if (!same)
        wrong(cx,
              fg_arena_printf(cx->arena, "its function does something else than '%s'", expression));
}

/* Rows of the table of operands: each is a value of the plan, with its place, dtype and shape. */
static void want_operands(Cx *cx)
{
    uint32_t n = cx->node->n_operands, all = n + cx->node->n_results;
    uint64_t first = next_arg(cx)->u;
    want_whole(cx, all);
    for (uint32_t i = 0; !cx->wrong && i < all; i++) {
        uint32_t value = i < n ? cx->node->operands[i] : cx->node->results[i - n];
        const FgType *type = cx->plan->values.data[value].type;
        const FgRbOperand *row = &cx->tables->operands.data[first + i];
        uint64_t rank = fg_rb_cell(cx->tables->operand_rows, (uint32_t)first + i, "rank")->u;
        uint64_t at = fg_rb_cell(cx->tables->operand_rows, (uint32_t)first + i, "dims_first")->u;
        bool same = row->offset == address_of(cx->plan, value) &&
                    row->dtype == (uint64_t)type->dtype && row->written == (i >= n) &&
                    rank == type->rank;
        for (uint32_t d = 0; same && d < type->rank; d++)
            same = cx->tables->dims->cells[at + d].u == (uint64_t)type->dims[d];
        if (!same)
            wrong(cx, fg_arena_printf(cx->arena,
                                      "operand %u is another value, or has another shape", i));
    }
}

static bool attribute(Cx *cx, const char *word)
{
    for (uint32_t i = 0; i < cx->info->n_attrs; i++) {
        const FgAttrSpec *spec = &cx->info->attrs[i];
        if (strcmp(spec->name, word))
            continue;
        if (spec->kind == FG_ATTR_FLOAT)
            want_real(cx, cx->node->attrs[i].f);
        else if (spec->kind == FG_ATTR_TEXT && cx->node->op == FG_OP_fused)
            want_chain(cx, cx->node->attrs[i].word);
        else if (spec->kind == FG_ATTR_TEXT)
            want_custom(cx, cx->node->attrs[i].word);
        else if (spec->kind == FG_ATTR_WORD)
            want_whole(cx, choice(spec->choices, cx->node->attrs[i].word));
        else
            want_whole(cx, (uint64_t)cx->node->attrs[i].i);
        return true;
    }
    return false;
}

static uint64_t size_of(Cx *cx, const char *function, const FgType *type)
{
    int64_t rank = (int64_t)type->rank, axis = index_in(type, attr_int(cx, "axis"));
    if (!strcmp(function, "n"))
        return product(type, 0, rank);
    if (!strcmp(function, "rows"))
        return product(type, 0, rank - 1);
    if (!strcmp(function, "cols"))
        return rank ? (uint64_t)type->dims[rank - 1] : 1;
    if (!strcmp(function, "bytes"))
        return product(type, 0, rank) * fg_dtype_bytes(type->dtype);
    if (!strcmp(function, "dt"))
        return (uint64_t)type->dtype;
    if (!strcmp(function, "batch"))
        return product(type, 0, rank - 2);
    if (!strcmp(function, "contracted"))
        return dim_at(cx, type, attr_int(cx, "ta") ? -2 : -1);
    if (!strcmp(function, "outer"))
        return product(type, 0, axis);
    if (!strcmp(function, "inner"))
        return product(type, axis + 1, rank);
    return FG_RB_NONE; /* no call has this where a size belongs */
}

/* "dim(i0,-1)", "ratio(o0,i0)", "layout(reduce)" ... */
static void function(Cx *cx, const char *word)
{
    char *name = fg_arena_strdup(cx->arena, word), *first = strchr(name, '('), *second;
    *first++ = 0;
    first[strlen(first) - 1] = 0;
    second = strchr(first, ',');
    if (second)
        *second++ = 0;
    if (!strcmp(name, "layout")) {
        want_layout(cx, first);
        return;
    }
    const FgType *type = type_of(cx, first);
    if (cx->wrong)
        return;
    if (!strcmp(name, "dim")) {
        FG_ASSERT(second);
        bool plain = second[strspn(second, "-0123456789")] == 0;
        want_whole(cx, dim_at(cx, type, plain ? strtoll(second, NULL, 10) : attr_int(cx, second)));
    } else if (!strcmp(name, "ratio")) {
        want_real(cx,
                  (double)fg_type_elements(type) / (double)fg_type_elements(type_of(cx, second)));
    } else if (!strcmp(name, "scale")) {
        double scale = fg_node_attr(cx->node, "scale")->f;
        want_real(cx, scale != 0 ? scale : 1 / sqrt((double)type->dims[type->rank - 1]));
    } else {
        want_whole(cx, size_of(cx, name, type));
    }
}

static void workspace(Cx *cx)
{
    uint64_t at = FG_RB_NONE, bytes = 0;
    for (uint32_t i = 0; i < cx->plan->values.len; i++) {
        const FgValue *value = &cx->plan->values.data[i];
        if (value->kind == FG_VALUE_STATE && value->role == FG_ROLE_WORKSPACE) {
            at = value->offset;
            bytes = fg_type_bytes(value->type);
        }
    }
    want_whole(cx, at);
    want_whole(cx, bytes);
}

static void one(Cx *cx, const char *word)
{
    uint32_t value;
    if (strchr(word, '('))
        function(cx, word);
    else if (value_of(cx, word, &value))
        want_whole(cx, address_of(cx->plan, value));
    else if (attribute(cx, word))
        return;
    else if (!strcmp(word, "operands"))
        want_operands(cx);
    else if (!strcmp(word, "ws"))
        workspace(cx);
    else if (!strcmp(word, "bucket"))
        want_whole(cx, cx->node->bucket);
    else if (!strcmp(word, "elements"))
        want_whole(cx, cx->node->bucket < cx->plan->buckets.len
                           ? cx->plan->buckets.data[cx->node->bucket].elements
                           : 0);
    else if (!strncmp(word, "FG_RT_", 6))
        want_whole(cx, fg_rb_constant(cx->source, word));
    else
        want_real(cx, strtod(word, NULL));
}

const char *fg_rb_compare_args(FgArena *arena, const FgRbSource *source, const FgRbTables *tables,
                               const FgModule *plan, uint32_t node, const FgRbCall *call)
{
    const FgNode *it = &plan->nodes.data[node];
    Cx cx = {.arena = arena,
             .source = source,
             .tables = tables,
             .plan = plan,
             .node = it,
             .info = fg_op_info(it->op),
             .call = call,
             .at = 2 /* node and stream */};
    const char *rest = cx.info->call_args;
    for (size_t n; *(rest += strspn(rest, " ")) && !cx.wrong; rest += n) {
        n = strcspn(rest, " ");
        one(&cx, fg_arena_strndup(arena, rest, n));
    }
    if (!cx.wrong && cx.at != call->entry->params.len)
        wrong(&cx, "it has more arguments than the plan says");
    return cx.wrong;
}
