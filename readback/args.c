/* Arguments that are no address, but must agree with the tables: nodes, buckets, the sizes of their
 * slices, limits, sets of scalars, and what custom functions take. */
#include "readback/internal.h"

#include <string.h>

typedef struct Cx {
    FgDiags *diags;
    const FgRbTables *tables;
    uint32_t bucket;
    bool ok;
} Cx;

#define FAIL(cx, loc, ...) ((cx)->ok = fg_rb_fail((cx)->diags, (loc), __VA_ARGS__))

static void check_bucket(Cx *cx, const FgRbCall *call, FgTraceKind kind)
{
    uint64_t bucket = fg_rb_arg(call, "bucket", UINT64_MAX);
    const FgRbTables *tables = cx->tables;
    if (fg_rb_arg(call, "node", UINT64_MAX) >= tables->nodes.len)
        FAIL(cx, call->loc, "its node is none of the table");
    if (fg_rb_param(call->entry, "bucket") < 0)
        return;
    if (bucket >= tables->buckets.len) {
        FAIL(cx, call->loc, "there is no bucket %llu", (unsigned long long)bucket);
        return;
    }
    uint64_t elements = tables->buckets.data[bucket].elements;
    uint64_t want = kind == FG_TRACE_GRAD_BUFFER ? elements : elements / tables->ranks;
    uint64_t first = fg_rb_arg(call, "first", 0);
    if (kind == FG_TRACE_ADAMW_PART && first < want &&
        fg_rb_arg(call, "elements", want) <= want - first)
        want = fg_rb_arg(call, "elements", want); /* the checker sees that parts make the whole */
    if (fg_rb_arg(call, "elements", want) != want)
        FAIL(cx, call->loc, "it works on %llu elements of bucket %s instead of %llu",
             (unsigned long long)fg_rb_arg(call, "elements", want),
             tables->buckets.data[bucket].name, (unsigned long long)want);
    cx->bucket = (uint32_t)bucket;
}

/* Rows are added to a parameter of the bucket, or updated, whole: its place and size are the
 * call's. */
static void check_lookup(Cx *cx, const FgRbCall *call, FgTraceKind kind)
{
    bool update = kind == FG_TRACE_ADAMW_ROWS;
    if ((kind != FG_TRACE_LOOKUP_DW && !update) || cx->bucket == FG_NO_ID)
        return;
    const FgRbBucket *bucket = &cx->tables->buckets.data[cx->bucket];
    uint64_t first = fg_rb_arg(call, update ? "table" : "first", 0), elements = 0;
    bool sound = !__builtin_mul_overflow(fg_rb_arg(call, "vocab", 0), fg_rb_arg(call, "hidden", 0),
                                         &elements);
    for (uint32_t i = 0; i < bucket->n_params && sound; i++) {
        const FgRbParam *param = &cx->tables->params.data[bucket->params[i]];
        if (param->offset == first && param->elements == elements)
            return;
    }
    FAIL(cx, call->loc, "no table of bucket %s begins at element %llu and has %llu", bucket->name,
         (unsigned long long)first, (unsigned long long)elements);
}

static void check_clip(Cx *cx, const FgRbCall *call, FgTraceKind kind)
{
    int clip = fg_rb_param(call->entry, "clip");
    uint64_t set = fg_rb_arg(call, "set", 0);
    bool factor = kind == FG_TRACE_CLIP_FACTOR || kind == FG_TRACE_SCALE_STEP;
    if (factor && clip >= 0 && call->args[clip].f != cx->tables->clip)
        FAIL(cx, call->loc, "it clips to another limit than the program states");
    if ((kind == FG_TRACE_ADAMW || kind == FG_TRACE_ADAMW_PART) && set > 1)
        FAIL(cx, call->loc, "there is no set %llu of scalars", (unsigned long long)set);
}

/* A chain reads each operand as far as it has elements, and no further. */
static void check_chain(Cx *cx, const FgRbChain *chain, uint64_t first)
{
    const FgRbOperand *rows = &cx->tables->operands.data[first];
    uint64_t n = rows[chain->n].elements;
    for (uint32_t k = 0; k < chain->n; k++) {
        int64_t repeat = chain->repeat[k];
        uint64_t m = repeat < 0 ? 0 - (uint64_t)repeat : (uint64_t)repeat;
        uint64_t want = repeat == 0 ? n : repeat > 0 ? m : n / m;
        if (rows[k].elements != want || (m && n % m))
            FAIL(cx, rows[k].loc, "operand %u of %s has %llu elements, its function reads %llu", k,
                 chain->name, (unsigned long long)rows[k].elements, (unsigned long long)want);
    }
}

/* The function takes what the rows of its operands hold: as many, of its types, operands before
 * results. */
static void check_custom(Cx *cx, const FgRbCall *call)
{
    const FgRbTables *tables = cx->tables;
    uint64_t function = fg_rb_arg(call, "function", 0), first = fg_rb_arg(call, "first", 0);
    bool chain = !strcmp(call->entry->name, "fused");
    if (!chain && strcmp(call->entry->name, "custom"))
        return;
    if (function >= tables->customs.len || chain != !!tables->customs.data[function]->chain) {
        FAIL(cx, call->loc, "there is no %s function %llu", chain ? "chain's" : "custom",
             (unsigned long long)function);
        return;
    }
    const FgRbCustomFn *to = tables->customs.data[function];
    if (fg_rb_arg(call, "count", 0) != to->n_operands) {
        FAIL(cx, call->loc, "%s takes %u operands and results, not %llu", to->name, to->n_operands,
             (unsigned long long)fg_rb_arg(call, "count", 0));
        return;
    }
    for (uint32_t i = 0; i < to->n_operands; i++) {
        const FgRbOperand *row = &tables->operands.data[first + i];
        if (row->dtype != to->dtypes[i] || row->written == to->constant[i])
            FAIL(cx, row->loc, "operand %u of %s has another element type, or another direction", i,
                 to->name);
    }
    if (chain)
        check_chain(cx, to->chain, first);
}

bool fg_rb_args(FgDiags *diags, const FgRbTables *tables, const FgRbCall *call, FgTraceKind kind,
                uint32_t *out_bucket)
{
    Cx cx = {diags, tables, FG_NO_ID, true};
    check_bucket(&cx, call, kind);
    check_clip(&cx, call, kind);
    check_lookup(&cx, call, kind);
    check_custom(&cx, call);
    *out_bucket = cx.bucket;
    return cx.ok;
}
