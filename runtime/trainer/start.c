/* A runtime with one rank a process needs as many processes as the program has ranks: from a
 * launcher, or from itself. */
#include "runtime/trainer/start.h"

#include "runtime/launch/spawn.h"
#include "runtime/trainer/apart.h"

#include <string.h>

enum { END_S = 10 }; /* how long a process of a failed run may take to end */

static FgWorld *refuse(FgFail *fail, int *out_status)
{
    *out_status = fail->text ? 1 : *out_status;
    return NULL;
}

/* The launcher started as many processes as this runtime wants. */
static bool right_number(const FgRtProgram *program, const FgPlace *place, FgFail *fail)
{
    const FgRtKind *kind = fg_rt_kind();
    uint32_t wanted = kind->process_a_rank ? program->ranks : 1;
    if (place->ranks == wanted)
        return true;
    if (place->launcher && kind->process_a_rank)
        return fg_fail(fail, "%s started %u process%s; this program was compiled for %u ranks",
                       place->launcher, place->ranks, place->ranks == 1 ? "" : "es",
                       program->ranks);
    if (place->launcher)
        return fg_fail(fail,
                       "%s started %u processes; a %s program runs all its ranks in one process",
                       place->launcher, place->ranks, kind->name);
    return fg_fail(fail,
                   "this program has %u ranks, each a process of its own: --local-ranks %u starts "
                   "them all on this machine; torchrun, srun or mpirun on several",
                   program->ranks, program->ranks);
}

FgWorld *fg_start(const FgRtProgram *program, const FgOptions *options, char *const *argv,
                  int *out_status, FgFail *fail)
{
    FgWorldOptions how = {program->fingerprint, (uint32_t)options->join_s, END_S};
    FgPlace place;
    char error[1024] = "";
    if (!fg_options_fit(options, program, fail) || !fg_files_apart(options, fail)) {
        *out_status = 2;
        return NULL;
    }
    if (!fg_place_find(&place, options->rendezvous, error, sizeof error)) {
        fg_fail(fail, "%s", error);
        return refuse(fail, out_status);
    }
    bool local = options->local_ranks != FG_NOT_GIVEN && !fg_spawn_is_child();
    if (fg_rt_kind()->process_a_rank && local && place.launcher && place.ranks > 1) {
        fg_fail(fail, "--local-ranks does not go with %s, which starts the ranks itself",
                place.launcher);
        return refuse(fail, out_status);
    }
    if (fg_rt_kind()->process_a_rank && local && program->ranks > 1) {
        *out_status = fg_spawn_ranks(program->ranks, argv);
        return NULL;
    }
    if (!right_number(program, &place, fail))
        return refuse(fail, out_status);
    FgWorld *world = fg_world_join(&place, &how, error, sizeof error);
    if (world)
        return world;
    *out_status = 1;
    if (*error)
        fg_fail(fail, "%s", error);
    return NULL;
}
