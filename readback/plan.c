/* The program against the plan that it was made from, node by node: the same runtime entry, the
 * same stream, the same waits, accesses to the same bytes, the same arguments. The plan's side is
 * the checker's own reading of the module (passes/check_ir.c). */
#include "readback/internal.h"

#include <string.h>

typedef struct Cx {
    FgArena *arena;
    const FgRbSource *source;
    const FgRbTables *tables;
    const FgRbSchedule *schedule;
    const FgModule *module;
    const FgTrace *trace, *plan;
    uint32_t *position; /* by node of the plan: its number among the calls of its function */
    uint32_t *place;    /* by node of the trace */
    bool ok;
} Cx;

static bool differ(Cx *cx, FgLoc loc, const char *text)
{
    cx->ok = false;
    fg_diag(cx->source->diags, loc, FG_D_NOT_THE_PLAN, "%s", text);
    return false;
}

#define DIFFER(cx, loc, ...) differ((cx), (loc), fg_arena_printf((cx)->arena, __VA_ARGS__))

static const FgTraceFunc *func_named(const FgTrace *trace, const char *name)
{
    for (uint32_t i = 0; i < trace->funcs.len; i++)
        if (!strcmp(trace->funcs.data[i].name, name))
            return &trace->funcs.data[i];
    return NULL;
}

/* The nodes of a function that become calls. */
static FgIdVec calls_of(FgArena *arena, const FgTrace *trace, const FgTraceFunc *func,
                        uint32_t *position)
{
    FgIdVec calls = {0};
    for (uint32_t i = 0; func && i < func->order.len; i++) {
        uint32_t id = func->order.data[i];
        if (!trace->nodes.data[id].entry)
            continue;
        position[id] = calls.len;
        fg_vec_push(arena, &calls, id);
    }
    return calls;
}

/* ---- accesses ---- */

static const FgTraceBuffer *buffer_of(const FgTrace *trace, const FgTraceAccess *access)
{
    return &trace->buffers.data[access->buffer];
}

static bool same_access(const Cx *cx, const FgTraceAccess *a, const FgTraceAccess *b)
{
    const FgTraceBuffer *x = buffer_of(cx->trace, a), *y = buffer_of(cx->plan, b);
    return x->at == y->at && x->bytes == y->bytes && a->read == b->read && a->write == b->write &&
           a->scratch == b->scratch;
}

/* Both make the same accesses, in any order, as often. */
static bool same_accesses(const Cx *cx, const FgTraceNode *a, const FgTraceNode *b)
{
    bool taken[64] = {false};
    if (a->n_accesses != b->n_accesses || a->n_accesses > 64)
        return false;
    for (uint32_t i = 0; i < a->n_accesses; i++) {
        uint32_t k = 0;
        while (k < b->n_accesses &&
               (taken[k] || !same_access(cx, &a->accesses[i], &b->accesses[k])))
            k++;
        if (k == b->n_accesses)
            return false;
        taken[k] = true;
    }
    return true;
}

/* ---- waits ---- */

static bool waits_for(const Cx *cx, const FgTraceNode *node, uint32_t position)
{
    for (uint32_t i = 0; i < node->n_waits; i++)
        if (cx->place[node->waits[i]] == position)
            return true;
    return false;
}

static bool same_waits(const Cx *cx, const FgTraceNode *a, const FgTraceNode *b)
{
    if (a->n_waits != b->n_waits)
        return false;
    for (uint32_t i = 0; i < b->n_waits; i++)
        if (!waits_for(cx, a, cx->position[b->waits[i]]))
            return false;
    return true;
}

/* The place in the model that messages and profiles name. A plan that was read from text may have
 * no place for a node, and then that of the text. */
static bool same_place(const Cx *cx, const FgTraceNode *a, FgLoc loc)
{
    uint64_t row = fg_rb_arg(cx->schedule->calls.data[a->id], "node", UINT64_MAX);
    if (row >= cx->tables->nodes.len)
        return false;
    const FgRbNode *node = &cx->tables->nodes.data[row];
    if (!*node->file && !node->line && !node->col)
        return !loc.file || loc.file == cx->module->text_source;
    const char *path = loc.file ? fg_diags_source_name(cx->module->diags, loc.file) : "";
    const char *slash = strrchr(path, '/');
    return !strcmp(node->file, slash ? slash + 1 : path) && node->line == loc.line &&
           node->col == loc.col;
}

static bool compare_node(Cx *cx, const FgTraceNode *a, const FgTraceNode *b)
{
    const char *planned = fg_arena_printf(cx->arena, "the plan has #%u %s%s%s%s here", b->id, b->op,
                                          *b->name ? " (" : "", b->name, *b->name ? ")" : "");
    if (strcmp(a->entry, b->entry) || strcmp(a->op, b->op) || strcmp(a->name, b->name))
        return DIFFER(cx, a->loc, "it calls fg_rt_%s (%s); %s", a->entry, a->name, planned);
    if (a->stream != b->stream)
        return DIFFER(cx, a->loc, "it is on stream %s; %s, on stream %s", fg_stream_name(a->stream),
                      planned, fg_stream_name(b->stream));
    if (!same_waits(cx, a, b))
        return DIFFER(cx, a->loc, "it waits for other calls than those of the plan; %s", planned);
    if (!same_accesses(cx, a, b))
        return DIFFER(cx, a->loc, "it touches other bytes; %s", planned);
    if (a->pending != b->pending || a->updates != b->updates ||
        (a->bucket != FG_NO_ID && a->bucket != b->bucket))
        return DIFFER(cx, a->loc, "it adds or belongs elsewhere; %s", planned);
    if (!same_place(cx, a, b->loc))
        return DIFFER(cx, a->loc, "it names another place in the model; %s", planned);
    const char *wrong = fg_rb_compare_args(cx->arena, cx->source, cx->tables, cx->module, b->id,
                                           cx->schedule->calls.data[a->id]);
    return !wrong || DIFFER(cx, a->loc, "%s; %s", wrong, planned);
}

static void compare_func(Cx *cx, const char *name)
{
    const FgTraceFunc *mine = func_named(cx->trace, name), *theirs = func_named(cx->plan, name);
    FgIdVec a = calls_of(cx->arena, cx->trace, mine, cx->place);
    FgIdVec b = calls_of(cx->arena, cx->plan, theirs, cx->position);
    for (uint32_t i = 0; i < a.len && i < b.len; i++)
        if (!compare_node(cx, &cx->trace->nodes.data[a.data[i]], &cx->plan->nodes.data[b.data[i]]))
            return;
    if (a.len != b.len)
        DIFFER(cx, FG_NOWHERE, "@%s has %u calls, the plan %u", name, a.len, b.len);
}

bool fg_rb_compare(FgArena *arena, const FgRbSource *source, const FgRbTables *tables,
                   const FgRbSchedule *schedule, const FgModule *plan)
{
    static const char *const funcs[] = {"init",   "prologue", "step", "first",
                                        "middle", "last",     "flush"};
    FgTrace planned;
    fg_trace_module(arena, plan, &planned);
    Cx cx = {.arena = arena,
             .source = source,
             .tables = tables,
             .schedule = schedule,
             .module = plan,
             .trace = &schedule->trace,
             .plan = &planned,
             .position = FG_NEW_ARRAY(arena, uint32_t, planned.nodes.len + 1),
             .place = FG_NEW_ARRAY(arena, uint32_t, schedule->trace.nodes.len + 1),
             .ok = true};
    cx.ok = fg_rb_compare_tables(arena, source, tables, plan);
    for (uint32_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
        compare_func(&cx, funcs[i]);
    return cx.ok;
}
