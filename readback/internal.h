/* Private to the read-back: what its files share. None of what emits programs includes this, and
 * the read-back includes nothing of theirs. */
#ifndef FG_READBACK_INTERNAL_H
#define FG_READBACK_INTERNAL_H

#include "base/map.h"
#include "ir/chain.h"
#include "readback/readback.h"
#include "passes/trace.h"

#define FG_RB_NONE UINT64_MAX /* FG_RT_NONE: an operand that is not there */

/* ---- constants ---- */
typedef enum FgRbKind { FG_RB_ABSENT, FG_RB_INT, FG_RB_FLOAT, FG_RB_TEXT, FG_RB_NAME } FgRbKind;

typedef struct FgRbCell {
    FgRbKind kind;
    uint64_t u; /* INT: two's complement */
    double f;
    const char *text; /* TEXT; NAME: of a table or a function of the file */
    FgLoc loc;
} FgRbCell;

/* ---- the source, as it stands (parse.c) ---- */

/* One runtime entry as the header declares it. */
typedef struct FgRbEntry {
    const char *name;    /* without "fg_rt_" */
    const char *effects; /* of its annotation */
    FgStrVec params;     /* after the context: "node", "stream", ... */
    const bool *is_float;
} FgRbEntry;

typedef struct FgRbCall {
    const FgRbEntry *entry;
    const FgRbCell *args; /* one a parameter */
    FgLoc loc;
} FgRbCall;

typedef FG_VEC(FgRbCall) FgRbCallVec;

typedef struct FgRbTable {
    const char *name;
    const char *type; /* of an element: "FgRtBucket", "int64_t", ... */
    FgStrVec fields;  /* one that is "" for a table of plain numbers or texts */
    uint32_t n_rows;
    const FgRbCell *cells; /* rows times fields */
    FgLoc loc;
} FgRbTable;

typedef struct FgRbFunc {
    const char *name;
    FgLoc loc;
    bool inlined;      /* another function calls it */
    FgRbCallVec calls; /* runtime calls, those of called functions in their place */
} FgRbFunc;

/* A chain of the program: what its functions say, all alike (chain.c). */
typedef struct FgRbChain {
    const char *name;       /* "fused_0" */
    FgChain value;          /* of an element */
    uint32_t n;             /* operands */
    const uint64_t *dtypes; /* FgRtDtype; of the result behind them */
    const int64_t *repeat;  /* as the op's */
    bool packed;            /* its kernel goes by packs */
    uint32_t stage;         /* functions read after the value */
    bool called;            /* there is one that is called */
} FgRbChain;

/* A function of the user's, or of a chain, as the program declares it: operands, then results. */
typedef struct FgRbCustomFn {
    const char *name;
    uint32_t n_operands;    /* results included; the call itself is not */
    const uint64_t *dtypes; /* FgRtDtype */
    const bool *constant;   /* to const: an operand, not a result */
    const char *caller;     /* the function of the file that hands calls on to it; NULL: none */
    const FgRbChain *chain; /* NULL: the user's */
    FgLoc loc;
} FgRbCustomFn;

typedef struct FgRbSource {
    FgArena *arena;
    FgDiags *diags;
    uint32_t file; /* source id of the program's text */
    FG_VEC(FgRbEntry *) entries;
    FG_VEC(FgRbTable) tables;
    FG_VEC(FgRbFunc) funcs;
    FG_VEC(FgRbCustomFn) customs;
    FG_VEC(FgRbChain *) chains;
    bool has_kernels;  /* a second part, for a compiler of CUDA */
    FgRbTable program; /* one row: FgRtProgram */
    FgMap constants;   /* enumerators of the header -> value */
} FgRbSource;

/* Whether the text has only what both compilers read alike (lexical.c); false after an error.
 * *out_kernels: it has a second part. */
bool fg_rb_lexical(FgDiags *diags, const FgReadbackRequest *request, uint32_t file,
                   bool *out_kernels);
/* Reads the text; false after errors. */
bool fg_rb_parse(FgArena *arena, FgDiags *diags, const FgReadbackRequest *request, FgRbSource *out);
/* Reports an error in the program's text; returns false. */
bool fg_rb_fail(FgDiags *diags, FgLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const FgRbTable *fg_rb_table(const FgRbSource *source, const char *name);         /* or NULL */
const FgRbCustomFn *fg_rb_custom(const FgRbSource *source, const char *function); /* or NULL */
/* The value of an enumerator of the runtime's header; UINT64_MAX for one that it does not have. */
uint64_t fg_rb_constant(const FgRbSource *source, const char *name);
/* The cell of a row by the field's name; an absent cell for a field that the row leaves out. */
const FgRbCell *fg_rb_cell(const FgRbTable *table, uint32_t row, const char *field);

/* ---- tables with their meaning (tables.c) ---- */
typedef struct FgRbParam {
    const char *name;
    uint64_t bucket, offset, elements;
    bool trainable;
} FgRbParam;

typedef struct FgRbBucket {
    const char *name;
    uint64_t dtype, elements, element_bytes;
    bool trainable;
    uint64_t shard, master, moment1, moment2, grad_shard, grad_bytes;
    uint64_t writes, lookups; /* that make its gradient, each micro-step */
    const uint32_t *params;
    uint32_t n_params;
} FgRbBucket;

typedef struct FgRbState { /* a range that lives from step to step, named by a table */
    const char *name;
    FgRole role;
    uint32_t index;
    uint64_t at, bytes, elements;
    uint32_t dtype; /* 1 + FgRtDtype; 0: the tables do not say */
} FgRbState;

typedef struct FgRbNode {
    const char *name, *op, *file; /* file "": of no place in a model */
    uint64_t line, col;
} FgRbNode;

/* A row of the table of operands of custom functions. */
typedef struct FgRbOperand {
    uint64_t dtype, offset, elements, bytes;
    bool written;
    FgLoc loc;
} FgRbOperand;

typedef struct FgRbTables {
    uint64_t fingerprint, ranks, accumulate;
    double clip;
    bool scales; /* the loss */
    uint64_t state_bytes, arena_bytes, reserved_bytes, memory_bytes;
    uint64_t host_state_bytes, host_arena_bytes, host_memory_bytes;
    uint64_t n_events;
    FG_VEC(FgRbParam) params;
    FG_VEC(FgRbBucket) buckets;
    FG_VEC(FgRbNode) nodes;
    FG_VEC(FgRbState) states;
    FG_VEC(const FgRbCustomFn *) customs; /* by row */
    FG_VEC(FgRbOperand) operands;
    /* As they stand; NULL: not there. */
    const FgRbTable *param_rows, *input_rows, *dims, *tied, *layouts, *operand_rows;
} FgRbTables;

/* Reads the program's tables and checks that they agree with each other; false after errors. */
bool fg_rb_tables(const FgRbSource *source, FgRbTables *out);
uint64_t fg_rb_dtype_bytes(uint64_t dtype); /* 0: there is no such FgRtDtype */

/* ---- effects (effects.c) ---- */
typedef enum FgRbEffectKind {
    FG_RB_READ,
    FG_RB_WRITE,
    FG_RB_UPDATE, /* read and write */
    FG_RB_RELEASE,
    FG_RB_INPLACE, /* argument `arg` may be the memory of argument `other` */
    FG_RB_COMM,    /* `bytes` is 1 for gather, 2 for reduce, 3 for parts */
    FG_RB_RECORD,
    FG_RB_WAIT,
    FG_RB_JOIN
} FgRbEffectKind; /* rules are tested where they are read */

typedef struct FgRbEffect {
    FgRbEffectKind kind;
    uint32_t arg, other; /* indices of arguments */
    uint64_t at, bytes;
    bool scratch;   /* the workspace */
    uint32_t dtype; /* 1 + the FgRtDtype that the bytes are elements of; 0: it does not say */
} FgRbEffect;

typedef FG_VEC(FgRbEffect) FgRbEffectVec;

typedef struct FgRbEval {
    FgArena *arena;
    FgDiags *diags;
    const FgRbTables *tables;
    uint64_t rank;
    bool used_rank; /* set when an expression names the rank */
} FgRbEval;

/* What the call does, from the annotation of its declaration; overwrites `out`. Effects on absent
 * buffers are left out. False after an error. */
bool fg_rb_effects(FgRbEval *eval, const FgRbCall *call, FgRbEffectVec *out);
/* Index of a parameter by name, or -1. */
int fg_rb_param(const FgRbEntry *entry, const char *name);
/* The value of an argument by name, or `otherwise` where the entry has no such parameter. */
uint64_t fg_rb_arg(const FgRbCall *call, const char *name, uint64_t otherwise);

/* Whether a call's arguments that are no address agree with the tables (args.c); false after an
 * error. The bucket is that of the argument, or FG_NO_ID. */
bool fg_rb_args(FgDiags *diags, const FgRbTables *tables, const FgRbCall *call, FgTraceKind kind,
                uint32_t *out_bucket);

/* ---- the trace (trace.c, names.c) ---- */
typedef struct FgRbSchedule {
    FgTrace trace;
    FG_VEC(const FgRbCall *) calls; /* by node */
    bool uses_rank;                 /* ranks may differ */
} FgRbSchedule;

/* The schedule of one rank as the checker takes it; false after errors. */
bool fg_rb_trace(FgArena *arena, const FgRbSource *source, const FgRbTables *tables, uint64_t rank,
                 FgRbSchedule *out);

/* ---- comparison (plan.c, plan_args.c, plan_tables.c) ---- */
bool fg_rb_compare(FgArena *arena, const FgRbSource *source, const FgRbTables *tables,
                   const FgRbSchedule *schedule, const FgModule *plan);
/* What differs between a call's arguments and those that a node of the plan asks for; NULL:
 * nothing. */
const char *fg_rb_compare_args(FgArena *arena, const FgRbSource *source, const FgRbTables *tables,
                               const FgModule *plan, uint32_t node, const FgRbCall *call);

/* Whether the tables are those of the plan; false after an error. */
bool fg_rb_compare_tables(FgArena *arena, const FgRbSource *source, const FgRbTables *tables,
                          const FgModule *plan);

#endif
