/* Rules of the module's tables, and of the place of a value. */
#include "ir/verify.h"

#include <inttypes.h>
#include <string.h>

static void verify_bound(FgVerifier *v, FgLoc loc, const char *what, const char *name, uint32_t id,
                         const FgType *type)
{
    if (id == FG_NO_ID)
        return;
    if (!fg_verify_is_value(v, id))
        fg_verify_fail(v, loc, "%s '%s' is bound to a value that is not there", what, name);
    else if (v->m->values.data[id].type != type)
        fg_verify_fail(v, loc, "%s '%s' is %s, its value %s", what, name,
                       fg_verify_type_text(v, type),
                       fg_verify_type_text(v, v->m->values.data[id].type));
}

static void verify_names(FgVerifier *v)
{
    FgMap names;
    fg_map_init(&names, v->scratch);
    for (uint32_t i = 0; i < v->m->params.len; i++) {
        const FgParam *p = &v->m->params.data[i];
        if (!fg_map_add(&names, p->name, i))
            fg_verify_fail(v, p->loc, "two parameters are called '%s'", p->name);
    }
}

static void verify_param(FgVerifier *v, const FgParam *p)
{
    verify_bound(v, p->loc, "parameter", p->name, p->value, p->type);
    if (!fg_dtype_is_float(p->type->dtype))
        fg_verify_fail(v, p->loc, "parameter '%s' is not of a float type", p->name);
    if (v->m->level == FG_LEVEL_GRAPH) {
        if (p->bucket != FG_NO_ID)
            fg_verify_fail(v, p->loc, "parameter '%s' has a bucket at graph level", p->name);
    } else if (p->bucket != FG_NO_ID && p->bucket >= v->m->buckets.len) {
        fg_verify_fail(v, p->loc, "parameter '%s' lies in bucket %u, which is not there", p->name,
                       p->bucket);
    }
}

/* ---- buckets ---- */
static void verify_bucket_state(FgVerifier *v, uint32_t index, uint32_t id, FgRole role,
                                FgDtype dtype)
{
    const FgBucket *b = &v->m->buckets.data[index];
    if (id == FG_NO_ID)
        return;
    const FgValue *s = fg_verify_is_value(v, id) ? &v->m->values.data[id] : NULL;
    if (!s || s->kind != FG_VALUE_STATE || s->role != role || s->index != index) {
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s': its %s is no such state", b->name,
                       fg_role_name(role));
        return;
    }
    uint64_t slice = v->m->ranks ? b->elements / v->m->ranks : 0;
    uint64_t elements = (uint64_t)fg_type_elements(s->type);
    bool parts = role == FG_ROLE_GRAD_SHARD && elements == b->elements; /* of all ranks */
    if (s->type->dtype != dtype || (elements != slice && !parts))
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s': its %s is %s, not %s[%" PRIu64 "]", b->name,
                       fg_role_name(role), fg_verify_type_text(v, s->type), fg_dtype_name(dtype),
                       slice);
}

static void verify_bucket_params(FgVerifier *v, uint32_t index)
{
    const FgBucket *b = &v->m->buckets.data[index];
    uint64_t end = 0;
    for (uint32_t i = 0; i < b->n_params; i++) {
        if (b->params[i] >= v->m->params.len) {
            fg_verify_fail(v, FG_NOWHERE, "bucket '%s' names parameter %u, which is not there",
                           b->name, b->params[i]);
            return;
        }
        const FgParam *p = &v->m->params.data[b->params[i]];
        uint64_t n = (uint64_t)fg_type_elements(p->type);
        if (p->bucket != index)
            fg_verify_fail(v, p->loc, "parameter '%s' and bucket '%s' do not agree", p->name,
                           b->name);
        else if (p->bucket_offset < end)
            fg_verify_fail(v, p->loc, "parameter '%s' overlaps the one before it in bucket '%s'",
                           p->name, b->name);
        else if (p->bucket_offset > b->elements || n > b->elements - p->bucket_offset)
            fg_verify_fail(v, p->loc, "parameter '%s' does not lie inside bucket '%s'", p->name,
                           b->name);
        else if (p->type->dtype != b->dtype)
            fg_verify_fail(v, p->loc, "parameter '%s' is not of the type of bucket '%s'", p->name,
                           b->name);
        else
            end = p->bucket_offset + n;
    }
}

/* A sharded table is alone in its bucket, and a slice is whole rows of it. */
static void verify_sharded(FgVerifier *v, const FgBucket *b)
{
    const FgType *type = v->m->params.data[b->params[0]].type;
    uint64_t row = (uint64_t)(fg_type_elements(type) / type->dims[0]);
    if (b->n_params != 1 || b->elements / v->m->ranks % row != 0)
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s' is sharded by rows, and has no whole ones",
                       b->name);
}

static void verify_bucket(FgVerifier *v, uint32_t index)
{
    const FgBucket *b = &v->m->buckets.data[index];
    if (v->m->ranks == 0 || b->elements == 0 || b->elements % v->m->ranks != 0) {
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s' has %" PRIu64 " elements for %u ranks", b->name,
                       b->elements, v->m->ranks);
        return;
    }
    verify_bucket_params(v, index);
    if (b->shard == FG_NO_ID)
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s' has no shard", b->name);
    bool moments = b->moment1 != FG_NO_ID && b->moment2 != FG_NO_ID && b->grad_shard != FG_NO_ID;
    bool none = b->moment1 == FG_NO_ID && b->moment2 == FG_NO_ID && b->grad_shard == FG_NO_ID &&
                b->master == FG_NO_ID;
    if (b->trainable ? !moments : !none)
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s' is%s trainable, and its states do not fit that",
                       b->name, b->trainable ? "" : " not");
    if (b->writes != FG_NO_ID && (b->writes > 0 || b->lookups > 0) != b->trainable)
        fg_verify_fail(v, FG_NOWHERE, "bucket '%s' is%s trainable, and its gradient has %u parts",
                       b->name, b->trainable ? "" : " not", b->writes + b->lookups);
    verify_bucket_state(v, index, b->shard, FG_ROLE_SHARD, b->dtype);
    verify_bucket_state(v, index, b->master, FG_ROLE_MASTER, FG_F32);
    verify_bucket_state(v, index, b->moment1, FG_ROLE_MOMENT1, FG_F32);
    verify_bucket_state(v, index, b->moment2, FG_ROLE_MOMENT2, FG_F32);
    bool sharded = b->n_params > 0 && b->params[0] < v->m->params.len &&
                   v->m->params.data[b->params[0]].sharded;
    verify_bucket_state(v, index, b->grad_shard, FG_ROLE_GRAD_SHARD,
                        sharded ? FG_F32 : v->m->numerics.shard);
    if (sharded)
        verify_sharded(v, b);
}

/* ---- plan ---- */
static void verify_recomputed(FgVerifier *v, const FgPlan *plan)
{
    const FgIdVec *nodes = &plan->recomputed;
    if (plan->recompute != FG_RECOMPUTE_SELECTIVE && nodes->len > 0)
        fg_verify_fail(v, FG_NOWHERE, "the plan names nodes to recompute, but not selectively");
    for (uint32_t i = 0; i < nodes->len; i++)
        if (nodes->data[i] >= v->m->nodes.len || (i > 0 && nodes->data[i - 1] >= nodes->data[i]))
            fg_verify_fail(v, FG_NOWHERE,
                           "the plan recomputes #%u, which is no node or out of order",
                           nodes->data[i]);
}

static void verify_plan(FgVerifier *v)
{
    const FgPlan *plan = v->m->plan;
    if (!plan)
        return;
    FgMap names;
    fg_map_init(&names, v->scratch);
    verify_recomputed(v, plan);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        const FgPlanBucket *b = &plan->buckets.data[i];
        if (!fg_map_add(&names, b->name, i))
            fg_verify_fail(v, FG_NOWHERE, "two buckets of the plan are called '%s'", b->name);
        for (uint32_t k = 0; k < b->n_params; k++) {
            if (b->params[k] >= v->m->params.len)
                fg_verify_fail(v, FG_NOWHERE, "the plan's bucket '%s' names no parameter by %u",
                               b->name, b->params[k]);
        }
    }
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        const FgPlanGather *g = &plan->gathers.data[i];
        if (g->bucket >= plan->buckets.len || g->first_use > g->last_use)
            fg_verify_fail(v, FG_NOWHERE, "gather %u of the plan has no bucket or no uses", i);
    }
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        if (plan->buckets.data[i].pieces < 1)
            fg_verify_fail(v, FG_NOWHERE,
                           "the states of the plan's bucket '%s' travel in no pieces",
                           plan->buckets.data[i].name);
    for (uint32_t i = 1; i < plan->stashes.len; i++)
        if (plan->stashes.data[i].value <= plan->stashes.data[i - 1].value)
            fg_verify_fail(v, FG_NOWHERE, "stash %u of the plan is out of order", i);
}

/* ---- values ---- */
static bool is_grad_shard(const FgValue *x)
{
    return x->kind == FG_VALUE_STATE && x->role == FG_ROLE_GRAD_SHARD;
}

/* A whole copy of a bucket, or its whole gradient, that several functions share. */
static bool is_carried(const FgValue *x)
{
    return x->kind == FG_VALUE_STATE &&
           (x->role == FG_ROLE_GATHERED || x->role == FG_ROLE_GRADIENTS);
}

/* Addresses, once memplan has given them: states below state_bytes, the rest in the arena above,
 * carried copies among it; gradient shards may lie in either. */
static void verify_address(FgVerifier *v, FgLoc loc, const FgValue *x)
{
    const FgModule *m = v->m;
    uint64_t bytes = fg_type_bytes(x->type), end = m->state_bytes + m->arena_bytes;
    if (m->level != FG_LEVEL_SCHED || end == 0)
        return;
    if (x->offset == FG_NO_OFFSET) {
        fg_verify_fail(v, loc, "%s has no address", fg_verify_value_text(v, x->id));
        return;
    }
    bool arena = x->kind != FG_VALUE_STATE || is_carried(x);
    uint64_t low = arena ? m->state_bytes : 0;
    uint64_t high = arena || is_grad_shard(x) ? end : m->state_bytes;
    if (x->host) {
        low = FG_HOST_BASE + (x->kind == FG_VALUE_STATE ? 0 : m->host_state_bytes);
        high = FG_HOST_BASE + m->host_state_bytes +
               (x->kind == FG_VALUE_STATE ? 0 : m->host_arena_bytes);
    }
    if (x->offset < low || x->offset > high || bytes > high - x->offset)
        fg_verify_fail(v, loc,
                       "%s lies at %" PRIu64 " with %" PRIu64 " bytes, outside [%" PRIu64
                       ", %" PRIu64 ")",
                       fg_verify_value_text(v, x->id), x->offset, bytes, low, high);
}

static void verify_carried(FgVerifier *v, const FgValue *x)
{
    const FgBucket *b = x->index < v->m->buckets.len ? &v->m->buckets.data[x->index] : NULL;
    FgDtype dtype = !b || x->role == FG_ROLE_GRADIENTS ? v->m->numerics.wire : b->dtype;
    if (!b || x->type->dtype != dtype || (uint64_t)fg_type_elements(x->type) != b->elements)
        fg_verify_fail(v, FG_NOWHERE, "%s is no whole copy of a bucket",
                       fg_verify_value_text(v, x->id));
}

/* States whose types are the runtime's, or an input's. */
static void verify_state_type(FgVerifier *v, const FgValue *x)
{
    static const struct {
        FgRole role;
        FgDtype dtype;
        uint32_t rank;
        int64_t n;
    } types[] = {{FG_ROLE_SCALARS, FG_F32, 1, FG_SCALARS},
                 {FG_ROLE_NORM, FG_I64, 1, FG_NORM_LIMBS},
                 {FG_ROLE_LOSS, FG_F64, 0, 1},
                 {FG_ROLE_SCALER, FG_F64, 1, FG_SCALER}};
    const FgModule *m = v->m;
    bool fits = true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        fits = fits && (types[i].role != x->role ||
                        (x->type->dtype == types[i].dtype && x->type->rank == types[i].rank &&
                         fg_type_elements(x->type) == types[i].n));
    if (x->role == FG_ROLE_INPUT)
        fits = x->index < m->inputs.len && m->inputs.data[x->index].type == x->type;
    if (!fits)
        fg_verify_fail(v, FG_NOWHERE, "%s is %s, which is no state '%s'",
                       fg_verify_value_text(v, x->id), fg_verify_type_text(v, x->type),
                       fg_role_name(x->role));
}

static void verify_states(FgVerifier *v)
{
    for (uint32_t i = 0; i < v->m->values.len; i++) {
        const FgValue *x = &v->m->values.data[i];
        if (x->kind != FG_VALUE_STATE)
            continue;
        if (v->m->level == FG_LEVEL_GRAPH)
            fg_verify_fail(v, FG_NOWHERE, "%s: there are no states at graph level",
                           fg_verify_value_text(v, i));
        if (x->root != i || x->root_offset != 0)
            fg_verify_fail(v, FG_NOWHERE, "state %s does not own its memory",
                           fg_verify_value_text(v, i));
        if (is_carried(x))
            verify_carried(v, x);
        else
            verify_state_type(v, x);
        if (x->offset != FG_NO_OFFSET || !is_grad_shard(x))
            verify_address(v, FG_NOWHERE, x);
    }
}

/* What lies in a gradient buffer is the gradient of one of its bucket's parameters. */
static void verify_slice(FgVerifier *v, const FgNode *node, const FgValue *x, const FgValue *root)
{
    const FgModule *m = v->m;
    const FgNode *def = root->kind == FG_VALUE_RESULT && root->def < m->nodes.len
                            ? &m->nodes.data[root->def]
                            : NULL;
    bool buffer = def ? def->op == FG_OP_grad_buffer : root->role == FG_ROLE_GRADIENTS;
    uint32_t bucket = def ? def->bucket : root->index;
    uint64_t size = fg_dtype_bytes(root->type->dtype);
    if (!buffer || bucket >= m->buckets.len)
        return;
    const FgBucket *b = &m->buckets.data[bucket];
    bool found = false;
    for (uint32_t i = 0; i < b->n_params && !found; i++) {
        const FgParam *p = b->params[i] < m->params.len ? &m->params.data[b->params[i]] : NULL;
        found = p && p->bucket_offset * size == x->root_offset && p->type->rank == x->type->rank;
        for (uint32_t k = 0; found && k < p->type->rank; k++)
            found = p->type->dims[k] == x->type->dims[k];
    }
    if (!found)
        fg_verify_fail_node(v, node, "%s in %s is the gradient of no parameter",
                            fg_verify_value_text(v, x->id), fg_verify_value_text(v, root->id));
}

void fg_verify_value_place(FgVerifier *v, const FgNode *node, const FgValue *value)
{
    if (value->root == value->id) {
        if (value->root_offset != 0)
            fg_verify_fail_node(v, node, "%s is its own root at an offset",
                                fg_verify_value_text(v, value->id));
        verify_address(v, node->loc, value);
        return;
    }
    if (!fg_verify_is_value(v, value->root)) {
        fg_verify_fail_node(v, node, "the root of %s is not there",
                            fg_verify_value_text(v, value->id));
        return;
    }
    const FgValue *root = &v->m->values.data[value->root];
    uint64_t room = fg_type_bytes(root->type), bytes = fg_type_bytes(value->type);
    const char *name = fg_verify_value_text(v, value->id),
               *root_name = fg_verify_value_text(v, root->id);
    if (v->m->level == FG_LEVEL_GRAPH)
        fg_verify_fail_node(v, node, "%s lies in another value at graph level", name);
    if (root->root != root->id)
        fg_verify_fail_node(v, node, "%s, the root of %s, lies in another value itself", root_name,
                            name);
    if (value->root_offset > room || bytes > room - value->root_offset)
        fg_verify_fail_node(v, node, "%s lies outside its root %s", name, root_name);
    if (value->type->dtype != root->type->dtype)
        fg_verify_fail_node(v, node, "%s lies in %s, which is of another type", name, root_name);
    verify_slice(v, node, value, root);
    if (root->kind == FG_VALUE_RESULT && v->made_in[root->id] != v->func + 1)
        fg_verify_fail_node(v, node, "%s, the root of %s, is not made before in this function",
                            root_name, name);
    if (value->offset != FG_NO_OFFSET)
        fg_verify_fail_node(v, node, "%s has an address of its own beside its root", name);
}

void fg_verify_tables(FgVerifier *v)
{
    const FgModule *m = v->m;
    verify_names(v);
    for (uint32_t i = 0; i < m->params.len; i++)
        verify_param(v, &m->params.data[i]);
    for (uint32_t i = 0; i < m->inputs.len; i++) {
        const FgInput *in = &m->inputs.data[i];
        verify_bound(v, in->loc, "input", in->name, in->value, in->type);
    }
    if (m->level != FG_LEVEL_GRAPH && m->ranks == 0)
        fg_verify_fail(v, FG_NOWHERE, "a module below graph level has at least one rank");
    if (m->level == FG_LEVEL_GRAPH && m->buckets.len > 0)
        fg_verify_fail(v, FG_NOWHERE, "there are no buckets at graph level");
    if (m->numerics.accumulate < 1 || !(m->numerics.clip >= 0) || m->numerics.chunk < 0)
        fg_verify_fail(v, FG_NOWHERE,
                       "numerics: accumulate is at least 1, clip and chunk at least 0");
    for (uint32_t i = 0; i < m->buckets.len && m->level != FG_LEVEL_GRAPH; i++)
        verify_bucket(v, i);
    verify_plan(v);
    verify_states(v);
    if (m->loss != FG_NO_ID &&
        (!fg_verify_is_value(v, m->loss) || fg_type_elements(m->values.data[m->loss].type) != 1 ||
         !fg_dtype_is_float(m->values.data[m->loss].type->dtype)))
        fg_verify_fail(v, FG_NOWHERE, "the loss is no scalar");
}
