/* Private to the checker: what its files share. None of the passes that make schedules
 * includes this, and the checker includes nothing of theirs. */
#ifndef FG_PASSES_CHECK_INTERNAL_H
#define FG_PASSES_CHECK_INTERNAL_H

#include "passes/trace.h"

#define FG_CHECK_NONE UINT32_MAX
#define FG_CHECK_RULES 80

/* ---- reports ---- */
typedef struct FgCheck {
    FgArena *arena; /* scratch */
    const FgTrace *trace;
    uint32_t errors;    /* reported so far; the walk ends after 20 */
    bool *reported;     /* node, rule -> already reported: periods repeat, messages do not */
    uint32_t *position; /* node -> position in its function; NONE: stands in none */
    uint32_t *func;     /* node -> function */
    uint32_t *root;     /* value -> value that owns its memory */
    uint32_t *content;  /* value -> value whose contents it names: views looked through */
    bool *updates;      /* node -> reads what its results held */
    FgStrVec said;      /* messages without a node */
} FgCheck;

/* Reports a violation of `rule` (below FG_CHECK_RULES; files number theirs apart) at a node, once.
 */
void fg_check_fail(FgCheck *check, const FgTraceNode *node, uint32_t rule, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same without a node. */
void fg_check_fail_module(FgCheck *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *fg_check_node_text(const FgCheck *check,
                               const FgTraceNode *node); /* "#12 linear (layers.0.q)" */
const char *fg_check_value_text(const FgCheck *check, uint32_t value); /* "%q.31" */

const char *fg_check_wait_text(const FgCheck *check,
                               const FgTraceNode *node); /* "wait(#12)": what would order it */

/* ---- accesses ---- */
typedef FG_VEC(FgTraceAccess) FgTraceAccessVec;

/* Does the node become a call that touches memory? Views, holds and releases do not. */
bool fg_check_works(const FgTraceNode *node);
/* Everything that the node's call reads and writes; overwrites `out`. Nothing for nodes that do not
 * work. */
void fg_check_accesses(const FgCheck *check, const FgTraceNode *node, FgTraceAccessVec *out);

/* Only copies touch host memory (check_offload.c). */
void fg_check_sides(FgCheck *check);

/* States and arena within the budget (check_budget.c). */
void fg_check_budget(FgCheck *check, uint64_t budget);

/* ---- addresses (check_memory.c) ---- */
/* The addresses at which any access begins or ends, ascending. A value covers the cells lo..hi-1.
 */
typedef struct FgCheckSpan {
    uint32_t lo, hi;
} FgCheckSpan;

typedef struct FgCheckSpace {
    uint64_t *bounds;
    uint32_t n;
    FgCheckSpan *spans; /* by value; lo == hi for one without an address */
} FgCheckSpace;

/* Checks that every value that is accessed lies aligned inside its root, and that inside its
 * region, and that states do not overlap; lays out the space. */
void fg_check_space(FgCheck *check, FgCheckSpace *out);
/* The first bound at the address or after it; n: none. */
uint32_t fg_check_bound(const FgCheckSpace *space, uint64_t address);

/* A map from addresses to facts: runs of bounds that share one fact of `size` bytes. Splitting and
 * merging touch bits. */
typedef struct FgCheckCells {
    uint64_t *starts; /* a bit for each bound at which a run begins */
    char *facts;
    size_t size;
    uint32_t n;
} FgCheckCells;

void fg_check_cells_init(FgCheckCells *cells, FgArena *arena, uint32_t n, size_t size);
void fg_check_cells_reset(FgCheckCells *cells); /* one run of zero bytes */
/* Makes runs begin at both ends of the span. */
void fg_check_cells_split(FgCheckCells *cells, FgCheckSpan span);
/* Makes the span one run, which keeps the fact of its first one, and returns that. */
void *fg_check_cells_merge(FgCheckCells *cells, FgCheckSpan span);
uint32_t fg_check_cells_next(const FgCheckCells *cells,
                             uint32_t at); /* begin of the next run, or n */
uint32_t fg_check_cells_find(const FgCheckCells *cells,
                             uint32_t at); /* begin of the run that holds `at` */

static inline void *fg_check_cells_at(const FgCheckCells *cells, uint32_t at)
{
    return cells->facts + (size_t)at * cells->size;
}

/* ---- order (check_clock.c) ---- */
/* Waits name earlier nodes of other streams; communicators keep to one stream; conflicting accesses
 * are ordered by happens-before. Adds to waits and to reuses (overwrites, ordered, of what another
 * value left). */
void fg_check_order(FgCheck *check, const FgCheckSpace *space, uint32_t *out_waits,
                    uint32_t *out_reuses);

/* ---- contents (check_content.c) ---- */
/* What a run of bytes holds. */
typedef struct FgCheckFact {
    uint32_t content;  /* 1 + value; 0: never written */
    uint32_t writer;   /* node; NONE: the host */
    uint32_t run;      /* which execution of a function wrote it */
    uint32_t version;  /* of the bucket's weights, for gathered copies */
    uint32_t released; /* 1 + node; 0: in use */
    uint32_t reduced;  /* 1 + node; 0: not yet. Gradient buffers */
} FgCheckFact;

typedef struct FgCheckBucket {
    uint32_t version;    /* updates so far */
    uint32_t reductions; /* summed in the gradient slice now */
    uint32_t lookups;    /* added to it: parts that are not reduced */
    uint32_t gradient;   /* the value that holds it */
    bool apart;          /* it is not summed: the parts of all ranks */
    bool used;           /* an update has consumed it */
    bool normed;         /* counted in the norm of this period */
    uint32_t updates;    /* in this period, or flush */
    uint32_t named;      /* 1 + the set of rows that an update has left to do; 0: none */
    bool named_counts;   /* what it has done is counted in the norm */
    uint64_t parted;     /* elements of the slice that an update in parts has done */
    bool pending;        /* ... and whether it is that of the step before */
} FgCheckBucket;

/* What a buffer was fetched from. */
typedef struct FgCheckOrigin {
    uint32_t state;   /* FG_NO_ID: nothing that lives from step to step */
    uint64_t at;      /* bytes from the state's begin */
    uint32_t version; /* of the bucket's weights, at the fetch */
    bool mixed;       /* fetched between the parts of an update: some are new, some are not */
} FgCheckOrigin;

typedef struct FgCheckWalk {
    FgCheck *check;
    const FgTrace *trace;
    const FgCheckSpace *space;
    FgCheckCells cells; /* FgCheckFact */
    FgCheckBucket *buckets;
    bool *gathered;   /* gathered copy -> between gather and release */
    bool *carried;    /* gathered before the first period */
    bool *released;   /* gathered copy -> was released at some time */
    uint32_t *writes; /* gradient buffer -> contributions since its begin */
    uint32_t *begun;  /* gradient buffer -> the run that began it */
    uint32_t *covers; /* gradient buffer -> micro-steps that are complete in it */
    bool *open; /* gradient buffer -> begun, not reduced; exchanged rows -> not added; collected
                   tokens -> not used */
    FgCheckOrigin *origin; /* by buffer */
    uint32_t *ids;         /* set of rows -> the collected ids that name them */
    FgIdVec dirty;         /* fetched, updated, not stashed yet */
    uint32_t run;          /* executions of functions so far */
    uint32_t micro_steps;  /* that this walk gives a period */
    bool start;            /* init and prologue run */
    bool valid;            /* the pending update is not skipped */
    bool norm_begun, norm_reduced, clipped, loss_begun, loss_reduced, scaled; /* in this period */
} FgCheckWalk;

static inline const FgTraceBuffer *fg_check_buffer(const FgCheckWalk *walk, uint32_t id)
{
    return &walk->trace->buffers.data[id];
}

static inline uint64_t fg_check_elements(const FgCheckWalk *walk, uint32_t id)
{
    return fg_check_buffer(walk, id)->elements;
}

static inline const char *fg_check_text(const FgCheckWalk *walk, uint32_t id)
{
    return fg_check_value_text(walk->check, id);
}

/* Runs init, prologue, two periods, flush and another period, and demands that every read finds
 * what it names. */
void fg_check_contents(FgCheck *check, const FgCheckSpace *space);
/* The work that makes a buffer; FG_TRACE_WORK for states. */
FgTraceKind fg_check_maker(const FgCheckWalk *walk, uint32_t value);

/* A gradient buffer that is open and was begun by the run that wrote this, or before: it adds up
 * over functions. */
static inline bool fg_check_adds_up(const FgCheckWalk *walk, uint32_t root, const FgCheckFact *fact)
{
    return walk->open[root] && fg_check_maker(walk, root) == FG_TRACE_GRAD_BUFFER &&
           fact->run >= walk->begun[root];
}

/* ---- rules of a step (check_step.c) ---- */
/* A slice of a gradient buffer is about to be written. */
void fg_check_slice(FgCheckWalk *walk, const FgTraceNode *node, uint32_t value);
/* The rules of one node: after its reads were checked, before its writes. */
void fg_check_step_node(FgCheckWalk *walk, const FgTraceNode *node);
/* The device skips it: the pending update of a first step. */
bool fg_check_skipped(const FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_step_begin(FgCheckWalk *walk); /* a period, or flush */
void fg_check_step_end(FgCheckWalk *walk, bool flush);
void fg_check_function_end(FgCheckWalk *walk, const FgTraceFunc *func);
/* An update of the bucket has begun and is not complete: its weights are of two versions. */
static inline bool fg_check_is_mixed(const FgCheckWalk *walk, uint32_t bucket)
{
    return walk->buckets[bucket].parted || walk->buckets[bucket].named;
}

/* The step's own update of the bucket comes before its reads: it is that of the step before. */
static inline bool fg_check_updates_first(const FgCheckWalk *walk, uint32_t bucket)
{
    return walk->trace->clips && walk->trace->buckets.data[bucket].trainable;
}

/* What is read now of the bucket's weights, as they are, is what all of the step reads: behind the
 * pending update, before one by the step's own gradient. */
static inline bool fg_check_on_its_side(const FgCheckWalk *walk, uint32_t bucket)
{
    return walk->start || walk->buckets[bucket].updates == fg_check_updates_first(walk, bucket);
}

/* The bucket that a node works on, or NULL after a report. */
const FgTraceBucket *fg_check_bucket(FgCheckWalk *walk, const FgTraceNode *node);
/* Reductions and lookups of all micro-steps, but for `less` lookups, are in the gradient slice. */
bool fg_check_complete(const FgCheckWalk *walk, uint32_t bucket, uint32_t less);
/* A reduction or a lookup begins the gradient slice of a step, or adds to it. */
void fg_check_part(FgCheckWalk *walk, const FgTraceNode *node, uint32_t slice);

/* It reads what the reductions of its bucket left. */
static inline bool fg_check_reads_gradient(const FgCheckWalk *walk, const FgTraceNode *node)
{
    uint32_t grad = node->operands[0];
    return grad != FG_NO_ID && walk->check->content[grad] == walk->buckets[node->bucket].gradient;
}

/* ---- norm, clipping, loss (check_norm.c) ---- */
/* The node adds the gradient of its bucket to the norm. */
void fg_check_count_norm(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket,
                         uint32_t norm);
void fg_check_norm_add(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_all_reduce(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_clip_factor(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_scale_step(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_loss_add(FgCheckWalk *walk, const FgTraceNode *node);

/* ---- rows that travel (check_rows.c) ---- */
void fg_check_exchange(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_lookup_dw(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_collect(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_return_rows(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_vocab_dw(FgCheckWalk *walk, const FgTraceNode *node);
/* A set of the rows that collected ids name; the two calls of an update by it: true for the second
 * one. */
void fg_check_row_set(FgCheckWalk *walk, const FgTraceNode *node);
bool fg_check_adamw_rows(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket);
/* Any node, which may use what was collected, or read a slice that nothing gathers. */
void fg_check_collected_use(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_slice_read(FgCheckWalk *walk, const FgTraceNode *node);

/* ---- a scaled loss (check_scale.c) ---- */
void fg_check_scale_in(FgCheckWalk *walk, const FgTraceNode *node);
/* Whether the node that makes the factor of the update is the right one; what it asks beyond that
 * where it takes the scale out. */
void fg_check_scale_factor(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_scale_out(FgCheckWalk *walk, const FgTraceNode *node);
/* What a node may not do before the scale is in, and after it was taken out. */
void fg_check_scale_reads(FgCheckWalk *walk, const FgTraceNode *node);

/* ---- host memory (check_offload.c) ---- */
void fg_check_fetch(FgCheckWalk *walk, const FgTraceNode *node);
void fg_check_stash(FgCheckWalk *walk, const FgTraceNode *node);
/* At start the working copy of weights is made from the master: each part from the same one. */
void fg_check_first_copy(FgCheckWalk *walk, const FgTraceNode *node);
/* The bucket's shard itself, or a copy that was fetched of it whole, and all of it at this version.
 */
bool fg_check_is_shard(const FgCheckWalk *walk, uint32_t buffer, const FgTraceBucket *bucket,
                       uint32_t version);
/* One part of an update; true when it is the last one. */
bool fg_check_adamw_part(FgCheckWalk *walk, const FgTraceNode *node, const FgTraceBucket *bucket);
void fg_check_copies_end(FgCheckWalk *walk, const FgTraceFunc *func);

#endif
