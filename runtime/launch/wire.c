/* TCP. Small messages go out at once; a node that vanished is noticed within 15 seconds. */
#define _DEFAULT_SOURCE 1

#include "runtime/launch/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x46673031, RETRY_MS = 50, HELLO_S = 10 };

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void set_int(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value); /* wishes: the wire works without */
}

static void set_up(int fd)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

static bool send_bytes(int fd, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    while (bytes) {
        ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool receive_bytes(int fd, void *data, size_t bytes)
{
    unsigned char *to = data;
    while (bytes) {
        ssize_t n = recv(fd, to, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool fg_wire_send(int fd, FgWireKind kind, uint32_t rank, uint64_t value, const void *data,
                  size_t bytes)
{
    FgWireMessage message = {.magic = MAGIC, .kind = kind, .rank = rank, .value = value};
    message.bytes = (uint32_t)(bytes < FG_WIRE_DATA ? bytes : FG_WIRE_DATA);
    if (message.bytes)
        memcpy(message.data, data, message.bytes);
    return send_bytes(fd, &message, offsetof(FgWireMessage, data) + message.bytes);
}

bool fg_wire_receive(int fd, FgWireMessage *out)
{
    if (!receive_bytes(fd, out, offsetof(FgWireMessage, data)) || out->magic != MAGIC ||
        out->bytes > FG_WIRE_DATA || !receive_bytes(fd, out->data, out->bytes))
        return false;
    out->data[out->bytes] = 0;
    return true;
}

/* ---- connections ---- */

static struct addrinfo *addresses(const FgPlace *place, bool own, int *out_error)
{
    char port[8];
    struct addrinfo wish = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (own) {
        wish.ai_flags = AI_PASSIVE;
        wish.ai_family = AF_INET;
    }
    snprintf(port, sizeof port, "%u", (unsigned)place->port);
    *out_error = getaddrinfo(own ? NULL : place->host, port, &wish, &found);
    return found;
}

int fg_wire_listen(const FgPlace *place, char *error, size_t error_bytes)
{
    if (place->listener >= 0)
        return place->listener;
    int why, fd = -1;
    struct addrinfo *found = addresses(place, true, &why);
    if (found)
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0)
        snprintf(error, error_bytes,
                 "rank 0 cannot listen on port %u, where the ranks are to meet: %s; --rendezvous "
                 "HOST:PORT names another",
                 (unsigned)place->port, found ? strerror(errno) : gai_strerror(why));
    if (found)
        freeaddrinfo(found);
    return fd;
}

int fg_wire_accept(int listener, int wait_ms, const char **out_why)
{
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    *out_why = NULL;
    if (poll(&wait, 1, wait_ms) <= 0)
        return -1;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) { /* others mean that the connection has broken meanwhile */
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            *out_why = strerror(errno);
        return -1;
    }
    struct timeval limit = {.tv_sec = HELLO_S}; /* a stranger that says nothing */
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    set_up(fd);
    return fd;
}

static int connect_once(const FgPlace *place, const char **out_why)
{
    int why, fd = -1;
    struct addrinfo *found = addresses(place, false, &why);
    *out_why = found ? "no answer" : gai_strerror(why);
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            *out_why = strerror(errno);
            close(fd);
            fd = -1;
        }
    }
    if (found)
        freeaddrinfo(found);
    return fd;
}

int fg_wire_connect(const FgPlace *place, uint32_t wait_s, char *error, size_t error_bytes)
{
    const struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    time_t start = now_s();
    const char *why = "";
    do {
        int fd = connect_once(place, &why);
        if (fd >= 0) {
            set_up(fd);
            return fd;
        }
        nanosleep(&pause, NULL);
    } while (now_s() - start < (time_t)wait_s);
    snprintf(error, error_bytes, "rank %u found no rank 0 at %s:%u within %u s: %s", place->rank,
             place->host, (unsigned)place->port, wait_s, why);
    return -1;
}
