/* Token files: all tokens that the header promises can be read. */
#include "fuzz.h"

#include "memory_file.h"
#include "runtime/trainer/tokens.h"

#include <stdlib.h>

const char *const fuzz_seeds[] = {"tests/data/curve/tokens.bin", NULL};
const char *const fuzz_words[] = {NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgFail fail = {NULL};
    FgTokens tokens;
    if (fg_tokens_open(&tokens, memory_file(data, size), &fail)) {
        int32_t some[64];
        for (uint64_t i = 0; i < tokens.n; i += 64)
            if (!fg_tokens_read(&tokens, i, tokens.n - i < 64 ? tokens.n - i : 64, some, &fail)) {
                if (!fail.text)
                    abort();
                fg_fail_clear(&fail);
            }
        fg_tokens_close(&tokens);
    } else if (!fail.text) {
        abort();
    }
    fg_fail_clear(&fail);
    return 0;
}
