/* Growing arrays in an arena. `FG_VEC(T)` declares one; a zeroed one is empty. Growth copies into a
 * new block, so pointers to elements do not survive a push: keep indices. */
#ifndef FG_BASE_VEC_H
#define FG_BASE_VEC_H

#include "base/arena.h"

#include <stdint.h>

#define FG_VEC(T)                                                                                  \
    struct {                                                                                       \
        T *data;                                                                                   \
        uint32_t len, cap;                                                                         \
    }

typedef FG_VEC(uint32_t) FgIdVec;
typedef FG_VEC(const char *) FgStrVec;

/* Used by the macros: makes room for one more element and returns the (possibly moved) array. */
void *fg_vec_grow(FgArena *arena, void *data, uint32_t len, uint32_t *cap, size_t size);

#define fg_vec_push(arena, v, x)                                                                   \
    do {                                                                                           \
        if ((v)->len >= (v)->cap)                                                                  \
            (v)->data = fg_vec_grow((arena), (v)->data, (v)->len, &(v)->cap, sizeof *(v)->data);   \
        (v)->data[(v)->len++] = (x);                                                               \
    } while (0)

#endif
