/* Checkpoints: DIR/step-000200/ with whole parameters by name, so that any number of ranks can read
 * them.
 *
 *   model.safetensors       the working copies, in the program's dtype
 *   master.safetensors      the f32 masters, when the working copies are narrower
 *   exp_avg.safetensors, exp_avg_sq.safetensors   AdamW's moments, f32
 *   manifest.json           the position of the run; written last
 *
 * One of the same step is replaced at once (shelf.h). */
#ifndef FG_RUNTIME_TRAINER_CHECKPOINT_H
#define FG_RUNTIME_TRAINER_CHECKPOINT_H

#include "runtime/trainer/publish.h"

typedef struct FgProgress {
    uint64_t step;      /* steps done; AdamW's t of the last one, less those skipped */
    uint64_t position;  /* tokens: where the next micro-batch starts */
    uint64_t rows;      /* rows trained on */
    uint64_t seed;      /* of the initialisation */
    uint64_t step_rows; /* rows of a step, micro-steps and ranks together; loaded: 0 when unknown */
    uint64_t ranks;     /* that the checkpoint's run had; set by loading, 0 when unknown */
    uint64_t skipped;   /* of the steps done, those without an update: their gradients overflowed */
    double loss_scale;  /* of the next step; 0: the loss is not scaled, or that was not told */
    uint64_t good_steps, overflows_left; /* FgScale */
} FgProgress;

/* By all processes alike, into a folder that rank 0's holds open (fg_shelf_open). *out_path (owned
 * by the caller) is the checkpoint's folder. */
bool fg_checkpoint_save(const FgStore *store, FgWorld *world, const char *dir,
                        const FgProgress *progress, char **out_path, FgFail *fail);
/* By all processes alike. `dir` is a checkpoint or a folder of checkpoints, of which the one with
 * the highest step is taken. */
bool fg_checkpoint_load(const FgStore *store, FgWorld *world, const char *dir,
                        FgProgress *out_progress, char **out_path, FgFail *fail);

#endif
