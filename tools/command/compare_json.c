/* diff for programs: the same data as the text, nothing collapsed but runs of equal lines (their
 * count is given). */
#include "tools/command/compare.h"

#include <inttypes.h>

static void put_figures(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    fg_buf_puts(out, "  \"figures\": {");
    for (uint32_t i = 0; i < c->figures.len; i++) {
        const FgFigure *f = &c->figures.data[i];
        bool whole = f->kind != FG_FIGURE_US;
        fg_buf_printf(out, "%s\n    %s: [", i ? "," : "", fg_quoted(arena, f->key));
        if (whole)
            fg_buf_printf(out, "%.0f, %.0f]", f->left, f->right);
        else
            fg_buf_printf(out, "%s, %s]", fg_double_text(arena, f->left),
                          fg_double_text(arena, f->right));
    }
    fg_buf_puts(out, "\n  },\n");
}

static void put_change(FgArena *arena, const FgComparison *c, const FgChange *change, FgBuf *out)
{
    static const char *const kinds[] = {"equal", "moved", "removed", "added"};
    const FgLine *line = change->right ? change->right : change->left;
    if (change->kind == FG_CHANGE_EQUAL) {
        fg_buf_printf(out, "{\"kind\": \"equal\", \"lines\": %u}", change->n);
        return;
    }
    fg_buf_printf(out, "{\"kind\": \"%s\", \"line\": %s", kinds[change->kind],
                  fg_quoted(arena, line->text));
    if (change->kind == FG_CHANGE_MOVED && change->left && change->right)
        fg_buf_printf(out, ", \"earlier\": %" PRId64 ", \"ahead\": [%u, %u]", change->earlier,
                      change->left->ahead, change->right->ahead);
    if (change->right && c->right.run)
        fg_buf_printf(out, ", \"stall_us\": %s",
                      fg_double_text(arena, c->right.run[change->right->node].stall_us));
    fg_buf_puts(out, "}");
}

static void put_func(FgArena *arena, const FgComparison *c, const FgFuncDiff *f, FgBuf *out)
{
    fg_buf_printf(out, "    {\"name\": %s, \"nodes\": [%u, %u], \"changes\": [",
                  fg_quoted(arena, f->name), f->left.len, f->right.len);
    for (uint32_t i = 0; i < f->changes.len; i++) {
        fg_buf_puts(out, i ? ",\n      " : "\n      ");
        put_change(arena, c, &f->changes.data[i], out);
    }
    fg_buf_puts(out, f->changes.len ? "\n    ]}" : "]}");
}

void fg_comparison_json(FgArena *arena, const FgComparison *c, FgBuf *out)
{
    fg_buf_printf(out, "{\n  \"model\": %s,\n", fg_quoted(arena, c->right.module->name));
    fg_buf_printf(out, "  \"sides\": [%s, %s],\n", fg_quoted(arena, c->left.name),
                  fg_quoted(arena, c->right.name));
    fg_buf_printf(out, "  \"differs\": %s,\n", c->differs ? "true" : "false");
    if (c->budget != UINT64_MAX)
        fg_buf_printf(out, "  \"budget_bytes\": %" PRIu64 ",\n  \"fits\": [%s, %s],\n", c->budget,
                      c->left.too_big ? "false" : "true", c->right.too_big ? "false" : "true");
    if (c->left.scheduled && c->right.scheduled)
        fg_buf_printf(out, "  \"peak_phase\": [%s, %s],\n",
                      fg_quoted(arena, c->left.ledger.peak_phase),
                      fg_quoted(arena, c->right.ledger.peak_phase));
    put_figures(arena, c, out);
    fg_buf_puts(out, "  \"functions\": [");
    for (uint32_t i = 0; i < c->funcs.len; i++) {
        fg_buf_puts(out, i ? ",\n" : "\n");
        put_func(arena, c, &c->funcs.data[i], out);
    }
    fg_buf_puts(out, "\n  ]\n}\n");
}
