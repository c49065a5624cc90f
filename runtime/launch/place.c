/* One row a launcher; the first one whose rank and size are both set is believed. */
#include "runtime/launch/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *also;     /* must be set too; NULL: nothing */
    const char *signs[2]; /* either shows that this process was started by the launcher */
} Launcher;

/* The shell of a batch script carries SLURM_PROCID as well: only a step has a step's number. */
static const Launcher LAUNCHERS[] = {
    /* clang-format off */
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL,
     {"LOCAL_RANK", "TORCHELASTIC_RUN_ID"}},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, {"OMPI_COMM_WORLD_RANK"}},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, {"PMI_RANK"}},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_STEP_ID",
     {"SLURM_STEP_ID"}},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_STEP_ID",
     {"SLURM_STEP_ID"}},
    /* clang-format on */
};
enum { PORTS_FROM = 20000, PORTS = 12000 }; /* below the ephemeral ports */

static const char *value_of(const char *name)
{
    const char *value = *name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

static bool number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out = value;
    return *text >= '0' && *text <= '9' && *end == 0 && errno == 0 && value <= most;
}

static bool say(char *error, size_t error_bytes, const char *what, const char *value)
{
    snprintf(error, error_bytes, "%s%s%s", what, value ? ": " : "", value ? value : "");
    return false;
}

/* A variable that must be a number when it is set. */
static bool count_of(const char *name, uint32_t *out, char *error, size_t error_bytes)
{
    const char *text = value_of(name);
    uint64_t value;
    if (!text)
        return true;
    if (!number(text, UINT32_MAX - 1, &value)) {
        snprintf(error, error_bytes, "%s is '%s', not a number", name, text);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool is_set(const Launcher *l)
{
    return value_of(l->rank) && value_of(l->size) && (!l->also || value_of(l->also));
}

static const Launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++)
        if (is_set(&LAUNCHERS[i]))
            return &LAUNCHERS[i];
    return NULL;
}

const char *fg_place_launcher(const char **out_variable)
{
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
        const Launcher *l = &LAUNCHERS[i];
        const char *sign = l->signs[1] && !value_of(l->signs[0]) ? l->signs[1] : l->signs[0];
        *out_variable = sign;
        if (is_set(l) && value_of(sign))
            return strcmp(value_of(l->size), "1") == 0 ? NULL : l->name;
    }
    return NULL;
}

/* ---- where to meet ---- */

static bool split_meeting(FgPlace *place, const char *meeting, char *error, size_t error_bytes)
{
    const char *colon = strrchr(meeting, ':');
    uint64_t port;
    if (!colon || colon == meeting || (size_t)(colon - meeting) >= sizeof place->host ||
        !number(colon + 1, UINT16_MAX, &port) || port == 0)
        return say(error, error_bytes, "not HOST:PORT", meeting);
    memcpy(place->host, meeting, (size_t)(colon - meeting));
    place->host[colon - meeting] = 0;
    place->port = (uint16_t)port;
    return true;
}

/* torchrun serves a store of its own on MASTER_PORT: the next port is ours. */
static bool torch_meeting(FgPlace *place, char *error, size_t error_bytes)
{
    const char *port = value_of("MASTER_PORT"), *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    uint64_t value = 29500;
    if (port && (!number(port, UINT16_MAX - 1, &value) || value == 0))
        return say(error, error_bytes, "MASTER_PORT is no port", port);
    snprintf(place->host, sizeof place->host, "%s", getenv("MASTER_ADDR"));
    place->port = (uint16_t)(value + (store && strcmp(store, "True") == 0));
    return true;
}

/* The first name of a Slurm node list: "gpu[03-05,9],x" is gpu03. */
static void first_node(const char *list, char *out, size_t out_bytes)
{
    size_t head = strcspn(list, "[,"), digits = 0;
    if (list[head] == '[')
        digits = strcspn(list + head + 1, "-,]");
    snprintf(out, out_bytes, "%.*s%.*s", (int)head, list, (int)digits, list + head + (digits > 0));
}

static bool slurm_meeting(FgPlace *place)
{
    const char *nodes = value_of("SLURM_STEP_NODELIST");
    uint64_t job = 0, step = 0;
    if (!nodes)
        nodes = value_of("SLURM_JOB_NODELIST");
    const char *job_id = value_of("SLURM_JOB_ID"), *step_id = value_of("SLURM_STEP_ID");
    if (!nodes || !job_id || !step_id || !number(job_id, UINT64_MAX, &job))
        return false;
    if (!number(step_id, UINT64_MAX, &step))
        step = 0;
    first_node(nodes, place->host, sizeof place->host);
    place->port = (uint16_t)(PORTS_FROM + (job * 31 + step) % PORTS);
    return true;
}

/* All ranks on this node have one parent, whose number tells runs apart. */
static bool local_meeting(FgPlace *place, const Launcher *launcher, char *error, size_t error_bytes)
{
    uint32_t local = 0;
    if (!count_of(launcher->local_size, &local, error, error_bytes))
        return false;
    if (local != place->ranks)
        return say(error, error_bytes,
                   "the ranks do not know where to meet: set MASTER_ADDR and MASTER_PORT, or give "
                   "--rendezvous HOST:PORT of rank 0's node",
                   NULL);
    snprintf(place->host, sizeof place->host, "127.0.0.1");
    place->port = (uint16_t)(PORTS_FROM + (uint64_t)getppid() % PORTS);
    return true;
}

static bool find_meeting(FgPlace *place, const Launcher *launcher, const char *meeting, char *error,
                         size_t error_bytes)
{
    if (meeting)
        return split_meeting(place, meeting, error, error_bytes);
    if (value_of("MASTER_ADDR"))
        return torch_meeting(place, error, error_bytes);
    if (strcmp(launcher->name, "srun") == 0 && slurm_meeting(place))
        return true;
    return local_meeting(place, launcher, error, error_bytes);
}

bool fg_place_find(FgPlace *out_place, const char *meeting, char *error, size_t error_bytes)
{
    const Launcher *launcher = find_launcher();
    uint32_t listener = UINT32_MAX;
    *out_place = (FgPlace){.ranks = 1, .local_rank = UINT32_MAX, .listener = -1};
    if (!launcher)
        return true;
    out_place->launcher = launcher->name;
    if (!count_of(launcher->rank, &out_place->rank, error, error_bytes) ||
        !count_of(launcher->size, &out_place->ranks, error, error_bytes) ||
        !count_of(launcher->local_rank, &out_place->local_rank, error, error_bytes) ||
        !count_of("FOREGATHER_LISTENER", &listener, error, error_bytes))
        return false;
    if (out_place->rank >= out_place->ranks) {
        snprintf(error, error_bytes, "%s is %u, but %s is %u", launcher->rank, out_place->rank,
                 launcher->size, out_place->ranks);
        return false;
    }
    if (listener != UINT32_MAX)
        out_place->listener = (int)listener;
    return out_place->ranks == 1 || find_meeting(out_place, launcher, meeting, error, error_bytes);
}

bool fg_place_asked(FgPlace *out_place, uint32_t ranks, bool child, char *error, size_t error_bytes)
{
    const char *variable, *launcher = fg_place_launcher(&variable);
    if (ranks == 0 || child || launcher) {
        if (!fg_place_find(out_place, NULL, error, error_bytes))
            return false;
        if (ranks == 0 || child || out_place->ranks == ranks)
            return true;
        snprintf(
            error, error_bytes,
            "--ranks is %u, but %s started %u; leave it away, or unset %s where no launcher runs",
            ranks, launcher, out_place->ranks, variable);
        return false;
    }
    *out_place = (FgPlace){.ranks = 1, .local_rank = UINT32_MAX, .listener = -1};
    return true;
}
