/* The hash map: open addressing with linear probing, at most three quarters full, keys compared by
 * text. Nothing is ever removed, so an empty slot ends every probe. */
#include "base/map.h"

#include "base/diag.h"

#include <string.h>

uint64_t fg_hash_bytes(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t hash = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        hash ^= p[i];
        hash *= 0x100000001b3u;
    }
    return hash;
}

void fg_map_init(FgMap *map, FgArena *arena)
{
    *map = (FgMap){.arena = arena};
}

/* The slot that holds `key`, or the empty one where it would go. The map has at least one empty
 * slot. */
static uint32_t find_slot(const FgMap *map, const char *key)
{
    uint32_t mask = map->cap - 1;
    uint32_t slot = (uint32_t)fg_hash_bytes(key, strlen(key), 0) & mask;
    while (map->keys[slot] && strcmp(map->keys[slot], key) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

static void grow(FgMap *map)
{
    if (map->cap > UINT32_MAX / 2)
        FG_BUG("a map of more than %u slots", map->cap);
    FgMap wider = {.arena = map->arena, .cap = map->cap ? map->cap * 2 : 16, .len = map->len};
    wider.keys = FG_NEW_ARRAY(map->arena, const char *, wider.cap);
    wider.values = FG_NEW_ARRAY(map->arena, uint32_t, wider.cap);
    for (uint32_t i = 0; i < map->cap; i++) {
        if (!map->keys[i])
            continue;
        uint32_t slot = find_slot(&wider, map->keys[i]);
        wider.keys[slot] = map->keys[i];
        wider.values[slot] = map->values[i];
    }
    *map = wider;
}

/* Room for one more entry, then its slot. */
static uint32_t slot_for(FgMap *map, const char *key)
{
    if (map->len + 1 > map->cap / 4 * 3)
        grow(map);
    return find_slot(map, key);
}

bool fg_map_add(FgMap *map, const char *key, uint32_t value)
{
    uint32_t slot = slot_for(map, key);
    if (map->keys[slot])
        return false;
    map->keys[slot] = key;
    map->values[slot] = value;
    map->len++;
    return true;
}

void fg_map_set(FgMap *map, const char *key, uint32_t value)
{
    uint32_t slot = slot_for(map, key);
    if (!map->keys[slot]) {
        map->keys[slot] = key;
        map->len++;
    }
    map->values[slot] = value;
}

bool fg_map_get(const FgMap *map, const char *key, uint32_t *out_value)
{
    if (!map->cap)
        return false;
    uint32_t slot = find_slot(map, key);
    if (!map->keys[slot])
        return false;
    if (out_value)
        *out_value = map->values[slot];
    return true;
}
