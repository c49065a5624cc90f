/* What the search knows before it lowers a plan: where small parameters lie, that memory by place
 * is what the lowered plan then takes, and what transfers take beside compute. */
#include "passes/estimate.h"

#include "base/arena.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/search.h"
#include "tests/unit/unit.h"

#define MIB ((uint64_t)1 << 20)
/* Activations that one compute node makes or ends are known with their node, not inside it. */
#define NEAR (8 * MIB)

typedef struct Case {
    FgArena *arena;
    FgMachine machine;
    FgSearch search;
    FgPlan *base;
    FgEstimate estimate;
    uint64_t state_bytes;
} Case;

static bool begin(Case *c, double light_flops, int *failures)
{
    *c = (Case){.arena = fg_arena_new()};
    FgDiags *diags = fg_diags_new(c->arena);
    FgNumerics numerics = {.compute = FG_BF16, .wire = FG_BF16, .shard = FG_BF16, .accumulate = 1};
    FgModelOptions options = {.numerics = numerics, .batch = 1, .seq = 512};
    FgModule *m =
        fg_model_load(c->arena, diags, FG_SOURCE_DIR "/examples/llama-3.2-1b.json", &options);
    CHECK(m != NULL && fg_machine_load(c->arena, diags, "2xH200", &c->machine));
    if (!m)
        return false;
    m->numerics = numerics;
    c->machine.light_flops = light_flops;
    FgPassManager pm = {.arena = c->arena, .machine = &c->machine, .budget = UINT64_MAX};
    CHECK(fg_run_passes(&pm, m, FG_PIPELINE_GRAPH));
    c->base = fg_plan_fixed(m, c->arena, "base", FG_RECOMPUTE_NONE);
    fg_plan_travel(c->base, m, c->arena, &c->machine);
    c->search =
        (FgSearch){.arena = c->arena, .graph = m, .machine = &c->machine, .budget = UINT64_MAX / 2};
    FgEvaluation at_use = {0};
    const FgModule *lowered;
    CHECK(fg_search_lower(&c->search, c->base, c->arena, &at_use, &lowered));
    fg_estimate_build(c->arena, c->arena, lowered, c->base, &c->machine, &c->estimate);
    c->state_bytes = lowered->state_bytes;
    return true;
}

/* The most that lives at once in what a choice is lowered to, and how many of its levers it has. */
static uint64_t bound_of(Case *c, const FgLeverChoice *choice, uint32_t *out_kept,
                         uint32_t *out_round, int *failures)
{
    FgPlan *plan = fg_estimate_plan(&c->estimate, c->arena, choice);
    FgEvaluation e = {0};
    CHECK(fg_search_evaluate(&c->search, plan, FG_PLACING_QUICK, &e));
    *out_kept = c->base->gathers.len - plan->gathers.len;
    *out_round = 0;
    for (uint32_t i = 0; i < plan->gathers.len; i++)
        *out_round += plan->gathers.data[i].round;
    return e.ledger.arena_bound_bytes;
}

/* Choices that want more than there is take what there is, and no more. */
static void plans_fill_their_memory(int *failures)
{
    Case c = {0};
    uint64_t limits[] = {1500 * MIB, 1876 * MIB, 2600 * MIB};
    uint32_t kept_before = 0;
    if (begin(&c, 0, failures))
        for (uint32_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            uint32_t most_kept = 0;
            for (int order = 0; order < FG_N_ORDERS; order++)
                for (int place = 0; place < FG_N_ROUND_PLACES; place++) {
                    uint32_t kept, round;
                    FgLeverChoice choice = {.slack = 2.5,
                                            .kept = 16,
                                            .round = 8,
                                            .place = (FgRoundPlace)place,
                                            .order = (FgLeverOrder)order,
                                            .arena_limit = limits[i]};
                    uint64_t bound = bound_of(&c, &choice, &kept, &round, failures);
                    CHECK(bound <= limits[i] + NEAR && bound + limits[i] / 8 >= limits[i]);
                    CHECK(round > 0 && round <= 8);
                    most_kept = kept > most_kept ? kept : most_kept;
                }
            CHECK(most_kept > kept_before);
            kept_before = most_kept;
        }
    fg_search_end(&c.search);
    fg_arena_free(c.arena);
}

/* The final norm is used between the last layer and the head, in forward as in backward: it lies
 * with the layer, which is the smaller one, and the table alone, so that it ends with its own last
 * use. */
static void small_ones_go_with_the_smaller_neighbour(int *failures)
{
    Case c = {0};
    if (begin(&c, 0, failures)) {
        const FgModule *m = c.search.graph;
        for (uint32_t b = 0; b < c.base->buckets.len; b++) {
            const FgPlanBucket *bucket = &c.base->buckets.data[b];
            bool norm = false, table = false;
            for (uint32_t k = 0; k < bucket->n_params; k++) {
                const char *name = m->params.data[bucket->params[k]].name;
                norm |= strcmp(name, "model.norm.weight") == 0;
                table |= strcmp(name, "model.embed_tokens.weight") == 0;
            }
            CHECK(norm == (strcmp(bucket->name, "layers.15") == 0));
            CHECK(!table || bucket->n_params == 1);
        }
    }
    fg_search_end(&c.search);
    fg_arena_free(c.arena);
}

/* The bytes of the first gather, and of the first reduction that may come in parts, by the
 * machine's curves, at the speeds that engines have beside compute. */
static void transfers_take_their_engine_s_time(int *failures)
{
    static const double thresholds[] = {0, 1e30}; /* nothing is light; everything is */
    double update[2] = {0};
    for (int light = 0; light < 2; light++) {
        Case c = {0};
        if (begin(&c, thresholds[light], failures)) {
            const FgMachine *m = &c.machine;
            const FgGatherSite *gather = &c.estimate.gathers.data[0];
            const FgReduceSite *reduce = &c.estimate.reduces.data[0];
            while (!reduce->may_part)
                reduce++;
            double speed = light ? m->gather_beside_light : m->gather_beside_compute;
            CHECK_NEAR(gather->seconds, fg_curve_seconds(&m->gather, (double)gather->bytes) / speed,
                       1e-9);
            speed = light ? m->reduce_beside_light : m->reduce_beside_compute;
            CHECK_NEAR(reduce->seconds, fg_curve_seconds(&m->reduce, (double)reduce->bytes) / speed,
                       1e-9);
            speed = light ? m->parts_beside_light : m->parts_beside_compute;
            CHECK_NEAR(reduce->parts,
                       fg_curve_seconds(&m->all_to_all, (double)reduce->bytes) / speed, 1e-9);
            speed = light ? m->update_beside_light : m->update_beside_compute;
            update[light] = reduce->update * speed;
        }
        fg_search_end(&c.search);
        fg_arena_free(c.arena);
    }
    CHECK(update[0] > 0);
    CHECK_NEAR(update[1], update[0], 1e-9); /* alone it takes the same */
}

UNIT_MAIN({"plans_fill_their_memory", plans_fill_their_memory},
          {"small_ones_go_with_the_smaller_neighbour", small_ones_go_with_the_smaller_neighbour},
          {"transfers_take_their_engine_s_time", transfers_take_their_engine_s_time})
