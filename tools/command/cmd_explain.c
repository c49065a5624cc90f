/* explain: why a node of the schedule stands where it does; without a node, what the step is made
 * of. */
#include "base/file.h"
#include "tools/command/explain.h"

#include <string.h>

#define GIB ((uint64_t)1 << 30)

static void run(FgSession *s, FgRunning *r, const FgCompiled *compiled)
{
    r->compiled = compiled;
    fg_profile(s->arena, compiled->module, &s->machine, &r->profile);
}

/* The same with one more GiB: what memory would buy. A plan that the search finds for it may be
 * slower than the one for less, which fits there too; then more memory buys nothing. */
static FgExit compile_more(FgSession *s, const FgCompiled *now, FgCompiled *more)
{
    FgCompileOptions options = fg_session_options(s);
    options.memory_bytes = now->memory_bytes + GIB;
    FgExit code = fg_session_compile(s, &options, more);
    if (code == FG_EXIT_OK && more->sim.step_us > now->sim.step_us) {
        uint64_t memory = more->memory_bytes;
        *more = *now;
        more->memory_bytes = memory;
    }
    return code;
}

static FgExit unknown_node(const FgFlags *flags, const char *name, const char *near)
{
    if (*near)
        return fg_usage_error(flags->verb,
                              "no node, bucket or parameter '%s' in the schedule; "
                              "did you mean %s?",
                              name, near);
    return fg_usage_error(flags->verb,
                          "no node, bucket or parameter '%s' in the schedule (dump "
                          "--stage sched shows all of them)",
                          name);
}

static void summarise(FgSession *s, const FgRunning *now, bool text, FgBuf *out)
{
    const FgCompiled *c = now->compiled;
    if (text) {
        fg_profile_text(s, now, out);
        return;
    }
    fg_buf_printf(out, "{\n  \"model\": %s,\n  \"plan\": %s,\n",
                  fg_quoted(s->arena, c->module->name), fg_quoted(s->arena, c->module->plan->name));
    fg_profile_json(s->arena, now, out);
    fg_buf_printf(out, "  \"step_us\": %s\n}\n", fg_double_text(s->arena, c->sim.step_us));
}

static FgExit tell(FgSession *s, FgRunning *now, const char *name, bool text, FgBuf *out)
{
    FgFound found;
    FgCompiled more = {0};
    FgExplanation e = {.session = s, .name = name, .now = *now};
    const char *near;
    if (!fg_find_nodes(s->arena, now->compiled->module, name, &found, &near))
        return unknown_node(s->flags, name, near);
    FgExit code = compile_more(s, now->compiled, &more);
    if (code != FG_EXIT_OK)
        return code;
    run(s, &e.more, &more);
    fg_explain(&e, &found);
    if (text)
        fg_explanation_text(&e, out);
    else
        fg_explanation_json(&e, out);
    return FG_EXIT_OK;
}

FgExit fg_cmd_explain(FgArena *arena, const FgFlags *flags)
{
    FgSession s;
    FgFlags model = *flags;
    FgCompiled compiled = {0};
    FgRunning now;
    FgBuf out;
    if (flags->files.len > 2)
        return fg_usage_error(flags->verb, "one node at a time");
    const char *name = flags->files.len == 2 ? flags->files.data[1] : NULL;
    model.files.len = flags->files.len ? 1 : 0;
    FgExit code = fg_session_open(&s, arena, &model);
    if (code != FG_EXIT_OK)
        return code;
    FgCompileOptions options = fg_session_options(&s);
    code = fg_session_compile(&s, &options, &compiled);
    if (code == FG_EXIT_DOES_NOT_FIT)
        fg_print_refusal(&s, &compiled);
    if (code != FG_EXIT_OK)
        return code;
    run(&s, &now, &compiled);
    fg_buf_init(&out, arena);
    bool text = fg_flags_choice(flags, FG_FLAG_format) == 0;
    if (name)
        code = tell(&s, &now, name, text, &out);
    else
        summarise(&s, &now, text, &out);
    if (code == FG_EXIT_OK) {
        fg_session_flush(&s);
        fputs(fg_buf_text(&out), stdout);
    }
    return code;
}
