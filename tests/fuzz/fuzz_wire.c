/* Messages between processes: what is received is no longer than its room, and text has an end. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "runtime/launch/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *const fuzz_seeds[] = {"tests/fuzz/seeds/messages.bin", NULL};
const char *const fuzz_words[] = {"10gF", "rank 0", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    FgWireMessage message;
    size_t most = 1 << 15; /* fits into the socket: nobody reads while it is written */
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        abort();
    size_t bytes = size < most ? size : most;
    if (bytes && send(ends[0], data, bytes, 0) != (ssize_t)bytes)
        abort();
    shutdown(ends[0], SHUT_WR);
    while (fg_wire_receive(ends[1], &message))
        if (message.bytes > FG_WIRE_DATA || !memchr(message.data, 0, FG_WIRE_DATA))
            abort();
    close(ends[0]);
    close(ends[1]);
    return 0;
}
