/* Copies between the memory that stands for the device's and the one that stands for the host's. */
#include <string.h>

#include "runtime/host/kernels.h"

void fg_host_stash(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t bytes)
{
    memcpy(fg_at(cx, y), fg_at(cx, x), (size_t)bytes);
}

void fg_host_fetch(FgRtCx *cx, uint64_t x, uint64_t y, uint64_t bytes)
{
    memcpy(fg_at(cx, y), fg_at(cx, x), (size_t)bytes);
}
