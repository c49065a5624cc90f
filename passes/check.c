/* The proof of a schedule, from streams, waits and addresses alone (design: I3).
 *
 * It is written apart from the passes that make schedules and shares no code with them: it has its
 * own enumeration of accesses, its own idea of liveness (what bytes hold) and of order
 * (happens-before). What it shows:
 *
 *   check_memory.c   every value lies aligned inside its region; states + arena within the budget
 *   check_clock.c    waits make no cycle; a communicator keeps to one stream; two accesses to the
 * same bytes, one of them a write, are ordered by happens-before check_content.c  over init,
 * prologue, two periods, flush and a period after that, every read finds what it names: made, not
 * released, not overwritten, not stale check_step.c     gathers and releases alternate; every
 * gradient is reduced once with all contributions; every bucket is updated once
 *
 * Cost: a few passes over the nodes; an access costs the number of runs of bytes that it covers. */
#include "passes/check_internal.h"

#include "passes/compile.h"

#include <string.h>

#define MOST_ERRORS 20

/* ---- reports ---- */

const char *fg_check_node_text(const FgCheck *check, const FgNode *node)
{
    const char *op = fg_op_info(node->op)->name;
    return *node->name ? fg_arena_printf(check->arena, "#%u %s (%s)", node->id, op, node->name)
                       : fg_arena_printf(check->arena, "#%u %s", node->id, op);
}

const char *fg_check_value_text(const FgCheck *check, uint32_t value)
{
    return fg_arena_printf(check->arena, "%%%s.%u", check->module->values.data[value].name, value);
}

void fg_check_fail(FgCheck *check, const FgNode *node, uint32_t rule, const char *format, ...)
{
    uint64_t bit = UINT64_C(1) << rule;
    if (check->errors >= MOST_ERRORS || (check->reported[node->id] & bit))
        return;
    check->reported[node->id] |= bit;
    check->errors++;
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(check->arena, format, args);
    va_end(args);
    const char *func = check->position[node->id] == FG_CHECK_NONE
                           ? ""
                           : check->module->funcs.data[check->func[node->id]].name;
    fg_diag(check->module->diags, node->loc, FG_D_NOT_PROVED, "%s in @%s: %s",
            fg_check_node_text(check, node), func, text);
}

void fg_check_fail_module(FgCheck *check, const char *format, ...)
{
    if (check->errors >= MOST_ERRORS)
        return;
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(check->arena, format, args);
    va_end(args);
    for (uint32_t i = 0; i < check->said.len; i++)
        if (!strcmp(check->said.data[i], text))
            return;
    fg_vec_push(check->arena, &check->said, text);
    check->errors++;
    fg_diag(check->module->diags, FG_NOWHERE, FG_D_NOT_PROVED, "%s", text);
}

/* ---- tables ---- */

/* Its own notion of "reads what its results held", from the calls' effects (`update`, and `fresh`
 * with the flag). */
static bool updates(const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++)
        if (!strcmp(info->attrs[i].name, "accumulate"))
            return node->attrs[i].i != 0;
    return node->op == FG_OP_adamw || node->op == FG_OP_all_reduce || node->op == FG_OP_clip_factor;
}

/* Where every node stands. False when one stands twice: then nothing else is worth a look. */
static bool index_nodes(FgCheck *check)
{
    const FgModule *module = check->module;
    bool ok = true;
    for (uint32_t i = 0; i < module->nodes.len; i++)
        check->position[i] = FG_CHECK_NONE;
    for (uint32_t f = 0; f < module->funcs.len; f++) {
        const FgIdVec *order = &module->funcs.data[f].order;
        for (uint32_t i = 0; i < order->len; i++) {
            uint32_t id = order->data[i];
            if (check->position[id] != FG_CHECK_NONE) {
                fg_check_fail(check, &module->nodes.data[id], 4, "it stands in the order twice");
                ok = false;
            }
            check->position[id] = i;
            check->func[id] = f;
            check->updates[id] = updates(&module->nodes.data[id]);
        }
    }
    return ok;
}

/* The value whose contents a value names: through views. */
static uint32_t content_of(const FgModule *module, uint32_t id)
{
    for (uint32_t steps = 0; steps < module->nodes.len; steps++) {
        const FgValue *value = &module->values.data[id];
        if (value->kind != FG_VALUE_RESULT || value->def >= module->nodes.len)
            return id;
        const FgNode *def = &module->nodes.data[value->def];
        if (!(fg_op_info(def->op)->flags & FG_OPF_VIEW) || !def->n_operands ||
            def->operands[0] == FG_NO_ID)
            return id;
        id = def->operands[0];
    }
    return id;
}

static uint32_t root_of(const FgModule *module, uint32_t id)
{
    for (uint32_t steps = 0; steps < module->values.len; steps++) {
        if (module->values.data[id].root == id)
            return id;
        id = module->values.data[id].root;
    }
    return id;
}

static void index_values(FgCheck *check)
{
    const FgModule *module = check->module;
    for (uint32_t i = 0; i < module->values.len; i++) {
        check->root[i] = root_of(module, i);
        check->content[i] = content_of(module, i);
        const FgValue *value = &module->values.data[i];
        if (value->kind == FG_VALUE_STATE && value->role == FG_ROLE_WORKSPACE)
            fg_vec_push(check->arena, &check->workspaces, i);
    }
}

/* ---- rules without a place in time ---- */

/* A view must lie inside what it names. */
static void check_views(FgCheck *check)
{
    const FgModule *module = check->module;
    for (uint32_t i = 0; i < module->nodes.len; i++) {
        const FgNode *node = &module->nodes.data[i];
        if (check->position[i] == FG_CHECK_NONE || !(fg_op_info(node->op)->flags & FG_OPF_VIEW))
            continue;
        uint32_t inner = node->results[0], outer = node->operands[0];
        uint64_t at = fg_check_address(module, inner), base = fg_check_address(module, outer);
        if (check->root[inner] != check->root[outer] || at < base ||
            at - base > fg_type_bytes(module->values.data[outer].type) ||
            fg_type_bytes(module->values.data[inner].type) >
                fg_type_bytes(module->values.data[outer].type) - (at - base))
            fg_check_fail(check, node, 5, "%s does not lie inside %s, which it names a part of",
                          fg_check_value_text(check, inner), fg_check_value_text(check, outer));
    }
}

static bool has_func(const FgModule *module, const char *name)
{
    for (uint32_t i = 0; i < module->funcs.len; i++)
        if (!strcmp(module->funcs.data[i].name, name))
            return true;
    return false;
}

/* The functions that the trainer will call. */
static void check_funcs(FgCheck *check)
{
    const FgModule *module = check->module;
    int64_t steps = module->numerics.accumulate;
    bool trains = false;
    for (uint32_t i = 0; i < module->buckets.len; i++)
        trains |= module->buckets.data[i].trainable;
    const struct {
        const char *name;
        bool needed;
    } funcs[] = {{"step", steps <= 1},
                 {"first", steps > 1},
                 {"middle", steps > 2},
                 {"last", steps > 1},
                 {"flush", trains && module->numerics.clip > 0.0}};
    for (uint32_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
        if (funcs[i].needed && !has_func(module, funcs[i].name))
            fg_check_fail_module(check, "there is no @%s", funcs[i].name);
}

static void check_budget(FgCheck *check, uint64_t budget)
{
    const FgModule *module = check->module;
    uint64_t peak = module->state_bytes + module->arena_bytes;
    if (peak < module->state_bytes || peak > budget)
        fg_check_fail_module(check, "states (%s) and arena (%s) exceed the budget of %s by %s",
                             fg_bytes_text(check->arena, module->state_bytes),
                             fg_bytes_text(check->arena, module->arena_bytes),
                             fg_bytes_text(check->arena, budget),
                             fg_bytes_text(check->arena, peak - budget));
}

static void count(const FgCheck *check, FgProof *out)
{
    const FgModule *module = check->module;
    for (uint32_t i = 0; i < module->nodes.len; i++) {
        if (check->position[i] == FG_CHECK_NONE)
            continue;
        out->nodes += fg_op_info(module->nodes.data[i].op)->call != NULL;
        out->gathers += module->nodes.data[i].op == FG_OP_gather;
    }
}

bool fg_check(FgArena *scratch, const FgModule *sched, uint64_t budget, FgProof *out)
{
    uint32_t n = sched->nodes.len, v = sched->values.len;
    FgCheck check = {.arena = scratch,
                     .module = sched,
                     .reported = FG_NEW_ARRAY(scratch, uint64_t, n),
                     .position = FG_NEW_ARRAY(scratch, uint32_t, n),
                     .func = FG_NEW_ARRAY(scratch, uint32_t, n),
                     .root = FG_NEW_ARRAY(scratch, uint32_t, v),
                     .content = FG_NEW_ARRAY(scratch, uint32_t, v),
                     .updates = FG_NEW_ARRAY(scratch, bool, n)};
    *out = (FgProof){0};
    if (!index_nodes(&check))
        return false;
    index_values(&check);
    check_funcs(&check);
    check_budget(&check, budget);
    check_views(&check);
    FgCheckSpace space;
    fg_check_space(&check, &space);
    fg_check_order(&check, &space, &out->waits, &out->reuses);
    fg_check_contents(&check, &space);
    count(&check, out);
    return check.errors == 0;
}

FgPassResult fg_pass_check(FgPassCx *cx)
{
    FgProof proof;
    return fg_check(cx->scratch, cx->module, cx->budget, &proof) ? FG_PASS_UNCHANGED
                                                                 : FG_PASS_FAILED;
}
