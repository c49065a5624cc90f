/* Faults of buckets: gathers, releases, reductions, updates. */
#include "mutants_internal.h"

/* ---- gathers and releases ---- */

void release_early(const Cx *cx)
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

void drop_release(const Cx *cx)
{
    try_each(cx, "release", false);
}

void double_release(const Cx *cx)
{
    try_each(cx, "release", true);
}

void gather_late(const Cx *cx)
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

void drop_gather(const Cx *cx)
{
    try_each(cx, "gather", false);
}

void double_gather(const Cx *cx)
{
    try_each(cx, "gather", true);
}

/* A copy that the next body reads is given away when it is gathered. */
void release_carried(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint32_t inside = NO_LINE, beyond = NO_LINE;
        for (uint32_t k = 0; line_is(line_at(cx, i), "gather") && k < n_lines(cx); k++)
            if (line_is(line_at(cx, k), "release") &&
                line_arg(line_at(cx, k), "buffer") == line_arg(line_at(cx, i), "whole")) {
                bool here = k > i && same_body(cx, i, k);
                inside = here ? k : inside;
                beyond = here ? beyond : k;
            }
        if (inside != NO_LINE || beyond == NO_LINE)
            continue;
        Mutant mutant = begin(cx, i);
        edit(&mutant, i, fg_arena_printf(cx->arena, "%s\n%s", text_of(cx, i), text_of(cx, beyond)));
        edit(&mutant, beyond, "");
        finish(cx, &mutant);
    }
}

/* The gather of another bucket's slice. */
void gather_other(const Cx *cx)
{
    const FgRbTables *tables = &cx->program->tables;
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t b = 0; line_is(line_at(cx, i), "gather") && b < tables->buckets.len; b++)
            if (tables->buckets.data[b].shard != line_arg(line_at(cx, i), "shard"))
                try_arg(cx, i, "shard", tables->buckets.data[b].shard);
}

static bool is_update(const Line *line)
{
    return line_is(line, "adamw") || line_is(line, "adamw_parts");
}

/* A gather before the update of its slice, which stood before it: stale weights. */
void gather_stale(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "gather"))
            continue;
        for (uint32_t k = i; k-- > 0;) {
            const Line *line = line_at(cx, k);
            if (is_update(line) && line_arg(line, "shard") == line_arg(line_at(cx, i), "shard")) {
                if (same_body(cx, i, k))
                    try_move(cx, i, k, false);
                break;
            }
        }
    }
}

/* ---- reductions and updates ---- */

void drop_reduce(const Cx *cx)
{
    try_each(cx, "reduce_scatter", false);
    try_each(cx, "all_to_all", false);
}

void double_reduce(const Cx *cx)
{
    try_each(cx, "reduce_scatter", true);
    try_each(cx, "all_to_all", true);
}

void reduce_early(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "reduce_scatter") && !line_is(line_at(cx, i), "all_to_all"))
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

/* The sum of a slice where its update wants the parts of all ranks. */
void sum_parts(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "all_to_all"))
            continue;
        const Line *line = line_at(cx, i);
        const char *text = fg_arena_printf(
            cx->arena,
            "    fg_rt_reduce_scatter(cx, %llu, FG_REDUCE, %llu, %llu, %llu, %llu, %llu, 0);",
            (unsigned long long)line_arg(line, "node"), (unsigned long long)line_arg(line, "whole"),
            (unsigned long long)line_arg(line, "parts"),
            (unsigned long long)line_arg(line, "elements"),
            (unsigned long long)line_arg(line, "wire"), (unsigned long long)line_arg(line, "wire"));
        try_edit(cx, i, text);
    }
}

void drop_update(const Cx *cx)
{
    try_each(cx, "adamw", false);
    try_each(cx, "adamw_parts", false);
}

void double_update(const Cx *cx)
{
    try_each(cx, "adamw", true);
    try_each(cx, "adamw_parts", true);
}

void other_bucket(const Cx *cx)
{
    uint32_t n = cx->program->tables.buckets.len;
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint64_t bucket = line_arg(line_at(cx, i), "bucket");
        if (bucket < n && n > 1)
            try_arg(cx, i, "bucket", (bucket + 1) % n);
    }
}

/* The update of the wrong step: the set of scalars says whose it is. */
void other_set(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        if (line_is(line_at(cx, i), "adamw"))
            try_arg(cx, i, "set", 1 - line_arg(line_at(cx, i), "set"));
}
