/* Signatures of the user's functions, as the model loader asks for them.
 *
 * The loader knows nothing of C; whoever loads a model hands it a reader (readback/signature.c has
 * one, on libclang). */
#ifndef FG_IR_SIGNATURE_H
#define FG_IR_SIGNATURE_H

#include "base/diag.h"
#include "ir/types.h"

typedef struct FgSignatureParam {
    const char *type;       /* as written */
    bool pointer, constant; /* to const */
    bool known;             /* to elements of `dtype` */
    bool call;              /* const FgCustom * */
    FgDtype dtype;
    FgLoc loc;
} FgSignatureParam;

typedef struct FgSignature {
    bool found;    /* the file defines the function */
    bool external; /* other files can call it, by its C name */
    bool plain;    /* it returns nothing and takes a fixed number of parameters */
    FgLoc loc;     /* of the function */
    const FgSignatureParam *params;
    uint32_t n_params;
    const char *const *functions; /* that the file defines, for suggestions */
    uint32_t n_functions;
} FgSignature;

typedef struct FgSignatureRequest {
    const char *path, *text; /* of the source */
    size_t len;
    uint32_t file; /* its id among the diagnostics' sources */
    bool cuda;     /* CUDA C++; otherwise C */
    const char *function;
} FgSignatureRequest;

/* False with *out_error when the file cannot be understood; *out_loc is where, or nowhere. Texts
 * are arena-owned. */
typedef bool FgSignatureReader(void *user, FgArena *arena, const FgSignatureRequest *request,
                               FgSignature *out, const char **out_error, FgLoc *out_loc);

#endif
