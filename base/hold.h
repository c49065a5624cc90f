/* Requests to end (SIGTERM, SIGINT, SIGHUP) held back while something temporary exists that has to
 * go first: a file beside the one that it will be, a folder, a compiler that runs. No handlers and
 * no global state: the signals are blocked, asked for where there is time, and have their effect,
 * late, when the hold ends. Those that whoever started the process ignores stay ignored. */
#ifndef FG_BASE_HOLD_H
#define FG_BASE_HOLD_H

#include <signal.h>
#include <stdbool.h>

typedef struct FgHold {
    sigset_t before;
} FgHold;

/* The three signals, without those that are ignored. */
void fg_hold_signals(sigset_t *out);
/* Holds may be nested; each ends where it began. */
void fg_hold_begin(FgHold *hold);
/* The process ends here when it was asked to meanwhile, unless an outer hold goes on. */
void fg_hold_end(const FgHold *hold);
/* The mask of this process without the three: for one that it starts meanwhile. */
void fg_hold_free_mask(sigset_t *out);
/* Whether one of them waits for the end of the hold. */
bool fg_hold_asked(void);

#endif
