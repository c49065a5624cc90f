/* The arena equals its lower bound, the most that lives at once: every example on every machine
 * preset, every schedule, with and without recomputation, with memory to spare; without it, with
 * little. */
#include "../unit/unit.h"

#include "frontend/machine.h"
#include "frontend/model.h"
#include "passes/compile.h"

#include <dirent.h>
#include <stdlib.h>

#define PLENTY (UINT64_MAX / 4) /* more than any plan takes */

typedef struct Tally {
    uint32_t plans, at_bound;
} Tally;

typedef struct Case {
    const char *example, *preset;
    FgModule *graph;
    FgMachine machine;
    FgNumerics numerics;
} Case;

static bool carries(const FgModule *m)
{
    for (uint32_t i = 0; i < m->plan->gathers.len; i++)
        if (m->plan->gathers.data[i].round)
            return true;
    return false;
}

static uint64_t check(const Case *c, FgSchedule schedule, FgRecompute recompute, uint64_t memory,
                      Tally *tally)
{
    FgArena *a = fg_arena_new();
    FgCompileOptions options = {
        .schedule = schedule, .recompute = recompute, .memory_bytes = memory};
    FgCompiled out;
    uint64_t smallest = 0;
    if (fg_compile(a, c->graph, &c->machine, &c->numerics, &options, &out) && out.fits) {
        /* Copies that are carried round the period make arcs of a circle of lifetimes: the bound
         * need not be reached there. */
        uint64_t bound = out.ledger.arena_bound_bytes;
        bool equal = out.ledger.arena_bytes == bound ||
                     (carries(out.module) && out.ledger.arena_bytes <= bound + bound / 20);
        if (!equal)
            printf("%s, %s, schedule %d, recompute %d, memory %" PRIu64 ": arena %" PRIu64
                   " over its bound %" PRIu64 "\n",
                   c->example, c->preset, (int)schedule, (int)recompute, memory,
                   out.ledger.arena_bytes, out.ledger.arena_bound_bytes);
        tally->plans++;
        tally->at_bound += equal;
        smallest = out.smallest_memory_bytes;
    }
    fg_arena_free(a);
    return smallest;
}

static void check_all(const Case *c, Tally *tally)
{
    static const FgSchedule schedules[] = {FG_SCHEDULE_ZERO3, FG_SCHEDULE_COMPILED,
                                           FG_SCHEDULE_MINIMUM};
    for (int full = 0; full < 2; full++) {
        FgRecompute recompute = full ? FG_RECOMPUTE_FULL : FG_RECOMPUTE_NONE;
        for (int i = 0; i < 3; i++) {
            uint64_t smallest = check(c, schedules[i], recompute, PLENTY, tally);
            if (!full && schedules[i] == FG_SCHEDULE_COMPILED && smallest > 0)
                check(c, FG_SCHEDULE_COMPILED, recompute, smallest + smallest / 50, tally);
        }
    }
}

static void check_example(int *failures, const char *name, Tally *tally)
{
    uint32_t n;
    const char *const *presets = fg_machine_preset_names(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (!getenv("FG_ARENA") && strcmp(presets[i], "host") != 0 &&
            strcmp(presets[i], "2xH200") != 0)
            continue;
        FgArena *a = fg_arena_new();
        FgDiags *diags = fg_diags_new(a);
        Case c = {.example = name, .preset = presets[i]};
        c.numerics = (FgNumerics){.accumulate = 1};
        FgModelOptions options = {.numerics = c.numerics};
        if (strncmp(name, "llama-3.1", 9) == 0) /* layers alike: a few say as much as all */
            fg_vec_push(a, &options.dims, ((FgDimOverride){"layers", 6}));
        c.graph = fg_model_load(a, diags, fg_arena_printf(a, "%s/examples/%s", FG_SOURCE_DIR, name),
                                &options);
        CHECK(c.graph && fg_machine_load(a, diags, presets[i], &c.machine));
        if (c.graph)
            check_all(&c, tally);
        fg_arena_free(a);
    }
}

static void every_arena_is_its_bound(int *failures)
{
    Tally tally = {0};
    uint32_t n = 0;
    DIR *folder = opendir(FG_SOURCE_DIR "/examples");
    CHECK(folder != NULL);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".json") != 0 || strncmp(e->d_name, "custom", 6) == 0)
            continue;
        check_example(failures, e->d_name, &tally);
        n++;
    }
    if (folder)
        closedir(folder);
    CHECK(n >= 4 && tally.plans >= n * 2 * 3);
    CHECK_EQ_U64(tally.at_bound, tally.plans);
}

UNIT_MAIN({"placement: every arena is its lower bound", every_arena_is_its_bound})
