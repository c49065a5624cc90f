/* Where the time of a run went, node by node. */
#ifndef FG_RUNTIME_TRAINER_PROFILE_H
#define FG_RUNTIME_TRAINER_PROFILE_H

#include "runtime/driver.h"
#include "runtime/trainer/fail.h"

/* A table, tabs between columns, one row a node that was called, in the program's order: node, op,
 * calls, microseconds a call, microseconds in all, name, place in the model. */
bool fg_profile_write(const char *path, const FgRtProgram *program, const FgRtCx *cx, FgFail *fail);
/* Before the run: whether the file can be written. What it holds stays until the table is whole. */
bool fg_profile_check(const char *path, FgFail *fail);
/* Whether the program has a node of each op of a list, separated by commas. */
bool fg_profile_ops_check(const char *ops, const FgRtProgram *program, FgFail *fail);

#endif
