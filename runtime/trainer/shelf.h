/* A folder of checkpoints: DIR/step-000200/ and so on.
 *
 * One run at a time saves into it, which holds DIR/.lock. A checkpoint is made in a folder of
 * another name, DIR/.tmp-step-000200-PID-N, and takes its own when it is complete. One of the same
 * step is exchanged for it; where the file system cannot exchange, it stands aside as
 * DIR/.old-step-... for a moment. So at any moment, whatever ends the run, the old or the new one
 * is there, complete; what lies under a name of these is found by fg_shelf_newest and put in order
 * by the next run that saves here. */
#ifndef FG_RUNTIME_TRAINER_SHELF_H
#define FG_RUNTIME_TRAINER_SHELF_H

#include "runtime/trainer/fail.h"

/* What a checkpoint holds; the manifest is written last. */
typedef enum FgShelfFile {
    FG_SHELF_MODEL,
    FG_SHELF_MASTER,
    FG_SHELF_EXP_AVG,
    FG_SHELF_EXP_AVG_SQ,
    FG_SHELF_MANIFEST,
    FG_N_SHELF_FILES
} FgShelfFile;

const char *fg_shelf_file_name(FgShelfFile file);

typedef struct FgShelf {
    const char *dir; /* not owned */
    int lock;        /* file descriptor; -1: closed or without a lock */
    char *note;      /* what the user should know about how it opened, or NULL; owned */
} FgShelf;

/* Makes the folder, tries whether it can be written, locks it and puts leftovers in order. False:
 * it cannot be used, or another run saves here. Close it in either case. */
bool fg_shelf_open(FgShelf *out_shelf, const char *dir, FgFail *fail);
void fg_shelf_close(FgShelf *shelf);

/* The steps after `step` that have a checkpoint here, "step-000004, step-000006", or NULL when
 * there is none. The caller frees. */
char *fg_shelf_later(const char *dir, uint64_t step);
/* The newest checkpoint, or `dir` itself when it is one. The caller frees; NULL: there is none. */
char *fg_shelf_newest(const char *dir, FgFail *fail);

/* A new empty folder to make a checkpoint in. The caller frees the name. */
char *fg_shelf_begin(const char *dir, uint64_t step, FgFail *fail);
/* Gives the finished folder its name, *out_path (the caller frees). */
bool fg_shelf_put(const char *dir, const char *made, uint64_t step, char **out_path, FgFail *fail);
/* Removes a checkpoint's files and its folder, unless something else lies there too. */
void fg_shelf_discard(const char *folder);

#endif
