/* Where a run's weights come from: a safetensors file, or a generator that knows nothing of ranks.
 */
#ifndef FG_RUNTIME_TRAINER_WEIGHTS_H
#define FG_RUNTIME_TRAINER_WEIGHTS_H

#include "runtime/trainer/safetensors.h"
#include "runtime/trainer/store.h"

/* Element `index` of a parameter: a pure function of the seed, the name and the index. Normal
 * values by Box-Muller with standard deviation init_scale, uniform ones in [-init_scale,
 * init_scale), or the constant init_scale. */
float fg_init_value(const FgRtParam *param, uint64_t seed, uint64_t index);
/* Initialises every parameter. */
void fg_weights_init(const FgStore *store, uint64_t seed);

/* Sets every parameter from the file: its tensor is called prefix + name or prefix + one of its
 * tied names, has its shape, and is F32, BF16 or F16. All that is missing or wrong is reported at
 * once, with the nearest name. *out_extra: tensors of the file that no parameter took. */
bool fg_weights_load(const FgStore *store, const FgSafetensors *file, const char *prefix,
                     uint32_t *out_extra, FgFail *fail);

/* The same for a file of this program's own (a checkpoint): one part, plain names, F32; parameters
 * that have no such part are skipped. */
bool fg_weights_load_part(const FgStore *store, const FgSafetensors *file, FgPart part,
                          FgFail *fail);

#endif
