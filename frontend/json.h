/* JSON with positions: Jansson decodes, a scanner of our own (json_scan.c) checks the syntax first
 * and records where each key and value stands, and the two are zipped into one tree whose every
 * value knows its line and column.
 *
 * Also the checks that every JSON input needs: unknown keys with a suggestion, missing keys, wrong
 * types. The tree and its texts live in the context's arena. */
#ifndef FG_FRONTEND_JSON_H
#define FG_FRONTEND_JSON_H

#include "base/diag.h"
#include "base/map.h"
#include "base/vec.h"

typedef enum FgJsonKind {
    FG_JSON_NULL,
    FG_JSON_BOOL,
    FG_JSON_INT,
    FG_JSON_REAL,
    FG_JSON_STRING,
    FG_JSON_LIST,
    FG_JSON_OBJECT,
    FG_N_JSON_KINDS
} FgJsonKind;

/* Sets of kinds, for the checks. */
enum {
    FG_JSON_IS_BOOL = 1 << FG_JSON_BOOL,
    FG_JSON_IS_INT = 1 << FG_JSON_INT,
    FG_JSON_IS_NUMBER = 1 << FG_JSON_INT | 1 << FG_JSON_REAL,
    FG_JSON_IS_STRING = 1 << FG_JSON_STRING,
    FG_JSON_IS_LIST = 1 << FG_JSON_LIST,
    FG_JSON_IS_OBJECT = 1 << FG_JSON_OBJECT
};

typedef struct FgJson {
    FgJsonKind kind;
    uint32_t id;     /* number of the value in document order */
    FgLoc loc;       /* its first byte */
    const char *key; /* member of an object: its key; NULL otherwise */
    FgLoc key_loc;
    bool escaped;               /* STRING: holds escapes, so columns inside it are not known */
    int64_t i;                  /* INT, BOOL */
    double f;                   /* INT, REAL */
    const char *text;           /* STRING */
    const struct FgJson *items; /* LIST, OBJECT: in document order */
    uint32_t n_items;
} FgJson;

/* Reports once for each place and message id: a fault inside a `repeat` shows once, not once a
 * layer. */
typedef struct FgJsonCx {
    FgArena *arena;
    FgDiags *diags;
    FgMap reported;
    uint32_t n_values; /* of the document read last */
    bool failed;       /* an error was reported, or would have been a second time */
} FgJsonCx;

void fg_json_init(FgJsonCx *cx, FgArena *arena, FgDiags *diags);
/* NULL after errors. Registers the source; name and text must outlive the diagnostics. */
const FgJson *fg_json_parse(FgJsonCx *cx, const char *name, const char *text, size_t len);

/* Returns true when the message was new: then notes may follow. */
bool fg_json_report(FgJsonCx *cx, FgLoc loc, FgDiagId id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A note "did you mean 'x'?" when a candidate is near. */
void fg_json_suggest(FgJsonCx *cx, const char *word, const char *const *candidates, uint32_t n);

const FgJson *fg_json_get(const FgJson *object, const char *key); /* NULL when absent */
/* Reports a wrong kind; `kinds` is a set of FG_JSON_IS_*, `what` names the value. */
bool fg_json_is(FgJsonCx *cx, const FgJson *value, int kinds, const char *what);
/* A member of the right kind, or NULL: absent (an error for `need`) or wrong (reported). */
const FgJson *fg_json_need(FgJsonCx *cx, const FgJson *object, const char *key, int kinds);
const FgJson *fg_json_want(FgJsonCx *cx, const FgJson *object, const char *key, int kinds);
/* Reports every key that is not among `keys` ("comment" always is). `what` names the object: "a
 * node". */
void fg_json_check_keys(FgJsonCx *cx, const FgJson *object, const char *what,
                        const char *const *keys, uint32_t n_keys);

/* ---- internal: json_scan.c ---- */
typedef struct FgJsonToken {
    FgLoc loc, key_loc;
    bool escaped;
} FgJsonToken;
typedef FG_VEC(FgJsonToken) FgJsonTokens;

/* Positions of all values in document order. False after a syntax error, nesting beyond 200 levels,
 * or a key given twice in one object. */
bool fg_json_scan(FgJsonCx *cx, uint32_t file, const char *text, size_t len, FgJsonTokens *out);

#endif
