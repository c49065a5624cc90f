/* Devices and pipes may be named twice: nothing in them is lost. */
#define _XOPEN_SOURCE 700 /* readlink */
#include "runtime/trainer/apart.h"

#include "runtime/trainer/shelf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file and what names it. */
typedef struct Named {
    const char *option, *path; /* path NULL: not given */
    bool folder;
} Named;

enum { MOST_LINKS = 40 }; /* as the system: a circle of links is reported when it is opened */

/* How much of the path is its folder, with the slash. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Where links lead to that end at nothing, without slashes at the end. The caller frees. */
static char *end_of_links(const char *path)
{
    char *at = fg_text("%s", path), target[4096];
    for (int i = 0; i < MOST_LINKS; i++) {
        size_t length = strlen(at);
        while (length > 1 && at[length - 1] == '/')
            at[--length] = 0;
        ssize_t n = readlink(at, target, sizeof target);
        if (n <= 0 || (size_t)n == sizeof target)
            break;
        int folder = *target == '/' ? 0 : (int)folder_length(at);
        char *next = fg_text("%.*s%.*s", folder, at, (int)n, target);
        free(at);
        at = next;
    }
    return at;
}

/* Of two files that are not there. */
static bool same_place(const char *a, const char *b)
{
    struct stat x, y;
    size_t in_a = folder_length(a), in_b = folder_length(b);
    char *folder_a = fg_text("%.*s.", (int)in_a, a), *folder_b = fg_text("%.*s.", (int)in_b, b);
    bool same = strcmp(a + in_a, b + in_b) == 0 && stat(folder_a, &x) == 0 &&
                stat(folder_b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    free(folder_a);
    free(folder_b);
    return same;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    bool there = stat(a, &x) == 0;
    if ((stat(b, &y) == 0) != there)
        return false;
    if (there)
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    char *end_a = end_of_links(a), *end_b = end_of_links(b);
    bool same = same_place(end_a, end_b);
    free(end_a);
    free(end_b);
    return same;
}

/* The checkpoint that is resumed is read whole. */
static bool spares_checkpoint(const FgOptions *options, const Named *output, FgFail *fail)
{
    FgFail none = {0}; /* that there is none is told by who reads it */
    char *folder = options->resume ? fg_shelf_newest(options->resume, &none) : NULL;
    bool ok = true;
    for (int file = 0; folder && ok && file < FG_N_SHELF_FILES; file++) {
        char *path = fg_text("%s/%s", folder, fg_shelf_file_name((FgShelfFile)file));
        if (same_file(output->path, path))
            ok = fg_fail(fail, "%s %s would be written over a file of the checkpoint %s",
                         output->option, output->path, folder);
        free(path);
    }
    free(folder);
    fg_fail_clear(&none);
    return ok;
}

bool fg_files_apart(const FgOptions *options, FgFail *fail)
{
    const Named inputs[] = {{"--data", options->data, false},
                            {"--inputs", options->inputs, false},
                            {"--weights", options->weights, false},
                            {"the program", "/proc/self/exe", false}};
    const Named outputs[] = {{"--log", options->log, false},
                             {"--dump-grads", options->dump_grads, false},
                             {"--profile", options->profile, false},
                             {"--gemm-cache", options->gemm_cache, false},
                             {"--save", options->save, true}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const Named *out = &outputs[i];
        if (!out->path)
            continue;
        for (size_t k = 0; !out->folder && k < sizeof inputs / sizeof *inputs; k++)
            if (inputs[k].path && same_file(out->path, inputs[k].path))
                return fg_fail(fail, "%s %s would be written over %s, which this run reads",
                               out->option, out->path, inputs[k].option);
        for (size_t k = 0; k < i; k++)
            if (outputs[k].path && same_file(out->path, outputs[k].path))
                return fg_fail(fail, "%s and %s would both write %s", outputs[k].option,
                               out->option, out->path);
        if (!spares_checkpoint(options, out, fail))
            return false;
    }
    return true;
}
