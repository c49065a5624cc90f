/* Why a node of a schedule runs when it does: what it awaits and on what grounds, and how much
 * earlier a gather could have been issued. */
#ifndef FG_PASSES_WHY_H
#define FG_PASSES_WHY_H

#include "passes/compile.h"

typedef enum FgWhy {
    FG_WHY_START,     /* nothing: it starts with its function, where all streams join */
    FG_WHY_ENGINE,    /* its stream was busy: the node before it there */
    FG_WHY_DATA,      /* it reads what the other writes */
    FG_WHY_OVERWRITE, /* it writes what the other reads or wrote, in the same place */
    FG_WHY_MEMORY     /* its own values lie where other values of the other one lay */
} FgWhy;

const char *fg_why_name(FgWhy why); /* "start", "engine", "data", "overwrite", "memory" */

typedef struct FgAwaited {
    FgWhy why;
    uint32_t node;  /* awaited; FG_NO_ID for START */
    uint32_t value; /* DATA, OVERWRITE, MEMORY: whose bytes these are; FG_NO_ID otherwise */
    uint64_t bytes; /* of it that both touch */
} FgAwaited;

typedef FG_VEC(FgAwaited) FgAwaitedVec;

/* Everything that a node awaits: the work before it on its stream first, where there is any, then
 * its waits. */
FgAwaitedVec fg_awaits(FgArena *arena, const FgModule *sched, const FgSimNode *run, uint32_t node);
/* The one of them that let it start no sooner: the node that `run` names. */
FgAwaited fg_decides(FgArena *arena, const FgModule *sched, const FgSimNode *run, uint32_t node);

/* ---- room for a gather ---- */
typedef enum FgBarrier {
    FG_BARRIER_START,   /* the start of the function */
    FG_BARRIER_RELEASE, /* the release of the bucket's interval before */
    FG_BARRIER_UPDATE,  /* what writes the slice that it sends */
    FG_BARRIER_MEMORY   /* too little of the budget is left */
} FgBarrier;

const char *fg_barrier_name(FgBarrier barrier); /* "start", "release", "update", "memory" */

/* Bytes of one class at one place: the values that nodes of a layer made, or a bucket's. */
typedef struct FgTenant {
    FgMemClass mem;
    FgPhase phase;
    const char *place;
    uint64_t bytes;
    uint32_t values;
} FgTenant;

typedef struct FgRoom {
    uint32_t earlier; /* compute nodes by which the gather could be issued before its place */
    FgBarrier barrier;
    uint32_t node;        /* before which it cannot stand: where memory ends, the compute node that
                             would live beside it; otherwise the barrier; FG_NO_ID for START */
    uint64_t needs_bytes; /* the gather's buffer */
    /* MEMORY: at that node, of the budget's arena: what lives, and what is left beside it. */
    uint64_t live_bytes, left_bytes;
    FG_VEC(FgTenant) tenants; /* what lives there, most bytes first */
} FgRoom;

/* `budget`: of states and arena, in bytes. */
void fg_gather_room(FgArena *arena, const FgModule *sched, uint64_t budget, uint32_t gather,
                    FgRoom *out);

#endif
