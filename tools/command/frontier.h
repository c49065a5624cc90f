/* The frontier: step time over the memory offered, for the compiled schedule, with what each plan
 * does. */
#ifndef FG_TOOLS_COMMAND_FRONTIER_H
#define FG_TOOLS_COMMAND_FRONTIER_H

#include "tools/command/session.h"

/* What a plan does to be fast or small. */
typedef struct FgLevers {
    const char *plan; /* its name */
    uint32_t buckets;
    uint32_t gathers, ahead;  /* intervals, and those issued ahead of their use */
    uint32_t kept;            /* gathers saved by keeping buckets from forward to backward */
    uint32_t regathered;      /* intervals of a bucket beyond its first */
    uint32_t recomputed;      /* compute nodes that run a second time for backward */
    uint64_t offloaded_bytes; /* in host memory */
} FgLevers;

/* A plan that was found. */
typedef struct FgFrontierPlan {
    uint64_t offered_bytes; /* to the search that found it */
    uint64_t needs_bytes;   /* as --memory takes it: reserve and peak, rounded up to 1 MiB */
    uint64_t peak_bytes;
    const char *peak_phase;
    double step_us, bound_us;
    const char *bound_engine;
    FgNumerics numerics;
    FgLevers levers;
} FgFrontierPlan;

typedef enum FgFrontierTag {
    FG_TAG_MINIMUM = 1, /* the least memory that works */
    FG_TAG_TENTH = 2,   /* a tenth more */
    FG_TAG_ENOUGH = 4   /* from here on nothing improves */
} FgFrontierTag;

typedef struct FgFrontierPoint {
    uint64_t memory_bytes;
    unsigned tags;
    const FgFrontierPlan *plan; /* the fastest of those found that fit */
} FgFrontierPoint;

/* A baseline beside the curve. */
typedef struct FgFrontierMark {
    const char *name, *key; /* "ZeRO-3, DeepSpeed's defaults", "zero3_defaults" */
    FgFrontierPlan plan;
} FgFrontierMark;

typedef struct FgFrontier {
    FgArena *arena;
    FgMemo *memo; /* while it is found */
    const FgModule *graph;
    const FgMachine *machine;
    uint32_t ranks;
    uint64_t machine_bytes;               /* what the machine has, or --memory */
    uint64_t minimum_bytes, limit_bytes;  /* limit: --memory; UINT64_MAX without */
    double fastest_us;                    /* the least step of all plans found */
    FG_VEC(const FgFrontierPlan *) plans; /* in the order in which they were found */
    FG_VEC(FgFrontierPoint) points;       /* by memory */
    FG_VEC(FgFrontierMark) marks;
} FgFrontier;

/* Finds the curve with about `points` points. FG_EXIT_DOES_NOT_FIT when --memory is less than the
 * minimum: then *out_refused is there for the refusal. */
FgExit fg_frontier_find(FgSession *session, uint32_t points, FgFrontier *out,
                        FgCompiled *out_refused);
const char *fg_frontier_tag_text(const FgFrontierPoint *point); /* "minimum", ...; "" */

/* ---- frontier_text.c ---- */
void fg_frontier_text(const FgSession *session, const FgFrontier *frontier, FgBuf *out);
void fg_frontier_json(const FgFrontier *frontier, FgBuf *out);
/* ---- frontier_svg.c ---- */
void fg_frontier_svg(const FgFrontier *frontier, FgBuf *out);

#endif
