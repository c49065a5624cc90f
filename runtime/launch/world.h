/* The processes of a run: a connection from each to rank 0's, over which they meet, agree on where
 * to stop, and learn at once when one of them fails or is gone.
 *
 * No data of the training goes this way, and nothing waits for it within a step. A thread of each
 * process listens; when the run has failed and the process does not come to its end by itself, that
 * thread ends it, so that nobody hangs in a collective whose peer is gone. */
#ifndef FG_RUNTIME_LAUNCH_WORLD_H
#define FG_RUNTIME_LAUNCH_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/launch/place.h"

typedef struct FgWorld FgWorld;

typedef struct FgWorldOptions {
    uint64_t fingerprint; /* must be the same in every process */
    uint32_t join_s;      /* how long ranks wait for each other at start */
    uint32_t end_s;       /* how long a process of a failed run may take to end */
} FgWorldOptions;

/* Finds the other processes; returns when all are there. `place` of one rank: alone, without
 * connections. NULL: `error` says who is missing or does not fit; "" when rank 0 says it. */
FgWorld *fg_world_join(const FgPlace *place, const FgWorldOptions *options, char *error,
                       size_t error_bytes);
/* Parts in peace, or after a failure; NULL is nothing. */
void fg_world_leave(FgWorld *world);

const FgPlace *fg_world_place(const FgWorld *world);

/* Every process gets what rank 0's has in `data`. False: the run failed. */
bool fg_world_share(FgWorld *world, void *data, size_t bytes);
/* Waits for every process. False: the run failed. */
bool fg_world_barrier(FgWorld *world);

/* What this process is at, for messages about the others: "step 12". */
void fg_world_doing(FgWorld *world, const char *what);

/* Ends the run for everybody, `text` being the whole message for the user. The first failure
 * counts. Any thread. */
void fg_world_fail(FgWorld *world, const char *text);
/* Any thread, cheap. */
bool fg_world_failed(const FgWorld *world);
/* The first failure's text, "" without one; owned by the world. */
const char *fg_world_failure(FgWorld *world);
/* Whether this process is the one that tells the user: rank 0's, or any when rank 0 is gone. The
 * answer is yes once at most. */
bool fg_world_tells(FgWorld *world);

/* Before each step: false when all processes stop here. Steps count alike in all of them. */
bool fg_world_may_step(FgWorld *world);
/* Asks all processes to stop after one and the same step. */
void fg_world_stop(FgWorld *world, int signal);
/* The signal that fg_world_may_step stopped for; 0: none. */
int fg_world_stopped_by(FgWorld *world);

#endif
