/* The embedding lookup and its gradient, a scatter-add over the rows that tokens name. */
#include "ir/ops/ops_util.h"

#include <string.h>

bool fg_infer_embedding(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_dtype(m, node, 0, FG_I32) || !fg_ops_need_float(m, node, 1))
        return false;
    const FgType *ids = fg_ops_in(m, node, 0), *w = fg_ops_in(m, node, 1);
    if (w->rank != 2)
        return fg_ops_error(m, node, "w is %s, it must be [vocabulary, width]", fg_ops_text(m, w));
    int64_t padding = fg_node_attr(node, "padding_idx")->i;
    if (padding < -1 || padding >= w->dims[0])
        return fg_ops_error(m, node, "padding_idx %lld is no row of w, which is %s",
                            (long long)padding, fg_ops_text(m, w));
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, ids->rank + 1);
    if (ids->rank)
        memcpy(dims, ids->dims, ids->rank * sizeof *dims);
    dims[ids->rank] = w->dims[1];
    types[0] = fg_ops_type(m, node, w->dtype, ids->rank + 1, dims);
    return types[0] != NULL;
}

bool fg_infer_embedding_dw(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_dtype(m, node, 0, FG_I32) || !fg_ops_need_float(m, node, 1) ||
        !fg_ops_need_rank(m, node, 1, 1))
        return false;
    const FgType *ids = fg_ops_in(m, node, 0), *dy = fg_ops_in(m, node, 1);
    if (dy->rank != ids->rank + 1 || fg_type_rows(dy) != fg_type_elements(ids))
        return fg_ops_error(m, node, "ids is %s and dy is %s, dy must have a row for each id",
                            fg_ops_text(m, ids), fg_ops_text(m, dy));
    int64_t dims[] = {fg_node_attr(node, "vocab")->i, fg_type_cols(dy)};
    types[0] = fg_ops_type(m, node, fg_ops_to(node, dy->dtype), 2, dims);
    return types[0] != NULL;
}

bool fg_grad_embedding(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t ids = node->operands[0], w = node->operands[1];
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    if (!fg_grad_wanted(cx, w))
        return true;
    FgNode *dw = fg_node_new(&cx->build, FG_OP_embedding_dw, (uint32_t[]){ids, dy}, 2);
    fg_node_set_int(m, dw, "vocab", fg_value(m, w)->type->dims[0]);
    fg_node_set_int(m, dw, "padding_idx", fg_node_attr(node, "padding_idx")->i);
    fg_ops_set_to(cx, dw, w);
    fg_grad_add(cx, w, fg_node_finish(&cx->build, dw, fg_ops_grad_hint(cx, w)));
    return true;
}

/* Rows are read where tokens name them, not the whole table. */
void fg_cost_embedding(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double out = (double)fg_type_bytes(fg_ops_out(m, node, 0));
    double ids = (double)fg_type_bytes(fg_ops_in(m, node, 0));
    *cost = (FgCost){.read_bytes = ids + out, .write_bytes = out};
}

/* All rows are written, but a rank reads only its share of the table's. */
void fg_cost_lookup_rows(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double out = (double)fg_type_bytes(fg_ops_out(m, node, 0));
    double ids = (double)fg_type_bytes(fg_ops_in(m, node, 0));
    *cost = (FgCost){.read_bytes = ids + out / (m->ranks ? m->ranks : 1), .write_bytes = out};
}

/* All rows are read to be sorted, but a rank adds its share of them. */
void fg_cost_lookup_dw(const FgModule *m, const FgNode *node, FgCost *cost)
{
    const FgType *ids = fg_ops_in(m, node, 0), *rows = fg_ops_in(m, node, 1);
    const FgType *shard = fg_ops_out(m, node, 0);
    double own = (double)fg_type_elements(rows) / (m->ranks ? m->ranks : 1);
    double sums = own * fg_dtype_bytes(shard->dtype);
    bool accumulate = fg_node_attr(node, "accumulate")->i != 0;
    *cost = (FgCost){.vector_flops = own,
                     .read_bytes =
                         (double)fg_type_bytes(ids) + own * fg_dtype_bytes(rows->dtype) + sums,
                     .write_bytes = accumulate ? sums : sums + (double)fg_type_bytes(shard)};
}

/* Fresh: the whole table is zeroed, then the named rows are added to. */
void fg_cost_embedding_dw(const FgModule *m, const FgNode *node, FgCost *cost)
{
    const FgType *dy = fg_ops_in(m, node, 1), *dw = fg_ops_out(m, node, 0);
    double rows = (double)fg_type_elements(dy) * fg_dtype_bytes(dw->dtype);
    bool accumulate = fg_node_attr(node, "accumulate")->i != 0;
    double ids = (double)fg_type_bytes(fg_ops_in(m, node, 0));
    *cost = (FgCost){.vector_flops = (double)fg_type_elements(dy),
                     .read_bytes = ids + (double)fg_type_bytes(dy) + rows,
                     .write_bytes = accumulate ? rows : rows + (double)fg_type_bytes(dw)};
}
