/* How a world comes about: rank 0 listens, the others connect and say who they are, rank 0 welcomes
 * all when all are there. Until then a failure is told over the connections that stand. */
#include "runtime/launch/world_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FgWorld *world_new(const FgPlace *place, const FgWorldOptions *options)
{
    FgWorld *world = calloc(1, sizeof *world);
    uint32_t n = place->ranks == 1 ? 0 : place->rank == 0 ? place->ranks - 1 : 1;
    FgPeer *peers = calloc(n + 1, sizeof *peers);
    if (!world || !peers) {
        free(world);
        free(peers);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++)
        peers[i].fd = -1;
    world->place = *place;
    world->rank = place->rank;
    world->ranks = place->ranks;
    world->n_peers = n;
    world->peers = peers;
    world->options = *options;
    world->stop_at = UINT64_MAX;
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->moved, NULL);
    return world;
}

static void who_am_i(char *out, size_t bytes)
{
    char host[128] = "?";
    (void)gethostname(host, sizeof host - 1);
    snprintf(out, bytes, "process %ld on %s", (long)getpid(), host);
}

static bool say(char *error, size_t error_bytes, const char *text)
{
    snprintf(error, error_bytes, "%s", text);
    return false;
}

/* ---- rank 0 ---- */

static void name_missing(const FgWorld *world, char *error, size_t error_bytes)
{
    size_t at = (size_t)snprintf(error, error_bytes,
                                 "not all ranks came within %u s; missing:", world->options.join_s);
    for (uint32_t i = 0; i < world->n_peers; i++)
        if (world->peers[i].fd < 0 && at + 40 < error_bytes)
            at += (size_t)snprintf(error + at, error_bytes - at, " %u", i + 1);
}

/* Takes the connection's first message. False: the run cannot start. */
static bool admit(FgWorld *world, int fd, uint32_t *out_there, char *error, size_t error_bytes)
{
    FgWireMessage *hello = &world->message;
    if (!fg_wire_receive(fd, hello) || hello->kind != FG_WIRE_HELLO) {
        close(fd); /* a stranger */
        return true;
    }
    if (hello->rank == 0 || hello->rank >= world->ranks || world->peers[hello->rank - 1].fd >= 0) {
        close(fd);
        snprintf(error, error_bytes, "two processes say that they are rank %u of %u", hello->rank,
                 world->ranks);
        return false;
    }
    FgPeer *peer = &world->peers[hello->rank - 1];
    peer->fd = fd;
    snprintf(peer->who, sizeof peer->who, "%.250s", (const char *)hello->data);
    ++*out_there;
    if (hello->value == world->options.fingerprint)
        return true;
    snprintf(error, error_bytes,
             "rank %u (%.200s) runs another program: plan fingerprint %016llx, not %016llx",
             hello->rank, peer->who, (unsigned long long)hello->value,
             (unsigned long long)world->options.fingerprint);
    return false;
}

static bool gather_all(FgWorld *world, int listener, char *error, size_t error_bytes)
{
    time_t start = fg_world_now_s();
    uint32_t there = 0;
    while (there < world->n_peers) {
        const char *why;
        int fd = fg_wire_accept(listener, 1000, &why);
        if (fd >= 0 && !admit(world, fd, &there, error, error_bytes))
            return false;
        if (why) {
            snprintf(error, error_bytes,
                     "rank 0 has the connections of %u of %u ranks and cannot take another: %s; a "
                     "higher limit of open files (ulimit -n) may help",
                     there, world->n_peers, why);
            return false;
        }
        if (there < world->n_peers && fg_world_now_s() - start >= (time_t)world->options.join_s) {
            name_missing(world, error, error_bytes);
            return false;
        }
    }
    return true;
}

static bool welcome(FgWorld *world, const FgPlace *place, char *error, size_t error_bytes)
{
    int listener = fg_wire_listen(place, error, error_bytes);
    if (listener < 0)
        return false;
    bool ok = gather_all(world, listener, error, error_bytes);
    close(listener);
    for (uint32_t i = 0; i < world->n_peers; i++) {
        if (world->peers[i].fd < 0)
            continue;
        if (ok)
            ok = fg_wire_send(world->peers[i].fd, FG_WIRE_WELCOME, 0, 0, NULL, 0) ||
                 say(error, error_bytes, "a rank was gone before all had come");
        else
            fg_wire_send(world->peers[i].fd, FG_WIRE_FAIL, 0, 0, error, strlen(error) + 1);
    }
    return ok;
}

/* ---- the others ---- */

static bool greet(FgWorld *world, const FgPlace *place, char *error, size_t error_bytes)
{
    char who[256];
    FgPeer *zero = &world->peers[0];
    who_am_i(who, sizeof who);
    snprintf(zero->who, sizeof zero->who, "at %.200s", place->host);
    zero->fd = fg_wire_connect(place, world->options.join_s, error, error_bytes);
    if (zero->fd < 0)
        return false;
    FgWireMessage *answer = &world->message;
    if (!fg_wire_send(zero->fd, FG_WIRE_HELLO, world->rank, world->options.fingerprint, who,
                      strlen(who) + 1) ||
        !fg_wire_receive(zero->fd, answer))
        return say(error, error_bytes, "rank 0 is gone: it ended before all ranks had come");
    if (answer->kind == FG_WIRE_WELCOME)
        return true;
    /* rank 0 tells the user; this process only ends */
    snprintf(error, error_bytes, "%s",
             answer->kind == FG_WIRE_FAIL ? "" : "rank 0 gave an answer that makes no sense");
    return false;
}

FgWorld *fg_world_join(const FgPlace *place, const FgWorldOptions *options, char *error,
                       size_t error_bytes)
{
    FgWorld *world = world_new(place, options);
    if (!world) {
        say(error, error_bytes, "out of memory");
        return NULL;
    }
    bool ok = place->ranks == 1 ||
              ((place->rank == 0 ? welcome(world, place, error, error_bytes)
                                 : greet(world, place, error, error_bytes)) &&
               (fg_world_listen(world) || say(error, error_bytes, "a thread cannot be started")));
    if (ok)
        return world;
    fg_world_leave(world);
    return NULL;
}
