/* The two sets of scalars move here: what was current becomes pending when the next step starts, so
 * that an update always uses the rate, the corrections and the clip factor of the step that made
 * its gradients. */
#include "runtime/trainer/loop.h"

#include <math.h>

static FgRtCx *rank_cx(const FgLoop *loop, uint32_t rank)
{
    return fg_rt_group_rank(loop->group, rank);
}

/* ---- what the ranks' threads do ---- */

static void start_rank(void *cx, uint32_t rank)
{
    const FgLoop *loop = cx;
    fg_rt_run_body(rank_cx(loop, rank), loop->program->init);
}

static void copy_inputs(const FgLoop *loop, uint32_t rank, uint32_t micro)
{
    for (uint32_t i = 0; i < loop->program->n_inputs; i++) {
        size_t bytes;
        const void *from = fg_feed_input(loop->feed, micro, rank, i, &bytes);
        fg_rt_write(rank_cx(loop, rank), loop->program->inputs[i].offset, from, bytes);
    }
}

static uint64_t scalar(const FgLoop *loop, uint32_t set, uint32_t slot)
{
    return loop->program->scalars + (set * FG_RT_SET + slot) * sizeof(float);
}

/* What is current becomes pending, and with it what only the device knows: the clip factor, and
 * whether a step with a scaled loss is to be skipped. */
static void shift_scalars(const FgLoop *loop, FgRtCx *cx, bool valid)
{
    float none = 0;
    fg_rt_copy(cx, scalar(loop, FG_RT_PENDING, 0), scalar(loop, FG_RT_CURRENT, 0),
               FG_RT_SET * sizeof(float));
    if (!valid)
        fg_rt_write(cx, scalar(loop, FG_RT_PENDING, FG_RT_S_VALID), &none, sizeof none);
}

static void write_scalars(const FgLoop *loop, FgRtCx *cx)
{
    const FgRates *rates = &loop->rates;
    float current[FG_RT_SET] = {0};
    current[FG_RT_S_SEED] = fg_feed_seed(loop->feed);
    current[FG_RT_S_LR] = (float)rates->lr;
    current[FG_RT_S_BETA1] = (float)rates->beta1;
    current[FG_RT_S_BETA2] = (float)rates->beta2;
    current[FG_RT_S_EPS] = (float)rates->eps;
    current[FG_RT_S_DECAY] = (float)rates->weight_decay;
    current[FG_RT_S_CORRECT1] =
        rates->uncorrected ? 1.0f : (float)(1 - pow(rates->beta1, (double)rates->t));
    current[FG_RT_S_CORRECT2] =
        rates->uncorrected ? 1.0f : (float)(1 - pow(rates->beta2, (double)rates->t));
    current[FG_RT_S_FACTOR] = 1;
    current[FG_RT_S_VALID] = 1;
    current[FG_RT_S_WINDOW] = (float)rates->window;
    current[FG_RT_S_HYSTERESIS] = (float)rates->hysteresis;
    fg_rt_write(cx, scalar(loop, FG_RT_CURRENT, 0), current, sizeof current);
}

static void step_rank(void *cx, uint32_t rank)
{
    const FgLoop *loop = cx;
    const FgRtProgram *program = loop->program;
    FgRtCx *self = rank_cx(loop, rank);
    shift_scalars(loop, self, loop->pending);
    write_scalars(loop, self);
    if (loop->need_prologue)
        fg_rt_run_body(self, program->prologue);
    for (uint32_t micro = 0; micro < program->accumulate; micro++) {
        copy_inputs(loop, rank, micro);
        fg_rt_run_body(self, micro == 0                        ? program->first
                             : micro + 1 < program->accumulate ? program->middle
                                                               : program->last);
    }
    fg_rt_ask_result(self);
}

static void flush_rank(void *cx, uint32_t rank)
{
    const FgLoop *loop = cx;
    FgRtCx *self = rank_cx(loop, rank);
    shift_scalars(loop, self, true);
    fg_rt_run_body(self, loop->program->flush);
}

/* ---- what the caller does ---- */

bool fg_loop_open(FgLoop *out_loop, const FgRtProgram *program, FgWorld *world,
                  const FgRtOptions *options, FgFail *fail)
{
    char error[1024] = "";
    *out_loop = (FgLoop){.program = program, .need_prologue = true};
    if (program->abi != FG_RT_ABI)
        return fg_fail(fail, "this program was compiled for runtime ABI %u, not %d", program->abi,
                       FG_RT_ABI);
    out_loop->group = fg_rt_group_new(program, world, options, error, sizeof error);
    if (!out_loop->group)
        return fg_fail(fail, "%s", error);
    fg_rt_group_ranks(out_loop->group, &out_loop->first, &out_loop->n);
    fg_store_open(&out_loop->store, program, out_loop->group);
    out_loop->crew = fg_crew_new(out_loop->first, out_loop->n, fail);
    return out_loop->crew != NULL;
}

void fg_loop_close(FgLoop *loop)
{
    fg_crew_free(loop->crew);
    fg_store_close(&loop->store);
    if (loop->group)
        fg_rt_group_free(loop->group);
    *loop = (FgLoop){0};
}

/* beta^updates as the devices make it. */
static double power(double beta, uint64_t updates)
{
    double power = 1;
    for (uint64_t i = 0; i < updates && power > 0; i++)
        power *= (double)(float)beta;
    return power;
}

void fg_loop_set_scale(FgLoop *loop, const FgScale *scale, double beta1, double beta2)
{
    const double scaler[FG_RT_SCALER] = {[FG_RT_L_SCALE] = scale->scale,
                                         [FG_RT_L_GOOD] = (double)scale->good,
                                         [FG_RT_L_LEFT] = (double)scale->left,
                                         [FG_RT_L_UPDATES] = (double)scale->updates,
                                         [FG_RT_L_SKIPPED] = (double)scale->skipped,
                                         [FG_RT_L_POWER1] = power(beta1, scale->updates),
                                         [FG_RT_L_POWER2] = power(beta2, scale->updates)};
    for (uint32_t i = 0; i < loop->n; i++)
        fg_rt_write(rank_cx(loop, loop->first + i), loop->program->scaler, scaler, sizeof scaler);
}

FgScale fg_loop_get_scale(FgLoop *loop)
{
    double scaler[FG_RT_SCALER];
    fg_rt_read(rank_cx(loop, loop->first), loop->program->scaler, scaler, sizeof scaler);
    return (FgScale){.scale = scaler[FG_RT_L_SCALE],
                     .good = (uint64_t)scaler[FG_RT_L_GOOD],
                     .left = (uint64_t)scaler[FG_RT_L_LEFT],
                     .updates = (uint64_t)scaler[FG_RT_L_UPDATES],
                     .skipped = (uint64_t)scaler[FG_RT_L_SKIPPED]};
}

bool fg_loop_start(FgLoop *loop, FgFail *fail)
{
    fg_crew_run(loop->crew, start_rank, loop);
    return fg_store_ok(&loop->store, fail);
}

bool fg_loop_step(FgLoop *loop, FgFeed *feed, const FgRates *rates, FgFail *fail)
{
    loop->feed = feed;
    loop->rates = *rates;
    fg_crew_run(loop->crew, step_rank, loop);
    loop->need_prologue = false;
    loop->pending = loop->program->flush != NULL;
    return fg_store_ok(&loop->store, fail);
}

bool fg_loop_result(FgLoop *loop, FgRtResult *out_result, FgFail *fail)
{
    for (uint32_t i = loop->n; i-- > 0;) /* all agree; that of the first is returned */
        if (!fg_rt_take_result(rank_cx(loop, loop->first + i), out_result))
            return fg_store_ok(&loop->store, fail);
    return fg_store_ok(&loop->store, fail);
}

bool fg_loop_flush(FgLoop *loop, FgFail *fail)
{
    if (!loop->pending)
        return true;
    fg_crew_run(loop->crew, flush_rank, loop);
    loop->pending = false;
    loop->need_prologue = true;
    return fg_store_ok(&loop->store, fail);
}

uint64_t fg_loop_touched_bytes(const FgLoop *loop)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < loop->n; i++) {
        uint64_t bytes = fg_rt_touched_bytes(rank_cx(loop, loop->first + i));
        if (bytes > most)
            most = bytes;
    }
    return most;
}
