/* verify: an emitted program, read back and proved; compile does the same with what it emits. */
#include "base/file.h"
#include "tools/command/build.h"
#include "tools/command/session.h"
#include "tools/command/verify.h"

#include <inttypes.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

bool fg_verify_text(FgSession *s, const char *path, const char *text, size_t len,
                    const FgModule *plan, FgReadback *out, double *out_ms)
{
    const char *error = NULL, *include = fg_runtime_include(s->arena, &error);
    double start = now_ms();
    *out_ms = 0;
    if (!include) {
        fg_diag(s->diags, FG_NOWHERE, FG_D_IO, "%s", error);
        return false;
    }
    FgReadbackRequest request = {path, text, len, include, plan};
    bool ok = fg_readback(s->arena, s->diags, &request, out);
    *out_ms = now_ms() - start;
    return ok;
}

static bool read_file(FgSession *s, const char *path, char **out_text, size_t *out_len)
{
    const char *error;
    if (fg_file_read(s->arena, path, out_text, out_len, &error))
        return true;
    fg_diag(s->diags, FG_NOWHERE, FG_D_IO, "%s", error);
    return false;
}

/* The plan to compare with; false after an error. */
static bool read_plan(FgSession *s, const char *path, FgModule **out)
{
    char *text;
    size_t len;
    *out = NULL;
    if (!path)
        return true;
    if (!read_file(s, path, &text, &len))
        return false;
    *out = fg_module_parse(s->arena, s->diags, path, text, len);
    if (*out && (*out)->level != FG_LEVEL_SCHED) {
        fg_diag(s->diags, FG_NOWHERE, FG_D_WRONG_LEVEL, "%s is not at level sched: %s", path,
                "make it with dump --stage sched");
        return false;
    }
    return *out && fg_module_verify(*out);
}

/* "1 wait", "1,205 waits" */
static const char *counted(FgArena *arena, uint64_t n, const char *what)
{
    return fg_arena_printf(arena, "%s %s%s", fg_count_text(arena, n), what, n == 1 ? "" : "s");
}

static void print_proof(FgArena *arena, const FgReadback *r, const FgModule *plan)
{
    printf("proved    %s on %s: %s, %s ordered by %s,\n", counted(arena, r->calls, "call"),
           counted(arena, r->ranks, "rank"), counted(arena, r->proof.gathers, "gather"),
           counted(arena, r->proof.reuses, "address reuse"),
           counted(arena, r->proof.waits, "wait"));
    printf("          over start, two steps, flush and the seams between them\n");
    printf("memory    %s of states, %s of arena and %s reserved within %s\n",
           fg_bytes_text(arena, r->state_bytes), fg_bytes_text(arena, r->arena_bytes),
           fg_bytes_text(arena, r->reserved_bytes), fg_bytes_text(arena, r->memory_bytes));
    printf("plan      fingerprint %016" PRIx64 "%s\n", r->fingerprint,
           plan ? ", the same call by call" : ", not compared (no --plan)");
}

FgExit fg_cmd_verify(FgArena *arena, const FgFlags *flags)
{
    FgSession s = {.arena = arena, .flags = flags, .diags = fg_diags_new(arena)};
    const char *why;
    char *text;
    size_t len;
    FgModule *plan;
    FgReadback out;
    double ms;
    if (flags->files.len != 1)
        return fg_usage_error(flags->verb,
                              flags->files.len ? "one program at a time" : "no program given");
    if (!fg_readback_available(arena, &why))
        return fg_usage_error(flags->verb, "%s", why);
    s.source = flags->files.data[0];
    bool ok = read_plan(&s, flags->values[FG_FLAG_plan], &plan) &&
              read_file(&s, s.source, &text, &len) &&
              fg_verify_text(&s, s.source, text, len, plan, &out, &ms);
    fg_session_flush(&s);
    if (ok)
        print_proof(arena, &out, plan);
    return ok ? FG_EXIT_OK : FG_EXIT_INPUT;
}
