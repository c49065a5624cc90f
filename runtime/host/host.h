/* The host runtime as its driver sees it: a group of ranks inside one process.
 *
 * A group holds one context a rank; each rank is driven by a thread of its own, which calls the
 * bodies of the program through fg_rt_run_body. A rank's memory is one allocation of state_bytes +
 * arena_bytes, mapped at once and zeroed; nothing is allocated while a body runs. Between bodies
 * the driver reads and writes it through fg_rt_memory.
 *
 * Errors are sticky and shared: the first failure of any rank ends all of them. Further calls of a
 * failed group do nothing and return at once, so every thread reaches its end. Only the thread of a
 * rank may use its context, except where noted. */
#ifndef FG_RUNTIME_HOST_HOST_H
#define FG_RUNTIME_HOST_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/fg_rt.h"

typedef struct FgRtGroup FgRtGroup;

typedef struct FgRtHostOptions {
    int checked;         /* verify order, effects and initialisation of every access */
    uint64_t fail_after; /* fault injection: the n-th call of rank fail_rank fails; 0: none */
    uint32_t fail_rank;
    int profile; /* add up the time of every node */
} FgRtHostOptions;

typedef struct FgRtStatus {
    int ok;
    uint32_t rank,
        node; /* node: index into FgRtProgram.nodes, UINT32_MAX when no call is to blame */
    char call[64];
    char text[512];
} FgRtStatus;

/* Makes a context and the memory for each of program->ranks ranks. NULL: `error` says why.
 * `program` must outlive the group. */
FgRtGroup *fg_rt_group_new(const FgRtProgram *program, const FgRtHostOptions *options, char *error,
                           size_t error_bytes);
void fg_rt_group_free(FgRtGroup *group);
FgRtCx *fg_rt_group_rank(FgRtGroup *group, uint32_t rank); /* owned by the group */

uint32_t fg_rt_rank(const FgRtCx *cx);
const FgRtProgram *fg_rt_program(const FgRtCx *cx);
/* A pointer into the rank's memory; NULL when the offset lies outside it. Valid as long as the
 * group. */
void *fg_rt_memory(FgRtCx *cx, uint64_t offset);

/* Runs one body on the calling thread (nothing when body is NULL or the group has failed): events
 * start anew, all streams join at its end. */
void fg_rt_run_body(FgRtCx *cx, FgRtBody *body);

/* Waits for all ranks; returns at once when the group has failed. For the driver, outside bodies.
 */
void fg_rt_barrier(FgRtCx *cx);

/* What ended the group; ok when nothing did. Any thread may ask. */
FgRtStatus fg_rt_status(const FgRtCx *cx);
/* Ends the group with a failure of the driver's own (a read error, say): peers leave their
 * rendezvous. Any thread. */
void fg_rt_fail(FgRtCx *cx, const char *call, const char *text);

/* Bytes of the rank's memory that were really used: the pages ever touched, counted from the
 * system's own table. */
uint64_t fg_rt_touched_bytes(const FgRtCx *cx);
/* With profile: microseconds spent in a node so far and the number of its calls; 0 otherwise. */
double fg_rt_node_us(const FgRtCx *cx, uint32_t node, uint64_t *calls);

#endif
