/* libclang, loaded when it is first needed: it is large, and only reading a program back takes it.
 *
 * The functions used are named once, in FG_CLANG_FUNCTIONS; a call is clang->getCursorKind(...). */
#ifndef FG_READBACK_CLANG_H
#define FG_READBACK_CLANG_H

#include <stdbool.h>

#include "base/arena.h"

#ifdef FG_LIBCLANG
#include <clang-c/Index.h>

#define FG_CLANG_FUNCTIONS(X)                                                                      \
    X(createIndex)                                                                                 \
    X(disposeIndex)                                                                                \
    X(parseTranslationUnit2)                                                                       \
    X(disposeTranslationUnit)                                                                      \
    X(getNumDiagnostics)                                                                           \
    X(getDiagnostic)                                                                               \
    X(disposeDiagnostic)                                                                           \
    X(getDiagnosticSeverity)                                                                       \
    X(getDiagnosticSpelling)                                                                       \
    X(getDiagnosticLocation)                                                                       \
    X(getTranslationUnitCursor)                                                                    \
    X(visitChildren)                                                                               \
    X(getCursorKind)                                                                               \
    X(getCursorSpelling)                                                                           \
    X(getCursorLocation)                                                                           \
    X(getCursorReferenced)                                                                         \
    X(getCursorType)                                                                               \
    X(equalCursors)                                                                                \
    X(isCursorDefinition)                                                                          \
    X(getEnumConstantDeclUnsignedValue)                                                            \
    X(Cursor_isNull)                                                                               \
    X(Cursor_getVarDeclInitializer)                                                                \
    X(Cursor_getStorageClass)                                                                      \
    X(Cursor_getNumArguments)                                                                      \
    X(Cursor_getArgument)                                                                          \
    X(Cursor_Evaluate)                                                                             \
    X(EvalResult_getKind)                                                                          \
    X(EvalResult_getAsLongLong)                                                                    \
    X(EvalResult_isUnsignedInt)                                                                    \
    X(EvalResult_getAsUnsigned)                                                                    \
    X(EvalResult_getAsDouble)                                                                      \
    X(EvalResult_getAsStr)                                                                         \
    X(EvalResult_dispose)                                                                          \
    X(getTypeSpelling)                                                                             \
    X(getCanonicalType)                                                                            \
    X(getArrayElementType)                                                                         \
    X(isConstQualifiedType)                                                                        \
    X(getTypeDeclaration)                                                                          \
    X(Type_visitFields)                                                                            \
    X(getPointeeType)                                                                              \
    X(isVolatileQualifiedType)                                                                     \
    X(isFunctionTypeVariadic)                                                                      \
    X(getCursorLinkage)                                                                            \
    X(Cursor_getMangling)                                                                          \
    X(getResultType)                                                                               \
    X(getExpansionLocation)                                                                        \
    X(getCursorExtent)                                                                             \
    X(getRangeStart)                                                                               \
    X(getRangeEnd)                                                                                 \
    X(Location_isFromMainFile)                                                                     \
    X(getFileName)                                                                                 \
    X(getCString)                                                                                  \
    X(disposeString)

/* NOLINTBEGIN(readability-identifier-naming): libclang's names. */
typedef struct FgClang {
#define X(name) __typeof__(clang_##name) *name;
    FG_CLANG_FUNCTIONS(X)
#undef X
    void *library;
} FgClang;
/* NOLINTEND(readability-identifier-naming) */

/* False with *out_why (arena-owned) when the library cannot be loaded. */
bool fg_clang_load(FgArena *arena, FgClang *out, const char **out_why);
void fg_clang_unload(FgClang *clang);
#endif

#endif
