/* Passes and their manager. A pass changes a module in place from one level to the same or the next
 * one; it reads its levers from the module's plan and decides nothing that the plan states.
 *
 * The manager does everything common once: level check, timing, dumps, verification after each
 * pass, comparison of the reported "changed" with a hash of the text, a reproducer on failure. */
#ifndef FG_PASSES_PASSES_H
#define FG_PASSES_PASSES_H

#include "ir/ir.h"
#include "ir/machine.h"

typedef enum FgPassResult { FG_PASS_UNCHANGED, FG_PASS_CHANGED, FG_PASS_FAILED } FgPassResult;

typedef struct FgPassCx {
    FgModule *module;
    FgArena *scratch; /* reset after each pass */
    const FgMachine *machine;
    uint64_t budget; /* bytes for states and arena; UINT64_MAX: unlimited. Only `check` reads it */
    const char *option; /* text between braces after the pass's name in a pipeline, or "" */
} FgPassCx;

typedef FgPassResult FgPassFn(FgPassCx *cx);

typedef struct FgPassInfo {
    const char *name;
    FgPassFn *run;
    FgLevel level_in, level_out;
    const char *help;
} FgPassInfo;

typedef enum FgPassId {
#define FG_PASS(id, ...) FG_PASS_ID_##id,
#include "passes/passes.def"
#undef FG_PASS
    FG_N_PASSES
} FgPassId;

#define FG_PASS(id, ...) FgPassFn fg_pass_##id;
#include "passes/passes.def"
#undef FG_PASS

const FgPassInfo *fg_pass_info(FgPassId id);

typedef struct FgPassTime {
    const char *name;
    double ms;
} FgPassTime;

typedef struct FgPassManager {
    FgArena *arena; /* for times, dumps and texts */
    const FgMachine *machine;
    uint64_t budget;
    bool verify_each;     /* verify after every pass */
    bool check_changed;   /* compare the reported result with a hash of the text */
    const char *dump_dir; /* NULL, or the folder of "NN-pass.fg" files, what stands after passes */
    const char *dump;     /* of which passes: "all", "name,..."; NULL: of those that changed it */
    const char *stop_after; /* NULL, or the pass after which the pipeline ends with success */
    FG_VEC(FgPassTime) times;
    uint32_t n_run;
    bool stopped; /* stop_after was reached */
} FgPassManager;

/* Runs "canon,cse,plan{zero3},..."; false after errors in the module's diagnostics (then, with
 * dump_dir, the IR before the failing pass and the rest of the pipeline were written to
 * "failed.fg"). */
bool fg_run_passes(FgPassManager *manager, FgModule *module, const char *pipeline);

/* The pipelines that the compiler runs. */
#define FG_PIPELINE_UNFUSED "canon,cse,dce,recognise,autodiff,vocab,head,fold"
#define FG_PIPELINE_GRAPH FG_PIPELINE_UNFUSED ",fuse"
#define FG_PIPELINE_DIST "bucket,travel,shard,reduce,offload,update"
#define FG_PIPELINE_SCHED FG_PIPELINE_DIST ",order,inplace"
#define FG_PIPELINE_LOWER "recompute," FG_PIPELINE_SCHED ",memplan,streams"
/* Where `dump --after` can stop behind the graph's: the searched plan is written (by the search, as
 * pass `plan` writes a fixed one), the schedule proved (in every compile). */
#define FG_PIPELINE_PLANNED "plan," FG_PIPELINE_LOWER ",check"

#endif
