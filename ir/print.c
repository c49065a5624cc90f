/* The printer: a module as text, from which the parser rebuilds it with the same ids.
 *
 * One statement a line, fields in a fixed order, and what has its usual value is left out:
 * attributes at their row's default, phase forward, layer -1, stream compute, no bucket, no origin,
 * no waits, memory class activations. A value prints its type where it is first made; holes in the
 * tables (nodes in no function, values nothing makes) are not printed.
 *
 * A bare print, for the fingerprint, also leaves out what cannot change a program: places, names of
 * nodes and values, the plan, and the node a node was made from. */
#include "base/map.h"
#include "ir/text.h"

#include <inttypes.h>
#include <string.h>

typedef struct Printer {
    const FgModule *m;
    FgBuf *out;
    bool bare;
    bool *declared;                 /* by value id: its type was printed */
    uint32_t next_node, next_value; /* one past the greatest id printed */
} Printer;

/* ---- small pieces ---- */
bool fg_word_in(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; *p;) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, word, n) == 0)
            return true;
        p += len;
        p += strspn(p, " ");
    }
    return false;
}

bool fg_attr_is_default(const FgAttrSpec *spec, const FgAttr *attr)
{
    if (spec->required || spec->optional)
        return !attr->set;
    if (spec->kind == FG_ATTR_FLOAT)
        return attr->f == spec->number;
    if (spec->kind == FG_ATTR_INTS)
        return attr->n_ints == 0;
    if (spec->kind == FG_ATTR_TEXT)
        return !*attr->word;
    if (spec->kind == FG_ATTR_WORD) {
        size_t n = strcspn(spec->choices, " ");
        return strlen(attr->word) == n && memcmp(attr->word, spec->choices, n) == 0;
    }
    return attr->i == (int64_t)spec->number;
}

const char *fg_init_name(FgInit init)
{
    static const char *const names[] = {"normal", "uniform", "constant"};
    return names[init];
}

const char *fg_input_role_name(FgInputRole role)
{
    static const char *const names[] = {"tokens", "labels", "other"};
    return names[role];
}

const char *fg_recompute_name(FgRecompute recompute)
{
    static const char *const names[] = {"none", "full", "selective", "auto"};
    return names[recompute];
}

const char *fg_node_title(FgArena *arena, const FgNode *node)
{
    const char *op = fg_op_info(node->op)->name;
    if (*node->name)
        return fg_arena_printf(arena, "#%u %s '%s'", node->id, op, node->name);
    return fg_arena_printf(arena, "#%u %s", node->id, op);
}

static void print_int_list(FgBuf *out, const int64_t *ints, uint32_t n)
{
    fg_buf_puts(out, "[");
    for (uint32_t i = 0; i < n; i++)
        fg_buf_printf(out, "%s%" PRId64, i ? ", " : "", ints[i]);
    fg_buf_puts(out, "]");
}

void fg_type_print(FgBuf *out, const FgType *type)
{
    fg_buf_puts(out, fg_dtype_name(type->dtype));
    print_int_list(out, type->dims, type->rank);
}

static bool plain_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-' || c == '/';
}

/* "@name", quoted when it has other characters than letters, digits and _ . - / */
static void print_symbol(FgBuf *out, const char *name)
{
    bool plain = *name != 0;
    for (const char *p = name; *p; p++)
        plain = plain && plain_char(*p);
    fg_buf_printf(out, "@%s", plain ? name : fg_quoted(out->arena, name));
}

static void print_loc(Printer *p, FgLoc loc)
{
    if (loc.file == 0 || loc.file == p->m->text_source || p->bare)
        return;
    fg_buf_printf(p->out, " loc(%s:%u:%u)",
                  fg_quoted(p->out->arena, fg_diags_source_name(p->m->diags, loc.file)), loc.line,
                  loc.col);
}

static void print_value_name(Printer *p, uint32_t id)
{
    if (id == FG_NO_ID) {
        fg_buf_puts(p->out, "_");
        return;
    }
    FG_ASSERT(id < p->m->values.len);
    if (p->bare)
        fg_buf_printf(p->out, "%%%u", id);
    else
        fg_buf_printf(p->out, "%%%s.%u", p->m->values.data[id].name, id);
}

/* Where a value lies: " in %root+offset mem(class) at(address)", each only when it is not the usual
 * one. */
static void print_place(Printer *p, const FgValue *v, FgMemClass usual)
{
    if (v->root != v->id) {
        fg_buf_puts(p->out, " in ");
        print_value_name(p, v->root);
        fg_buf_printf(p->out, "+%" PRIu64, v->root_offset);
    }
    if (v->mem != usual)
        fg_buf_printf(p->out, " mem(%s)", fg_mem_class_name(v->mem));
    if (v->host)
        fg_buf_puts(p->out, " host");
    if (v->offset != FG_NO_OFFSET)
        fg_buf_printf(p->out, " at(%" PRIu64 ")", v->host ? v->offset - FG_HOST_BASE : v->offset);
}

static void count_value(Printer *p, uint32_t id)
{
    p->declared[id] = true;
    if (id >= p->next_value)
        p->next_value = id + 1;
}

/* ---- declarations ---- */
static void print_ids(FgBuf *out, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        fg_buf_printf(out, "%s%u", i ? ", " : "", ids[i]);
}

/* "  recompute nodes(#3, #4)", a line for each run of nodes of one layer. */
static void print_recomputed(Printer *p, const FgIdVec *nodes)
{
    const FgModule *m = p->m;
    for (uint32_t i = 0; i < nodes->len;) {
        int32_t layer = nodes->data[i] < m->nodes.len ? m->nodes.data[nodes->data[i]].layer : -1;
        fg_buf_printf(p->out, "  recompute nodes(#%u", nodes->data[i]);
        for (i++; i < nodes->len && nodes->data[i] < m->nodes.len &&
                  m->nodes.data[nodes->data[i]].layer == layer;
             i++)
            fg_buf_printf(p->out, ", #%u", nodes->data[i]);
        fg_buf_puts(p->out, ")\n");
    }
}

/* " offload(optimizer, parameters) pieces(4)"; nothing for a bucket that stays on the device. */
static void print_offload(FgBuf *out, const FgPlanBucket *b)
{
    const char *between = " offload(";
    if (!b->offload)
        return;
    for (uint32_t one = 1; one <= FG_OFFLOAD_PARAMETERS; one <<= 1) {
        if (!(b->offload & one))
            continue;
        fg_buf_printf(out, "%s%s", between, fg_offload_name((FgOffload)one));
        between = ", ";
    }
    fg_buf_printf(out, ") pieces(%" PRId64 ")", b->pieces);
}

static void print_plan(Printer *p)
{
    const FgPlan *plan = p->m->plan;
    if (!plan || p->bare)
        return;
    fg_buf_puts(p->out, "plan ");
    print_symbol(p->out, plan->name);
    fg_buf_printf(p->out, " recompute(%s) {\n", fg_recompute_name(plan->recompute));
    print_recomputed(p, &plan->recomputed);
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        const FgPlanBucket *b = &plan->buckets.data[i];
        fg_buf_puts(p->out, "  bucket ");
        print_symbol(p->out, b->name);
        fg_buf_puts(p->out, " params(");
        print_ids(p->out, b->params, b->n_params);
        fg_buf_printf(p->out, ") linger(%" PRId64 ")", b->linger);
        if (b->settle)
            fg_buf_printf(p->out, " settle(%" PRId64 ")", b->settle);
        if (b->travels)
            fg_buf_puts(p->out, " travels");
        if (b->early)
            fg_buf_puts(p->out, " early");
        fg_buf_puts(p->out, b->parts ? " parts" : "");
        print_offload(p->out, b);
        fg_buf_puts(p->out, "\n");
    }
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        const FgPlanGather *g = &plan->gathers.data[i];
        fg_buf_puts(p->out, "  gather ");
        if (g->bucket < plan->buckets.len)
            print_symbol(p->out, plan->buckets.data[g->bucket].name);
        else
            fg_buf_printf(p->out, "%u", g->bucket);
        fg_buf_printf(p->out, " uses(%u..%u) ahead(%" PRId64 ")", g->first_use, g->last_use,
                      g->ahead);
        if (g->fetch)
            fg_buf_printf(p->out, " fetch(%" PRId64 ")", g->fetch);
        fg_buf_printf(p->out, "%s%s\n", g->keep ? " keep" : "", g->round ? " round" : "");
    }
    for (uint32_t i = 0; i < plan->stashes.len; i++) {
        const FgPlanStash *s = &plan->stashes.data[i];
        fg_buf_printf(p->out, "  stash value(%u) linger(%" PRId64 ") ahead(%" PRId64 ")\n",
                      s->value, s->linger, s->ahead);
    }
    fg_buf_puts(p->out, "}\n");
}

/* " value(%w.0)" with its place, for parameters and inputs; nothing when the value is declared
 * elsewhere. */
static void print_bound_value(Printer *p, uint32_t id, FgValueKind kind, FgMemClass usual)
{
    if (id == FG_NO_ID)
        return;
    fg_buf_puts(p->out, " value(");
    print_value_name(p, id);
    const FgValue *v = &p->m->values.data[id];
    if (v->kind == kind) {
        print_place(p, v, usual);
        count_value(p, id);
    }
    fg_buf_puts(p->out, ")");
}

static void print_param(Printer *p, uint32_t index)
{
    const FgParam *param = &p->m->params.data[index];
    FgBuf *out = p->out;
    fg_buf_printf(out, "param %u ", index);
    print_symbol(out, param->name);
    fg_buf_puts(out, " : ");
    fg_type_print(out, param->type);
    fg_buf_printf(out, " init(%s, %s)", fg_init_name(param->init),
                  fg_double_text(out->arena, param->init_scale));
    if (param->trainable)
        fg_buf_puts(out, " trainable");
    if (param->decay)
        fg_buf_puts(out, " decay");
    if (param->sharded)
        fg_buf_puts(out, " sharded");
    for (uint32_t i = 0; i < param->n_tied; i++)
        fg_buf_printf(out, "%s%s%s", i ? ", " : " tied(", fg_quoted(out->arena, param->tied[i]),
                      i + 1 == param->n_tied ? ")" : "");
    print_bound_value(p, param->value, FG_VALUE_PARAM, FG_MEM_PARAMETERS);
    if (param->bucket != FG_NO_ID)
        fg_buf_printf(out, " bucket(%u + %" PRIu64 ")", param->bucket, param->bucket_offset);
    print_loc(p, param->loc);
    fg_buf_puts(out, "\n");
}

static void print_input(Printer *p, uint32_t index)
{
    const FgInput *in = &p->m->inputs.data[index];
    fg_buf_printf(p->out, "input %u ", index);
    print_symbol(p->out, in->name);
    fg_buf_puts(p->out, " : ");
    fg_type_print(p->out, in->type);
    fg_buf_printf(p->out, " role(%s)", fg_input_role_name(in->role));
    print_bound_value(p, in->value, FG_VALUE_INPUT, FG_MEM_INPUTS);
    print_loc(p, in->loc);
    fg_buf_puts(p->out, "\n");
}

static void print_bucket(Printer *p, uint32_t index)
{
    const FgBucket *b = &p->m->buckets.data[index];
    fg_buf_printf(p->out, "bucket %u ", index);
    print_symbol(p->out, b->name);
    fg_buf_printf(p->out, " dtype(%s)%s elements(%" PRIu64 ") params(", fg_dtype_name(b->dtype),
                  b->trainable ? " trainable" : "", b->elements);
    print_ids(p->out, b->params, b->n_params);
    fg_buf_puts(p->out, ")");
    const struct {
        const char *name;
        uint32_t id;
    } states[] = {{"shard", b->shard},
                  {"master", b->master},
                  {"moment1", b->moment1},
                  {"moment2", b->moment2},
                  {"grad_shard", b->grad_shard}};
    bool any = false;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        if (states[i].id == FG_NO_ID)
            continue;
        fg_buf_printf(p->out, "%s%s=", any ? ", " : " states(", states[i].name);
        print_value_name(p, states[i].id);
        any = true;
    }
    fg_buf_puts(p->out, any ? ")" : "");
    if (b->writes != FG_NO_ID)
        fg_buf_printf(p->out, " parts(%u, %u)", b->writes, b->lookups);
    fg_buf_puts(p->out, "\n");
}

static void print_state(Printer *p, const FgValue *v)
{
    fg_buf_puts(p->out, "state ");
    print_value_name(p, v->id);
    fg_buf_puts(p->out, " : ");
    fg_type_print(p->out, v->type);
    fg_buf_printf(p->out, " role(%s", fg_role_name(v->role));
    if (v->index != FG_NO_ID)
        fg_buf_printf(p->out, ", %u", v->index);
    fg_buf_puts(p->out, ")");
    print_place(p, v, FG_N_MEM_CLASSES);
    fg_buf_puts(p->out, "\n");
    count_value(p, v->id);
}

/* ---- nodes ---- */
static void print_attr_value(FgBuf *out, const FgAttrSpec *spec, const FgAttr *attr)
{
    switch (spec->kind) {
    case FG_ATTR_INT:
        fg_buf_printf(out, "%" PRId64, attr->i);
        break;
    case FG_ATTR_BOOL:
        fg_buf_puts(out, attr->i ? "true" : "false");
        break;
    case FG_ATTR_FLOAT:
        fg_buf_puts(out, fg_double_text(out->arena, attr->f));
        break;
    case FG_ATTR_INTS:
        print_int_list(out, attr->ints, attr->n_ints);
        break;
    case FG_ATTR_WORD:
        fg_buf_puts(out, attr->word);
        break;
    case FG_ATTR_TEXT:
        fg_buf_puts(out, fg_quoted(out->arena, attr->word));
        break;
    }
}

static void print_attrs(FgBuf *out, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    bool any = false;
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (!node->attrs[i].set || fg_attr_is_default(&info->attrs[i], &node->attrs[i]))
            continue;
        fg_buf_printf(out, "%s%s = ", any ? ", " : " {", info->attrs[i].name);
        print_attr_value(out, &info->attrs[i], &node->attrs[i]);
        any = true;
    }
    if (any)
        fg_buf_puts(out, "}");
}

static void print_results(Printer *p, const FgNode *node)
{
    for (uint32_t i = 0; i < node->n_results; i++) {
        uint32_t id = node->results[i];
        if (i)
            fg_buf_puts(p->out, ", ");
        print_value_name(p, id);
        if (id == FG_NO_ID || p->declared[id])
            continue;
        const FgValue *v = &p->m->values.data[id];
        fg_buf_puts(p->out, " : ");
        fg_type_print(p->out, v->type);
        print_place(p, v, FG_MEM_ACTIVATIONS);
        count_value(p, id);
    }
    if (node->n_results)
        fg_buf_puts(p->out, " = ");
}

static void print_node_fields(Printer *p, const FgNode *node)
{
    FgBuf *out = p->out;
    if (node->bucket != FG_NO_ID)
        fg_buf_printf(out, " bucket(%u)", node->bucket);
    if (*node->name && !p->bare)
        fg_buf_printf(out, " name(%s)", fg_quoted(out->arena, node->name));
    if (node->phase != FG_PHASE_FORWARD)
        fg_buf_printf(out, " phase(%s)", fg_phase_name(node->phase));
    if (node->layer != -1)
        fg_buf_printf(out, " layer(%d)", node->layer);
    if (node->origin != FG_NO_ID && !p->bare)
        fg_buf_printf(out, " origin(#%u)", node->origin);
    if (node->stream != FG_STREAM_COMPUTE)
        fg_buf_printf(out, " stream(%s)", fg_stream_name(node->stream));
    for (uint32_t i = 0; i < node->n_waits; i++)
        fg_buf_printf(out, "%s#%u%s", i ? ", " : " wait(", node->waits[i],
                      i + 1 == node->n_waits ? ")" : "");
    print_loc(p, node->loc);
}

static void print_node(Printer *p, const FgNode *node)
{
    FgBuf *out = p->out;
    fg_buf_printf(out, "  #%u ", node->id);
    print_results(p, node);
    fg_buf_puts(out, fg_op_info(node->op)->name);
    for (uint32_t i = 0; i < node->n_operands; i++) {
        fg_buf_puts(out, i ? ", " : " ");
        print_value_name(p, node->operands[i]);
    }
    print_attrs(out, node);
    print_node_fields(p, node);
    fg_buf_puts(out, "\n");
    if (node->id >= p->next_node)
        p->next_node = node->id + 1;
}

static void print_func(Printer *p, const FgFunc *func)
{
    fg_buf_puts(p->out, "func ");
    print_symbol(p->out, func->name);
    fg_buf_puts(p->out, " {\n");
    for (uint32_t i = 0; i < func->order.len; i++)
        print_node(p, &p->m->nodes.data[func->order.data[i]]);
    fg_buf_puts(p->out, "}\n");
}

/* ---- the module ---- */
static void print_head(Printer *p)
{
    const FgModule *m = p->m;
    const FgNumerics *x = &m->numerics;
    fg_buf_puts(p->out, "module ");
    print_symbol(p->out, m->name);
    fg_buf_printf(p->out, " level(%s) ranks(%u)", fg_level_name(m->level), m->ranks);
    fg_buf_printf(p->out,
                  " numerics(compute=%s, wire=%s, shard=%s, clip=%s, accumulate=%" PRId64 "%s%s",
                  fg_dtype_name(x->compute), fg_dtype_name(x->wire), fg_dtype_name(x->shard),
                  fg_double_text(p->out->arena, x->clip), x->accumulate,
                  x->lookup == FG_LOOKUP_ROWS ? ", lookup=rows" : "",
                  x->vocab == FG_VOCAB_SHARDED ? ", vocab=sharded" : "");
    if (x->chunk)
        fg_buf_printf(p->out, ", chunk=%" PRId64, x->chunk);
    if (x->accumulate_in == FG_IN_WHOLE)
        fg_buf_puts(p->out, ", accumulate_in=whole");
    fg_buf_puts(p->out, ")\n");
    if (m->state_bytes || m->arena_bytes)
        fg_buf_printf(p->out, "memory states(%" PRIu64 ") arena(%" PRIu64 ")", m->state_bytes,
                      m->arena_bytes);
    if (m->host_state_bytes || m->host_arena_bytes)
        fg_buf_printf(p->out, " host_states(%" PRIu64 ") host_arena(%" PRIu64 ")",
                      m->host_state_bytes, m->host_arena_bytes);
    if (m->state_bytes || m->arena_bytes)
        fg_buf_puts(p->out, "\n");
}

static void print_module(const FgModule *m, FgBuf *out, bool bare)
{
    FgArena *scratch = fg_arena_new();
    Printer p = {m, out, bare, FG_NEW_ARRAY(scratch, bool, m->values.len), 0, 0};
    print_head(&p);
    print_plan(&p);
    for (uint32_t i = 0; i < m->params.len; i++)
        print_param(&p, i);
    for (uint32_t i = 0; i < m->inputs.len; i++)
        print_input(&p, i);
    for (uint32_t i = 0; i < m->buckets.len; i++)
        print_bucket(&p, i);
    for (uint32_t i = 0; i < m->values.len; i++) {
        if (m->values.data[i].kind == FG_VALUE_STATE)
            print_state(&p, &m->values.data[i]);
    }
    if (m->loss != FG_NO_ID) {
        fg_buf_puts(out, "loss ");
        print_value_name(&p, m->loss);
        fg_buf_puts(out, "\n");
    }
    for (uint32_t i = 0; i < m->funcs.len; i++)
        print_func(&p, &m->funcs.data[i]);
    if ((p.next_node != m->nodes.len || p.next_value != m->values.len) && !bare)
        fg_buf_printf(out, "ids nodes(%u) values(%u)\n", m->nodes.len, m->values.len);
    fg_arena_free(scratch);
}

void fg_module_print(const FgModule *module, FgBuf *out)
{
    print_module(module, out, false);
}

uint64_t fg_module_fingerprint(const FgModule *module)
{
    FgArena *scratch = fg_arena_new();
    FgBuf text;
    fg_buf_init(&text, scratch);
    print_module(module, &text, true);
    uint64_t hash = fg_hash_bytes(text.data, text.len, 0);
    fg_arena_free(scratch);
    return hash;
}
