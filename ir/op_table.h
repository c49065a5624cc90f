/* The op table: everything the compiler knows of an op, one row of ops.def each. */
#ifndef FG_IR_OP_TABLE_H
#define FG_IR_OP_TABLE_H

#include "ir/ir.h"

typedef enum FgOpFlag {
    FG_OPF_COMMUTATIVE = 1 << 0,
    FG_OPF_INPLACE = 1 << 1, /* result 0 may take the memory of operand 0, of either one where the
                                op commutes (same bytes, element by element) */
    FG_OPF_ACCUMULATE = 1 << 2, /* a gradient op that can write its last result straight into a
                                   slice of a gradient buffer, in the wire dtype, or add to it:
                                   attribute `accumulate` */
    FG_OPF_COLLECTIVE = 1 << 3,
    FG_OPF_EFFECT = 1 << 4, /* writes something beside its results: never removed or merged */
    FG_OPF_VIEW = 1 << 5,   /* result 0 is operand 0's memory, or a part of it: no work, no call */
    FG_OPF_WORKSPACE = 1 << 6, /* its call takes the workspace as scratch */
    FG_OPF_CONSTANT = 1 << 7,  /* no operands, same result every step: computed once by @init */
    FG_OPF_PLUS = 1 << 8 /* its last operand, `plus`, is added to result 0 before the one rounding;
                            result 0 may take its memory */
} FgOpFlag;

/* Levels in which a node of the op may stand. */
typedef enum FgOpLevels {
    FG_OPL_GRAPH = 1 << FG_LEVEL_GRAPH,
    FG_OPL_DIST = 1 << FG_LEVEL_DIST,
    FG_OPL_SCHED = 1 << FG_LEVEL_SCHED,
    FG_OPL_LOW = FG_OPL_DIST | FG_OPL_SCHED,
    FG_OPL_ALL = FG_OPL_GRAPH | FG_OPL_LOW
} FgOpLevels;

typedef struct FgAttrSpec {
    const char *name;
    FgAttrKind kind;
    bool required; /* must be given; otherwise `number` (INT, BOOL, FLOAT) or `choices[0]` (WORD) is
                      the default, empty for INTS and TEXT, and "unset" where `optional` */
    bool optional;
    double number;
    const char *choices; /* WORD: space-separated */
} FgAttrSpec;

/* What one execution costs; bytes and flops of one rank. Latencies and rates belong to the machine.
 */
typedef struct FgCost {
    double matmul_flops; /* on the matrix units */
    double vector_flops;
    double read_bytes, write_bytes; /* device memory */
    double wire_bytes; /* payload of a collective: the whole gathered or reduced buffer */
} FgCost;

/* Result types of a node whose operands and attributes are set: fills types[n_results]. False after
 * an error reported at the node's location. */
typedef bool FgInferFn(FgModule *module, const FgNode *node, const FgType **types);
typedef void FgCostFn(const FgModule *module, const FgNode *node, FgCost *cost);

/* ---- autodiff ---- */
typedef struct FgGradCx {
    FgBuilder build; /* appends to the backward order; phase backward, origin = the forward node */
    uint32_t *grad;  /* value id -> id of its summed gradient so far, or FG_NO_ID */
    const bool *wanted; /* value id -> a gradient for it is of use */
} FgGradCx;

/* Emits the backward of `node` (a pointer that stays valid for the call: it is a copy). */
typedef bool FgGradFn(FgGradCx *cx, const FgNode *node);
/* The gradient that reached a value, or FG_NO_ID. */
uint32_t fg_grad_of(const FgGradCx *cx, uint32_t value);
/* True when an operand wants a gradient (false for FG_NO_ID). */
bool fg_grad_wanted(const FgGradCx *cx, uint32_t value);
/* Adds a contribution: the first is taken as it is, the next ones are summed by `add` in the
 * value's dtype. A parameter's contributions become `grad` nodes instead, in the order of the
 * calls. */
void fg_grad_add(FgGradCx *cx, uint32_t value, uint32_t contribution);

typedef struct FgOpInfo {
    const char *name;
    const char *operands; /* "x w b?": '?' optional, a last "xs..." any number */
    const char *results;  /* "y", "o lse", "ys...", "" */
    uint32_t levels, flags;
    const FgAttrSpec *attrs;
    uint32_t n_attrs;
    FgInferFn *infer;
    FgGradFn *grad;      /* NULL with a reason */
    const char *no_grad; /* why there is none; NULL when there is one */
    FgCostFn *cost;
    const char *call;      /* runtime entry without "fg_rt_", or NULL: no call */
    const char *call_args; /* see codegen/args.c */
    const char *doc;
} FgOpInfo;

const FgOpInfo *fg_op_info(FgOp op);
bool fg_op_parse(const char *name, FgOp *out);
/* Operands: least and largest number (UINT32_MAX for "..."), results: exact number (0 for "...":
 * fg_node_results knows it). */
void fg_op_arity(FgOp op, uint32_t *out_min, uint32_t *out_max, uint32_t *out_results);
/* How many results a node makes whose attributes are set. */
uint32_t fg_node_results(const FgNode *node);
/* Whether a node adds to what its result held: the last result where the attribute `accumulate` is
 * set, no other. */
bool fg_node_accumulates(const FgNode *node, uint32_t result);
/* The number of the operand `plus` (FG_OPF_PLUS); FG_NO_ID for an op without one. */
uint32_t fg_op_plus(FgOp op);
void fg_node_cost(const FgModule *module, const FgNode *node, FgCost *cost);

#endif
