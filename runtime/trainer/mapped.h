/* A whole file, mapped for reading. */
#ifndef FG_RUNTIME_TRAINER_MAPPED_H
#define FG_RUNTIME_TRAINER_MAPPED_H

#include "runtime/trainer/fail.h"

typedef struct FgMapped {
    const unsigned char *data; /* NULL for an empty file */
    size_t bytes;
} FgMapped;

bool fg_map_file(FgMapped *out_map, const char *path, FgFail *fail);
void fg_unmap_file(FgMapped *map);

#endif
