/* Warm-up rises to the full rate at its last step; the decay starts from there and would reach
 * min_lr one step after the last. */
#include "runtime/trainer/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double fg_lr_at(const FgLrSchedule *schedule, uint64_t step)
{
    double high = schedule->lr, low = schedule->min_lr;
    if (step < schedule->warmup)
        return high * (double)(step + 1) / (double)schedule->warmup;
    if (schedule->shape == FG_LR_CONSTANT || schedule->steps <= schedule->warmup)
        return high;
    double done = (double)(step - schedule->warmup) / (double)(schedule->steps - schedule->warmup);
    if (done > 1)
        done = 1;
    if (schedule->shape == FG_LR_LINEAR)
        return low + (high - low) * (1 - done);
    return low + (high - low) / 2 * (1 + cos(PI * done));
}
