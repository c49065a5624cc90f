/* diff's alignment: what is equal, what moved and how far, what only one side has; against a naive
 * subsequence on random orders. */
#include "tests/unit/unit.h"
#include "tools/command/align.h"

#include <stdbool.h>

/* Lines named by letters; capitals are work of the compute stream. */
static FgLines lines_of(FgArena *arena, const char *letters)
{
    FgLines lines = {0};
    uint32_t compute = 0;
    for (const char *c = letters; *c; c++) {
        bool computes = *c >= 'A' && *c <= 'Z';
        FgLine line = {fg_arena_strndup(arena, c, 1), 0, compute, 0, computes};
        compute += computes;
        fg_vec_push(arena, &lines, line);
    }
    return lines;
}

/* "3= >g:2 -h +x": the changes as text. */
static const char *text_of(FgArena *arena, const FgChanges *changes)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    for (uint32_t i = 0; i < changes->len; i++) {
        const FgChange *c = &changes->data[i];
        const char *name = c->right ? c->right->text : c->left->text;
        fg_buf_puts(&text, i ? " " : "");
        if (c->kind == FG_CHANGE_EQUAL)
            fg_buf_printf(&text, "%u=", c->n);
        else if (c->kind == FG_CHANGE_MOVED)
            fg_buf_printf(&text, ">%s:%d", name, (int)c->earlier);
        else
            fg_buf_printf(&text, "%s%s", c->kind == FG_CHANGE_ADDED ? "+" : "-", name);
    }
    return fg_buf_text(&text);
}

static void expect(int *failures, const char *left, const char *right, const char *want)
{
    FgArena *arena = fg_arena_new();
    FgLines l = lines_of(arena, left), r = lines_of(arena, right);
    FgChanges changes = fg_align(arena, &l, &r);
    CHECK_STR(text_of(arena, &changes), want);
    fg_arena_free(arena);
}

static void small_cases(int *failures)
{
    expect(failures, "", "", "");
    expect(failures, "ABC", "ABC", "3=");
    expect(failures, "", "AB", "+A +B");
    expect(failures, "AB", "", "-A -B");
    expect(failures, "ABCDg", "AgBCD", "1= >g:3 3=");
    expect(failures, "gABC", "ABgC", "2= >g:-2 1=");
    expect(failures, "AgBhC", "AgBC", "3= -h 1=");
    expect(failures, "ABC", "AgBC", "1= +g 2=");
}

/* Compute work is what the rest moves against, even where moving it would be fewer changes. */
static void compute_stands_still(int *failures)
{
    expect(failures, "Aghij", "ghijA", ">g:1 >h:1 >i:1 >j:1 1=");
    expect(failures, "ghA", "Ahg", "1= >h:-1 >g:-1");
    expect(failures, "AghB", "AhgB", "1= >h:0 2=");
}

/* Weight of the heaviest common subsequence by the quadratic definition. */
static uint32_t naive(const FgLines *l, const FgLines *r)
{
    uint32_t best[27][27] = {{0}};
    for (uint32_t i = 1; i <= l->len; i++) {
        for (uint32_t j = 1; j <= r->len; j++) {
            uint32_t weight = l->data[i - 1].computes ? r->len + 1 : 1;
            uint32_t up = best[i - 1][j], side = best[i][j - 1];
            best[i][j] = up > side ? up : side;
            if (strcmp(l->data[i - 1].text, r->data[j - 1].text) == 0 &&
                best[i - 1][j - 1] + weight > best[i][j])
                best[i][j] = best[i - 1][j - 1] + weight;
        }
    }
    return best[l->len][r->len];
}

static uint32_t weight_of(const FgChanges *changes, uint32_t n_right)
{
    uint32_t weight = 0;
    for (uint32_t i = 0; i < changes->len; i++) {
        for (uint32_t k = 0; changes->data[i].kind == FG_CHANGE_EQUAL && k < changes->data[i].n;
             k++)
            weight += changes->data[i].right[k].computes ? n_right + 1 : 1;
    }
    return weight;
}

static uint32_t next(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* A random selection of 26 letters in random order. */
static void shuffle(uint64_t *seed, char *out)
{
    char letters[] = "ABCDEFGHIJKLMnopqrstuvwxyz";
    uint32_t n = 26, keep = next(seed, 26);
    for (uint32_t i = 0; i < keep; i++) {
        uint32_t at = next(seed, n);
        out[i] = letters[at];
        letters[at] = letters[--n];
    }
    out[keep] = 0;
}

static void random_orders(int *failures)
{
    uint64_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        FgArena *arena = fg_arena_new();
        char a[27], b[27];
        shuffle(&seed, a);
        shuffle(&seed, b);
        FgLines l = lines_of(arena, a), r = lines_of(arena, b);
        FgChanges changes = fg_align(arena, &l, &r);
        uint32_t lines = 0;
        for (uint32_t i = 0; i < changes.len; i++)
            lines += changes.data[i].kind == FG_CHANGE_EQUAL ? changes.data[i].n
                                                             : changes.data[i].right != NULL;
        CHECK_EQ_U64(lines, r.len); /* every right line stands in one change */
        CHECK_EQ_U64(weight_of(&changes, r.len), naive(&l, &r));
        fg_arena_free(arena);
    }
}

UNIT_MAIN({"small_cases", small_cases}, {"compute_stands_still", compute_stands_still},
          {"random_orders", random_orders})
