/* A simulated period read for people: what each engine does, what compute stands still for, and
 * the chain of nodes that makes the step as long as it is. Times are microseconds; those of nodes
 * count from the start of their function. */
#ifndef FG_PASSES_PROFILE_H
#define FG_PASSES_PROFILE_H

#include "passes/compile.h"

/* A run of the critical path: neighbours on one stream, in one phase and at one place (a layer). */
typedef struct FgPathRun {
    uint32_t func; /* index */
    double times;  /* how often a period runs the function */
    FgStream stream;
    FgPhase phase;
    const char *place;    /* "layers.3"; the node's name outside layers */
    uint32_t first, last; /* nodes */
    uint32_t nodes;       /* with a duration */
    uint32_t longest;     /* node */
    double start_us, end_us;
} FgPathRun;

/* A node beside the compute stream. */
typedef struct FgTransfer {
    uint32_t func, node;
    double times;
    bool collective;
} FgTransfer;

typedef struct FgProfile {
    const FgSimNode *run;         /* by node id */
    FG_VEC(FgPathRun) path;       /* over the period's functions, in order of time */
    FG_VEC(FgTransfer) transfers; /* all work of the other streams, in issue order */
} FgProfile;

/* Everything lives in `arena`. The path of a function is followed from the node that ends last back
 * to its start, each time to what had to be awaited last; nothing lies between two of its nodes, so
 * the durations of a path add up to the step. */
void fg_profile(FgArena *arena, const FgModule *sched, const FgMachine *machine, FgProfile *out);

/* Share of the step in which an engine does nothing. */
double fg_idle_us(const FgSim *sim, FgStream stream);

#endif
