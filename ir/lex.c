/* The lexer of the text form: one token a call, no backtracking, never past the end of a text that
 * need not be terminated. Comments run from // to the end of the line. */
#include "ir/lex.h"

#include <stdlib.h>
#include <string.h>

void fg_lexer_init(FgLexer *lexer, FgArena *arena, FgIntern *intern, FgDiags *diags, uint32_t file,
                   const char *text, size_t len)
{
    *lexer = (FgLexer){.arena = arena,
                       .intern = intern,
                       .diags = diags,
                       .file = file,
                       .text = text,
                       .len = len,
                       .line = 1};
}

static int peek(const FgLexer *lx, size_t ahead)
{
    return lx->pos + ahead < lx->len ? (unsigned char)lx->text[lx->pos + ahead] : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static FgLoc here(const FgLexer *lx)
{
    return (FgLoc){lx->file, lx->line, (uint32_t)(lx->pos - lx->line_start) + 1};
}

static FgToken bad(const FgLexer *lx, FgLoc loc, const char *message)
{
    if (lx->diags)
        fg_diag(lx->diags, loc, FG_D_IR_SYNTAX, "%s", message);
    return (FgToken){.kind = FG_TOKEN_BAD, .loc = loc};
}

static void skip_blanks(FgLexer *lx)
{
    for (int c = peek(lx, 0); c == ' ' || c == '\t' || c == '\r' || c == '/'; c = peek(lx, 0)) {
        if (c != '/') {
            lx->pos++;
        } else if (peek(lx, 1) == '/') {
            fg_lex_skip_line(lx);
        } else {
            return;
        }
    }
}

void fg_lex_skip_line(FgLexer *lexer)
{
    const char *from = lexer->text + lexer->pos;
    const char *end = memchr(from, '\n', lexer->len - lexer->pos);
    lexer->pos = end ? (size_t)(end - lexer->text) : lexer->len;
}

/* Decimal digits as a number; false when it does not fit. */
static bool to_u64(const char *digits, size_t n, uint64_t *out)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(x, (uint64_t)10, &x) ||
            __builtin_add_overflow(x, (uint64_t)(digits[i] - '0'), &x))
            return false;
    }
    *out = x;
    return true;
}

/* ---- strings ---- */
static int hex_digit(int c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void put_utf8(FgBuf *out, uint32_t c)
{
    char bytes[3];
    size_t n = 0;
    if (c < 0x80) {
        bytes[n++] = (char)c;
    } else if (c < 0x800) {
        bytes[n++] = (char)(0xc0 | c >> 6);
        bytes[n++] = (char)(0x80 | (c & 0x3f));
    } else {
        bytes[n++] = (char)(0xe0 | c >> 12);
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        bytes[n++] = (char)(0x80 | (c & 0x3f));
    }
    fg_buf_put(out, bytes, n);
}

/* After the backslash. False for an escape that JSON does not have, and for a NUL. */
static bool lex_escape(FgLexer *lx, FgBuf *out)
{
    int c = peek(lx, 0);
    if (c < 0) /* the text ends */
        return false;
    lx->pos++;
    if (c == '"' || c == '\\' || c == '/') {
        char same = (char)c;
        fg_buf_put(out, &same, 1);
        return true;
    }
    if (c == 'u') {
        uint32_t code = 0;
        for (size_t i = 0; i < 4; i++) {
            int digit = hex_digit(peek(lx, i));
            if (digit < 0)
                return false;
            code = code * 16 + (uint32_t)digit;
        }
        lx->pos += 4;
        put_utf8(out, code);
        return code != 0;
    }
    const char *names = "bfnrt", *at = c ? strchr(names, c) : NULL;
    if (!at)
        return false;
    fg_buf_put(out, &"\b\f\n\r\t"[at - names], 1);
    return true;
}

static FgToken lex_string(FgLexer *lx, FgTokenKind kind, FgLoc loc)
{
    FgBuf out;
    fg_buf_init(&out, lx->arena);
    lx->pos++;
    for (;;) {
        int c = peek(lx, 0);
        if (c == -1 || c == '\n')
            return bad(lx, loc, "the string does not end");
        if (c == 0)
            return bad(lx, here(lx), "a NUL in a string");
        if (c == '"')
            break;
        lx->pos++;
        if (c == '\\') {
            FgLoc escape = here(lx);
            if (!lex_escape(lx, &out))
                return bad(lx, escape, "no such escape in a string");
        } else {
            fg_buf_put(&out, lx->text + lx->pos - 1, 1);
        }
    }
    lx->pos++;
    return (FgToken){.kind = kind, .loc = loc, .text = fg_intern(lx->intern, fg_buf_text(&out))};
}

/* ---- names ---- */
static bool symbol_char(int c)
{
    return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '/';
}

static FgToken lex_symbol(FgLexer *lx, FgLoc loc)
{
    lx->pos++;
    if (peek(lx, 0) == '"')
        return lex_string(lx, FG_TOKEN_SYMBOL, loc);
    size_t start = lx->pos;
    while (symbol_char(peek(lx, 0)))
        lx->pos++;
    if (lx->pos == start)
        return bad(lx, loc, "a name must follow the @");
    const char *name = fg_internn(lx->intern, lx->text + start, lx->pos - start);
    return (FgToken){.kind = FG_TOKEN_SYMBOL, .loc = loc, .text = name};
}

/* "%name.12" has both, "%12" an id, "%name" a name; the id is what follows the last dot, if it is a
 * number. */
static FgToken lex_value(FgLexer *lx, FgLoc loc)
{
    size_t start = ++lx->pos;
    while (is_letter(peek(lx, 0)) || is_digit(peek(lx, 0)) || peek(lx, 0) == '.')
        lx->pos++;
    const char *name = lx->text + start;
    size_t n = lx->pos - start, digits = 0;
    while (digits < n && is_digit(name[n - 1 - digits]))
        digits++;
    FgToken t = {.kind = FG_TOKEN_VALUE, .loc = loc};
    t.has_id = digits && (digits == n || name[n - 1 - digits] == '.');
    if (t.has_id && !to_u64(name + n - digits, digits, &t.whole))
        return bad(lx, loc, "the id of this value is too large");
    size_t name_len = !t.has_id ? n : digits == n ? 0 : n - digits - 1;
    if (name_len == 0 && !(t.has_id && digits == n))
        return bad(lx, loc, "a name must follow the %");
    t.text = fg_internn(lx->intern, name, name_len);
    return t;
}

static FgToken lex_node(FgLexer *lx, FgLoc loc)
{
    size_t start = ++lx->pos;
    while (is_digit(peek(lx, 0)))
        lx->pos++;
    FgToken t = {.kind = FG_TOKEN_NODE, .loc = loc};
    if (lx->pos == start || !to_u64(lx->text + start, lx->pos - start, &t.whole))
        return bad(lx, loc, "the number of a node must follow the #");
    return t;
}

static FgToken lex_word(FgLexer *lx, FgLoc loc)
{
    size_t start = lx->pos;
    while (is_letter(peek(lx, 0)) || is_digit(peek(lx, 0)))
        lx->pos++;
    const char *word = fg_internn(lx->intern, lx->text + start, lx->pos - start);
    if (strcmp(word, "inf") == 0 || strcmp(word, "nan") == 0)
        return (FgToken){.kind = FG_TOKEN_FLOAT, .loc = loc, .number = strtod(word, NULL)};
    return (FgToken){.kind = FG_TOKEN_WORD, .loc = loc, .text = word};
}

/* ---- numbers ---- */
static void skip_digits(FgLexer *lx)
{
    while (is_digit(peek(lx, 0)))
        lx->pos++;
}

static FgToken lex_number(FgLexer *lx, FgLoc loc)
{
    size_t start = lx->pos;
    bool negative = peek(lx, 0) == '-', integer = true;
    lx->pos += negative;
    if (negative && peek(lx, 0) == 'i' && peek(lx, 1) == 'n' && peek(lx, 2) == 'f') {
        lx->pos += 3;
        return (FgToken){.kind = FG_TOKEN_FLOAT, .loc = loc, .number = -strtod("inf", NULL)};
    }
    size_t digits = lx->pos;
    skip_digits(lx);
    size_t n_digits = lx->pos - digits;
    if (n_digits == 0)
        return bad(lx, loc, "digits must follow the sign");
    if (peek(lx, 0) == '.' && is_digit(peek(lx, 1))) {
        integer = false;
        lx->pos++;
        skip_digits(lx);
    }
    if (peek(lx, 0) == 'e' || peek(lx, 0) == 'E') {
        size_t sign = peek(lx, 1) == '-' || peek(lx, 1) == '+' ? 1 : 0;
        if (!is_digit(peek(lx, 1 + sign)))
            return bad(lx, here(lx), "digits must follow the exponent");
        integer = false;
        lx->pos += 1 + sign;
        skip_digits(lx);
    }
    const char *text = fg_arena_strndup(lx->arena, lx->text + start, lx->pos - start);
    FgToken t = {.kind = integer ? FG_TOKEN_INT : FG_TOKEN_FLOAT, .loc = loc, .negative = negative};
    t.number = strtod(text, NULL);
    if (integer && !to_u64(lx->text + digits, n_digits, &t.whole))
        return bad(lx, loc, "the number does not fit 64 bits");
    return t;
}

FgToken fg_lex(FgLexer *lexer)
{
    skip_blanks(lexer);
    FgLoc loc = here(lexer);
    int c = peek(lexer, 0);
    if (c == -1)
        return (FgToken){.kind = FG_TOKEN_END, .loc = loc};
    if (c == '\n') {
        lexer->pos++;
        lexer->line++;
        lexer->line_start = lexer->pos;
        return (FgToken){.kind = FG_TOKEN_LINE, .loc = loc};
    }
    if (is_letter(c))
        return lex_word(lexer, loc);
    if (is_digit(c) || c == '-')
        return lex_number(lexer, loc);
    if (c == '"')
        return lex_string(lexer, FG_TOKEN_STRING, loc);
    if (c == '@')
        return lex_symbol(lexer, loc);
    if (c == '%')
        return lex_value(lexer, loc);
    if (c == '#')
        return lex_node(lexer, loc);
    lexer->pos++;
    if (c == '.' && peek(lexer, 0) == '.') {
        lexer->pos++;
        return (FgToken){.kind = FG_TOKEN_PUNCT, .loc = loc, .punct = '.'};
    }
    if (c && strchr("()[]{},:=+", c))
        return (FgToken){.kind = FG_TOKEN_PUNCT, .loc = loc, .punct = (char)c};
    return bad(lexer, loc, "no IR starts with this character");
}
