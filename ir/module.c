/* The module's tables: creation, values of every kind, functions, interned types, and the deep
 * copy.
 *
 * Ids are indices into growing tables and never move; everything lives in the module's arena. Types
 * are found by a search over the module's own list: a model has some dozens of distinct ones,
 * whatever its number of layers. */
#include "ir/ir.h"

#include <string.h>

FgModule *fg_module_new(FgArena *arena, FgDiags *diags, const char *name)
{
    FgModule *m = FG_NEW(arena, FgModule);
    m->arena = arena;
    m->intern = fg_intern_new(arena);
    m->diags = diags;
    m->name = fg_intern(m->intern, name);
    m->level = FG_LEVEL_GRAPH;
    m->numerics = (FgNumerics){
        FG_F32, FG_F32, FG_F32, 0.0, 1, FG_LOOKUP_DENSE, FG_VOCAB_GATHERED, 0, FG_IN_SLICE};
    m->loss = FG_NO_ID;
    return m;
}

const FgType *fg_type(FgModule *module, FgDtype dtype, uint32_t rank, const int64_t *dims)
{
    size_t bytes = rank * sizeof *dims;
    for (uint32_t i = 0; i < module->types.len; i++) {
        const FgType *t = module->types.data[i];
        if (t->dtype == dtype && t->rank == rank &&
            (rank == 0 || memcmp(t->dims, dims, bytes) == 0))
            return t;
    }
    FgType *t = FG_NEW(module->arena, FgType);
    int64_t *copy = FG_NEW_ARRAY(module->arena, int64_t, rank);
    if (rank)
        memcpy(copy, dims, bytes);
    *t = (FgType){dtype, rank, copy};
    fg_vec_push(module->arena, &module->types, t);
    return t;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* Names of values are printed in front of their id, so only plain characters stay. */
static const char *value_name(FgModule *module, const char *name)
{
    if (!name || !*name)
        return fg_intern(module->intern, "v");
    size_t plain = 0;
    while (is_plain(name[plain]))
        plain++;
    if (!name[plain])
        return fg_internn(module->intern, name, plain);
    char *copy = fg_arena_strdup(module->arena, name);
    for (char *p = copy + plain; *p; p++)
        *p = is_plain(*p) ? *p : '_';
    return fg_intern(module->intern, copy);
}

uint32_t fg_add_value(FgModule *module, const char *name, const FgType *type)
{
    uint32_t id = module->values.len;
    FG_ASSERT(id != FG_NO_ID);
    FgValue v = {.id = id,
                 .name = value_name(module, name),
                 .type = type,
                 .kind = FG_VALUE_RESULT,
                 .role = FG_ROLE_NONE,
                 .index = FG_NO_ID,
                 .def = FG_NO_ID,
                 .root = id,
                 .mem = FG_MEM_ACTIVATIONS,
                 .offset = FG_NO_OFFSET};
    fg_vec_push(module->arena, &module->values, v);
    return id;
}

uint32_t fg_add_param(FgModule *module, const FgParam *param)
{
    fg_vec_push(module->arena, &module->params, *param);
    FgParam *p = &module->params.data[module->params.len - 1];
    p->name = fg_intern(module->intern, param->name);
    const char **tied = FG_NEW_ARRAY(module->arena, const char *, param->n_tied);
    for (uint32_t i = 0; i < param->n_tied; i++)
        tied[i] = fg_intern(module->intern, param->tied[i]);
    p->tied = tied;
    p->value = FG_NO_ID;
    p->bucket = FG_NO_ID;
    p->bucket_offset = 0;
    return module->params.len - 1;
}

uint32_t fg_param_value(FgModule *module, uint32_t param)
{
    FG_ASSERT(param < module->params.len);
    const FgParam *p = &module->params.data[param];
    if (p->value != FG_NO_ID)
        return p->value;
    uint32_t id = fg_add_value(module, p->name, p->type);
    FgValue *v = fg_value(module, id);
    v->kind = FG_VALUE_PARAM;
    v->index = param;
    v->mem = FG_MEM_PARAMETERS;
    module->params.data[param].value = id;
    return id;
}

uint32_t fg_add_input(FgModule *module, const FgInput *input)
{
    uint32_t index = module->inputs.len;
    fg_vec_push(module->arena, &module->inputs, *input);
    uint32_t id = fg_add_value(module, input->name, input->type);
    FgValue *v = fg_value(module, id);
    v->kind = FG_VALUE_INPUT;
    v->index = index;
    v->mem = FG_MEM_INPUTS;
    FgInput *in = &module->inputs.data[index];
    in->name = fg_intern(module->intern, input->name);
    in->value = id;
    return index;
}

uint32_t fg_add_state(FgModule *module, const char *name, const FgType *type, FgRole role,
                      uint32_t index, FgMemClass mem)
{
    uint32_t id = fg_add_value(module, name, type);
    FgValue *v = fg_value(module, id);
    v->kind = FG_VALUE_STATE;
    v->role = role;
    v->index = index;
    v->mem = mem;
    return id;
}

FgFunc *fg_func(FgModule *module, const char *name)
{
    for (uint32_t i = 0; i < module->funcs.len; i++) {
        if (strcmp(module->funcs.data[i].name, name) == 0)
            return &module->funcs.data[i];
    }
    return NULL;
}

FgFunc *fg_add_func(FgModule *module, const char *name)
{
    FG_ASSERT(!fg_func(module, name));
    FgFunc f = {.name = fg_intern(module->intern, name)};
    fg_vec_push(module->arena, &module->funcs, f);
    return &module->funcs.data[module->funcs.len - 1];
}

/* ---- names of the enumerations ---- */
const char *fg_level_name(FgLevel level)
{
    static const char *const names[] = {"graph", "dist", "sched"};
    return names[level];
}

const char *fg_phase_name(FgPhase phase)
{
    static const char *const names[] = {"start", "forward", "backward", "update"};
    return names[phase];
}

const char *fg_stream_name(FgStream stream)
{
    static const char *const names[] = {"compute", "gather", "reduce", "copy", "stash", "fetch"};
    return names[stream];
}

const char *fg_offload_name(FgOffload one)
{
    return one == FG_OFFLOAD_OPTIMIZER    ? "optimizer"
           : one == FG_OFFLOAD_PARAMETERS ? "parameters"
                                          : "activations";
}

const char *fg_mem_class_name(FgMemClass mem)
{
    static const char *const names[] = {"parameters", "master",    "optimizer",
                                        "gathered",   "gradients", "activations",
                                        "workspace",  "inputs",    "constants"};
    return names[mem];
}

const char *fg_role_name(FgRole role)
{
    static const char *const names[] = {
        "none",  "shard", "master",  "moment1", "moment2", "grad_shard", "gathered", "grad_whole",
        "input", "table", "scalars", "norm",    "loss",    "scaler",     "workspace"};
    return names[role];
}
