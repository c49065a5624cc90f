/* The inside of a world, shared by what sets it up (join.c) and what runs it (world.c). */
#ifndef FG_RUNTIME_LAUNCH_WORLD_INTERNAL_H
#define FG_RUNTIME_LAUNCH_WORLD_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "runtime/launch/wire.h"
#include "runtime/launch/world.h"

typedef struct FgPeer {
    int fd;           /* -1: gone */
    bool left, held;  /* said goodbye; answered HOLD */
    uint64_t arrived; /* barriers */
    uint64_t begun;   /* steps, when held */
    char who[256];    /* "process 12 on node5" */
} FgPeer;

struct FgWorld {
    FgPlace place;
    uint32_t rank, ranks, n_peers;
    FgPeer *peers; /* rank 0: those of rank 1 and following; others: rank 0's */
    FgWorldOptions options;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    pthread_t thread;
    bool listening;
    bool leaving; /* this process has ended well: whoever goes now does so too */
    int wake[2];  /* a pipe: closing its end stops the thread */
    struct pollfd *waits;
    FgWireMessage message; /* the thread's */
    char doing[128];
    uint64_t arrived, opened; /* barriers: come to, opened */
    unsigned char *shared;    /* from rank 0, not taken yet */
    size_t shared_bytes;
    bool hold; /* begin no step */
    uint64_t begun, stop_at;
    int stop_signal;
    atomic_bool failed;
    bool told, rank0_gone;
    time_t failed_at;
    char failure[FG_WIRE_TEXT];
};

static inline time_t fg_world_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Starts the listening thread, when all connections stand. */
bool fg_world_listen(FgWorld *world);

#endif
