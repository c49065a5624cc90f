/* Text buffers, number and size texts, interning, and the "did you mean" distance. */
#include "base/str.h"

#include "base/diag.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- buffers ---- */
void fg_buf_init(FgBuf *buf, FgArena *arena)
{
    *buf = (FgBuf){.arena = arena};
}

/* Room for `more` bytes and the terminator. */
static void reserve(FgBuf *buf, size_t more)
{
    if (more > SIZE_MAX / 4 || buf->len > SIZE_MAX / 4)
        FG_BUG("a text of more than %zu bytes", buf->len);
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return;
    size_t cap = buf->cap ? buf->cap * 2 : 64;
    if (cap < need)
        cap = need;
    char *data = fg_arena_alloc(buf->arena, cap);
    if (buf->len)
        memcpy(data, buf->data, buf->len);
    buf->data = data;
    buf->cap = cap;
}

void fg_buf_put(FgBuf *buf, const char *s, size_t n)
{
    reserve(buf, n);
    if (n)
        memcpy(buf->data + buf->len, s, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
}

void fg_buf_puts(FgBuf *buf, const char *s)
{
    fg_buf_put(buf, s, strlen(s));
}

void fg_buf_printf(FgBuf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    /* Into the room there is; a second time only when that was too small. */
    reserve(buf, 32);
    size_t room = buf->cap - buf->len;
    int n = vsnprintf(buf->data + buf->len, room, format, args);
    va_end(args);
    FG_ASSERT(n >= 0);
    if ((size_t)n >= room) {
        reserve(buf, (size_t)n);
        vsnprintf(buf->data + buf->len, (size_t)n + 1, format, again);
    }
    va_end(again);
    buf->len += (size_t)n;
}

const char *fg_buf_text(const FgBuf *buf)
{
    return buf->data ? buf->data : "";
}

/* ---- numbers ---- */
const char *fg_double_text(FgArena *arena, double x)
{
    if (isnan(x))
        return "nan";
    if (isinf(x))
        return x < 0 ? "-inf" : "inf";
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    bool marked = strpbrk(text, ".e") != NULL;
    return fg_arena_printf(arena, "%s%s", text, marked ? "" : ".0");
}

const char *fg_quoted(FgArena *arena, const char *s)
{
    FgBuf buf;
    fg_buf_init(&buf, arena);
    fg_buf_puts(&buf, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        const char *at = strchr("\"\"\\\\\bb\ff\nn\rr\tt", c);
        if (c == '"' || c == '\\') {
            fg_buf_printf(&buf, "\\%c", c);
        } else if (c < 0x20 && at) {
            fg_buf_printf(&buf, "\\%c", at[1]);
        } else if (c < 0x20 || c == 0x7f) {
            fg_buf_printf(&buf, "\\u%04x", c);
        } else {
            fg_buf_put(&buf, s, 1);
        }
    }
    fg_buf_puts(&buf, "\"");
    return fg_buf_text(&buf);
}

const char *fg_bytes_text(FgArena *arena, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    /* 1023.95 and more would print as 1024.0. */
    while (unit + 1 < sizeof units / sizeof *units && value >= 1023.95) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        return fg_arena_printf(arena, "%u B", (unsigned)bytes);
    return fg_arena_printf(arena, "%.*f %s", value < 99.995 ? 2 : 1, value, units[unit]);
}

const char *fg_count_text(FgArena *arena, uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    FgBuf buf;
    fg_buf_init(&buf, arena);
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            fg_buf_puts(&buf, ",");
        fg_buf_put(&buf, &digits[i], 1);
    }
    return fg_buf_text(&buf);
}

static bool parse_unit(const char *unit, uint64_t *out_factor)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"KB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", 1000000000000},
        {"KiB", (uint64_t)1 << 10},
        {"MiB", (uint64_t)1 << 20},
        {"GiB", (uint64_t)1 << 30},
        {"TiB", (uint64_t)1 << 40},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(unit, units[i].name) == 0) {
            *out_factor = units[i].factor;
            return true;
        }
    }
    return false;
}

bool fg_parse_integer(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0;
}

bool fg_parse_bytes(const char *text, uint64_t *out_bytes)
{
    const char *p = text;
    uint64_t whole = 0, factor;
    bool fits = isdigit((unsigned char)*p) != 0, point = false;
    for (; isdigit((unsigned char)*p); p++)
        fits = fits && !__builtin_mul_overflow(whole, 10u, &whole) &&
               !__builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);
    if (!fits)
        return false;
    double fraction = 0, place = 1;
    if (*p == '.') {
        point = true;
        if (!isdigit((unsigned char)*++p))
            return false;
        for (; isdigit((unsigned char)*p); p++)
            fraction += (place /= 10) * (*p - '0');
    }
    if (*p == ' ')
        p++;
    if (!parse_unit(p, &factor) || (point && factor == 1))
        return false;
    uint64_t bytes;
    if (__builtin_mul_overflow(whole, factor, &bytes) ||
        __builtin_add_overflow(bytes, (uint64_t)(fraction * (double)factor), &bytes))
        return false;
    *out_bytes = bytes;
    return true;
}

/* ---- interning ---- */
typedef struct Slot {
    const char *text; /* NULL: empty */
    uint32_t hash, len;
} Slot;

struct FgIntern {
    FgArena *arena;
    const FgIntern *base; /* or NULL */
    Slot *slots;
    uint32_t len, cap; /* cap is a power of two */
};

FgIntern *fg_intern_above(FgArena *arena, const FgIntern *base)
{
    FgIntern *intern = FG_NEW(arena, FgIntern);
    intern->arena = arena;
    intern->base = base;
    intern->cap = 64;
    intern->slots = FG_NEW_ARRAY(arena, Slot, intern->cap);
    return intern;
}

FgIntern *fg_intern_new(FgArena *arena)
{
    return fg_intern_above(arena, NULL);
}

/* Eight bytes at a time: texts are hashed for every node that is made. */
static uint32_t text_hash(const char *s, size_t n)
{
    uint64_t hash = n, word;
    for (; n >= sizeof word; n -= sizeof word, s += sizeof word) {
        memcpy(&word, s, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, s, n);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash ^ hash >> 32);
}

static Slot *intern_slot(const FgIntern *intern, const char *s, size_t n, uint32_t hash)
{
    uint32_t at = hash & (intern->cap - 1);
    for (;; at = (at + 1) & (intern->cap - 1)) {
        Slot *slot = &intern->slots[at];
        if (!slot->text || (slot->hash == hash && slot->len == n && memcmp(slot->text, s, n) == 0))
            return slot;
    }
}

static void intern_grow(FgIntern *intern)
{
    if (intern->cap > UINT32_MAX / 2)
        FG_BUG("more than %u interned texts", intern->len);
    FgIntern wider = *intern;
    wider.cap *= 2;
    wider.slots = FG_NEW_ARRAY(intern->arena, Slot, wider.cap);
    for (uint32_t i = 0; i < intern->cap; i++) {
        const Slot *slot = &intern->slots[i];
        if (slot->text)
            *intern_slot(&wider, slot->text, slot->len, slot->hash) = *slot;
    }
    *intern = wider;
}

const char *fg_internn(FgIntern *intern, const char *s, size_t n)
{
    n = strnlen(s, n); /* a text ends at its first NUL, whatever its caller counted */
    FG_ASSERT(n <= UINT32_MAX);
    uint32_t hash = text_hash(s, n);
    const FgIntern *at = intern;
    do {
        const Slot *found = intern_slot(at, s, n, hash);
        if (found->text)
            return found->text;
        at = at->base;
    } while (at);
    if (intern->len + 1 > intern->cap / 4 * 3)
        intern_grow(intern);
    intern->len++;
    char *copy = fg_arena_strndup(intern->arena, s, n);
    *intern_slot(intern, s, n, hash) = (Slot){copy, hash, (uint32_t)n};
    return copy;
}

const char *fg_intern(FgIntern *intern, const char *s)
{
    return fg_internn(intern, s, strlen(s));
}
