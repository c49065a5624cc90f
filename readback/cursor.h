/* Small questions about libclang's cursors and types, for the reader of programs (parse.c,
 * custom.c) and of signatures (signature.c). Texts and lists are arena-owned. */
#ifndef FG_READBACK_CURSOR_H
#define FG_READBACK_CURSOR_H

#include "base/vec.h"
#include "ir/types.h"
#include "readback/clang.h"
#include "readback/internal.h"

#ifdef FG_LIBCLANG

typedef FG_VEC(CXCursor) FgCursorVec;

FgCursorVec fg_cursor_children(const FgClang *clang, FgArena *arena, CXCursor cursor);
const char *fg_cursor_take(const FgClang *clang, FgArena *arena, CXString text);
const char *fg_cursor_name(const FgClang *clang, FgArena *arena, CXCursor cursor);
/* Through casts and parentheses to what is named there. */
CXCursor fg_cursor_inner(const FgClang *clang, FgArena *arena, CXCursor cursor);

/* A parameter's type as custom functions have them. */
typedef struct FgCursorPointer {
    bool pointer, constant; /* to const */
    bool known;             /* `dtype` is set: an element type */
    bool call;              /* const FgCustom * */
    FgDtype dtype;
} FgCursorPointer;
FgCursorPointer fg_cursor_pointer(const FgClang *clang, FgArena *arena, CXType type);

/* ---- custom.c: the functions of a program that are not its own ---- */
typedef struct FgRbCustomCx {
    const FgClang *clang;
    FgRbSource *source;
    FgLoc loc; /* of the cursor */
} FgRbCustomCx;

/* A declaration of a user's function; what is wrong with it, or NULL. */
const char *fg_rb_custom_declare(const FgRbCustomCx *cx, CXCursor function);
/* Whether a function hands calls on: it takes a const FgCustom * alone. */
bool fg_rb_custom_is_caller(const FgRbCustomCx *cx, CXCursor function);
const char *fg_rb_custom_caller(const FgRbCustomCx *cx, CXCursor function);

/* ---- chain.c: functions of fused chains ---- */
typedef struct FgRbChainCx {
    const FgClang *clang;
    FgRbSource *source;
    const char *text; /* of the whole program */
    size_t len;
    bool cuda; /* the part for CUDA is read */
} FgRbChainCx;

/* Reads a function that is named as those of chains are; what is wrong with it, or NULL. */
const char *fg_rb_chain_function(const FgRbChainCx *cx, CXCursor function, const char *name);
/* Gives a declared function the chain that it is; what is wrong with that, or NULL. */
const char *fg_rb_chain_declared(const FgRbSource *source, FgRbCustomFn *function);

#endif

#endif
