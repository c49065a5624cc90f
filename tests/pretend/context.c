/* What runtime/cuda's core asks of its kernels' files beside the calls themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/attention.h"
#include "runtime/cuda/core.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/shard.h"
#include "runtime/dtype.h"
#include "tests/pretend/pretend.h"

static FgRtCx *the_cx; /* of this process */

PretendRank pretend_rank(const void *cx_)
{
    const FgRtCx *cx = cx_;
    return (PretendRank){cx->program, cx->memory, cx->group->bytes, cx->rank};
}

bool pretend_over(void)
{
    return the_cx && fg_cuda_failed(the_cx);
}

void pretend_bad(void *cx_, uint32_t node)
{
    FgRtCx *cx = cx_;
    if (*cx->device_error == 0)
        *cx->device_error = (int)node + 1;
}

void pretend_launch(const void *exec)
{
    const FgRtGroup *group = the_cx->group;
    for (uint32_t i = 0; i < group->n_graphs; i++)
        if ((const void *)group->graphs[i].exec == exec)
            group->graphs[i].body(the_cx);
}

const void *fg_cuda_segments_new(FgRtCx *cx)
{
    the_cx = cx;
    return cx;
}

void fg_cuda_segments_free(const void *segments)
{
    (void)segments;
}

FgCudaGemm *fg_cuda_gemm_new(FgRtCx *cx)
{
    (void)cx;
    return malloc(1);
}

void fg_cuda_gemm_free(FgCudaGemm *gemm)
{
    free(gemm);
}

/* Products have no algorithms here: what is shown is who reads and writes the file, and when. */
static const char choices[] = "choices of the pretended device\n";

bool fg_cuda_gemm_take(FgRtCx *cx, const char *text, size_t bytes, const char *path)
{
    if (bytes < sizeof choices - 1 || memcmp(text, choices, sizeof choices - 1) != 0)
        fg_cuda_raise(cx, "%s: not what was written", path);
    return bytes == sizeof choices - 1;
}

char *fg_cuda_gemm_load(const char *path, size_t *out_bytes)
{
    char *text = malloc(256);
    FILE *file = fopen(path, "r");
    *out_bytes = file && text ? fread(text, 1, 256, file) : 0;
    if (file)
        fclose(file);
    return text;
}

void fg_cuda_gemm_write(FgRtCx *cx, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file || fputs(choices, file) < 0 || fclose(file) != 0)
        fg_cuda_raise(cx, "%s: cannot be written", path);
}

void fg_cuda_gemm_subject(FgRtCx *cx, char *out, size_t bytes)
{
    (void)cx;
    snprintf(out, bytes, "the pretended device");
}

void fg_cuda_gemm_adopt(FgRtCx *cx)
{
    (void)cx;
}

FgGemmTuned fg_cuda_gemm_tune(FgRtCx *cx, cudaStream_t stream)
{
    (void)cx, (void)stream;
    return (FgGemmTuned){.n = 3, .changed = 1, .first_us = 20, .best_us = 15};
}

void fg_cuda_attention_close(FgRtCx *cx)
{
    (void)cx;
}

static float get(const void *from, uint64_t dt, uint64_t i)
{
    return dt == FG_RT_F32    ? ((const float *)from)[i]
           : dt == FG_RT_BF16 ? fg_bf16_to_f32(((const uint16_t *)from)[i])
                              : fg_f16_to_f32(((const uint16_t *)from)[i]);
}

static void put(void *to, uint64_t dt, uint64_t i, float x)
{
    if (dt == FG_RT_F32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = dt == FG_RT_BF16 ? fg_f32_to_bf16(x) : fg_f32_to_f16(x);
}

void fg_cuda_shard_add(FgRtCx *cx, cudaStream_t stream, const void *sum, uint64_t wire, void *shard,
                       uint64_t dt, uint64_t n, uint64_t accumulate)
{
    (void)cx, (void)stream;
    for (uint64_t i = 0; i < n && !pretend_capturing(); i++)
        put(shard, dt, i, (accumulate ? get(shard, dt, i) : 0) + get(sum, wire, i));
}
