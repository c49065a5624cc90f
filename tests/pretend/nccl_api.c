/* NCCL between processes of one machine: each posts where its operand lies, all meet at a barrier
 * in shared memory, and each reads what it needs from the others' memory. A peer that is gone is
 * waited for as long as the run lives: a device would wait for ever, and the host, which asks it,
 * would give up then. */
#define _GNU_SOURCE 1

#include <nccl.h>

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "runtime/dtype.h"
#include "tests/pretend/pretend.h"

enum { MOST_RANKS = 16, SPINS = 1000 };

typedef struct Shared {
    atomic_uint arrived, generation; /* of a barrier; made as zeros */
    struct {
        pid_t pid;
        const void *operand;
    } posted[MOST_RANKS];
} Shared;

struct ncclComm {
    Shared *shared;
    int rank, ranks;
    char name[96];
    unsigned splits; /* communicators made of it, alike on all ranks */
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* False: the run has failed, and nothing more comes of this. */
static bool meet(const struct ncclComm *comm)
{
    Shared *shared = comm->shared;
    unsigned generation = atomic_load(&shared->generation);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == (unsigned)comm->ranks) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
        return true;
    }
    for (int i = 0; atomic_load(&shared->generation) == generation; i++) {
        if (pretend_over())
            return false;
        if (i < SPINS)
            sched_yield();
        else
            nap();
    }
    return true;
}

static int open_shared(const char *name, int rank)
{
    int fd;
    if (rank == 0) {
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        return fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0 ? fd : -1;
    }
    while ((fd = shm_open(name, O_RDWR, 0600)) < 0 ||
           lseek(fd, 0, SEEK_END) < (off_t)sizeof(Shared)) {
        if (fd >= 0)
            close(fd);
        nap();
    }
    return fd;
}

static ncclResult_t comm_new(ncclComm_t *out, const char *name, int ranks, int rank)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    int fd = open_shared(name, rank);
    if (!comm || fd < 0 || ranks > MOST_RANKS) {
        free(comm);
        return ncclSystemError;
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* siblings may read this process's memory */
    comm->rank = rank;
    comm->ranks = ranks;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    comm->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    bool met = meet(comm);
    if (rank == 0)
        shm_unlink(name);
    *out = comm;
    return met ? ncclSuccess : ncclRemoteError;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/foregather-%ld-%ld", (long)getpid(),
             (long)time(NULL));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const char *beside = getenv("PRETEND_BESIDE"); /* bytes of the device that the library takes */
    (void)config;
    pretend_take(beside ? strtoull(beside, NULL, 10) : 0);
    return comm_new(comm, id.internal, ranks, rank);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    char name[128];
    snprintf(name, sizeof name, "%s-%d-%u", comm->name, color, comm->splits++);
    if (config->CTAPolicy != NCCL_CTA_POLICY_ZERO || key != comm->rank)
        return ncclInvalidArgument;
    return comm_new(out, name, comm->ranks, comm->rank);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes,
                                    ncclWindow_t *window, int flags)
{
    void *name = malloc(1);
    memcpy(window, &name, sizeof name);
    return comm && memory && bytes && flags == NCCL_WIN_COLL_SYMMETRIC ? ncclSuccess
                                                                       : ncclInvalidArgument;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    (void)comm;
    free(window);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    munmap(comm->shared, sizeof(Shared));
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    (void)comm;
    *result = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    *memory = pretend_alloc(bytes);
    return *memory ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclMemFree(void *memory)
{
    pretend_free(memory);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "an error of the pretended library";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* ---- collectives ---- */

static bool post(ncclComm_t comm, const void *operand)
{
    comm->shared->posted[comm->rank].pid = getpid();
    comm->shared->posted[comm->rank].operand = operand;
    return meet(comm);
}

/* False: the run has failed. */
static bool pull(const struct ncclComm *comm, int rank, size_t offset, void *to, size_t bytes)
{
    const char *from = (const char *)comm->shared->posted[rank].operand + offset;
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
    if (process_vm_readv(comm->shared->posted[rank].pid, &here, 1, &there, 1, 0) != (ssize_t)bytes)
        for (;; nap()) /* the peer is gone */
            if (pretend_over())
                return false;
    return true;
}

static uint64_t dtype_of(ncclDataType_t type)
{
    return type == ncclFloat32    ? FG_RT_F32
           : type == ncclBfloat16 ? FG_RT_BF16
           : type == ncclFloat16  ? FG_RT_F16
           : type == ncclFloat64  ? FG_RT_F64
                                  : FG_RT_I64;
}

static void add(void *to, const void *from, size_t n, uint64_t dt)
{
    for (size_t i = 0; i < n; i++)
        switch (dt) {
        case FG_RT_F32:
            ((float *)to)[i] += ((const float *)from)[i];
            break;
        case FG_RT_F64:
            ((double *)to)[i] += ((const double *)from)[i];
            break;
        case FG_RT_BF16:
            ((uint16_t *)to)[i] = fg_f32_to_bf16(fg_bf16_to_f32(((uint16_t *)to)[i]) +
                                                 fg_bf16_to_f32(((const uint16_t *)from)[i]));
            break;
        case FG_RT_F16:
            ((uint16_t *)to)[i] = fg_f32_to_f16(fg_f16_to_f32(((uint16_t *)to)[i]) +
                                                fg_f16_to_f32(((const uint16_t *)from)[i]));
            break;
        default:
            ((int64_t *)to)[i] += ((const int64_t *)from)[i];
        }
}

ncclResult_t ncclAllGather(const void *own, void *whole, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8 || !stream)
        return ncclInvalidArgument;
    if (pretend_capturing())
        return ncclSuccess;
    bool ok = post(comm, own);
    for (int rank = 0; ok && rank < comm->ranks; rank++)
        ok = pull(comm, rank, 0, (char *)whole + (size_t)rank * count, count);
    (void)(ok && meet(comm));
    return ncclSuccess; /* as from a stream that stands still */
}

ncclResult_t ncclAlltoAll(const void *own, void *parts, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8 || !stream)
        return ncclInvalidArgument;
    if (pretend_capturing())
        return ncclSuccess;
    bool ok = post(comm, own);
    for (int rank = 0; ok && rank < comm->ranks; rank++)
        ok = pull(comm, rank, (size_t)comm->rank * count, (char *)parts + (size_t)rank * count,
                  count);
    (void)(ok && meet(comm));
    return ncclSuccess;
}

/* Sums count elements that begin at element `first` of every rank's operand. */
static void reduce(ncclComm_t comm, const void *operand, void *to, size_t first, size_t count,
                   uint64_t dt)
{
    size_t item = (size_t)fg_rt_dtype_bytes(dt), bytes = count * item;
    char *sum = malloc(bytes + 1), *part = malloc(bytes + 1);
    if (!sum || !part)
        abort();
    bool ok = post(comm, operand);
    for (int rank = 0; ok && rank < comm->ranks; rank++) {
        ok = pull(comm, rank, first * item, rank ? part : sum, bytes);
        if (ok && rank)
            add(sum, part, count, dt);
    }
    if (ok && meet(comm))
        memcpy(to, sum, bytes);
    free(sum);
    free(part);
}

ncclResult_t ncclReduceScatter(const void *whole, void *own, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    if (op != ncclSum || !stream)
        return ncclInvalidArgument;
    if (!pretend_capturing())
        reduce(comm, whole, own, (size_t)comm->rank * count, count, dtype_of(type));
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    if (op != ncclSum || !stream)
        return ncclInvalidArgument;
    if (!pretend_capturing())
        reduce(comm, from, to, 0, count, dtype_of(type));
    return ncclSuccess;
}
