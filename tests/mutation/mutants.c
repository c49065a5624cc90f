/* The kinds of fault. Each looks at the lines of a program and tries its fault wherever it makes
 * sense; that a mutant is a fault, and no other way to write the same program, is argued beside
 * each kind. */
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

static Mutant begin(const Cx *cx, uint32_t line)
{
    return (Mutant){.program = cx->program, .arena = cx->arena, .line = line};
}

static void edit(Mutant *mutant, uint32_t line, const char *text)
{
    mutant->edited[mutant->n_edits] = line;
    mutant->texts[mutant->n_edits++] = text;
}

/* Tries the mutant, then forgets it. */
static void finish(const Cx *cx, const Mutant *mutant)
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

/* The line `from` stands after (or before) the line `to` instead. */
static void try_move(const Cx *cx, uint32_t from, uint32_t to, bool after)
{
    Mutant mutant = begin(cx, from);
    const char *a = text_of(cx, from), *b = text_of(cx, to);
    edit(&mutant, from, "");
    edit(&mutant, to,
         after ? fg_arena_printf(cx->arena, "%s\n%s", b, a)
               : fg_arena_printf(cx->arena, "%s\n%s", a, b));
    finish(cx, &mutant);
}

static void try_double(const Cx *cx, uint32_t line)
{
    const char *text = text_of(cx, line);
    try_edit(cx, line, fg_arena_printf(cx->arena, "%s\n%s", text, text));
}

/* The line with argument `index` (0 is the context) replaced. */
static const char *with_arg(const Cx *cx, uint32_t line, uint32_t index, const char *value)
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

static void try_number(const Cx *cx, uint32_t line, uint32_t index, uint64_t value)
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

static bool is_work(const Line *line)
{
    return line->call && fg_rb_param(line->call->entry, "node") >= 0;
}

static bool same_body(const Cx *cx, uint32_t a, uint32_t b)
{
    return line_at(cx, a)->body == line_at(cx, b)->body;
}

/* The nearest work line before (step -1) or after (step 1) in the same function; NONE: no line. */
#define NO_LINE UINT32_MAX
static uint32_t next_work(const Cx *cx, uint32_t from, int step, uint64_t stream)
{
    for (uint32_t i = from + (uint32_t)step; i < n_lines(cx) && same_body(cx, from, i);
         i += (uint32_t)step)
        if (is_work(line_at(cx, i)) &&
            (stream == FG_RB_NONE || line_arg(line_at(cx, i), "stream") == stream))
            return i;
    return NO_LINE;
}

/* The line's record or wait of an event, or NO_LINE. */
static uint32_t event_line(const Cx *cx, const char *entry, uint64_t event, uint32_t near, int step)
{
    for (uint32_t i = near; i < n_lines(cx); i += (uint32_t)step)
        if (line_is(line_at(cx, i), entry) && line_arg(line_at(cx, i), "event") == event)
            return i;
    return NO_LINE;
}

static bool conflicts(const Line *a, const Line *b)
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

/* ---- streams and events: every wait is needed, so each of these is a fault ---- */

/* The wait goes, and its record too where no other one waits for it. */
static void drop_wait(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "wait"))
            continue;
        uint64_t event = line_arg(line_at(cx, i), "event");
        uint32_t record = event_line(cx, "record", event, i, -1);
        uint32_t other = event_line(cx, "wait", event, i + 1, 1);
        uint32_t again = event_line(cx, "record", event, i + 1, 1);
        uint32_t before = event_line(cx, "wait", event, i - 1, -1);
        bool alone = (other == NO_LINE || (again != NO_LINE && again < other)) &&
                     (before == NO_LINE || before < record);
        Mutant mutant = begin(cx, i);
        edit(&mutant, i, "");
        if (alone && record != NO_LINE)
            edit(&mutant, record, "");
        finish(cx, &mutant);
    }
}

static void drop_record(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "record"))
            try_edit(cx, i, "");
}

/* The wrong stream waits: then the right one does not. */
static void wait_elsewhere(const Cx *cx)
{
    static const char *const names[] = {"FG_COMPUTE", "FG_GATHER", "FG_REDUCE"};
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "wait"))
            for (uint64_t s = 0; s < 3; s++)
                if (s != line_arg(line_at(cx, i), "stream"))
                    try_edit(cx, i, with_arg(cx, i, 1, names[s]));
}

/* The event fires before the call that it stands for. */
static void record_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "record"))
            continue;
        uint32_t call = next_work(cx, i, -1, line_arg(line_at(cx, i), "stream"));
        if (call != NO_LINE)
            try_move(cx, i, call, false);
    }
}

/* The call that needs it is issued before the wait. */
static void wait_late(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "wait"))
            continue;
        uint32_t call = next_work(cx, i, 1, line_arg(line_at(cx, i), "stream"));
        if (call != NO_LINE)
            try_move(cx, i, call, true);
    }
}

/* An earlier event says less than the one that is needed. */
static void wait_other(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "wait") && line_arg(line_at(cx, i), "event") > 0)
            try_arg(cx, i, "event", line_arg(line_at(cx, i), "event") - 1);
}

/* The event is recorded after the wait alone: by the step before, across the cut, where all events
 * start anew. */
static void wait_across(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "wait"))
            continue;
        uint32_t record = event_line(cx, "record", line_arg(line_at(cx, i), "event"), i, -1);
        if (record != NO_LINE)
            try_move(cx, record, i, true);
    }
}

static void drop_join(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "join"))
            try_edit(cx, i, "");
}

/* On another stream, a call is ordered with other calls than it needs. Not tried: calls without
 * work (releases), and where the stream of a collective is free to choose. */
static void other_stream(const Cx *cx)
{
    static const char *const names[] = {"FG_COMPUTE", "FG_GATHER", "FG_REDUCE"};
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        if (is_work(line) && !line_is(line, "release"))
            try_edit(cx, i, with_arg(cx, i, 2, names[(line_arg(line, "stream") + 1) % 3]));
    }
}

/* ---- calls: each one is needed, once, where it stands ---- */

static bool is_plain(const Line *line)
{
    static const char *const special[] = {"gather",    "release",  "reduce_scatter",
                                          "lookup_dw", "exchange", "adamw"};
    for (uint32_t i = 0; i < sizeof special / sizeof *special; i++)
        if (line_is(line, special[i]))
            return false;
    return is_work(line);
}

static void drop_call(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (is_plain(line_at(cx, i)))
            try_edit(cx, i, "");
}

/* A call that adds to what is there does so twice. (One that only writes does no harm twice.) */
static void double_call(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (is_plain(line_at(cx, i)) && line_arg(line_at(cx, i), "accumulate") == 1)
            try_double(cx, i);
}

/* Neighbours of which one needs the other. */
static void swap_calls(const Cx *cx)
{
    for (uint32_t i = 0; i + 1 < n_lines(cx); i++)
        if (is_work(line_at(cx, i)) && is_work(line_at(cx, i + 1)) &&
            conflicts(line_at(cx, i), line_at(cx, i + 1)))
            try_move(cx, i, i + 1, true);
}

static bool is_collective(const Line *line)
{
    return line->call && strstr(line->call->entry->effects, "comm(");
}

/* One text runs on all ranks, which meet in its order: a rank must not find out who it is. */
static void swap_on_a_rank(const Cx *cx)
{
    static const char *const either = "    if (*(const char *)cx)\n    %s\n    else\n    %s";
    for (uint32_t i = 0, last = NO_LINE; i < n_lines(cx); i++) {
        if (!is_collective(line_at(cx, i)))
            continue;
        if (last != NO_LINE && line_at(cx, last)->body == line_at(cx, i)->body) {
            Mutant mutant = begin(cx, last);
            const char *a = text_of(cx, last), *b = text_of(cx, i);
            edit(&mutant, last, fg_arena_printf(cx->arena, either, a, b));
            edit(&mutant, i, fg_arena_printf(cx->arena, either, b, a));
            finish(cx, &mutant);
        }
        last = i;
    }
}

static void flip_accumulate(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint64_t flag = line_arg(line_at(cx, i), "accumulate");
        if (flag <= 1)
            try_arg(cx, i, "accumulate", 1 - flag);
    }
}

/* ---- addresses and sizes ---- */

/* Is the argument the begin of a range that the call touches? */
static bool is_buffer(const Line *line, uint32_t arg)
{
    for (uint32_t i = 0; i < line->effects.len; i++)
        if (line->effects.data[i].kind <= FG_RB_RELEASE && line->effects.data[i].arg == arg)
            return true;
    return false;
}

static void shift_address(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        for (uint32_t k = 0; is_work(line) && k < line->call->entry->params.len; k++)
            if (is_buffer(line, k))
                try_number(cx, i, k + 1,
                           (i + k) % 2 ? line->call->args[k].u + 16 : line->call->args[k].u - 16);
    }
}

/* A result takes the place of what the next calls still read. */
static void take_address(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        for (uint32_t e = 0; is_work(line) && e < line->effects.len; e++) {
            const FgRbEffect *effect = &line->effects.data[e];
            if (effect->kind != FG_RB_WRITE || effect->scratch)
                continue;
            for (uint32_t n = i + 1; n < n_lines(cx) && same_body(cx, i, n); n++) {
                const Line *next = line_at(cx, n);
                for (uint32_t r = 0; is_work(next) && r < next->effects.len; r++) {
                    const FgRbEffect *read = &next->effects.data[r];
                    if (read->kind != FG_RB_READ || read->at == effect->at ||
                        line_writes(line, read->at, read->bytes))
                        continue;
                    try_number(cx, i, effect->arg + 1, read->at);
                    r = next->effects.len;
                    n = n_lines(cx) - 1;
                }
            }
        }
    }
}

/* An integer that only says how much: one more, or half. */
static void change_size(const Cx *cx)
{
    static const char *const sizes[] = {"bytes",  "n",     "m",      "k",        "rows",  "cols",
                                        "tokens", "vocab", "hidden", "elements", "n_a",   "n_x",
                                        "batch",  "seq",   "heads",  "seq_q",    "seq_k", "dim"};
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t k = 0; is_work(line_at(cx, i)) && k < sizeof sizes / sizeof *sizes; k++) {
            uint64_t value = line_arg(line_at(cx, i), sizes[k]);
            if (value != FG_RB_NONE && value > 1)
                try_arg(cx, i, sizes[k], (i + k) % 2 ? value / 2 : value + 1);
        }
}

/* Elements of another size. */
static void change_dtype(const Cx *cx)
{
    static const char *const names[] = {"dt", "wire", "from", "to", "grad_dt"};
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t k = 0; is_work(line_at(cx, i)) && k < sizeof names / sizeof *names; k++) {
            uint64_t value = line_arg(line_at(cx, i), names[k]);
            if (value <= 1)
                try_arg(cx, i, names[k], 1 - value);
        }
}

/* A constant that is neither an address nor a size: what is computed changes, and no access. */
static void change_constant(const Cx *cx)
{
    static const char *const flags[] = {"causal", "window", "inverse", "padding", "ignore",
                                        "ta",     "tb",     "kind",    "start"};
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        for (uint32_t k = 0; is_work(line) && k < line->call->entry->params.len; k++)
            if (line->call->entry->is_float[k])
                try_edit(cx, i, with_arg(cx, i, k + 1, "0.123"));
        for (uint32_t k = 0; is_work(line) && k < sizeof flags / sizeof *flags; k++)
            if (fg_rb_param(line->call->entry, flags[k]) >= 0)
                try_arg(cx, i, flags[k], line_arg(line, flags[k]) == 1 ? 0 : 1);
    }
}

/* ---- gathers and releases ---- */

static void release_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "release"))
            continue;
        for (uint32_t k = i; k-- > 0;) {
            if (line_reads(line_at(cx, k), line_arg(line_at(cx, i), "buffer"),
                           line_arg(line_at(cx, i), "bytes"))) {
                try_move(cx, i, k, false);
                break;
            }
        }
    }
}

static void each(const Cx *cx, const char *entry, bool twice)
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

static void drop_release(const Cx *cx)
{
    each(cx, "release", false);
}

static void double_release(const Cx *cx)
{
    each(cx, "release", true);
}

static void gather_late(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        uint64_t bytes = line_arg(line, "bytes") * cx->program->tables.ranks;
        if (!line_is(line, "gather"))
            continue;
        for (uint32_t k = i + 1; k < n_lines(cx); k++) {
            if (line_reads(line_at(cx, k), line_arg(line, "whole"), bytes)) {
                try_move(cx, i, k, true);
                break;
            }
        }
    }
}

static void drop_gather(const Cx *cx)
{
    each(cx, "gather", false);
}

static void double_gather(const Cx *cx)
{
    each(cx, "gather", true);
}

/* The gather of another bucket's slice. */
static void gather_other(const Cx *cx)
{
    const FgRbTables *tables = &cx->program->tables;
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t b = 0; line_is(line_at(cx, i), "gather") && b < tables->buckets.len; b++)
            if (tables->buckets.data[b].shard != line_arg(line_at(cx, i), "shard"))
                try_arg(cx, i, "shard", tables->buckets.data[b].shard);
}

/* A gather before the update of its slice, which stood before it: stale weights. */
static void gather_stale(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "gather"))
            continue;
        for (uint32_t k = i; k-- > 0;) {
            const Line *line = line_at(cx, k);
            if (line_is(line, "adamw") &&
                line_arg(line, "shard") == line_arg(line_at(cx, i), "shard")) {
                if (same_body(cx, i, k))
                    try_move(cx, i, k, false);
                break;
            }
        }
    }
}

/* ---- reductions and updates ---- */

static void drop_reduce(const Cx *cx)
{
    each(cx, "reduce_scatter", false);
}

static void double_reduce(const Cx *cx)
{
    each(cx, "reduce_scatter", true);
}

static void reduce_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "reduce_scatter"))
            continue;
        for (uint32_t k = i; k-- > 0;) {
            if (line_writes(line_at(cx, k), line_arg(line_at(cx, i), "whole"),
                            line_arg(line_at(cx, i), "elements"))) {
                try_move(cx, i, k, false);
                break;
            }
        }
    }
}

static void drop_lookup(const Cx *cx)
{
    each(cx, "lookup_dw", false);
}

static void double_lookup(const Cx *cx)
{
    each(cx, "lookup_dw", true);
}

/* The row after the one that a token names: no table of the bucket begins there. */
static void lookup_elsewhere(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "lookup_dw"))
            try_arg(cx, i, "first", line_arg(line_at(cx, i), "hidden"));
}

static void drop_exchange(const Cx *cx)
{
    each(cx, "exchange", false);
}

static void drop_update(const Cx *cx)
{
    each(cx, "adamw", false);
}

static void double_update(const Cx *cx)
{
    each(cx, "adamw", true);
}

static void other_bucket(const Cx *cx)
{
    uint32_t n = cx->program->tables.buckets.len;
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint64_t bucket = line_arg(line_at(cx, i), "bucket");
        if (bucket < n && n > 1)
            try_arg(cx, i, "bucket", (bucket + 1) % n);
    }
}

/* The update of the wrong step: the set of scalars says whose it is. */
static void other_set(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "adamw"))
            try_arg(cx, i, "set", 1 - line_arg(line_at(cx, i), "set"));
}

#define KIND(name, function)                                                                       \
    static void make_##function(const Program *program, FgArena *arena, TryMutant *try,            \
                                void *context)                                                     \
    {                                                                                              \
        Cx cx = {program, arena, try, context};                                                    \
        function(&cx);                                                                             \
    }
#include "kinds.def"
#undef KIND

const Kind mutant_kinds[] = {
#define KIND(name, function) {name, make_##function},
#include "kinds.def"
#undef KIND
};
const uint32_t n_mutant_kinds = sizeof mutant_kinds / sizeof *mutant_kinds;
