/* libclang's cursors, asked small questions. */
#include "readback/cursor.h"

#ifdef FG_LIBCLANG

#include <string.h>

typedef struct Gather {
    FgArena *arena;
    FgCursorVec list;
} Gather;

static enum CXChildVisitResult gather_child(CXCursor cursor, CXCursor parent, CXClientData data)
{
    Gather *gather = data;
    (void)parent;
    fg_vec_push(gather->arena, &gather->list, cursor);
    return CXChildVisit_Continue;
}

FgCursorVec fg_cursor_children(const FgClang *clang, FgArena *arena, CXCursor cursor)
{
    Gather gather = {.arena = arena};
    clang->visitChildren(cursor, gather_child, &gather);
    return gather.list;
}

const char *fg_cursor_take(const FgClang *clang, FgArena *arena, CXString text)
{
    const char *copy = clang->getCString(text);
    copy = fg_arena_strdup(arena, copy ? copy : "");
    clang->disposeString(text);
    return copy;
}

const char *fg_cursor_name(const FgClang *clang, FgArena *arena, CXCursor cursor)
{
    return fg_cursor_take(clang, arena, clang->getCursorSpelling(cursor));
}

CXCursor fg_cursor_inner(const FgClang *clang, FgArena *arena, CXCursor cursor)
{
    for (;;) {
        enum CXCursorKind kind = clang->getCursorKind(cursor);
        if (kind != CXCursor_UnexposedExpr && kind != CXCursor_ParenExpr)
            return cursor;
        FgCursorVec children = fg_cursor_children(clang, arena, cursor);
        if (children.len != 1)
            return cursor;
        cursor = children.data[0];
    }
}

/* Integers by their width, floats by their kind, the narrow floats by their name. */
static bool element_type(const FgClang *clang, FgArena *arena, CXType type, FgDtype *out)
{
    switch ((int)type.kind) {
    case CXType_Float:
        *out = FG_F32;
        return true;
    case CXType_Double:
        *out = FG_F64;
        return true;
    case CXType_Int:
        *out = FG_I32;
        return true;
    case CXType_Long:
    case CXType_LongLong:
        *out = FG_I64;
        return true;
    case CXType_Record:
        break;
    default:
        return false;
    }
    const char *name = fg_cursor_name(clang, arena, clang->getTypeDeclaration(type));
    *out = strcmp(name, "FgBf16") == 0 ? FG_BF16 : FG_F16;
    return *out == FG_BF16 || strcmp(name, "FgF16") == 0;
}

FgCursorPointer fg_cursor_pointer(const FgClang *clang, FgArena *arena, CXType type)
{
    FgCursorPointer out = {0};
    CXType pointer = clang->getCanonicalType(type);
    if (pointer.kind != CXType_Pointer)
        return out;
    CXType held = clang->getPointeeType(pointer);
    out.pointer = true;
    out.constant = clang->isConstQualifiedType(held) != 0;
    if (clang->isVolatileQualifiedType(held))
        return out;
    out.known = element_type(clang, arena, held, &out.dtype);
    out.call =
        out.constant && held.kind == CXType_Record &&
        strcmp(fg_cursor_name(clang, arena, clang->getTypeDeclaration(held)), "FgCustom") == 0;
    return out;
}

#endif
