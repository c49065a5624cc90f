/* Times of all calls of the run, the first ones included. */
#include "runtime/trainer/profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool fg_profile_write(const char *path, const FgRtProgram *program, const FgRtCx *cx, FgFail *fail)
{
    FILE *stream = fopen(path, "w");
    if (!stream)
        return fg_fail(fail, "%s: cannot be created: %s", path, strerror(errno));
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
    bool ok = fflush(stream) == 0;
    if (fclose(stream) != 0 || !ok)
        return fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    return true;
}
