/* Time of every call: between two events on its stream, and counted from where its body begins.
 *
 * Within a captured body the events are nodes of the graph, recorded anew at each launch: what is
 * measured runs side by side as it does without a profile. Those of bodies that are made call by
 * call are used again by the next body. */
#include <stdlib.h>

#include "runtime/cuda/core.h"
#include "runtime/launch/listed.h"

static void mark(FgRtCx *cx, cudaEvent_t event, cudaStream_t stream)
{
    unsigned flags =
        cx->group->profile.capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    fg_cuda_check(cx, cudaEventRecordWithFlags(event, stream, flags), "cudaEventRecordWithFlags");
}

static bool grow(FgRtCx *cx, FgCudaProfile *profile)
{
    size_t room = profile->room ? 2 * profile->room : 1024;
    FgCudaTimed *grown = realloc(profile->timed, room * sizeof *grown);
    if (!grown) {
        fg_cuda_raise(cx, "out of memory for the profile");
        return false;
    }
    profile->timed = grown;
    for (size_t i = profile->room; i < room; i++) {
        fg_cuda_check(cx, cudaEventCreate(&grown[i].start), "cudaEventCreate");
        fg_cuda_check(cx, cudaEventCreate(&grown[i].stop), "cudaEventCreate");
        profile->room = i + 1;
    }
    return true;
}

/* Where a body begins is timed whatever the ops are. */
static bool is_timed(const FgRtCx *cx, uint32_t node)
{
    const char *ops = cx->group->options.profile_ops;
    return cx->group->profile.us &&
           (!ops || node >= cx->program->n_nodes || fg_listed(ops, cx->program->nodes[node].op));
}

bool fg_cuda_time_start(FgRtCx *cx, uint32_t node, cudaStream_t stream)
{
    FgCudaProfile *profile = &cx->group->profile;
    if (!is_timed(cx, node) || (profile->n_timed == profile->room && !grow(cx, profile)))
        return false;
    FgCudaTimed *timed = &profile->timed[profile->n_timed++];
    timed->node = node;
    mark(cx, timed->start, stream);
    return true;
}

void fg_cuda_time_stop(FgRtCx *cx, cudaStream_t stream)
{
    FgCudaProfile *profile = &cx->group->profile;
    mark(cx, profile->timed[profile->n_timed - 1].stop, stream);
}

static double between(FgRtCx *cx, cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0;
    fg_cuda_check(cx, cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
    return (double)ms * 1e3;
}

void fg_cuda_profile_add(FgRtCx *cx, size_t first, size_t n)
{
    FgCudaProfile *profile = &cx->group->profile;
    for (size_t i = first; i < first + n && !fg_cuda_failed(cx); i++) {
        const FgCudaTimed *timed = &profile->timed[i];
        if (timed->node >= cx->program->n_nodes) /* the body's begin */
            continue;
        profile->us[timed->node] += between(cx, timed->start, timed->stop);
        profile->start_us[timed->node] += between(cx, profile->timed[first].start, timed->start);
        profile->calls[timed->node]++;
    }
}

bool fg_cuda_profile_open(FgCudaProfile *profile, uint32_t n_nodes)
{
    profile->us = calloc((size_t)n_nodes + 1, sizeof *profile->us);
    profile->start_us = calloc((size_t)n_nodes + 1, sizeof *profile->start_us);
    profile->calls = calloc((size_t)n_nodes + 1, sizeof *profile->calls);
    return profile->us && profile->start_us && profile->calls;
}

void fg_cuda_profile_close(FgCudaProfile *profile)
{
    for (size_t i = 0; i < profile->room; i++) {
        cudaEventDestroy(profile->timed[i].start);
        cudaEventDestroy(profile->timed[i].stop);
    }
    free(profile->timed);
    free(profile->us);
    free(profile->start_us);
    free(profile->calls);
    *profile = (FgCudaProfile){0};
}

double fg_rt_node_us(const FgRtCx *cx, uint32_t node, uint64_t *calls, double *start_us)
{
    const FgCudaProfile *profile = &cx->group->profile;
    bool known = profile->us && node < cx->program->n_nodes;
    *calls = known ? profile->calls[node] : 0;
    *start_us = known ? profile->start_us[node] : 0;
    return known ? profile->us[node] : 0;
}
