/* Code generation: a module at level sched becomes one readable C file.
 *
 * Nothing is decided here: one node, one call, in issue order, with the addresses that the module
 * holds. The file is plain C that includes only fg_rt.h: static const tables, straight-line
 * functions, no macros, no control flow but the loops of fused chains. For GPUs these are kernels:
 * then the file has two parts, of which a compiler of C sees the first, and one of CUDA the second.
 */
#ifndef FG_CODEGEN_CODEGEN_H
#define FG_CODEGEN_CODEGEN_H

#include "ir/ir.h"

#define FG_CODEGEN_ABI                                                                             \
    6 /* the FG_RT_ABI that emitted files are written for; a test compares the two */

typedef struct FgEmitRow {
    const char *name;
    uint64_t bytes;
} FgEmitRow;

/* What an emitted program carries beyond its module: figures of the plan, for its messages. */
typedef struct FgEmitInfo {
    const char *version;   /* of foregather */
    const char *source;    /* the model file as it was given */
    uint64_t fingerprint;  /* of the plan; compared by the ranks at start-up */
    double step_us;        /* predicted */
    uint64_t memory_bytes; /* offered on a device */
    uint64_t reserved_bytes;
    uint64_t host_memory_bytes; /* host memory offered to a rank; said where some is used */
    const FgEmitRow *ledger;    /* bytes by class at the peak */
    uint32_t n_ledger;
    bool cuda; /* with a kernel part, where there are kernels */
} FgEmitInfo;

/* Appends the C text to `out`. A module that is not at level sched, or breaks its rules, is our bug
 * (abort). The arena holds what is needed meanwhile. */
void fg_emit_c(FgArena *arena, const FgModule *sched, const FgEmitInfo *info, FgBuf *out);

#endif
