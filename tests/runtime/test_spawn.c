/* What `--local-ranks` ends with: the program's own ranks are this program again, told by the
 * environment how to end. */
#define _DEFAULT_SOURCE 1

#include "runtime/launch/spawn.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank_main(void)
{
    const char *how = getenv("TEST_SPAWN"), *rank = getenv("RANK");
    if (!how || !rank)
        abort();
    bool last = strcmp(rank, "0") == 0;
    if (last)
        usleep(300000); /* the others have been reaped by then */
    if (strcmp(how, "struck last") == 0 && last)
        raise(SIGKILL);
    if (strcmp(how, "struck last") == 0 || (strcmp(how, "one fails") == 0 && !last))
        _exit(3);
    if (strcmp(how, "two signals") == 0)
        raise(last ? SIGKILL : SIGABRT);
    _exit(0);
}

static int spawned(const char *how)
{
    char *argv[] = {"test_spawn", NULL};
    setenv("TEST_SPAWN", how, 1);
    return fg_spawn_ranks(2, argv);
}

static void statuses(int *failures)
{
    CHECK_EQ_U64(spawned("all well"), 0);
    CHECK_EQ_U64(spawned("one fails"), 3);
    /* Its peer noticed and ended first; the cause is still the signal. */
    CHECK_EQ_U64(spawned("struck last"), 128 + SIGKILL);
    CHECK_EQ_U64(spawned("two signals"), 128 + SIGABRT);
}

/* Whoever started the program may have left its children to the system: they are waited for. */
static void children_are_ours(int *failures)
{
    alarm(20);
    signal(SIGCHLD, SIG_IGN);
    CHECK_EQ_U64(spawned("one fails"), 3);
    alarm(0);
}

int main(void)
{
    if (fg_spawn_is_child())
        return rank_main();
    int failures = 0;
    statuses(&failures);
    printf("statuses %s\n", failures ? "FAILED" : "ok");
    int before = failures;
    children_are_ours(&failures);
    printf("children are ours %s\n", failures > before ? "FAILED" : "ok");
    return failures != 0;
}
