/* Schedules as text, edited: what the checker says of them. */
#ifndef FG_TESTS_UNIT_EDITED_H
#define FG_TESTS_UNIT_EDITED_H

#include "base/arena.h"

/* The text with the first `from` replaced, which must be there. */
const char *text_edited(FgArena *arena, const char *text, const char *from, const char *to,
                        int *failures);
/* The text with the first line that begins so put before the first one that begins otherwise. */
const char *text_moved(FgArena *arena, const char *text, const char *line, const char *before,
                       int *failures);
/* What the checker says of a schedule, which the verifier accepts; "" when it is proved. */
const char *text_verdict(FgArena *arena, const char *text, int *failures);

#endif
