/* tiny: a training program whose memory and order were planned and proved ahead of time.
 *
 * Made by foregather 0.1.0 from tiny.json: plan zero3, 2 ranks, compute f32, gradients f32, 1 micro-step, clip 1.0.
 * Plan fingerprint 18ce04e7e6309b6e.
 *
 * One call a node, in issue order. Buffers are byte offsets into a rank's one allocation: what always lives first,
 * then the arena. Each call is followed by the name of its node and the place in the model that it comes from. */
#include "fg_rt.h"

static const int64_t dims[] = {
    16, 8, /* embed */
    8, /* norm */
    2, 4, /* tokens */
    2, 4, /* labels */
};

static const char *const tied[] = {
    "head",
};

/* name, bucket, offset, elements, first dim, rank, initial values, trainable, decay, first tied name, their number */
static const FgRtParam params[] = {
    {"embed", 0, 0, 128, 0, 2, FG_RT_NORMAL, 0.1, 1, 1, 0, 1},
    {"norm", 1, 0, 8, 2, 1, FG_RT_CONSTANT, 1.0, 1, 0, 1, 0},
};

static const uint32_t bucket_params[] = {
    0, /* embed */
    1, /* norm */
};

/* name, dtype, trainable, elements, first parameter, their number; offsets of shard, master, moment1, moment2, grad_shard; its bytes, writes and lookups */
static const FgRtBucket buckets[] = {
    {"embed", FG_RT_F32, 1, 128, 0, 1, 512, FG_RT_NONE, 768, 1024, 68352, 256, 2, 0},
    {"norm", FG_RT_F32, 1, 128, 1, 1, 1280, FG_RT_NONE, 1536, 1792, 69888, 256, 1, 0},
};

/* name, role (0 tokens, 1 labels, 2 other), dtype, offset, elements, first dim, rank */
static const FgRtInput inputs[] = {
    {"tokens", 0, FG_RT_I32, 0, 8, 3, 2},
    {"labels", 1, FG_RT_I32, 256, 8, 5, 2},
};

/* name, op, file, line, column */
static const FgRtNode nodes[] = {
    {"embed", "adamw", "tiny.json", 10, 9},
    {"norm", "adamw", "tiny.json", 11, 9},
    {"embed", "gather", "tiny.json", 14, 9},
    {"x", "embedding", "tiny.json", 14, 9},
    {"embed", "release", "tiny.json", 14, 9},
    {"norm", "gather", "tiny.json", 15, 9},
    {"y", "rmsnorm", "tiny.json", 15, 9},
    {"norm", "release", "tiny.json", 15, 9},
    {"embed", "gather", "tiny.json", 16, 9},
    {"logits", "linear", "tiny.json", 16, 9},
    {"loss", "cross_entropy", "tiny.json", 17, 9},
    {"loss", "loss_add", "", 0, 0},
    {"loss", "cross_entropy_back", "tiny.json", 17, 9},
    {"logits", "linear_dx", "tiny.json", 16, 9},
    {"embed", "release", "tiny.json", 16, 9},
    {"embed", "grad_buffer", "tiny.json", 16, 9},
    {"logits", "linear_dw", "tiny.json", 16, 9},
    {"norm", "gather", "tiny.json", 15, 9},
    {"norm", "grad_buffer", "tiny.json", 15, 9},
    {"y", "rmsnorm_back", "tiny.json", 15, 9},
    {"norm", "reduce_scatter", "tiny.json", 15, 9},
    {"norm", "norm_add", "tiny.json", 11, 9},
    {"norm", "release", "tiny.json", 15, 9},
    {"x", "embedding_dw", "tiny.json", 14, 9},
    {"embed", "reduce_scatter", "tiny.json", 14, 9},
    {"embed", "norm_add", "tiny.json", 10, 9},
    {"gradient norm", "all_reduce", "", 0, 0},
    {"gradient norm", "clip_factor", "", 0, 0},
    {"loss", "all_reduce", "", 0, 0},
    {"embed", "adamw", "tiny.json", 10, 9},
    {"norm", "adamw", "tiny.json", 11, 9},
};

/* bytes on a rank at the peak */
static const FgRtLedgerRow ledger[] = {
    {"master", 512},
    {"optimizer", 1024},
    {"gathered", 512},
    {"gradients", 1024},
    {"activations", 768},
    {"workspace", 65536},
    {"inputs", 512},
    {"constants", 768},
};

static void body_init(FgRtCx *cx)
{
    fg_rt_join(cx);
}

static void body_prologue(FgRtCx *cx)
{
    fg_rt_join(cx);
}

static void step_update(FgRtCx *cx)
{
    fg_rt_adamw(cx, 0, FG_COPY, 68352, FG_RT_NONE, 768, 1024, 512, FG_RT_NONE, 2048, 0, 64, FG_RT_F32, FG_RT_F32, 1); /* embed, tiny.json:10:9 */
    fg_rt_record(cx, FG_COPY, 0);
    fg_rt_adamw(cx, 1, FG_COPY, 69888, FG_RT_NONE, 1536, 1792, 1280, FG_RT_NONE, 2048, 1, 64, FG_RT_F32, FG_RT_F32, 1); /* norm, tiny.json:11:9 */
    fg_rt_record(cx, FG_COPY, 1);
    fg_rt_wait(cx, FG_GATHER, 0);
    fg_rt_gather(cx, 2, FG_GATHER, 512, 68352, 256); /* embed, tiny.json:14:9 */
    fg_rt_record(cx, FG_GATHER, 2);
}

static void step_forward(FgRtCx *cx)
{
    fg_rt_wait(cx, FG_COMPUTE, 2);
    fg_rt_wait(cx, FG_COMPUTE, 1);
    fg_rt_embedding(cx, 3, FG_COMPUTE, 0, 68352, 69888, 8, 8, 16, FG_RT_F32); /* x, tiny.json:14:9 */
    fg_rt_release(cx, 4, FG_COMPUTE, 68352, 512); /* embed, tiny.json:14:9 */
    fg_rt_record(cx, FG_COMPUTE, 3);
    fg_rt_wait(cx, FG_GATHER, 3);
    fg_rt_gather(cx, 5, FG_GATHER, 1280, 68352, 256); /* norm, tiny.json:15:9 */
    fg_rt_record(cx, FG_GATHER, 4);
    fg_rt_wait(cx, FG_COMPUTE, 4);
    fg_rt_rmsnorm(cx, 6, FG_COMPUTE, 69888, 68352, 69376, 8, 8, FG_RT_F32, 1e-05); /* y, tiny.json:15:9 */
    fg_rt_release(cx, 7, FG_COMPUTE, 68352, 512); /* norm, tiny.json:15:9 */
    fg_rt_gather(cx, 8, FG_GATHER, 512, 68864, 256); /* embed, tiny.json:16:9 */
    fg_rt_record(cx, FG_GATHER, 5);
    fg_rt_wait(cx, FG_COMPUTE, 5);
    fg_rt_linear(cx, 9, FG_COMPUTE, 69376, 68864, FG_RT_NONE, FG_RT_NONE, 68352, 8, 16, 8, 0, FG_RT_F32, 2816, 65536); /* logits, tiny.json:16:9 */
    fg_rt_cross_entropy(cx, 10, FG_COMPUTE, 68352, 256, 2048, 69632, 70144, 8, 16, 18446744073709551516u, FG_RT_F32); /* loss, tiny.json:17:9 */
    fg_rt_loss_add(cx, 11, FG_COMPUTE, 69632, 2304, 0); /* loss */
}

static void step_backward(FgRtCx *cx)
{
    fg_rt_cross_entropy_back(cx, 12, FG_COMPUTE, 68352, 256, 70144, 2048, FG_RT_NONE, 68352, 8, 16, 18446744073709551516u, FG_RT_F32); /* loss, tiny.json:17:9 */
    fg_rt_linear_dx(cx, 13, FG_COMPUTE, 68352, 68864, FG_RT_NONE, 70144, 8, 16, 8, 0, FG_RT_F32, 2816, 65536); /* logits, tiny.json:16:9 */
    fg_rt_release(cx, 14, FG_COMPUTE, 68864, 512); /* embed, tiny.json:16:9 */
    fg_rt_grad_buffer(cx, 15, FG_COMPUTE, 68864, 0, 128, FG_RT_F32); /* embed, tiny.json:16:9 */
    fg_rt_linear_dw(cx, 16, FG_COMPUTE, 69376, 68352, 68864, 8, 16, 8, 0, FG_RT_F32, FG_RT_F32, 0, 2816, 65536); /* logits, tiny.json:16:9 */
    fg_rt_record(cx, FG_COMPUTE, 6);
    fg_rt_wait(cx, FG_GATHER, 6);
    fg_rt_gather(cx, 17, FG_GATHER, 1280, 68352, 256); /* norm, tiny.json:15:9 */
    fg_rt_record(cx, FG_GATHER, 7);
    fg_rt_grad_buffer(cx, 18, FG_COMPUTE, 69376, 1, 128, FG_RT_F32); /* norm, tiny.json:15:9 */
    fg_rt_wait(cx, FG_COMPUTE, 7);
    fg_rt_rmsnorm_back(cx, 19, FG_COMPUTE, 69888, 68352, 70144, FG_RT_NONE, 70400, 69376, 8, 8, FG_RT_F32, FG_RT_F32, 0, 1e-05); /* y, tiny.json:15:9 */
    fg_rt_record(cx, FG_COMPUTE, 8);
    fg_rt_wait(cx, FG_REDUCE, 8);
    fg_rt_reduce_scatter(cx, 20, FG_REDUCE, 69376, 69888, 128, FG_RT_F32, FG_RT_F32, 0); /* norm, tiny.json:15:9 */
    fg_rt_record(cx, FG_REDUCE, 9);
    fg_rt_wait(cx, FG_COPY, 9);
    fg_rt_norm_add(cx, 21, FG_COPY, 69888, 2560, 1, 64, FG_RT_F32, 0); /* norm, tiny.json:11:9 */
    fg_rt_release(cx, 22, FG_COMPUTE, 68352, 512); /* norm, tiny.json:15:9 */
    fg_rt_embedding_dw(cx, 23, FG_COMPUTE, 0, 70400, 68864, 8, 8, 16, FG_RT_NONE, FG_RT_F32, FG_RT_F32, 1, 2816, 65536); /* x, tiny.json:14:9 */
    fg_rt_record(cx, FG_COMPUTE, 10);
    fg_rt_wait(cx, FG_REDUCE, 10);
    fg_rt_reduce_scatter(cx, 24, FG_REDUCE, 68864, 68352, 128, FG_RT_F32, FG_RT_F32, 0); /* embed, tiny.json:14:9 */
    fg_rt_record(cx, FG_REDUCE, 11);
    fg_rt_wait(cx, FG_COPY, 11);
    fg_rt_norm_add(cx, 25, FG_COPY, 68352, 2560, 0, 64, FG_RT_F32, 1); /* embed, tiny.json:10:9 */
    fg_rt_record(cx, FG_COPY, 12);
    fg_rt_wait(cx, FG_REDUCE, 12);
    fg_rt_all_reduce(cx, 26, FG_REDUCE, 2560, 24, FG_RT_I64); /* gradient norm */
    fg_rt_clip_factor(cx, 27, FG_REDUCE, 2560, 2048, 1.0); /* gradient norm */
    fg_rt_all_reduce(cx, 28, FG_REDUCE, 2304, 1, FG_RT_F64); /* loss */
}

static void body_step(FgRtCx *cx)
{
    step_update(cx);
    step_forward(cx);
    step_backward(cx);
    fg_rt_join(cx);
}

static void flush_update(FgRtCx *cx)
{
    fg_rt_adamw(cx, 29, FG_COPY, 68352, FG_RT_NONE, 768, 1024, 512, FG_RT_NONE, 2048, 0, 64, FG_RT_F32, FG_RT_F32, 1); /* embed, tiny.json:10:9 */
    fg_rt_adamw(cx, 30, FG_COPY, 69888, FG_RT_NONE, 1536, 1792, 1280, FG_RT_NONE, 2048, 1, 64, FG_RT_F32, FG_RT_F32, 1); /* norm, tiny.json:11:9 */
}

static void body_flush(FgRtCx *cx)
{
    flush_update(cx);
    fg_rt_join(cx);
}

static const FgRtProgram program = {
    .abi = 6,
    .model = "tiny",
    .plan = "zero3",
    .precision = "fp32",
    .fingerprint = 1787371496158567278,
    .ranks = 2,
    .batch = 2,
    .seq = 4,
    .accumulate = 1,
    .clip = 1.0,
    .loss_is_token_mean = 1,
    .ignore_index = -100,
    .state_bytes = 68352,
    .arena_bytes = 2304,
    .reserved_bytes = 1048576,
    .memory_bytes = 67108864,
    .scalars = 2048,
    .loss = 2304,
    .norm = 2560,
    .predicted_step_us = 180.16352166272162,
    .params = params,
    .n_params = 2,
    .buckets = buckets,
    .n_buckets = 2,
    .inputs = inputs,
    .n_inputs = 2,
    .nodes = nodes,
    .n_nodes = 31,
    .ledger = ledger,
    .n_ledger = 8,
    .bucket_params = bucket_params,
    .dims = dims,
    .tied = tied,
    .n_events = 13,
    .init = body_init,
    .prologue = body_prologue,
    .first = body_step,
    .flush = body_flush,
};

const FgRtProgram *fg_program(void)
{
    return &program;
}
