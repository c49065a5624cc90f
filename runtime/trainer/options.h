/* The command line of a trained program. */
#ifndef FG_RUNTIME_TRAINER_OPTIONS_H
#define FG_RUNTIME_TRAINER_OPTIONS_H

#include "runtime/fg_rt.h"
#include "runtime/trainer/fail.h"
#include "runtime/trainer/schedule.h"

#include <stdio.h>

#define FG_NOT_GIVEN UINT64_MAX

typedef struct FgOptions {
    const char *data, *inputs;            /* exactly one of them */
    const char *weights, *weights_prefix; /* weights NULL: initialise; prefix "" by default */
    const char *log, *dump_grads, *save, *resume, *profile, *profile_ops;
    const char *rendezvous;                   /* HOST:PORT, or NULL */
    const char *attention;                    /* "library" or "builtin" */
    const char *gemm_cache;                   /* or NULL: beside the program */
    const char *loss_scale;                   /* "dynamic", or a number; NULL: not given, dynamic */
    uint64_t steps, warmup, seed, save_every; /* save_every 0: only at the end */
    uint64_t print_every;                     /* steps from one printed line to the next */
    uint64_t global_batch; /* or FG_NOT_GIVEN: as many rows as the ranks take, or as --inputs has */
    uint64_t local_ranks;  /* or FG_NOT_GIVEN */
    uint64_t join_s;       /* seconds that ranks wait for each other at start */
    double fixed_scale;    /* 0: dynamic */
    double first_scale;    /* or 0: not given */
    uint64_t scale_window, scale_hysteresis; /* or FG_NOT_GIVEN */
    double lr, min_lr, beta1, beta2, eps, weight_decay;
    FgLrShape lr_schedule;
    bool checked, poison, no_graph, deterministic, tune, help, version;
} FgOptions;

/* argv's strings are kept. False: a usage error. */
bool fg_options_parse(FgOptions *out_options, int argc, char *const *argv, FgFail *fail);
/* Checks against what the program was compiled for. False: a usage error. */
bool fg_options_fit(const FgOptions *options, const FgRtProgram *program, FgFail *fail);
/* The options that were given and that a program of this runtime has no use for, "--no-graph,
 * --gemm-cache"; NULL: none. The caller frees. */
char *fg_options_idle(const FgOptions *options);
void fg_options_help(FILE *stream, const FgRtProgram *program, const char *name);

#endif
