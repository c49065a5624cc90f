/* From a verified graph module to the best schedule: the pure lowering (graph, numerics, machine,
 * plan) -> sched, the ledger, the simulator, and the search over plans. */
#ifndef FG_PASSES_COMPILE_H
#define FG_PASSES_COMPILE_H

#include "passes/passes.h"
#include "passes/trace.h"

/* ---- ledger: bytes over time by class (passes/liveness.c) ---- */
typedef struct FgLedger {
    uint64_t peak_bytes;                 /* states + arena: what the plan takes */
    uint64_t by_class[FG_N_MEM_CLASSES]; /* at the peak */
    uint64_t unused_bytes;               /* arena bytes that are free at the peak: placement loss */
    uint64_t arena_bytes, arena_bound_bytes; /* placed, and the most that is live at once */
    uint64_t host_bytes; /* states and arena in host memory, beside all of the above */
    uint64_t host_by_class[FG_N_MEM_CLASSES];
    uint32_t peak_node;     /* where the most is live */
    const char *peak_phase; /* "backward layers.15": for people */
} FgLedger;

/* ---- simulation (passes/simulate.c) ---- */
/* What runs beside each other: streams, but that gradients in parts, on the stream of reductions,
 * are not made by what makes these, and that light work of the compute stream is slowed, and slows
 * others, in another way than large products (FgMachine). */
enum { FG_ENGINE_PARTS = FG_N_STREAMS, FG_ENGINE_LIGHT, FG_N_ENGINES };

typedef struct FgSim {
    double step_us;
    double
        bound_us; /* no schedule of these nodes is faster: the longest engine or dependency path */
    const char *bound_engine; /* "compute", "gather", "reduce", "dependencies" */
    uint32_t bound_node;      /* the longest node on that engine, or the one with which the longest
                                 chain ends; FG_NO_ID: no work at all */
    /* No order of these nodes is faster at the rates that engines have beside each other; and by
     * how much that falls for a second less of an engine's work. */
    double joint_us, joint_price[FG_N_ENGINES];
    double busy_us[FG_N_STREAMS];
    double exposed_us[FG_N_STREAMS]; /* compute stands still for the engine; 0 for compute */
    /* The work of the compute stream, were no engine slowed by another. */
    double compute_us;
    /* step_us = compute_us + slowed_us + exposed_gather_us + exposed_reduce_us + exposed_host_us:
     * compute runs slower beside other engines, or stands still. */
    double slowed_us;
    /* Time compute stands still for gathers, and for reductions and the updates behind them. */
    double exposed_gather_us, exposed_reduce_us;
    double exposed_host_us; /* for copies from and to host memory */
    uint32_t gathers;       /* a step, all micro-steps */
    uint64_t gather_bytes;  /* the whole buffers that they fill, a step */
    uint64_t reduce_bytes;  /* gradient buffers that are reduced, whole, a step */
    uint64_t token_bytes; /* tokens and rows of all ranks that travel to owners and back, a step */
} FgSim;

typedef enum FgSchedule { FG_SCHEDULE_COMPILED, FG_SCHEDULE_ZERO3, FG_SCHEDULE_MINIMUM } FgSchedule;

/* The knobs of the ZeRO-3 baseline, as DeepSpeed names them; elements. */
typedef struct FgZero3 {
    int64_t prefetch_bucket_size, max_live_parameters, max_reuse_distance;
    int64_t param_persistence_threshold, reduce_bucket_size;
    bool by_module; /* gathers together what one node uses, as DeepSpeed's hooks do; otherwise a
                       layer */
} FgZero3;
/* DeepSpeed's defaults (0.19, runtime/zero/config.py), and gather at use with nothing kept. */
#define FG_ZERO3_DEFAULTS ((FgZero3){50000000, 1000000000, 1000000000, 100000, 500000000, false})
#define FG_ZERO3_MINIMAL ((FgZero3){0, 0, 0, 0, 0, false})

static inline bool fg_zero3_equal(const FgZero3 *a, const FgZero3 *b)
{
    return a->prefetch_bucket_size == b->prefetch_bucket_size &&
           a->max_live_parameters == b->max_live_parameters &&
           a->max_reuse_distance == b->max_reuse_distance &&
           a->param_persistence_threshold == b->param_persistence_threshold &&
           a->reduce_bucket_size == b->reduce_bucket_size && a->by_module == b->by_module;
}

/* Where gradients may come in parts (FgPlanBucket.parts): where it pays and the sums are bit for
 * bit those of reductions on every target, with two ranks (AUTO); wherever they can (PARTS: with
 * more ranks a GPU's sums then round otherwise than its reductions' do); nowhere. */
typedef enum FgReduceForm { FG_REDUCE_AUTO, FG_REDUCE_PARTS, FG_REDUCE_SCATTER } FgReduceForm;

/* What compiles share whose graph, machine, numerics and options are the same, but for the memory
 * offered: each is faster for those before it, and finds the same. (Other numerics that one tries
 * by itself have no part in it.) What they return lives no longer than the memo. */
typedef struct FgMemo FgMemo;
FgMemo *fg_memo_new(void);
void fg_memo_free(FgMemo *memo);

typedef struct FgCompileOptions {
    FgSchedule schedule;
    FgReduceForm reduce; /* of compiled plans: the fixed ones take no parts */
    FgRecompute recompute;
    uint64_t memory_bytes; /* offered; reserved comes off it. UINT64_MAX: the machine's */
    bool verify_each;      /* verify after every pass, and compare "changed" */
    const char *dump_dir;
    const char *stop_after; /* `dump --after PASS`: the returned module is what stood there */
    FgZero3 zero3;          /* all zero: FG_ZERO3_MINIMAL */
    uint32_t offload;       /* FgOffload: classes that lie in host memory, wholly */
    bool no_fuse;           /* a call for each element-by-element node; the numbers are the same */
    bool offload_auto;  /* as little of all classes as the memory asks for; `offload` is 0 then */
    bool numerics_auto; /* numerics are searched, too (passes/numerics.c), but for what is ... */
    bool fixed_vocab, fixed_chunk; /* ... as given: the form of the vocabulary, the head's pieces */
    bool fixed_accumulate_in;      /* ... and where gradients of micro-steps add up */
    bool offer;                    /* without `numerics_auto`: find out what that would save */
    FgMemo *memo;                  /* or NULL */
} FgCompileOptions;

/* What searching numerics would save, about: by a glance at two candidates. */
typedef struct FgOffer {
    bool made;
    double saves_us;      /* of the step; 0: nothing worth telling */
    uint64_t saves_bytes; /* of the plan that gathers at use */
    FgNumerics numerics;  /* with which, where it saves either */
} FgOffer;

typedef struct FgCompiled {
    FgModule *module; /* sched level; NULL when nothing fits (then `fits` is false and the figures
                         below are of the fixed plan with the least packed peak) */
    bool fits;
    uint64_t memory_bytes, reserved_bytes, budget_bytes;
    uint64_t host_memory_bytes;     /* host memory that the machine offers a rank */
    uint32_t offload;               /* FgOffload: the classes of which some lies in host memory */
    bool host_fits;                 /* the host memory that the figures below take is offered */
    uint64_t smallest_memory_bytes; /* reserved + floor, rounded up to 1 MiB: to give as --memory */
    FgLedger ledger;
    FgSim sim;
    FgNumerics numerics;     /* as given or chosen, with what the graph decides */
    uint32_t numerics_tried; /* numerics_auto: how many; else 0 */
    FgOffer offer;
    double zero3_step_us; /* simulated, of the zero3 plan with the numerics given, whether or not it
                             fits */
    uint64_t zero3_peak_bytes;
    uint32_t plans_tried, kept,
        regathered; /* buckets kept gathered from forward to backward; gathered more often than
                       twice or in more intervals than zero3's for the same uses */
    uint32_t waits, reuses; /* wait edges, and address reuses they order */
    uint64_t fingerprint;
    FG_VEC(FgPassTime) times; /* summed by pass over all plans, and "search", "simulate", "check" */
} FgCompiled;

/* `graph`: level graph, before autodiff, with ranks 0; it is not changed. False after errors in its
 * diagnostics (a plan that does not fit is no error: out->fits says so). Everything returned lives
 * in `arena`. */
bool fg_compile(FgArena *arena, const FgModule *graph, const FgMachine *machine,
                const FgNumerics *numerics, const FgCompileOptions *options, FgCompiled *out);

/* The pieces, for tools and tests. */
void fg_ledger(FgArena *scratch, const FgModule *sched, FgLedger *out);
/* Seconds of one node alone on its engine. */
double fg_node_seconds(const FgModule *module, const FgMachine *machine, const FgNode *node);
void fg_simulate(FgArena *scratch, const FgModule *sched, const FgMachine *machine, FgSim *out);
/* How often a period runs a function: 0 for what is no part of it. */
double fg_func_repeats(const FgModule *module, const char *name);
/* One node in a simulated run of its function; microseconds from the function's start. */
typedef struct FgSimNode {
    double start_us, end_us;
    double stall_us; /* that the compute stream stands still for it */
    uint32_t after;  /* the node whose end it had to await last (on its stream, or waited for);
                        FG_NO_ID: none */
} FgSimNode;
/* `out` by node id. */
void fg_simulate_trace(FgArena *scratch, const FgModule *sched, const FgMachine *machine,
                       FgSimNode *out);

/* The proof of a module (passes/check.c, trace.h): shares no code with the passes that made the
 * schedule. */
bool fg_check(FgArena *scratch, const FgModule *sched, uint64_t budget, FgProof *out);

#endif
