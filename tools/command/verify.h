/* Proving an emitted text, for verify and compile. */
#ifndef FG_TOOLS_COMMAND_VERIFY_H
#define FG_TOOLS_COMMAND_VERIFY_H

#include "readback/readback.h"
#include "tools/command/session.h"

/* Messages go to the session's diagnostics. `plan` may be NULL. *out_ms is the time it took. */
bool fg_verify_text(FgSession *session, const char *path, const char *text, size_t len,
                    const FgModule *plan, FgReadback *out, double *out_ms);

#endif
