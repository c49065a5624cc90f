/* The learning rate as a pure function of the step. */
#ifndef FG_RUNTIME_TRAINER_SCHEDULE_H
#define FG_RUNTIME_TRAINER_SCHEDULE_H

#include <stdint.h>

typedef enum FgLrShape { FG_LR_CONSTANT, FG_LR_LINEAR, FG_LR_COSINE } FgLrShape;

typedef struct FgLrSchedule {
    FgLrShape shape;
    double lr, min_lr;
    uint64_t warmup, steps; /* steps of the whole run, warm-up included */
} FgLrSchedule;

/* Step counts from 0. During warm-up lr * (step + 1) / warmup; then from lr at `warmup` towards
 * min_lr at `steps`. */
double fg_lr_at(const FgLrSchedule *schedule, uint64_t step);

#endif
