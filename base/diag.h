/* Diagnostics: user errors with file:line:col, source line, caret, notes; counted, never exiting.
 *
 * Every message has an id in diags.def; a test walks the table and fails for one that no case
 * expects. */
#ifndef FG_BASE_DIAG_H
#define FG_BASE_DIAG_H

#include "base/arena.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A place in a source. file 0 means "nowhere". Lines and columns count from 1; columns count bytes.
 */
typedef struct FgLoc {
    uint32_t file, line, col;
} FgLoc;

#define FG_NOWHERE ((FgLoc){0, 0, 0})

typedef enum FgDiagId {
#define FG_DIAG(id, severity, help) FG_D_##id,
#include "base/diags.def"
#undef FG_DIAG
    FG_N_DIAGS
} FgDiagId;

typedef struct FgDiags FgDiags;

FgDiags *fg_diags_new(FgArena *arena);
/* Registers a source and returns its id (>= 1). `text` may be NULL when only the name is known (a
 * location read back from a dump). Name and text must outlive the diagnostics. */
uint32_t fg_diags_source(FgDiags *diags, const char *name, const char *text, size_t len);
const char *fg_diags_source_name(const FgDiags *diags, uint32_t file);

/* Reports one message; the severity comes from diags.def (error, warning, note). After 20 errors
 * the rest is counted but not kept. */
void fg_diag(FgDiags *diags, FgLoc loc, FgDiagId id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A note that belongs to the message before it. */
void fg_diag_note(FgDiags *diags, FgLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t fg_diags_errors(const FgDiags *diags);
/* Whether a message with this id was reported, for tests. */
bool fg_diags_has(const FgDiags *diags, FgDiagId id);
/* Renders all messages and, with errors, a closing count. */
void fg_diags_render(const FgDiags *diags, FgBuf *out);
/* "JSON_SYNTAX", as in diags.def; messages show it in lower case with dashes. */
const char *fg_diag_name(FgDiagId id);

/* Our own bug: prints the message and aborts (the command turns SIGABRT into exit code 4). */
void fg_bug(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define FG_BUG(...) fg_bug(__FILE__, __LINE__, __VA_ARGS__)
#define FG_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (!(cond))                                                                               \
            FG_BUG("assertion failed: %s", #cond);                                                 \
    } while (0)

#endif
