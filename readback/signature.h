/* Reading the signature of a function of the user's with libclang (ir/signature.h). */
#ifndef FG_READBACK_SIGNATURE_H
#define FG_READBACK_SIGNATURE_H

#include "base/arena.h"
#include "ir/signature.h"

/* `include` is the folder of the runtime's headers. As FgSignatureReader otherwise. */
bool fg_signature_read(const char *include, FgArena *arena, const FgSignatureRequest *request,
                       FgSignature *out, const char **out_error, FgLoc *out_loc);

#endif
