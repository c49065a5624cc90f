/* One tensor a trained parameter, read from the first moments. The file appears when it is whole.
 */
#include "runtime/trainer/dump_grads.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool put_in_place(const char *made, const char *path, bool ok, FgFail *fail)
{
    if (ok && rename(made, path) != 0)
        ok = fg_fail(fail, "%s: cannot be renamed to %s: %s", made, path, strerror(errno));
    if (!ok)
        unlink(made);
    return ok;
}

bool fg_dump_grads(const FgStore *store, FgWorld *world, const char *path, const char *prefix,
                   FgFail *fail)
{
    const FgRtProgram *program = store->program;
    FgPublished *tensors = fg_new(program->n_params, sizeof *tensors);
    char **names = fg_new(program->n_params, sizeof *names);
    char *made = fg_text("%s.part", path);
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_params; i++) {
        if (!fg_store_is_trained(store, i))
            continue;
        names[n] = fg_text("%s%s", prefix, program->params[i].name);
        tensors[n] = (FgPublished){names[n], i, FG_PART_MOMENT1, false};
        n++;
    }
    bool ok = fg_publish(store, world, made, tensors, n, fail);
    if (fg_is_first(world))
        ok = put_in_place(made, path, ok, fail);
    for (uint32_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(tensors);
    free(made);
    return ok;
}
