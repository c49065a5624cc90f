/* diff for people: figures in columns, then each function's changes between runs of equal lines. */
#include "tools/command/compare.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define KEEP_EQUAL 2 /* a shorter run of equal lines is shown, not counted */
#define COLLAPSE 4   /* so many changes that read alike are shown by the first and the last */

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
        return fg_arena_printf(arena, "%s%s", f->right > f->left ? "+" : "-",
                               fg_count_text(arena, (uint64_t)fabs(f->right - f->left)));
    if (f->left == 0)
        return "new";
    if (f->right >= 11 * f->left)
        return fg_arena_printf(arena, "%s x", fg_count_text(arena, (uint64_t)(f->right / f->left)));
    return fg_arena_printf(arena, "%+.1f %%", (f->right / f->left - 1) * 100);
}

/* Where the peak of a side is; "" for what is no schedule. */
static const char *peak_place(const FgSide *side)
{
    return side->scheduled && side->ledger.peak_phase ? side->ledger.peak_phase : "";
}

static int column_width(const FgComparison *c)
{
    const char *texts[] = {c->left.name, c->right.name, peak_place(&c->left),
                           peak_place(&c->right)};
    size_t n = 12;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        n = strlen(texts[i]) > n ? strlen(texts[i]) : n;
    return (int)n + 2;
}

/* The classes below a peak are those of its moment, and each side has its own. */
static void put_peak_places(const FgComparison *c, int w, FgBuf *out)
{
    const char *left = peak_place(&c->left), *right = peak_place(&c->right);
    fg_buf_printf(out, "  %-18s %*s %*s %10s\n", "its moment", w, left, w, right,
                  strcmp(left, right) == 0 ? "=" : "other");
}

static void put_figures(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    int w = column_width(c);
    fg_buf_printf(out, "%-20s %*s %*s %10s\n", "", w, c->left.name, w, c->right.name, "change");
    for (uint32_t i = 0; i < c->figures.len; i++) {
        const FgFigure *f = &c->figures.data[i];
        fg_buf_printf(out, "%s%-*s %*s %*s %10s\n", f->part ? "  " : "", f->part ? 18 : 20,
                      f->label, w, value_text(arena, f->kind, f->left), w,
                      value_text(arena, f->kind, f->right), change_text(arena, f));
        if (strcmp(f->key, "peak_bytes") == 0)
            put_peak_places(c, w, out);
    }
}

/* Is every gather of a side of persistent parameters alone? */
static bool all_persistent(const FgSide *side)
{
    const FgModule *m = side->module;
    for (uint32_t i = 0; side->scheduled && i < m->buckets.len; i++)
        if (strncmp(m->buckets.data[i].name, "persistent", 10) != 0)
            return false;
    return side->scheduled && m->buckets.len > 0;
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

static const char *distance_text(FgArena *arena, int64_t earlier)
{
    uint64_t n = (uint64_t)(earlier < 0 ? -earlier : earlier);
    if (n == 0)
        return "same place, other order of issue";
    return fg_arena_printf(arena, "%s node%s %s", fg_count_text(arena, n), n == 1 ? "" : "s",
                           earlier > 0 ? "earlier" : "later");
}

/* ", 15 ahead of its use, hidden" */
static const char *gather_text(FgArena *arena, const FgSide *side, const FgLine *line)
{
    const char *text =
        fg_arena_printf(arena, ", %s ahead of its use", fg_count_text(arena, line->ahead));
    if (!side->run)
        return text;
    double stall = side->run[line->node].stall_us;
    return stall < 0.5 ? fg_arena_printf(arena, "%s, hidden", text)
                       : fg_arena_printf(arena, "%s, %s exposed", text,
                                         value_text(arena, FG_FIGURE_US, stall));
}

/* What happened to a line, in words; "" when its mark says it all. */
static const char *note_text(FgArena *arena, const FgComparison *c, const FgFuncDiff *f,
                             const FgChange *change)
{
    bool gather = is_gather(c, change);
    FG_ASSERT(change->left || change->kind != FG_CHANGE_REMOVED);
    FG_ASSERT(change->right || change->kind == FG_CHANGE_REMOVED);
    if (change->kind == FG_CHANGE_MOVED)
        return fg_arena_printf(arena, "%s%s", distance_text(arena, change->earlier),
                               gather ? gather_text(arena, &c->right, change->right) : "");
    if (change->kind == FG_CHANGE_REMOVED && gather)
        return gathers_bucket(c->right.module, &f->right, c->left.module, change->left)
                   ? "kept: still gathered from before"
                   : "not gathered";
    if (change->kind == FG_CHANGE_ADDED && gather)
        return fg_arena_printf(
            arena, "%s%s",
            gathers_bucket(c->left.module, &f->left, c->right.module, change->right)
                ? "gathered again"
                : "gathered",
            gather_text(arena, &c->right, change->right));
    return "";
}

static void put_change(FgArena *arena, const FgComparison *c, const FgFuncDiff *f,
                       const FgChange *change, FgBuf *out)
{
    static const char marks[] = {'=', '>', '-', '+'};
    const FgLine *line = change->right ? change->right : change->left;
    const char *note = note_text(arena, c, f, change);
    if (*note)
        fg_buf_printf(out, "  %c %-44s  %s\n", marks[change->kind], line->text, note);
    else
        fg_buf_printf(out, "  %c %s\n", marks[change->kind], line->text);
}

/* Two changes that read alike but for a bucket's name: gathers moved by the same distance, say. */
static bool alike(FgArena *arena, const FgComparison *c, const FgFuncDiff *f, const FgChange *a,
                  const FgChange *b)
{
    return a->kind == b->kind && is_gather(c, a) && is_gather(c, b) &&
           strcmp(note_text(arena, c, f, a), note_text(arena, c, f, b)) == 0;
}

/* How many changes from `at` on read alike, with nothing but runs of equal lines between them. */
static uint32_t count_alike(FgArena *arena, const FgComparison *c, const FgFuncDiff *f, uint32_t at,
                            uint32_t *out_last)
{
    const FgChange *changes = f->changes.data;
    uint32_t n = 1;
    *out_last = at;
    for (uint32_t i = at + 1; i < f->changes.len; i++) {
        if (changes[i].kind == FG_CHANGE_EQUAL)
            continue;
        if (!alike(arena, c, f, &changes[at], &changes[i]))
            break;
        *out_last = i;
        n++;
    }
    return n;
}

static void put_equal(const FgChange *change, FgBuf *out)
{
    if (change->n > KEEP_EQUAL) {
        fg_buf_printf(out, "    ... %s equal\n", fg_count_text(out->arena, change->n));
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
            fg_buf_printf(out, "%s %s %s", between, fg_count_text(out->arena, n[i]), words[i]);
        between = n[i] ? "," : between;
    }
    if (n[4])
        fg_buf_printf(out, "%s%s other line%s moved or changed", *between == ',' ? "; " : "",
                      fg_count_text(out->arena, n[4]), n[4] == 1 ? "" : "s");
    fg_buf_puts(out, "\n");
}

static void put_func(FgArena *arena, const FgComparison *c, const FgFuncDiff *f, FgBuf *out)
{
    if (!f->differs) {
        fg_buf_printf(out, "\n@%s: %s node%s, equal\n", f->name, fg_count_text(arena, f->left.len),
                      f->left.len == 1 ? "" : "s");
        return;
    }
    fg_buf_printf(out, "\n@%s: %s node%s against %s; ", f->name, fg_count_text(arena, f->left.len),
                  f->left.len == 1 ? "" : "s", fg_count_text(arena, f->right.len));
    put_counts(c, f, out);
    for (uint32_t i = 0; i < f->changes.len; i++) {
        const FgChange *change = &f->changes.data[i];
        uint32_t last, n;
        if (change->kind == FG_CHANGE_EQUAL) {
            put_equal(change, out);
            continue;
        }
        put_change(arena, c, f, change, out);
        n = count_alike(arena, c, f, i, &last);
        if (n >= COLLAPSE) {
            fg_buf_printf(out, "    ... %s more like it, up to\n", fg_count_text(arena, n - 2));
            put_change(arena, c, f, &f->changes.data[last], out);
            i = last;
        }
    }
}

static void put_verdict(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    if (c->budget != UINT64_MAX && c->left.too_big)
        fg_buf_printf(out,
                      "%s does not fit the %s there are; its figures are those it would have\n",
                      c->left.name, fg_bytes_text(arena, c->budget));
    if (all_persistent(&c->left))
        fg_buf_printf(out,
                      "%s keeps everything gathered: no parameter is above its persistence "
                      "threshold; --zero3 minimal gathers at use\n",
                      c->left.name);
    if (c->right.plan)
        fg_buf_printf(out, "%s: the %s schedule is the fastest that fits\n", c->right.name,
                      c->right.plan);
    bool reordered = false;
    for (uint32_t i = 0; i < c->funcs.len; i++)
        reordered = reordered || c->funcs.data[i].differs;
    if (!c->differs)
        fg_buf_puts(out, "no difference\n");
    else if (!reordered)
        fg_buf_puts(out,
                    "the same nodes in the same order; addresses, waits or attributes differ\n");
}

void fg_comparison_text(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    fg_buf_printf(out, "%s: %s against %s", c->right.module->name, c->left.name, c->right.name);
    if (c->right.module->ranks)
        fg_buf_printf(out, ", %s rank%s", fg_count_text(arena, c->right.module->ranks),
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
