/* The end of a step whose loss is scaled: one text for the host and for devices, the same bits.
 *
 * The range of f16 ends at 65504, and below 2^-24 it has nothing. So the loss is multiplied by a
 * scale, a power of two, which every gradient then has as a factor; here it is taken out again, in
 * f32 or wider: exactly. Where the sum of all squares or the loss is not finite, the step is
 * skipped: AdamW, whose update of this step is still to come, sees that its set of scalars is not
 * valid. Both sums are those of all ranks, so all ranks decide alike, each on its device.
 *
 * The scale moves as in DeepSpeed: an overflow halves it, down to 1 (the first few overflows do
 * not where there is a hysteresis: that many in all until the scale grows again); a window of steps
 * without overflow doubles it. AdamW's step counts updates, not steps: beta^t is multiplied up, an
 * exact rule on any device. */
#ifndef FG_RUNTIME_LOSS_SCALE_H
#define FG_RUNTIME_LOSS_SCALE_H

#include "runtime/fg_rt.h"

#ifdef __CUDACC__
#define FG_SCALE_FN static __host__ __device__ inline
#else
#define FG_SCALE_FN static inline
#endif

#define FG_MOST_SCALE 18446744073709551616.0 /* 2^64: the loss's factor stays far inside f32 */

/* A power of two from 1 to the largest. */
FG_SCALE_FN int fg_scale_allowed(double scale)
{
    double x = scale;
    while (x > 1 && x <= FG_MOST_SCALE)
        x /= 2;
    return x == 1;
}

FG_SCALE_FN int fg_scale_finite(double x)
{
    return x - x == 0;
}

FG_SCALE_FN void fg_scale_overflow(const float *current, double *scaler)
{
    scaler[FG_RT_L_SKIPPED] += 1;
    scaler[FG_RT_L_GOOD] = 0;
    if (current[FG_RT_S_WINDOW] == 0)
        return;
    if (scaler[FG_RT_L_LEFT] > 1)
        scaler[FG_RT_L_LEFT] -= 1;
    else if (scaler[FG_RT_L_SCALE] > 1)
        scaler[FG_RT_L_SCALE] /= 2;
}

FG_SCALE_FN void fg_scale_update(float *current, double *scaler)
{
    scaler[FG_RT_L_UPDATES] += 1;
    scaler[FG_RT_L_POWER1] *= (double)current[FG_RT_S_BETA1];
    scaler[FG_RT_L_POWER2] *= (double)current[FG_RT_S_BETA2];
    current[FG_RT_S_CORRECT1] = (float)(1.0 - scaler[FG_RT_L_POWER1]);
    current[FG_RT_S_CORRECT2] = (float)(1.0 - scaler[FG_RT_L_POWER2]);
    scaler[FG_RT_L_GOOD] += 1;
    if (current[FG_RT_S_WINDOW] == 0 || scaler[FG_RT_L_GOOD] < (double)current[FG_RT_S_WINDOW])
        return;
    scaler[FG_RT_L_GOOD] = 0;
    scaler[FG_RT_L_LEFT] = (double)current[FG_RT_S_HYSTERESIS];
    if (scaler[FG_RT_L_SCALE] < FG_MOST_SCALE)
        scaler[FG_RT_L_SCALE] *= 2;
}

/* `length`: the norm of the scaled gradient; `current`: the step's set of scalars; *loss: the sum
 * of the scaled losses. clip 0: none. */
FG_SCALE_FN void fg_scale_step(double length, double clip, float *current, double *scaler,
                               double *loss)
{
    double scale = scaler[FG_RT_L_SCALE], norm = length / scale;
    double factor = clip > 0 ? clip / (norm + 1e-6) : 1.0;
    int over = !fg_scale_finite(length) || !fg_scale_finite(*loss);
    *loss /= scale;
    current[FG_RT_S_NORM] = (float)norm;
    current[FG_RT_S_FACTOR] = (float)((double)(float)(factor > 1.0 ? 1.0 : factor) / scale);
    scaler[FG_RT_L_USED] = scale;
    scaler[FG_RT_L_OVER] = over;
    if (over) {
        current[FG_RT_S_VALID] = 0;
        fg_scale_overflow(current, scaler);
    } else {
        fg_scale_update(current, scaler);
    }
}

#endif
