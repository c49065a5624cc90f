/* Gathers go through a communicator whose collectives leave the multiprocessors to the products
 * (copy engines, zero-CTA policy) and which knows the allocation as a symmetric window; reductions
 * through a plain one, which is faster at them without windows. Gradients in parts have a third one
 * like the first, where the program has such: they travel beside gathers, on another stream.
 *
 * Copy engines reach the GPUs of one node. With several nodes NCCL keeps a window for its network
 * alone and gathers with kernels, as it does where GPUs cannot read each other's memory.
 *
 * One rank has no communicator: its collectives are copies. */
#include "runtime/cuda/core.h"
#include "runtime/cuda/shard.h"

#include <string.h>
#include <time.h>

enum { WORD_NAPS = 200 }; /* of 10 ms */

/* A process that ends takes its connections along, and NCCL's network may see that before the
 * world's connections do, which say who it was: their word is waited for. */
static bool others_tell(FgRtCx *cx)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < WORD_NAPS && !fg_cuda_failed(cx); i++)
        nanosleep(&nap, NULL);
    return fg_cuda_failed(cx);
}

void fg_cuda_nccl(FgRtCx *cx, ncclResult_t result, const char *what)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return;
    bool peer = result == ncclRemoteError || result == ncclSystemError;
    if (!peer || !cx->group || !cx->group->world || !others_tell(cx))
        fg_cuda_raise(cx, "%s: %s: %s", what, ncclGetErrorString(result), ncclGetLastError(NULL));
}

static bool has_parts(const FgRtProgram *program)
{
    for (uint32_t i = 0; i < program->n_nodes; i++)
        if (strcmp(program->nodes[i].op, "all_to_all") == 0)
            return true;
    return false;
}

/* A communicator of copy engines, split from the one of reductions, and the allocation's window on
 * it. */
static bool open_copying(FgRtGroup *group, const char *name, ncclComm_t *comm, ncclWindow_t *window)
{
    FgRtCx *cx = &group->cx;
    ncclConfig_t zero = NCCL_CONFIG_INITIALIZER;
    zero.commName = name;
    zero.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    fg_cuda_nccl(cx, ncclCommSplit(cx->reduce, 0, (int)cx->rank, comm, &zero), "ncclCommSplit");
    if (fg_cuda_failed(cx))
        return false;
    fg_cuda_nccl(
        cx,
        ncclCommWindowRegister(*comm, cx->memory, group->bytes, window, NCCL_WIN_COLL_SYMMETRIC),
        "ncclCommWindowRegister");
    return !fg_cuda_failed(cx);
}

bool fg_cuda_parts_open(FgRtGroup *group)
{
    return !fg_cuda_fault(&group->cx, FG_FAULT_ALLOC, "a communicator of parts") &&
           open_copying(group, "parts", &group->cx.parts, &group->parts_window);
}

bool fg_cuda_comm_open(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    ncclUniqueId id = {{0}};
    if (cx->ranks == 1)
        return true;
    if (cx->rank == 0)
        fg_cuda_nccl(cx, ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (fg_cuda_failed(cx) || !fg_world_share(group->world, &id, sizeof id))
        return false;
    if (fg_cuda_fault(cx, FG_FAULT_ALLOC, "a communicator"))
        return false;
    ncclConfig_t plain = NCCL_CONFIG_INITIALIZER;
    plain.commName = "reduce";
    fg_cuda_nccl(cx, ncclCommInitRankConfig(&cx->reduce, (int)cx->ranks, id, (int)cx->rank, &plain),
                 "ncclCommInitRankConfig");
    if (fg_cuda_failed(cx) || !open_copying(group, "gather", &cx->gather, &group->window))
        return false;
    return !has_parts(cx->program) || fg_cuda_parts_open(group);
}

void fg_cuda_comm_close(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    if (group->parts_window)
        ncclCommWindowDeregister(cx->parts, group->parts_window);
    if (cx->parts)
        ncclCommDestroy(cx->parts);
    if (group->window)
        ncclCommWindowDeregister(cx->gather, group->window);
    if (cx->gather)
        ncclCommDestroy(cx->gather);
    if (cx->reduce)
        ncclCommDestroy(cx->reduce);
}

static void look_at(FgRtCx *cx, ncclComm_t comm, const char *name)
{
    ncclResult_t state = ncclSuccess;
    if (comm && ncclCommGetAsyncError(comm, &state) == ncclSuccess)
        fg_cuda_nccl(cx, state, name);
}

void fg_cuda_comm_look(FgRtCx *cx)
{
    look_at(cx, cx->gather, "the gather communicator");
    look_at(cx, cx->reduce, "the reduce communicator");
    look_at(cx, cx->parts, "the communicator of parts");
}

/* ---- collectives ---- */

static ncclDataType_t nccl_dtype(FgRtCx *cx, uint64_t dt)
{
    switch (dt) {
    case FG_RT_F32:
        return ncclFloat32;
    case FG_RT_BF16:
        return ncclBfloat16;
    case FG_RT_F16:
        return ncclFloat16;
    case FG_RT_F64:
        return ncclFloat64;
    case FG_RT_I32:
        return ncclInt32;
    case FG_RT_I64:
        return ncclInt64;
    default:
        fg_cuda_raise(cx, "a collective of no dtype");
        return ncclInt8;
    }
}

static uint64_t dtype_bytes(uint64_t dt)
{
    return dt == FG_RT_BF16 || dt == FG_RT_F16 ? 2 : dt == FG_RT_F64 || dt == FG_RT_I64 ? 8 : 4;
}

/* Whether a collective of the start is to be made; those of bodies are asked about in calls.c. */
static bool may_warm(FgRtCx *cx)
{
    return !fg_cuda_failed(cx) && !fg_cuda_fault(cx, FG_FAULT_COLLECTIVE, "the first collectives");
}

static void copy(FgRtCx *cx, cudaStream_t stream, void *to, const void *from, uint64_t bytes)
{
    fg_cuda_check(cx, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
}

void fg_cuda_gather(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t shard, uint64_t whole,
                    uint64_t bytes)
{
    (void)node;
    if (cx->ranks == 1)
        copy(cx, stream, fg_cuda_at(cx, whole), fg_cuda_at(cx, shard), bytes);
    else
        fg_cuda_nccl(cx,
                     ncclAllGather(fg_cuda_at(cx, shard), fg_cuda_at(cx, whole), bytes, ncclInt8,
                                   cx->gather, stream),
                     "ncclAllGather");
}

void fg_cuda_all_to_all(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t whole,
                        uint64_t parts, uint64_t elements, uint64_t wire)
{
    (void)node;
    uint64_t bytes = elements / cx->ranks * dtype_bytes(wire);
    if (cx->ranks == 1)
        copy(cx, stream, fg_cuda_at(cx, parts), fg_cuda_at(cx, whole), bytes);
    else
        fg_cuda_nccl(cx,
                     ncclAlltoAll(fg_cuda_at(cx, whole), fg_cuda_at(cx, parts), bytes, ncclInt8,
                                  cx->parts, stream),
                     "ncclAlltoAll");
}

/* Beside gathers, on the communicator of the reductions that it follows. */
void fg_cuda_exchange(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t all,
                      uint64_t bytes)
{
    (void)node;
    if (cx->ranks == 1)
        copy(cx, stream, fg_cuda_at(cx, all), fg_cuda_at(cx, x), bytes);
    else
        fg_cuda_nccl(cx,
                     ncclAllGather(fg_cuda_at(cx, x), fg_cuda_at(cx, all), bytes, ncclInt8,
                                   cx->reduce, stream),
                     "ncclAllGather");
}

/* Tokens on their way to the owners of a sharded vocabulary, on the same communicator: in forward
 * and at the head no reduction is under way. */
void fg_cuda_collect(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t all,
                     uint64_t elements, uint64_t n, uint64_t first, uint64_t dt)
{
    (void)elements;
    uint64_t size = dtype_bytes(dt);
    fg_cuda_exchange(cx, stream, node, x + first * size, all, n / cx->ranks * size);
}

/* Rows come back where others stand already; what nothing has brought yet is zero. */
void fg_cuda_return_rows(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t before,
                         uint64_t part, uint64_t y, uint64_t elements, uint64_t n, uint64_t first,
                         uint64_t part_dt, uint64_t dt)
{
    (void)node;
    uint64_t own = n / cx->ranks, size = dtype_bytes(dt);
    unsigned char *to = fg_cuda_at(cx, y), *from = fg_cuda_at(cx, part);
    unsigned char *slice = from + cx->rank * own * dtype_bytes(part_dt);
    if (before != FG_RT_NONE && before != y) {
        fg_cuda_raise(cx, "rows return to where the earlier ones are");
        return;
    }
    if (before == FG_RT_NONE && own < elements)
        fg_cuda_check(cx, cudaMemsetAsync(to, 0, elements * size, stream), "cudaMemsetAsync");
    to += first * size;
    bool straight = part_dt == dt;
    if (cx->ranks > 1)
        fg_cuda_nccl(cx,
                     ncclReduceScatter(from, straight ? to : slice, own, nccl_dtype(cx, part_dt),
                                       ncclSum, cx->reduce, stream),
                     "ncclReduceScatter");
    else if (straight)
        copy(cx, stream, to, from, own * size);
    if (!straight)
        fg_cuda_shard_add(cx, stream, slice, part_dt, to, dt, own, 0);
}

/* NCCL sums in the wire's dtype. A shard that is wider or holds a sum already gets its part from
 * the rank's own slice of the buffer, where it is summed in place. */
void fg_cuda_reduce_scatter(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t whole,
                            uint64_t shard, uint64_t elements, uint64_t wire, uint64_t dt,
                            uint64_t accumulate)
{
    (void)node;
    uint64_t own = elements / cx->ranks;
    unsigned char *all = fg_cuda_at(cx, whole), *slice = all + cx->rank * own * dtype_bytes(wire);
    unsigned char *to = fg_cuda_at(cx, shard);
    bool straight = wire == dt && !accumulate;
    if (cx->ranks == 1 && straight) {
        copy(cx, stream, to, all, own * dtype_bytes(wire));
        return;
    }
    if (cx->ranks > 1)
        fg_cuda_nccl(cx,
                     ncclReduceScatter(all, straight ? to : slice, own, nccl_dtype(cx, wire),
                                       ncclSum, cx->reduce, stream),
                     "ncclReduceScatter");
    if (!straight)
        fg_cuda_shard_add(cx, stream, slice, wire, to, dt, own, accumulate);
}

void fg_cuda_all_reduce(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t n,
                        uint64_t dt)
{
    (void)node;
    void *at = fg_cuda_at(cx, x);
    if (cx->ranks > 1)
        fg_cuda_nccl(cx, ncclAllReduce(at, at, n, nccl_dtype(cx, dt), ncclSum, cx->reduce, stream),
                     "ncclAllReduce");
}

/* ---- warming up ---- */

/* On the arena, which holds nothing yet: a small and a large collective of each kind. */
bool fg_cuda_comm_warm(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    const FgRtProgram *program = cx->program;
    uint64_t arena = program->state_bytes, half = program->arena_bytes / 2, largest = 1 << 25;
    cudaStream_t gather = cx->streams[FG_GATHER], reduce = cx->streams[FG_REDUCE];
    for (uint64_t bytes = 4096; cx->ranks > 1 && bytes <= largest && may_warm(cx); bytes <<= 13) {
        uint64_t each = bytes / cx->ranks / 256 * 256;
        if (each == 0 || each * cx->ranks > half || half < 4096)
            break;
        uint64_t whole = arena + (half + 255) / 256 * 256;
        if (whole + each * cx->ranks > arena + program->arena_bytes)
            break;
        fg_cuda_gather(cx, gather, 0, arena, whole, each);
        fg_cuda_check(cx, cudaStreamSynchronize(gather), "the first gather");
        fg_cuda_exchange(cx, reduce, 0, arena, whole, each);
        if (cx->parts)
            fg_cuda_all_to_all(cx, reduce, 0, arena, whole, each * cx->ranks / 4, FG_RT_F32);
        fg_cuda_reduce_scatter(cx, reduce, 0, whole, arena, each * cx->ranks / 4, FG_RT_F32,
                               FG_RT_F32, 0);
        fg_cuda_reduce_scatter(cx, reduce, 0, whole, arena, each * cx->ranks / 2, FG_RT_BF16,
                               FG_RT_BF16, 0);
        fg_cuda_check(cx, cudaStreamSynchronize(reduce), "the first reduction");
    }
    if (cx->ranks > 1 && program->norm != FG_RT_NONE && !fg_cuda_failed(cx))
        fg_cuda_all_reduce(cx, reduce, 0, program->norm, FG_RT_NORM_LIMBS, FG_RT_I64); /* zeros */
    if (!fg_cuda_failed(cx))
        fg_cuda_all_reduce(cx, reduce, 0, program->loss, 1, FG_RT_F64);
    fg_cuda_check(cx, cudaStreamSynchronize(reduce), "the first reduction");
    return !fg_cuda_failed(cx);
}
