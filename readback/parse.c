/* From C text to tables and calls, with libclang.
 *
 * An emitted program is a small part of C: constant tables, functions that are straight lines of
 * calls, those of fused chains, and fg_program. Everything else is refused at its place. Where a
 * program for GPUs has kernels, its second part is read as CUDA, without CUDA's headers, and holds
 * the functions of chains alone. Calls keep the constants that
 * the compiler sees; a call of another function of the file is replaced by that function's calls.
 */
#include "readback/cuda.h"
#include "readback/cursor.h"

#include <string.h>

bool fg_rb_fail(FgDiags *diags, FgLoc loc, const char *format, ...)
{
    FgArena *arena = fg_arena_new();
    va_list args;
    va_start(args, format);
    fg_diag(diags, loc, FG_D_NOT_UNDERSTOOD, "%s", fg_arena_vprintf(arena, format, args));
    va_end(args);
    fg_arena_free(arena);
    return false;
}

const FgRbTable *fg_rb_table(const FgRbSource *source, const char *name)
{
    for (uint32_t i = 0; i < source->tables.len; i++)
        if (!strcmp(source->tables.data[i].name, name))
            return &source->tables.data[i];
    return NULL;
}

uint64_t fg_rb_constant(const FgRbSource *source, const char *name)
{
    uint32_t value;
    return fg_map_get(&source->constants, name, &value) ? value : UINT64_MAX;
}

const FgRbCell *fg_rb_cell(const FgRbTable *table, uint32_t row, const char *field)
{
    static const FgRbCell absent;
    for (uint32_t i = 0; i < table->fields.len; i++)
        if (!strcmp(table->fields.data[i], field))
            return &table->cells[(size_t)row * table->fields.len + i];
    return &absent;
}

#ifdef FG_LIBCLANG

typedef struct Cx {
    FgClang clang;
    FgArena *arena;
    FgRbSource *out;
    FgMap entries;         /* "fg_rt_linear" -> index */
    FgMap funcs;           /* functions of the file -> index */
    FgRbFunc *func;        /* being read */
    CXCursor func_context; /* its parameter */
    FgRbChainCx chains;
    bool bad;
    bool has_program_function;
} Cx;

typedef struct Children {
    FgCursorVec list;
} Children;

static Children children_of(Cx *cx, CXCursor cursor)
{
    return (Children){fg_cursor_children(&cx->clang, cx->arena, cursor)};
}

static const char *take(Cx *cx, CXString text)
{
    return fg_cursor_take(&cx->clang, cx->arena, text);
}

static FgLoc place(Cx *cx, CXSourceLocation location)
{
    unsigned line = 0, column = 0;
    CXFile file;
    cx->clang.getExpansionLocation(location, &file, &line, &column, NULL);
    return (FgLoc){line ? cx->out->file : 0, line, column};
}

static FgLoc place_of(Cx *cx, CXCursor cursor)
{
    return place(cx, cx->clang.getCursorLocation(cursor));
}

static bool in_file(Cx *cx, CXCursor cursor)
{
    return cx->clang.Location_isFromMainFile(cx->clang.getCursorLocation(cursor));
}

static bool refuse(Cx *cx, CXCursor cursor, const char *what)
{
    cx->bad = true;
    return fg_rb_fail(cx->out->diags, place_of(cx, cursor), "%s", what);
}

/* ---- constants ---- */

static CXCursor inner(Cx *cx, CXCursor cursor)
{
    return fg_cursor_inner(&cx->clang, cx->arena, cursor);
}

static bool evaluate(Cx *cx, CXCursor cursor, FgRbCell *out)
{
    CXEvalResult result = cx->clang.Cursor_Evaluate(cursor);
    if (!result)
        return false;
    CXEvalResultKind kind = cx->clang.EvalResult_getKind(result);
    bool ok = true;
    if (kind == CXEval_Int) {
        out->kind = FG_RB_INT;
        out->u = cx->clang.EvalResult_isUnsignedInt(result)
                     ? cx->clang.EvalResult_getAsUnsigned(result)
                     : (uint64_t)cx->clang.EvalResult_getAsLongLong(result);
    } else if (kind == CXEval_Float) {
        out->kind = FG_RB_FLOAT;
        out->f = cx->clang.EvalResult_getAsDouble(result);
    } else if (kind == CXEval_StrLiteral) {
        out->kind = FG_RB_TEXT;
        out->text = fg_arena_strdup(cx->arena, cx->clang.EvalResult_getAsStr(result));
    } else {
        ok = false;
    }
    cx->clang.EvalResult_dispose(result);
    return ok;
}

/* A constant, or the name of a table or function. */
static bool read_cell(Cx *cx, CXCursor cursor, FgRbCell *out)
{
    *out = (FgRbCell){.loc = place_of(cx, cursor)};
    if (evaluate(cx, cursor, out))
        return true;
    CXCursor named = inner(cx, cursor);
    if (cx->clang.getCursorKind(named) != CXCursor_DeclRefExpr)
        return refuse(cx, cursor, "this is neither a constant nor the name of a table or function");
    out->kind = FG_RB_NAME;
    out->text = take(cx, cx->clang.getCursorSpelling(named));
    return true;
}

/* ---- tables ---- */

typedef struct Fields {
    Cx *cx;
    FgStrVec names;
} Fields;

static enum CXVisitorResult gather_field(CXCursor cursor, CXClientData data)
{
    Fields *fields = data;
    fg_vec_push(fields->cx->arena, &fields->names,
                take(fields->cx, fields->cx->clang.getCursorSpelling(cursor)));
    return CXVisit_Continue;
}

static bool is_record(Cx *cx, CXType type)
{
    return cx->clang.getCanonicalType(type).kind == CXType_Record;
}

static FgStrVec fields_of(Cx *cx, CXType type)
{
    Fields fields = {.cx = cx};
    if (is_record(cx, type))
        cx->clang.Type_visitFields(cx->clang.getCanonicalType(type), gather_field, &fields);
    else
        fg_vec_push(cx->arena, &fields.names, "");
    return fields.names;
}

static bool read_row(Cx *cx, CXCursor row, const FgStrVec *fields, FgRbCell *cells)
{
    if (fields->len == 1 && !*fields->data[0])
        return read_cell(cx, row, cells);
    if (cx->clang.getCursorKind(row) != CXCursor_InitListExpr)
        return refuse(cx, row, "a row in braces is expected");
    Children values = children_of(cx, row);
    for (uint32_t i = 0; i < values.list.len; i++) {
        if (i >= fields->len || !read_cell(cx, values.list.data[i], &cells[i]) ||
            (cells[i].kind == FG_RB_NAME && strcmp(fields->data[i], "call")))
            return refuse(cx, values.list.data[i], "a constant for a field is expected");
    }
    return true;
}

static bool read_rows(Cx *cx, CXCursor list, FgRbTable *out)
{
    Children rows = children_of(cx, list);
    out->n_rows = rows.list.len;
    FgRbCell *cells = FG_NEW_ARRAY(cx->arena, FgRbCell, (size_t)out->n_rows * out->fields.len + 1);
    out->cells = cells;
    for (uint32_t i = 0; i < rows.list.len; i++)
        if (!read_row(cx, rows.list.data[i], &out->fields, cells + (size_t)i * out->fields.len))
            return false;
    return true;
}

/* `.field = value` of the program. */
static bool read_designated(Cx *cx, CXCursor item, FgRbTable *out, FgRbCell *cells)
{
    Children parts = children_of(cx, item);
    bool named =
        parts.list.len == 2 && cx->clang.getCursorKind(parts.list.data[0]) == CXCursor_MemberRef;
    const char *field = named ? take(cx, cx->clang.getCursorSpelling(parts.list.data[0])) : "";
    for (uint32_t i = 0; named && i < out->fields.len; i++)
        if (!strcmp(out->fields.data[i], field) && cells[i].kind == FG_RB_ABSENT)
            return read_cell(cx, parts.list.data[1], &cells[i]);
    return refuse(cx, item, "'.field = value' is expected, each field once");
}

static bool read_program(Cx *cx, CXCursor list, FgRbTable *out)
{
    Children items = children_of(cx, list);
    FgRbCell *cells = FG_NEW_ARRAY(cx->arena, FgRbCell, out->fields.len + 1);
    out->n_rows = 1;
    out->cells = cells;
    for (uint32_t i = 0; i < items.list.len; i++)
        if (!read_designated(cx, items.list.data[i], out, cells))
            return false;
    return true;
}

static bool read_variable(Cx *cx, CXCursor cursor)
{
    CXType type = cx->clang.getCursorType(cursor);
    CXType element = cx->clang.getArrayElementType(type);
    bool array = element.kind != CXType_Invalid;
    CXType held = array ? element : type;
    CXCursor list = cx->clang.Cursor_getVarDeclInitializer(cursor);
    if (cx->clang.Cursor_getStorageClass(cursor) != CX_SC_Static ||
        !cx->clang.isConstQualifiedType(held))
        return refuse(cx, cursor, "a program has no variables, only static const tables");
    if (cx->clang.Cursor_isNull(list) || cx->clang.getCursorKind(list) != CXCursor_InitListExpr)
        return refuse(cx, cursor, "a table has its values in braces");
    const char *name = take(cx, cx->clang.getTypeSpelling(held));
    FgRbTable table = {.name = take(cx, cx->clang.getCursorSpelling(cursor)),
                       .type = strncmp(name, "const ", 6) ? name : name + 6,
                       .fields = fields_of(cx, held),
                       .loc = place_of(cx, cursor)};
    if (!array && strcmp(table.type, "FgRtProgram"))
        return refuse(cx, cursor, "a single value is no table");
    if (array)
        fg_vec_push(cx->arena, &cx->out->tables, table);
    if (array)
        return read_rows(cx, list, &cx->out->tables.data[cx->out->tables.len - 1]);
    if (cx->out->program.name)
        return refuse(cx, cursor, "a second program");
    cx->out->program = table;
    return read_program(cx, list, &cx->out->program);
}

/* ---- runtime entries ---- */

static const char effects_mark[] = "fg_effects: ";

/* The entry of a declared function of the runtime's header, or NULL after an error. */
static FgRbEntry *entry_of(Cx *cx, CXCursor call, CXCursor decl)
{
    uint32_t index;
    const char *name = take(cx, cx->clang.getCursorSpelling(decl));
    if (fg_map_get(&cx->entries, name, &index))
        return cx->out->entries.data[index];
    FgRbEntry *entry = FG_NEW(cx->arena, FgRbEntry);
    Children children = children_of(cx, decl);
    bool *is_float = FG_NEW_ARRAY(cx->arena, bool, children.list.len + 1);
    uint32_t params = 0;
    for (uint32_t i = 0; i < children.list.len; i++) {
        CXCursor child = children.list.data[i];
        enum CXCursorKind kind = cx->clang.getCursorKind(child);
        const char *text = take(cx, cx->clang.getCursorSpelling(child));
        if (kind == CXCursor_AnnotateAttr && !strncmp(text, effects_mark, sizeof effects_mark - 1))
            entry->effects = text + sizeof effects_mark - 1;
        if (kind != CXCursor_ParmDecl || params++ == 0)
            continue;
        is_float[entry->params.len] =
            cx->clang.getCanonicalType(cx->clang.getCursorType(child)).kind == CXType_Double;
        fg_vec_push(cx->arena, &entry->params, text);
    }
    if (!entry->effects || strncmp(name, "fg_rt_", 6)) {
        refuse(cx, call,
               fg_arena_printf(cx->arena, "%s is no call whose effects are declared", name));
        return NULL;
    }
    entry->name = name + 6;
    entry->is_float = is_float;
    fg_map_add(&cx->entries, name, cx->out->entries.len);
    fg_vec_push(cx->arena, &cx->out->entries, entry);
    return entry;
}

/* ---- functions ---- */

static bool is_context(Cx *cx, CXCursor argument)
{
    CXCursor named = inner(cx, argument);
    return cx->clang.getCursorKind(named) == CXCursor_DeclRefExpr &&
           cx->clang.equalCursors(cx->clang.getCursorReferenced(named), cx->func_context);
}

static bool read_args(Cx *cx, CXCursor cursor, const FgRbEntry *entry, FgRbCell *args)
{
    for (uint32_t i = 0; i < entry->params.len; i++) {
        CXCursor argument = cx->clang.Cursor_getArgument(cursor, i + 1);
        args[i].loc = place_of(cx, argument);
        if (!evaluate(cx, argument, &args[i]) ||
            args[i].kind != (entry->is_float[i] ? FG_RB_FLOAT : FG_RB_INT))
            return refuse(cx, argument, "an argument that is no constant");
    }
    return true;
}

/* The calls of another function of the file, in its place. */
static bool inline_calls(Cx *cx, CXCursor cursor, const char *name)
{
    uint32_t index;
    if (!fg_map_get(&cx->funcs, name, &index) || &cx->out->funcs.data[index] == cx->func)
        return refuse(cx, cursor, "a function that is not defined before");
    FgRbFunc *callee = &cx->out->funcs.data[index];
    if (callee->inlined)
        return refuse(cx, cursor, "a second call of one function");
    callee->inlined = true;
    for (uint32_t i = 0; i < callee->calls.len; i++)
        fg_vec_push(cx->arena, &cx->func->calls, callee->calls.data[i]);
    return true;
}

static bool read_call(Cx *cx, CXCursor cursor)
{
    if (cx->clang.getCursorKind(cursor) != CXCursor_CallExpr)
        return refuse(cx, cursor, "a function of a program is a straight line of calls");
    CXCursor decl = cx->clang.getCursorReferenced(cursor);
    if (cx->clang.Cursor_isNull(decl) || cx->clang.getCursorKind(decl) != CXCursor_FunctionDecl)
        return refuse(cx, cursor, "a call of something that is no function");
    int n = cx->clang.Cursor_getNumArguments(cursor);
    if (n < 1 || !is_context(cx, cx->clang.Cursor_getArgument(cursor, 0)))
        return refuse(cx, cursor, "the first argument is not the context");
    if (in_file(cx, decl))
        return n == 1 ? inline_calls(cx, cursor, take(cx, cx->clang.getCursorSpelling(decl)))
                      : refuse(cx, cursor, "a function of the file takes the context alone");
    const FgRbEntry *entry = entry_of(cx, cursor, decl);
    if (!entry)
        return false;
    if ((uint32_t)n != entry->params.len + 1)
        return refuse(cx, cursor, "the number of arguments is not that of the declaration");
    FgRbCell *args = FG_NEW_ARRAY(cx->arena, FgRbCell, entry->params.len + 1);
    if (!read_args(cx, cursor, entry, args))
        return false;
    fg_vec_push(cx->arena, &cx->func->calls, ((FgRbCall){entry, args, place_of(cx, cursor)}));
    return true;
}

/* `{ return &program; }` */
static bool read_program_function(Cx *cx, CXCursor cursor, const Children *parts)
{
    for (uint32_t i = 0; i < parts->list.len; i++) {
        if (cx->clang.getCursorKind(parts->list.data[i]) != CXCursor_CompoundStmt)
            continue;
        Children body = children_of(cx, parts->list.data[i]);
        CXCursor at = body.list.len == 1 ? body.list.data[0] : cursor;
        if (cx->clang.getCursorKind(at) != CXCursor_ReturnStmt)
            break;
        Children value = children_of(cx, at);
        at = value.list.len == 1 ? inner(cx, value.list.data[0]) : cursor;
        if (cx->clang.getCursorKind(at) != CXCursor_UnaryOperator)
            break;
        Children of = children_of(cx, at);
        at = of.list.len == 1 ? inner(cx, of.list.data[0]) : cursor;
        const char *name = take(cx, cx->clang.getCursorSpelling(at));
        if (cx->clang.getCursorKind(at) != CXCursor_DeclRefExpr || !cx->out->program.name ||
            strcmp(name, cx->out->program.name))
            break;
        cx->has_program_function = true;
        return true;
    }
    return refuse(cx, cursor, "fg_program must return the address of the program");
}

/* Of a chain: its element, or the loop over all, which is called as the user's functions are. */
static bool read_chain(Cx *cx, CXCursor cursor, const char *name)
{
    FgRbCustomCx custom = {&cx->clang, cx->out, place_of(cx, cursor)};
    const char *wrong = fg_rb_chain_function(&cx->chains, cursor, name);
    if (!wrong && !cx->chains.cuda && !strncmp(name, "fused_", 6))
        wrong = fg_rb_custom_declare(&custom, cursor);
    return !wrong || refuse(cx, cursor, wrong);
}

static bool read_function(Cx *cx, CXCursor cursor)
{
    const char *name = take(cx, cx->clang.getCursorSpelling(cursor));
    Children parts = children_of(cx, cursor);
    FgRbCustomCx custom = {&cx->clang, cx->out, place_of(cx, cursor)};
    bool defined = cx->clang.isCursorDefinition(cursor);
    if (defined && (!strncmp(name, "value_", 6) || !strncmp(name, "fused_", 6)))
        return read_chain(cx, cursor, name);
    if (!defined || fg_rb_custom_is_caller(&custom, cursor)) {
        const char *wrong =
            defined ? fg_rb_custom_caller(&custom, cursor) : fg_rb_custom_declare(&custom, cursor);
        return !wrong || refuse(cx, cursor, wrong);
    }
    if (!strcmp(name, "fg_program"))
        return read_program_function(cx, cursor, &parts);
    CXCursor body = cursor, context = cursor;
    uint32_t params = 0;
    for (uint32_t i = 0; i < parts.list.len; i++) {
        enum CXCursorKind kind = cx->clang.getCursorKind(parts.list.data[i]);
        if (kind == CXCursor_ParmDecl) {
            context = parts.list.data[i];
            params++;
        } else if (kind == CXCursor_CompoundStmt) {
            body = parts.list.data[i];
        } else {
            return refuse(cx, parts.list.data[i], "a function with something unusual about it");
        }
    }
    if (params != 1 || cx->clang.Cursor_getStorageClass(cursor) != CX_SC_Static ||
        cx->clang.getResultType(cx->clang.getCursorType(cursor)).kind != CXType_Void ||
        strcmp(take(cx, cx->clang.getTypeSpelling(cx->clang.getCursorType(context))), "FgRtCx *"))
        return refuse(cx, cursor, "a function that is no 'static void NAME(FgRtCx *cx)'");
    fg_map_add(&cx->funcs, name, cx->out->funcs.len);
    fg_vec_push(cx->arena, &cx->out->funcs,
                ((FgRbFunc){.name = name, .loc = place_of(cx, cursor)}));
    cx->func = &cx->out->funcs.data[cx->out->funcs.len - 1];
    cx->func_context = context;
    Children calls = children_of(cx, body);
    for (uint32_t i = 0; i < calls.list.len; i++)
        if (!read_call(cx, calls.list.data[i]))
            return false;
    return true;
}

/* The header's enumerators, by name. */
static void read_enum(Cx *cx, CXCursor cursor)
{
    Children names = children_of(cx, cursor);
    for (uint32_t i = 0; i < names.list.len; i++)
        fg_map_add(&cx->out->constants, take(cx, cx->clang.getCursorSpelling(names.list.data[i])),
                   (uint32_t)cx->clang.getEnumConstantDeclUnsignedValue(names.list.data[i]));
}

static enum CXChildVisitResult top_level(CXCursor cursor, CXCursor parent, CXClientData data)
{
    Cx *cx = data;
    (void)parent;
    bool ok;
    enum CXCursorKind kind = cx->clang.getCursorKind(cursor);
    if (!in_file(cx, cursor)) {
        if (kind == CXCursor_EnumDecl)
            read_enum(cx, cursor);
        return CXChildVisit_Continue;
    }
    if (kind == CXCursor_VarDecl)
        ok = read_variable(cx, cursor);
    else if (kind == CXCursor_FunctionDecl)
        ok = read_function(cx, cursor);
    else
        ok = refuse(cx, cursor, "a program holds tables and functions alone");
    return ok ? CXChildVisit_Continue : CXChildVisit_Break;
}

/* The part for CUDA: functions of chains, the last of each with C's linkage. */
static enum CXChildVisitResult top_level_cuda(CXCursor cursor, CXCursor parent, CXClientData data)
{
    Cx *cx = data;
    enum CXCursorKind kind = cx->clang.getCursorKind(cursor);
    (void)parent;
    if (!in_file(cx, cursor))
        return CXChildVisit_Continue;
    CXCursor function = cursor;
    Children inside = children_of(cx, cursor);
    if (kind == CXCursor_LinkageSpec && inside.list.len == 1)
        function = inside.list.data[0];
    const char *name = take(cx, cx->clang.getCursorSpelling(function));
    const char *wrong = "the part for CUDA holds functions of chains alone";
    if (cx->clang.getCursorKind(function) == CXCursor_FunctionDecl)
        wrong = fg_rb_chain_function(&cx->chains, cursor, name);
    return !wrong || refuse(cx, cursor, wrong) ? CXChildVisit_Continue : CXChildVisit_Break;
}

/* ---- the file ---- */

static bool compiler_messages(Cx *cx, CXTranslationUnit unit)
{
    unsigned n = cx->clang.getNumDiagnostics(unit);
    for (unsigned i = 0; i < n; i++) {
        CXDiagnostic one = cx->clang.getDiagnostic(unit, i);
        if (cx->clang.getDiagnosticSeverity(one) >= CXDiagnostic_Warning) {
            cx->bad = true;
            fg_rb_fail(cx->out->diags, place(cx, cx->clang.getDiagnosticLocation(one)),
                       "the compiler says: %s", take(cx, cx->clang.getDiagnosticSpelling(one)));
        }
        cx->clang.disposeDiagnostic(one);
    }
    return !cx->bad;
}

static bool read_unit(Cx *cx, CXTranslationUnit unit)
{
    if (!compiler_messages(cx, unit))
        return false;
    cx->clang.visitChildren(cx->clang.getTranslationUnitCursor(unit),
                            cx->chains.cuda ? top_level_cuda : top_level, cx);
    return !cx->bad;
}

/* One of the parts, or all there is. A folder that does not exist: nothing beside the program can
 * take the header's place. */
static bool read_part(Cx *cx, const FgReadbackRequest *request, bool cuda)
{
    static const char path[] = "/nowhere/foregather/program.c";
    const char *c_args[] = {"-x", "c", "-std=c11", "-I", request->include};
    const char *cuda_args[] = {FG_CUDA_ARGS, "-I", request->include};
    struct CXUnsavedFile files[] = {{path, request->text, (unsigned long)request->len},
                                    {FG_CUDA_STUB_PATH, FG_CUDA_STUB, sizeof FG_CUDA_STUB - 1}};
    int n = cuda ? sizeof cuda_args / sizeof *cuda_args : sizeof c_args / sizeof *c_args;
    CXIndex index = cx->clang.createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    enum CXErrorCode code =
        cx->clang.parseTranslationUnit2(index, path, cuda ? cuda_args : c_args, n, files,
                                        cuda ? 2 : 1, CXTranslationUnit_None, &unit);
    cx->chains.cuda = cuda;
    bool ok = code == CXError_Success
                  ? read_unit(cx, unit)
                  : fg_rb_fail(cx->out->diags, FG_NOWHERE, "libclang cannot parse it");
    if (unit)
        cx->clang.disposeTranslationUnit(unit);
    cx->clang.disposeIndex(index);
    return ok;
}

/* What both parts together must hold. */
static bool is_whole(Cx *cx)
{
    FgRbSource *out = cx->out;
    uint32_t chains = 0;
    for (uint32_t i = 0; i < out->customs.len; i++) {
        FgRbCustomFn *function = &out->customs.data[i];
        if (strncmp(function->name, "fused_", 6))
            continue;
        const char *wrong = fg_rb_chain_declared(out, function);
        chains++;
        if (wrong)
            return fg_rb_fail(out->diags, function->loc, "%s", wrong);
    }
    FgLoc end = {out->file, 1, 1};
    if (chains != out->chains.len)
        return fg_rb_fail(out->diags, end, "a chain that nothing declares");
    if (!out->program.name || !cx->has_program_function)
        return fg_rb_fail(out->diags, end, "there is no program: fg_program is not defined");
    return true;
}

bool fg_rb_parse(FgArena *arena, FgDiags *diags, const FgReadbackRequest *request, FgRbSource *out)
{
    Cx cx = {.arena = arena, .out = out};
    const char *why;
    *out = (FgRbSource){.arena = arena, .diags = diags};
    out->file = fg_diags_source(diags, request->path, request->text, request->len);
    fg_map_init(&cx.entries, arena);
    fg_map_init(&cx.funcs, arena);
    fg_map_init(&out->constants, arena);
    if (!fg_rb_lexical(diags, request, out->file, &out->has_kernels))
        return false;
    if (!fg_clang_load(arena, &cx.clang, &why))
        return fg_rb_fail(diags, FG_NOWHERE, "%s", why);
    cx.chains = (FgRbChainCx){
        .clang = &cx.clang, .source = out, .text = request->text, .len = request->len};
    bool ok = read_part(&cx, request, false) &&
              (!out->has_kernels || read_part(&cx, request, true)) && is_whole(&cx);
    fg_clang_unload(&cx.clang);
    return ok;
}

#else

bool fg_rb_parse(FgArena *arena, FgDiags *diags, const FgReadbackRequest *request, FgRbSource *out)
{
    const char *why;
    (void)request;
    *out = (FgRbSource){.arena = arena, .diags = diags};
    fg_readback_available(arena, &why);
    return fg_rb_fail(diags, FG_NOWHERE, "%s", why);
}

#endif
