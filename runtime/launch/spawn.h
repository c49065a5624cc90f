/* --local-ranks N: the program starts itself N times on this node and waits for all of them. */
#ifndef FG_RUNTIME_LAUNCH_SPAWN_H
#define FG_RUNTIME_LAUNCH_SPAWN_H

#include <signal.h>
#include <stdint.h>

/* The signals that end a run in good order, SIGINT and SIGTERM, but for one that whoever started
 * the program has it ignore. */
void fg_stop_signals(sigset_t *out);

/* Starts argv again as `ranks` processes with a launcher's environment (RANK, WORLD_SIZE,
 * LOCAL_RANK, MASTER_ADDR, MASTER_PORT), passes SIGINT and SIGTERM on to them, and ends them all
 * when one fails. Returns what the program is to exit with. */
int fg_spawn_ranks(uint32_t ranks, char *const *argv);
/* Whether this process was started that way. */
int fg_spawn_is_child(void);

#endif
