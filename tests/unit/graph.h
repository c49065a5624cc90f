/* Small graphs from short texts, for unit tests.
 *
 *   uint32_t y = graph_node(&g, FG_OP_linear, (uint32_t[]){x, w}, 2, "layout=in_out");
 *
 * Attributes are "name=value" separated by blanks; lists are "1,0,2". */
#ifndef FG_TESTS_UNIT_GRAPH_H
#define FG_TESTS_UNIT_GRAPH_H

#include "ir/op_table.h"

typedef struct Graph {
    FgArena *arena; /* owns everything */
    FgDiags *diags;
    FgModule *module;
    FgBuilder build; /* appends forward nodes to @step */
} Graph;

Graph graph_new(void);
void graph_free(Graph *graph);
/* "f32[4, 64]" or "f32[]"; *text moves behind it. NULL when it is no type. */
const FgType *graph_type(Graph *graph, const char **text);
uint32_t graph_param(Graph *graph, const char *name, const FgType *type, bool trainable);
uint32_t graph_input(Graph *graph, const char *name, const FgType *type);
/* First result, or FG_NO_ID after an error (in graph->diags). */
uint32_t graph_node(Graph *graph, FgOp op, const uint32_t *operands, uint32_t n, const char *attrs);
/* The rendered diagnostics. */
const char *graph_errors(Graph *graph);

#endif
