/* What all kinds of fault have in common: edits of a program's lines, questions about them, and the
 * table of kinds (kinds.def). Each kind looks at the lines and tries its fault wherever it makes
 * sense; that a mutant is a fault, and no other way to write the same program, is argued beside
 * each. */
#include "mutants_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- editing ---- */

const char *mutant_text(const Mutant *mutant, size_t *out_len)
{
    FgBuf out;
    fg_buf_init(&out, mutant->arena);
    for (uint32_t i = 0; i < mutant->program->lines.len; i++) {
        const Line *line = &mutant->program->lines.data[i];
        uint32_t k = 0;
        while (k < mutant->n_edits && mutant->edited[k] != i)
            k++;
        if (k == mutant->n_edits) {
            fg_buf_put(&out, line->text, line->len);
            fg_buf_put(&out, "\n", 1);
        } else if (*mutant->texts[k]) {
            fg_buf_puts(&out, mutant->texts[k]);
            fg_buf_put(&out, "\n", 1);
        }
    }
    *out_len = out.len;
    return fg_buf_text(&out);
}

const Line *line_at(const Cx *cx, uint32_t i)
{
    return &cx->program->lines.data[i];
}

uint32_t n_lines(const Cx *cx)
{
    return cx->program->lines.len;
}

const char *text_of(const Cx *cx, uint32_t i)
{
    return fg_arena_strndup(cx->arena, line_at(cx, i)->text, line_at(cx, i)->len);
}

Mutant begin(const Cx *cx, uint32_t line)
{
    return (Mutant){.program = cx->program, .arena = cx->arena, .line = line};
}

void edit(Mutant *mutant, uint32_t line, const char *text)
{
    mutant->edited[mutant->n_edits] = line;
    mutant->texts[mutant->n_edits++] = text;
}

void finish(const Cx *cx, const Mutant *mutant)
{
    cx->try(cx->context, mutant);
    fg_arena_reset(cx->arena);
}

void try_edit(const Cx *cx, uint32_t line, const char *text)
{
    Mutant mutant = begin(cx, line);
    edit(&mutant, line, text);
    finish(cx, &mutant);
}

void try_move(const Cx *cx, uint32_t from, uint32_t to, bool after)
{
    Mutant mutant = begin(cx, from);
    const char *a = text_of(cx, from), *b = text_of(cx, to);
    edit(&mutant, from, "");
    edit(&mutant, to,
         after ? fg_arena_printf(cx->arena, "%s\n%s", b, a)
               : fg_arena_printf(cx->arena, "%s\n%s", a, b));
    finish(cx, &mutant);
}

void try_double(const Cx *cx, uint32_t line)
{
    const char *text = text_of(cx, line);
    try_edit(cx, line, fg_arena_printf(cx->arena, "%s\n%s", text, text));
}

void try_each(const Cx *cx, const char *entry, bool twice)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), entry))
            continue;
        if (twice)
            try_double(cx, i);
        else
            try_edit(cx, i, "");
    }
}

const char *with_arg(const Cx *cx, uint32_t line, uint32_t index, const char *value)
{
    const char *text = text_of(cx, line), *at = strchr(text, '(') + 1;
    for (; index > 0; index--)
        at = strchr(at, ',') + 1;
    while (*at == ' ')
        at++;
    return fg_arena_printf(cx->arena, "%.*s%s%s", (int)(at - text), text, value,
                           at + strcspn(at, ",)"));
}

static const char *number(const Cx *cx, uint64_t value)
{
    return fg_arena_printf(cx->arena, "%llu", (unsigned long long)value);
}

void try_number(const Cx *cx, uint32_t line, uint32_t index, uint64_t value)
{
    try_edit(cx, line, with_arg(cx, line, index, number(cx, value)));
}

void try_arg(const Cx *cx, uint32_t line, const char *name, uint64_t value)
{
    int index = fg_rb_param(line_at(cx, line)->call->entry, name);
    if (index >= 0)
        try_number(cx, line, (uint32_t)index + 1, value);
}

/* ---- questions ---- */

bool is_work(const Line *line)
{
    return line->call && fg_rb_param(line->call->entry, "node") >= 0;
}

bool same_body(const Cx *cx, uint32_t a, uint32_t b)
{
    return line_at(cx, a)->call && line_at(cx, b)->call &&
           line_at(cx, a)->body == line_at(cx, b)->body;
}

uint32_t next_work(const Cx *cx, uint32_t from, int step, uint64_t stream)
{
    for (uint32_t i = from + (uint32_t)step; i < n_lines(cx); i += (uint32_t)step)
        if (is_work(line_at(cx, i)) && same_body(cx, from, i) &&
            (stream == FG_RB_NONE || line_arg(line_at(cx, i), "stream") == stream))
            return i;
    return NO_LINE;
}

uint32_t event_line(const Cx *cx, const char *entry, uint64_t event, uint32_t near, int step)
{
    for (uint32_t i = near; i < n_lines(cx); i += (uint32_t)step)
        if (line_is(line_at(cx, i), entry) && line_arg(line_at(cx, i), "event") == event)
            return i;
    return NO_LINE;
}

bool conflicts(const Line *a, const Line *b)
{
    for (uint32_t i = 0; i < a->effects.len; i++) {
        const FgRbEffect *effect = &a->effects.data[i];
        bool writes = effect->kind == FG_RB_WRITE || effect->kind == FG_RB_UPDATE;
        bool reads = effect->kind == FG_RB_READ || effect->kind == FG_RB_UPDATE;
        if (effect->scratch)
            continue;
        if ((writes && (line_reads(b, effect->at, effect->bytes) ||
                        line_writes(b, effect->at, effect->bytes))) ||
            (reads && line_writes(b, effect->at, effect->bytes)))
            return true;
    }
    return false;
}

#define KIND(name, function, alone)                                                                \
    static void make_##function(const Program *program, FgArena *arena, TryMutant *try,            \
                                void *context)                                                     \
    {                                                                                              \
        Cx cx = {program, arena, try, context};                                                    \
        function(&cx);                                                                             \
    }
#include "kinds.def"
#undef KIND

enum { SOME, ALL };

const Kind mutant_kinds[] = {
#define KIND(name, function, alone) {name, make_##function, alone},
#include "kinds.def"
#undef KIND
};
const uint32_t n_mutant_kinds = sizeof mutant_kinds / sizeof *mutant_kinds;
