/* Manifests of checkpoints: whatever one says, the weights beside it are missing here, and the
 * loader says what is wrong. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "memory_file.h"
#include "runtime/trainer/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fuzz_seeds[] = {"tests/fuzz/seeds/manifest.json", NULL};
const char *const fuzz_words[] = {
    "\"step\"", "\"masters\"", "18446744073709551615", "-1", "1e99", "null", "{}", "[",
    "true",     NULL};

static char folder[64] = "/tmp/foregather-fuzz-XXXXXX", manifest[96]; /* a test's own state */

static void remove_folder(void)
{
    unlink(manifest);
    rmdir(folder);
}

/* A folder whose manifest is the file in memory. */
static const char *folder_of(const char *file)
{
    if (*manifest)
        return folder;
    if (!mkdtemp(folder))
        abort();
    snprintf(manifest, sizeof manifest, "%s/manifest.json", folder);
    if (symlink(file, manifest) != 0)
        abort();
    atexit(remove_folder);
    return folder;
}

static FgWorld *alone(void)
{
    static FgWorld *world; /* a test's own state */
    FgPlace place = {.ranks = 1, .listener = -1};
    FgWorldOptions how = {1, 1, 1};
    char error[256];
    if (!world)
        world = fg_world_join(&place, &how, error, sizeof error);
    return world;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const FgRtProgram program = {.ranks = 1};
    FgStore store = {.program = &program};
    FgFail fail = {0};
    FgProgress progress;
    char *path = NULL;
    const char *at = folder_of(memory_file(data, size));
    if (fg_checkpoint_load(&store, alone(), at, &progress, &path, &fail) || !fail.text || path)
        abort();
    fg_fail_clear(&fail);
    return 0;
}
