/* Tokens of the text form (docs/ir.md). A statement ends with its line, so line ends are tokens. */
#ifndef FG_IR_LEX_H
#define FG_IR_LEX_H

#include "base/diag.h"
#include "base/str.h"

typedef enum FgTokenKind {
    FG_TOKEN_END,    /* of the text */
    FG_TOKEN_LINE,   /* end of a line */
    FG_TOKEN_BAD,    /* reported already */
    FG_TOKEN_WORD,   /* bf16, gather, _ */
    FG_TOKEN_INT,    /* 12, -3 */
    FG_TOKEN_FLOAT,  /* 1.5, 1e-06, inf, nan */
    FG_TOKEN_STRING, /* "text" */
    FG_TOKEN_SYMBOL, /* @name, @"any name" */
    FG_TOKEN_VALUE,  /* %name.12, %12, %name */
    FG_TOKEN_NODE,   /* #12 */
    FG_TOKEN_PUNCT   /* ( ) [ ] { } , : = + and ".." as '.' */
} FgTokenKind;

typedef struct FgToken {
    FgTokenKind kind;
    FgLoc loc;
    const char
        *text; /* WORD; decoded STRING and SYMBOL; name of a VALUE ("" for "%12"); interned */
    char punct;
    bool negative;  /* INT */
    uint64_t whole; /* INT: magnitude; NODE and VALUE: id */
    bool has_id;    /* VALUE */
    double number;  /* INT and FLOAT */
} FgToken;

typedef struct FgLexer {
    FgArena *arena;
    FgIntern *intern;
    FgDiags *diags; /* NULL: errors are not reported (a look ahead over the whole text) */
    uint32_t file;
    const char *text;
    size_t len, pos;
    size_t line_start;
    uint32_t line;
} FgLexer;

void fg_lexer_init(FgLexer *lexer, FgArena *arena, FgIntern *intern, FgDiags *diags, uint32_t file,
                   const char *text, size_t len);
FgToken fg_lex(FgLexer *lexer);
/* Moves to the end of the current line. */
void fg_lex_skip_line(FgLexer *lexer);

#endif
