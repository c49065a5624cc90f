/* Small files that whoever reads them finds whole. */
#ifndef FG_RUNTIME_LAUNCH_WHOLE_FILE_H
#define FG_RUNTIME_LAUNCH_WHOLE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Puts `bytes` of `data` at `path`: beside it under a name of its own, then renamed. A symbolic
 * link stays, the file that it names is replaced; into a device or a pipe it is written. False with
 * errno set; a file that was at `path` is then as it was. */
bool fg_whole_file_put(const char *path, const void *data, size_t bytes);

#endif
