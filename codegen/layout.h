/* Strided layouts of calls that broadcast, transpose or reduce: [rank, dims..., strides of operand
 * 0..., strides of operand 1...], in elements. Dimensions of 1 are dropped and neighbours that lie
 * together are merged: fewer loops. */
#ifndef FG_CODEGEN_LAYOUT_H
#define FG_CODEGEN_LAYOUT_H

#include "codegen/args.h"

typedef enum FgLayoutKind {
    FG_LAYOUT_binary,    /* dims of the result; strides of both operands, 0 where broadcast */
    FG_LAYOUT_transpose, /* dims of the result; strides of the operand */
    FG_LAYOUT_broadcast, /* dims of the result; strides of the operand, 0 where repeated */
    FG_LAYOUT_reduce, /* dims of the operand; its strides, and those of the result, 0 where summed
                       */
    FG_N_LAYOUTS
} FgLayoutKind;

bool fg_layout_parse(const char *word, size_t len, FgLayoutKind *out);
/* Index of the node's layout in cx->layouts, added where no equal one is there; UINT64_MAX where
 * the call needs none (element by element). */
uint64_t fg_node_layout(FgArgsCx *cx, const FgNode *node, FgLayoutKind kind);

#endif
