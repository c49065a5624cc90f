/* Checked mode: a sanitizer for plans. docs/runtime.md says what it traps and how. One a rank;
 * every failure goes to the status of the rank's group. */
#ifndef FG_RUNTIME_HOST_CHECKED_H
#define FG_RUNTIME_HOST_CHECKED_H

#include "runtime/host/cx.h"

/* The arena becomes poison. NULL: out of memory. Owned by the context. */
FgChecked *fg_checked_new(FgRtCx *cx);
void fg_checked_free(FgChecked *checked);

void fg_checked_begin(
    FgChecked *checked); /* of a body: events start anew, the driver may have written */
bool fg_checked_enter(FgChecked *checked,
                      const FgCall *call); /* false: a fault was found and raised */
void fg_checked_leave(FgChecked *checked, const FgCall *call);
void fg_checked_record(FgChecked *checked, FgRtStream stream, uint32_t event);
void fg_checked_wait(FgChecked *checked, FgRtStream stream, uint32_t event);
void fg_checked_join(FgChecked *checked);

uint64_t fg_checked_used_bytes(const FgChecked *checked);

#endif
