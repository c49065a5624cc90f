/* Faults beside the calls: in what a program says of custom functions, and in its tables. */
#include "mutants_internal.h"

#include <string.h>

/* ---- custom functions ---- */

/* Both calls are of one function, on the same memory. */
static bool same_places(const Cx *cx, const Line *a, const Line *b)
{
    const FgRbOperand *rows = cx->program->tables.operands.data;
    uint64_t first = line_arg(a, "first"), second = line_arg(b, "first");
    for (uint64_t i = 0; i < line_arg(a, "count"); i++)
        if (rows[first + i].offset != rows[second + i].offset)
            return false;
    return true;
}

/* The operands of another call of the same function: another layer's values. */
void other_operands(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *call = line_at(cx, i);
        for (uint32_t k = 0; line_is(call, "custom") && k < n_lines(cx); k++) {
            const Line *other = line_at(cx, k);
            if (line_is(other, "custom") &&
                line_arg(other, "function") == line_arg(call, "function") &&
                !same_places(cx, call, other))
                try_arg(cx, i, "first", line_arg(other, "first"));
        }
    }
}

void other_function(const Cx *cx)
{
    uint32_t n = cx->program->tables.customs.len;
    for (uint32_t i = 0; i < n_lines(cx) && n > 1; i++)
        if (line_is(line_at(cx, i), "custom"))
            try_arg(cx, i, "function", (line_arg(line_at(cx, i), "function") + 1) % n);
}

/* What stands between `from` and its end is replaced, where the line has it. */
static void replace(const Cx *cx, uint32_t line, const char *from, const char *to)
{
    const char *text = text_of(cx, line), *at = strstr(text, from);
    if (at)
        try_edit(
            cx, line,
            fg_arena_printf(cx->arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
}

/* A declaration, or what hands calls on: another type, another direction, another operand. */
void change_declaration(const Cx *cx)
{
    static const char *const edits[][2] = {{"const FgBf16 *", "FgBf16 *"},
                                           {"const FgBf16 *", "const float *"},
                                           {", FgBf16 *", ", const FgBf16 *"},
                                           {", FgBf16 *", ""},
                                           {"const FgCustom *);", "FgCustom *);"},
                                           {"in(call, 0)", "in(call, 1)"},
                                           {"in(call, 1)", "in(call, 0)"},
                                           {"in(call, 0)", "out(call, 0)"},
                                           {", call);", ", 0);"}};
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t k = 0; k < sizeof edits / sizeof *edits; k++)
            if (!strncmp(line_at(cx, i)->text, "void custom_", 12) ||
                !strncmp(line_at(cx, i)->text, "    custom_", 11))
                replace(cx, i, edits[k][0], edits[k][1]);
}

/* ---- tables ---- */

/* Each number of a table's row that the proof is about, one more (or 16 bytes further). */
static void change_row(const Cx *cx, const FgRbTable *table, uint32_t row, const char *field,
                       uint64_t step)
{
    const FgRbCell *cell = fg_rb_cell(table, row, field);
    if (cell->kind != FG_RB_INT || cell->u == FG_RB_NONE || cell->u == UINT32_MAX)
        return;
    uint32_t line = cell->loc.line - 1;
    const char *text = text_of(cx, line), *at = text + cell->loc.col - 1;
    size_t digits = strspn(at, "0123456789");
    if (digits && (step != UINT64_MAX || cell->u))
        try_edit(cx, line,
                 fg_arena_printf(cx->arena, "%.*s%llu%s", (int)(at - text), text,
                                 (unsigned long long)(cell->u + step), at + digits));
}

void change_table(const Cx *cx)
{
    static const struct {
        const char *table, *field;
        uint64_t step;
    } rows[] = {{"params", "bucket", 1},
                {"params", "offset", 16},
                {"params", "elements", 1},
                {"params", "trainable", UINT64_MAX},
                {"dims", "", 1},
                {"buckets", "elements", 2},
                {"buckets", "params_first", 1},
                {"buckets", "n_params", 1},
                {"buckets", "shard", 16},
                {"buckets", "moment1", 16},
                {"buckets", "moment2", 16},
                {"buckets", "master", 16},
                {"buckets", "grad_shard", 16},
                {"buckets", "grad_bytes", 4},
                {"inputs", "offset", 16},
                {"inputs", "elements", 1},
                {"bucket_params", "", 1},
                {"layouts", "", 1},
                {"customs", "n_inputs", 1},
                {"customs", "n_outputs", 1},
                {"operands", "offset", 16},
                {"operands", "elements", 1},
                {"operands", "written", 1},
                {"operands", "written", UINT64_MAX},
                {"operands", "rank", 1}};
    for (uint32_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const FgRbTable *table = fg_rb_table(&cx->program->source, rows[k].table);
        for (uint32_t i = 0; table && i < table->n_rows; i++)
            change_row(cx, table, i, rows[k].field, rows[k].step);
    }
}

void change_program(const Cx *cx)
{
    static const struct {
        const char *field;
        uint64_t step;
    } rows[] = {{"abi", 1},
                {"ranks", 1},
                {"accumulate", 1},
                {"state_bytes", 16},
                {"state_bytes", -(uint64_t)16},
                {"arena_bytes", -(uint64_t)16},
                {"scalars", 16},
                {"loss", 16},
                {"norm", 16},
                {"n_params", 1},
                {"n_buckets", 1},
                {"n_inputs", 1},
                {"n_nodes", 1},
                {"n_events", -(uint64_t)1}};
    for (uint32_t k = 0; k < sizeof rows / sizeof *rows; k++)
        change_row(cx, &cx->program->source.program, 0, rows[k].field, rows[k].step);
    if (cx->program->tables.scales) {
        change_row(cx, &cx->program->source.program, 0, "scales_loss", -(uint64_t)1);
        change_row(cx, &cx->program->source.program, 0, "scaler", 16);
    }
    const FgRbCell *memory = fg_rb_cell(&cx->program->source.program, 0, "memory_bytes");
    const FgRbTables *tables = &cx->program->tables;
    try_edit(cx, memory->loc.line - 1,
             fg_arena_printf(cx->arena, "    .memory_bytes = %llu,",
                             (unsigned long long)(tables->state_bytes + tables->arena_bytes +
                                                  tables->reserved_bytes - 1)));
}
