/* The writer. Order in the file: elements of more bits first, then names, so that every tensor is
 * aligned to its element; the header is padded with spaces to a multiple of 8. A reader that has
 * the old file mapped keeps it: the new one is renamed over it. */
#include "runtime/trainer/safetensors.h"

#include "runtime/trainer/output.h"

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

struct FgTensorFile {
    char *path;
    int fd;
    uint64_t *offsets, *bytes; /* in the file, by the caller's index */
};

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

/* The header's text; the caller frees. NULL: not every tensor got an entry of its own, since a name
 * is no UTF-8 or stands twice; what the file would hold of it, nobody could find. */
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
    bool all = json_object_size(header) == (size_t)n + 1;
    char *text = all ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    return text;
}

/* The whole head: length, text, padding. The caller frees; NULL as above. */
static char *head_of(const Placed *placed, uint32_t n, uint64_t *out_bytes)
{
    char *text = header_text(placed, n);
    if (!text)
        return NULL;
    uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
    char *head = fg_new((size_t)padded + 8, 1);
    memcpy(head, &padded, 8);
    memset(head + 8, ' ', (size_t)padded);
    memcpy(head + 8, text, (size_t)length);
    free(text);
    *out_bytes = padded + 8;
    return head;
}

static bool cannot(const char *path, const char *what, FgFail *fail)
{
    return fg_fail(fail, "%s: cannot be %s: %s", path, what, strerror(errno));
}

static bool put_at(int fd, const char *path, uint64_t at, const void *data, size_t bytes,
                   FgFail *fail)
{
    const char *from = data;
    while (bytes) {
        ssize_t n = fg_file_fault(fail, FG_FAULT_WRITE) ? -1 : pwrite(fd, from, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cannot(path, "written", fail);
        from += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

bool fg_tensor_file_create(const char *path, const FgTensorOut *tensors, uint32_t n, FgFail *fail)
{
    Placed *placed = place(tensors, n);
    uint64_t bytes = 0, all;
    char *head = head_of(placed, n, &bytes);
    int fd = -1;
    bool ok =
        head || fg_fail(fail, "%s: a tensor's name is not valid UTF-8, or two have one name", path);
    all = bytes;
    for (uint32_t i = 0; i < n; i++)
        all += placed[i].bytes;
    if (ok) {
        if (!fg_file_fault(fail, FG_FAULT_WRITE))
            fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        ok = fd >= 0 || cannot(path, "created", fail);
    }
    ok = ok && put_at(fd, path, 0, head, (size_t)bytes, fail);
    if (ok && (fg_file_fault(fail, FG_FAULT_WRITE) || ftruncate(fd, (off_t)all) != 0))
        ok = cannot(path, "written", fail);
    if (fd >= 0 && (close(fd) != 0 || fg_file_fault(fail, FG_FAULT_WRITE)) && ok)
        ok = cannot(path, "written", fail);
    free(head);
    free(placed);
    return ok;
}

FgTensorFile *fg_tensor_file_open(const char *path, const FgTensorOut *tensors, uint32_t n,
                                  FgFail *fail)
{
    Placed *placed = place(tensors, n);
    uint64_t at = 0;
    char *head = head_of(placed, n, &at);
    FgTensorFile *file = NULL;
    int fd = head && !fg_file_fault(fail, FG_FAULT_WRITE) ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        file = fg_new(1, sizeof *file);
        *file = (FgTensorFile){fg_text("%s", path), fd, fg_new(n, 8), fg_new(n, 8)};
        for (uint32_t i = 0; i < n; i++) {
            file->offsets[placed[i].index] = at;
            file->bytes[placed[i].index] = placed[i].bytes;
            at += placed[i].bytes;
        }
    } else {
        cannot(path, "opened", fail);
    }
    free(head);
    free(placed);
    return file;
}

bool fg_tensor_file_put(FgTensorFile *file, uint32_t index, uint64_t first, const void *data,
                        size_t bytes, FgFail *fail)
{
    return put_at(file->fd, file->path, file->offsets[index] + first, data, bytes, fail);
}

bool fg_tensor_file_close(FgTensorFile *file, FgFail *fail)
{
    if (!file)
        return true;
    bool ok = (!fg_file_fault(fail, FG_FAULT_WRITE) && fsync(file->fd) == 0) ||
              cannot(file->path, "written", fail);
    if ((close(file->fd) != 0 || fg_file_fault(fail, FG_FAULT_WRITE)) && ok)
        ok = cannot(file->path, "written", fail);
    free(file->path);
    free(file->offsets);
    free(file->bytes);
    free(file);
    return ok;
}

bool fg_safetensors_write(const char *path, const FgTensorOut *tensors, uint32_t n,
                          FgTensorSource *source, void *cx, FgFail *fail)
{
    char *temporary = fg_output_begin(path, fail);
    bool made = temporary && fg_tensor_file_create(temporary, tensors, n, fail);
    FgTensorFile *file = made ? fg_tensor_file_open(temporary, tensors, n, fail) : NULL;
    bool ok = file != NULL;
    for (uint32_t i = 0; ok && i < n; i++) {
        const void *data = source(cx, i, fail);
        ok = data && fg_tensor_file_put(file, i, 0, data, (size_t)file->bytes[i], fail);
    }
    ok = fg_tensor_file_close(file, fail) && ok;
    if (temporary)
        ok = fg_output_end(temporary, path, ok, fail);
    free(temporary);
    return ok;
}
