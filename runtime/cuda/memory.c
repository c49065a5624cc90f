/* What the process takes of its device, as the driver counts it: used now less used before the
 * process touched it. That holds everything: the plan's allocation, context, communicators,
 * libraries, graphs.
 *
 * Asking the runtime creates the context that is to be counted, so the driver's management library
 * is asked, which needs none. It comes with the driver and is opened by name. */
#define _DEFAULT_SOURCE 1

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/cuda/core.h"

typedef struct Memory { /* as the library lays it out */
    unsigned long long total, free, used;
} Memory;

/* A function of the library; functions and data pointers do not convert. */
static bool find(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);
    memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool nvml_open(FgRtGroup *group)
{
    int (*init)(void), (*by_bus)(const char *, void **);
    char bus[32];
    group->nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return group->nvml && find(group->nvml, "nvmlInit_v2", &init) &&
           find(group->nvml, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus) && init() == 0 &&
           cudaDeviceGetPCIBusId(bus, sizeof bus, group->device) == cudaSuccess &&
           by_bus(bus, &group->nvml_device) == 0;
}

static bool nvml_used(const FgRtGroup *group, uint64_t *out)
{
    int (*memory_info)(void *, Memory *);
    Memory memory = {0};
    if (!group->nvml_device || !find(group->nvml, "nvmlDeviceGetMemoryInfo", &memory_info) ||
        memory_info(group->nvml_device, &memory) != 0)
        return false;
    *out = memory.used;
    return true;
}

static uint64_t driver_used(void)
{
    size_t left = 0, all = 0;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? all - left : 0;
}

void fg_cuda_memory_before(FgRtGroup *group)
{
    if (nvml_open(group) && nvml_used(group, &group->used_before))
        return;
    group->nvml_device = NULL;
    group->context_unknown = true;
    (void)cudaSetDevice(group->device);
    group->used_before = driver_used();
}

uint64_t fg_cuda_memory_used(const FgRtGroup *group)
{
    uint64_t used = 0;
    if (!group->nvml_device || !nvml_used(group, &used))
        used = driver_used();
    return used > group->used_before ? used - group->used_before : 0;
}

/* Whole MiB, so that the figure can be given back to the compiler. */
static uint64_t mib_up(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

bool fg_cuda_memory_check(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    const FgRtProgram *program = cx->program;
    uint64_t plan = program->state_bytes + program->arena_bytes,
             planned = plan + program->reserved_bytes;
    uint64_t used = fg_cuda_memory_used(group), beside = used > plan ? used - plan : 0;
    if (used > program->memory_bytes) {
        fg_cuda_raise(cx,
                      "this process takes %" PRIu64
                      " MiB of the device before the first step, more than the %" PRIu64
                      " MiB offered: the plan %" PRIu64 ", beside it %" PRIu64 " where %" PRIu64
                      " were reserved; compile again with \"reserved\": \"%" PRIu64
                      " MiB\" in the machine file",
                      mib_up(used), program->memory_bytes >> 20, mib_up(plan), mib_up(beside),
                      mib_up(program->reserved_bytes), mib_up(beside));
        return false;
    }
    if (used > planned + planned / 100)
        fg_cuda_warn(group,
                     "memory   this process takes %" PRIu64 " MiB, %" PRIu64
                     " were planned: beside the plan %" PRIu64 " MiB, where %" PRIu64
                     " were reserved; \"reserved\": \"%" PRIu64 " MiB\" in the machine file fits",
                     mib_up(used), mib_up(planned), mib_up(beside), mib_up(program->reserved_bytes),
                     mib_up(beside));
    else if (group->context_unknown)
        fg_cuda_warn(
            group,
            "memory   the driver's management library is not there: what the context takes is "
            "not counted");
    return true;
}

void fg_cuda_memory_close(FgRtGroup *group)
{
    int (*shut_down)(void);
    if (group->nvml && find(group->nvml, "nvmlShutdown", &shut_down))
        shut_down();
    if (group->nvml)
        dlclose(group->nvml);
    group->nvml = NULL;
}
