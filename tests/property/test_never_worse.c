/* Never worse (I1) on the models that are shipped: every example, on every machine preset, in
 * variants of how weights are used, against every setting of the baseline. Where ZeRO-3 fits, the
 * compiled plan fits and its simulated step is no longer; the smallest memory that is named
 * compiles, 1 MiB less does not.
 *
 * A run of the suite takes a sample of the combinations, a few budgets of each, and a few layers of
 * the largest models;
 * FG_NEVER_WORSE=all takes all of them with 40 budgets, FG_NEVER_WORSE=mlp,gpt2 all of the examples
 * named, and FG_NEVER_WORSE_SHARD=i/n the i-th of n shares of them (docs/testing.md). */
#include "../unit/unit.h"

#include "base/file.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"

#include <stdlib.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define FULL_BUDGETS 40
#define SLACK (1 + 1e-9) /* relative, of a simulated step */

/* An example and the places in its text where variants change it. */
typedef struct Example {
    const char *name;
    const char *early, *late;       /* values below and above the layers */
    const char *late_read;          /* where `late` is read: its list of operands up to the name */
    const char *tie_from, *tie_to;  /* ties what is untied, or the other way round */
    const char *freeze, *freeze_to; /* the key of a parameter that is frozen, in a layer or above */
    bool large;                     /* bf16 and full recomputation, or fp32 without */
    /* Of a sample: every so many combinations, budgets of each, and the layers (0: all). */
    uint32_t stride, budgets, layers;
} Example;

#define LLAMA_TIED                                                                                 \
    "embedded", "x", "\"in\": [\"x\", \"model.norm", ", \"tied\": [\"lm_head.weight\"]}",          \
        "}, \"lm_head.weight\": {\"shape\": [\"vocab\", \"hidden\"]}",                             \
        "\"self_attn.q_proj.weight\": {", "\"self_attn.q_proj.weight\": {\"trainable\": false, "
#define LLAMA_UNTIED                                                                               \
    "embedded", "x", "\"in\": [\"x\", \"model.norm", "\"final\", \"lm_head.weight\"",              \
        "\"final\", \"model.embed_tokens.weight\"", "\"self_attn.q_proj.weight\": {",              \
        "\"self_attn.q_proj.weight\": {\"trainable\": false, "

static const Example examples[] = {
    {"mlp", "embedded", "x", "\"in\": [\"x\", \"head.weight", "\"x\", \"head.weight\"",
     "\"x\", \"embed.weight\"", "\"up.weight\": {", "\"up.weight\": {\"trainable\": false, ", false,
     7, 3, 0},
    {"tiny-llama", LLAMA_TIED, false, 23, 3, 0},
    {"mixture", "flat", "x", "\"in\": \"x\", \"out\": \"late_in", ", \"tied\": [\"head.weight\"]}",
     "}, \"head.weight\": {\"shape\": [\"vocab\", \"hidden\"]}", "\"gate.weight\": {",
     "\"gate.weight\": {\"trainable\": false, ", false, 29, 2, 0},
    {"frozen", "embedded", "y", "\"in\": [\"y\", \"norm.weight", "\"final\", \"head.weight\"",
     "\"final\", \"embed.weight\"", "\"head.weight\": {",
     "\"head.weight\": {\"trainable\": false, ", false, 11, 3, 0},
    {"gpt2", "placed", "x", "\"in\": [\"x\", \"ln_f", ", \"tied\": [\"lm_head.weight\"]}",
     "}, \"lm_head.weight\": {\"shape\": [\"vocab\", \"hidden\"]}", "\"attn.c_attn.weight\": {",
     "\"attn.c_attn.weight\": {\"trainable\": false, ", false, 47, 2, 0},
    {"llama-3.2-1b", LLAMA_TIED, true, 61, 1, 0},
    {"llama-3.1-8b", LLAMA_UNTIED, true, 61, 1, 8},
    {"llama-3.1-70b", LLAMA_UNTIED, true, 61, 1, 6},
    {"llama-3.1-405b", LLAMA_UNTIED, true, 61, 1, 4},
};
#define N_EXAMPLES (sizeof examples / sizeof *examples)

typedef enum Variant { AS_IS, OTHER_TYING, SHARED, FROZEN, UNUSED, IDLE, N_VARIANTS } Variant;
static const char *const variant_names[] = {"as is",  "other tying", "shared layer",
                                            "frozen", "unused",      "expert idle"};

#define N_KNOBS 4
static const char *const knob_names[] = {"defaults", "minimal", "by module", "other knobs"};
static FgZero3 knobs_of(uint32_t k)
{
    FgZero3 module = FG_ZERO3_DEFAULTS;
    module.by_module = true;
    const FgZero3 all[N_KNOBS] = {FG_ZERO3_DEFAULTS,
                                  FG_ZERO3_MINIMAL,
                                  module,
                                  {400000000, 2000000000, 3000000, 0, 30000000, false}};
    return all[k];
}

/* ---- variants, as edits of the text ---- */
static const char *replaced(FgArena *arena, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    FG_ASSERT(at);
    return fg_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

/* A parameter beside the model's. */
static const char *with_param(FgArena *arena, const char *text, const char *name, const char *rows)
{
    const char *to = fg_arena_printf(arena,
                                     "\"params\": {\n        \"%s\": {\"shape\": [\"%s\", "
                                     "\"hidden\"]},",
                                     name, rows);
    return replaced(arena, text, "\"params\": {", to);
}

/* The layers begin from another value than `early`. */
static const char *begin_from(FgArena *arena, const char *text, const Example *e, const char *value)
{
    const char *from = fg_arena_printf(arena, "\"from\": \"%s\"", e->early);
    return replaced(arena, text, from, fg_arena_printf(arena, "\"from\": \"%s\"", value));
}

/* One linear below and above the layers, with the same weight. */
static const char *with_shared(FgArena *arena, const char *text, const Example *e)
{
    text = begin_from(arena, with_param(arena, text, "shared.weight", "hidden"), e, "deep");
    const char *from = fg_arena_printf(arena, "\"%s\"", e->late);
    text = replaced(arena, text, e->late_read, replaced(arena, e->late_read, from, "\"high\""));
    const char *nodes = fg_arena_printf(
        arena,
        "\"nodes\": [\n"
        "{\"op\": \"linear\", \"in\": [\"%s\", \"shared.weight\"], \"out\": \"deep\"},\n"
        "{\"op\": \"linear\", \"in\": [\"%s\", \"shared.weight\"], \"out\": \"high\"},",
        e->early, e->late);
    return replaced(arena, text, "\"nodes\": [", nodes);
}

/* A branch whose result counts nothing: its weight is gathered, its gradient is zero. */
static const char *with_idle(FgArena *arena, const char *text, const Example *e)
{
    text = begin_from(arena, with_param(arena, text, "idle.weight", "hidden"), e, "beside");
    const char *nodes = fg_arena_printf(
        arena,
        "\"nodes\": [\n{\"op\": \"linear\", \"in\": [\"%s\", \"idle.weight\"], \"out\": "
        "\"idle\"},\n"
        "{\"op\": \"scale\", \"in\": \"idle\", \"out\": \"nothing\", \"factor\": 0},\n"
        "{\"op\": \"add\", \"in\": [\"%s\", \"nothing\"], \"out\": \"beside\"},",
        e->early, e->early);
    return replaced(arena, text, "\"nodes\": [", nodes);
}

static const char *variant_text(FgArena *arena, const char *text, const Example *e, Variant variant)
{
    switch (variant) {
    case OTHER_TYING:
        return replaced(arena, text, e->tie_from, e->tie_to);
    case SHARED:
        return with_shared(arena, text, e);
    case FROZEN:
        return replaced(arena, text, e->freeze, e->freeze_to);
    case UNUSED:
        return with_param(arena, text, "spare.weight", "vocab");
    case IDLE:
        return with_idle(arena, text, e);
    case AS_IS:
    case N_VARIANTS:
    default:
        return text;
    }
}

/* ---- one combination ---- */
typedef struct Case {
    FgArena *arena;
    FgDiags *diags;
    FgModule *graph;
    FgMachine machine;
    FgNumerics numerics;
    FgCompileOptions options;
    FgMemo *memo; /* of compiled plans */
    const char *title;
} Case;

typedef struct Figures {
    bool ok, fits;
    uint64_t peak, budget, smallest;
    double step_us;
} Figures;

static Figures compile(const Case *c, FgSchedule schedule, uint64_t memory)
{
    FgArena *arena = fg_arena_new();
    FgCompiled out = {0};
    FgCompileOptions options = c->options;
    options.schedule = schedule;
    options.memory_bytes = memory;
    options.memo = schedule == FG_SCHEDULE_COMPILED ? c->memo : NULL;
    Figures f = {0};
    f.ok = fg_compile(arena, c->graph, &c->machine, &c->numerics, &options, &out);
    f.fits = f.ok && out.fits;
    f.peak = out.ledger.peak_bytes;
    f.budget = out.budget_bytes;
    f.smallest = out.smallest_memory_bytes;
    f.step_us = out.sim.step_us;
    fg_arena_free(arena);
    return f;
}

static const char *read_example(FgArena *arena, const Example *e)
{
    char *text = NULL;
    size_t len;
    const char *error;
    const char *path = fg_arena_printf(arena, FG_SOURCE_DIR "/examples/%s.json", e->name);
    return fg_file_read(arena, path, &text, &len, &error) ? text : "";
}

/* `layers`: instead of the example's; 0: as it is. */
static bool begin(Case *c, const Example *e, const char *machine, Variant variant, uint32_t knobs,
                  uint32_t layers)
{
    FgDtype dtype = e->large ? FG_BF16 : FG_F32;
    *c = (Case){.arena = fg_arena_new(), .memo = fg_memo_new()};
    c->diags = fg_diags_new(c->arena);
    c->numerics = (FgNumerics){.compute = dtype, .wire = dtype, .shard = dtype, .accumulate = 1};
    c->numerics.clip = variant % 2 ? 1.0 : 0;
    c->options.zero3 = knobs_of(knobs);
    c->options.recompute = variant % 3 == 2 ? FG_RECOMPUTE_AUTO
                           : e->large       ? FG_RECOMPUTE_FULL
                                            : FG_RECOMPUTE_NONE;
    c->title = fg_arena_printf(c->arena, "%s on %s, %s, zero3 %s", e->name, machine,
                               variant_names[variant], knob_names[knobs]);
    FgModelOptions options = {.numerics = c->numerics};
    FgDimOverride dim = {"layers", layers};
    if (layers)
        fg_vec_push(c->arena, &options.dims, dim);
    const char *text = variant_text(c->arena, read_example(c->arena, e), e, variant);
    c->graph = fg_model_parse(c->arena, c->diags, e->name, text, strlen(text), &options);
    return fg_machine_load(c->arena, c->diags, machine, &c->machine) && c->graph;
}

/* Compiles where the baseline does, and is not slower. */
static void check_budget(const Case *c, const Figures *zero3, uint64_t memory, int *failures)
{
    int before = *failures;
    Figures now = compile(c, FG_SCHEDULE_COMPILED, memory);
    CHECK(now.ok && now.fits && now.peak <= now.budget);
    if (zero3->peak <= now.budget)
        CHECK(now.step_us <= zero3->step_us * SLACK);
    if (*failures > before)
        printf("  %s, %" PRIu64 " bytes: %.3f us and %" PRIu64 " bytes, zero3 %.3f us and %" PRIu64
               " bytes\n",
               c->title, memory, now.step_us, now.peak, zero3->step_us, zero3->peak);
}

/* Returns how many budgets were tried. */
static uint32_t check_case(const Case *c, uint32_t budgets, int *failures)
{
    Figures zero3 = compile(c, FG_SCHEDULE_ZERO3, UINT64_MAX / 4);
    Figures none = compile(c, FG_SCHEDULE_COMPILED, c->machine.reserved_bytes);
    CHECK(zero3.ok && zero3.fits && none.ok && !none.fits && none.smallest >= MIB);
    CHECK_EQ_U64(none.smallest % MIB, 0);
    if (*failures)
        return 0;
    uint64_t at_use = zero3.peak + c->machine.reserved_bytes;
    uint64_t high = (at_use > none.smallest ? at_use : none.smallest) / 4 * 5;
    check_budget(c, &zero3, none.smallest, failures);
    if (at_use > none.smallest)
        check_budget(c, &zero3, at_use, failures);
    CHECK(!compile(c, FG_SCHEDULE_COMPILED, none.smallest - MIB).fits);
    for (uint32_t i = 1; i <= budgets; i++)
        check_budget(c, &zero3, none.smallest + (high - none.smallest) / budgets * i, failures);
    return budgets + (at_use > none.smallest) + 2;
}

/* Whether FG_NEVER_WORSE asks for everything of an example. */
static bool in_full(const char *name)
{
    const char *list = getenv("FG_NEVER_WORSE");
    size_t n = strlen(name);
    if (list && strcmp(list, "all") == 0)
        return true;
    while (list && *list) {
        size_t len = strcspn(list, ",");
        if (len == n && memcmp(list, name, n) == 0)
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

/* The i-th of n shares, from 1; 1/1 is everything. Combinations are dealt out one by one, so that
 * every share has some of every example. */
typedef struct Share {
    uint32_t i, n, dealt;
} Share;

/* False when FG_NEVER_WORSE_SHARD is not i/n. */
static bool share_asked(Share *out)
{
    const char *text = getenv("FG_NEVER_WORSE_SHARD");
    *out = (Share){1, 1, 0};
    if (!text)
        return true;
    char *end;
    unsigned long i = strtoul(text, &end, 10), n = *end == '/' ? strtoul(end + 1, &end, 10) : 0;
    *out = (Share){(uint32_t)i, (uint32_t)n, 0};
    return *end == '\0' && 1 <= i && i <= n && n <= UINT32_MAX;
}

static void run_example(const Example *e, Share *share, uint32_t *combination, int *failures)
{
    uint32_t n_machines, ran = 0, n_budgets = 0;
    clock_t start = clock();
    const char *const *machines = fg_machine_preset_names(&n_machines);
    bool full = in_full(e->name);
    for (uint32_t m = 0; m < n_machines; m++)
        for (uint32_t v = 0; v < N_VARIANTS; v++)
            for (uint32_t k = 0; k < N_KNOBS; k++) {
                Case c;
                if (!full && (*combination)++ % e->stride != 0)
                    continue;
                if (share->dealt++ % share->n + 1 != share->i)
                    continue;
                int bad = !begin(&c, e, machines[m], (Variant)v, k, full ? 0 : e->layers);
                if (!bad)
                    n_budgets += check_case(&c, full ? FULL_BUDGETS : e->budgets, &bad);
                if (bad) {
                    FgBuf text;
                    fg_buf_init(&text, c.arena);
                    fg_diags_render(c.diags, &text);
                    printf("  %s\n%s", c.title, fg_buf_text(&text));
                }
                *failures += bad;
                ran++;
                fg_memo_free(c.memo);
                fg_arena_free(c.arena);
            }
    printf("  %s: %u combinations, %u budgets, %.1f s\n", e->name, ran, n_budgets,
           (double)(clock() - start) / CLOCKS_PER_SEC);
    fflush(stdout);
    CHECK(ran > 0 || share->n > 1);
}

static void never_worse(int *failures)
{
    uint32_t combination = 0; /* counts on, so that examples sample different ones */
    Share share;
    const bool ok = share_asked(&share);
    CHECK(ok);
    for (size_t i = 0; ok && i < N_EXAMPLES; i++)
        run_example(&examples[i], &share, &combination, failures);
}

UNIT_MAIN({"never_worse", never_worse})
