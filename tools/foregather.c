/* The command. main runs a verb in a child process, so that a bug of ours (an abort, a bad access)
 * still ends with a message, a reproducer and exit code 4, without handlers or global state. The
 * two end together: what asks the parent to end is passed on, and the child is asked when the
 * parent is gone. The child removes what it has begun (base/hold.h). */
#include "base/diag.h"
#include "base/file.h"
#include "base/hold.h"
#include "tools/command/command.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

typedef struct Verb {
    const char *name;
    FgVerb verb;
    FgExit (*run)(FgArena *arena, const FgFlags *flags);
} Verb;

static const Verb verbs[] = {
    {"compile", FG_VERB_COMPILE, fg_cmd_compile},
    {"dump", FG_VERB_DUMP, fg_cmd_dump},
    {"diff", FG_VERB_DIFF, fg_cmd_diff},
    {"tokens", FG_VERB_TOKENS, fg_cmd_tokens},
    {"verify", FG_VERB_VERIFY, fg_cmd_verify},
    {"place", FG_VERB_PLACE, fg_cmd_place},
    {"frontier", FG_VERB_FRONTIER, fg_cmd_frontier},
    {"explain", FG_VERB_EXPLAIN, fg_cmd_explain},
    {"probe", FG_VERB_PROBE, fg_cmd_probe},
};
#define N_VERBS (sizeof verbs / sizeof *verbs)

static FgExit unknown_verb(const char *word)
{
    const char *names[N_VERBS + 2] = {"help", "version"};
    for (size_t i = 0; i < N_VERBS; i++)
        names[i + 2] = verbs[i].name;
    const char *near = fg_closest(word, names, N_VERBS + 2);
    fprintf(stderr, "foregather: error: unknown verb '%s'", word);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    fputs("\ntry 'foregather --help'\n", stderr);
    return FG_EXIT_USAGE;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static bool is_version(const char *word)
{
    return strcmp(word, "version") == 0 || strcmp(word, "--version") == 0;
}

static FgExit help(FgArena *arena, const char *verb)
{
    if (!verb || is_help(verb))
        fg_help(arena);
    else if (is_version(verb))
        puts(
            "usage: foregather version\n\nPrints the version and the targets that this build has.");
    else if (!fg_help_verb(arena, verb))
        return unknown_verb(verb);
    return FG_EXIT_OK;
}

static FgExit run_verb(FgArena *arena, int argc, char **argv)
{
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(argv[0], verbs[i].name) != 0)
            continue;
        FgFlags flags;
        if (wants_help(argc - 1, argv + 1))
            return help(arena, argv[0]);
        if (!fg_flags_parse(arena, verbs[i].verb, argc - 1, argv + 1, &flags))
            return FG_EXIT_USAGE;
        return verbs[i].run(arena, &flags);
    }
    return unknown_verb(argv[0]);
}

static FgExit run(FgArena *arena, int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        fputs("foregather: error: no verb given\ntry 'foregather --help'\n", stderr);
        return FG_EXIT_USAGE;
    }
    bool asks = argc > 2 && is_version(first) && wants_help(argc - 2, argv + 2);
    if (asks)
        return help(arena, first);
    if (is_version(first)) {
        printf("foregather %s (targets: host%s)\n", FG_VERSION, *FG_NVCC ? ", cuda" : "");
        return FG_EXIT_OK;
    }
    if (is_help(first))
        return help(arena, argc > 2 ? argv[2] : NULL);
    if (strcmp(first, "--internal-error") == 0) /* for the test of how bugs are reported */
        FG_BUG("asked for by --internal-error");
    if (strcmp(first, "--internal-exit") == 0) /* of one that is found out and told */
        return FG_EXIT_INTERNAL;
    return run_verb(arena, argc - 1, argv + 1);
}

/* Output that could not be written (a full disk, a closed pipe) is an error too, also where only
 * some of it, earlier, could not. */
static int finish(FgExit code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == FG_EXIT_OK) {
        fputs("foregather: error: standard output cannot be written\n", stderr);
        return FG_EXIT_INPUT;
    }
    return (int)code;
}

/* A copy of the file that a word of the command names, by itself or as a flag's value; of two files
 * of one name the second has its count in front. What is no file is left out, and what is no plain
 * file: a terminal or a pipe would be waited for. */
static void copy_into(FgArena *arena, const char *folder, const char *word)
{
    const char *equals = word[0] == '-' ? strchr(word, '=') : NULL, *error;
    const char *path = equals ? equals + 1 : word, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *text;
    size_t len;
    if (*path == '-' || fg_file_is_device(path) || !fg_file_read(arena, path, &text, &len, &error))
        return;
    const char *copy = fg_arena_printf(arena, "%s/%s", folder, name);
    for (uint32_t i = 2; access(copy, F_OK) == 0; i++)
        copy = fg_arena_printf(arena, "%s/%u-%s", folder, i, name);
    fg_file_write(arena, copy, text, len, &error);
}

/* A folder with the command line and copies of the files that it names; NULL when it cannot be
 * made. */
static const char *write_reproducer(FgArena *arena, int argc, char **argv)
{
    const char *error, *folder = fg_temp_dir(arena, &error);
    FgBuf line;
    if (!folder)
        return NULL;
    fg_buf_init(&line, arena);
    for (int i = 0; i < argc; i++)
        fg_buf_printf(&line, "%s%s", i ? " " : "", fg_quoted(arena, argv[i]));
    fg_buf_puts(&line, "\n");
    bool ok = fg_file_write(arena, fg_arena_printf(arena, "%s/command", folder), line.data,
                            line.len, &error);
    for (int i = 2; ok && i < argc; i++)
        copy_into(arena, folder, argv[i]);
    return ok ? folder : NULL;
}

static int report_internal(FgArena *arena, int argc, char **argv)
{
    const char *folder = write_reproducer(arena, argc, argv);
    if (folder)
        fprintf(stderr, "note: %s holds the command and its input files\n", folder);
    return FG_EXIT_INTERNAL;
}

static bool is_bug(int signal_number)
{
    return signal_number == SIGABRT || signal_number == SIGSEGV || signal_number == SIGBUS ||
           signal_number == SIGFPE || signal_number == SIGILL;
}

/* A stream that the caller has closed must not become a file of ours, with messages in it: what is
 * opened in its place cannot be written either. */
static void keep_streams(void)
{
    int fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDONLY);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* In the child: asks to be asked to end when the parent does. False: it is gone already. */
static bool end_with(pid_t parent)
{
#ifdef __linux__
    struct sigaction now;
    bool ignored = sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
    prctl(PR_SET_PDEATHSIG, ignored ? SIGKILL : SIGTERM);
#endif
    return getppid() == parent;
}

/* Waits for the child, and passes on what asks this process to end. The child's status. */
static int attend(pid_t child, const sigset_t *awaited)
{
    int status = 0, came;
    while (waitpid(child, &status, WNOHANG) != child)
        if (sigwait(awaited, &came) == 0 && came != SIGCHLD)
            kill(child, came);
    return status;
}

/* How the command ends after its child: of the same signal, where one ended it that is no bug. */
static int conclude(FgArena *arena, int status, int argc, char **argv)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == FG_EXIT_INTERNAL) /* it has said what */
        return report_internal(arena, argc, argv);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int ending = WTERMSIG(status);
    if (is_bug(ending)) {
        fprintf(stderr,
                "foregather: internal error (signal %d): this is a bug in foregather, please "
                "report it\n",
                ending);
        return report_internal(arena, argc, argv);
    }
    if (ending == SIGKILL)
        fputs("foregather: error: killed from outside; systems do so where memory runs out\n"
              "note: then give a smaller model, --batch or --seq, or the command more memory\n",
              stderr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, ending);
    raise(ending);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return 128 + ending;
}

int main(int argc, char **argv)
{
    keep_streams();
    FgArena *arena = fg_arena_new();
    FgHold hold;
    sigset_t awaited, chld;
    int code;
    signal(SIGCHLD, SIG_DFL); /* whoever ignores it has no child to wait for */
    fg_hold_begin(&hold);
    fg_hold_signals(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    pid_t parent = getpid(), child = fork();
    if (child > 0) {
        code = conclude(arena, attend(child, &awaited), argc, argv);
    } else { /* the child; or no process could be made, then without the net */
        fg_hold_end(&hold);
        bool wanted = child < 0 || end_with(parent);
        code = wanted ? finish(run(arena, argc, argv)) : FG_EXIT_INPUT;
    }
    fg_arena_free(arena);
    return code;
}
