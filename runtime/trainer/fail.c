/* Messages and memory. Text is built by two passes of vsnprintf: measure, then write. */
#include "runtime/trainer/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *fg_new(size_t n, size_t item_bytes)
{
    void *memory = calloc(n ? n : 1, item_bytes ? item_bytes : 1);
    if (!memory) {
        fprintf(stderr, "out of memory: %zu items of %zu bytes\n", n, item_bytes);
        abort();
    }
    return memory;
}

char *fg_textv(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        length = 0;
    char *text = fg_new((size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

char *fg_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = fg_textv(format, args);
    va_end(args);
    return text;
}

bool fg_fail(FgFail *fail, const char *format, ...)
{
    if (fail->text)
        return false;
    va_list args;
    va_start(args, format);
    fail->text = fg_textv(format, args);
    va_end(args);
    return false;
}

bool fg_file_fault(FgFail *fail, FgFaultKind kind)
{
    if (!fg_fault_hits(fail->fault, kind, fail->rank))
        return false;
    errno = kind == FG_FAULT_WRITE ? ENOSPC : EIO;
    return true;
}

void fg_fail_add(FgFail *fail, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *more = fg_textv(format, args);
    va_end(args);
    char *old = fail->text;
    fail->text = old ? fg_text("%s%s", old, more) : more;
    if (old) {
        free(old);
        free(more);
    }
}

void fg_fail_clear(FgFail *fail)
{
    free(fail->text);
    fail->text = NULL;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein with one row; `row` has room for length of b + 1. */
static size_t distance(const char *a, const char *b, size_t *row)
{
    size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = least(change, least(row[j], diagonal) + 1);
        }
    }
    return row[n];
}

const char *fg_nearest(const char *word, const char *const *words, size_t n)
{
    const char *best = NULL;
    size_t limit = strlen(word) / 3 + 1, best_distance = limit + 1;
    for (size_t i = 0; i < n; i++) {
        size_t *row = fg_new(strlen(words[i]) + 1, sizeof *row);
        size_t d = distance(word, words[i], row);
        free(row);
        if (d < best_distance) {
            best_distance = d;
            best = words[i];
        }
    }
    return best;
}
