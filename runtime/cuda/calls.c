/* Every call of the ABI, by one wrapper: sticky status, fault injection, timing, then the launch.
 *
 * In a rehearsal only calls that make plans of their own are let through: products, attention,
 * functions of the user, who may, and the program's own kernels, which load when first launched. */
#include <string.h>

#include "runtime/cuda/core.h"

typedef struct Call {
    const char *name, *effects;
    cudaStream_t stream;
    bool timed;
} Call;

static bool plans(const char *name)
{
    return strncmp(name, "linear", 6) == 0 || strncmp(name, "attention", 9) == 0 ||
           strcmp(name, "matmul") == 0 || strcmp(name, "vocab_dx") == 0 ||
           strcmp(name, "vocab_dw") == 0 || strcmp(name, "custom") == 0 ||
           strcmp(name, "fused") == 0;
}

static FgFaultKind fault_kind(const Call *call)
{
    return strstr(call->effects, "comm(") ? FG_FAULT_COLLECTIVE : FG_FAULT_LAUNCH;
}

static bool call_enter(FgRtCx *cx, Call *call, uint32_t node, FgRtStream stream)
{
    if (fg_cuda_failed(cx) || (cx->rehearsing && !plans(call->name)))
        return false;
    cx->node = node;
    cx->call = call->name;
    if (cx->group->options.fault && fg_cuda_fault(cx, fault_kind(call), call->name))
        return false;
    call->stream = cx->streams[stream];
    call->timed = !cx->rehearsing && fg_cuda_time_start(cx, node, call->stream);
    return true;
}

static void call_leave(FgRtCx *cx, const Call *call)
{
    if (call->timed)
        fg_cuda_time_stop(cx, call->stream);
    cx->call = NULL;
}

#define FG_RT_CALL(name, effects, params, names)                                                   \
    void fg_rt_##name(FgRtCx *cx, uint32_t node, FgRtStream stream, FG_RT_UNPAREN params)          \
    {                                                                                              \
        Call call = {#name, effects, NULL, false};                                                 \
        if (!call_enter(cx, &call, node, stream))                                                  \
            return;                                                                                \
        fg_cuda_##name(cx, call.stream, node, FG_RT_UNPAREN names);                                \
        call_leave(cx, &call);                                                                     \
    }
#define FG_RT_CALL_F(name, effects, params, names, fparams, fnames)                                \
    void fg_rt_##name(FgRtCx *cx, uint32_t node, FgRtStream stream, FG_RT_UNPAREN params,          \
                      FG_RT_UNPAREN fparams)                                                       \
    {                                                                                              \
        Call call = {#name, effects, NULL, false};                                                 \
        if (!call_enter(cx, &call, node, stream))                                                  \
            return;                                                                                \
        fg_cuda_##name(cx, call.stream, node, FG_RT_UNPAREN names, FG_RT_UNPAREN fnames);          \
        call_leave(cx, &call);                                                                     \
    }
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F

/* ---- streams ---- */

void fg_rt_release(FgRtCx *cx, uint32_t node, FgRtStream stream, uint64_t buffer, uint64_t bytes)
{
    (void)node; /* a statement for checkers, */
    if (!cx->group->options.poison || cx->rehearsing || fg_cuda_failed(cx))
        return;
    /* to whom it is a write, ordered as one: here it is one. A NaN of every type. */
    fg_cuda_check(cx, cudaMemsetAsync(fg_cuda_at(cx, buffer), 0xff, bytes, cx->streams[stream]),
                  "cudaMemsetAsync");
}

void fg_rt_record(FgRtCx *cx, FgRtStream stream, uint32_t event)
{
    if (!fg_cuda_failed(cx))
        fg_cuda_check(cx, cudaEventRecord(cx->events[event], cx->streams[stream]),
                      "cudaEventRecord");
}

void fg_rt_wait(FgRtCx *cx, FgRtStream stream, uint32_t event)
{
    if (!fg_cuda_failed(cx))
        fg_cuda_check(cx, cudaStreamWaitEvent(cx->streams[stream], cx->events[event], 0),
                      "cudaStreamWaitEvent");
}

void fg_rt_join(FgRtCx *cx)
{
    if (fg_cuda_failed(cx))
        return;
    for (int s = 0; s < FG_RT_N_STREAMS; s++)
        fg_cuda_check(cx, cudaEventRecord(cx->join[s], cx->streams[s]), "cudaEventRecord");
    for (int s = 0; s < FG_RT_N_STREAMS; s++)
        for (int other = 0; other < FG_RT_N_STREAMS; other++)
            if (other != s)
                fg_cuda_check(cx, cudaStreamWaitEvent(cx->streams[s], cx->join[other], 0),
                              "cudaStreamWaitEvent");
}
