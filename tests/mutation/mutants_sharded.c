/* Faults of tables whose rows stay with their owners: tokens and rows that travel, and parts of a
 * gradient that no reduction makes. */
#include "mutants_internal.h"

void drop_lookup(const Cx *cx)
{
    try_each(cx, "lookup_dw", false);
}

void double_lookup(const Cx *cx)
{
    try_each(cx, "lookup_dw", true);
}

/* The row after the one that a token names: no table of the bucket begins there. */
void lookup_elsewhere(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "lookup_dw"))
            try_arg(cx, i, "first", line_arg(line_at(cx, i), "hidden"));
}

void drop_exchange(const Cx *cx)
{
    try_each(cx, "exchange", false);
}

/* Calls of one rank's own rows, or of what travels. */
static const char *const travel[] = {"collect", "return_rows"};
static const char *const owned[] = {"lookup_rows", "vocab_stats", "vocab_loss", "vocab_dlogits",
                                    "vocab_dx"};
static const char *const parts[] = {"vocab_dw", "vocab_db"};
#define TRY_ALL(cx, entries, twice)                                                                \
    for (uint32_t e = 0; e < sizeof(entries) / sizeof *(entries); e++)                             \
    try_each((cx), (entries)[e], (twice))

void drop_travel(const Cx *cx)
{
    TRY_ALL(cx, travel, false);
}

/* (What is returned twice was spoilt the first time; what is collected twice is collected in
 * vain.) */
void double_travel(const Cx *cx)
{
    TRY_ALL(cx, travel, true);
}

void drop_owned(const Cx *cx)
{
    TRY_ALL(cx, owned, false);
}

void drop_rows(const Cx *cx)
{
    TRY_ALL(cx, parts, false);
}

void double_rows(const Cx *cx)
{
    TRY_ALL(cx, parts, true);
}

/* Tokens of another piece. */
void other_tokens(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint64_t first = line_arg(line_at(cx, i), "first");
        bool travels = line_is(line_at(cx, i), "collect") || line_is(line_at(cx, i), "return_rows");
        for (uint32_t e = 0; e < sizeof owned / sizeof *owned; e++)
            travels |= line_is(line_at(cx, i), owned[e]);
        if (travels && first != FG_RB_NONE)
            try_arg(cx, i, "first", first ? first - 1 : first + 1);
    }
}

/* The bucket whose slice the line reads as a table's rows. */
static const FgRbBucket *table_of(const Cx *cx, const Line *line)
{
    const FgRbTables *tables = &cx->program->tables;
    bool plain = is_work(line) && !line_is(line, "gather") && !line_is(line, "cast") &&
                 !line_is(line, "adamw") && !line_is(line, "adamw_part") &&
                 !line_is(line, "adamw_rows") && !line_is(line, "adamw_parts") &&
                 !line_is(line, "fetch");
    for (uint32_t b = 0; plain && b < tables->buckets.len; b++) {
        const FgRbBucket *bucket = &tables->buckets.data[b];
        if (line_reads(line, bucket->shard,
                       bucket->elements / tables->ranks * bucket->element_bytes))
            return bucket;
    }
    return NULL;
}

/* Weights of two steps in one: the slice is read on the other side of its update. */
void slice_stale(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const FgRbBucket *bucket = table_of(cx, line_at(cx, i));
        for (uint32_t k = 0; bucket && k < n_lines(cx); k++)
            if ((line_is(line_at(cx, k), "adamw") || line_is(line_at(cx, k), "adamw_rows")) &&
                same_body(cx, i, k) && line_arg(line_at(cx, k), "shard") == bucket->shard)
                try_move(cx, i, k, k > i);
    }
}

/* ---- an update of the rows that tokens name, and of all others ---- */

void drop_row_update(const Cx *cx)
{
    try_each(cx, "adamw_rows", false);
    try_each(cx, "row_set", false);
}

void double_row_update(const Cx *cx)
{
    try_each(cx, "adamw_rows", true);
}

/* The other rows than those that are to be updated then. */
void other_rows(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "adamw_rows"))
            try_arg(cx, i, "named", 1 - line_arg(line_at(cx, i), "named"));
}

/* The named rows before their gradient is there; the others before the rest of it is. */
void rows_too_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "adamw_rows"))
            continue;
        const char *part = line_arg(line_at(cx, i), "named") ? "lookup_dw" : "reduce_scatter";
        for (uint32_t k = i; k-- > 0 && same_body(cx, i, k);)
            if (line_is(line_at(cx, k), part) &&
                line_arg(line_at(cx, k), "shard") == line_arg(line_at(cx, i), "grad")) {
                try_move(cx, i, k, false);
                break;
            }
    }
}
