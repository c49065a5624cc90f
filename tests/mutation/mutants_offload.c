/* Faults of copies between the device and host memory, and of updates in parts. */
#include "mutants_internal.h"

void drop_stash(const Cx *cx)
{
    try_each(cx, "stash", false);
}

void drop_fetch(const Cx *cx)
{
    try_each(cx, "fetch", false);
}

/* The second copy changes nothing. */
void double_stash(const Cx *cx)
{
    try_each(cx, "stash", true);
}

void double_fetch(const Cx *cx)
{
    try_each(cx, "fetch", true);
}

/* The nearest line of the body that writes (or reads) the range of the argument of line `i`. */
static uint32_t nearest(const Cx *cx, uint32_t i, int step, const char *arg, bool writes)
{
    uint64_t at = line_arg(line_at(cx, i), arg), bytes = line_arg(line_at(cx, i), "bytes");
    for (uint32_t k = next_work(cx, i, step, FG_RB_NONE); k != NO_LINE;
         k = next_work(cx, k, step, FG_RB_NONE))
        if (writes ? line_writes(line_at(cx, k), at, bytes) : line_reads(line_at(cx, k), at, bytes))
            return k;
    return NO_LINE;
}

static void try_moves(const Cx *cx, const char *entry, int step, const char *arg, bool writes)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        uint32_t to = line_is(line_at(cx, i), entry) ? nearest(cx, i, step, arg, writes) : NO_LINE;
        if (to != NO_LINE)
            try_move(cx, i, to, step > 0);
    }
}

/* What is stashed has been overwritten. */
void stash_late(const Cx *cx)
{
    try_moves(cx, "stash", 1, "x", true);
}

/* What is stashed is not there yet. */
void stash_early(const Cx *cx)
{
    try_moves(cx, "stash", -1, "x", true);
}

void fetch_late(const Cx *cx)
{
    try_moves(cx, "fetch", 1, "y", false);
}

/* What is fetched was not stashed yet: an activation, or a state that an update writes. */
void fetch_early(const Cx *cx)
{
    try_moves(cx, "fetch", -1, "x", true);
}

/* The place that it is fetched to is still in use. */
void fetch_over(const Cx *cx)
{
    try_moves(cx, "fetch", -1, "y", false);
}

/* Of two values of one size, the other one. */
void fetch_other(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++)
        for (uint32_t k = 0; line_is(line_at(cx, i), "fetch") && k < n_lines(cx); k++)
            if (line_is(line_at(cx, k), "fetch") &&
                line_arg(line_at(cx, k), "bytes") == line_arg(line_at(cx, i), "bytes") &&
                line_arg(line_at(cx, k), "x") != line_arg(line_at(cx, i), "x")) {
                try_arg(cx, i, "x", line_arg(line_at(cx, k), "x"));
                break;
            }
}

/* Over what was stashed before. */
void stash_over(const Cx *cx)
{
    for (uint32_t i = 0, last = NO_LINE; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "stash"))
            continue;
        if (last != NO_LINE && same_body(cx, last, i) &&
            line_arg(line_at(cx, last), "y") != line_arg(line_at(cx, i), "y"))
            try_arg(cx, i, "y", line_arg(line_at(cx, last), "y"));
        last = i;
    }
}

/* Half in the place of its neighbour. */
void shift_host(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        uint64_t half = line_arg(line, "bytes") / 2 & ~(uint64_t)15;
        if (line_is(line, "stash") && half)
            try_arg(cx, i, "y", line_arg(line, "y") + half);
        if (line_is(line, "fetch") && half)
            try_arg(cx, i, "x", line_arg(line, "x") + half);
    }
}

/* ---- updates in parts ---- */

void drop_part(const Cx *cx)
{
    try_each(cx, "adamw_part", false);
}

void double_part(const Cx *cx)
{
    try_each(cx, "adamw_part", true);
}

/* Other elements than those that were fetched. */
void part_elsewhere(const Cx *cx)
{
    for (uint32_t i = 0; i < n_lines(cx); i++) {
        const Line *line = line_at(cx, i);
        if (line_is(line, "adamw_part"))
            try_arg(cx, i, "first", line_arg(line, "first") ? 0 : line_arg(line, "elements"));
    }
}

/* The next part first. */
void swap_parts(const Cx *cx)
{
    for (uint32_t i = 0, last = NO_LINE; i < n_lines(cx); i++) {
        if (!line_is(line_at(cx, i), "adamw_part"))
            continue;
        if (last != NO_LINE && same_body(cx, last, i) &&
            line_arg(line_at(cx, last), "bucket") == line_arg(line_at(cx, i), "bucket"))
            try_move(cx, last, i, true);
        last = i;
    }
}
