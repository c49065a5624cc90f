/* A module at level sched as a trace, and the proof of it.
 *
 * The checker's own reading of the IR: what a node reads and writes follows from its operands and
 * results, the workspace flag, and the attribute `accumulate`; where a value lies from its root. */
#include "passes/compile.h"
#include "passes/passes.h"
#include "passes/trace.h"

#include "ir/op_table.h"

#include <string.h>

typedef struct Cx {
    FgArena *arena;
    const FgModule *module;
    FgTrace *out;
    FgIdVec workspaces; /* scratch states */
} Cx;

/* ---- values ---- */

static uint32_t root_of(const FgModule *module, uint32_t id)
{
    for (uint32_t steps = 0; steps < module->values.len; steps++) {
        if (module->values.data[id].root == id)
            return id;
        id = module->values.data[id].root;
    }
    return id;
}

/* The value whose contents a value names: through views. */
static uint32_t content_of(const FgModule *module, uint32_t id)
{
    for (uint32_t steps = 0; steps < module->nodes.len; steps++) {
        const FgValue *value = &module->values.data[id];
        if (value->kind != FG_VALUE_RESULT || value->def >= module->nodes.len)
            return id;
        const FgNode *def = &module->nodes.data[value->def];
        if (!(fg_op_info(def->op)->flags & FG_OPF_VIEW) || !def->n_operands ||
            def->operands[0] == FG_NO_ID)
            return id;
        id = def->operands[0];
    }
    return id;
}

/* Where a value lies, or FG_NO_OFFSET. */
static uint64_t address_of(const FgModule *module, uint32_t id)
{
    uint64_t inside = 0;
    for (uint32_t steps = 0; steps < module->values.len; steps++) {
        const FgValue *value = &module->values.data[id];
        if (value->root == id)
            return value->offset == FG_NO_OFFSET ? FG_NO_OFFSET : value->offset + inside;
        inside += value->root_offset;
        id = value->root;
    }
    return FG_NO_OFFSET;
}

/* A node that begins what outlives a function, a carried copy or gradient; or FG_NO_ID. */
static uint32_t begin_of(const FgModule *module, uint32_t value)
{
    FgOp op =
        module->values.data[value].role == FG_ROLE_GATHERED ? FG_OP_gather : FG_OP_grad_buffer;
    for (uint32_t i = 0; i < module->nodes.len; i++) {
        const FgNode *node = &module->nodes.data[i];
        if (node->op == op && node->n_results == 1 && node->results[0] == value)
            return i;
    }
    return FG_NO_ID;
}

static void add_values(Cx *cx)
{
    const FgModule *module = cx->module;
    for (uint32_t i = 0; i < module->values.len; i++) {
        const FgValue *value = &module->values.data[i];
        /* A carried copy is what gathers make, whichever function they stand in; a gradient that
         * adds up over functions, what its begin makes. */
        bool carried = value->kind == FG_VALUE_STATE &&
                       (value->role == FG_ROLE_GATHERED || value->role == FG_ROLE_GRADIENTS);
        bool state = value->kind == FG_VALUE_STATE && !carried;
        FgTraceBuffer buffer = {.id = i,
                                .name = value->name,
                                .at = address_of(module, i),
                                .bytes = value->type ? fg_type_bytes(value->type) : 0,
                                .elements =
                                    value->type ? (uint64_t)fg_type_elements(value->type) : 0,
                                .root = root_of(module, i),
                                .content = content_of(module, i),
                                .state = state,
                                .role = value->role,
                                .index = value->index,
                                .def = carried ? begin_of(module, i)
                                       : state ? FG_NO_ID
                                               : value->def};
        fg_vec_push(cx->arena, &cx->out->buffers, buffer);
        if (state && value->role == FG_ROLE_WORKSPACE)
            fg_vec_push(cx->arena, &cx->workspaces, i);
    }
}

/* ---- nodes ---- */

static FgTraceKind kind_of(FgOp op)
{
    static const struct {
        FgOp op;
        FgTraceKind kind;
    } kinds[] = {{FG_OP_gather, FG_TRACE_GATHER},
                 {FG_OP_release, FG_TRACE_RELEASE},
                 {FG_OP_hold, FG_TRACE_HOLD},
                 {FG_OP_grad_buffer, FG_TRACE_GRAD_BUFFER},
                 {FG_OP_reduce_scatter, FG_TRACE_REDUCE_SCATTER},
                 {FG_OP_all_to_all, FG_TRACE_ALL_TO_ALL},
                 {FG_OP_exchange, FG_TRACE_EXCHANGE},
                 {FG_OP_lookup_dw, FG_TRACE_LOOKUP_DW},
                 {FG_OP_collect, FG_TRACE_COLLECT},
                 {FG_OP_return_rows, FG_TRACE_RETURN_ROWS},
                 {FG_OP_vocab_dw, FG_TRACE_VOCAB_DW},
                 {FG_OP_vocab_db, FG_TRACE_VOCAB_DW},
                 {FG_OP_norm_add, FG_TRACE_NORM_ADD},
                 {FG_OP_all_reduce, FG_TRACE_ALL_REDUCE},
                 {FG_OP_clip_factor, FG_TRACE_CLIP_FACTOR},
                 {FG_OP_loss_scale, FG_TRACE_LOSS_SCALE},
                 {FG_OP_scale_step, FG_TRACE_SCALE_STEP},
                 {FG_OP_adamw, FG_TRACE_ADAMW},
                 {FG_OP_adamw_part, FG_TRACE_ADAMW_PART},
                 {FG_OP_adamw_rows, FG_TRACE_ADAMW_ROWS},
                 {FG_OP_row_set, FG_TRACE_ROW_SET},
                 {FG_OP_adamw_parts, FG_TRACE_ADAMW_PARTS},
                 {FG_OP_stash, FG_TRACE_STASH},
                 {FG_OP_fetch, FG_TRACE_FETCH},
                 {FG_OP_loss_add, FG_TRACE_LOSS_ADD}};
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].op == op)
            return kinds[i].kind;
    return fg_op_info(op)->flags & FG_OPF_VIEW ? FG_TRACE_VIEW : FG_TRACE_WORK;
}

/* Its own notion of "reads what its results held", from the calls' effects (`update`, and `fresh`
 * with the flag). */
static bool updates(const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++)
        if (!strcmp(info->attrs[i].name, "accumulate"))
            return node->attrs[i].i != 0;
    return node->op == FG_OP_adamw || node->op == FG_OP_adamw_part ||
           node->op == FG_OP_adamw_rows || node->op == FG_OP_adamw_parts ||
           node->op == FG_OP_all_reduce || node->op == FG_OP_clip_factor ||
           node->op == FG_OP_loss_scale || node->op == FG_OP_scale_step;
}

/* Of an update of parts the norm may begin there. */
static bool begins(const FgNode *node, uint32_t result)
{
    return node->op == FG_OP_adamw_parts && result == 4 && !fg_node_attr(node, "adds")->i;
}

/* A gradient for an operand is made afresh beside one that adds to what was there: `accumulate`
 * means the last result. */
static bool reads_result(const FgNode *node, uint32_t result)
{
    bool fresh = (fg_op_info(node->op)->flags & FG_OPF_ACCUMULATE) && result + 1 < node->n_results;
    return !fresh && !begins(node, result);
}

/* Of a chain: what is read element by element, in the result's dtype. */
static bool is_like_result(const Cx *cx, const FgNode *node, uint32_t i)
{
    const FgType *x = cx->module->values.data[node->operands[i]].type;
    const FgType *y = cx->module->values.data[node->results[0]].type;
    return fg_node_attr(node, "repeat")->ints[i] == 0 && x->dtype == y->dtype;
}

/* The result that may take the memory of operand `i`, or FG_NO_ID. */
static uint32_t inplace(const Cx *cx, const FgNode *node, uint32_t i)
{
    uint32_t flags = fg_op_info(node->op)->flags;
    bool taken = node->op == FG_OP_fused ? is_like_result(cx, node, i)
                                         : i == 0 || (i == 1 && (flags & FG_OPF_COMMUTATIVE));
    bool can = (flags & FG_OPF_INPLACE) || node->op == FG_OP_all_reduce;
    can = (taken && can) || i == fg_op_plus(node->op);
    return can && node->n_results ? node->results[0] : FG_NO_ID;
}

/* A reduction may spoil the buffer that it reduces. */
static bool is_spoilt(const FgNode *node, uint32_t operand)
{
    return node->op == FG_OP_reduce_scatter || (node->op == FG_OP_return_rows && operand == 1);
}

static int communicator_of(FgOp op)
{
    bool collective = fg_op_info(op)->flags & FG_OPF_COLLECTIVE;
    return !collective ? 0 : op == FG_OP_gather ? 1 : op == FG_OP_all_to_all ? 3 : 2;
}

static void add_accesses(Cx *cx, const FgNode *node, FgTraceNode *out)
{
    FG_VEC(FgTraceAccess) list = {0};
    for (uint32_t i = 0; i < node->n_operands; i++)
        if (node->operands[i] != FG_NO_ID &&
            !(node->op == FG_OP_all_reduce && node->operands[i] == node->results[0]))
            fg_vec_push(cx->arena, &list,
                        ((FgTraceAccess){.buffer = node->operands[i],
                                         .read = true,
                                         .write = is_spoilt(node, i),
                                         .scratch = is_spoilt(node, i),
                                         .inplace = inplace(cx, node, i)}));
    for (uint32_t i = 0; i < node->n_results; i++)
        if (node->results[i] != FG_NO_ID)
            fg_vec_push(cx->arena, &list,
                        ((FgTraceAccess){.buffer = node->results[i],
                                         .read = out->updates && reads_result(node, i),
                                         .write = true,
                                         .inplace = FG_NO_ID}));
    if (fg_op_info(node->op)->flags & FG_OPF_WORKSPACE)
        for (uint32_t i = 0; i < cx->workspaces.len; i++)
            fg_vec_push(cx->arena, &list,
                        ((FgTraceAccess){.buffer = cx->workspaces.data[i],
                                         .write = true,
                                         .scratch = true,
                                         .inplace = FG_NO_ID}));
    out->accesses = list.data;
    out->n_accesses = list.len;
}

static void add_nodes(Cx *cx)
{
    for (uint32_t i = 0; i < cx->module->nodes.len; i++) {
        const FgNode *node = &cx->module->nodes.data[i];
        const FgOpInfo *info = fg_op_info(node->op);
        FgTraceNode out = {.id = i,
                           .kind = kind_of(node->op),
                           .entry = info->call,
                           .op = info->name,
                           .name = node->name ? node->name : "",
                           .loc = node->loc,
                           .stream = node->stream,
                           .waits = node->waits,
                           .n_waits = node->n_waits,
                           .bucket = node->bucket,
                           .operands = node->operands,
                           .results = node->results,
                           .n_operands = node->n_operands,
                           .n_results = node->n_results,
                           .comm = communicator_of(node->op)};
        if (node->attrs) {
            out.updates = updates(node);
            bool part = node->op == FG_OP_adamw_part;
            out.pending =
                (part || node->op == FG_OP_adamw) && fg_node_attr(node, "pending")->i != 0;
            out.named = node->op == FG_OP_adamw_rows && fg_node_attr(node, "named")->i != 0;
            out.first = part ? (uint64_t)fg_node_attr(node, "first")->i : 0;
        }
        add_accesses(cx, node, &out);
        fg_vec_push(cx->arena, &cx->out->nodes, out);
    }
}

/* ---- tables ---- */

static void add_buckets(Cx *cx)
{
    const FgModule *module = cx->module;
    for (uint32_t i = 0; i < module->buckets.len; i++) {
        const FgBucket *bucket = &module->buckets.data[i];
        FgTraceParam *params = FG_NEW_ARRAY(cx->arena, FgTraceParam, bucket->n_params);
        for (uint32_t k = 0; k < bucket->n_params; k++) {
            const FgParam *param = &module->params.data[bucket->params[k]];
            params[k] = (FgTraceParam){param->name, param->bucket_offset,
                                       (uint64_t)fg_type_elements(param->type)};
        }
        FgTraceBucket out = {
            bucket->name,     bucket->trainable,  bucket->elements, params,
            bucket->n_params, bucket->shard,      bucket->master,   bucket->moment1,
            bucket->moment2,  bucket->grad_shard, bucket->writes,   bucket->lookups};
        fg_vec_push(cx->arena, &cx->out->buckets, out);
    }
}

static bool trains(const FgModule *module)
{
    for (uint32_t i = 0; i < module->buckets.len; i++)
        if (module->buckets.data[i].trainable)
            return true;
    return false;
}

void fg_trace_module(FgArena *arena, const FgModule *sched, FgTrace *out)
{
    Cx cx = {.arena = arena, .module = sched, .out = out};
    bool scales = sched->numerics.compute == FG_F16 && trains(sched);
    *out = (FgTrace){.diags = sched->diags,
                     .ranks = sched->ranks,
                     .accumulate = sched->numerics.accumulate,
                     .clips = sched->numerics.clip > 0.0 || scales,
                     .scales = scales,
                     .state_bytes = sched->state_bytes,
                     .arena_bytes = sched->arena_bytes,
                     .host_state_bytes = sched->host_state_bytes,
                     .host_arena_bytes = sched->host_arena_bytes};
    add_values(&cx);
    add_nodes(&cx);
    add_buckets(&cx);
    for (uint32_t i = 0; i < sched->funcs.len; i++) {
        FgTraceFunc func = {sched->funcs.data[i].name, sched->funcs.data[i].order};
        fg_vec_push(arena, &out->funcs, func);
    }
}

bool fg_check(FgArena *scratch, const FgModule *sched, uint64_t budget, FgProof *out)
{
    FgTrace trace;
    fg_trace_module(scratch, sched, &trace);
    return fg_check_trace(scratch, &trace, budget, out);
}

FgPassResult fg_pass_check(FgPassCx *cx)
{
    FgProof proof;
    return fg_check(cx->scratch, cx->module, cx->budget, &proof) ? FG_PASS_UNCHANGED
                                                                 : FG_PASS_FAILED;
}
