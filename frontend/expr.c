/* Recursive descent, evaluating as it goes:
 *
 *   sum     = product { ("+" | "-") product }
 *   product = factor { ("*" | "/") factor }
 *   factor  = "-" factor | number | name | "(" sum ")" */
#include "frontend/expr.h"

#include "base/checked.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#define DEPTH_LIMIT 50

typedef struct Expr {
    FgArena *arena;
    const char *text, *p;
    FgExprLookup *lookup;
    void *user;
    FgExprError *error;
    int depth;
} Expr;

static bool fail(Expr *e, const char *at, FgDiagId id, const char *text)
{
    *e->error = (FgExprError){(size_t)(at - e->text), id, text};
    return false;
}

static bool overflow(Expr *e, const char *at)
{
    return fail(e, at, FG_D_OVERFLOW, "this expression overflows 64 bits");
}

static char peek(Expr *e)
{
    while (*e->p == ' ' || *e->p == '\t')
        e->p++;
    return *e->p;
}

static bool parse_sum(Expr *e, int64_t *out);
static bool parse_factor(Expr *e, int64_t *out);

static bool parse_number(Expr *e, int64_t *out)
{
    const char *start = e->p;
    int64_t value = 0;
    for (; isdigit((unsigned char)*e->p); e->p++) {
        if (!fg_mul_i64(value, 10, &value) || !fg_add_i64(value, *e->p - '0', &value))
            return overflow(e, start);
    }
    *out = value;
    return true;
}

static bool parse_name(Expr *e, int64_t *out)
{
    const char *start = e->p;
    while (isalnum((unsigned char)*e->p) || *e->p == '_')
        e->p++;
    const char *name = fg_arena_strndup(e->arena, start, (size_t)(e->p - start));
    if (e->lookup(e->user, name, (size_t)(start - e->text), out))
        return true;
    return fail(e, start, FG_D_BAD_EXPRESSION, NULL);
}

static bool parse_factor_here(Expr *e, int64_t *out)
{
    char c = peek(e);
    const char *start = e->p;
    if (isdigit((unsigned char)c))
        return parse_number(e, out);
    if (isalpha((unsigned char)c) || c == '_')
        return parse_name(e, out);
    if (c == '-') {
        e->p++;
        int64_t value;
        if (!parse_factor(e, &value))
            return false;
        return fg_mul_i64(value, -1, out) || overflow(e, start);
    }
    if (c != '(')
        return fail(e, start, FG_D_BAD_EXPRESSION, "expected a number, a dim or '('");
    e->p++;
    if (!parse_sum(e, out))
        return false;
    if (peek(e) != ')')
        return fail(e, e->p, FG_D_BAD_EXPRESSION, "expected ')'");
    e->p++;
    return true;
}

static bool parse_factor(Expr *e, int64_t *out)
{
    if (e->depth >= DEPTH_LIMIT)
        return fail(e, e->p, FG_D_BAD_EXPRESSION, "this expression is nested too deep");
    e->depth++;
    bool ok = parse_factor_here(e, out);
    e->depth--;
    return ok;
}

static bool divide(Expr *e, const char *at, int64_t a, int64_t b, int64_t *out)
{
    if (b == 0)
        return fail(e, at, FG_D_BAD_EXPRESSION, "division by zero");
    if (b == -1)
        return fg_mul_i64(a, -1, out) || overflow(e, at);
    if (a % b != 0)
        return fail(
            e, at, FG_D_BAD_EXPRESSION,
            fg_arena_printf(e->arena, "%" PRId64 " / %" PRId64 " leaves a remainder", a, b));
    *out = a / b;
    return true;
}

static bool parse_product(Expr *e, int64_t *out)
{
    if (!parse_factor(e, out))
        return false;
    for (char c; (c = peek(e)) == '*' || c == '/';) {
        const char *at = e->p++;
        int64_t right;
        if (!parse_factor(e, &right))
            return false;
        if (c == '/' ? !divide(e, at, *out, right, out)
                     : !fg_mul_i64(*out, right, out) && !overflow(e, at))
            return false;
    }
    return true;
}

static bool parse_sum(Expr *e, int64_t *out)
{
    if (!parse_product(e, out))
        return false;
    for (char c; (c = peek(e)) == '+' || c == '-';) {
        const char *at = e->p++;
        int64_t right;
        if (!parse_product(e, &right))
            return false;
        bool fits =
            c == '+' ? fg_add_i64(*out, right, out) : !__builtin_sub_overflow(*out, right, out);
        if (!fits)
            return overflow(e, at);
    }
    return true;
}

bool fg_expr_eval(FgArena *arena, const char *text, FgExprLookup *lookup, void *user, int64_t *out,
                  FgExprError *out_error)
{
    Expr e = {arena, text, text, lookup, user, out_error, 0};
    if (!parse_sum(&e, out))
        return false;
    if (peek(&e) != '\0')
        return fail(&e, e.p, FG_D_BAD_EXPRESSION, "expected an operator or the end");
    return true;
}
