/* A runtime as the driver of a program (the trainer) sees it: the ranks of this process.
 *
 * runtime/host has all ranks in one process, a thread each; runtime/cuda has one rank a process and
 * a device each. A group holds the contexts of the ranks that are here. Everything that a rank's
 * driver asks for happens in the order asked: what is written before a body is there when it runs.
 * Nothing is allocated after the group is made.
 *
 * Errors are sticky and shared: the first failure of any rank, here or in another process, ends all
 * of them. Further calls of a failed group do nothing and return at once. Only one thread at a time
 * may use a context, except where noted. */
#ifndef FG_RUNTIME_DRIVER_H
#define FG_RUNTIME_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/fg_rt.h"
#include "runtime/launch/fault.h"
#include "runtime/launch/world.h"

typedef struct FgRtGroup FgRtGroup;

typedef struct FgRtOptions {
    int checked;             /* verify order, effects and initialisation of every access (host) */
    int poison;              /* fill what is released, and the arena at start, with NaN */
    FgFault *fault;          /* one that a test asks for, or NULL; outlives the group */
    int profile;             /* add up the time of every node */
    const char *profile_ops; /* of these alone, separated by commas; or NULL */
    int no_graph;            /* launch every call by itself (cuda) */
    int builtin_attention;   /* never the library's (cuda) */
    const char *gemm_cache;  /* file of chosen algorithms of products; NULL, or not there and not
                                measured: the library's first choices (cuda) */
    enum {
        FG_RT_TUNE_NEVER,
        FG_RT_TUNE_ONCE, /* where the file is not there */
        FG_RT_TUNE_ALWAYS
    } tune;            /* measures the choices and keeps them in the file (cuda) */
    int deterministic; /* only what repeats bit by bit (cuda) */
} FgRtOptions;

typedef struct FgRtStatus {
    int ok;
    uint32_t rank,
        node;      /* node: index into FgRtProgram.nodes, UINT32_MAX when no call is to blame */
    char call[64]; /* "": `text` is the whole message */
    char text[1024];
} FgRtStatus;

/* What a step came to. */
typedef struct FgRtResult {
    double loss;
    double norm;                 /* of the gradient before clipping; 0 when nothing trains */
    double scaler[FG_RT_SCALER]; /* as the step left it; 0 where the loss is not scaled */
} FgRtResult;

/* Results that may be asked for and not taken yet: a driver may be this many steps ahead. */
#define FG_RT_MOST_RESULTS 4

/* How this runtime wants to be launched. */
typedef struct FgRtKind {
    const char *name;
    int process_a_rank; /* otherwise all ranks are here */
    uint32_t ahead;     /* steps to have under way before the result of the oldest is taken */
} FgRtKind;
const FgRtKind *fg_rt_kind(void);

/* Makes contexts and memory for the ranks of this process, which `world` names (NULL: there is no
 * other process). It and `program` must outlive the group. NULL: `error` says why. */
FgRtGroup *fg_rt_group_new(const FgRtProgram *program, FgWorld *world, const FgRtOptions *options,
                           char *error, size_t error_bytes);
void fg_rt_group_free(FgRtGroup *group);
FgRtCx *fg_rt_group_rank(FgRtGroup *group, uint32_t rank); /* NULL: that rank is not here */
/* The ranks that are here: *out_n of them from *out_first. */
void fg_rt_group_ranks(const FgRtGroup *group, uint32_t *out_first, uint32_t *out_n);
/* What the user should know about how the group came out, or "". */
const char *fg_rt_group_warning(const FgRtGroup *group);

uint32_t fg_rt_rank(const FgRtCx *cx);
const FgRtProgram *fg_rt_program(const FgRtCx *cx);

/* Runs one body (nothing when body is NULL or the group has failed): events start anew, all streams
 * join at its end. Every rank has a thread of its own for this. */
void fg_rt_run_body(FgRtCx *cx, FgRtBody *body);

/* The rank's memory, between bodies. write and copy come in order with bodies, and `from` may be
 * reused at once; read waits for all that was asked for before. */
void fg_rt_write(FgRtCx *cx, uint64_t offset, const void *from, size_t bytes);
void fg_rt_copy(FgRtCx *cx, uint64_t to, uint64_t from, size_t bytes);
void fg_rt_read(FgRtCx *cx, uint64_t offset, void *to, size_t bytes);

/* Asks for the loss and the norm as the bodies so far leave them; takes the oldest that was asked
 * for, waiting for it. False: the group has failed. */
void fg_rt_ask_result(FgRtCx *cx);
int fg_rt_take_result(FgRtCx *cx, FgRtResult *out_result);

/* What ended the group; ok when nothing did. Any thread may ask. */
FgRtStatus fg_rt_status(const FgRtCx *cx);
/* Ends the group with a failure of the driver's own (a read error, say): peers leave their
 * rendezvous. Any thread. */
void fg_rt_fail(FgRtCx *cx, const char *call, const char *text);

/* Bytes of the rank's memory that were really used. */
uint64_t fg_rt_touched_bytes(const FgRtCx *cx);
/* With profile: microseconds spent in a node so far, the number of its calls, and the sum of what
 * passed from the begin of their bodies to theirs; 0 otherwise. */
double fg_rt_node_us(const FgRtCx *cx, uint32_t node, uint64_t *calls, double *start_us);

#endif
