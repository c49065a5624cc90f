/* The tables of a program against the plan: settings, parameters with their shapes, names and
 * initial values, buckets with the places of their states, inputs. */
#include "readback/internal.h"

#include <string.h>

typedef struct Cx {
    FgArena *arena;
    const FgRbSource *source;
    const FgRbTables *tables;
    const FgModule *plan;
    bool ok;
} Cx;

static void differ(Cx *cx, const char *text)
{
    cx->ok = false;
    fg_diag(cx->source->diags, cx->source->program.loc, FG_D_NOT_THE_PLAN, "%s", text);
}

#define DIFFER(cx, ...) differ((cx), fg_arena_printf((cx)->arena, __VA_ARGS__))

static uint64_t whole(const FgRbTable *table, uint32_t row, const char *field)
{
    return fg_rb_cell(table, row, field)->u;
}

static bool is_text(const FgRbTable *table, uint32_t row, const char *field, const char *want)
{
    const FgRbCell *cell = fg_rb_cell(table, row, field);
    return cell->kind == FG_RB_TEXT && !strcmp(cell->text, want);
}

/* The address of a value of the plan; FG_RB_NONE for none. */
static uint64_t address(const FgModule *plan, uint32_t value)
{
    return value == FG_NO_ID ? FG_RB_NONE : plan->values.data[value].offset;
}

static bool same_shape(const Cx *cx, const FgRbTable *table, uint32_t row, const FgType *type)
{
    uint64_t first = whole(table, row, "dims_first");
    if (whole(table, row, "rank") != type->rank)
        return false;
    for (uint32_t i = 0; i < type->rank; i++)
        if (cx->tables->dims->cells[first + i].u != (uint64_t)type->dims[i])
            return false;
    return true;
}

static void compare_settings(Cx *cx)
{
    const FgRbTables *t = cx->tables;
    const FgModule *plan = cx->plan;
    uint64_t fingerprint = fg_module_fingerprint(plan);
    if (t->fingerprint != fingerprint)
        DIFFER(cx, "its fingerprint is %016llx, the plan's %016llx",
               (unsigned long long)t->fingerprint, (unsigned long long)fingerprint);
    if (t->ranks != plan->ranks || t->state_bytes != plan->state_bytes ||
        t->arena_bytes != plan->arena_bytes || t->host_state_bytes != plan->host_state_bytes ||
        t->host_arena_bytes != plan->host_arena_bytes ||
        t->accumulate != (uint64_t)plan->numerics.accumulate || t->clip != plan->numerics.clip)
        DIFFER(cx, "ranks, micro-steps, clipping or sizes are not the plan's");
    if (t->params.len != plan->params.len || t->buckets.len != plan->buckets.len ||
        (t->input_rows ? t->input_rows->n_rows : 0) != plan->inputs.len)
        DIFFER(cx, "it has other parameters, buckets or inputs than the plan");
}

static bool same_tied(const Cx *cx, uint32_t row, const FgParam *param)
{
    uint64_t first = whole(cx->tables->param_rows, row, "tied_first");
    if (whole(cx->tables->param_rows, row, "n_tied") != param->n_tied)
        return false;
    for (uint32_t i = 0; i < param->n_tied; i++)
        if (strcmp(cx->tables->tied->cells[first + i].text, param->tied[i]))
            return false;
    return true;
}

static void compare_param(Cx *cx, uint32_t row)
{
    const FgRbTable *table = cx->tables->param_rows;
    const FgRbParam *a = &cx->tables->params.data[row];
    const FgParam *b = &cx->plan->params.data[row];
    bool placed = b->bucket != FG_NO_ID;
    if (strcmp(a->name, b->name) || a->bucket != (placed ? b->bucket : UINT32_MAX) ||
        (placed && a->offset != b->bucket_offset) || a->trainable != b->trainable ||
        !same_shape(cx, table, row, b->type) || !same_tied(cx, row, b) ||
        (whole(table, row, "decay") != 0) != b->decay ||
        whole(table, row, "init") != (uint64_t)b->init ||
        fg_rb_cell(table, row, "init_scale")->f != b->init_scale)
        DIFFER(cx, "parameter %s is not as in the plan", a->name);
}

static void compare_bucket(Cx *cx, uint32_t row)
{
    const FgRbBucket *a = &cx->tables->buckets.data[row];
    const FgBucket *b = &cx->plan->buckets.data[row];
    if (strcmp(a->name, b->name) || a->elements != b->elements || a->dtype != (uint64_t)b->dtype ||
        a->trainable != b->trainable || a->writes != b->writes || a->lookups != b->lookups ||
        a->shard != address(cx->plan, b->shard) || a->master != address(cx->plan, b->master) ||
        a->moment1 != address(cx->plan, b->moment1) ||
        a->moment2 != address(cx->plan, b->moment2) ||
        a->grad_shard != address(cx->plan, b->grad_shard))
        DIFFER(cx, "bucket %s is not as in the plan", a->name);
}

static uint32_t state_of(const FgModule *plan, FgRole role, uint32_t index)
{
    for (uint32_t i = 0; i < plan->values.len; i++)
        if (plan->values.data[i].kind == FG_VALUE_STATE && plan->values.data[i].role == role &&
            plan->values.data[i].index == index)
            return i;
    return FG_NO_ID;
}

static void compare_input(Cx *cx, uint32_t row)
{
    const FgRbTable *table = cx->tables->input_rows;
    const FgInput *b = &cx->plan->inputs.data[row];
    if (!is_text(table, row, "name", b->name) || whole(table, row, "role") != (uint64_t)b->role ||
        whole(table, row, "dtype") != (uint64_t)b->type->dtype ||
        whole(table, row, "offset") != address(cx->plan, state_of(cx->plan, FG_ROLE_INPUT, row)) ||
        !same_shape(cx, table, row, b->type))
        DIFFER(cx, "input %s is not as in the plan", b->name);
}

static void compare_accumulators(Cx *cx)
{
    static const struct {
        const char *field;
        FgRole role;
    } rows[] = {{"scalars", FG_ROLE_SCALARS}, {"loss", FG_ROLE_LOSS}, {"norm", FG_ROLE_NORM}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (whole(&cx->source->program, 0, rows[i].field) !=
            address(cx->plan, state_of(cx->plan, rows[i].role, 0)))
            DIFFER(cx, "its %s do not lie where the plan puts them", rows[i].field);
    uint32_t scaler = state_of(cx->plan, FG_ROLE_SCALER, 0);
    if (cx->tables->scales != (scaler != FG_NO_ID) ||
        (cx->tables->scales &&
         whole(&cx->source->program, 0, "scaler") != address(cx->plan, scaler)))
        DIFFER(cx, "its loss scaler does not lie where the plan puts it");
}

bool fg_rb_compare_tables(FgArena *arena, const FgRbSource *source, const FgRbTables *tables,
                          const FgModule *plan)
{
    Cx cx = {arena, source, tables, plan, true};
    compare_settings(&cx);
    for (uint32_t i = 0; cx.ok && i < plan->params.len; i++)
        compare_param(&cx, i);
    for (uint32_t i = 0; cx.ok && i < plan->buckets.len; i++)
        compare_bucket(&cx, i);
    for (uint32_t i = 0; cx.ok && i < plan->inputs.len; i++)
        compare_input(&cx, i);
    compare_accumulators(&cx);
    return cx.ok;
}
