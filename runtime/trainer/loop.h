/* Driving the ranks of this process through a program: bodies in their order, scalars before each
 * step, results after it.
 *
 * The caller's thread prepares; the ranks' threads copy inputs and run bodies; in between nothing
 * runs here, and the caller may use the store. A runtime may still be at work on a step that was
 * given to it: results are taken later, and whatever reads memory waits. With clipping an update is
 * pending from the end of a step to the start of the next one, and a flush does it at once. */
#ifndef FG_RUNTIME_TRAINER_LOOP_H
#define FG_RUNTIME_TRAINER_LOOP_H

#include "runtime/driver.h"
#include "runtime/trainer/crew.h"
#include "runtime/trainer/feed.h"
#include "runtime/trainer/store.h"

typedef struct FgRates { /* of one step */
    double lr, beta1, beta2, eps, weight_decay;
    uint64_t t;       /* AdamW's step, from 1 */
    bool uncorrected; /* no bias correction: moments are the gradients themselves with beta1 0 */
    uint64_t window, hysteresis; /* of the loss scale; window 0: it is fixed */
} FgRates;

/* Where a run stands with the scale of its loss. */
typedef struct FgScale {
    double scale;     /* of the next step */
    uint64_t good;    /* steps since an overflow, or since the scale grew */
    uint64_t left;    /* overflows up to the one that halves the scale */
    uint64_t updates; /* steps that were not skipped */
    uint64_t skipped; /* steps that were */
} FgScale;

typedef struct FgLoop {
    const FgRtProgram *program;
    FgRtGroup *group;
    uint32_t first, n; /* ranks that are here */
    FgCrew *crew;
    FgStore store;
    FgFeed *feed;       /* of the step in work; not owned */
    FgRates rates;      /* of the step in work */
    bool pending;       /* the last step's update is still to come */
    bool need_prologue; /* nothing gathered is live */
} FgLoop;

/* Makes ranks, memory and threads; the store is ready to be filled. `world` NULL: no other process.
 * Close it in either case. */
bool fg_loop_open(FgLoop *out_loop, const FgRtProgram *program, FgWorld *world,
                  const FgRtOptions *options, FgFail *fail);
void fg_loop_close(FgLoop *loop);
/* Before the first step, for programs that scale their loss; the betas are those of all steps. */
void fg_loop_set_scale(FgLoop *loop, const FgScale *scale, double beta1, double beta2);
FgScale fg_loop_get_scale(FgLoop *loop); /* after the last step that was given */
/* Once, after the weights are in place. */
bool fg_loop_start(FgLoop *loop, FgFail *fail);
/* Gives one step over the feed's current micro-batches to the ranks. */
bool fg_loop_step(FgLoop *loop, FgFeed *feed, const FgRates *rates, FgFail *fail);
/* The result of the oldest step whose result was not taken yet; waits for it. */
bool fg_loop_result(FgLoop *loop, FgRtResult *out_result, FgFail *fail);
/* Does the pending update, if there is one: afterwards the store holds the state after the last
 * step. */
bool fg_loop_flush(FgLoop *loop, FgFail *fail);
/* Bytes really used by the rank that used most. */
uint64_t fg_loop_touched_bytes(const FgLoop *loop);

#endif
