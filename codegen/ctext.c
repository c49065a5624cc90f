/* Names come from model files and may hold anything; what is written here stays one token of C. */
#include "codegen/ctext.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void fg_c_string(FgBuf *out, const char *text)
{
    fg_buf_puts(out, "\"");
    for (const char *s = text ? text : ""; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fg_buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f || (c == '?' && s[1] == '?'))
            fg_buf_printf(out, "\\%03o", c); /* three digits: no following digit joins */
        else
            fg_buf_put(out, s, 1);
    }
    fg_buf_puts(out, "\"");
}

void fg_c_u64(FgBuf *out, uint64_t u)
{
    fg_buf_printf(out, u > INT64_MAX ? "%" PRIu64 "u" : "%" PRIu64, u);
}

void fg_c_i64(FgBuf *out, int64_t i)
{
    if (i == INT64_MIN)
        fg_buf_puts(out, "INT64_MIN");
    else
        fg_buf_printf(out, "%" PRId64, i);
}

void fg_c_double(FgBuf *out, double f)
{
    if (!isfinite(f))
        fg_buf_puts(out, isnan(f) ? "0.0 / 0.0" : f > 0 ? "1e999" : "-1e999");
    else
        fg_buf_puts(out, fg_double_text(out->arena, f));
}

void fg_c_comment(FgBuf *out, const char *text)
{
    for (const char *s = text; *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool ends = c == '*' && s[1] == '/', opens = c == '/' && s[1] == '*';
        fg_buf_put(out, c < 0x20 || c >= 0x7f || ends || opens ? "?" : s, 1);
    }
}
