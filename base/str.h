/* Text: a growing buffer in an arena, interning, and small helpers. */
#ifndef FG_BASE_STR_H
#define FG_BASE_STR_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct FgBuf {
    FgArena *arena;
    char *data; /* always terminated once something was written; NULL while empty */
    size_t len, cap;
} FgBuf;

void fg_buf_init(FgBuf *buf, FgArena *arena);
void fg_buf_put(FgBuf *buf, const char *s, size_t n);
void fg_buf_puts(FgBuf *buf, const char *s);
void fg_buf_printf(FgBuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *fg_buf_text(const FgBuf *buf); /* "" while empty */

/* Shortest decimal text that reads back as the same double; always has a '.' or an exponent, so
 * that it cannot be taken for an integer ("1.0", "1e-06", "inf", "-inf", "nan"). Arena-owned. */
const char *fg_double_text(FgArena *arena, double x);
/* Quoted, with JSON escapes. Arena-owned. */
const char *fg_quoted(FgArena *arena, const char *s);
/* "14.57 GiB", "120.5 MiB", "12 B": for people. Arena-owned. */
const char *fg_bytes_text(FgArena *arena, uint64_t bytes);
/* Digits grouped by commas: "1,235,814,400". Arena-owned. */
const char *fg_count_text(FgArena *arena, uint64_t n);
/* A whole number in decimal, with a sign or none: false when the text is more, or less, or the
 * number takes more than 64 bits. */
bool fg_parse_integer(const char *text, int64_t *out);
/* "15360MiB", "14.57GiB", "2GB", "1024", "1 KB": false when it is no size or does not fit. Units:
 * KB MB GB TB are powers of 1000, KiB MiB GiB TiB of 1024; case is ignored, a space before the unit
 * allowed. */
bool fg_parse_bytes(const char *text, uint64_t *out_bytes);

/* Interning: equal texts give equal pointers. */
typedef struct FgIntern FgIntern;
FgIntern *fg_intern_new(FgArena *arena);
/* Texts that `base` has are the same; others are added here. */
FgIntern *fg_intern_above(FgArena *arena, const FgIntern *base);
const char *fg_intern(FgIntern *intern, const char *s);
const char *fg_internn(FgIntern *intern, const char *s, size_t n);

/* Edit distance, for "did you mean": the closest of n candidates, or NULL when none is near. */
const char *fg_closest(const char *word, const char *const *candidates, uint32_t n);

#endif
