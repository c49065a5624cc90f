/* Element types: names, sizes, and the sizes of tensors made of them. Sizes were checked for
 * overflow by whoever made the type (shape inference, the frontend, the parser), so the products
 * here are plain. */
#include "ir/types.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
    bool is_float;
    const char *aliases; /* space-separated, with a space at both ends */
} dtypes[FG_N_DTYPES] = {
    [FG_F32] = {"f32", 4, true, " fp32 float32 float "},
    [FG_BF16] = {"bf16", 2, true, " bfloat16 "},
    [FG_F16] = {"f16", 2, true, " fp16 float16 half "},
    [FG_F64] = {"f64", 8, true, " fp64 float64 double "},
    [FG_I32] = {"i32", 4, false, " int32 "},
    [FG_I64] = {"i64", 8, false, " int64 "},
};

const char *fg_dtype_name(FgDtype dtype)
{
    return dtypes[dtype].name;
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    if (n == 0 || strchr(word, ' '))
        return false;
    for (const char *p = strstr(words, word); p; p = strstr(p + 1, word)) {
        if (p[-1] == ' ' && p[n] == ' ')
            return true;
    }
    return false;
}

bool fg_dtype_parse(const char *name, FgDtype *out)
{
    for (int i = 0; i < FG_N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0 || has_word(dtypes[i].aliases, name)) {
            *out = (FgDtype)i;
            return true;
        }
    }
    return false;
}

uint32_t fg_dtype_bytes(FgDtype dtype)
{
    return dtypes[dtype].bytes;
}

bool fg_dtype_is_float(FgDtype dtype)
{
    return dtypes[dtype].is_float;
}

int64_t fg_type_elements(const FgType *type)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < type->rank; i++)
        n *= type->dims[i];
    return n;
}

uint64_t fg_type_bytes(const FgType *type)
{
    return (uint64_t)fg_type_elements(type) * fg_dtype_bytes(type->dtype);
}

int64_t fg_type_rows(const FgType *type)
{
    int64_t n = 1;
    for (uint32_t i = 0; i + 1 < type->rank; i++)
        n *= type->dims[i];
    return n;
}

int64_t fg_type_cols(const FgType *type)
{
    return type->rank ? type->dims[type->rank - 1] : 1;
}
