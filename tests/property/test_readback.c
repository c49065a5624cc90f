/* No right program is refused: random models under random settings, emitted, read back, proved
 * and compared with their plans. The models hold what examples do not: broadcasts, transposes,
 * slices, sums, frozen and unused parameters, odd sizes. */
#include "../unit/unit.h"

#include "codegen/codegen.h"
#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"
#include "random_model.h"
#include "readback/readback.h"

#define MODELS 60

typedef struct Case {
    FgArena *arena;
    FgDiags *diags;
    FgMachine machine;
    FgCompiled compiled;
} Case;

static bool compile(Case *c, uint64_t seed)
{
    Random random = {seed};
    FgDtype dtype = random_below(&random, 3) ? FG_F32 : FG_BF16;
    FgNumerics numerics = {dtype,
                           dtype,
                           FG_F32,
                           random_below(&random, 2) ? 1.0 : 0.0,
                           1 + random_below(&random, 4),
                           FG_LOOKUP_DENSE,
                           random_below(&random, 2) ? FG_VOCAB_SHARDED : FG_VOCAB_GATHERED,
                           1 + random_below(&random, 9),
                           seed % 3 == 1 ? FG_IN_WHOLE : FG_IN_SLICE};
    if (dtype == FG_BF16 && seed % 2)
        numerics.compute = numerics.wire = FG_F16;
    FgModelOptions options = {.numerics = numerics};
    FgCompileOptions how = {.schedule = (FgSchedule)(seed % 3),
                            .recompute = (FgRecompute)random_below(&random, FG_RECOMPUTE_AUTO + 1),
                            .memory_bytes = UINT64_MAX,
                            .offload = seed % 2 ? (uint32_t)(seed / 2) % 8 : 0};
    if (!fg_machine_load(c->arena, c->diags, "host", &c->machine))
        return false;
    fg_machine_set_ranks(c->arena, &c->machine, 1 + random_below(&random, 4));
    const char *text = random_model(c->arena, seed);
    FgModule *graph =
        fg_model_parse(c->arena, c->diags, "random.json", text, strlen(text), &options);
    return graph && fg_compile(c->arena, graph, &c->machine, &numerics, &how, &c->compiled) &&
           c->compiled.module;
}

static bool read_back(Case *c)
{
    FgEmitInfo info = {.version = "0",
                       .source = "random.json",
                       .fingerprint = c->compiled.fingerprint,
                       .memory_bytes = c->compiled.memory_bytes,
                       .reserved_bytes = c->compiled.reserved_bytes,
                       .host_memory_bytes = c->compiled.host_memory_bytes};
    FgBuf text;
    FgReadback out;
    fg_buf_init(&text, c->arena);
    fg_emit_c(c->arena, c->compiled.module, &info, &text);
    FgReadbackRequest request = {"random.c", fg_buf_text(&text), text.len, FG_SOURCE_DIR "/runtime",
                                 c->compiled.module};
    return fg_readback(c->arena, c->diags, &request, &out);
}

static void right_programs_are_proved(int *failures)
{
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        Case c = {.arena = fg_arena_new()};
        c.diags = fg_diags_new(c.arena);
        if (!compile(&c, seed) || !read_back(&c)) {
            FgBuf said;
            fg_buf_init(&said, c.arena);
            fg_diags_render(c.diags, &said);
            printf("model %llu:\n%s\n", (unsigned long long)seed, fg_buf_text(&said));
            ++*failures;
        }
        fg_arena_free(c.arena);
    }
}

UNIT_MAIN({"right_programs_are_proved", right_programs_are_proved})
