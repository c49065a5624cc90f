/* Element types and tensor types. Types are interned per module: equality is `==`. */
#ifndef FG_IR_TYPES_H
#define FG_IR_TYPES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum FgDtype { FG_F32, FG_BF16, FG_F16, FG_F64, FG_I32, FG_I64, FG_N_DTYPES } FgDtype;

typedef struct FgType {
    FgDtype dtype;
    uint32_t rank;       /* 0 is a scalar */
    const int64_t *dims; /* rank entries, each >= 1 */
} FgType;

const char *fg_dtype_name(FgDtype dtype);            /* "f32", "bf16", ... as printed in IR */
bool fg_dtype_parse(const char *name, FgDtype *out); /* also "fp32", "float32", "bfloat16", ... */
uint32_t fg_dtype_bytes(FgDtype dtype);
bool fg_dtype_is_float(FgDtype dtype);

int64_t fg_type_elements(const FgType *type); /* product of dims; 1 for a scalar */
uint64_t fg_type_bytes(const FgType *type);
/* Product of all dims but the last (1 for rank <= 1), and the last dim (1 for a scalar). */
int64_t fg_type_rows(const FgType *type);
int64_t fg_type_cols(const FgType *type);

#endif
