/* The one place that maps files. The mapping is private and read-only; it ends with fg_unmap_file.
 */
#include "runtime/trainer/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool map_open(FgMapped *out_map, const char *path, int fd, FgFail *fail)
{
    struct stat info;
    if (fg_file_fault(fail, FG_FAULT_READ) || fstat(fd, &info) != 0)
        return fg_fail(fail, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fg_fail(fail, "%s: not a regular file", path);
    out_map->bytes = (size_t)info.st_size;
    if (out_map->bytes == 0)
        return true;
    void *data = MAP_FAILED;
    if (!fg_file_fault(fail, FG_FAULT_READ))
        data = mmap(NULL, out_map->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return fg_fail(fail, "%s: cannot be mapped: %s", path, strerror(errno));
    out_map->data = data;
    return true;
}

bool fg_map_file(FgMapped *out_map, const char *path, FgFail *fail)
{
    *out_map = (FgMapped){0};
    int fd = fg_file_fault(fail, FG_FAULT_READ) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fg_fail(fail, "%s: cannot be opened: %s", path, strerror(errno));
    bool ok = map_open(out_map, path, fd, fail);
    close(fd);
    return ok;
}

void fg_unmap_file(FgMapped *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (FgMapped){0};
}
