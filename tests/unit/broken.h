/* Traces of right schedules, to be broken in memory: the checker relies on nothing that the IR's
 * parser or the read-back has looked at before. */
#ifndef FG_TESTS_UNIT_BROKEN_H
#define FG_TESTS_UNIT_BROKEN_H

#include "passes/compile.h"
#include "passes/trace.h"

typedef struct Broken {
    FgArena *arena;
    FgTrace trace;
} Broken;

typedef struct Fault {
    const char *name;
    void (*plant)(Broken *);
    const char *message; /* that must come */
} Fault;

typedef struct Wanted {
    const char *model; /* under the source folder */
    const char *plan;  /* "zero3" or "minimum" */
    double clip;
    FgVocab vocab;
    uint32_t offload;
    int64_t batch, seq; /* 0: the model's */
    /* Sets some in the fixed plan of the graph; NULL: none. */
    void (*levers)(FgModule *graph, FgArena *arena, const FgMachine *machine);
} Wanted;

/* The schedule in f32 for two ranks, or NULL, which counts as a failure. */
const FgModule *broken_schedule(FgArena *arena, const Wanted *wanted, int *failures);
/* The schedule is proved, and refused with its message with each fault in turn. */
void broken_refuses(const FgModule *module, const Fault *faults, size_t n, int *failures);
/* The same of an array of faults in the schedule that the rest, fields of a Wanted, asks for. */
#define REFUSES(faults, ...)                                                                       \
    do {                                                                                           \
        FgArena *arena = fg_arena_new();                                                           \
        const Wanted wanted = {__VA_ARGS__};                                                       \
        broken_refuses(broken_schedule(arena, &wanted, failures), faults,                          \
                       sizeof faults / sizeof *faults, failures);                                  \
        fg_arena_free(arena);                                                                      \
    } while (0)

/* ---- what faults are made of ---- */
/* The first node of those that are in an order: a module's ids have holes. */
FgTraceNode *trace_first(Broken *b, FgTraceKind kind);
FgTraceBuffer *trace_buffer(Broken *b, uint32_t id);
/* Puts a node into the order once more, right behind where it stands: the same one, or a new one
 * that does the same, the last of all nodes. */
void trace_repeat(Broken *b, uint32_t id, bool same);
/* Takes a node out of the order. */
void trace_drop(Broken *b, uint32_t id);
/* Puts a node right before another one, or right behind it. */
void trace_move(Broken *b, uint32_t id, uint32_t to, bool behind);
/* A node's operand, or result, replaced. */
void trace_operand(Broken *b, FgTraceNode *node, uint32_t at, uint32_t id);
void trace_result(Broken *b, FgTraceNode *node, uint32_t at, uint32_t id);

#endif
