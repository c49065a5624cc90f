/* Properties of every plan of every model (I1, I3): hundreds of random models, numerics and budgets
 * through the whole compiler. fg_compile proves each schedule itself; a proof that fails is an
 * error in its diagnostics. */
#include "../unit/unit.h"

#include "frontend/model.h"
#include "passes/compile.h"
#include "passes/lower.h"
#include "random_model.h"

#include <stdlib.h>
#include <string.h>

#define MODELS 40
#define MIB ((uint64_t)1 << 20)

/* A machine so slow and small that tiny tensors take time and every lever matters. */
static FgMachine slow_machine(FgArena *arena, uint32_t ranks)
{
    FgMachine m = {
        .name = "slow", .ranks = ranks, .ranks_per_node = ranks, .memory_bytes = 1u << 30};
    m.reserved_bytes = 12345;
    m.reserved_parts = 4321;
    m.workspace_bytes = 4096;
    m.matmul_f32 = m.matmul_bf16 = m.matmul_f16 = 2e8;
    m.vector_flops = 1e8;
    m.memory_rate = 1e8;
    m.launch_seconds = 1e-6;
    FgCurvePoint points[] = {{0, 2e-6}, {1e3, 1e-5}, {1e6, 5e-3}};
    for (int i = 0; i < 3; i++) {
        fg_vec_push(arena, &m.gather, points[i]);
        fg_vec_push(arena, &m.reduce, points[i]);
        points[i].seconds /= 5;
        fg_vec_push(arena, &m.all_to_all, points[i]);
    }
    m.compute_beside_gather = 0.9;
    m.compute_beside_reduce = 0.8;
    m.gather_beside_compute = 0.6;
    m.reduce_beside_compute = 0.6;
    m.compute_beside_parts = m.parts_beside_compute = 1.0;
    m.gather_beside_reduce = m.reduce_beside_gather = 0.5;
    m.host_node_bytes = (uint64_t)1 << 30;
    m.stash = m.fetch = m.gather;
    m.stash_beside_fetch = m.fetch_beside_stash = 0.7;
    return m;
}

/* Small products are light, with rates and factors of their own. */
static void have_light_work(FgMachine *m)
{
    m->light_flops = 1e4;
    m->light_bf16 = m->light_f16 = 1e8;
    m->light_beside_gather = 0.95;
    m->light_beside_reduce = 0.7;
    m->light_beside_update = 0.5;
    m->gather_beside_light = m->parts_beside_light = 0.8;
    m->reduce_beside_light = 0.7;
    m->update_beside_light = 0.9;
}

typedef struct Case {
    FgArena *arena;
    FgDiags *diags;
    FgModule *graph;
    FgMachine machine;
    FgNumerics numerics;
    FgRecompute recompute;
    uint32_t offload; /* classes that lie in host memory, wholly */
    bool offload_auto;
    FgMemo *memo; /* or NULL */
    Random random;
    FgLookup lookup;                /* of what was compiled last */
    bool sharded;                   /* it has a table whose rows stay with their owners */
    uint32_t selective, parts, cut; /* schedules with such levers */
    bool mixed;                     /* large and light work: less of either makes a step shorter */
} Case;

/* The layer whose gradients come last has two buckets. */
static bool is_cut(const FgPlan *plan)
{
    for (uint32_t i = 0; i < plan->buckets.len; i++)
        if (strstr(plan->buckets.data[i].name, ".rest"))
            return true;
    return false;
}

static FgNumerics random_numerics(Random *r)
{
    FgNumerics n = {.accumulate = 1};
    if (random_below(r, 2))
        n.compute = n.wire = FG_BF16;
    if (n.compute == FG_BF16 && random_below(r, 3) == 0)
        n.wire = FG_F32;
    n.clip = random_below(r, 2) ? 1.0 : 0.0;
    n.accumulate = 1 + random_below(r, 4);
    if (n.compute == FG_BF16 && n.accumulate % 2) {
        n.compute = FG_F16;
        n.wire = n.wire == FG_BF16 ? FG_F16 : n.wire;
    }
    n.accumulate_in = (FgAccumulateIn)(n.accumulate > 1 && random_below(r, 3) == 0);
    n.shard = fg_slice_dtype(&n);
    n.vocab = random_below(r, 3) ? FG_VOCAB_GATHERED : FG_VOCAB_SHARDED;
    n.chunk = n.vocab == FG_VOCAB_SHARDED || random_below(r, 2) ? 1 + random_below(r, 12) : 0;
    return n;
}

static void say_errors(const Case *c, uint64_t seed)
{
    FgBuf text;
    fg_buf_init(&text, c->arena);
    fg_diags_render(c->diags, &text);
    printf("model %llu:\n%s", (unsigned long long)seed, fg_buf_text(&text));
}

static bool begin(Case *c, uint64_t seed)
{
    *c = (Case){.arena = fg_arena_new()};
    c->diags = fg_diags_new(c->arena);
    c->random.state = seed;
    c->numerics = random_numerics(&c->random);
    c->recompute = (FgRecompute)random_below(&c->random, FG_RECOMPUTE_AUTO + 1);
    c->offload = random_below(&c->random, 3) ? 0 : random_below(&c->random, FG_OFFLOAD_ALL + 1);
    if (seed % 5 == 0) { /* as many as that may have gradients in parts */
        c->numerics.compute = c->numerics.compute == FG_F32 ? FG_F32 : FG_BF16;
        c->numerics.wire = c->numerics.shard = c->numerics.compute;
        c->numerics.clip = 0;
        c->numerics.accumulate = 1;
        c->offload = 0;
    }
    c->machine = slow_machine(c->arena, 1 + random_below(&c->random, 4));
    if (seed % 3 == 0)
        have_light_work(&c->machine);
    const char *text = random_model(c->arena, seed);
    FgModelOptions options = {.numerics = c->numerics};
    c->graph = fg_model_parse(c->arena, c->diags, "random.json", text, strlen(text), &options);
    if (!c->graph)
        say_errors(c, seed);
    return c->graph != NULL;
}

/* Searched numerics are never slower than those given and fit what they fit; they are the same when
 * asked for by name. */
static void check_numerics(Case *c, uint64_t memory, int *failures)
{
    FgCompiled given, chosen, named;
    FgCompileOptions options = {.recompute = c->recompute,
                                .memory_bytes = memory,
                                .offload = c->offload,
                                .offload_auto = c->offload_auto};
    CHECK(fg_compile(c->arena, c->graph, &c->machine, &c->numerics, &options, &given));
    options.numerics_auto = true;
    CHECK(fg_compile(c->arena, c->graph, &c->machine, &c->numerics, &options, &chosen));
    if (*failures)
        return;
    CHECK(given.fits && chosen.fits && chosen.numerics_tried > 0);
    CHECK(chosen.sim.step_us <= given.sim.step_us);
    CHECK(chosen.ledger.peak_bytes <= chosen.budget_bytes);
    CHECK(chosen.smallest_memory_bytes <= given.smallest_memory_bytes);
    options.numerics_auto = false;
    CHECK(fg_compile(c->arena, c->graph, &c->machine, &chosen.numerics, &options, &named));
    CHECK_EQ_U64(named.fingerprint, chosen.fingerprint);
    if (memory == UINT64_MAX && !*failures)
        check_numerics(c, given.smallest_memory_bytes, failures);
}

static void searched_numerics_are_never_worse(int *failures)
{
    for (uint64_t seed = 41; seed <= 43 && *failures < 3; seed++) {
        Case c;
        int bad = !begin(&c, seed);
        if (!bad)
            check_numerics(&c, UINT64_MAX, &bad);
        if (bad)
            say_errors(&c, seed);
        *failures += bad;
        fg_arena_free(c.arena);
    }
}

static bool compile(Case *c, FgSchedule schedule, uint64_t memory, bool verify, FgCompiled *out)
{
    FgCompileOptions options = {.schedule = schedule,
                                .recompute = c->recompute,
                                .memory_bytes = memory,
                                .verify_each = verify,
                                .reduce = c->machine.ranks > 2 ? FG_REDUCE_PARTS : FG_REDUCE_AUTO,
                                .offload = c->offload,
                                .offload_auto = c->offload_auto,
                                .memo = c->memo};
    bool ok = fg_compile(c->arena, c->graph, &c->machine, &c->numerics, &options, out) &&
              fg_diags_errors(c->diags) == 0;
    if (out->module) {
        c->lookup = out->module->numerics.lookup;
        c->parts += fg_count_parts(out->module) > 0;
        c->selective += out->module->plan->recompute == FG_RECOMPUTE_SELECTIVE;
        c->cut += is_cut(out->module->plan);
        c->sharded = false;
        for (uint32_t i = 0; i < out->module->params.len; i++)
            c->sharded |= out->module->params.data[i].sharded;
    }
    return ok;
}

/* Budgets from none to plenty: with a memo each compile finds what it finds by itself. */
static void check_memo(Case *c, int *failures)
{
    FgCompiled alone, with;
    FgMemo *memo = c->memo;
    uint64_t floor = 0;
    for (uint32_t i = 0; i < 5 && !*failures; i++) {
        uint64_t memory = i == 4 ? UINT64_MAX : i == 0 ? 1 : floor + floor / 8 * (i - 1);
        CHECK(compile(c, FG_SCHEDULE_COMPILED, memory, false, &with));
        c->memo = NULL;
        CHECK(compile(c, FG_SCHEDULE_COMPILED, memory, false, &alone));
        c->memo = memo;
        floor = alone.smallest_memory_bytes;
        CHECK(alone.fits == (i > 0) && with.fits == alone.fits);
        CHECK_EQ_U64(with.smallest_memory_bytes, floor);
        CHECK_EQ_U64(with.fingerprint, alone.fingerprint);
        CHECK_EQ_U64(with.plans_tried, alone.plans_tried);
        CHECK_EQ_U64(with.ledger.peak_bytes, alone.ledger.peak_bytes);
        CHECK(memcmp(&with.sim.step_us, &alone.sim.step_us, sizeof alone.sim.step_us) == 0);
    }
}

static void a_memo_changes_nothing(int *failures)
{
    for (uint64_t seed = 51; seed <= 52 && *failures < 3; seed++) {
        Case c;
        int bad = !begin(&c, seed);
        c.memo = fg_memo_new();
        c.offload_auto = c.offload == 0 && seed % 2;
        if (!bad)
            check_memo(&c, &bad);
        if (bad)
            say_errors(&c, seed);
        *failures += bad;
        fg_memo_free(c.memo);
        fg_arena_free(c.arena);
    }
}

/* Every budget between the floor and plenty: fits, proved, never slower than zero3 where that fits.
 */
static void check_budgets(Case *c, int *failures)
{
    FgCompiled zero3, least, now;
    CHECK(compile(c, FG_SCHEDULE_ZERO3, UINT64_MAX, true, &zero3));
    CHECK(compile(c, FG_SCHEDULE_MINIMUM, UINT64_MAX, false, &least));
    if (*failures)
        return;
    CHECK(compile(c, FG_SCHEDULE_COMPILED, 1, false, &now)); /* fits nothing: the floor */
    CHECK(!now.fits && now.ledger.peak_bytes <= least.ledger.peak_bytes);
    CHECK(least.ledger.peak_bytes <= zero3.ledger.peak_bytes);
    CHECK(zero3.ledger.arena_bytes >= zero3.ledger.arena_bound_bytes);
    uint64_t floor = now.ledger.peak_bytes + c->machine.reserved_bytes;
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t memory = i == 0   ? floor
                          : i == 5 ? UINT64_MAX
                                   : floor + (floor >> 3) * random_below(&c->random, 6);
        CHECK(compile(c, FG_SCHEDULE_COMPILED, memory, i == 1, &now));
        CHECK(now.fits && now.module);
        if (*failures)
            return;
        CHECK(now.ledger.peak_bytes <= now.budget_bytes);
        if (zero3.ledger.peak_bytes <= now.budget_bytes)
            CHECK(now.sim.step_us <= zero3.sim.step_us);
        CHECK(now.sim.step_us >= now.sim.bound_us * 0.999999);
        CHECK(now.sim.step_us >= now.sim.joint_us * 0.999999);
        CHECK(now.sim.joint_us >= now.sim.compute_us * 0.999999);
        const double *price = now.sim.joint_price;
        c->mixed |= price[FG_STREAM_COMPUTE] > 0 && price[FG_ENGINE_LIGHT] > 0;
    }
    CHECK(compile(c, FG_SCHEDULE_COMPILED, floor - 1, false, &now));
    CHECK(!now.fits && !now.module);
    CHECK(now.smallest_memory_bytes == (floor + MIB - 1) / MIB * MIB);
}

static void every_plan_is_proved_and_never_worse(int *failures)
{
    uint32_t rows = 0, sharded = 0; /* models whose lookups travel as rows; with a sharded table */
    uint32_t selective = 0;         /* schedules that recompute some values and keep others */
    uint32_t parts = 0,
             cut = 0; /* models some of whose gradients come in parts; with a cut layer */
    uint32_t mixed = 0;
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        Case c;
        int bad = 0;
        if (begin(&c, seed))
            check_budgets(&c, &bad);
        else
            bad = 1;
        if (bad)
            say_errors(&c, seed);
        *failures += bad;
        rows += c.lookup == FG_LOOKUP_ROWS;
        sharded += c.sharded;
        selective += c.selective;
        parts += c.parts > 0;
        cut += c.cut > 0;
        mixed += c.mixed;
        fg_arena_free(c.arena);
        if (*failures > 3)
            return;
    }
    CHECK(selective > 10 && parts > MODELS / 20 && cut > 0);
    CHECK(mixed > 2);
    CHECK(rows > MODELS / 8 && rows < MODELS - MODELS / 8);
    CHECK(sharded > MODELS / 8);
}

/* With `auto`: nothing leaves the device where all fits; the figure named compiles and less does
 * not; whatever fits is proved, in host memory too. */
static void check_auto(Case *c, int *failures)
{
    FgCompiled plenty, least, now;
    c->offload_auto = true;
    CHECK(compile(c, FG_SCHEDULE_COMPILED, UINT64_MAX, false, &plenty));
    CHECK(compile(c, FG_SCHEDULE_COMPILED, 1, false, &least));
    CHECK(plenty.fits && !plenty.offload && !plenty.ledger.host_bytes && !least.fits);
    if (*failures)
        return;
    uint64_t floor = least.smallest_memory_bytes, most = plenty.smallest_memory_bytes;
    CHECK_EQ_U64(floor, most); /* the figure does not depend on the memory */
    CHECK(compile(c, FG_SCHEDULE_COMPILED, floor, true, &now) && now.fits);
    CHECK(compile(c, FG_SCHEDULE_COMPILED, floor - MIB, false, &now) && !now.fits);
    for (uint64_t part = 1; part < 4; part++) {
        uint64_t lowest = least.ledger.peak_bytes, highest = plenty.ledger.peak_bytes;
        uint64_t memory = lowest + (highest > lowest ? (highest - lowest) * part / 4 : 0);
        CHECK(compile(c, FG_SCHEDULE_COMPILED, memory + c->machine.reserved_bytes, false, &now));
        CHECK(now.fits && now.ledger.peak_bytes <= now.budget_bytes);
        CHECK(now.ledger.host_bytes <= now.host_memory_bytes);
        CHECK((now.offload != 0) == (now.ledger.host_bytes != 0));
    }
}

static void auto_offloads_what_it_must(int *failures)
{
    uint32_t helped = 0;
    for (uint64_t seed = 1; seed <= MODELS / 3 && *failures < 3; seed++) {
        Case c;
        int bad = !begin(&c, seed);
        c.offload = 0;
        if (!bad)
            check_auto(&c, &bad);
        if (bad)
            say_errors(&c, seed);
        *failures += bad;
        FgCompiled none, least;
        c.offload_auto = false;
        CHECK(compile(&c, FG_SCHEDULE_MINIMUM, UINT64_MAX, false, &none));
        c.offload_auto = true;
        CHECK(compile(&c, FG_SCHEDULE_MINIMUM, 1, false, &least));
        helped += least.ledger.peak_bytes < none.ledger.peak_bytes;
        fg_arena_free(c.arena);
    }
    CHECK(helped > MODELS / 4);
}

/* The text of every stage reads back as the same text. */
static void dumps_round_trip(int *failures)
{
    static const char *const stops[] = {"vocab", "autodiff", "shard",  "offload",
                                        "order", "travel",   "update", NULL};
    for (uint64_t seed = 1; seed <= 24; seed++) {
        Case c;
        if (!begin(&c, seed)) {
            ++*failures;
            return;
        }
        FgCompileOptions options = {.schedule = FG_SCHEDULE_COMPILED,
                                    .recompute = c.recompute,
                                    .memory_bytes = UINT64_MAX,
                                    .stop_after = stops[seed % 8],
                                    .offload = c.offload};
        FgCompiled out;
        CHECK(fg_compile(c.arena, c.graph, &c.machine, &c.numerics, &options, &out));
        FgBuf one, two;
        fg_buf_init(&one, c.arena);
        fg_buf_init(&two, c.arena);
        fg_module_print(out.module, &one);
        FgDiags *diags = fg_diags_new(c.arena);
        FgModule *again = fg_module_parse(c.arena, diags, "dump.fg", one.data, one.len);
        CHECK(again != NULL);
        if (again) {
            CHECK(fg_module_verify(again));
            fg_module_print(again, &two);
            CHECK(strcmp(fg_buf_text(&one), fg_buf_text(&two)) == 0);
        } else {
            say_errors(&(Case){.arena = c.arena, .diags = diags}, seed);
        }
        fg_arena_free(c.arena);
    }
}

UNIT_MAIN({"searched_numerics_are_never_worse", searched_numerics_are_never_worse},
          {"every_plan_is_proved_and_never_worse", every_plan_is_proved_and_never_worse},
          {"a_memo_changes_nothing", a_memo_changes_nothing},
          {"auto_offloads_what_it_must", auto_offloads_what_it_must},
          {"dumps_round_trip", dumps_round_trip})
