/* The calls of runtime/cuda, made by the host's kernels in this rank's memory. The collectives are
 * runtime/cuda's own: its definitions take the place of the weak ones here. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/fg_chain.h"
#include "runtime/host/kernels.h"
#include "tests/pretend/pretend.h"

static struct FgRtGroup group;
static FgRtCx reference;
static void *real;
static uint32_t at_node;

static FgRtCx *begin(void *cx, uint32_t node)
{
    PretendRank rank = pretend_rank(cx);
    group.program = rank.program;
    group.n_ranks = rank.program->ranks;
    memset(&reference, 0, sizeof reference);
    reference.group = &group;
    reference.program = rank.program;
    reference.memory = rank.memory;
    reference.bytes = rank.bytes;
    reference.rank = rank.rank;
    real = cx;
    at_node = node;
    return &reference;
}

/* What a host kernel finds wrong. */
void fg_rt_raise(FgRtCx *cx, const char *format, ...)
{
    (void)cx, (void)format;
    pretend_bad(real, at_node);
}

void fg_host_gather(FgRtCx *cx, uint64_t shard, uint64_t whole, uint64_t bytes)
{
    (void)cx, (void)shard, (void)whole, (void)bytes;
    abort();
}

void fg_host_exchange(FgRtCx *cx, uint64_t x, uint64_t all, uint64_t bytes)
{
    (void)cx, (void)x, (void)all, (void)bytes;
    abort();
}

void fg_host_collect(FgRtCx *cx, uint64_t x, uint64_t all, uint64_t elements, uint64_t n,
                     uint64_t first, uint64_t dt)
{
    (void)cx, (void)x, (void)all, (void)elements, (void)n, (void)first, (void)dt;
    abort();
}

void fg_host_return_rows(FgRtCx *cx, uint64_t before, uint64_t part, uint64_t y, uint64_t elements,
                         uint64_t n, uint64_t first, uint64_t part_dt, uint64_t dt)
{
    (void)cx, (void)before, (void)part, (void)y, (void)elements, (void)n, (void)first;
    (void)part_dt, (void)dt;
    abort();
}

void fg_host_reduce_scatter(FgRtCx *cx, uint64_t whole, uint64_t shard, uint64_t elements,
                            uint64_t wire, uint64_t dt, uint64_t accumulate)
{
    (void)cx, (void)whole, (void)shard, (void)elements, (void)wire, (void)dt, (void)accumulate;
    abort();
}

void fg_host_all_to_all(FgRtCx *cx, uint64_t whole, uint64_t parts, uint64_t elements,
                        uint64_t wire)
{
    (void)cx, (void)whole, (void)parts, (void)elements, (void)wire;
    abort();
}

void fg_host_all_reduce(FgRtCx *cx, uint64_t x, uint64_t n, uint64_t dt)
{
    (void)cx, (void)x, (void)n, (void)dt;
    abort();
}

#define FG_RT_CALL(name, effects, params, args)                                                    \
    __attribute__((weak)) void fg_cuda_##name(void *cx, void *stream, uint32_t node,               \
                                              FG_RT_UNPAREN params);                               \
    void fg_cuda_##name(void *cx, void *stream, uint32_t node, FG_RT_UNPAREN params)               \
    {                                                                                              \
        if (stream && !pretend_capturing())                                                        \
            fg_host_##name(begin(cx, node), FG_RT_UNPAREN args);                                   \
    }
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs)                                  \
    __attribute__((weak)) void fg_cuda_##name(void *cx, void *stream, uint32_t node,               \
                                              FG_RT_UNPAREN params, FG_RT_UNPAREN fparams);        \
    void fg_cuda_##name(void *cx, void *stream, uint32_t node, FG_RT_UNPAREN params,               \
                        FG_RT_UNPAREN fparams)                                                     \
    {                                                                                              \
        if (stream && !pretend_capturing())                                                        \
            fg_host_##name(begin(cx, node), FG_RT_UNPAREN args, FG_RT_UNPAREN fargs);              \
    }
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F

float pretend_exp(float x)
{
    return fg_exp(x);
}
