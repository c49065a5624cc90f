/* The statements outside functions: module, memory, plan, param, input, bucket, state. */
#include "ir/parse.h"

#include <string.h>

/* ---- names by index, for fg_parse_choice ---- */
static const char *level_name(uint32_t i)
{
    return fg_level_name((FgLevel)i);
}

static const char *role_name(uint32_t i)
{
    return fg_role_name((FgRole)i);
}

static const char *init_name(uint32_t i)
{
    return fg_init_name((FgInit)i);
}

static const char *input_role_name(uint32_t i)
{
    return fg_input_role_name((FgInputRole)i);
}

static const char *recompute_name(uint32_t i)
{
    return fg_recompute_name((FgRecompute)i);
}

/* Takes `word` followed by an opening parenthesis. */
static bool open_field(FgParser *p, const char *word)
{
    if (!fg_parse_is_word(p, word))
        return false;
    fg_parse_next(p);
    return true;
}

static bool choice_field(FgParser *p, const char *what, const char *(*name)(uint32_t), uint32_t n,
                         uint32_t *out)
{
    return fg_parse_punct(p, '(') && fg_parse_choice(p, what, name, n, out) &&
           fg_parse_punct(p, ')');
}

static bool u64_field(FgParser *p, uint64_t *out)
{
    return fg_parse_punct(p, '(') && fg_parse_u64(p, out) && fg_parse_punct(p, ')');
}

static bool i64_field(FgParser *p, int64_t *out)
{
    return fg_parse_punct(p, '(') && fg_parse_i64(p, out) && fg_parse_punct(p, ')');
}

/* ---- module and memory ---- */
static const char *lookup_name(uint32_t lookup)
{
    return lookup == FG_LOOKUP_ROWS ? "rows" : "dense";
}

static bool parse_lookup(FgParser *p, FgLookup *out)
{
    uint32_t lookup;
    if (!fg_parse_choice(p, "dense or rows", lookup_name, 2, &lookup))
        return false;
    *out = (FgLookup)lookup;
    return true;
}

static const char *vocab_name(uint32_t vocab)
{
    return vocab == FG_VOCAB_SHARDED ? "sharded" : "gathered";
}

static bool parse_vocab(FgParser *p, FgVocab *out)
{
    uint32_t vocab;
    if (!fg_parse_choice(p, "gathered or sharded", vocab_name, 2, &vocab))
        return false;
    *out = (FgVocab)vocab;
    return true;
}

static const char *accumulate_in_name(uint32_t in)
{
    return in == FG_IN_WHOLE ? "whole" : "slice";
}

static bool parse_accumulate_in(FgParser *p, FgAccumulateIn *out)
{
    uint32_t in;
    if (!fg_parse_choice(p, "slice or whole", accumulate_in_name, 2, &in))
        return false;
    *out = (FgAccumulateIn)in;
    return true;
}

static bool parse_numerics(FgParser *p)
{
    FgNumerics *x = &p->m->numerics;
    if (!fg_parse_punct(p, '('))
        return false;
    do {
        FgLoc loc = p->t.loc;
        const char *key;
        bool ok =
            fg_parse_word(
                p, "compute, wire, shard, clip, accumulate, accumulate_in, lookup, vocab or chunk",
                &key) &&
            fg_parse_punct(p, '=');
        if (!ok)
            return false;
        if (strcmp(key, "compute") == 0)
            ok = fg_parse_dtype(p, &x->compute);
        else if (strcmp(key, "wire") == 0)
            ok = fg_parse_dtype(p, &x->wire);
        else if (strcmp(key, "shard") == 0)
            ok = fg_parse_dtype(p, &x->shard);
        else if (strcmp(key, "clip") == 0)
            ok = fg_parse_double(p, &x->clip);
        else if (strcmp(key, "accumulate") == 0)
            ok = fg_parse_i64(p, &x->accumulate);
        else if (strcmp(key, "accumulate_in") == 0)
            ok = parse_accumulate_in(p, &x->accumulate_in);
        else if (strcmp(key, "lookup") == 0)
            ok = parse_lookup(p, &x->lookup);
        else if (strcmp(key, "vocab") == 0)
            ok = parse_vocab(p, &x->vocab);
        else if (strcmp(key, "chunk") == 0)
            ok = fg_parse_i64(p, &x->chunk);
        else
            ok = fg_parse_error(p, loc, "numerics have no '%s'", key);
        if (!ok)
            return false;
    } while (fg_parse_take(p, ','));
    return fg_parse_punct(p, ')');
}

bool fg_parse_module_line(FgParser *p)
{
    uint32_t level = FG_LEVEL_GRAPH;
    if (!fg_parse_symbol(p, &p->m->name))
        return false;
    while (p->t.kind == FG_TOKEN_WORD) {
        bool ok;
        if (open_field(p, "level"))
            ok = choice_field(p, "a level (graph, dist, sched)", level_name, 3, &level);
        else if (open_field(p, "ranks"))
            ok = fg_parse_punct(p, '(') && fg_parse_u32(p, &p->m->ranks) && fg_parse_punct(p, ')');
        else if (open_field(p, "numerics"))
            ok = parse_numerics(p);
        else
            ok = fg_parse_expected(p, "level, ranks or numerics");
        if (!ok)
            return false;
    }
    p->m->level = (FgLevel)level;
    return fg_parse_line_end(p);
}

bool fg_parse_memory(FgParser *p)
{
    while (p->t.kind == FG_TOKEN_WORD) {
        uint64_t *out = open_field(p, "states")        ? &p->m->state_bytes
                        : open_field(p, "arena")       ? &p->m->arena_bytes
                        : open_field(p, "host_states") ? &p->m->host_state_bytes
                        : open_field(p, "host_arena")  ? &p->m->host_arena_bytes
                                                       : NULL;
        if (!out)
            return fg_parse_expected(p, "states, arena, host_states or host_arena");
        if (!u64_field(p, out))
            return false;
    }
    return fg_parse_line_end(p);
}

/* ---- plan ---- */
static const char *offload_name(uint32_t i)
{
    return fg_offload_name(i ? FG_OFFLOAD_PARAMETERS : FG_OFFLOAD_OPTIMIZER);
}

static bool parse_offload(FgParser *p, uint32_t *out)
{
    if (!fg_parse_punct(p, '('))
        return false;
    do {
        uint32_t i;
        if (!fg_parse_choice(p, "optimizer or parameters", offload_name, 2, &i))
            return false;
        *out |= 1u << i;
    } while (fg_parse_take(p, ','));
    return fg_parse_punct(p, ')');
}

static bool parse_plan_bucket(FgParser *p, FgPlan *plan)
{
    FgPlanBucket b = {.pieces = 1};
    if (!fg_parse_symbol(p, &b.name))
        return false;
    while (p->t.kind == FG_TOKEN_WORD) {
        bool ok;
        if (open_field(p, "params"))
            ok = fg_parse_u32_list(p, &b.params, &b.n_params);
        else if (open_field(p, "linger"))
            ok = i64_field(p, &b.linger);
        else if (open_field(p, "settle"))
            ok = i64_field(p, &b.settle);
        else if (open_field(p, "travels"))
            ok = b.travels = true;
        else if (open_field(p, "early"))
            ok = b.early = true;
        else if (open_field(p, "parts"))
            ok = b.parts = true;
        else if (open_field(p, "offload"))
            ok = parse_offload(p, &b.offload);
        else if (open_field(p, "pieces"))
            ok = i64_field(p, &b.pieces);
        else
            ok = fg_parse_expected(
                p, "params, linger, settle, travels, early, parts, offload or pieces");
        if (!ok)
            return false;
    }
    fg_vec_push(p->m->arena, &plan->buckets, b);
    return fg_parse_line_end(p);
}

static bool find_plan_bucket(FgParser *p, const FgPlan *plan, uint32_t *out)
{
    FgLoc loc = p->t.loc;
    const char *name;
    if (p->t.kind == FG_TOKEN_INT)
        return fg_parse_u32(p, out);
    if (!fg_parse_symbol(p, &name))
        return false;
    for (uint32_t i = 0; i < plan->buckets.len; i++) {
        if (strcmp(plan->buckets.data[i].name, name) == 0) {
            *out = i;
            return true;
        }
    }
    return fg_parse_error(p, loc, "the plan has no bucket '%s' above", name);
}

static bool parse_plan_gather(FgParser *p, FgPlan *plan)
{
    FgPlanGather g = {0};
    if (!find_plan_bucket(p, plan, &g.bucket))
        return false;
    while (p->t.kind == FG_TOKEN_WORD) {
        bool ok;
        if (open_field(p, "uses"))
            ok = fg_parse_punct(p, '(') && fg_parse_u32(p, &g.first_use) &&
                 fg_parse_punct(p, '.') && fg_parse_u32(p, &g.last_use) && fg_parse_punct(p, ')');
        else if (open_field(p, "ahead"))
            ok = i64_field(p, &g.ahead);
        else if (open_field(p, "fetch"))
            ok = i64_field(p, &g.fetch);
        else if (open_field(p, "keep"))
            ok = g.keep = true;
        else if (open_field(p, "round"))
            ok = g.round = true;
        else
            ok = fg_parse_expected(p, "uses, ahead, fetch, keep or round");
        if (!ok)
            return false;
    }
    fg_vec_push(p->m->arena, &plan->gathers, g);
    return fg_parse_line_end(p);
}

static bool parse_plan_recompute(FgParser *p, FgPlan *plan)
{
    if (!open_field(p, "nodes"))
        return fg_parse_expected(p, "nodes");
    if (!fg_parse_punct(p, '('))
        return false;
    do {
        uint32_t id;
        if (!fg_parse_node_ref(p, &id))
            return false;
        fg_vec_push(p->m->arena, &plan->recomputed, id);
    } while (fg_parse_take(p, ','));
    return fg_parse_punct(p, ')') && fg_parse_line_end(p);
}

static bool parse_plan_stash(FgParser *p, FgPlan *plan)
{
    FgPlanStash s = {.value = FG_NO_ID};
    while (p->t.kind == FG_TOKEN_WORD) {
        bool ok;
        if (open_field(p, "value"))
            ok = fg_parse_punct(p, '(') && fg_parse_u32(p, &s.value) && fg_parse_punct(p, ')');
        else if (open_field(p, "linger"))
            ok = i64_field(p, &s.linger);
        else if (open_field(p, "ahead"))
            ok = i64_field(p, &s.ahead);
        else
            ok = fg_parse_expected(p, "value, linger or ahead");
        if (!ok)
            return false;
    }
    fg_vec_push(p->m->arena, &plan->stashes, s);
    return fg_parse_line_end(p);
}

bool fg_parse_plan(FgParser *p)
{
    FgPlan *plan = FG_NEW(p->m->arena, FgPlan);
    uint32_t recompute = FG_RECOMPUTE_NONE;
    if (!fg_parse_symbol(p, &plan->name))
        return false;
    if (open_field(p, "recompute") &&
        !choice_field(p, "a recomputation (none, full, selective)", recompute_name,
                      FG_RECOMPUTE_SELECTIVE + 1, &recompute))
        return false;
    plan->recompute = (FgRecompute)recompute;
    if (!fg_parse_punct(p, '{') || !fg_parse_line_end(p))
        return false;
    while (!fg_parse_take(p, '}')) {
        bool ok = true;
        if (p->t.kind == FG_TOKEN_END)
            return fg_parse_expected(p, "'}' at the end of the plan");
        if (open_field(p, "bucket"))
            ok = parse_plan_bucket(p, plan);
        else if (open_field(p, "gather"))
            ok = parse_plan_gather(p, plan);
        else if (open_field(p, "recompute"))
            ok = parse_plan_recompute(p, plan);
        else if (open_field(p, "stash"))
            ok = parse_plan_stash(p, plan);
        else if (p->t.kind == FG_TOKEN_LINE)
            fg_parse_next(p);
        else
            ok = fg_parse_expected(p, "bucket, gather, recompute, stash or '}'");
        if (!ok)
            fg_parse_recover(p);
    }
    p->m->plan = plan;
    return fg_parse_line_end(p);
}

/* ---- tables ---- */
/* The index in front of a table's row may be left out; given, it counts up from 0. */
static bool parse_index(FgParser *p, uint32_t expected)
{
    FgLoc loc = p->t.loc;
    uint32_t index = expected;
    if (p->t.kind == FG_TOKEN_INT && !fg_parse_u32(p, &index))
        return false;
    return index == expected || fg_parse_error(p, loc, "the next index is %u", expected);
}

/* Rows of a table begin alike: index, name, type. */
static bool parse_row(FgParser *p, uint32_t index, const char **name, const FgType **type)
{
    return parse_index(p, index) && fg_parse_symbol(p, name) && fg_parse_punct(p, ':') &&
           fg_parse_type(p, type);
}

/* value(%w.0 place): it counts as declared only if nothing else declares it (fg_module_parse
 * settles that). */
static bool parse_bound_value(FgParser *p, const FgType *type, FgValueKind kind, uint32_t index,
                              FgMemClass mem, uint32_t *out)
{
    if (!fg_parse_punct(p, '(') || !fg_parse_value(p, out))
        return false;
    FgValue v = fg_parse_blank_value(p, *out, type);
    v.kind = kind;
    v.index = index;
    v.mem = mem;
    if (!fg_parse_place(p, &v))
        return false;
    if (!p->seen.data[*out].declared)
        p->m->values.data[*out] = v;
    return fg_parse_punct(p, ')');
}

static bool parse_init(FgParser *p, FgParam *param)
{
    uint32_t init;
    if (!fg_parse_punct(p, '(') ||
        !fg_parse_choice(p, "an initialiser (normal, uniform, constant)", init_name, 3, &init) ||
        !fg_parse_punct(p, ',') || !fg_parse_double(p, &param->init_scale))
        return false;
    param->init = (FgInit)init;
    return fg_parse_punct(p, ')');
}

static bool parse_tied(FgParser *p, FgParam *param)
{
    FgStrVec names = {0};
    if (!fg_parse_punct(p, '('))
        return false;
    do {
        const char *name;
        if (!fg_parse_string(p, &name))
            return false;
        fg_vec_push(p->m->arena, &names, name);
    } while (fg_parse_take(p, ','));
    param->tied = names.data;
    param->n_tied = names.len;
    return fg_parse_punct(p, ')');
}

static bool parse_param_field(FgParser *p, FgParam *param, uint32_t index)
{
    if (open_field(p, "init"))
        return parse_init(p, param);
    if (open_field(p, "trainable"))
        return param->trainable = true;
    if (open_field(p, "decay"))
        return param->decay = true;
    if (open_field(p, "sharded"))
        return param->sharded = true;
    if (open_field(p, "tied"))
        return parse_tied(p, param);
    if (open_field(p, "value"))
        return parse_bound_value(p, param->type, FG_VALUE_PARAM, index, FG_MEM_PARAMETERS,
                                 &param->value);
    if (open_field(p, "bucket"))
        return fg_parse_punct(p, '(') && fg_parse_u32(p, &param->bucket) &&
               fg_parse_punct(p, '+') && fg_parse_u64(p, &param->bucket_offset) &&
               fg_parse_punct(p, ')');
    if (open_field(p, "loc"))
        return fg_parse_loc(p, &param->loc);
    return fg_parse_expected(p, "init, trainable, decay, sharded, tied, value, bucket or loc");
}

bool fg_parse_param(FgParser *p)
{
    FgParam param = {
        .init = FG_INIT_CONSTANT, .value = FG_NO_ID, .bucket = FG_NO_ID, .loc = p->t.loc};
    uint32_t index = p->m->params.len;
    if (!parse_row(p, index, &param.name, &param.type))
        return false;
    bool ok = true;
    while (ok && p->t.kind == FG_TOKEN_WORD)
        ok = parse_param_field(p, &param, index);
    fg_vec_push(p->m->arena, &p->m->params, param);
    return ok && fg_parse_line_end(p);
}

static bool parse_input_field(FgParser *p, FgInput *input, uint32_t index)
{
    uint32_t role;
    if (open_field(p, "role")) {
        if (!choice_field(p, "an input role (tokens, labels, other)", input_role_name, 3, &role))
            return false;
        input->role = (FgInputRole)role;
        return true;
    }
    if (open_field(p, "value"))
        return parse_bound_value(p, input->type, FG_VALUE_INPUT, index, FG_MEM_INPUTS,
                                 &input->value);
    if (open_field(p, "loc"))
        return fg_parse_loc(p, &input->loc);
    return fg_parse_expected(p, "role, value or loc");
}

bool fg_parse_input(FgParser *p)
{
    FgInput input = {.role = FG_INPUT_OTHER, .value = FG_NO_ID, .loc = p->t.loc};
    uint32_t index = p->m->inputs.len;
    if (!parse_row(p, index, &input.name, &input.type))
        return false;
    bool ok = true;
    while (ok && p->t.kind == FG_TOKEN_WORD)
        ok = parse_input_field(p, &input, index);
    fg_vec_push(p->m->arena, &p->m->inputs, input);
    return ok && fg_parse_line_end(p);
}

static bool parse_bucket_states(FgParser *p, FgBucket *b)
{
    if (!fg_parse_punct(p, '('))
        return false;
    do {
        FgLoc loc = p->t.loc;
        const char *key;
        if (!fg_parse_word(p, "shard, master, moment1, moment2 or grad_shard", &key))
            return false;
        uint32_t *out = strcmp(key, "shard") == 0        ? &b->shard
                        : strcmp(key, "master") == 0     ? &b->master
                        : strcmp(key, "moment1") == 0    ? &b->moment1
                        : strcmp(key, "moment2") == 0    ? &b->moment2
                        : strcmp(key, "grad_shard") == 0 ? &b->grad_shard
                                                         : NULL;
        if (!out)
            return fg_parse_error(p, loc, "a bucket has no state '%s'", key);
        if (!fg_parse_punct(p, '=') || !fg_parse_value(p, out))
            return false;
    } while (fg_parse_take(p, ','));
    return fg_parse_punct(p, ')');
}

static bool parse_bucket_field(FgParser *p, FgBucket *b)
{
    if (open_field(p, "dtype"))
        return fg_parse_punct(p, '(') && fg_parse_dtype(p, &b->dtype) && fg_parse_punct(p, ')');
    if (open_field(p, "trainable"))
        return b->trainable = true;
    if (open_field(p, "elements"))
        return u64_field(p, &b->elements);
    if (open_field(p, "params"))
        return fg_parse_u32_list(p, &b->params, &b->n_params);
    if (open_field(p, "states"))
        return parse_bucket_states(p, b);
    if (open_field(p, "parts"))
        return fg_parse_punct(p, '(') && fg_parse_u32(p, &b->writes) && fg_parse_punct(p, ',') &&
               fg_parse_u32(p, &b->lookups) && fg_parse_punct(p, ')');
    return fg_parse_expected(p, "dtype, trainable, elements, params, states or parts");
}

bool fg_parse_bucket(FgParser *p)
{
    FgBucket b = {.shard = FG_NO_ID,
                  .master = FG_NO_ID,
                  .moment1 = FG_NO_ID,
                  .moment2 = FG_NO_ID,
                  .grad_shard = FG_NO_ID,
                  .writes = FG_NO_ID};
    if (!parse_index(p, p->m->buckets.len) || !fg_parse_symbol(p, &b.name))
        return false;
    bool ok = true;
    while (ok && p->t.kind == FG_TOKEN_WORD)
        ok = parse_bucket_field(p, &b);
    fg_vec_push(p->m->arena, &p->m->buckets, b);
    return ok && fg_parse_line_end(p);
}

static bool parse_role(FgParser *p, FgValue *v)
{
    uint32_t role;
    if (!open_field(p, "role"))
        return fg_parse_expected(p, "role");
    if (!fg_parse_punct(p, '(') ||
        !fg_parse_choice(p, "a role", role_name, FG_ROLE_WORKSPACE + 1, &role))
        return false;
    v->role = (FgRole)role;
    if (fg_parse_take(p, ',') && !fg_parse_u32(p, &v->index))
        return false;
    return fg_parse_punct(p, ')');
}

bool fg_parse_state(FgParser *p)
{
    FgLoc loc = p->t.loc;
    uint32_t id;
    const FgType *type;
    if (!fg_parse_value(p, &id) || !fg_parse_punct(p, ':') || !fg_parse_type(p, &type))
        return false;
    FgValue v = fg_parse_blank_value(p, id, type);
    v.kind = FG_VALUE_STATE;
    v.mem = FG_MEM_CONSTANTS;
    return parse_role(p, &v) && fg_parse_place(p, &v) && fg_parse_declare(p, loc, &v) &&
           fg_parse_line_end(p);
}
