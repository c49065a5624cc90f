/* Arguments of a runtime call: the CALL column of ops.def, read for one node.
 *
 * The column is a list of words, each one argument (`ws` is two):
 *   iN oN            byte offset of operand or result N; FG_RT_NONE where it is omitted
 *   n(v) rows(v) cols(v) dt(v) bytes(v) dim(v,k)   of a value; k counts from the end when negative,
 * or names an INT attribute batch(v)         product of the dimensions before the last two
 *   contracted(v)    of matmul's left operand: the dimension that is summed over, by attribute `ta`
 *   outer(v) inner(v)   products of the dimensions before and after attribute `axis`
 *   ratio(v,w)       n(v) / n(w), a float
 *   scale(v)         attribute `scale`; where that is 0, 1 / sqrt(last dimension of v), a float
 *   operands         the rows of a custom function's operands: the first one's index, and how many
 *   layout(kind)     index of a strided layout (layout.h), or FG_RT_NONE where none is needed
 *   an attribute     INT and BOOL as integers (negative ones in two's complement), FLOAT as a
 * float, WORD as the index of the choice, TEXT as the index of the function: the custom one of that
 * name, the chain's with that expression. ws the workspace's offset and bytes bucket elements  the
 * node's bucket and its padded length FG_RT_X 1.0      as they stand */
#ifndef FG_CODEGEN_ARGS_H
#define FG_CODEGEN_ARGS_H

#include "ir/op_table.h"

typedef FG_VEC(int64_t) FgLayouts;

typedef struct FgArg {
    bool is_float;
    bool is_address; /* an offset, which may lie in host memory */
    uint64_t u;
    double f;
    const char *symbol; /* printed instead of the number; NULL: none */
} FgArg;

typedef FG_VEC(FgArg) FgArgs;

/* A function of the user's or of a chain, by the first node that calls it: its operands and results
 * are those of all others in number, dtype and order. */
typedef struct FgCustomRow {
    const char *function;
    uint32_t node;
} FgCustomRow;

/* An operand of a call of one. */
typedef struct FgOperandRow {
    uint32_t value;
    bool written;
    uint32_t dims_first; /* into `operand_dims` */
} FgOperandRow;

typedef struct FgArgsCx {
    FgArena *arena;
    const FgModule *module;
    FgLayouts layouts; /* the program's table so far; equal ones are shared */
    FG_VEC(FgCustomRow) customs;
    FG_VEC(FgOperandRow) operands;
    FgLayouts operand_dims; /* shapes of operands, one after the other; equal ones are shared */
    uint64_t workspace, workspace_bytes; /* UINT64_MAX and 0 when the module has none */
} FgArgsCx;

void fg_args_cx_init(FgArgsCx *cx, FgArena *arena, const FgModule *module);
/* The arguments of the node's call, appended to `out`. A row that cannot be read is our bug
 * (abort). */
void fg_node_args(FgArgsCx *cx, const FgNode *node, FgArgs *out);
/* The kinds of a row's arguments without a node: 'i' or 'f' each. NULL: *out_error says which word
 * is wrong. */
const char *fg_call_kinds(FgArena *arena, const FgOpInfo *info, const char **out_error);
/* Byte address of a value: its root's and the place in it; UINT64_MAX for FG_NO_ID. */
uint64_t fg_value_address(const FgModule *module, uint32_t value);

#endif
