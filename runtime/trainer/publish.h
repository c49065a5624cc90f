/* Writing what the store holds into one file, by all processes of a run together. */
#ifndef FG_RUNTIME_TRAINER_PUBLISH_H
#define FG_RUNTIME_TRAINER_PUBLISH_H

#include "runtime/trainer/safetensors.h"
#include "runtime/trainer/store.h"

/* A tensor of the file. */
typedef struct FgPublished {
    const char *name;
    uint32_t param;
    FgPart part;  /* in f32, or: */
    bool working; /* the working copy in its own dtype */
} FgPublished;

/* All processes call this alike. Rank 0's makes the file, each writes what lies with it, and when
 * this returns true all have and it is synced. */
bool fg_publish(const FgStore *store, FgWorld *world, const char *path, const FgPublished *tensors,
                uint32_t n, FgFail *fail);

/* Every process gets rank 0's *text (owned; the others' are set). False: the run has failed. */
bool fg_share_text(FgWorld *world, char **text, FgFail *fail);
/* Ends the run of all processes with this one's failure, before what the others may be working on
 * is removed. */
void fg_tell(FgWorld *world, FgFail *fail);
/* Waits for all processes; false when the run has failed, with what ended it. */
bool fg_meet(FgWorld *world, FgFail *fail);
/* Whether this process is rank 0's, which does what is to be done once. */
bool fg_is_first(const FgWorld *world);

#endif
