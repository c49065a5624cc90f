/* Machines: presets and machine files (docs/machine-format.md), both JSON, read alike. */
#ifndef FG_FRONTEND_MACHINE_H
#define FG_FRONTEND_MACHINE_H

#include "base/diag.h"
#include "ir/machine.h"

/* A preset's name, or the path of a machine file. False after errors in the diagnostics. What *out
 * points to lives in the arena. */
bool fg_machine_load(FgArena *arena, FgDiags *diags, const char *name_or_path, FgMachine *out);
bool fg_machine_parse(FgArena *arena, FgDiags *diags, const char *name, const char *text,
                      size_t len, FgMachine *out);
/* The same links with another number of ranks (>= 1): what exceeds the latency scales with the
 * share that travels, (n - 1) / n; one rank counts as two, because nothing travels then. A machine
 * whose ranks fill one node stays one node. */
void fg_machine_set_ranks(FgArena *arena, FgMachine *machine, uint32_t ranks);
/* JSON text of a preset, or NULL. Names are listed by fg_machine_preset_names. */
const char *fg_machine_preset(const char *name);
const char *const *fg_machine_preset_names(uint32_t *out_n);

#endif
