/* The device of this rank: chosen by the local rank, with streams, events and one allocation that
 * holds the plan's states and arena and a page of the runtime's own words behind them.
 *
 * The host waits by asking: an event that never comes, because a peer is gone, ends the wait when
 * the run is known to have failed. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/cuda/core.h"

enum { PAGE = 4096, SPINS = 2000, LOOK_EVERY = 512, NAP_NS = 20000 };

void fg_cuda_use_device(const FgRtCx *cx)
{
    (void)cudaSetDevice(cx->group->device); /* it was set once without an error */
}

/* ---- waiting ---- */

bool fg_cuda_wait_for(FgRtCx *cx, cudaEvent_t event)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (uint64_t i = 0;; i++) {
        cudaError_t is = cudaEventQuery(event);
        if (is == cudaSuccess)
            return !fg_cuda_failed(cx);
        if (is != cudaErrorNotReady) {
            fg_cuda_check(cx, is, "the device");
            return false;
        }
        if (fg_cuda_failed(cx))
            return false;
        if (i % LOOK_EVERY == LOOK_EVERY - 1)
            fg_cuda_comm_look(cx);
        if (i < SPINS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

bool fg_cuda_wait_idle(FgRtCx *cx)
{
    if (fg_cuda_failed(cx))
        return false;
    fg_cuda_check(cx, cudaEventRecord(cx->group->idle, cx->streams[FG_COMPUTE]), "cudaEventRecord");
    return fg_cuda_wait_for(cx, cx->group->idle);
}

/* ---- opening ---- */

static bool choose_device(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    const FgPlace *place = group->world ? fg_world_place(group->world) : NULL;
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        fg_cuda_raise(cx, "no GPU can be used: %s",
                      error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
        return false;
    }
    uint32_t local = place && place->local_rank != UINT32_MAX ? place->local_rank : cx->rank;
    bool chosen_for_us =
        n == 1 && place && place->launcher; /* each task sees a device of its own */
    if (local >= (uint32_t)n && !chosen_for_us) {
        fg_cuda_raise(cx, "local rank %" PRIu32 " has no GPU of its own: %d can be seen", local, n);
        return false;
    }
    group->device = chosen_for_us ? 0 : (int)local;
    fg_cuda_memory_before(group);
    fg_cuda_check(cx, cudaSetDevice(group->device), "cudaSetDevice");
    fg_cuda_check(cx, cudaFree(NULL), "the device");
    int major = 0, minor = 0;
    fg_cuda_check(cx,
                  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, group->device),
                  "cudaDeviceGetAttribute");
    fg_cuda_check(cx,
                  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, group->device),
                  "cudaDeviceGetAttribute");
    fg_cuda_check(cx,
                  cudaDeviceGetAttribute(&cx->n_sm, cudaDevAttrMultiProcessorCount, group->device),
                  "cudaDeviceGetAttribute");
    fg_cuda_check(cx,
                  cudaDeviceGetAttribute(&cx->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                         group->device),
                  "cudaDeviceGetAttribute");
    cx->sm = 10 * major + minor;
    return !fg_cuda_failed(cx);
}

/* Collectives go before products: what they bring is waited for. */
static bool open_streams(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    int least = 0, most = 0;
    fg_cuda_check(cx, cudaDeviceGetStreamPriorityRange(&least, &most),
                  "cudaDeviceGetStreamPriorityRange");
    for (int s = 0; s < FG_RT_N_STREAMS; s++) {
        int priority = s == FG_GATHER || s == FG_REDUCE ? most : least;
        fg_cuda_check(
            cx, cudaStreamCreateWithPriority(&cx->streams[s], cudaStreamNonBlocking, priority),
            "cudaStreamCreateWithPriority");
        fg_cuda_check(cx, cudaEventCreateWithFlags(&cx->join[s], cudaEventDisableTiming),
                      "cudaEventCreate");
    }
    for (uint32_t i = 0; i < cx->program->n_events; i++)
        fg_cuda_check(cx, cudaEventCreateWithFlags(&cx->events[i], cudaEventDisableTiming),
                      "cudaEventCreate");
    for (int i = 0; i < FG_RT_MOST_RESULTS; i++)
        fg_cuda_check(cx, cudaEventCreateWithFlags(&group->answered[i], cudaEventDisableTiming),
                      "cudaEventCreate");
    for (int i = 0; i < 2; i++)
        fg_cuda_check(cx, cudaEventCreateWithFlags(&group->stage.read[i], cudaEventDisableTiming),
                      "cudaEventCreate");
    fg_cuda_check(cx, cudaEventCreateWithFlags(&group->idle, cudaEventDisableTiming),
                  "cudaEventCreate");
    return !fg_cuda_failed(cx);
}

static bool open_memory(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    const FgRtProgram *program = cx->program;
    uint64_t plan = program->state_bytes + program->arena_bytes;
    void *memory = NULL;
    group->bytes = (plan + PAGE - 1) / PAGE * PAGE + PAGE;
    group->nccl_memory = cx->ranks > 1;
    if (fg_cuda_fault(cx, FG_FAULT_ALLOC, "the rank's memory"))
        return false;
    bool ok = group->nccl_memory ? ncclMemAlloc(&memory, group->bytes) == ncclSuccess
                                 : cudaMalloc(&memory, group->bytes) == cudaSuccess;
    if (!ok) {
        size_t left = 0, all = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&left, &all);
        fg_cuda_raise(cx, "the plan takes %" PRIu64 " bytes of the device; %zu of %zu are free",
                      group->bytes, left, all);
        return false;
    }
    cx->memory = memory;
    cx->device_error = (int *)(void *)(cx->memory + group->bytes - PAGE);
    fg_cuda_check(cx, cudaMemset(memory, 0, group->bytes), "cudaMemset");
    return !fg_cuda_failed(cx);
}

/* Bytes that the system could still give this process, or all of them where it does not say. */
static uint64_t system_memory_left(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    if (file)
        fclose(file);
    return found ? (uint64_t)kib << 10 : UINT64_MAX;
}

/* Pinned memory for what the plan offloads. It must be there: pages that are pinned never leave, so
 * that asking for more than there is may end this process or another one. */
static bool open_host(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    uint64_t bytes = cx->program->host_state_bytes + cx->program->host_arena_bytes;
    uint64_t left = bytes ? system_memory_left() : 0;
    void *memory = NULL;
    if (bytes == 0)
        return true;
    if (bytes > left || cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        fg_cuda_raise(cx,
                      "the plan offloads %" PRIu64 " MiB to pinned host memory and cannot have it: "
                      "%" PRIu64 " MiB are left on this machine, and the limit of locked memory "
                      "(ulimit -l) may be less; compile with a smaller \"host_memory\" in the "
                      "machine file, or offload less",
                      (bytes + (1 << 20) - 1) >> 20, left >> 20);
        return false;
    }
    cx->host = memory;
    memset(cx->host, 0, bytes);
    return true;
}

/* Room for all that the driver writes in one step. */
static bool open_stage(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    const FgRtProgram *program = cx->program;
    FgCudaStage *stage = &group->stage;
    void *memory = NULL;
    stage->half_bytes = PAGE;
    for (uint32_t i = 0; i < program->n_inputs; i++)
        stage->half_bytes += (program->inputs[i].elements * 8 + 64) * program->accumulate;
    if (fg_cuda_fault(cx, FG_FAULT_ALLOC, "pinned memory"))
        return false;
    fg_cuda_check(cx, cudaHostAlloc(&memory, 2 * stage->half_bytes, cudaHostAllocDefault),
                  "cudaHostAlloc");
    stage->memory = memory;
    memory = NULL;
    if (fg_cuda_fault(cx, FG_FAULT_ALLOC, "pinned memory for results"))
        return false;
    fg_cuda_check(
        cx,
        cudaHostAlloc(&memory, FG_RT_MOST_RESULTS * sizeof *group->answers, cudaHostAllocDefault),
        "cudaHostAlloc");
    group->answers = memory;
    return !fg_cuda_failed(cx);
}

bool fg_cuda_device_open(FgRtGroup *group)
{
    return choose_device(group) && open_streams(group) && open_memory(group) && open_host(group) &&
           open_stage(group);
}

void fg_cuda_device_close(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    for (int s = 0; s < FG_RT_N_STREAMS; s++) {
        if (cx->streams[s])
            cudaStreamDestroy(cx->streams[s]);
        if (cx->join[s])
            cudaEventDestroy(cx->join[s]);
    }
    for (uint32_t i = 0; i < cx->program->n_events; i++)
        if (cx->events && cx->events[i])
            cudaEventDestroy(cx->events[i]);
    for (int i = 0; i < FG_RT_MOST_RESULTS; i++)
        if (group->answered[i])
            cudaEventDestroy(group->answered[i]);
    for (int i = 0; i < 2; i++)
        if (group->stage.read[i])
            cudaEventDestroy(group->stage.read[i]);
    if (group->idle)
        cudaEventDestroy(group->idle);
    if (group->stage.memory)
        cudaFreeHost(group->stage.memory);
    if (group->answers)
        cudaFreeHost(group->answers);
    if (cx->host)
        cudaFreeHost(cx->host);
    if (cx->memory && group->nccl_memory)
        ncclMemFree(cx->memory);
    else if (cx->memory)
        cudaFree(cx->memory);
}
