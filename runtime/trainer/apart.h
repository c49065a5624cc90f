/* That a run does not write over what it reads, nor twice into one file.
 *
 * Files are compared as the system knows them, by device and inode, so that links and other ways to
 * write a name do not matter; those that are not there yet by their folder and name. A checkpoint
 * that is resumed may be replaced by --save, which does so whole; by nothing else. */
#ifndef FG_RUNTIME_TRAINER_APART_H
#define FG_RUNTIME_TRAINER_APART_H

#include "runtime/trainer/options.h"

/* Looks at names alone and touches no file. False: a usage error. */
bool fg_files_apart(const FgOptions *options, FgFail *fail);

#endif
