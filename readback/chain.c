/* Functions of a program for fused chains, and their kernels.
 *
 * What they say decides which bytes are touched, so they are not taken at their word: each has one
 * form, read here sign by sign. libclang has seen the same text and had nothing to say, and nothing
 * in it is spliced, defined or conditional (lexical.c): a text of this form has one meaning.
 *
 *   host     for (int64_t i = 0; i < n; i++) y[i] = value(x0[i], x1[i % m], x2[i / m]);
 *   kernel   packs p < packs of 8 elements, p from the thread's number in steps of all threads;
 *            then elements i from 8 packs on, below n, in the same way
 *   launch   n is the elements of the result, packs at most an eighth of it
 *
 * So i runs over [0, n), each operand is read below n, at i mod m below m, or at i / m below n / m;
 * how many elements there are is compared at each call (trace.c). What the value is becomes text
 * again, the `expression` of the plan's node. */
#include "readback/cursor.h"

#include <stdlib.h>
#include <string.h>

#ifdef FG_LIBCLANG

typedef struct Scan {
    FgArena *arena;
    const char *at, *end;
    FgRbChain *chain;
    bool ok;
} Scan;

/* ---- signs ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n';
}

/* The text comes next; a space in it is any run of spaces and line ends. */
static bool accept(Scan *s, const char *text)
{
    const char *at = s->at;
    for (; *text && at < s->end; text++) {
        if (*text != ' ') {
            if (*at++ != *text)
                return false;
            continue;
        }
        if (!is_space(*at))
            return false;
        while (at < s->end && is_space(*at))
            at++;
    }
    if (*text)
        return false;
    s->at = at;
    return true;
}

static void expect(Scan *s, const char *text)
{
    s->ok = s->ok && accept(s, text);
}

static void expect_number(Scan *s, const char *before, uint64_t number, const char *after)
{
    expect(s, fg_arena_printf(s->arena, "%s%llu%s", before, (unsigned long long)number, after));
}

/* A whole number without leading zeros; 0 for anything else. */
static int64_t number(Scan *s)
{
    int64_t value = 0;
    if (s->at < s->end && *s->at == '0')
        return 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        if (value > INT64_MAX / 16)
            return 0;
        value = value * 10 + (*s->at++ - '0');
    }
    return value;
}

static const char *const type_names[] = {"float", "FgBf16", "FgF16"}; /* as FgDtype counts */
static const char *const short_names[] = {"f32", "bf16", "f16"};
#define N_TYPES 3

/* ---- the value ---- */

static FgChainArg arg(Scan *s)
{
    FgChainArg out = {0};
    out.is_step = accept(s, "t");
    if (!out.is_step)
        expect(s, "x");
    bool zero = accept(s, "0");
    int64_t index = zero ? 0 : number(s);
    uint32_t n = out.is_step ? s->chain->value.steps.len : s->chain->n;
    s->ok = s->ok && (zero || index > 0) && index < (int64_t)n;
    out.index = (uint32_t)index;
    return out;
}

static double real(Scan *s)
{
    size_t n = 0;
    while (s->at + n < s->end && s->at[n] != ')')
        n++;
    char *end, *text = fg_arena_strndup(s->arena, s->at, n);
    double value = strtod(text, &end);
    s->ok = s->ok && n > 0 && !*end;
    s->at += n;
    return value;
}

/* `fg_chain_silu(x0)`, or `x0 * t1`, or `x0`. */
static void operation(Scan *s, FgChainStep *out)
{
    static const struct {
        const char *sign;
        FgChainOp op;
    } signs[] = {
        {" + ", FG_CHAIN_add}, {" - ", FG_CHAIN_sub}, {" * ", FG_CHAIN_mul}, {" / ", FG_CHAIN_div}};
    if (!accept(s, "fg_chain_")) {
        out->op = FG_CHAIN_keep;
        out->args[0] = arg(s);
        for (uint32_t i = 0; i < 4; i++)
            if (accept(s, signs[i].sign)) {
                out->op = signs[i].op;
                out->args[1] = arg(s);
                return;
            }
        return;
    }
    size_t n = 0;
    while (s->at + n < s->end && s->at[n] != '(')
        n++;
    s->ok = s->ok && fg_chain_op_parse(s->at, n, &out->op);
    if (!s->ok)
        return;
    const FgChainInfo *info = fg_chain_info(out->op);
    s->at += n;
    for (uint32_t i = 0; i < info->n_operands; i++) {
        expect(s, i ? ", " : "(");
        out->args[i] = arg(s);
    }
    if (info->number) {
        expect(s, ", ");
        out->number = real(s);
    }
    expect(s, ")");
}

/* `float t0 = fg_round_bf16(...);`; the last one is returned, and rounded where it is stored. */
static void step(Scan *s, bool *out_last)
{
    FgChainStep out = {.dtype = FG_F32};
    *out_last = accept(s, "return ");
    if (!*out_last)
        expect_number(s, "float t", s->chain->value.steps.len, " = ");
    for (uint32_t i = 1; i < N_TYPES && !*out_last && out.dtype == FG_F32; i++)
        if (accept(s, fg_arena_printf(s->arena, "fg_round_%s(", short_names[i])))
            out.dtype = (FgDtype)i;
    operation(s, &out);
    expect(s, out.dtype == FG_F32 ? "; " : "); ");
    fg_vec_push(s->arena, &s->chain->value.steps, out);
}

static void value(Scan *s)
{
    FgRbChain *chain = s->chain;
    expect(s, fg_arena_printf(s->arena, "FG_INLINE float value_%s(", chain->name));
    do
        expect_number(s, "float x", chain->n++, "");
    while (s->ok && accept(s, ", "));
    expect(s, ") { ");
    for (bool last = false; s->ok && !last;)
        step(s, &last);
    expect(s, "}");
}

/* ---- operands ---- */

static FgDtype type(Scan *s, const char *before, const char *after)
{
    expect(s, before);
    for (uint32_t i = 0; i < N_TYPES; i++)
        if (accept(s, fg_arena_printf(s->arena, "%s%s", type_names[i], after)))
            return (FgDtype)i;
    s->ok = false;
    return FG_F32;
}

/* `const float *x0, ..., FgBf16 *y, `: the same in every function of a chain. */
static void params(Scan *s)
{
    FgRbChain *chain = s->chain;
    uint64_t *dtypes = FG_NEW_ARRAY(s->arena, uint64_t, chain->n + 1);
    for (uint32_t k = 0; k < chain->n; k++)
        dtypes[k] = type(s, "const ", fg_arena_printf(s->arena, " *x%u, ", k));
    dtypes[chain->n] = type(s, "", " *y, ");
    for (uint32_t k = 0; chain->dtypes && k <= chain->n; k++)
        s->ok = s->ok && dtypes[k] == chain->dtypes[k];
    chain->dtypes = dtypes;
}

/* `i`, `i % m` or `i / m`: 0, m or -m, as the op's `repeat`. */
static int64_t index_of(Scan *s, const char *counter)
{
    expect(s, counter);
    bool row = accept(s, " % "), line = !row && accept(s, " / ");
    int64_t m = row || line ? number(s) : 0;
    s->ok = s->ok && (m > 0 || !(row || line));
    return line ? -m : m;
}

/* `fg_from_bf16(x0[i % 64])`: what the index is. */
static int64_t load(Scan *s, uint32_t k, const char *counter)
{
    FgDtype dtype = (FgDtype)s->chain->dtypes[k];
    if (dtype != FG_F32)
        expect(s, fg_arena_printf(s->arena, "fg_from_%s(", short_names[dtype]));
    expect_number(s, "x", k, "[");
    int64_t repeat = index_of(s, counter);
    expect(s, dtype == FG_F32 ? "]" : "])");
    return repeat;
}

/* `y[i] = fg_to_bf16(value(...));` gives the repetitions. */
static void assignment(Scan *s)
{
    FgRbChain *chain = s->chain;
    FgDtype to = (FgDtype)chain->dtypes[chain->n];
    int64_t *repeat = FG_NEW_ARRAY(s->arena, int64_t, chain->n + 1);
    expect(s, "y[i] = ");
    if (to != FG_F32)
        expect(s, fg_arena_printf(s->arena, "fg_to_%s(", short_names[to]));
    expect(s, fg_arena_printf(s->arena, "value_%s(", chain->name));
    for (uint32_t k = 0; s->ok && k < chain->n; k++) {
        if (k)
            expect(s, ", ");
        repeat[k] = load(s, k, "i");
    }
    expect(s, to == FG_F32 ? "); }" : ")); }");
    chain->repeat = repeat;
    chain->value.steps.data[chain->value.steps.len - 1].dtype = to;
}

/* `int64_t n = fg_custom_elements(call, 3); `, of the result. */
static void elements(Scan *s)
{
    expect_number(s, "const FgCustom *call) { int64_t n = fg_custom_elements(call, ", s->chain->n,
                  "); ");
}

static void host_loop(Scan *s)
{
    expect(s, fg_arena_printf(s->arena, "static void %s(", s->chain->name));
    params(s);
    elements(s);
    expect(s, "for (int64_t i = 0; i < n; i++) ");
    assignment(s);
}

/* ---- kernels ---- */

typedef struct Pack {
    bool whole;     /* eight elements; otherwise one for all */
    int64_t repeat; /* of packs */
} Pack;

static void pack_loop(Scan *s, Pack *packs)
{
    const char *name = s->chain->name;
    expect(s, "for (int64_t p = fg_thread(); p < packs; p += fg_threads()) { ");
    for (uint32_t k = 0; s->ok && k < s->chain->n; k++) {
        expect_number(s, "FgPack a", k, " = ");
        packs[k].whole = accept(s, fg_arena_printf(s->arena, "fg_pack(x%u, ", k));
        if (!packs[k].whole)
            expect(s, "fg_pack_of(");
        packs[k].repeat = packs[k].whole ? index_of(s, "p") : load(s, k, "p");
        expect(s, "); ");
    }
    expect(s, fg_arena_printf(s->arena, "FgPack b; for (int j = 0; j < 8; j++) b.v[j] = value_%s(",
                              name));
    for (uint32_t k = 0; s->ok && k < s->chain->n; k++)
        expect_number(s, k ? ", a" : "a", k, ".v[j]");
    expect(s, "); fg_unpack(y, p, b); } ");
}

/* The pack p reads what its elements 8 p to 8 p + 7 read one by one. */
static bool same_elements(const Pack *pack, int64_t repeat)
{
    if (repeat == 0)
        return pack->whole && pack->repeat == 0;
    if (repeat == 1)
        return !pack->whole && pack->repeat == 1;
    return repeat % 8 == 0 && pack->repeat == repeat / 8 && pack->whole == (repeat > 0);
}

static void kernel(Scan *s)
{
    FgRbChain *chain = s->chain;
    Pack *packs = FG_NEW_ARRAY(s->arena, Pack, chain->n + 1);
    expect(s, fg_arena_printf(s->arena, "FG_KERNEL kernel_%s(", chain->name));
    params(s);
    expect(s, "int64_t n");
    chain->packed = accept(s, ", int64_t packs");
    expect(s, ") { ");
    if (chain->packed)
        pack_loop(s, packs);
    expect(s, chain->packed ? "for (int64_t i = 8 * packs + fg_thread(); i < n; i += fg_threads()) "
                            : "for (int64_t i = fg_thread(); i < n; i += fg_threads()) ");
    if (s->ok)
        assignment(s);
    for (uint32_t k = 0; s->ok && chain->packed && k < chain->n; k++)
        s->ok = same_elements(&packs[k], chain->repeat[k]);
}

static void launch(Scan *s)
{
    FgRbChain *chain = s->chain;
    expect(s, fg_arena_printf(s->arena, "extern \"C\" void %s(", chain->name));
    params(s);
    elements(s);
    if (chain->packed)
        expect(s, "int64_t packs = fg_chain_packs(call); ");
    expect(s, fg_arena_printf(s->arena,
                              "kernel_%s<<<fg_chain_blocks(n, %s), FG_CHAIN_THREADS, 0, "
                              "fg_chain_stream(call)>>>(",
                              chain->name, chain->packed ? "packs" : "0"));
    for (uint32_t k = 0; s->ok && k < chain->n; k++)
        expect_number(s, "x", k, ", ");
    expect(s, chain->packed ? "y, n, packs); }" : "y, n); }");
}

/* ---- functions ---- */

static FgRbChain *chain_named(const FgRbChainCx *cx, const char *name)
{
    for (uint32_t i = 0; i < cx->source->chains.len; i++)
        if (!strcmp(cx->source->chains.data[i]->name, name))
            return cx->source->chains.data[i];
    return NULL;
}

/* `fused_` and a number: a name that no other one begins with. */
static bool is_name(const char *name)
{
    return !strncmp(name, "fused_", 6) && name[6] &&
           strspn(name + 6, "0123456789") == strlen(name + 6);
}

/* The text of a declaration, as it stands in the program. */
static Scan scan_of(const FgRbChainCx *cx, CXCursor cursor, FgRbChain *chain)
{
    unsigned from = 0, to = 0;
    CXFile file;
    CXSourceRange range = cx->clang->getCursorExtent(cursor);
    cx->clang->getExpansionLocation(cx->clang->getRangeStart(range), &file, NULL, NULL, &from);
    cx->clang->getExpansionLocation(cx->clang->getRangeEnd(range), &file, NULL, NULL, &to);
    bool ok = from <= to && to <= cx->len;
    return (Scan){cx->source->arena, cx->text + (ok ? from : 0), cx->text + (ok ? to : 0), chain,
                  ok};
}

static const char *read(const FgRbChainCx *cx, CXCursor cursor, FgRbChain *chain,
                        void (*form)(Scan *s), const char *wrong)
{
    Scan s = scan_of(cx, cursor, chain);
    form(&s);
    return s.ok && s.at == s.end ? NULL : wrong;
}

static const char *read_value(const FgRbChainCx *cx, CXCursor cursor, const char *name)
{
    if (!is_name(name) || chain_named(cx, name))
        return "a second function of that name, or no chain's";
    FgRbChain *chain = FG_NEW(cx->source->arena, FgRbChain);
    chain->name = name;
    fg_vec_push(cx->source->arena, &cx->source->chains, chain);
    return read(cx, cursor, chain, value, "an element of a chain has another form");
}

/* The function that follows a chain's earlier ones: `stage` of them. */
static const char *read_next(const FgRbChainCx *cx, CXCursor cursor, const char *name,
                             uint32_t stage, void (*form)(Scan *s), const char *wrong)
{
    FgRbChain *chain = chain_named(cx, name);
    if (!chain || chain->stage != stage)
        return "functions of a chain stand in their order, each once";
    chain->stage++;
    chain->called = form != kernel;
    return read(cx, cursor, chain, form, wrong);
}

const char *fg_rb_chain_function(const FgRbChainCx *cx, CXCursor cursor, const char *name)
{
    if (!strncmp(name, "value_", 6))
        return read_value(cx, cursor, name + 6);
    if (!cx->cuda)
        return read_next(cx, cursor, name, 0, host_loop, "the loop of a chain has another form");
    if (!strncmp(name, "kernel_", 7))
        return read_next(cx, cursor, name + 7, 0, kernel, "a kernel of a chain has another form");
    return read_next(cx, cursor, name, 1, launch, "the launch of a chain has another form");
}

const char *fg_rb_chain_declared(const FgRbSource *source, FgRbCustomFn *function)
{
    for (uint32_t i = 0; i < source->chains.len && !function->chain; i++) {
        FgRbChain *chain = source->chains.data[i];
        if (chain->called && !strcmp(chain->name, function->name))
            function->chain = chain;
    }
    const FgRbChain *chain = function->chain;
    if (!chain || function->n_operands != chain->n + 1)
        return "a chain whose function is not there, or has other operands";
    for (uint32_t k = 0; k <= chain->n; k++)
        if (function->dtypes[k] != chain->dtypes[k] || function->constant[k] != (k < chain->n))
            return "a chain whose function has other operands";
    return NULL;
}

#endif
