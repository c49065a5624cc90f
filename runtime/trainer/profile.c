/* Times of all calls of the run, the first ones included. A file appears when its table is whole;
 * a device or a pipe is written to as it is. */
#include "runtime/trainer/profile.h"

#include "runtime/trainer/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_stream(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

bool fg_profile_check(const char *path, FgFail *fail)
{
    return is_stream(path) || fg_output_check(path, fail);
}

bool fg_profile_ops_check(const char *ops, const FgRtProgram *program, FgFail *fail)
{
    for (const char *at = ops, *next; at; at = next) {
        size_t length = strcspn(at, ",");
        next = at[length] ? at + length + 1 : NULL;
        uint32_t i = 0;
        while (i < program->n_nodes && (strlen(program->nodes[i].op) != length ||
                                        strncmp(program->nodes[i].op, at, length) != 0))
            i++;
        if (i == program->n_nodes)
            return fg_fail(fail,
                           "--profile-ops: no node of the program is '%.*s'; a table of "
                           "--profile alone names its ops",
                           (int)length, at);
    }
    return true;
}

static void put_table(FILE *stream, const FgRtProgram *program, const FgRtCx *cx)
{
    fprintf(stream, "node\top\tcalls\tus\ttotal_us\tstart_us\tname\tplace\n");
    for (uint32_t i = 0; i < program->n_nodes; i++) {
        const FgRtNode *node = &program->nodes[i];
        uint64_t calls;
        double start, us = fg_rt_node_us(cx, i, &calls, &start), n = (double)calls;
        if (calls)
            fprintf(stream, "%u\t%s\t%llu\t%.2f\t%.0f\t%.2f\t%s\t%s:%u:%u\n", i, node->op,
                    (unsigned long long)calls, us / n, us, start / n, node->name, node->file,
                    node->line, node->col);
    }
}

static bool write_to(const char *at, const char *path, const FgRtProgram *program, const FgRtCx *cx,
                     FgFail *fail)
{
    FILE *stream = fg_file_fault(fail, FG_FAULT_WRITE) ? NULL : fopen(at, "w");
    bool ok = stream != NULL;
    if (ok)
        put_table(stream, program, cx);
    ok = ok && !ferror(stream) && !fg_file_fault(fail, FG_FAULT_WRITE) && fflush(stream) == 0;
    if (!ok)
        fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    if (stream && fclose(stream) != 0 && ok)
        ok = fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    return ok;
}

bool fg_profile_write(const char *path, const FgRtProgram *program, const FgRtCx *cx, FgFail *fail)
{
    if (is_stream(path))
        return write_to(path, path, program, cx, fail);
    char *made = fg_output_begin(path, fail);
    bool ok = made && write_to(made, path, program, cx, fail);
    if (made)
        ok = fg_output_end(made, path, ok, fail);
    free(made);
    return ok;
}
