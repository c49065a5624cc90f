/* The folder appears under its name only when all of its files are there and synced, so whatever is
 * found is complete. */
#include "runtime/trainer/checkpoint.h"

#include "runtime/trainer/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "foregather checkpoint"
#define VERSION 1

typedef enum File { MODEL, MASTER, EXP_AVG, EXP_AVG_SQ, N_FILES } File;

static const char *const NAMES[N_FILES] = {"model.safetensors", "master.safetensors",
                                           "exp_avg.safetensors", "exp_avg_sq.safetensors"};
static const FgPart PARTS[N_FILES] = {FG_PART_WEIGHT, FG_PART_WEIGHT, FG_PART_MOMENT1,
                                      FG_PART_MOMENT2};

static bool holds(const FgStore *store, File file, uint32_t param)
{
    return PARTS[file] == FG_PART_WEIGHT || fg_store_is_trained(store, param);
}

/* ---- writing ---- */

static bool write_file(const FgStore *store, FgWorld *world, const char *folder, File file,
                       FgFail *fail)
{
    const FgRtProgram *program = store->program;
    FgPublished *tensors = fg_new(program->n_params, sizeof *tensors);
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_params; i++)
        if (holds(store, file, i))
            tensors[n++] = (FgPublished){program->params[i].name, i, PARTS[file], file == MODEL};
    char *path = fg_text("%s/%s", folder, NAMES[file]);
    bool ok = fg_publish(store, world, path, tensors, n, fail);
    free(path);
    free(tensors);
    return ok;
}

static bool write_files(const FgStore *store, FgWorld *world, const char *folder, FgFail *fail)
{
    bool ok = true;
    for (int file = 0; ok && file < N_FILES; file++)
        if (file != MASTER || fg_store_has_masters(store))
            ok = write_file(store, world, folder, (File)file, fail);
    return ok;
}

static bool write_manifest(const FgStore *store, const char *folder, const FgProgress *progress,
                           FgFail *fail)
{
    const FgRtProgram *program = store->program;
    char *path = fg_text("%s/manifest.json", folder);
    char *print = fg_text("%016llx", (unsigned long long)program->fingerprint);
    json_t *manifest = json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:b, s:s, s:i, s:s}", "format", FORMAT, "version",
        VERSION, "model", program->model, "step", (json_int_t)progress->step, "position",
        (json_int_t)progress->position, "rows", (json_int_t)progress->rows, "seed",
        (json_int_t)progress->seed, "masters", (int)fg_store_has_masters(store), "precision",
        program->precision, "ranks", (int)program->ranks, "fingerprint", print);
    FILE *stream = fopen(path, "w");
    bool ok = manifest && stream && json_dumpf(manifest, stream, JSON_INDENT(2)) == 0 &&
              fputc('\n', stream) != EOF && fflush(stream) == 0 && fsync(fileno(stream)) == 0;
    if (!ok)
        fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    if (stream && fclose(stream) != 0 && ok)
        ok = fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    json_decref(manifest);
    free(print);
    free(path);
    return ok;
}

/* Removes a folder of plain files; what is not there is no error. */
static void remove_folder(const char *folder)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            char *path = fg_text("%s/%s", folder, entry->d_name);
            unlink(path);
            free(path);
        }
    closedir(stream);
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
    ok = ok && (mkdir(path, 0777) == 0 || errno == EEXIST);
    if (!ok)
        fg_fail(fail, "%s: cannot be created: %s", folder, strerror(errno));
    free(path);
    return ok;
}

/* Puts the finished folder in place of an older one of the same step. */
static bool put_in_place(const char *made, const char *path, const char *aside, FgFail *fail)
{
    remove_folder(aside);
    if (rename(path, aside) != 0 && errno != ENOENT)
        return fg_fail(fail, "%s: cannot be replaced: %s", path, strerror(errno));
    if (rename(made, path) != 0)
        return fg_fail(fail, "%s: cannot be renamed to %s: %s", made, path, strerror(errno));
    remove_folder(aside);
    return true;
}

static bool make_folder(const char *dir, const char *made, FgFail *fail)
{
    bool ok = make_folders(dir, fail);
    remove_folder(made);
    return ok && (mkdir(made, 0777) == 0 ||
                  fg_fail(fail, "%s: cannot be created: %s", made, strerror(errno)));
}

/* By rank 0's process alone, when all files are there. */
static bool complete(const FgStore *store, const char *dir, const char *made, const char *path,
                     const FgProgress *progress, FgFail *fail)
{
    char *aside = fg_text("%s/.old-step-%06llu", dir, (unsigned long long)progress->step);
    bool ok = write_manifest(store, made, progress, fail);
    if (ok)
        sync_folder(made);
    ok = ok && put_in_place(made, path, aside, fail);
    if (ok)
        sync_folder(dir);
    free(aside);
    return ok;
}

bool fg_checkpoint_save(const FgStore *store, FgWorld *world, const char *dir,
                        const FgProgress *progress, char **out_path, FgFail *fail)
{
    unsigned long long step = progress->step;
    bool first = fg_is_first(world);
    char *path = fg_text("%s/step-%06llu", dir, step);
    char *made = fg_text("%s/.tmp-step-%06llu", dir, step);
    bool ok = (!first || make_folder(dir, made, fail)) && write_files(store, world, made, fail) &&
              (!first || complete(store, dir, made, path, progress, fail)) && fg_meet(world, fail);
    if (!ok && first)
        remove_folder(made);
    free(made);
    if (ok)
        *out_path = path;
    else
        free(path);
    return ok;
}

/* ---- reading ---- */

static bool is_checkpoint(const char *folder)
{
    char *path = fg_text("%s/manifest.json", folder);
    bool is = access(path, F_OK) == 0;
    free(path);
    return is;
}

/* The checkpoint that `dir` stands for, or NULL. The caller frees. */
static char *resolve(const char *dir, FgFail *fail)
{
    if (is_checkpoint(dir))
        return fg_text("%s", dir);
    DIR *stream = opendir(dir);
    if (!stream) {
        fg_fail(fail, "%s: cannot be read: %s", dir, strerror(errno));
        return NULL;
    }
    char *best = NULL;
    unsigned long long best_step = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        char *end;
        if (strncmp(entry->d_name, "step-", 5) != 0)
            continue;
        unsigned long long step = strtoull(entry->d_name + 5, &end, 10);
        char *path = fg_text("%s/%s", dir, entry->d_name);
        if (*end || !is_checkpoint(path) || (best && step < best_step)) {
            free(path);
            continue;
        }
        free(best);
        best = path;
        best_step = step;
    }
    closedir(stream);
    if (!best)
        fg_fail(fail, "%s: no checkpoint here: neither manifest.json nor step-* folders", dir);
    return best;
}

static bool read_count(json_t *manifest, const char *path, const char *key, uint64_t *out,
                       FgFail *fail)
{
    json_t *value = json_object_get(manifest, key);
    if (!json_is_integer(value))
        return fg_fail(fail, "%s: '%s' is not a whole number", path, key);
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_manifest(const char *folder, FgProgress *out, bool *out_masters, FgFail *fail)
{
    json_error_t error;
    char *path = fg_text("%s/manifest.json", folder);
    json_t *manifest = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *format = json_string_value(json_object_get(manifest, "format"));
    uint64_t version = 0;
    bool ok = manifest || fg_fail(fail, "%s:%d: %s", path, error.line, error.text);
    if (ok && (!format || strcmp(format, FORMAT) != 0))
        ok = fg_fail(fail, "%s: not the manifest of a checkpoint", path);
    ok = ok && read_count(manifest, path, "version", &version, fail);
    if (ok && version != VERSION)
        ok = fg_fail(fail, "%s: version %llu; this program reads %d", path,
                     (unsigned long long)version, VERSION);
    ok = ok && read_count(manifest, path, "step", &out->step, fail) &&
         read_count(manifest, path, "position", &out->position, fail) &&
         read_count(manifest, path, "rows", &out->rows, fail) &&
         read_count(manifest, path, "seed", &out->seed, fail);
    *out_masters = json_is_true(json_object_get(manifest, "masters"));
    json_decref(manifest);
    free(path);
    return ok;
}

static bool load_file(const FgStore *store, const char *folder, File file, FgFail *fail)
{
    char *path = fg_text("%s/%s", folder, NAMES[file]);
    FgSafetensors *tensors = fg_safetensors_open(path, fail);
    bool ok = tensors && fg_weights_load_part(store, tensors, PARTS[file], fail);
    fg_safetensors_close(tensors);
    free(path);
    return ok;
}

bool fg_checkpoint_load(const FgStore *store, const char *dir, FgProgress *out_progress,
                        char **out_path, FgFail *fail)
{
    bool masters = false;
    char *folder = resolve(dir, fail);
    bool ok = folder && read_manifest(folder, out_progress, &masters, fail) &&
              load_file(store, folder, masters ? MASTER : MODEL, fail) &&
              load_file(store, folder, EXP_AVG, fail) && load_file(store, folder, EXP_AVG_SQ, fail);
    if (ok)
        *out_path = folder;
    else
        free(folder);
    return ok;
}
