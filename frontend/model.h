/* Native model files (docs/model-format.md): JSON to a module at graph level, shapes inferred and
 * names resolved.
 *
 * Errors go to the diagnostics, many a run, each with its place in the file. The module lives in
 * the arena. */
#ifndef FG_FRONTEND_MODEL_H
#define FG_FRONTEND_MODEL_H

#include "ir/ir.h"
#include "ir/signature.h"

/* Which parameters decay; a parameter's own "decay" key wins. */
typedef enum FgDecayMode {
    FG_DECAY_MATRICES, /* those of two or more dimensions */
    FG_DECAY_ALL,
    FG_DECAY_NONE
} FgDecayMode;

typedef struct FgDimOverride {
    const char *name;
    int64_t value;
} FgDimOverride;

typedef struct FgModelOptions {
    FgNumerics
        numerics; /* `compute` is the dtype of activations, and of parameters that name none */
    FgDecayMode decay;
    int64_t batch, seq;                /* replace the dims "batch" and "seq"; 0: the file's */
    FG_VEC(FgDimOverride) dims;        /* replace named dims */
    FgSignatureReader *read_signature; /* of custom functions; NULL: models with such are refused */
    void *signature_user;
} FgModelOptions;

/* NULL after errors. "-" reads standard input. */
FgModule *fg_model_load(FgArena *arena, FgDiags *diags, const char *path,
                        const FgModelOptions *options);
/* `text` must outlive the diagnostics. */
FgModule *fg_model_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                         size_t len, const FgModelOptions *options);

#endif
