/* The bump arena: a list of blocks, each twice the one before up to a bound, larger for one large
 * allocation.
 *
 * A reset keeps the blocks and walks them again, so a scratch arena reaches a steady state after
 * the first pass. Memory is zeroed when it is handed out, because a reset block is dirty. Under
 * AddressSanitizer everything that is not handed out is poisoned, with a gap behind each
 * allocation, so overruns inside a block are seen. */
#include "base/arena.h"

#include "base/diag.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region((p), (n))
#define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#define ARENA_GAP 16u
#define BLOCK_BYTES(n) calloc(1, (n)) /* compilers take poisoning for a read */
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define ARENA_GAP 0u
#define BLOCK_BYTES(n) malloc(n)
#endif

#define ARENA_ALIGN ((size_t)16)
#define FIRST_BLOCK ((size_t)16 << 10)
#define LARGEST_STEP ((size_t)4 << 20)

typedef struct Block {
    struct Block *next;
    size_t size, used; /* bytes of the payload, which begins at the next multiple of ARENA_ALIGN */
} Block;

struct FgArena {
    Block *first;
    Block *current; /* where the next allocation is tried; blocks behind it are free */
};

#define HEADER ((sizeof(Block) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN)

/* No one could go on, and no bug of ours: neither a return nor an abort. Nothing buffered is
 * written: half a result is none. */
void fg_out_of_memory(size_t bytes)
{
    fprintf(stderr,
            "error: out of memory: %zu bytes more are needed, and the system gives none\n"
            "note: allow the command more (ulimit -v, the limit of its container), or give a "
            "smaller model, --batch or --seq, or larger pieces (--vocab-chunk)\n",
            bytes);
    _exit(EXIT_FAILURE);
}

static char *payload(Block *block)
{
    return (char *)block + HEADER;
}

static Block *block_new(size_t size)
{
    if (size > SIZE_MAX - HEADER)
        fg_out_of_memory(size);
    Block *block = BLOCK_BYTES(HEADER + size);
    if (!block)
        fg_out_of_memory(size);
    block->next = NULL;
    block->size = size;
    block->used = 0;
    POISON(payload(block), size);
    return block;
}

FgArena *fg_arena_new(void)
{
    FgArena *arena = malloc(sizeof *arena);
    if (!arena)
        fg_out_of_memory(sizeof *arena);
    arena->first = arena->current = block_new(FIRST_BLOCK);
    return arena;
}

void fg_arena_free(FgArena *arena)
{
    if (!arena)
        return;
    for (Block *block = arena->first; block;) {
        Block *next = block->next;
        UNPOISON(payload(block), block->size);
        free(block);
        block = next;
    }
    free(arena);
}

void fg_arena_reset(FgArena *arena)
{
    for (Block *block = arena->first; block; block = block->next) {
        POISON(payload(block), block->size);
        block->used = 0;
    }
    arena->current = arena->first;
}

/* Moves on to a block with room for `need` bytes: a kept one behind the current block, or a new
 * one. */
static Block *next_block(FgArena *arena, size_t need)
{
    Block *last = arena->current;
    while (last->next && last->next->size - last->next->used < need)
        last = last->next;
    if (!last->next) {
        size_t size = last->size < LARGEST_STEP ? last->size * 2 : LARGEST_STEP;
        last->next = block_new(size > need ? size : need);
    }
    arena->current = last->next;
    return arena->current;
}

void *fg_arena_alloc(FgArena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 4 * ARENA_ALIGN)
        fg_out_of_memory(bytes);
    size_t need = (bytes + ARENA_GAP + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (need == 0)
        need = ARENA_ALIGN;
    Block *block = arena->current;
    if (block->size - block->used < need)
        block = next_block(arena, need);
    char *p = payload(block) + block->used;
    block->used += need;
    UNPOISON(p, bytes);
    memset(p, 0, bytes);
    return p;
}

void *fg_arena_alloc_array(FgArena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        fg_out_of_memory(SIZE_MAX);
    return fg_arena_alloc(arena, bytes);
}

char *fg_arena_strndup(FgArena *arena, const char *s, size_t n)
{
    char *copy = fg_arena_alloc(arena, n + 1);
    if (n)
        memcpy(copy, s, n);
    return copy;
}

char *fg_arena_strdup(FgArena *arena, const char *s)
{
    return fg_arena_strndup(arena, s, strlen(s));
}

char *fg_arena_vprintf(FgArena *arena, const char *format, va_list args)
{
    /* Most texts are short: one formatting, not two. */
    char small[256];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, again);
    va_end(again);
    FG_ASSERT(n >= 0);
    if ((size_t)n < sizeof small)
        return fg_arena_strndup(arena, small, (size_t)n);
    char *text = fg_arena_alloc(arena, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, args);
    return text;
}

char *fg_arena_printf(FgArena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = fg_arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}
