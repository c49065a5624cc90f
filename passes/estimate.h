/* What the search knows of a schedule without lowering it again: a estimate of its time and memory,
 * read off the plan that gathers at use, and the levers that it suggests. */
#ifndef FG_PASSES_ESTIMATE_H
#define FG_PASSES_ESTIMATE_H

#include "passes/compile.h"
#include "passes/lower.h"

/* Positions are compute nodes (fg_node_is_compute), numbered in a body of the period; bodies are
 * alike in them. Memory is known at two *places* for each: the node itself with what follows from
 * it (releases, reductions, updates), and the gathers, fetches and ends of holds before the next.
 */
static inline uint32_t fg_place_of(uint32_t position)
{
    return 2 * position;
}
/* The place of gathers, fetches and ends of holds before the node at a position. */
static inline uint32_t fg_place_before(uint32_t position)
{
    return position > 0 ? 2 * position - 1 : 0;
}

typedef struct FgGatherSite {
    uint32_t gather;   /* of the base plan */
    uint32_t earliest; /* after the last use of the bucket's interval before */
    uint32_t use, end; /* first use; behind the last use */
    double seconds;    /* beside compute */
    uint64_t bytes;
    bool may_round; /* the first of its bucket, whose update nothing delays over the cut */
} FgGatherSite;

typedef struct FgReduceSite {
    uint32_t bucket;
    uint32_t ready;     /* behind the last contribution */
    uint32_t read;      /* behind the update, which reads the slice */
    double seconds;     /* until its buffer is read, beside compute */
    double after;       /* more work on the same stream before the next */
    double update;      /* norm and update, on the copy stream */
    double updated;     /* when the update ends, seconds */
    uint64_t bytes;     /* of the buffer */
    uint64_t own_bytes; /* of the slice */
    bool may_part;      /* its gradient may come in parts */
    double saved;       /* seconds of compute and link together that this would save */
    double parts;       /* as `seconds`, in parts */
} FgReduceSite;

/* An update of the step before, with which a step begins. */
typedef struct FgPendingSite {
    uint32_t bucket;
    uint32_t ready; /* position of its issue */
    double seconds; /* on the copy stream, in one queue */
    uint64_t own_bytes;
} FgPendingSite;

/* Neighbouring intervals of one bucket: sites of the estimate. */
typedef struct FgKeepPair {
    uint32_t first, next;
} FgKeepPair;

typedef struct FgEstimate {
    FgArena *arena;
    const FgPlan *base;            /* gathers at use */
    FG_VEC(double) start;          /* position -> seconds; one more entry: the end */
    FG_VEC(uint64_t) live;         /* place -> most arena bytes that live there */
    FG_VEC(FgGatherSite) gathers;  /* in order of need */
    FG_VEC(FgReduceSite) reduces;  /* in order */
    FG_VEC(FgPendingSite) pending; /* in order */
    FG_VEC(FgKeepPair) pairs;      /* the shortest time between the two first */
    FgIdVec early;                 /* buckets whose unnamed rows can be updated early */
} FgEstimate;

/* Reads a lowered base plan. Everything lives in `arena`; the module may go. */
void fg_estimate_build(FgArena *arena, FgArena *scratch, const FgModule *sched, const FgPlan *base,
                       const FgMachine *machine, FgEstimate *out);
/* A simulated run of another plan for the same graph: compute nodes and updates, seconds. */
typedef struct FgTimes {
    FG_VEC(double) starts, ends; /* of compute nodes, by position */
    const double *updated;       /* bucket -> when its update ends */
} FgTimes;

void fg_estimate_times(FgArena *arena, FgArena *scratch, const FgModule *sched,
                       const FgMachine *machine, FgTimes *out);
/* Takes the start of compute nodes and the end of updates from that run. */
void fg_estimate_retime(FgEstimate *estimate, const FgTimes *times);

/* Some gradient would gain by coming in parts, or could come so, whatever it gains. */
bool fg_estimate_wants_parts(const FgEstimate *estimate, bool whatever);

/* Who is granted memory first. */
typedef enum FgLeverOrder {
    FG_ORDER_PREFETCHES, /* then holds */
    FG_ORDER_HOLDS,      /* then prefetches */
    FG_ORDER_TIME,       /* whoever wants it earlier */
    FG_N_ORDERS
} FgLeverOrder;

/* Where gathers for the next step stand. */
typedef enum FgRoundPlace {
    FG_ROUND_UPDATED, /* when their update is done */
    FG_ROUND_BEHIND,  /* ... and behind all other gathers, with what memory those leave */
    FG_ROUND_END,     /* ... and behind the last compute node */
    FG_N_ROUND_PLACES
} FgRoundPlace;

typedef struct FgLeverChoice {
    double slack;       /* time allowed for a transfer, over what it takes */
    uint32_t kept;      /* pairs to keep gathered, as far as they fit */
    FgRoundPlace place; /* of these */
    uint32_t round;     /* buckets to gather in the step before, as far as they fit */
    uint32_t left;      /* of those that might be, the first so many are not */
    FgLeverOrder order;
    bool parts;           /* gradients come in parts where that saves time, as far as they fit */
    bool all_parts;       /* ... and where it does not */
    double share;         /* of the memory that is there, to plan with */
    uint64_t arena_limit; /* bytes that may live at once, by the estimate */
} FgLeverChoice;

/* A plan with the levers that suit the choice: keeps, then prefetches by earliest need and holds,
 * each as far as the limit lets it. In the estimate's arena. */
/* Sets linger and settle of every bucket by the choice's slack, whatever the memory. */
void fg_estimate_holds(const FgEstimate *estimate, FgArena *scratch, double slack, FgPlan *plan);
FgPlan *fg_estimate_plan(const FgEstimate *estimate, FgArena *scratch, const FgLeverChoice *choice);

#endif
