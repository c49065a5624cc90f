/* bucket: parameters become views of flat buckets; states appear.
 *
 * graph -> dist. Each bucket of the plan is laid out flat (parameters aligned, padded to a multiple
 * of the ranks). At the head of the function one `gather` a bucket makes the whole available and a
 * `view` a parameter names its part; `shard` replaces these by the plan's intervals. Inputs,
 * per-step scalars, loss, norm and workspace become states; `loss_seed` becomes a view of the
 * scalars.
 *
 *   %y = linear %x, @w          %b = gather %b_shard
 *                        ->     %w = view %b            in %b+0
 *                               %y = linear %x, %w
 */
#include "passes/lower.h"

#include <string.h>

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    const FgMachine *machine;
    FgIdVec order; /* being written */
    uint32_t *map; /* parameter value -> its view; of the graph's n_values */
    uint32_t n_values;
    uint32_t scalars;
    bool any_gradient;
} Cx;

static const FgType *flat(FgModule *m, FgDtype dtype, uint64_t n)
{
    int64_t dim = (int64_t)n;
    return fg_type(m, dtype, 1, &dim);
}

static uint32_t bucket_state(Cx *cx, const char *bucket, const char *what, FgDtype dtype,
                             uint64_t n, FgRole role, uint32_t index, FgMemClass mem)
{
    const char *name = fg_arena_printf(cx->m->arena, "%s.%s", bucket, what);
    return fg_add_state(cx->m, name, flat(cx->m, dtype, n), role, index, mem);
}

static void add_states(Cx *cx, uint32_t index, FgBucket *b)
{
    uint64_t n = b->elements / cx->m->ranks;
    b->shard = bucket_state(cx, b->name, "shard", b->dtype, n, FG_ROLE_SHARD, index,
                            b->dtype == FG_F32 ? FG_MEM_MASTER : FG_MEM_PARAMETERS);
    b->master = b->moment1 = b->moment2 = b->grad_shard = FG_NO_ID;
    if (!b->trainable)
        return;
    if (b->dtype != FG_F32)
        b->master =
            bucket_state(cx, b->name, "master", FG_F32, n, FG_ROLE_MASTER, index, FG_MEM_MASTER);
    b->moment1 =
        bucket_state(cx, b->name, "m", FG_F32, n, FG_ROLE_MOMENT1, index, FG_MEM_OPTIMIZER);
    b->moment2 =
        bucket_state(cx, b->name, "v", FG_F32, n, FG_ROLE_MOMENT2, index, FG_MEM_OPTIMIZER);
    /* Pieces of a sharded table's gradient add up in f32. */
    FgDtype dtype = cx->m->params.data[b->params[0]].sharded ? FG_F32 : cx->m->numerics.shard;
    b->grad_shard =
        bucket_state(cx, b->name, "grad", dtype, n, FG_ROLE_GRAD_SHARD, index, FG_MEM_GRADIENTS);
}

static void make_bucket(Cx *cx, uint32_t index, const bool *gradient)
{
    FgModule *m = cx->m;
    const FgPlanBucket *plan = &m->plan->buckets.data[index];
    uint64_t *offsets = FG_NEW_ARRAY(cx->scratch, uint64_t, plan->n_params);
    FgBucket b = {.name = plan->name, .params = plan->params, .n_params = plan->n_params};
    b.elements = fg_bucket_layout(m, plan->params, plan->n_params, m->ranks, offsets);
    b.dtype = m->params.data[plan->params[0]].type->dtype;
    b.trainable = gradient[plan->params[0]];
    b.writes = FG_NO_ID;
    cx->any_gradient |= b.trainable;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        FgParam *p = &m->params.data[plan->params[i]];
        p->bucket = index;
        p->bucket_offset = offsets[i];
    }
    add_states(cx, index, &b);
    fg_vec_push(m->arena, &m->buckets, b);
}

/* The gather of one whole bucket and the views of its parameters, at the head of the function. */
static void gather_whole(Cx *cx, uint32_t index)
{
    FgModule *m = cx->m;
    const FgBucket *b = &m->buckets.data[index];
    FgBuilder build = {m, &cx->order, FG_NOWHERE, b->name, FG_PHASE_FORWARD, -1, FG_NO_ID};
    uint32_t whole = fg_add_value(m, b->name, flat(m, b->dtype, b->elements));
    fg_value(m, whole)->mem = FG_MEM_GATHERED;
    FgNode *node = fg_node_new(&build, FG_OP_gather, &b->shard, 1);
    node->bucket = index;
    fg_node_finish_into(&build, node, &whole, 1);
    for (uint32_t i = 0; i < b->n_params; i++) {
        const FgParam *p = &m->params.data[b->params[i]];
        uint32_t view = fg_add_value(m, p->name, p->type);
        FgValue *v = fg_value(m, view);
        v->root = whole;
        v->root_offset = p->bucket_offset * fg_dtype_bytes(b->dtype);
        v->mem = FG_MEM_GATHERED;
        build.name = p->name;
        build.loc = p->loc;
        node = fg_node_new(&build, FG_OP_view, &whole, 1);
        fg_node_finish_into(&build, node, &view, 1);
        cx->map[m->params.data[b->params[i]].value] = view;
    }
}

static void add_module_states(Cx *cx)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < m->inputs.len; i++) {
        FgValue *v = fg_value(m, m->inputs.data[i].value);
        v->kind = FG_VALUE_STATE;
        v->role = FG_ROLE_INPUT;
        v->index = i;
        v->mem = FG_MEM_INPUTS;
    }
    cx->scalars = fg_add_state(m, "scalars", flat(m, FG_F32, FG_SCALARS), FG_ROLE_SCALARS, 0,
                               FG_MEM_CONSTANTS);
    fg_add_state(m, "loss_sum", fg_type(m, FG_F64, 0, NULL), FG_ROLE_LOSS, 0, FG_MEM_CONSTANTS);
    if (cx->any_gradient)
        fg_add_state(m, "norm", flat(m, FG_I64, FG_NORM_LIMBS), FG_ROLE_NORM, 0, FG_MEM_CONSTANTS);
    if (cx->any_gradient && fg_scales_loss(&m->numerics))
        fg_add_state(m, "scaler", flat(m, FG_F64, FG_SCALER), FG_ROLE_SCALER, 0, FG_MEM_CONSTANTS);
    fg_add_state(m, "workspace", flat(m, FG_F32, cx->machine->workspace_bytes / 4),
                 FG_ROLE_WORKSPACE, 0, FG_MEM_WORKSPACE);
}

/* loss_seed has no memory of its own: it is one of the step's scalars. */
static void seed_to_view(Cx *cx, FgNode *node)
{
    uint32_t *operands = FG_NEW_ARRAY(cx->m->arena, uint32_t, 1);
    operands[0] = cx->scalars;
    node->op = FG_OP_view;
    node->operands = operands;
    node->n_operands = 1;
    FgValue *v = fg_value(cx->m, node->results[0]);
    v->root = cx->scalars;
    v->root_offset = FG_SEED_SLOT * sizeof(float);
    v->mem = FG_MEM_CONSTANTS;
}

static void copy_nodes(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < old->len; i++) {
        FgNode *node = fg_node(m, old->data[i]);
        if (node->op == FG_OP_loss_seed)
            seed_to_view(cx, node);
        uint32_t *operands = FG_NEW_ARRAY(m->arena, uint32_t, node->n_operands);
        for (uint32_t k = 0; k < node->n_operands; k++) {
            uint32_t v = node->operands[k];
            operands[k] = v < cx->n_values && cx->map[v] != FG_NO_ID ? cx->map[v] : v;
        }
        node->operands = operands;
        fg_vec_push(m->arena, &cx->order, old->data[i]);
    }
}

/* Numerics that only the graph and the number of ranks decide. */
static void decide_lookup(Cx *cx)
{
    FgModule *m = cx->m;
    m->numerics.lookup = FG_LOOKUP_DENSE;
    if (fg_sums_whole(&m->numerics))
        return; /* what adds up is the whole gradient, rows of lookups in it */
    const uint32_t *travels = fg_rows_travel(cx->scratch, m, m->ranks);
    for (uint32_t v = 0; v < m->values.len; v++)
        if (travels[v] != FG_NO_ID)
            m->numerics.lookup = FG_LOOKUP_ROWS;
}

static bool check_plan(const FgModule *m)
{
    if (!m->plan || m->plan->buckets.len == 0) {
        fg_diag(m->diags, FG_NOWHERE, FG_D_NO_PLAN,
                "the module has no plan: run plan{zero3} or plan{minimum} first");
        return false;
    }
    for (uint32_t i = 0; i < m->plan->buckets.len; i++) {
        const FgPlanBucket *b = &m->plan->buckets.data[i];
        for (uint32_t k = 0; k < b->n_params; k++) {
            if (b->params[k] >= m->params.len || m->params.data[b->params[k]].value == FG_NO_ID) {
                fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                        "bucket @%s names parameter %u, which the graph does not read", b->name,
                        b->params[k]);
                return false;
            }
            if ((b->offload & FG_OFFLOAD_PARAMETERS) && m->params.data[b->params[k]].sharded) {
                fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                        "bucket @%s holds '%s', which is sharded by rows: its slice is read where "
                        "it lies and cannot lie in host memory",
                        b->name, m->params.data[b->params[k]].name);
                return false;
            }
            if ((b->offload & FG_OFFLOAD_PARAMETERS) && b->travels) {
                fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                        "lookups of bucket @%s travel: its slice is read where it lies and cannot "
                        "lie in host memory",
                        b->name);
                return false;
            }
            if (b->n_params > 1 && m->params.data[b->params[k]].sharded) {
                fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                        "bucket @%s holds '%s', which is sharded by rows, beside others", b->name,
                        m->params.data[b->params[k]].name);
                return false;
            }
        }
    }
    return true;
}

FgPassResult fg_pass_bucket(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (!check_plan(m))
        return FG_PASS_FAILED;
    Cx cx = {.m = m, .scratch = pass->scratch, .machine = pass->machine};
    m->ranks = pass->machine->ranks;
    decide_lookup(&cx);
    cx.n_values = m->values.len;
    cx.map = FG_NEW_ARRAY(pass->scratch, uint32_t, cx.n_values + 1);
    memset(cx.map, 0xff, cx.n_values * sizeof *cx.map);
    bool *gradient = FG_NEW_ARRAY(pass->scratch, bool, m->params.len + 1);
    fg_params_with_gradient(m, gradient);
    for (uint32_t i = 0; i < m->plan->buckets.len; i++)
        make_bucket(&cx, i, gradient);
    add_module_states(&cx);
    for (uint32_t i = 0; i < m->buckets.len; i++)
        gather_whole(&cx, i);
    copy_nodes(&cx, &fg_func(m, "step")->order);
    fg_func(m, "step")->order = cx.order;
    for (uint32_t i = 0; i < m->params.len; i++)
        m->params.data[i].value = FG_NO_ID;
    m->level = FG_LEVEL_DIST;
    return FG_PASS_CHANGED;
}
