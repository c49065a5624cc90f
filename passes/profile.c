/* profile: the critical path and the engines of a simulated period.
 *
 * In the simulation a node starts the moment the last thing that it awaits ends: its forerunner on
 * the stream, or a node that it waits for. Followed backwards from the node that ends last, those
 * make a chain without gaps: the critical path. A path through a model of many layers has thousands
 * of nodes, so neighbours that belong together (one stream, phase and layer) are one run. Linear in
 * the nodes. */
#include "passes/profile.h"

#include "ir/op_table.h"
#include "passes/liveness.h"
#include "passes/lower.h"

#include <string.h>

double fg_idle_us(const FgSim *sim, FgStream stream)
{
    double idle = sim->step_us - sim->busy_us[stream];
    return idle > 0.0 ? idle : 0.0;
}

static double duration(const FgSimNode *node)
{
    return node->end_us - node->start_us;
}

/* The node that ends last, with work; FG_NO_ID when the function has none. */
static uint32_t last_of(const FgFunc *func, const FgSimNode *run)
{
    uint32_t last = FG_NO_ID;
    for (uint32_t i = 0; i < func->order.len; i++) {
        uint32_t id = func->order.data[i];
        if (duration(&run[id]) > 0.0 && (last == FG_NO_ID || run[id].end_us > run[last].end_us))
            last = id;
    }
    return last;
}

static bool joins(const FgPathRun *run, const FgPathRun *next)
{
    return run->func == next->func && run->stream == next->stream && run->phase == next->phase &&
           strcmp(run->place, next->place) == 0;
}

static void push_node(FgArena *arena, FgProfile *p, const FgPathRun *one)
{
    FgPathRun *last = p->path.len ? &p->path.data[p->path.len - 1] : NULL;
    if (!last || !joins(last, one)) {
        fg_vec_push(arena, &p->path, *one);
        return;
    }
    last->last = one->last;
    last->end_us = one->end_us;
    last->nodes++;
    if (duration(&p->run[one->first]) > duration(&p->run[last->longest]))
        last->longest = one->first;
}

static void follow_path(FgArena *arena, const FgModule *m, uint32_t f, double times, FgProfile *p)
{
    FgIdVec chain = {0};
    for (uint32_t id = last_of(&m->funcs.data[f], p->run); id != FG_NO_ID; id = p->run[id].after)
        if (duration(&p->run[id]) > 0.0)
            fg_vec_push(arena, &chain, id);
    for (uint32_t i = chain.len; i > 0; i--) {
        const FgNode *node = &m->nodes.data[chain.data[i - 1]];
        FgPathRun one = {.func = f,
                         .times = times,
                         .stream = node->stream,
                         .phase = node->phase,
                         .place = fg_node_place(arena, node),
                         .first = node->id,
                         .last = node->id,
                         .nodes = 1,
                         .longest = node->id,
                         .start_us = p->run[node->id].start_us,
                         .end_us = p->run[node->id].end_us};
        push_node(arena, p, &one);
    }
}

static void list_transfers(FgArena *arena, const FgModule *m, uint32_t f, double times,
                           FgProfile *p)
{
    const FgFunc *func = &m->funcs.data[f];
    for (uint32_t i = 0; i < func->order.len; i++) {
        const FgNode *node = &m->nodes.data[func->order.data[i]];
        if (node->stream == FG_STREAM_COMPUTE || fg_node_is_name(node))
            continue;
        FgTransfer one = {f, node->id, times, fg_op_has(node->op, FG_OPF_COLLECTIVE)};
        fg_vec_push(arena, &p->transfers, one);
    }
}

void fg_profile(FgArena *arena, const FgModule *sched, const FgMachine *machine, FgProfile *out)
{
    static const char *const period[] = {"step", "first", "middle", "last"};
    *out = (FgProfile){0};
    FgSimNode *run = FG_NEW_ARRAY(arena, FgSimNode, sched->nodes.len + 1);
    fg_simulate_trace(arena, sched, machine, run);
    out->run = run;
    for (uint32_t k = 0; k < sizeof period / sizeof *period; k++)
        for (uint32_t f = 0; f < sched->funcs.len; f++) {
            double times = fg_func_repeats(sched, sched->funcs.data[f].name);
            if (times <= 0.0 || strcmp(sched->funcs.data[f].name, period[k]) != 0)
                continue;
            follow_path(arena, sched, f, times, out);
            list_transfers(arena, sched, f, times, out);
        }
}
