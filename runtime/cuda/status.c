/* What went wrong: the first failure of a rank is kept, and stops it and its group. */
#include "runtime/cuda/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void note(FgRtCx *cx, uint32_t node, const char *call, const char *text)
{
    cx->fail.failed = 1;
    cx->fail.node = node;
    snprintf(cx->fail.call, sizeof cx->fail.call, "%s", call);
    snprintf(cx->fail.text, sizeof cx->fail.text, "%.255s", text);
}

void fg_cuda_fail_at(FgRtCx *cx, uint32_t node, const char *call, const char *text)
{
    FgRtGroup *group = cx->group;
    if (!group) { /* a context on its own, as tests of kernels have it */
        note(cx, node, call, text);
        return;
    }
    pthread_mutex_lock(&group->lock);
    if (!atomic_load(&group->failed)) {
        group->status = (FgRtStatus){.rank = cx->rank, .node = node};
        snprintf(group->status.call, sizeof group->status.call, "%s", call);
        snprintf(group->status.text, sizeof group->status.text, "%s", text);
        note(cx, node, call, text);
        atomic_store(&group->failed, 1);
    }
    pthread_mutex_unlock(&group->lock);
}

void fg_cuda_raise(FgRtCx *cx, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fg_cuda_fail_at(cx, cx->call ? cx->node : UINT32_MAX, cx->call ? cx->call : "the runtime",
                    text);
}

void fg_cuda_check(FgRtCx *cx, cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fg_cuda_raise(cx, "%s: %s", what, cudaGetErrorString(error));
}

void fg_rt_fail(FgRtCx *cx, const char *call, const char *text)
{
    fg_cuda_fail_at(cx, UINT32_MAX, call, text);
}

bool fg_cuda_fault(FgRtCx *cx, FgFaultKind kind, const char *call)
{
    if (!cx->group || !fg_fault_hits(cx->group->options.fault, kind, cx->rank))
        return false;
    fg_cuda_fail_at(cx, cx->call ? cx->node : UINT32_MAX, call, "a fault was asked for here");
    return true;
}

bool fg_cuda_failed(const FgRtCx *cx)
{
    const FgRtGroup *group = cx->group;
    return atomic_load(&group->failed) || (group->world && fg_world_failed(group->world));
}

FgRtStatus fg_rt_status(const FgRtCx *cx)
{
    FgRtGroup *group = cx->group;
    FgRtStatus status = {.ok = 1, .node = UINT32_MAX};
    pthread_mutex_lock(&group->lock);
    if (atomic_load(&group->failed))
        status = group->status;
    pthread_mutex_unlock(&group->lock);
    if (status.ok && group->world && fg_world_failed(group->world)) {
        status.ok = 0;
        status.rank = cx->rank;
        snprintf(status.text, sizeof status.text, "%s", fg_world_failure(group->world));
    }
    return status;
}

void fg_cuda_warn(FgRtGroup *group, const char *format, ...)
{
    size_t at = strlen(group->warning);
    va_list args;
    if (at && at + 1 < sizeof group->warning)
        group->warning[at++] = '\n';
    va_start(args, format);
    vsnprintf(group->warning + at, sizeof group->warning - at, format, args);
    va_end(args);
}
