/* The command `foregather`: verbs, flags, and what the verbs share.
 *
 * A verb returns the exit code. Errors about input go through diagnostics to standard error; errors
 * about usage are one line and a hint. Results go to standard output. */
#ifndef FG_TOOLS_COMMAND_COMMAND_H
#define FG_TOOLS_COMMAND_COMMAND_H

#include "base/str.h"
#include "base/vec.h"

#include <stdio.h>

typedef enum FgExit {
    FG_EXIT_OK,
    FG_EXIT_INPUT,
    FG_EXIT_USAGE,
    FG_EXIT_DOES_NOT_FIT,
    FG_EXIT_INTERNAL
} FgExit;

typedef enum FgVerb {
    FG_VERB_COMPILE = 1,
    FG_VERB_DUMP = 2,
    FG_VERB_DIFF = 4,
    FG_VERB_TOKENS = 8,
    FG_VERB_VERIFY = 16,
    FG_VERB_PLACE = 32,
    FG_VERB_FRONTIER = 64,
    FG_VERB_EXPLAIN = 128,
    FG_VERB_PROBE = 256,
    /* Those that take every flag of compile: a program's mean nothing to dump and diff. */
    FG_VERBS_COMPILE = FG_VERB_COMPILE | FG_VERB_DUMP | FG_VERB_DIFF,
    /* Flags of a plan; the frontier is that of the compiled schedule alone. */
    FG_VERBS_SCHEDULE = FG_VERBS_COMPILE | FG_VERB_EXPLAIN | FG_VERB_PROBE,
    FG_VERBS_PLAN = FG_VERBS_SCHEDULE | FG_VERB_FRONTIER
} FgVerb;

typedef enum FgFlagId {
#define FG_FLAG(id, ...) FG_FLAG_##id,
#include "tools/command/flags.def"
#undef FG_FLAG
    FG_N_FLAGS
} FgFlagId;

typedef struct FgFlags {
    FgVerb verb;
    const char *values[FG_N_FLAGS]; /* NULL: not given; "" for a switch; the last one given */
    FgStrVec dims;                  /* every --dim */
    FgStrVec files;                 /* what is no flag */
} FgFlags;

/* ---- flags.c ---- */
/* Reads argv[0..argc), the words after the verb; false after a message on standard error. */
bool fg_flags_parse(FgArena *arena, FgVerb verb, int argc, char **argv, FgFlags *out);
/* The flag of a name that the verb has. */
FgFlagId fg_flags_find(const FgFlags *flags, const char *name);
/* Gives a flag a value that did not come from the command line. Returns what the flag takes instead
 * (arena-owned), or NULL when it took it. */
const char *fg_flags_put(FgArena *arena, FgFlags *flags, FgFlagId id, const char *value);
/* Index of the value among the flag's choices; the default's when it was not given. */
uint32_t fg_flags_choice(const FgFlags *flags, FgFlagId id);
/* An integer >= 1, or `otherwise` when the flag was not given. fg_flags_parse has checked it. */
int64_t fg_flags_count(const FgFlags *flags, FgFlagId id, int64_t otherwise);
double fg_flags_number(const FgFlags *flags, FgFlagId id, double otherwise);
/* What --offload says: its classes as a set (FgOffload), and whether it is auto. False for a word
 * that it does not take. */
bool fg_flags_offload(const char *value, uint32_t *out_classes, bool *out_auto);
/* The flags of a verb, one a line, for help. */
void fg_flags_help(FgVerb verb, FgBuf *out);
const char *fg_flag_name(FgFlagId id); /* "--ranks" */
const char *fg_verb_name(FgVerb verb);
/* "foregather VERB: error: ..." and a hint, on standard error. Returns FG_EXIT_USAGE. */
FgExit fg_usage_error(FgVerb verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- help.c ---- */
void fg_help(FgArena *arena);
/* False when there is no such verb. */
bool fg_help_verb(FgArena *arena, const char *verb);

/* ---- verbs ---- */
FgExit fg_cmd_compile(FgArena *arena, const FgFlags *flags);
/* The same; *out_program: where the program is, *out_ranks: how many it has. */
FgExit fg_compile_program(FgArena *arena, const FgFlags *flags, const char **out_program,
                          uint32_t *out_ranks);
FgExit fg_cmd_dump(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_diff(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_tokens(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_verify(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_place(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_frontier(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_explain(FgArena *arena, const FgFlags *flags);
FgExit fg_cmd_probe(FgArena *arena, const FgFlags *flags);

#endif
