/* Times of all calls of the run, the first ones included. */
#include "runtime/trainer/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *fg_profile_open(const char *path, FgFail *fail)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    FILE *stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (stream)
        return stream;
    fg_fail(fail, "%s: cannot be created: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return NULL;
}

bool fg_profile_write(FILE *stream, const char *path, const FgRtProgram *program, const FgRtCx *cx,
                      FgFail *fail)
{
    struct stat info;
    if (fstat(fileno(stream), &info) == 0 && S_ISREG(info.st_mode) &&
        ftruncate(fileno(stream), 0) != 0)
        return fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    fprintf(stream, "node\top\tcalls\tus\ttotal_us\tname\tplace\n");
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        const FgRtNode *node = &program->nodes[i];
        uint64_t calls;
        double us = fg_rt_node_us(cx, i, &calls);
        if (calls)
            fprintf(stream, "%u\t%s\t%llu\t%.2f\t%.0f\t%s\t%s:%u:%u\n", i, node->op,
                    (unsigned long long)calls, us / (double)calls, us, node->name, node->file,
                    node->line, node->col);
    }
    if (fflush(stream) != 0)
        return fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    return true;
}
