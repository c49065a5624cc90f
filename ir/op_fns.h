/* Prototypes of the functions that the op table names: fg_infer_<f>, fg_grad_<f>, fg_cost_<f>. They
 * are generated from ops.def itself (repeated declarations are harmless), so a row that names a
 * function nobody wrote fails to link, and a function with another signature fails to compile. */
#ifndef FG_IR_OP_FNS_H
#define FG_IR_OP_FNS_H

#include "ir/op_table.h"

#define INFER(f) FgInferFn fg_infer_##f;
#define GRAD(f) FgGradFn fg_grad_##f;
#define NO_GRAD(why)
#define COST(f) FgCostFn fg_cost_##f;
#define FG_OP(name, operands, results, levels, flags, attrs, infer, grad, cost, ...) infer grad cost
#include "ir/ops.def"
#undef FG_OP
#undef COST
#undef NO_GRAD
#undef GRAD
#undef INFER

#endif
