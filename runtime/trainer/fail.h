/* Why something failed, in words for the user; memory that cannot fail to its caller; near misses.
 *
 * A function that can fail takes an FgFail last and returns false or NULL through fg_fail. The
 * first message stays: later ones are consequences of it. */
#ifndef FG_RUNTIME_TRAINER_FAIL_H
#define FG_RUNTIME_TRAINER_FAIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/launch/fault.h"

typedef struct FgFail {
    char *text;     /* owned; NULL while nothing failed */
    FgFault *fault; /* one that a test asks for, or NULL; not owned */
    uint32_t rank;  /* of this process, or the first of its ranks */
} FgFail;

/* Whether the work with a file that comes next is to fail, errno set as if it had. */
bool fg_file_fault(FgFail *fail, FgFaultKind kind);

/* Records the message unless one is there already. Always returns false, for `return fg_fail(...)`.
 */
bool fg_fail(FgFail *fail, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds to the message that is there, or starts one. */
void fg_fail_add(FgFail *fail, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Forgets the message. */
void fg_fail_clear(FgFail *fail);

/* Zeroed memory for n items; aborts with a message when there is none or the size overflows. */
void *fg_new(size_t n, size_t item_bytes);
/* printf into new memory that the caller frees. */
char *fg_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *fg_textv(const char *format, va_list args);

/* The nearest of n words by edit distance, or NULL when none is near enough to suggest. */
const char *fg_nearest(const char *word, const char *const *words, size_t n);

#endif
