/* place_csv: a table of items, line by line.
 *
 * Every field keeps where it stands, so that each message points at it. All numbers are checked
 * before they are used; after the last line, so is the sum of all sizes: from there on no address
 * can overflow.
 */
#include "tools/command/place.h"

#include "base/map.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>

typedef enum Column {
    COL_ID,
    COL_LOWER,
    COL_UPPER,
    COL_SIZE,
    COL_ALIGNMENT,
    COL_HINT,
    COL_GAPS,
    COL_OFFSET, /* of an earlier placement: not used, and not printed again */
    N_COLUMNS
} Column;

static const struct {
    const char *name;
    Column column;
} names[] = {
    {"id", COL_ID},         {"buffer", COL_ID},           {"buffer_id", COL_ID},
    {"lower", COL_LOWER},   {"begin", COL_LOWER},         {"start", COL_LOWER},
    {"upper", COL_UPPER},   {"end", COL_UPPER},           {"size", COL_SIZE},
    {"hint", COL_HINT},     {"alignment", COL_ALIGNMENT}, {"gaps", COL_GAPS},
    {"offset", COL_OFFSET},
};
#define N_NAMES (sizeof names / sizeof *names)

typedef FG_VEC(FgPlaceText) Fields;

typedef struct Reader {
    FgArena *arena;
    FgDiags *diags;
    FgPlaceTable *out;
    uint32_t source, line;
    const char *line_at;
    uint32_t field_of[N_COLUMNS]; /* index into a row's fields, or FG_PLACE_NO_FIELD */
    uint32_t n_columns;
    bool inclusive; /* column `end`: times at which the item is still there */
    FgMap ids;
    FG_VEC(FgPackItem) items;
    FG_VEC(FgPackSpan) spans;
    int64_t total; /* bytes of all items, each rounded up to its alignment */
} Reader;

static FgLoc loc_of(const Reader *r, FgPlaceText field)
{
    return (FgLoc){r->source, r->line, (uint32_t)(field.at - r->line_at) + 1};
}

static const char *shown(Reader *r, FgPlaceText field)
{
    size_t most = 40;
    return fg_arena_strndup(r->arena, field.at, field.len < most ? field.len : most);
}

static void split_fields(Reader *r, FgPlaceText line, char by, Fields *out)
{
    out->len = 0;
    for (;;) {
        const char *comma = memchr(line.at, by, line.len);
        size_t len = comma ? (size_t)(comma - line.at) : line.len;
        fg_vec_push(r->arena, out, ((FgPlaceText){line.at, len}));
        if (!comma)
            return;
        line.at += len + 1;
        line.len -= len + 1;
    }
}

/* ---- the header ---- */
static bool is_word(FgPlaceText field, const char *word)
{
    return field.len == strlen(word) && memcmp(field.at, word, field.len) == 0;
}

/* Other tools' columns are left alone; a slip in a name of ours is told apart by its likeness. */
static void note_column(Reader *r, FgPlaceText field)
{
    const char *known[N_NAMES];
    for (size_t i = 0; i < N_NAMES; i++)
        known[i] = names[i].name;
    const char *near =
        fg_closest(fg_arena_strndup(r->arena, field.at, field.len), known, (uint32_t)N_NAMES);
    fg_diag(r->diags, loc_of(r, field), FG_D_UNREAD_COLUMN,
            "column '%s' is kept and not used%s%s%s", shown(r, field),
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static bool read_column(Reader *r, FgPlaceText field, uint32_t index)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (!is_word(field, names[i].name))
            continue;
        if (r->field_of[names[i].column] != FG_PLACE_NO_FIELD) {
            fg_diag(r->diags, loc_of(r, field), FG_D_DUPLICATE_KEY,
                    "column '%s' says again what an earlier column says; keep one of them",
                    names[i].name);
            return false;
        }
        r->field_of[names[i].column] = index;
        r->inclusive |= is_word(field, "end");
        return true;
    }
    note_column(r, field);
    return true;
}

static bool read_header(Reader *r, FgPlaceText line)
{
    static const char *const needed[] = {"id", "lower", "upper", "size"};
    Fields fields = {0};
    bool ok = true;
    for (uint32_t i = 0; i < N_COLUMNS; i++)
        r->field_of[i] = FG_PLACE_NO_FIELD;
    split_fields(r, line, ',', &fields);
    for (uint32_t i = 0; i < fields.len; i++)
        ok &= read_column(r, fields.data[i], i);
    for (uint32_t i = 0; ok && i <= COL_SIZE; i++) {
        if (r->field_of[i] != FG_PLACE_NO_FIELD)
            continue;
        fg_diag(r->diags, loc_of(r, line), FG_D_MISSING_KEY,
                "no column '%s'; the first line names the columns, such as id,lower,upper,size",
                needed[i]);
        ok = false;
    }
    r->n_columns = fields.len;
    r->out->unprinted = r->field_of[COL_OFFSET];
    r->out->header = line;
    return ok;
}

/* ---- numbers ---- */
static bool parse_number(FgPlaceText text, int64_t *out)
{
    size_t i = text.len > 0 && text.at[0] == '-';
    bool negative = i == 1;
    int64_t x = 0;
    if (i == text.len)
        return false;
    for (; i < text.len; i++) {
        char c = text.at[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(x, 10, &x) ||
            __builtin_add_overflow(x, negative ? '0' - c : c - '0', &x))
            return false;
    }
    *out = x;
    return true;
}

/* A number of a row, at least `least`; `what` it is. */
static bool read_number(Reader *r, FgPlaceText field, const char *what, int64_t least, int64_t *out)
{
    if (!parse_number(field, out)) {
        fg_diag(r->diags, loc_of(r, field), FG_D_BAD_VALUE,
                "%s is a whole number of at most 64 bits, not '%s'", what, shown(r, field));
        return false;
    }
    if (*out < least || *out > FG_PACK_MOST - 1) {
        fg_diag(r->diags, loc_of(r, field), FG_D_BAD_VALUE,
                "%s is from %" PRId64 " to 2^60 - 1, not %" PRId64, what, least, *out);
        return false;
    }
    return true;
}

#define EARLIEST (-FG_PACK_MOST)

static bool refuse(Reader *r, FgPlaceText field, const char *what)
{
    fg_diag(r->diags, loc_of(r, field), FG_D_BAD_VALUE, "%s", what);
    return false;
}

/* ---- gaps: what the lifetime is cut into ---- */
typedef struct Gap {
    int64_t from, to, low, high; /* low == high: uses nothing */
} Gap;

static bool gap_shape(Reader *r, FgPlaceText text)
{
    fg_diag(r->diags, loc_of(r, text), FG_D_BAD_VALUE,
            "a gap is from-to or from-to@low:high with whole numbers, not '%s'", shown(r, text));
    return false;
}

static bool cut(FgPlaceText text, char at, FgPlaceText *left, FgPlaceText *right)
{
    const char *found = memchr(text.at, at, text.len);
    if (!found)
        return false;
    *left = (FgPlaceText){text.at, (size_t)(found - text.at)};
    *right = (FgPlaceText){found + 1, text.len - left->len - 1};
    return true;
}

static bool parse_gap(Reader *r, FgPlaceText text, Gap *out)
{
    FgPlaceText times = text, window, a, b;
    bool windowed = cut(text, '@', &times, &window);
    *out = (Gap){0};
    if (!cut(times, '-', &a, &b) || !parse_number(a, &out->from) || !parse_number(b, &out->to))
        return gap_shape(r, text);
    if (out->to < FG_PACK_MOST)
        out->to += r->inclusive;
    if (!windowed)
        return true;
    if (!cut(window, ':', &a, &b) || !parse_number(a, &out->low) || !parse_number(b, &out->high))
        return gap_shape(r, text);
    return true;
}

static void add_span(Reader *r, FgPackSpan span)
{
    if (span.from < span.to)
        fg_vec_push(r->arena, &r->spans, span);
}

/* The lifetime as spans: what gaps leave, and what is in use within them. */
static bool read_spans(Reader *r, const Fields *row, FgPackSpan life)
{
    Fields gaps = {0};
    FgPlaceText field = {0};
    if (r->field_of[COL_GAPS] != FG_PLACE_NO_FIELD) {
        field = row->data[r->field_of[COL_GAPS]];
        split_fields(r, field, ' ', &gaps);
    }
    int64_t at = life.from;
    uint32_t before = r->spans.len;
    for (uint32_t i = 0; i < gaps.len; i++) {
        Gap gap;
        if (gaps.data[i].len == 0)
            continue;
        if (!parse_gap(r, gaps.data[i], &gap))
            return false;
        if (gap.from < at || gap.to <= gap.from || gap.to > life.to)
            return refuse(r, gaps.data[i],
                          "gaps lie within the lifetime, one after the other, and are not empty");
        if (gap.low < 0 || gap.high < gap.low || gap.high > life.high)
            return refuse(r, gaps.data[i], "what a gap leaves in use lies within the item's size");
        add_span(r, (FgPackSpan){at, gap.from, 0, life.high});
        if (gap.low < gap.high)
            add_span(r, (FgPackSpan){gap.from, gap.to, gap.low, gap.high});
        at = gap.to;
    }
    add_span(r, (FgPackSpan){at, life.to, 0, life.high});
    if (r->spans.len == before)
        return refuse(r, field, "the gaps leave nothing of the item; take the item away");
    return true;
}

/* ---- rows ---- */
static bool add_size(Reader *r, FgPlaceText field, int64_t size, int64_t alignment)
{
    int64_t padded;
    if (__builtin_add_overflow(size, alignment - 1, &padded) ||
        __builtin_add_overflow(r->total, padded, &r->total) || r->total >= FG_PACK_MOST) {
        fg_diag(r->diags, loc_of(r, field), FG_D_OVERFLOW,
                "all sizes together, with room for alignment, reach 2^60; use a larger unit");
        return false;
    }
    return true;
}

static bool read_id(Reader *r, FgPlaceText field)
{
    const char *id = fg_arena_strndup(r->arena, field.at, field.len);
    uint32_t line = 0;
    if (field.len == 0)
        return refuse(r, field, "an item needs an id");
    if (fg_map_add(&r->ids, id, r->line))
        return true;
    fg_map_get(&r->ids, id, &line);
    fg_diag(r->diags, loc_of(r, field), FG_D_DUPLICATE_NAME,
            "id '%s' stands in line %" PRIu32 " already; give each item its own", shown(r, field),
            line);
    return false;
}

static bool read_row(Reader *r, FgPlaceText line)
{
    Fields row = {0};
    split_fields(r, line, ',', &row);
    if (row.len != r->n_columns) {
        fg_diag(r->diags, loc_of(r, line), FG_D_CSV_SYNTAX,
                "%" PRIu32 " fields where the first line names %" PRIu32 " columns", row.len,
                r->n_columns);
        return false;
    }
    const FgPlaceText *field = row.data;
    const uint32_t *of = r->field_of;
    FgPackItem item = {.align = 1, .span = r->spans.len};
    FgPackSpan life = {0};
    int64_t hint;
    bool ok = read_id(r, field[of[COL_ID]]);
    ok &= read_number(r, field[of[COL_LOWER]], "a time", EARLIEST, &life.from);
    ok &= read_number(r, field[of[COL_UPPER]], "a time", EARLIEST, &life.to);
    ok &= read_number(r, field[of[COL_SIZE]], "a size", 1, &item.bytes);
    if (of[COL_ALIGNMENT] != FG_PLACE_NO_FIELD)
        ok &= read_number(r, field[of[COL_ALIGNMENT]], "an alignment", 1, &item.align);
    if (of[COL_HINT] != FG_PLACE_NO_FIELD)
        ok &= read_number(r, field[of[COL_HINT]], "a hint", -1, &hint);
    if (!ok)
        return false;
    life.to += r->inclusive;
    life.high = item.bytes;
    if (life.to <= life.from)
        return refuse(r, field[of[COL_UPPER]],
                      r->inclusive ? "an item ends where it begins or later; this one ends before"
                                   : "the upper end of a lifetime is exclusive, so it must be "
                                     "greater than the lower one");
    if (!read_spans(r, &row, life) || !add_size(r, field[of[COL_SIZE]], item.bytes, item.align))
        return false;
    item.n_spans = r->spans.len - item.span;
    fg_vec_push(r->arena, &r->items, item);
    fg_vec_push(r->arena, &r->out->rows, line);
    return true;
}

bool fg_place_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text, size_t len,
                    FgPlaceTable *out)
{
    *out = (FgPlaceTable){0};
    Reader r = {.arena = arena, .diags = diags, .out = out};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a byte order mark, as of UTF-8 */
        text += 3;
        len -= 3;
    }
    r.source = fg_diags_source(diags, name, text, len);
    fg_map_init(&r.ids, arena);
    bool header = false, ok = true;
    for (const char *at = text, *end = text + len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        FgPlaceText line = {at, (size_t)((stop ? stop : end) - at)};
        at = stop ? stop + 1 : end;
        r.line++;
        r.line_at = line.at;
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        if (line.len == 0)
            continue;
        if (!header && !read_header(&r, line))
            return false;
        if (header)
            ok &= read_row(&r, line);
        header = true;
    }
    if (!header)
        fg_diag(diags, (FgLoc){r.source, 1, 1}, FG_D_CSV_SYNTAX,
                "no line; the first one names the columns: id,lower,upper,size");
    out->problem = (FgPackProblem){r.items.data, r.spans.data, r.items.len};
    return header && ok;
}
