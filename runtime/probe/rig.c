/* Opening a rank, and timing what its streams do. Events between launches tell when each of them
 * ended; no clock of the host is in a figure. */
#include "runtime/probe/rig.h"

#include "runtime/probe/figures.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
enum { MOST_LAUNCHES = 400, FINGERPRINT = 0x70726f62 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void fg_probe_say(FgProbeRig *rig, const char *format, ...)
{
    va_list args;
    if (!rig->log)
        return;
    fprintf(rig->log, "[%5.1f s] ", now_s() - rig->start_s);
    va_start(args, format);
    vfprintf(rig->log, format, args);
    va_end(args);
    fputc('\n', rig->log);
    fflush(rig->log);
}

/* ---- opening ---- */

/* The next `bytes` bytes, at a border that suits everything. */
static uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at += (bytes + 4095) / 4096 * 4096;
    return here;
}

static void lay_out(FgProbeRig *rig, uint32_t ranks)
{
    FgProbePlaces *p = &rig->at;
    uint64_t end = 0, share = (FG_PROBE_LARGEST + ranks - 1) / ranks, host = FG_RT_HOST;
    p->scalars = take(&end, sizeof(float) * FG_RT_SCALARS);
    p->loss = take(&end, sizeof(double));
    p->agree = take(&end, FG_PROBE_AGREE * sizeof(double));
    rig->program.state_bytes = end;
    p->weights = take(&end, 448 * MIB);
    p->weight_grads = take(&end, 448 * MIB);
    p->x = take(&end, 160 * MIB);
    p->dy = take(&end, 160 * MIB);
    p->y = take(&end, 160 * MIB);
    p->workspace_bytes = 144 * MIB;
    p->workspace = take(&end, p->workspace_bytes);
    p->gather_shard = take(&end, share);
    p->gather_whole = take(&end, FG_PROBE_LARGEST);
    p->reduce_shard = take(&end, share);
    p->reduce_whole = take(&end, FG_PROBE_LARGEST);
    p->parts = take(&end, ranks > 1 ? FG_PROBE_LARGEST : 0);
    p->grad = take(&end, 2 * FG_PROBE_SLICE);
    p->master = take(&end, 4 * FG_PROBE_SLICE);
    p->moment1 = take(&end, 4 * FG_PROBE_SLICE);
    p->moment2 = take(&end, 4 * FG_PROBE_SLICE);
    p->shard = take(&end, 2 * FG_PROBE_SLICE);
    p->stashed = take(&end, FG_PROBE_COPY);
    p->fetched = take(&end, FG_PROBE_COPY);
    rig->program.arena_bytes = end - rig->program.state_bytes;
    p->host_stashed = take(&host, FG_PROBE_COPY);
    p->host_fetched = take(&host, FG_PROBE_COPY);
    rig->program.host_arena_bytes = host - FG_RT_HOST;
}

static void describe(FgProbeRig *rig, uint32_t ranks)
{
    rig->param = (FgRtParam){
        .name = "slice", .elements = FG_PROBE_SLICE * ranks, .trainable = 1, .decay = 1};
    rig->bucket = (FgRtBucket){.name = "slice",
                               .dtype = FG_RT_BF16,
                               .trainable = 1,
                               .elements = FG_PROBE_SLICE * ranks,
                               .n_params = 1};
    rig->program = (FgRtProgram){.abi = FG_RT_ABI,
                                 .model = "probe",
                                 .plan = "probe",
                                 .precision = "bf16",
                                 .fingerprint = FINGERPRINT,
                                 .ranks = ranks,
                                 .batch = 1,
                                 .seq = 1,
                                 .accumulate = 1,
                                 .memory_bytes = UINT64_MAX, /* it is what is to be found out */
                                 .norm = FG_RT_NONE,
                                 .params = &rig->param,
                                 .buckets = &rig->bucket,
                                 .bucket_params = &rig->bucket_param,
                                 .n_params = 1,
                                 .n_buckets = 1};
    lay_out(rig, ranks);
    rig->program.scalars = rig->at.scalars;
    rig->program.loss = rig->at.loss;
}

bool fg_probe_open(FgProbeRig *rig, FgWorld *world, uint32_t ranks, FILE *log, char *error,
                   size_t error_bytes)
{
    FgRtOptions options = {0};
    float scalars[FG_RT_SCALARS] = {0};
    *rig = (FgProbeRig){.world = world, .log = log, .start_s = now_s()};
    describe(rig, ranks);
    rig->group = fg_rt_group_new(&rig->program, world, &options, error, error_bytes);
    if (!rig->group)
        return false;
    rig->cx = fg_rt_group_rank(rig->group, world ? fg_world_place(world)->rank : 0);
    scalars[FG_RT_S_LR] = 1e-4f;
    scalars[FG_RT_S_BETA1] = scalars[FG_RT_S_BETA2] = 0.9f;
    scalars[FG_RT_S_EPS] = 1e-8f;
    scalars[FG_RT_S_CORRECT1] = scalars[FG_RT_S_CORRECT2] = scalars[FG_RT_S_VALID] = 1;
    fg_rt_write(rig->cx, rig->at.scalars, scalars, sizeof scalars);
    return fg_cuda_wait_idle(rig->cx);
}

void fg_probe_close(FgProbeRig *rig)
{
    for (uint32_t i = 0; i < rig->n_events; i++)
        cudaEventDestroy(rig->events[i]);
    free(rig->events);
    fg_rt_group_free(rig->group);
}

/* ---- ranks together ---- */

bool fg_probe_mean(FgProbeRig *rig, double *values, uint32_t n)
{
    FgRtCx *cx = rig->cx;
    uint64_t bytes = n * sizeof *values;
    void *at = fg_cuda_at(cx, rig->at.agree);
    if (fg_cuda_failed(cx) || cx->ranks == 1)
        return !fg_cuda_failed(cx);
    fg_cuda_check(cx, cudaMemcpy(at, values, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    fg_cuda_all_reduce(cx, cx->streams[FG_REDUCE], 0, rig->at.agree, n, FG_RT_F64);
    fg_cuda_check(cx, cudaEventRecord(rig->group->idle, cx->streams[FG_REDUCE]), "cudaEventRecord");
    if (!fg_cuda_wait_for(cx, rig->group->idle))
        return false;
    fg_cuda_check(cx, cudaMemcpy(values, at, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (uint32_t i = 0; i < n; i++)
        values[i] /= cx->ranks;
    return !fg_cuda_failed(cx);
}

/* How often all ranks launch a work, as rank 0 sees it; they begin together. */
static bool share_counts(FgProbeRig *rig, uint32_t *counts, uint32_t n)
{
    return !fg_cuda_failed(rig->cx) &&
           (!rig->world || (fg_world_share(rig->world, counts, n * sizeof *counts) &&
                            fg_world_barrier(rig->world)));
}

static uint32_t launches_for(double goal, double seconds)
{
    double n = seconds > 0 ? goal / seconds + 1 : 1;
    return n > MOST_LAUNCHES ? MOST_LAUNCHES : (uint32_t)n;
}

/* ---- works ---- */

bool fg_probe_capture(FgProbeRig *rig, FgProbeWork *work, FgProbeIssue *issue, const void *what,
                      uint32_t times)
{
    FgRtCx *cx = rig->cx;
    cudaStream_t stream = cx->streams[work->stream];
    cudaGraph_t graph = NULL;
    issue(rig, stream, what);
    fg_cuda_check(cx, cudaEventRecord(rig->group->idle, stream), "cudaEventRecord");
    if (!fg_cuda_wait_for(cx, rig->group->idle))
        return false;
    fg_cuda_check(cx, cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                  "cudaStreamBeginCapture");
    for (uint32_t i = 0; i < times && !fg_cuda_failed(cx); i++)
        issue(rig, stream, what);
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    fg_cuda_check(cx, ended, "cudaStreamEndCapture");
    if (!fg_cuda_failed(cx))
        fg_cuda_check(
            cx, cudaGraphInstantiate(&work->exec, graph, cudaGraphInstantiateFlagUseNodePriority),
            "cudaGraphInstantiate");
    if (!fg_cuda_failed(cx))
        fg_cuda_check(cx, cudaGraphUpload(work->exec, stream), "cudaGraphUpload");
    if (graph)
        cudaGraphDestroy(graph);
    return !fg_cuda_failed(cx);
}

void fg_probe_work_free(FgProbeWork *work)
{
    if (work->exec)
        cudaGraphExecDestroy(work->exec);
    work->exec = NULL;
}

static void launch(FgProbeRig *rig, const FgProbeWork *work, cudaEvent_t after)
{
    FgRtCx *cx = rig->cx;
    fg_cuda_check(cx, cudaGraphLaunch(work->exec, cx->streams[work->stream]), "cudaGraphLaunch");
    fg_cuda_check(cx, cudaEventRecord(after, cx->streams[work->stream]), "cudaEventRecord");
}

static bool want_events(FgProbeRig *rig, uint32_t n)
{
    FgRtCx *cx = rig->cx;
    cudaEvent_t *grown = n > rig->n_events ? realloc(rig->events, n * sizeof *grown) : rig->events;
    if (!grown) {
        fg_cuda_raise(cx, "out of memory for events");
        return false;
    }
    rig->events = grown;
    while (rig->n_events < n && !fg_cuda_failed(cx)) {
        fg_cuda_check(cx, cudaEventCreate(&rig->events[rig->n_events]), "cudaEventCreate");
        rig->n_events += !fg_cuda_failed(cx);
    }
    return !fg_cuda_failed(cx);
}

static double seconds_between(FgRtCx *cx, cudaEvent_t start, cudaEvent_t stop)
{
    float ms = 0;
    if (!fg_cuda_failed(cx))
        fg_cuda_check(cx, cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
    return (double)ms * 1e-3;
}

/* Time of a launch over `n` of them, behind one another. */
static bool time_launches(FgProbeRig *rig, FgProbeWork *work, uint32_t n)
{
    FgRtCx *cx = rig->cx;
    if (!share_counts(rig, &n, 1) || !want_events(rig, 2))
        return false;
    fg_cuda_check(cx, cudaEventRecord(rig->events[0], cx->streams[work->stream]),
                  "cudaEventRecord");
    for (uint32_t i = 0; i < n; i++)
        launch(rig, work, rig->events[1]);
    if (!fg_cuda_wait_for(cx, rig->events[1]))
        return false;
    work->seconds = seconds_between(cx, rig->events[0], rig->events[1]) / n;
    return fg_probe_mean(rig, &work->seconds, 1);
}

bool fg_probe_time(FgProbeRig *rig, FgProbeWork *work, double goal)
{
    return time_launches(rig, work, 1) && time_launches(rig, work, 1) &&
           (work->seconds >= goal || time_launches(rig, work, launches_for(goal, work->seconds)));
}

/* All launches, in turns; events[first[i] + k]: the end of launch k of works[i]. */
static bool launch_all(FgProbeRig *rig, FgProbeWork *const *works, uint32_t n,
                       const uint32_t *counts, const uint32_t *first)
{
    FgRtCx *cx = rig->cx;
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    for (uint32_t k = 0; k < most; k++)
        for (uint32_t i = 0; i < n; i++)
            if (k < counts[i] && !fg_cuda_failed(cx))
                launch(rig, works[i], rig->events[first[i] + k]);
    for (uint32_t i = 0; i < n; i++)
        if (fg_cuda_failed(cx) || !fg_cuda_wait_for(cx, rig->events[first[i] + counts[i] - 1]))
            return false;
    return true;
}

/* Seconds of a launch of each in the time that they share, from the events of their ends. */
static bool read_tracks(FgProbeRig *rig, uint32_t n, const uint32_t *counts, const uint32_t *first,
                        double *ends, double *out_seconds)
{
    FgProbeTrack tracks[FG_PROBE_MOST_WORKS];
    double from, to;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < counts[i]; k++)
            ends[first[i] + k] =
                seconds_between(rig->cx, rig->events[0], rig->events[first[i] + k]);
        tracks[i] = (FgProbeTrack){ends + first[i], counts[i]};
    }
    bool shared = fg_probe_shared(tracks, n, &from, &to);
    for (uint32_t i = 0; i < n; i++) {
        double done = shared ? fg_probe_progress(&tracks[i], from, to) : 0;
        if (done <= 0 && !fg_cuda_failed(rig->cx))
            fg_cuda_raise(rig->cx, "works that were to run together did not");
        out_seconds[i] = done > 0 ? (to - from) / done : 0;
    }
    return !fg_cuda_failed(rig->cx);
}

bool fg_probe_together(FgProbeRig *rig, FgProbeWork *const *works, uint32_t n, double goal,
                       double *out_seconds)
{
    uint32_t counts[FG_PROBE_MOST_WORKS], first[FG_PROBE_MOST_WORKS], all = 1;
    for (uint32_t i = 0; i < n; i++)
        counts[i] = 2 + launches_for(goal, works[i]->seconds);
    if (!share_counts(rig, counts, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        first[i] = all;
        all += counts[i];
    }
    double *ends = calloc(all, sizeof *ends);
    if (!ends)
        fg_cuda_raise(rig->cx, "out of memory for times");
    bool ok = ends && want_events(rig, all);
    if (ok)
        fg_cuda_check(rig->cx, cudaEventRecord(rig->events[0], rig->cx->streams[works[0]->stream]),
                      "cudaEventRecord");
    ok = ok && launch_all(rig, works, n, counts, first) &&
         read_tracks(rig, n, counts, first, ends, out_seconds) &&
         fg_probe_mean(rig, out_seconds, n);
    free(ends);
    return ok;
}
