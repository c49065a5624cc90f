/* Faults of calls and of their arguments: each call is needed, once, where it stands, on the memory
 * that it names. */
#include "mutants_internal.h"

#include <string.h>

/* ---- calls: each one is needed, once, where it stands ---- */

static bool is_plain(const Line *line)
{
    static const char *const special[] = {
        "gather",      "release",    "reduce_scatter", "lookup_dw",  "exchange",    "adamw",
        "adamw_part",  "stash",      "fetch",          "collect",    "return_rows", "lookup_rows",
        "vocab_stats", "vocab_loss", "vocab_dlogits",  "vocab_dx",   "vocab_dw",    "vocab_db",
        "adamw_rows",  "row_set",    "all_to_all",     "adamw_parts"};
    for (uint32_t i = 0; i < sizeof special / sizeof *special; i++)
        if (line_is(line, special[i]))
            return false;
    return is_work(line);
}

void drop_call(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (is_plain(line_at(cx, i)))
            try_edit(cx, i, "");
}

/* A call that adds to what is there does so twice. (One that only writes does no harm twice.) */
void double_call(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (is_plain(line_at(cx, i)) && line_arg(line_at(cx, i), "accumulate") == 1)
            try_double(cx, i);
}

/* Neighbours of which one needs the other. */
void swap_calls(const Cx *cx)
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
void swap_on_a_rank(const Cx *cx)
{
    static const char *const either = "    if (*(const char *)cx)\n    %s\n    else\n    %s";
    for (uint32_t i = 0, last = NO_LINE; i < n_lines(cx); i++) {
        if (!is_collective(line_at(cx, i)))
            continue;
        if (last != NO_LINE && same_body(cx, last, i)) {
            Mutant mutant = begin(cx, last);
            const char *a = text_of(cx, last), *b = text_of(cx, i);
            edit(&mutant, last, fg_arena_printf(cx->arena, either, a, b));
            edit(&mutant, i, fg_arena_printf(cx->arena, either, b, a));
            finish(cx, &mutant);
        }
        last = i;
    }
}

void flip_accumulate(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint64_t flag = line_arg(line_at(cx, i), "accumulate");
        uint64_t adds = line_arg(line_at(cx, i), "adds");
        if (flag <= 1)
            try_arg(cx, i, "accumulate", 1 - flag);
        if (adds <= 1)
            try_arg(cx, i, "adds", 1 - adds);
    }
}

/* ---- addresses and sizes ---- */

/* Is the argument the begin of a range that the call touches? (Custom functions are given rows of a
 * table: other_operands.) */
static bool is_buffer(const Line *line, uint32_t arg)
{
    if (line_is(line, "custom"))
        return false;
    for (uint32_t i = 0; i < line->effects.len; i++)
        if (line->effects.data[i].kind <= FG_RB_RELEASE && line->effects.data[i].arg == arg)
            return true;
    return false;
}

void shift_address(const Cx *cx)
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
void take_address(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        for (uint32_t e = 0; is_work(line) && e < line->effects.len; e++) {
            const FgRbEffect *effect = &line->effects.data[e];
            if (effect->kind != FG_RB_WRITE || effect->scratch)
                continue;
            for (uint32_t n = i + 1; n < n_lines(cx); n++) {
                const Line *next = line_at(cx, n);
                bool after = is_work(next) && same_body(cx, i, n);
                for (uint32_t r = 0; after && r < next->effects.len; r++) {
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
void change_size(const Cx *cx)
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

/* The types that calls name, each of those below 6 replaced by that of the list; 6: by none. */
static void change_dtypes(const Cx *cx, const uint64_t *to)
{
    static const char *const names[] = {"dt",      "wire",    "from",    "to",
                                        "grad_dt", "part_dt", "shard_dt"};
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t k = 0; is_work(line_at(cx, i)) && k < sizeof names / sizeof *names; k++) {
            uint64_t value = line_arg(line_at(cx, i), names[k]);
            if (value < 6 && to[value] < 6)
                try_arg(cx, i, names[k], to[value]);
        }
}

/* Elements of another size. */
void change_dtype(const Cx *cx)
{
    static const uint64_t to[] = {1, 0, 6, 6, 6, 6}; /* f32, bf16 */
    change_dtypes(cx, to);
}

/* Elements of the same size. */
void change_meaning(const Cx *cx)
{
    static const uint64_t to[] = {4, 2, 1, 5, 0, 3}; /* f32, i32; bf16, f16; f64, i64 */
    change_dtypes(cx, to);
}

/* A constant that is neither an address nor a size: what is computed changes, and no access. */
void change_constant(const Cx *cx)
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
