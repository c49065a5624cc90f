/* A star: rank 0 has a connection to every process, the others have one to rank 0. All state lies
 * under one lock; the listening thread changes it and wakes whoever waits.
 *
 * Stopping takes three messages. A process with a signal tells rank 0 (STOP). Rank 0 asks all to
 * begin no further step and to say how many they have begun (HOLD, HELD), then names the largest of
 * these numbers (STOP_AT): everybody goes on to exactly there. */
#include "runtime/launch/world.h"

#include "runtime/launch/world_internal.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- with the lock held ---- */

static void send_to(FgWorld *world, FgPeer *peer, FgWireKind kind, uint64_t value, const void *data,
                    size_t bytes)
{
    if (peer->fd >= 0 && !peer->left) /* one that breaks here is read as broken by the thread */
        (void)fg_wire_send(peer->fd, kind, world->rank, value, data, bytes);
}

static void send_all(FgWorld *world, FgWireKind kind, uint64_t value, const void *data,
                     size_t bytes)
{
    for (uint32_t i = 0; i < world->n_peers; i++)
        send_to(world, &world->peers[i], kind, value, data, bytes);
}

static void fail_locked(FgWorld *world, const char *text)
{
    if (!atomic_load(&world->failed)) {
        snprintf(world->failure, sizeof world->failure, "%s", text);
        world->failed_at = fg_world_now_s();
        atomic_store(&world->failed, true);
        send_all(world, FG_WIRE_FAIL, 0, world->failure, strlen(world->failure) + 1);
    }
    pthread_cond_broadcast(&world->moved);
}

static bool here(const FgPeer *peer)
{
    return peer->fd >= 0 && !peer->left;
}

/* Rank 0: all have said how far they are. */
static void settle_stop(FgWorld *world)
{
    uint64_t most = world->begun;
    for (uint32_t i = 0; i < world->n_peers; i++) {
        const FgPeer *peer = &world->peers[i];
        if (here(peer) && !peer->held)
            return;
        most = peer->held && peer->begun > most ? peer->begun : most;
    }
    world->stop_at = most;
    send_all(world, FG_WIRE_STOP_AT, most, &world->stop_signal, sizeof world->stop_signal);
    pthread_cond_broadcast(&world->moved);
}

static void begin_stop(FgWorld *world, int signal)
{
    if (world->hold || world->stop_at != UINT64_MAX)
        return;
    world->hold = true;
    world->stop_signal = signal;
    send_all(world, FG_WIRE_HOLD, 0, NULL, 0);
    settle_stop(world);
}

static void open_barrier(FgWorld *world)
{
    uint64_t least = world->arrived;
    for (uint32_t i = 0; i < world->n_peers; i++)
        if (world->peers[i].arrived < least)
            least = world->peers[i].arrived;
    if (least <= world->opened)
        return;
    world->opened = least;
    send_all(world, FG_WIRE_GO, least, NULL, 0);
    pthread_cond_broadcast(&world->moved);
}

static void keep_shared(FgWorld *world, const FgWireMessage *message)
{
    unsigned char *grown = realloc(world->shared, world->shared_bytes + message->bytes + 1);
    if (!grown) {
        fail_locked(world, "out of memory");
        return;
    }
    memcpy(grown + world->shared_bytes, message->data, message->bytes);
    world->shared = grown;
    world->shared_bytes += message->bytes;
    pthread_cond_broadcast(&world->moved);
}

static void take(FgWorld *world, FgPeer *peer, const FgWireMessage *message)
{
    switch ((FgWireKind)message->kind) {
    case FG_WIRE_SHARE:
        keep_shared(world, message);
        break;
    case FG_WIRE_ARRIVE:
        peer->arrived++;
        open_barrier(world);
        break;
    case FG_WIRE_GO:
        world->opened = message->value;
        pthread_cond_broadcast(&world->moved);
        break;
    case FG_WIRE_STOP:
        begin_stop(world, (int)message->value);
        break;
    case FG_WIRE_HOLD:
        world->hold = true;
        send_to(world, peer, FG_WIRE_HELD, world->begun, NULL, 0);
        break;
    case FG_WIRE_HELD:
        peer->held = true;
        peer->begun = message->value;
        settle_stop(world);
        break;
    case FG_WIRE_STOP_AT:
        memcpy(&world->stop_signal, message->data, sizeof world->stop_signal);
        world->stop_at = message->value;
        pthread_cond_broadcast(&world->moved);
        break;
    case FG_WIRE_FAIL:
        fail_locked(world, (const char *)message->data);
        break;
    case FG_WIRE_BYE:
        peer->left = true;
        break;
    case FG_WIRE_HELLO:
    case FG_WIRE_WELCOME:
        break; /* said once, before this thread began */
    }
}

static void lose(FgWorld *world, FgPeer *peer)
{
    uint32_t rank = world->rank == 0 ? (uint32_t)(peer - world->peers) + 1 : 0;
    close(peer->fd);
    peer->fd = -1;
    if (peer->left || world->leaving) /* of two that leave at once, one may not say so */
        return;
    if (rank == 0)
        world->rank0_gone = true;
    char text[FG_WIRE_TEXT];
    snprintf(text, sizeof text,
             "rank %u (%.200s) is gone: it ended without a word; rank %u was at %s", rank,
             peer->who, world->rank, *world->doing ? world->doing : "its start");
    fail_locked(world, text);
}

/* The run has failed and this process does not end: its main thread waits for what will not come.
 */
static void end_process(FgWorld *world)
{
    if (world->rank == 0 || world->rank0_gone)
        if (!world->told)
            fprintf(stderr, "error: %s\n", world->failure);
    fflush(NULL);
    _exit(1);
}

static void *listen_main(void *world_)
{
    FgWorld *world = world_;
    uint32_t n = world->n_peers;
    struct pollfd *waits = world->waits;
    for (;;) {
        for (uint32_t i = 0; i < n; i++)
            waits[i] = (struct pollfd){.fd = world->peers[i].fd, .events = POLLIN};
        waits[n] = (struct pollfd){.fd = world->wake[0], .events = POLLIN};
        (void)poll(waits, n + 1, 1000);
        pthread_mutex_lock(&world->lock);
        for (uint32_t i = 0; i < n; i++) {
            if (!(waits[i].revents & (POLLIN | POLLHUP | POLLERR)))
                continue;
            if (fg_wire_receive(waits[i].fd, &world->message))
                take(world, &world->peers[i], &world->message);
            else
                lose(world, &world->peers[i]);
        }
        bool over = waits[n].revents != 0;
        if (!over && atomic_load(&world->failed) &&
            fg_world_now_s() - world->failed_at > (time_t)world->options.end_s)
            end_process(world);
        pthread_mutex_unlock(&world->lock);
        if (over)
            return NULL;
    }
}

bool fg_world_listen(FgWorld *world)
{
    world->waits = calloc(world->n_peers + 1, sizeof *world->waits);
    if (!world->waits || pipe(world->wake) != 0)
        return false;
    sigset_t all, before; /* signals are for the thread that trains */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    world->listening = pthread_create(&world->thread, NULL, listen_main, world) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!world->listening) {
        close(world->wake[0]);
        close(world->wake[1]);
    }
    return world->listening;
}

/* ---- for all threads ---- */

void fg_world_leave(FgWorld *world)
{
    if (!world)
        return;
    if (world->listening) {
        pthread_mutex_lock(&world->lock);
        world->leaving = true;
        send_all(world, FG_WIRE_BYE, 0, NULL, 0);
        pthread_mutex_unlock(&world->lock);
        close(world->wake[1]);
        pthread_join(world->thread, NULL);
        close(world->wake[0]);
    }
    for (uint32_t i = 0; i < world->n_peers; i++)
        if (world->peers[i].fd >= 0)
            close(world->peers[i].fd);
    pthread_cond_destroy(&world->moved);
    pthread_mutex_destroy(&world->lock);
    free(world->waits);
    free(world->shared);
    free(world->peers);
    free(world);
}

const FgPlace *fg_world_place(const FgWorld *world)
{
    return &world->place;
}

bool fg_world_share(FgWorld *world, void *data, size_t bytes)
{
    unsigned char *at = data;
    pthread_mutex_lock(&world->lock);
    if (world->rank == 0)
        for (size_t done = 0; done < bytes; done += FG_WIRE_DATA)
            send_all(world, FG_WIRE_SHARE, 0, at + done,
                     bytes - done < FG_WIRE_DATA ? bytes - done : FG_WIRE_DATA);
    while (world->rank != 0 && world->shared_bytes < bytes && !atomic_load(&world->failed))
        pthread_cond_wait(&world->moved, &world->lock);
    bool ok = !atomic_load(&world->failed);
    if (ok && world->rank != 0) {
        memcpy(data, world->shared, bytes);
        world->shared_bytes -= bytes;
        memmove(world->shared, world->shared + bytes, world->shared_bytes);
    }
    pthread_mutex_unlock(&world->lock);
    return ok;
}

bool fg_world_barrier(FgWorld *world)
{
    pthread_mutex_lock(&world->lock);
    uint64_t own = ++world->arrived;
    if (world->rank == 0)
        open_barrier(world);
    else
        send_all(world, FG_WIRE_ARRIVE, own, NULL, 0);
    while (world->opened < own && !atomic_load(&world->failed))
        pthread_cond_wait(&world->moved, &world->lock);
    bool ok = !atomic_load(&world->failed);
    pthread_mutex_unlock(&world->lock);
    return ok;
}

void fg_world_fail(FgWorld *world, const char *text)
{
    pthread_mutex_lock(&world->lock);
    fail_locked(world, text);
    pthread_mutex_unlock(&world->lock);
}

bool fg_world_failed(const FgWorld *world)
{
    return atomic_load_explicit(&world->failed, memory_order_acquire);
}

const char *fg_world_failure(FgWorld *world)
{
    return fg_world_failed(world) ? world->failure : "";
}

bool fg_world_tells(FgWorld *world)
{
    pthread_mutex_lock(&world->lock);
    bool tells = !world->told && (world->rank == 0 || world->rank0_gone);
    world->told = world->told || tells;
    pthread_mutex_unlock(&world->lock);
    return tells;
}

void fg_world_doing(FgWorld *world, const char *what)
{
    pthread_mutex_lock(&world->lock);
    snprintf(world->doing, sizeof world->doing, "%s", what);
    pthread_mutex_unlock(&world->lock);
}

bool fg_world_may_step(FgWorld *world)
{
    pthread_mutex_lock(&world->lock);
    while (world->hold && world->stop_at == UINT64_MAX && !atomic_load(&world->failed))
        pthread_cond_wait(&world->moved, &world->lock);
    bool may = world->begun < world->stop_at;
    world->begun += may;
    pthread_mutex_unlock(&world->lock);
    return may;
}

void fg_world_stop(FgWorld *world, int signal)
{
    pthread_mutex_lock(&world->lock);
    if (world->rank == 0)
        begin_stop(world, signal);
    else
        send_all(world, FG_WIRE_STOP, (uint64_t)signal, NULL, 0);
    pthread_mutex_unlock(&world->lock);
}

int fg_world_stopped_by(FgWorld *world)
{
    pthread_mutex_lock(&world->lock);
    int signal = world->stop_at != UINT64_MAX ? world->stop_signal : 0;
    pthread_mutex_unlock(&world->lock);
    return signal;
}
