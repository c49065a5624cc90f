/* The frontier as a table, and as data. */
#include "tools/command/explain.h"
#include "tools/command/frontier.h"
#include "tools/command/session.h"

#include <inttypes.h>

static double over_bound(const FgFrontierPlan *p)
{
    return p->bound_us > 0.0 ? p->step_us / p->bound_us - 1.0 : 0.0;
}

static const char *mib_text(FgArena *arena, uint64_t bytes)
{
    return fg_arena_printf(arena, "%" PRIu64 "MiB", bytes >> 20);
}

static void put_row(FgArena *arena, const FgFrontier *f, const char *memory,
                    const FgFrontierPlan *p, const char *note, FgBuf *out)
{
    const FgLevers *l = &p->levers;
    bool plain = p->numerics.vocab == FG_VOCAB_GATHERED && !p->numerics.chunk &&
                 !fg_sums_whole(&p->numerics);
    const char *vocab = plain ? "" : fg_vocab_text(arena, &p->numerics);
    fg_buf_printf(out, "%11s %10s %10s %7.3f %7.1f %%", memory, fg_bytes_text(arena, p->peak_bytes),
                  fg_us_text(arena, p->step_us), p->step_us / f->fastest_us, 100.0 * over_bound(p));
    fg_buf_printf(out, " %5u %10s %6u %7u %10s %7u%s%s%s%s\n", l->kept,
                  fg_arena_printf(arena, "%u of %u", l->ahead, l->gathers), l->regathered,
                  l->recomputed,
                  l->offloaded_bytes ? fg_bytes_text(arena, l->offloaded_bytes) : "0", l->buckets,
                  *vocab ? "  " : "", vocab, *note ? "  " : "", note);
}

/* What the machine, or --memory, has to do with the curve. */
static void put_machine(const FgSession *s, const FgFrontier *f, FgBuf *out)
{
    const char *offered = fg_bytes_text(s->arena, f->machine_bytes);
    const char *who = s->flags->values[FG_FLAG_memory] ? "offered" : s->machine.name;
    if (f->machine_bytes < f->minimum_bytes)
        fg_buf_printf(out, "%s: %s, less than the minimum\n", who, offered);
    else
        fg_buf_printf(out, "%s: %s\n", who, offered);
}

void fg_frontier_text(const FgSession *s, const FgFrontier *f, FgBuf *out)
{
    FgArena *arena = s->arena;
    fg_buf_printf(out, "%s   %u rank%s   ", f->graph->name, f->ranks, f->ranks == 1 ? "" : "s");
    put_machine(s, f, out);
    fg_buf_printf(out, "%11s %10s %10s %7s %9s %5s %10s %6s %7s %10s %7s\n", "--memory", "peak",
                  "step", "times", "to bound", "kept", "ahead", "again", "recomp.", "offloaded",
                  "buckets");
    for (uint32_t i = 0; i < f->points.len; i++) {
        const FgFrontierPoint *p = &f->points.data[i];
        put_row(arena, f, mib_text(arena, p->memory_bytes), p->plan, fg_frontier_tag_text(p), out);
    }
    for (uint32_t i = 0; i < f->marks.len; i++) {
        const FgFrontierMark *m = &f->marks.data[i];
        put_row(arena, f, mib_text(arena, m->plan.needs_bytes), &m->plan, m->name, out);
    }
    fg_buf_puts(out,
                "times: of the fastest step; to bound: above the bound of the plan's own nodes; "
                "kept: gathers saved by\nkeeping buckets from forward to backward; ahead: gathers "
                "issued before their use; again: gathers beyond\na bucket's first; recomp.: nodes "
                "that run again for backward; offloaded: to host memory\n");
}

/* ---- JSON ---- */
static void put_plan(FgArena *arena, const FgFrontier *f, const FgFrontierPlan *p, FgBuf *out)
{
    const FgLevers *l = &p->levers;
    fg_buf_printf(out,
                  "\"needs_bytes\": %" PRIu64 ", \"found_at_bytes\": %" PRIu64
                  ", \"peak_bytes\": %" PRIu64 ", \"peak_phase\": %s, ",
                  p->needs_bytes, p->offered_bytes, p->peak_bytes, fg_quoted(arena, p->peak_phase));
    fg_buf_printf(
        out,
        "\"step_us\": %s, \"times\": %s, \"bound_us\": %s, \"bound_engine\": \"%s\", "
        "\"over_bound\": %s, ",
        fg_double_text(arena, p->step_us), fg_double_text(arena, p->step_us / f->fastest_us),
        fg_double_text(arena, p->bound_us), p->bound_engine, fg_double_text(arena, over_bound(p)));
    fg_buf_printf(
        out,
        "\"levers\": {\"plan\": %s, \"buckets\": %u, \"gathers\": %u, \"ahead\": %u, "
        "\"kept\": %u, \"regathered\": %u, \"recomputed\": %u, \"offloaded_bytes\": %" PRIu64
        ", \"vocab\": \"%s\", \"vocab_chunk\": %" PRId64 ", \"accumulate_in\": \"%s\"}",
        fg_quoted(arena, l->plan), l->buckets, l->gathers, l->ahead, l->kept, l->regathered,
        l->recomputed, l->offloaded_bytes,
        p->numerics.vocab == FG_VOCAB_SHARDED ? "sharded" : "gathered", p->numerics.chunk,
        fg_sums_whole(&p->numerics) ? "whole" : "slice");
}

void fg_frontier_json(const FgFrontier *f, FgBuf *out)
{
    FgArena *arena = f->arena;
    fg_buf_printf(out, "{\n  \"model\": %s,\n  \"machine\": %s,\n  \"ranks\": %u,\n",
                  fg_quoted(arena, f->graph->name), fg_quoted(arena, f->machine->name), f->ranks);
    fg_buf_printf(out,
                  "  \"reserved_bytes\": %" PRIu64 ",\n  \"offered_bytes\": %" PRIu64
                  ",\n  \"minimum_bytes\": %" PRIu64 ",\n  \"fastest_us\": %s,\n",
                  f->machine->reserved_bytes, f->machine_bytes, f->minimum_bytes,
                  fg_double_text(arena, f->fastest_us));
    fg_buf_puts(out, "  \"points\": [");
    for (uint32_t i = 0; i < f->points.len; i++) {
        const FgFrontierPoint *p = &f->points.data[i];
        fg_buf_printf(out, "%s\n    {\"memory_bytes\": %" PRIu64 ", \"tag\": %s, ", i ? "," : "",
                      p->memory_bytes, fg_quoted(arena, fg_frontier_tag_text(p)));
        put_plan(arena, f, p->plan, out);
        fg_buf_puts(out, "}");
    }
    fg_buf_puts(out, "],\n  \"baselines\": {");
    for (uint32_t i = 0; i < f->marks.len; i++) {
        fg_buf_printf(out, "%s\n    \"%s\": {", i ? "," : "", f->marks.data[i].key);
        put_plan(arena, f, &f->marks.data[i].plan, out);
        fg_buf_puts(out, "}");
    }
    fg_buf_puts(out, "}\n}\n");
}
