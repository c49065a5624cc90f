/* The IR: one structure for all three levels.
 *
 *   graph  whole tensors, no ranks, no memory. Parameters and inputs are values; after `autodiff`
 * the function holds forward and backward, and one `grad` node for each contribution to a
 * parameter's gradient. dist   parameters live in flat sharded buckets; gather, release,
 * reduce_scatter, all_reduce and adamw are nodes. States (shards, moments, gradient shards, scalars
 * ...) are values that nodes read and write in place. sched  functions are total issue orders;
 * every node has a stream and waits, every value an address.
 *
 * A module owns one arena, one table of values and one of nodes: ids are stable for its life and
 * unique over its functions. A function is a vector of node ids; its order is the schedule, and
 * passes write new orders instead of moving nodes. docs/ir.md is the specification of the text
 * form; printer and parser round-trip every module. */
#ifndef FG_IR_IR_H
#define FG_IR_IR_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/vec.h"
#include "ir/types.h"

#define FG_NO_ID UINT32_MAX
#define FG_NO_OFFSET UINT64_MAX
/* Addresses from here on lie in the rank's pinned host memory: a second space, with offsets of its
 * own. FG_RT_HOST of the runtime (the compiler includes nothing of that; a test compares). */
#define FG_HOST_BASE ((uint64_t)1 << 62)
/* Layout of states that the runtime reads and writes, as runtime/fg_rt.h has it (the compiler
 * includes nothing of the runtime; a test compares): per-step scalars in two sets, the loss seed's
 * slot, limbs of the exact norm, slots of the loss scaler. */
#define FG_SCALARS 32
#define FG_SEED_SLOT 0
#define FG_NORM_LIMBS 24
#define FG_SCALER 16

typedef enum FgLevel { FG_LEVEL_GRAPH, FG_LEVEL_DIST, FG_LEVEL_SCHED } FgLevel;
typedef enum FgPhase {
    FG_PHASE_START,
    FG_PHASE_FORWARD,
    FG_PHASE_BACKWARD,
    FG_PHASE_UPDATE
} FgPhase;
typedef enum FgStream {
    FG_STREAM_COMPUTE,
    FG_STREAM_GATHER,
    FG_STREAM_REDUCE,
    FG_STREAM_COPY,
    FG_STREAM_STASH, /* device to host */
    FG_STREAM_FETCH, /* host to device */
    FG_N_STREAMS
} FgStream;

/* What a byte is for: the classes of the ledger. */
typedef enum FgMemClass {
    FG_MEM_PARAMETERS,  /* sharded working copy in the compute dtype */
    FG_MEM_MASTER,      /* fp32 master weights */
    FG_MEM_OPTIMIZER,   /* Adam moments */
    FG_MEM_GATHERED,    /* whole buckets between gather and release */
    FG_MEM_GRADIENTS,   /* flat gradient buffers and gradient shards */
    FG_MEM_ACTIVATIONS, /* everything the graph computes */
    FG_MEM_WORKSPACE,   /* scratch of library calls */
    FG_MEM_INPUTS,      /* staged tokens and labels */
    FG_MEM_CONSTANTS,   /* tables, scalars, accumulators */
    FG_N_MEM_CLASSES
} FgMemClass;

typedef enum FgOp {
#define FG_OP(name, ...) FG_OP_##name,
#include "ir/ops.def"
#undef FG_OP
    FG_N_OPS
} FgOp;

/* ---- attributes ---- */
typedef enum FgAttrKind {
    FG_ATTR_INT,
    FG_ATTR_FLOAT,
    FG_ATTR_BOOL,
    FG_ATTR_INTS,
    FG_ATTR_WORD,
    FG_ATTR_TEXT
} FgAttrKind;

typedef struct FgAttr {
    bool set;  /* false: not given and the op's row has no default (optional attributes) */
    int64_t i; /* INT, BOOL */
    double f;  /* FLOAT */
    const int64_t *ints; /* INTS */
    uint32_t n_ints;
    const char *word; /* WORD: one of the row's choices; TEXT: any; interned */
} FgAttr;

/* ---- nodes and values ---- */
typedef struct FgNode {
    FgOp op;
    uint32_t id;
    const uint32_t *operands; /* value ids; FG_NO_ID for an omitted optional operand */
    const uint32_t *results;  /* value ids */
    uint32_t n_operands, n_results;
    FgAttr *attrs; /* one per attribute of the op's row, in its order */
    const char
        *name; /* where it comes from, for people: "layers.0.q_proj"; never NULL, may be "" */
    FgLoc loc;
    FgPhase phase;
    int32_t layer;   /* iteration of the `repeat` it comes from; -1 outside */
    uint32_t origin; /* node it was made from (gradient, recompute), or FG_NO_ID */
    uint32_t bucket; /* dist and sched: the bucket a collective or update works on, or FG_NO_ID */
    FgStream stream; /* sched */
    const uint32_t *waits; /* sched: earlier nodes of the same function, on other streams */
    uint32_t n_waits;
} FgNode;

typedef enum FgValueKind {
    FG_VALUE_RESULT, /* made by a node */
    FG_VALUE_PARAM,  /* graph level: parameter `index` of the module, whole */
    FG_VALUE_INPUT,  /* graph level: input `index` of the module */
    FG_VALUE_STATE /* dist, sched: a named buffer that nodes write in place; `role` and `index` say
                      which */
} FgValueKind;

typedef enum FgRole {
    FG_ROLE_NONE,
    FG_ROLE_SHARD,      /* bucket index: owned slice in the compute dtype (what gathers send) */
    FG_ROLE_MASTER,     /* bucket index: owned slice, fp32; absent when the shard itself is fp32 */
    FG_ROLE_MOMENT1,    /* bucket index */
    FG_ROLE_MOMENT2,    /* bucket index */
    FG_ROLE_GRAD_SHARD, /* bucket index: reduced gradient of the owned slice */
    FG_ROLE_GATHERED,   /* bucket index: a whole copy that outlives the function that gathers it */
    FG_ROLE_GRADIENTS,  /* bucket index: its whole gradient, which adds up over micro-steps */
    FG_ROLE_INPUT,      /* input index: staged batch */
    FG_ROLE_TABLE,      /* constants computed once by @init */
    FG_ROLE_SCALARS,    /* per-step scalars; layout in runtime/fg_rt.h */
    FG_ROLE_NORM,       /* exact accumulator of the squared gradient norm: int64 limbs */
    FG_ROLE_LOSS,       /* sum of local losses of the step, f64 */
    FG_ROLE_SCALER,     /* loss scale, what moves it, AdamW's step; layout in runtime/fg_rt.h */
    FG_ROLE_WORKSPACE
} FgRole;

typedef struct FgValue {
    uint32_t id;
    const char *name; /* hint, without the id; printed "%name.id" */
    const FgType *type;
    FgValueKind kind;
    FgRole role;
    uint32_t index; /* parameter, input or bucket index, by kind and role */
    uint32_t def;   /* node that makes it (RESULT); the last writer is not tracked for STATE */
    uint32_t root;  /* value whose memory it lies in: its own id, or another root's */
    uint64_t root_offset; /* bytes from the root's start */
    FgMemClass mem;
    bool host; /* dist, sched: it lies in host memory (roots only); stash writes it, fetch reads it
                */
    uint64_t offset; /* sched: address (roots only), from FG_HOST_BASE on where it lies in host
                        memory; FG_NO_OFFSET before memplan */
} FgValue;

/* ---- module tables ---- */
typedef enum FgInit { FG_INIT_NORMAL, FG_INIT_UNIFORM, FG_INIT_CONSTANT } FgInit;

typedef struct FgParam {
    const char *name;   /* the name in weight files */
    const FgType *type; /* shape; dtype in which the graph uses it (the gathered dtype) */
    FgInit init;
    double init_scale; /* standard deviation, half width, or the constant */
    bool trainable, decay;
    bool sharded; /* its rows stay with their owners, to whom tokens travel (pass `vocab`) */
    const char *const *tied; /* other names of the same tensor in weight files */
    uint32_t n_tied;
    uint32_t value; /* graph level: its PARAM value; FG_NO_ID when nothing reads it */
    FgLoc loc;
    uint32_t bucket;        /* dist, sched; FG_NO_ID before `bucket` */
    uint64_t bucket_offset; /* elements from the bucket's start */
} FgParam;

typedef enum FgInputRole { FG_INPUT_TOKENS, FG_INPUT_LABELS, FG_INPUT_OTHER } FgInputRole;

typedef struct FgInput {
    const char *name;
    const FgType *type; /* per rank and micro-step */
    FgInputRole role;
    uint32_t value;
    FgLoc loc;
} FgInput;

/* A run of parameters, flat: each aligned, the whole padded to a multiple of the ranks. */
typedef struct FgBucket {
    const char *name;
    FgDtype dtype;          /* of shard and gathered copy */
    bool trainable;         /* all of its parameters are, or none */
    const uint32_t *params; /* in layout order */
    uint32_t n_params;
    uint64_t elements; /* padded total; elements / ranks is a rank's slice */
    uint32_t shard, master, moment1, moment2, grad_shard; /* state values; FG_NO_ID where absent */
    /* What makes the gradient slice of a micro-step (after `reduce`): writes into the buffer that
     * is reduced (0: there is none; FG_NO_ID: not stated), and lookups whose rows travel instead.
     */
    uint32_t writes, lookups;
} FgBucket;

/* How the gradient of a lookup reaches the owners of its table: inside the dense buffer of the
 * bucket, or as the batch's rows, exchanged between all ranks, where these are fewer than the
 * table's (fg_rows_travel). */
typedef enum FgLookup { FG_LOOKUP_DENSE, FG_LOOKUP_ROWS } FgLookup;

/* Where a vocabulary's table meets its tokens: gathered whole on every rank, or sharded, where the
 * tokens of all ranks travel to the owners of its rows (passes/vocab.c, passes/travel.c). */
typedef enum FgVocab { FG_VOCAB_GATHERED, FG_VOCAB_SHARDED } FgVocab;

/* Where gradients of micro-steps add up: reduced in each of them, in the owned slice; or in the
 * whole gradient buffer, in the dtype of the wire, which is reduced once a step. */
typedef enum FgAccumulateIn { FG_IN_SLICE, FG_IN_WHOLE } FgAccumulateIn;

/* What changes results (design: I5): from model and flags alone, alike for every schedule. */
typedef struct FgNumerics {
    FgDtype compute;    /* activations and gathered parameters */
    FgDtype wire;       /* gradient buffers, as reduced */
    FgDtype shard;      /* reduced gradient slices */
    double clip;        /* global norm limit; 0 is none */
    int64_t accumulate; /* micro-steps a step, >= 1 */
    FgLookup lookup;    /* set by `bucket`, from the graph and the number of ranks */
    FgVocab vocab;      /* the form of every embedding and head that allows it */
    int64_t chunk;      /* tokens of each rank that a head takes at a time, and that travel at a
                           time where it is sharded; 0: all, or as many as `vocab` decides */
    FgAccumulateIn accumulate_in; /* with several micro-steps */
} FgNumerics;

/* Gradient buffers live from the first micro-step to the last. */
static inline bool fg_sums_whole(const FgNumerics *numerics)
{
    return numerics->accumulate > 1 && numerics->accumulate_in == FG_IN_WHOLE;
}

/* The dtype of reduced gradient slices: what adds up in them does so in f32. */
static inline FgDtype fg_slice_dtype(const FgNumerics *numerics)
{
    return numerics->accumulate > 1 && !fg_sums_whole(numerics) ? FG_F32 : numerics->wire;
}

/* The range of f16 is small: gradients are those of the loss times a scale, and an update is
 * skipped where one of them is not finite. */
static inline bool fg_scales_loss(const FgNumerics *numerics)
{
    return numerics->compute == FG_F16;
}

/* The update takes what is known of the whole gradient only, a clipping factor or that all of it is
 * finite: it is the next step that begins with it. */
static inline bool fg_update_waits(const FgNumerics *numerics)
{
    return numerics->clip > 0 || fg_scales_loss(numerics);
}

/* ---- plan: every scheduling lever ---- */
/* What backward computes again instead of finding it in memory. */
typedef enum FgRecompute {
    FG_RECOMPUTE_NONE,
    FG_RECOMPUTE_FULL,      /* each layer from its borders, at once before its backward */
    FG_RECOMPUTE_SELECTIVE, /* the nodes that the plan names, each as late as its readers allow */
    FG_RECOMPUTE_AUTO /* options only, never in a plan: the search finds out which nodes, if any */
} FgRecompute;

/* What may lie in pinned host memory: sets of classes. A bucket's states are the first two. */
typedef enum FgOffload {
    FG_OFFLOAD_NONE = 0,
    FG_OFFLOAD_OPTIMIZER = 1 << 0,  /* master and moments */
    FG_OFFLOAD_PARAMETERS = 1 << 1, /* the owned slice in the compute dtype */
    FG_OFFLOAD_ACTIVATIONS = 1 << 2,
    FG_OFFLOAD_ALL = 7
} FgOffload;

typedef struct FgPlanBucket {
    const char *name;
    const uint32_t *params; /* parameter indices in layout order */
    uint32_t n_params;
    /* Compute nodes for which memory outlives the issue of what reads it last on another stream, so
     * that nobody waits for its bytes: the gradient buffer its reduction, the gradient slice its
     * update. */
    int64_t linger, settle;
    /* Lookups in its tables need no gather: ids travel to the owners of the rows, and rows back. */
    bool travels;
    /* Elements of rows that no token of the last micro-step names are updated ahead of the others,
     * which wait for the lookup's gradient. Goes with `travels`. */
    bool early;
    /* The gradient's slice is not summed on the link: the parts of all ranks come to their owner,
     * whose update adds them up (all_to_all, adamw_parts). */
    bool parts;
    uint32_t offload; /* FgOffload: which of its states lie in host memory */
    int64_t pieces;   /* with offload: in how many equal parts its states travel for an update; at
                         least 1 */
} FgPlanBucket;

/* One gather/release interval. Uses of a bucket are the compute nodes that read one of its
 * parameters, numbered from 0 in compute order over forward and backward. */
typedef struct FgPlanGather {
    uint32_t bucket;
    uint32_t first_use, last_use; /* inclusive */
    int64_t ahead; /* compute nodes between the issue of the gather and its first use */
    int64_t fetch; /* where the shard lies in host memory: compute nodes by which its fetch is
                      issued before the gather */
    /* Gathered in the first micro-step of a step for all of them; the bucket's only interval. */
    bool keep;
    /* Issued in the step before, behind the bucket's update: the distance runs round the period.
     * The bucket's first interval, without clipping, and kept where there are micro-steps. */
    bool round;
} FgPlanGather;

/* An activation that waits for its backward in host memory: stashed after its last use in forward,
 * fetched before its first use in backward. */
typedef struct FgPlanStash {
    uint32_t value; /* of the graph, after recompute */
    int64_t linger; /* compute nodes for which its device memory outlives the issue of the stash */
    int64_t ahead;  /* compute nodes by which its fetch is issued before the use */
} FgPlanStash;

typedef struct FgPlan {
    const char *name; /* "zero3", "minimum", "compiled" */
    FgRecompute recompute;
    FgIdVec recomputed; /* SELECTIVE: forward nodes of the graph, ids ascending */
    FG_VEC(FgPlanBucket) buckets;
    FG_VEC(FgPlanGather) gathers; /* by bucket, then first use */
    FG_VEC(FgPlanStash) stashes;  /* by value */
} FgPlan;

typedef struct FgFunc {
    const char *name; /* "step" (graph, dist); "init", "prologue", "first", "middle", "last",
                         "step", "flush" (sched) */
    FgIdVec order;
} FgFunc;

typedef struct FgModule {
    FgArena *arena;
    FgIntern *intern;
    FgDiags *diags;       /* sources of locations, and where passes report */
    uint32_t text_source; /* source id of the IR text it was read from, or 0: places without
                             loc(...) lie in it, and locations in it are not printed */
    const char *name;
    FgLevel level;
    uint32_t ranks; /* 0 at graph level */
    FgNumerics numerics;
    FgPlan *plan; /* NULL before a plan is made */
    FG_VEC(FgParam) params;
    FG_VEC(FgInput) inputs;
    FG_VEC(FgBucket) buckets;
    FG_VEC(FgValue) values;
    FG_VEC(FgNode) nodes;
    FG_VEC(FgFunc) funcs;
    FG_VEC(const FgType *) types; /* interned */
    uint32_t loss;                /* scalar value to minimise */
    uint64_t state_bytes;         /* sched: what lives always, at [0, state_bytes) */
    uint64_t
        arena_bytes; /* sched: what lives and dies, at [state_bytes, state_bytes + arena_bytes) */
    uint64_t host_state_bytes, host_arena_bytes; /* the same in host memory, from FG_HOST_BASE */
} FgModule;

/* ---- module ---- */
FgModule *fg_module_new(FgArena *arena, FgDiags *diags, const char *name);
/* A deep copy in another arena (same ids); the diagnostics are shared. */
FgModule *fg_module_clone(const FgModule *module, FgArena *arena);
/* The same, but names and types are the module's own: it must outlive the copy. With `nodes_too` so
 * are operands, results and attributes of nodes, which nobody may change then. */
FgModule *fg_module_fork(const FgModule *module, FgArena *arena, bool nodes_too);
const FgType *fg_type(FgModule *module, FgDtype dtype, uint32_t rank, const int64_t *dims);
uint32_t fg_add_param(FgModule *module,
                      const FgParam *param); /* index; its PARAM value is made by fg_param_value */
uint32_t fg_param_value(FgModule *module, uint32_t param);     /* made on first request */
uint32_t fg_add_input(FgModule *module, const FgInput *input); /* index; makes its value */
uint32_t fg_add_state(FgModule *module, const char *name, const FgType *type, FgRole role,
                      uint32_t index, FgMemClass mem);
/* A value that a node will define; used by fg_node_finish and by the parser. */
uint32_t fg_add_value(FgModule *module, const char *name, const FgType *type);
FgFunc *fg_func(FgModule *module, const char *name);     /* NULL when there is none */
FgFunc *fg_add_func(FgModule *module, const char *name); /* invalidates earlier FgFunc pointers */

static inline FgValue *fg_value(FgModule *m, uint32_t id)
{
    return &m->values.data[id];
}

static inline FgNode *fg_node(FgModule *m, uint32_t id)
{
    return &m->nodes.data[id];
}

/* ---- building nodes ----
 * FgNode *n = fg_node_new(&b, FG_OP_scale, (uint32_t[]){x}, 1);
 * fg_node_set_float(b.module, n, "factor", 2.0);
 * uint32_t y = fg_node_finish(&b, n, "y");
 * Pointers to nodes are invalidated by the next fg_node_new. */
typedef struct FgBuilder {
    FgModule *module;
    FgIdVec *order; /* where finished nodes are appended (memory from the module's arena) */
    FgLoc loc;
    const char *name;
    FgPhase phase;
    int32_t layer;
    uint32_t origin;
} FgBuilder;

FgNode *fg_node_new(FgBuilder *builder, FgOp op, const uint32_t *operands, uint32_t n_operands);
void fg_node_set_int(FgModule *module, FgNode *node, const char *attr,
                     int64_t value); /* INT and BOOL */
void fg_node_set_float(FgModule *module, FgNode *node, const char *attr, double value);
void fg_node_set_ints(FgModule *module, FgNode *node, const char *attr, const int64_t *values,
                      uint32_t n);
void fg_node_set_word(FgModule *module, FgNode *node, const char *attr,
                      const char *word);                          /* WORD and TEXT */
const FgAttr *fg_node_attr(const FgNode *node, const char *attr); /* a missing name is our bug */
/* Infers result types, makes the results ("hint", "hint_1", ...), appends the node to the order.
 * Returns the first result's id, or FG_NO_ID after an error in the diagnostics (bad shapes) or for
 * a node without results. */
uint32_t fg_node_finish(FgBuilder *builder, FgNode *node, const char *hint);
/* Like fg_node_finish, but writes into values that exist (states, slices of a bucket's buffer). */
void fg_node_finish_into(FgBuilder *builder, FgNode *node, const uint32_t *results,
                         uint32_t n_results);
/* Bytes from the begin of a view's operand to the view, where the op says it (`rows`). */
uint64_t fg_view_offset(const FgModule *module, const FgNode *node);

/* ---- text ---- */
void fg_module_print(const FgModule *module, FgBuf *out);
/* NULL after errors in `diags`. `name` is the file name for messages. */
FgModule *fg_module_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                          size_t len);
/* Rules of the module's level; false after errors in the module's diagnostics. */
bool fg_module_verify(const FgModule *module);
/* Hash of everything that decides what the program does: the sched text without locations and names
 * of files. */
uint64_t fg_module_fingerprint(const FgModule *module);

const char *fg_level_name(FgLevel level);
const char *fg_phase_name(FgPhase phase);
const char *fg_stream_name(FgStream stream);
const char *fg_mem_class_name(FgMemClass mem);
const char *fg_role_name(FgRole role);
const char *fg_offload_name(FgOffload one); /* of one class: "optimizer" */

#endif
