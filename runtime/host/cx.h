/* The inside of the host runtime: a rank's context, its group, and the call that is being made.
 *
 * Every call of runtime/fg_rt_calls.def passes through calls.c, which fills in an FgCall, asks
 * fg_call_enter whether to go on, runs the kernel, and closes with fg_call_leave. Kernels see
 * memory only through fg_at and report errors through fg_rt_raise; they know nothing of checking,
 * profiling or faults. */
#ifndef FG_RUNTIME_HOST_CX_H
#define FG_RUNTIME_HOST_CX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/host/host.h"

typedef struct FgChecked FgChecked;

/* What is known of a call before it is made. */
typedef struct FgCallInfo {
    const char *name, *effects, *args; /* args: "(x, w, ...)", the integer arguments in order */
} FgCallInfo;

typedef struct FgCall {
    const FgCallInfo *info;
    uint32_t node;
    FgRtStream stream;
    const uint64_t *args;
    uint32_t n_args;
} FgCall;

typedef struct FgProfile {
    double us, start_us; /* sums: of its calls, and from the begin of their bodies to theirs */
    uint64_t calls;
} FgProfile;

struct FgRtCx {
    FgRtGroup *group;
    const FgRtProgram *program;
    uint8_t *memory;
    uint64_t bytes;      /* of the plan: states and arena */
    uint64_t host_at;    /* where host memory begins in the mapping: a whole number of pages */
    uint64_t host_bytes; /* of the plan in host memory */
    uint64_t mapped;     /* of the mapping: whole pages */
    uint32_t rank;
    const FgCall *call;          /* the one being made; NULL between calls */
    double begun_us, started_us; /* the body, the call */
    FgProfile *profile;          /* by node; NULL without profiling */
    FgChecked *checked;          /* NULL without checking */
    FgRtResult results[FG_RT_MOST_RESULTS];
    uint64_t asked, taken; /* results */
};

struct FgRtGroup {
    const FgRtProgram *program;
    FgRtOptions options;
    uint32_t n_ranks;
    FgRtCx *ranks;
    /* The rendezvous and the status, all under one lock. `failed` alone is also read without it. */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t arrived;
    uint64_t generation;
    const FgCall **posted; /* by rank: the collective that it is in; NULL at a barrier */
    atomic_int failed;
    FgRtStatus status;
};

/* Where an offset lies in the mapping: the two memories stand apart in it. */
static inline uint64_t fg_place(const FgRtCx *cx, uint64_t offset)
{
    return offset >= FG_RT_HOST ? cx->host_at + (offset - FG_RT_HOST) : offset;
}

static inline void *fg_at(const FgRtCx *cx, uint64_t offset)
{
    return offset == FG_RT_NONE ? NULL : cx->memory + fg_place(cx, offset);
}

/* Ends the group: the current call of this rank failed. The first failure is the one that is kept.
 */
void fg_rt_raise(FgRtCx *cx, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool fg_rt_failed(const FgRtCx *cx)
{
    return atomic_load_explicit(&cx->group->failed, memory_order_acquire) != 0;
}

/* Sleeps until every rank of the group has come here with the same call (NULL: a barrier). false:
 * the group failed, or the ranks came with different calls, which fails it. */
bool fg_rt_meet(FgRtCx *cx, const FgCall *call);

#endif
