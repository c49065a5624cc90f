/* What a DeepSpeed configuration says of training: options of the trained program
 * (docs/training.md), not of the compiler. */
#ifndef FG_FRONTEND_DS_TRAIN_H
#define FG_FRONTEND_DS_TRAIN_H

#include "frontend/json.h"

/* One note with the options that "optimizer" and "scheduler" stand for; errors for what the program
 * cannot do. `root` is the configuration's object. */
void fg_ds_train_notes(FgJsonCx *cx, const FgJson *root);

#endif
