/* compile: plan, emit, build, and say what came of it. */
#include "base/file.h"
#include "codegen/codegen.h"
#include "tools/command/build.h"
#include "tools/command/session.h"
#include "tools/command/verify.h"

#include <string.h>

typedef enum Kind { KIND_EXE, KIND_C, KIND_SO } Kind;
enum { TARGET_HOST, TARGET_CUDA }; /* choices of --target */

typedef struct Target {
    Kind kind;
    bool cuda;
    const char *ending; /* of the text's file: ".c", ".cu" */
    const char *stem;   /* OUT of --save-temps's OUT.c */
    const char *output; /* what is written */
} Target;

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n > m && strcmp(text + n - m, tail) == 0;
}

/* The model's name as a file name. */
static const char *default_stem(FgArena *arena, const char *name)
{
    char *stem = fg_arena_strdup(arena, name);
    for (char *c = stem; *c; c++) {
        if (*c == '/')
            *c = '_';
    }
    return *stem && *stem != '-' && *stem != '.' ? stem : "model";
}

static Target target_of(const FgSession *s)
{
    const char *given = s->flags->values[FG_FLAG_output];
    Target t = {.kind = (Kind)fg_flags_choice(s->flags, FG_FLAG_emit)};
    t.stem = given ? given : default_stem(s->arena, s->graph->name);
    t.output = t.stem;
    t.cuda = fg_flags_choice(s->flags, FG_FLAG_target) == TARGET_CUDA;
    t.ending = t.cuda ? ".cu" : ".c";
    if (t.kind == KIND_C && !ends_with(t.stem, t.ending) && strcmp(t.stem, "-") != 0 &&
        !fg_file_is_device(t.stem) && !fg_file_is_folder(t.stem))
        t.output = fg_arena_printf(s->arena, "%s%s", t.stem, t.ending);
    if (t.kind == KIND_SO && !given)
        t.output = fg_arena_printf(s->arena, "%s.so", t.stem);
    return t;
}

static const char *emit(FgSession *s, const FgCompiled *c, bool cuda)
{
    FgEmitRow rows[FG_N_MEM_CLASSES + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < FG_N_MEM_CLASSES; i++) {
        if (c->ledger.by_class[i])
            rows[n++] = (FgEmitRow){fg_mem_class_name((FgMemClass)i), c->ledger.by_class[i]};
    }
    if (c->ledger.unused_bytes)
        rows[n++] = (FgEmitRow){"unused", c->ledger.unused_bytes};
    FgEmitInfo info = {.version = FG_VERSION,
                       .source = s->source,
                       .fingerprint = c->fingerprint,
                       .step_us = c->sim.step_us,
                       .memory_bytes = c->memory_bytes,
                       .reserved_bytes = c->reserved_bytes,
                       .host_memory_bytes = c->host_memory_bytes,
                       .ledger = rows,
                       .n_ledger = n,
                       .cuda = cuda};
    FgBuf text;
    fg_buf_init(&text, s->arena);
    fg_emit_c(s->arena, c->module, &info, &text);
    return fg_buf_text(&text);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The C file that stays, or NULL. */
static const char *kept_text(const FgSession *s, const Target *t)
{
    if (t->kind == KIND_C)
        return t->output;
    return s->flags->values[FG_FLAG_save_temps]
               ? fg_arena_printf(s->arena, "%s%s", t->stem, t->ending)
               : NULL;
}

static FgExit check_outputs(const FgSession *s, const Target *t)
{
    FgOutput outputs[3];
    uint32_t n = 0;
    const char *text = kept_text(s, t), *report = s->flags->values[FG_FLAG_report];
    if (t->kind != KIND_C)
        outputs[n++] = (FgOutput){t->output, true};
    if (text)
        outputs[n++] = (FgOutput){text, false};
    if (report)
        outputs[n++] = (FgOutput){report, false};
    return fg_check_outputs(s->arena, s->flags, outputs, n);
}

/* Writes the C text where it was asked for, and builds. */
static FgExit write_target(FgSession *s, const Target *t, const char *text, double *out_cc_ms)
{
    const char *error = NULL;
    const char *c_path = kept_text(s, t);
    if (c_path && !fg_file_write(s->arena, c_path, text, strlen(text), &error))
        return fg_session_fail(s, error);
    if (t->kind == KIND_C)
        return FG_EXIT_OK;
    FgStrVec sources = {0};
    if (!fg_custom_sources(s, t->cuda, &sources)) {
        fg_session_flush(s);
        return FG_EXIT_INPUT;
    }
    const char *name = fg_arena_printf(s->arena, "%s%s", base_name(t->stem), t->ending);
    const char *arch = s->flags->values[FG_FLAG_arch];
    FgBuild build = {.text = text,
                     .name = name,
                     .output = t->output,
                     .shared = t->kind == KIND_SO,
                     .cuda = t->cuda,
                     .arch = arch ? arch : "90",
                     .sources = sources};
    if (!fg_build(s->arena, &build, out_cc_ms, &error))
        return fg_session_fail(s, error);
    return FG_EXIT_OK;
}

/* Reads the emitted text back and proves that it is the plan; *out_said is for the summary. What
 * is not proved is a bug of ours, and nothing is written. */
static FgExit verify(FgSession *s, const FgCompiled *c, const char *text, double *out_ms,
                     const char **out_said)
{
    const char *why;
    FgReadback proof;
    *out_said = "emitted program not read back (--no-verify)";
    if (s->flags->values[FG_FLAG_no_verify])
        return FG_EXIT_OK;
    if (!fg_readback_available(s->arena, &why)) {
        *out_said = fg_arena_printf(s->arena, "emitted program not read back: %s", why);
        return FG_EXIT_OK;
    }
    *out_said = "emitted program read back and checked";
    if (!fg_runtime_include(s->arena, &why)) /* a runtime that is not there is no bug of ours */
        return fg_session_fail(s, why);
    if (fg_verify_text(s, "emitted.c", text, strlen(text), c->module, &proof, out_ms))
        return FG_EXIT_OK;
    fg_session_flush(s);
    fputs("foregather compile: internal error: the emitted program is not proved; this is a bug "
          "in foregather, please report it\n",
          stderr);
    return FG_EXIT_INTERNAL;
}

/* Whether a result goes to standard output: then what is said of it does not. */
static bool speaks_on_output(const FgSession *s, const Target *t)
{
    const char *report = s->flags->values[FG_FLAG_report];
    return strcmp(t->output, "-") != 0 && !(report && strcmp(report, "-") == 0);
}

/* As one word of a shell. */
static const char *shell_word(FgArena *arena, const char *text)
{
    FgBuf word;
    if (text[strspn(
            text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%")] == 0)
        return text;
    fg_buf_init(&word, arena);
    fg_buf_puts(&word, "'");
    for (; *text; text++) {
        if (*text == '\'')
            fg_buf_puts(&word, "'\\''");
        else
            fg_buf_put(&word, text, 1);
    }
    fg_buf_puts(&word, "'");
    return fg_buf_text(&word);
}

/* Whether a token file feeds the model: it gives tokens and labels, and nothing else. */
static bool takes_tokens(const FgModule *m)
{
    bool tokens = false;
    for (uint32_t i = 0; i < m->inputs.len; i++) {
        if (m->inputs.data[i].role == FG_INPUT_OTHER)
            return false;
        tokens = tokens || m->inputs.data[i].role == FG_INPUT_TOKENS;
    }
    return tokens;
}

/* How to run what was made: programs in the current folder need "./". */
static const char *run_text(FgArena *arena, const Target *t, const FgModule *m)
{
    if (t->kind != KIND_EXE)
        return NULL;
    const char *start =
        t->cuda && m->ranks > 1 ? fg_arena_printf(arena, " --local-ranks %u", m->ranks) : "";
    const char *program =
        fg_arena_printf(arena, "%s%s", strchr(t->output, '/') ? "" : "./", t->output);
    return fg_arena_printf(arena, "%s%s %s", shell_word(arena, program), start,
                           takes_tokens(m) ? "--data tokens.bin" : "--inputs batch.safetensors");
}

FgExit fg_compile_program(FgArena *arena, const FgFlags *flags, const char **out_program,
                          uint32_t *out_ranks)
{
    FgSession s;
    FgCompiled compiled = {0};
    double cc_ms = 0, verify_ms = 0;
    const char *said;
    FgExit code = fg_session_open(&s, arena, flags);
    if (code != FG_EXIT_OK)
        return code;
    Target target = target_of(&s);
    code = check_outputs(&s, &target);
    if (code != FG_EXIT_OK)
        return code;
    FgStrVec sources = {0};
    if (!fg_custom_sources(&s, target.cuda, &sources)) {
        fg_session_flush(&s);
        return FG_EXIT_INPUT;
    }
    FgCompileOptions options = fg_session_options(&s);
    options.offer = true;
    code = fg_session_compile(&s, &options, &compiled);
    if (code == FG_EXIT_DOES_NOT_FIT) {
        FgExit reported = fg_report_write(&s, &compiled, 0, 0);
        if (reported != FG_EXIT_OK)
            return reported;
        fg_print_refusal(&s, &compiled);
    }
    if (code != FG_EXIT_OK)
        return code;
    const char *text = emit(&s, &compiled, target.cuda);
    code = verify(&s, &compiled, text, &verify_ms, &said);
    if (code == FG_EXIT_OK)
        code = write_target(&s, &target, text, &cc_ms);
    if (code == FG_EXIT_OK)
        code = fg_report_write(&s, &compiled, cc_ms, verify_ms);
    if (code != FG_EXIT_OK)
        return code;
    FgWrote wrote = {target.output, run_text(arena, &target, compiled.module), said,
                     target.kind == KIND_EXE && !target.cuda};
    fg_session_flush(&s);
    fg_print_summary(&s, &compiled, &wrote, speaks_on_output(&s, &target) ? stdout : stderr);
    *out_program = target.output;
    *out_ranks = compiled.module->ranks;
    return FG_EXIT_OK;
}

FgExit fg_cmd_compile(FgArena *arena, const FgFlags *flags)
{
    const char *program;
    uint32_t ranks;
    return fg_compile_program(arena, flags, &program, &ranks);
}
