/* Why nodes of a schedule run when they do: data for the text and the JSON of `explain`. */
#ifndef FG_TOOLS_COMMAND_EXPLAIN_H
#define FG_TOOLS_COMMAND_EXPLAIN_H

#include "passes/profile.h"
#include "passes/why.h"
#include "tools/command/session.h"

/* One schedule with its run. */
typedef struct FgRunning {
    const FgCompiled *compiled;
    FgProfile profile;
} FgRunning;

/* What one node does with more memory. */
typedef struct FgTwin {
    uint32_t node; /* in the other schedule; FG_NO_ID: it has none */
    double exposed_us, waited_us;
} FgTwin;

/* One node in detail. Microseconds; starts and ends count from the start of the function. */
typedef struct FgStory {
    uint32_t func, node, at; /* at: position in the function */
    const char *text;
    double start_us, end_us, alone_us;
    double exposed_us; /* compute stands still while it runs */
    double idle_us;    /* its stream does nothing just before it */
    FgAwaited decides; /* why it starts no sooner */
    FgAwaitedVec awaits;
    /* Where its stream was busy: since the start of `head`, without a pause, with `queued` nodes
     * before it, and why that one started no sooner. */
    uint32_t head, queued;
    FgAwaited head_decides;
    FgIdVec holds_up; /* nodes of other streams that start when it ends, having waited for it */
    /* Gathers. */
    bool gather;
    uint32_t use;     /* the first node that reads it; FG_NO_ID: none */
    bool next_step;   /* that node is of the step behind this one */
    uint32_t before;  /* the compute node before which it is issued; FG_NO_ID: the end */
    uint32_t ahead;   /* compute nodes between its place and its use */
    double waited_us; /* the use waits for it, beyond what it awaits anyway */
    double slack_us;  /* it ends that long before its use starts */
    FgRoom room;
    FgTwin twin; /* with more memory */
} FgStory;

/* A compute node before which compute stands still. */
typedef struct FgStandstill {
    uint32_t node;
    double us;
    FgAwaited decides;
} FgStandstill;

/* Compute nodes told together: one function, phase and place. */
typedef struct FgGroup {
    uint32_t func;
    FgPhase phase;
    const char *place;
    uint32_t nodes;
    double start_us, end_us, busy_us, idle_us;
    FG_VEC(FgStandstill) standstills;
} FgGroup;

typedef struct FgExplanation {
    FgSession *session;
    const char *name;    /* as asked */
    const char *what;    /* "bucket layers.3: 9 parameters", "node #12", ...; "" */
    FgRunning now, more; /* more: with one more GiB */
    FG_VEC(FgStory) stories;
    FG_VEC(FgGroup) groups;
} FgExplanation;

/* ---- find.c ---- */
typedef struct FgFound {
    FgIdVec details;  /* nodes to tell one by one, in order */
    FgIdVec together; /* compute nodes to tell in groups */
    const char *what;
} FgFound;
/* Nodes by "#12", or by the name of a bucket, a parameter, a node, or a part of those between dots.
 * False when there is none; then *out_near says what it may have meant ("" when nothing is near).
 */
bool fg_find_nodes(FgArena *arena, const FgModule *module, const char *name, FgFound *out,
                   const char **out_near);

/* ---- explain.c ---- */
void fg_explain(FgExplanation *explanation, const FgFound *found);

/* ---- explain_text.c, explain_json.c ---- */
void fg_explanation_text(const FgExplanation *explanation, FgBuf *out);
void fg_explanation_json(const FgExplanation *explanation, FgBuf *out);

/* ---- profile_text.c ---- */
void fg_profile_text(const FgSession *session, const FgRunning *running, FgBuf *out);
/* The same as members of a JSON object, each line ended by a comma: keys `bound`, `streams`,
 * `collectives`, `critical_path`. */
void fg_profile_json(FgArena *arena, const FgRunning *running, FgBuf *out);

/* "1.234 ms", "56.7 us": for people, finer than the summary's. Arena-owned. */
const char *fg_us_text(FgArena *arena, double us);
/* fg_node_text by id, wherever it stands. */
const char *fg_node_text_of(FgArena *arena, const FgModule *module, uint32_t node);
/* The function that a node stands in, and where; NULL when it stands in none. */
const FgFunc *fg_node_func(const FgModule *module, uint32_t node, uint32_t *out_at);

#endif
