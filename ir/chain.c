/* Expressions of fused chains: text to steps and back. */
#include "ir/chain.h"

#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const FgChainInfo infos[FG_N_CHAIN_OPS] = {
#define FG_CHAIN(name, operands, number) [FG_CHAIN_##name] = {#name, operands, number},
#include "ir/chain.def"
#undef FG_CHAIN
};

const FgChainInfo *fg_chain_info(FgChainOp op)
{
    return &infos[op];
}

bool fg_chain_op_parse(const char *name, size_t len, FgChainOp *out)
{
    for (uint32_t i = 0; i < FG_N_CHAIN_OPS; i++) {
        if (strlen(infos[i].name) == len && memcmp(infos[i].name, name, len) == 0) {
            *out = (FgChainOp)i;
            return true;
        }
    }
    return false;
}

bool fg_chain_takes(FgDtype dtype)
{
    return dtype == FG_F32 || dtype == FG_BF16 || dtype == FG_F16;
}

/* ---- reading ---- */

typedef struct Reader {
    FgArena *arena;
    const char *at;
    FgChain *out;
    FG_VEC(bool) used; /* step: a later one reads it */
    const char *error;
} Reader;

static bool wrong(Reader *r, const char *what)
{
    if (!r->error)
        r->error = fg_arena_printf(r->arena, "%s at '%.24s'", what, r->at);
    return false;
}

static bool accept(Reader *r, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

static size_t word(const Reader *r)
{
    return strspn(r->at, "abcdefghijklmnopqrstuvwxyz_0123456789");
}

static bool read_index(Reader *r, uint32_t *out)
{
    char *end;
    if (*r->at < '0' || *r->at > '9' || (*r->at == '0' && r->at[1] >= '0' && r->at[1] <= '9'))
        return wrong(r, "expected a number");
    unsigned long long value = strtoull(r->at, &end, 10);
    if (value > 1u << 20)
        return wrong(r, "too large a number");
    r->at = end;
    *out = (uint32_t)value;
    return true;
}

static bool read_arg(Reader *r, FgChainArg *out)
{
    out->is_step = *r->at == 't';
    if (!accept(r, "t") && !accept(r, "x"))
        return wrong(r, "expected an operand, 'x', or a step, 't'");
    if (!read_index(r, &out->index))
        return false;
    if (out->is_step && out->index >= r->out->steps.len)
        return wrong(r, "a step that does not stand before");
    if (!out->is_step && out->index > r->out->n_operands)
        return wrong(r, "operands are named in the order in which they come first");
    if (out->is_step)
        r->used.data[out->index] = true;
    else if (out->index == r->out->n_operands)
        r->out->n_operands++;
    return true;
}

static bool read_number(Reader *r, double *out)
{
    char *end;
    double value = strtod(r->at, &end);
    if (end == r->at || !isfinite(value) || (double)(float)value != value ||
        strncmp(fg_double_text(r->arena, value), r->at, (size_t)(end - r->at)) != 0)
        return wrong(r, "expected a finite number of an f32, in its shortest form");
    r->at = end;
    *out = value;
    return true;
}

static bool read_dtype(Reader *r, FgDtype *out)
{
    size_t n = word(r);
    char name[8] = "";
    if (n > 0 && n < sizeof name)
        memcpy(name, r->at, n);
    if (!fg_dtype_parse(name, out) || !fg_chain_takes(*out))
        return wrong(r, "expected f32, bf16 or f16");
    r->at += n;
    return true;
}

static bool read_step(Reader *r)
{
    FgChainStep step = {0};
    size_t n = word(r);
    if (!fg_chain_op_parse(r->at, n, &step.op))
        return wrong(r, "expected the name of a step");
    r->at += n;
    const FgChainInfo *info = &infos[step.op];
    for (uint32_t i = 0; i < info->n_operands; i++)
        if (!(accept(r, i ? ", " : "(") || wrong(r, i ? "expected ', '" : "expected '('")) ||
            !read_arg(r, &step.args[i]))
            return false;
    if (info->number &&
        (!(accept(r, ", ") || wrong(r, "expected ', '")) || !read_number(r, &step.number)))
        return false;
    if (!(accept(r, ") ") || wrong(r, "expected ') '")) || !read_dtype(r, &step.dtype))
        return false;
    fg_vec_push(r->arena, &r->out->steps, step);
    fg_vec_push(r->arena, &r->used, false);
    return true;
}

bool fg_chain_parse(FgArena *arena, const char *text, FgChain *out, const char **out_error)
{
    Reader r = {.arena = arena, .at = text, .out = out};
    *out = (FgChain){0};
    bool ok = read_step(&r);
    while (ok && *r.at)
        ok = (accept(&r, "; ") || wrong(&r, "expected '; '")) && read_step(&r);
    for (uint32_t i = 0; ok && i + 1 < out->steps.len; i++)
        if (!r.used.data[i])
            ok = wrong(&r, fg_arena_printf(arena, "nothing reads t%u", i));
    *out_error = r.error;
    return ok;
}

/* ---- writing ---- */

const char *fg_chain_text(FgArena *arena, const FgChain *chain)
{
    FgBuf out;
    fg_buf_init(&out, arena);
    for (uint32_t i = 0; i < chain->steps.len; i++) {
        const FgChainStep *step = &chain->steps.data[i];
        const FgChainInfo *info = &infos[step->op];
        fg_buf_printf(&out, "%s%s(", i ? "; " : "", info->name);
        for (uint32_t k = 0; k < info->n_operands; k++)
            fg_buf_printf(&out, "%s%c%u", k ? ", " : "", step->args[k].is_step ? 't' : 'x',
                          step->args[k].index);
        if (info->number)
            fg_buf_printf(&out, ", %s", fg_double_text(arena, step->number));
        fg_buf_printf(&out, ") %s", fg_dtype_name(step->dtype));
    }
    return fg_buf_text(&out);
}
