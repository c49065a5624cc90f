/* A rank of the probe: the trainer's own group (device, memory, streams, communicators) without a
 * program's calls, and the means to time what its streams do.
 *
 * Work is captured into graphs, as steps are, and a graph is launched over and over on the stream
 * that its kind of work has in a step. What ranks do together they do in the same order and the
 * same number: rank 0 says how often. Errors are the group's: sticky, and shared by all ranks. */
#ifndef FG_RUNTIME_PROBE_RIG_H
#define FG_RUNTIME_PROBE_RIG_H

#include "runtime/cuda/core.h"

#include <stdio.h>

/* Offsets in the rank's memory; bytes of each stand in rig.c. */
typedef struct FgProbePlaces {
    uint64_t scalars, loss, agree;                  /* of the state */
    uint64_t weights, weight_grads;                 /* of a layer */
    uint64_t x, dy, y;                              /* of a product */
    uint64_t workspace, workspace_bytes;            /* of library calls */
    uint64_t gather_shard, gather_whole;            /* up to FG_PROBE_LARGEST gathered */
    uint64_t reduce_shard, reduce_whole;            /* up to FG_PROBE_LARGEST reduced */
    uint64_t parts;                                 /* of reduce_whole, where it is not summed */
    uint64_t grad, master, moment1, moment2, shard; /* of FG_PROBE_SLICE elements, to be updated */
    uint64_t stashed, fetched;                      /* FG_PROBE_COPY bytes each */
    uint64_t host_stashed, host_fetched;            /* the same in host memory */
} FgProbePlaces;

#define FG_PROBE_LARGEST ((uint64_t)1 << 30)
#define FG_PROBE_SLICE ((uint64_t)1 << 25)
#define FG_PROBE_COPY ((uint64_t)1 << 28)

typedef struct FgProbeRig {
    FgRtGroup *group;
    FgRtCx *cx;
    FgWorld *world; /* NULL: alone */
    FILE *log;      /* of rank 0; NULL elsewhere */
    FgProbePlaces at;
    FgRtProgram program; /* has a bucket to be updated, and nothing else */
    FgRtBucket bucket;
    FgRtParam param;
    uint32_t bucket_param;
    cudaEvent_t *events;
    uint32_t n_events;
    double start_s;
} FgProbeRig;

/* A graph of some calls. */
typedef struct FgProbeWork {
    const char *name;
    FgRtStream stream;
    cudaGraphExec_t exec;
    double amount;  /* operations or bytes of a launch */
    double seconds; /* of a launch, alone, the mean of all ranks */
} FgProbeWork;

/* Makes calls on the work's stream. */
typedef void FgProbeIssue(FgProbeRig *rig, cudaStream_t stream, const void *what);

/* Opens the group. `world` must outlive the rig. False: `error` says why. */
bool fg_probe_open(FgProbeRig *rig, FgWorld *world, uint32_t ranks, FILE *log, char *error,
                   size_t error_bytes);
void fg_probe_close(FgProbeRig *rig);
/* A line of the log, with the seconds since the start. */
void fg_probe_say(FgProbeRig *rig, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Gives every rank the means of all ranks' values, at most FG_PROBE_AGREE of them. */
enum { FG_PROBE_AGREE = 64 };
bool fg_probe_mean(FgProbeRig *rig, double *values, uint32_t n);

/* Makes the calls once, for what they load and choose, and then captures them `times` over. */
bool fg_probe_capture(FgProbeRig *rig, FgProbeWork *work, FgProbeIssue *issue, const void *what,
                      uint32_t times);
void fg_probe_work_free(FgProbeWork *work);
/* Launches it alone for about `goal` seconds (once at least), after one launch that does not count;
 * leaves its time in the work. */
bool fg_probe_time(FgProbeRig *rig, FgProbeWork *work, double goal);
/* Launches several works, each for `goal` seconds of its own, at the same time; out_seconds[i]: of
 * a launch of works[i] while all are under way, the mean of all ranks. They were timed before. */
enum { FG_PROBE_MOST_WORKS = 4 };
bool fg_probe_together(FgProbeRig *rig, FgProbeWork *const *works, uint32_t n, double goal,
                       double *out_seconds);

#endif
