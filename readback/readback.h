/* Read-back: an emitted program, parsed with libclang, as the schedule that it really is, and the
 * proof of that (docs/proof.md).
 *
 * Shares no code with what plans and emits: calls and constants come from the C text, what a call
 * touches from the annotation of its declaration in fg_rt.h, and the proof is the checker's. */
#ifndef FG_READBACK_READBACK_H
#define FG_READBACK_READBACK_H

#include "ir/ir.h"
#include "passes/trace.h"

typedef struct FgReadbackRequest {
    const char *path; /* of the program, for messages */
    const char *text;
    size_t len;
    const char *include;  /* the folder that holds the runtime's header */
    const FgModule *plan; /* to compare with, or NULL */
} FgReadbackRequest;

typedef struct FgReadback {
    FgProof proof;
    uint32_t calls, functions; /* read */
    uint64_t fingerprint;      /* that the program states */
    uint64_t state_bytes, arena_bytes, reserved_bytes, memory_bytes;
    uint32_t ranks;
} FgReadback;

/* Whether libclang can be had; *out_why says what is missing (arena-owned). */
bool fg_readback_available(FgArena *arena, const char **out_why);
/* True when the program is understood, safe, and (with a plan) the one that was planned. Otherwise
 * the diagnostics say what is wrong and where. */
bool fg_readback(FgArena *arena, FgDiags *diags, const FgReadbackRequest *request, FgReadback *out);

#endif
