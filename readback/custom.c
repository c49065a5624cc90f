/* The functions of a program that are not its own: declarations of the user's, and the functions of
 * the file that hand calls on to them. Functions of fused chains are called in the same way; what
 * is in them is chain.c's. Both have one form each (codegen's, written down in
 * docs/custom-kernels.md); anything else is refused. */
#include "readback/cursor.h"

#include <string.h>

const FgRbCustomFn *fg_rb_custom(const FgRbSource *source, const char *function)
{
    for (uint32_t i = 0; i < source->customs.len; i++)
        if (!strcmp(source->customs.data[i].name, function))
            return &source->customs.data[i];
    return NULL;
}

#ifdef FG_LIBCLANG

const char *fg_rb_custom_declare(const FgRbCustomCx *cx, CXCursor function)
{
    FgArena *arena = cx->source->arena;
    int n = cx->clang->Cursor_getNumArguments(function);
    FgRbCustomFn out = {.name = fg_cursor_name(cx->clang, arena, function), .loc = cx->loc};
    bool chain = !strncmp(out.name, "fused_", 6), own = cx->clang->isCursorDefinition(function);
    if (!chain && strncmp(out.name, "custom_", 7))
        return "a declaration; a program defines all that it declares, but the user's functions";
    if (fg_rb_custom(cx->source, out.name))
        return "a second declaration of this function";
    if ((cx->clang->Cursor_getStorageClass(function) == CX_SC_Static) != own ||
        cx->clang->getResultType(cx->clang->getCursorType(function)).kind != CXType_Void || n < 2)
        return "a user's function returns nothing, and takes operands and the call";
    uint64_t *dtypes = FG_NEW_ARRAY(arena, uint64_t, (size_t)n);
    bool *constant = FG_NEW_ARRAY(arena, bool, (size_t)n);
    for (int i = 0; i < n; i++) {
        CXCursor param = cx->clang->Cursor_getArgument(function, (unsigned)i);
        FgCursorPointer type = fg_cursor_pointer(cx->clang, arena, cx->clang->getCursorType(param));
        if (i == n - 1 ? !type.call : !type.known)
            return i == n - 1 ? "the last parameter of a user's function is const FgCustom *"
                              : "a parameter that is no pointer to elements";
        dtypes[i] = (uint64_t)type.dtype; /* FgRtDtype counts as FgDtype does */
        constant[i] = type.constant;
    }
    out.dtypes = dtypes;
    out.constant = constant;
    out.n_operands = (uint32_t)n - 1;
    fg_vec_push(arena, &cx->source->customs, out);
    return NULL;
}

/* The parameter of a function that has one alone, and its body. */
static bool parts_of(const FgRbCustomCx *cx, CXCursor function, CXCursor *out_param,
                     CXCursor *out_body)
{
    FgCursorVec parts = fg_cursor_children(cx->clang, cx->source->arena, function);
    if (parts.len != 2 || cx->clang->getCursorKind(parts.data[0]) != CXCursor_ParmDecl ||
        cx->clang->getCursorKind(parts.data[1]) != CXCursor_CompoundStmt)
        return false;
    *out_param = parts.data[0];
    *out_body = parts.data[1];
    return true;
}

bool fg_rb_custom_is_caller(const FgRbCustomCx *cx, CXCursor function)
{
    CXCursor param, body;
    return parts_of(cx, function, &param, &body) &&
           fg_cursor_pointer(cx->clang, cx->source->arena, cx->clang->getCursorType(param)).call;
}

static bool is_named(const FgRbCustomCx *cx, CXCursor expression, CXCursor declaration)
{
    CXCursor named = fg_cursor_inner(cx->clang, cx->source->arena, expression);
    return cx->clang->getCursorKind(named) == CXCursor_DeclRefExpr &&
           cx->clang->equalCursors(cx->clang->getCursorReferenced(named), declaration);
}

static bool is_number(const FgRbCustomCx *cx, CXCursor expression, uint32_t want)
{
    CXEvalResult result = cx->clang->Cursor_Evaluate(expression);
    bool ok = result && cx->clang->EvalResult_getKind(result) == CXEval_Int &&
              cx->clang->EvalResult_getAsLongLong(result) == (long long)want;
    if (result)
        cx->clang->EvalResult_dispose(result);
    return ok;
}

/* `fg_custom_in(call, i)`, or _out. */
static bool is_operand(const FgRbCustomCx *cx, CXCursor argument, CXCursor param, const char *name,
                       uint32_t i)
{
    FgArena *arena = cx->source->arena;
    CXCursor call = fg_cursor_inner(cx->clang, arena, argument);
    return cx->clang->getCursorKind(call) == CXCursor_CallExpr &&
           !strcmp(fg_cursor_name(cx->clang, arena, cx->clang->getCursorReferenced(call)), name) &&
           cx->clang->Cursor_getNumArguments(call) == 2 &&
           is_named(cx, cx->clang->Cursor_getArgument(call, 0), param) &&
           is_number(cx, cx->clang->Cursor_getArgument(call, 1), i);
}

const char *fg_rb_custom_caller(const FgRbCustomCx *cx, CXCursor function)
{
    FgArena *arena = cx->source->arena;
    CXCursor param, body;
    if (!parts_of(cx, function, &param, &body) ||
        cx->clang->Cursor_getStorageClass(function) != CX_SC_Static ||
        cx->clang->getResultType(cx->clang->getCursorType(function)).kind != CXType_Void)
        return "a function that is no 'static void NAME(const FgCustom *call)'";
    FgCursorVec calls = fg_cursor_children(cx->clang, arena, body);
    if (calls.len != 1 || cx->clang->getCursorKind(calls.data[0]) != CXCursor_CallExpr)
        return "it does more than to hand its call on";
    CXCursor call = calls.data[0], callee = cx->clang->getCursorReferenced(call);
    FgRbCustomFn *to = NULL;
    for (uint32_t i = 0; i < cx->source->customs.len; i++)
        if (!strcmp(cx->source->customs.data[i].name, fg_cursor_name(cx->clang, arena, callee)))
            to = &cx->source->customs.data[i];
    if (!to)
        return "it calls something that is no user's function";
    if (to->caller)
        return "a second function that hands calls on to the same one";
    bool ok = cx->clang->Cursor_getNumArguments(call) == (int)to->n_operands + 1 &&
              is_named(cx, cx->clang->Cursor_getArgument(call, to->n_operands), param);
    for (uint32_t i = 0; ok && i < to->n_operands; i++)
        ok = is_operand(cx, cx->clang->Cursor_getArgument(call, i), param,
                        to->constant[i] ? "fg_custom_in" : "fg_custom_out", i);
    if (!ok)
        return "it does not hand the operands on in their order";
    to->caller = fg_cursor_name(cx->clang, arena, function);
    return NULL;
}

#endif
