/* The temporary name holds the process and a count: what a run left that was killed, maybe under
 * the same number (containers count from 1), is passed over, and two machines over one file system
 * do not meet. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "runtime/launch/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* Closes the file, whose errno counts where the work before has done well. */
static bool close_after(int fd, bool ok)
{
    int why = errno;
    bool closed = close(fd) == 0;
    if (!ok)
        errno = why;
    return ok && closed;
}

/* To a file, whose name has no link in it, or to what is not there yet. */
static bool replace(const char *target, const void *data, size_t bytes)
{
    size_t room = strlen(target) + 48;
    char *made = malloc(room);
    int fd = -1;
    for (unsigned i = 0; made && fd < 0; i++) {
        snprintf(made, room, "%s.tmp-%ld-%u", target, (long)getpid(), i);
        fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    bool ok = fd >= 0 && close_after(fd, write_all(fd, data, bytes)) && rename(made, target) == 0;
    int why = errno;
    if (!ok && fd >= 0)
        unlink(made);
    free(made);
    errno = why;
    return ok;
}

bool fg_whole_file_put(const char *path, const void *data, size_t bytes)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return errno == ENOENT && replace(path, data, bytes);
    if (!S_ISREG(info.st_mode)) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd >= 0 && close_after(fd, write_all(fd, data, bytes));
    }
    char *target = realpath(path, NULL);
    bool ok = target && replace(target, data, bytes);
    free(target);
    return ok;
}
