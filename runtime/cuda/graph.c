/* Bodies. Those of a step are captured once, before the first step, and then launched whole; init,
 * prologue and flush run rarely and are made call by call.
 *
 * Before anything is captured, a rehearsal makes every call that plans something of its own
 * (products, attention, functions of the user) once, on an arena of zeros: what libraries load and
 * choose, they do then. No update runs and no state is touched. Capturing itself executes nothing.
 */
#include "runtime/cuda/core.h"

/* The other streams start where the compute stream is. */
static void fork_streams(FgRtCx *cx)
{
    fg_cuda_check(cx, cudaEventRecord(cx->join[FG_COMPUTE], cx->streams[FG_COMPUTE]),
                  "cudaEventRecord");
    for (int s = 0; s < FG_RT_N_STREAMS; s++)
        if (s != FG_COMPUTE)
            fg_cuda_check(cx, cudaStreamWaitEvent(cx->streams[s], cx->join[FG_COMPUTE], 0),
                          "cudaStreamWaitEvent");
}

/* The compute stream goes on when all others are done. */
static void join_streams(FgRtCx *cx)
{
    for (int s = 0; s < FG_RT_N_STREAMS; s++) {
        if (s == FG_COMPUTE)
            continue;
        fg_cuda_check(cx, cudaEventRecord(cx->join[s], cx->streams[s]), "cudaEventRecord");
        fg_cuda_check(cx, cudaStreamWaitEvent(cx->streams[FG_COMPUTE], cx->join[s], 0),
                      "cudaStreamWaitEvent");
    }
}

static void make_calls(FgRtCx *cx, FgRtBody *body)
{
    if (!cx->rehearsing)
        (void)fg_cuda_time_start(cx, UINT32_MAX, cx->streams[FG_COMPUTE]);
    fork_streams(cx);
    body(cx);
    join_streams(cx);
}

static bool capture(FgRtGroup *group, FgRtBody *body)
{
    FgRtCx *cx = &group->cx;
    cudaStream_t origin = cx->streams[FG_COMPUTE];
    cudaGraph_t graph = NULL;
    FgCudaGraph *to = &group->graphs[group->n_graphs];
    fg_cuda_check(cx, cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed),
                  "cudaStreamBeginCapture");
    if (fg_cuda_failed(cx))
        return false;
    FgCudaProfile *profile = &group->profile;
    to->first_timed = profile->n_timed;
    profile->capturing = true;
    make_calls(cx, body);
    profile->capturing = false;
    to->n_timed = profile->n_timed - to->first_timed;
    profile->n_captured = profile->n_timed;
    cudaError_t ended =
        cudaStreamEndCapture(origin, &graph); /* also after a failure: leaves capture mode */
    fg_cuda_check(cx, ended, "cudaStreamEndCapture");
    if (!fg_cuda_failed(cx)) {
        fg_cuda_check(
            cx, cudaGraphInstantiate(&to->exec, graph, cudaGraphInstantiateFlagUseNodePriority),
            "cudaGraphInstantiate");
        to->body = body;
    }
    if (!fg_cuda_failed(cx)) {
        group->n_graphs++;
        fg_cuda_check(cx, cudaGraphUpload(to->exec, origin), "cudaGraphUpload");
        fg_cuda_check(cx, cudaStreamSynchronize(origin), "cudaGraphUpload");
    }
    if (graph)
        cudaGraphDestroy(graph);
    return !fg_cuda_failed(cx);
}

bool fg_cuda_bodies_rehearse(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    const FgRtProgram *program = cx->program;
    FgRtBody *bodies[] = {program->first, program->middle, program->last};
    cx->rehearsing = 1;
    for (int i = 0; i < 3; i++)
        if (bodies[i] && !fg_cuda_failed(cx))
            make_calls(cx, bodies[i]);
    cx->rehearsing = 0;
    fg_cuda_check(cx, cudaDeviceSynchronize(), "the rehearsal");
    return !fg_cuda_failed(cx);
}

bool fg_cuda_bodies_open(FgRtGroup *group)
{
    const FgRtProgram *program = group->cx.program;
    FgRtBody *bodies[] = {program->first, program->middle, program->last};
    if (group->options.no_graph)
        return true;
    for (int i = 0; i < 3; i++)
        if (bodies[i] && !capture(group, bodies[i]))
            return false;
    return true;
}

void fg_cuda_bodies_close(FgRtGroup *group)
{
    for (uint32_t i = 0; i < group->n_graphs; i++)
        cudaGraphExecDestroy(group->graphs[i].exec);
    group->n_graphs = 0;
}

static void end_profile(FgRtGroup *group, size_t first, size_t n)
{
    if (group->profile.us && fg_cuda_wait_idle(&group->cx))
        fg_cuda_profile_add(&group->cx, first, n);
}

void fg_rt_run_body(FgRtCx *cx, FgRtBody *body)
{
    FgRtGroup *group = cx->group;
    if (!body || fg_cuda_failed(cx))
        return;
    fg_cuda_use_device(cx);
    for (uint32_t i = 0; i < group->n_graphs; i++)
        if (group->graphs[i].body == body) {
            if (fg_cuda_fault(cx, FG_FAULT_LAUNCH, "a step's launch"))
                return;
            fg_cuda_check(cx, cudaGraphLaunch(group->graphs[i].exec, cx->streams[FG_COMPUTE]),
                          "cudaGraphLaunch");
            end_profile(group, group->graphs[i].first_timed, group->graphs[i].n_timed);
            return;
        }
    group->profile.n_timed = group->profile.n_captured;
    make_calls(cx, body);
    end_profile(group, group->profile.n_captured,
                group->profile.n_timed - group->profile.n_captured);
}
