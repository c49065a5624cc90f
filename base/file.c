/* Files and processes. The only place that looks at errno: callers get a sentence. */
#include "base/file.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool failed(FgArena *arena, const char *path, const char **out_error)
{
    *out_error = fg_arena_printf(arena, "%s: %s", path, strerror(errno));
    return false;
}

/* Everything up to the end of `fd`. False with errno set. */
static bool read_all(int fd, FgBuf *buf)
{
    char chunk[16384];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n > 0)
            fg_buf_put(buf, chunk, (size_t)n);
        else if (n == 0)
            return true;
        else if (errno != EINTR)
            return false;
    }
}

static bool write_all(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        }
    }
    return true;
}

bool fg_file_read(FgArena *arena, const char *path, char **out_text, size_t *out_len,
                  const char **out_error)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return failed(arena, path, out_error);
    FgBuf buf;
    fg_buf_init(&buf, arena);
    fg_buf_put(&buf, "", 0);
    bool ok = read_all(fd, &buf) || failed(arena, path, out_error);
    if (!standard)
        close(fd);
    *out_text = buf.data;
    *out_len = buf.len;
    return ok;
}

/* ---- places ---- */
static const char *folder_of(FgArena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return slash == path ? "/" : fg_arena_strndup(arena, path, (size_t)(slash - path));
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Where the link at `path` points to; NULL when there is no link. */
static const char *link_target(FgArena *arena, const char *path)
{
    for (size_t size = 256; size <= 1 << 16; size *= 2) {
        char *text = fg_arena_alloc(arena, size);
        ssize_t n = readlink(path, text, size);
        if (n < 0)
            return NULL;
        if ((size_t)n == size)
            continue;
        text[n] = 0;
        return *text == '/' ? text : fg_arena_printf(arena, "%s/%s", folder_of(arena, path), text);
    }
    return NULL;
}

const char *fg_file_target(FgArena *arena, const char *path)
{
    for (int i = 0; i < 64; i++) { /* a circle of links is the system's to report */
        const char *next = link_target(arena, path);
        if (!next)
            return path;
        path = next;
    }
    return path;
}

bool fg_file_same(FgArena *arena, const char *a, const char *b)
{
    struct stat x, y;
    if (strcmp(a, "-") == 0 || strcmp(b, "-") == 0)
        return false;
    bool there = stat(a, &x) == 0;
    if ((stat(b, &y) == 0) != there)
        return false;
    if (there)
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    a = fg_file_target(arena, a);
    b = fg_file_target(arena, b);
    return strcmp(name_of(a), name_of(b)) == 0 && stat(folder_of(arena, a), &x) == 0 &&
           stat(folder_of(arena, b), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool fg_file_is_device(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

static bool refused(FgArena *arena, const char *path, const char *why, const char **out_error)
{
    *out_error = fg_arena_printf(arena, "%s: %s", path, why);
    return false;
}

/* A new file beside `path`, with the permissions of any new file of its kind. -1 with errno set. */
static int open_beside(FgArena *arena, const char *path, mode_t mode, const char **out_name)
{
    for (unsigned i = 0; i < 1000; i++) {
        *out_name = fg_arena_printf(arena, "%s.tmp-%ld-%u", path, (long)getpid(), i);
        int fd = open(*out_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

bool fg_file_writable(FgArena *arena, const char *path, bool plain, const char **out_error)
{
    struct stat status;
    bool standard = strcmp(path, "-") == 0;
    if (plain && (standard || fg_file_is_device(path)))
        return refused(arena, standard ? "standard output" : path,
                       "a program is no text: it goes to a plain file", out_error);
    if (standard)
        return true;
    const char *target = fg_file_target(arena, path), *folder = folder_of(arena, target);
    bool there = stat(path, &status) == 0;
    if (!there && errno != ENOENT) /* a circle of links, a file where a folder is named */
        return failed(arena, path, out_error);
    if ((there && S_ISDIR(status.st_mode)) || !*name_of(target))
        return refused(arena, path, "is a directory; name a file in it", out_error);
    if (there && access(path, W_OK) != 0)
        return failed(arena, path, out_error);
    if (fg_file_is_device(path))
        return true;
    /* A plain file is made beside the old one and renamed; whether that works is best tried: some
     * file systems refuse what their permissions allow. */
    const char *trial;
    int fd = open_beside(arena, target, 0666, &trial);
    if (fd < 0)
        return refused(arena, path,
                       fg_arena_printf(arena, "its folder %s: %s", folder, strerror(errno)),
                       out_error);
    close(fd);
    unlink(trial);
    return true;
}

/* ---- writing ---- */
/* Devices and pipes are written straight: a rename would replace them. */
static bool write_device(FgArena *arena, const char *path, const char *text, size_t len,
                         const char **out_error)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDOUT_FILENO : open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return failed(arena, path, out_error);
    bool ok = write_all(fd, text, len) || failed(arena, path, out_error);
    if (!standard && close(fd) != 0 && ok)
        ok = failed(arena, path, out_error);
    return ok;
}

/* Whole or not at all: beside the old one, then renamed. */
static bool replace(FgArena *arena, const char *path, mode_t mode, const char *text, size_t len,
                    const char **out_error)
{
    const char *temporary, *target = fg_file_target(arena, path);
    int fd = open_beside(arena, target, mode, &temporary);
    if (fd < 0)
        return failed(arena, path, out_error);
    bool ok = write_all(fd, text, len) || failed(arena, path, out_error);
    if (close(fd) != 0 && ok)
        ok = failed(arena, path, out_error);
    if (ok && rename(temporary, target) != 0)
        ok = failed(arena, path, out_error);
    if (!ok)
        unlink(temporary);
    return ok;
}

bool fg_file_write(FgArena *arena, const char *path, const char *text, size_t len,
                   const char **out_error)
{
    struct stat status;
    if (strcmp(path, "-") == 0 || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
        return write_device(arena, path, text, len, out_error);
    return replace(arena, path, 0666, text, len, out_error);
}

bool fg_file_install(FgArena *arena, const char *from, const char *path, const char **out_error)
{
    char *text;
    size_t len;
    return fg_file_read(arena, from, &text, &len, out_error) &&
           replace(arena, path, 0777, text, len, out_error);
}

/* Starts argv with its standard error at `write_end`. An errno value, 0 when it runs. */
static int spawn(const char *const *argv, int write_end, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO);
    if (!error) {
        /* posix_spawnp takes char *const [] for historical reasons and writes nothing. */
        char *const *args = (char *const *)(uintptr_t)argv;
        error = posix_spawnp(out_pid, argv[0], &actions, NULL, args, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int fg_run(FgArena *arena, const char *const *argv, const char **out_output)
{
    int ends[2];
    if (pipe(ends) != 0) {
        failed(arena, argv[0], out_output);
        return -1;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pid_t pid = 0;
    int error = spawn(argv, ends[1], &pid);
    close(ends[1]);
    FgBuf buf;
    fg_buf_init(&buf, arena);
    if (!error)
        read_all(ends[0], &buf);
    close(ends[0]);
    if (error) {
        *out_output = fg_arena_printf(arena, "%s: %s", argv[0], strerror(error));
        return -1;
    }
    *out_output = fg_buf_text(&buf);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            failed(arena, argv[0], out_output);
            return -1;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *fg_temp_dir(FgArena *arena, const char **out_error)
{
    const char *base = getenv("TMPDIR");
    if (!base || !*base)
        base = "/tmp";
    char *path = fg_arena_printf(arena, "%s/foregather-XXXXXX", base);
    if (mkdtemp(path))
        return path;
    failed(arena, base, out_error);
    return NULL;
}

void fg_temp_dir_remove(FgArena *arena, const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(fg_arena_printf(arena, "%s/%s", path, entry->d_name));
    }
    closedir(dir);
    rmdir(path);
}
