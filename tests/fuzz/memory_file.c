/* One anonymous file for the life of the process, opened through /proc. */
#define _GNU_SOURCE
#include "memory_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

const char *memory_file(const uint8_t *data, size_t size)
{
    static int file = -1; /* a test's own state */
    static char path[64];
    if (file < 0)
        file = memfd_create("fuzz", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file < 0 || ftruncate(file, (off_t)size) != 0 ||
        pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    return path;
}
