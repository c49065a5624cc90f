/* The stories of `explain` as text: a few lines a node, each with what it is about in front. */
#include "tools/command/explain.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_DETAILS 12 /* more nodes are told one a line */
#define MAX_TENANTS 8
#define MAX_NAMES 3
#define NOTHING_US 0.05 /* less than the last digit shown */

typedef struct Text {
    const FgExplanation *e;
    const FgModule *m;
    FgArena *arena;
    FgBuf *out;
} Text;

static const char *us(const Text *t, double x)
{
    return fg_us_text(t->arena, fabs(x) < NOTHING_US ? 0.0 : x);
}

static const char *node_text(const Text *t, uint32_t node)
{
    return fg_node_text_of(t->arena, t->m, node);
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Whose memory a value is, for people: "gathered @layers.3", "activations of forward layers.2". */
static const char *value_text(const Text *t, uint32_t value)
{
    const FgValue *v = &t->m->values.data[value];
    while (v->root != v->id)
        v = &t->m->values.data[v->root];
    return fg_arena_printf(t->arena, "%%%s.%u (%s)", v->name, v->id, fg_mem_class_name(v->mem));
}

static const char *end_of(const Text *t, uint32_t node)
{
    return us(t, t->e->now.profile.run[node].end_us);
}

/* What a node awaits, as what follows "starts" or "waits". */
static const char *ground_text(const Text *t, const FgAwaited *a)
{
    if (a->why == FG_WHY_START)
        return "with the function: all streams join there";
    const char *node = node_text(t, a->node), *end = end_of(t, a->node);
    if (a->why == FG_WHY_ENGINE)
        return fg_arena_printf(t->arena, "when its stream is free: %s ends at %s", node, end);
    if (a->value == FG_NO_ID)
        return fg_arena_printf(t->arena, "in order behind %s, until %s", node, end);
    const char *value = value_text(t, a->value), *bytes = fg_bytes_text(t->arena, a->bytes);
    if (a->why == FG_WHY_DATA)
        return fg_arena_printf(t->arena, "for data: %s writes %s, until %s", node, value, end);
    if (a->why == FG_WHY_OVERWRITE)
        return fg_arena_printf(t->arena, "for its turn: %s uses %s, until %s", node, value, end);
    return fg_arena_printf(t->arena, "for memory: %s of %s, which %s uses, until %s", bytes, value,
                           node, end);
}

/* ---- a gather ---- */
static void put_room(const Text *t, const FgStory *s)
{
    const FgRoom *r = &s->room;
    fg_buf_printf(t->out, "  earlier   ");
    if (r->earlier)
        fg_buf_printf(t->out, "%u node%s earlier its bytes would still fit; ", r->earlier,
                      plural(r->earlier));
    if (r->barrier == FG_BARRIER_START) {
        fg_buf_puts(t->out, "nothing stands before it but the start of the function\n");
        return;
    }
    const char *node = node_text(t, r->node);
    if (r->barrier == FG_BARRIER_RELEASE)
        fg_buf_printf(t->out, "not before %s: the same bucket is still gathered\n", node);
    else if (r->barrier == FG_BARRIER_UPDATE)
        fg_buf_printf(t->out, "not before %s: it writes the slice that is sent\n", node);
    if (r->barrier != FG_BARRIER_MEMORY)
        return;
    fg_buf_printf(t->out, "memory stops it at %s:\n", node);
    fg_buf_printf(t->out,
                  "            %s of the arena live there, %s of the budget are left for %s\n",
                  fg_bytes_text(t->arena, r->live_bytes), fg_bytes_text(t->arena, r->left_bytes),
                  fg_bytes_text(t->arena, r->needs_bytes));
    uint64_t rest = 0;
    for (uint32_t i = 0; i < r->tenants.len; i++) {
        const FgTenant *x = &r->tenants.data[i];
        if (i >= MAX_TENANTS) {
            rest += x->bytes;
            continue;
        }
        fg_buf_printf(t->out, "            %10s  %s, %s %s\n", fg_bytes_text(t->arena, x->bytes),
                      fg_mem_class_name(x->mem), fg_phase_name(x->phase), x->place);
    }
    if (rest)
        fg_buf_printf(t->out, "            %10s  in %u more places\n",
                      fg_bytes_text(t->arena, rest), r->tenants.len - MAX_TENANTS);
}

static void put_gather(const Text *t, const FgStory *s)
{
    if (s->before != FG_NO_ID)
        fg_buf_printf(t->out, "  issued    %u node%s ahead of its use, before %s\n", s->ahead,
                      plural(s->ahead), node_text(t, s->before));
    if (s->use == FG_NO_ID)
        fg_buf_puts(t->out, "  needed    by no node\n");
    else if (s->next_step)
        fg_buf_printf(t->out, "  needed    by %s of the next step: %s after it is there\n",
                      node_text(t, s->use), us(t, s->slack_us));
    else if (s->waited_us >= NOTHING_US)
        fg_buf_printf(t->out, "  needed    by %s, which waits %s for it and starts at %s\n",
                      node_text(t, s->use), us(t, s->waited_us),
                      us(t, t->e->now.profile.run[s->use].start_us));
    else
        fg_buf_printf(t->out, "  needed    by %s, which starts at %s: %s after it is there\n",
                      node_text(t, s->use), us(t, t->e->now.profile.run[s->use].start_us),
                      us(t, s->slack_us));
    if (s->waited_us < NOTHING_US && s->exposed_us < NOTHING_US)
        fg_buf_puts(t->out, "            nothing to gain: nobody waits for it\n");
    else if (s->decides.why == FG_WHY_ENGINE)
        fg_buf_puts(t->out,
                    "            the link decides: issued earlier it would start no sooner\n");
    else if (s->decides.why == FG_WHY_MEMORY)
        fg_buf_puts(t->out, "            memory decides: its bytes are free no sooner\n");
    else if (s->decides.why == FG_WHY_START)
        fg_buf_puts(t->out,
                    "            the step's start decides: nothing of a step runs before it\n");
    else
        fg_buf_puts(t->out, "            what writes its slice decides\n");
    put_room(t, s);
}

/* ---- any node ---- */
static void put_held_up(const Text *t, const FgStory *s)
{
    if (!s->holds_up.len)
        return;
    fg_buf_printf(t->out, "  holds up  ");
    for (uint32_t i = 0; i < s->holds_up.len && i < MAX_NAMES; i++)
        fg_buf_printf(t->out, "%s%s", i ? ", " : "", node_text(t, s->holds_up.data[i]));
    if (s->holds_up.len > MAX_NAMES)
        fg_buf_printf(t->out, " and %u more", s->holds_up.len - MAX_NAMES);
    fg_buf_puts(t->out, "\n");
}

static void put_twin(const Text *t, const FgStory *s)
{
    if (s->twin.node == FG_NO_ID) {
        fg_buf_printf(t->out, "  +1 GiB    %s\n",
                      s->gather ? "it goes away: what reads it finds it gathered from before"
                                : "no such node");
        return;
    }
    double then = s->twin.waited_us, now = s->gather ? s->waited_us : s->idle_us;
    if (fabs(then - now) < NOTHING_US)
        fg_buf_puts(t->out, "  +1 GiB    nothing changes for it\n");
    else if (s->gather)
        fg_buf_printf(t->out, "  +1 GiB    its use waits %s instead of %s\n", us(t, then),
                      us(t, now));
    else
        fg_buf_printf(t->out, "  +1 GiB    its stream stands still %s before it instead of %s\n",
                      us(t, then), us(t, now));
}

static void put_story(const Text *t, const FgStory *s)
{
    const FgNode *node = &t->m->nodes.data[s->node];
    double took = s->end_us - s->start_us;
    fg_buf_printf(t->out, "\n%s   #%u in @%s, %s stream\n", s->text, s->node,
                  t->m->funcs.data[s->func].name, fg_stream_name(node->stream));
    fg_buf_printf(t->out, "  runs      %s to %s: %s, alone %s\n", us(t, s->start_us),
                  us(t, s->end_us), us(t, took), us(t, s->alone_us));
    fg_buf_printf(t->out, "  starts    %s\n", ground_text(t, &s->decides));
    for (uint32_t i = 0; i < s->awaits.len; i++)
        if (s->awaits.data[i].node != s->decides.node)
            fg_buf_printf(t->out, "  also      %s\n", ground_text(t, &s->awaits.data[i]));
    if (s->queued > 1)
        fg_buf_printf(t->out,
                      "  queue     busy since %s with %u nodes, the first of which starts %s\n",
                      us(t, t->e->now.profile.run[s->head].start_us), s->queued,
                      ground_text(t, &s->head_decides));
    if (s->idle_us >= NOTHING_US)
        fg_buf_printf(t->out, "  idle      its stream stands still %s before it\n",
                      us(t, s->idle_us));
    if (node->stream != FG_STREAM_COMPUTE)
        fg_buf_printf(t->out, "  exposed   compute stands still %s while it runs\n",
                      us(t, s->exposed_us));
    if (s->gather)
        put_gather(t, s);
    put_held_up(t, s);
    put_twin(t, s);
}

static void put_short(const Text *t, const FgStory *s)
{
    fg_buf_printf(t->out, "  %-12s %-12s %-12s %-10s %s\n", us(t, s->start_us), us(t, s->end_us),
                  us(t, s->exposed_us), fg_why_name(s->decides.why), s->text);
}

static void put_group(const Text *t, const FgGroup *g)
{
    fg_buf_printf(t->out, "\n%s %s   %u compute node%s in @%s\n", fg_phase_name(g->phase), g->place,
                  g->nodes, plural(g->nodes), t->m->funcs.data[g->func].name);
    fg_buf_printf(t->out, "  runs      %s to %s: computes %s, stands still %s before these nodes\n",
                  us(t, g->start_us), us(t, g->end_us), us(t, g->busy_us), us(t, g->idle_us));
    for (uint32_t i = 0; i < g->standstills.len; i++) {
        const FgStandstill *x = &g->standstills.data[i];
        if (x->us >= NOTHING_US)
            fg_buf_printf(t->out, "  waits     %s before %s, %s\n", us(t, x->us),
                          node_text(t, x->node), ground_text(t, &x->decides));
    }
}

static void put_more(const Text *t)
{
    const FgCompiled *now = t->e->now.compiled, *more = t->e->more.compiled;
    double gain = now->sim.step_us - more->sim.step_us;
    fg_buf_printf(t->out, "\n+1 GiB      --memory %" PRIu64 "MiB: ", more->memory_bytes >> 20);
    if (gain > 1e-3 * now->sim.step_us)
        fg_buf_printf(t->out, "step %s instead of %s, %.1f %% less\n", us(t, more->sim.step_us),
                      us(t, now->sim.step_us), 100.0 * gain / now->sim.step_us);
    else
        fg_buf_printf(t->out, "buys nothing, the step stays %s\n", us(t, now->sim.step_us));
}

void fg_explanation_text(const FgExplanation *e, FgBuf *out)
{
    const FgCompiled *c = e->now.compiled;
    Text t = {e, c->module, out->arena, out};
    fg_buf_printf(out, "%s   plan %s   step %s, peak %s of %s%s%s\n", c->module->name,
                  c->module->plan->name, us(&t, c->sim.step_us),
                  fg_bytes_text(t.arena, c->ledger.peak_bytes),
                  fg_bytes_text(t.arena, c->budget_bytes), *e->what ? "   " : "", e->what);
    if (e->stories.len > MAX_DETAILS)
        fg_buf_printf(out,
                      "\n%u nodes beside compute; name one (or #id) for its reasons\n"
                      "  %-12s %-12s %-12s %-10s\n",
                      e->stories.len, "start", "end", "exposed", "awaits");
    for (uint32_t i = 0; i < e->stories.len; i++) {
        if (e->stories.len > MAX_DETAILS)
            put_short(&t, &e->stories.data[i]);
        else
            put_story(&t, &e->stories.data[i]);
    }
    for (uint32_t i = 0; i < e->groups.len; i++)
        put_group(&t, &e->groups.data[i]);
    put_more(&t);
}
