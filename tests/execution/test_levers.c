/* I5 by execution: plans that no search would make. Bucket borders, recomputed sets, carried copies
 * and prefetches are drawn at random; three steps must leave what ZeRO-3's schedule leaves, to the
 * last bit. */
#include "trained.h"

#include "base/file.h"
#include "frontend/model.h"

#include <math.h>
#include <string.h>

#define MODELS 4

/* Keeps some buckets over the micro-steps, and lets some first gathers run round the period. */
static void carry_some(FgModule *m, Random *random)
{
    FgPlan *plan = m->plan;
    bool micro_steps = m->numerics.accumulate > 1, rounds = !fg_update_waits(&m->numerics);
    uint32_t n = 0;
    for (uint32_t i = 0, end; i < plan->gathers.len; i = end) {
        FgPlanGather g = plan->gathers.data[i];
        for (end = i + 1; end < plan->gathers.len && plan->gathers.data[end].bucket == g.bucket;)
            end++;
        if (micro_steps && random_below(random, 2)) {
            g.keep = true;
            g.last_use = plan->gathers.data[end - 1].last_use;
        }
        g.round = rounds && (g.keep || !micro_steps) && random_below(random, 2);
        g.ahead = random_below(random, 4);
        plan->gathers.data[n++] = g;
        for (uint32_t k = i + 1; k < end && !g.keep; k++)
            plan->gathers.data[n++] = plan->gathers.data[k];
    }
    plan->gathers.len = n;
}

/* Does a forward node stand in backward again? */
static bool runs_twice(const FgModule *m)
{
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        if (node->phase == FG_PHASE_BACKWARD && node->origin != FG_NO_ID &&
            (node->op == FG_OP_linear || node->op == FG_OP_attention || node->op == FG_OP_rmsnorm ||
             node->op == FG_OP_layernorm) &&
            m->nodes.data[node->origin].op == node->op) /* no gradient is one of these */
            return true;
    }
    return false;
}

/* Does the program carry a gathered copy over the border of a function? */
static bool carries(const FgModule *m)
{
    for (uint32_t v = 0; v < m->values.len; v++)
        if (fg_is_carried(m, v))
            return true;
    return false;
}

/* Is it the head of a sharded vocabulary, which makes logits once, a piece at a time? */
static bool is_sharded_head(const FgModule *m, const FgNode *node)
{
    if (node->op != FG_OP_linear)
        return false;
    const FgValue *weight = &m->values.data[node->operands[1]];
    return weight->kind == FG_VALUE_PARAM && m->params.data[weight->index].sharded;
}

/* Such a head runs once, and so does what it reads: its gradient is made in the same piece. */
static bool *nodes_of_heads(FgArena *arena, const FgModule *m)
{
    bool *out = FG_NEW_ARRAY(arena, bool, m->nodes.len + 1);
    for (uint32_t i = 0; i < m->nodes.len; i++) {
        const FgNode *node = &m->nodes.data[i];
        for (bool next = is_sharded_head(m, node); next;) {
            const FgValue *x = &m->values.data[node->operands[0]];
            out[node->id] = true;
            next = x->kind == FG_VALUE_RESULT;
            if (next)
                node = &m->nodes.data[x->def];
            out[node->id] = true;
            next = next && fg_op_has(node->op, FG_OPF_VIEW);
        }
    }
    return out;
}

/* Layers, modules, or layers of which one is cut: gathered at use. */
static FgPlan *random_borders(FgModule *m, FgArena *arena, Random *random)
{
    const FgBorders borders[] = {{0}, {.by_module = true}, {.cut = 0.1}, {.cut = 0.5}};
    uint64_t which = random_below(random, 4);
    FgPlan *plan = fg_plan_units(m, arena, "random", FG_RECOMPUTE_SELECTIVE, borders[which]);
    return plan ? plan : fg_plan_fixed(m, arena, "random", FG_RECOMPUTE_SELECTIVE);
}

/* The ZeRO-3 plan with a random set of forward nodes recomputed, borders and cascades among them,
 * and random copies carried, lowered and proved. False after errors. */
static bool random_set(TrainedSetup *s, Random *random, FgCompiled *out)
{
    const char *text = random_model(s->arena, s->seed);
    FgModelOptions options = {.numerics = s->numerics};
    FgModule *m = fg_model_parse(s->arena, s->diags, "random.json", text, strlen(text), &options);
    FgPassManager pm = {.arena = s->arena, .machine = &s->machine, .budget = UINT64_MAX};
    if (!m || !fg_run_passes(&pm, m, FG_PIPELINE_GRAPH))
        return false;
    FgIdVec some = {0};
    const bool *head = nodes_of_heads(s->arena, m);
    const FgIdVec *order = &fg_func(m, "step")->order;
    for (uint32_t id = 0; id < m->nodes.len; id++) {
        const FgNode *node = fg_node(m, id);
        bool stands = false, can = node->phase == FG_PHASE_FORWARD && node->n_results > 0 &&
                                   !fg_op_has(node->op, FG_OPF_CONSTANT) &&
                                   node->op != FG_OP_cross_entropy && node->op != FG_OP_loss_seed;
        can = can && !head[id];
        for (uint32_t i = 0; i < order->len && can; i++)
            stands = stands || order->data[i] == id;
        if (stands && node->results[0] != m->loss && random_below(random, 2))
            fg_vec_push(s->arena, &some, id);
    }
    FgModule *again = fg_module_clone(m, s->arena);
    again->plan = FG_NEW(s->arena, FgPlan);
    *again->plan = (FgPlan){.name = "random", .recompute = FG_RECOMPUTE_SELECTIVE};
    fg_plan_set_recomputed(again->plan, s->arena, &some);
    if (!fg_run_passes(&pm, again, "recompute"))
        return false;
    m->plan = random_borders(again, s->arena, random);
    fg_plan_travel(m->plan, again, s->arena, &s->machine);
    carry_some(m, random);
    FgProof proof;
    *out = (FgCompiled){.module = m, .memory_bytes = 1u << 30};
    return fg_run_passes(&pm, m, FG_PIPELINE_LOWER) && fg_module_verify(m) &&
           fg_check(s->arena, m, UINT64_MAX, &proof);
}

static void random_levers_agree(int *failures)
{
    uint32_t grown = 0, carried = 0;
    for (uint64_t seed = 201; seed <= 200 + MODELS && *failures < 3; seed++) {
        TrainedSetup s = trained_setup(seed);
        Random random = {seed};
        s.recompute = FG_RECOMPUTE_NONE;
        FgCompiled none = trained_compile(&s, FG_SCHEDULE_ZERO3, UINT64_MAX), some = {0};
        CHECK(none.module && random_set(&s, &random, &some));
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        grown += runs_twice(some.module);
        carried += carries(some.module);
        TrainedOutcome a = trained_run(&s, &none, "none", false),
                       b = trained_run(&s, &some, "some", true);
        CHECK(a.ok && b.ok);
        CHECK_EQ_U64(a.hash, b.hash);
        trained_end(&s, *failures > 0);
    }
    CHECK(grown > 1 && carried > 0);
}

UNIT_MAIN({"random_levers_agree", random_levers_agree})
