/* Runs a period on its streams and measures it: step time, what communication is exposed, and the
 * lower bound.
 *
 * Each stream runs its nodes in issue order; a node starts when its stream is free and its waits
 * are over. Engines that run together slow each other by the machine's factors, so time advances in
 * pieces: from one start or end of a node to the next, in which all speeds are constant. All
 * streams join at the end of a function. The lower bound counts what no schedule of these nodes can
 * avoid: the work of each engine alone, and the longest chain of true dependencies (reads of what
 * was written), as if memory and engines were unlimited.
 *
 * Cost: one pass over the nodes for durations and bounds, and a few operations for each start or
 * end. The search calls this for every plan. */
#include "passes/simulate.h"

#include <string.h>

/* One function, ready to run. */
typedef struct Body {
    FgArena *arena;
    const FgModule *module;
    const FgFunc *func;
    double *seconds;               /* by position: duration alone */
    uint32_t *engine;              /* by position: what the node is work of */
    uint32_t *position;            /* node id -> position + 1 in the function; 0 elsewhere */
    bool *done;                    /* by position */
    uint32_t *queue[FG_N_STREAMS]; /* positions, in issue order */
    uint32_t n_queue[FG_N_STREAMS];
    FgSimNode *trace; /* by node id; NULL when nobody asks */
    double now;       /* seconds since the function began */
} Body;

/* What one function takes, in seconds. */
typedef struct Figures {
    double length, path;
    double busy[FG_N_STREAMS];  /* with contention */
    double alone[FG_N_STREAMS]; /* without */
    double work[FG_N_ENGINES];  /* the same by engine */
    double exposed[FG_N_STREAMS];
    uint32_t gathers;
    double gather_bytes, reduce_bytes, token_bytes;
    double path_end; /* of the longest chain in one function */
    double longest[FG_N_STREAMS];
    uint32_t path_node;                  /* where that chain ends */
    uint32_t longest_node[FG_N_STREAMS]; /* on the engine */
} Figures;

static const FgNode *node_at(const Body *body, uint32_t position)
{
    return &body->module->nodes.data[body->func->order.data[position]];
}

static uint32_t root_of(const FgModule *module, uint32_t value)
{
    while (module->values.data[value].root != value)
        value = module->values.data[value].root;
    return value;
}

/* ---- the longest chain of true dependencies ---- */

/* When values are ready, were engines and memory unlimited. A root is ready when all writes into it
 * are; two writes into one place are not ordered here (that could only make the bound larger). */
typedef struct Ready {
    double *value, *root; /* by value id */
} Ready;

/* Does a node read the states that it writes? */
static bool updates(const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++)
        if (!strcmp(info->attrs[i].name, "accumulate"))
            return node->attrs[i].i != 0;
    return node->op == FG_OP_adamw || node->op == FG_OP_adamw_part ||
           node->op == FG_OP_adamw_rows || node->op == FG_OP_adamw_parts ||
           node->op == FG_OP_clip_factor || node->op == FG_OP_loss_scale ||
           node->op == FG_OP_scale_step;
}

static double path_step(const FgModule *module, const FgNode *node, double seconds, Ready *ready)
{
    double start = 0.0;
    for (uint32_t i = 0; i < node->n_operands; i++) {
        uint32_t id = node->operands[i];
        if (id == FG_NO_ID)
            continue;
        double at = root_of(module, id) == id ? ready->root[id] : ready->value[id];
        start = at > start ? at : start;
    }
    for (uint32_t i = 0; i < node->n_results && updates(node); i++) {
        uint32_t id = node->results[i];
        if (id != FG_NO_ID && root_of(module, id) == id && ready->root[id] > start)
            start = ready->root[id];
    }
    double end = start + seconds;
    for (uint32_t i = 0; i < node->n_results; i++) {
        uint32_t id = node->results[i];
        if (id == FG_NO_ID)
            continue;
        uint32_t root = root_of(module, id);
        ready->value[id] = end;
        if (!(fg_op_info(node->op)->flags & FG_OPF_VIEW) && end > ready->root[root])
            ready->root[root] = end;
    }
    return end;
}

/* ---- the run ---- */

static void count_bytes(Figures *figures, FgOp op, double wire_bytes)
{
    if (op == FG_OP_gather) {
        figures->gathers++;
        figures->gather_bytes += wire_bytes;
    } else if (op == FG_OP_reduce_scatter || op == FG_OP_all_to_all) {
        figures->reduce_bytes += wire_bytes;
    } else if (op == FG_OP_exchange || op == FG_OP_collect || op == FG_OP_return_rows) {
        figures->token_bytes += wire_bytes;
    }
}

/* The nodes that a bound would name: the longest of each engine, the last of the longest chain. */
static void note_causes(Figures *figures, const FgNode *node, double seconds, double end)
{
    if (seconds > figures->longest[node->stream]) {
        figures->longest[node->stream] = seconds;
        figures->longest_node[node->stream] = node->id;
    }
    if (end > figures->path_end) {
        figures->path_end = end;
        figures->path_node = node->id;
    }
}

static void body_init(Body *body, FgArena *scratch, const FgModule *module, const FgFunc *func,
                      const FgMachine *machine, Figures *figures)
{
    *body = (Body){.arena = scratch, .module = module, .func = func};
    uint32_t n = func->order.len;
    body->seconds = FG_NEW_ARRAY(scratch, double, n);
    body->engine = FG_NEW_ARRAY(scratch, uint32_t, n);
    body->position = FG_NEW_ARRAY(scratch, uint32_t, module->nodes.len);
    body->done = FG_NEW_ARRAY(scratch, bool, n);
    for (uint32_t s = 0; s < FG_N_STREAMS; s++)
        body->queue[s] = FG_NEW_ARRAY(scratch, uint32_t, n);
    Ready ready = {FG_NEW_ARRAY(scratch, double, module->values.len),
                   FG_NEW_ARRAY(scratch, double, module->values.len)};
    for (uint32_t i = 0; i < n; i++) {
        const FgNode *node = node_at(body, i);
        FgCost cost = {0};
        fg_node_cost(module, node, &cost);
        body->seconds[i] = fg_cost_seconds(module, machine, node, &cost);
        body->engine[i] = fg_engine_of(machine, node, &cost);
        body->position[node->id] = i + 1;
        body->queue[node->stream][body->n_queue[node->stream]++] = i;
        figures->alone[node->stream] += body->seconds[i];
        figures->work[body->engine[i]] += body->seconds[i];
        count_bytes(figures, node->op, cost.wire_bytes);
        double end = path_step(module, node, body->seconds[i], &ready);
        figures->path = end > figures->path ? end : figures->path;
        note_causes(figures, node, body->seconds[i], end);
    }
}

/* The stream of the first wait of a node that is not over, or FG_N_STREAMS when the node may start.
 * Waits that name no earlier node of the function are the checker's business. */
static uint32_t blocked_by(const Body *body, uint32_t position)
{
    const FgNode *node = node_at(body, position);
    for (uint32_t i = 0; i < node->n_waits; i++) {
        uint32_t at = body->position[node->waits[i]];
        if (at && at - 1 < position && !body->done[at - 1])
            return body->module->nodes.data[node->waits[i]].stream;
    }
    return FG_N_STREAMS;
}

typedef struct Engines {
    uint32_t head[FG_N_STREAMS]; /* index into the queue */
    bool running[FG_N_STREAMS];
    double left[FG_N_STREAMS]; /* seconds of the running node, alone */
} Engines;

/* Records when a node starts, and the node whose end it had to await: the last to end among those
 * it waits for and its forerunner on the stream (itself: none). */
static void note_start(Body *body, uint32_t position, uint32_t forerunner)
{
    if (!body->trace)
        return;
    const FgNode *node = node_at(body, position);
    FgSimNode *out = &body->trace[node->id];
    *out = (FgSimNode){.start_us = body->now * 1e6, .after = FG_NO_ID};
    if (forerunner != position)
        out->after = node_at(body, forerunner)->id;
    for (uint32_t i = 0; i < node->n_waits; i++) {
        uint32_t at = body->position[node->waits[i]];
        if (at && at - 1 < position &&
            (out->after == FG_NO_ID ||
             body->trace[node->waits[i]].end_us > body->trace[out->after].end_us))
            out->after = node->waits[i];
    }
}

static void end_node(Body *body, uint32_t position)
{
    body->done[position] = true;
    if (body->trace)
        body->trace[node_at(body, position)->id].end_us = body->now * 1e6;
}

/* Starts whatever can start now; nodes without duration end at once. */
static void start_ready(Body *body, Engines *engines)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
            while (!engines->running[s] && engines->head[s] < body->n_queue[s]) {
                uint32_t at = body->queue[s][engines->head[s]];
                if (blocked_by(body, at) != FG_N_STREAMS)
                    break;
                note_start(body, at, engines->head[s] ? body->queue[s][engines->head[s] - 1] : at);
                if (body->seconds[at] > 0.0) {
                    engines->running[s] = true;
                    engines->left[s] = body->seconds[at];
                } else {
                    end_node(body, at);
                    engines->head[s]++;
                    moved = true;
                }
            }
        }
    }
}

static double factor(bool beside, double value)
{
    return beside && value > 0.0 ? value : 1.0;
}

/* Where a machine file says nothing of updates: they want the device's memory, as reductions do. */
static double or_else(double measured, double otherwise)
{
    return measured > 0.0 ? measured : otherwise;
}

/* Compute is large products or light work, one at a time; what is missing of light work is what it
 * is of large products. */
static void compute_speeds(const FgMachine *m, const bool *running, double *out)
{
    bool gather = running[FG_STREAM_GATHER], reduce = running[FG_STREAM_REDUCE],
         parts = running[FG_ENGINE_PARTS], copy = running[FG_STREAM_COPY];
    double host =
               factor(running[FG_STREAM_STASH] || running[FG_STREAM_FETCH], m->compute_beside_host),
           in_parts = or_else(m->compute_beside_parts, m->compute_beside_gather),
           update = or_else(m->compute_beside_update, m->compute_beside_reduce);
    out[FG_STREAM_COMPUTE] = factor(gather, m->compute_beside_gather) *
                             factor(reduce, m->compute_beside_reduce) * factor(parts, in_parts) *
                             factor(copy, update) * host;
    out[FG_ENGINE_LIGHT] =
        factor(gather, or_else(m->light_beside_gather, m->compute_beside_gather)) *
        factor(reduce, or_else(m->light_beside_reduce, m->compute_beside_reduce)) *
        factor(parts, or_else(m->light_beside_parts, in_parts)) *
        factor(copy, or_else(m->light_beside_update, update)) * host;
}

/* How much slower an engine is beside compute of either kind. */
static double beside_compute(const bool *running, double large, double light)
{
    return factor(running[FG_STREAM_COMPUTE], large) *
           factor(running[FG_ENGINE_LIGHT], or_else(light, large));
}

void fg_engine_speeds(const FgMachine *machine, const bool *running, double *out)
{
    const FgMachine *m = machine;
    bool gather = running[FG_STREAM_GATHER], reduce = running[FG_STREAM_REDUCE],
         copy = running[FG_STREAM_COPY], stash = running[FG_STREAM_STASH],
         fetch = running[FG_STREAM_FETCH], parts = running[FG_ENGINE_PARTS],
         link = gather || reduce || parts;
    compute_speeds(m, running, out);
    out[FG_STREAM_GATHER] =
        beside_compute(running, m->gather_beside_compute, m->gather_beside_light) *
        factor(reduce, m->gather_beside_reduce) *
        factor(parts, or_else(m->gather_beside_parts, FG_PARTS_BESIDE_GATHER)) *
        factor(copy, m->gather_beside_update) * factor(stash || fetch, m->link_beside_host);
    out[FG_STREAM_REDUCE] =
        beside_compute(running, m->reduce_beside_compute, m->reduce_beside_light) *
        factor(gather, m->reduce_beside_gather) * factor(copy, m->reduce_beside_update) *
        factor(stash || fetch, m->link_beside_host);
    out[FG_ENGINE_PARTS] =
        beside_compute(running, or_else(m->parts_beside_compute, m->gather_beside_compute),
                       or_else(m->parts_beside_light, m->gather_beside_light)) *
        factor(gather, or_else(m->parts_beside_gather, FG_PARTS_BESIDE_GATHER)) *
        factor(copy, or_else(m->parts_beside_update, m->gather_beside_update)) *
        factor(stash || fetch, m->link_beside_host);
    out[FG_STREAM_COPY] =
        beside_compute(running, or_else(m->update_beside_compute, m->reduce_beside_compute),
                       m->update_beside_light) *
        factor(gather, m->update_beside_gather) * factor(reduce, m->update_beside_reduce) *
        factor(parts, or_else(m->update_beside_parts, m->update_beside_gather));
    double host = beside_compute(running, m->host_beside_compute, 0);
    out[FG_STREAM_STASH] =
        host * factor(link, m->host_beside_link) * factor(fetch, m->stash_beside_fetch);
    out[FG_STREAM_FETCH] =
        host * factor(link, m->host_beside_link) * factor(stash, m->fetch_beside_stash);
}

/* The engine that a stream's running node is work of. */
static uint32_t running_engine(const Body *body, const Engines *engines, uint32_t stream)
{
    return body->engine[body->queue[stream][engines->head[stream]]];
}

/* Speeds by stream, each by the engine that its node runs on. */
static void stream_speeds(const Body *body, const FgMachine *machine, const Engines *engines,
                          double *out)
{
    bool running[FG_N_ENGINES] = {false};
    double speed[FG_N_ENGINES];
    for (uint32_t s = 0; s < FG_N_STREAMS; s++)
        if (engines->running[s])
            running[running_engine(body, engines, s)] = true;
    fg_engine_speeds(machine, running, speed);
    for (uint32_t s = 0; s < FG_N_STREAMS; s++)
        out[s] = engines->running[s] ? speed[running_engine(body, engines, s)] : 1.0;
}

/* The stream that compute stands still for; FG_N_STREAMS when it runs. At the join: whoever still
 * runs, reductions first. */
static uint32_t exposed_stream(const Body *body, const Engines *engines)
{
    if (engines->running[FG_STREAM_COMPUTE])
        return FG_N_STREAMS;
    uint32_t head = engines->head[FG_STREAM_COMPUTE];
    if (head < body->n_queue[FG_STREAM_COMPUTE])
        return blocked_by(body, body->queue[FG_STREAM_COMPUTE][head]);
    return engines->running[FG_STREAM_REDUCE]   ? FG_STREAM_REDUCE
           : engines->running[FG_STREAM_GATHER] ? FG_STREAM_GATHER
           : engines->running[FG_STREAM_COPY]   ? FG_STREAM_COPY
           : engines->running[FG_STREAM_STASH]  ? FG_STREAM_STASH
                                                : FG_STREAM_FETCH;
}

/* Advances to the next end of a node; false when nothing runs. */
static bool advance(Body *body, const FgMachine *machine, Engines *engines, Figures *figures)
{
    double speed[FG_N_STREAMS], piece = 0.0;
    uint32_t next = FG_N_STREAMS;
    stream_speeds(body, machine, engines, speed);
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        if (engines->running[s] && (next == FG_N_STREAMS || engines->left[s] / speed[s] < piece)) {
            piece = engines->left[s] / speed[s];
            next = s;
        }
    }
    if (next == FG_N_STREAMS)
        return false;
    uint32_t exposed = exposed_stream(body, engines);
    if (exposed != FG_N_STREAMS) {
        figures->exposed[exposed] += piece;
        if (body->trace && engines->running[exposed])
            body->trace[node_at(body, body->queue[exposed][engines->head[exposed]])->id].stall_us +=
                piece * 1e6;
    }
    figures->length += piece;
    body->now = figures->length;
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        if (!engines->running[s])
            continue;
        figures->busy[s] += piece;
        engines->left[s] -= piece * speed[s];
        /* What is left of a node that ends together with `next` is rounding. */
        if (s == next || engines->left[s] <= 1e-12 * piece) {
            engines->running[s] = false;
            end_node(body, body->queue[s][engines->head[s]++]);
        }
    }
    return true;
}

static Figures run_body(FgArena *scratch, const FgModule *module, const FgFunc *func,
                        const FgMachine *machine, FgSimNode *trace)
{
    Body body;
    Engines engines = {0};
    Figures figures = {0};
    body_init(&body, scratch, module, func, machine, &figures);
    body.trace = trace;
    do
        start_ready(&body, &engines);
    while (advance(&body, machine, &engines, &figures));
    return figures;
}

/* ---- the period ---- */

static void add(Figures *sum, const Figures *one, double times)
{
    sum->length += times * one->length;
    sum->path += times * one->path;
    sum->gathers += (uint32_t)times * one->gathers;
    sum->gather_bytes += times * one->gather_bytes;
    sum->reduce_bytes += times * one->reduce_bytes;
    sum->token_bytes += times * one->token_bytes;
    for (uint32_t e = 0; e < FG_N_ENGINES; e++)
        sum->work[e] += times * one->work[e];
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        sum->busy[s] += times * one->busy[s];
        sum->alone[s] += times * one->alone[s];
        sum->exposed[s] += times * one->exposed[s];
        if (one->longest[s] > sum->longest[s]) {
            sum->longest[s] = one->longest[s];
            sum->longest_node[s] = one->longest_node[s];
        }
    }
    if (one->path_end > sum->path_end) {
        sum->path_end = one->path_end;
        sum->path_node = one->path_node;
    }
}

double fg_func_repeats(const FgModule *module, const char *name)
{
    if (!strcmp(name, "step") || !strcmp(name, "first") || !strcmp(name, "last"))
        return 1.0;
    int64_t steps = module->numerics.accumulate;
    return !strcmp(name, "middle") && steps > 2 ? (double)(steps - 2) : 0.0;
}

void fg_simulate(FgArena *scratch, const FgModule *sched, const FgMachine *machine, FgSim *out)
{
    Figures sum = {0};
    for (uint32_t i = 0; i < sched->funcs.len; i++) {
        const FgFunc *func = &sched->funcs.data[i];
        double times = fg_func_repeats(sched, func->name);
        if (times > 0.0) {
            Figures one = run_body(scratch, sched, func, machine, NULL);
            add(&sum, &one, times);
        }
    }
    *out = (FgSim){
        .step_us = sum.length * 1e6,
        .bound_us = sum.path * 1e6,
        .bound_engine = "dependencies",
        .bound_node = sum.path_end > 0.0 ? sum.path_node : FG_NO_ID,
        .compute_us = sum.alone[FG_STREAM_COMPUTE] * 1e6,
        .slowed_us = (sum.busy[FG_STREAM_COMPUTE] - sum.alone[FG_STREAM_COMPUTE]) * 1e6,
        .exposed_gather_us = sum.exposed[FG_STREAM_GATHER] * 1e6,
        .exposed_reduce_us = (sum.exposed[FG_STREAM_REDUCE] + sum.exposed[FG_STREAM_COPY]) * 1e6,
        .exposed_host_us = (sum.exposed[FG_STREAM_STASH] + sum.exposed[FG_STREAM_FETCH]) * 1e6,
        .gathers = sum.gathers,
        .gather_bytes = (uint64_t)sum.gather_bytes,
        .reduce_bytes = (uint64_t)sum.reduce_bytes,
        .token_bytes = (uint64_t)sum.token_bytes};
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        out->busy_us[s] = sum.busy[s] * 1e6;
        out->exposed_us[s] = sum.exposed[s] * 1e6;
        if (sum.alone[s] * 1e6 >= out->bound_us && sum.longest[s] > 0.0) {
            out->bound_us = sum.alone[s] * 1e6;
            out->bound_engine = fg_stream_name((FgStream)s);
            out->bound_node = sum.longest_node[s];
        }
    }
    out->joint_us = fg_joint_bound(machine, sum.work, out->joint_price) * 1e6;
}

void fg_simulate_trace(FgArena *scratch, const FgModule *sched, const FgMachine *machine,
                       FgSimNode *out)
{
    for (uint32_t i = 0; i < sched->nodes.len; i++)
        out[i] = (FgSimNode){.after = FG_NO_ID};
    for (uint32_t i = 0; i < sched->funcs.len; i++)
        run_body(scratch, sched, &sched->funcs.data[i], machine, out);
}
