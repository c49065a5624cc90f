/* dump: the IR at any stage as text. */
#include "base/file.h"
#include "tools/command/session.h"

#include <string.h>

typedef enum Stage { STAGE_SCHED, STAGE_DIST, STAGE_GRAPH } Stage;

/* Whether a comma-separated pipeline names a pass. */
static bool in_pipeline(const char *pipeline, const char *pass)
{
    size_t n = strlen(pass);
    for (const char *p = pipeline; *p;) {
        size_t len = strcspn(p, ",");
        if (len == n && memcmp(p, pass, n) == 0)
            return true;
        p += len + (p[len] == ',');
    }
    return false;
}

static FgExit check_pass(const FgFlags *flags)
{
    const char *pass = flags->values[FG_FLAG_after], *names[FG_N_PASSES];
    if (!pass)
        return FG_EXIT_OK;
    if (flags->values[FG_FLAG_stage])
        return fg_usage_error(flags->verb, "give --stage or --after, not both");
    if (in_pipeline(FG_PIPELINE_GRAPH "," FG_PIPELINE_PLANNED, pass))
        return FG_EXIT_OK;
    for (uint32_t i = 0; i < FG_N_PASSES; i++)
        names[i] = fg_pass_info((FgPassId)i)->name;
    const char *near = fg_closest(pass, names, FG_N_PASSES);
    return fg_usage_error(flags->verb, "no pass '%s' in the pipeline%s%s%s; it is %s,%s", pass,
                          near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                          FG_PIPELINE_GRAPH, FG_PIPELINE_PLANNED);
}

/* The graph passes alone: no machine, no memory, so nothing that could not fit. */
static FgModule *run_graph_passes(FgSession *s, const char *stop_after)
{
    FgPassManager manager = {.arena = s->arena, .machine = &s->machine, .budget = UINT64_MAX};
    manager.verify_each = true;
    manager.stop_after = stop_after;
    bool fuse = !s->flags->values[FG_FLAG_no_fuse];
    return fg_run_passes(&manager, s->graph, fuse ? FG_PIPELINE_GRAPH : FG_PIPELINE_UNFUSED)
               ? s->graph
               : NULL;
}

/* The figures of the whole plan, where the dump ends before there is one. What does not fit is in
 * the report, and is no error of this. */
static FgExit report_plan(FgSession *s)
{
    FgCompileOptions options = fg_session_options(s);
    FgCompiled compiled = {0};
    if (!s->flags->values[FG_FLAG_report])
        return FG_EXIT_OK;
    options.offer = true;
    FgExit code = fg_session_compile(s, &options, &compiled);
    return code == FG_EXIT_OK || code == FG_EXIT_DOES_NOT_FIT ? fg_report_write(s, &compiled, 0, 0)
                                                              : code;
}

static FgExit make_module(FgSession *s, FgModule **out)
{
    Stage stage = (Stage)fg_flags_choice(s->flags, FG_FLAG_stage);
    const char *after = s->flags->values[FG_FLAG_after];
    if (after && strcmp(after, "check") == 0)
        after = NULL; /* the whole pipeline: what is proved is printed as it stands */
    bool whole = stage == STAGE_SCHED && !after;
    FgExit code = whole ? FG_EXIT_OK : report_plan(s);
    if (code != FG_EXIT_OK)
        return code;
    if (stage == STAGE_GRAPH || (after && in_pipeline(FG_PIPELINE_GRAPH, after))) {
        *out = run_graph_passes(s, after);
        if (!*out)
            fg_session_flush(s);
        return *out ? FG_EXIT_OK : FG_EXIT_INPUT;
    }
    FgCompileOptions options = fg_session_options(s);
    FgCompiled compiled = {0};
    options.stop_after = stage == STAGE_DIST ? "update" : after;
    options.offer = whole && s->flags->values[FG_FLAG_report];
    code = fg_session_compile(s, &options, &compiled);
    if (whole && (code == FG_EXIT_OK || code == FG_EXIT_DOES_NOT_FIT)) {
        FgExit reported = fg_report_write(s, &compiled, 0, 0);
        if (reported != FG_EXIT_OK)
            return reported;
    }
    if (code == FG_EXIT_DOES_NOT_FIT || (code == FG_EXIT_OK && !compiled.module)) {
        fg_print_refusal(s, &compiled);
        return FG_EXIT_DOES_NOT_FIT;
    }
    *out = compiled.module;
    return code;
}

FgExit fg_cmd_dump(FgArena *arena, const FgFlags *flags)
{
    FgSession s;
    FgModule *module = NULL;
    const char *path = flags->values[FG_FLAG_output], *error;
    FgExit code = check_pass(flags);
    if (code == FG_EXIT_OK)
        code = fg_check_text_outputs(arena, flags, path);
    if (code == FG_EXIT_OK)
        code = fg_session_open(&s, arena, flags);
    if (code == FG_EXIT_OK)
        code = make_module(&s, &module);
    if (code != FG_EXIT_OK)
        return code;
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_module_print(module, &text);
    if (!fg_file_write(arena, path ? path : "-", fg_buf_text(&text), text.len, &error))
        return fg_session_fail(&s, error);
    fg_session_flush(&s);
    return FG_EXIT_OK;
}
