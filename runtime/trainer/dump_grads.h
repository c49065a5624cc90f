/* The gradients of one step as a safetensors file.
 *
 * A plan may free gradients as soon as they are used, so they are taken from where they end up: the
 * run's first step uses beta1 = 0, which makes the first moment (1 - 0) * gradient, exactly, in
 * f32. With clipping it is the clipped gradient. */
#ifndef FG_RUNTIME_TRAINER_DUMP_GRADS_H
#define FG_RUNTIME_TRAINER_DUMP_GRADS_H

#include "runtime/trainer/publish.h"

/* Names are prefix + name; parameters that are not trained are left out. By all processes alike.
 * *out_n: the parameters written. */
bool fg_dump_grads(const FgStore *store, FgWorld *world, const char *path, const char *prefix,
                   uint32_t *out_n, FgFail *fail);

#endif
