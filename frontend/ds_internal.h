/* Inside the reader of DeepSpeed configurations: what its sections share. */
#ifndef FG_FRONTEND_DS_INTERNAL_H
#define FG_FRONTEND_DS_INTERNAL_H

#include "frontend/ds_config.h"
#include "frontend/json.h"

/* Names of keys with commas between them, and the place of the first. */
typedef struct FgDsNames {
    FgBuf text;
    FgLoc first;
} FgDsNames;

typedef struct FgDsCx {
    FgArena *arena; /* of what is returned; json->arena is scratch */
    FgJsonCx *json;
    FgDsConfig *out;
    FgDsNames autos, unread;
} FgDsCx;

/* A member of the right kind; NULL when it is absent, null, "auto" (noted) or wrong (reported).
 * `prefix` stands before the key in notes: "zero_optimization.". `object` may be NULL. */
const FgJson *fg_ds_take(FgDsCx *cx, const FgJson *object, const char *prefix, const char *key,
                         int kinds);
/* Notes the keys of an object that are not among `keys`: a slip at once, when one of them is near,
 * otherwise as one without a counterpart. `object` may be NULL. */
void fg_ds_name_unread(FgDsCx *cx, const FgJson *object, const char *prefix,
                       const char *const *keys, uint32_t n);
/* One note with the options of the trained program that "optimizer" and "scheduler" stand for, and
 * "fp16" where it is enabled; errors for what it cannot do. */
void fg_ds_train_notes(FgDsCx *cx, const FgJson *root);

#endif
