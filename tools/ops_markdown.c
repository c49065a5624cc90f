/* docs/ops.md from the op table. A test compares it with the file. */
#include "tools/ops_markdown.h"

#include "ir/op_table.h"

#include <inttypes.h>
#include <string.h>

static const char head[] =
    "# Ops\n"
    "\n"
    "Generated from `ir/ops.def` by `fg-opt --ops-markdown`; do not edit. Levels: g graph, d dist, "
    "s sched. An operand or result with `?` may be\n"
    "left out (`_` in IR text). Attributes show their default; those without one must be given.\n"
    "\n"
    "Flags: *commutative*; *in place*: the result may take the first operand's memory; "
    "*accumulates*: can write or add straight into a\n"
    "gradient buffer; *collective*; *effect*: never removed or merged; *view*: names memory, does "
    "no work; *workspace*: its call\n"
    "takes scratch; *constant*: computed once, before the first step; *plus*: the operand `plus` "
    "is "
    "added to the result before the one\n"
    "rounding, and the result may take its memory.\n"
    "\n";

static void put_levels(FgBuf *out, uint32_t levels)
{
    fg_buf_printf(out, "%s%s%s", levels & FG_OPL_GRAPH ? "g" : "", levels & FG_OPL_DIST ? "d" : "",
                  levels & FG_OPL_SCHED ? "s" : "");
}

static void put_flags(FgBuf *out, uint32_t flags)
{
    static const char *const names[] = {"commutative", "in place", "accumulates",
                                        "collective",  "effect",   "view",
                                        "workspace",   "constant", "plus"};
    const char *comma = "";
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (flags & 1u << i) {
            fg_buf_printf(out, "%s%s", comma, names[i]);
            comma = ", ";
        }
    }
}

static void put_default(FgBuf *out, const FgAttrSpec *spec)
{
    switch (spec->kind) {
    case FG_ATTR_INT:
        fg_buf_printf(out, " = %" PRId64, (int64_t)spec->number);
        return;
    case FG_ATTR_BOOL:
        fg_buf_printf(out, " = %s", spec->number != 0 ? "true" : "false");
        return;
    case FG_ATTR_FLOAT:
        fg_buf_printf(out, " = %s", fg_double_text(out->arena, spec->number));
        return;
    case FG_ATTR_INTS:
        fg_buf_printf(out, " = []");
        return;
    case FG_ATTR_TEXT:
        fg_buf_printf(out, " = \"\"");
        return;
    case FG_ATTR_WORD:
        fg_buf_printf(out, " = %.*s", (int)strcspn(spec->choices, " "), spec->choices);
        return;
    }
}

static void put_attr(FgBuf *out, const FgAttrSpec *spec)
{
    static const char *const kinds[] = {
        [FG_ATTR_INT] = "integer",      [FG_ATTR_FLOAT] = "number",
        [FG_ATTR_BOOL] = "truth value", [FG_ATTR_INTS] = "list of integers",
        [FG_ATTR_WORD] = "word",        [FG_ATTR_TEXT] = "text"};
    fg_buf_printf(out, "  - `%s", spec->name);
    if (!spec->required && !spec->optional)
        put_default(out, spec);
    fg_buf_printf(out, "`: %s", kinds[spec->kind]);
    for (const char *p = spec->choices; p && *p;) {
        size_t n = strcspn(p, " ");
        fg_buf_printf(out, "%s`%.*s`", p == spec->choices ? " out of " : ", ", (int)n, p);
        p += n;
        p += strspn(p, " ");
    }
    fg_buf_printf(out, "\n");
}

static void put_op(FgBuf *out, const FgOpInfo *op)
{
    fg_buf_printf(out, "## %s\n\n%s.\n\n", op->name, op->doc);
    fg_buf_printf(out, "- (%s) -> (%s); levels ", op->operands, op->results);
    put_levels(out, op->levels);
    if (op->flags) {
        fg_buf_printf(out, "; ");
        put_flags(out, op->flags);
    }
    fg_buf_printf(out, "\n");
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        if (i == 0)
            fg_buf_printf(out, "- attributes:\n");
        put_attr(out, &op->attrs[i]);
    }
    if (op->no_grad)
        fg_buf_printf(out, "- no gradient: %s\n", op->no_grad);
    else
        fg_buf_printf(out, "- has a gradient\n");
    if (op->call)
        fg_buf_printf(out, "- call: `fg_rt_%s`\n\n", op->call);
    else
        fg_buf_printf(out, "- no call\n\n");
}

void fg_ops_markdown(FgBuf *out)
{
    fg_buf_puts(out, head);
    for (uint32_t i = 0; i < FG_N_OPS; i++)
        put_op(out, fg_op_info((FgOp)i));
}
