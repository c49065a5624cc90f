/* Shared by the lowering passes (bucket ... streams): uses of buckets, memory accesses of nodes. */
#ifndef FG_PASSES_LOWER_H
#define FG_PASSES_LOWER_H

#include "ir/op_table.h"
#include "passes/passes.h"

/* Byte alignment of every address in the plan: what device libraries like best for vector loads. */
#define FG_ALIGN_BYTES 256
/* Element alignment of parameters in a bucket; a bucket is padded to ranks times this. */
#define FG_ALIGN_ELEMENTS 64

static inline bool fg_op_has(FgOp op, FgOpFlag flag)
{
    return (fg_op_info(op)->flags & (uint32_t)flag) != 0;
}

/* Names memory without touching it: no work, no access, no place on a stream. */
static inline bool fg_node_is_name(const FgNode *node)
{
    return fg_op_has(node->op, FG_OPF_VIEW) || node->op == FG_OP_hold;
}

/* Work of the compute stream: what prefetch distances and holds are counted in. */
static inline bool fg_node_is_compute(const FgNode *node)
{
    return node->stream == FG_STREAM_COMPUTE && !fg_node_is_name(node) &&
           node->op != FG_OP_release && node->op != FG_OP_grad_buffer;
}

/* A whole copy of a bucket that outlives the function that gathers it (FgPlanGather: keep, round).
 */
static inline bool fg_is_carried(const FgModule *module, uint32_t value)
{
    const FgValue *v = &module->values.data[value];
    return v->kind == FG_VALUE_STATE && v->role == FG_ROLE_GATHERED;
}

/* A whole gradient that adds up over micro-steps: a state that lives from the first to the last. */
static inline bool fg_is_summed(const FgModule *module, uint32_t value)
{
    const FgValue *v = &module->values.data[value];
    return v->kind == FG_VALUE_STATE && v->role == FG_ROLE_GRADIENTS;
}

/* False, after an error that names the pass, when a node of `op` shows that the pass (or a later
 * one) has run already. */
bool fg_pass_is_first(const FgModule *module, FgOp op, const char *pass);

/* Rows of a sharded parameter that each rank owns: whole ones, a multiple of 8, so that products
 * over them lie aligned; of the last ranks some or all do not exist. */
uint64_t fg_sharded_rows(const FgParam *param, uint32_t ranks);

/* ---- states in host memory (passes/offload.c, update_parts.c) ---- */
/* Some state of the bucket lies in host memory: its updates travel in parts. */
bool fg_bucket_is_offloaded(const FgModule *module, uint32_t bucket);
/* The update of such a bucket, and the first working copy of its weights from the master, appended
 * to the builder's order. */
void fg_emit_update_parts(FgModule *module, FgArena *scratch, FgBuilder *build, uint32_t bucket,
                          uint32_t scalars, bool pending);
void fg_emit_cast_parts(FgModule *module, FgArena *scratch, FgBuilder *build, uint32_t bucket);

/* ---- gradients in parts (FgPlanBucket.parts) ---- */
/* Why they cannot be had of a bucket, or NULL: one reduction must make its gradient, and one whole
 * update that need not wait must be all that reads it. After `reduce` has counted lookups. */
const char *fg_parts_refused(const FgModule *module, uint32_t bucket);
/* The bucket's gradient state holds the parts of all ranks. */
bool fg_bucket_in_parts(const FgModule *module, uint32_t bucket);
uint32_t fg_count_parts(const FgModule *module); /* buckets of which that is so */

/* Layout of a plan's bucket: element offset of each parameter (bucket_offset of the parameters is
 * not touched) and the padded total. A sharded parameter stands alone; its slices are whole rows.
 */
uint64_t fg_bucket_layout(const FgModule *module, const uint32_t *params, uint32_t n,
                          uint32_t ranks, uint64_t *out_offsets);

/* Whole trainable parameters are those that a gradient reaches: the others have no state.
 * `out[param]`. */
void fg_params_with_gradient(const FgModule *graph, bool *out);

/* Value of an embedding_dw whose rows travel instead of its dense gradient -> the parameter;
 * FG_NO_ID for all others. They do where the tokens that the ranks look up in a table are fewer
 * than its rows: from the graph and the number of ranks alone, whatever the plan. Graph and dist
 * level, while contributions are `grad` nodes. */
uint32_t *fg_rows_travel(FgArena *arena, const FgModule *module, uint32_t ranks);

/* Tables whose lookups can travel: those whose lookups' gradients do. `out[param]`; in `arena`. */
bool *fg_tables_that_travel(FgArena *arena, const FgModule *module, uint32_t ranks);

/* Value -> parameter whose memory it names (parameters themselves and views of them), or FG_NO_ID.
 * Graph level. */
uint32_t *fg_param_bases(FgArena *arena, const FgModule *graph);

/* ---- plans (passes/plan.c) ---- */
/* Buckets and intervals of the plan that gathers at use and releases after it. `graph` is at graph
 * level with the recompute applied; the plan lives in the module's arena. What is recomputed
 * selectively is what the graph's own plan names. */
FgPlan *fg_plan_fixed(FgModule *graph, FgArena *scratch, const char *name, FgRecompute recompute);
/* Bucket borders other than a layer's. */
typedef struct FgBorders {
    bool by_module;      /* a bucket holds what one node uses first */
    int64_t persistence; /* parameters of at most so many elements share buckets of their own,
                            whatever uses them ("persistent") */
    double cut;          /* the layer whose gradients come last has two buckets: what is used first,
                            by whole modules, of at least this share of its elements; and the rest */
} FgBorders;
/* The same with other borders. NULL where a cut is asked for and nothing can be cut. */
FgPlan *fg_plan_units(FgModule *graph, FgArena *scratch, const char *name, FgRecompute recompute,
                      FgBorders borders);
/* Lets lookups travel (FgPlanBucket: travels) in a fixed plan of the graph, in each bucket whose
 * slice lies on the device and whose lookups then take less of the links than one gather
 * (passes/plan_travel.c). */
void fg_plan_travel(FgPlan *plan, const FgModule *graph, FgArena *scratch,
                    const FgMachine *machine);
/* Some bucket's gradient comes in parts. */
bool fg_plan_takes_parts(const FgPlan *plan);
FgPlan *fg_plan_clone(const FgPlan *plan, FgArena *arena);
/* Copies the ids into the plan. */
void fg_plan_set_recomputed(FgPlan *plan, FgArena *arena, const FgIdVec *nodes);

#endif
