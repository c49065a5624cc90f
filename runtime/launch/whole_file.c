/* The temporary name holds the process and a count: what a run left that was killed, maybe under
 * the same number (containers count from 1), is passed over, and two machines over one file system
 * do not meet. */
#include "runtime/launch/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool write_all(int fd, const char *from, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            from += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

bool fg_whole_file_put(const char *path, const void *data, size_t bytes)
{
    size_t room = strlen(path) + 48;
    char *made = malloc(room);
    int fd = -1, why = ENOMEM;
    for (unsigned i = 0; made && fd < 0; i++) {
        snprintf(made, room, "%s.tmp-%ld-%u", path, (long)getpid(), i);
        fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        why = errno;
        if (fd < 0 && why != EEXIST)
            break;
    }
    bool ok = fd >= 0 && write_all(fd, data, bytes);
    if (fd >= 0) {
        why = errno;
        if (close(fd) != 0 && ok) {
            ok = false;
            why = errno;
        }
        if (ok && rename(made, path) != 0) {
            ok = false;
            why = errno;
        }
        if (!ok)
            unlink(made);
    }
    free(made);
    errno = why;
    return ok;
}
