/* Each process writes at the places of its own elements; nobody's data travels. */
#include "runtime/trainer/publish.h"

#include "runtime/dtype.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 1048576u /* elements */

bool fg_is_first(const FgWorld *world)
{
    return fg_world_place(world)->rank == 0;
}

bool fg_meet(FgWorld *world, FgFail *fail)
{
    return fg_world_barrier(world) || fg_fail(fail, "%s", fg_world_failure(world));
}

/* Of several processes, the message says which one it comes from. */
void fg_tell(FgWorld *world, FgFail *fail)
{
    const FgPlace *place = fg_world_place(world);
    if (place->ranks > 1 && strncmp(fail->text, "rank ", 5) != 0) {
        char *text = fg_text("rank %u: %s", place->rank, fail->text);
        fg_fail_clear(fail);
        fail->text = text;
    }
    fg_world_fail(world, fail->text);
}

bool fg_share_text(FgWorld *world, char **text, FgFail *fail)
{
    uint64_t bytes = *text ? strlen(*text) + 1 : 0;
    if (!fg_world_share(world, &bytes, sizeof bytes))
        return fg_fail(fail, "%s", fg_world_failure(world));
    if (!fg_is_first(world)) {
        free(*text);
        *text = fg_new((size_t)bytes, 1);
    }
    return fg_world_share(world, *text, (size_t)bytes) ||
           fg_fail(fail, "%s", fg_world_failure(world));
}

static FgStDtype st_dtype(FgRtDtype dtype)
{
    return dtype == FG_RT_BF16 ? FG_ST_BF16 : dtype == FG_RT_F16 ? FG_ST_F16 : FG_ST_F32;
}

static FgRtDtype dtype_of(const FgStore *store, const FgPublished *tensor)
{
    return tensor->working ? fg_store_dtype(store, tensor->param) : FG_RT_F32;
}

static FgTensorOut *describe(const FgStore *store, const FgPublished *tensors, uint32_t n)
{
    FgTensorOut *out = fg_new(n, sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        const FgRtParam *param = &store->program->params[tensors[i].param];
        out[i] = (FgTensorOut){tensors[i].name, st_dtype(dtype_of(store, &tensors[i])), param->rank,
                               store->program->dims + param->dims_first};
    }
    return out;
}

static bool put_here(const FgStore *store, FgTensorFile *file, const FgPublished *tensor,
                     uint32_t index, void *buffer, FgFail *fail)
{
    size_t item = (size_t)fg_rt_dtype_bytes(dtype_of(store, tensor));
    uint64_t first, count;
    for (first = 0; (count = fg_store_here(store, tensor->param, &first, CHUNK)); first += count) {
        if (tensor->working)
            fg_store_get_working(store, tensor->param, first, count, buffer);
        else
            fg_store_get(store, tensor->param, tensor->part, first, count, buffer);
        if (!fg_store_ok(store, fail) ||
            !fg_tensor_file_put(file, index, first * item, buffer, (size_t)count * item, fail))
            return false;
    }
    return true;
}

bool fg_publish(const FgStore *store, FgWorld *world, const char *path, const FgPublished *tensors,
                uint32_t n, FgFail *fail)
{
    FgTensorOut *out = describe(store, tensors, n);
    void *buffer = fg_new(CHUNK, sizeof(float));
    bool ok =
        (!fg_is_first(world) || fg_tensor_file_create(path, out, n, fail)) && fg_meet(world, fail);
    FgTensorFile *file = ok ? fg_tensor_file_open(path, out, n, fail) : NULL;
    ok = file != NULL;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = put_here(store, file, &tensors[i], i, buffer, fail);
    ok = fg_tensor_file_close(file, fail) && ok && fg_meet(world, fail);
    free(buffer);
    free(out);
    return ok;
}
