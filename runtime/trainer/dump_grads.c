/* One tensor a trained parameter, read from the first moments. The file appears when it is whole.
 */
#include "runtime/trainer/dump_grads.h"

#include "runtime/trainer/output.h"

#include <stdlib.h>

bool fg_dump_grads(const FgStore *store, FgWorld *world, const char *path, const char *prefix,
                   uint32_t *out_n, FgFail *fail)
{
    const FgRtProgram *program = store->program;
    FgPublished *tensors = fg_new(program->n_params, sizeof *tensors);
    char **names = fg_new(program->n_params, sizeof *names);
    bool first = fg_is_first(world);
    char *made = first ? fg_output_begin(path, fail) : NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_params; i++) {
        if (!fg_store_is_trained(store, i))
            continue;
        names[n] = fg_text("%s%s", prefix, program->params[i].name);
        tensors[n] = (FgPublished){names[n], i, FG_PART_MOMENT1, false};
        n++;
    }
    bool ok = (!first || made) && fg_share_text(world, &made, fail) &&
              fg_publish(store, world, made, tensors, n, fail);
    if (!ok)
        fg_tell(world, fail);
    if (first && made)
        ok = fg_output_end(made, path, ok, fail);
    *out_n = n;
    for (uint32_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(tensors);
    free(made);
    return ok;
}
