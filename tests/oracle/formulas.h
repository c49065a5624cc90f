/* What the ops mean, in double precision, one plain loop each, written from the definitions.
 *
 * Shares no code with the runtime or the passes. All tensors are dense, row-major doubles; ids and
 * labels are doubles that hold integers. Results are overwritten. */
#ifndef FG_TESTS_ORACLE_FORMULAS_H
#define FG_TESTS_ORACLE_FORMULAS_H

#include <stdbool.h>
#include <stdint.h>

/* y[m,n] = x[m,k] W' + b (b may be NULL); w is [n,k], or [k,n] with in_out */
void ref_linear(const double *x, const double *w, const double *b, double *y, int64_t m, int64_t n,
                int64_t k, bool in_out);
void ref_linear_dx(const double *dy, const double *w, double *dx, int64_t m, int64_t n, int64_t k,
                   bool in_out);
void ref_linear_dw(const double *x, const double *dy, double *dw, int64_t m, int64_t n, int64_t k,
                   bool in_out);
void ref_column_sum(const double *dy, double *db, int64_t m, int64_t n);
/* y[i] = A[i] B[i]; A is [m,k] (ta: [k,m]), B is [k,n] (tb: [n,k]) */
void ref_matmul(const double *a, const double *b, double *y, int64_t batch, int64_t m, int64_t n,
                int64_t k, bool ta, bool tb);

void ref_embedding(const double *ids, const double *w, double *y, int64_t tokens, int64_t hidden);
/* padding -1: no padding row */
void ref_embedding_dw(const double *ids, const double *dy, double *dw, int64_t tokens,
                      int64_t hidden, int64_t vocab, int64_t padding);

void ref_rmsnorm(const double *x, const double *w, double *y, int64_t rows, int64_t cols,
                 double eps);
void ref_rmsnorm_dx(const double *x, const double *w, const double *dy, double *dx, int64_t rows,
                    int64_t cols, double eps);
void ref_rmsnorm_dw(const double *x, const double *dy, double *dw, int64_t rows, int64_t cols,
                    double eps);
/* b may be NULL */
void ref_layernorm(const double *x, const double *w, const double *b, double *y, int64_t rows,
                   int64_t cols, double eps);
void ref_layernorm_dx(const double *x, const double *w, const double *dy, double *dx, int64_t rows,
                      int64_t cols, double eps);
void ref_layernorm_dw(const double *x, const double *dy, double *dw, int64_t rows, int64_t cols,
                      double eps);

/* table[2, seq, half]: cosines, then sines; llama3 scaling where factor > 0 */
void ref_rope_table(double *table, int64_t seq, int64_t half, double theta, double factor,
                    double low, double high, double original);
void ref_rope(const double *x, const double *table, double *y, int64_t batch, int64_t seq,
              int64_t heads, int64_t dim, int64_t half, bool inverse);

typedef struct RefAttention {
    int64_t batch, seq_q, seq_k, heads, kv_heads, dim;
    bool causal;
    int64_t window; /* 0: none */
    double scale;   /* 0: 1 / sqrt(dim) */
} RefAttention;

void ref_attention(const RefAttention *at, const double *q, const double *k, const double *v,
                   double *o, double *lse);
/* From q, k, v alone: o and lse of the forward are not read. */
void ref_attention_back(const RefAttention *at, const double *q, const double *k, const double *v,
                        const double *d, double *dq, double *dk, double *dv);

/* kind: "neg", "exp", ..., "scale", "add_scalar", "pow" with the scalar a */
double ref_unary(const char *kind, double x, double a);
double ref_unary_slope(const char *kind, double x, double a);

void ref_softmax(const double *x, double *y, int64_t rows, int64_t cols);
void ref_softmax_back(const double *y, const double *dy, double *dx, int64_t rows, int64_t cols);
void ref_cross_entropy(const double *logits, const double *labels, double seed, double *loss,
                       double *lse, int64_t rows, int64_t cols, int64_t ignore);
void ref_cross_entropy_back(const double *logits, const double *labels, double seed, double dloss,
                            double *dlogits, int64_t rows, int64_t cols, int64_t ignore);

/* One AdamW step t (from 1) on n weights: decoupled decay, bias correction, eps outside the root.
 */
void ref_adamw(double *w, double *m, double *v, const double *grad, int64_t n, double factor,
               double lr, double beta1, double beta2, double eps, double decay, int64_t t);

#endif
