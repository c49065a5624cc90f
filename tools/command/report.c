/* The figures of a compile as JSON. Keys are promised to users: tests name each of them. */
#include "base/file.h"
#include "passes/lower.h"
#include "tools/command/explain.h"

#include <inttypes.h>
#include <math.h>

static void put_u64(FgBuf *out, const char *key, uint64_t value)
{
    fg_buf_printf(out, "  \"%s\": %" PRIu64 ",\n", key, value);
}

static void put_double(FgBuf *out, const char *key, double value)
{
    fg_buf_printf(out, "  \"%s\": %s,\n", key,
                  isfinite(value) ? fg_double_text(out->arena, value) : "null");
}

static void put_classes(FgBuf *out, const char *key, const uint64_t *by_class)
{
    fg_buf_printf(out, "  \"%s\": {", key);
    for (uint32_t i = 0; i < FG_N_MEM_CLASSES; i++)
        fg_buf_printf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", fg_mem_class_name((FgMemClass)i),
                      by_class[i]);
}

static void put_times(FgBuf *out, const FgCompiled *compiled)
{
    fg_buf_puts(out, "  \"compile_ms\": {");
    for (uint32_t i = 0; i < compiled->times.len; i++)
        fg_buf_printf(out, "%s%s: %.3f", i ? ", " : "",
                      fg_quoted(out->arena, compiled->times.data[i].name),
                      compiled->times.data[i].ms);
    fg_buf_puts(out, "},\n");
}

/* What the step is made of, where there is a plan. */
static void put_profile(const FgSession *session, const FgCompiled *c, FgBuf *out)
{
    if (!c->fits)
        return;
    FgRunning running = {.compiled = c};
    fg_profile(session->arena, c->module, &session->machine, &running.profile);
    fg_profile_json(session->arena, &running, out);
}

static void put_report(const FgSession *session, const FgCompiled *c, double cc_ms,
                       double verify_ms, FgBuf *out)
{
    FgArena *arena = session->arena;
    const FgLedger *ledger = &c->ledger;
    fg_buf_printf(out, "{\n  \"fits\": %s,\n", c->fits ? "true" : "false");
    put_u64(out, "memory_bytes", c->memory_bytes);
    put_u64(out, "reserved_bytes", c->reserved_bytes);
    put_u64(out, "budget_bytes", c->budget_bytes);
    put_u64(out, "peak_bytes", ledger->peak_bytes);
    fg_buf_printf(out, "  \"peak_phase\": %s,\n",
                  fg_quoted(arena, ledger->peak_phase ? ledger->peak_phase : ""));
    put_classes(out, "ledger", ledger->by_class);
    fg_buf_printf(out, ", \"unused\": %" PRIu64 "},\n", ledger->unused_bytes);
    put_u64(out, "host_memory_bytes", c->host_memory_bytes);
    put_u64(out, "host_bytes", ledger->host_bytes);
    put_classes(out, "host_ledger", ledger->host_by_class);
    fg_buf_puts(out, "},\n");
    put_u64(out, "arena_bytes", ledger->arena_bytes);
    put_u64(out, "arena_bound_bytes", ledger->arena_bound_bytes);
    put_double(out, "step_us", c->sim.step_us);
    put_double(out, "bound_us", c->sim.bound_us);
    put_double(out, "exposed_us",
               c->sim.exposed_gather_us + c->sim.exposed_reduce_us + c->sim.exposed_host_us);
    put_double(out, "exposed_host_us", c->sim.exposed_host_us);
    put_double(out, "slowed_us", c->sim.slowed_us);
    put_u64(out, "gathers", c->sim.gathers);
    put_u64(out, "gather_bytes", c->sim.gather_bytes);
    put_u64(out, "reduce_bytes", c->sim.reduce_bytes);
    put_u64(out, "buckets_in_parts", c->module ? fg_count_parts(c->module) : 0);
    put_u64(out, "token_bytes", c->sim.token_bytes);
    fg_buf_printf(out, "  \"vocab\": \"%s\",\n",
                  c->numerics.vocab == FG_VOCAB_SHARDED ? "sharded" : "gathered");
    put_u64(out, "vocab_chunk", (uint64_t)c->numerics.chunk);
    fg_buf_printf(out, "  \"accumulate_in\": \"%s\",\n",
                  fg_sums_whole(&c->numerics) ? "whole" : "slice");
    fg_buf_printf(out, "  \"numerics\": \"%s\",\n", c->numerics_tried ? "auto" : "default");
    put_u64(out, "numerics_tried", c->numerics_tried ? c->numerics_tried : 1);
    put_double(out, "auto_saves_us", c->offer.made ? c->offer.saves_us : NAN);
    if (c->offer.made)
        put_u64(out, "auto_saves_bytes", c->offer.saves_bytes);
    else
        fg_buf_puts(out, "  \"auto_saves_bytes\": null,\n");
    put_u64(out, "smallest_budget_bytes", c->smallest_memory_bytes);
    fg_buf_printf(out, "  \"fingerprint\": \"%016" PRIx64 "\",\n", c->fingerprint);
    put_profile(session, c, out);
    put_times(out, c);
    fg_buf_printf(out, "  \"verify_ms\": %.3f,\n  \"cc_ms\": %.3f\n}\n", verify_ms, cc_ms);
}

FgExit fg_report_write(FgSession *session, const FgCompiled *c, double cc_ms, double verify_ms)
{
    const char *path = session->flags->values[FG_FLAG_report], *error;
    FgBuf text;
    if (!path)
        return FG_EXIT_OK;
    fg_buf_init(&text, session->arena);
    put_report(session, c, cc_ms, verify_ms, &text);
    if (!fg_file_write(session->arena, path, fg_buf_text(&text), text.len, &error))
        return fg_session_fail(session, error);
    return FG_EXIT_OK;
}
