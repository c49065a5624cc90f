/* A private folder for the files that a test makes. */
#ifndef FG_TESTS_RUNTIME_SCRATCH_H
#define FG_TESTS_RUNTIME_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* A new folder under TMPDIR or /tmp; the caller frees the text and calls scratch_remove. */
char *scratch_new(void);
/* The folder and all that lies in it. */
void scratch_remove(const char *folder);
/* folder/name; the caller frees. */
char *scratch_path(const char *folder, const char *name);
bool scratch_write(const char *path, const void *data, size_t bytes);
/* The whole file, one zero byte after it; NULL when it cannot be read. The caller frees. */
char *scratch_read(const char *path, size_t *out_bytes);

#endif
