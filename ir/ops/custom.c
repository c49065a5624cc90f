/* Functions of the user's own (docs/custom-kernels.md).
 *
 * A node carries all that the compiler knows of its function: where it is, what it makes (element
 * types and shapes), what it costs, and which function is its gradient. Whether that is what the
 * source file says was checked when the model was read; `digest` is the hash of the text that was
 * read then. The gradient is a custom node too: it takes some of the function's operands, of its
 * results and of the gradients of its results, and makes gradients of some of the operands.
 *
 * `takes` counts through operands, results, gradients of results, in this order; `returns` counts
 * operands. */
#include "ir/ops/ops_util.h"

#include <string.h>

/* The next word of a list of dtypes; false at its end or at what is no dtype. */
static bool next_dtype(const char **words, FgDtype *out)
{
    size_t n = strcspn(*words, " ");
    char word[8] = "";
    if (n == 0 || n >= sizeof word)
        return false;
    memcpy(word, *words, n);
    *words += n;
    *words += strspn(*words, " ");
    return fg_dtype_parse(word, out);
}

static bool indices_fit(const FgModule *m, const FgNode *node, const char *attr, uint32_t n)
{
    const FgAttr *list = fg_node_attr(node, attr);
    for (uint32_t i = 0; i < list->n_ints; i++) {
        if (list->ints[i] < 0 || list->ints[i] >= (int64_t)n)
            return fg_ops_error(m, node, "entry %u of %s is %lld, it must be below %u", i, attr,
                                (long long)list->ints[i], n);
    }
    return true;
}

/* Shapes are [rank, dims..., rank, dims...], one a result. */
bool fg_infer_custom(FgModule *m, const FgNode *node, const FgType **types)
{
    const FgAttr *shapes = fg_node_attr(node, "shapes");
    const char *words = fg_node_attr(node, "dtypes")->word;
    uint32_t n = fg_node_results(node), at = 0;
    if (n == 0)
        return fg_ops_error(m, node, "it makes nothing");
    for (uint32_t i = 0; i < node->n_operands; i++) {
        if (!fg_ops_has(node, i))
            return fg_ops_error(m, node, "operand %u is left out", i);
    }
    for (uint32_t i = 0; i < n; i++) {
        FgDtype dtype;
        int64_t rank = at < shapes->n_ints ? shapes->ints[at] : -1;
        if (!next_dtype(&words, &dtype))
            return fg_ops_error(m, node, "'%s' are no element types",
                                fg_node_attr(node, "dtypes")->word);
        if (rank < 0 || rank > (int64_t)shapes->n_ints - at - 1)
            return fg_ops_error(m, node,
                                "shapes must hold a rank and its dims for each of %u "
                                "results",
                                n);
        types[i] = fg_ops_type(m, node, dtype, (uint32_t)rank, shapes->ints + at + 1);
        if (!types[i])
            return false;
        at += 1 + (uint32_t)rank;
    }
    if (at != shapes->n_ints)
        return fg_ops_error(m, node, "shapes must hold a rank and its dims for each of %u results",
                            n);
    return indices_fit(m, node, "takes", node->n_operands + 2 * n) &&
           indices_fit(m, node, "returns", node->n_operands);
}

/* Without a figure for the bytes: each operand and each result once. */
void fg_cost_custom(const FgModule *m, const FgNode *node, FgCost *cost)
{
    double bytes = fg_node_attr(node, "bytes")->f;
    fg_cost_elementwise(m, node, cost);
    cost->vector_flops = fg_node_attr(node, "flops")->f;
    if (bytes > 0) {
        cost->write_bytes = bytes < cost->write_bytes ? bytes : cost->write_bytes;
        cost->read_bytes = bytes - cost->write_bytes;
    }
}

/* ---- the gradient ---- */

/* The gradient of a result; zeros where none reached it. */
static uint32_t grad_or_zeros(FgGradCx *cx, uint32_t result)
{
    FgModule *m = cx->build.module;
    uint32_t grad = fg_grad_of(cx, result);
    if (grad != FG_NO_ID)
        return grad;
    const FgType *type = fg_value(m, result)->type;
    FgNode *zeros = fg_node_new(&cx->build, FG_OP_full, NULL, 0);
    fg_node_set_ints(m, zeros, "shape", type->dims, type->rank);
    fg_node_set_float(m, zeros, "value", 0);
    fg_node_set_word(m, zeros, "dtype", fg_dtype_name(type->dtype));
    return fg_node_finish(&cx->build, zeros, fg_ops_grad_hint(cx, result));
}

static const uint32_t *taken(FgGradCx *cx, const FgNode *node)
{
    const FgAttr *takes = fg_node_attr(node, "takes");
    uint32_t *values = FG_NEW_ARRAY(cx->build.module->arena, uint32_t, takes->n_ints + 1);
    uint32_t n = node->n_operands, results = node->n_results;
    for (uint32_t i = 0; i < takes->n_ints; i++) {
        uint32_t k = (uint32_t)takes->ints[i];
        values[i] = k < n             ? node->operands[k]
                    : k < n + results ? node->results[k - n]
                                      : grad_or_zeros(cx, node->results[k - n - results]);
    }
    return values;
}

static bool returns_all_wanted(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    const FgAttr *returns = fg_node_attr(node, "returns");
    for (uint32_t i = 0; i < node->n_operands; i++) {
        bool returned = !fg_grad_wanted(cx, node->operands[i]);
        for (uint32_t k = 0; k < returns->n_ints && !returned; k++)
            returned = returns->ints[k] == i;
        if (returned)
            continue;
        fg_diag(m->diags, node->loc, FG_D_NO_GRADIENT,
                "the gradient function '%s' of '%s' returns no gradient for input %u ('%s')",
                fg_node_attr(node, "gradient")->word, fg_node_attr(node, "function")->word, i,
                fg_value(m, node->operands[i])->name);
        fg_diag_note(m->diags, FG_NOWHERE,
                     "\"returns\" of \"gradient\" names the inputs whose "
                     "gradients the function makes");
        return false;
    }
    return true;
}

/* Shapes and dtypes of the gradients: those of the operands. */
static void set_results(FgGradCx *cx, const FgNode *node, FgNode *back)
{
    FgModule *m = cx->build.module;
    const FgAttr *returns = fg_node_attr(node, "returns");
    FG_VEC(int64_t) shapes = {0};
    FgBuf dtypes;
    fg_buf_init(&dtypes, m->arena);
    for (uint32_t i = 0; i < returns->n_ints; i++) {
        const FgType *type = fg_ops_in(m, node, (uint32_t)returns->ints[i]);
        fg_buf_printf(&dtypes, "%s%s", i ? " " : "", fg_dtype_name(type->dtype));
        fg_vec_push(m->arena, &shapes, (int64_t)type->rank);
        for (uint32_t d = 0; d < type->rank; d++)
            fg_vec_push(m->arena, &shapes, type->dims[d]);
    }
    fg_node_set_word(m, back, "dtypes", fg_buf_text(&dtypes));
    fg_node_set_ints(m, back, "shapes", shapes.data, shapes.len);
}

static bool has_gradient(FgGradCx *cx, const FgNode *node)
{
    FgDiags *diags = cx->build.module->diags;
    if (*fg_node_attr(node, "gradient")->word)
        return true;
    fg_diag(diags, node->loc, FG_D_NO_GRADIENT,
            "the custom function '%s' has no gradient function, and what is trained depends on it",
            fg_node_attr(node, "function")->word);
    fg_diag_note(diags, FG_NOWHERE,
                 "give the node a \"gradient\": {\"function\": ..., \"takes\": [...], "
                 "\"returns\": [...]}");
    return false;
}

bool fg_grad_custom(FgGradCx *cx, const FgNode *node)
{
    static const char *const same[] = {"source", "cuda"}, *const digests[] = {"digest",
                                                                              "cuda_digest"};
    FgModule *m = cx->build.module;
    if (!has_gradient(cx, node) || !returns_all_wanted(cx, node))
        return false;
    const FgAttr *takes = fg_node_attr(node, "takes"), *returns = fg_node_attr(node, "returns");
    const uint32_t *in = taken(cx, node);
    FgNode *back = fg_node_new(&cx->build, FG_OP_custom, in, takes->n_ints);
    fg_node_set_word(m, back, "function", fg_node_attr(node, "gradient")->word);
    for (uint32_t i = 0; i < 2; i++) {
        fg_node_set_word(m, back, same[i], fg_node_attr(node, same[i])->word);
        fg_node_set_int(m, back, digests[i], fg_node_attr(node, digests[i])->i);
    }
    fg_node_set_float(m, back, "flops", fg_node_attr(node, "gradient_flops")->f);
    fg_node_set_float(m, back, "bytes", fg_node_attr(node, "gradient_bytes")->f);
    set_results(cx, node, back);
    uint32_t back_id = back->id;
    if (fg_node_finish(&cx->build, back, "d") == FG_NO_ID)
        return false;
    for (uint32_t i = 0; i < returns->n_ints; i++) {
        uint32_t operand = node->operands[returns->ints[i]];
        uint32_t grad = fg_node(m, back_id)->results[i];
        fg_value(m, grad)->name = fg_ops_grad_hint(cx, operand);
        fg_grad_add(cx, operand, grad);
    }
    return true;
}
