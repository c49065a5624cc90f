/* The parent holds no device and no connection: it sees how its children end, which no other
 * process can. Children stand in process groups of their own, so that a signal from the terminal
 * reaches them once, through the parent; they die with it. */
#define _DEFAULT_SOURCE 1

#include "runtime/launch/spawn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_S = 15 }; /* from the first failure to the end of all */

typedef struct Child {
    pid_t pid; /* 0: has ended */
} Child;

typedef struct Spawn {
    uint32_t ranks, left;
    Child *children;
    int listener;
    uint16_t port;
    int status;      /* the first that was not 0, or of the first that a signal ended */
    time_t deadline; /* 0: none */
    bool stopping;   /* a signal was passed on */
    bool killed;     /* the rest were, when they had had their time */
    bool by_signal;  /* a rank was ended by a signal that did not come from here */
} Spawn;

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

void fg_stop_signals(sigset_t *out)
{
    static const int both[] = {SIGINT, SIGTERM};
    sigemptyset(out);
    for (int i = 0; i < 2; i++) {
        struct sigaction now;
        if (sigaction(both[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(out, both[i]);
    }
}

static bool open_listener(Spawn *spawn)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    spawn->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (spawn->listener < 0 ||
        bind(spawn->listener, (const struct sockaddr *)&address, length) != 0 ||
        listen(spawn->listener, SOMAXCONN) != 0 ||
        getsockname(spawn->listener, (struct sockaddr *)&address, &length) != 0) {
        fprintf(stderr, "error: no port on 127.0.0.1 for the ranks to meet: %s\n", strerror(errno));
        if (spawn->listener >= 0)
            close(spawn->listener);
        return false;
    }
    spawn->port = ntohs(address.sin_port);
    return true;
}

static void set_number(const char *name, unsigned long value)
{
    char text[24];
    snprintf(text, sizeof text, "%lu", value);
    setenv(name, text, 1);
}

/* In the child; returns only when the program cannot be started. */
static void become_rank(const Spawn *spawn, uint32_t rank, char *const *argv,
                        const sigset_t *signals, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_SETMASK, signals, NULL);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", spawn->ranks);
    set_number("LOCAL_WORLD_SIZE", spawn->ranks);
    set_number("MASTER_PORT", spawn->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("FOREGATHER_SPAWNED", "1", 1);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    unsetenv("FOREGATHER_LISTENER");
    if (rank == 0) {
        fcntl(spawn->listener, F_SETFD, 0); /* stays open in the program */
        set_number("FOREGATHER_LISTENER", (unsigned long)spawn->listener);
    }
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    execv("/proc/self/exe", argv);
    fprintf(stderr, "error: rank %u cannot be started: %s\n", rank, strerror(errno));
    _exit(1);
}

static void signal_all(const Spawn *spawn, int signal)
{
    for (uint32_t rank = 0; rank < spawn->ranks; rank++)
        if (spawn->children[rank].pid > 0)
            kill(spawn->children[rank].pid, signal);
}

static void note_end(Spawn *spawn, uint32_t rank, int how)
{
    int status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    spawn->children[rank].pid = 0;
    spawn->left--;
    if (status == 0)
        return;
    bool ours = spawn->killed && WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
    bool struck = WIFSIGNALED(how) && !ours && !(spawn->stopping && WTERMSIG(how) != SIGKILL);
    if (struck)
        fprintf(stderr, "error: rank %u was ended by signal %d (%s)\n", rank, WTERMSIG(how),
                strsignal(WTERMSIG(how)));
    /* A peer notices the closed connection, and may be reaped, before the rank that was struck. */
    if (spawn->status == 0 || (struck && !spawn->by_signal))
        spawn->status = status;
    spawn->by_signal |= struck;
    if (spawn->deadline == 0)
        spawn->deadline = now_s() + GRACE_S;
}

static void reap(Spawn *spawn)
{
    int how;
    pid_t pid;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
        for (uint32_t rank = 0; rank < spawn->ranks; rank++)
            if (spawn->children[rank].pid == pid)
                note_end(spawn, rank, how);
}

/* Until all have ended. The signals are blocked: they come here one by one. */
static void watch(Spawn *spawn, const sigset_t *signals)
{
    const struct timespec second = {.tv_sec = 1};
    while (spawn->left > 0) {
        int signal = sigtimedwait(signals, NULL, &second);
        if (signal == SIGINT || signal == SIGTERM) {
            spawn->stopping = true;
            signal_all(spawn, signal);
        }
        reap(spawn);
        if (spawn->deadline && now_s() >= spawn->deadline && spawn->left > 0 && !spawn->killed) {
            spawn->killed = true;
            fprintf(stderr, "error: %u rank%s did not end by itself: killed\n", spawn->left,
                    spawn->left == 1 ? "" : "s");
            signal_all(spawn, SIGKILL);
        }
    }
}

int fg_spawn_ranks(uint32_t ranks, char *const *argv)
{
    Spawn spawn = {.ranks = ranks, .children = calloc(ranks, sizeof(Child))};
    sigset_t signals, before;
    if (!spawn.children)
        fprintf(stderr, "error: out of memory for %u ranks\n", ranks);
    if (!spawn.children || !open_listener(&spawn)) {
        free(spawn.children);
        return 1;
    }
    fflush(NULL);
    signal(SIGCHLD, SIG_DFL); /* whoever ignores it has no child to wait for */
    fg_stop_signals(&signals);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t parent = getpid();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        pid_t pid = fork();
        if (pid == 0)
            become_rank(&spawn, rank, argv, &before, parent);
        if (pid < 0) {
            fprintf(stderr, "error: rank %u cannot be started: %s\n", rank, strerror(errno));
            spawn.status = 1;
            spawn.killed = true;
            signal_all(&spawn, SIGKILL);
            break;
        }
        spawn.children[rank].pid = pid;
        spawn.left++;
    }
    close(spawn.listener);
    watch(&spawn, &signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(spawn.children);
    return spawn.status;
}

int fg_spawn_is_child(void)
{
    return getenv("FOREGATHER_SPAWNED") != NULL;
}
