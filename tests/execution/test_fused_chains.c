/* Fused chains have the bits of the nodes that they stand for: random models and one with every
 * step that a chain may have, run with chains and node by node. */
#include "trained.h"

#include <math.h>
#include <string.h>

/* Every step that a chain may have, forward where nothing is trained, backward behind a lookup that
 * is; operands that repeat by rows, by lines, and as one number; another dtype between. */
static const char all_steps[] =
    "{\"foregather\": 1, \"name\": \"chains\",\n"
    "  \"dims\": {\"batch\": 2, \"seq\": 5, \"vocab\": 11, \"hidden\": 12},\n"
    "  \"inputs\": {\"tokens\": {\"role\": \"tokens\", \"shape\": [\"batch\", \"seq\"]},\n"
    "    \"labels\": {\"role\": \"labels\", \"shape\": [\"batch\", \"seq\"]}},\n"
    "  \"params\": {\"embed\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 1}},\n"
    "    \"fixed\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 1}, "
    "\"trainable\": false},\n"
    "    \"row\": {\"shape\": [\"hidden\"], \"init\": {\"uniform\": 1}, \"trainable\": false},\n"
    "    \"one\": {\"shape\": [1], \"init\": {\"constant\": 0.7}, \"trainable\": false},\n"
    "    \"head\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 0.2}}},\n"
    "  \"nodes\": [{\"op\": \"embedding\", \"in\": [\"tokens\", \"fixed\"], \"out\": \"a0\"},\n"
    "    {\"op\": \"slice\", \"in\": [\"a0\"], \"out\": \"line\", \"axis\": 2, \"start\": 3, "
    "\"count\": 1},\n"
    "%s    {\"op\": \"embedding\", \"in\": [\"tokens\", \"embed\"], \"out\": \"b0\"},\n"
    "    {\"op\": \"add\", \"in\": [\"a%u\", \"b0\"], \"out\": \"b1\"},\n"
    "%s    {\"op\": \"linear\", \"in\": [\"b%u\", \"head\"], \"out\": \"logits\"},\n"
    "    {\"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"], \"out\": \"loss\"}],\n"
    "  \"loss\": \"loss\"}\n";

typedef struct StepText {
    const char *op, *more; /* "", or attributes, or after '+' a second operand */
} StepText;

/* Values stay where the next step is defined. */
static const StepText step_texts[] = {
    {"sigmoid", ""},
    {"scale", ", \"factor\": 0.7"},
    {"add_scalar", ", \"value\": 0.3"},
    {"sqrt", ""},
    {"pow", ", \"exponent\": 1.5"},
    {"rsqrt", ""},
    {"log", ""},
    {"neg", ""},
    {"exp", ""},
    {"mul", "+row"},
    {"cast", ""},
    {"tanh", ""},
    {"cast", ""},
    {"add", "+line"},
    {"silu", ""},
    {"sub", "+row"},
    {"gelu", ""},
    {"div", "+one"},
    {"gelu_tanh", ""},
    {"add", "+row"},
    {"relu", ""},
};
#define N_STEP_TEXTS (sizeof step_texts / sizeof *step_texts)

static const char *steps_text(FgArena *arena, char value, uint32_t first, const char *wide,
                              const char *narrow)
{
    FgBuf out;
    fg_buf_init(&out, arena);
    uint32_t casts = 0;
    for (uint32_t i = 0; i < N_STEP_TEXTS; i++) {
        const StepText *step = &step_texts[i];
        bool two = *step->more == '+';
        const char *other = two ? fg_arena_printf(arena, ", \"%s\"", step->more + 1) : "";
        fg_buf_printf(&out, "    {\"op\": \"%s\", \"in\": [\"%c%u\"%s], \"out\": \"%c%u\"",
                      step->op, value, first + i, other, value, first + i + 1);
        if (!strcmp(step->op, "cast"))
            fg_buf_printf(&out, ", \"to\": \"%s\"", casts++ ? narrow : wide);
        else if (!two)
            fg_buf_puts(&out, step->more);
        fg_buf_puts(&out, "},\n");
    }
    return fg_buf_text(&out);
}

static uint32_t count_fused(const FgModule *m)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.data[f].order.len; i++)
            n += m->nodes.data[m->funcs.data[f].order.data[i]].op == FG_OP_fused;
    return n;
}

/* A chain has the bits of the nodes that it stands for, in every dtype. */
static void chains_agree(int *failures)
{
    static const FgDtype computes[] = {FG_F32, FG_BF16, FG_F16};
    uint32_t fused = 0;
    for (uint64_t seed = 301; seed < 307 && *failures < 3; seed++) {
        TrainedSetup s = trained_setup(seed);
        uint32_t own = (uint32_t)(seed - 301);
        if (own < 3) {
            s.numerics.compute = s.numerics.wire = computes[own];
            s.numerics.vocab = FG_VOCAB_GATHERED;
            s.numerics.chunk = 0;
            const char *narrow = fg_dtype_name(computes[own]), *wide = own ? "f32" : "bf16";
            s.model =
                fg_arena_printf(s.arena, all_steps, steps_text(s.arena, 'a', 0, wide, narrow),
                                (uint32_t)N_STEP_TEXTS, steps_text(s.arena, 'b', 1, wide, narrow),
                                (uint32_t)N_STEP_TEXTS + 1);
        }
        FgCompiled with = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        s.no_fuse = true;
        FgCompiled without = trained_compile(&s, FG_SCHEDULE_COMPILED, UINT64_MAX);
        CHECK(with.module && without.module);
        if (*failures) {
            trained_say_errors(&s);
            trained_end(&s, false);
            return;
        }
        TrainedOutcome a = trained_run(&s, &with, "fused", true),
                       b = trained_run(&s, &without, "unfused", false);
        CHECK(a.ok && b.ok && isfinite(a.loss));
        CHECK_EQ_U64(a.hash, b.hash);
        CHECK(count_fused(without.module) == 0);
        CHECK(own >= 3 || count_fused(with.module) >= 6);
        fused += count_fused(with.module);
        trained_end(&s, *failures > 0);
    }
    CHECK(fused > 24);
}

UNIT_MAIN({"chains_agree", chains_agree})
