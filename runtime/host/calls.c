/* Every call of the ABI, by one wrapper: sticky status, fault injection, checking, timing, then the
 * kernel.
 *
 * The host runs calls at once and in issue order, so streams and events have no work of their own
 * here; they only matter to checked mode, which verifies that the order that was asked for is
 * enough. */
#include <string.h>
#include <time.h>

#include "runtime/host/checked.h"
#include "runtime/host/kernels.h"
#include "runtime/launch/listed.h"

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static FgFaultKind fault_kind(const FgCallInfo *info)
{
    return strstr(info->effects, "comm(") ? FG_FAULT_COLLECTIVE : FG_FAULT_LAUNCH;
}

/* Whether the call is to be made. */
static bool call_enter(FgRtCx *cx, const FgCall *call)
{
    if (fg_rt_failed(cx))
        return false;
    FgFault *fault = cx->group->options.fault;
    cx->call = call;
    if (fault && fg_fault_hits(fault, fault_kind(call->info), cx->rank))
        fg_rt_raise(cx, "a fault was asked for here");
    else if (!cx->checked || fg_checked_enter(cx->checked, call)) {
        if (cx->profile)
            cx->started_us = now_us();
        return true;
    }
    cx->call = NULL;
    return false;
}

static bool is_timed(const FgRtCx *cx, const FgCall *call)
{
    const char *ops = cx->group->options.profile_ops;
    return cx->profile && call->node < cx->program->n_nodes &&
           (!ops || fg_listed(ops, cx->program->nodes[call->node].op));
}

static void call_leave(FgRtCx *cx, const FgCall *call)
{
    if (is_timed(cx, call)) {
        cx->profile[call->node].us += now_us() - cx->started_us;
        cx->profile[call->node].start_us += cx->started_us - cx->begun_us;
        cx->profile[call->node].calls++;
    }
    if (cx->checked && !fg_rt_failed(cx))
        fg_checked_leave(cx->checked, call);
    cx->call = NULL;
}

#define FG_RT_CALL(name, effects, params, names)                                                   \
    void fg_rt_##name(FgRtCx *cx, uint32_t node, FgRtStream stream, FG_RT_UNPAREN params)          \
    {                                                                                              \
        static const FgCallInfo info = {#name, effects, #names};                                   \
        const uint64_t values[] = {FG_RT_UNPAREN names};                                           \
        const FgCall call = {&info, node, stream, values, sizeof values / sizeof *values};         \
        if (!call_enter(cx, &call))                                                                \
            return;                                                                                \
        fg_host_##name(cx, FG_RT_UNPAREN names);                                                   \
        call_leave(cx, &call);                                                                     \
    }
#define FG_RT_CALL_F(name, effects, params, names, fparams, fnames)                                \
    void fg_rt_##name(FgRtCx *cx, uint32_t node, FgRtStream stream, FG_RT_UNPAREN params,          \
                      FG_RT_UNPAREN fparams)                                                       \
    {                                                                                              \
        static const FgCallInfo info = {#name, effects, #names};                                   \
        const uint64_t values[] = {FG_RT_UNPAREN names};                                           \
        const FgCall call = {&info, node, stream, values, sizeof values / sizeof *values};         \
        if (!call_enter(cx, &call))                                                                \
            return;                                                                                \
        fg_host_##name(cx, FG_RT_UNPAREN names, FG_RT_UNPAREN fnames);                             \
        call_leave(cx, &call);                                                                     \
    }
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F

void fg_rt_release(FgRtCx *cx, uint32_t node, FgRtStream stream, uint64_t buffer, uint64_t bytes)
{
    static const FgCallInfo info = {"release", "release(buffer, bytes)", "(buffer, bytes)"};
    const uint64_t values[] = {buffer, bytes};
    const FgCall call = {&info, node, stream, values, 2};
    if (!call_enter(cx, &call))
        return;
    if (cx->group->options.poison && bytes)
        memset(fg_at(cx, buffer), 0xff, (size_t)bytes); /* a NaN of every type */
    call_leave(cx, &call);
}

void fg_rt_record(FgRtCx *cx, FgRtStream stream, uint32_t event)
{
    if (cx->checked && !fg_rt_failed(cx))
        fg_checked_record(cx->checked, stream, event);
}

void fg_rt_wait(FgRtCx *cx, FgRtStream stream, uint32_t event)
{
    if (cx->checked && !fg_rt_failed(cx))
        fg_checked_wait(cx->checked, stream, event);
}

void fg_rt_join(FgRtCx *cx)
{
    if (cx->checked && !fg_rt_failed(cx))
        fg_checked_join(cx->checked);
}

void fg_rt_run_body(FgRtCx *cx, FgRtBody *body)
{
    if (!body || fg_rt_failed(cx))
        return;
    if (cx->checked)
        fg_checked_begin(cx->checked);
    if (cx->profile)
        cx->begun_us = now_us();
    body(cx);
    fg_rt_join(cx);
}
