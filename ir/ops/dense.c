/* Matrix products: linear over the last dimension (with its gradients), column sums, batched
 * matmul.
 *
 * linear's backward makes dx first, then dw, then db: once dx is made the gathered weight is not
 * read any more, so it can be released before the memory of its gradient begins. */
#include "ir/ops/ops_util.h"

#include <string.h>

static bool is_in_out(const FgNode *node)
{
    return strcmp(fg_node_attr(node, "layout")->word, "in_out") == 0;
}

/* ---- inference ---- */

/* `type` with another last dimension. */
static const FgType *with_cols(FgModule *m, const FgNode *node, const FgType *type, FgDtype dtype,
                               int64_t cols)
{
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, type->rank);
    memcpy(dims, type->dims, type->rank * sizeof *dims);
    dims[type->rank - 1] = cols;
    return fg_ops_type(m, node, dtype, type->rank, dims);
}

/* A weight of rank 2 in the dtype of operand 0, and its sizes by layout. */
static bool weight_sizes(FgModule *m, const FgNode *node, int64_t *out_in, int64_t *out_out)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 1) ||
        !fg_ops_need_dtype(m, node, 1, fg_ops_in(m, node, 0)->dtype))
        return false;
    const FgType *w = fg_ops_in(m, node, 1);
    if (w->rank != 2)
        return fg_ops_error(m, node, "w is %s, it must have 2 dimensions", fg_ops_text(m, w));
    *out_in = w->dims[is_in_out(node) ? 0 : 1];
    *out_out = w->dims[is_in_out(node) ? 1 : 0];
    return true;
}

bool fg_infer_linear(FgModule *m, const FgNode *node, const FgType **types)
{
    int64_t in = 0, out = 0;
    if (!weight_sizes(m, node, &in, &out))
        return false;
    const FgType *x = fg_ops_in(m, node, 0), *w = fg_ops_in(m, node, 1);
    if (fg_type_cols(x) != in) {
        fg_ops_error(m, node, "x is %s, its last dimension %lld must equal w's input size %lld",
                     fg_ops_text(m, x), (long long)fg_type_cols(x), (long long)in);
        fg_diag_note(m->diags, FG_NOWHERE, "w is %s: %s", fg_ops_text(m, w),
                     is_in_out(node) ? "[in, out] with layout = in_out"
                                     : "[out, in]; layout = in_out takes [in, out]");
        return false;
    }
    if (fg_ops_has(node, 2) &&
        !fg_ops_need_type(m, node, 2, fg_type(m, x->dtype, 1, (int64_t[]){out})))
        return false;
    types[0] = with_cols(m, node, x, x->dtype, out);
    return types[0] != NULL && fg_ops_need_plus(m, node, types[0]);
}

bool fg_infer_linear_dx(FgModule *m, const FgNode *node, const FgType **types)
{
    int64_t in = 0, out = 0;
    if (!weight_sizes(m, node, &in, &out))
        return false;
    const FgType *dy = fg_ops_in(m, node, 0);
    if (fg_type_cols(dy) != out)
        return fg_ops_error(m, node,
                            "dy is %s, its last dimension %lld must equal w's output size %lld",
                            fg_ops_text(m, dy), (long long)fg_type_cols(dy), (long long)out);
    types[0] = with_cols(m, node, dy, dy->dtype, in);
    return types[0] != NULL && fg_ops_need_plus(m, node, types[0]);
}

bool fg_infer_linear_dw(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 1) ||
        !fg_ops_need_rank(m, node, 1, 1) ||
        !fg_ops_need_dtype(m, node, 1, fg_ops_in(m, node, 0)->dtype))
        return false;
    const FgType *x = fg_ops_in(m, node, 0), *dy = fg_ops_in(m, node, 1);
    if (x->rank != dy->rank || fg_type_rows(x) != fg_type_rows(dy))
        return fg_ops_error(m, node,
                            "x is %s and dy is %s, all but their last dimensions must be equal",
                            fg_ops_text(m, x), fg_ops_text(m, dy));
    int64_t in = fg_type_cols(x), out = fg_type_cols(dy);
    int64_t dims[] = {is_in_out(node) ? in : out, is_in_out(node) ? out : in};
    types[0] = fg_ops_type(m, node, fg_ops_to(node, dy->dtype), 2, dims);
    return types[0] != NULL;
}

/* Also the weight gradients of the norms, which have x before dy. */
bool fg_infer_column_sum(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 1))
        return false;
    const FgType *x = fg_ops_in(m, node, 0);
    if (node->n_operands > 1 && !fg_ops_need_type(m, node, 1, x))
        return false;
    types[0] = fg_type(m, fg_ops_to(node, x->dtype), 1, (int64_t[]){fg_type_cols(x)});
    return true;
}

static bool transposes(const FgNode *node, const char *attr)
{
    return fg_node_attr(node, attr)->i != 0;
}

bool fg_infer_matmul(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_rank(m, node, 0, 2) ||
        !fg_ops_need_dtype(m, node, 1, fg_ops_in(m, node, 0)->dtype))
        return false;
    const FgType *a = fg_ops_in(m, node, 0), *b = fg_ops_in(m, node, 1);
    uint32_t lead = a->rank - 2;
    if (a->rank != b->rank || (lead && memcmp(a->dims, b->dims, lead * sizeof *a->dims) != 0))
        return fg_ops_error(m, node,
                            "a is %s and b is %s, all but their last two dimensions must be equal",
                            fg_ops_text(m, a), fg_ops_text(m, b));
    bool ta = transposes(node, "ta"), tb = transposes(node, "tb");
    int64_t rows = a->dims[lead + (ta ? 1 : 0)], inner = a->dims[lead + (ta ? 0 : 1)];
    int64_t other = b->dims[lead + (tb ? 1 : 0)], cols = b->dims[lead + (tb ? 0 : 1)];
    if (inner != other)
        return fg_ops_error(m, node,
                            "a is %s%s and b is %s%s, the inner sizes %lld and %lld must be equal",
                            fg_ops_text(m, a), ta ? " transposed" : "", fg_ops_text(m, b),
                            tb ? " transposed" : "", (long long)inner, (long long)other);
    int64_t *dims = FG_NEW_ARRAY(m->arena, int64_t, a->rank);
    memcpy(dims, a->dims, a->rank * sizeof *dims);
    dims[lead] = rows;
    dims[lead + 1] = cols;
    types[0] = fg_ops_type(m, node, a->dtype, a->rank, dims);
    return types[0] != NULL;
}

/* ---- gradients ---- */

static void add_linear_dx(FgGradCx *cx, const FgNode *node, uint32_t dy)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0];
    FgNode *dx = fg_node_new(&cx->build, FG_OP_linear_dx, (uint32_t[]){dy, node->operands[1]}, 2);
    fg_node_set_word(m, dx, "layout", fg_node_attr(node, "layout")->word);
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
}

static void add_linear_dw(FgGradCx *cx, const FgNode *node, uint32_t dy)
{
    FgModule *m = cx->build.module;
    uint32_t w = node->operands[1];
    FgNode *dw = fg_node_new(&cx->build, FG_OP_linear_dw, (uint32_t[]){node->operands[0], dy}, 2);
    fg_node_set_word(m, dw, "layout", fg_node_attr(node, "layout")->word);
    fg_ops_set_to(cx, dw, w);
    fg_grad_add(cx, w, fg_node_finish(&cx->build, dw, fg_ops_grad_hint(cx, w)));
}

bool fg_grad_linear(FgGradCx *cx, const FgNode *node)
{
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    if (fg_grad_wanted(cx, node->operands[0]))
        add_linear_dx(cx, node, dy);
    if (fg_grad_wanted(cx, node->operands[1]))
        add_linear_dw(cx, node, dy);
    if (fg_ops_has(node, 2) && fg_grad_wanted(cx, node->operands[2])) {
        uint32_t b = node->operands[2];
        FgNode *db = fg_node_new(&cx->build, FG_OP_column_sum, &dy, 1);
        fg_ops_set_to(cx, db, b);
        fg_grad_add(cx, b, fg_node_finish(&cx->build, db, fg_ops_grad_hint(cx, b)));
    }
    if (fg_ops_has(node, 3))
        fg_grad_add(cx, node->operands[3], dy);
    return true;
}

static void add_matmul(FgGradCx *cx, uint32_t value, uint32_t a, bool ta, uint32_t b, bool tb)
{
    FgModule *m = cx->build.module;
    FgNode *node = fg_node_new(&cx->build, FG_OP_matmul, (uint32_t[]){a, b}, 2);
    fg_node_set_int(m, node, "ta", ta);
    fg_node_set_int(m, node, "tb", tb);
    fg_grad_add(cx, value, fg_node_finish(&cx->build, node, fg_ops_grad_hint(cx, value)));
}

/* Y = A B: dA = dY B', dB = A' dY; a transposed operand takes the transpose of its gradient. */
bool fg_grad_matmul(FgGradCx *cx, const FgNode *node)
{
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    uint32_t a = node->operands[0], b = node->operands[1];
    bool ta = transposes(node, "ta"), tb = transposes(node, "tb");
    if (fg_grad_wanted(cx, a)) {
        if (ta)
            add_matmul(cx, a, b, tb, dy, true);
        else
            add_matmul(cx, a, dy, false, b, !tb);
    }
    if (fg_grad_wanted(cx, b)) {
        if (tb)
            add_matmul(cx, b, dy, true, a, ta);
        else
            add_matmul(cx, b, a, !ta, dy, false);
    }
    return true;
}

/* ---- costs ---- */

static double bytes_of(const FgModule *m, const FgNode *node, bool results)
{
    double bytes = 0;
    for (uint32_t i = 0; i < (results ? node->n_results : node->n_operands); i++) {
        uint32_t id = results ? node->results[i] : node->operands[i];
        bytes += id == FG_NO_ID ? 0 : (double)fg_type_bytes(m->values.data[id].type);
    }
    return bytes;
}

static void dense_cost(const FgModule *m, const FgNode *node, double products, FgCost *cost)
{
    *cost = (FgCost){.matmul_flops = 2 * products,
                     .read_bytes = bytes_of(m, node, false),
                     .write_bytes = bytes_of(m, node, true)};
}

void fg_cost_linear(const FgModule *m, const FgNode *node, FgCost *cost)
{
    const FgType *y = fg_ops_out(m, node, 0);
    double in = (double)fg_type_cols(fg_ops_in(m, node, 0));
    dense_cost(m, node, (double)fg_type_elements(y) * in, cost);
    for (uint32_t added = 2; added < 4; added++) /* bias and plus */
        if (fg_ops_has(node, added))
            cost->vector_flops += (double)fg_type_elements(y);
}

void fg_cost_linear_dx(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double in = (double)fg_type_cols(fg_ops_out(m, node, 0));
    dense_cost(m, node, (double)fg_type_elements(fg_ops_in(m, node, 0)) * in, cost);
    if (fg_ops_has(node, 2))
        cost->vector_flops = (double)fg_type_elements(fg_ops_out(m, node, 0));
}

void fg_cost_linear_dw(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double in = (double)fg_type_cols(fg_ops_in(m, node, 0));
    dense_cost(m, node, (double)fg_type_elements(fg_ops_in(m, node, 1)) * in, cost);
    if (fg_node_attr(node, "accumulate")->i)
        cost->read_bytes += (double)fg_type_bytes(fg_ops_out(m, node, 0));
}

void fg_cost_matmul(const FgModule *m, const FgNode *node, FgCost *cost)
{
    const FgType *a = fg_ops_in(m, node, 0);
    double inner = (double)a->dims[a->rank - (transposes(node, "ta") ? 2 : 1)];
    dense_cost(m, node, (double)fg_type_elements(fg_ops_out(m, node, 0)) * inner, cost);
}
