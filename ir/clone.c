/* Copies of a module in another arena: same ids, diagnostics shared. A clone has everything of its
 * own, types and names interned anew, types in their old position. Plans are tried on forks, which
 * share types and names with what they were made of: one walk over the tables and no searching. */
#include "ir/op_table.h"

#include <string.h>

typedef struct Clone {
    const FgModule *from;
    FgModule *to;
    bool fork, nodes_too; /* what is shared */
} Clone;

static const char *text(Clone *c, const char *s)
{
    return s && !c->fork ? fg_intern(c->to->intern, s) : s;
}

static void *copy(Clone *c, const void *data, size_t n, size_t size)
{
    void *out = fg_arena_alloc_array(c->to->arena, n, size);
    if (n)
        memcpy(out, data, n * size);
    return out;
}

/* Copies a vector as it is; pointers inside its elements are mended by the caller. */
#define COPY_VEC(c, field)                                                                         \
    do {                                                                                           \
        (c)->to->field.data =                                                                      \
            copy((c), (c)->from->field.data, (c)->from->field.len, sizeof *(c)->from->field.data); \
        (c)->to->field.len = (c)->to->field.cap = (c)->from->field.len;                            \
    } while (0)

static const FgType *type(Clone *c, const FgType *t)
{
    return t && !c->fork ? fg_type(c->to, t->dtype, t->rank, t->dims) : t;
}

static void clone_types(Clone *c)
{
    if (c->fork) {
        COPY_VEC(c, types);
        return;
    }
    for (uint32_t i = 0; i < c->from->types.len; i++)
        type(c, c->from->types.data[i]);
}

static void clone_params(Clone *c)
{
    COPY_VEC(c, params);
    for (uint32_t i = 0; i < c->to->params.len; i++) {
        FgParam *p = &c->to->params.data[i];
        p->name = text(c, p->name);
        p->type = type(c, p->type);
        const char **tied = copy(c, p->tied, p->n_tied, sizeof *tied);
        for (uint32_t k = 0; k < p->n_tied; k++)
            tied[k] = text(c, tied[k]);
        p->tied = tied;
    }
}

static void clone_tables(Clone *c)
{
    COPY_VEC(c, inputs);
    for (uint32_t i = 0; i < c->to->inputs.len; i++) {
        FgInput *in = &c->to->inputs.data[i];
        in->name = text(c, in->name);
        in->type = type(c, in->type);
    }
    COPY_VEC(c, buckets);
    for (uint32_t i = 0; i < c->to->buckets.len; i++) {
        FgBucket *b = &c->to->buckets.data[i];
        b->name = text(c, b->name);
        b->params = copy(c, b->params, b->n_params, sizeof *b->params);
    }
    COPY_VEC(c, values);
    for (uint32_t i = 0; i < c->to->values.len; i++) {
        FgValue *v = &c->to->values.data[i];
        v->name = text(c, v->name);
        v->type = type(c, v->type);
    }
    COPY_VEC(c, funcs);
    for (uint32_t i = 0; i < c->to->funcs.len; i++) {
        FgFunc *f = &c->to->funcs.data[i];
        f->name = text(c, f->name);
        f->order.data = copy(c, f->order.data, f->order.len, sizeof *f->order.data);
        f->order.cap = f->order.len;
    }
}

static void clone_nodes(Clone *c)
{
    COPY_VEC(c, nodes);
    for (uint32_t i = 0; i < c->to->nodes.len && !c->nodes_too; i++) {
        FgNode *n = &c->to->nodes.data[i];
        n->operands = copy(c, n->operands, n->n_operands, sizeof *n->operands);
        n->results = copy(c, n->results, n->n_results, sizeof *n->results);
        n->waits = copy(c, n->waits, n->n_waits, sizeof *n->waits);
        n->name = text(c, n->name);
        uint32_t n_attrs = n->attrs ? fg_op_info(n->op)->n_attrs : 0;
        n->attrs = copy(c, n->attrs, n_attrs, sizeof *n->attrs);
        for (uint32_t k = 0; k < n_attrs; k++) {
            n->attrs[k].word = text(c, n->attrs[k].word);
            n->attrs[k].ints = copy(c, n->attrs[k].ints, n->attrs[k].n_ints, sizeof(int64_t));
        }
    }
}

static FgPlan *clone_plan(Clone *c, const FgPlan *from)
{
    if (!from)
        return NULL;
    FgPlan *plan = FG_NEW(c->to->arena, FgPlan);
    *plan = *from;
    plan->name = text(c, from->name);
    plan->recomputed.data = copy(c, from->recomputed.data, from->recomputed.len, sizeof(uint32_t));
    plan->recomputed.cap = from->recomputed.len;
    plan->buckets.data = copy(c, from->buckets.data, from->buckets.len, sizeof *from->buckets.data);
    plan->buckets.cap = from->buckets.len;
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        FgPlanBucket *b = &plan->buckets.data[i];
        b->name = text(c, b->name);
        b->params = copy(c, b->params, b->n_params, sizeof *b->params);
    }
    plan->gathers.data = copy(c, from->gathers.data, from->gathers.len, sizeof *from->gathers.data);
    plan->gathers.cap = from->gathers.len;
    plan->stashes.data = copy(c, from->stashes.data, from->stashes.len, sizeof *from->stashes.data);
    plan->stashes.cap = from->stashes.len;
    return plan;
}

static FgModule *make_copy(const FgModule *module, FgArena *arena, bool fork, bool nodes_too)
{
    Clone c = {module, fg_module_new(arena, module->diags, module->name), fork, nodes_too};
    if (fork)
        c.to->intern = fg_intern_above(arena, module->intern);
    c.to->text_source = module->text_source;
    c.to->level = module->level;
    c.to->ranks = module->ranks;
    c.to->numerics = module->numerics;
    c.to->loss = module->loss;
    c.to->state_bytes = module->state_bytes;
    c.to->arena_bytes = module->arena_bytes;
    c.to->host_state_bytes = module->host_state_bytes;
    c.to->host_arena_bytes = module->host_arena_bytes;
    clone_types(&c);
    clone_params(&c);
    clone_tables(&c);
    clone_nodes(&c);
    c.to->plan = clone_plan(&c, module->plan);
    return c.to;
}

FgModule *fg_module_clone(const FgModule *module, FgArena *arena)
{
    return make_copy(module, arena, false, false);
}

FgModule *fg_module_fork(const FgModule *module, FgArena *arena, bool nodes_too)
{
    return make_copy(module, arena, true, nodes_too);
}
