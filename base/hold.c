/* Holding back requests to end: a mask of signals, and a look at what is pending. */
#include "base/hold.h"

#include <stddef.h>

static const int endings[] = {SIGTERM, SIGINT, SIGHUP};
#define N_ENDINGS (sizeof endings / sizeof *endings)

void fg_hold_signals(sigset_t *out)
{
    sigemptyset(out);
    for (size_t i = 0; i < N_ENDINGS; i++) {
        struct sigaction now;
        if (sigaction(endings[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(out, endings[i]);
    }
}

void fg_hold_begin(FgHold *hold)
{
    sigset_t set;
    fg_hold_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &hold->before);
}

void fg_hold_end(const FgHold *hold)
{
    sigprocmask(SIG_SETMASK, &hold->before, NULL);
}

void fg_hold_free_mask(sigset_t *out)
{
    sigprocmask(SIG_SETMASK, NULL, out);
    for (size_t i = 0; i < N_ENDINGS; i++)
        sigdelset(out, endings[i]);
}

bool fg_hold_asked(void)
{
    sigset_t set, pending;
    fg_hold_signals(&set);
    sigpending(&pending);
    for (size_t i = 0; i < N_ENDINGS; i++)
        if (sigismember(&set, endings[i]) == 1 && sigismember(&pending, endings[i]) == 1)
            return true;
    return false;
}
