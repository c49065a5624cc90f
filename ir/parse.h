/* The parser's own state, shared by its three files: parse_token.c (tokens, ids, places),
 * parse_decl.c (declarations), parse_node.c (functions and nodes); parse.c drives them. Functions
 * return false after an error was reported; the driver then goes on with the next line. */
#ifndef FG_IR_PARSE_H
#define FG_IR_PARSE_H

#include "base/map.h"
#include "ir/lex.h"
#include "ir/text.h"

/* What the text has said of a value so far. */
typedef struct FgSeen {
    bool declared;
    const char *name; /* NULL before the first mention with a name */
    FgLoc first;      /* first mention */
} FgSeen;

typedef struct FgParser {
    FgModule *m;
    FgLexer lex;
    FgToken t;                      /* the current token */
    FgMap symbols;                  /* names of values written without an id -> id */
    FgMap files;                    /* names in loc(...) -> source id */
    FG_VEC(FgSeen) seen;            /* by value id */
    FG_VEC(bool) node_seen;         /* by node id: stands in the text */
    uint32_t next_value, next_node; /* fresh ids for what is written without one */
    uint64_t id_limit;
} FgParser;

/* ---- tokens ---- */
void fg_parse_next(FgParser *p);
bool fg_parse_error(FgParser *p, FgLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "expected <what>" at the current token. */
bool fg_parse_expected(FgParser *p, const char *what);
bool fg_parse_is_punct(const FgParser *p, char c);
bool fg_parse_is_word(const FgParser *p, const char *word);
bool fg_parse_take(FgParser *p, char c); /* true, and the token is consumed, when it is `c` */
bool fg_parse_punct(FgParser *p, char c);
bool fg_parse_word(FgParser *p, const char *what, const char **out);
bool fg_parse_string(FgParser *p, const char **out);
bool fg_parse_symbol(FgParser *p, const char **out);
bool fg_parse_u64(FgParser *p, uint64_t *out);
bool fg_parse_u32(FgParser *p, uint32_t *out);
bool fg_parse_i64(FgParser *p, int64_t *out);
bool fg_parse_double(FgParser *p, double *out);
bool fg_parse_u32_list(FgParser *p, const uint32_t **out, uint32_t *out_n); /* (1, 2, 3) */
bool fg_parse_i64_list(FgParser *p, const int64_t **out, uint32_t *out_n);  /* [1, 2, 3] */
bool fg_parse_line_end(FgParser *p);
/* A word out of n names; *out is its index. */
bool fg_parse_choice(FgParser *p, const char *what, const char *(*name)(uint32_t), uint32_t n,
                     uint32_t *out);

/* ---- shared pieces ---- */
bool fg_parse_dtype(FgParser *p, FgDtype *out);
bool fg_parse_type(FgParser *p, const FgType **out);
bool fg_parse_loc(FgParser *p, FgLoc *out); /* after the word loc */
bool fg_parse_node_ref(FgParser *p, uint32_t *out);
/* A mention of a value: its id, with room in all tables. */
bool fg_parse_value(FgParser *p, uint32_t *out);
/* [in %root+offset] [mem(class)] [at(address)] */
bool fg_parse_place(FgParser *p, FgValue *value);
/* Enters a value whose fields are known. */
bool fg_parse_declare(FgParser *p, FgLoc loc, const FgValue *value);
/* An empty value of this id, to fill and declare. */
FgValue fg_parse_blank_value(FgParser *p, uint32_t id, const FgType *type);
void fg_parse_room_for_node(FgParser *p, uint32_t id);
void fg_parse_room_for_value(FgParser *p, uint32_t id);

/* ---- statements: after their keyword ---- */
bool fg_parse_module_line(FgParser *p);
bool fg_parse_memory(FgParser *p);
bool fg_parse_plan(FgParser *p);
bool fg_parse_param(FgParser *p);
bool fg_parse_input(FgParser *p);
bool fg_parse_bucket(FgParser *p);
bool fg_parse_state(FgParser *p);
bool fg_parse_func(FgParser *p);
/* Skips the rest of the line; the next token is the first of the next line. */
void fg_parse_recover(FgParser *p);

#endif
