/* One tensor a trained parameter, read from the first moments. */
#include "runtime/trainer/dump_grads.h"

#include "runtime/trainer/safetensors.h"

#include <stdlib.h>

typedef struct Grads {
    const FgStore *store;
    uint32_t *params; /* of each tensor */
    float *buffer;    /* as large as the largest of them */
} Grads;

static const void *gradient(void *cx, uint32_t index, FgFail *fail)
{
    Grads *grads = cx;
    uint32_t param = grads->params[index];
    (void)fail;
    fg_store_get(grads->store, param, FG_PART_MOMENT1, 0,
                 grads->store->program->params[param].elements, grads->buffer);
    return grads->buffer;
}

bool fg_dump_grads(const FgStore *store, const char *path, const char *prefix, FgFail *fail)
{
    const FgRtProgram *program = store->program;
    FgTensorOut *tensors = fg_new(program->n_params, sizeof *tensors);
    char **names = fg_new(program->n_params, sizeof *names);
    Grads grads = {.store = store, .params = fg_new(program->n_params, sizeof *grads.params)};
    uint64_t most = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_params; i++) {
        const FgRtParam *param = &program->params[i];
        if (!fg_store_is_trained(store, i))
            continue;
        names[n] = fg_text("%s%s", prefix, param->name);
        tensors[n] =
            (FgTensorOut){names[n], FG_ST_F32, param->rank, program->dims + param->dims_first};
        grads.params[n++] = i;
        most = param->elements > most ? param->elements : most;
    }
    grads.buffer = fg_new((size_t)most, sizeof(float));
    bool ok = fg_safetensors_write(path, tensors, n, gradient, &grads, fail);
    for (uint32_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(tensors);
    free(grads.params);
    free(grads.buffer);
    return ok;
}
