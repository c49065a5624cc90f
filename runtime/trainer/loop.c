/* The two sets of scalars move here: what was current becomes pending when the next step starts, so
 * that an update always uses the rate, the corrections and the clip factor of the step that made
 * its gradients. */
#include "runtime/trainer/loop.h"

#include <math.h>
#include <string.h>

static FgRtCx *rank_cx(const FgLoop *loop, uint32_t rank)
{
    return fg_rt_group_rank(loop->group, rank);
}

static bool group_ok(const FgLoop *loop, FgFail *fail)
{
    FgRtStatus status = fg_rt_status(rank_cx(loop, 0));
    if (status.ok)
        return true;
    if (status.node >= loop->program->n_nodes)
        return fg_fail(fail, "rank %u, %s: %s", status.rank, status.call, status.text);
    const FgRtNode *node = &loop->program->nodes[status.node];
    if (!*node->file) /* a node that no source line stands for */
        return fg_fail(fail, "rank %u, %s '%s', %s: %s", status.rank, node->op, node->name,
                       status.call, status.text);
    return fg_fail(fail, "rank %u, %s '%s' (%s:%u:%u), %s: %s", status.rank, node->op, node->name,
                   node->file, node->line, node->col, status.call, status.text);
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
        memcpy(fg_rt_memory(rank_cx(loop, rank), loop->program->inputs[i].offset), from, bytes);
    }
}

static void move_scalars(const FgLoop *loop, float *scalars)
{
    const FgRates *rates = &loop->rates;
    float *current = scalars + FG_RT_CURRENT * FG_RT_SET;
    float *pending = scalars + FG_RT_PENDING * FG_RT_SET;
    memcpy(pending, current, FG_RT_SET * sizeof *current);
    pending[FG_RT_S_VALID] = loop->pending ? 1.0f : 0.0f;
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
    current[FG_RT_S_NORM] = 0;
    current[FG_RT_S_FACTOR] = 1;
    current[FG_RT_S_VALID] = 1;
}

static void step_rank(void *cx, uint32_t rank)
{
    const FgLoop *loop = cx;
    const FgRtProgram *program = loop->program;
    FgRtCx *self = rank_cx(loop, rank);
    move_scalars(loop, fg_rt_memory(self, program->scalars));
    if (loop->need_prologue)
        fg_rt_run_body(self, program->prologue);
    for (uint32_t micro = 0; micro < program->accumulate; micro++) {
        copy_inputs(loop, rank, micro);
        fg_rt_run_body(self, micro == 0                        ? program->first
                             : micro + 1 < program->accumulate ? program->middle
                                                               : program->last);
    }
}

static void flush_rank(void *cx, uint32_t rank)
{
    const FgLoop *loop = cx;
    FgRtCx *self = rank_cx(loop, rank);
    float *scalars = fg_rt_memory(self, loop->program->scalars);
    memcpy(scalars + FG_RT_PENDING * FG_RT_SET, scalars + FG_RT_CURRENT * FG_RT_SET,
           FG_RT_SET * sizeof *scalars);
    scalars[FG_RT_PENDING * FG_RT_SET + FG_RT_S_VALID] = 1;
    fg_rt_run_body(self, loop->program->flush);
}

/* ---- what the caller does ---- */

bool fg_loop_open(FgLoop *out_loop, const FgRtProgram *program, bool checked, FgFail *fail)
{
    char error[512] = "";
    FgRtHostOptions options = {.checked = checked};
    *out_loop = (FgLoop){.program = program, .need_prologue = true};
    if (program->abi != FG_RT_ABI)
        return fg_fail(fail, "this program was compiled for runtime ABI %u, not %d", program->abi,
                       FG_RT_ABI);
    out_loop->group = fg_rt_group_new(program, &options, error, sizeof error);
    if (!out_loop->group)
        return fg_fail(fail, "%s", error);
    fg_store_open(&out_loop->store, program);
    for (uint32_t rank = 0; rank < program->ranks; rank++)
        out_loop->store.memory[rank] = fg_rt_memory(rank_cx(out_loop, rank), 0);
    out_loop->crew = fg_crew_new(program->ranks, fail);
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

bool fg_loop_start(FgLoop *loop, FgFail *fail)
{
    fg_crew_run(loop->crew, start_rank, loop);
    return group_ok(loop, fail);
}

bool fg_loop_step(FgLoop *loop, FgFeed *feed, const FgRates *rates, FgStepResult *out_result,
                  FgFail *fail)
{
    const FgRtProgram *program = loop->program;
    loop->feed = feed;
    loop->rates = *rates;
    fg_crew_run(loop->crew, step_rank, loop);
    loop->need_prologue = false;
    loop->pending = program->flush != NULL;
    if (!group_ok(loop, fail))
        return false;
    float norm = 0;
    FgRtCx *first = rank_cx(loop, 0);
    memcpy(&out_result->loss, fg_rt_memory(first, program->loss), sizeof out_result->loss);
    if (program->norm != FG_RT_NONE)
        norm = ((float *)fg_rt_memory(first, program->scalars))[FG_RT_S_NORM];
    out_result->norm = (double)norm;
    return true;
}

bool fg_loop_flush(FgLoop *loop, FgFail *fail)
{
    if (!loop->pending)
        return true;
    fg_crew_run(loop->crew, flush_rank, loop);
    loop->pending = false;
    loop->need_prologue = true;
    return group_ok(loop, fail);
}

uint64_t fg_loop_touched_bytes(const FgLoop *loop)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < loop->program->ranks; rank++) {
        uint64_t bytes = fg_rt_touched_bytes(rank_cx(loop, rank));
        if (bytes > most)
            most = bytes;
    }
    return most;
}
