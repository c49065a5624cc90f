/* Contexts, their memory, their status and the rendezvous.
 *
 * A rank's memory is one anonymous mapping, with what stands for host memory behind it: zeroed,
 * page-aligned, and measurable page by page. Huge pages are declined, so that the measured figure
 * does not jump in steps of 2 MiB. The rendezvous is one counter under one lock: the last rank to
 * come opens it for all; ranks sleep on a condition, since there may be more of them than
 * processors. */
#define _DEFAULT_SOURCE 1 /* mincore, MAP_ANONYMOUS */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/host/checked.h"
#include "runtime/host/cx.h"

/* ---- memory ---- */

static bool map_memory(FgRtCx *cx, char *error, size_t error_bytes)
{
    const FgRtProgram *program = cx->program;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t most = SIZE_MAX / 4; /* of each memory */
    cx->bytes = program->state_bytes + program->arena_bytes;
    cx->host_bytes = program->host_state_bytes + program->host_arena_bytes;
    cx->host_at = (cx->bytes / page + 1) * page;
    cx->mapped = cx->host_at + (cx->host_bytes + page - 1) / page * page;
    void *memory = MAP_FAILED;
    bool fault = fg_fault_hits(cx->group->options.fault, FG_FAULT_ALLOC, cx->rank);
    if (!fault && cx->bytes >= program->state_bytes && cx->bytes < most &&
        cx->host_bytes >= program->host_state_bytes && cx->host_bytes < most)
        memory = mmap(NULL, (size_t)cx->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (memory == MAP_FAILED) {
        int n =
            snprintf(error, error_bytes, "rank %" PRIu32 ": cannot map %" PRIu64 " bytes of memory",
                     cx->rank, cx->bytes);
        if (cx->host_bytes && n > 0 && (size_t)n < error_bytes)
            snprintf(error + n, error_bytes - (size_t)n,
                     " and %" PRIu64 " bytes of host memory for what is offloaded", cx->host_bytes);
        return false;
    }
#ifdef MADV_NOHUGEPAGE
    (void)madvise(memory, (size_t)cx->mapped,
                  MADV_NOHUGEPAGE); /* a wish: its refusal is harmless */
#endif
    cx->memory = memory;
    return true;
}

void *fg_rt_memory(FgRtCx *cx, uint64_t offset)
{
    bool there =
        offset < cx->bytes || (offset >= FG_RT_HOST && offset - FG_RT_HOST < cx->host_bytes);
    return there ? fg_at(cx, offset) : NULL;
}

/* Whether a copy of the driver's is to be made. */
static bool may_copy(FgRtCx *cx, const char *what)
{
    if (fg_rt_failed(cx))
        return false;
    if (!fg_fault_hits(cx->group->options.fault, FG_FAULT_COPY, cx->rank))
        return true;
    fg_rt_fail(cx, what, "a fault was asked for here");
    return false;
}

void fg_rt_write(FgRtCx *cx, uint64_t offset, const void *from, size_t bytes)
{
    if (may_copy(cx, "a write to the rank's memory"))
        memcpy(fg_at(cx, offset), from, bytes);
}

void fg_rt_copy(FgRtCx *cx, uint64_t to, uint64_t from, size_t bytes)
{
    if (may_copy(cx, "a copy in the rank's memory"))
        memmove(fg_at(cx, to), fg_at(cx, from), bytes);
}

void fg_rt_read(FgRtCx *cx, uint64_t offset, void *to, size_t bytes)
{
    memset(to, 0, bytes);
    if (may_copy(cx, "a read from the rank's memory"))
        memcpy(to, fg_at(cx, offset), bytes);
}

void fg_rt_ask_result(FgRtCx *cx)
{
    const FgRtProgram *program = cx->program;
    FgRtResult *result = &cx->results[cx->asked++ % FG_RT_MOST_RESULTS];
    float norm = 0;
    if (!may_copy(cx, "a result"))
        return;
    if (program->norm != FG_RT_NONE)
        norm = ((const float *)fg_at(cx, program->scalars))[FG_RT_S_NORM];
    memcpy(&result->loss, fg_at(cx, program->loss), sizeof result->loss);
    result->norm = (double)norm;
    memset(result->scaler, 0, sizeof result->scaler);
    if (program->scales_loss)
        memcpy(result->scaler, fg_at(cx, program->scaler), sizeof result->scaler);
}

int fg_rt_take_result(FgRtCx *cx, FgRtResult *out_result)
{
    *out_result = cx->results[cx->taken++ % FG_RT_MOST_RESULTS];
    return !fg_rt_failed(cx);
}

uint64_t fg_rt_touched_bytes(const FgRtCx *cx)
{
    if (cx->checked) /* poisoning touches every page: count what calls and states used instead */
        return fg_checked_used_bytes(cx->checked);
    unsigned char resident[4096];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), step = page * sizeof resident, touched = 0;
    for (uint64_t at = 0; at < cx->host_at; at += step) { /* the plan's memory, not the host's */
        uint64_t bytes = cx->host_at - at < step ? cx->host_at - at : step;
        if (mincore(cx->memory + at, (size_t)bytes, resident) != 0)
            return cx->bytes;
        for (uint64_t i = 0; i < bytes / page; i++)
            touched += (resident[i] & 1) * page;
    }
    return touched < cx->bytes ? touched : cx->bytes;
}

/* ---- the group ---- */

static bool cx_open(FgRtGroup *group, uint32_t rank, char *error, size_t error_bytes)
{
    FgRtCx *cx = &group->ranks[rank];
    cx->group = group;
    cx->program = group->program;
    cx->rank = rank;
    if (!map_memory(cx, error, error_bytes))
        return false;
    if (group->options.poison)
        memset(cx->memory + group->program->state_bytes, 0xff, (size_t)group->program->arena_bytes);
    if (group->options.profile) {
        if (!fg_fault_hits(group->options.fault, FG_FAULT_ALLOC, rank))
            cx->profile = calloc((size_t)group->program->n_nodes + 1, sizeof *cx->profile);
        if (!cx->profile)
            goto no_memory;
    }
    if (group->options.checked) {
        if (!fg_fault_hits(group->options.fault, FG_FAULT_ALLOC, rank))
            cx->checked = fg_checked_new(cx);
        if (!cx->checked)
            goto no_memory;
    }
    return true;
no_memory:
    snprintf(error, error_bytes, "rank %" PRIu32 ": out of memory", rank);
    return false;
}

FgRtGroup *fg_rt_group_new(const FgRtProgram *program, FgWorld *world, const FgRtOptions *options,
                           char *error, size_t error_bytes)
{
    (void)world; /* there is no other process */
    if (program->abi != FG_RT_ABI || program->ranks == 0) {
        snprintf(error, error_bytes,
                 "the program was made for ABI %" PRIu32 " and %" PRIu32
                 " ranks; this runtime has ABI %d",
                 program->abi, program->ranks, FG_RT_ABI);
        return NULL;
    }
    FgRtGroup *group = calloc(1, sizeof *group);
    FgRtCx *ranks = calloc(program->ranks, sizeof *ranks);
    const FgCall **posted = calloc(program->ranks, sizeof *posted);
    if (!group || !ranks || !posted || fg_fault_hits(options->fault, FG_FAULT_ALLOC, 0)) {
        snprintf(error, error_bytes, "out of memory");
        free(group);
        free(ranks);
        free(posted);
        return NULL;
    }
    group->program = program;
    group->options = *options;
    group->n_ranks = program->ranks;
    group->ranks = ranks;
    group->posted = posted;
    group->status = (FgRtStatus){.ok = 1, .node = UINT32_MAX};
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->moved, NULL);
    for (uint32_t rank = 0; rank < program->ranks; rank++)
        if (!cx_open(group, rank, error, error_bytes)) {
            fg_rt_group_free(group);
            return NULL;
        }
    return group;
}

void fg_rt_group_free(FgRtGroup *group)
{
    if (!group)
        return;
    for (uint32_t rank = 0; rank < group->n_ranks; rank++) {
        FgRtCx *cx = &group->ranks[rank];
        if (cx->memory)
            munmap(cx->memory, (size_t)cx->mapped);
        fg_checked_free(cx->checked);
        free(cx->profile);
    }
    pthread_cond_destroy(&group->moved);
    pthread_mutex_destroy(&group->lock);
    free(group->posted);
    free(group->ranks);
    free(group);
}

FgRtCx *fg_rt_group_rank(FgRtGroup *group, uint32_t rank)
{
    return rank < group->n_ranks ? &group->ranks[rank] : NULL;
}

void fg_rt_group_ranks(const FgRtGroup *group, uint32_t *out_first, uint32_t *out_n)
{
    *out_first = 0;
    *out_n = group->n_ranks;
}

const char *fg_rt_group_warning(const FgRtGroup *group)
{
    (void)group;
    return "";
}

const FgRtKind *fg_rt_kind(void)
{
    static const FgRtKind kind = {"host", 0, 0};
    return &kind;
}

uint32_t fg_rt_rank(const FgRtCx *cx)
{
    return cx->rank;
}

const FgRtProgram *fg_rt_program(const FgRtCx *cx)
{
    return cx->program;
}

double fg_rt_node_us(const FgRtCx *cx, uint32_t node, uint64_t *calls, double *start_us)
{
    bool known = cx->profile && node < cx->program->n_nodes;
    *calls = known ? cx->profile[node].calls : 0;
    *start_us = known ? cx->profile[node].start_us : 0;
    return known ? cx->profile[node].us : 0;
}

/* ---- status ---- */

/* With the lock held. */
static void fail_locked(FgRtCx *cx, uint32_t node, const char *call, const char *text)
{
    FgRtGroup *group = cx->group;
    if (!atomic_load(&group->failed)) {
        FgRtStatus *status = &group->status;
        *status = (FgRtStatus){.ok = 0, .rank = cx->rank, .node = node};
        snprintf(status->call, sizeof status->call, "%s", call);
        snprintf(status->text, sizeof status->text, "%s", text);
        atomic_store_explicit(&group->failed, 1, memory_order_release);
    }
    pthread_cond_broadcast(&group->moved);
}

static void fail(FgRtCx *cx, uint32_t node, const char *call, const char *text)
{
    pthread_mutex_lock(&cx->group->lock);
    fail_locked(cx, node, call, text);
    pthread_mutex_unlock(&cx->group->lock);
}

void fg_rt_fail(FgRtCx *cx, const char *call, const char *text)
{
    fail(cx, UINT32_MAX, call, text);
}

void fg_rt_raise(FgRtCx *cx, const char *format, ...)
{
    char text[sizeof cx->group->status.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(cx, cx->call ? cx->call->node : UINT32_MAX, cx->call ? cx->call->info->name : "", text);
}

FgRtStatus fg_rt_status(const FgRtCx *cx)
{
    FgRtGroup *group = cx->group;
    pthread_mutex_lock(&group->lock);
    FgRtStatus status = group->status;
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* ---- rendezvous ---- */

static bool same_call(const FgCall *a, const FgCall *b)
{
    if (!a || !b)
        return a == b;
    /* Offsets too are alike: one plan runs on every rank. */
    return a->info == b->info && a->node == b->node &&
           memcmp(a->args, b->args, a->n_args * sizeof *a->args) == 0;
}

static const char *call_name(const FgCall *call)
{
    return call ? call->info->name : "a barrier";
}

static bool all_same(FgRtCx *cx)
{
    FgRtGroup *group = cx->group;
    for (uint32_t rank = 1; rank < group->n_ranks; rank++) {
        const FgCall *first = group->posted[0], *other = group->posted[rank];
        if (same_call(first, other))
            continue;
        char text[sizeof group->status.text];
        snprintf(text, sizeof text,
                 "ranks disagree: rank 0 is at %s of node %" PRIu32 ", rank %" PRIu32
                 " at %s of node %" PRIu32,
                 call_name(first), first ? first->node : UINT32_MAX, rank, call_name(other),
                 other ? other->node : UINT32_MAX);
        const FgCall *own = group->posted[cx->rank];
        fail_locked(cx, own ? own->node : UINT32_MAX, call_name(own), text);
        return false;
    }
    return true;
}

bool fg_rt_meet(FgRtCx *cx, const FgCall *call)
{
    FgRtGroup *group = cx->group;
    pthread_mutex_lock(&group->lock);
    uint64_t generation = group->generation;
    group->posted[cx->rank] = call;
    if (!atomic_load(&group->failed) && ++group->arrived == group->n_ranks && all_same(cx)) {
        group->arrived = 0;
        group->generation++;
        pthread_cond_broadcast(&group->moved);
    }
    while (!atomic_load(&group->failed) && group->generation == generation)
        pthread_cond_wait(&group->moved, &group->lock);
    bool met = group->generation != generation && !atomic_load(&group->failed);
    pthread_mutex_unlock(&group->lock);
    return met;
}

void fg_rt_barrier(FgRtCx *cx)
{
    fg_rt_meet(cx, NULL);
}
