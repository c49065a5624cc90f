/* The driver's interface: a group is the one rank of this process.
 *
 * Everything that the driver asks for goes to the compute stream, where bodies begin and end, so it
 * happens in the order asked without the host waiting. Small writes are copied to pinned memory
 * first; what a step came to is copied back to pinned memory and looked at when it is taken. */
#include "runtime/cuda/core.h"

#include "runtime/cuda/attention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const FgRtKind *fg_rt_kind(void)
{
    static const FgRtKind kind = {"cuda", 1, 1};
    return &kind;
}

/* ---- start and end ---- */

/* After the rehearsal, which takes an arena of zeros. */
static bool poison_arena(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    if (group->options.poison)
        fg_cuda_check(cx,
                      cudaMemsetAsync(cx->memory + cx->program->state_bytes, 0xff,
                                      cx->program->arena_bytes, cx->streams[FG_COMPUTE]),
                      "cudaMemsetAsync");
    return !fg_cuda_failed(cx);
}

static bool open_all(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    if (!fg_cuda_device_open(group) || !fg_cuda_comm_open(group))
        return false;
    if (!fg_cuda_fault(cx, FG_FAULT_ALLOC, "tables of parameters"))
        cx->segments = fg_cuda_segments_new(cx);
    if (cx->segments && !fg_cuda_fault(cx, FG_FAULT_ALLOC, "a library's handle"))
        cx->gemm = fg_cuda_gemm_new(cx);
    return cx->gemm && fg_cuda_comm_warm(group) && fg_cuda_products_open(group) &&
           fg_cuda_bodies_open(group) && poison_arena(group) && fg_cuda_memory_check(group);
}

static FgRtGroup *group_new(const FgRtProgram *program, FgWorld *world, const FgRtOptions *options)
{
    FgRtGroup *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    FgRtCx *cx = &group->cx;
    pthread_mutex_init(&group->lock, NULL);
    group->world = world;
    group->options = *options;
    group->status = (FgRtStatus){.ok = 1, .node = UINT32_MAX};
    cx->group = group;
    cx->program = program;
    cx->rank = world ? fg_world_place(world)->rank : 0;
    cx->ranks = program->ranks;
    cx->builtin_attention = options->builtin_attention;
    cx->deterministic = options->deterministic;
    if (!fg_fault_hits(options->fault, FG_FAULT_ALLOC, cx->rank))
        cx->events = calloc((size_t)program->n_events + 1, sizeof(cudaEvent_t));
    bool profiled =
        !options->profile || (!fg_fault_hits(options->fault, FG_FAULT_ALLOC, cx->rank) &&
                              fg_cuda_profile_open(&group->profile, program->n_nodes));
    if (cx->events && profiled)
        return group;
    fg_rt_group_free(group);
    return NULL;
}

FgRtGroup *fg_rt_group_new(const FgRtProgram *program, FgWorld *world, const FgRtOptions *options,
                           char *error, size_t error_bytes)
{
    uint32_t processes = world ? fg_world_place(world)->ranks : 1;
    if (program->ranks != processes || options->checked) {
        snprintf(error, error_bytes, "%s",
                 options->checked ? "--checked is for programs compiled with --target host"
                                  : "the program's ranks are not the processes of the run");
        return NULL;
    }
    FgRtGroup *group = group_new(program, world, options);
    if (!group) {
        snprintf(error, error_bytes, "rank %" PRIu32 ": out of memory",
                 world ? fg_world_place(world)->rank : 0);
        return NULL;
    }
    /* One rank that is refused ends all before they wait for each other. */
    bool ok = open_all(group) && (!world || fg_world_barrier(world));
    if (ok)
        return group;
    FgRtStatus status = fg_rt_status(&group->cx);
    if (*status.call && status.node < program->n_nodes)
        snprintf(error, error_bytes, "rank %" PRIu32 ", %s '%s', %s: %.800s", status.rank,
                 program->nodes[status.node].op, program->nodes[status.node].name, status.call,
                 status.text);
    else if (*status.call)
        snprintf(error, error_bytes, "rank %" PRIu32 ", %s: %.900s", status.rank, status.call,
                 status.text);
    else
        snprintf(error, error_bytes, "%s", status.text);
    fg_rt_group_free(group);
    return NULL;
}

/* After a failure a peer may be gone and a collective stand still: then nothing is waited for, and
 * the process's end gives all back. */
void fg_rt_group_free(FgRtGroup *group)
{
    if (!group)
        return;
    FgRtCx *cx = &group->cx;
    bool device = cx->streams[FG_COMPUTE] != NULL, failed = fg_cuda_failed(cx);
    if (device && !failed)
        (void)cudaDeviceSynchronize();
    if (!failed) {
        fg_cuda_bodies_close(group);
        fg_cuda_comm_close(group);
        fg_cuda_attention_close(cx);
        if (cx->gemm)
            fg_cuda_gemm_free(cx->gemm);
        if (cx->segments)
            fg_cuda_segments_free(cx->segments);
        fg_cuda_profile_close(&group->profile);
        fg_cuda_device_close(group);
    }
    fg_cuda_memory_close(group);
    pthread_mutex_destroy(&group->lock);
    free(cx->events);
    free(group);
}

FgRtCx *fg_rt_group_rank(FgRtGroup *group, uint32_t rank)
{
    return rank == group->cx.rank ? &group->cx : NULL;
}

void fg_rt_group_ranks(const FgRtGroup *group, uint32_t *out_first, uint32_t *out_n)
{
    *out_first = group->cx.rank;
    *out_n = 1;
}

const char *fg_rt_group_warning(const FgRtGroup *group)
{
    return group->warning;
}

uint32_t fg_rt_rank(const FgRtCx *cx)
{
    return cx->rank;
}

const FgRtProgram *fg_rt_program(const FgRtCx *cx)
{
    return cx->program;
}

uint64_t fg_rt_touched_bytes(const FgRtCx *cx)
{
    return fg_cuda_memory_used(cx->group);
}

/* ---- memory ---- */

/* A place for `bytes` in the half that fills, or NULL. The other half is taken over at a step's
 * end.
 */
static void *stage_room(FgCudaStage *stage, size_t bytes)
{
    if (bytes > stage->half_bytes - stage->used)
        return NULL;
    unsigned char *at = stage->memory + stage->half * stage->half_bytes + stage->used;
    stage->used +=
        (bytes + 63) / 64 * 64 <= stage->half_bytes - stage->used ? (bytes + 63) / 64 * 64 : bytes;
    return at;
}

/* What the stage has no room for is copied from where it lies: the driver takes it before the call
 * returns. */
void fg_rt_write(FgRtCx *cx, uint64_t offset, const void *from, size_t bytes)
{
    FgRtGroup *group = cx->group;
    if (fg_cuda_failed(cx) || fg_cuda_fault(cx, FG_FAULT_COPY, "a write to the device"))
        return;
    fg_cuda_use_device(cx);
    pthread_mutex_lock(&group->lock);
    void *staged = stage_room(&group->stage, bytes);
    pthread_mutex_unlock(&group->lock);
    if (staged)
        memcpy(staged, from, bytes);
    fg_cuda_check(cx,
                  cudaMemcpyAsync(fg_cuda_at(cx, offset), staged ? staged : from, bytes,
                                  cudaMemcpyDefault, cx->streams[FG_COMPUTE]),
                  "a write to the device");
}

void fg_rt_copy(FgRtCx *cx, uint64_t to, uint64_t from, size_t bytes)
{
    if (fg_cuda_failed(cx) || fg_cuda_fault(cx, FG_FAULT_COPY, "a copy on the device"))
        return;
    fg_cuda_use_device(cx);
    fg_cuda_check(cx,
                  cudaMemcpyAsync(fg_cuda_at(cx, to), fg_cuda_at(cx, from), bytes,
                                  cudaMemcpyDefault, cx->streams[FG_COMPUTE]),
                  "a copy on the device");
}

void fg_rt_read(FgRtCx *cx, uint64_t offset, void *to, size_t bytes)
{
    memset(to, 0, bytes);
    fg_cuda_use_device(cx);
    if (!fg_cuda_fault(cx, FG_FAULT_COPY, "a read from the device") && fg_cuda_wait_idle(cx))
        fg_cuda_check(cx, cudaMemcpy(to, fg_cuda_at(cx, offset), bytes, cudaMemcpyDefault),
                      "a read from the device");
}

/* ---- results ---- */

/* The half that was filled is the device's until this point of the stream; the other half's reads
 * ended a step ago, or are waited for. */
static void change_halves(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    FgCudaStage *stage = &group->stage;
    fg_cuda_check(cx, cudaEventRecord(stage->read[stage->half], cx->streams[FG_COMPUTE]),
                  "cudaEventRecord");
    stage->half ^= 1;
    stage->used = 0;
    (void)fg_cuda_wait_for(cx, stage->read[stage->half]);
}

void fg_rt_ask_result(FgRtCx *cx)
{
    FgRtGroup *group = cx->group;
    const FgRtProgram *program = cx->program;
    uint64_t slot = group->asked++ % FG_RT_MOST_RESULTS;
    FgCudaAnswer *answer = &group->answers[slot];
    cudaStream_t stream = cx->streams[FG_COMPUTE];
    if (fg_cuda_failed(cx) || fg_cuda_fault(cx, FG_FAULT_COPY, "a result"))
        return;
    fg_cuda_use_device(cx);
    const unsigned char *norm = cx->memory + program->scalars + FG_RT_S_NORM * sizeof(float);
    answer->norm = 0;
    fg_cuda_check(cx,
                  cudaMemcpyAsync(&answer->loss, cx->memory + program->loss, sizeof answer->loss,
                                  cudaMemcpyDeviceToHost, stream),
                  "a result");
    if (program->norm != FG_RT_NONE)
        fg_cuda_check(cx,
                      cudaMemcpyAsync(&answer->norm, norm, sizeof answer->norm,
                                      cudaMemcpyDeviceToHost, stream),
                      "a result");
    memset(answer->scaler, 0, sizeof answer->scaler);
    if (program->scales_loss)
        fg_cuda_check(cx,
                      cudaMemcpyAsync(answer->scaler, cx->memory + program->scaler,
                                      sizeof answer->scaler, cudaMemcpyDeviceToHost, stream),
                      "a result");
    fg_cuda_check(cx,
                  cudaMemcpyAsync(&answer->error, cx->device_error, sizeof answer->error,
                                  cudaMemcpyDeviceToHost, stream),
                  "a result");
    fg_cuda_check(cx, cudaEventRecord(group->answered[slot], stream), "cudaEventRecord");
    change_halves(group);
}

int fg_rt_take_result(FgRtCx *cx, FgRtResult *out_result)
{
    FgRtGroup *group = cx->group;
    uint64_t slot = group->taken++ % FG_RT_MOST_RESULTS;
    fg_cuda_use_device(cx);
    *out_result = (FgRtResult){0};
    if (fg_cuda_failed(cx) || !fg_cuda_wait_for(cx, group->answered[slot]))
        return 0;
    const FgCudaAnswer *answer = &group->answers[slot];
    *out_result = (FgRtResult){.loss = answer->loss, .norm = (double)answer->norm};
    memcpy(out_result->scaler, answer->scaler, sizeof out_result->scaler);
    if (answer->error) {
        uint32_t node = (uint32_t)answer->error - 1;
        fg_cuda_fail_at(cx, node,
                        node < cx->program->n_nodes ? cx->program->nodes[node].op : "a call",
                        "a token or a label is out of range");
        return 0;
    }
    return 1;
}
