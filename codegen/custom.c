/* A call of a function of the user's is fg_rt_custom, with the function and its operands as rows of
 * tables. The function itself is declared with its real types, so that the compiler compares them
 * with nothing cast away, and called by a function of its own:
 *
 *   void custom_relu2(const float *, float *, const FgCustom *);
 *
 *   static void call_custom_relu2(const FgCustom *call)
 *   {
 *       custom_relu2(fg_custom_in(call, 0), fg_custom_out(call, 1), call);
 *   }
 *
 * Names of custom functions begin with `custom_`, which nothing else in an emitted file does. Fused
 * chains are called in the same way, by fg_rt_fused; their functions are the file's own (chain.h).
 */
#include "codegen/custom.h"

#include "codegen/chain.h"
#include "codegen/ctext.h"

#include <inttypes.h>
#include <string.h>

static const char *const rt_dtypes[FG_N_DTYPES] = {
    [FG_F32] = "FG_RT_F32", [FG_BF16] = "FG_RT_BF16", [FG_F16] = "FG_RT_F16",
    [FG_F64] = "FG_RT_F64", [FG_I32] = "FG_RT_I32",   [FG_I64] = "FG_RT_I64",
};
static const char *const c_types[FG_N_DTYPES] = {
    [FG_F32] = "float",  [FG_BF16] = "FgBf16", [FG_F16] = "FgF16",
    [FG_F64] = "double", [FG_I32] = "int32_t", [FG_I64] = "int64_t",
};

/* ---- rows ---- */

uint32_t fg_custom_index(FgArgsCx *cx, const FgNode *node)
{
    bool chain = node->op == FG_OP_fused;
    const char *function =
        chain ? fg_chain_function(cx, node) : fg_node_attr(node, "function")->word;
    for (uint32_t i = 0; i < cx->customs.len; i++) {
        if (strcmp(cx->customs.data[i].function, function) == 0)
            return i;
    }
    fg_vec_push(cx->arena, &cx->customs, ((FgCustomRow){function, node->id}));
    return cx->customs.len - 1;
}

/* Where the shape stands in the list, added where it does not. */
static uint32_t dims_index(FgArgsCx *cx, const FgType *type)
{
    uint32_t n = cx->operand_dims.len;
    for (uint32_t i = 0; i + type->rank <= n; i++) {
        if (type->rank == 0 ||
            memcmp(&cx->operand_dims.data[i], type->dims, type->rank * sizeof *type->dims) == 0)
            return i;
    }
    for (uint32_t d = 0; d < type->rank; d++)
        fg_vec_push(cx->arena, &cx->operand_dims, type->dims[d]);
    return n;
}

uint32_t fg_custom_operands(FgArgsCx *cx, const FgNode *node)
{
    uint32_t first = cx->operands.len;
    for (uint32_t i = 0; i < node->n_operands + node->n_results; i++) {
        bool written = i >= node->n_operands;
        uint32_t value = written ? node->results[i - node->n_operands] : node->operands[i];
        const FgType *type = cx->module->values.data[value].type;
        fg_vec_push(cx->arena, &cx->operands,
                    ((FgOperandRow){value, written, dims_index(cx, type)}));
    }
    return first;
}

/* ---- text ---- */

static const char *type_of(const FgEmit *emit, uint32_t value)
{
    return c_types[emit->module->values.data[value].type->dtype];
}

static void put_declaration(const FgEmit *emit, FgBuf *out, const FgCustomRow *row)
{
    const FgNode *node = &emit->module->nodes.data[row->node];
    fg_buf_puts(out, "/* in ");
    fg_c_comment(out, fg_node_attr(node, "source")->word);
    if (*fg_node_attr(node, "cuda")->word) {
        fg_buf_puts(out, ", for GPUs in ");
        fg_c_comment(out, fg_node_attr(node, "cuda")->word);
    }
    fg_buf_printf(out, " */\nvoid %s(", row->function);
    for (uint32_t i = 0; i < node->n_operands; i++)
        fg_buf_printf(out, "const %s *, ", type_of(emit, node->operands[i]));
    for (uint32_t i = 0; i < node->n_results; i++)
        fg_buf_printf(out, "%s *, ", type_of(emit, node->results[i]));
    fg_buf_puts(out, "const FgCustom *);\n\n");
}

static void put_custom(FgEmit *emit, FgBuf *out, const FgCustomRow *row)
{
    const FgNode *node = &emit->module->nodes.data[row->node];
    uint32_t n = node->n_operands, all = n + node->n_results;
    if (node->op == FG_OP_fused)
        fg_emit_chain(emit, out, row);
    else
        put_declaration(emit, out, row);
    fg_buf_printf(out, "static void call_%s(const FgCustom *call)\n{\n    %s(", row->function,
                  row->function);
    for (uint32_t i = 0; i < all; i++)
        fg_buf_printf(out, "fg_custom_%s(call, %u), ", i < n ? "in" : "out", i);
    fg_buf_puts(out, "call);\n}\n\n");
}

void fg_emit_customs(FgEmit *emit, FgBuf *out)
{
    const FgArgsCx *args = &emit->args;
    if (args->customs.len == 0)
        return;
    for (uint32_t i = 0; i < args->customs.len; i++)
        put_custom(emit, out, &args->customs.data[i]);
    fg_buf_puts(out, "/* name, how it is called, operands, results */\n"
                     "static const FgRtCustom customs[] = {\n");
    for (uint32_t i = 0; i < args->customs.len; i++) {
        const FgCustomRow *row = &args->customs.data[i];
        const FgNode *node = &emit->module->nodes.data[row->node];
        fg_buf_puts(out, "    {");
        fg_c_string(out, row->function);
        fg_buf_printf(out, ", call_%s, %u, %u},\n", row->function, node->n_operands,
                      node->n_results);
    }
    fg_buf_puts(out, "};\n\n");
}

void fg_emit_operand_dims(FgEmit *emit, FgBuf *out)
{
    const FgLayouts *dims = &emit->args.operand_dims;
    if (dims->len == 0)
        return;
    fg_buf_puts(out, "   ");
    for (uint32_t i = 0; i < dims->len; i++) {
        fg_buf_puts(out, i % 8 == 0 && i ? "\n    " : " ");
        fg_c_i64(out, dims->data[i]);
        fg_buf_puts(out, ",");
    }
    fg_buf_puts(out, " /* operands of functions */\n");
}

void fg_emit_operands(FgEmit *emit, FgBuf *out)
{
    const FgArgsCx *args = &emit->args;
    if (args->operands.len == 0)
        return;
    fg_buf_puts(out, "/* dtype, whether it is written, offset, elements, first dim, rank */\n"
                     "static const FgRtOperand operands[] = {\n");
    for (uint32_t i = 0; i < args->operands.len; i++) {
        const FgOperandRow *row = &args->operands.data[i];
        const FgValue *value = &emit->module->values.data[row->value];
        fg_buf_printf(out, "    {%s, %d, ", rt_dtypes[value->type->dtype], row->written);
        fg_c_u64(out, fg_value_address(emit->module, row->value));
        fg_buf_printf(out, ", %" PRId64 ", %u, %u}, /* ", fg_type_elements(value->type),
                      emit->dims_operands + row->dims_first, value->type->rank);
        fg_c_comment(out, value->name);
        fg_buf_puts(out, " */\n");
    }
    fg_buf_puts(out, "};\n\n");
}
