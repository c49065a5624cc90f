/* explain: one story a node, from the schedule, its simulated run and a second schedule for more
 * memory. */
#include "tools/command/explain.h"

#include "passes/liveness.h"
#include "passes/lower.h"
#include "tools/command/align.h"

#include <string.h>

const char *fg_us_text(FgArena *arena, double us)
{
    if (us >= 1e6)
        return fg_arena_printf(arena, "%.3f s", us / 1e6);
    return us >= 1e3 ? fg_arena_printf(arena, "%.3f ms", us / 1e3)
                     : fg_arena_printf(arena, "%.1f us", us);
}

const char *fg_node_text_of(FgArena *arena, const FgModule *m, uint32_t node)
{
    uint32_t at;
    const FgFunc *func = fg_node_func(m, node, &at);
    return func ? fg_node_text(arena, m, func, at) : fg_op_info(m->nodes.data[node].op)->name;
}

static uint32_t root_of(const FgModule *m, uint32_t value)
{
    while (m->values.data[value].root != value)
        value = m->values.data[value].root;
    return value;
}

/* Since when the stream of a node has done nothing, when it starts. */
static double idle_before(const FgModule *m, const FgProfile *p, const FgFunc *func, uint32_t at)
{
    const FgNode *node = &m->nodes.data[func->order.data[at]];
    double free = 0.0;
    for (uint32_t i = at; i-- > 0;) {
        uint32_t id = func->order.data[i];
        if (m->nodes.data[id].stream == node->stream && !fg_node_is_name(&m->nodes.data[id])) {
            free = p->run[id].end_us;
            break;
        }
    }
    return p->run[node->id].start_us - free;
}

/* What a use waits for its gather alone: from when all else that it awaits is over. */
static double waits_for(FgArena *arena, const FgModule *m, const FgProfile *p, uint32_t use,
                        uint32_t gather)
{
    FgAwaitedVec all = fg_awaits(arena, m, p->run, use);
    double other = 0.0, end = p->run[gather].end_us;
    bool waits = false;
    for (uint32_t i = 0; i < all.len; i++) {
        waits = waits || all.data[i].node == gather;
        if (all.data[i].node != gather && p->run[all.data[i].node].end_us > other)
            other = p->run[all.data[i].node].end_us;
    }
    return waits && end > other ? end - other : 0.0;
}

/* ---- gathers ---- */

/* The first node of a step that reads a copy which was gathered in the step before, or FG_NO_ID. */
static uint32_t use_in_next_step(const FgModule *m, uint32_t gather)
{
    uint32_t root = root_of(m, m->nodes.data[gather].results[0]);
    for (uint32_t f = 0; f < m->funcs.len; f++) {
        const FgFunc *func = &m->funcs.data[f];
        if (strcmp(func->name, "step") != 0 && strcmp(func->name, "first") != 0)
            continue;
        for (uint32_t i = 0; i < func->order.len; i++) {
            const FgNode *node = &m->nodes.data[func->order.data[i]];
            for (uint32_t k = 0; k < node->n_operands && fg_node_is_compute(node); k++)
                if (node->operands[k] != FG_NO_ID && root_of(m, node->operands[k]) == root)
                    return node->id;
        }
    }
    return FG_NO_ID;
}

static void tell_next_step(const FgModule *m, const FgProfile *p, const FgFunc *func, FgStory *s)
{
    double end = 0.0;
    for (uint32_t i = 0; i < func->order.len; i++)
        end = p->run[func->order.data[i]].end_us > end ? p->run[func->order.data[i]].end_us : end;
    s->use = use_in_next_step(m, s->node);
    s->next_step = s->use != FG_NO_ID;
    if (s->next_step)
        s->slack_us = end - s->end_us + p->run[s->use].start_us;
}

static void tell_gather(FgArena *arena, const FgModule *m, const FgProfile *p, uint64_t budget,
                        FgStory *s)
{
    const FgFunc *func = &m->funcs.data[s->func];
    uint32_t use = fg_first_use(m, func, s->at);
    s->use = use < func->order.len ? func->order.data[use] : FG_NO_ID;
    for (uint32_t i = s->at + 1; i < use; i++) {
        const FgNode *node = &m->nodes.data[func->order.data[i]];
        if (!fg_node_is_compute(node))
            continue;
        s->before = s->before == FG_NO_ID ? node->id : s->before;
        s->ahead++;
    }
    if (s->before == FG_NO_ID)
        s->before = s->use;
    if (s->use == FG_NO_ID) {
        tell_next_step(m, p, func, s);
    } else {
        s->waited_us = waits_for(arena, m, p, s->use, s->node);
        s->slack_us = p->run[s->use].start_us - s->end_us;
    }
    fg_gather_room(arena, m, budget, s->node, &s->room);
}

/* The gather whose buffer a node reads: of the bucket of that name, or the first; FG_NO_ID: the
 * node reads none that this function gathers. */
static uint32_t gather_read(const FgModule *m, const FgFunc *func, uint32_t at, const char *bucket)
{
    const FgNode *node = &m->nodes.data[func->order.data[at]];
    uint32_t found = FG_NO_ID;
    for (uint32_t k = 0; k < node->n_operands; k++) {
        if (node->operands[k] == FG_NO_ID)
            continue;
        uint32_t root = root_of(m, node->operands[k]);
        for (uint32_t i = at; i-- > 0;) {
            const FgNode *other = &m->nodes.data[func->order.data[i]];
            if (other->op != FG_OP_gather || root_of(m, other->results[0]) != root)
                continue;
            if (strcmp(m->buckets.data[other->bucket].name, bucket) == 0)
                return other->id;
            found = found == FG_NO_ID ? other->id : found;
            break;
        }
    }
    return found;
}

/* ---- the same node in another schedule ---- */
static bool alike(const FgNode *a, const FgNode *b)
{
    return a->op == b->op && a->phase == b->phase && strcmp(a->name, b->name) == 0;
}

static const FgFunc *func_named(const FgModule *m, const char *name)
{
    for (uint32_t f = 0; f < m->funcs.len; f++)
        if (strcmp(m->funcs.data[f].name, name) == 0)
            return &m->funcs.data[f];
    return NULL;
}

/* Position in `other` of the node that does what the node at `at` does: the same op, name and
 * phase, as often before. */
static uint32_t same_place(const FgModule *m, const FgFunc *func, uint32_t at,
                           const FgModule *other_m, const FgFunc *other)
{
    const FgNode *node = &m->nodes.data[func->order.data[at]];
    uint32_t nth = 0;
    for (uint32_t i = 0; i < at; i++)
        nth += alike(node, &m->nodes.data[func->order.data[i]]);
    for (uint32_t i = 0; i < other->order.len; i++)
        if (alike(node, &other_m->nodes.data[other->order.data[i]]) && nth-- == 0)
            return i;
    return other->order.len;
}

static void find_twin(FgArena *arena, const FgExplanation *e, FgStory *s)
{
    const FgModule *m = e->now.compiled->module, *other_m = e->more.compiled->module;
    const FgFunc *func = &m->funcs.data[s->func], *other = func_named(other_m, func->name);
    const FgProfile *p = &e->more.profile;
    uint32_t at = s->at, anchor;
    if (s->gather && (s->use == FG_NO_ID || s->next_step || !fg_node_func(m, s->use, &at)))
        return;
    anchor = other ? same_place(m, func, at, other_m, other) : 0;
    if (!other || anchor == other->order.len)
        return;
    uint32_t id = other->order.data[anchor];
    if (s->gather)
        id = gather_read(other_m, other, anchor,
                         m->buckets.data[m->nodes.data[s->node].bucket].name);
    if (id == FG_NO_ID)
        return;
    uint32_t place = 0;
    bool stands = fg_node_func(other_m, id, &place) == other;
    s->twin.node = id;
    s->twin.exposed_us = p->run[id].stall_us;
    s->twin.waited_us = s->gather ? waits_for(arena, other_m, p, other->order.data[anchor], id)
                        : stands  ? idle_before(other_m, p, other, place)
                                  : 0.0;
}

/* ---- stories ---- */
static void find_held_up(FgArena *arena, const FgModule *m, const FgProfile *p, FgStory *s)
{
    const FgFunc *func = &m->funcs.data[s->func];
    const FgNode *node = &m->nodes.data[s->node];
    for (uint32_t i = s->at + 1; i < func->order.len; i++) {
        const FgNode *other = &m->nodes.data[func->order.data[i]];
        if (other->stream != node->stream && !fg_node_is_name(other) &&
            p->run[other->id].after == s->node && s->end_us > s->start_us)
            fg_vec_push(arena, &s->holds_up, other->id);
    }
}

/* Follows a busy stream back to the node that it has been busy from. */
static void find_head(FgArena *arena, const FgModule *m, const FgProfile *p, FgStory *s)
{
    s->head = s->node;
    s->head_decides = s->decides;
    while (s->head_decides.why == FG_WHY_ENGINE) {
        s->head = s->head_decides.node;
        s->head_decides = fg_decides(arena, m, p->run, s->head);
        s->queued++;
    }
}

static void tell(FgExplanation *e, uint32_t id)
{
    FgArena *arena = e->session->arena;
    const FgModule *m = e->now.compiled->module;
    const FgProfile *p = &e->now.profile;
    const FgNode *node = &m->nodes.data[id];
    FgStory s = {.node = id,
                 .gather = node->op == FG_OP_gather,
                 .use = FG_NO_ID,
                 .before = FG_NO_ID,
                 .twin = {.node = FG_NO_ID}};
    const FgFunc *func = fg_node_func(m, id, &s.at);
    s.func = (uint32_t)(func - m->funcs.data);
    s.text = fg_node_text(arena, m, func, s.at);
    s.start_us = p->run[id].start_us;
    s.end_us = p->run[id].end_us;
    s.exposed_us = p->run[id].stall_us;
    s.alone_us = fg_node_seconds(m, &e->session->machine, node) * 1e6;
    s.idle_us = idle_before(m, p, func, s.at);
    s.awaits = fg_awaits(arena, m, p->run, id);
    s.decides = fg_decides(arena, m, p->run, id);
    find_head(arena, m, p, &s);
    find_held_up(arena, m, p, &s);
    if (s.gather)
        tell_gather(arena, m, p, e->now.compiled->budget_bytes, &s);
    find_twin(arena, e, &s);
    fg_vec_push(arena, &e->stories, s);
}

static FgGroup *group_of(FgExplanation *e, uint32_t func, const FgNode *node)
{
    FgArena *arena = e->session->arena;
    const char *place = fg_node_place(arena, node);
    for (uint32_t i = e->groups.len; i > 0; i--) {
        FgGroup *g = &e->groups.data[i - 1];
        if (g->func == func && g->phase == node->phase && strcmp(g->place, place) == 0)
            return g;
    }
    FgGroup fresh = {.func = func,
                     .phase = node->phase,
                     .place = place,
                     .start_us = e->now.profile.run[node->id].start_us};
    fg_vec_push(arena, &e->groups, fresh);
    return &e->groups.data[e->groups.len - 1];
}

static void tell_together(FgExplanation *e, uint32_t id)
{
    FgArena *arena = e->session->arena;
    const FgModule *m = e->now.compiled->module;
    const FgProfile *p = &e->now.profile;
    uint32_t at;
    const FgFunc *func = fg_node_func(m, id, &at);
    FgGroup *g = group_of(e, (uint32_t)(func - m->funcs.data), &m->nodes.data[id]);
    FgStandstill still = {.node = id, .us = idle_before(m, p, func, at)};
    g->nodes++;
    g->end_us = p->run[id].end_us;
    g->busy_us += p->run[id].end_us - p->run[id].start_us;
    g->idle_us += still.us;
    if (still.us <= 0.0)
        return;
    still.decides = fg_decides(arena, m, p->run, id);
    fg_vec_push(arena, &g->standstills, still);
}

void fg_explain(FgExplanation *e, const FgFound *found)
{
    e->what = found->what;
    for (uint32_t i = 0; i < found->details.len; i++)
        tell(e, found->details.data[i]);
    for (uint32_t i = 0; i < found->together.len; i++)
        tell_together(e, found->together.data[i]);
}
