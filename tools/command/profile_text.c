/* A simulated step as one screen: the bound, the engines, what is exposed, the critical path. */
#include "tools/command/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXPOSED 8
#define MAX_RUNS 24 /* more runs of the path are joined over layers */

static double exposed(const FgProfile *p, const FgTransfer *t)
{
    return t->times * p->run[t->node].stall_us;
}

/* ---- most exposed ---- */
/* Indices of transfers, those that compute stands still longest for first. */
static FgIdVec by_exposure(FgArena *arena, const FgProfile *p)
{
    FgIdVec out = {0};
    for (uint32_t i = 0; i < p->transfers.len; i++) {
        if (exposed(p, &p->transfers.data[i]) <= 0.0)
            continue;
        fg_vec_push(arena, &out, i);
        for (uint32_t k = out.len - 1; k > 0; k--) {
            uint32_t a = out.data[k - 1], b = out.data[k];
            if (exposed(p, &p->transfers.data[a]) >= exposed(p, &p->transfers.data[b]))
                break;
            out.data[k - 1] = b;
            out.data[k] = a;
        }
    }
    return out;
}

static void put_exposed(FgArena *arena, const FgRunning *r, FgBuf *out)
{
    FgIdVec order = by_exposure(arena, &r->profile);
    if (!order.len) {
        fg_buf_puts(out, "\nexposed     nothing: compute never stands still\n");
        return;
    }
    fg_buf_puts(out, "\nexposed     compute stands still while these run\n");
    for (uint32_t i = 0; i < order.len && i < MAX_EXPOSED; i++) {
        const FgTransfer *t = &r->profile.transfers.data[order.data[i]];
        fg_buf_printf(out, "  %-10s %s%s\n", fg_us_text(arena, exposed(&r->profile, t)),
                      fg_node_text_of(arena, r->compiled->module, t->node),
                      t->times > 1.0 ? fg_arena_printf(arena, ", %.0f times", t->times) : "");
    }
    if (order.len > MAX_EXPOSED)
        fg_buf_printf(out, "  and %u more\n", order.len - MAX_EXPOSED);
}

/* ---- critical path ---- */
/* Several runs of one stream and phase, over layers, told as one. */
typedef struct Stretch {
    uint32_t first, last; /* runs */
    uint32_t nodes;
    double us;
} Stretch;

typedef FG_VEC(Stretch) Stretches;

static Stretches stretches_of(FgArena *arena, const FgProfile *p, bool join)
{
    Stretches out = {0};
    for (uint32_t i = 0; i < p->path.len; i++) {
        const FgPathRun *run = &p->path.data[i];
        double us = run->times * (run->end_us - run->start_us);
        Stretch *last = out.len ? &out.data[out.len - 1] : NULL;
        const FgPathRun *before = last ? &p->path.data[last->last] : NULL;
        if (join && last && before->func == run->func && before->stream == run->stream &&
            before->phase == run->phase) {
            last->last = i;
            last->nodes += run->nodes;
            last->us += us;
        } else {
            Stretch one = {i, i, run->nodes, us};
            fg_vec_push(arena, &out, one);
        }
    }
    return out;
}

static void put_stretch(FgArena *arena, const FgRunning *r, const Stretch *s, FgBuf *out)
{
    const FgModule *m = r->compiled->module;
    const FgPathRun *first = &r->profile.path.data[s->first],
                    *last = &r->profile.path.data[s->last];
    fg_buf_printf(out, "  %-10s %-8s ", fg_us_text(arena, s->us), fg_stream_name(first->stream));
    if (s->nodes == 1)
        fg_buf_puts(out, fg_node_text_of(arena, m, first->first));
    else if (s->first == s->last)
        fg_buf_printf(out, "%s %s, %u nodes", fg_phase_name(first->phase), first->place, s->nodes);
    else
        fg_buf_printf(out, "%s %s to %s, %u nodes", fg_phase_name(first->phase), first->place,
                      last->place, s->nodes);
    if (first->times > 1.0)
        fg_buf_printf(out, ", %.0f times", first->times);
    fg_buf_puts(out, "\n");
}

static void put_path(FgArena *arena, const FgRunning *r, FgBuf *out)
{
    Stretches path = stretches_of(arena, &r->profile, r->profile.path.len > MAX_RUNS);
    fg_buf_puts(out, "\npath        what makes the step as long as it is, without a gap\n");
    if (path.len <= 2 * MAX_RUNS) {
        for (uint32_t i = 0; i < path.len; i++)
            put_stretch(arena, r, &path.data[i], out);
        return;
    }
    for (uint32_t i = 0; i < MAX_RUNS; i++)
        put_stretch(arena, r, &path.data[i], out);
    fg_buf_printf(out, "  ... %u more; --format json has them all\n", path.len - 2 * MAX_RUNS);
    for (uint32_t i = path.len - MAX_RUNS; i < path.len; i++)
        put_stretch(arena, r, &path.data[i], out);
}

/* ---- the whole ---- */
static void put_streams(FgArena *arena, const FgSim *sim, FgBuf *out)
{
    fg_buf_printf(out, "\n%-11s %-12s %-12s %s\n", "streams", "busy", "idle",
                  "exposed: compute stands still for it");
    for (uint32_t s = 0; s < FG_N_STREAMS; s++) {
        if (sim->busy_us[s] <= 0.0)
            continue;
        fg_buf_printf(out, "  %-9s %-12s %-12s %s\n", fg_stream_name((FgStream)s),
                      fg_us_text(arena, sim->busy_us[s]),
                      fg_us_text(arena, fg_idle_us(sim, (FgStream)s)),
                      s == FG_STREAM_COMPUTE ? "-" : fg_us_text(arena, sim->exposed_us[s]));
    }
}

static const char *engine_name(uint32_t engine)
{
    return engine == FG_ENGINE_PARTS   ? "parts"
           : engine == FG_ENGINE_LIGHT ? "light"
                                       : fg_stream_name((FgStream)engine);
}

/* The bound at joint rates, and what a second less of each engine's work would take off it. */
static void put_joint(FgArena *arena, const FgSim *sim, FgBuf *out)
{
    const char *before = "";
    fg_buf_printf(out,
                  "joint       %s: all engines at the rates that they have beside each other; the "
                  "step is %.2f times that\n            a second less of work takes off: ",
                  fg_us_text(arena, sim->joint_us),
                  sim->joint_us > 0.0 ? sim->step_us / sim->joint_us : 1.0);
    for (uint32_t e = 0; e < FG_N_ENGINES; e++) {
        if (sim->joint_price[e] < 0.005)
            continue;
        fg_buf_printf(out, "%s%s %.2f s", before, engine_name(e), sim->joint_price[e]);
        before = ", ";
    }
    fg_buf_puts(out, *before ? "\n" : "nothing\n");
}

void fg_profile_text(const FgSession *session, const FgRunning *r, FgBuf *out)
{
    FgArena *arena = session->arena;
    const FgCompiled *c = r->compiled;
    const FgSim *sim = &c->sim;
    bool chain = strcmp(sim->bound_engine, "dependencies") == 0;
    fg_buf_printf(out, "%s   plan %s on %s   step %s, peak %s of %s\n", c->module->name,
                  c->module->plan->name, session->machine.name, fg_us_text(arena, sim->step_us),
                  fg_bytes_text(arena, c->ledger.peak_bytes),
                  fg_bytes_text(arena, c->budget_bytes));
    fg_buf_printf(out, "bound       %s: %s; the step is %.2f times that\n",
                  fg_us_text(arena, sim->bound_us),
                  chain ? "the longest chain of dependencies"
                        : fg_arena_printf(arena, "the work of %s alone", sim->bound_engine),
                  sim->bound_us > 0.0 ? sim->step_us / sim->bound_us : 1.0);
    if (sim->bound_node != FG_NO_ID)
        fg_buf_printf(out, "            %s %s\n", chain ? "it ends with" : "its longest node is",
                      fg_node_text_of(arena, c->module, sim->bound_node));
    put_joint(arena, sim, out);
    put_streams(arena, sim, out);
    put_exposed(arena, r, out);
    put_path(arena, r, out);
}

/* ---- JSON ---- */
static void put_streams_json(FgArena *arena, const FgSim *sim, FgBuf *out)
{
    fg_buf_puts(out, "  \"streams\": {");
    for (uint32_t s = 0; s < FG_N_STREAMS; s++)
        fg_buf_printf(out, "%s\"%s\": {\"busy_us\": %s, \"idle_us\": %s, \"exposed_us\": %s}",
                      s ? ", " : "", fg_stream_name((FgStream)s),
                      fg_double_text(arena, sim->busy_us[s]),
                      fg_double_text(arena, fg_idle_us(sim, (FgStream)s)),
                      fg_double_text(arena, sim->exposed_us[s]));
    fg_buf_puts(out, "},\n");
}

static void put_collectives_json(FgArena *arena, const FgRunning *r, FgBuf *out)
{
    const FgModule *m = r->compiled->module;
    bool first = true;
    fg_buf_puts(out, "  \"collectives\": [");
    for (uint32_t i = 0; i < r->profile.transfers.len; i++) {
        const FgTransfer *t = &r->profile.transfers.data[i];
        const FgNode *node = &m->nodes.data[t->node];
        if (!t->collective)
            continue;
        fg_buf_printf(out,
                      "%s\n    {\"node\": %u, \"func\": \"%s\", \"times\": %.0f, \"stream\": "
                      "\"%s\", \"name\": %s, \"start_us\": %s, \"end_us\": %s, \"exposed_us\": %s}",
                      first ? "" : ",", t->node, m->funcs.data[t->func].name, t->times,
                      fg_stream_name(node->stream),
                      fg_quoted(arena, fg_node_text_of(arena, m, t->node)),
                      fg_double_text(arena, r->profile.run[t->node].start_us),
                      fg_double_text(arena, r->profile.run[t->node].end_us),
                      fg_double_text(arena, exposed(&r->profile, t)));
        first = false;
    }
    fg_buf_puts(out, "],\n");
}

static void put_path_json(FgArena *arena, const FgRunning *r, FgBuf *out)
{
    const FgModule *m = r->compiled->module;
    fg_buf_puts(out, "  \"critical_path\": [");
    for (uint32_t i = 0; i < r->profile.path.len; i++) {
        const FgPathRun *run = &r->profile.path.data[i];
        const FgSimNode *longest = &r->profile.run[run->longest];
        fg_buf_printf(
            out,
            "%s\n    {\"func\": \"%s\", \"times\": %.0f, \"stream\": \"%s\", \"phase\": \"%s\", "
            "\"place\": %s, \"nodes\": %u, \"first\": %u, \"last\": %u, \"start_us\": %s, "
            "\"us\": %s, \"longest\": {\"node\": %u, \"name\": %s, \"us\": %s}}",
            i ? "," : "", m->funcs.data[run->func].name, run->times, fg_stream_name(run->stream),
            fg_phase_name(run->phase), fg_quoted(arena, run->place), run->nodes, run->first,
            run->last, fg_double_text(arena, run->start_us),
            fg_double_text(arena, run->end_us - run->start_us), run->longest,
            fg_quoted(arena, fg_node_text_of(arena, m, run->longest)),
            fg_double_text(arena, longest->end_us - longest->start_us));
    }
    fg_buf_puts(out, "],\n");
}

static void put_joint_json(FgArena *arena, const FgSim *sim, FgBuf *out)
{
    fg_buf_printf(out, "  \"joint\": {\"us\": %s, \"price\": {",
                  fg_double_text(arena, sim->joint_us));
    for (uint32_t e = 0; e < FG_N_ENGINES; e++)
        fg_buf_printf(out, "%s\"%s\": %s", e ? ", " : "", engine_name(e),
                      fg_double_text(arena, sim->joint_price[e]));
    fg_buf_puts(out, "}},\n");
}

void fg_profile_json(FgArena *arena, const FgRunning *r, FgBuf *out)
{
    const FgSim *sim = &r->compiled->sim;
    fg_buf_printf(out, "  \"bound\": {\"us\": %s, \"engine\": \"%s\", \"node\": ",
                  fg_double_text(arena, sim->bound_us), sim->bound_engine);
    if (sim->bound_node == FG_NO_ID)
        fg_buf_puts(out, "null, \"name\": null},\n");
    else
        fg_buf_printf(
            out, "%u, \"name\": %s},\n", sim->bound_node,
            fg_quoted(arena, fg_node_text_of(arena, r->compiled->module, sim->bound_node)));
    put_joint_json(arena, sim, out);
    put_streams_json(arena, sim, out);
    put_collectives_json(arena, r, out);
    put_path_json(arena, r, out);
}
