/* Custom functions in an emitted file: how each is called, and the tables of them and of their
 * operands. */
#ifndef FG_CODEGEN_CUSTOM_H
#define FG_CODEGEN_CUSTOM_H

#include "codegen/parts.h"

/* The node's function in cx->customs, added where it is new. */
uint32_t fg_custom_index(FgArgsCx *cx, const FgNode *node);
/* Adds the node's operands, then its results, to cx->operands; the index of the first. */
uint32_t fg_custom_operands(FgArgsCx *cx, const FgNode *node);

/* Declarations of the user's functions, the functions that hand calls on to them, and their table.
 */
void fg_emit_customs(FgEmit *emit, FgBuf *out);
void fg_emit_operand_dims(FgEmit *emit, FgBuf *out); /* rows of the table `dims` */
void fg_emit_operands(FgEmit *emit, FgBuf *out);

#endif
