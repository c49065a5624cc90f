/* The reader. The header goes through Jansson (duplicate keys rejected); then every entry is
 * checked on its own, and all of them together in order of offset. Sizes are checked before each
 * product, so that no header can wrap one. */
#include "runtime/trainer/safetensors.h"

#include "runtime/trainer/mapped.h"
#include "runtime/dtype.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 100000000u /* the format's own limit */

struct FgSafetensors {
    char *path;
    FgMapped map;
    json_t *header; /* owns the names */
    FgTensor *tensors;
    uint32_t n;
    int64_t *dims; /* all shapes, one after the other */
};

typedef struct DtypeRow {
    const char *name;
    uint32_t bits;
} DtypeRow;

static const DtypeRow DTYPES[] = {
#define FG_ST_DTYPE(name, bits) {#name, bits},
#include "runtime/trainer/st_dtypes.def"
#undef FG_ST_DTYPE
};

const char *fg_st_dtype_name(FgStDtype dtype)
{
    return DTYPES[dtype].name;
}

uint32_t fg_st_dtype_bits(FgStDtype dtype)
{
    return DTYPES[dtype].bits;
}

bool fg_st_is_float(FgStDtype dtype)
{
    return dtype == FG_ST_F32 || dtype == FG_ST_BF16 || dtype == FG_ST_F16;
}

static bool find_dtype(const char *name, FgStDtype *out_dtype)
{
    for (int i = 0; i < FG_N_ST_DTYPES; i++)
        if (strcmp(DTYPES[i].name, name) == 0) {
            *out_dtype = (FgStDtype)i;
            return true;
        }
    return false;
}

static bool metadata_ok(const FgSafetensors *file, json_t *metadata, FgFail *fail)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return fg_fail(fail, "%s: __metadata__ is not an object", file->path);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return fg_fail(fail, "%s: __metadata__ '%s' is not a string", file->path, key);
    }
    return true;
}

static bool read_shape(const FgSafetensors *file, FgTensor *tensor, json_t *shape, int64_t *dims,
                       FgFail *fail)
{
    uint64_t elements = 1;
    tensor->rank = (uint32_t)json_array_size(shape);
    tensor->dims = dims;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return fg_fail(fail, "%s: tensor '%s': shape has an entry that is no size", file->path,
                           tensor->name);
        dims[i] = json_integer_value(dim);
        if (__builtin_mul_overflow(elements, (uint64_t)dims[i], &elements))
            return fg_fail(fail, "%s: tensor '%s': its shape overflows", file->path, tensor->name);
    }
    tensor->elements = elements;
    return true;
}

static bool read_range(const FgSafetensors *file, FgTensor *tensor, json_t *offsets, uint64_t start,
                       FgFail *fail)
{
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    uint64_t bits, data_bytes = file->map.bytes - start;
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fg_fail(fail, "%s: tensor '%s': data_offsets is not [begin, end]", file->path,
                       tensor->name);
    int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > data_bytes)
        return fg_fail(fail,
                       "%s: tensor '%s': data_offsets [%lld, %lld] lie outside the file's %llu "
                       "bytes of data",
                       file->path, tensor->name, (long long)from, (long long)to,
                       (unsigned long long)data_bytes);
    if (__builtin_mul_overflow(tensor->elements, (uint64_t)DTYPES[tensor->dtype].bits, &bits) ||
        bits % 8 != 0)
        return fg_fail(fail, "%s: tensor '%s': its size is no number of bytes", file->path,
                       tensor->name);
    tensor->bytes = (uint64_t)(to - from);
    if (tensor->bytes != bits / 8)
        return fg_fail(fail, "%s: tensor '%s': data_offsets hold %llu bytes, its shape needs %llu",
                       file->path, tensor->name, (unsigned long long)tensor->bytes,
                       (unsigned long long)(bits / 8));
    tensor->data = file->map.data + start + (uint64_t)from;
    return true;
}

static bool read_entry(const FgSafetensors *file, FgTensor *tensor, json_t *entry, int64_t *dims,
                       uint64_t start, FgFail *fail)
{
    json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape"),
           *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_object_size(entry) != 3)
        return fg_fail(fail, "%s: tensor '%s': its keys must be dtype, shape and data_offsets",
                       file->path, tensor->name);
    if (!find_dtype(json_string_value(dtype), &tensor->dtype))
        return fg_fail(fail, "%s: tensor '%s': unknown dtype '%s'", file->path, tensor->name,
                       json_string_value(dtype));
    return read_shape(file, tensor, shape, dims, fail) &&
           read_range(file, tensor, offsets, start, fail);
}

static int by_offset(const void *a, const void *b)
{
    const FgTensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const FgTensor *)a)->name, ((const FgTensor *)b)->name);
}

/* Ranges tile the data section exactly. */
static bool ranges_ok(const FgSafetensors *file, uint64_t start, FgFail *fail)
{
    const unsigned char *next = file->map.data + start;
    qsort(file->tensors, file->n, sizeof *file->tensors, by_offset);
    for (uint32_t i = 0; i < file->n; i++) {
        if (file->tensors[i].data != next)
            return fg_fail(fail, "%s: tensor '%s': a hole or an overlap before its data",
                           file->path, file->tensors[i].name);
        next += file->tensors[i].bytes;
    }
    if (next != file->map.data + file->map.bytes)
        return fg_fail(fail, "%s: %llu bytes after the last tensor", file->path,
                       (unsigned long long)(file->map.data + file->map.bytes - next));
    return true;
}

static size_t count_dims(json_t *header)
{
    size_t n = 0;
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry)
    {
        n += json_array_size(json_object_get(entry, "shape"));
    }
    return n;
}

static bool read_entries(FgSafetensors *file, uint64_t start, FgFail *fail)
{
    const char *key;
    json_t *entry;
    file->tensors = fg_new(json_object_size(file->header), sizeof *file->tensors);
    file->dims = fg_new(count_dims(file->header), sizeof *file->dims);
    int64_t *dims = file->dims;
    json_object_foreach(file->header, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0) {
            if (!metadata_ok(file, entry, fail))
                return false;
            continue;
        }
        FgTensor *tensor = &file->tensors[file->n++];
        tensor->name = key;
        if (!read_entry(file, tensor, entry, dims, start, fail))
            return false;
        dims += tensor->rank;
    }
    return true;
}

static bool read_header(FgSafetensors *file, FgFail *fail)
{
    uint64_t length = 0;
    json_error_t error;
    if (file->map.bytes < 8)
        return fg_fail(fail, "%s: %zu bytes are too short for a safetensors file", file->path,
                       file->map.bytes);
    memcpy(&length, file->map.data, 8);
    if (length > MAX_HEADER || length > file->map.bytes - 8)
        return fg_fail(fail, "%s: not a safetensors file: a header of %llu bytes does not fit",
                       file->path, (unsigned long long)length);
    if (length == 0 || file->map.data[8] != '{')
        return fg_fail(fail, "%s: not a safetensors file: the header does not start with '{'",
                       file->path);
    file->header = json_loadb((const char *)file->map.data + 8, (size_t)length,
                              JSON_REJECT_DUPLICATES, &error);
    if (!file->header) {
        enum json_error_code code = json_error_code(&error);
        bool nul = code == json_error_null_character || code == json_error_null_byte_in_key;
        return fg_fail(fail, "%s: header: %s (byte %d)", file->path,
                       nul ? "\\u0000 has no place in a name or text" : error.text, error.position);
    }
    return read_entries(file, 8 + length, fail) && ranges_ok(file, 8 + length, fail);
}

FgSafetensors *fg_safetensors_open(const char *path, FgFail *fail)
{
    FgSafetensors *file = fg_new(1, sizeof *file);
    file->path = fg_text("%s", path);
    if (!fg_map_file(&file->map, path, fail) || !read_header(file, fail)) {
        fg_safetensors_close(file);
        return NULL;
    }
    qsort(file->tensors, file->n, sizeof *file->tensors, by_name);
    return file;
}

void fg_safetensors_close(FgSafetensors *file)
{
    if (!file)
        return;
    json_decref(file->header);
    fg_unmap_file(&file->map);
    free(file->tensors);
    free(file->dims);
    free(file->path);
    free(file);
}

uint32_t fg_safetensors_count(const FgSafetensors *file)
{
    return file->n;
}

const FgTensor *fg_safetensors_at(const FgSafetensors *file, uint32_t index)
{
    return &file->tensors[index];
}

const FgTensor *fg_safetensors_find(const FgSafetensors *file, const char *name)
{
    FgTensor key = {.name = name};
    return bsearch(&key, file->tensors, file->n, sizeof key, by_name);
}

const char *fg_safetensors_path(const FgSafetensors *file)
{
    return file->path;
}

void fg_tensor_floats(const FgTensor *tensor, uint64_t first, uint64_t count, float *out)
{
    if (tensor->dtype == FG_ST_F32) {
        memcpy(out, tensor->data + 4 * first, 4 * count);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, tensor->data + 2 * (first + i), 2);
        out[i] = tensor->dtype == FG_ST_BF16 ? fg_bf16_to_f32(bits) : fg_f16_to_f32(bits);
    }
}

char *fg_dims_text(const int64_t *dims, uint32_t rank)
{
    char *text = fg_text("[");
    for (uint32_t i = 0; i < rank; i++) {
        char *more = fg_text("%s%s%lld", text, i ? ", " : "", (long long)dims[i]);
        free(text);
        text = more;
    }
    char *whole = fg_text("%s]", text);
    free(text);
    return whole;
}

char *fg_tensor_text(const FgTensor *tensor)
{
    char *dims = fg_dims_text(tensor->dims, tensor->rank);
    char *text = fg_text("%s %s", fg_st_dtype_name(tensor->dtype), dims);
    free(dims);
    return text;
}
