/* Token files are trusted in nothing: header first, then the size. */
#include "runtime/trainer/tokens.h"

#include <string.h>

#define HEADER_BYTES 1024u

typedef struct Form {
    int32_t magic, version;
    uint32_t token_bytes;
} Form;

static const Form FORMS[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static bool check_header(FgTokens *tokens, const char *path, FgFail *fail)
{
    int32_t header[3];
    if (tokens->map.bytes < HEADER_BYTES)
        return fg_fail(fail, "%s: %zu bytes are too short for the header of a token file", path,
                       tokens->map.bytes);
    memcpy(header, tokens->map.data, sizeof header);
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
        if (FORMS[i].magic == header[0]) {
            if (FORMS[i].version != header[1])
                return fg_fail(fail, "%s: token file version %d; this program reads %d", path,
                               header[1], FORMS[i].version);
            tokens->token_bytes = FORMS[i].token_bytes;
        }
    if (!tokens->token_bytes)
        return fg_fail(fail,
                       "%s: not a token file: magic %d is neither 20240520 (u16) nor 20240801 "
                       "(u32)",
                       path, header[0]);
    uint64_t held = (tokens->map.bytes - HEADER_BYTES) / tokens->token_bytes;
    if (header[2] < 0 ||
        (uint64_t)(uint32_t)header[2] * tokens->token_bytes != tokens->map.bytes - HEADER_BYTES)
        return fg_fail(fail, "%s: the header promises %d tokens, the file holds %llu", path,
                       header[2], (unsigned long long)held);
    tokens->n = held;
    return true;
}

bool fg_tokens_open(FgTokens *out_tokens, const char *path, FgFail *fail)
{
    *out_tokens = (FgTokens){.path = path};
    if (fg_map_file(&out_tokens->map, path, fail) && check_header(out_tokens, path, fail))
        return true;
    fg_tokens_close(out_tokens);
    return false;
}

void fg_tokens_close(FgTokens *tokens)
{
    fg_unmap_file(&tokens->map);
    *tokens = (FgTokens){0};
}

bool fg_tokens_read(const FgTokens *tokens, uint64_t first, uint64_t count, int32_t *out,
                    FgFail *fail)
{
    const unsigned char *data = tokens->map.data + HEADER_BYTES + first * tokens->token_bytes;
    for (uint64_t i = 0; i < count; i++, data += tokens->token_bytes) {
        uint16_t narrow;
        uint32_t wide;
        if (tokens->token_bytes == 2) {
            memcpy(&narrow, data, 2);
            out[i] = narrow;
        } else {
            memcpy(&wide, data, 4);
            if (wide > INT32_MAX)
                return fg_fail(fail, "%s: token %llu is %u; programs take 32 bits with a sign",
                               tokens->path, (unsigned long long)(first + i), wide);
            out[i] = (int32_t)wide;
        }
    }
    return true;
}
