/* The scanner: a strict JSON syntax check without recursion that keeps the position of each key and
 * value.
 *
 * It runs before Jansson sees the text, so nesting is bounded before anything recursive touches it,
 * and syntax errors name what was expected at the very byte. */
#include "frontend/json.h"

#include <ctype.h>
#include <string.h>

#define DEPTH_LIMIT 200u

typedef struct Frame {
    bool object;
    FgMap keys; /* raw key text -> index into Scan.key_locs */
} Frame;

typedef struct Scan {
    FgJsonCx *cx;
    const char *p, *end, *line_start;
    uint32_t file, line;
    FG_VEC(Frame) frames;
    FG_VEC(FgLoc) key_locs;
    FgJsonTokens *tokens;
    FgLoc key_loc; /* of the member whose value comes next */
    bool opened;   /* the last token opened a list or an object: no comma yet */
    bool duplicates;
} Scan;

static FgLoc here(const Scan *scan)
{
    return (FgLoc){scan->file, scan->line, (uint32_t)(scan->p - scan->line_start) + 1};
}

static bool wrong(Scan *scan, const char *expected)
{
    char found[8] = "end";
    if (scan->p < scan->end) {
        unsigned char c = (unsigned char)*scan->p;
        if (isprint(c))
            snprintf(found, sizeof found, "'%c'", c);
        else
            snprintf(found, sizeof found, "0x%02x", c);
    }
    const char *tail = scan->p < scan->end ? "" : " of the text";
    fg_json_report(scan->cx, here(scan), FG_D_JSON_SYNTAX, "expected %s, found %s%s", expected,
                   found, tail);
    return false;
}

static void skip_space(Scan *scan)
{
    for (; scan->p < scan->end; scan->p++) {
        if (*scan->p == '\n') {
            scan->line++;
            scan->line_start = scan->p + 1;
        } else if (*scan->p != ' ' && *scan->p != '\t' && *scan->p != '\r') {
            return;
        }
    }
}

static bool at(const Scan *scan, char c)
{
    return scan->p < scan->end && *scan->p == c;
}

static bool scan_escape(Scan *scan)
{
    scan->p++;
    if (scan->p >= scan->end || !*scan->p || !strchr("\"\\/bfnrtu", *scan->p))
        return wrong(scan, "one of \" \\ / b f n r t u after a backslash");
    if (*scan->p++ != 'u')
        return true;
    for (int i = 0; i < 4; i++, scan->p++) {
        if (scan->p >= scan->end || !isxdigit((unsigned char)*scan->p))
            return wrong(scan, "four hexadecimal digits after \\u");
    }
    if (memcmp(scan->p - 4, "0000", 4) != 0)
        return true;
    scan->p -= 6;
    fg_json_report(scan->cx, here(scan), FG_D_JSON_SYNTAX,
                   "\\u0000 has no place in a name or text");
    return false;
}

/* From the opening quote to behind the closing one. */
static bool scan_string(Scan *scan, bool *out_escaped)
{
    FgLoc start = here(scan);
    *out_escaped = false;
    for (scan->p++; scan->p < scan->end && *scan->p != '"';) {
        if (*scan->p == '\\') {
            *out_escaped = true;
            if (!scan_escape(scan))
                return false;
        } else if ((unsigned char)*scan->p < 0x20) {
            break;
        } else {
            scan->p++;
        }
    }
    if (!at(scan, '"')) {
        fg_json_report(scan->cx, start, FG_D_JSON_SYNTAX, "this string has no end");
        return false;
    }
    scan->p++;
    return true;
}

static bool scan_digits(Scan *scan)
{
    if (scan->p >= scan->end || !isdigit((unsigned char)*scan->p))
        return wrong(scan, "a digit");
    while (scan->p < scan->end && isdigit((unsigned char)*scan->p))
        scan->p++;
    return true;
}

static bool scan_number(Scan *scan)
{
    if (at(scan, '-'))
        scan->p++;
    if (at(scan, '0')) {
        scan->p++;
        if (scan->p < scan->end && isdigit((unsigned char)*scan->p))
            return wrong(scan, "no digit after a leading zero");
    } else if (!scan_digits(scan)) {
        return false;
    }
    if (at(scan, '.')) {
        scan->p++;
        if (!scan_digits(scan))
            return false;
    }
    if (at(scan, 'e') || at(scan, 'E')) {
        scan->p++;
        if (at(scan, '+') || at(scan, '-'))
            scan->p++;
        return scan_digits(scan);
    }
    return true;
}

static bool scan_word(Scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(scan->end - scan->p) >= n && memcmp(scan->p, words[i], n) == 0) {
            scan->p += n;
            return true;
        }
    }
    return wrong(scan, "a value");
}

/* A value's first token; lists and objects open a frame. */
static bool scan_value(Scan *scan)
{
    skip_space(scan);
    FgJsonToken token = {.loc = here(scan), .key_loc = scan->key_loc};
    scan->key_loc = FG_NOWHERE;
    if (scan->p >= scan->end)
        return wrong(scan, "a value");
    char c = *scan->p;
    bool ok = true;
    scan->opened = c == '{' || c == '[';
    if (scan->opened) {
        if (scan->frames.len >= DEPTH_LIMIT) {
            fg_json_report(scan->cx, token.loc, FG_D_JSON_DEPTH,
                           "lists and objects are nested more than %u levels deep", DEPTH_LIMIT);
            return false;
        }
        Frame frame = {.object = c == '{'};
        fg_map_init(&frame.keys, scan->cx->arena);
        fg_vec_push(scan->cx->arena, &scan->frames, frame);
        scan->p++;
    } else if (c == '"') {
        ok = scan_string(scan, &token.escaped);
    } else if (c == '-' || isdigit((unsigned char)c)) {
        ok = scan_number(scan);
    } else {
        ok = scan_word(scan);
    }
    fg_vec_push(scan->cx->arena, scan->tokens, token);
    return ok;
}

/* A key and its colon. A key seen before in the object is reported with both places, and scanning
 * goes on. */
static bool scan_key(Scan *scan)
{
    skip_space(scan);
    if (!at(scan, '"'))
        return wrong(scan, "a key in quotes");
    FgLoc loc = here(scan);
    const char *start = scan->p + 1;
    bool escaped;
    if (!scan_string(scan, &escaped))
        return false;
    const char *key = fg_arena_strndup(scan->cx->arena, start, (size_t)(scan->p - start) - 1);
    Frame *frame = &scan->frames.data[scan->frames.len - 1];
    uint32_t before;
    if (fg_map_get(&frame->keys, key, &before)) {
        scan->duplicates = true;
        if (fg_json_report(scan->cx, loc, FG_D_DUPLICATE_KEY, "the key '%s' is given twice", key))
            fg_diag_note(scan->cx->diags, scan->key_locs.data[before], "first given here");
    } else {
        fg_map_add(&frame->keys, key, scan->key_locs.len);
        fg_vec_push(scan->cx->arena, &scan->key_locs, loc);
    }
    scan->key_loc = loc;
    skip_space(scan);
    if (!at(scan, ':'))
        return wrong(scan, "':' after the key");
    scan->p++;
    return true;
}

/* The next member or element of the innermost frame. */
static bool scan_member(Scan *scan)
{
    return (!scan->frames.data[scan->frames.len - 1].object || scan_key(scan)) && scan_value(scan);
}

/* Everything between a value and the next: commas and closings. Sets *out_more when a member
 * follows. */
static bool scan_between(Scan *scan, bool *out_more)
{
    *out_more = false;
    while (scan->frames.len) {
        char close = scan->frames.data[scan->frames.len - 1].object ? '}' : ']';
        skip_space(scan);
        if (at(scan, close)) {
            scan->p++;
            scan->frames.len--;
            scan->opened = false;
            continue;
        }
        *out_more = true;
        if (scan->opened)
            return true;
        if (!at(scan, ','))
            return wrong(scan, close == '}' ? "',' or '}'" : "',' or ']'");
        scan->p++;
        return true;
    }
    return true;
}

bool fg_json_scan(FgJsonCx *cx, uint32_t file, const char *text, size_t len, FgJsonTokens *out)
{
    Scan scan = {
        .cx = cx, .p = text, .end = text + len, .line_start = text, .file = file, .line = 1};
    scan.tokens = out;
    bool more = true, ok = scan_value(&scan);
    while (ok && more) {
        ok = scan_between(&scan, &more);
        if (ok && more)
            ok = scan_member(&scan);
    }
    if (!ok)
        return false;
    skip_space(&scan);
    if (scan.p < scan.end)
        return wrong(&scan, "the end of the text");
    return !scan.duplicates;
}
