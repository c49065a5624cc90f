/* fg-opt: runs passes on IR text and prints the result. For tests, and for looking at one pass
 * alone.
 *
 *   fg-opt [--passes=a,b{x}] [--stop-after=PASS] [--time] [--dump-dir DIR] [--dump=LIST]
 *          [--machine NAME|FILE] [--ranks N] [--budget BYTES] [--verify-each=0|1]
 *          [--split-input-file] [--verify-diagnostics] [FILE|-] [-o FILE]
 *   fg-opt --list-passes | --list-ops | --ops-markdown | --help
 *
 * Exit codes: 0 fine, 1 bad input or a failed pass (with --verify-diagnostics: other messages than
 * expected), 2 usage. */
#include "base/file.h"
#include "base/map.h"
#include "frontend/machine.h"
#include "ir/op_table.h"
#include "passes/passes.h"
#include "tools/expect.h"
#include "tools/ops_markdown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_OK, EXIT_BAD_INPUT, EXIT_USAGE };

typedef struct Options {
    const char *passes, *machine, *input, *output, *dump_dir, *dump, *stop_after;
    uint64_t budget, ranks;
    bool verify_each, split, expect, time, list_passes, list_ops, ops_markdown, help;
} Options;

static const char usage[] =
    "usage: fg-opt [option ...] [FILE|-]\n"
    "  --passes=LIST          run these passes: a,b{option},c\n"
    "  --machine NAME|FILE    the machine that passes plan for (default: host)\n"
    "  --ranks N              instead of the machine's\n"
    "  --budget SIZE          what `check` allows for states and arena\n"
    "  --verify-each=0|1      verify after each pass (default: 1)\n"
    "  --stop-after=PASS      end after this pass of the list\n"
    "  --time                 what each pass took, on standard error\n"
    "  --dump-dir DIR         write the IR after each pass that changed it as NN-PASS.fg; where a\n"
    "                         pass fails, what stood before it and how to run it as failed.fg\n"
    "  --dump=all|changed|LIST  into --dump-dir: after each pass, those that changed it "
    "(default),\n"
    "                         or those named\n"
    "  --split-input-file     the input is several modules between lines '// -----'\n"
    "  --verify-diagnostics   compare messages with '// expect-error@+1 {{text}}' comments\n"
    "  --list-passes          the passes, one a line\n"
    "  --list-ops             the ops, one a line\n"
    "  --ops-markdown         the text of docs/ops.md\n"
    "  --help                 this text\n"
    "  -o FILE                where the result goes (default: standard output)\n";

/* ---- options ---- */
/* "--name=value" or "--name value"; NULL when argv[*i] is another option. */
static const char *option_value(int argc, char **argv, int *i, const char *name)
{
    size_t n = strlen(name);
    FG_ASSERT(argv[*i]);
    if (strncmp(argv[*i], name, n) != 0)
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    return argv[*i][n] == 0 && *i + 1 < argc ? argv[++*i] : NULL;
}

static bool parse_count(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '1' && *text <= '9' && *end == 0 && *out < UINT32_MAX;
}

static bool parse_flag(const char *arg, Options *o)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--split-input-file", &o->split},
                 {"--verify-diagnostics", &o->expect},
                 {"--time", &o->time},
                 {"--list-passes", &o->list_passes},
                 {"--list-ops", &o->list_ops},
                 {"--ops-markdown", &o->ops_markdown},
                 {"--help", &o->help},
                 {"-h", &o->help}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(arg, flags[i].name) == 0)
            return *flags[i].flag = true;
    }
    return false;
}

static bool parse_valued(int argc, char **argv, int *i, Options *o)
{
    const char *value;
    if ((value = option_value(argc, argv, i, "--passes")))
        o->passes = value;
    else if ((value = option_value(argc, argv, i, "--machine")))
        o->machine = value;
    else if ((value = option_value(argc, argv, i, "--dump-dir")))
        o->dump_dir = value;
    else if ((value = option_value(argc, argv, i, "--dump")))
        o->dump = value;
    else if ((value = option_value(argc, argv, i, "--stop-after")))
        o->stop_after = value;
    else if ((value = option_value(argc, argv, i, "-o")))
        o->output = value;
    else if ((value = option_value(argc, argv, i, "--ranks")))
        return parse_count(value, &o->ranks);
    else if ((value = option_value(argc, argv, i, "--budget")))
        return fg_parse_bytes(value, &o->budget);
    else if ((value = option_value(argc, argv, i, "--verify-each")))
        return o->verify_each = value[0] != '0', (value[0] == '0' || value[0] == '1') && !value[1];
    else
        return false;
    return true;
}

static bool parse_options(int argc, char **argv, Options *o)
{
    *o = (Options){.passes = "",
                   .machine = "host",
                   .input = NULL,
                   .output = "-",
                   .budget = UINT64_MAX,
                   .verify_each = true};
    for (int i = 1; i < argc; i++) {
        bool file = argv[i][0] != '-' || argv[i][1] == 0;
        if (file && o->input) {
            fprintf(stderr, "fg-opt: two input files\n%s", usage);
            return false;
        }
        if (file) {
            o->input = argv[i];
        } else if (!parse_flag(argv[i], o) && !parse_valued(argc, argv, &i, o)) {
            fprintf(stderr, "fg-opt: bad option '%s'\n%s", argv[i], usage);
            return false;
        }
    }
    if (!o->input)
        o->input = "-";
    return true;
}

/* Names of passes, apart by commas. */
static bool are_passes(const char *list)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        bool found = false;
        n = strcspn(list, ",");
        for (int i = 0; i < FG_N_PASSES && !found; i++) {
            const char *name = fg_pass_info((FgPassId)i)->name;
            found = strlen(name) == n && memcmp(name, list, n) == 0;
        }
        if (!found)
            return false;
    }
    return true;
}

/* What options say together. */
static bool check_options(Options *o)
{
    if (o->dump && strcmp(o->dump, "changed") == 0)
        o->dump = NULL;
    else if (o->dump && (!o->dump_dir || (strcmp(o->dump, "all") != 0 && !are_passes(o->dump))))
        return fprintf(stderr, "fg-opt: %s\n",
                       o->dump_dir ? "--dump takes all, changed, or names of passes"
                                   : "--dump goes with --dump-dir") < 0;
    if (!o->stop_after || are_passes(o->stop_after))
        return true;
    return fprintf(stderr, "fg-opt: --stop-after: there is no pass '%s'\n", o->stop_after) < 0;
}

/* ---- lists ---- */
static void list_passes(void)
{
    for (int i = 0; i < FG_N_PASSES; i++) {
        const FgPassInfo *pass = fg_pass_info((FgPassId)i);
        printf("%-10s %s -> %s: %s\n", pass->name, fg_level_name(pass->level_in),
               fg_level_name(pass->level_out), pass->help);
    }
}

static void list_ops(void)
{
    for (int i = 0; i < FG_N_OPS; i++) {
        const FgOpInfo *op = fg_op_info((FgOp)i);
        printf("%-18s (%s) -> (%s): %s\n", op->name, op->operands, op->results, op->doc);
    }
}

static void print_ops_markdown(FgArena *arena)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    fg_ops_markdown(&text);
    fputs(fg_buf_text(&text), stdout);
}

/* ---- modules ---- */
typedef struct Run {
    const Options *options;
    FgArena *arena;
    const FgMachine *machine;
    FgBuf out;
    bool ok;
} Run;

static bool run_module(Run *run, FgDiags *diags, const char *text, size_t len)
{
    const Options *o = run->options;
    FgModule *m = fg_module_parse(run->arena, diags, o->input, text, len);
    if (!m || (o->verify_each && !fg_module_verify(m)))
        return false;
    FgPassManager manager = {.arena = run->arena,
                             .machine = run->machine,
                             .budget = o->budget,
                             .verify_each = o->verify_each,
                             .check_changed = true,
                             .dump_dir = o->dump_dir,
                             .dump = o->dump,
                             .stop_after = o->stop_after};
    bool ok = fg_run_passes(&manager, m, o->passes);
    for (uint32_t i = 0; o->time && i < manager.times.len; i++)
        fprintf(stderr, "%10.3f ms  %s\n", manager.times.data[i].ms, manager.times.data[i].name);
    if (ok && o->stop_after && !manager.stopped)
        ok = fprintf(stderr, "fg-opt: --stop-after: '%s' is not in --passes\n", o->stop_after) < 0;
    if (!ok)
        return false;
    if (!o->expect)
        fg_module_print(m, &run->out);
    return true;
}

/* One module of the input; with --verify-diagnostics its messages must be the expected ones, else
 * they are shown. */
static void run_part(Run *run, const char *text, size_t len)
{
    FgDiags *diags = fg_diags_new(run->arena);
    bool ok = run_module(run, diags, text, len);
    FgBuf messages;
    fg_buf_init(&messages, run->arena);
    fg_diags_render(diags, &messages);
    if (run->options->expect)
        ok = fg_expect_check(run->arena, run->options->input, text, len, fg_buf_text(&messages));
    else
        fputs(fg_buf_text(&messages), stderr);
    run->ok = run->ok && ok;
}

/* Each part keeps its line numbers: what stands before it becomes empty lines. */
static void run_parts(Run *run, const char *text, size_t len)
{
    static const char border[] = "\n// -----";
    size_t start = 0;
    bool first = true;
    while (start <= len) {
        const char *at = strstr(text + start, border);
        size_t end = at ? (size_t)(at - text) + 1 : len;
        FgBuf part;
        fg_buf_init(&part, run->arena);
        for (size_t i = 0; i < start; i++) {
            if (text[i] == '\n')
                fg_buf_puts(&part, "\n");
        }
        fg_buf_put(&part, text + start, end - start);
        if (!first && !run->options->expect)
            fg_buf_puts(&run->out, "// -----\n");
        run_part(run, fg_buf_text(&part), part.len);
        first = false;
        if (!at)
            return;
        start = end + strcspn(text + end, "\n");
    }
}

static int run_all(FgArena *arena, const Options *o)
{
    FgDiags *diags = fg_diags_new(arena);
    char *text;
    size_t len;
    const char *error;
    Run run = {.options = o, .arena = arena, .ok = true};
    fg_buf_init(&run.out, arena);
    FgMachine machine = {0};
    run.machine = &machine;
    if (!fg_machine_load(arena, diags, o->machine, &machine)) {
        FgBuf messages;
        fg_buf_init(&messages, arena);
        fg_diags_render(diags, &messages);
        fputs(fg_buf_text(&messages), stderr);
        return EXIT_BAD_INPUT;
    }
    if (o->dump_dir && !fg_file_make_folder(arena, o->dump_dir, &error)) {
        fprintf(stderr, "fg-opt: %s\n", error);
        return EXIT_BAD_INPUT;
    }
    if (o->ranks)
        fg_machine_set_ranks(arena, &machine, (uint32_t)o->ranks);
    if (!fg_file_read(arena, o->input, &text, &len, &error)) {
        fprintf(stderr, "fg-opt: %s\n", error);
        return EXIT_BAD_INPUT;
    }
    if (o->split)
        run_parts(&run, text, len);
    else
        run_part(&run, text, len);
    if ((run.ok || o->split) && !o->expect &&
        !fg_file_write(arena, o->output, fg_buf_text(&run.out), run.out.len, &error)) {
        fprintf(stderr, "fg-opt: %s\n", error);
        return EXIT_BAD_INPUT;
    }
    return run.ok ? EXIT_OK : EXIT_BAD_INPUT;
}

int main(int argc, char **argv)
{
    Options options;
    if (!parse_options(argc, argv, &options) || !check_options(&options))
        return EXIT_USAGE;
    FgArena *arena = fg_arena_new();
    int code = EXIT_OK;
    if (options.help)
        fputs(usage, stdout);
    else if (options.list_passes)
        list_passes();
    else if (options.list_ops)
        list_ops();
    else if (options.ops_markdown)
        print_ops_markdown(arena);
    else
        code = run_all(arena, &options);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("fg-opt: standard output cannot be written\n", stderr);
        code = EXIT_BAD_INPUT;
    }
    fg_arena_free(arena);
    return code;
}
