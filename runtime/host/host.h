/* The host runtime: all ranks in one process, each driven by a thread of its own.
 *
 * A rank's memory is one allocation of state_bytes + arena_bytes, mapped at once and zeroed. Calls
 * are made at once and in issue order, so the driver's interface (runtime/driver.h) has nothing to
 * wait for. What stands here is for tests. */
#ifndef FG_RUNTIME_HOST_HOST_H
#define FG_RUNTIME_HOST_HOST_H

#include "runtime/driver.h"

/* A pointer into the rank's memory; NULL when the offset lies outside it. Valid as long as the
 * group. */
void *fg_rt_memory(FgRtCx *cx, uint64_t offset);
/* Waits for all ranks; returns at once when the group has failed. Outside bodies, on the ranks'
 * threads. */
void fg_rt_barrier(FgRtCx *cx);

#endif
