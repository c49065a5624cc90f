/* Integer expressions of dims: + - * / and parentheses, exact. A division that leaves a remainder,
 * an overflow and a division by zero are errors, never a silently wrong size. */
#ifndef FG_FRONTEND_EXPR_H
#define FG_FRONTEND_EXPR_H

#include "base/diag.h"

typedef struct FgExprError {
    size_t at; /* byte of the text */
    FgDiagId id;
    const char *text; /* NULL: the lookup has reported it */
} FgExprError;

/* The value of a name; false after reporting that there is none. `at` is the name's place in the
 * text. */
typedef bool FgExprLookup(void *user, const char *name, size_t at, int64_t *out);

/* False with *out_error. Texts are arena-owned. */
bool fg_expr_eval(FgArena *arena, const char *text, FgExprLookup *lookup, void *user, int64_t *out,
                  FgExprError *out_error);

#endif
