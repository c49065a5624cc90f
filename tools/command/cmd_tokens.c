/* tokens: text into a token file in llm.c's form: 256 little-endian int32 (magic, version, count),
 * then the tokens. */
#include "base/file.h"
#include "tools/command/session.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC 20240520
#define VERSION 1
#define HEADER_BYTES 1024

static void put_i32(char *at, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(unsigned char)(x >> (8 * i));
}

static FgExit fail(const char *message)
{
    fprintf(stderr, "foregather tokens: error: %s\n", message);
    return FG_EXIT_INPUT;
}

/* Each byte as two: the tokens' 16 bits. */
static void append_bytes(FgBuf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char token[2] = {text[i], 0};
        fg_buf_put(out, token, 2);
    }
}

FgExit fg_cmd_tokens(FgArena *arena, const FgFlags *flags)
{
    const char *output = flags->values[FG_FLAG_output], *error;
    if (!flags->values[FG_FLAG_bytes])
        return fg_usage_error(flags->verb, "say how: --bytes makes each byte a token");
    if (flags->files.len == 0 || !output)
        return fg_usage_error(flags->verb, flags->files.len ? "no -o FILE given" : "no text given");
    FgExit place = fg_check_outputs(arena, flags, &(FgOutput){output, false}, 1);
    if (place != FG_EXIT_OK)
        return place;
    char header[HEADER_BYTES] = {0};
    FgBuf out;
    fg_buf_init(&out, arena);
    fg_buf_put(&out, header, sizeof header);
    for (uint32_t i = 0; i < flags->files.len; i++) {
        char *text;
        size_t len;
        if (!fg_file_read(arena, flags->files.data[i], &text, &len, &error))
            return fail(error);
        append_bytes(&out, text, len);
    }
    size_t n = (out.len - HEADER_BYTES) / 2;
    if (n < 2 || n > INT32_MAX)
        return fail(n < 2 ? "a token file needs at least two tokens"
                          : "more than 2147483647 tokens do not fit one file");
    put_i32(out.data, MAGIC);
    put_i32(out.data + 4, VERSION);
    put_i32(out.data + 8, (uint32_t)n);
    if (!fg_file_write(arena, output, out.data, out.len, &error))
        return fail(error);
    fprintf(strcmp(output, "-") == 0 ? stderr : stdout,
            "wrote %s: %s byte tokens, vocabulary 256, from %s file%s\n", output,
            fg_count_text(arena, n), fg_count_text(arena, flags->files.len),
            flags->files.len == 1 ? "" : "s");
    return FG_EXIT_OK;
}
