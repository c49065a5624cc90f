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

/* A program whose ranks are processes of this one's making, or its threads, was not started by a
 * launcher too: each of its processes would start, or be, all ranks. */
static bool not_launched(const FgRtProgram *program, const FgOptions *options, FgFail *fail)
{
    const char *variable, *launcher = fg_place_launcher(&variable);
    if (!launcher)
        return true;
    if (fg_rt_kind()->process_a_rank)
        return fg_fail(
            fail,
            "--local-ranks %llu does not go with %s, each of whose processes would start "
            "%u more: leave it away, or unset %s where no launcher runs",
            (unsigned long long)options->local_ranks, launcher, program->ranks, variable);
    return fg_fail(fail,
                   "%s started several processes; a %s program runs all its ranks in one: start it "
                   "alone, or unset %s where no launcher runs",
                   launcher, fg_rt_kind()->name, variable);
}

/* The launcher started as many processes as the program has ranks. */
static bool right_number(const FgRtProgram *program, const FgPlace *place, FgFail *fail)
{
    if (place->ranks == program->ranks)
        return true;
    if (place->launcher)
        return fg_fail(fail, "%s started %u process%s; this program was compiled for %u ranks",
                       place->launcher, place->ranks, place->ranks == 1 ? "" : "es",
                       program->ranks);
    return fg_fail(fail,
                   "this program has %u ranks, each a process of its own: --local-ranks %u starts "
                   "them all on this machine; torchrun, srun or mpirun on several",
                   program->ranks, program->ranks);
}

/* Who this process is among those of the run; `local`: it starts them. */
static bool find_place(const FgRtProgram *program, const FgOptions *options, bool local,
                       FgPlace *out, FgFail *fail)
{
    char error[1024] = "";
    *out = (FgPlace){.ranks = 1, .local_rank = UINT32_MAX, .listener = -1};
    if (local || !fg_rt_kind()->process_a_rank)
        return not_launched(program, options, fail);
    if (!fg_place_find(out, options->rendezvous, error, sizeof error))
        return fg_fail(fail, "%s", error);
    return right_number(program, out, fail);
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
    /* What is asked for goes before what a shell's environment says. */
    bool local = fg_rt_kind()->process_a_rank && options->local_ranks != FG_NOT_GIVEN &&
                 !fg_spawn_is_child();
    if (!find_place(program, options, local, &place, fail))
        return refuse(fail, out_status);
    if (local && program->ranks > 1) {
        *out_status = fg_spawn_ranks(program->ranks, argv);
        return NULL;
    }
    FgWorld *world = fg_world_join(&place, &how, error, sizeof error);
    if (world)
        return world;
    *out_status = 1;
    if (*error)
        fg_fail(fail, "%s", error);
    return NULL;
}
