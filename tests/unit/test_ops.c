/* The op table and the functions it names: every row is complete, inference gives the types written
 * here by hand and refuses what does not go together, costs count what they say. */
#include "ir/op_fns.h"
#include "tests/unit/graph.h"
#include "tests/unit/unit.h"

/* Operands and results: a type each; '-' stands for an omitted operand. */
typedef struct Case {
    FgOp op;
    const char *operands, *attrs;
    const char *results; /* or, in `refused`, a part of the message */
} Case;

static const Case inferred[] = {
    {FG_OP_linear, "f32[4, 6, 8] f32[5, 8]", "", "f32[4, 6, 5]"},
    {FG_OP_linear, "bf16[8] bf16[8, 5] bf16[5]", "layout=in_out", "bf16[5]"},
    {FG_OP_linear, "f32[4, 8] f32[5, 8] - f32[4, 5]", "", "f32[4, 5]"},
    {FG_OP_linear_dx, "f32[4, 6, 5] f32[5, 8]", "", "f32[4, 6, 8]"},
    {FG_OP_linear_dx, "f32[6, 5] f32[5, 8] f32[6, 8]", "", "f32[6, 8]"},
    {FG_OP_linear_dx, "f32[4, 5] f32[8, 5]", "layout=in_out", "f32[4, 8]"},
    {FG_OP_linear_dw, "bf16[4, 6, 8] bf16[4, 6, 5]", "", "bf16[5, 8]"},
    {FG_OP_linear_dw, "bf16[4, 8] bf16[4, 5]", "layout=in_out to=f32", "f32[8, 5]"},
    {FG_OP_column_sum, "bf16[4, 6, 8]", "to=f32", "f32[8]"},
    {FG_OP_matmul, "f32[2, 3, 4] f32[2, 4, 5]", "", "f32[2, 3, 5]"},
    {FG_OP_matmul, "f32[4, 3] f32[5, 4]", "ta=1 tb=1", "f32[3, 5]"},
    {FG_OP_embedding, "i32[2, 3] bf16[10, 4]", "padding_idx=9", "bf16[2, 3, 4]"},
    {FG_OP_embedding_dw, "i32[2, 3] bf16[2, 3, 4]", "vocab=10 to=f32", "f32[10, 4]"},
    {FG_OP_rmsnorm, "f32[2, 3, 4] f32[4]", "", "f32[2, 3, 4]"},
    {FG_OP_rmsnorm_dx, "f32[3, 4] f32[4] f32[3, 4]", "", "f32[3, 4]"},
    {FG_OP_rmsnorm_dw, "bf16[3, 4] bf16[3, 4]", "to=f32", "f32[4]"},
    {FG_OP_rmsnorm_back, "bf16[3, 4] bf16[4] bf16[3, 4]", "to=f32", "bf16[3, 4] f32[4]"},
    {FG_OP_rmsnorm_back, "f32[3, 4] f32[4] f32[3, 4] f32[3, 4]", "accumulate=1",
     "f32[3, 4] f32[4]"},
    {FG_OP_layernorm, "f32[3, 4] f32[4] f32[4]", "", "f32[3, 4]"},
    {FG_OP_layernorm, "f32[3, 4] f32[4] -", "", "f32[3, 4]"},
    {FG_OP_layernorm_dx, "f32[3, 4] f32[4] f32[3, 4]", "", "f32[3, 4]"},
    {FG_OP_layernorm_dx, "f32[3, 4] f32[4] f32[3, 4] f32[3, 4]", "", "f32[3, 4]"},
    {FG_OP_layernorm_dw, "f32[3, 4] f32[3, 4]", "", "f32[4]"},
    {FG_OP_layernorm_back, "f32[3, 4] f32[4] f32[3, 4]", "", "f32[3, 4] f32[4]"},
    {FG_OP_rope_table, "", "seq=7 half=3", "f32[2, 7, 3]"},
    {FG_OP_rope, "bf16[2, 7, 3, 6] f32[2, 7, 3]", "", "bf16[2, 7, 3, 6]"},
    {FG_OP_rope, "f32[2, 7, 3, 8] f32[2, 7, 3]", "", "f32[2, 7, 3, 8]"},
    {FG_OP_attention, "bf16[2, 5, 4, 8] bf16[2, 7, 2, 8] bf16[2, 7, 2, 8]", "",
     "bf16[2, 5, 4, 8] f32[2, 4, 5]"},
    {FG_OP_attention_back,
     "f32[2, 5, 4, 8] f32[2, 7, 2, 8] f32[2, 7, 2, 8] f32[2, 5, 4, 8] f32[2, 4, 5] f32[2, 5, 4, 8]",
     "", "f32[2, 5, 4, 8] f32[2, 7, 2, 8] f32[2, 7, 2, 8]"},
    {FG_OP_neg, "f32[2]", "", "f32[2]"},
    {FG_OP_exp, "f32[]", "", "f32[]"},
    {FG_OP_log, "f32[2]", "", "f32[2]"},
    {FG_OP_sqrt, "f32[2]", "", "f32[2]"},
    {FG_OP_rsqrt, "f32[2]", "", "f32[2]"},
    {FG_OP_tanh, "f32[2]", "", "f32[2]"},
    {FG_OP_sigmoid, "f32[2]", "", "f32[2]"},
    {FG_OP_relu, "f32[2]", "", "f32[2]"},
    {FG_OP_silu, "bf16[2]", "", "bf16[2]"},
    {FG_OP_gelu, "f16[2]", "", "f16[2]"},
    {FG_OP_gelu_tanh, "f64[2]", "", "f64[2]"},
    {FG_OP_scale, "f32[2, 3]", "factor=2", "f32[2, 3]"},
    {FG_OP_add_scalar, "f32[2, 3]", "value=2", "f32[2, 3]"},
    {FG_OP_pow, "f32[2, 3]", "exponent=2", "f32[2, 3]"},
    {FG_OP_unary_back, "f32[2, 3] f32[2, 3]", "kind=relu", "f32[2, 3]"},
    {FG_OP_gated, "bf16[2, 3] bf16[2, 3]", "kind=silu", "bf16[2, 3]"},
    {FG_OP_gated_back, "f32[6] f32[6] f32[6]", "kind=gelu", "f32[6] f32[6]"},
    {FG_OP_add, "f32[2, 3] f32[2, 3]", "", "f32[2, 3]"},
    {FG_OP_sub, "f32[4, 1, 3] f32[2, 1]", "", "f32[4, 2, 3]"},
    {FG_OP_mul, "f32[] f32[2, 3]", "", "f32[2, 3]"},
    {FG_OP_div, "f32[1] f32[1, 1]", "", "f32[1, 1]"},
    {FG_OP_cast, "f32[2, 3]", "to=bf16", "bf16[2, 3]"},
    {FG_OP_full, "", "shape=2,3 value=1 dtype=bf16", "bf16[2, 3]"},
    {FG_OP_fused, "bf16[2, 4] f32[4] f16[2, 1] f32[]",
     "expression=add(x0,+x1)+f32;+silu_back(t0,+x2)+bf16;+pow(t1,+2.0)+f32;+mul(t2,+x3)+f16 "
     "shape=2,4 repeat=0,4,-4,1",
     "f16[2, 4]"},
    {FG_OP_fused, "bf16[2, 4]", "expression=mul(x0,+x0)+f32;+add(t0,+t0)+f32 shape=8 repeat=0",
     "f32[8]"},
    {FG_OP_reshape, "f32[2, 3, 4]", "shape=4,-1", "f32[4, 6]"},
    {FG_OP_reshape, "i32[1, 1]", "shape=", "i32[]"},
    {FG_OP_rows, "f32[5, 3]", "first=2 count=3", "f32[3, 3]"},
    {FG_OP_rows, "i32[5]", "first=4 count=1", "i32[1]"},
    {FG_OP_transpose, "f32[2, 3, 4]", "perm=2,0,1", "f32[4, 2, 3]"},
    {FG_OP_transpose, "f32[2, 3]", "perm=-1,-2", "f32[3, 2]"},
    {FG_OP_broadcast, "f32[3, 1]", "shape=2,3,4", "f32[2, 3, 4]"},
    {FG_OP_slice, "f32[2, 5, 3]", "axis=1 start=2 count=3", "f32[2, 3, 3]"},
    {FG_OP_slice, "f32[2, 5]", "axis=-1 start=4 count=1", "f32[2, 1]"},
    {FG_OP_slice_back, "f32[2, 3]", "axis=1 start=2 size=5", "f32[2, 5]"},
    {FG_OP_concat, "f32[2, 3] f32[2, 4]", "axis=1", "f32[2, 7]"},
    {FG_OP_sum, "f32[2, 3, 4]", "", "f32[]"},
    {FG_OP_sum, "f32[2, 3, 4]", "axes=0,2 keep=1", "f32[1, 3, 1]"},
    {FG_OP_mean, "f32[2, 3, 4]", "axes=-1", "f32[2, 3]"},
    {FG_OP_softmax, "f32[2, 3]", "", "f32[2, 3]"},
    {FG_OP_softmax_back, "f32[2, 3] f32[2, 3]", "", "f32[2, 3]"},
    {FG_OP_loss_seed, "", "", "f32[]"},
    {FG_OP_cross_entropy, "bf16[2, 3, 9] i32[2, 3] f32[]", "", "f32[] f32[2, 3]"},
    {FG_OP_cross_entropy, "f32[9] i32[]", "", "f32[] f32[]"},
    {FG_OP_custom, "f32[2, 3] bf16[4]", "function=f source=x.c dtypes=f32 shapes=2,3,4",
     "f32[3, 4]"},
    {FG_OP_custom, "i32[2]", "function=f source=x.c dtypes=i64 shapes=0", "i64[]"},
    {FG_OP_cross_entropy_back, "bf16[2, 9] i32[2] f32[2] f32[]", "", "bf16[2, 9]"},
    {FG_OP_cross_entropy_back, "f32[2, 9] i32[2] f32[2] f32[] f32[]", "", "f32[2, 9]"},
};

static const Case refused[] = {
    {FG_OP_linear, "f32[4, 64, 60] f32[32, 64]", "",
     "linear: x is f32[4, 64, 60], its last dimension 60 must equal w's input size 64"},
    {FG_OP_linear, "f32[4, 8] bf16[5, 8]", "", "w is bf16[5, 8], its elements must be f32"},
    {FG_OP_linear, "f32[4, 8] f32[5, 8] f32[8]", "", "b is f32[8], it must be f32[5]"},
    {FG_OP_linear, "f32[4, 8] f32[5, 8] - f32[5]", "", "plus is f32[5], it must be f32[4, 5]"},
    {FG_OP_linear_dx, "f32[4, 5] f32[5, 8] f32[4, 5]", "",
     "plus is f32[4, 5], it must be f32[4, 8]"},
    {FG_OP_rmsnorm_dx, "f32[3, 4] f32[4] f32[3, 4] f32[4]", "", "plus is f32[4], it must be"},
    {FG_OP_linear, "f32[] f32[5, 8]", "", "x is f32[], it must have at least 1 dimension"},
    {FG_OP_linear, "f32[4, 8] f32[8]", "", "w is f32[8], it must have 2 dimensions"},
    {FG_OP_linear, "i32[4, 8] f32[5, 8]", "", "its elements must be floating-point"},
    {FG_OP_linear_dx, "f32[4, 6] f32[5, 8]", "", "last dimension 6 must equal w's output size 5"},
    {FG_OP_linear_dw, "f32[4, 8] f32[3, 5]", "", "all but their last dimensions must be equal"},
    {FG_OP_column_sum, "f32[]", "", "at least 1 dimension"},
    {FG_OP_matmul, "f32[2, 3, 4] f32[3, 4, 5]", "", "all but their last two dimensions"},
    {FG_OP_matmul, "f32[3, 4] f32[4, 5]", "tb=1",
     "a is f32[3, 4] and b is f32[4, 5] transposed, the inner sizes 4 and 5 must be equal"},
    {FG_OP_embedding, "f32[2] f32[10, 4]", "", "ids is f32[2], its elements must be i32"},
    {FG_OP_embedding, "i32[2] f32[10, 4]", "padding_idx=10", "padding_idx 10 is no row of w"},
    {FG_OP_embedding, "i32[2] f32[10]", "", "it must be [vocabulary, width]"},
    {FG_OP_embedding_dw, "i32[2] f32[3, 4]", "vocab=9", "dy must have a row for each id"},
    {FG_OP_rmsnorm, "f32[3, 4] f32[3]", "", "w is f32[3], it must be f32[4]"},
    {FG_OP_rmsnorm, "f32[3, 4] f32[4]", "eps=-1", "eps is -1, it must not be negative"},
    {FG_OP_layernorm, "f32[3, 4] f32[4] f32[5]", "", "b is f32[5], it must be f32[4]"},
    {FG_OP_rmsnorm_dx, "f32[3, 4] f32[4] f32[3, 5]", "", "dy is f32[3, 5], it must be f32[3, 4]"},
    {FG_OP_rmsnorm_back, "f32[3, 4] f32[3] f32[3, 4]", "", "w is f32[3], it must be f32[4]"},
    {FG_OP_rmsnorm_dw, "f32[3, 4] f32[4, 3]", "", "dy is f32[4, 3], it must be f32[3, 4]"},
    {FG_OP_rope_table, "", "seq=0 half=3", "both must be at least 1"},
    {FG_OP_rope_table, "", "seq=2 half=3 theta=0", "theta is 0, it must be positive"},
    {FG_OP_rope, "f32[2, 7, 3] f32[2, 7, 3]", "", "it must be [batch, seq, heads, dim]"},
    {FG_OP_rope, "f32[2, 7, 3, 4] f32[2, 7, 3]", "", "the table must be [2, 7, at most 2]"},
    {FG_OP_rope, "f32[2, 8, 3, 6] f32[2, 7, 3]", "", "the table must be [2, 8, at most 3]"},
    {FG_OP_attention, "f32[2, 5, 3, 8] f32[2, 5, 2, 8] f32[2, 5, 2, 8]", "",
     "the 3 query heads must be a multiple of the 2 key heads"},
    {FG_OP_attention, "f32[2, 5, 2, 8] f32[2, 5, 2, 4] f32[2, 5, 2, 4]", "",
     "batch and dim must be equal"},
    {FG_OP_attention, "f32[2, 5, 2, 8] f32[2, 5, 2, 8] f32[2, 6, 2, 8]", "",
     "v is f32[2, 6, 2, 8], it must be f32[2, 5, 2, 8]"},
    {FG_OP_attention, "f32[2, 5, 8] f32[2, 5, 8] f32[2, 5, 8]", "", "both must be [batch, seq,"},
    {FG_OP_attention, "f32[2, 5, 2, 8] f32[2, 5, 2, 8] f32[2, 5, 2, 8]", "window=-1",
     "window is -1, it must not be negative"},
    {FG_OP_silu, "i32[2]", "", "silu: x is i32[2], its elements must be floating-point"},
    {FG_OP_unary_back, "f32[2] f32[3]", "", "dy is f32[3], it must be f32[2]"},
    {FG_OP_gated, "f32[2] f32[1]", "", "up is f32[1], it must be f32[2]"},
    {FG_OP_gated_back, "f32[2] f32[2] f32[3]", "", "dy is f32[3], it must be f32[2]"},
    {FG_OP_add, "f32[2, 3] f32[2, 4]", "", "sizes 3 and 4 do not broadcast"},
    {FG_OP_mul, "f32[2] bf16[2]", "", "b is bf16[2], its elements must be f32"},
    {FG_OP_cast, "i32[2]", "", "its elements must be floating-point"},
    {FG_OP_full, "", "shape=2,0 value=1", "dimension 1 of the result is 0"},
    {FG_OP_full, "", "shape=2147483648,2147483648 value=1", "more than 2^60 bytes"},
    {FG_OP_reshape, "f32[2, 3]", "shape=4,2", "with 6 elements, the shape has 8"},
    {FG_OP_reshape, "f32[2, 3]", "shape=4,-1", "the shape needs a multiple of 4"},
    {FG_OP_reshape, "f32[2, 3]", "shape=-1,-1", "one may be -1"},
    {FG_OP_transpose, "f32[2, 3]", "perm=0,0", "perm must name each of its 2 dimensions once"},
    {FG_OP_transpose, "f32[2, 3]", "perm=0", "perm must name each of its 2 dimensions once"},
    {FG_OP_broadcast, "f32[2, 3]", "shape=2,4", "cannot be repeated to f32[2, 4]"},
    {FG_OP_slice, "f32[2, 3]", "axis=2 start=0 count=1", "axis 2 is no dimension of x"},
    {FG_OP_slice, "f32[2, 3]", "axis=1 start=2 count=2", "2 entries from 2 are not within"},
    {FG_OP_rows, "f32[2, 3]", "first=1 count=2", "2 entries from 1 are not within"},
    {FG_OP_slice_back, "f32[2, 3]", "axis=1 start=3 size=5", "it does not fit at 3"},
    {FG_OP_concat, "f32[2, 3] f32[3, 3]", "axis=1", "all dimensions but 1 must be equal"},
    {FG_OP_sum, "f32[2, 3]", "axes=2", "axes must name some of its 2 dimensions once each"},
    {FG_OP_mean, "f32[2, 3]", "axes=1,-1", "axes must name some of its 2 dimensions once each"},
    {FG_OP_softmax_back, "f32[2] f32[3]", "", "dy is f32[3], it must be f32[2]"},
    {FG_OP_cross_entropy, "f32[2, 9] i32[3]", "", "labels must have one entry a row"},
    {FG_OP_cross_entropy, "f32[2, 9] f32[2]", "", "labels is f32[2], its elements must be i32"},
    {FG_OP_cross_entropy, "f32[2, 9] i32[2] f32[1]", "", "seed is f32[1], it must be f32[]"},
    {FG_OP_fused, "f32[4]", "expression=quux(x0)+f32 shape=4 repeat=0",
     "expected the name of a step at 'quux(x0) f32'"},
    {FG_OP_fused, "f32[4]", "expression=neg+x0)+f32 shape=4 repeat=0", "expected '(' at"},
    {FG_OP_fused, "f32[4]", "expression=add(x0)+f32 shape=4 repeat=0", "expected ', ' at ') f32'"},
    {FG_OP_fused, "f32[4]", "expression=neg(y0)+f32 shape=4 repeat=0",
     "expected an operand, 'x', or a step, 't' at 'y0"},
    {FG_OP_fused, "f32[4]", "expression=neg(x00)+f32 shape=4 repeat=0", "expected a number at '00"},
    {FG_OP_fused, "f32[4]", "expression=neg(x9999999999)+f32 shape=4 repeat=0",
     "too large a number"},
    {FG_OP_fused, "f32[4]", "expression=neg(t0)+f32 shape=4 repeat=0",
     "a step that does not stand before"},
    {FG_OP_fused, "f32[4]", "expression=neg(x1)+f32 shape=4 repeat=0",
     "operands are named in the order in which they come first"},
    {FG_OP_fused, "f32[4]", "expression=scale(x0)+f32 shape=4 repeat=0", "expected ', ' at"},
    {FG_OP_fused, "f32[4]", "expression=scale(x0,+0.1)+f32 shape=4 repeat=0",
     "expected a finite number of an f32"},
    {FG_OP_fused, "f32[4]", "expression=scale(x0,+nan)+f32 shape=4 repeat=0",
     "expected a finite number of an f32"},
    {FG_OP_fused, "f32[4]", "expression=scale(x0,+1e0)+f32 shape=4 repeat=0",
     "expected a finite number of an f32"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0+f32 shape=4 repeat=0", "expected ') ' at ' f32'"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f64 shape=4 repeat=0",
     "expected f32, bf16 or f16 at 'f64'"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32, shape=4 repeat=0", "expected '; ' at ','"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32;+exp(x0)+f32 shape=4 repeat=0",
     "nothing reads t0"},
    {FG_OP_fused, "f32[4]", "expression=add(x0,+x1)+f32 shape=4 repeat=0,0",
     "the expression reads 2 operands, repeat has 2, it has 1"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32 shape=4 repeat=",
     "the expression reads 1 operands, repeat has 0, it has 1"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32 shape=8 repeat=0",
     "which does not repeat by 0 to 8 elements"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32 shape=6 repeat=4",
     "which does not repeat by 4 to 6 elements"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32 shape=8 repeat=-4",
     "which does not repeat by -4 to 8 elements"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32 shape=8 repeat=-9223372036854775808",
     "which does not repeat by"},
    {FG_OP_fused, "f64[4]", "expression=neg(x0)+f32 shape=4 repeat=0",
     "operand 0 is f64[4], its elements must be f32, bf16 or f16"},
    {FG_OP_fused, "-", "expression=neg(x0)+f32 shape=4 repeat=0", "operand 0 is left out"},
    {FG_OP_fused, "f32[4]", "expression=neg(x0)+f32 shape=0 repeat=0",
     "dimension 0 of the result is 0"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes= shapes=", "it makes nothing"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes=int shapes=1,2", "'int' are no element"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes=f32 shapes=2,2", "a rank and its dims"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes=f32 shapes=1,2,3",
     "a rank and its dims"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes=f32 shapes=1,0", "dimension 0 of the"},
    {FG_OP_custom, "-", "function=f source=x.c dtypes=f32 shapes=1,2", "operand 0 is left out"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes=f32 shapes=1,2 takes=3",
     "entry 0 of takes is 3, it must be below 3"},
    {FG_OP_custom, "f32[2]", "function=f source=x.c dtypes=f32 shapes=1,2 returns=1",
     "entry 0 of returns is 1, it must be below 1"},
    {FG_OP_cross_entropy_back, "f32[2, 9] i32[2] f32[3] f32[]", "",
     "lse is f32[3], it must be f32[2]"},
};

/* ---- running a case ---- */

/* The node, finished or not. */
static FgNode *build(Graph *g, const Case *c, int *failures)
{
    uint32_t ids[8], n = 0;
    for (const char *s = c->operands; *s && n < 8; s += strspn(s, " ")) {
        if (*s == '-') {
            ids[n++] = FG_NO_ID;
            s++;
            continue;
        }
        const FgType *type = graph_type(g, &s);
        CHECK(type != NULL);
        if (!type)
            return NULL;
        ids[n] = graph_input(g, fg_arena_printf(g->arena, "x%u", n), type);
        n++;
    }
    uint32_t before = g->module->nodes.len;
    graph_node(g, c->op, ids, n, c->attrs);
    return fg_node(g->module, before);
}

static void types_are_inferred(int *failures)
{
    for (size_t i = 0; i < sizeof inferred / sizeof *inferred; i++) {
        const Case *c = &inferred[i];
        Graph g = graph_new();
        FgNode *node = build(&g, c, failures);
        const char *s = c->results;
        for (uint32_t r = 0; node && r < node->n_results; r++) {
            const FgType *expected = graph_type(&g, &s);
            CHECK(expected && fg_value(g.module, node->results[r])->type == expected);
        }
        if (!node || node->n_results == 0 || *s || fg_diags_errors(g.diags)) {
            printf("%s %s {%s}: %s", fg_op_info(c->op)->name, c->operands, c->attrs,
                   graph_errors(&g));
            ++*failures;
        }
        graph_free(&g);
    }
}

static void bad_shapes_are_refused(int *failures)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const Case *c = &refused[i];
        Graph g = graph_new();
        FgNode *node = build(&g, c, failures);
        CHECK(node && node->n_results == 0);
        CHECK_EQ_U64(fg_diags_errors(g.diags), 1);
        if (!strstr(graph_errors(&g), c->results)) {
            printf("%s %s {%s}: expected '%s', got %s", fg_op_info(c->op)->name, c->operands,
                   c->attrs, c->results, graph_errors(&g));
            ++*failures;
        }
        graph_free(&g);
    }
}

/* ---- the table ---- */

static bool takes_given_types(const FgOpInfo *info)
{
    return info->infer == fg_infer_given || info->infer == fg_infer_view ||
           info->infer == fg_infer_none;
}

static void rows_are_complete(int *failures)
{
    for (uint32_t op = 0; op < FG_N_OPS; op++) {
        const FgOpInfo *info = fg_op_info((FgOp)op);
        FgOp parsed;
        CHECK(info->infer != NULL && info->cost != NULL);
        CHECK(info->doc && *info->doc);
        CHECK((info->grad == NULL) == (info->no_grad != NULL));
        CHECK(info->grad || (info->no_grad && *info->no_grad));
        CHECK(info->levels != 0);
        CHECK((info->call == NULL) == (info->call_args == NULL));
        CHECK(fg_op_parse(info->name, &parsed) && parsed == (FgOp)op);
        CHECK(!(info->flags & FG_OPF_CONSTANT) || !*info->operands);
    }
}

static void every_op_that_infers_has_a_case(int *failures)
{
    for (uint32_t op = 0; op < FG_N_OPS; op++) {
        bool found = takes_given_types(fg_op_info((FgOp)op));
        for (size_t i = 0; i < sizeof inferred / sizeof *inferred; i++)
            found |= inferred[i].op == (FgOp)op;
        if (!found) {
            printf("%s infers its types and has no case\n", fg_op_info((FgOp)op)->name);
            ++*failures;
        }
    }
}

/* ---- costs ---- */

static FgCost cost_of(FgOp op, const char *operands, const char *attrs, int *failures)
{
    Case c = {op, operands, attrs, ""};
    Graph g = graph_new();
    FgCost cost = {0};
    FgNode *node = build(&g, &c, failures);
    CHECK(node && node->n_results > 0);
    if (node && node->n_results > 0)
        fg_node_cost(g.module, node, &cost);
    graph_free(&g);
    return cost;
}

static void costs_count_products_and_bytes(int *failures)
{
    FgCost c = cost_of(FG_OP_linear, "bf16[4, 6, 8] bf16[5, 8] bf16[5]", "", failures);
    CHECK_NEAR(c.matmul_flops, 2 * 24 * 5 * 8, 0);
    CHECK_NEAR(c.read_bytes, 2 * (24 * 8 + 40 + 5), 0);
    CHECK_NEAR(c.write_bytes, 2 * 24 * 5, 0);
    c = cost_of(FG_OP_linear_dx, "f32[24, 5] f32[5, 8]", "", failures);
    CHECK_NEAR(c.matmul_flops, 2 * 24 * 5 * 8, 0);
    CHECK_NEAR(c.vector_flops, 0, 0);
    c = cost_of(FG_OP_linear_dx, "bf16[24, 5] bf16[5, 8] bf16[24, 8]", "", failures);
    CHECK_NEAR(c.read_bytes, 2 * (24 * 5 + 40 + 24 * 8), 0);
    CHECK_NEAR(c.write_bytes, 2 * 24 * 8, 0);
    CHECK_NEAR(c.vector_flops, 24 * 8, 0);
    c = cost_of(FG_OP_linear_dw, "bf16[24, 8] bf16[24, 5]", "to=f32 accumulate=1", failures);
    CHECK_NEAR(c.matmul_flops, 2 * 24 * 5 * 8, 0);
    CHECK_NEAR(c.read_bytes, 2 * (24 * 8 + 24 * 5) + 4 * 40, 0);
    CHECK_NEAR(c.write_bytes, 4 * 40, 0);
    c = cost_of(FG_OP_matmul, "f32[2, 4, 3] f32[2, 5, 4]", "ta=1 tb=1", failures);
    CHECK_NEAR(c.matmul_flops, 2 * 2 * 3 * 5 * 4, 0);
    c = cost_of(FG_OP_embedding, "i32[6] bf16[1000, 4]", "", failures);
    CHECK_NEAR(c.read_bytes, 6 * 4 + 6 * 4 * 2, 0);
    c = cost_of(FG_OP_add, "f32[3, 4] f32[4]", "", failures);
    CHECK_NEAR(c.read_bytes, 4 * (12 + 4), 0);
    CHECK_NEAR(c.write_bytes, 4 * 12, 0);
    c = cost_of(FG_OP_fused, "bf16[3, 4] f32[4]",
                "expression=add(x0,+x1)+f32;+mul(t0,+x0)+f16 shape=3,4 repeat=0,4", failures);
    CHECK_NEAR(c.read_bytes, 2 * 12 + 4 * 4, 0);
    CHECK_NEAR(c.write_bytes, 2 * 12, 0);
    CHECK_NEAR(c.vector_flops, 4 * 2 * 12, 0);
    c = cost_of(FG_OP_reshape, "f32[3, 4]", "shape=12", failures);
    CHECK_NEAR(c.read_bytes + c.write_bytes + c.vector_flops, 0, 0);
}

/* The closed form against a count of the pairs. */
static double counted_pairs(int64_t seq_q, int64_t seq_k, bool causal, int64_t window)
{
    double pairs = 0;
    for (int64_t i = 0; i < seq_q; i++) {
        for (int64_t j = 0; j < seq_k; j++) {
            int64_t behind = i + seq_k - seq_q - j;
            pairs += (!causal || behind >= 0) && (window == 0 || behind < window);
        }
    }
    return pairs;
}

static void attention_costs_count_the_pairs_seen(int *failures)
{
    for (int64_t seq_k = 3; seq_k <= 9; seq_k += 3) {
        for (int64_t window = 0; window <= 10; window++) {
            for (int causal = 0; causal < 2; causal++) {
                char operands[128], attrs[64];
                snprintf(operands, sizeof operands,
                         "f32[2, 6, 4, 8] f32[2, %d, 2, 8] f32[2, %d, 2, 8]", (int)seq_k,
                         (int)seq_k);
                snprintf(attrs, sizeof attrs, "causal=%d window=%d", causal, (int)window);
                FgCost c = cost_of(FG_OP_attention, operands, attrs, failures);
                double pairs = counted_pairs(6, seq_k, causal != 0, window);
                CHECK_NEAR(c.matmul_flops, 2 * 2 * 8 * pairs * 2 * 4, 0);
            }
        }
    }
}

/* ---- names and figures ---- */
static void op_table_is_whole(int *failures)
{
    for (uint32_t i = 0; i < FG_N_OPS; i++) {
        const FgOpInfo *op = fg_op_info((FgOp)i);
        FgOp back = FG_N_OPS;
        CHECK(fg_op_parse(op->name, &back) && (uint32_t)back == i);
        CHECK(op->infer && op->cost && op->levels && *op->doc);
        CHECK((op->grad == NULL) != (op->no_grad == NULL));
        CHECK((op->call == NULL) == (op->call_args == NULL));
        CHECK(!(op->levels & FG_OPL_LOW) || op->call || (op->flags & FG_OPF_VIEW) ||
              i == FG_OP_grad || i == FG_OP_hold);
    }
    uint32_t min, max, results;
    fg_op_arity(FG_OP_linear, &min, &max, &results);
    CHECK(min == 2 && max == 4 && results == 1);
    CHECK(fg_op_plus(FG_OP_linear) == 3 && fg_op_plus(FG_OP_add) == FG_NO_ID);
    fg_op_arity(FG_OP_adamw, &min, &max, &results);
    CHECK(min == 2 && max == 2 && results == 5);
    fg_op_arity(FG_OP_release, &min, &max, &results);
    CHECK(min == 1 && max == 1 && results == 0);
    FgOp op;
    CHECK(!fg_op_parse("lineer", &op));
}

static void types_have_names_and_sizes(int *failures)
{
    for (int i = 0; i < FG_N_DTYPES; i++) {
        FgDtype back = FG_N_DTYPES;
        CHECK(fg_dtype_parse(fg_dtype_name((FgDtype)i), &back) && (int)back == i);
    }
    FgDtype d;
    CHECK(fg_dtype_parse("bfloat16", &d) && d == FG_BF16);
    CHECK(fg_dtype_parse("fp32", &d) && d == FG_F32);
    CHECK(!fg_dtype_parse("float3", &d) && !fg_dtype_parse("", &d) && !fg_dtype_parse(" ", &d));
    const int64_t dims[] = {2, 3, 4};
    FgType t = {FG_BF16, 3, dims}, scalar = {FG_F64, 0, NULL};
    CHECK_EQ_U64(fg_type_bytes(&t), 48);
    CHECK(fg_type_rows(&t) == 6 && fg_type_cols(&t) == 4);
    CHECK(fg_type_bytes(&scalar) == 8 && fg_type_rows(&scalar) == 1 && fg_type_cols(&scalar) == 1);
}

UNIT_MAIN({"op_table_is_whole", op_table_is_whole},
          {"types_have_names_and_sizes", types_have_names_and_sizes},
          {"rows_are_complete", rows_are_complete},
          {"every_op_that_infers_has_a_case", every_op_that_infers_has_a_case},
          {"types_are_inferred", types_are_inferred},
          {"bad_shapes_are_refused", bad_shapes_are_refused},
          {"costs_count_products_and_bytes", costs_count_products_and_bytes},
          {"attention_costs_count_the_pairs_seen", attention_costs_count_the_pairs_seen})
