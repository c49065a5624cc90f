/* "Did you mean": edit distance with transposed neighbours (optimal string alignment), bounded by a
 * third of the word, so that a suggestion is only made where the two really look alike. */
#include "base/str.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* `rows` has room for three rows of strlen(b) + 1 entries. */
static uint32_t distance(const char *a, const char *b, uint32_t *rows)
{
    size_t len_a = strlen(a), len_b = strlen(b), width = len_b + 1;
    uint32_t *before = rows, *last = rows + width, *row = rows + 2 * width;
    for (size_t j = 0; j <= len_b; j++)
        last[j] = (uint32_t)j;
    for (size_t i = 1; i <= len_a; i++) {
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= len_b; j++) {
            uint32_t d = last[j - 1] + (a[i - 1] != b[j - 1]);
            d = least(d, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = least(d, before[j - 2] + 1);
            row[j] = d;
        }
        uint32_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[len_b];
}

const char *fg_closest(const char *word, const char *const *candidates, uint32_t n)
{
    size_t len = strlen(word);
    uint32_t *rows = calloc(3 * (len + 1), sizeof *rows);
    if (!rows)
        fg_out_of_memory(3 * (len + 1) * sizeof *rows);
    const char *best = NULL;
    uint32_t best_distance = (uint32_t)(len / 3 > 1 ? len / 3 : 1) + 1;
    for (uint32_t i = 0; i < n; i++) {
        size_t other = strlen(candidates[i]), gap = other > len ? other - len : len - other;
        if (gap >= best_distance)
            continue;
        uint32_t d = distance(candidates[i], word, rows);
        if (d < best_distance) {
            best = candidates[i];
            best_distance = d;
        }
    }
    free(rows);
    return best;
}
