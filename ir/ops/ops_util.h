/* What the op families share: operand access, shape errors, result types, and the emission of
 * backward nodes.
 *
 * Private to ir/ops. The prototypes of every infer, grad and cost function come from the op table,
 * so that a row without a function, or a function without a row, does not build. */
#ifndef FG_IR_OPS_OPS_UTIL_H
#define FG_IR_OPS_OPS_UTIL_H

#include "ir/op_fns.h"

/* ---- operands ---- */
bool fg_ops_has(const FgNode *node, uint32_t i);
/* The type of operand or result i; an absent one is our bug. */
const FgType *fg_ops_in(const FgModule *module, const FgNode *node, uint32_t i);
const FgType *fg_ops_out(const FgModule *module, const FgNode *node, uint32_t i);
/* An axis attribute counted from the front; negative ones count from the end. -1 when out of range.
 */
int64_t fg_ops_axis(int64_t axis, uint32_t rank);

/* ---- types ---- */
/* "f32[4, 64]". Module-owned. */
const char *fg_ops_text(const FgModule *module, const FgType *type);
bool fg_ops_same_dims(const FgType *a, const FgType *b);
/* The interned type; NULL after an error when the sizes multiply beyond 2^60 bytes or an entry is
 * below 1. */
const FgType *fg_ops_type(FgModule *module, const FgNode *node, FgDtype dtype, uint32_t rank,
                          const int64_t *dims);
/* The result dtype that attribute `to` names. */
FgDtype fg_ops_to(const FgNode *node, FgDtype same);

/* ---- errors: all return false, at the node's location, with the op's name in front ---- */
bool fg_ops_error(const FgModule *module, const FgNode *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* False after an error unless operand i has a float dtype / the given dtype / at least `rank`
 * dimensions. */
bool fg_ops_need_float(const FgModule *module, const FgNode *node, uint32_t i);
bool fg_ops_need_dtype(const FgModule *module, const FgNode *node, uint32_t i, FgDtype dtype);
bool fg_ops_need_rank(const FgModule *module, const FgNode *node, uint32_t i, uint32_t rank);
/* False after an error unless operand i has the exact type / the shape `dims` and the dtype. */
bool fg_ops_need_type(const FgModule *module, const FgNode *node, uint32_t i, const FgType *type);
/* False after an error unless `plus`, where it is given, has the result's type. */
bool fg_ops_need_plus(const FgModule *module, const FgNode *node, const FgType *result);
/* "x": the name of operand i in the op's row. */
const char *fg_ops_operand_name(const FgModule *module, const FgNode *node, uint32_t i);

/* ---- backward ---- */
uint32_t fg_ops_emit(FgGradCx *cx, FgOp op, const uint32_t *operands, uint32_t n, const char *hint);
/* "d_x" for a value named x. */
const char *fg_ops_grad_hint(FgGradCx *cx, uint32_t value);
uint32_t fg_ops_reshape(FgGradCx *cx, uint32_t x, const FgType *like, const char *hint);
/* Sums a gradient of a broadcast result over the axes that `value` was repeated along, and adds it.
 */
void fg_ops_grad_unbroadcast(FgGradCx *cx, uint32_t value, uint32_t dy);
/* Sets `to` on a weight gradient: the wire dtype for a parameter, else the operand's. */
void fg_ops_set_to(FgGradCx *cx, FgNode *node, uint32_t weight);
/* Reports that result or operand `what` of the op has no gradient rule. */
bool fg_ops_no_gradient(const FgGradCx *cx, const FgNode *node, const char *what);

#endif
