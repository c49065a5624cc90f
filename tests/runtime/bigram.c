/* Offsets are multiples of 256 with room for the largest batch. */
#include "tests/runtime/bigram.h"

#include "runtime/host/host.h"

enum {
    SCALARS = 0,
    LOSS = 256,
    NORM = 512,
    TOKENS = 768,
    LABELS = 1024,
    SHARD = 1280,
    MASTER = 1792,
    MOMENT1 = 2304,
    MOMENT2 = 2816,
    STATES = 3328,
    WHOLE = 3328,
    LOGITS = 3840,
    LSE = 4608,
    LOCAL_LOSS = 4864,
    GRAD = 5120,
    GRAD_SHARD = 5632,
    WORK = 6144,
    END = 6656
};
enum { WORK_BYTES = END - WORK };

static const FgRtNode NODES[] = {{"bucket", "gather", "bigram.json", 3, 5},
                                 {"logits", "embedding", "bigram.json", 7, 9},
                                 {"loss", "cross_entropy", "bigram.json", 8, 9},
                                 {"table", "adamw", "bigram.json", 3, 5}};
enum { N_GATHER, N_EMBEDDING, N_LOSS, N_ADAMW };

static const char *const TIED[] = {"head"};

static const FgRtParam PARAMS[] = {{.name = "table",
                                    .elements = BIGRAM_VOCAB * BIGRAM_VOCAB,
                                    .rank = 2,
                                    .init_scale = 0.5,
                                    .trainable = 1,
                                    .decay = 1,
                                    .n_tied = 1},
                                   {.name = "extra",
                                    .bucket = UINT32_MAX,
                                    .elements = 3,
                                    .dims_first = 2,
                                    .rank = 1,
                                    .init = FG_RT_UNIFORM,
                                    .init_scale = 1,
                                    .trainable = 1}};
static const uint32_t BUCKET_PARAMS[] = {0};

static uint64_t slice(const FgRtProgram *p)
{
    return p->buckets[0].elements / p->ranks;
}

static uint64_t dtype(const FgRtProgram *p)
{
    return (uint64_t)p->buckets[0].dtype;
}

static void update(FgRtCx *cx, uint64_t set)
{
    const FgRtProgram *p = fg_rt_program(cx);
    fg_rt_adamw(cx, N_ADAMW, FG_REDUCE, GRAD_SHARD, p->buckets[0].master, MOMENT1, MOMENT2, SHARD,
                FG_RT_NONE, SCALARS, 0, slice(p), dtype(p), dtype(p), set);
}

static void gather(FgRtCx *cx)
{
    const FgRtProgram *p = fg_rt_program(cx);
    fg_rt_join(cx);
    fg_rt_gather(cx, N_GATHER, FG_GATHER, SHARD, WHOLE, slice(p) * (dtype(p) == FG_RT_F32 ? 4 : 2));
    fg_rt_join(cx);
}

/* Forward, backward and the reduction of one micro-step. */
static void micro_step(FgRtCx *cx, uint64_t accumulate)
{
    const FgRtProgram *p = fg_rt_program(cx);
    uint64_t rows = (uint64_t)p->batch * BIGRAM_SEQ, v = BIGRAM_VOCAB, dt = dtype(p);
    uint64_t ignore = (uint64_t)p->ignore_index;
    gather(cx);
    fg_rt_embedding(cx, N_EMBEDDING, FG_COMPUTE, TOKENS, WHOLE, LOGITS, rows, v, v, dt);
    fg_rt_cross_entropy(cx, N_LOSS, FG_COMPUTE, LOGITS, LABELS, SCALARS, LOCAL_LOSS, LSE, rows, v,
                        ignore, dt);
    fg_rt_loss_add(cx, N_LOSS, FG_COMPUTE, LOCAL_LOSS, LOSS, accumulate);
    fg_rt_cross_entropy_back(cx, N_LOSS, FG_COMPUTE, LOGITS, LABELS, LSE, SCALARS, FG_RT_NONE,
                             LOGITS, rows, v, ignore, dt);
    fg_rt_grad_buffer(cx, N_EMBEDDING, FG_COMPUTE, GRAD, 0, p->buckets[0].elements, dt);
    fg_rt_embedding_dw(cx, N_EMBEDDING, FG_COMPUTE, TOKENS, LOGITS, GRAD, rows, v, v, FG_RT_NONE,
                       dt, dt, 0, WORK, WORK_BYTES);
    fg_rt_join(cx);
    fg_rt_reduce_scatter(cx, N_ADAMW, FG_REDUCE, GRAD, GRAD_SHARD, p->buckets[0].elements, dt, dt,
                         accumulate);
}

static void end_step(FgRtCx *cx)
{
    const FgRtProgram *p = fg_rt_program(cx);
    fg_rt_norm_add(cx, N_ADAMW, FG_REDUCE, GRAD_SHARD, NORM, 0, slice(p), dtype(p), 0);
    fg_rt_all_reduce(cx, N_ADAMW, FG_REDUCE, NORM, FG_RT_NORM_LIMBS, FG_RT_I64);
    fg_rt_all_reduce(cx, N_LOSS, FG_REDUCE, LOSS, 1, FG_RT_F64);
    fg_rt_clip_factor(cx, N_ADAMW, FG_REDUCE, NORM, SCALARS, p->clip);
    if (!p->flush)
        update(cx, FG_RT_CURRENT);
    fg_rt_join(cx);
}

static void first_of_many(FgRtCx *cx)
{
    if (fg_rt_program(cx)->flush)
        update(cx, FG_RT_PENDING);
    micro_step(cx, 0);
    fg_rt_join(cx);
}

static void middle(FgRtCx *cx)
{
    micro_step(cx, 1);
    fg_rt_join(cx);
}

static void last(FgRtCx *cx)
{
    micro_step(cx, 1);
    end_step(cx);
}

static void only(FgRtCx *cx)
{
    if (fg_rt_program(cx)->flush)
        update(cx, FG_RT_PENDING);
    micro_step(cx, 0);
    end_step(cx);
}

static void flush(FgRtCx *cx)
{
    update(cx, FG_RT_PENDING);
    fg_rt_join(cx);
}

static void init(FgRtCx *cx)
{
    const FgRtProgram *p = fg_rt_program(cx);
    if (p->buckets[0].master != FG_RT_NONE)
        fg_rt_cast(cx, N_ADAMW, FG_COMPUTE, MASTER, SHARD, slice(p), FG_RT_F32, FG_RT_BF16);
    fg_rt_join(cx);
}

static void prologue(FgRtCx *cx)
{
    fg_rt_join(cx);
}

void bigram_make(Bigram *out, uint32_t ranks, uint32_t batch, uint32_t accumulate, double clip,
                 bool bf16)
{
    uint64_t tokens = (uint64_t)batch * BIGRAM_SEQ, all = BIGRAM_VOCAB * BIGRAM_VOCAB;
    *out = (Bigram){.dims = {BIGRAM_VOCAB, BIGRAM_VOCAB, 3, (int64_t)batch, BIGRAM_SEQ}};
    out->inputs[0] = (FgRtInput){"tokens", 0, FG_RT_I32, TOKENS, tokens, 3, 2};
    out->inputs[1] = (FgRtInput){"labels", 1, FG_RT_I32, LABELS, tokens, 3, 2};
    out->bucket = (FgRtBucket){.name = "table",
                               .dtype = bf16 ? FG_RT_BF16 : FG_RT_F32,
                               .trainable = 1,
                               .elements = (all + ranks - 1) / ranks * ranks,
                               .n_params = 1,
                               .shard = SHARD,
                               .master = bf16 ? MASTER : FG_RT_NONE,
                               .moment1 = MOMENT1,
                               .moment2 = MOMENT2,
                               .grad_shard = GRAD_SHARD};
    out->bucket.grad_bytes = out->bucket.elements / ranks * (bf16 ? 2 : 4);
    out->program = (FgRtProgram){.abi = FG_RT_ABI,
                                 .model = "bigram",
                                 .plan = "by hand",
                                 .precision = bf16 ? "bf16" : "fp32",
                                 .ranks = ranks,
                                 .batch = batch,
                                 .seq = BIGRAM_SEQ,
                                 .accumulate = accumulate,
                                 .clip = clip,
                                 .loss_is_token_mean = 1,
                                 .ignore_index = -100,
                                 .state_bytes = STATES,
                                 .arena_bytes = END - STATES,
                                 .scalars = SCALARS,
                                 .loss = LOSS,
                                 .norm = NORM,
                                 .predicted_step_us = 100,
                                 .params = PARAMS,
                                 .buckets = &out->bucket,
                                 .inputs = out->inputs,
                                 .nodes = NODES,
                                 .bucket_params = BUCKET_PARAMS,
                                 .dims = out->dims,
                                 .tied = TIED,
                                 .n_params = 2,
                                 .n_buckets = 1,
                                 .n_inputs = 2,
                                 .n_nodes = sizeof NODES / sizeof *NODES,
                                 .init = init,
                                 .prologue = prologue,
                                 .first = accumulate == 1 ? only : first_of_many,
                                 .middle = accumulate == 1 ? NULL : middle,
                                 .last = accumulate == 1 ? NULL : last,
                                 .flush = clip > 0 ? flush : NULL};
}
