/* Expressions of dims. */
#include "frontend/expr.h"
#include "tests/unit/unit.h"

static bool look_up(void *user, const char *name, size_t at, int64_t *out)
{
    (void)user;
    (void)at;
    if (strcmp(name, "hidden") == 0)
        *out = 64;
    else if (strcmp(name, "h_2") == 0)
        *out = 7;
    else
        return false;
    return true;
}

static void values(int *failures)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"7", 7},
                 {" hidden / 4 ", 16},
                 {"hidden * 5 / 2", 160},
                 {"2+3*4", 14},
                 {"(2+3)*4", 20},
                 {"10-3-2", 5},
                 {"64/4/2", 8},
                 {"-h_2+8", 1},
                 {"-2*-3", 6},
                 {"-(1+2)", -3},
                 {"9223372036854775807", INT64_MAX},
                 {"(((((hidden)))))", 64}};
    FgArena *a = fg_arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t out = 0;
        FgExprError error;
        CHECK(fg_expr_eval(a, cases[i].text, look_up, NULL, &out, &error));
        if (out != cases[i].value)
            printf("in '%s':\n", cases[i].text);
        CHECK_EQ_U64(out, cases[i].value);
    }
    fg_arena_free(a);
}

static void errors(int *failures)
{
    static const struct {
        const char *text;
        size_t at;
        FgDiagId id;
        bool reported; /* by the lookup: no text */
    } cases[] = {{"", 0, FG_D_BAD_EXPRESSION, false},
                 {"hidden / 5", 7, FG_D_BAD_EXPRESSION, false},
                 {"hidden / 0", 7, FG_D_BAD_EXPRESSION, false},
                 {"1 + ", 4, FG_D_BAD_EXPRESSION, false},
                 {"(1", 2, FG_D_BAD_EXPRESSION, false},
                 {"1)", 1, FG_D_BAD_EXPRESSION, false},
                 {"1 2", 2, FG_D_BAD_EXPRESSION, false},
                 {"2.5", 1, FG_D_BAD_EXPRESSION, false},
                 {"hidden % 3", 7, FG_D_BAD_EXPRESSION, false},
                 {"3 * nothing", 4, FG_D_BAD_EXPRESSION, true},
                 {"9223372036854775808", 0, FG_D_OVERFLOW, false},
                 {"9223372036854775807 + 1", 20, FG_D_OVERFLOW, false},
                 {"9223372036854775807 * hidden", 20, FG_D_OVERFLOW, false},
                 {"-9223372036854775807 - 2", 21, FG_D_OVERFLOW, false},
                 {"(-9223372036854775807 - 1) / -1", 27, FG_D_OVERFLOW, false}};
    FgArena *a = fg_arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t out = 0;
        FgExprError error = {99, FG_D_IO, NULL};
        bool ok = fg_expr_eval(a, cases[i].text, look_up, NULL, &out, &error);
        if (ok || error.at != cases[i].at || error.id != cases[i].id)
            printf("in '%s':\n", cases[i].text);
        CHECK(!ok);
        CHECK_EQ_U64(error.at, cases[i].at);
        CHECK_EQ_U64(error.id, cases[i].id);
        CHECK((error.text == NULL) == cases[i].reported);
    }
    fg_arena_free(a);
}

static void deep(int *failures)
{
    FgArena *a = fg_arena_new();
    char *text = fg_arena_alloc(a, 2000001);
    FgExprError error;
    int64_t out;
    memset(text, '(', 2000000);
    CHECK(!fg_expr_eval(a, text, look_up, NULL, &out, &error));
    memset(text, '-', 2000000);
    CHECK(!fg_expr_eval(a, text, look_up, NULL, &out, &error));
    for (size_t i = 0; i + 1 < 2000000; i += 2)
        memcpy(text + i, "1+", 2);
    text[1999999] = '\0';
    CHECK(fg_expr_eval(a, text, look_up, NULL, &out, &error) && out == 1000000);
    fg_arena_free(a);
}

UNIT_MAIN({"values", values}, {"errors", errors}, {"deep", deep})
