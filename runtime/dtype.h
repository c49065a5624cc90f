/* Storage types: their size. Their values as f32 are fg_custom.h's, since custom functions need
 * them too. */
#ifndef FG_RUNTIME_DTYPE_H
#define FG_RUNTIME_DTYPE_H

#include "runtime/fg_rt.h"

/* Bytes of an element; 0 for no dtype. */
static inline uint64_t fg_rt_dtype_bytes(uint64_t dt)
{
    switch (dt) {
    case FG_RT_BF16:
    case FG_RT_F16:
        return 2;
    case FG_RT_F32:
    case FG_RT_I32:
        return 4;
    case FG_RT_F64:
    case FG_RT_I64:
        return 8;
    default:
        return 0;
    }
}

#endif
