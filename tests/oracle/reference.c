/* From nodes to formulas: shapes and attributes become sizes, one small function an op. */
#include "tests/oracle/reference.h"

#include "ir/op_table.h"
#include "tests/oracle/formulas.h"

#include <string.h>

typedef struct Eval {
    const FgModule *m;
    const FgNode *n;
    const double *const *in;
    double *const *out;
} Eval;

typedef void EvalFn(const Eval *e);

static const FgType *in_type(const Eval *e, uint32_t i)
{
    return e->m->values.data[e->n->operands[i]].type;
}

static const FgType *out_type(const Eval *e, uint32_t i)
{
    return e->m->values.data[e->n->results[i]].type;
}

static const double *optional(const Eval *e, uint32_t i)
{
    return i < e->n->n_operands ? e->in[i] : NULL;
}

static int64_t integer(const Eval *e, const char *attr)
{
    return fg_node_attr(e->n, attr)->i;
}

static double real(const Eval *e, const char *attr)
{
    return fg_node_attr(e->n, attr)->f;
}

static bool word_is(const Eval *e, const char *attr, const char *word)
{
    return strcmp(fg_node_attr(e->n, attr)->word, word) == 0;
}

/* Product of dims [from, to). */
static int64_t extent(const FgType *type, int64_t from, int64_t to)
{
    int64_t product = 1;
    for (int64_t i = from; i < to; i++)
        product *= type->dims[i];
    return product;
}

static int64_t rows_of(const FgType *type)
{
    return type->rank ? extent(type, 0, (int64_t)type->rank - 1) : 1;
}

static int64_t cols_of(const FgType *type)
{
    return type->rank ? type->dims[type->rank - 1] : 1;
}

static int64_t size_of(const FgType *type)
{
    return extent(type, 0, (int64_t)type->rank);
}

static int64_t axis_of(const Eval *e, int64_t axis, const FgType *type)
{
    (void)e;
    return axis < 0 ? axis + (int64_t)type->rank : axis;
}

/* ---- dense ---- */

/* Adds operand `i` to the result, where it is given. */
static void add_plus(const Eval *e, uint32_t i)
{
    const double *plus = optional(e, i);
    for (int64_t k = 0; plus && k < size_of(out_type(e, 0)); k++)
        e->out[0][k] += plus[k];
}

static void eval_linear(const Eval *e)
{
    ref_linear(e->in[0], e->in[1], optional(e, 2), e->out[0], rows_of(out_type(e, 0)),
               cols_of(out_type(e, 0)), cols_of(in_type(e, 0)), word_is(e, "layout", "in_out"));
    add_plus(e, 3);
}

static void eval_linear_dx(const Eval *e)
{
    ref_linear_dx(e->in[0], e->in[1], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                  cols_of(out_type(e, 0)), word_is(e, "layout", "in_out"));
    add_plus(e, 2);
}

static void eval_linear_dw(const Eval *e)
{
    ref_linear_dw(e->in[0], e->in[1], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 1)),
                  cols_of(in_type(e, 0)), word_is(e, "layout", "in_out"));
}

static void eval_column_sum(const Eval *e)
{
    ref_column_sum(e->in[0], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)));
}

static void eval_matmul(const Eval *e)
{
    const FgType *a = in_type(e, 0), *y = out_type(e, 0);
    int64_t lead = (int64_t)y->rank - 2;
    bool ta = integer(e, "ta") != 0;
    ref_matmul(e->in[0], e->in[1], e->out[0], extent(y, 0, lead), y->dims[lead], y->dims[lead + 1],
               a->dims[ta ? lead : lead + 1], ta, integer(e, "tb") != 0);
}

/* ---- lookup and norms ---- */

static void eval_embedding(const Eval *e)
{
    ref_embedding(e->in[0], e->in[1], e->out[0], size_of(in_type(e, 0)), cols_of(in_type(e, 1)));
}

static void eval_embedding_dw(const Eval *e)
{
    ref_embedding_dw(e->in[0], e->in[1], e->out[0], size_of(in_type(e, 0)), cols_of(in_type(e, 1)),
                     integer(e, "vocab"), integer(e, "padding_idx"));
}

static void eval_rmsnorm(const Eval *e)
{
    ref_rmsnorm(e->in[0], e->in[1], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                real(e, "eps"));
}

static void eval_rmsnorm_dx(const Eval *e)
{
    ref_rmsnorm_dx(e->in[0], e->in[1], e->in[2], e->out[0], rows_of(in_type(e, 0)),
                   cols_of(in_type(e, 0)), real(e, "eps"));
    add_plus(e, 3);
}

static void eval_rmsnorm_dw(const Eval *e)
{
    ref_rmsnorm_dw(e->in[0], e->in[1], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                   real(e, "eps"));
}

static void eval_rmsnorm_back(const Eval *e)
{
    eval_rmsnorm_dx(e);
    ref_rmsnorm_dw(e->in[0], e->in[2], e->out[1], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                   real(e, "eps"));
}

static void eval_layernorm(const Eval *e)
{
    ref_layernorm(e->in[0], e->in[1], optional(e, 2), e->out[0], rows_of(in_type(e, 0)),
                  cols_of(in_type(e, 0)), real(e, "eps"));
}

static void eval_layernorm_dx(const Eval *e)
{
    ref_layernorm_dx(e->in[0], e->in[1], e->in[2], e->out[0], rows_of(in_type(e, 0)),
                     cols_of(in_type(e, 0)), real(e, "eps"));
    add_plus(e, 3);
}

static void eval_layernorm_dw(const Eval *e)
{
    ref_layernorm_dw(e->in[0], e->in[1], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                     real(e, "eps"));
}

static void eval_layernorm_back(const Eval *e)
{
    eval_layernorm_dx(e);
    ref_layernorm_dw(e->in[0], e->in[2], e->out[1], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                     real(e, "eps"));
}

/* ---- attention ---- */

static void eval_rope_table(const Eval *e)
{
    ref_rope_table(e->out[0], integer(e, "seq"), integer(e, "half"), real(e, "theta"),
                   real(e, "factor"), real(e, "low"), real(e, "high"), real(e, "original"));
}

static void eval_rope(const Eval *e)
{
    const int64_t *x = in_type(e, 0)->dims;
    ref_rope(e->in[0], e->in[1], e->out[0], x[0], x[1], x[2], x[3], in_type(e, 1)->dims[2],
             integer(e, "inverse") != 0);
}

static RefAttention attention_of(const Eval *e)
{
    const int64_t *q = in_type(e, 0)->dims, *k = in_type(e, 1)->dims;
    return (RefAttention){q[0],
                          q[1],
                          k[1],
                          q[2],
                          k[2],
                          q[3],
                          integer(e, "causal") != 0,
                          integer(e, "window"),
                          real(e, "scale")};
}

static void eval_attention(const Eval *e)
{
    RefAttention at = attention_of(e);
    ref_attention(&at, e->in[0], e->in[1], e->in[2], e->out[0], e->out[1]);
}

static void eval_attention_back(const Eval *e)
{
    RefAttention at = attention_of(e);
    ref_attention_back(&at, e->in[0], e->in[1], e->in[2], e->in[5], e->out[0], e->out[1],
                       e->out[2]);
}

/* ---- element by element ---- */

static void map_unary(const Eval *e, double a)
{
    for (int64_t i = 0; i < size_of(in_type(e, 0)); i++)
        e->out[0][i] = ref_unary(fg_op_info(e->n->op)->name, e->in[0][i], a);
}

static void eval_unary(const Eval *e)
{
    map_unary(e, 0);
}

static void eval_scale(const Eval *e)
{
    map_unary(e, real(e, "factor"));
}

static void eval_add_scalar(const Eval *e)
{
    map_unary(e, real(e, "value"));
}

static void eval_pow(const Eval *e)
{
    map_unary(e, real(e, "exponent"));
}

static void eval_unary_back(const Eval *e)
{
    const char *kind = fg_node_attr(e->n, "kind")->word;
    for (int64_t i = 0; i < size_of(in_type(e, 0)); i++)
        e->out[0][i] = e->in[1][i] * ref_unary_slope(kind, e->in[0][i], real(e, "a"));
}

static void eval_gated(const Eval *e)
{
    const char *kind = fg_node_attr(e->n, "kind")->word;
    for (int64_t i = 0; i < size_of(in_type(e, 0)); i++)
        e->out[0][i] = ref_unary(kind, e->in[0][i], 0) * e->in[1][i];
}

static void eval_gated_back(const Eval *e)
{
    const char *kind = fg_node_attr(e->n, "kind")->word;
    for (int64_t i = 0; i < size_of(in_type(e, 0)); i++) {
        double gate = e->in[0][i], up = e->in[1][i], dy = e->in[2][i];
        e->out[0][i] = dy * up * ref_unary_slope(kind, gate, 0);
        e->out[1][i] = dy * ref_unary(kind, gate, 0);
    }
}

/* Index into a tensor that is repeated to `full`, for element i of `full`. */
static int64_t repeated_index(const FgType *type, const FgType *full, int64_t i)
{
    int64_t index = 0, step = 1;
    for (uint32_t d = 0; d < full->rank; d++) { /* from the last dimension */
        int64_t at = i % full->dims[full->rank - 1 - d];
        i /= full->dims[full->rank - 1 - d];
        if (d >= type->rank)
            continue;
        int64_t size = type->dims[type->rank - 1 - d];
        index += size == 1 ? 0 : at * step;
        step *= size;
    }
    return index;
}

static void eval_binary(const Eval *e)
{
    const FgType *y = out_type(e, 0);
    for (int64_t i = 0; i < size_of(y); i++) {
        double a = e->in[0][repeated_index(in_type(e, 0), y, i)];
        double b = e->in[1][repeated_index(in_type(e, 1), y, i)];
        e->out[0][i] = e->n->op == FG_OP_add   ? a + b
                       : e->n->op == FG_OP_sub ? a - b
                       : e->n->op == FG_OP_mul ? a * b
                                               : a / b;
    }
}

static void eval_copy(const Eval *e)
{
    memcpy(e->out[0], e->in[0], (size_t)size_of(in_type(e, 0)) * sizeof(double));
}

static void eval_full(const Eval *e)
{
    for (int64_t i = 0; i < size_of(out_type(e, 0)); i++)
        e->out[0][i] = real(e, "value");
}

/* ---- shape ---- */

static void eval_transpose(const Eval *e)
{
    const FgType *x = in_type(e, 0), *y = out_type(e, 0);
    const int64_t *perm = fg_node_attr(e->n, "perm")->ints;
    for (int64_t i = 0; i < size_of(y); i++) {
        int64_t left = i, index = 0;
        for (int64_t d = (int64_t)y->rank - 1; d >= 0; d--) {
            int64_t from = axis_of(e, perm[d], x);
            index += left % y->dims[d] * extent(x, from + 1, (int64_t)x->rank);
            left /= y->dims[d];
        }
        e->out[0][i] = e->in[0][index];
    }
}

static void eval_broadcast(const Eval *e)
{
    const FgType *y = out_type(e, 0);
    for (int64_t i = 0; i < size_of(y); i++)
        e->out[0][i] = e->in[0][repeated_index(in_type(e, 0), y, i)];
}

/* Copies `count` entries of a dimension between tensors that differ in its size only. */
static void copy_part(const double *from, const FgType *from_type, int64_t from_start, double *to,
                      const FgType *to_type, int64_t to_start, int64_t axis, int64_t count)
{
    int64_t outer = extent(to_type, 0, axis);
    int64_t inner = extent(to_type, axis + 1, (int64_t)to_type->rank);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t c = 0; c < count; c++) {
            for (int64_t i = 0; i < inner; i++)
                to[(o * to_type->dims[axis] + to_start + c) * inner + i] =
                    from[(o * from_type->dims[axis] + from_start + c) * inner + i];
        }
    }
}

static void eval_slice(const Eval *e)
{
    int64_t axis = axis_of(e, integer(e, "axis"), in_type(e, 0));
    copy_part(e->in[0], in_type(e, 0), integer(e, "start"), e->out[0], out_type(e, 0), 0, axis,
              integer(e, "count"));
}

static void eval_rows(const Eval *e)
{
    copy_part(e->in[0], in_type(e, 0), integer(e, "first"), e->out[0], out_type(e, 0), 0, 0,
              integer(e, "count"));
}

static void eval_slice_back(const Eval *e)
{
    int64_t axis = axis_of(e, integer(e, "axis"), in_type(e, 0));
    for (int64_t i = 0; i < size_of(out_type(e, 0)); i++)
        e->out[0][i] = 0;
    copy_part(e->in[0], in_type(e, 0), 0, e->out[0], out_type(e, 0), integer(e, "start"), axis,
              in_type(e, 0)->dims[axis]);
}

static void eval_concat(const Eval *e)
{
    int64_t axis = axis_of(e, integer(e, "axis"), in_type(e, 0)), start = 0;
    for (uint32_t i = 0; i < 2; i++) {
        int64_t count = in_type(e, i)->dims[axis];
        copy_part(e->in[i], in_type(e, i), 0, e->out[0], out_type(e, 0), start, axis, count);
        start += count;
    }
}

/* ---- reductions and losses ---- */

static bool is_reduced(const Eval *e, int64_t axis, const FgType *x)
{
    const FgAttr *axes = fg_node_attr(e->n, "axes");
    bool reduced = axes->n_ints == 0;
    for (uint32_t i = 0; i < axes->n_ints; i++)
        reduced |= axis_of(e, axes->ints[i], x) == axis;
    return reduced;
}

static void eval_reduce(const Eval *e)
{
    const FgType *x = in_type(e, 0), *y = out_type(e, 0);
    double share = e->n->op == FG_OP_mean ? (double)size_of(y) / (double)size_of(x) : 1;
    for (int64_t i = 0; i < size_of(y); i++)
        e->out[0][i] = 0;
    for (int64_t i = 0; i < size_of(x); i++) {
        int64_t left = i, index = 0, step = 1;
        for (int64_t d = (int64_t)x->rank - 1; d >= 0; d--) {
            if (!is_reduced(e, d, x)) {
                index += left % x->dims[d] * step;
                step *= x->dims[d];
            }
            left /= x->dims[d];
        }
        e->out[0][index] += e->in[0][i] * share;
    }
}

static void eval_softmax(const Eval *e)
{
    ref_softmax(e->in[0], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)));
}

static void eval_softmax_back(const Eval *e)
{
    ref_softmax_back(e->in[0], e->in[1], e->out[0], rows_of(in_type(e, 0)), cols_of(in_type(e, 0)));
}

static void eval_loss_seed(const Eval *e)
{
    e->out[0][0] = 1;
}

static void eval_cross_entropy(const Eval *e)
{
    const double *seed = optional(e, 2);
    ref_cross_entropy(e->in[0], e->in[1], seed ? *seed : 1, e->out[0], e->out[1],
                      rows_of(in_type(e, 0)), cols_of(in_type(e, 0)), integer(e, "ignore_index"));
}

static void eval_cross_entropy_back(const Eval *e)
{
    const double *dloss = optional(e, 4);
    ref_cross_entropy_back(e->in[0], e->in[1], *e->in[3], dloss ? *dloss : 1, e->out[0],
                           rows_of(in_type(e, 0)), cols_of(in_type(e, 0)),
                           integer(e, "ignore_index"));
}

/* The functions of the user's that tests name: y = max(g, 0)^2 u and z = g + u, and their gradient,
 * which takes g, u, dy and dz. */
static void eval_custom(const Eval *e)
{
    int64_t n = size_of(in_type(e, 0));
    bool back = word_is(e, "function", "custom_pair_back");
    for (int64_t i = 0; i < n; i++) {
        double g = e->in[0][i], u = e->in[1][i], r = g > 0 ? g : 0;
        e->out[0][i] = back ? 2 * r * u * e->in[2][i] + e->in[3][i] : r * r * u;
        e->out[1][i] = back ? r * r * e->in[2][i] + e->in[3][i] : g + u;
    }
}

static void eval_nothing(const Eval *e)
{
    (void)e;
}

/* ---- dispatch ---- */

static EvalFn *const evals[FG_N_OPS] = {
    [FG_OP_linear] = eval_linear,
    [FG_OP_linear_dx] = eval_linear_dx,
    [FG_OP_linear_dw] = eval_linear_dw,
    [FG_OP_column_sum] = eval_column_sum,
    [FG_OP_matmul] = eval_matmul,
    [FG_OP_embedding] = eval_embedding,
    [FG_OP_embedding_dw] = eval_embedding_dw,
    [FG_OP_rmsnorm] = eval_rmsnorm,
    [FG_OP_rmsnorm_dx] = eval_rmsnorm_dx,
    [FG_OP_rmsnorm_dw] = eval_rmsnorm_dw,
    [FG_OP_rmsnorm_back] = eval_rmsnorm_back,
    [FG_OP_layernorm] = eval_layernorm,
    [FG_OP_layernorm_dx] = eval_layernorm_dx,
    [FG_OP_layernorm_dw] = eval_layernorm_dw,
    [FG_OP_layernorm_back] = eval_layernorm_back,
    [FG_OP_rope_table] = eval_rope_table,
    [FG_OP_rope] = eval_rope,
    [FG_OP_attention] = eval_attention,
    [FG_OP_attention_back] = eval_attention_back,
    [FG_OP_neg] = eval_unary,
    [FG_OP_exp] = eval_unary,
    [FG_OP_log] = eval_unary,
    [FG_OP_sqrt] = eval_unary,
    [FG_OP_rsqrt] = eval_unary,
    [FG_OP_tanh] = eval_unary,
    [FG_OP_sigmoid] = eval_unary,
    [FG_OP_relu] = eval_unary,
    [FG_OP_silu] = eval_unary,
    [FG_OP_gelu] = eval_unary,
    [FG_OP_gelu_tanh] = eval_unary,
    [FG_OP_scale] = eval_scale,
    [FG_OP_add_scalar] = eval_add_scalar,
    [FG_OP_pow] = eval_pow,
    [FG_OP_unary_back] = eval_unary_back,
    [FG_OP_gated] = eval_gated,
    [FG_OP_gated_back] = eval_gated_back,
    [FG_OP_add] = eval_binary,
    [FG_OP_sub] = eval_binary,
    [FG_OP_mul] = eval_binary,
    [FG_OP_div] = eval_binary,
    [FG_OP_cast] = eval_copy,
    [FG_OP_full] = eval_full,
    [FG_OP_reshape] = eval_copy,
    [FG_OP_transpose] = eval_transpose,
    [FG_OP_broadcast] = eval_broadcast,
    [FG_OP_rows] = eval_rows,
    [FG_OP_slice] = eval_slice,
    [FG_OP_slice_back] = eval_slice_back,
    [FG_OP_concat] = eval_concat,
    [FG_OP_sum] = eval_reduce,
    [FG_OP_mean] = eval_reduce,
    [FG_OP_softmax] = eval_softmax,
    [FG_OP_softmax_back] = eval_softmax_back,
    [FG_OP_loss_seed] = eval_loss_seed,
    [FG_OP_cross_entropy] = eval_cross_entropy,
    [FG_OP_cross_entropy_back] = eval_cross_entropy_back,
    [FG_OP_custom] = eval_custom,
    [FG_OP_grad] = eval_nothing,
};

/* `accumulate` means the last result of a node. */
static bool accumulates(const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        if (strcmp(info->attrs[i].name, "accumulate") == 0)
            return node->attrs[i].i != 0;
    }
    return false;
}

bool ref_eval_node(const FgModule *module, const FgNode *node, const double *const *operands,
                   double *const *results)
{
    Eval e = {module, node, operands, results};
    if (!evals[node->op])
        return false;
    if (!accumulates(node)) {
        evals[node->op](&e);
        return true;
    }
    FgArena *arena = fg_arena_new();
    uint32_t last = node->n_results - 1;
    int64_t n = size_of(out_type(&e, last));
    double *old = FG_NEW_ARRAY(arena, double, (size_t)n);
    memcpy(old, results[last], (size_t)n * sizeof *old);
    evals[node->op](&e);
    for (int64_t i = 0; i < n; i++)
        results[last][i] += old[i];
    fg_arena_free(arena);
    return true;
}
