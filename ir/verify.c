/* The verifier: is this module what its level says? Rules are listed in docs/ir.md.
 *
 * It checks form: every pass may rely on what it checks and need not look again. Whether a schedule
 * is safe (order, lifetimes, overlap) is not its business but the checker's (passes/check.c), which
 * shares nothing with it. */
#include "ir/verify.h"

#include <stdarg.h>
#include <string.h>

static void report(FgVerifier *v, FgLoc loc, const char *text)
{
    v->ok = false;
    fg_diag(v->m->diags, loc, FG_D_IR_INVALID, "%s", text);
}

void fg_verify_fail(FgVerifier *v, FgLoc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(v, loc, fg_arena_vprintf(v->scratch, format, args));
    va_end(args);
}

void fg_verify_fail_node(FgVerifier *v, const FgNode *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = fg_arena_vprintf(v->scratch, format, args);
    va_end(args);
    report(v, node->loc,
           fg_arena_printf(v->scratch, "%s: %s", fg_node_title(v->scratch, node), text));
}

const char *fg_verify_value_text(const FgVerifier *v, uint32_t id)
{
    if (!fg_verify_is_value(v, id))
        return "_";
    return fg_arena_printf(v->scratch, "%%%s.%u", v->m->values.data[id].name, id);
}

const char *fg_verify_type_text(const FgVerifier *v, const FgType *type)
{
    FgBuf text;
    fg_buf_init(&text, v->scratch);
    fg_type_print(&text, type);
    return fg_buf_text(&text);
}

bool fg_verify_is_value(const FgVerifier *v, uint32_t id)
{
    return id < v->m->values.len;
}

/* ---- operands and results ---- */
static bool verify_operand(FgVerifier *v, const FgNode *node, uint32_t id)
{
    if (id == FG_NO_ID)
        return true;
    if (!fg_verify_is_value(v, id)) {
        fg_verify_fail_node(v, node, "it reads value %u, which is not there", id);
        return false;
    }
    const FgValue *x = &v->m->values.data[id];
    const char *name = fg_verify_value_text(v, id);
    bool graph = v->m->level == FG_LEVEL_GRAPH;
    if (x->kind == FG_VALUE_RESULT && v->made_in[id] != v->func + 1) {
        fg_verify_fail_node(v, node,
                            v->made_in[id] ? "%s is made in another function"
                                           : "%s is used before it is made",
                            name);
        return false;
    }
    if (x->kind == FG_VALUE_STATE ? graph : x->kind != FG_VALUE_RESULT && !graph) {
        fg_verify_fail_node(v, node, "%s does not belong to level %s", name,
                            fg_level_name(v->m->level));
        return false;
    }
    return true;
}

/* A value that stands already may be written again where it names a part of a state, or where an
 * update works on states that were fetched. */
static bool writes_again(const FgVerifier *v, const FgNode *node, const FgValue *x)
{
    if (v->made_in[x->id] != v->func + 1 || x->root >= v->m->values.len)
        return false;
    return node->op == FG_OP_adamw_part || v->m->values.data[x->root].kind == FG_VALUE_STATE;
}

static bool verify_result(FgVerifier *v, const FgNode *node, uint32_t id)
{
    if (id == FG_NO_ID)
        return true;
    if (!fg_verify_is_value(v, id)) {
        fg_verify_fail_node(v, node, "it makes value %u, which is not there", id);
        return false;
    }
    const FgValue *x = &v->m->values.data[id];
    const char *name = fg_verify_value_text(v, id);
    if (x->kind == FG_VALUE_PARAM || x->kind == FG_VALUE_INPUT) {
        fg_verify_fail_node(v, node, "it writes %s, which is a parameter or an input", name);
        return false;
    }
    if (x->kind == FG_VALUE_STATE)
        return true;
    if (writes_again(v, node, x))
        return true;
    if (v->made_in[id]) {
        fg_verify_fail_node(v, node, "%s is made a second time", name);
        return false;
    }
    if (x->def != node->id)
        fg_verify_fail_node(v, node, "%s names another node as its maker", name);
    v->made_in[id] = v->func + 1;
    return true;
}

/* ---- sched ---- */
static void verify_waits(FgVerifier *v, const FgNode *node)
{
    for (uint32_t i = 0; i < node->n_waits; i++) {
        uint32_t id = node->waits[i];
        if (id >= v->m->nodes.len || v->place[id] == 0 || v->func_of[id] != v->func)
            fg_verify_fail_node(v, node, "it waits for #%u, which does not stand before it", id);
        else if (v->m->nodes.data[id].stream == node->stream)
            fg_verify_fail_node(v, node, "it waits for #%u on its own stream", id);
    }
}

/* A communicator serves one stream: gathers have one, gradients in parts, all others. */
static void verify_communicators(FgVerifier *v)
{
    const FgNode *first[3] = {NULL, NULL, NULL};
    for (uint32_t id = 0; id < v->m->nodes.len; id++) {
        const FgNode *node = &v->m->nodes.data[id];
        if (v->place[id] == 0 || !(fg_op_info(node->op)->flags & FG_OPF_COLLECTIVE))
            continue;
        const FgNode **seen = &first[node->op == FG_OP_gather       ? 0
                                     : node->op == FG_OP_all_to_all ? 1
                                                                    : 2];
        if (!*seen)
            *seen = node;
        else if ((*seen)->stream != node->stream)
            fg_verify_fail_node(v, node, "its communicator serves stream %s since #%u",
                                fg_stream_name((*seen)->stream), (*seen)->id);
    }
}

/* ---- functions ---- */
static void verify_node(FgVerifier *v, const FgNode *node)
{
    if (!fg_verify_node_shape(v, node))
        return;
    bool fit = true;
    for (uint32_t i = 0; i < node->n_operands; i++)
        fit = verify_operand(v, node, node->operands[i]) && fit;
    for (uint32_t i = 0; i < node->n_results; i++)
        fit = verify_result(v, node, node->results[i]) && fit;
    v->unfit = v->unfit || !fit;
    if (!fit)
        return;
    for (uint32_t i = 0; i < node->n_results; i++) {
        if (node->results[i] != FG_NO_ID &&
            v->m->values.data[node->results[i]].kind == FG_VALUE_RESULT)
            fg_verify_value_place(v, node, &v->m->values.data[node->results[i]]);
    }
    fg_verify_node_types(v, node);
    if (v->m->level != FG_LEVEL_GRAPH) {
        fg_verify_node_bucket(v, node);
        if (!v->unfit)
            fg_verify_node_low_types(v, node);
        fg_verify_node_host(v, node);
    }
    if (v->m->level == FG_LEVEL_SCHED)
        verify_waits(v, node);
}

static void verify_func(FgVerifier *v, const FgFunc *func)
{
    for (uint32_t i = 0; i < func->order.len; i++) {
        uint32_t id = func->order.data[i];
        if (id >= v->m->nodes.len || v->m->nodes.data[id].id != id) {
            fg_verify_fail(v, FG_NOWHERE, "function '%s' holds node #%u, which is not there",
                           func->name, id);
            continue;
        }
        const FgNode *node = &v->m->nodes.data[id];
        if (v->place[id]) {
            fg_verify_fail_node(v, node, "it stands in a function a second time");
            continue;
        }
        verify_node(v, node);
        v->place[id] = i + 1;
        v->func_of[id] = v->func;
    }
}

static void verify_func_names(FgVerifier *v)
{
    static const char *const low = "init prologue first middle last step flush";
    for (uint32_t i = 0; i < v->m->funcs.len; i++) {
        const char *name = v->m->funcs.data[i].name;
        const char *allowed = v->m->level == FG_LEVEL_GRAPH ? "step" : low;
        if (!fg_word_in(allowed, name))
            fg_verify_fail(v, FG_NOWHERE, "function '%s': the functions at level %s are: %s", name,
                           fg_level_name(v->m->level), allowed);
    }
}

bool fg_module_verify(const FgModule *module)
{
    FgArena *scratch = fg_arena_new();
    FgVerifier v = {.m = module, .scratch = scratch, .ok = true};
    v.made_in = FG_NEW_ARRAY(scratch, uint32_t, module->values.len);
    v.place = FG_NEW_ARRAY(scratch, uint32_t, module->nodes.len);
    v.func_of = FG_NEW_ARRAY(scratch, uint32_t, module->nodes.len);
    fg_verify_tables(&v);
    verify_func_names(&v);
    for (v.func = 0; v.func < module->funcs.len; v.func++)
        verify_func(&v, &module->funcs.data[v.func]);
    if (module->level == FG_LEVEL_SCHED)
        verify_communicators(&v);
    if (module->loss != FG_NO_ID && module->loss < module->values.len && module->funcs.len > 0 &&
        module->values.data[module->loss].kind == FG_VALUE_RESULT && !v.made_in[module->loss])
        fg_verify_fail(&v, FG_NOWHERE, "nothing makes the loss %s",
                       fg_verify_value_text(&v, module->loss));
    fg_arena_free(scratch);
    return v.ok;
}
