/* Launching without a device: who a process is, how processes meet, stop together and fail
 * together. Each case forks real processes; a hang ends it by an alarm. */
#define _DEFAULT_SOURCE 1

#include "runtime/launch/listed.h"
#include "runtime/launch/spawn.h"
#include "runtime/launch/world.h"
#include "runtime/trainer/publish.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const NAMES[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "TORCHELASTIC_RUN_ID",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_STEP_ID",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "FOREGATHER_LISTENER",
                                    "FOREGATHER_SPAWNED"};

/* An environment with these alone of the variables above: "A=1 B=2". */
static void only(const char *settings)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        unsetenv(NAMES[i]);
    char *copy = strdup(settings);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
    free(copy);
}

static FgPlace found(int *failures, const char *settings, const char *meeting)
{
    FgPlace place;
    char error[512] = "";
    only(settings);
    bool ok = fg_place_find(&place, meeting, error, sizeof error);
    if (!ok)
        printf("%s: %s\n", settings, error);
    CHECK(ok);
    return place;
}

static void refused(int *failures, const char *settings, const char *meeting, const char *says)
{
    FgPlace place;
    char error[512] = "";
    only(settings);
    CHECK(!fg_place_find(&place, meeting, error, sizeof error));
    CHECK(strstr(error, says) != NULL);
}

static void launchers(int *failures)
{
    FgPlace p = found(failures, "", NULL);
    CHECK(p.ranks == 1 && p.rank == 0 && !p.launcher && p.local_rank == UINT32_MAX);
    p = found(failures, "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=100", NULL);
    CHECK(p.rank == 3 && p.ranks == 4 && p.local_rank == 1 && p.port == 100);
    CHECK_STR(p.host, "a");
    p = found(failures,
              "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=100 "
              "TORCHELASTIC_USE_AGENT_STORE=True",
              NULL);
    CHECK(p.port == 101);
    p = found(failures, "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=100", "b:7");
    CHECK(p.port == 7);
    CHECK_STR(p.host, "b");
    p = found(failures,
              "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
              "OMPI_COMM_WORLD_LOCAL_SIZE=2",
              NULL);
    CHECK(p.rank == 1 && p.ranks == 2 && p.local_rank == 1 && p.port != 0);
    CHECK_STR(p.host, "127.0.0.1");
    p = found(failures,
              "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=77 "
              "SLURM_STEP_NODELIST=gpu[03-05,9],x1",
              NULL);
    CHECK(p.rank == 5 && p.ranks == 8 && p.local_rank == 1);
    CHECK_STR(p.host, "gpu03");
    p = found(failures, "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=77", NULL); /* a batch shell */
    CHECK(p.ranks == 1);
    refused(failures, "RANK=4 WORLD_SIZE=4 MASTER_ADDR=a", NULL, "RANK is 4, but WORLD_SIZE is 4");
    refused(failures, "RANK=x WORLD_SIZE=4 MASTER_ADDR=a", NULL, "RANK is 'x'");
    refused(failures, "PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2", NULL, "MASTER_ADDR");
    refused(failures, "RANK=0 WORLD_SIZE=4", "host", "not HOST:PORT");
    refused(failures, "RANK=0 WORLD_SIZE=4", "host:0", "not HOST:PORT");
    only("");
}

static void shown(int *failures, const char *settings, const char *launcher, const char *by)
{
    const char *variable = "", *found;
    only(settings);
    found = fg_place_launcher(&variable);
    CHECK_STR(found ? found : "", launcher);
    if (*launcher)
        CHECK_STR(variable, by);
}

/* What a launcher alone sets, and what stands in a shell. */
static void started_or_left(int *failures)
{
    shown(failures, "", "", "");
    shown(failures, "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=100", "", "");
    shown(failures, "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", "torchrun", "LOCAL_RANK");
    shown(failures, "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=7", "torchrun", "TORCHELASTIC_RUN_ID");
    shown(failures, "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", "", "");
    shown(failures, "RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "mpirun",
          "OMPI_COMM_WORLD_RANK");
    shown(failures, "PMI_RANK=0 PMI_SIZE=2", "mpirun", "PMI_RANK");
    shown(failures, "SLURM_PROCID=0 SLURM_NTASKS=8", "", "");
    shown(failures, "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0", "srun", "SLURM_STEP_ID");
    /* A shell that srun started: one task of an allocation for eight. */
    shown(failures, "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0", "", "");
    only("");
}

static void asked(int *failures, const char *settings, uint32_t ranks, bool child, uint32_t want)
{
    FgPlace place;
    char error[512] = "";
    only(settings);
    bool ok = fg_place_asked(&place, ranks, child, error, sizeof error);
    CHECK(ok == (want != 0) && (!ok || place.ranks == want));
    CHECK(ok || strstr(error, "--ranks is 2, but torchrun started 4") != NULL);
    CHECK(!ok || place.launcher == NULL || child || want == 4);
}

/* What is asked for goes before what stands in a shell, not before a launcher that did start. */
static void own_ranks(int *failures)
{
    const char *left = "RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=100";
    const char *started = "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=100";
    asked(failures, "", 2, false, 1);
    asked(failures, left, 2, false, 1);
    asked(failures, "RANK=9 WORLD_SIZE=4", 2, false, 1); /* and whether it makes sense or not */
    asked(failures, left, 2, true, 4);
    asked(failures, left, 0, false, 4);
    asked(failures, started, 4, false, 4);
    asked(failures, started, 2, false, 0);
    only("");
}

/* ---- worlds ---- */

enum { RANKS = 3 };
typedef int RankMain(FgWorld *world, uint32_t rank);

static uint16_t next_port(void)
{
    static uint32_t port;
    port = port ? port + 1 : 33000 + (uint32_t)getpid() % 20000;
    return (uint16_t)port;
}

/* Runs `body` in RANKS processes that have joined; their exit statuses; -1: ended by a signal. */
static void in_ranks(RankMain *body, int *statuses, uint32_t join_s, uint32_t end_s,
                     uint64_t fingerprint_step, uint32_t missing)
{
    pid_t children[RANKS];
    uint16_t port = next_port();
    fflush(NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        children[rank] = 0;
        if (rank == missing || (children[rank] = fork()) != 0)
            continue;
        alarm(60);
        FgPlace place = {.rank = rank, .ranks = RANKS, .port = port, .listener = -1};
        snprintf(place.host, sizeof place.host, "127.0.0.1");
        FgWorldOptions options = {7 + rank * fingerprint_step, join_s, end_s};
        char error[1024] = "";
        FgWorld *world = fg_world_join(&place, &options, error, sizeof error);
        if (!world)
            _exit(strstr(error, "missing: 2")         ? 51
                  : strstr(error, "another program")  ? 52
                  : strstr(error, "1 of 2 ranks and") ? 53
                                                      : 50);
        int status = body(world, rank);
        fg_world_leave(world);
        _exit(status);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int how = 0;
        statuses[rank] = 0;
        if (children[rank] > 0 && waitpid(children[rank], &how, 0) > 0)
            statuses[rank] = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    }
}

static int meets_and_shares(FgWorld *world, uint32_t rank)
{
    unsigned char data[10000];
    for (int round = 1; round <= 20; round++) {
        memset(data, rank == 0 ? round : 0, sizeof data);
        if (!fg_world_share(world, data, sizeof data))
            return 1;
        for (size_t i = 0; i < sizeof data; i++)
            if (data[i] != round)
                return 1;
        if (!fg_world_barrier(world))
            return 2;
        FgFail fail = {0};
        char *text = fg_text("%*d from rank %u", 40 * round, round, rank);
        char *wanted = fg_text("%*d from rank 0", 40 * round, round);
        bool same = fg_share_text(world, &text, &fail) && strcmp(text, wanted) == 0;
        free(text);
        free(wanted);
        fg_fail_clear(&fail);
        if (!same)
            return 4;
    }
    return fg_world_barrier(world) ? 0 : 3;
}

static void meeting(int *failures)
{
    int statuses[RANKS];
    in_ranks(meets_and_shares, statuses, 30, 30, 0, UINT32_MAX);
    for (int r = 0; r < RANKS; r++)
        CHECK_EQ_U64(statuses[r], 0);
}

/* Ranks run at different speeds; rank 1 has the signal; all begin the same number of steps. */
static int stops(FgWorld *world, uint32_t rank)
{
    uint64_t steps = 0, shared;
    while (fg_world_may_step(world)) {
        steps++;
        nanosleep(&(struct timespec){.tv_nsec = 1000000L * (1 + rank)}, NULL);
        if (rank == 1 && steps == 5)
            fg_world_stop(world, SIGTERM);
        if (steps > 100000)
            return 1;
    }
    shared = steps;
    if (!fg_world_share(world, &shared, sizeof shared) || shared != steps)
        return 2;
    return fg_world_stopped_by(world) == SIGTERM && fg_world_barrier(world) ? 0 : 3;
}

static void stopping(int *failures)
{
    int statuses[RANKS];
    in_ranks(stops, statuses, 30, 30, 0, UINT32_MAX);
    for (int r = 0; r < RANKS; r++)
        CHECK_EQ_U64(statuses[r], 0);
}

/* Rank 1 fails while the others wait for it. */
static int one_fails(FgWorld *world, uint32_t rank)
{
    if (rank == 1) {
        fg_world_fail(world, "rank 1, linear 'q' (m.json:1:2): no luck");
        return fg_world_tells(world) ? 1 : 40;
    }
    if (fg_world_barrier(world) || !fg_world_failed(world))
        return 2;
    if (strcmp(fg_world_failure(world), "rank 1, linear 'q' (m.json:1:2): no luck") != 0)
        return 3;
    return fg_world_tells(world) == (rank == 0) && !fg_world_tells(world) ? 40 : 4;
}

static void failing(int *failures)
{
    int statuses[RANKS];
    in_ranks(one_fails, statuses, 30, 30, 0, UINT32_MAX);
    for (int r = 0; r < RANKS; r++)
        CHECK_EQ_U64(statuses[r], 40);
}

/* Lets the others hear that the barrier has opened. */
static void die_soon(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000000L}, NULL);
    kill(getpid(), SIGKILL);
}

static int one_dies(FgWorld *world, uint32_t rank)
{
    fg_world_doing(world, "step 12");
    if (!fg_world_barrier(world))
        return 1;
    if (rank == 2)
        die_soon();
    if (fg_world_barrier(world))
        return 2;
    const char *text = fg_world_failure(world);
    return strstr(text, "rank 2") && strstr(text, "step 12") && strstr(text, "process ") ? 40 : 3;
}

static void dying(int *failures)
{
    int statuses[RANKS];
    in_ranks(one_dies, statuses, 30, 30, 0, UINT32_MAX);
    CHECK_EQ_U64(statuses[0], 40);
    CHECK_EQ_U64(statuses[1], 40);
    CHECK(statuses[2] == -1);
}

/* A process whose main thread waits for a peer for ever is ended by its listening thread. */
static int hangs(FgWorld *world, uint32_t rank)
{
    if (!fg_world_barrier(world))
        return 9;
    if (rank == 0)
        die_soon();
    for (;;)
        pause();
}

static void hanging(int *failures)
{
    int statuses[RANKS];
    time_t start = time(NULL);
    in_ranks(hangs, statuses, 30, 1, 0, UINT32_MAX);
    CHECK(statuses[0] == -1);
    CHECK_EQ_U64(statuses[1], 1);
    CHECK_EQ_U64(statuses[2], 1);
    CHECK(time(NULL) - start < 20);
}

static void starting_wrong(int *failures)
{
    int statuses[RANKS];
    in_ranks(meets_and_shares, statuses, 2, 30, 0, 2);
    CHECK_EQ_U64(statuses[0], 51); /* names the one that is missing */
    CHECK_EQ_U64(statuses[1], 50);
    /* One that comes when rank 0 has refused another looks for it as long as it may. */
    in_ranks(meets_and_shares, statuses, 3, 30, 1, UINT32_MAX);
    CHECK_EQ_U64(statuses[0], 52);
    CHECK(statuses[1] == 50 && statuses[2] == 50);
}

/* Rank 0 has no file left for the last rank's connection: said at once, and not as a rank that did
 * not come. */
static void few_files(int *failures)
{
    int statuses[RANKS], next = dup(STDIN_FILENO);
    struct rlimit limit, before;
    time_t start = time(NULL);
    CHECK(next >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(next);
    limit = before;
    limit.rlim_cur = (rlim_t)next + 2; /* the listener, and one connection */
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    in_ranks(meets_and_shares, statuses, 30, 30, 0, UINT32_MAX);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_EQ_U64(statuses[0], 53);
    CHECK(statuses[1] == 50 && statuses[2] == 50);
    CHECK(time(NULL) - start < 20);
}

static void alone(int *failures)
{
    FgPlace place = {.ranks = 1, .listener = -1};
    FgWorldOptions options = {1, 1, 1};
    char error[256];
    int data = 5;
    FgWorld *world = fg_world_join(&place, &options, error, sizeof error);
    CHECK(world && fg_world_barrier(world) && fg_world_share(world, &data, sizeof data));
    CHECK(fg_world_may_step(world) && fg_world_may_step(world));
    fg_world_stop(world, SIGINT);
    CHECK(!fg_world_may_step(world) && fg_world_stopped_by(world) == SIGINT);
    fg_world_fail(world, "x");
    CHECK(!fg_world_barrier(world) && fg_world_tells(world) && !fg_world_tells(world));
    fg_world_leave(world);
    fg_world_leave(NULL);
}

/* Whole words alone: neither the beginning of one, nor its end. */
static void lists(int *failures)
{
    CHECK(fg_listed("gather", "gather") && !fg_listed("gather", "gathers"));
    CHECK(fg_listed("gather,adamw_parts,adamw", "adamw"));
    CHECK(!fg_listed("adamw_parts,gather", "adamw") && !fg_listed("my_adamw,gather", "adamw"));
    CHECK(!fg_listed("gather,adamw", "gather,adamw ") && !fg_listed("", "gather"));
}

UNIT_MAIN({"launchers", launchers}, {"started or left", started_or_left}, {"own ranks", own_ranks},
          {"meeting", meeting}, {"stopping", stopping}, {"failing", failing}, {"dying", dying},
          {"hanging", hanging}, {"starting wrong", starting_wrong}, {"few files", few_files},
          {"alone", alone}, {"lists", lists})
