/* The tables of an emitted program with their meaning, and the proof that they agree with each
 * other: rows in range, parameters inside their buckets, states apart and inside the memory, the
 * memory inside what a device offers. */
#include "readback/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct Cx {
    const FgRbSource *source;
    FgRbTables *out;
    FgArena *arena;
    bool ok;
} Cx;

uint64_t fg_rb_dtype_bytes(uint64_t dtype)
{
    static const uint8_t bytes[] = {4, 2, 2, 8, 4, 8}; /* FgRtDtype: f32 bf16 f16 f64 i32 i64 */
    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

static void fail(Cx *cx, FgLoc loc, const char *text)
{
    cx->ok = fg_rb_fail(cx->source->diags, loc, "%s", text);
}

#define FAIL(cx, loc, ...) fail((cx), (loc), fg_arena_printf((cx)->arena, __VA_ARGS__))

/* ---- fields ---- */

static uint64_t whole(Cx *cx, const FgRbTable *table, uint32_t row, const char *field)
{
    const FgRbCell *cell = fg_rb_cell(table, row, field);
    if (cell->kind != FG_RB_INT && cell->kind != FG_RB_ABSENT)
        FAIL(cx, cell->loc, "field '%s' is no integer", field);
    return cell->u;
}

static const char *text(Cx *cx, const FgRbTable *table, uint32_t row, const char *field)
{
    const FgRbCell *cell = fg_rb_cell(table, row, field);
    if (cell->kind != FG_RB_TEXT)
        FAIL(cx, cell->loc.file ? cell->loc : table->loc, "field '%s' is no text", field);
    return cell->kind == FG_RB_TEXT ? cell->text : "";
}

static uint64_t setting(Cx *cx, const char *field)
{
    return whole(cx, &cx->source->program, 0, field);
}

static FgLoc row_place(const FgRbTable *table, uint32_t row)
{
    return fg_rb_cell(table, row, table->fields.data[0])->loc;
}

/* The table that a field of the program names, or NULL when it names none; `n` is the number of
 * rows that the program states, NULL where it states none. */
static const FgRbTable *table_of(Cx *cx, const char *field, const char *type, const char *n)
{
    const FgRbCell *cell = fg_rb_cell(&cx->source->program, 0, field);
    uint64_t stated = n ? setting(cx, n) : 0;
    const FgRbTable *table = cell->kind == FG_RB_NAME ? fg_rb_table(cx->source, cell->text) : NULL;
    if (!table && (cell->kind != FG_RB_ABSENT || stated))
        FAIL(cx, cell->loc.file ? cell->loc : cx->source->program.loc,
             "'%s' names no table of the file", field);
    if (table && strcmp(table->type, type))
        FAIL(cx, cell->loc, "'%s' names a table of %s, not of %s", field, table->type, type);
    if (table && n && table->n_rows != stated)
        FAIL(cx, cell->loc, "'%s' is %llu, but the table has %u rows", n,
             (unsigned long long)stated, table->n_rows);
    return cx->ok ? table : NULL;
}

static bool inside(uint64_t first, uint64_t n, uint64_t limit)
{
    return first <= limit && n <= limit - first;
}

/* ---- program ---- */

static void read_settings(Cx *cx)
{
    FgRbTables *out = cx->out;
    const FgRbTable *program = &cx->source->program;
    const FgRbCell *clip = fg_rb_cell(program, 0, "clip");
    if (setting(cx, "abi") != 6)
        FAIL(cx, program->loc, "the program is written for another runtime interface");
    out->fingerprint = setting(cx, "fingerprint");
    out->ranks = setting(cx, "ranks");
    out->accumulate = setting(cx, "accumulate");
    out->clip = clip->f;
    out->scales = setting(cx, "scales_loss") != 0;
    out->state_bytes = setting(cx, "state_bytes");
    out->arena_bytes = setting(cx, "arena_bytes");
    out->reserved_bytes = setting(cx, "reserved_bytes");
    out->memory_bytes = setting(cx, "memory_bytes");
    out->host_state_bytes = setting(cx, "host_state_bytes");
    out->host_arena_bytes = setting(cx, "host_arena_bytes");
    out->host_memory_bytes = setting(cx, "host_memory_bytes");
    out->n_events = setting(cx, "n_events");
    if (out->ranks == 0 || out->ranks > UINT32_MAX || out->accumulate == 0 ||
        out->accumulate > INT64_MAX)
        FAIL(cx, program->loc, "ranks and micro-steps must be 1 or more");
    if (clip->kind != FG_RB_FLOAT || !(clip->f >= 0))
        FAIL(cx, program->loc, "the clipping limit must be 0 or more");
    uint64_t sum = 0;
    if (__builtin_add_overflow(out->state_bytes, out->arena_bytes, &sum) ||
        __builtin_add_overflow(sum, out->reserved_bytes, &sum) || sum > out->memory_bytes)
        FAIL(cx, fg_rb_cell(program, 0, "memory_bytes")->loc,
             "states (%s), arena (%s) and what is reserved (%s) exceed the memory offered (%s)",
             fg_bytes_text(cx->arena, out->state_bytes), fg_bytes_text(cx->arena, out->arena_bytes),
             fg_bytes_text(cx->arena, out->reserved_bytes),
             fg_bytes_text(cx->arena, out->memory_bytes));
    if (out->memory_bytes > FG_HOST_BASE || out->host_memory_bytes > FG_HOST_BASE ||
        out->host_state_bytes > out->host_memory_bytes ||
        out->host_arena_bytes > out->host_memory_bytes - out->host_state_bytes)
        FAIL(cx, fg_rb_cell(program, 0, "host_memory_bytes")->loc,
             "states (%s) and what else lies in host memory (%s) exceed the host memory offered "
             "(%s)",
             fg_bytes_text(cx->arena, out->host_state_bytes),
             fg_bytes_text(cx->arena, out->host_arena_bytes),
             fg_bytes_text(cx->arena, out->host_memory_bytes));
}

static void read_ledger(Cx *cx)
{
    const FgRbTable *ledger = table_of(cx, "ledger", "FgRtLedgerRow", "n_ledger");
    uint64_t sum = 0;
    for (uint32_t i = 0; ledger && i < ledger->n_rows; i++)
        if (__builtin_add_overflow(sum, whole(cx, ledger, i, "bytes"), &sum))
            FAIL(cx, row_place(ledger, i), "the ledger's sum overflows");
    if (ledger && cx->ok && sum != cx->out->state_bytes + cx->out->arena_bytes)
        FAIL(cx, ledger->loc, "the ledger's rows add up to %llu bytes, states and arena to %llu",
             (unsigned long long)sum,
             (unsigned long long)(cx->out->state_bytes + cx->out->arena_bytes));
}

static void read_nodes(Cx *cx)
{
    const FgRbTable *nodes = table_of(cx, "nodes", "FgRtNode", "n_nodes");
    for (uint32_t i = 0; nodes && i < nodes->n_rows; i++)
        fg_vec_push(cx->arena, &cx->out->nodes,
                    ((FgRbNode){text(cx, nodes, i, "name"), text(cx, nodes, i, "op"),
                                text(cx, nodes, i, "file"), whole(cx, nodes, i, "line"),
                                whole(cx, nodes, i, "col")}));
}

/* ---- parameters ---- */

/* The number of elements that the row's shape has must be the one it states. */
static void check_shape(Cx *cx, const FgRbTable *table, uint32_t row, const FgRbTable *dims)
{
    uint64_t first = whole(cx, table, row, "dims_first"), n = whole(cx, table, row, "rank");
    uint64_t elements = 1;
    if (!inside(first, n, dims ? dims->n_rows : 0)) {
        FAIL(cx, row_place(table, row), "its dims lie outside the table of dims");
        return;
    }
    for (uint64_t i = first; i < first + n; i++) {
        uint64_t dim = dims->cells[i].u;
        if (dim == 0 || dim > INT64_MAX || __builtin_mul_overflow(elements, dim, &elements))
            FAIL(cx, dims->cells[i].loc, "a dim that is not positive, or too many elements");
    }
    if (elements != whole(cx, table, row, "elements"))
        FAIL(cx, row_place(table, row), "its elements are not the product of its dims");
}

static void read_params(Cx *cx, const FgRbTable *dims)
{
    const FgRbTable *table = table_of(cx, "params", "FgRtParam", "n_params");
    const FgRbTable *tied = table_of(cx, "tied", "char *const", NULL);
    cx->out->param_rows = table;
    cx->out->tied = tied;
    for (uint32_t i = 0; table && i < table->n_rows; i++) {
        FgRbParam param = {text(cx, table, i, "name"), whole(cx, table, i, "bucket"),
                           whole(cx, table, i, "offset"), whole(cx, table, i, "elements"),
                           whole(cx, table, i, "trainable") != 0};
        check_shape(cx, table, i, dims);
        if (!inside(whole(cx, table, i, "tied_first"), whole(cx, table, i, "n_tied"),
                    tied ? tied->n_rows : 0))
            FAIL(cx, row_place(table, i), "its other names lie outside their table");
        fg_vec_push(cx->arena, &cx->out->params, param);
    }
}

/* ---- states ---- */

static void add_state(Cx *cx, FgLoc loc, FgRbState state)
{
    FgRole role = state.role;
    const char *name = state.name;
    uint64_t at = state.at, bytes = state.bytes;
    bool may = role == FG_ROLE_SHARD || role == FG_ROLE_MASTER || role == FG_ROLE_MOMENT1 ||
               role == FG_ROLE_MOMENT2; /* lie in host memory */
    uint64_t begin = may && at >= FG_HOST_BASE ? FG_HOST_BASE : 0;
    uint64_t end = begin ? cx->out->host_state_bytes : cx->out->state_bytes;
    if (role == FG_ROLE_GRAD_SHARD && at >= end)
        end += cx->out->arena_bytes;
    if (!inside(at - begin, bytes, end))
        FAIL(cx, loc, "%s lies at %llu..%llu, outside the memory of states", name,
             (unsigned long long)at, (unsigned long long)(at + bytes));
    if (at % 16)
        FAIL(cx, loc, "%s lies at %llu, which is no multiple of 16", name, (unsigned long long)at);
    fg_vec_push(cx->arena, &cx->out->states, state);
}

static int by_place(const void *a, const void *b)
{
    const FgRbState *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* States that always live lie apart. */
static void check_states(Cx *cx)
{
    const FgRbTables *out = cx->out;
    FgRbState *fixed = FG_NEW_ARRAY(cx->arena, FgRbState, out->states.len + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->states.len; i++)
        if (out->states.data[i].at < out->state_bytes || out->states.data[i].at >= FG_HOST_BASE)
            fixed[n++] = out->states.data[i];
    qsort(fixed, n, sizeof *fixed, by_place);
    for (uint32_t i = 1; i < n; i++)
        if (fixed[i - 1].at + fixed[i - 1].bytes > fixed[i].at)
            FAIL(cx, cx->source->program.loc, "%s and %s overlap", fixed[i - 1].name,
                 fixed[i].name);
}

/* ---- buckets ---- */

static void bucket_states(Cx *cx, FgLoc loc, const FgRbBucket *bucket, uint32_t index)
{
    uint64_t slice = bucket->elements / cx->out->ranks, f32 = slice * 4;
    const struct {
        const char *name;
        FgRole role;
        uint64_t at, bytes;
        uint32_t dtype; /* as of a state */
        bool needed, possible;
    } rows[] = {
        {"shard", FG_ROLE_SHARD, bucket->shard, slice * bucket->element_bytes,
         1 + (uint32_t)bucket->dtype, true, true},
        {"master", FG_ROLE_MASTER, bucket->master, f32, 1, bucket->trainable && bucket->dtype != 0,
         bucket->dtype != 0},
        {"moment1", FG_ROLE_MOMENT1, bucket->moment1, f32, 1, bucket->trainable, bucket->trainable},
        {"moment2", FG_ROLE_MOMENT2, bucket->moment2, f32, 1, bucket->trainable, bucket->trainable},
        {"grad_shard", FG_ROLE_GRAD_SHARD, bucket->grad_shard, bucket->grad_bytes, 0,
         bucket->trainable, bucket->trainable},
    };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool there = rows[i].at != FG_RB_NONE;
        const char *name =
            fg_arena_printf(cx->arena, "the %s of bucket %s", rows[i].name, bucket->name);
        if (there ? !rows[i].possible : rows[i].needed)
            FAIL(cx, loc, "%s %s", name, there ? "must not be there" : "is missing");
        else if (there)
            add_state(cx, loc,
                      (FgRbState){name, rows[i].role, index, rows[i].at, rows[i].bytes, slice,
                                  rows[i].dtype});
    }
    uint64_t grad = bucket->grad_bytes, all = slice * cx->out->ranks; /* a sum, or ranks' parts */
    bool sized = grad == slice * 4 || grad == slice * 2 || grad == all * 4 || grad == all * 2;
    if (bucket->trainable && !sized)
        FAIL(cx, loc, "the gradient slice of bucket %s has %llu bytes for %llu elements",
             bucket->name, (unsigned long long)bucket->grad_bytes, (unsigned long long)slice);
}

/* The bucket's parameters: in order, apart, inside, and theirs alone. */
static void bucket_params(Cx *cx, FgLoc loc, FgRbBucket *bucket, uint32_t index,
                          const FgRbTable *list, uint64_t first, bool *taken)
{
    uint32_t *params = FG_NEW_ARRAY(cx->arena, uint32_t, bucket->n_params + 1);
    uint64_t end = 0;
    bucket->params = params;
    for (uint32_t i = 0; i < bucket->n_params; i++) {
        uint64_t id = list->cells[first + i].u;
        if (id >= cx->out->params.len || taken[id]) {
            FAIL(cx, loc, "bucket %s names a parameter that is not there, or twice", bucket->name);
            bucket->n_params = i;
            return;
        }
        const FgRbParam *param = &cx->out->params.data[id];
        taken[id] = true;
        params[i] = (uint32_t)id;
        if (param->bucket != index || param->trainable != bucket->trainable)
            FAIL(cx, loc, "parameter %s and bucket %s do not agree", param->name, bucket->name);
        if (param->offset < end || !inside(param->offset, param->elements, bucket->elements))
            FAIL(cx, loc, "parameter %s overlaps another one or leaves bucket %s", param->name,
                 bucket->name);
        else
            end = param->offset + param->elements;
    }
}

static void read_bucket(Cx *cx, const FgRbTable *table, uint32_t row, const FgRbTable *list,
                        bool *taken)
{
    FgLoc loc = row_place(table, row);
    FgRbBucket bucket = {.name = text(cx, table, row, "name"),
                         .dtype = whole(cx, table, row, "dtype"),
                         .elements = whole(cx, table, row, "elements"),
                         .trainable = whole(cx, table, row, "trainable") != 0,
                         .shard = whole(cx, table, row, "shard"),
                         .master = whole(cx, table, row, "master"),
                         .moment1 = whole(cx, table, row, "moment1"),
                         .moment2 = whole(cx, table, row, "moment2"),
                         .grad_shard = whole(cx, table, row, "grad_shard"),
                         .grad_bytes = whole(cx, table, row, "grad_bytes"),
                         .writes = whole(cx, table, row, "writes"),
                         .lookups = whole(cx, table, row, "lookups")};
    uint64_t first = whole(cx, table, row, "params_first"), n = whole(cx, table, row, "n_params");
    bucket.element_bytes = bucket.dtype <= 2 ? fg_rb_dtype_bytes(bucket.dtype) : 0;
    if (!bucket.element_bytes || !bucket.elements || bucket.elements % cx->out->ranks ||
        bucket.elements > (uint64_t)1 << 56) {
        FAIL(cx, loc, "bucket %s has no float dtype, or not an equal slice for each rank",
             bucket.name);
        return;
    }
    if (!inside(first, n, list ? list->n_rows : 0)) {
        FAIL(cx, loc, "the parameters of bucket %s lie outside their table", bucket.name);
        return;
    }
    bucket.n_params = (uint32_t)n;
    bucket_states(cx, loc, &bucket, row);
    if (bucket.writes > UINT32_MAX / 8 || bucket.lookups > UINT32_MAX / 8 ||
        (bucket.writes + bucket.lookups > 0) != bucket.trainable)
        FAIL(cx, loc, "bucket %s cannot have a gradient of so many parts", bucket.name);
    bucket_params(cx, loc, &bucket, row, list, first, taken);
    fg_vec_push(cx->arena, &cx->out->buckets, bucket);
}

static void read_buckets(Cx *cx)
{
    const FgRbTable *table = table_of(cx, "buckets", "FgRtBucket", "n_buckets");
    const FgRbTable *list = table_of(cx, "bucket_params", "uint32_t", NULL);
    bool *taken = FG_NEW_ARRAY(cx->arena, bool, cx->out->params.len + 1);
    for (uint32_t i = 0; table && i < table->n_rows && cx->ok; i++)
        read_bucket(cx, table, i, list, taken);
    for (uint32_t i = 0; cx->ok && i < cx->out->params.len; i++)
        if (!taken[i] && cx->out->params.data[i].bucket != UINT32_MAX)
            FAIL(cx, cx->source->program.loc, "parameter %s is in no bucket's list",
                 cx->out->params.data[i].name);
}

/* ---- custom functions ---- */

/* Rows that name a declared function and what hands calls on to it; each once. */
static void read_customs(Cx *cx)
{
    const FgRbTable *table = table_of(cx, "customs", "FgRtCustom", "n_customs");
    for (uint32_t i = 0; table && i < table->n_rows; i++) {
        const FgRbCustomFn *function = fg_rb_custom(cx->source, text(cx, table, i, "name"));
        const FgRbCell *call = fg_rb_cell(table, i, "call");
        uint64_t inputs = whole(cx, table, i, "n_inputs"), all = 0;
        if (!function || call->kind != FG_RB_NAME || !function->caller ||
            strcmp(call->text, function->caller)) {
            FAIL(cx, row_place(table, i), "it names no user's function, or another one's call");
            continue;
        }
        if (__builtin_add_overflow(inputs, whole(cx, table, i, "n_outputs"), &all) ||
            all != function->n_operands)
            FAIL(cx, row_place(table, i), "%s takes %u operands and results, not %llu",
                 function->name, function->n_operands, (unsigned long long)all);
        for (uint64_t k = 0; cx->ok && k < function->n_operands; k++)
            if (function->constant[k] != (k < inputs))
                FAIL(cx, row_place(table, i), "operands of %s are const, its results are not",
                     function->name);
        for (uint32_t k = 0; k < cx->out->customs.len; k++)
            if (cx->out->customs.data[k] == function)
                FAIL(cx, row_place(table, i), "a second row for %s", function->name);
        fg_vec_push(cx->arena, &cx->out->customs, function);
    }
    for (uint32_t i = 0; cx->ok && i < cx->source->customs.len; i++)
        if (cx->out->customs.len != cx->source->customs.len)
            FAIL(cx, cx->source->customs.data[i].loc, "a declared function is in no table");
}

static void read_operands(Cx *cx, const FgRbTable *dims)
{
    const FgRbTable *table = table_of(cx, "operands", "FgRtOperand", "n_operands");
    cx->out->operand_rows = table;
    for (uint32_t i = 0; table && i < table->n_rows; i++) {
        FgRbOperand row = {.dtype = whole(cx, table, i, "dtype"),
                           .offset = whole(cx, table, i, "offset"),
                           .elements = whole(cx, table, i, "elements"),
                           .written = whole(cx, table, i, "written") != 0,
                           .loc = row_place(table, i)};
        uint64_t size = fg_rb_dtype_bytes(row.dtype);
        check_shape(cx, table, i, dims);
        if (whole(cx, table, i, "written") > 1)
            FAIL(cx, row.loc, "an operand is written (1) or read (0)");
        if (!size || __builtin_mul_overflow(row.elements, size, &row.bytes) ||
            row.offset > UINT64_MAX - row.bytes)
            FAIL(cx, row.loc, "an operand of no dtype, or too large");
        fg_vec_push(cx->arena, &cx->out->operands, row);
    }
}

/* ---- inputs and accumulators ---- */

static void read_inputs(Cx *cx, const FgRbTable *dims)
{
    const FgRbTable *table = table_of(cx, "inputs", "FgRtInput", "n_inputs");
    cx->out->input_rows = table;
    for (uint32_t i = 0; table && i < table->n_rows; i++) {
        FgLoc loc = row_place(table, i);
        uint64_t elements = whole(cx, table, i, "elements");
        uint64_t dtype = whole(cx, table, i, "dtype"), bytes = 0;
        uint64_t size = fg_rb_dtype_bytes(dtype);
        check_shape(cx, table, i, dims);
        if (!size || __builtin_mul_overflow(elements, size, &bytes))
            FAIL(cx, loc, "an input of no dtype, or too large");
        const char *name = fg_arena_printf(cx->arena, "the input %s", text(cx, table, i, "name"));
        add_state(cx, loc,
                  (FgRbState){name, FG_ROLE_INPUT, i, whole(cx, table, i, "offset"), bytes,
                              elements, size ? 1 + (uint32_t)dtype : 0});
    }
}

static void read_accumulators(Cx *cx)
{
    static const struct {
        const char *field, *name;
        FgRole role;
        uint64_t bytes, elements;
        uint32_t dtype; /* f32, f64, i64 */
    } rows[] = {{"scalars", "the scalars", FG_ROLE_SCALARS, 128, 32, 1},
                {"loss", "the sum of losses", FG_ROLE_LOSS, 8, 1, 4},
                {"norm", "the gradient norm", FG_ROLE_NORM, 192, 24, 6}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t at = setting(cx, rows[i].field);
        if (at != FG_RB_NONE)
            add_state(cx, cx->source->program.loc,
                      (FgRbState){rows[i].name, rows[i].role, 0, at, rows[i].bytes,
                                  rows[i].elements, rows[i].dtype});
        else if (rows[i].role != FG_ROLE_NORM)
            FAIL(cx, cx->source->program.loc, "%s have no place", rows[i].name);
    }
    bool trains = setting(cx, "norm") != FG_RB_NONE;
    if (cx->out->scales !=
        (trains && !strcmp(text(cx, &cx->source->program, 0, "precision"), "fp16")))
        FAIL(cx, cx->source->program.loc,
             "the loss is scaled where a program trains in fp16, only");
    if (cx->out->scales)
        add_state(
            cx, cx->source->program.loc,
            (FgRbState){"the loss scaler", FG_ROLE_SCALER, 0, setting(cx, "scaler"), 128, 16, 0});
}

bool fg_rb_tables(const FgRbSource *source, FgRbTables *out)
{
    Cx cx = {.source = source, .out = out, .arena = source->arena, .ok = true};
    *out = (FgRbTables){0};
    read_settings(&cx);
    if (!cx.ok)
        return false;
    const FgRbTable *dims = table_of(&cx, "dims", "int64_t", NULL);
    out->dims = dims;
    out->layouts = table_of(&cx, "layouts", "int64_t", "n_layouts");
    read_nodes(&cx);
    read_ledger(&cx);
    read_params(&cx, dims);
    if (cx.ok)
        read_buckets(&cx);
    read_inputs(&cx, dims);
    read_customs(&cx);
    read_operands(&cx, dims);
    read_accumulators(&cx);
    check_states(&cx);
    return cx.ok;
}
