/* Driving a group of ranks through a program: bodies in their order, scalars before each step,
 * results after it.
 *
 * The caller's thread prepares; the ranks' threads copy inputs and run bodies; in between nothing
 * runs, and the caller may use the store. With clipping an update is pending from the end of a step
 * to the start of the next one, and a flush does it at once. */
#ifndef FG_RUNTIME_TRAINER_LOOP_H
#define FG_RUNTIME_TRAINER_LOOP_H

#include "runtime/host/host.h"
#include "runtime/trainer/crew.h"
#include "runtime/trainer/feed.h"
#include "runtime/trainer/store.h"

typedef struct FgRates { /* of one step */
    double lr, beta1, beta2, eps, weight_decay;
    uint64_t t;       /* AdamW's step, from 1 */
    bool uncorrected; /* no bias correction: moments are the gradients themselves with beta1 0 */
} FgRates;

typedef struct FgLoop {
    const FgRtProgram *program;
    FgRtGroup *group;
    FgCrew *crew;
    FgStore store;
    FgFeed *feed;       /* of the step in work; not owned */
    FgRates rates;      /* of the step in work */
    bool pending;       /* the last step's update is still to come */
    bool need_prologue; /* nothing gathered is live */
} FgLoop;

typedef struct FgStepResult {
    double loss, norm; /* norm 0 when nothing trains */
} FgStepResult;

/* Makes ranks, memory and threads; the store is ready to be filled. Close it in either case. */
bool fg_loop_open(FgLoop *out_loop, const FgRtProgram *program, bool checked, FgFail *fail);
void fg_loop_close(FgLoop *loop);
/* Once, after the weights are in place. */
bool fg_loop_start(FgLoop *loop, FgFail *fail);
/* One step over the feed's current micro-batches. */
bool fg_loop_step(FgLoop *loop, FgFeed *feed, const FgRates *rates, FgStepResult *out_result,
                  FgFail *fail);
/* Does the pending update, if there is one: afterwards the store holds the state after the last
 * step. */
bool fg_loop_flush(FgLoop *loop, FgFail *fail);
/* Bytes really used by the rank that used most. */
uint64_t fg_loop_touched_bytes(const FgLoop *loop);

#endif
