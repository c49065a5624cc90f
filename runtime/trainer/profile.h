/* Where the time of a run went, node by node. */
#ifndef FG_RUNTIME_TRAINER_PROFILE_H
#define FG_RUNTIME_TRAINER_PROFILE_H

#include "runtime/driver.h"
#include "runtime/trainer/fail.h"

#include <stdio.h>

/* A table, tabs between columns, one row a node that was called, in the program's order: node, op,
 * calls, microseconds a call, microseconds in all, name, place in the model. */
bool fg_profile_write(FILE *stream, const char *path, const FgRtProgram *program, const FgRtCx *cx,
                      FgFail *fail);
/* Opens the file before the run, as it is; the table then replaces what it holds. */
FILE *fg_profile_open(const char *path, FgFail *fail);

#endif
