/* Dense products, lookup, norms, element-wise functions, losses and the optimizer; attention is in
 * attention.c. */
#include "tests/oracle/formulas.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- products ---- */

static double weight(const double *w, int64_t out, int64_t in, int64_t n, int64_t k, bool in_out)
{
    return in_out ? w[in * n + out] : w[out * k + in];
}

void ref_linear(const double *x, const double *w, const double *b, double *y, int64_t m, int64_t n,
                int64_t k, bool in_out)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = b ? b[j] : 0;
            for (int64_t l = 0; l < k; l++)
                sum += x[i * k + l] * weight(w, j, l, n, k, in_out);
            y[i * n + j] = sum;
        }
    }
}

void ref_linear_dx(const double *dy, const double *w, double *dx, int64_t m, int64_t n, int64_t k,
                   bool in_out)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t l = 0; l < k; l++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += dy[i * n + j] * weight(w, j, l, n, k, in_out);
            dx[i * k + l] = sum;
        }
    }
}

void ref_linear_dw(const double *x, const double *dy, double *dw, int64_t m, int64_t n, int64_t k,
                   bool in_out)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t l = 0; l < k; l++) {
            double sum = 0;
            for (int64_t i = 0; i < m; i++)
                sum += dy[i * n + j] * x[i * k + l];
            dw[in_out ? l * n + j : j * k + l] = sum;
        }
    }
}

void ref_column_sum(const double *dy, double *db, int64_t m, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        db[j] = 0;
        for (int64_t i = 0; i < m; i++)
            db[j] += dy[i * n + j];
    }
}

void ref_matmul(const double *a, const double *b, double *y, int64_t batch, int64_t m, int64_t n,
                int64_t k, bool ta, bool tb)
{
    for (int64_t t = 0; t < batch; t++, a += m * k, b += k * n, y += m * n) {
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
                y[i * n + j] = sum;
            }
        }
    }
}

/* ---- lookup ---- */

void ref_embedding(const double *ids, const double *w, double *y, int64_t tokens, int64_t hidden)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < hidden; h++)
            y[t * hidden + h] = w[(int64_t)ids[t] * hidden + h];
    }
}

void ref_embedding_dw(const double *ids, const double *dy, double *dw, int64_t tokens,
                      int64_t hidden, int64_t vocab, int64_t padding)
{
    for (int64_t i = 0; i < vocab * hidden; i++)
        dw[i] = 0;
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < hidden && (int64_t)ids[t] != padding; h++)
            dw[(int64_t)ids[t] * hidden + h] += dy[t * hidden + h];
    }
}

/* ---- norms ---- */

static double inverse_rms(const double *x, int64_t n, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum / (double)n + eps);
}

void ref_rmsnorm(const double *x, const double *w, double *y, int64_t rows, int64_t cols,
                 double eps)
{
    for (int64_t i = 0; i < rows; i++, x += cols, y += cols) {
        double r = inverse_rms(x, cols, eps);
        for (int64_t j = 0; j < cols; j++)
            y[j] = x[j] * r * w[j];
    }
}

void ref_rmsnorm_dx(const double *x, const double *w, const double *dy, double *dx, int64_t rows,
                    int64_t cols, double eps)
{
    for (int64_t i = 0; i < rows; i++, x += cols, dy += cols, dx += cols) {
        double r = inverse_rms(x, cols, eps), dot = 0;
        for (int64_t j = 0; j < cols; j++)
            dot += dy[j] * w[j] * x[j];
        for (int64_t j = 0; j < cols; j++)
            dx[j] = r * dy[j] * w[j] - x[j] * r * r * r * dot / (double)cols;
    }
}

void ref_rmsnorm_dw(const double *x, const double *dy, double *dw, int64_t rows, int64_t cols,
                    double eps)
{
    for (int64_t j = 0; j < cols; j++)
        dw[j] = 0;
    for (int64_t i = 0; i < rows; i++, x += cols, dy += cols) {
        double r = inverse_rms(x, cols, eps);
        for (int64_t j = 0; j < cols; j++)
            dw[j] += dy[j] * x[j] * r;
    }
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

static double inverse_deviation(const double *x, int64_t n, double eps)
{
    double mean = mean_of(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return 1 / sqrt(sum / (double)n + eps);
}

void ref_layernorm(const double *x, const double *w, const double *b, double *y, int64_t rows,
                   int64_t cols, double eps)
{
    for (int64_t i = 0; i < rows; i++, x += cols, y += cols) {
        double mean = mean_of(x, cols), r = inverse_deviation(x, cols, eps);
        for (int64_t j = 0; j < cols; j++)
            y[j] = (x[j] - mean) * r * w[j] + (b ? b[j] : 0);
    }
}

void ref_layernorm_dx(const double *x, const double *w, const double *dy, double *dx, int64_t rows,
                      int64_t cols, double eps)
{
    double n = (double)cols;
    for (int64_t i = 0; i < rows; i++, x += cols, dy += cols, dx += cols) {
        double mean = mean_of(x, cols), r = inverse_deviation(x, cols, eps), sum = 0, dot = 0;
        for (int64_t j = 0; j < cols; j++) {
            sum += dy[j] * w[j];
            dot += dy[j] * w[j] * (x[j] - mean) * r;
        }
        for (int64_t j = 0; j < cols; j++)
            dx[j] = r * (dy[j] * w[j] - sum / n - (x[j] - mean) * r * dot / n);
    }
}

void ref_layernorm_dw(const double *x, const double *dy, double *dw, int64_t rows, int64_t cols,
                      double eps)
{
    for (int64_t j = 0; j < cols; j++)
        dw[j] = 0;
    for (int64_t i = 0; i < rows; i++, x += cols, dy += cols) {
        double mean = mean_of(x, cols), r = inverse_deviation(x, cols, eps);
        for (int64_t j = 0; j < cols; j++)
            dw[j] += dy[j] * (x[j] - mean) * r;
    }
}

/* ---- element by element ---- */

static const double pi = 3.14159265358979323846;

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static double normal_below(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}

static double gelu_inner(double x)
{
    return sqrt(2 / pi) * (x + 0.044715 * x * x * x);
}

static bool is(const char *kind, const char *name)
{
    return strcmp(kind, name) == 0;
}

double ref_unary(const char *kind, double x, double a)
{
    return is(kind, "neg")          ? -x
           : is(kind, "exp")        ? exp(x)
           : is(kind, "log")        ? log(x)
           : is(kind, "sqrt")       ? sqrt(x)
           : is(kind, "rsqrt")      ? 1 / sqrt(x)
           : is(kind, "tanh")       ? tanh(x)
           : is(kind, "sigmoid")    ? logistic(x)
           : is(kind, "relu")       ? (x > 0 ? x : 0)
           : is(kind, "silu")       ? x * logistic(x)
           : is(kind, "gelu")       ? x * normal_below(x)
           : is(kind, "gelu_tanh")  ? 0.5 * x * (1 + tanh(gelu_inner(x)))
           : is(kind, "scale")      ? a * x
           : is(kind, "add_scalar") ? x + a
           : is(kind, "pow")        ? pow(x, a)
                                    : NAN;
}

static double gelu_tanh_slope(double x)
{
    double t = tanh(gelu_inner(x));
    double inner = sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

double ref_unary_slope(const char *kind, double x, double a)
{
    double s = logistic(x);
    return is(kind, "neg")          ? -1
           : is(kind, "exp")        ? exp(x)
           : is(kind, "log")        ? 1 / x
           : is(kind, "sqrt")       ? 0.5 / sqrt(x)
           : is(kind, "rsqrt")      ? -0.5 / (x * sqrt(x))
           : is(kind, "tanh")       ? 1 - tanh(x) * tanh(x)
           : is(kind, "sigmoid")    ? s * (1 - s)
           : is(kind, "relu")       ? (x > 0 ? 1 : 0)
           : is(kind, "silu")       ? s + x * s * (1 - s)
           : is(kind, "gelu")       ? normal_below(x) + x * exp(-x * x / 2) / sqrt(2 * pi)
           : is(kind, "gelu_tanh")  ? gelu_tanh_slope(x)
           : is(kind, "scale")      ? a
           : is(kind, "add_scalar") ? 1
           : is(kind, "pow")        ? a * pow(x, a - 1)
                                    : NAN;
}

/* ---- softmax and losses ---- */

static double log_sum_exp(const double *x, int64_t n)
{
    double most = x[0], sum = 0;
    for (int64_t j = 1; j < n; j++)
        most = x[j] > most ? x[j] : most;
    for (int64_t j = 0; j < n; j++)
        sum += exp(x[j] - most);
    return most + log(sum);
}

void ref_softmax(const double *x, double *y, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++, x += cols, y += cols) {
        double lse = log_sum_exp(x, cols);
        for (int64_t j = 0; j < cols; j++)
            y[j] = exp(x[j] - lse);
    }
}

void ref_softmax_back(const double *y, const double *dy, double *dx, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++, y += cols, dy += cols, dx += cols) {
        double dot = 0;
        for (int64_t j = 0; j < cols; j++)
            dot += y[j] * dy[j];
        for (int64_t j = 0; j < cols; j++)
            dx[j] = y[j] * (dy[j] - dot);
    }
}

void ref_cross_entropy(const double *logits, const double *labels, double seed, double *loss,
                       double *lse, int64_t rows, int64_t cols, int64_t ignore)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++, logits += cols) {
        lse[i] = log_sum_exp(logits, cols);
        if ((int64_t)labels[i] != ignore)
            sum += lse[i] - logits[(int64_t)labels[i]];
    }
    *loss = seed * sum;
}

void ref_cross_entropy_back(const double *logits, const double *labels, double seed, double dloss,
                            double *dlogits, int64_t rows, int64_t cols, int64_t ignore)
{
    for (int64_t i = 0; i < rows; i++, logits += cols, dlogits += cols) {
        double lse = log_sum_exp(logits, cols);
        bool valid = (int64_t)labels[i] != ignore;
        for (int64_t j = 0; j < cols; j++) {
            double target = j == (int64_t)labels[i] ? 1 : 0;
            dlogits[j] = valid ? (exp(logits[j] - lse) - target) * seed * dloss : 0;
        }
    }
}

/* ---- optimizer ---- */

void ref_adamw(double *w, double *m, double *v, const double *grad, int64_t n, double factor,
               double lr, double beta1, double beta2, double eps, double decay, int64_t t)
{
    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * factor;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        double m_hat = m[i] / (1 - pow(beta1, (double)t));
        double v_hat = v[i] / (1 - pow(beta2, (double)t));
        w[i] -= lr * decay * w[i];
        w[i] -= lr * m_hat / (sqrt(v_hat) + eps);
    }
}
