/* Reading flags: one table (flags.def) gives spelling, verbs, values and help, so that a flag means
 * the same everywhere. */
#include "base/diag.h"
#include "base/file.h"
#include "base/str.h"
#include "ir/ir.h"
#include "tools/command/command.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 65536 /* more than any machine has: a slip */

typedef struct Flag {
    const char *name;
    unsigned verbs;
    const char *value, *choices, *help;
} Flag;

static const Flag table[FG_N_FLAGS] = {
#define FG_FLAG(id, name, verbs, value, choices, help) {name, verbs, value, choices, help},
#include "tools/command/flags.def"
#undef FG_FLAG
};

const char *fg_flag_name(FgFlagId id)
{
    return table[id].name;
}

const char *fg_verb_name(FgVerb verb)
{
    switch (verb) {
    case FG_VERB_COMPILE:
        return "compile";
    case FG_VERB_DUMP:
        return "dump";
    case FG_VERB_DIFF:
        return "diff";
    case FG_VERB_TOKENS:
        return "tokens";
    case FG_VERB_VERIFY:
        return "verify";
    case FG_VERB_PLACE:
        return "place";
    case FG_VERB_FRONTIER:
        return "frontier";
    case FG_VERB_EXPLAIN:
        return "explain";
    case FG_VERB_PROBE:
        return "probe";
    case FG_VERBS_COMPILE:
    case FG_VERBS_SCHEDULE:
    case FG_VERBS_PLAN:
    default:
        return "";
    }
}

FgExit fg_usage_error(FgVerb verb, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "foregather %s: error: ", fg_verb_name(verb));
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\ntry 'foregather help %s'\n", fg_verb_name(verb));
    return FG_EXIT_USAGE;
}

static bool is_switch(const Flag *flag)
{
    return *flag->value == 0;
}

/* The flag that a word spells, with or without "=value"; -1 when there is none for the verb. */
static int find_flag(FgVerb verb, const char *word)
{
    size_t len = strcspn(word, "=");
    for (int i = 0; i < FG_N_FLAGS; i++) {
        if ((table[i].verbs & verb) && strlen(table[i].name) == len &&
            memcmp(table[i].name, word, len) == 0)
            return i;
    }
    return -1;
}

static bool unknown_flag(FgArena *arena, FgVerb verb, const char *word)
{
    const char *names[FG_N_FLAGS];
    uint32_t n = 0;
    const char *name = fg_arena_strndup(arena, word, strcspn(word, "="));
    for (int i = 0; i < FG_N_FLAGS; i++) {
        if (table[i].verbs & verb)
            names[n++] = table[i].name;
    }
    const char *near = fg_closest(name, names, n);
    if (near)
        fg_usage_error(verb, "unknown flag '%s'; did you mean '%s'?", name, near);
    else
        fg_usage_error(verb, "unknown flag '%s'", name);
    return false;
}

/* Index of a word in a space-separated list, or -1. */
static int find_choice(const char *choices, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0; *choices; i++) {
        size_t len = strcspn(choices, " ");
        if (len == n && memcmp(choices, word, n) == 0)
            return i;
        choices += len + strspn(choices + len, " ");
    }
    return -1;
}

static bool is_count(const char *text)
{
    int64_t n;
    return fg_parse_integer(text, &n) && n >= 1 && n <= INT32_MAX;
}

/* A number of elements, 5e7 as well as 50000000. */
static bool is_elements(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    return *end == 0 && end != text && x >= 0 && x <= 1e18 && x == floor(x);
}

static bool is_limit(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    return *end == 0 && end != text && isfinite(x) && x > 0;
}

static bool is_dim(const char *text)
{
    const char *equals = strchr(text, '=');
    int64_t n;
    return equals && equals != text && fg_parse_integer(equals + 1, &n) && n >= 1;
}

bool fg_flags_offload(const char *value, uint32_t *out_classes, bool *out_auto)
{
    *out_classes = FG_OFFLOAD_NONE;
    *out_auto = strcmp(value, "auto") == 0;
    if (*out_auto || strcmp(value, "none") == 0)
        return true;
    for (size_t n; *value; value += n + (value[n] == ',' && value[n + 1])) {
        uint32_t one = FG_OFFLOAD_OPTIMIZER;
        n = strcspn(value, ",");
        while (one & FG_OFFLOAD_ALL && (strlen(fg_offload_name((FgOffload)one)) != n ||
                                        strncmp(fg_offload_name((FgOffload)one), value, n) != 0))
            one <<= 1;
        if (!(one & FG_OFFLOAD_ALL))
            return false;
        *out_classes |= one;
    }
    return *out_classes != FG_OFFLOAD_NONE;
}

/* What the flag takes, when it is not this value; NULL otherwise. What a value must look like
 * follows from how help shows it. */
static const char *refuse_value(FgArena *arena, const Flag *flag, const char *value)
{
    uint64_t bytes = 0;
    uint32_t classes;
    bool is_auto;
    const char *wanted = NULL;
    if (*flag->choices && find_choice(flag->choices, value) < 0)
        return fg_arena_printf(arena, "one of: %s", flag->choices);
    if (strcmp(flag->value, "N") == 0 && !is_count(value))
        wanted = strspn(value, "0123456789") == strlen(value) && strlen(value) > 9
                     ? "a whole number from 1 to 2147483647"
                     : "a whole number from 1 on";
    else if (flag == &table[FG_FLAG_ranks] && strtol(value, NULL, 10) > MAX_RANKS)
        wanted = "at most 65536 ranks";
    else if (strcmp(flag->value, "X") == 0 && !is_limit(value))
        wanted = "a number greater than 0";
    else if (strcmp(flag->value, "ELEMENTS") == 0 && !is_elements(value))
        wanted = "a whole number of elements, such as 5e7";
    else if (flag == &table[FG_FLAG_offload] && !fg_flags_offload(value, &classes, &is_auto))
        wanted = "none, auto, or some of optimizer,activations,parameters";
    else if (strcmp(flag->value, "NAME=N") == 0 && !is_dim(value))
        wanted = "NAME=N with N from 1 on";
    else if (strcmp(flag->value, "SIZE") == 0 && (!fg_parse_bytes(value, &bytes) || bytes == 0))
        wanted = "a size such as 15360MiB, 14.57GiB or 8000000000";
    else if (strcmp(flag->value, "SIZE") == 0 && bytes >= FG_HOST_BASE)
        wanted = "a size below 4194304TiB (2^62 bytes)"; /* addresses beyond mean host memory */
    else if (*value == 0)
        wanted = "a value that is not empty";
    return wanted;
}

static bool check_value(FgArena *arena, FgVerb verb, const Flag *flag, const char *value)
{
    const char *wanted = refuse_value(arena, flag, value);
    if (wanted)
        fg_usage_error(verb, "%s takes %s; not '%s'", flag->name, wanted, value);
    return !wanted;
}

/* Reads the flag at argv[*at]; leaves *at at its last word. */
static bool parse_flag(FgArena *arena, FgFlags *flags, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    int id = find_flag(flags->verb, word);
    if (id < 0)
        return unknown_flag(arena, flags->verb, word);
    const Flag *flag = &table[id];
    const char *value = equals ? equals + 1 : "";
    if (is_switch(flag) && equals) {
        fg_usage_error(flags->verb, "%s takes no value", flag->name);
        return false;
    }
    if (!is_switch(flag) && !equals) {
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0) {
            fg_usage_error(flags->verb, "%s needs a value: %s", flag->name, flag->value);
            return false;
        }
        value = argv[++*at];
    }
    if (!is_switch(flag) && !check_value(arena, flags->verb, flag, value))
        return false;
    flags->values[id] = value;
    if (id == FG_FLAG_dim)
        fg_vec_push(arena, &flags->dims, value);
    return true;
}

bool fg_flags_parse(FgArena *arena, FgVerb verb, int argc, char **argv, FgFlags *out)
{
    bool only_files = false;
    *out = (FgFlags){.verb = verb};
    for (int i = 0; i < argc; i++) {
        if (!only_files && strcmp(argv[i], "--") == 0)
            only_files = true;
        else if (only_files || argv[i][0] != '-' || argv[i][1] == 0)
            fg_vec_push(arena, &out->files, argv[i]);
        else if (!parse_flag(arena, out, argc, argv, &i))
            return false;
    }
    return true;
}

FgFlagId fg_flags_find(const FgFlags *flags, const char *name)
{
    int id = find_flag(flags->verb, name);
    FG_ASSERT(id >= 0);
    return (FgFlagId)id;
}

const char *fg_flags_put(FgArena *arena, FgFlags *flags, FgFlagId id, const char *value)
{
    const char *wanted = refuse_value(arena, &table[id], value);
    if (!wanted)
        flags->values[id] = value;
    return wanted;
}

uint32_t fg_flags_choice(const FgFlags *flags, FgFlagId id)
{
    return flags->values[id] ? (uint32_t)find_choice(table[id].choices, flags->values[id]) : 0;
}

int64_t fg_flags_count(const FgFlags *flags, FgFlagId id, int64_t otherwise)
{
    return flags->values[id] ? strtoll(flags->values[id], NULL, 10) : otherwise;
}

double fg_flags_number(const FgFlags *flags, FgFlagId id, double otherwise)
{
    return flags->values[id] ? strtod(flags->values[id], NULL) : otherwise;
}

static const char *shown_value(FgArena *arena, const Flag *flag)
{
    FgBuf text;
    fg_buf_init(&text, arena);
    for (const char *c = *flag->choices ? flag->choices : flag->value; *c; c++)
        fg_buf_put(&text, *c == ' ' ? "|" : c, 1);
    return fg_buf_text(&text);
}

void fg_flags_help(FgVerb verb, FgBuf *out)
{
    for (int i = 0; i < FG_N_FLAGS; i++) {
        if (!(table[i].verbs & verb))
            continue;
        const char *left =
            fg_arena_printf(out->arena, "%s %s", table[i].name, shown_value(out->arena, &table[i]));
        fg_buf_printf(out, "  %-36s %s\n", left, table[i].help);
    }
}
