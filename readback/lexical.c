/* What may stand in an emitted file before any compiler looks at it.
 *
 * The proof reads the file with one compiler and the program is built with another. Nothing in the
 * text may mean different things to the two: so there is one #include, no spliced line, no word
 * that begins with an underscore (a compiler's own names and macros), and no other directive but
 * those that part a program for GPUs in two: the first part is C, the second one CUDA, and each
 * compiler, this one and that one, sees one of them. */
#include "readback/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct Scan {
    const FgReadbackRequest *request;
    FgDiags *diags;
    uint32_t file;
    size_t at, line_start;
    uint32_t line;
    bool included, begun;
    uint32_t parted; /* of the directives that part the text, how many came */
} Scan;

static int at(const Scan *scan, size_t ahead)
{
    size_t i = scan->at + ahead;
    return i < scan->request->len ? (unsigned char)scan->request->text[i] : -1;
}

static void step(Scan *scan)
{
    if (at(scan, 0) == '\n') {
        scan->line++;
        scan->line_start = scan->at + 1;
    }
    scan->at++;
}

static bool fail(Scan *scan, const char *what)
{
    FgLoc loc = {scan->file, scan->line, (uint32_t)(scan->at - scan->line_start + 1)};
    return fg_rb_fail(scan->diags, loc, "%s", what);
}

/* A line that goes on after its end, or a trigraph: three signs that are read as another one. */
static bool spliced(const Scan *scan)
{
    int next = at(scan, 1);
    if (at(scan, 0) == '\\')
        return next == '\n' || next == '\r' || next == ' ' || next == '\t' || next < 0;
    return at(scan, 0) == '?' && next == '?' && at(scan, 2) > 0 && strchr("=/'()!<>-", at(scan, 2));
}

static bool sign_ok(Scan *scan)
{
    int sign = at(scan, 0);
    if (sign == 0 || sign >= 0x80)
        return fail(scan, sign ? "text that is not ASCII stands outside comments and strings"
                               : "a zero byte");
    return !spliced(scan) || fail(scan, "a spliced line or a trigraph");
}

static bool comment(Scan *scan, bool block)
{
    step(scan);
    step(scan);
    while (at(scan, 0) >= 0) {
        if (at(scan, 0) == 0 || spliced(scan))
            return fail(scan, "a spliced line, a trigraph or a zero byte in a comment");
        if (!block && at(scan, 0) == '\n')
            return true;
        if (block && at(scan, 0) == '*' && at(scan, 1) == '/') {
            step(scan);
            step(scan);
            return true;
        }
        step(scan);
    }
    return !block || fail(scan, "a comment that does not end");
}

static bool string(Scan *scan)
{
    step(scan);
    while (at(scan, 0) != '"') {
        if (at(scan, 0) <= 0 || at(scan, 0) == '\n' || spliced(scan))
            return fail(scan, "a string that does not end in its line");
        if (at(scan, 0) == '\\')
            step(scan);
        step(scan);
    }
    step(scan);
    return true;
}

static bool is_line(const Scan *scan, const char *text)
{
    size_t n = strlen(text);
    return scan->at == scan->line_start && scan->at + n <= scan->request->len &&
           memcmp(scan->request->text + scan->at, text, n) == 0 &&
           (at(scan, n) == '\n' || at(scan, n) < 0);
}

static bool directive(Scan *scan)
{
    static const char include[] = "#include \"fg_rt.h\"";
    static const char *const parts[] = {"#ifndef __CUDACC__", "#else", "#endif"};
    if (!scan->included && !scan->begun && is_line(scan, include)) {
        scan->included = true;
        scan->at += sizeof include - 1;
        return true;
    }
    bool first = scan->parted > 0 || (scan->included && !scan->begun);
    if (!first || scan->parted == 3 || !is_line(scan, parts[scan->parted]))
        return fail(scan, "a directive; a program has #include \"fg_rt.h\" alone, before all else, "
                          "and those that part it");
    scan->at += strlen(parts[scan->parted++]);
    return true;
}

/* An index, or none: not the place of a value in a table. */
static bool bracket_ok(const Scan *scan)
{
    return at(scan, 0) != '[' || (at(scan, 1) > 0 && strchr("]ijp", at(scan, 1)));
}

static bool word(Scan *scan)
{
    if (at(scan, 0) == '_')
        return fail(scan, "a word that begins with an underscore belongs to the compiler");
    while (isalnum(at(scan, 0)) || at(scan, 0) == '_' || at(scan, 0) == '.')
        step(scan); /* numbers too */
    return true;
}

static bool one(Scan *scan)
{
    int sign = at(scan, 0);
    if (sign == '/' && (at(scan, 1) == '*' || at(scan, 1) == '/'))
        return comment(scan, at(scan, 1) == '*');
    if (isspace(sign)) {
        step(scan);
        return true;
    }
    if (!sign_ok(scan))
        return false;
    if (sign == '#')
        return directive(scan);
    if (!scan->included || scan->parted == 3)
        return fail(scan, scan->included ? "text behind the end of both parts"
                                         : "the program must begin with #include \"fg_rt.h\"");
    scan->begun = true;
    if (sign == '"')
        return string(scan);
    if (isalnum(sign) || sign == '_')
        return word(scan);
    if (sign == '\\' || sign == '\'' || (sign == '%' && at(scan, 1) != ' ') || !bracket_ok(scan) ||
        (sign == '<' && (at(scan, 1) == ':' || at(scan, 1) == '%')))
        return fail(scan, "a sign that an emitted program does not have");
    step(scan);
    return true;
}

bool fg_rb_lexical(FgDiags *diags, const FgReadbackRequest *request, uint32_t file,
                   bool *out_kernels)
{
    Scan scan = {.request = request, .diags = diags, .file = file, .line = 1};
    while (scan.at < request->len)
        if (!one(&scan))
            return false;
    *out_kernels = scan.parted > 0;
    if (scan.parted == 1 || scan.parted == 2)
        return fail(&scan, "a part that does not end");
    return scan.included || fail(&scan, "the program must begin with #include \"fg_rt.h\"");
}
