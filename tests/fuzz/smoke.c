/* A fuzz target without a fuzzer: the seeds as they are, then changed in many small ways, the same
 * ones in every run. Shows in seconds that the target still works; the fuzzer finds more. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 1500
#define MOST_BYTES (1u << 16) /* of a seed */

typedef struct Bytes {
    uint8_t *data;
    size_t len;
} Bytes;

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static Bytes load(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", FG_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    Bytes bytes = {malloc(MOST_BYTES), 0};
    if (!file || !bytes.data)
        abort();
    bytes.len = fread(bytes.data, 1, MOST_BYTES, file);
    fclose(file);
    return bytes;
}

/* Puts `n` bytes of `from` where `cut` bytes stood. */
static Bytes splice(const Bytes *old, size_t at, size_t cut, const uint8_t *from, size_t n)
{
    Bytes bytes = {malloc(old->len - cut + n + 1), old->len - cut + n};
    if (!bytes.data)
        abort();
    memcpy(bytes.data, old->data, at);
    if (n)
        memcpy(bytes.data + at, from, n);
    memcpy(bytes.data + at + n, old->data + at + cut, old->len - at - cut);
    return bytes;
}

static Bytes change(const Bytes *old, uint64_t *random)
{
    uint32_t n_words = 0;
    while (fuzz_words[n_words])
        n_words++;
    size_t at = old->len ? draw(random) % old->len : 0, left = old->len - at;
    size_t cut = draw(random) % 16;
    cut = cut < left ? cut : left;
    uint8_t byte = (uint8_t)draw(random);
    const char *word = n_words ? fuzz_words[draw(random) % n_words] : "";
    switch (draw(random) % 6) {
    case 0: /* one byte */
        return splice(old, at, left ? 1 : 0, &byte, 1);
    case 1: /* bytes go */
        return splice(old, at, cut, NULL, 0);
    case 2: /* the end goes */
        return splice(old, at, left, NULL, 0);
    case 3: { /* bytes from elsewhere */
        size_t from = old->len ? draw(random) % old->len : 0, n = draw(random) % 40;
        n = n < old->len - from ? n : old->len - from;
        return splice(old, at, cut, old->data + from, n);
    }
    case 4: /* a word that the format knows */
        return splice(old, at, cut, (const uint8_t *)word, strlen(word));
    default: { /* a number near a bound */
        uint8_t ones[8];
        memset(ones, draw(random) % 2 ? 0xff : 0, sizeof ones);
        return splice(old, at, left < 8 ? left : 8, ones, sizeof ones);
    }
    }
}

int main(void)
{
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (uint32_t s = 0; fuzz_seeds[s]; s++) {
        Bytes seed = load(fuzz_seeds[s]);
        LLVMFuzzerTestOneInput(seed.data, seed.len);
        Bytes now = splice(&seed, 0, 0, NULL, 0);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            const Bytes *from = i % 4 ? &now : &seed; /* up to four changes on top of each other */
            Bytes next = change(from, &random);
            free(now.data);
            now = next;
            LLVMFuzzerTestOneInput(now.data, now.len);
        }
        free(now.data);
        free(seed.data);
        printf("%s ok\n", fuzz_seeds[s]);
    }
    return 0;
}
