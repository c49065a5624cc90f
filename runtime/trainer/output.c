/* Temporary names hold the process and a count and are taken with O_EXCL, so that two runs, also on
 * two machines over one file system, never write into the same file. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "runtime/trainer/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that is to be replaced, links followed. The caller frees; NULL: refused. */
static char *target_of(const char *path, FgFail *fail)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        if (errno == ENOENT)
            return fg_text("%s", path);
        fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(info.st_mode)) {
        fg_fail(fail, "%s: %s; give the name of a file", path,
                S_ISDIR(info.st_mode) ? "is a folder" : "is a device, pipe or socket");
        return NULL;
    }
    char *target = realpath(path, NULL);
    if (!target)
        fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    return target;
}

char *fg_output_begin(const char *path, FgFail *fail)
{
    char *target = target_of(path, fail), *made = NULL;
    int fd = -1;
    if (!target)
        return NULL;
    for (uint32_t i = 0; fd < 0; i++) {
        free(made);
        made = fg_text("%s.tmp-%ld-%u", target, (long)getpid(), i);
        if (!fg_file_fault(fail, FG_FAULT_WRITE))
            fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    free(target);
    if (fd >= 0 && close(fd) == 0)
        return made;
    fg_fail(fail, "%s: cannot be created: %s", path, strerror(errno));
    free(made);
    return NULL;
}

bool fg_output_check(const char *path, FgFail *fail)
{
    char *made = fg_output_begin(path, fail);
    if (made)
        unlink(made);
    free(made);
    return made != NULL;
}

bool fg_output_end(const char *made, const char *path, bool ok, FgFail *fail)
{
    char *target = ok ? target_of(path, fail) : NULL;
    ok = target != NULL;
    if (ok && (fg_file_fault(fail, FG_FAULT_WRITE) || rename(made, target) != 0))
        ok = fg_fail(fail, "%s: cannot be renamed to %s: %s", made, path, strerror(errno));
    if (!ok)
        unlink(made);
    free(target);
    return ok;
}
