/* Models that train: compiled, emitted as a shared object that this process loads, and run for
 * three steps on the host. What a run leaves behind is one hash, so that two schedules of a model
 * can be compared to the last bit. */
#ifndef FG_TESTS_EXECUTION_TRAINED_H
#define FG_TESTS_EXECUTION_TRAINED_H

#include "../property/random_model.h"
#include "../unit/unit.h"

#include "passes/compile.h"
#include "passes/lower.h"

#include <stdlib.h>

typedef struct TrainedSetup {
    FgArena *arena;
    FgDiags *diags;
    FgMachine machine;
    FgNumerics numerics;
    FgRecompute recompute;
    uint32_t offload;
    FgReduceForm reduce;
    bool offload_auto, no_fuse;
    const char *folder;
    uint64_t seed;
    const char *model; /* NULL: a random one */
} TrainedSetup;

/* What a run leaves behind: one hash of everything, and the first step's loss for messages. */
typedef struct TrainedOutcome {
    uint64_t hash;
    double loss;
    bool ok;
} TrainedOutcome;

/* A random model's numerics, on one to three ranks of a machine whose link has a time for each byte
 * and no latency; it takes an arena and a folder, until trained_end. */
TrainedSetup trained_setup(uint64_t seed);
/* The setup's model by a schedule; `module` is NULL after errors. */
FgCompiled trained_compile(TrainedSetup *setup, FgSchedule schedule, uint64_t memory);
void trained_say_errors(const TrainedSetup *setup);
/* Three steps of what was compiled; `name` is a file's. `checked`: by the runtime's checked mode.
 * After a failure, which is printed, `ok` is false. */
TrainedOutcome trained_run(TrainedSetup *setup, const FgCompiled *compiled, const char *name,
                           bool checked);

/* Gives back what the setup took; where a check failed, which model it was stands printed. */
void trained_end(TrainedSetup *setup, bool failed);

#endif
