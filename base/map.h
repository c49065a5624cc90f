/* Hash map from text to a 32-bit value, in an arena. Iteration is not offered: order would depend
 * on the hash; keep a vector beside it. */
#ifndef FG_BASE_MAP_H
#define FG_BASE_MAP_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct FgMap {
    FgArena *arena;
    const char **keys; /* not copied: they must outlive the map */
    uint32_t *values;
    uint32_t len, cap;
} FgMap;

void fg_map_init(FgMap *map, FgArena *arena);
/* False, and nothing changes, when the key is there already. */
bool fg_map_add(FgMap *map, const char *key, uint32_t value);
void fg_map_set(FgMap *map, const char *key, uint32_t value);
bool fg_map_get(const FgMap *map, const char *key, uint32_t *out_value);

uint64_t fg_hash_bytes(const void *data, size_t n, uint64_t seed); /* FNV-1a, 64 bits */

#endif
