/* Expectations are matched against rendered messages, as a user sees them: "name:line:col: error:
 * text [id]". */
#include "tools/expect.h"

#include "base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Line {
    const char *severity; /* "error", "warning", "note" */
    long line;            /* 0: at no place */
    const char *text;
    bool matched;
} Line;

typedef FG_VEC(Line) Lines;

static const char *const severities[] = {"error", "warning", "note"};

/* "@+1", "@-1", "@12", "@none", or nothing, for a comment on `here`. */
static long expected_line(const char *at, long here, const char **out_rest)
{
    *out_rest = at;
    if (*at != '@')
        return here;
    if (strncmp(at, "@none", 5) == 0) {
        *out_rest = at + 5;
        return 0;
    }
    char *end;
    long n = strtol(at + 1, &end, 10);
    *out_rest = end;
    return at[1] == '+' || at[1] == '-' ? here + n : n;
}

/* Expectations in one source line. */
static bool scan_line(FgArena *arena, const char *line, long number, Lines *out)
{
    for (const char *p = strstr(line, "expect-"); p; p = strstr(p, "expect-")) {
        p += strlen("expect-");
        for (size_t i = 0; i < sizeof severities / sizeof *severities; i++) {
            size_t n = strlen(severities[i]);
            if (strncmp(p, severities[i], n) != 0)
                continue;
            const char *rest, *close;
            long at = expected_line(p + n, number, &rest);
            rest += strspn(rest, " ");
            close = strncmp(rest, "{{", 2) == 0 ? strstr(rest, "}}") : NULL;
            if (!close) {
                fprintf(stderr, "line %ld: an expectation needs {{text}}\n", number);
                return false;
            }
            const char *text = fg_arena_strndup(arena, rest + 2, (size_t)(close - rest - 2));
            fg_vec_push(arena, out, ((Line){severities[i], at, text, false}));
            p = close;
            break;
        }
    }
    return true;
}

static bool scan_expected(FgArena *arena, const char *text, size_t len, Lines *out)
{
    long number = 1;
    for (size_t at = 0; at < len; number++) {
        size_t n = strcspn(text + at, "\n");
        if (!scan_line(arena, fg_arena_strndup(arena, text + at, n), number, out))
            return false;
        at += n + 1;
    }
    return true;
}

/* One rendered line, if it begins a message. */
static void scan_message(FgArena *arena, const char *name, const char *line, Lines *out)
{
    long number = 0;
    size_t n = strlen(name);
    if (strncmp(line, name, n) == 0 && line[n] == ':') {
        char *end;
        number = strtol(line + n + 1, &end, 10);
        line = end + strspn(end, ":0123456789");
        line += strspn(line, " ");
    }
    for (size_t i = 0; i < sizeof severities / sizeof *severities; i++) {
        size_t s = strlen(severities[i]);
        const char *at = strncmp(line, severities[i], s) == 0 ? line : NULL;
        /* In another file, or at no place: the severity follows the place. */
        if (!at && !number)
            at = strstr(line, fg_arena_printf(arena, ": %s: ", severities[i]));
        if (at && at != line)
            at += 2;
        if (!at || strncmp(at + s, ": ", 2) != 0 || line[0] == ' ')
            continue;
        fg_vec_push(arena, out, ((Line){severities[i], number, at + s + 2, false}));
        return;
    }
}

static bool match(const Line *message, Line *expected)
{
    if (expected->matched || expected->line != message->line ||
        strcmp(expected->severity, message->severity) != 0 ||
        !strstr(message->text, expected->text))
        return false;
    return expected->matched = true;
}

bool fg_expect_check(FgArena *arena, const char *name, const char *text, size_t len,
                     const char *messages)
{
    Lines expected = {0}, seen = {0};
    if (!scan_expected(arena, text, len, &expected))
        return false;
    while (*messages) {
        size_t n = strcspn(messages, "\n");
        scan_message(arena, name, fg_arena_strndup(arena, messages, n), &seen);
        messages += n + (messages[n] == '\n');
    }
    bool ok = true;
    for (uint32_t i = 0; i < seen.len; i++) {
        bool found = false;
        for (uint32_t k = 0; k < expected.len && !found; k++)
            found = match(&seen.data[i], &expected.data[k]);
        if (found || strcmp(seen.data[i].severity, "note") == 0)
            continue;
        fprintf(stderr, "%s:%ld: not expected: %s: %s\n", name, seen.data[i].line,
                seen.data[i].severity, seen.data[i].text);
        ok = false;
    }
    for (uint32_t k = 0; k < expected.len; k++) {
        if (expected.data[k].matched)
            continue;
        fprintf(stderr, "%s:%ld: expected and missing: %s: %s\n", name, expected.data[k].line,
                expected.data[k].severity, expected.data[k].text);
        ok = false;
    }
    return ok;
}
