/* The writer. Order in the file: elements of more bits first, then names, so that every tensor is
 * aligned to its element; the header is padded with spaces to a multiple of 8. A reader that has
 * the old file mapped keeps it: the new one is renamed over it. */
#include "runtime/trainer/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Placed {
    uint32_t index; /* into the caller's tensors */
    const FgTensorOut *tensor;
    uint64_t bytes;
} Placed;

static int by_layout(const void *a, const void *b)
{
    const Placed *x = a, *y = b;
    uint32_t bits_x = fg_st_dtype_bits(x->tensor->dtype),
             bits_y = fg_st_dtype_bits(y->tensor->dtype);
    if (bits_x != bits_y)
        return bits_x > bits_y ? -1 : 1;
    return strcmp(x->tensor->name, y->tensor->name);
}

static Placed *place(const FgTensorOut *tensors, uint32_t n)
{
    Placed *placed = fg_new(n, sizeof *placed);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t elements = 1;
        for (uint32_t k = 0; k < tensors[i].rank; k++)
            elements *= (uint64_t)tensors[i].dims[k];
        placed[i] = (Placed){i, &tensors[i], elements * fg_st_dtype_bits(tensors[i].dtype) / 8};
    }
    qsort(placed, n, sizeof *placed, by_layout);
    return placed;
}

/* The header's text; the caller frees. */
static char *header_text(const Placed *placed, uint32_t n)
{
    uint64_t offset = 0;
    json_t *header = json_object();
    json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (uint32_t i = 0; i < n; i++) {
        const FgTensorOut *tensor = placed[i].tensor;
        json_t *shape = json_array();
        for (uint32_t k = 0; k < tensor->rank; k++)
            json_array_append_new(shape, json_integer(tensor->dims[k]));
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", fg_st_dtype_name(tensor->dtype),
                                  "shape", shape, "data_offsets", (json_int_t)offset,
                                  (json_int_t)(offset + placed[i].bytes));
        json_object_set_new(header, tensor->name, entry);
        offset += placed[i].bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    return text;
}

static bool put(FILE *stream, const char *path, const void *data, size_t bytes, FgFail *fail)
{
    if (bytes && fwrite(data, 1, bytes, stream) != bytes)
        return fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    return true;
}

static bool put_header(FILE *stream, const char *path, const Placed *placed, uint32_t n,
                       FgFail *fail)
{
    char *text = header_text(placed, n);
    if (!text)
        return fg_fail(fail, "%s: a tensor's name is not valid UTF-8", path);
    uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
    bool ok = put(stream, path, &padded, sizeof padded, fail) &&
              put(stream, path, text, (size_t)length, fail) &&
              put(stream, path, "       ", (size_t)(padded - length), fail);
    free(text);
    return ok;
}

static bool put_all(FILE *stream, const char *path, const Placed *placed, uint32_t n,
                    FgTensorSource *source, void *cx, FgFail *fail)
{
    if (!put_header(stream, path, placed, n, fail))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const void *data = source(cx, placed[i].index, fail);
        if (!data || !put(stream, path, data, (size_t)placed[i].bytes, fail))
            return false;
    }
    if (fflush(stream) != 0 || fsync(fileno(stream)) != 0)
        return fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    return true;
}

bool fg_safetensors_write(const char *path, const FgTensorOut *tensors, uint32_t n,
                          FgTensorSource *source, void *cx, FgFail *fail)
{
    char *temporary = fg_text("%s.tmp-%ld", path, (long)getpid());
    FILE *stream = fopen(temporary, "wb");
    bool ok = stream || fg_fail(fail, "%s: cannot be created: %s", temporary, strerror(errno));
    Placed *placed = place(tensors, n);
    ok = ok && put_all(stream, path, placed, n, source, cx, fail);
    if (stream && fclose(stream) != 0 && ok)
        ok = fg_fail(fail, "%s: cannot be written: %s", path, strerror(errno));
    if (ok && rename(temporary, path) != 0)
        ok = fg_fail(fail, "%s: cannot be renamed from %s: %s", path, temporary, strerror(errno));
    if (!ok && stream)
        unlink(temporary);
    free(placed);
    free(temporary);
    return ok;
}
