/* Where a run's files go: tried before training starts, replaced at once when they are whole.
 *
 * Only a regular file is ever replaced. A folder, device, pipe or socket under the name is refused,
 * since the rename would put a file in its place; behind a symbolic link the file it leads to is
 * replaced. */
#ifndef FG_RUNTIME_TRAINER_OUTPUT_H
#define FG_RUNTIME_TRAINER_OUTPUT_H

#include "runtime/trainer/fail.h"

/* Whether a file can be put there; tries it and leaves nothing behind. */
bool fg_output_check(const char *path, FgFail *fail);
/* A new empty file beside `path` under a name that nothing else has. The caller frees the name;
 * NULL: failed. */
char *fg_output_begin(const char *path, FgFail *fail);
/* Puts the made file under its name; when `ok` is false, or that fails, removes it. */
bool fg_output_end(const char *made, const char *path, bool ok, FgFail *fail);

#endif
