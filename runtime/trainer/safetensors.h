/* safetensors files: a strict reader over a mapped file, and a writer that replaces a file at once
 * or not at all.
 *
 * The reader checks everything before it hands out a pointer: the header's length, its JSON, every
 * dtype, shape and range, that the ranges tile the data without holes or overlap, and that the file
 * ends where they end. Names are data and never used as paths. The format is little-endian, and so
 * is every machine we run on. */
#ifndef FG_RUNTIME_TRAINER_SAFETENSORS_H
#define FG_RUNTIME_TRAINER_SAFETENSORS_H

#include "runtime/trainer/fail.h"

typedef enum FgStDtype {
#define FG_ST_DTYPE(name, bits) FG_ST_##name,
#include "runtime/trainer/st_dtypes.def"
#undef FG_ST_DTYPE
    FG_N_ST_DTYPES
} FgStDtype;

const char *fg_st_dtype_name(FgStDtype dtype);
uint32_t fg_st_dtype_bits(FgStDtype dtype);

typedef struct FgTensor {
    const char *name;
    FgStDtype dtype;
    uint32_t rank;
    const int64_t *dims;
    uint64_t elements, bytes;
    const unsigned char *data; /* into the mapping; no alignment is promised */
} FgTensor;

typedef struct FgSafetensors FgSafetensors;

/* NULL on failure. Tensors and their data live until fg_safetensors_close. */
FgSafetensors *fg_safetensors_open(const char *path, FgFail *fail);
void fg_safetensors_close(FgSafetensors *file);
uint32_t fg_safetensors_count(const FgSafetensors *file);
const FgTensor *fg_safetensors_at(const FgSafetensors *file, uint32_t index); /* sorted by name */
const FgTensor *fg_safetensors_find(const FgSafetensors *file, const char *name); /* or NULL */
const char *fg_safetensors_path(const FgSafetensors *file);

/* Elements as floats: F32, BF16 and F16 only (fg_st_is_float). */
bool fg_st_is_float(FgStDtype dtype);
void fg_tensor_floats(const FgTensor *tensor, uint64_t first, uint64_t count, float *out);
/* "F32 [2, 16]"; the caller frees. */
char *fg_tensor_text(const FgTensor *tensor);
/* "[2, 16]"; the caller frees. */
char *fg_dims_text(const int64_t *dims, uint32_t rank);

/* What a file to be written holds. */
typedef struct FgTensorOut {
    const char *name;
    FgStDtype dtype;
    uint32_t rank;
    const int64_t *dims;
} FgTensorOut;

/* A file in the making, filled piece by piece, by one process or several. */
typedef struct FgTensorFile FgTensorFile;

/* Makes the file, header and size, for fg_tensor_file_open. Every process gives the same tensors.
 */
bool fg_tensor_file_create(const char *path, const FgTensorOut *tensors, uint32_t n, FgFail *fail);
FgTensorFile *fg_tensor_file_open(const char *path, const FgTensorOut *tensors, uint32_t n,
                                  FgFail *fail);
/* Bytes [first, first + bytes) of tensors[index]. */
bool fg_tensor_file_put(FgTensorFile *file, uint32_t index, uint64_t first, const void *data,
                        size_t bytes, FgFail *fail);
/* Syncs; NULL is nothing. */
bool fg_tensor_file_close(FgTensorFile *file, FgFail *fail);

/* Gives the whole data of tensors[index]; valid until the next call. NULL: the caller's failure,
 * which it put in `fail`. */
typedef const void *FgTensorSource(void *cx, uint32_t index, FgFail *fail);

/* All at once: writes beside `path` under a temporary name, syncs and renames. */
bool fg_safetensors_write(const char *path, const FgTensorOut *tensors, uint32_t n,
                          FgTensorSource *source, void *cx, FgFail *fail);

#endif
