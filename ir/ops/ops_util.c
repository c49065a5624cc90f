/* Operand access, shape errors and result types for the op families. */
#include "ir/ops/ops_util.h"

#include "base/checked.h"

#include <stdarg.h>
#include <string.h>

bool fg_ops_has(const FgNode *node, uint32_t i)
{
    return i < node->n_operands && node->operands[i] != FG_NO_ID;
}

const FgType *fg_ops_in(const FgModule *module, const FgNode *node, uint32_t i)
{
    if (!fg_ops_has(node, i))
        FG_BUG("%s without its operand %u", fg_op_info(node->op)->name, i);
    return module->values.data[node->operands[i]].type;
}

const FgType *fg_ops_out(const FgModule *module, const FgNode *node, uint32_t i)
{
    if (i >= node->n_results || node->results[i] == FG_NO_ID)
        FG_BUG("%s without its result %u", fg_op_info(node->op)->name, i);
    return module->values.data[node->results[i]].type;
}

int64_t fg_ops_axis(int64_t axis, uint32_t rank)
{
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return -1;
    return axis < 0 ? axis + (int64_t)rank : axis;
}

const char *fg_ops_text(const FgModule *module, const FgType *type)
{
    FgBuf buf;
    fg_buf_init(&buf, module->arena);
    fg_buf_puts(&buf, fg_dtype_name(type->dtype));
    fg_buf_puts(&buf, "[");
    for (uint32_t i = 0; i < type->rank; i++)
        fg_buf_printf(&buf, "%s%lld", i ? ", " : "", (long long)type->dims[i]);
    fg_buf_puts(&buf, "]");
    return fg_buf_text(&buf);
}

bool fg_ops_same_dims(const FgType *a, const FgType *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0);
}

const FgType *fg_ops_type(FgModule *module, const FgNode *node, FgDtype dtype, uint32_t rank,
                          const int64_t *dims)
{
    int64_t bytes = fg_dtype_bytes(dtype);
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 1) {
            fg_ops_error(module, node, "dimension %u of the result is %lld, it must be at least 1",
                         i, (long long)dims[i]);
            return NULL;
        }
        if (!fg_mul_i64(bytes, dims[i], &bytes) || bytes > INT64_C(1) << 60) {
            fg_ops_error(module, node, "the result has more than 2^60 bytes");
            return NULL;
        }
    }
    return fg_type(module, dtype, rank, dims);
}

FgDtype fg_ops_to(const FgNode *node, FgDtype same)
{
    FgDtype dtype = same;
    const char *word = fg_node_attr(node, "to")->word;
    if (strcmp(word, "same") != 0 && !fg_dtype_parse(word, &dtype))
        FG_BUG("no dtype '%s'", word);
    return dtype;
}

bool fg_ops_error(const FgModule *module, const FgNode *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(module->arena, format, args);
    va_end(args);
    fg_diag(module->diags, node->loc, FG_D_SHAPE, "%s: %s", fg_op_info(node->op)->name, text);
    return false;
}

const char *fg_ops_operand_name(const FgModule *module, const FgNode *node, uint32_t i)
{
    const char *s = fg_op_info(node->op)->operands;
    for (uint32_t k = 0; k < i && s; k++) {
        s = strchr(s, ' ');
        s = s ? s + 1 : NULL;
    }
    return s ? fg_arena_strndup(module->arena, s, strcspn(s, " ?.")) : "operand";
}

bool fg_ops_need_float(const FgModule *module, const FgNode *node, uint32_t i)
{
    const FgType *type = fg_ops_in(module, node, i);
    if (fg_dtype_is_float(type->dtype))
        return true;
    return fg_ops_error(module, node, "%s is %s, its elements must be floating-point",
                        fg_ops_operand_name(module, node, i), fg_ops_text(module, type));
}

bool fg_ops_need_dtype(const FgModule *module, const FgNode *node, uint32_t i, FgDtype dtype)
{
    const FgType *type = fg_ops_in(module, node, i);
    if (type->dtype == dtype)
        return true;
    fg_ops_error(module, node, "%s is %s, its elements must be %s",
                 fg_ops_operand_name(module, node, i), fg_ops_text(module, type),
                 fg_dtype_name(dtype));
    if (fg_dtype_is_float(dtype) && fg_dtype_is_float(type->dtype))
        fg_diag_note(module->diags, FG_NOWHERE, "`cast` with to = %s makes it so",
                     fg_dtype_name(dtype));
    return false;
}

bool fg_ops_need_rank(const FgModule *module, const FgNode *node, uint32_t i, uint32_t rank)
{
    const FgType *type = fg_ops_in(module, node, i);
    if (type->rank >= rank)
        return true;
    return fg_ops_error(module, node, "%s is %s, it must have at least %u dimension%s",
                        fg_ops_operand_name(module, node, i), fg_ops_text(module, type), rank,
                        rank == 1 ? "" : "s");
}

bool fg_ops_need_type(const FgModule *module, const FgNode *node, uint32_t i, const FgType *type)
{
    const FgType *given = fg_ops_in(module, node, i);
    if (given == type)
        return true;
    return fg_ops_error(module, node, "%s is %s, it must be %s",
                        fg_ops_operand_name(module, node, i), fg_ops_text(module, given),
                        fg_ops_text(module, type));
}

bool fg_ops_need_plus(const FgModule *module, const FgNode *node, const FgType *result)
{
    uint32_t plus = fg_op_plus(node->op);
    return !fg_ops_has(node, plus) || fg_ops_need_type(module, node, plus, result);
}
