/* The declared effects of a call, evaluated on its arguments. docs/runtime.md has the grammar. */
#ifndef FG_RUNTIME_HOST_EFFECTS_H
#define FG_RUNTIME_HOST_EFFECTS_H

#include "runtime/host/cx.h"

typedef enum FgEffectKind {
    FG_EFFECT_READ,
    FG_EFFECT_WRITE,
    FG_EFFECT_UPDATE, /* read and write */
    FG_EFFECT_RELEASE,
    FG_EFFECT_INPLACE, /* argument `arg` may be the memory of argument `other` */
    FG_EFFECT_COMM     /* `arg` is 0 for gather, 1 for reduce, 2 for parts */
} FgEffectKind;

typedef struct FgEffect {
    FgEffectKind kind;
    uint32_t arg, other; /* indices of integer arguments */
    uint64_t begin, bytes;
    bool scratch; /* the workspace: written, but nothing of it is kept */
} FgEffect;

/* Whether the call's operands are rows of the program's table: custom functions and chains. */
bool fg_call_has_rows(const FgCall *call);
/* At most so many effects come from a text, beside those of a function's operands. */
uint32_t fg_effects_count(const char *effects);
/* At most so many come from a call. */
uint32_t fg_effects_room(const FgCall *call, const FgRtProgram *program);

/* Writes the effects of a call to `out`; those of absent buffers are left out. Returns their
 * number, or -1 with *bad at the text that is no effect, names no argument, or overflows. */
int32_t fg_effects_read(const FgCall *call, const FgRtProgram *program, uint32_t rank,
                        FgEffect *out, const char **bad);

#endif
