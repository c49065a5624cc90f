/* The inside of the cuda runtime beside its kernels: the group of one rank, and what its parts call
 * of each other.
 *
 *   calls.c    every call of the ABI, through one wrapper
 *   group.c    the driver's interface (runtime/driver.h): start and end, status, reads and writes
 *   device.c   device, streams, events, the one allocation; waiting without hanging
 *   comm.c     communicators and the collectives
 *   products.c algorithms of matrix products, from a file or by measurement
 *   copies.c   copies to and from pinned host memory
 *   graph.c    bodies: made call by call, or captured once and launched whole
 *   memory.c   what the process really takes of the device, and the check at start-up */
#ifndef FG_RUNTIME_CUDA_CORE_H
#define FG_RUNTIME_CUDA_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/cuda/cx.h"
#include "runtime/driver.h"

/* A call's time on its stream, between two events. */
typedef struct FgCudaTimed {
    uint32_t node;
    cudaEvent_t start, stop;
} FgCudaTimed;

typedef struct FgCudaProfile {
    double *us, *start_us; /* sums by node: of the calls' times, and from their bodies' begins */
    uint64_t *calls;
    FgCudaTimed *timed; /* those of captured bodies, then of the one made call by call */
    size_t n_timed, n_captured, room;
    bool capturing;
} FgCudaProfile;

typedef struct FgCudaGraph {
    FgRtBody *body;
    cudaGraphExec_t exec;
    size_t first_timed, n_timed; /* its events in the profile */
} FgCudaGraph;

/* Pinned memory that small writes go through: one half fills while the device reads the other. */
typedef struct FgCudaStage {
    unsigned char *memory;
    size_t half_bytes, used;
    uint32_t half; /* 0 or 1 */
    cudaEvent_t read[2];
} FgCudaStage;

/* What the device writes at the end of a step. Pinned. */
typedef struct FgCudaAnswer {
    double loss;
    float norm;
    double scaler[FG_RT_SCALER];
    int error; /* node + 1 of a bad token or label */
} FgCudaAnswer;

struct FgRtGroup {
    FgRtCx cx;
    FgWorld *world; /* NULL: alone */
    FgRtOptions options;
    int device;
    uint64_t bytes;                    /* of the device allocation */
    int nccl_memory;                   /* it is NCCL's */
    ncclWindow_t window, parts_window; /* of the two communicators that go by copy engines */
    pthread_mutex_t lock;              /* of status and stage */
    atomic_int failed;
    FgRtStatus status;
    FgCudaStage stage;
    FgCudaAnswer *answers;
    cudaEvent_t answered[FG_RT_MOST_RESULTS];
    uint64_t asked, taken;
    cudaEvent_t idle; /* for waits */
    FgCudaGraph graphs[3];
    uint32_t n_graphs;
    FgCudaProfile profile;
    void *nvml; /* its library, or NULL */
    void *nvml_device;
    uint64_t used_before; /* of the device, before this process took any */
    bool context_unknown; /* used_before was read with the context in place */
    char warning[1024];
};

/* ---- status (group.c) ---- */
bool fg_cuda_failed(const FgRtCx *cx);
void fg_cuda_nccl(FgRtCx *cx, ncclResult_t result, const char *what);
/* Whether a fault was asked for here; if so it is raised, `call` to blame. */
bool fg_cuda_fault(FgRtCx *cx, FgFaultKind kind, const char *call);

/* Adds a line to what the user should know about how the group came out. */
void fg_cuda_warn(FgRtGroup *group, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- device.c ---- */
bool fg_cuda_device_open(FgRtGroup *group);
void fg_cuda_device_close(FgRtGroup *group);
/* Waits for the event, but not longer than the run lives. */
bool fg_cuda_wait_for(FgRtCx *cx, cudaEvent_t event);
/* Waits for all that the compute stream was given. */
bool fg_cuda_wait_idle(FgRtCx *cx);
void fg_cuda_use_device(const FgRtCx *cx);

/* ---- comm.c ---- */
bool fg_cuda_comm_open(FgRtGroup *group);
/* The communicator of gradients in parts, where more than one rank has such. */
bool fg_cuda_parts_open(FgRtGroup *group);
void fg_cuda_comm_close(FgRtGroup *group);
/* Makes every kind of connection that the bodies will use. */
bool fg_cuda_comm_warm(FgRtGroup *group);
/* Asks the libraries whether a peer is in trouble. */
void fg_cuda_comm_look(FgRtCx *cx);

/* ---- products.c ---- */
/* Rehearses the bodies, with the algorithms that the options ask for. */
bool fg_cuda_products_open(FgRtGroup *group);

/* ---- graph.c ---- */
/* Runs the calls that plan anything once, on an arena of zeros. */
bool fg_cuda_bodies_rehearse(FgRtGroup *group);
/* Captures the steps' bodies. */
bool fg_cuda_bodies_open(FgRtGroup *group);
void fg_cuda_bodies_close(FgRtGroup *group);

/* ---- profile.c ---- */
bool fg_cuda_profile_open(FgCudaProfile *profile, uint32_t n_nodes); /* false: out of memory */
void fg_cuda_profile_close(FgCudaProfile *profile);
/* Around a call; node UINT32_MAX: where a body begins. False: it is not to be timed. */
bool fg_cuda_time_start(FgRtCx *cx, uint32_t node, cudaStream_t stream);
void fg_cuda_time_stop(FgRtCx *cx, cudaStream_t stream);
/* After a body that ran to its end: adds the times of its calls up, `n` from `first` on, the first
 * of which is the body's begin. */
void fg_cuda_profile_add(FgRtCx *cx, size_t first, size_t n);

/* ---- memory.c ---- */
/* Before the process touches the device. */
void fg_cuda_memory_before(FgRtGroup *group);
/* Bytes that this process takes of the device, everything included. */
uint64_t fg_cuda_memory_used(const FgRtGroup *group);
/* Refuses what is more than was offered; warns of what is more than was planned. */
bool fg_cuda_memory_check(FgRtGroup *group);
void fg_cuda_memory_close(FgRtGroup *group);

#endif
