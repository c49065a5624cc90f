/* What the checker looks at: a schedule as buffers, accesses, streams and waits, whoever states it.
 *
 * Two sources make a trace: check_ir.c from a module at level sched, and readback/ from the
 * calls of an emitted program. The proof (check.c) is the same for both. Ids index the tables. */
#ifndef FG_PASSES_TRACE_H
#define FG_PASSES_TRACE_H

#include "ir/ir.h"

/* The work that a training step has rules about; all other work only reads and writes. */
typedef enum FgTraceKind {
    FG_TRACE_WORK,
    FG_TRACE_VIEW, /* names a part of its operand: no call */
    FG_TRACE_HOLD, /* no call, no access */
    FG_TRACE_GATHER,
    FG_TRACE_RELEASE,
    FG_TRACE_GRAD_BUFFER,
    FG_TRACE_REDUCE_SCATTER,
    FG_TRACE_ALL_TO_ALL, /* a reduction whose sum the update makes */
    FG_TRACE_EXCHANGE,
    FG_TRACE_LOOKUP_DW,
    FG_TRACE_COLLECT,     /* tokens of all ranks, for the owners of a sharded table */
    FG_TRACE_RETURN_ROWS, /* what the owners made, summed and back at the tokens' ranks */
    FG_TRACE_VOCAB_DW,    /* a part of the gradient of owned rows */
    FG_TRACE_NORM_ADD,
    FG_TRACE_ALL_REDUCE,
    FG_TRACE_CLIP_FACTOR,
    FG_TRACE_LOSS_SCALE,
    FG_TRACE_SCALE_STEP,
    FG_TRACE_ADAMW,
    FG_TRACE_ADAMW_PART,
    FG_TRACE_ADAMW_ROWS, /* of the rows that a set names, or of all other elements */
    FG_TRACE_ROW_SET,
    FG_TRACE_ADAMW_PARTS, /* sums the parts of all ranks on its way */
    FG_TRACE_STASH,
    FG_TRACE_FETCH,
    FG_TRACE_LOSS_ADD
} FgTraceKind;

/* A named range of bytes with one meaning. */
typedef struct FgTraceBuffer {
    uint32_t id;
    const char *name; /* NULL: it is nothing (a hole in the ids of a module) */
    uint64_t at;      /* address, from FG_HOST_BASE on in host memory; FG_NO_OFFSET: none yet */
    uint64_t bytes, elements;
    uint32_t root;    /* the buffer that owns the memory; itself, or another root */
    uint32_t content; /* the buffer whose contents it names: itself, unless it is a view */
    bool state;       /* lives from step to step */
    FgRole role;      /* of a state */
    uint32_t index;   /* of its bucket, by role */
    uint32_t def;     /* node that makes it first, or FG_NO_ID */
} FgTraceBuffer;

typedef struct FgTraceAccess {
    uint32_t buffer;
    bool read, write;
    bool scratch;     /* what is written is never read; with read: an operand that is spoilt */
    uint32_t inplace; /* a read: the result that may take exactly this memory, or FG_NO_ID */
} FgTraceAccess;

typedef struct FgTraceNode {
    uint32_t id;
    FgTraceKind kind;
    const char *entry; /* the runtime's entry without "fg_rt_", or NULL: no call */
    const char *op;    /* for messages */
    const char *name;  /* where it comes from, for people; "" */
    FgLoc loc;
    FgStream stream;
    const uint32_t *waits; /* nodes */
    uint32_t n_waits;
    uint32_t bucket;                    /* or FG_NO_ID */
    const uint32_t *operands, *results; /* buffers, or FG_NO_ID */
    uint32_t n_operands, n_results;
    const FgTraceAccess *accesses; /* reads before writes */
    uint32_t n_accesses;
    bool updates;   /* reads what its results held */
    uint64_t first; /* an update in parts: its first element of the owned slice */
    bool named;     /* an update of rows: of those that are named, not of all others */
    bool pending;   /* belongs to the step before: the device skips it where there is none */
    int comm;       /* 0 none; communicators: 1 gather, 2 reduce, 3 parts */
} FgTraceNode;

typedef struct FgTraceParam {
    const char *name;
    uint64_t offset, elements; /* in its bucket */
} FgTraceParam;

typedef struct FgTraceBucket {
    const char *name;
    bool trainable;
    uint64_t elements;
    const FgTraceParam *params;
    uint32_t n_params;
    uint32_t shard, master, moment1, moment2, grad_shard; /* buffers, or FG_NO_ID */
    /* That make its gradient, each micro-step; FG_NO_ID: any number. Lookups: all that adds to the
     * slice without a reduction. */
    uint32_t writes, lookups;
} FgTraceBucket;

typedef struct FgTraceFunc {
    const char *name; /* "init", "prologue", "step", "first", "middle", "last", "flush" */
    FgIdVec order;
} FgTraceFunc;

typedef struct FgTrace {
    FgDiags *diags; /* where violations are reported */
    uint32_t ranks;
    int64_t accumulate;
    bool clips;   /* updates wait for a factor of the whole gradient */
    bool scales;  /* the loss is scaled */
    bool emitted; /* read back from a program: no wait may be implied by others, no result unread */
    uint64_t state_bytes, arena_bytes;
    uint64_t host_state_bytes, host_arena_bytes;
    FG_VEC(FgTraceBuffer) buffers;
    FG_VEC(FgTraceNode) nodes;
    FG_VEC(FgTraceBucket) buckets;
    FG_VEC(FgTraceFunc) funcs;
} FgTrace;

typedef struct FgProof {
    uint32_t nodes, gathers, waits, reuses; /* what was shown, for the summary */
} FgProof;

/* The trace of a module at level sched, in `arena`. Nodes and buffers keep the ids of the module.
 */
void fg_trace_module(FgArena *arena, const FgModule *sched, FgTrace *out);
/* The proof (check.c says what it shows). Reports every violation it finds (at most 20) as
 * FG_D_NOT_PROVED and returns false. `budget` bounds state_bytes + arena_bytes. */
bool fg_check_trace(FgArena *scratch, const FgTrace *trace, uint64_t budget, FgProof *out);

#endif
