/* Files that appear whole: over an old one, past what a killed run left, or not at all. */
#include "runtime/launch/whole_file.h"
#include "tests/runtime/scratch.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void holds(int *failures, const char *path, const char *text)
{
    size_t n = 0;
    char *found = scratch_read(path, &n);
    CHECK(found && n == strlen(text) && memcmp(found, text, n) == 0);
    free(found);
}

static void puts_whole(int *failures)
{
    char *folder = scratch_new(), *path = scratch_path(folder, "a file"), left[64];
    snprintf(left, sizeof left, "a file.tmp-%ld-0", (long)getpid());
    char *stale = scratch_path(folder, left);
    CHECK(fg_whole_file_put(path, "old", 3));
    holds(failures, path, "old");
    CHECK(scratch_write(stale, "left", 4)); /* by a run of the same number */
    CHECK(fg_whole_file_put(path, "new text", 8));
    holds(failures, path, "new text");
    holds(failures, stale, "left");
    CHECK(unlink(stale) == 0 && fg_whole_file_put(path, "", 0));
    holds(failures, path, "");
    free(stale);
    free(path);
    scratch_remove(folder);
    free(folder);
}

/* A link stays; a pipe is written, not replaced. */
static void links_and_pipes(int *failures)
{
    char *folder = scratch_new(), *path = scratch_path(folder, "file"),
         *link = scratch_path(folder, "link"), *pipe = scratch_path(folder, "pipe"), text[8] = "";
    struct stat info;
    CHECK(fg_whole_file_put(path, "old", 3) && symlink("file", link) == 0);
    CHECK(fg_whole_file_put(link, "new", 3));
    holds(failures, path, "new");
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(mkfifo(pipe, 0666) == 0);
    int fd = open(pipe, O_RDWR); /* so that nobody waits */
    CHECK(fd >= 0 && fg_whole_file_put(pipe, "piped", 5));
    CHECK(read(fd, text, sizeof text) == 5 && strcmp(text, "piped") == 0);
    CHECK(lstat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
    close(fd);
    free(pipe);
    free(link);
    free(path);
    scratch_remove(folder);
    free(folder);
}

static void or_not_at_all(int *failures)
{
    char *folder = scratch_new(), *absent = scratch_path(folder, "absent/x"),
         *taken = scratch_path(folder, "taken");
    CHECK(!fg_whole_file_put(absent, "x", 1) && errno == ENOENT);
    CHECK(mkdir(taken, 0777) == 0);
    CHECK(!fg_whole_file_put(taken, "x", 1) && errno == EISDIR);
    CHECK(rmdir(taken) == 0 && rmdir(folder) == 0); /* nothing was left in it */
    free(taken);
    free(absent);
    free(folder);
}

UNIT_MAIN({"puts whole", puts_whole}, {"links and pipes", links_and_pipes},
          {"or not at all", or_not_at_all})
