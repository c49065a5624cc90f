/* The signature of a function in a source file of the user's.
 *
 * C must be understood to its end: what libclang refuses is an error at its place. CUDA C++ is read
 * without CUDA's headers, which need not be here: a few declarations stand for them, and what is
 * unknown beside the function's own parameters is left to nvcc. */
#include "readback/signature.h"

#include "readback/cuda.h"
#include "readback/cursor.h"

#ifdef FG_LIBCLANG

#include <string.h>

typedef struct Cx {
    FgClang clang;
    FgArena *arena;
    const FgSignatureRequest *request;
    FgSignature *out;
    FgStrVec functions;
} Cx;

static FgLoc place(const Cx *cx, CXSourceLocation location)
{
    unsigned line = 0, column = 0;
    CXFile file;
    cx->clang.getExpansionLocation(location, &file, &line, &column, NULL);
    if (!file)
        return FG_NOWHERE;
    const char *name = fg_cursor_take(&cx->clang, cx->arena, cx->clang.getFileName(file));
    return strcmp(name, cx->request->path) ? FG_NOWHERE : (FgLoc){cx->request->file, line, column};
}

static void read_params(Cx *cx, CXCursor function)
{
    int n = cx->clang.Cursor_getNumArguments(function);
    FgSignatureParam *params = FG_NEW_ARRAY(cx->arena, FgSignatureParam, (size_t)(n > 0 ? n : 0));
    for (int i = 0; i < n; i++) {
        CXCursor param = cx->clang.Cursor_getArgument(function, (unsigned)i);
        CXType type = cx->clang.getCursorType(param);
        FgCursorPointer pointer = fg_cursor_pointer(&cx->clang, cx->arena, type);
        params[i] = (FgSignatureParam){
            .type = fg_cursor_take(&cx->clang, cx->arena, cx->clang.getTypeSpelling(type)),
            .pointer = pointer.pointer,
            .constant = pointer.constant,
            .known = pointer.known,
            .call = pointer.call,
            .dtype = pointer.dtype,
            .loc = place(cx, cx->clang.getCursorLocation(param))};
    }
    cx->out->params = params;
    cx->out->n_params = n > 0 ? (uint32_t)n : 0;
}

static void read_function(Cx *cx, CXCursor function)
{
    const FgClang *clang = &cx->clang;
    CXType type = clang->getCursorType(function);
    const char *name = cx->request->function;
    if (cx->out->found)
        return;
    cx->out->found = true;
    cx->out->loc = place(cx, clang->getCursorLocation(function));
    cx->out->plain =
        clang->getResultType(type).kind == CXType_Void && !clang->isFunctionTypeVariadic(type);
    cx->out->external =
        clang->getCursorLinkage(function) == CXLinkage_External &&
        !strcmp(fg_cursor_take(clang, cx->arena, clang->Cursor_getMangling(function)), name);
    read_params(cx, function);
}

static enum CXChildVisitResult visit(CXCursor cursor, CXCursor parent, CXClientData data)
{
    Cx *cx = data;
    (void)parent;
    enum CXCursorKind kind = cx->clang.getCursorKind(cursor);
    if (kind == CXCursor_LinkageSpec || kind == CXCursor_UnexposedDecl)
        return CXChildVisit_Recurse;
    if (kind != CXCursor_FunctionDecl || !cx->clang.isCursorDefinition(cursor))
        return CXChildVisit_Continue;
    const char *name = fg_cursor_name(&cx->clang, cx->arena, cursor);
    if (place(cx, cx->clang.getCursorLocation(cursor)).file)
        fg_vec_push(cx->arena, &cx->functions, name);
    if (!strcmp(name, cx->request->function))
        read_function(cx, cursor);
    return CXChildVisit_Continue;
}

/* The first error of the compiler; false when there is one. */
static bool compiles(Cx *cx, CXTranslationUnit unit, const char **out_error, FgLoc *out_loc)
{
    unsigned n = cx->clang.getNumDiagnostics(unit);
    bool ok = true;
    for (unsigned i = 0; i < n && ok; i++) {
        CXDiagnostic one = cx->clang.getDiagnostic(unit, i);
        if (cx->clang.getDiagnosticSeverity(one) >= CXDiagnostic_Error) {
            ok = false;
            *out_loc = place(cx, cx->clang.getDiagnosticLocation(one));
            *out_error = fg_arena_printf(
                cx->arena, "the compiler says: %s",
                fg_cursor_take(&cx->clang, cx->arena, cx->clang.getDiagnosticSpelling(one)));
        }
        cx->clang.disposeDiagnostic(one);
    }
    return ok;
}

static bool read_unit(Cx *cx, CXTranslationUnit unit, const char **out_error, FgLoc *out_loc)
{
    cx->clang.visitChildren(cx->clang.getTranslationUnitCursor(unit), visit, cx);
    cx->out->functions = cx->functions.data;
    cx->out->n_functions = cx->functions.len;
    bool lenient = cx->request->cuda && cx->out->found;
    return lenient || compiles(cx, unit, out_error, out_loc);
}

bool fg_signature_read(const char *include, FgArena *arena, const FgSignatureRequest *request,
                       FgSignature *out, const char **out_error, FgLoc *out_loc)
{
    Cx cx = {.arena = arena, .request = request, .out = out};
    *out = (FgSignature){0};
    *out_loc = FG_NOWHERE;
    if (!fg_clang_load(arena, &cx.clang, out_error))
        return false;
    const char *c_args[] = {"-x", "c", "-std=c11", "-I", include};
    const char *cuda_args[] = {FG_CUDA_ARGS, "-I", include};
    struct CXUnsavedFile files[] = {{request->path, request->text, (unsigned long)request->len},
                                    {FG_CUDA_STUB_PATH, FG_CUDA_STUB, sizeof FG_CUDA_STUB - 1}};
    CXIndex index = cx.clang.createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    enum CXErrorCode code = cx.clang.parseTranslationUnit2(
        index, request->path, request->cuda ? cuda_args : c_args,
        request->cuda ? (int)(sizeof cuda_args / sizeof *cuda_args)
                      : (int)(sizeof c_args / sizeof *c_args),
        files, request->cuda ? 2 : 1, request->cuda ? CXTranslationUnit_KeepGoing : 0, &unit);
    *out_error = "libclang cannot parse it";
    bool ok = code == CXError_Success && read_unit(&cx, unit, out_error, out_loc);
    if (unit)
        cx.clang.disposeTranslationUnit(unit);
    cx.clang.disposeIndex(index);
    fg_clang_unload(&cx.clang);
    return ok;
}

#else

#include "readback/readback.h"

bool fg_signature_read(const char *include, FgArena *arena, const FgSignatureRequest *request,
                       FgSignature *out, const char **out_error, FgLoc *out_loc)
{
    (void)include, (void)request;
    *out = (FgSignature){0};
    *out_loc = FG_NOWHERE;
    fg_readback_available(arena, out_error);
    return false;
}

#endif
