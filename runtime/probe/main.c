/* fg_probe: measures the machine that it runs on and writes a machine file. `foregather probe`
 * starts it; it starts itself once a rank.
 *
 *   fg_probe [--ranks N] [-o FILE] [--name NAME]
 *
 * Status: 0 done, 1 a failure, 2 usage. The log goes to standard error, the file to standard output
 * without -o. */
#define _DEFAULT_SOURCE 1

#include "runtime/launch/spawn.h"
#include "runtime/launch/whole_file.h"
#include "runtime/probe/measure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOIN_S = 120, END_S = 10, LIMIT_S = 180, FINGERPRINT = 0x70726f62, MOST_RANKS = 64 };

typedef struct Options {
    uint32_t ranks; /* 0: all GPUs that can be seen */
    const char *output, *name;
} Options;

static int usage(const char *text, const char *word)
{
    fprintf(stderr, "fg_probe: error: %s%s\nusage: fg_probe [--ranks N] [-o FILE] [--name NAME]\n",
            text, word);
    return 2;
}

static int read_options(int argc, char **argv, Options *out)
{
    *out = (Options){0};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            return usage("a value is missing after ", argv[i]);
        if (strcmp(argv[i], "-o") == 0) {
            out->output = value;
        } else if (strcmp(argv[i], "--name") == 0) {
            out->name = value;
        } else if (strcmp(argv[i], "--ranks") == 0) {
            char *end;
            unsigned long n = strtoul(value, &end, 10);
            if (*value < '1' || *value > '9' || *end || n > MOST_RANKS)
                return usage("--ranks takes 1 to 64; not ", value);
            out->ranks = (uint32_t)n;
        } else {
            return usage("unknown option ", argv[i]);
        }
    }
    return 0;
}

/* ---- the file ---- */

static bool write_figures(const Options *options, const FgProbeFigures *figures)
{
    bool to_file = options->output && strcmp(options->output, "-") != 0;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream)
        fg_probe_write(stream, figures);
    bool ok = stream && fclose(stream) == 0;
    if (ok && to_file)
        ok = fg_whole_file_put(options->output, text, bytes);
    else if (ok)
        ok = fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
    if (!ok)
        fprintf(stderr, "error: %s cannot be written: %s\n",
                to_file ? options->output : "standard output", strerror(errno));
    free(text);
    return ok;
}

/* ---- a rank ---- */

static bool probe(FgProbeRig *rig, FgWorld *world, uint32_t ranks, const Options *options,
                  char *error, size_t error_bytes)
{
    char name[320];
    struct cudaDeviceProp properties;
    bool first = !world || fg_world_place(world)->rank == 0;
    FgProbeFigures figures = {.ranks = ranks};
    if (!fg_probe_open(rig, world, ranks, first ? stderr : NULL, error, error_bytes))
        return false;
    fg_cuda_check(rig->cx, cudaGetDeviceProperties(&properties, rig->group->device),
                  "cudaGetDeviceProperties");
    snprintf(name, sizeof name, "%" PRIu32 "x %s", ranks, properties.name);
    figures.name = options->name ? options->name : name;
    fg_probe_say(rig, "%" PRIu32 " rank%s on %s", ranks, ranks == 1 ? "" : "s", properties.name);
    if (!fg_probe_measure(rig, &figures)) {
        FgRtStatus status = fg_rt_status(rig->cx);
        snprintf(error, error_bytes, "rank %" PRIu32 ", %s: %.800s", status.rank,
                 *status.call ? status.call : "the run", status.text);
        return false;
    }
    fg_probe_say(rig, "done");
    return !first || write_figures(options, &figures);
}

static int run_rank(const FgPlace *place, const Options *options)
{
    FgWorldOptions how = {FINGERPRINT, JOIN_S, END_S};
    FgProbeRig rig = {0};
    FgWorld *world = NULL;
    char error[1200] = "";
    alarm(LIMIT_S); /* a collective that stands still ends nothing else */
    if (place->ranks > 1)
        world = fg_world_join(place, &how, error, sizeof error);
    bool ok = (place->ranks == 1 || world) &&
              probe(&rig, world, place->ranks, options, error, sizeof error);
    if (!ok && *error && world)
        fg_world_fail(world, error);
    if (!ok && *error && (!world || fg_world_tells(world)))
        fprintf(stderr, "error: %s\n", error);
    if (ok && world)
        (void)fg_world_barrier(world);
    if (ok)
        fg_probe_close(&rig);
    fg_world_leave(world);
    return ok ? 0 : 1;
}

/* The GPUs of this machine; the processes that are started have no part in this one's driver. */
static uint32_t count_devices(void)
{
    int n = 0;
    cudaError_t status = cudaGetDeviceCount(&n);
    if (status == cudaSuccess && n > 0)
        return (uint32_t)n;
    fprintf(stderr, "error: no GPU can be used: %s\n",
            status != cudaSuccess ? cudaGetErrorString(status) : "there is none");
    return 0;
}

static int start(int argc, char **argv)
{
    Options options;
    FgPlace place;
    char error[1024] = "";
    int status = read_options(argc, argv, &options);
    if (status != 0)
        return status;
    if (!fg_place_asked(&place, options.ranks, fg_spawn_is_child(), error, sizeof error)) {
        fprintf(stderr, "error: %s\n", error);
        return 1;
    }
    if (fg_spawn_is_child() || place.launcher)
        return run_rank(&place, &options);
    uint32_t ranks = options.ranks ? options.ranks : count_devices();
    if (ranks == 0)
        return 1;
    return ranks == 1 ? run_rank(&place, &options) : fg_spawn_ranks(ranks, argv);
}

int main(int argc, char **argv)
{
    int status = start(argc, argv);
    if (status != 0) {
        /* A device may still wait for a peer that is gone; libraries would wait with it at exit. */
        fflush(NULL);
        _exit(status);
    }
    return status;
}
