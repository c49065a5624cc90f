/* From one command to the processes of a run. */
#ifndef FG_RUNTIME_TRAINER_START_H
#define FG_RUNTIME_TRAINER_START_H

#include "runtime/driver.h"
#include "runtime/trainer/options.h"

/* Checks the options against the program, starts the ranks where --local-ranks asks for it, and
 * joins them. NULL: this process is done and exits with *out_status; `fail` says why, or is empty
 * when nothing is to be said here. The caller leaves the world. */
FgWorld *fg_start(const FgRtProgram *program, const FgOptions *options, char *const *argv,
                  int *out_status, FgFail *fail);

#endif
