/* Diagnostics: kept in order with their notes, rendered at the end.
 *
 *   model.json:12:5: error: unknown op 'lineer' [unknown-op]
 *     {"op": "lineer", "in": ["x", "w"], "out": "y"}
 *            ^
 *   note: did you mean 'linear'?
 *   1 error */
#include "base/diag.h"

#include "base/vec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef enum Severity { FG_ERROR, FG_WARNING, FG_NOTE, N_SEVERITIES } Severity;

#define KEPT_LIMIT 20u   /* messages kept of each severity */
#define SHOWN_BYTES 160u /* of a long source line */

typedef struct Info {
    const char *name;
    Severity severity;
} Info;

static const Info infos[FG_N_DIAGS] = {
#define FG_DIAG(id, severity, help) {#id, severity},
#include "base/diags.def"
#undef FG_DIAG
};

typedef struct Source {
    const char *name, *text; /* text NULL: only the name is known */
    size_t len;
} Source;

typedef struct Message {
    FgLoc loc;
    Severity severity;
    FgDiagId id;
    bool attached; /* a note of the message before it: no id */
    const char *text;
} Message;

struct FgDiags {
    FgArena *arena;
    FG_VEC(Source) sources;
    FG_VEC(Message) messages;
    uint32_t counts[N_SEVERITIES];
    bool seen[FG_N_DIAGS];
    bool dropping; /* the last message was not kept: nor are its notes */
};

FgDiags *fg_diags_new(FgArena *arena)
{
    FgDiags *diags = FG_NEW(arena, FgDiags);
    diags->arena = arena;
    return diags;
}

uint32_t fg_diags_source(FgDiags *diags, const char *name, const char *text, size_t len)
{
    Source source = {name, text, len};
    fg_vec_push(diags->arena, &diags->sources, source);
    return diags->sources.len;
}

const char *fg_diags_source_name(const FgDiags *diags, uint32_t file)
{
    return file >= 1 && file <= diags->sources.len ? diags->sources.data[file - 1].name : "";
}

void fg_diag(FgDiags *diags, FgLoc loc, FgDiagId id, const char *format, ...)
{
    Severity severity = infos[id].severity;
    diags->seen[id] = true;
    diags->dropping = diags->counts[severity]++ >= KEPT_LIMIT;
    if (diags->dropping)
        return;
    va_list args;
    va_start(args, format);
    Message message = {loc, severity, id, false, fg_arena_vprintf(diags->arena, format, args)};
    va_end(args);
    fg_vec_push(diags->arena, &diags->messages, message);
}

void fg_diag_note(FgDiags *diags, FgLoc loc, const char *format, ...)
{
    if (diags->dropping)
        return;
    va_list args;
    va_start(args, format);
    Message message = {.loc = loc, .severity = FG_NOTE, .attached = true};
    message.text = fg_arena_vprintf(diags->arena, format, args);
    va_end(args);
    fg_vec_push(diags->arena, &diags->messages, message);
}

uint32_t fg_diags_errors(const FgDiags *diags)
{
    return diags->counts[FG_ERROR];
}

bool fg_diags_has(const FgDiags *diags, FgDiagId id)
{
    return diags->seen[id];
}

const char *fg_diag_name(FgDiagId id)
{
    return infos[id].name;
}

/* ---- rendering ---- */
static bool find_line(const Source *source, uint32_t line, const char **out_line, size_t *out_len)
{
    if (!source->text || line == 0)
        return false;
    const char *p = source->text, *end = source->text + source->len;
    for (uint32_t i = 1; i < line; i++) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (!p)
            return false;
        p++;
    }
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    size_t len = (size_t)((stop ? stop : end) - p);
    if (len && p[len - 1] == '\r')
        len--;
    *out_line = p;
    *out_len = len;
    return true;
}

static bool utf8_tail(char c)
{
    return ((unsigned char)c & 0xc0u) == 0x80u;
}

/* How many bytes at `p` are one character that may be shown: printable ASCII or a whole UTF-8
 * sequence that is no control character. 0: show something else. */
static size_t shown(const char *p, size_t len)
{
    const unsigned char *u = (const unsigned char *)p;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (u[0] < 0x80)
        return isprint(u[0]) ? 1 : 0;
    size_t n = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    if (u[0] < 0xc2 || u[0] > 0xf4 || n > len)
        return 0;
    unsigned code = u[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (!utf8_tail(p[i]))
            return 0;
        code = code << 6 | (u[i] & 0x3fu);
    }
    bool legal = code >= least[n] && code >= 0xa0 && code <= 0x10ffff;
    return legal && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

/* Bytes of a file as they may reach a terminal: what is no text becomes '?', one for each byte.
 * Tabs stay, and line ends when `lines`. */
static void put_text(FgBuf *out, const char *text, size_t len, bool lines)
{
    for (size_t i = 0; i < len;) {
        size_t n = shown(text + i, len - i);
        bool kept = n || text[i] == '\t' || (lines && text[i] == '\n');
        fg_buf_put(out, kept ? text + i : "?", n ? n : 1);
        i += n ? n : 1;
    }
}

/* The source line and a caret below byte `col`; of a long line the part around it. Tabs are kept in
 * both lines, so that the caret stands below its character whatever the tab width is. */
static void render_line(const Source *source, FgLoc loc, FgBuf *out)
{
    const char *line;
    size_t len;
    if (!find_line(source, loc.line, &line, &len))
        return;
    size_t caret = loc.col ? loc.col - 1 : 0;
    if (caret > len)
        caret = len;
    size_t from = 0, to = len;
    if (len > SHOWN_BYTES) {
        from = caret > SHOWN_BYTES / 2 ? caret - SHOWN_BYTES / 2 : 0;
        to = len - from > SHOWN_BYTES ? from + SHOWN_BYTES : len;
        while (from < caret && utf8_tail(line[from]))
            from++;
        while (to > caret && to < len && utf8_tail(line[to]))
            to--;
    }
    fg_buf_puts(out, from ? "  ..." : "  ");
    put_text(out, line + from, to - from, false);
    fg_buf_puts(out, to < len ? "...\n" : "\n");
    fg_buf_puts(out, from ? "     " : "  ");
    for (size_t i = from; i < caret;) {
        size_t n = shown(line + i, to - i);
        fg_buf_puts(out, line[i] == '\t' ? "\t" : " ");
        i += n ? n : 1;
    }
    fg_buf_puts(out, "^\n");
}

static void render_message(const FgDiags *diags, const Message *message, FgBuf *out)
{
    static const char *const words[] = {"error", "warning", "note"};
    FgLoc loc = message->loc;
    const Source *source = NULL;
    if (loc.file >= 1 && loc.file <= diags->sources.len)
        source = &diags->sources.data[loc.file - 1];
    if (source && loc.line)
        fg_buf_printf(out, "%s:%u:%u: ", source->name, loc.line, loc.col);
    else if (source)
        fg_buf_printf(out, "%s: ", source->name);
    fg_buf_printf(out, "%s: ", words[message->severity]);
    put_text(out, message->text, strlen(message->text), true);
    if (!message->attached) {
        fg_buf_puts(out, " [");
        for (const char *p = infos[message->id].name; *p; p++) {
            char c = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
            fg_buf_put(out, &c, 1);
        }
        fg_buf_puts(out, "]");
    }
    fg_buf_puts(out, "\n");
    if (source)
        render_line(source, loc, out);
}

void fg_diags_render(const FgDiags *diags, FgBuf *out)
{
    static const char *const words[] = {"error", "warning", "note"};
    for (uint32_t i = 0; i < diags->messages.len; i++)
        render_message(diags, &diags->messages.data[i], out);
    for (uint32_t s = 0; s < N_SEVERITIES; s++) {
        uint32_t more = diags->counts[s] > KEPT_LIMIT ? diags->counts[s] - KEPT_LIMIT : 0;
        if (more)
            fg_buf_printf(out, "%u more %s%s not shown\n", more, words[s], more == 1 ? "" : "s");
    }
    uint32_t errors = diags->counts[FG_ERROR];
    if (errors)
        fg_buf_printf(out, "%u error%s\n", errors, errors == 1 ? "" : "s");
}

void fg_bug(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "internal error: %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
