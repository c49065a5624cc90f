/* The calls of a program as the trace that the checker takes: nodes with streams and waits from
 * events, accesses from the declared effects, buffers from their addresses (names.c).
 *
 * An event fires when all that its stream was given before is complete: it stands for the last
 * node on that stream. A wait belongs to the next node of its stream. */
#include "readback/names.h"

#include <string.h>

typedef struct Event {
    uint32_t node; /* FG_NO_ID: not recorded in this body */
    FgLoc loc;
    bool awaited;
} Event;

typedef struct Body {
    const char *field, *name;
    const FgRbFunc *func;
    FgRbEffectVec *effects; /* by call */
} Body;

typedef struct Cx {
    FgArena *arena;
    const FgRbSource *source;
    const FgRbTables *tables;
    FgTrace *out;
    FgRbSchedule *schedule;
    FgRbEval eval;
    FgRbNames names;
    Body bodies[6];
    uint32_t n_bodies;
    FG_VEC(uint64_t) bounds;
    /* the body being read */
    Event *events;
    uint32_t last[FG_N_STREAMS];
    FgIdVec pending[FG_N_STREAMS]; /* nodes to wait for, by the next node's stream */
    bool ok;
} Cx;

static void fail(Cx *cx, FgLoc loc, const char *text)
{
    cx->ok = fg_rb_fail(cx->source->diags, loc, "%s", text);
}

#define FAIL(cx, loc, ...) fail((cx), (loc), fg_arena_printf((cx)->arena, __VA_ARGS__))

/* ---- bodies ---- */

static const FgRbFunc *func_named(const FgRbSource *source, const char *name)
{
    for (uint32_t i = 0; i < source->funcs.len; i++)
        if (!strcmp(source->funcs.data[i].name, name))
            return &source->funcs.data[i];
    return NULL;
}

static bool trains(const FgRbTables *tables)
{
    for (uint32_t i = 0; i < tables->buckets.len; i++)
        if (tables->buckets.data[i].trainable)
            return true;
    return false;
}

static bool is_body(const Cx *cx, const FgRbFunc *func)
{
    for (uint32_t i = 0; i < cx->n_bodies; i++)
        if (cx->bodies[i].func == func)
            return true;
    return false;
}

/* The function that a field of the program names. */
static void add_body(Cx *cx, const char *field, const char *name, bool runs)
{
    const FgRbTable *program = &cx->source->program;
    const FgRbCell *cell = fg_rb_cell(program, 0, field);
    const FgRbFunc *func = cell->kind == FG_RB_NAME ? func_named(cx->source, cell->text) : NULL;
    if (cell->kind == FG_RB_ABSENT)
        return; /* the checker says which ones are missing */
    if (!func || func->inlined || is_body(cx, func))
        FAIL(cx, cell->loc, "'%s' names no function of the file, or one that is used already",
             field);
    else if (!runs)
        FAIL(cx, cell->loc, "'%s' would never run", field);
    else
        cx->bodies[cx->n_bodies++] =
            (Body){field, name, func, FG_NEW_ARRAY(cx->arena, FgRbEffectVec, func->calls.len + 1)};
}

static void find_bodies(Cx *cx)
{
    uint64_t steps = cx->tables->accumulate;
    for (uint32_t i = 0; i < cx->source->funcs.len; i++)
        if (!cx->source->funcs.data[i].calls.len)
            FAIL(cx, cx->source->funcs.data[i].loc, "an empty function");
    add_body(cx, "init", "init", true);
    add_body(cx, "prologue", "prologue", true);
    add_body(cx, "first", steps > 1 ? "first" : "step", true);
    add_body(cx, "middle", "middle", steps > 2);
    add_body(cx, "last", "last", steps > 1);
    add_body(cx, "flush", "flush",
             (cx->tables->clip > 0 || cx->tables->scales) && trains(cx->tables));
    for (uint32_t i = 0; i < cx->source->funcs.len; i++)
        if (!cx->source->funcs.data[i].inlined && !is_body(cx, &cx->source->funcs.data[i]))
            FAIL(cx, cx->source->funcs.data[i].loc, "%s is never called",
                 cx->source->funcs.data[i].name);
}

/* ---- effects ---- */

static bool is_range(FgRbEffectKind kind)
{
    return kind == FG_RB_READ || kind == FG_RB_WRITE || kind == FG_RB_UPDATE ||
           kind == FG_RB_RELEASE;
}

/* Every access lies inside the memory. */
static void check_range(Cx *cx, const FgRbCall *call, const FgRbEffect *effect)
{
    const FgRbTables *tables = cx->tables;
    bool host = effect->at >= FG_HOST_BASE;
    uint64_t end = host ? FG_HOST_BASE + tables->host_state_bytes + tables->host_arena_bytes
                        : tables->state_bytes + tables->arena_bytes;
    const char *arg = call->entry->params.data[effect->arg];
    if (effect->at > end || effect->bytes > end - effect->at)
        FAIL(cx, call->loc, "fg_rt_%s: %s at %llu..%llu leaves the memory of %llu bytes",
             call->entry->name, arg, (unsigned long long)effect->at,
             (unsigned long long)(effect->at + effect->bytes), (unsigned long long)end);
    else if (effect->bytes == 0)
        FAIL(cx, call->loc, "fg_rt_%s: %s has no bytes", call->entry->name, arg);
    fg_vec_push(cx->arena, &cx->bounds, effect->at);
    fg_vec_push(cx->arena, &cx->bounds, effect->at + effect->bytes);
}

static void read_effects(Cx *cx)
{
    for (uint32_t b = 0; b < cx->n_bodies; b++) {
        const Body *body = &cx->bodies[b];
        for (uint32_t i = 0; i < body->func->calls.len; i++) {
            const FgRbCall *call = &body->func->calls.data[i];
            if (!fg_rb_effects(&cx->eval, call, &body->effects[i]))
                cx->ok = false;
            for (uint32_t k = 0; k < body->effects[i].len; k++)
                if (is_range(body->effects[i].data[k].kind))
                    check_range(cx, call, &body->effects[i].data[k]);
        }
    }
}

/* ---- streams and events ---- */

static bool stream_ok(Cx *cx, const FgRbCall *call, uint64_t stream)
{
    if (stream < FG_N_STREAMS)
        return true;
    FAIL(cx, call->loc, "there is no stream %llu", (unsigned long long)stream);
    return false;
}

static Event *event_of(Cx *cx, const FgRbCall *call, uint64_t event)
{
    if (event < cx->tables->n_events && event < (1u << 24))
        return &cx->events[event];
    FAIL(cx, call->loc, "event %llu is none of the program's %llu", (unsigned long long)event,
         (unsigned long long)cx->tables->n_events);
    return NULL;
}

static void record(Cx *cx, const FgRbCall *call, const FgRbEffect *effect)
{
    Event *event = event_of(cx, call, effect->bytes);
    if (!event || !stream_ok(cx, call, effect->at))
        return;
    if (event->node != FG_NO_ID)
        FAIL(cx, call->loc, "event %llu is recorded a second time",
             (unsigned long long)effect->bytes);
    else if (cx->last[effect->at] == FG_NO_ID)
        FAIL(cx, call->loc, "an event on a stream that has no work yet");
    event->node = cx->last[effect->at];
    event->loc = call->loc;
}

static void wait(Cx *cx, const FgRbCall *call, const FgRbEffect *effect)
{
    Event *event = event_of(cx, call, effect->bytes);
    if (!event || !stream_ok(cx, call, effect->at))
        return;
    if (event->node == FG_NO_ID) {
        FAIL(cx, call->loc, "a wait for event %llu, which is not recorded before",
             (unsigned long long)effect->bytes);
        return;
    }
    event->awaited = true;
    fg_vec_push(cx->arena, &cx->pending[effect->at], event->node);
}

static void end_body(Cx *cx, const Body *body)
{
    uint32_t n = body->func->calls.len;
    for (uint64_t i = 0; i < cx->tables->n_events && cx->ok; i++)
        if (cx->events[i].node != FG_NO_ID && !cx->events[i].awaited)
            FAIL(cx, cx->events[i].loc, "nothing waits for this event");
    for (uint32_t i = 0; i < FG_N_STREAMS; i++)
        if (cx->pending[i].len)
            FAIL(cx, body->func->loc, "body %s ends with a wait that orders nothing", body->field);
    if (!n || strcmp(body->func->calls.data[n - 1].entry->effects, "join()"))
        FAIL(cx, body->func->loc, "body %s does not end with a join of all streams", body->field);
}

/* ---- calls ---- */

static FgTraceKind kind_of(const char *entry)
{
    static const struct {
        const char *entry;
        FgTraceKind kind;
    } kinds[] = {{"gather", FG_TRACE_GATHER},
                 {"release", FG_TRACE_RELEASE},
                 {"grad_buffer", FG_TRACE_GRAD_BUFFER},
                 {"reduce_scatter", FG_TRACE_REDUCE_SCATTER},
                 {"all_to_all", FG_TRACE_ALL_TO_ALL},
                 {"exchange", FG_TRACE_EXCHANGE},
                 {"lookup_dw", FG_TRACE_LOOKUP_DW},
                 {"collect", FG_TRACE_COLLECT},
                 {"return_rows", FG_TRACE_RETURN_ROWS},
                 {"vocab_dw", FG_TRACE_VOCAB_DW},
                 {"vocab_db", FG_TRACE_VOCAB_DW},
                 {"norm_add", FG_TRACE_NORM_ADD},
                 {"all_reduce", FG_TRACE_ALL_REDUCE},
                 {"clip_factor", FG_TRACE_CLIP_FACTOR},
                 {"loss_scale", FG_TRACE_LOSS_SCALE},
                 {"scale_step", FG_TRACE_SCALE_STEP},
                 {"adamw", FG_TRACE_ADAMW},
                 {"adamw_part", FG_TRACE_ADAMW_PART},
                 {"adamw_rows", FG_TRACE_ADAMW_ROWS},
                 {"row_set", FG_TRACE_ROW_SET},
                 {"adamw_parts", FG_TRACE_ADAMW_PARTS},
                 {"stash", FG_TRACE_STASH},
                 {"fetch", FG_TRACE_FETCH},
                 {"loss_add", FG_TRACE_LOSS_ADD}};
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].entry, entry))
            return kinds[i].kind;
    return FG_TRACE_WORK;
}

typedef struct Lists {
    FG_VEC(FgTraceAccess) accesses;
    FgIdVec operands, results;
    FG_VEC(uint32_t) args; /* of the accesses */
    bool updates;
    int comm;
} Lists;

/* What a reduction reads and may spoil: an operand, whatever becomes of it. */
static bool is_spoilt(const FgRbNames *names, const FgRbEffect *effect)
{
    const char *arg = names->call->entry->params.data[effect->arg];
    return effect->kind == FG_RB_UPDATE &&
           ((names->kind == FG_TRACE_REDUCE_SCATTER && !strcmp(arg, "whole")) ||
            (names->kind == FG_TRACE_RETURN_ROWS && !strcmp(arg, "part")));
}

static void add_access(Cx *cx, Lists *lists, const FgRbEffect *effect, uint32_t buffer)
{
    bool writes = effect->kind == FG_RB_WRITE || effect->kind == FG_RB_UPDATE;
    fg_vec_push(cx->arena, &lists->accesses,
                ((FgTraceAccess){buffer, effect->kind != FG_RB_WRITE, writes,
                                 effect->scratch || is_spoilt(&cx->names, effect), FG_NO_ID}));
    fg_vec_push(cx->arena, &lists->args, effect->arg);
}

/* What the bucket of a gather or a reduction is: that of the state or the buffer it reads. */
static void find_bucket(Cx *cx, uint32_t read)
{
    FgRbNames *names = &cx->names;
    const FgTraceBuffer *buffer = &cx->out->buffers.data[read];
    if (names->kind == FG_TRACE_GATHER) {
        uint32_t home = names->buffers.data[read].home; /* that it was fetched from */
        const FgTraceBuffer *shard = home == FG_NO_ID ? buffer : &cx->out->buffers.data[home];
        if (shard->state && shard->role == FG_ROLE_SHARD)
            names->bucket = shard->index;
        else
            fg_rb_unsafe(names, "it gathers %s, which is no bucket's shard", buffer->name);
    }
    if (names->kind == FG_TRACE_REDUCE_SCATTER || names->kind == FG_TRACE_ALL_TO_ALL) {
        if (names->buffers.data[read].kind == FG_TRACE_GRAD_BUFFER)
            names->bucket = names->buffers.data[read].bucket;
        else
            fg_rb_unsafe(names, "it reduces %s, which is no gradient buffer", buffer->name);
        names->buffers.data[read].open = false;
    }
    if (names->kind == FG_TRACE_FETCH)
        names->from_state = buffer->state ? buffer->root : FG_NO_ID;
}

static void name_reads(Cx *cx, const FgRbEffectVec *effects, Lists *lists)
{
    for (uint32_t i = 0; i < effects->len && cx->names.ok; i++) {
        const FgRbEffect *effect = &effects->data[i];
        if (effect->kind == FG_RB_COMM)
            lists->comm = (int)effect->bytes;
        bool spoilt = is_spoilt(&cx->names, effect);
        if (effect->kind != FG_RB_READ && effect->kind != FG_RB_RELEASE && !spoilt)
            continue;
        uint32_t id = effect->kind != FG_RB_RELEASE ? fg_rb_name_read(&cx->names, effect)
                                                    : fg_rb_name_release(&cx->names, effect);
        if (id == FG_NO_ID)
            return;
        fg_vec_push(cx->arena, &lists->operands, id);
        add_access(cx, lists, effect, id);
        if (effect->kind == FG_RB_RELEASE && cx->names.buffers.data[id].bucket != FG_NO_ID)
            cx->names.bucket = cx->names.buffers.data[id].bucket;
        find_bucket(cx, id);
    }
}

static void name_writes(Cx *cx, const FgRbEffectVec *effects, Lists *lists)
{
    for (uint32_t i = 0; i < effects->len && cx->names.ok; i++) {
        const FgRbEffect *effect = &effects->data[i];
        if ((effect->kind != FG_RB_WRITE && effect->kind != FG_RB_UPDATE) ||
            is_spoilt(&cx->names, effect))
            continue;
        uint32_t id = fg_rb_name_write(&cx->names, effect);
        if (id == FG_NO_ID)
            return;
        lists->updates |= effect->kind == FG_RB_UPDATE;
        add_access(cx, lists, effect, id);
        if (!effect->scratch)
            fg_vec_push(cx->arena, &lists->results, id);
        if (cx->names.kind == FG_TRACE_ALL_REDUCE)
            fg_vec_push(cx->arena, &lists->operands, id);
    }
}

/* A result that may take an operand's memory. */
static void allow_inplace(const FgRbEffectVec *effects, Lists *lists)
{
    for (uint32_t i = 0; i < effects->len; i++) {
        const FgRbEffect *effect = &effects->data[i];
        if (effect->kind != FG_RB_INPLACE)
            continue;
        uint32_t result = FG_NO_ID;
        for (uint32_t k = 0; k < lists->args.len; k++)
            if (lists->args.data[k] == effect->arg && lists->accesses.data[k].write)
                result = lists->accesses.data[k].buffer;
        for (uint32_t k = 0; k < lists->args.len; k++)
            if (lists->args.data[k] == effect->other && !lists->accesses.data[k].write)
                lists->accesses.data[k].inplace = result;
    }
}

/* The buffers that are read, or written, as these arguments; one that is absent leaves a hole. */
static FgIdVec by_argument(Cx *cx, const FgRbCall *call, const Lists *lists,
                           const char *const *names, uint32_t n, bool written)
{
    FgIdVec out = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = FG_NO_ID;
        for (uint32_t k = 0; k < lists->args.len; k++)
            if (lists->accesses.data[k].write == written &&
                !strcmp(call->entry->params.data[lists->args.data[k]], names[i]))
                id = lists->accesses.data[k].buffer;
        fg_vec_push(cx->arena, &out, id);
    }
    return out;
}

/* The states of an update by their arguments; of rows, what it reads, too. */
static void order_update(Cx *cx, const FgRbCall *call, Lists *lists)
{
    static const char *const states[] = {"master", "moment1", "moment2", "shard", "norm"};
    static const char *const reads[] = {"grad", "scalars", "set"};
    lists->results = by_argument(cx, call, lists, states, 5, true);
    if (cx->names.kind == FG_TRACE_ADAMW_ROWS)
        lists->operands = by_argument(cx, call, lists, reads, 3, false);
}

static void work(Cx *cx, const Body *body, uint32_t index)
{
    const FgRbCall *call = &body->func->calls.data[index];
    const FgRbEffectVec *effects = &body->effects[index];
    FgRbNames *names = &cx->names;
    Lists lists = {0};
    names->call = call;
    names->kind = kind_of(call->entry->name);
    names->node = cx->out->nodes.len;
    names->bucket = FG_NO_ID;
    stream_ok(cx, call, fg_rb_arg(call, "stream", UINT64_MAX));
    cx->ok &= fg_rb_args(cx->source->diags, cx->tables, call, names->kind, &names->bucket);
    if (!cx->ok)
        return;
    const FgRbNode *origin = &cx->tables->nodes.data[fg_rb_arg(call, "node", 0)];
    names->from = origin->name;
    FgStream stream = (FgStream)fg_rb_arg(call, "stream", 0);
    name_reads(cx, effects, &lists);
    if (names->ok && names->bucket == FG_NO_ID && names->kind == FG_TRACE_GATHER)
        fg_rb_unsafe(names, "it gathers no bucket");
    name_writes(cx, effects, &lists);
    cx->ok = names->ok;
    if (!cx->ok)
        return;
    allow_inplace(effects, &lists);
    if (names->kind == FG_TRACE_FETCH && lists.results.len)
        names->buffers.data[lists.results.data[0]].home = names->from_state;
    if (names->kind == FG_TRACE_ADAMW || names->kind == FG_TRACE_ADAMW_PART ||
        names->kind == FG_TRACE_ADAMW_ROWS || names->kind == FG_TRACE_ADAMW_PARTS)
        order_update(cx, call, &lists);
    FgTraceNode node = {
        .id = names->node,
        .kind = names->kind,
        .entry = call->entry->name,
        .op = origin->op,
        .name = origin->name,
        .loc = call->loc,
        .stream = stream,
        .waits = cx->pending[stream].data,
        .n_waits = cx->pending[stream].len,
        .bucket = names->bucket,
        .operands = lists.operands.data,
        .results = lists.results.data,
        .n_operands = lists.operands.len,
        .n_results = lists.results.len,
        .accesses = lists.accesses.data,
        .n_accesses = lists.accesses.len,
        .updates = lists.updates,
        .first = names->kind == FG_TRACE_ADAMW_PART ? fg_rb_arg(call, "first", 0) : 0,
        .named = names->kind == FG_TRACE_ADAMW_ROWS && fg_rb_arg(call, "named", 0) == 1,
        .pending = names->kind != FG_TRACE_ADAMW_ROWS && fg_rb_arg(call, "set", 0) == 1,
        .comm = lists.comm};
    cx->pending[stream] = (FgIdVec){0};
    cx->last[stream] = node.id;
    fg_vec_push(cx->arena, &cx->out->nodes, node);
    fg_vec_push(cx->arena, &cx->schedule->calls, call);
    fg_vec_push(cx->arena, &cx->out->funcs.data[cx->out->funcs.len - 1].order, node.id);
}

static void read_body(Cx *cx, const Body *body)
{
    fg_vec_push(cx->arena, &cx->out->funcs, ((FgTraceFunc){body->name, {0}}));
    cx->names.func = body->name;
    cx->names.init = !strcmp(body->name, "init");
    for (uint32_t i = 0; i < FG_N_STREAMS; i++) {
        cx->last[i] = FG_NO_ID;
        cx->pending[i] = (FgIdVec){0};
    }
    for (uint64_t i = 0; i < cx->tables->n_events; i++)
        cx->events[i] = (Event){.node = FG_NO_ID};
    for (uint32_t i = 0; i < body->func->calls.len && cx->ok; i++) {
        const FgRbCall *call = &body->func->calls.data[i];
        const FgRbEffectVec *effects = &body->effects[i];
        FgRbEffectKind first = effects->len ? effects->data[0].kind : FG_RB_READ;
        if (first == FG_RB_RECORD)
            record(cx, call, &effects->data[0]);
        else if (first == FG_RB_WAIT)
            wait(cx, call, &effects->data[0]);
        else if (first != FG_RB_JOIN)
            work(cx, body, i);
        else if (i + 1 < body->func->calls.len)
            FAIL(cx, call->loc, "a join that is not the end of its body");
    }
    if (cx->ok)
        end_body(cx, body);
    fg_rb_pieces_end(&cx->names, body->func->loc);
    cx->ok &= cx->names.ok;
}

/* ---- what nothing reads ---- */

/* A call that writes values, none of which is ever read, is no part of a step. The copy that a
 * gather leaves for the next step is read where the text is behind already; that each is released,
 * and read before, is asked at its release. */
static void check_unread(Cx *cx)
{
    for (uint32_t i = 0; i < cx->out->nodes.len; i++) {
        const FgTraceNode *node = &cx->out->nodes.data[i];
        uint32_t values = 0, reads = 0;
        for (uint32_t k = 0; k < node->n_results; k++) {
            uint32_t id = node->results[k];
            if (id == FG_NO_ID || cx->out->buffers.data[id].root != id)
                continue; /* a gradient: its reduction is the checker's business */
            values += !cx->out->buffers.data[id].state;
            const FgRbBuffer *side = &cx->names.buffers.data[id];
            reads += side->kind == FG_TRACE_GATHER ? side->ever : side->reads;
        }
        if (values && values == node->n_results && !reads) {
            fg_diag(cx->source->diags, node->loc, FG_D_NOT_PROVED,
                    "fg_rt_%s (%s): nothing reads what it writes", node->entry, node->name);
            cx->ok = false;
        }
    }
}

/* ---- tables ---- */

static uint32_t buffer_of_state(const Cx *cx, FgRole role, uint32_t index)
{
    for (uint32_t i = 0; i < cx->tables->states.len; i++)
        if (cx->tables->states.data[i].role == role && cx->tables->states.data[i].index == index)
            return i;
    return FG_NO_ID;
}

static void add_buckets(Cx *cx)
{
    for (uint32_t i = 0; i < cx->tables->buckets.len; i++) {
        const FgRbBucket *bucket = &cx->tables->buckets.data[i];
        FgTraceParam *params = FG_NEW_ARRAY(cx->arena, FgTraceParam, bucket->n_params + 1);
        for (uint32_t k = 0; k < bucket->n_params; k++) {
            const FgRbParam *param = &cx->tables->params.data[bucket->params[k]];
            params[k] = (FgTraceParam){param->name, param->offset, param->elements};
        }
        FgTraceBucket out = {bucket->name,
                             bucket->trainable,
                             bucket->elements,
                             params,
                             bucket->n_params,
                             buffer_of_state(cx, FG_ROLE_SHARD, i),
                             buffer_of_state(cx, FG_ROLE_MASTER, i),
                             buffer_of_state(cx, FG_ROLE_MOMENT1, i),
                             buffer_of_state(cx, FG_ROLE_MOMENT2, i),
                             buffer_of_state(cx, FG_ROLE_GRAD_SHARD, i),
                             (uint32_t)bucket->writes,
                             (uint32_t)bucket->lookups};
        fg_vec_push(cx->arena, &cx->out->buckets, out);
    }
}

bool fg_rb_trace(FgArena *arena, const FgRbSource *source, const FgRbTables *tables, uint64_t rank,
                 FgRbSchedule *schedule)
{
    FgTrace *out = &schedule->trace;
    Cx cx = {.arena = arena,
             .source = source,
             .tables = tables,
             .out = out,
             .schedule = schedule,
             .ok = true};
    *schedule = (FgRbSchedule){.uses_rank = false};
    *out = (FgTrace){.diags = source->diags,
                     .ranks = (uint32_t)tables->ranks,
                     .accumulate = (int64_t)tables->accumulate,
                     .clips = tables->clip > 0 || tables->scales,
                     .scales = tables->scales,
                     .emitted = true,
                     .state_bytes = tables->state_bytes,
                     .arena_bytes = tables->arena_bytes,
                     .host_state_bytes = tables->host_state_bytes,
                     .host_arena_bytes = tables->host_arena_bytes};
    cx.eval = (FgRbEval){.arena = arena, .diags = source->diags, .tables = tables, .rank = rank};
    cx.names = (FgRbNames){
        .arena = arena, .source = source, .tables = tables, .out = out, .from = "", .ok = true};
    find_bodies(&cx);
    if (cx.ok)
        read_effects(&cx);
    schedule->uses_rank = cx.eval.used_rank;
    if (tables->n_events > (1u << 24))
        FAIL(&cx, source->program.loc, "too many events");
    if (!cx.ok)
        return false;
    cx.events = FG_NEW_ARRAY(arena, Event, tables->n_events + 1);
    fg_rb_names_init(&cx.names, cx.bounds.data, cx.bounds.len);
    for (uint32_t i = 0; i < cx.n_bodies && cx.ok; i++)
        read_body(&cx, &cx.bodies[i]);
    add_buckets(&cx);
    if (cx.ok)
        check_unread(&cx);
    return cx.ok;
}
