/* shard: gathers and releases each bucket around the intervals of the plan.
 *
 * dist -> dist. `bucket` left one gather a bucket at the head of the function. This pass numbers
 * the uses of each bucket, opens the plan's interval before its first use (a new gather, and views
 * of the parameters that are used in it) and closes it after its last (a release). Views of
 * parameters (a reshaped weight) are made again inside each interval. A bucket may have any number
 * of intervals: a weight used early and late is gathered twice rather than kept. An interval that
 * outlives its function (`keep` over micro-steps, `round` the period) gathers into a state of the
 * role `gathered`; `update` leaves its gather and its release where they belong.
 *
 *   %b = gather %s              %b1 = gather %s ... uses 0-1 ... release %b1
 *   ... uses 0-1 ... use 2  ->  ...
 *                               %b2 = gather %s ... use 2 ... release %b2
 */
#include "passes/lower.h"

#include <string.h>

typedef struct Track {
    uint32_t head_gather; /* value of the gather at the head */
    uint32_t next_use;
    uint32_t plan_at,
        plan_end;    /* the plan's gathers of this bucket: [plan_at, plan_end) are still to come */
    uint32_t open;   /* gathered value of the open interval, or FG_NO_ID */
    uint32_t serial; /* of the open interval, over all buckets; from 1 */
} Track;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    FgIdVec order;
    Track *tracks;
    uint32_t *bucket_of; /* value -> bucket whose memory it names, or FG_NO_ID */
    uint32_t *made;      /* value -> its copy in the interval `made_in` */
    uint32_t *made_in;
    uint32_t n_values, serial;
    bool failed;
} Cx;

static void find_head_values(Cx *cx, const FgIdVec *old)
{
    FgModule *m = cx->m;
    for (uint32_t i = 0; i < old->len; i++) {
        const FgNode *node = fg_node(m, old->data[i]);
        if (node->op == FG_OP_gather) {
            cx->bucket_of[node->results[0]] = node->bucket;
            cx->tracks[node->bucket].head_gather = node->results[0];
        } else if (fg_op_has(node->op, FG_OPF_VIEW)) {
            cx->bucket_of[node->results[0]] = cx->bucket_of[node->operands[0]];
        }
    }
}

static void open_interval(Cx *cx, uint32_t bucket, const FgNode *use)
{
    FgModule *m = cx->m;
    Track *t = &cx->tracks[bucket];
    const FgBucket *b = &m->buckets.data[bucket];
    if (t->plan_at == t->plan_end || m->plan->gathers.data[t->plan_at].first_use != t->next_use) {
        fg_diag(m->diags, use->loc, FG_D_BAD_PLAN,
                "the plan gathers @%s for no interval with use %u (%s)", b->name, t->next_use,
                use->name);
        cx->failed = true;
        return;
    }
    FgBuilder build = {m, &cx->order, use->loc, b->name, use->phase, use->layer, FG_NO_ID};
    const FgType *type = fg_value(m, t->head_gather)->type;
    const FgPlanGather *plan = &m->plan->gathers.data[t->plan_at];
    if ((plan->keep && m->numerics.accumulate > 1) || plan->round) {
        const char *name = fg_arena_printf(m->arena, "%s.whole", b->name);
        t->open = fg_add_state(m, name, type, FG_ROLE_GATHERED, bucket, FG_MEM_GATHERED);
    } else {
        t->open = fg_add_value(m, b->name, type);
        fg_value(m, t->open)->mem = FG_MEM_GATHERED;
    }
    t->serial = ++cx->serial;
    FgNode *node = fg_node_new(&build, FG_OP_gather, &b->shard, 1);
    node->bucket = bucket;
    fg_node_finish_into(&build, node, &t->open, 1);
}

static void close_interval(Cx *cx, uint32_t bucket, uint32_t use_node)
{
    Track *t = &cx->tracks[bucket];
    const FgNode *use = fg_node(cx->m, use_node);
    FgBuilder build = {cx->m,      &cx->order, use->loc, cx->m->buckets.data[bucket].name,
                       use->phase, use->layer, FG_NO_ID};
    FgNode *node = fg_node_new(&build, FG_OP_release, &t->open, 1);
    node->bucket = bucket;
    fg_node_finish_into(&build, node, NULL, 0);
    t->open = FG_NO_ID;
    t->plan_at++;
}

/* The copy of `value` (a parameter's view, or a view of one) that lies in the open interval of its
 * bucket. */
static uint32_t materialise(Cx *cx, uint32_t value)
{
    FgModule *m = cx->m;
    const Track *t = &cx->tracks[cx->bucket_of[value]];
    if (value == t->head_gather)
        return t->open;
    if (cx->made_in[value] == t->serial)
        return cx->made[value];
    FgNode def = *fg_node(m, fg_value(m, value)->def);
    uint32_t operand = materialise(cx, def.operands[0]);
    FgValue old = *fg_value(m, value);
    uint32_t copy = fg_add_value(m, old.name, old.type);
    FgValue *v = fg_value(m, copy);
    v->root = t->open;
    v->root_offset =
        old.root == t->head_gather ? old.root_offset : fg_value(m, operand)->root_offset;
    v->mem = FG_MEM_GATHERED;
    FgBuilder build = {m, &cx->order, def.loc, def.name, def.phase, def.layer, def.id};
    FgNode *node = fg_node_new(&build, def.op, &operand, 1);
    node->attrs = def.attrs;
    fg_node_finish_into(&build, node, &copy, 1);
    cx->made[value] = copy;
    cx->made_in[value] = t->serial;
    return copy;
}

static void use_node(Cx *cx, uint32_t id)
{
    FgModule *m = cx->m;
    FgNode node = *fg_node(m, id);
    uint32_t *operands = FG_NEW_ARRAY(m->arena, uint32_t, node.n_operands);
    FgIdVec buckets = {0};
    for (uint32_t k = 0; k < node.n_operands && !cx->failed; k++) {
        uint32_t v = operands[k] = node.operands[k];
        uint32_t bucket = v == FG_NO_ID || v >= cx->n_values ? FG_NO_ID : cx->bucket_of[v];
        if (bucket == FG_NO_ID)
            continue;
        bool seen = false;
        for (uint32_t i = 0; i < buckets.len; i++)
            seen |= buckets.data[i] == bucket;
        if (!seen)
            fg_vec_push(cx->scratch, &buckets, bucket);
        if (cx->tracks[bucket].open == FG_NO_ID)
            open_interval(cx, bucket, &node);
        if (!cx->failed)
            operands[k] = materialise(cx, v);
    }
    if (cx->failed)
        return;
    fg_node(m, id)->operands = operands;
    fg_vec_push(m->arena, &cx->order, id);
    for (uint32_t i = 0; i < buckets.len; i++) {
        Track *t = &cx->tracks[buckets.data[i]];
        if (m->plan->gathers.data[t->plan_at].last_use == t->next_use++)
            close_interval(cx, buckets.data[i], id);
    }
}

static void start_tracks(Cx *cx)
{
    const FgPlan *plan = cx->m->plan;
    for (uint32_t b = 0; b < cx->m->buckets.len; b++)
        cx->tracks[b] = (Track){FG_NO_ID, 0, 0, 0, FG_NO_ID, 0};
    for (uint32_t i = 0; i < plan->gathers.len; i++) {
        Track *t = &cx->tracks[plan->gathers.data[i].bucket];
        if (t->plan_end == 0)
            t->plan_at = i;
        t->plan_end = i + 1;
    }
}

/* Levers that carry a copy over the border of a function. */
static bool check_carried(const FgModule *m, uint32_t index)
{
    const FgPlanGather *g = &m->plan->gathers.data[index];
    bool first = index == 0 || g[-1].bucket != g->bucket;
    bool only = first && (index + 1 == m->plan->gathers.len || g[1].bucket != g->bucket);
    uint32_t offload = m->plan->buckets.data[g->bucket].offload;
    const char *wrong = NULL;
    if (g->keep && (offload & FG_OFFLOAD_PARAMETERS))
        wrong = "keeps a bucket over micro-steps whose shard lies in host memory";
    else if (g->round && offload)
        wrong = "runs round the period, but states of its bucket lie in host memory";
    else if (g->keep && !only)
        wrong = "keeps a bucket over micro-steps that is gathered again";
    else if (g->round && !first)
        wrong = "runs round the period before a later use than the first";
    else if (g->round && fg_update_waits(&m->numerics))
        wrong =
            m->numerics.clip > 0
                ? "runs round the period, but with clipping the update comes after the cut"
                : "runs round the period, but with a scaled loss the update comes after the cut";
    else if (g->round && m->numerics.accumulate > 1 && !g->keep)
        wrong = "runs round the period, but is not kept over the micro-steps";
    if (wrong)
        fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN, "gather %u of the plan %s", index, wrong);
    return !wrong;
}

static bool check_plan(const FgModule *m)
{
    if (!m->plan) {
        fg_diag(m->diags, FG_NOWHERE, FG_D_NO_PLAN, "the module has no plan to shard by");
        return false;
    }
    const FgPlanGather *last = NULL;
    for (uint32_t i = 0; i < m->plan->gathers.len; i++) {
        const FgPlanGather *g = &m->plan->gathers.data[i];
        bool ok = g->bucket < m->buckets.len && g->first_use <= g->last_use && g->ahead >= 0 &&
                  (!last || last->bucket < g->bucket ||
                   (last->bucket == g->bucket && last->last_use < g->first_use));
        if (!ok) {
            fg_diag(
                m->diags, FG_NOWHERE, FG_D_BAD_PLAN,
                "gather %u of the plan is out of order or out of range (sort by bucket, then use)",
                i);
            return false;
        }
        if (!check_carried(m, i))
            return false;
        last = g;
    }
    return true;
}

FgPassResult fg_pass_shard(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (!fg_pass_is_first(m, FG_OP_release, "shard") || !check_plan(m))
        return FG_PASS_FAILED;
    Cx cx = {.m = m, .scratch = pass->scratch, .n_values = m->values.len};
    cx.tracks = FG_NEW_ARRAY(pass->scratch, Track, m->buckets.len + 1);
    cx.bucket_of = FG_NEW_ARRAY(pass->scratch, uint32_t, cx.n_values);
    cx.made = FG_NEW_ARRAY(pass->scratch, uint32_t, cx.n_values);
    cx.made_in = FG_NEW_ARRAY(pass->scratch, uint32_t, cx.n_values);
    memset(cx.bucket_of, 0xff, cx.n_values * sizeof *cx.bucket_of);
    FgIdVec old = fg_func(m, "step")->order;
    start_tracks(&cx);
    find_head_values(&cx, &old);
    for (uint32_t i = 0; i < old.len && !cx.failed; i++) {
        const FgNode *node = fg_node(m, old.data[i]);
        bool dropped = node->op == FG_OP_gather || (fg_op_has(node->op, FG_OPF_VIEW) &&
                                                    cx.bucket_of[node->results[0]] != FG_NO_ID);
        if (!dropped)
            use_node(&cx, old.data[i]);
    }
    for (uint32_t b = 0; b < m->buckets.len && !cx.failed; b++)
        if (cx.tracks[b].open != FG_NO_ID) {
            fg_diag(m->diags, FG_NOWHERE, FG_D_BAD_PLAN, "the plan never releases @%s",
                    m->buckets.data[b].name);
            cx.failed = true;
        }
    fg_func(m, "step")->order = cx.order;
    bool same = old.len == cx.order.len && /* nothing is gathered */
                (old.len == 0 || memcmp(old.data, cx.order.data, old.len * sizeof *old.data) == 0);
    return cx.failed ? FG_PASS_FAILED : same ? FG_PASS_UNCHANGED : FG_PASS_CHANGED;
}
