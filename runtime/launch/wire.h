/* Messages between the processes of a run, and how their connections come about.
 *
 * A message is a fixed head and up to FG_WIRE_DATA bytes. Both ends are the same program on the
 * same kind of machine, so that structures travel as they lie in memory. */
#ifndef FG_RUNTIME_LAUNCH_WIRE_H
#define FG_RUNTIME_LAUNCH_WIRE_H

#include "runtime/launch/place.h"

#define FG_WIRE_DATA 4096
#define FG_WIRE_TEXT 1024 /* of a failure, its end included */

typedef enum FgWireKind {
    FG_WIRE_HELLO,   /* value: fingerprint; data: who it is, as text */
    FG_WIRE_WELCOME, /* all are there */
    FG_WIRE_SHARE,   /* data: a piece of what rank 0 shares */
    FG_WIRE_ARRIVE,  /* at a barrier */
    FG_WIRE_GO,      /* value: barriers that have opened */
    FG_WIRE_STOP,    /* value: the signal; to rank 0 */
    FG_WIRE_HOLD,    /* begin no step */
    FG_WIRE_HELD,    /* value: steps begun */
    FG_WIRE_STOP_AT, /* value: steps; data: the signal, an int */
    FG_WIRE_FAIL,    /* data: the message for the user */
    FG_WIRE_BYE
} FgWireKind;

typedef struct FgWireMessage {
    uint32_t magic, kind, rank, bytes;
    uint64_t value;
    unsigned char data[FG_WIRE_DATA + 1]; /* of a received one, a zero stands behind its bytes */
} FgWireMessage;

bool fg_wire_send(int fd, FgWireKind kind, uint32_t rank, uint64_t value, const void *data,
                  size_t bytes);
/* Waits for a whole message; false when the other end is gone or no end of ours. Text is ended. */
bool fg_wire_receive(int fd, FgWireMessage *out);

/* A socket at the place's port, or -1. */
int fg_wire_listen(const FgPlace *place, char *error, size_t error_bytes);
/* The next connection within `wait_ms`, or -1; *out_why then says what this process lacks for one
 * that came, or is NULL. */
int fg_wire_accept(int listener, int wait_ms, const char **out_why);
/* Tries until rank 0 answers or `wait_s` are over: then -1. */
int fg_wire_connect(const FgPlace *place, uint32_t wait_s, char *error, size_t error_bytes);

#endif
