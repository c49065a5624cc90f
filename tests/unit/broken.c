/* broken.h */
#include "tests/unit/broken.h"

#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/lower.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static FgModule *compiled(FgArena *arena, FgModule *graph, const FgMachine *machine,
                          const Wanted *wanted, const FgNumerics *numerics)
{
    FgCompiled out = {0};
    FgCompileOptions how = {.schedule = !strcmp(wanted->plan, "zero3") ? FG_SCHEDULE_ZERO3
                                                                       : FG_SCHEDULE_MINIMUM,
                            .memory_bytes = UINT64_MAX,
                            .offload = wanted->offload};
    return fg_compile(arena, graph, machine, numerics, &how, &out) ? out.module : NULL;
}

/* A fixed plan with other levers, lowered. */
static FgModule *lowered(FgArena *arena, FgModule *graph, const FgMachine *machine,
                         const Wanted *wanted, const FgNumerics *numerics)
{
    FgPassManager pm = {.arena = arena, .machine = machine, .budget = UINT64_MAX};
    graph->numerics = *numerics;
    if (!fg_run_passes(&pm, graph, FG_PIPELINE_GRAPH))
        return NULL;
    FgModule *m = fg_module_clone(graph, arena);
    m->plan = FG_NEW(arena, FgPlan);
    m->plan->name = "base";
    if (!fg_run_passes(&pm, m, "recompute"))
        return NULL;
    FgPlan *plan = fg_plan_fixed(m, arena, wanted->plan, FG_RECOMPUTE_NONE);
    m = fg_module_clone(graph, arena);
    m->plan = plan;
    wanted->levers(m, arena, machine);
    return fg_run_passes(&pm, m, FG_PIPELINE_LOWER) ? m : NULL;
}

const FgModule *broken_schedule(FgArena *arena, const Wanted *wanted, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgNumerics numerics = {.clip = wanted->clip, .accumulate = 1, .vocab = wanted->vocab};
    FgModelOptions options = {.numerics = numerics, .batch = wanted->batch, .seq = wanted->seq};
    FgMachine machine;
    CHECK(fg_machine_load(arena, diags, "host", &machine));
    const char *path = fg_arena_printf(arena, "%s/%s", FG_SOURCE_DIR, wanted->model);
    FgModule *graph = fg_model_load(arena, diags, path, &options), *module = NULL;
    if (graph)
        module = (wanted->levers ? lowered : compiled)(arena, graph, &machine, wanted, &numerics);
    CHECK(module != NULL);
    if (!module) {
        FgBuf said;
        fg_buf_init(&said, arena);
        fg_diags_render(graph ? graph->diags : diags, &said);
        printf("%s\n", fg_buf_text(&said));
    }
    return module;
}

void broken_refuses(const FgModule *module, const Fault *faults, size_t n, int *failures)
{
    for (size_t i = 0; module && i < n; i++) {
        Broken b = {.arena = fg_arena_new()};
        FgProof proof;
        FgBuf said;
        fg_trace_module(b.arena, module, &b.trace);
        b.trace.diags = fg_diags_new(b.arena);
        CHECK(fg_check_trace(b.arena, &b.trace, UINT64_MAX, &proof));
        faults[i].plant(&b);
        bool ok = fg_check_trace(b.arena, &b.trace, UINT64_MAX, &proof);
        fg_buf_init(&said, b.arena);
        fg_diags_render(b.trace.diags, &said);
        bool right = !ok && strstr(fg_buf_text(&said), faults[i].message);
        CHECK(right);
        if (!right)
            printf("%s: wanted: %s\nsaid: %s\n", faults[i].name, faults[i].message,
                   ok ? "(proved)" : fg_buf_text(&said));
        fg_arena_free(b.arena);
    }
}

/* ---- what faults are made of ---- */

FgTraceNode *trace_first(Broken *b, FgTraceKind kind)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++)
        for (uint32_t i = 0; i < b->trace.funcs.data[f].order.len; i++) {
            FgTraceNode *node = &b->trace.nodes.data[b->trace.funcs.data[f].order.data[i]];
            if (node->kind == kind)
                return node;
        }
    FG_BUG("the schedule has no node of kind %d", (int)kind);
}

FgTraceBuffer *trace_buffer(Broken *b, uint32_t id)
{
    return &b->trace.buffers.data[id];
}

void trace_repeat(Broken *b, uint32_t id, bool same)
{
    FgTraceNode copy = b->trace.nodes.data[id];
    copy.id = b->trace.nodes.len;
    copy.n_waits = 0;
    if (!same)
        fg_vec_push(b->arena, &b->trace.nodes, copy);
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        FgIdVec *order = &b->trace.funcs.data[f].order, now = {0};
        for (uint32_t i = 0; i < order->len; i++) {
            fg_vec_push(b->arena, &now, order->data[i]);
            if (order->data[i] == id)
                fg_vec_push(b->arena, &now, same ? id : copy.id);
        }
        *order = now;
    }
}

void trace_drop(Broken *b, uint32_t id)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        FgIdVec *order = &b->trace.funcs.data[f].order, now = {0};
        for (uint32_t i = 0; i < order->len; i++)
            if (order->data[i] != id)
                fg_vec_push(b->arena, &now, order->data[i]);
        *order = now;
    }
}

void trace_move(Broken *b, uint32_t id, uint32_t to, bool behind)
{
    for (uint32_t f = 0; f < b->trace.funcs.len; f++) {
        FgIdVec *order = &b->trace.funcs.data[f].order, now = {0};
        for (uint32_t i = 0; i < order->len; i++) {
            if (order->data[i] == to && !behind)
                fg_vec_push(b->arena, &now, id);
            if (order->data[i] != id)
                fg_vec_push(b->arena, &now, order->data[i]);
            if (order->data[i] == to && behind)
                fg_vec_push(b->arena, &now, id);
        }
        *order = now;
    }
}

static const uint32_t *replaced(Broken *b, const uint32_t *ids, uint32_t n, uint32_t at,
                                uint32_t id)
{
    uint32_t *now = FG_NEW_ARRAY(b->arena, uint32_t, n);
    memcpy(now, ids, n * sizeof *now);
    now[at] = id;
    return now;
}

void trace_operand(Broken *b, FgTraceNode *node, uint32_t at, uint32_t id)
{
    node->operands = replaced(b, node->operands, node->n_operands, at, id);
}

void trace_result(Broken *b, FgTraceNode *node, uint32_t at, uint32_t id)
{
    node->results = replaced(b, node->results, node->n_results, at, id);
}
