/* CUDA's runtime, as far as runtime/cuda calls it beside kernels. Streams and events are names: a
 * call is over when it returns. */
#include <cuda_runtime_api.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/pretend/pretend.h"

enum { DEVICE_GIB = 16 };

static bool capturing;
static uint64_t taken; /* bytes of the device */

bool pretend_capturing(void)
{
    return capturing;
}

static cudaError_t name_of(void *handle)
{
    void *name = malloc(1);
    memcpy(handle, &name, sizeof name);
    return name ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t good(bool ok)
{
    return ok ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- devices and memory ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 8;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return good(device >= 0 && device < 8);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    (void)device;
    *value = attr == cudaDevAttrComputeCapabilityMinor ? 0 : 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    snprintf(id, (size_t)bytes, "pretend %d", device);
    return cudaSuccess;
}

void pretend_take(uint64_t bytes)
{
    __atomic_fetch_add(&taken, bytes, __ATOMIC_RELAXED);
}

void *pretend_alloc(uint64_t bytes)
{
    void *memory = malloc(bytes);
    pretend_take(malloc_usable_size(memory));
    return memory;
}

void pretend_free(void *memory)
{
    __atomic_fetch_sub(&taken, malloc_usable_size(memory), __ATOMIC_RELAXED);
    free(memory);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = pretend_alloc(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    pretend_free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
    (void)flags;
    *memory = malloc(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *all = (size_t)DEVICE_GIB << 30;
    *left = *all - __atomic_load_n(&taken, __ATOMIC_RELAXED);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    if (!capturing)
        memset(memory, value, bytes);
    return good(stream != NULL);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (!capturing)
        memmove(to, from, bytes);
    return good(stream && (!capturing || kind != cudaMemcpyDefault));
}

/* ---- streams and events ---- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most)
{
    *least = 0;
    *most = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    (void)flags, (void)priority;
    return name_of(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return good(stream && !capturing);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return good(!capturing);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    return good(stream && event);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return name_of(event);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    return name_of(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return good(event && stream);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    return good(event && stream && (flags == cudaEventRecordExternal) == capturing);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return good(event && !capturing);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop)
{
    *ms = 0.001f;
    return good(start && stop);
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the pretended device";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    bool ok = stream && !capturing && mode == cudaStreamCaptureModeRelaxed;
    capturing = true;
    return good(ok);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    bool ok = stream && capturing;
    capturing = false;
    return ok ? name_of(graph) : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    return graph ? name_of(exec) : cudaErrorInvalidValue;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    return good(exec && stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    pretend_launch(exec);
    return good(exec && stream);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    free(exec);
    return cudaSuccess;
}
