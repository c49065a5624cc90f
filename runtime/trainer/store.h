/* Parameters as the user knows them, by name and element, on top of what each rank owns.
 *
 * A bucket is cut into equal slices, one a rank; a parameter is a range of its bucket and may cross
 * slices. A process holds the slices of its own ranks; the store reads and writes them in f32
 * through the runtime. No body may run meanwhile. A parameter that nothing reads has no bucket: it
 * lives here, in host memory, so that weight files stay complete, and counts as rank 0's. */
#ifndef FG_RUNTIME_TRAINER_STORE_H
#define FG_RUNTIME_TRAINER_STORE_H

#include "runtime/driver.h"
#include "runtime/trainer/fail.h"

typedef enum FgPart { FG_PART_WEIGHT, FG_PART_MOMENT1, FG_PART_MOMENT2 } FgPart;

typedef struct FgStore {
    const FgRtProgram *program;
    FgRtGroup *group;
    float **unused; /* [param]: its values when it has no bucket, otherwise NULL */
} FgStore;

void fg_store_open(FgStore *out_store, const FgRtProgram *program, FgRtGroup *group);
void fg_store_close(FgStore *store);

/* The next elements of a parameter that lie here, from *first on: moves *first to where they begin
 * and returns how many there are in one piece, at most `most`; 0: no more. */
uint64_t fg_store_here(const FgStore *store, uint32_t param, uint64_t *first, uint64_t most);

/* Whether what is read can be believed: nothing has failed. */
bool fg_store_ok(const FgStore *store, FgFail *fail);
bool fg_store_is_used(const FgStore *store, uint32_t param);
/* It has moments: it is updated. */
bool fg_store_is_trained(const FgStore *store, uint32_t param);
/* Some weight has a master copy beside a narrower one. */
bool fg_store_has_masters(const FgStore *store);

/* Elements [first, first + count) of a parameter in f32: the master of a weight where there is one.
 * Setting a weight sets its master and its working copy, and leaves out what lies elsewhere; what
 * is read must lie here. Moments only of trained parameters. */
void fg_store_get(const FgStore *store, uint32_t param, FgPart part, uint64_t first, uint64_t count,
                  float *out);
void fg_store_set(const FgStore *store, uint32_t param, FgPart part, uint64_t first, uint64_t count,
                  const float *in);
/* The working copy in its own dtype (fg_store_dtype). */
FgRtDtype fg_store_dtype(const FgStore *store, uint32_t param);
void fg_store_get_working(const FgStore *store, uint32_t param, uint64_t first, uint64_t count,
                          void *out);

#endif
