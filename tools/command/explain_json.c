/* The stories of `explain` as JSON: the same data as the text, nothing left out. */
#include "ir/op_table.h"
#include "tools/command/explain.h"

#include <inttypes.h>

typedef struct Json {
    const FgExplanation *e;
    const FgModule *m;
    FgArena *arena;
    FgBuf *out;
} Json;

static void put_us(const Json *j, const char *key, double us)
{
    fg_buf_printf(j->out, ", \"%s\": %s", key, fg_double_text(j->arena, us));
}

/* A node as {"node": 12, "name": "..."}; null for none. */
static void put_node(const Json *j, const char *key, uint32_t node)
{
    if (node == FG_NO_ID)
        fg_buf_printf(j->out, ", \"%s\": null", key);
    else
        fg_buf_printf(j->out, ", \"%s\": {\"node\": %u, \"name\": %s}", key, node,
                      fg_quoted(j->arena, fg_node_text_of(j->arena, j->m, node)));
}

static void put_awaited(const Json *j, const FgAwaited *a)
{
    fg_buf_printf(j->out, "{\"why\": \"%s\"", fg_why_name(a->why));
    put_node(j, "node", a->node);
    if (a->node != FG_NO_ID)
        put_us(j, "end_us", j->e->now.profile.run[a->node].end_us);
    if (a->value != FG_NO_ID) {
        const FgValue *v = &j->m->values.data[a->value];
        fg_buf_printf(j->out, ", \"value\": %s, \"class\": \"%s\", \"bytes\": %" PRIu64,
                      fg_quoted(j->arena, v->name), fg_mem_class_name(v->mem), a->bytes);
    }
    fg_buf_puts(j->out, "}");
}

static void put_room(const Json *j, const FgRoom *r)
{
    fg_buf_printf(j->out, ", \"earlier\": {\"nodes\": %u, \"barrier\": \"%s\"", r->earlier,
                  fg_barrier_name(r->barrier));
    put_node(j, "at", r->node);
    fg_buf_printf(j->out, ", \"needs_bytes\": %" PRIu64, r->needs_bytes);
    if (r->barrier == FG_BARRIER_MEMORY) {
        fg_buf_printf(j->out,
                      ", \"live_bytes\": %" PRIu64 ", \"left_bytes\": %" PRIu64 ", \"lives\": [",
                      r->live_bytes, r->left_bytes);
        for (uint32_t i = 0; i < r->tenants.len; i++) {
            const FgTenant *x = &r->tenants.data[i];
            fg_buf_printf(j->out,
                          "%s{\"class\": \"%s\", \"phase\": \"%s\", \"place\": %s, \"bytes\": "
                          "%" PRIu64 ", \"values\": %u}",
                          i ? ", " : "", fg_mem_class_name(x->mem), fg_phase_name(x->phase),
                          fg_quoted(j->arena, x->place), x->bytes, x->values);
        }
        fg_buf_puts(j->out, "]");
    }
    fg_buf_puts(j->out, "}");
}

static void put_gather(const Json *j, const FgStory *s)
{
    fg_buf_printf(j->out, ", \"ahead\": %u", s->ahead);
    put_node(j, "before", s->before);
    put_node(j, "needed_by", s->use);
    put_us(j, "waited_us", s->waited_us);
    put_us(j, "slack_us", s->slack_us);
    put_room(j, &s->room);
}

static void put_story(const Json *j, const FgStory *s)
{
    const FgNode *node = &j->m->nodes.data[s->node];
    fg_buf_printf(j->out, "{\"node\": %u, \"func\": \"%s\", \"op\": \"%s\", \"name\": %s, ",
                  s->node, j->m->funcs.data[s->func].name, fg_op_info(node->op)->name,
                  fg_quoted(j->arena, s->text));
    fg_buf_printf(j->out, "\"stream\": \"%s\", \"phase\": \"%s\"", fg_stream_name(node->stream),
                  fg_phase_name(node->phase));
    put_us(j, "start_us", s->start_us);
    put_us(j, "end_us", s->end_us);
    put_us(j, "alone_us", s->alone_us);
    put_us(j, "exposed_us", s->exposed_us);
    put_us(j, "idle_us", s->idle_us);
    fg_buf_puts(j->out, ", \"starts\": ");
    put_awaited(j, &s->decides);
    fg_buf_printf(j->out, ", \"queue\": {\"nodes\": %u", s->queued);
    put_node(j, "head", s->head);
    fg_buf_puts(j->out, ", \"starts\": ");
    put_awaited(j, &s->head_decides);
    fg_buf_puts(j->out, "}, \"awaits\": [");
    for (uint32_t i = 0; i < s->awaits.len; i++) {
        fg_buf_puts(j->out, i ? ", " : "");
        put_awaited(j, &s->awaits.data[i]);
    }
    fg_buf_puts(j->out, "], \"holds_up\": [");
    for (uint32_t i = 0; i < s->holds_up.len; i++)
        fg_buf_printf(j->out, "%s%u", i ? ", " : "", s->holds_up.data[i]);
    fg_buf_puts(j->out, "]");
    if (s->gather)
        put_gather(j, s);
    if (s->twin.node == FG_NO_ID)
        fg_buf_puts(j->out, ", \"with_more\": null");
    else
        fg_buf_printf(j->out, ", \"with_more\": {\"exposed_us\": %s, \"waited_us\": %s}",
                      fg_double_text(j->arena, s->twin.exposed_us),
                      fg_double_text(j->arena, s->twin.waited_us));
    fg_buf_puts(j->out, "}");
}

static void put_group(const Json *j, const FgGroup *g)
{
    fg_buf_printf(j->out, "{\"func\": \"%s\", \"phase\": \"%s\", \"place\": %s, \"nodes\": %u",
                  j->m->funcs.data[g->func].name, fg_phase_name(g->phase),
                  fg_quoted(j->arena, g->place), g->nodes);
    put_us(j, "start_us", g->start_us);
    put_us(j, "end_us", g->end_us);
    put_us(j, "busy_us", g->busy_us);
    put_us(j, "idle_us", g->idle_us);
    fg_buf_puts(j->out, ", \"standstills\": [");
    for (uint32_t i = 0; i < g->standstills.len; i++) {
        const FgStandstill *x = &g->standstills.data[i];
        fg_buf_printf(j->out, "%s{\"us\": %s", i ? ", " : "", fg_double_text(j->arena, x->us));
        put_node(j, "before", x->node);
        fg_buf_puts(j->out, ", \"awaits\": ");
        put_awaited(j, &x->decides);
        fg_buf_puts(j->out, "}");
    }
    fg_buf_puts(j->out, "]}");
}

void fg_explanation_json(const FgExplanation *e, FgBuf *out)
{
    const FgCompiled *c = e->now.compiled;
    Json j = {e, c->module, out->arena, out};
    fg_buf_printf(out, "{\n  \"model\": %s,\n  \"plan\": %s,\n  \"asked\": %s,\n",
                  fg_quoted(j.arena, c->module->name), fg_quoted(j.arena, c->module->plan->name),
                  fg_quoted(j.arena, e->name));
    fg_buf_printf(out,
                  "  \"memory_bytes\": %" PRIu64 ",\n  \"budget_bytes\": %" PRIu64
                  ",\n  \"peak_bytes\": %" PRIu64 ",\n  \"step_us\": %s,\n",
                  c->memory_bytes, c->budget_bytes, c->ledger.peak_bytes,
                  fg_double_text(j.arena, c->sim.step_us));
    fg_buf_printf(out, "  \"more\": {\"memory_bytes\": %" PRIu64 ", \"step_us\": %s},\n",
                  e->more.compiled->memory_bytes,
                  fg_double_text(j.arena, e->more.compiled->sim.step_us));
    fg_buf_puts(out, "  \"nodes\": [");
    for (uint32_t i = 0; i < e->stories.len; i++) {
        fg_buf_puts(out, i ? ",\n    " : "\n    ");
        put_story(&j, &e->stories.data[i]);
    }
    fg_buf_puts(out, "],\n  \"groups\": [");
    for (uint32_t i = 0; i < e->groups.len; i++) {
        fg_buf_puts(out, i ? ",\n    " : "\n    ");
        put_group(&j, &e->groups.data[i]);
    }
    fg_buf_puts(out, "]\n}\n");
}
