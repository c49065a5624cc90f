/* What a checkpoint holds and how it is read; where it lies, and that whatever is found is
 * complete, is shelf.c's matter. */
#include "runtime/trainer/checkpoint.h"

#include "runtime/loss_scale.h"
#include "runtime/trainer/shelf.h"
#include "runtime/trainer/sum.h"
#include "runtime/trainer/weights.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMAT "foregather checkpoint"
#define VERSION 1

#define N_FILES FG_SHELF_MANIFEST /* of tensors */

static const FgPart PARTS[N_FILES] = {FG_PART_WEIGHT, FG_PART_WEIGHT, FG_PART_MOMENT1,
                                      FG_PART_MOMENT2};

static bool holds(const FgStore *store, FgShelfFile file, uint32_t param)
{
    return PARTS[file] == FG_PART_WEIGHT || fg_store_is_trained(store, param);
}

/* ---- writing ---- */

static bool write_file(const FgStore *store, FgWorld *world, const char *folder, FgShelfFile file,
                       FgFail *fail)
{
    const FgRtProgram *program = store->program;
    FgPublished *tensors = fg_new(program->n_params, sizeof *tensors);
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_params; i++)
        if (holds(store, file, i))
            tensors[n++] =
                (FgPublished){program->params[i].name, i, PARTS[file], file == FG_SHELF_MODEL};
    char *path = fg_text("%s/%s", folder, fg_shelf_file_name(file));
    bool ok = fg_publish(store, world, path, tensors, n, fail);
    free(path);
    free(tensors);
    return ok;
}

static bool write_files(const FgStore *store, FgWorld *world, const char *folder, FgFail *fail)
{
    bool ok = true;
    for (int file = 0; ok && file < N_FILES; file++)
        if (file != FG_SHELF_MASTER || fg_store_has_masters(store))
            ok = write_file(store, world, folder, (FgShelfFile)file, fail);
    return ok;
}

/* Only what a run with a scaled loss has; false: out of memory. */
static bool pack_scale(json_t *manifest, const FgProgress *progress)
{
    bool ok = manifest != NULL;
    if (ok && (progress->skipped || progress->loss_scale > 0))
        ok = json_object_set_new(manifest, "skipped",
                                 json_integer((json_int_t)progress->skipped)) == 0;
    if (!ok || !(progress->loss_scale > 0))
        return ok;
    json_t *scale = json_pack("{s:f, s:I, s:I}", "loss_scale", progress->loss_scale, "good_steps",
                              (json_int_t)progress->good_steps, "overflows_left",
                              (json_int_t)progress->overflows_left);
    ok = scale && json_object_update(manifest, scale) == 0;
    json_decref(scale);
    return ok;
}

/* What the files of tensors hold, as sums by name. NULL: one cannot be read. */
static json_t *file_sums(const FgStore *store, const char *folder, FgFail *fail)
{
    json_t *sums = json_object();
    for (int file = 0; file < N_FILES; file++) {
        if (file == FG_SHELF_MASTER && !fg_store_has_masters(store))
            continue;
        const char *name = fg_shelf_file_name((FgShelfFile)file);
        char *path = fg_text("%s/%s", folder, name), *sum = fg_file_sum(path, fail);
        if (sum)
            json_object_set_new(sums, name, json_string(sum));
        free(path);
        free(sum);
        if (!sum) {
            json_decref(sums);
            return NULL;
        }
    }
    return sums;
}

/* The sum of all that a manifest says but what does not matter: which plan it was. */
static char *manifest_sum(json_t *manifest)
{
    json_t *said = json_copy(manifest);
    json_object_del(said, "fingerprint");
    json_object_del(said, "sum");
    char *text = json_dumps(said, JSON_COMPACT | JSON_SORT_KEYS);
    char *sum = fg_bytes_sum(text ? text : "", text ? strlen(text) : 0);
    free(text);
    json_decref(said);
    return sum;
}

static bool write_manifest(const FgStore *store, const char *folder, const FgProgress *progress,
                           FgFail *fail)
{
    const FgRtProgram *program = store->program;
    char *path = fg_text("%s/manifest.json", folder);
    char *print = fg_text("%016llx", (unsigned long long)program->fingerprint);
    json_t *sums = file_sums(store, folder, fail);
    json_t *manifest = json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:i, s:s, s:o}", "format", FORMAT,
        "version", VERSION, "model", program->model, "step", (json_int_t)progress->step, "position",
        (json_int_t)progress->position, "rows", (json_int_t)progress->rows, "step_rows",
        (json_int_t)progress->step_rows, "seed", (json_int_t)progress->seed, "masters",
        (int)fg_store_has_masters(store), "precision", program->precision, "ranks",
        (int)program->ranks, "fingerprint", print, "sums", sums ? sums : json_object());
    bool packed = pack_scale(manifest, progress);
    char *sum = manifest_sum(manifest);
    json_object_set_new(manifest, "sum", json_string(sum));
    FILE *stream = fg_file_fault(fail, FG_FAULT_WRITE) ? NULL : fopen(path, "w");
    bool ok = sums && packed && stream && json_dumpf(manifest, stream, JSON_INDENT(2)) == 0 &&
              fputc('\n', stream) != EOF && !fg_file_fault(fail, FG_FAULT_WRITE) &&
              fflush(stream) == 0 && fsync(fileno(stream)) == 0;
    if (!ok)
        fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    if (stream && (fclose(stream) != 0 || fg_file_fault(fail, FG_FAULT_WRITE)) && ok)
        ok = fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    json_decref(manifest);
    free(sum);
    free(print);
    free(path);
    return ok;
}

/* Rank 0's process begins and puts; all write between. */
bool fg_checkpoint_save(const FgStore *store, FgWorld *world, const char *dir,
                        const FgProgress *progress, char **out_path, FgFail *fail)
{
    bool first = fg_is_first(world);
    char *path = NULL, *made = first ? fg_shelf_begin(dir, progress->step, fail) : NULL;
    bool ok = (!first || made) && fg_share_text(world, &made, fail) &&
              write_files(store, world, made, fail) &&
              (!first || (write_manifest(store, made, progress, fail) &&
                          fg_shelf_put(dir, made, progress->step, &path, fail)));
    if (!ok)
        fg_tell(world, fail);
    if (!ok && first && made)
        fg_shelf_discard(made);
    ok = ok && fg_share_text(world, &path, fail);
    free(made);
    if (ok)
        *out_path = path;
    else
        free(path);
    return ok;
}

/* ---- reading ---- */

static bool read_integer(json_t *manifest, const char *path, const char *key, int64_t least,
                         uint64_t *out, FgFail *fail)
{
    json_t *value = json_object_get(manifest, key);
    if (!json_is_integer(value) || json_integer_value(value) < least)
        return fg_fail(fail, "%s: '%s' is not a whole number", path, key);
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_count(json_t *manifest, const char *path, const char *key, uint64_t *out,
                       FgFail *fail)
{
    return read_integer(manifest, path, key, 0, out, fail);
}

/* What is not there is 0. */
static bool read_scale(json_t *manifest, const char *path, FgProgress *out, FgFail *fail)
{
    json_t *scale = json_object_get(manifest, "loss_scale");
    if (json_object_get(manifest, "skipped") &&
        !read_count(manifest, path, "skipped", &out->skipped, fail))
        return false;
    if (out->skipped > out->step)
        return fg_fail(fail, "%s: more steps were skipped than done", path);
    if (!scale)
        return true;
    out->loss_scale = json_number_value(scale);
    if (!fg_scale_allowed(out->loss_scale))
        return fg_fail(fail, "%s: 'loss_scale' is not a power of two from 1 to 2^64", path);
    return read_count(manifest, path, "good_steps", &out->good_steps, fail) &&
           read_count(manifest, path, "overflows_left", &out->overflows_left, fail);
}

/* What was written is what lies there: of the manifest, and of the files that are read. Checkpoints
 * of older programs have no sums. */
static bool check_sums(json_t *manifest, const char *folder, bool masters, FgFail *fail)
{
    const char *want = json_string_value(json_object_get(manifest, "sum"));
    char *sum = manifest_sum(manifest);
    bool ok = !want || !strcmp(sum, want) ||
              fg_fail(fail, "%s/manifest.json: damaged: it does not say what was written", folder);
    free(sum);
    for (int file = 0; ok && want && file < N_FILES; file++) {
        const char *name = fg_shelf_file_name((FgShelfFile)file);
        if (file == (masters ? FG_SHELF_MODEL : FG_SHELF_MASTER))
            continue;
        const char *written =
            json_string_value(json_object_get(json_object_get(manifest, "sums"), name));
        char *path = fg_text("%s/%s", folder, name), *found = fg_file_sum(path, fail);
        ok = found && ((written && !strcmp(found, written)) ||
                       fg_fail(fail,
                               "%s: damaged: its bytes are not those that were written; resume "
                               "from another checkpoint",
                               path));
        free(path);
        free(found);
    }
    return ok;
}

static bool read_manifest(const char *folder, bool check, FgProgress *out, bool *out_masters,
                          FgFail *fail)
{
    json_error_t error;
    char *path = fg_text("%s/manifest.json", folder);
    if (fg_file_fault(fail, FG_FAULT_READ)) {
        fg_fail(fail, "%s: cannot be read: %s", path, strerror(errno));
        free(path);
        return false;
    }
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
         read_integer(manifest, path, "seed", INT64_MIN, &out->seed, fail); /* of 64 bits */
    if (ok && json_object_get(manifest, "step_rows"))
        ok = read_count(manifest, path, "step_rows", &out->step_rows, fail);
    if (ok && json_object_get(manifest, "ranks"))
        ok = read_count(manifest, path, "ranks", &out->ranks, fail);
    ok = ok && read_scale(manifest, path, out, fail);
    *out_masters = json_is_true(json_object_get(manifest, "masters"));
    ok = ok && (!check || check_sums(manifest, folder, *out_masters, fail));
    json_decref(manifest);
    free(path);
    return ok;
}

static bool load_file(const FgStore *store, const char *folder, FgShelfFile file, FgFail *fail)
{
    char *path = fg_text("%s/%s", folder, fg_shelf_file_name(file));
    FgSafetensors *tensors = fg_safetensors_open(path, fail);
    bool ok = tensors && fg_weights_load_part(store, tensors, PARTS[file], fail);
    fg_safetensors_close(tensors);
    free(path);
    return ok;
}

bool fg_checkpoint_load(const FgStore *store, FgWorld *world, const char *dir,
                        FgProgress *out_progress, char **out_path, FgFail *fail)
{
    bool masters = false, first = fg_is_first(world);
    char *folder = first ? fg_shelf_newest(dir, fail) : NULL;
    *out_progress = (FgProgress){0};
    bool ok = (!first || folder) && fg_share_text(world, &folder, fail) &&
              read_manifest(folder, first, out_progress, &masters, fail) &&
              load_file(store, folder, masters ? FG_SHELF_MASTER : FG_SHELF_MODEL, fail) &&
              load_file(store, folder, FG_SHELF_EXP_AVG, fail) &&
              load_file(store, folder, FG_SHELF_EXP_AVG_SQ, fail);
    if (ok)
        *out_path = folder;
    else
        free(folder);
    return ok;
}
