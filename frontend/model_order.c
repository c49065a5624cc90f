/* From names to an order: every input of every instance is looked up, unused outputs are reported,
 * and the instances are sorted so that each stands behind what it reads. The sort visits in file
 * order and puts only what is needed before a node, so a file that is in order stays as it is. It
 * keeps its own stack: files may be long and backwards. */
#include "frontend/model_internal.h"

#include <string.h>

/* ---- names ---- */
static void mark_read(ModelCx *cx, uint32_t id)
{
    Def *def = &cx->defs.data[id];
    def->read = true;
    if (def->kind == DEF_RESULT)
        cx->read[cx->instances.data[def->index].json->id] = true;
    if (def->kind == DEF_INPUT) {
        /* A carried name may stand for the input: what counts is the input's own definition. */
        const char *name = cx->module->inputs.data[def->index].name;
        uint32_t own;
        if (fg_map_get(&cx->root->names, name, &own))
            cx->defs.data[own].read = true;
    }
}

static void resolve_instance(ModelCx *cx, Instance *it)
{
    it->operands = FG_NEW_ARRAY(cx->arena, uint32_t, it->n_in);
    for (uint32_t i = 0; i < it->n_in; i++) {
        const char *name = fg_model_name(cx, it->scope, &it->in[i]);
        uint32_t def = name ? fg_model_lookup(cx, it->scope, it->in[i].loc, name) : FG_NO_ID;
        it->operands[i] = def;
        if (def == FG_NO_ID)
            it->failed = true;
        else
            mark_read(cx, def);
    }
}

static void resolve_loss(ModelCx *cx, const FgJson *root)
{
    cx->loss_def = FG_NO_ID;
    const FgJson *loss = fg_json_need(cx->json, root, "loss", FG_JSON_IS_STRING);
    if (!loss)
        return;
    uint32_t id = fg_model_lookup(cx, cx->root, loss->loc, loss->text);
    if (id == FG_NO_ID)
        return;
    mark_read(cx, id);
    if (cx->defs.data[id].kind != DEF_RESULT)
        fg_json_report(cx->json, loss->loc, FG_D_BAD_LOSS, "the loss '%s' is not made by a node",
                       loss->text);
    else
        cx->loss_def = id;
}

/* Not beside undefined names and the like: a mistyped name leaves the value it meant unread, and so
 * does a repeat that was not unrolled. */
static void report_unused(ModelCx *cx)
{
    if (cx->repeat_failed || fg_diags_has(cx->json->diags, FG_D_UNDEFINED_VALUE) ||
        fg_diags_has(cx->json->diags, FG_D_ARITY) || cx->loss_def == FG_NO_ID)
        return;
    for (uint32_t i = 0; i < cx->instances.len; i++) {
        const Instance *it = &cx->instances.data[i];
        /* A cross entropy is told what it must be where it is built. */
        bool loss = it->known && it->op == FG_OP_cross_entropy;
        if (cx->read[it->json->id] || loss || !it->n_out || it->out[0].kind != FG_JSON_STRING)
            continue;
        if (fg_json_report(cx->json, it->out[0].loc, FG_D_UNUSED_OUTPUT, "nothing reads '%s'",
                           it->out[0].text))
            fg_diag_note(cx->json->diags, FG_NOWHERE,
                         "a node's value is read by another node or is the loss");
    }
}

/* ---- order ---- */
typedef struct Visit {
    uint32_t instance, next; /* operand to look at next */
} Visit;
typedef FG_VEC(Visit) Stack;

static const char *full_name(ModelCx *cx, const Instance *it)
{
    return fg_arena_printf(cx->arena, "%s%s", it->scope->prefix, it->out[0].text);
}

/* The stack from the instance that is met again up to its top is the circle. Layers repeat it: it
 * is told once. */
static void report_cycle(ModelCx *cx, const Stack *stack, uint32_t met)
{
    uint32_t first = stack->len;
    do
        first--;
    while (stack->data[first].instance != met);
    FgBuf names;
    fg_buf_init(&names, cx->arena);
    bool known = false;
    for (uint32_t i = stack->len; i-- > first;) {
        const Instance *it = &cx->instances.data[stack->data[i].instance];
        fg_buf_printf(&names, "'%s' -> ", full_name(cx, it));
        known = known || cx->on_cycle[it->json->id];
    }
    cx->json->failed = true;
    const Instance *closing = &cx->instances.data[stack->data[stack->len - 1].instance];
    fg_buf_printf(&names, "'%s'", full_name(cx, closing));
    if (!known)
        fg_json_report(cx->json, cx->instances.data[met].json->loc, FG_D_CYCLE,
                       "these nodes depend on each other: %s", fg_buf_text(&names));
    for (uint32_t i = first; i < stack->len; i++) {
        const Instance *it = &cx->instances.data[stack->data[i].instance];
        if (!known && !cx->on_cycle[it->json->id] && i < first + 8)
            fg_diag_note(cx->json->diags, it->json->loc, "'%s' is made here", it->out[0].text);
        cx->on_cycle[it->json->id] = true;
    }
}

static void push(ModelCx *cx, Stack *stack, uint32_t instance)
{
    cx->instances.data[instance].mark = INSTANCE_OPEN;
    Visit visit = {instance, 0};
    fg_vec_push(cx->arena, stack, visit);
}

static void visit(ModelCx *cx, Stack *stack, uint32_t start)
{
    push(cx, stack, start);
    while (stack->len) {
        Visit *top = &stack->data[stack->len - 1];
        Instance *it = &cx->instances.data[top->instance];
        if (top->next == it->n_in) {
            it->mark = INSTANCE_DONE;
            fg_vec_push(cx->arena, &cx->order, top->instance);
            stack->len--;
            continue;
        }
        uint32_t id = it->operands[top->next++];
        if (id == FG_NO_ID || cx->defs.data[id].kind != DEF_RESULT)
            continue;
        uint32_t needed = cx->defs.data[id].index;
        if (cx->instances.data[needed].mark == INSTANCE_OPEN) {
            report_cycle(cx, stack, needed);
            it->failed = true;
        } else if (cx->instances.data[needed].mark == INSTANCE_NEW) {
            push(cx, stack, needed);
        }
    }
}

void fg_model_order(ModelCx *cx, const FgJson *root)
{
    for (uint32_t i = 0; i < cx->defs.len; i++) {
        if (cx->defs.data[i].kind == DEF_ALIAS)
            fg_model_resolve(cx, i);
    }
    for (uint32_t i = 0; i < cx->instances.len; i++)
        resolve_instance(cx, &cx->instances.data[i]);
    resolve_loss(cx, root);
    report_unused(cx);
    Stack stack = {0};
    for (uint32_t i = 0; i < cx->instances.len; i++) {
        if (cx->instances.data[i].mark == INSTANCE_NEW)
            visit(cx, &stack, i);
    }
}
