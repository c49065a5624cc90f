/* Which rank of a run this process is, and where the run's processes meet: read from the
 * environment that launchers set.
 *
 * torchrun (and our own --local-ranks) set RANK and WORLD_SIZE, mpirun OMPI_ or PMI_ variables,
 * srun SLURM_ ones. Nothing is decided here that the environment does not say. */
#ifndef FG_RUNTIME_LAUNCH_PLACE_H
#define FG_RUNTIME_LAUNCH_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FgPlace {
    uint32_t rank, ranks;
    uint32_t local_rank;  /* UINT32_MAX: the launcher does not say */
    const char *launcher; /* "torchrun", "mpirun", ...; NULL: nobody launched us */
    char host[256];       /* of rank 0 */
    uint16_t port;        /* where rank 0 listens */
    int listener;         /* rank 0 of --local-ranks: a socket that listens already; otherwise -1 */
} FgPlace;

/* The launcher that shows in the environment that it started this very process as one of several,
 * or NULL; *out_variable is what shows it. torchrun's RANK and WORLD_SIZE are set by hand and
 * exported in shells as well: only with LOCAL_RANK or TORCHELASTIC_RUN_ID, which are the launcher's
 * alone, are they such a sign. What mpirun sets, and srun with a step's number, nobody else sets.
 */
const char *fg_place_launcher(const char **out_variable);

/* `meeting` is HOST:PORT or NULL, and goes before what the environment says. Without a launcher the
 * place is rank 0 of 1. False: `error` says what is missing or makes no sense. */
bool fg_place_find(FgPlace *out_place, const char *meeting, char *error, size_t error_bytes);

/* The same of a process that was asked to start `ranks` of its own (0: it was not), which goes
 * before what a shell's environment says; `child`: one that was started so. False also where a
 * launcher has started another number. */
bool fg_place_asked(FgPlace *out_place, uint32_t ranks, bool child, char *error,
                    size_t error_bytes);

#endif
