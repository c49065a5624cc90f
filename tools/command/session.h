/* What compile, dump and diff share: a model, a machine and numerics from flags, and a plan made of
 * them. */
#ifndef FG_TOOLS_COMMAND_SESSION_H
#define FG_TOOLS_COMMAND_SESSION_H

#include "passes/compile.h"
#include "tools/command/command.h"

typedef struct FgSession {
    FgArena *arena;
    const FgFlags *flags;
    FgDiags *diags;
    const char *source; /* the model file as it was given */
    FgMachine machine;
    FgNumerics numerics;
    FgModule *graph; /* level graph, before autodiff */
} FgSession;

/* Reads the machine and the one model that the flags name. Messages are printed. */
FgExit fg_session_open(FgSession *session, FgArena *arena, const FgFlags *flags);
/* The compile options that the flags ask for. */
FgCompileOptions fg_session_options(const FgSession *session);
/* Plans; FG_EXIT_DOES_NOT_FIT without a message (fg_print_refusal makes it). */
FgExit fg_session_compile(FgSession *session, const FgCompileOptions *options, FgCompiled *out);
/* After a compilation without a result: prints all messages. FG_EXIT_INPUT, or FG_EXIT_INTERNAL
 * where one of them tells of a schedule of our own making. */
FgExit fg_session_failed(FgSession *session);
/* Prints all messages on standard error: once, before the verb ends. */
void fg_session_flush(FgSession *session);
/* One error without a place in a file, printed. Returns FG_EXIT_INPUT. */
FgExit fg_session_fail(FgSession *session, const char *message);

/* A file that a verb will write. */
typedef struct FgOutput {
    const char *path;
    bool plain; /* a program: no device, no standard output */
} FgOutput;
/* Before any work: no output is an input or another output, and each can be written. Otherwise a
 * message on standard error and the exit code. */
FgExit fg_check_outputs(FgArena *arena, const FgFlags *flags, const FgOutput *outputs, uint32_t n);

/* ---- ds_flags.c ---- */
/* Reads --ds-config and gives its flags the file's values; flags that were given stay. The machine
 * of the session must be there: batch sizes depend on its ranks. False after errors. */
bool fg_session_ds_config(FgSession *session);

/* ---- custom.c ---- */
/* The source files of the model's custom functions for the target, and that each is what it was
 * when the model was read; false after a report. */
bool fg_custom_sources(FgSession *session, bool cuda, FgStrVec *out);

/* ---- summary.c ---- */
typedef struct FgWrote {
    const char *path, *run; /* what was written, and how to run it; run may be NULL */
    const char *read_back;  /* whether the emitted program was proved again */
    bool runs_here;         /* a program for the host, whatever machine it was planned for */
} FgWrote;
/* How a plan is called in prose: "ZeRO-3" for zero3. */
const char *fg_schedule_title(const char *plan_name);
/* "vocabulary sharded", "head in pieces of 2,048 tokens", "vocabulary gathered, head whole" */
const char *fg_vocab_text(FgArena *arena, const FgNumerics *numerics);
void fg_print_summary(FgSession *session, const FgCompiled *compiled, const FgWrote *wrote,
                      FILE *out);
/* Says on standard error that nothing fits: the smallest --memory, the phase and the largest
 * contributors. */
void fg_print_refusal(FgSession *session, const FgCompiled *compiled);

/* ---- report.c ---- */
/* Writes the figures where --report says, if it was given: also of what does not fit. A verb that
 * builds or proves nothing has 0 for their times. */
FgExit fg_report_write(FgSession *session, const FgCompiled *compiled, double cc_ms,
                       double verify_ms);
/* For a verb that prints `path` (NULL: on standard output): what it and --report would write can
 * be written. */
FgExit fg_check_text_outputs(FgArena *arena, const FgFlags *flags, const char *path);

#endif
