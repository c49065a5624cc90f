/* diff for people: figures in columns, then each function's changes between runs of equal lines. */
#include "tools/command/compare.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define KEEP_EQUAL 2 /* a shorter run of equal lines is shown, not counted */

static const char *value_text(FgArena *arena, FgFigureKind kind, double x)
{
    if (kind == FG_FIGURE_BYTES)
        return fg_bytes_text(arena, (uint64_t)x);
    if (kind == FG_FIGURE_COUNT)
        return fg_count_text(arena, (uint64_t)x);
    if (x >= 1e6)
        return fg_arena_printf(arena, "%.2f s", x / 1e6);
    return x >= 1e3 ? fg_arena_printf(arena, "%.2f ms", x / 1e3)
                    : fg_arena_printf(arena, "%.0f us", x);
}

static const char *change_text(FgArena *arena, const FgFigure *f)
{
    if (f->left == f->right)
        return "=";
    if (f->kind == FG_FIGURE_COUNT)
        return fg_arena_printf(arena, "%+.0f", f->right - f->left);
    if (f->left == 0)
        return "new";
    return fg_arena_printf(arena, "%+.1f %%", (f->right / f->left - 1) * 100);
}

static void put_figures(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    fg_buf_printf(out, "%-18s %14s %14s %10s\n", "", c->left.name, c->right.name, "change");
    for (uint32_t i = 0; i < c->figures.len; i++) {
        const FgFigure *f = &c->figures.data[i];
        fg_buf_printf(out, "%s%-*s %14s %14s %10s\n", f->part ? "  " : "", f->part ? 16 : 18,
                      f->label, value_text(arena, f->kind, f->left),
                      value_text(arena, f->kind, f->right), change_text(arena, f));
    }
}

static bool is_gather(const FgComparison *c, const FgChange *change)
{
    return change->right ? c->right.module->nodes.data[change->right->node].op == FG_OP_gather
                         : c->left.module->nodes.data[change->left->node].op == FG_OP_gather;
}

/* Whether the other side gathers the bucket of this line at all in the function. */
static bool gathers_bucket(const FgModule *m, const FgLines *lines, const FgModule *of,
                           const FgLine *line)
{
    const char *name = of->buckets.data[of->nodes.data[line->node].bucket].name;
    for (uint32_t i = 0; i < lines->len; i++) {
        const FgNode *node = &m->nodes.data[lines->data[i].node];
        if (node->op == FG_OP_gather && strcmp(m->buckets.data[node->bucket].name, name) == 0)
            return true;
    }
    return false;
}

static const char *moved_text(FgArena *arena, const FgChange *change, bool gather)
{
    const char *how;
    uint64_t n = (uint64_t)(change->earlier < 0 ? -change->earlier : change->earlier);
    if (n == 0)
        how = "same place, other order of issue";
    else
        how = fg_arena_printf(arena, "%" PRIu64 " node%s %s", n, n == 1 ? "" : "s",
                              change->earlier > 0 ? "earlier" : "later");
    return gather ? fg_arena_printf(arena, "%s, %u ahead of its use", how, change->right->ahead)
                  : how;
}

static void put_change(FgArena *arena, const FgComparison *c, const FgFuncDiff *f,
                       const FgChange *change, FgBuf *out)
{
    bool gather = is_gather(c, change);
    const char *note = "";
    if (change->kind == FG_CHANGE_MOVED)
        note = moved_text(arena, change, gather);
    else if (change->kind == FG_CHANGE_REMOVED && gather)
        note = gathers_bucket(c->right.module, &f->right, c->left.module, change->left)
                   ? "kept: still gathered from before"
                   : "not gathered";
    else if (change->kind == FG_CHANGE_ADDED && gather)
        note = gathers_bucket(c->left.module, &f->left, c->right.module, change->right)
                   ? "gathered again"
                   : "gathered";
    static const char marks[] = {'=', '>', '-', '+'};
    const FgLine *line = change->right ? change->right : change->left;
    if (*note)
        fg_buf_printf(out, "  %c %-46s %s\n", marks[change->kind], line->text, note);
    else
        fg_buf_printf(out, "  %c %s\n", marks[change->kind], line->text);
}

static void put_equal(const FgChange *change, FgBuf *out)
{
    if (change->n > KEEP_EQUAL) {
        fg_buf_printf(out, "    ... %u equal\n", change->n);
        return;
    }
    for (uint32_t i = 0; i < change->n; i++)
        fg_buf_printf(out, "    %s\n", change->right[i].text);
}

/* "@step: 14 gathers earlier, 2 later, 3 kept, 1 again; 2 other lines differ" */
static void put_counts(const FgComparison *c, const FgFuncDiff *f, FgBuf *out)
{
    uint32_t n[5] = {0};
    static const char *const words[] = {"earlier", "later", "fewer (kept)", "more (again)"};
    for (uint32_t i = 0; i < f->changes.len; i++) {
        const FgChange *change = &f->changes.data[i];
        if (change->kind == FG_CHANGE_EQUAL)
            continue;
        if (!is_gather(c, change) || (change->kind == FG_CHANGE_MOVED && change->earlier == 0))
            n[4]++;
        else if (change->kind == FG_CHANGE_MOVED)
            n[change->earlier > 0 ? 0 : 1]++;
        else
            n[change->kind == FG_CHANGE_REMOVED ? 2 : 3]++;
    }
    const char *between = "gathers:";
    for (uint32_t i = 0; i < 4; i++) {
        if (n[i])
            fg_buf_printf(out, "%s %u %s", between, n[i], words[i]);
        between = n[i] ? "," : between;
    }
    if (n[4])
        fg_buf_printf(out, "%s%u other line%s moved or changed", *between == ',' ? "; " : "", n[4],
                      n[4] == 1 ? "" : "s");
    fg_buf_puts(out, "\n");
}

static void put_func(FgArena *arena, const FgComparison *c, const FgFuncDiff *f, FgBuf *out)
{
    if (!f->differs) {
        fg_buf_printf(out, "\n@%s: %u nodes, equal\n", f->name, f->left.len);
        return;
    }
    fg_buf_printf(out, "\n@%s: %u nodes against %u; ", f->name, f->left.len, f->right.len);
    put_counts(c, f, out);
    for (uint32_t i = 0; i < f->changes.len; i++) {
        if (f->changes.data[i].kind == FG_CHANGE_EQUAL)
            put_equal(&f->changes.data[i], out);
        else
            put_change(arena, c, f, &f->changes.data[i], out);
    }
}

static void put_verdict(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    if (c->budget != UINT64_MAX && c->left.too_big)
        fg_buf_printf(out,
                      "%s does not fit the %s there are; its figures are those it would have\n",
                      c->left.name, fg_bytes_text(arena, c->budget));
    if (!c->differs)
        fg_buf_puts(out, "no difference\n");
}

void fg_comparison_text(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    fg_buf_printf(out, "%s: %s against %s", c->right.module->name, c->left.name, c->right.name);
    if (c->right.module->ranks)
        fg_buf_printf(out, ", %u rank%s", c->right.module->ranks,
                      c->right.module->ranks == 1 ? "" : "s");
    if (c->budget != UINT64_MAX)
        fg_buf_printf(out, ", budget %s", fg_bytes_text(arena, c->budget));
    fg_buf_puts(out, "\n");
    put_verdict(arena, c, out);
    if (c->figures.len)
        put_figures(arena, c, out);
    for (uint32_t i = 0; i < c->funcs.len; i++)
        put_func(arena, c, &c->funcs.data[i], out);
}
