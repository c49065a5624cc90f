/* The checker against broken schedules: compiled schedules of random models, each broken in every
 * way of a kind, one at a time. A mutant that passes is a hole in the proof; a right schedule that
 * does not is a false alarm. */
#include "../unit/unit.h"

#include "frontend/model.h"
#include "ir/op_table.h"
#include "ir/text.h"
#include "passes/compile.h"
#include "passes/liveness.h"
#include "random_model.h"

#define MODELS 24
#define KEPT 150 /* mutants of one kind a model; of more, every n-th */

typedef struct Case {
    FgArena *arena, *scratch;
    FgModule *module;
    uint64_t seed;
    uint32_t mutants;
    uint32_t types, every; /* changes of types, of which every n-th is tried */
    int *failures;
} Case;

/* The machine's figures only need to make prefetching worth while. */
static FgMachine some_machine(FgArena *arena, uint32_t ranks)
{
    FgMachine m = {.name = "some",
                   .ranks = ranks,
                   .ranks_per_node = ranks,
                   .memory_bytes = 1u << 30,
                   .workspace_bytes = 4096,
                   .matmul_f32 = 2e8,
                   .matmul_bf16 = 2e8,
                   .matmul_f16 = 2e8,
                   .vector_flops = 1e8,
                   .memory_rate = 1e8,
                   .launch_seconds = 1e-6,
                   .compute_beside_gather = 0.9,
                   .compute_beside_reduce = 0.8,
                   .gather_beside_compute = 0.6,
                   .reduce_beside_compute = 0.6,
                   .gather_beside_reduce = 0.5,
                   .reduce_beside_gather = 0.5};
    FgCurvePoint points[] = {{0, 2e-6}, {1e3, 1e-5}, {1e6, 5e-3}};
    for (int i = 0; i < 3; i++) {
        fg_vec_push(arena, &m.gather, points[i]);
        fg_vec_push(arena, &m.reduce, points[i]);
    }
    return m;
}

static bool begin(Case *c, uint64_t seed, int *failures)
{
    *c = (Case){fg_arena_new(), fg_arena_new(), NULL, seed, 0, 0, 1, failures};
    Random random = {seed};
    FgDiags *diags = fg_diags_new(c->arena);
    FgNumerics numerics = {FG_F32,
                           FG_F32,
                           FG_F32,
                           random_below(&random, 2) ? 1.0 : 0.0,
                           1 + random_below(&random, 4),
                           FG_LOOKUP_DENSE,
                           random_below(&random, 2) ? FG_VOCAB_SHARDED : FG_VOCAB_GATHERED,
                           1 + random_below(&random, 9),
                           seed % 3 == 1 ? FG_IN_WHOLE : FG_IN_SLICE};
    if (seed % 5 == 0)
        numerics.compute = numerics.wire = FG_F16;
    if (seed % 5 == 2)
        numerics.compute = numerics.wire = FG_BF16;
    FgMachine machine = some_machine(c->arena, 1 + random_below(&random, 3));
    FgModelOptions options = {.numerics = numerics};
    FgCompileOptions how = {.schedule = (FgSchedule)(seed % 3),
                            .recompute = (FgRecompute)random_below(&random, FG_RECOMPUTE_AUTO + 1),
                            .memory_bytes = UINT64_MAX,
                            .reduce = seed % 2 ? FG_REDUCE_PARTS : FG_REDUCE_AUTO,
                            .offload = seed % 4 == 3 ? 1 + (uint32_t)(seed / 4) % 7 : 0};
    machine.host_node_bytes = (uint64_t)1 << 30;
    machine.stash = machine.fetch = machine.gather;
    FgCompiled out = {0};
    const char *text = random_model(c->arena, seed);
    FgModule *graph = fg_model_parse(c->arena, diags, "random.json", text, strlen(text), &options);
    bool ok = graph && fg_compile(c->arena, graph, &machine, &numerics, &how, &out) && out.module;
    if (!ok) {
        FgBuf said;
        fg_buf_init(&said, c->arena);
        fg_diags_render(diags, &said);
        printf("model %llu does not compile:\n%s\n", (unsigned long long)seed, fg_buf_text(&said));
        ++*failures;
        return false;
    }
    c->module = out.module;
    return true;
}

static void end(Case *c)
{
    fg_arena_free(c->arena);
    fg_arena_free(c->scratch);
}

static bool passes(Case *c)
{
    FgProof proof;
    fg_arena_reset(c->scratch);
    c->module->diags = fg_diags_new(c->scratch);
    return fg_check(c->scratch, c->module, UINT64_MAX, &proof);
}

/* The module as it stands is broken: it must not pass. */
static void must_fail(Case *c, const char *what, const FgNode *node)
{
    c->mutants++;
    if (!passes(c))
        return;
    printf("model %llu: passed although %s: #%u %s (%s)\n", (unsigned long long)c->seed, what,
           node->id, fg_op_info(node->op)->name, node->name);
    ++*c->failures;
}

/* ---- waits: none is implied by others ---- */
static void drop_waits(Case *c)
{
    for (uint32_t i = 0; i < c->module->nodes.len; i++) {
        FgNode *node = &c->module->nodes.data[i];
        const uint32_t *waits = node->waits;
        uint32_t n = node->n_waits, kept[64];
        for (uint32_t k = 0; k < n && n <= 64; k++) {
            memcpy(kept, waits, n * sizeof *kept);
            kept[k] = kept[n - 1];
            node->waits = kept;
            node->n_waits = n - 1;
            must_fail(c, "a wait was dropped", node);
        }
        node->waits = waits;
        node->n_waits = n;
    }
}

/* ---- nodes ---- */

/* What the proof does not demand: the loss is a report, holds and late releases of gradient buffers
 * are slack, and without clipping so is the norm. */
static bool is_needed(const FgModule *module, const FgNode *node)
{
    if (node->op == FG_OP_loss_add || node->op == FG_OP_hold)
        return false;
    if (node->op == FG_OP_release) {
        const FgValue *copy = &module->values.data[node->operands[0]];
        return copy->kind == FG_VALUE_STATE || module->nodes.data[copy->def].op == FG_OP_gather;
    }
    if (node->op == FG_OP_clip_factor)
        return module->numerics.clip > 0.0;
    if (node->op == FG_OP_all_reduce)
        return module->ranks > 1;
    if (node->n_results == 0 || (fg_op_info(node->op)->flags & (FG_OPF_EFFECT | FG_OPF_VIEW)))
        return !(fg_op_info(node->op)->flags & FG_OPF_VIEW);
    for (uint32_t i = 0; i < module->nodes.len; i++) { /* is one of its results read? */
        const FgNode *user = &module->nodes.data[i];
        for (uint32_t k = 0; k < user->n_operands; k++)
            for (uint32_t r = 0; r < node->n_results; r++)
                if (user->operands[k] == node->results[r] &&
                    !(fg_op_info(user->op)->flags & FG_OPF_VIEW) && user->op != FG_OP_hold)
                    return true;
    }
    return module->values.data[node->results[0]].root != node->results[0]; /* a gradient's slice */
}

/* The clock's own graph must stay whole: nobody waits for the node. */
static bool is_awaited(const FgModule *module, uint32_t id)
{
    for (uint32_t i = 0; i < module->nodes.len; i++)
        for (uint32_t k = 0; k < module->nodes.data[i].n_waits; k++)
            if (module->nodes.data[i].waits[k] == id)
                return true;
    return false;
}

static void drop_nodes(Case *c)
{
    for (uint32_t f = 0; f < c->module->funcs.len; f++) {
        FgIdVec *order = &c->module->funcs.data[f].order;
        uint32_t every = order->len / KEPT + 1;
        for (uint32_t i = 0; i < order->len; i += every) {
            uint32_t id = order->data[i];
            const FgNode *node = &c->module->nodes.data[id];
            if (is_awaited(c->module, id) || !is_needed(c->module, node))
                continue;
            size_t rest = (order->len - i - 1) * sizeof *order->data;
            memmove(order->data + i, order->data + i + 1, rest);
            order->len--;
            must_fail(c, "it was dropped", node);
            memmove(order->data + i + 1, order->data + i, rest);
            order->data[i] = id;
            order->len++;
        }
    }
}

static bool reads_of(const FgModule *module, const FgNode *user, const FgNode *maker)
{
    if (user->op == FG_OP_hold || (fg_op_info(user->op)->flags & FG_OPF_VIEW) ||
        (fg_op_info(maker->op)->flags & FG_OPF_VIEW))
        return false;
    for (uint32_t k = 0; k < user->n_operands; k++)
        for (uint32_t r = 0; r < maker->n_results; r++)
            if (user->operands[k] == maker->results[r] && user->operands[k] != FG_NO_ID &&
                module->values.data[user->operands[k]].kind == FG_VALUE_RESULT)
                return true;
    return false;
}

/* A node before the one that makes what it reads. */
static void swap_neighbours(Case *c)
{
    for (uint32_t f = 0; f < c->module->funcs.len; f++) {
        FgIdVec *order = &c->module->funcs.data[f].order;
        for (uint32_t i = 1; i < order->len; i++) {
            uint32_t a = order->data[i - 1], b = order->data[i];
            if (!reads_of(c->module, &c->module->nodes.data[b], &c->module->nodes.data[a]))
                continue;
            order->data[i - 1] = b;
            order->data[i] = a;
            must_fail(c, "it was issued before what it reads", &c->module->nodes.data[b]);
            order->data[i - 1] = a;
            order->data[i] = b;
        }
    }
}

/* ---- addresses ---- */
static bool meet(const FgInterval *a, const FgInterval *b)
{
    if (a->begin <= a->end && b->begin <= b->end)
        return a->begin <= b->end && b->begin <= a->end;
    if (a->begin > a->end && b->begin > b->end)
        return true;
    const FgInterval *wraps = a->begin > a->end ? a : b, *plain = wraps == a ? b : a;
    return plain->begin <= wraps->end || plain->end >= wraps->begin;
}

/* Lives that only a hold stretches may be cut: a hold is slack. */
static bool is_held(const FgModule *module, uint32_t value)
{
    for (uint32_t i = 0; i < module->nodes.len; i++)
        if (module->nodes.data[i].op == FG_OP_hold &&
            module->values.data[module->nodes.data[i].operands[0]].root == value)
            return true;
    return false;
}

/* A gradient slice that is updated in parts, or what a head reads in pieces: the first of its bytes
 * are free before the last. */
static bool is_parted(const FgModule *module, const FgValue *value)
{
    for (uint32_t i = 0; i < module->nodes.len; i++)
        if (module->nodes.data[i].op == FG_OP_rows &&
            module->values.data[module->nodes.data[i].operands[0]].root == value->id)
            return true;
    return value->kind == FG_VALUE_STATE && value->role == FG_ROLE_GRAD_SHARD &&
           module->plan->buckets.data[value->index].offload;
}

static void share_addresses(Case *c)
{
    FgIntervalVec intervals = {0};
    uint32_t len, tried = 0, every = 1;
    fg_intervals(c->arena, c->module, &intervals, &len);
    every = intervals.len * intervals.len / (16 * KEPT) + 1;
    for (uint32_t i = 0; i < intervals.len; i++) {
        for (uint32_t k = 0; k < intervals.len; k++) {
            FgValue *a = &c->module->values.data[intervals.data[i].value];
            const FgValue *b = &c->module->values.data[intervals.data[k].value];
            uint64_t offset = a->offset;
            const FgModule *m = c->module;
            uint64_t end = a->host ? FG_HOST_BASE + m->host_state_bytes + m->host_arena_bytes
                                   : m->state_bytes + m->arena_bytes;
            if (i == k || !meet(&intervals.data[i], &intervals.data[k]) || tried++ % every ||
                a->host != b->host || is_parted(m, a) || is_parted(m, b) ||
                b->offset + fg_type_bytes(a->type) > end || is_held(c->module, a->id) ||
                is_held(c->module, b->id))
                continue;
            a->offset = b->offset;
            must_fail(c, "a value that lives beside it took its address",
                      &c->module->nodes.data[b->kind == FG_VALUE_RESULT ? b->def : 0]);
            a->offset = offset;
        }
    }
}

/* ---- types: what a value says of its bytes ---- */

/* The verifier and the checker both say yes. */
static bool stands(Case *c)
{
    fg_arena_reset(c->scratch);
    c->module->diags = fg_diags_new(c->scratch);
    return fg_module_verify(c->module) && passes(c);
}

/* Scratch says nothing of its bytes, but how many they are; nor does a name that nobody reads. */
static bool means_something(const FgModule *module, const FgValue *value)
{
    if (value->kind != FG_VALUE_RESULT ||
        !(fg_op_info(module->nodes.data[value->def].op)->flags & FG_OPF_VIEW))
        return value->role != FG_ROLE_WORKSPACE;
    for (uint32_t i = 0; i < module->nodes.len; i++) {
        const FgNode *node = &module->nodes.data[i];
        for (uint32_t k = 0; k < node->n_operands; k++)
            if (node->operands[k] == value->id)
                return true;
        for (uint32_t k = 0; k < node->n_results; k++)
            if (node->results[k] == value->id && i != value->def)
                return true;
    }
    return false;
}

static void try_type(Case *c, FgValue *value, FgDtype dtype, uint32_t rank, const int64_t *dims)
{
    if (c->types++ % c->every)
        return;
    const FgType *type = value->type;
    value->type = fg_type(c->module, dtype, rank, dims);
    c->mutants++;
    if (value->type != type && stands(c)) {
        FgBuf text;
        fg_buf_init(&text, c->scratch);
        fg_type_print(&text, type);
        fg_buf_printf(&text, " -> ");
        fg_type_print(&text, value->type);
        const char *op = value->kind == FG_VALUE_RESULT
                             ? fg_op_info(c->module->nodes.data[value->def].op)->name
                             : fg_role_name(value->role);
        printf("model %llu: passed although %%%s.%u of %s was %s\n", (unsigned long long)c->seed,
               value->name, value->id, op, fg_buf_text(&text));
        ++*c->failures;
    }
    value->type = type;
}

static bool stands_somewhere(const Case *c, const FgValue *value)
{
    if (value->kind != FG_VALUE_RESULT)
        return value->kind == FG_VALUE_STATE;
    for (uint32_t f = 0; f < c->module->funcs.len; f++)
        for (uint32_t i = 0; i < c->module->funcs.data[f].order.len; i++)
            if (c->module->funcs.data[f].order.data[i] == value->def)
                return true;
    return false;
}

static void change_types(Case *c)
{
    c->types = (uint32_t)c->seed;
    c->every = c->module->values.len * 10 / KEPT + 1;
    for (uint32_t i = 0; i < c->module->values.len; i++) {
        FgValue *value = &c->module->values.data[i];
        if (!stands_somewhere(c, value) || !means_something(c->module, value))
            continue;
        const FgType *type = value->type;
        for (int dtype = 0; dtype < FG_N_DTYPES; dtype++)
            if ((FgDtype)dtype != type->dtype)
                try_type(c, value, (FgDtype)dtype, type->rank, type->dims);
        for (uint32_t k = 0; k < type->rank; k++) {
            int64_t *dims = FG_NEW_ARRAY(c->arena, int64_t, type->rank);
            memcpy(dims, type->dims, type->rank * sizeof *dims);
            dims[k]++;
            try_type(c, value, type->dtype, type->rank, dims);
            dims[k] -= 2;
            if (dims[k] > 0)
                try_type(c, value, type->dtype, type->rank, dims);
            dims[k]++;
            if (k + 2 == type->rank) { /* the others say only how many rows there are */
                dims[k] = type->dims[k + 1], dims[k + 1] = type->dims[k];
                try_type(c, value, type->dtype, type->rank, dims);
            }
        }
        try_type(c, value, type->dtype, type->rank ? type->rank - 1 : 0, type->dims);
    }
}

/* ---- attributes that say where and how much; the others are constants of the computation ---- */

static void try_attr(Case *c, const FgNode *node, const FgAttrSpec *spec, FgAttr changed)
{
    uint32_t k = (uint32_t)(spec - fg_op_info(node->op)->attrs);
    FgAttr was = node->attrs[k];
    if (c->types++ % c->every)
        return;
    node->attrs[k] = changed;
    c->mutants++;
    if (stands(c)) {
        printf("model %llu: passed although '%s' was another: #%u %s (%s)\n",
               (unsigned long long)c->seed, spec->name, node->id, fg_op_info(node->op)->name,
               node->name);
        ++*c->failures;
    }
    node->attrs[k] = was;
}

static void change_attr(Case *c, const FgNode *node, const FgAttrSpec *spec, FgAttr was)
{
    FgAttr changed = was;
    changed.set = true;
    for (int by = -1; by <= 1 && spec->kind == FG_ATTR_INT; by += 2) {
        changed.i = was.i + by;
        try_attr(c, node, spec, changed);
    }
    changed.i = !was.i;
    if (spec->kind == FG_ATTR_BOOL)
        try_attr(c, node, spec, changed);
    static const char *const dtypes[] = {"f32", "bf16", "f16", "f64"};
    for (int i = 0; i < 4 && spec->kind == FG_ATTR_WORD; i++) {
        changed.word = dtypes[i];
        if (strcmp(was.word, dtypes[i]))
            try_attr(c, node, spec, changed);
    }
}

static void change_attrs(Case *c)
{
    static const char *const places =
        "first count vocab table hidden accumulate named adds pending grad_dtype";
    c->types = (uint32_t)c->seed;
    c->every = 5;
    for (uint32_t f = 0; f < c->module->funcs.len; f++)
        for (uint32_t i = 0; i < c->module->funcs.data[f].order.len; i++) {
            const FgNode *node = &c->module->nodes.data[c->module->funcs.data[f].order.data[i]];
            const FgOpInfo *info = fg_op_info(node->op);
            for (uint32_t k = 0; k < info->n_attrs; k++)
                if (fg_word_in(places, info->attrs[k].name) && is_needed(c->module, node))
                    change_attr(c, node, &info->attrs[k], node->attrs[k]);
        }
}

/* ---- how old weights are: nothing else gives these away, neither races nor memory ---- */

/* Puts all calls on one stream, where they need no waits, and every value that shares memory at an
 * address of its own; the schedule is as right as before. */
static void part(Case *c)
{
    FgModule *m = c->module;
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        m->nodes.data[i].stream = FG_STREAM_COMPUTE;
        m->nodes.data[i].n_waits = 0;
    }
    for (uint32_t i = 0; i < m->values.len; i++) {
        FgValue *value = &m->values.data[i];
        uint64_t states = value->host ? FG_HOST_BASE + m->host_state_bytes : m->state_bytes;
        uint64_t *arena = value->host ? &m->host_arena_bytes : &m->arena_bytes;
        if (value->root != i || value->offset == FG_NO_OFFSET || value->offset < states)
            continue;
        value->offset = states + *arena;
        *arena += (fg_type_bytes(value->type) + 63) / 64 * 64;
    }
}

static bool is_update(const FgNode *node, uint32_t bucket)
{
    return node->bucket == bucket && (node->op == FG_OP_adamw || node->op == FG_OP_adamw_part ||
                                      node->op == FG_OP_adamw_parts);
}

/* It reads a gathered copy of the bucket's weights. */
static bool reads_copy(const FgModule *module, const FgNode *node, uint32_t bucket)
{
    if (node->op == FG_OP_release || node->op == FG_OP_hold ||
        (fg_op_info(node->op)->flags & FG_OPF_VIEW))
        return false;
    for (uint32_t k = 0; k < node->n_operands; k++) {
        uint32_t v = node->operands[k];
        const FgValue *root =
            v == FG_NO_ID ? NULL : &module->values.data[module->values.data[v].root];
        if (root && root->kind == FG_VALUE_STATE && root->role == FG_ROLE_GATHERED &&
            root->index == bucket)
            return true;
        if (root && root->kind == FG_VALUE_RESULT &&
            module->nodes.data[root->def].op == FG_OP_gather &&
            module->nodes.data[root->def].bucket == bucket)
            return true;
    }
    return false;
}

/* The update of the step before, or the last part of it, behind the last read before the first
 * reduction: the step reads the weights without it, or some of them. */
static void update_late(Case *c, FgIdVec *order, uint32_t bucket, bool all)
{
    const FgModule *m = c->module;
    FgIdVec stay = {0}, moved = {0};
    uint32_t first = FG_NO_ID, read = FG_NO_ID, updates = 0, n = 0;
    for (uint32_t i = 0; i < order->len; i++)
        updates += is_update(&m->nodes.data[order->data[i]], bucket);
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = &m->nodes.data[order->data[i]];
        if (node->bucket == bucket &&
            (node->op == FG_OP_reduce_scatter || node->op == FG_OP_all_to_all))
            break;
        n += is_update(node, bucket);
        if (first == FG_NO_ID && n == (all ? 1 : updates) && n)
            first = i;
        if (first != FG_NO_ID && reads_copy(m, node, bucket))
            read = i;
    }
    if (first == FG_NO_ID || read == FG_NO_ID || (!all && updates == 1))
        return;
    const FgIdVec was = *order;
    for (uint32_t i = 0; i < was.len; i++) {
        const FgNode *node = &m->nodes.data[was.data[i]];
        bool late =
            i >= first && i < read && node->bucket == bucket && node->phase == FG_PHASE_UPDATE;
        fg_vec_push(c->arena, late ? &moved : &stay, was.data[i]);
        for (uint32_t k = 0; i == read && k < moved.len; k++)
            fg_vec_push(c->arena, &stay, moved.data[k]);
    }
    *order = stay;
    must_fail(c, "the weights were read before their update", &m->nodes.data[was.data[first]]);
    *order = was;
}

/* What brings a shard stands right before the last call that updates it, instead of behind. */
static void bring_early(Case *c, FgIdVec *order)
{
    const FgModule *m = c->module;
    for (uint32_t i = 0; i < order->len; i++) {
        uint32_t id = order->data[i], k = i;
        const FgNode *node = &m->nodes.data[id];
        if (node->phase == FG_PHASE_UPDATE ||
            (node->op != FG_OP_gather && node->op != FG_OP_fetch) ||
            m->values.data[node->operands[0]].role != FG_ROLE_SHARD)
            continue;
        while (k > 0 && !is_update(&m->nodes.data[order->data[k - 1]], node->bucket))
            k--;
        if (k-- == 0)
            continue;
        memmove(order->data + k + 1, order->data + k, (i - k) * sizeof *order->data);
        order->data[k] = id;
        must_fail(c, "weights were brought before their update", node);
        memmove(order->data + k, order->data + k + 1, (i - k) * sizeof *order->data);
        order->data[i] = id;
    }
}

static void age_weights(Case *c)
{
    int *failures = c->failures;
    part(c);
    CHECK(passes(c));
    for (uint32_t f = 0; f < c->module->funcs.len; f++) {
        FgFunc *func = &c->module->funcs.data[f];
        if (!strcmp(func->name, "flush"))
            continue;
        bring_early(c, &func->order);
        for (uint32_t b = 0; b < c->module->buckets.len; b++)
            for (int all = 0; all < 2; all++)
                update_late(c, &func->order, b, all);
    }
}

static void every_mutant_is_found(int *failures)
{
    uint32_t mutants = 0;
    for (uint64_t seed = 1; seed <= MODELS && *failures < 10; seed++) {
        Case c;
        if (begin(&c, seed, failures)) {
            CHECK(passes(&c));
            drop_waits(&c);
            drop_nodes(&c);
            swap_neighbours(&c);
            share_addresses(&c);
            change_types(&c);
            change_attrs(&c);
            CHECK(passes(&c)); /* all was put back */
            age_weights(&c);
            mutants += c.mutants;
        }
        end(&c);
    }
    printf("%u mutants\n", mutants);
    CHECK(mutants > 1000);
}

UNIT_MAIN({"every_mutant_is_found", every_mutant_is_found})
