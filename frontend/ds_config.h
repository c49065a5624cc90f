/* DeepSpeed configuration files: the keys that say what Foregather says with flags (docs/command.md
 * lists them). Names, defaults and meanings are those of DeepSpeed 0.19 (runtime/config.py,
 * runtime/zero/config.py).
 *
 * A file becomes settings: a flag, its value, and the key with its place, so that whoever applies
 * them can say which key lost against a flag that was given. The three batch sizes hang together
 * with the number of ranks, which the file does not know: fg_ds_config_batch settles them. */
#ifndef FG_FRONTEND_DS_CONFIG_H
#define FG_FRONTEND_DS_CONFIG_H

#include "base/diag.h"
#include "base/vec.h"

typedef struct FgDsSetting {
    const char *key; /* "zero_optimization.reduce_bucket_size" */
    FgLoc loc;       /* of its value */
    const char *flag,
        *value; /* "--reduce-bucket-size", "5000000"; value NULL: the flag stays away */
} FgDsSetting;

typedef struct FgDsCount {
    int64_t value; /* rows or micro-steps; 0: not given */
    FgLoc loc;
} FgDsCount;

typedef struct FgDsConfig {
    FG_VEC(FgDsSetting) settings;
    FgDsCount train_batch; /* rows of a step, all ranks and micro-steps */
    FgDsCount batch;       /* rows of a rank and micro-step */
    FgDsCount accumulate;  /* micro-steps */
} FgDsConfig;

/* False after errors in the diagnostics. Notes name the keys that mean nothing here, those left at
 * "auto", and the options of the trained program that the optimizer and the scheduler stand for.
 * Name and text must outlive the diagnostics; *out lives in the arena. */
bool fg_ds_config_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                        size_t len, FgDsConfig *out);
bool fg_ds_config_load(FgArena *arena, FgDiags *diags, const char *path, FgDsConfig *out);

/* Rows of a rank and micro-step, and micro-steps, of a step on `ranks` ranks: two of the file's
 * three sizes give the third, as in DeepSpeed. `batch` and `accumulate` stand in for the file's
 * where they are not 0. *out_batch or *out_accumulate is 0 where nothing says it. False after an
 * error: the sizes do not go together. */
bool fg_ds_config_batch(FgDiags *diags, const FgDsConfig *config, uint32_t ranks, int64_t batch,
                        int64_t accumulate, int64_t *out_batch, int64_t *out_accumulate);

#endif
