/* Small graphs from short texts: types, attributes, parameters and inputs without ceremony. */
#include "tests/unit/graph.h"

#include <stdlib.h>
#include <string.h>

Graph graph_new(void)
{
    Graph g = {.arena = fg_arena_new()};
    g.diags = fg_diags_new(g.arena);
    g.module = fg_module_new(g.arena, g.diags, "test");
    g.module->numerics = (FgNumerics){.accumulate = 1};
    FgFunc *step = fg_add_func(g.module, "step");
    g.build = (FgBuilder){.module = g.module,
                          .order = &step->order,
                          .name = "",
                          .phase = FG_PHASE_FORWARD,
                          .layer = -1,
                          .origin = FG_NO_ID};
    return g;
}

void graph_free(Graph *graph)
{
    fg_arena_free(graph->arena);
}

const FgType *graph_type(Graph *graph, const char **text)
{
    int64_t dims[16];
    uint32_t rank = 0;
    const char *s = *text + strspn(*text, " ");
    const char *open = strchr(s, '[');
    FgDtype dtype;
    if (!open || !fg_dtype_parse(fg_arena_strndup(graph->arena, s, (size_t)(open - s)), &dtype))
        return NULL;
    for (s = open + 1; *s != ']' && *s && rank < 16;) {
        char *end;
        dims[rank++] = strtoll(s, &end, 10);
        if (end == s)
            return NULL;
        s = end + strspn(end, ", ");
    }
    *text = s + (*s == ']');
    return fg_type(graph->module, dtype, rank, dims);
}

uint32_t graph_param(Graph *graph, const char *name, const FgType *type, bool trainable)
{
    FgParam param = {.name = name,
                     .type = type,
                     .init_scale = 1,
                     .trainable = trainable,
                     .value = FG_NO_ID,
                     .bucket = FG_NO_ID};
    return fg_param_value(graph->module, fg_add_param(graph->module, &param));
}

uint32_t graph_input(Graph *graph, const char *name, const FgType *type)
{
    FgInput input = {.name = name, .type = type, .role = FG_INPUT_OTHER, .value = FG_NO_ID};
    uint32_t index = fg_add_input(graph->module, &input);
    return graph->module->inputs.data[index].value;
}

/* ---- attributes ---- */

static void set_list(Graph *graph, FgNode *node, const char *name, const char *text)
{
    int64_t ints[16];
    uint32_t n = 0;
    while (*text && n < 16) {
        char *end;
        ints[n++] = strtoll(text, &end, 10);
        text = end + strspn(end, ",");
    }
    fg_node_set_ints(graph->module, node, name, ints, n);
}

/* Attributes are separated by spaces: '+' is one inside a text. */
static const char *spaced(Graph *graph, const char *text)
{
    char *copy = fg_arena_strdup(graph->arena, text);
    for (char *c = copy; *c; c++)
        *c = *c == '+' ? ' ' : *c;
    return copy;
}

static void set_attr(Graph *graph, FgNode *node, const char *name, const char *text)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (strcmp(info->attrs[i].name, name) != 0)
            continue;
        FgAttrKind kind = info->attrs[i].kind;
        if (kind == FG_ATTR_FLOAT)
            fg_node_set_float(graph->module, node, name, strtod(text, NULL));
        else if (kind == FG_ATTR_INTS)
            set_list(graph, node, name, text);
        else if (kind == FG_ATTR_WORD)
            fg_node_set_word(graph->module, node, name, text);
        else if (kind == FG_ATTR_TEXT)
            fg_node_set_word(graph->module, node, name, spaced(graph, text));
        else
            fg_node_set_int(graph->module, node, name, strtoll(text, NULL, 10));
        return;
    }
    FG_BUG("op '%s' has no attribute '%s'", info->name, name);
}

uint32_t graph_node(Graph *graph, FgOp op, const uint32_t *operands, uint32_t n, const char *attrs)
{
    FgNode *node = fg_node_new(&graph->build, op, operands, n);
    for (const char *s = attrs; *s;) {
        size_t name = strcspn(s, "="), value = strcspn(s + name + 1, " ");
        set_attr(graph, node, fg_arena_strndup(graph->arena, s, name),
                 fg_arena_strndup(graph->arena, s + name + 1, value));
        s += name + 1 + value;
        s += strspn(s, " ");
    }
    return fg_node_finish(&graph->build, node, "y");
}

const char *graph_errors(Graph *graph)
{
    FgBuf buf;
    fg_buf_init(&buf, graph->arena);
    fg_diags_render(graph->diags, &buf);
    return fg_buf_text(&buf);
}
