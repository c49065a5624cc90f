/* The parts of an emitted file, between emit.c (the whole), body.c (functions) and tables.c (data).
 */
#ifndef FG_CODEGEN_PARTS_H
#define FG_CODEGEN_PARTS_H

#include "codegen/args.h"
#include "codegen/codegen.h"

typedef struct FgEmit {
    FgArena *arena;
    const FgModule *module;
    const FgEmitInfo *info;
    FgArgsCx args;
    FgBuf functions;
    FgIdVec calls;          /* node ids in the order of the table `nodes`: one row a call */
    uint32_t n_events;      /* most in any function */
    uint32_t dims_operands; /* where shapes of operands begin in the table `dims` */
    bool has_dims, has_tied, has_bucket_params; /* tables that were not empty */
} FgEmit;

/* The functions of one schedule: pieces by phase and layer, and the body that calls them. NULL
 * makes a body that only joins. */
void fg_emit_body(FgEmit *emit, const char *name, const FgFunc *func);
/* The file of a place without its folders, "" for nowhere: programs do not depend on where the
 * model lay. */
const char *fg_emit_file_name(const FgModule *module, FgLoc loc);
void fg_emit_tables(FgEmit *emit, FgBuf *out);
void fg_emit_program(FgEmit *emit, FgBuf *out);

#endif
