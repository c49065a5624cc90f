/* What the user sees of a run: lines on a stream, JSON objects in a log.
 *
 * On a terminal the line of the current step is rewritten in place; elsewhere each step is a line
 * of its own. Log records are written one by one, each whole or not at all, and only appended. Only
 * rank 0's process reports: the others' reports have no stream and say nothing. */
#ifndef FG_RUNTIME_TRAINER_REPORT_H
#define FG_RUNTIME_TRAINER_REPORT_H

#include "runtime/trainer/options.h"

#include <stdio.h>

typedef struct FgReport {
    FILE *stream; /* for people; not owned; NULL: silent */
    int log;      /* a descriptor, owned; -1 without --log */
    const char *log_path;
    bool live;      /* the stream is a terminal */
    bool line_open; /* a live line stands there */
    uint64_t steps; /* of the whole run */
    uint64_t print_every;
} FgReport;

typedef struct FgStepRecord {
    uint64_t step; /* from 1 */
    double loss, grad_norm, learning_rate, ms, tokens_per_second;
    double loss_scale; /* 0: none */
    bool skipped;      /* no update: something was not finite */
    uint64_t all_skipped;
} FgStepRecord;

bool fg_report_open(FgReport *out_report, FILE *stream, const FgOptions *options, FgFail *fail);
void fg_report_close(FgReport *report);
/* The run's header: a line, and the first record of the log. */
bool fg_report_run(FgReport *report, const FgRtProgram *program, const FgOptions *options,
                   uint64_t first_step, FgFail *fail);
bool fg_report_step(FgReport *report, const FgStepRecord *record, FgFail *fail);
/* A line of its own, the live line kept above it. */
void fg_report_line(FgReport *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "14.57 GiB", "12 B"; the caller frees. */
char *fg_bytes_words(uint64_t bytes);

#endif
