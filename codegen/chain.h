/* Functions of an emitted file for fused chains: what happens to one element, and a function that
 * does it to all. */
#ifndef FG_CODEGEN_CHAIN_H
#define FG_CODEGEN_CHAIN_H

#include "codegen/parts.h"

/* The name of the node's function: equal for nodes that differ in operands alone. */
const char *fg_chain_function(FgArgsCx *cx, const FgNode *node);
/* The function itself, for the host; for GPUs its declaration. */
void fg_emit_chain(FgEmit *emit, FgBuf *out, const FgCustomRow *row);
/* For GPUs: the kernels of all chains, and what launches them. Whether there are any. */
bool fg_emit_has_kernels(const FgEmit *emit);
void fg_emit_kernels(FgEmit *emit, FgBuf *out);

#endif
