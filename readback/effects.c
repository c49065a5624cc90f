/* What a call does: the annotation of its declaration, read with the call's arguments.
 *
 * The grammar stands in docs/runtime.md. The host runtime's checked mode has a reader of its own:
 * two readers of one text, so that a slip in one shows. */
#include "readback/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct Reader {
    FgRbEval *eval;
    const FgRbCall *call;
    const char *at;
    FgRbEffectVec *out;
    const char *wrong; /* the first thing that went wrong; nothing is read after it */
    uint32_t dtype;    /* 1 + that of which the last size was; 0: of none */
} Reader;

static void wrong(Reader *reader, const char *what)
{
    if (!reader->wrong)
        reader->wrong = what;
}

static bool accept(Reader *reader, char sign)
{
    while (*reader->at == ' ')
        reader->at++;
    if (reader->wrong || *reader->at != sign)
        return false;
    reader->at++;
    return true;
}

static void expect(Reader *reader, char sign)
{
    if (!accept(reader, sign))
        wrong(reader, fg_arena_printf(reader->eval->arena, "'%c' is missing", sign));
}

static const char *word(Reader *reader)
{
    while (*reader->at == ' ')
        reader->at++;
    size_t n = 0;
    while (isalnum((unsigned char)reader->at[n]) || reader->at[n] == '_')
        n++;
    if (n == 0)
        wrong(reader, "a name is missing");
    const char *text = fg_arena_strndup(reader->eval->arena, reader->at, n);
    reader->at += n;
    return text;
}

/* ---- arguments ---- */

int fg_rb_param(const FgRbEntry *entry, const char *name)
{
    for (uint32_t i = 0; i < entry->params.len; i++)
        if (!strcmp(entry->params.data[i], name))
            return (int)i;
    return -1;
}

uint64_t fg_rb_arg(const FgRbCall *call, const char *name, uint64_t otherwise)
{
    int at = fg_rb_param(call->entry, name);
    return at < 0 || call->args[at].kind != FG_RB_INT ? otherwise : call->args[at].u;
}

static uint32_t argument(Reader *reader, const char *name)
{
    int at = reader->wrong ? -1 : fg_rb_param(reader->call->entry, name);
    if (at >= 0 && reader->call->args[at].kind == FG_RB_INT)
        return (uint32_t)at;
    wrong(reader, fg_arena_printf(reader->eval->arena, "'%s' is no integer argument", name));
    return 0;
}

static uint64_t value_of(Reader *reader, uint32_t arg)
{
    return reader->wrong ? 0 : reader->call->args[arg].u;
}

/* ---- expressions ---- */

static uint64_t sum(Reader *reader, int depth);

static uint64_t number(Reader *reader, const char *text)
{
    uint64_t value = 0;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            wrong(reader, "a number is malformed");
    }
    return value;
}

static uint64_t element_size(Reader *reader)
{
    expect(reader, '(');
    uint32_t arg = argument(reader, word(reader));
    expect(reader, ')');
    uint64_t bytes = fg_rb_dtype_bytes(value_of(reader, arg));
    if (bytes == 0 && !reader->wrong)
        wrong(reader, fg_arena_printf(reader->eval->arena, "argument '%s' is no dtype",
                                      reader->call->entry->params.data[arg]));
    reader->dtype = bytes ? 1 + (uint32_t)value_of(reader, arg) : 0;
    return bytes;
}

static uint64_t factor(Reader *reader, int depth)
{
    if (depth > 20)
        wrong(reader, "it is nested too deep");
    if (accept(reader, '(')) {
        uint64_t value = reader->wrong ? 0 : sum(reader, depth + 1);
        expect(reader, ')');
        return value;
    }
    const char *name = word(reader);
    if (reader->wrong)
        return 0;
    if (isdigit((unsigned char)*name))
        return number(reader, name);
    if (!strcmp(name, "ranks"))
        return reader->eval->tables->ranks;
    if (!strcmp(name, "rank")) {
        reader->eval->used_rank = true;
        return reader->eval->rank;
    }
    if (!strcmp(name, "size"))
        return element_size(reader);
    return value_of(reader, argument(reader, name));
}

static uint64_t term(Reader *reader, int depth)
{
    uint64_t value = factor(reader, depth);
    while (!reader->wrong) {
        if (accept(reader, '*')) {
            if (__builtin_mul_overflow(value, factor(reader, depth), &value))
                wrong(reader, "a size overflows");
        } else if (accept(reader, '/')) {
            uint64_t divisor = factor(reader, depth);
            if (divisor == 0)
                wrong(reader, "it divides by zero");
            else if (value % divisor)
                wrong(reader, "a size does not divide evenly");
            else
                value /= divisor;
        } else {
            break;
        }
    }
    return value;
}

static uint64_t sum(Reader *reader, int depth)
{
    uint64_t value = term(reader, depth);
    while (accept(reader, '+'))
        if (__builtin_add_overflow(value, term(reader, depth), &value))
            wrong(reader, "a size overflows");
    return value;
}

/* ---- effects ---- */

/* The arguments of the effects that name a range: false when the buffer is absent. */
static bool range(Reader *reader, const char *kind, FgRbEffect *out)
{
    const char *name = word(reader);
    out->arg = argument(reader, name);
    expect(reader, ',');
    reader->dtype = 0;
    out->bytes = sum(reader, 0);
    out->dtype = reader->dtype;
    if (!strcmp(kind, "fresh")) {
        expect(reader, ',');
        if (value_of(reader, argument(reader, word(reader))))
            out->kind = FG_RB_UPDATE;
    }
    expect(reader, ')');
    out->at = value_of(reader, out->arg);
    out->scratch = !strcmp(name, "ws");
    return out->at != FG_RB_NONE;
}

/* Effects about streams and events, and rules: `out->at` and `out->bytes` are their arguments. */
static void other(Reader *reader, FgRbEffect *out)
{
    if (out->kind == FG_RB_COMM) {
        const char *name = word(reader);
        out->bytes = !strcmp(name, "gather")   ? 1
                     : !strcmp(name, "reduce") ? 2
                     : !strcmp(name, "parts")  ? 3
                                               : 0;
        if (!out->bytes)
            wrong(reader, "there is no such communicator");
    } else if (out->kind != FG_RB_JOIN) {
        out->arg = argument(reader, word(reader));
        expect(reader, ',');
        out->other = argument(reader, word(reader));
        out->at = value_of(reader, out->arg);
        out->bytes = value_of(reader, out->other);
    }
    expect(reader, ')');
}

/* ---- rules ---- */

static void atmost(Reader *reader)
{
    expect(reader, '(');
    uint64_t a = sum(reader, 0);
    expect(reader, ',');
    uint64_t b = sum(reader, 0);
    expect(reader, ')');
    if (!reader->wrong && a > b)
        wrong(reader, fg_arena_printf(reader->eval->arena,
                                      "%llu is more than the %llu that its rule allows",
                                      (unsigned long long)a, (unsigned long long)b));
}

/* Operand `k` of the layout at `row` reaches no further than its `n` elements. */
static void stays_inside(Reader *reader, const int64_t *dims, const int64_t *strides, uint64_t rank,
                         uint64_t n)
{
    uint64_t last = 0, way;
    for (uint64_t i = 0; i < rank; i++)
        if (strides[i] < 0 ||
            __builtin_mul_overflow((uint64_t)(dims[i] - 1), (uint64_t)strides[i], &way) ||
            __builtin_add_overflow(last, way, &last))
            wrong(reader, "a stride of its layout is negative or too large");
    if (!reader->wrong && last >= n)
        wrong(reader, fg_arena_printf(reader->eval->arena,
                                      "its layout reaches element %llu of an operand of %llu",
                                      (unsigned long long)last, (unsigned long long)n));
}

static const int64_t *layout_row(Reader *reader, uint64_t layout, uint64_t operands,
                                 uint64_t *out_rank)
{
    const FgRbTable *table = reader->eval->tables->layouts;
    uint64_t n = table ? table->n_rows : 0;
    uint64_t rank = layout < n ? table->cells[layout].u : 0;
    *out_rank = rank;
    if (rank == 0 || rank > 64 || rank * (1 + operands) > n - layout - 1) {
        wrong(reader, "its layout is none of the table");
        return NULL;
    }
    int64_t *row = FG_NEW_ARRAY(reader->eval->arena, int64_t, rank * (1 + operands));
    for (uint64_t i = 0; i < rank * (1 + operands); i++)
        row[i] = (int64_t)table->cells[layout + 1 + i].u;
    return row;
}

static void strided(Reader *reader)
{
    uint64_t counts[4] = {0}, n = 0, rank, product = 1;
    expect(reader, '(');
    uint64_t layout = value_of(reader, argument(reader, word(reader)));
    while (n < 4 && accept(reader, ','))
        counts[n++] = sum(reader, 0);
    expect(reader, ')');
    if (reader->wrong)
        return;
    if (layout == FG_RB_NONE) {
        for (uint64_t i = 1; i < n; i++)
            if (counts[i] != counts[0])
                wrong(reader, "its operands differ in size, and it has no layout");
        return;
    }
    const int64_t *row = layout_row(reader, layout, n - 1, &rank);
    for (uint64_t i = 0; row && i < rank; i++)
        if (row[i] < 1 || __builtin_mul_overflow(product, (uint64_t)row[i], &product))
            wrong(reader, "a dim of its layout is not positive or too large");
    for (uint64_t k = 1; row && !reader->wrong && k < n; k++)
        stays_inside(reader, row, row + k * rank, rank, counts[k]);
    if (!reader->wrong && product != counts[0])
        wrong(reader, "its layout does not walk as many elements as it says");
}

static bool same_memory(const FgRbOperand *a, const FgRbOperand *b)
{
    return a->offset == b->offset && a->dtype == b->dtype && a->elements == b->elements;
}

/* Reads and writes of a function, one a row of its operands. Of a chain (`elementwise`) the last
 * row alone is written, has n elements, and may be the memory of a row that is like it: such a one
 * goes by the result's argument, the others by another one. */
static void operands(Reader *reader, bool chain)
{
    const FgRbTables *tables = reader->eval->tables;
    expect(reader, '(');
    uint32_t arg = argument(reader, word(reader));
    uint64_t first = value_of(reader, arg);
    expect(reader, ',');
    uint32_t other = argument(reader, word(reader));
    uint64_t count = value_of(reader, other), n = 0;
    if (chain) {
        expect(reader, ',');
        n = value_of(reader, argument(reader, word(reader)));
    }
    expect(reader, ')');
    if (first > tables->operands.len || count > tables->operands.len - first)
        wrong(reader, "its operands are none of the table");
    else if (chain && (count == 0 || tables->operands.data[first + count - 1].elements != n))
        wrong(reader, "its result has another number of elements");
    for (uint64_t i = first; !reader->wrong && i < first + count; i++) {
        const FgRbOperand *row = &tables->operands.data[i];
        const FgRbOperand *last = &tables->operands.data[first + count - 1];
        if (chain && row->written != (row == last))
            wrong(reader, "a chain writes its result, the last operand, and that alone");
        fg_vec_push(reader->eval->arena, reader->out,
                    ((FgRbEffect){.kind = row->written ? FG_RB_WRITE : FG_RB_READ,
                                  .arg = chain && !same_memory(row, last) ? other : arg,
                                  .at = row->offset,
                                  .bytes = row->bytes,
                                  .dtype = 1 + (uint32_t)row->dtype}));
    }
    if (chain)
        fg_vec_push(reader->eval->arena, reader->out,
                    ((FgRbEffect){.kind = FG_RB_INPLACE, .arg = arg, .other = arg}));
}

/* True when the word was a rule, or pushed its effects itself: then nothing is to be pushed. */
static bool rule(Reader *reader, const char *name)
{
    if (!strcmp(name, "atmost"))
        atmost(reader);
    else if (!strcmp(name, "strided"))
        strided(reader);
    else if (!strcmp(name, "operands") || !strcmp(name, "elementwise"))
        operands(reader, *name == 'e');
    else
        return false;
    return true;
}

static bool effect(Reader *reader, FgRbEffect *out)
{
    static const struct {
        const char *name;
        FgRbEffectKind kind;
    } kinds[] = {{"read", FG_RB_READ},   {"write", FG_RB_WRITE},     {"update", FG_RB_UPDATE},
                 {"fresh", FG_RB_WRITE}, {"release", FG_RB_RELEASE}, {"inplace", FG_RB_INPLACE},
                 {"comm", FG_RB_COMM},   {"record", FG_RB_RECORD},   {"wait", FG_RB_WAIT},
                 {"join", FG_RB_JOIN}};
    const uint32_t n = sizeof kinds / sizeof *kinds;
    const char *name = word(reader);
    uint32_t k = 0;
    while (k < n && strcmp(kinds[k].name, name))
        k++;
    *out = (FgRbEffect){0};
    if (k == n && rule(reader, name))
        return false;
    if (k == n) {
        wrong(reader, fg_arena_printf(reader->eval->arena, "'%s' is no effect", name));
        return false;
    }
    out->kind = kinds[k].kind;
    expect(reader, '(');
    switch (out->kind) {
    case FG_RB_READ:
    case FG_RB_WRITE:
    case FG_RB_UPDATE:
    case FG_RB_RELEASE:
        return range(reader, name, out);
    case FG_RB_INPLACE:
    case FG_RB_COMM:
    case FG_RB_RECORD:
    case FG_RB_WAIT:
    case FG_RB_JOIN:
    default:
        other(reader, out);
        return true;
    }
}

bool fg_rb_effects(FgRbEval *eval, const FgRbCall *call, FgRbEffectVec *out)
{
    Reader reader = {.eval = eval, .call = call, .at = call->entry->effects, .out = out};
    out->len = 0;
    while (!reader.wrong && *reader.at) {
        FgRbEffect one;
        if (*reader.at == ' ')
            reader.at++;
        else if (effect(&reader, &one))
            fg_vec_push(eval->arena, out, one);
    }
    return !reader.wrong ||
           fg_rb_fail(eval->diags, call->loc, "fg_rt_%s: %s", call->entry->name, reader.wrong);
}
