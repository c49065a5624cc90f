/* Folders of checkpoints: whatever ends a run, and wherever, the newest complete one is found. */
#include "runtime/trainer/output.h"
#include "runtime/trainer/shelf.h"
#include "tests/runtime/scratch.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Makes folder/name, with a manifest that holds `text` unless that is NULL. */
static void place(const char *folder, const char *name, const char *text)
{
    char *path = scratch_path(folder, name), *manifest = scratch_path(path, "manifest.json");
    mkdir(path, 0777);
    if (text)
        scratch_write(manifest, text, strlen(text));
    free(manifest);
    free(path);
}

static bool newest_is(const char *folder, const char *name)
{
    FgFail fail = {0};
    char *path = fg_shelf_newest(folder, &fail), *wanted = scratch_path(folder, name);
    bool is = path && strcmp(path, wanted) == 0;
    if (!is)
        printf("newest: %s\n", path ? path : fail.text);
    fg_fail_clear(&fail);
    free(wanted);
    free(path);
    return is;
}

static bool there(const char *folder, const char *name)
{
    char *path = scratch_path(folder, name);
    bool is = access(path, F_OK) == 0;
    free(path);
    return is;
}

static bool opens(const char *folder)
{
    FgShelf shelf;
    FgFail fail = {0};
    bool ok = fg_shelf_open(&shelf, folder, &fail);
    fg_shelf_close(&shelf);
    fg_fail_clear(&fail);
    return ok;
}

static void leftovers(int *failures)
{
    char *folder = scratch_new();
    FgFail fail = {0};
    CHECK(!fg_shelf_newest(folder, &fail) && strstr(fail.text, "no checkpoint here"));
    fg_fail_clear(&fail);
    place(folder, "step-000002", "{}");
    place(folder, ".tmp-step-000009-1-0", NULL);
    place(folder, ".tmp-step-000008-1-0", "{\"step\"");
    place(folder, "step-000007x", "{}");
    CHECK(newest_is(folder, "step-000002"));
    place(folder, ".old-step-000004", "{}");
    CHECK(newest_is(folder, ".old-step-000004"));
    place(folder, ".tmp-step-000004-1-0", "{}");
    CHECK(newest_is(folder, ".tmp-step-000004-1-0"));
    CHECK(opens(folder));
    CHECK(newest_is(folder, "step-000004"));
    CHECK(there(folder, "step-000002") && there(folder, "step-000007x"));
    CHECK(!there(folder, ".tmp-step-000009-1-0") && !there(folder, ".tmp-step-000008-1-0"));
    CHECK(!there(folder, ".tmp-step-000004-1-0") && !there(folder, ".old-step-000004"));
    scratch_remove(folder);
    free(folder);
}

static void later_steps(int *failures)
{
    char *folder = scratch_new();
    CHECK(!fg_shelf_later(folder, 0));
    place(folder, "step-000010", "{}");
    place(folder, "step-000002", "{}");
    place(folder, "step-000030", NULL);
    char *text = fg_shelf_later(folder, 0);
    CHECK_STR(text, "step-000002, step-000010");
    free(text);
    CHECK(!fg_shelf_later(folder, 10));
    place(folder, "step-000003", "{}");
    place(folder, "step-000004", "{}");
    place(folder, "step-000005", "{}");
    text = fg_shelf_later(folder, 1);
    CHECK_STR(text, "step-000002, step-000003 ... step-000010");
    free(text);
    scratch_remove(folder);
    free(folder);
}

static void one_run_at_a_time(int *failures)
{
    char *folder = scratch_new();
    FgShelf first, second;
    FgFail fail = {0};
    CHECK(fg_shelf_open(&first, folder, &fail));
    CHECK(!fg_shelf_open(&second, folder, &fail));
    CHECK(fail.text && strstr(fail.text, "another run is saving here"));
    fg_shelf_close(&second);
    fg_fail_clear(&fail);
    fg_shelf_close(&first);
    CHECK(opens(folder));
    /* Without locks names still differ. */
    char *a = fg_shelf_begin(folder, 3, &fail), *b = fg_shelf_begin(folder, 3, &fail);
    CHECK(a && b && strcmp(a, b) != 0);
    free(a);
    free(b);
    scratch_remove(folder);
    free(folder);
}

static void what_is_not_ours_stays(int *failures)
{
    char *folder = scratch_new(), *path = NULL;
    FgFail fail = {0};
    char *made = fg_shelf_begin(folder, 3, &fail), *file = scratch_path(folder, "step-000003");
    scratch_write(file, "mine", 4);
    CHECK(!fg_shelf_put(folder, made, 3, &path, &fail));
    CHECK(fail.text && strstr(fail.text, "is no folder"));
    fg_fail_clear(&fail);
    unlink(file);
    place(folder, "step-000003", "{}");
    char *notes = scratch_path(file, "notes");
    scratch_write(notes, "mine", 4);
    char *inside = scratch_path(made, "manifest.json");
    scratch_write(inside, "[]", 2);
    CHECK(fg_shelf_put(folder, made, 3, &path, &fail));
    CHECK(newest_is(folder, "step-000003"));
    free(notes);
    notes = scratch_path(made, "notes"); /* where the old one is now */
    CHECK(access(notes, F_OK) == 0 && access(inside, F_OK) != 0);
    free(notes);
    free(inside);
    free(file);
    free(path);
    free(made);
    scratch_remove(folder);
    free(folder);
}

/* Saves step 5 again and again. */
static void save_forever(const char *folder)
{
    FgFail fail = {0};
    for (;;) {
        char *path, *made = fg_shelf_begin(folder, 5, &fail);
        char *manifest = made ? scratch_path(made, "manifest.json") : NULL;
        if (!made || !scratch_write(manifest, "{}", 2) ||
            !fg_shelf_put(folder, made, 5, &path, &fail))
            _exit(1);
        free(manifest);
        free(made);
        free(path);
    }
}

static void killed_while_replacing(int *failures)
{
    char *folder = scratch_new();
    place(folder, "step-000005", "{}");
    for (int i = 0; i < 40 && !*failures; i++) {
        int status;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            save_forever(folder);
        nanosleep(&(struct timespec){.tv_nsec = 2000000 + i * 100000}, NULL);
        kill(child, SIGKILL);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        FgFail fail = {0};
        char *path = fg_shelf_newest(folder, &fail);
        CHECK(path && strstr(path, "step-000005"));
        free(path);
        fg_fail_clear(&fail);
        CHECK(opens(folder) && newest_is(folder, "step-000005"));
    }
    scratch_remove(folder);
    free(folder);
}

static void only_files_are_replaced(int *failures)
{
    char *folder = scratch_new(), *pipe = scratch_path(folder, "pipe");
    char *file = scratch_path(folder, "file"), *link = scratch_path(folder, "link");
    struct stat info;
    FgFail fail = {0};
    CHECK(mkfifo(pipe, 0600) == 0);
    CHECK(!fg_output_check(pipe, &fail) && strstr(fail.text, "is a device, pipe or socket"));
    fg_fail_clear(&fail);
    CHECK(!fg_output_end(file, pipe, true, &fail));
    fg_fail_clear(&fail);
    CHECK(lstat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
    CHECK(!fg_output_check(folder, &fail) && strstr(fail.text, "is a folder"));
    fg_fail_clear(&fail);
    CHECK(fg_output_check(file, &fail) && access(file, F_OK) != 0);
    scratch_write(file, "old", 3);
    CHECK(symlink("file", link) == 0);
    char *made = fg_output_begin(link, &fail);
    CHECK(made && fg_output_end(made, link, true, &fail));
    CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(stat(file, &info) == 0 && info.st_size == 0);
    free(made);
    free(link);
    free(file);
    free(pipe);
    scratch_remove(folder);
    free(folder);
}

UNIT_MAIN({"leftovers", leftovers}, {"later steps", later_steps},
          {"one run at a time", one_run_at_a_time},
          {"what is not ours stays", what_is_not_ours_stays},
          {"killed while replacing", killed_while_replacing},
          {"only files are replaced", only_files_are_replaced})
