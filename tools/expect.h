/* Expected messages in comments of a test's input:
 *
 *   // expect-error@+1 {{unknown op 'lineer'}}      on the next line (@-1, @12, or nothing: this
 * line)
 *   // expect-error@none {{not proved}}             at no place
 *
 * likewise expect-warning and expect-note. The text is a part of the message. */
#ifndef FG_TOOLS_EXPECT_H
#define FG_TOOLS_EXPECT_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* Compares the rendered messages with the comments of `text` (the source called `name`): each must
 * match one of the other. Differences go to standard error, and the result is then false. Notes
 * that nothing expects are allowed. */
bool fg_expect_check(FgArena *arena, const char *name, const char *text, size_t len,
                     const char *messages);

#endif
