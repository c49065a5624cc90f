/* diff: the ZeRO-3 schedule against the compiled one, or two dumps against each other. */
#include "base/file.h"
#include "frontend/machine.h"
#include "tools/command/compare.h"
#include "tools/command/session.h"

#include <string.h>

#define NO_LIMIT (UINT64_MAX / 4) /* more than any plan takes */

static void simulate(FgArena *arena, const FgMachine *machine, FgSide *side)
{
    FgSimNode *run = FG_NEW_ARRAY(arena, FgSimNode, side->module->nodes.len + 1);
    fg_simulate_trace(arena, side->module, machine, run);
    side->run = run;
}

static void fill_side(FgSession *s, FgSide *side, const char *name, const FgCompiled *compiled)
{
    side->name = name;
    side->module = compiled->module;
    side->scheduled = true;
    side->ledger = compiled->ledger;
    side->sim = compiled->sim;
    simulate(s->arena, &s->machine, side);
}

/* The baseline is shown also when it does not fit: that is when the comparison matters most. */
static FgExit compile_baseline(FgSession *s, FgCompileOptions options, FgSide *out)
{
    FgCompiled compiled = {0};
    options.schedule = FG_SCHEDULE_ZERO3;
    FgExit code = fg_session_compile(s, &options, &compiled);
    if (code == FG_EXIT_DOES_NOT_FIT) {
        out->too_big = true;
        options.memory_bytes = NO_LIMIT;
        code = fg_session_compile(s, &options, &compiled);
    }
    if (code == FG_EXIT_OK)
        fill_side(s, out, "zero3", &compiled);
    return code;
}

static FgExit compare_schedules(FgSession *s, FgComparison *c)
{
    FgCompiled compiled = {0};
    FgCompileOptions options = fg_session_options(s);
    FgCompileOptions reported = options;
    reported.offer = s->flags->values[FG_FLAG_report];
    FgExit code = fg_session_compile(s, &reported, &compiled);
    if (code == FG_EXIT_OK || code == FG_EXIT_DOES_NOT_FIT) {
        FgExit wrote = fg_report_write(s, &compiled, 0, 0);
        if (wrote != FG_EXIT_OK)
            return wrote;
    }
    if (code == FG_EXIT_DOES_NOT_FIT)
        fg_print_refusal(s, &compiled);
    if (code != FG_EXIT_OK)
        return code;
    const char *plan = compiled.module->plan->name;
    bool searched = options.schedule == FG_SCHEDULE_COMPILED;
    fill_side(s, &c->right, searched ? "compiled" : plan, &compiled);
    if (searched && strcmp(plan, "compiled") != 0)
        c->right.plan = fg_schedule_title(plan);
    c->budget = compiled.budget_bytes;
    return compile_baseline(s, options, &c->left);
}

/* ---- dumps ---- */
static FgModule *read_dump(FgSession *s, const char *path)
{
    char *text;
    size_t len;
    const char *error;
    if (!fg_file_read(s->arena, path, &text, &len, &error)) {
        fg_diag(s->diags, FG_NOWHERE, FG_D_IO, "%s", error);
        return NULL;
    }
    return fg_module_parse(s->arena, s->diags, path, text, len);
}

static bool dump_side(FgSession *s, const char *path, FgSide *out)
{
    const char *slash = strrchr(path, '/');
    out->name = slash ? slash + 1 : path;
    out->module = read_dump(s, path);
    if (!out->module)
        return false;
    out->scheduled = out->module->level == FG_LEVEL_SCHED;
    if (!out->scheduled)
        return true;
    FgMachine machine = s->machine;
    fg_machine_set_ranks(s->arena, &machine, out->module->ranks);
    fg_ledger(s->arena, out->module, &out->ledger);
    fg_simulate(s->arena, out->module, &machine, &out->sim);
    simulate(s->arena, &machine, out);
    return true;
}

static FgExit compare_dumps(FgSession *s, FgArena *arena, const FgFlags *flags, FgComparison *c)
{
    *s = (FgSession){.arena = arena, .flags = flags, .diags = fg_diags_new(arena)};
    const char *name = flags->values[FG_FLAG_machine] ? flags->values[FG_FLAG_machine] : "host";
    bool ok = fg_machine_load(arena, s->diags, name, &s->machine) &&
              dump_side(s, flags->files.data[0], &c->left) &&
              dump_side(s, flags->files.data[1], &c->right);
    if (!ok)
        fg_session_flush(s);
    return ok ? FG_EXIT_OK : FG_EXIT_INPUT;
}

/* Dumps have their shapes, numerics and plan: flags that would change those mean nothing there. */
static FgExit check_dump_flags(FgArena *arena, const FgFlags *flags)
{
    for (uint32_t i = 0; i < FG_N_FLAGS; i++) {
        bool meant = i == FG_FLAG_machine || i == FG_FLAG_format || i == FG_FLAG_exit_code ||
                     i == FG_FLAG_output;
        if (flags->values[i] && !meant)
            return fg_usage_error(
                flags->verb, "%s is for models; of two dumps only --machine changes the figures",
                fg_flag_name((FgFlagId)i));
    }
    for (uint32_t i = 0; i < flags->files.len; i++) {
        char *text;
        size_t len;
        const char *error, *path = flags->files.data[i];
        if (strcmp(path, "-") == 0 || fg_file_is_device(path) ||
            !fg_file_read(arena, path, &text, &len, &error))
            continue; /* said when it is read */
        if (text[strspn(text, " \t\r\n")] == '{')
            return fg_usage_error(
                flags->verb,
                "%s is a model; diff takes one model or two dumps (make them with "
                "dump -o FILE)",
                path);
    }
    return FG_EXIT_OK;
}

FgExit fg_cmd_diff(FgArena *arena, const FgFlags *flags)
{
    FgSession s;
    FgComparison c = {.budget = UINT64_MAX};
    const char *path = flags->values[FG_FLAG_output], *error;
    bool dumps = flags->files.len == 2;
    if (flags->files.len > 2)
        return fg_usage_error(flags->verb, "diff takes one model or two dumps");
    FgExit code = dumps ? check_dump_flags(arena, flags) : FG_EXIT_OK;
    if (code == FG_EXIT_OK)
        code = fg_check_text_outputs(arena, flags, path);
    if (code == FG_EXIT_OK && dumps)
        code = compare_dumps(&s, arena, flags, &c);
    else if (code == FG_EXIT_OK) {
        code = fg_session_open(&s, arena, flags);
        if (code == FG_EXIT_OK)
            code = compare_schedules(&s, &c);
    }
    if (code != FG_EXIT_OK)
        return code;
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_compare(arena, &c);
    if (fg_flags_choice(flags, FG_FLAG_format) == 0)
        fg_comparison_text(arena, &c, &text);
    else
        fg_comparison_json(arena, &c, &text);
    if (!fg_file_write(arena, path ? path : "-", fg_buf_text(&text), text.len, &error))
        return fg_session_fail(&s, error);
    fg_session_flush(&s);
    return flags->values[FG_FLAG_exit_code] && c.differs ? FG_EXIT_INPUT : FG_EXIT_OK;
}
