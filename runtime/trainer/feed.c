/* Dealing rows is laying them out: the block of an input holds the rows of rank 0, then those of
 * rank 1, and so on, so the global order is the memory order and a short batch ends early. */
#include "runtime/trainer/feed.h"

#include "runtime/dtype.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROLE_TOKENS, ROLE_LABELS };

static bool batched(const FgFeed *feed, const FgRtInput *input)
{
    return input->rank > 0 && feed->program->dims[input->dims_first] == feed->program->batch;
}

static uint64_t row_elements(const FgFeed *feed, const FgRtInput *input)
{
    return batched(feed, input) ? input->elements / feed->program->batch : input->elements;
}

static unsigned char *block(const FgFeed *feed, uint32_t micro, uint32_t input)
{
    return feed->blocks[(size_t)micro * feed->program->n_inputs + input];
}

/* Every element of an integer block: token 0, or the ignored label. */
static void blank(const FgFeed *feed, const FgRtInput *input, unsigned char *data)
{
    uint64_t n = input->elements * feed->program->ranks;
    if (input->role != ROLE_LABELS)
        return; /* made zero */
    int64_t wide = feed->program->ignore_index;
    int32_t narrow = (int32_t)wide;
    size_t bytes = fg_rt_dtype_bytes(input->dtype);
    for (uint64_t i = 0; i < n; i++)
        memcpy(data + i * bytes, bytes == 8 ? (const void *)&wide : &narrow, bytes);
}

static void make_blocks(FgFeed *feed)
{
    const FgRtProgram *program = feed->program;
    feed->blocks = fg_new((size_t)feed->n_micro * program->n_inputs, sizeof *feed->blocks);
    for (uint32_t micro = 0; micro < feed->n_micro; micro++)
        for (uint32_t i = 0; i < program->n_inputs; i++) {
            const FgRtInput *input = &program->inputs[i];
            unsigned char *data =
                fg_new((size_t)(input->elements * program->ranks), fg_rt_dtype_bytes(input->dtype));
            blank(feed, input, data);
            feed->blocks[(size_t)micro * program->n_inputs + i] = data;
        }
}

static const FgRtInput *input_of_role(const FgRtProgram *program, int role)
{
    for (uint32_t i = 0; i < program->n_inputs; i++)
        if (program->inputs[i].role == role)
            return &program->inputs[i];
    return NULL;
}

/* Missing rows need labels that can be ignored, and a mean that does not count them. */
static bool rows_ok(const FgFeed *feed, FgFail *fail)
{
    const FgRtProgram *program = feed->program;
    bool labels = input_of_role(program, ROLE_LABELS) != NULL;
    uint64_t all = (uint64_t)program->batch * program->ranks;
    if (program->loss_is_token_mean && !labels)
        return fg_fail(fail, "the loss is a mean over labels, but no input has the role labels");
    if (feed->rows < all && !(labels && program->loss_is_token_mean))
        return fg_fail(
            fail, "%llu rows of %llu: only a loss that is a mean over labels can leave rows out",
            (unsigned long long)feed->rows, (unsigned long long)all);
    return true;
}

/* ---- token files ---- */

static bool stream_input_ok(const FgFeed *feed, const FgRtInput *input, FgFail *fail)
{
    if (input->role != ROLE_TOKENS && input->role != ROLE_LABELS)
        return fg_fail(fail, "--data gives tokens and labels; input '%s' needs --inputs FILE",
                       input->name);
    if (input->dtype != FG_RT_I32 || !batched(feed, input))
        return fg_fail(fail, "--data cannot fill input '%s': it is not int32 [batch, ...]",
                       input->name);
    if (row_elements(feed, input) != feed->seq)
        return fg_fail(fail, "input '%s' has %llu elements a row, the tokens have %llu",
                       input->name, (unsigned long long)row_elements(feed, input),
                       (unsigned long long)feed->seq);
    return true;
}

static bool open_stream(FgFeed *feed, const FgOptions *options, FgFail *fail)
{
    const FgRtProgram *program = feed->program;
    const FgRtInput *tokens = input_of_role(program, ROLE_TOKENS);
    if (!tokens)
        return fg_fail(fail, "--data gives tokens, but no input of this program takes them; use "
                             "--inputs FILE");
    feed->seq = row_elements(feed, tokens);
    feed->rows = options->global_batch == FG_NOT_GIVEN ? (uint64_t)program->batch * program->ranks
                                                       : options->global_batch;
    feed->n_micro = program->accumulate;
    for (uint32_t i = 0; i < program->n_inputs; i++)
        if (!stream_input_ok(feed, &program->inputs[i], fail))
            return false;
    if (!fg_tokens_open(&feed->tokens, options->data, fail))
        return false;
    if (feed->tokens.n <= feed->rows * feed->seq)
        return fg_fail(fail, "%s: %llu tokens; one micro-step reads %llu", options->data,
                       (unsigned long long)feed->tokens.n,
                       (unsigned long long)(feed->rows * feed->seq + 1));
    return true;
}

static bool next_micro(FgFeed *feed, uint32_t micro, FgFail *fail)
{
    uint64_t count = feed->rows * feed->seq;
    if (fg_file_fault(fail, FG_FAULT_READ))
        return fg_fail(fail, "%s: cannot be read: %s", feed->tokens.path, strerror(errno));
    if (feed->position + count + 1 > feed->tokens.n)
        feed->position = 0;
    for (uint32_t i = 0; i < feed->program->n_inputs; i++)
        if (!fg_tokens_read(&feed->tokens,
                            feed->position + (feed->program->inputs[i].role == ROLE_LABELS), count,
                            (int32_t *)(void *)block(feed, micro, i), fail))
            return false;
    feed->position += count;
    return true;
}

/* ---- a fixed batch ---- */

/* False: `fail` says why when it is a value that is to blame. */
static bool convert_ints(const FgTensor *tensor, const FgRtInput *input, unsigned char *out,
                         FgFail *fail)
{
    size_t from = fg_st_dtype_bits(tensor->dtype) / 8, to = fg_rt_dtype_bytes(input->dtype);
    if (tensor->dtype != FG_ST_I64 && tensor->dtype != FG_ST_I32)
        return false;
    for (uint64_t i = 0; i < tensor->elements; i++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        memcpy(from == 8 ? (void *)&wide : &narrow, tensor->data + i * from, from);
        if (from == 4)
            wide = narrow;
        if (to == 4 && (wide < INT32_MIN || wide > INT32_MAX))
            return fg_fail(fail, "'%s': element %llu is %lld; this input has 32 bits", tensor->name,
                           (unsigned long long)i, (long long)wide);
        narrow = (int32_t)wide;
        memcpy(out + i * to, to == 8 ? (void *)&wide : &narrow, to);
    }
    return true;
}

/* As convert_ints. */
static bool convert_floats(const FgTensor *tensor, const FgRtInput *input, unsigned char *out,
                           FgFail *fail)
{
    size_t to = fg_rt_dtype_bytes(input->dtype);
    if (tensor->dtype == FG_ST_F64 && input->dtype == FG_RT_F64) {
        memcpy(out, tensor->data, tensor->elements * to);
        return true;
    }
    if (!fg_st_is_float(tensor->dtype))
        return false;
    for (uint64_t i = 0; i < tensor->elements; i++) {
        float x;
        fg_tensor_floats(tensor, i, 1, &x);
        double wide = (double)x;
        uint16_t half = input->dtype == FG_RT_BF16 ? fg_f32_to_bf16(x) : fg_f32_to_f16(x);
        if (input->dtype == FG_RT_F16 && isfinite(x) && !isfinite(fg_f16_to_f32(half)))
            return fg_fail(fail, "'%s': element %llu is %g; this input is fp16, at most 65504",
                           tensor->name, (unsigned long long)i, wide);
        memcpy(out + i * to, to == 2 ? &half : to == 8 ? (const void *)&wide : &x, to);
    }
    return true;
}

static bool shape_ok(const FgFeed *feed, const FgRtInput *input, const FgTensor *tensor)
{
    const int64_t *dims = feed->program->dims + input->dims_first;
    if (tensor->rank != input->rank)
        return false;
    for (uint32_t k = 0; k < input->rank; k++)
        if (tensor->dims[k] != dims[k] && !(k == 0 && batched(feed, input)))
            return false;
    return true;
}

static bool load_fixed(FgFeed *feed, uint32_t index, FgFail *fail)
{
    const FgRtInput *input = &feed->program->inputs[index];
    const char *path = fg_safetensors_path(feed->fixed);
    const FgTensor *tensor = fg_safetensors_find(feed->fixed, input->name);
    bool ints = input->dtype == FG_RT_I32 || input->dtype == FG_RT_I64;
    if (!tensor)
        return fg_fail(fail, "%s: no tensor '%s', an input of this program", path, input->name);
    if (!shape_ok(feed, input, tensor)) {
        char *got = fg_tensor_text(tensor);
        char *want = fg_dims_text(feed->program->dims + input->dims_first, input->rank);
        fg_fail(fail, "%s: '%s' is %s; the input is %s, its first dimension the rows of a rank",
                path, input->name, got, want);
        free(got);
        free(want);
        return false;
    }
    if (batched(feed, input)) {
        uint64_t most = (uint64_t)feed->program->batch * feed->program->ranks;
        if (feed->rows == FG_NOT_GIVEN)
            feed->rows = (uint64_t)tensor->dims[0];
        if ((uint64_t)tensor->dims[0] != feed->rows)
            return fg_fail(fail, "%s: '%s' has %lld rows, not %llu; every input needs as many",
                           path, input->name, (long long)tensor->dims[0],
                           (unsigned long long)feed->rows);
        if (feed->rows > most)
            return fg_fail(fail,
                           "%s: '%s' has %lld rows; a step takes at most %llu: %u ranks of %u",
                           path, input->name, (long long)tensor->dims[0], (unsigned long long)most,
                           feed->program->ranks, feed->program->batch);
    }
    unsigned char *out = block(feed, 0, index);
    FgFail value = {0};
    bool ok = ints ? convert_ints(tensor, input, out, &value)
                   : convert_floats(tensor, input, out, &value);
    if (value.text)
        fg_fail(fail, "%s: %s", path, value.text);
    fg_fail_clear(&value);
    if (!ok)
        return fg_fail(fail, "%s: '%s' is %s, which this input does not take", path, input->name,
                       fg_st_dtype_name(tensor->dtype));
    if (!batched(feed, input)) /* the same for every rank */
        for (uint32_t r = 1; r < feed->program->ranks; r++)
            memcpy(out + r * tensor->elements * fg_rt_dtype_bytes(input->dtype), out,
                   tensor->elements * fg_rt_dtype_bytes(input->dtype));
    return true;
}

static bool open_fixed(FgFeed *feed, const FgOptions *options, FgFail *fail)
{
    const FgRtProgram *program = feed->program;
    feed->fixed = fg_safetensors_open(options->inputs, fail);
    if (!feed->fixed)
        return false;
    feed->n_micro = 1;
    feed->rows = options->global_batch; /* not given: the first input says */
    make_blocks(feed);
    for (uint32_t i = 0; i < program->n_inputs; i++)
        if (!load_fixed(feed, i, fail))
            return false;
    if (feed->rows == FG_NOT_GIVEN)
        feed->rows = (uint64_t)program->batch * program->ranks;
    return true;
}

/* ---- both ---- */

static void count_valid(FgFeed *feed)
{
    const FgRtProgram *program = feed->program;
    feed->valid = 0;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const FgRtInput *input = &program->inputs[i];
        if (input->role != ROLE_LABELS)
            continue;
        for (uint32_t micro = 0; micro < program->accumulate; micro++) {
            /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is one or more. */
            const unsigned char *data = block(feed, micro % feed->n_micro, i);
            for (uint64_t k = 0; k < input->elements * program->ranks; k++) {
                int32_t narrow;
                int64_t wide;
                memcpy(&narrow, data + 4 * k, 4);
                if (input->dtype == FG_RT_I64)
                    memcpy(&wide, data + 8 * k, 8);
                else
                    wide = narrow;
                feed->valid += wide != program->ignore_index;
            }
        }
        return; /* the loss has one input of labels */
    }
}

bool fg_feed_open(FgFeed *out_feed, const FgRtProgram *program, const FgOptions *options,
                  FgFail *fail)
{
    *out_feed = (FgFeed){.program = program};
    if (options->inputs)
        return open_fixed(out_feed, options, fail) && rows_ok(out_feed, fail);
    if (!open_stream(out_feed, options, fail) || !rows_ok(out_feed, fail))
        return false;
    make_blocks(out_feed);
    return true;
}

void fg_feed_close(FgFeed *feed)
{
    for (size_t i = 0; feed->blocks && i < (size_t)feed->n_micro * feed->program->n_inputs; i++)
        free(feed->blocks[i]);
    free(feed->blocks);
    fg_tokens_close(&feed->tokens);
    fg_safetensors_close(feed->fixed);
    *feed = (FgFeed){0};
}

bool fg_feed_next(FgFeed *feed, FgFail *fail)
{
    if (!feed->fixed)
        for (uint32_t micro = 0; micro < feed->n_micro; micro++)
            if (!next_micro(feed, micro, fail))
                return false;
    feed->rows_seen += feed->rows * feed->program->accumulate;
    count_valid(feed);
    return true;
}

float fg_feed_seed(const FgFeed *feed)
{
    const FgRtProgram *program = feed->program;
    if (!program->loss_is_token_mean)
        return (float)(1.0 / ((double)program->ranks * program->accumulate));
    return feed->valid ? (float)(1.0 / (double)feed->valid) : 0.0f;
}

uint64_t fg_feed_step_tokens(const FgFeed *feed)
{
    const FgRtInput *tokens = input_of_role(feed->program, ROLE_TOKENS);
    uint64_t per_row = tokens ? row_elements(feed, tokens) : 1;
    return feed->rows * per_row * feed->program->accumulate;
}

const void *fg_feed_input(const FgFeed *feed, uint32_t micro, uint32_t rank, uint32_t input,
                          size_t *out_bytes)
{
    const FgRtInput *in = &feed->program->inputs[input];
    *out_bytes = (size_t)in->elements * fg_rt_dtype_bytes(in->dtype);
    return block(feed, micro % feed->n_micro, input) + rank * *out_bytes;
}
