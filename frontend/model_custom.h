/* Custom nodes of a model file: what they say of themselves (model_custom.c), and whether the
 * source files say the same (model_signature.c). */
#ifndef FG_FRONTEND_MODEL_CUSTOM_H
#define FG_FRONTEND_MODEL_CUSTOM_H

#include "frontend/model_internal.h"

/* A parameter that a function must have. */
typedef struct CustomParam {
    FgDtype dtype;
    bool result;
    const char *name; /* of the value, in the model */
} CustomParam;
typedef FG_VEC(CustomParam) CustomParams;

/* A source file, read once. */
typedef struct CustomSource {
    const char *name; /* as the model says */
    const char *path, *text;
    size_t len;
    uint32_t file;
    int64_t digest;
    bool ok;
} CustomSource;

/* The file that a string of the model names; NULL after a report. */
const CustomSource *fg_model_source(ModelCx *cx, const FgJson *name, bool cuda);
/* Whether the sources (cuda may be NULL) define the function with these parameters; false after a
 * report. `value` is where the model names it. */
bool fg_model_signature(ModelCx *cx, const FgJson *value, const char *function,
                        const CustomSource *host, const CustomSource *cuda,
                        const CustomParams *params);

#endif
