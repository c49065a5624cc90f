/* llm.c token files: 256 int32 of header (magic, version, token count), then tokens of 2 or 4
 * bytes.
 *
 * Magic 20240520 with version 1 holds u16, magic 20240801 with version 7 holds u32. The count must
 * fit the file's size exactly. The file stays mapped until it is closed. */
#ifndef FG_RUNTIME_TRAINER_TOKENS_H
#define FG_RUNTIME_TRAINER_TOKENS_H

#include "runtime/trainer/mapped.h"

typedef struct FgTokens {
    const char *path; /* not owned */
    FgMapped map;
    uint64_t n;
    uint32_t token_bytes;
} FgTokens;

bool fg_tokens_open(FgTokens *out_tokens, const char *path, FgFail *fail);
void fg_tokens_close(FgTokens *tokens);
/* Copies count tokens from `first`; the range must lie inside. False: a u32 token is above
 * INT32_MAX. */
bool fg_tokens_read(const FgTokens *tokens, uint64_t first, uint64_t count, int32_t *out,
                    FgFail *fail);

#endif
