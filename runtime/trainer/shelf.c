/* Removing begins with the manifest: a folder that has one is complete. */
#define _GNU_SOURCE 1 /* renameat2, flock */
#include "runtime/trainer/shelf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const NAMES[FG_N_SHELF_FILES] = {"model.safetensors", "master.safetensors",
                                                    "exp_avg.safetensors", "exp_avg_sq.safetensors",
                                                    "manifest.json"};

const char *fg_shelf_file_name(FgShelfFile file)
{
    return NAMES[file];
}

void fg_shelf_discard(const char *folder)
{
    for (int file = FG_N_SHELF_FILES; file-- > 0;) {
        char *path = fg_text("%s/%s", folder, NAMES[file]);
        unlink(path);
        free(path);
    }
    rmdir(folder);
}

static void sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd); /* some file systems cannot; the rename holds anyway */
    close(fd);
}

/* ---- what lies in the folder ---- */

static bool has_manifest(const char *folder)
{
    char *path = fg_text("%s/%s", folder, NAMES[FG_SHELF_MANIFEST]);
    bool has = access(path, F_OK) == 0;
    free(path);
    return has;
}

/* The manifest, which is written last, is whole. */
static bool is_complete(const char *folder)
{
    char *path = fg_text("%s/%s", folder, NAMES[FG_SHELF_MANIFEST]);
    json_t *manifest = json_load_file(path, 0, NULL);
    bool is = json_is_object(manifest);
    json_decref(manifest);
    free(path);
    return is;
}

/* Where a checkpoint may lie, the better place first. */
static const char *const PREFIXES[] = {"step-", ".tmp-step-", ".old-step-"};
enum { PLACE, TMP, OLD, NONE };

/* What an entry is, and the step in its name; leftovers have more after it. */
static int kind_of(const char *name, uint64_t *out_step)
{
    for (int kind = PLACE; kind < NONE; kind++) {
        size_t length = strlen(PREFIXES[kind]);
        char *end;
        if (strncmp(name, PREFIXES[kind], length) != 0 || name[length] < '0' || name[length] > '9')
            continue;
        *out_step = strtoull(name + length, &end, 10);
        return !*end || (kind != PLACE && *end == '-') ? kind : NONE;
    }
    return NONE;
}

static char *place_of(const char *dir, uint64_t step)
{
    return fg_text("%s/step-%06llu", dir, (unsigned long long)step);
}

char *fg_shelf_newest(const char *dir, FgFail *fail)
{
    if (has_manifest(dir))
        return fg_text("%s", dir);
    DIR *stream = fg_file_fault(fail, FG_FAULT_READ) ? NULL : opendir(dir);
    if (!stream) {
        fg_fail(fail, "%s: cannot be read: %s", dir, strerror(errno));
        return NULL;
    }
    char *best = NULL;
    uint64_t best_step = 0, step = 0;
    int best_kind = NONE;
    for (struct dirent *entry; (entry = readdir(stream));) {
        int kind = kind_of(entry->d_name, &step);
        if (kind == NONE || (best && (step < best_step || (step == best_step && kind > best_kind))))
            continue;
        char *path = fg_text("%s/%s", dir, entry->d_name);
        if (!(kind == PLACE ? has_manifest(path) : is_complete(path))) {
            free(path);
            continue;
        }
        free(best);
        best = path;
        best_step = step;
        best_kind = kind;
    }
    closedir(stream);
    if (!best)
        fg_fail(fail, "%s: no checkpoint here: neither manifest.json nor step-* folders", dir);
    return best;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* All that are found, or the first two and the last. */
static char *list(const uint64_t *steps, size_t n)
{
    char *text = fg_text("%s", "");
    for (size_t i = 0; i < n; i++) {
        bool gap = n > 4 && i == 2;
        if (gap)
            i = n - 1;
        char *longer = fg_text("%s%sstep-%06llu", text,
                               i == 0 ? ""
                               : gap  ? " ... "
                                      : ", ",
                               (unsigned long long)steps[i]);
        free(text);
        text = longer;
    }
    return text;
}

char *fg_shelf_later(const char *dir, uint64_t step)
{
    DIR *stream = opendir(dir);
    uint64_t *steps = NULL, at = 0;
    size_t n = 0, room = 0;
    if (!stream)
        return NULL;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (kind_of(entry->d_name, &at) != PLACE || at <= step)
            continue;
        char *path = fg_text("%s/%s", dir, entry->d_name);
        bool is = has_manifest(path);
        free(path);
        if (!is)
            continue;
        if (n == room) {
            uint64_t *more = fg_new(room = 2 * room + 16, sizeof *more);
            if (n)
                memcpy(more, steps, n * sizeof *more);
            free(steps);
            steps = more;
        }
        steps[n++] = at;
    }
    closedir(stream);
    if (n)
        qsort(steps, n, sizeof *steps, by_number);
    char *text = n ? list(steps, n) : NULL;
    free(steps);
    return text;
}

/* ---- opening ---- */

/* mkdir -p */
static bool make_folders(const char *folder, FgFail *fail)
{
    char *path = fg_text("%s", folder);
    bool ok = true;
    for (char *c = path + 1; ok && *c; c++)
        if (*c == '/') {
            *c = 0;
            ok = mkdir(path, 0777) == 0 || errno == EEXIST;
            *c = '/';
        }
    ok = ok && !fg_file_fault(fail, FG_FAULT_WRITE) && (mkdir(path, 0777) == 0 || errno == EEXIST);
    if (!ok)
        fg_fail(fail, "%s: cannot be created: %s", folder, strerror(errno));
    free(path);
    return ok;
}

static bool lock(FgShelf *shelf, FgFail *fail)
{
    char *path = fg_text("%s/.lock", shelf->dir);
    bool ok = true;
    shelf->lock =
        fg_file_fault(fail, FG_FAULT_WRITE) ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (shelf->lock < 0) {
        ok = fg_fail(fail, "%s: cannot be opened: %s", path, strerror(errno));
    } else if (flock(shelf->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            ok = fg_fail(fail,
                         "%s: another run is saving here (it holds %s); choose another folder, or "
                         "wait for its end",
                         shelf->dir, path);
        else
            shelf->note = fg_text("note: %s cannot be locked (%s); see to it that no other run "
                                  "saves into %s",
                                  path, strerror(errno), shelf->dir);
        close(shelf->lock);
        shelf->lock = -1;
    }
    free(path);
    return ok;
}

/* A complete leftover takes its place when that is free; what is incomplete or superseded goes. */
static void tidy_one(FgShelf *shelf, const char *name, uint64_t step)
{
    char *path = fg_text("%s/%s", shelf->dir, name), *place = place_of(shelf->dir, step);
    if (has_manifest(place) || !is_complete(path)) {
        fg_shelf_discard(path);
    } else if (rename(path, place) == 0) {
        char *note = fg_text("%s%srecovered %s from %s, which a run that was killed left",
                             shelf->note ? shelf->note : "", shelf->note ? "\n" : "", place, name);
        free(shelf->note);
        shelf->note = note;
    }
    free(path);
    free(place);
}

static void tidy(FgShelf *shelf)
{
    for (int kind = TMP; kind < NONE; kind++) {
        DIR *stream = opendir(shelf->dir);
        uint64_t step = 0;
        for (struct dirent *entry; stream && (entry = readdir(stream));)
            if (kind_of(entry->d_name, &step) == kind)
                tidy_one(shelf, entry->d_name, step);
        if (stream)
            closedir(stream);
    }
}

bool fg_shelf_open(FgShelf *out_shelf, const char *dir, FgFail *fail)
{
    *out_shelf = (FgShelf){.dir = dir, .lock = -1};
    if (!make_folders(dir, fail) || !lock(out_shelf, fail))
        return false;
    if (out_shelf->lock >= 0)
        tidy(out_shelf);
    char *tried = fg_shelf_begin(dir, 0, fail); /* the lock may be there from before */
    if (tried)
        rmdir(tried);
    free(tried);
    return tried != NULL;
}

void fg_shelf_close(FgShelf *shelf)
{
    if (shelf->dir && shelf->lock >= 0)
        close(shelf->lock); /* the file stays: removing it would let two runs lock two files */
    free(shelf->note);
    *shelf = (FgShelf){.lock = -1};
}

/* ---- a new checkpoint ---- */

char *fg_shelf_begin(const char *dir, uint64_t step, FgFail *fail)
{
    for (uint32_t i = 0;; i++) {
        char *made =
            fg_text("%s/.tmp-step-%06llu-%ld-%u", dir, (unsigned long long)step, (long)getpid(), i);
        if (!fg_file_fault(fail, FG_FAULT_WRITE) && mkdir(made, 0777) == 0)
            return made;
        if (errno != EEXIST) {
            fg_fail(fail, "%s: cannot be created: %s", made, strerror(errno));
            free(made);
            return NULL;
        }
        free(made);
    }
}

static bool exchange(const char *a, const char *b, FgFail *fail)
{
    if (fg_file_fault(fail, FG_FAULT_WRITE))
        return false;
#ifdef RENAME_EXCHANGE
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
#else
    (void)a;
    (void)b;
    errno = ENOSYS;
    return false;
#endif
}

/* Without an exchange: the old one stands aside, and comes back if the new one cannot take its
 * place. */
static bool put_by_renames(const char *dir, const char *made, const char *path, uint64_t step,
                           FgFail *fail)
{
    char *aside = NULL;
    for (uint32_t i = 0; !aside || access(aside, F_OK) == 0; i++) {
        free(aside);
        aside =
            fg_text("%s/.old-step-%06llu-%ld-%u", dir, (unsigned long long)step, (long)getpid(), i);
    }
    bool ok = !fg_file_fault(fail, FG_FAULT_WRITE) && rename(path, aside) == 0;
    if (!ok) {
        fg_fail(fail, "%s: cannot be replaced: %s", path, strerror(errno));
    } else if (fg_file_fault(fail, FG_FAULT_WRITE) || rename(made, path) != 0) {
        ok = fg_fail(fail, "%s: cannot be renamed to %s: %s", made, path, strerror(errno));
        if (rename(aside, path) != 0)
            fg_fail_add(fail, "; the checkpoint that was there lies in %s", aside);
    } else {
        sync_folder(dir);
        fg_shelf_discard(aside);
    }
    free(aside);
    return ok;
}

static bool put(const char *dir, const char *made, const char *path, uint64_t step, FgFail *fail)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return (!fg_file_fault(fail, FG_FAULT_WRITE) && rename(made, path) == 0) ||
               fg_fail(fail, "%s: cannot be renamed to %s: %s", made, path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return fg_fail(fail, "%s: is no folder and stays as it is; move it away", path);
    if (!exchange(made, path, fail))
        return put_by_renames(dir, made, path, step, fail);
    sync_folder(dir);
    fg_shelf_discard(made); /* which is the old one now */
    return true;
}

bool fg_shelf_put(const char *dir, const char *made, uint64_t step, char **out_path, FgFail *fail)
{
    char *path = place_of(dir, step);
    sync_folder(made);
    if (!put(dir, made, path, step, fail)) {
        free(path);
        return false;
    }
    sync_folder(dir);
    *out_path = path;
    return true;
}
