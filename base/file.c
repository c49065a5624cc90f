/* Files and processes. The only place that looks at errno: callers get a sentence. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "base/file.h"

#include "base/hold.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

bool fg_file_is_folder(const char *path)
{
    struct stat status;
    return !*name_of(path) || (stat(path, &status) == 0 && S_ISDIR(status.st_mode));
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
    FgHold hold;
    fg_hold_begin(&hold);
    int fd = open_beside(arena, target, 0666, &trial), why = errno;
    if (fd >= 0) {
        close(fd);
        unlink(trial);
    }
    fg_hold_end(&hold);
    return fd >= 0 ||
           refused(arena, path, fg_arena_printf(arena, "its folder %s: %s", folder, strerror(why)),
                   out_error);
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
static bool replace_held(FgArena *arena, const char *path, mode_t mode, const char *text,
                         size_t len, const char **out_error)
{
    const char *temporary, *target = fg_file_target(arena, path);
    int fd = open_beside(arena, target, mode, &temporary);
    if (fd < 0)
        return failed(arena, path, out_error);
    bool ok = write_all(fd, text, len) || failed(arena, path, out_error);
    if (close(fd) != 0 && ok)
        ok = failed(arena, path, out_error);
    if (ok && fg_hold_asked())
        ok = refused(arena, path, "interrupted", out_error);
    if (ok && rename(temporary, target) != 0)
        ok = failed(arena, path, out_error);
    if (!ok)
        unlink(temporary);
    return ok;
}

static bool replace(FgArena *arena, const char *path, mode_t mode, const char *text, size_t len,
                    const char **out_error)
{
    FgHold hold;
    fg_hold_begin(&hold);
    bool ok = replace_held(arena, path, mode, text, len, out_error);
    fg_hold_end(&hold);
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

/* ---- processes ---- */
#define LOOK_MS 50     /* at most, between looks at whether this process is asked to end */
#define GRACE_LOOKS 20 /* for the other to tidy up, before it is killed */

/* The new process leads a group, so that what it starts can be ended with it, and holds nothing
 * back. An errno value, 0 when that could be said. */
static int stand_alone(posix_spawnattr_t *attributes)
{
    sigset_t mask;
    fg_hold_free_mask(&mask);
    int error = posix_spawnattr_setsigmask(attributes, &mask);
    return error ? error
                 : posix_spawnattr_setflags(attributes,
                                            POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
}

/* Starts argv with its standard error at `write_end`. An errno value, 0 when it runs. */
static int spawn(const char *const *argv, int write_end, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        error = posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO);
        if (!error)
            error = stand_alone(&attributes);
        /* posix_spawnp takes char *const [] for historical reasons and writes nothing. */
        char *const *args = (char *const *)(uintptr_t)argv;
        if (!error)
            error = posix_spawnp(out_pid, argv[0], &actions, &attributes, args, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Takes what stands in the pipe; false at its end. */
static bool take(int fd, FgBuf *buf)
{
    char chunk[16384];
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n > 0)
        fg_buf_put(buf, chunk, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Where this process is asked to end, the other and what it started are: first asked, then made. */
static void pass_on(pid_t group, int *looks)
{
    if (!fg_hold_asked())
        return;
    if (*looks == 0)
        kill(-group, SIGTERM);
    else if (*looks == GRACE_LOOKS)
        kill(-group, SIGKILL);
    ++*looks;
}

/* Hears the process `pid` out at `fd` and waits for its end, while requests to end are held back;
 * what it leaves running behind it (a server of a compiler cache) may hold the pipe for ever. 0
 * with *out_status; -1 with errno set. */
static int attend(pid_t pid, int fd, FgBuf *buf, int *out_status)
{
    bool open = true, ended = false;
    for (int looks = 0, wait_ms = 1;; wait_ms = wait_ms < LOOK_MS ? 2 * wait_ms : LOOK_MS) {
        pid_t found = ended ? 0 : waitpid(pid, out_status, WNOHANG);
        if (found < 0 && errno != EINTR)
            return -1;
        ended = ended || found == pid;
        struct pollfd end = {.fd = open ? fd : -1, .events = POLLIN};
        if (poll(&end, 1, ended ? 0 : wait_ms) > 0)
            open = take(fd, buf);
        else if (ended)
            return 0;
        pass_on(pid, &looks);
    }
}

static int run_held(FgArena *arena, const char *const *argv, const char **out_output)
{
    int ends[2];
    if (pipe(ends) != 0) {
        failed(arena, argv[0], out_output);
        return -1;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pid_t pid = 0;
    int status = 0, error = spawn(argv, ends[1], &pid);
    close(ends[1]);
    FgBuf buf;
    fg_buf_init(&buf, arena);
    if (!error && attend(pid, ends[0], &buf, &status) != 0)
        error = errno;
    close(ends[0]);
    if (error) {
        *out_output = fg_arena_printf(arena, "%s: %s", argv[0], strerror(error));
        return -1;
    }
    *out_output = fg_buf_text(&buf);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int fg_run(FgArena *arena, const char *const *argv, const char **out_output)
{
    FgHold hold;
    fg_hold_begin(&hold);
    int status = run_held(arena, argv, out_output);
    fg_hold_end(&hold);
    return status;
}

bool fg_file_make_folder(FgArena *arena, const char *path, const char **out_error)
{
    char *part = fg_arena_strdup(arena, path);
    for (char *slash = strchr(part + (*part == '/'), '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return failed(arena, part, out_error);
        *slash = '/';
    }
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return true;
    int why = errno;
    if (why == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return true;
    errno = why;
    return failed(arena, path, out_error);
}

void fg_become(FgArena *arena, const char *const *argv, const char **out_error)
{
    uint32_t n = 1;
    while (argv[n])
        n++;
    char **words = fg_arena_alloc(arena, (n + 1) * sizeof *words);
    for (uint32_t i = 0; i < n; i++)
        words[i] = fg_arena_strdup(arena, argv[i]);
    words[n] = NULL;
    fflush(NULL);
    execv(words[0], words);
    *out_error = fg_arena_printf(arena, "%s cannot be started: %s", words[0], strerror(errno));
}

bool fg_file_link_folder(FgArena *arena, const char *path, const char *link, const char **out_error)
{
    char *whole = realpath(path, NULL);
    char *slash = whole ? strrchr(whole, '/') : NULL;
    if (slash)
        slash[slash == whole] = 0;
    bool ok = whole && symlink(whole, link) == 0;
    if (!ok)
        failed(arena, whole ? link : path, out_error);
    free(whole);
    return ok;
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
