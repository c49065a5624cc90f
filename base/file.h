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
/* Written whole or not at all: a private temporary in the same folder, then a rename. A symbolic
 * link stays: its target is written. Devices and pipes are written straight. "-" is standard
 * output. */
bool fg_file_write(FgArena *arena, const char *path, const char *text, size_t len,
                   const char **out_error);
/* Puts a copy of `from`, a program, at `path`: as fg_file_write, executable. */
bool fg_file_install(FgArena *arena, const char *from, const char *path, const char **out_error);
/* The path that writing to `path` would make or replace: symbolic links at its end followed, also
 * when nothing stands there yet. Arena-owned or `path`. */
const char *fg_file_target(FgArena *arena, const char *path);
/* Whether a path is, or would be, the same regular file as another. Devices, pipes and "-" are the
 * same as nothing: writing there replaces nothing. */
bool fg_file_same(FgArena *arena, const char *a, const char *b);
bool fg_file_is_device(const char *path);
bool fg_file_is_folder(const char *path); /* or is named as one, with a slash at its end */
/* Whether a file can be written at `path`, which is left as it is; `plain`: neither "-" nor a
 * device will do. False with *out_error. */
bool fg_file_writable(FgArena *arena, const char *path, bool plain, const char **out_error);
/* Runs argv[0] (searched in PATH) and waits. Standard error of the child is captured into
 * *out_output. Returns its exit status, 128 + signal, or -1 when it could not start (*out_output
 * then says why). It leads a process group; where this process is asked to end meanwhile
 * (base/hold.h), the group is ended first. */
int fg_run(FgArena *arena, const char *const *argv, const char **out_output);
/* Makes a folder, and those it lies in, where they are not there yet. False with *out_error. */
bool fg_file_make_folder(FgArena *arena, const char *path, const char **out_error);
/* This process goes on as the program argv[0], a path. Returns only when that cannot be started. */
void fg_become(FgArena *arena, const char *const *argv, const char **out_error);
/* A symbolic link at `link` to the folder that the file `path` lies in. False with *out_error. */
bool fg_file_link_folder(FgArena *arena, const char *path, const char *link,
                         const char **out_error);
/* A private new folder under TMPDIR or /tmp; NULL with *out_error on failure. */
const char *fg_temp_dir(FgArena *arena, const char **out_error);
/* Removes a folder made by fg_temp_dir with the plain files in it. */
void fg_temp_dir_remove(FgArena *arena, const char *path);

#endif
