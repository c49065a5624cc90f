/* Attention with rotary positions.
 *
 * Query i stands at position i + seq_k - seq_q and sees key j when j is not later (causal) and
 * nearer than the window (window > 0). Costs count the pairs that are seen, in closed form. */
#include "ir/ops/ops_util.h"

#include <string.h>

/* ---- rope ---- */

bool fg_infer_rope_table(FgModule *m, const FgNode *node, const FgType **types)
{
    int64_t dims[] = {2, fg_node_attr(node, "seq")->i, fg_node_attr(node, "half")->i};
    if (dims[1] < 1 || dims[2] < 1)
        return fg_ops_error(m, node, "seq is %lld and half is %lld, both must be at least 1",
                            (long long)dims[1], (long long)dims[2]);
    if (!(fg_node_attr(node, "theta")->f > 0))
        return fg_ops_error(m, node, "theta is %g, it must be positive",
                            fg_node_attr(node, "theta")->f);
    types[0] = fg_ops_type(m, node, FG_F32, 3, dims);
    return types[0] != NULL;
}

bool fg_infer_rope(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!fg_ops_need_float(m, node, 0) || !fg_ops_need_dtype(m, node, 1, FG_F32))
        return false;
    const FgType *x = fg_ops_in(m, node, 0), *table = fg_ops_in(m, node, 1);
    if (x->rank != 4)
        return fg_ops_error(m, node, "x is %s, it must be [batch, seq, heads, dim]",
                            fg_ops_text(m, x));
    if (table->rank != 3 || table->dims[0] != 2 || table->dims[1] != x->dims[1] ||
        2 * table->dims[2] > x->dims[3]) {
        fg_ops_error(m, node, "table is %s and x is %s, the table must be [2, %lld, at most %lld]",
                     fg_ops_text(m, table), fg_ops_text(m, x), (long long)x->dims[1],
                     (long long)(x->dims[3] / 2));
        fg_diag_note(m->diags, FG_NOWHERE,
                     "x is [batch, seq, heads, dim]; the table's last "
                     "dimension is half of what is rotated");
        return false;
    }
    types[0] = x;
    return true;
}

bool fg_grad_rope(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t x = node->operands[0], table = node->operands[1];
    uint32_t dy = fg_grad_of(cx, node->results[0]);
    if (fg_grad_wanted(cx, table))
        return fg_ops_no_gradient(cx, node, "operand table");
    FgNode *dx = fg_node_new(&cx->build, FG_OP_rope, (uint32_t[]){dy, table}, 2);
    fg_node_set_int(m, dx, "inverse", !fg_node_attr(node, "inverse")->i);
    fg_grad_add(cx, x, fg_node_finish(&cx->build, dx, fg_ops_grad_hint(cx, x)));
    return true;
}

/* ---- attention ---- */

/* Shapes of q, k, v alone. */
static bool need_qkv(FgModule *m, const FgNode *node)
{
    if (!fg_ops_need_float(m, node, 0) ||
        !fg_ops_need_dtype(m, node, 1, fg_ops_in(m, node, 0)->dtype))
        return false;
    const FgType *q = fg_ops_in(m, node, 0), *k = fg_ops_in(m, node, 1);
    if (q->rank != 4 || k->rank != 4)
        return fg_ops_error(m, node, "q is %s and k is %s, both must be [batch, seq, heads, dim]",
                            fg_ops_text(m, q), fg_ops_text(m, k));
    if (!fg_ops_need_type(m, node, 2, k))
        return false;
    if (q->dims[0] != k->dims[0] || q->dims[3] != k->dims[3])
        return fg_ops_error(m, node, "q is %s and k is %s, batch and dim must be equal",
                            fg_ops_text(m, q), fg_ops_text(m, k));
    if (q->dims[2] % k->dims[2] != 0)
        return fg_ops_error(m, node,
                            "q is %s and k is %s, the %lld query heads must be a multiple of the "
                            "%lld key heads",
                            fg_ops_text(m, q), fg_ops_text(m, k), (long long)q->dims[2],
                            (long long)k->dims[2]);
    if (fg_node_attr(node, "window")->i < 0)
        return fg_ops_error(m, node, "window is %lld, it must not be negative (0 is none)",
                            (long long)fg_node_attr(node, "window")->i);
    return true;
}

static const FgType *lse_type(FgModule *m, const FgNode *node)
{
    const FgType *q = fg_ops_in(m, node, 0);
    return fg_ops_type(m, node, FG_F32, 3, (int64_t[]){q->dims[0], q->dims[2], q->dims[1]});
}

bool fg_infer_attention(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!need_qkv(m, node))
        return false;
    types[0] = fg_ops_in(m, node, 0);
    types[1] = lse_type(m, node);
    return types[1] != NULL;
}

bool fg_infer_attention_back(FgModule *m, const FgNode *node, const FgType **types)
{
    if (!need_qkv(m, node))
        return false;
    const FgType *q = fg_ops_in(m, node, 0), *lse = lse_type(m, node);
    if (!lse || !fg_ops_need_type(m, node, 3, q) || !fg_ops_need_type(m, node, 4, lse) ||
        !fg_ops_need_type(m, node, 5, q))
        return false;
    types[0] = q;
    types[1] = types[2] = fg_ops_in(m, node, 1);
    return true;
}

bool fg_grad_attention(FgGradCx *cx, const FgNode *node)
{
    FgModule *m = cx->build.module;
    uint32_t o = node->results[0], lse = node->results[1], d = fg_grad_of(cx, o);
    if (fg_grad_of(cx, lse) != FG_NO_ID)
        return fg_ops_no_gradient(cx, node, "result lse");
    const uint32_t *in = node->operands;
    FgNode *back = fg_node_new(&cx->build, FG_OP_attention_back,
                               (uint32_t[]){in[0], in[1], in[2], o, lse, d}, 6);
    fg_node_set_int(m, back, "causal", fg_node_attr(node, "causal")->i);
    fg_node_set_int(m, back, "window", fg_node_attr(node, "window")->i);
    fg_node_set_float(m, back, "scale", fg_node_attr(node, "scale")->f);
    uint32_t id = back->id;
    fg_node_finish(&cx->build, back, fg_ops_grad_hint(cx, in[0]));
    for (uint32_t i = 0; i < 3; i++) {
        fg_value(m, fg_node(m, id)->results[i])->name = fg_ops_grad_hint(cx, in[i]);
        fg_grad_add(cx, in[i], fg_node(m, id)->results[i]);
    }
    return true;
}

/* ---- costs ---- */

static double triangle(int64_t n)
{
    return n > 0 ? (double)n * (double)(n + 1) / 2 : 0;
}

/* Pairs of a query and a key that it sees, one head. Positions p run over [seq_k - seq_q, seq_k);
 * causality leaves p + 1 keys, the window hides the first p + 1 - window. */
static double seen_pairs(int64_t seq_q, int64_t seq_k, bool causal, int64_t window)
{
    int64_t first = seq_k - seq_q;
    double pairs = causal ? triangle(seq_k) - triangle(first) : (double)seq_q * (double)seq_k;
    if (window > 0)
        pairs -= triangle(seq_k - window) - triangle(first - window);
    return pairs;
}

/* `products`: matrix products over the seen pairs; each pair also takes a few operations of
 * softmax. */
static void attention_cost(const FgModule *m, const FgNode *node, double products, FgCost *cost)
{
    const FgType *q = fg_ops_in(m, node, 0), *k = fg_ops_in(m, node, 1);
    double pairs = seen_pairs(q->dims[1], k->dims[1], fg_node_attr(node, "causal")->i != 0,
                              fg_node_attr(node, "window")->i) *
                   (double)q->dims[0] * (double)q->dims[2];
    *cost = (FgCost){.matmul_flops = 2 * products * pairs * (double)q->dims[3],
                     .vector_flops = 5 * pairs};
    for (uint32_t i = 0; i < node->n_operands; i++)
        cost->read_bytes += (double)fg_type_bytes(fg_ops_in(m, node, i));
    for (uint32_t i = 0; i < node->n_results; i++)
        cost->write_bytes += (double)fg_type_bytes(fg_ops_out(m, node, i));
}

void fg_cost_attention(const FgModule *m, const FgNode *node, FgCost *cost)
{
    attention_cost(m, node, 2, cost); /* q k', p v */
}

void fg_cost_attention_back(const FgModule *m, const FgNode *node, FgCost *cost)
{
    attention_cost(m, node, 5, cost); /* q k' again, dv, dp, dq, dk */
}
