/* Files and processes. Nothing here calls a shell. */
#ifndef FG_BASE_FILE_H
#define FG_BASE_FILE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* Whole file; text is terminated. "-" reads standard input. On failure returns false and *out_error
 * says why (arena-owned). */
bool fg_file_read(FgArena *arena, const char *path, char **out_text, size_t *out_len,
                  const char **out_error);
/* Written whole or not at all: a private temporary in the same folder, then a rename. "-" is
 * standard output. */
bool fg_file_write(FgArena *arena, const char *path, const char *text, size_t len,
                   const char **out_error);
/* Runs argv[0] (searched in PATH) and waits. Standard error of the child is captured into
 * *out_output. Returns its exit status, 128 + signal, or -1 when it could not start (*out_output
 * then says why). */
int fg_run(FgArena *arena, const char *const *argv, const char **out_output);
/* A private new folder under TMPDIR or /tmp; NULL with *out_error on failure. */
const char *fg_temp_dir(FgArena *arena, const char **out_error);
/* Removes a folder made by fg_temp_dir with the plain files in it. */
void fg_temp_dir_remove(FgArena *arena, const char *path);

#endif
