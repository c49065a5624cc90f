/* Bump arena: the owner of everything that lives as long as a session, a module or one pass.
 *
 * Nothing is freed singly. Allocation never fails towards its caller: when memory is exhausted the
 * process says so and ends with status 1. Memory comes zeroed and aligned to 16 bytes. */
#ifndef FG_BASE_ARENA_H
#define FG_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct FgArena FgArena;

FgArena *fg_arena_new(void);
void fg_arena_free(FgArena *arena);  /* NULL is allowed */
void fg_arena_reset(FgArena *arena); /* forgets every allocation, keeps the blocks */

void *fg_arena_alloc(FgArena *arena, size_t bytes);
/* n * size bytes; an overflow of the product ends like exhausted memory. */
void *fg_arena_alloc_array(FgArena *arena, size_t n, size_t size);
char *fg_arena_strdup(FgArena *arena, const char *s);
char *fg_arena_strndup(FgArena *arena, const char *s, size_t n);
char *fg_arena_printf(FgArena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *fg_arena_vprintf(FgArena *arena, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Says that `bytes` more could not be had, and what may help; ends the process with status 1. */
void fg_out_of_memory(size_t bytes) __attribute__((noreturn));

#define FG_NEW(arena, T) ((T *)fg_arena_alloc((arena), sizeof(T)))
#define FG_NEW_ARRAY(arena, T, n) ((T *)fg_arena_alloc_array((arena), (n), sizeof(T)))

#endif
