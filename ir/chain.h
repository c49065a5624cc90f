/* The expression of a `fused` node: what happens to one element.
 *
 *   steps = step { "; " step }
 *   step  = name "(" arg { ", " arg } [ ", " number ] ")" " " dtype
 *   arg   = "x" operand | "t" step
 *
 * "mul(x0, x1) bf16; add(t0, x2) bf16". Each step is computed in f32 and rounded to its dtype, so
 * that a chain gives the bits of the nodes that it stands for; a step in f32 is not rounded. The
 * last step is the result. Operands and steps are named in the order in which they come first, and
 * each is used. Numbers are values of an f32. One expression has one text. */
#ifndef FG_IR_CHAIN_H
#define FG_IR_CHAIN_H

#include "base/vec.h"
#include "ir/types.h"

typedef enum FgChainOp {
#define FG_CHAIN(name, operands, number) FG_CHAIN_##name,
#include "ir/chain.def"
#undef FG_CHAIN
    FG_N_CHAIN_OPS
} FgChainOp;

typedef struct FgChainInfo {
    const char *name;
    uint32_t n_operands;
    bool number;
} FgChainInfo;

typedef struct FgChainArg {
    bool is_step; /* otherwise an operand of the node */
    uint32_t index;
} FgChainArg;

typedef struct FgChainStep {
    FgChainOp op;
    FgChainArg args[2];
    double number;
    FgDtype dtype; /* f32, bf16 or f16 */
} FgChainStep;

typedef struct FgChain {
    FG_VEC(FgChainStep) steps;
    uint32_t n_operands; /* found by fg_chain_parse */
} FgChain;

const FgChainInfo *fg_chain_info(FgChainOp op);
bool fg_chain_op_parse(const char *name, size_t len, FgChainOp *out);
/* Dtypes that a chain reads, writes and rounds to. */
bool fg_chain_takes(FgDtype dtype);
/* Everything lives in `arena`. False: *out_error says what is wrong. */
bool fg_chain_parse(FgArena *arena, const char *text, FgChain *out, const char **out_error);
const char *fg_chain_text(FgArena *arena, const FgChain *chain);

#endif
