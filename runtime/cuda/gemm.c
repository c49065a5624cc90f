/* Linear layers and matrix products, by cuBLASLt.
 *
 * All products accumulate in f32 (plain f32 operands without TF32) and are rounded into the result.
 * With a bias, `plus` or accumulation, some kernels of the library round a product to a short dtype
 * before they add: twice in all. Matrices are row-major here and column-major in the library, so
 * that operands change places: C' = B' A'. A shape's descriptors and algorithm are made at its
 * first call and kept; making them touches no device memory, so that it may happen while a graph is
 * captured.
 *
 * Split sums add in f32 in the workspace (never in the result's dtype), in a fixed order. */
#include "runtime/cuda/gemm_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool ok(FgRtCx *cx, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    fg_cuda_raise(cx, "%s: %s", what, cublasLtGetStatusString(status));
    return false;
}

bool fg_cuda_gemm_grow(FgRtCx *cx, void **array, size_t n, size_t *most, size_t size)
{
    if (n < *most)
        return true;
    size_t larger = *most ? 2 * *most : 32;
    void *moved = realloc(*array, larger * size);
    if (!moved) {
        fg_cuda_raise(cx, "out of memory for matrix products");
        return false;
    }
    *array = moved;
    *most = larger;
    return true;
}

FgCudaGemm *fg_cuda_gemm_new(FgRtCx *cx)
{
    FgCudaGemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm) {
        fg_cuda_raise(cx, "out of memory for matrix products");
        return NULL;
    }
    if (!ok(cx, cublasLtCreate(&gemm->handle), "cublasLtCreate")) {
        free(gemm);
        return NULL;
    }
    cx->gemm = gemm;
    return gemm;
}

static void plan_free(FgGemmPlan *plan)
{
    if (plan->op)
        cublasLtMatmulDescDestroy(plan->op);
    cublasLtMatrixLayout_t layouts[] = {plan->a, plan->b, plan->c};
    for (size_t i = 0; i < 3; i++)
        if (layouts[i])
            cublasLtMatrixLayoutDestroy(layouts[i]);
    free(plan);
}

void fg_cuda_gemm_free(FgCudaGemm *gemm)
{
    if (!gemm)
        return;
    for (size_t i = 0; i < gemm->n_plans; i++)
        plan_free(gemm->plans[i]);
    free(gemm->plans);
    fg_gemm_file_free(&gemm->file);
    cublasLtDestroy(gemm->handle);
    free(gemm);
}

/* ---- plans ---- */

static cudaDataType_t library_type(uint64_t dt)
{
    return dt == FG_RT_BF16 ? CUDA_R_16BF : dt == FG_RT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static uint64_t element_bytes(uint64_t dt)
{
    return dt == FG_RT_F32 ? 4 : 2;
}

static bool layout_new(FgRtCx *cx, cublasLtMatrixLayout_t *out, uint64_t dt, uint64_t rows,
                       uint64_t cols, uint64_t ld, uint64_t batch)
{
    if (!ok(cx, cublasLtMatrixLayoutCreate(out, library_type(dt), rows, cols, (int64_t)ld),
            "cublasLtMatrixLayoutCreate"))
        return false;
    if (batch == 1)
        return true;
    int32_t count = (int32_t)batch;
    int64_t stride = (int64_t)(rows * cols);
    return ok(cx,
              cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count),
              "batch count") &&
           ok(cx,
              cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride),
              "batch stride");
}

static bool describe(FgRtCx *cx, FgGemmPlan *plan)
{
    const uint64_t *f = plan->key.field;
    cublasOperation_t ta = f[FG_GEMM_TA] ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = f[FG_GEMM_TB] ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (!ok(cx, cublasLtMatmulDescCreate(&plan->op, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "cublasLtMatmulDescCreate") ||
        !ok(cx,
            cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta),
            "transposition") ||
        !ok(cx,
            cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb),
            "transposition"))
        return false;
    if (f[FG_GEMM_BIAS]) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        cudaDataType_t type = library_type(f[FG_GEMM_IN]);
        if (!ok(cx,
                cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                               sizeof epilogue),
                "epilogue") ||
            !ok(cx,
                cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                               sizeof type),
                "bias type"))
            return false;
    }
    return layout_new(cx, &plan->a, f[FG_GEMM_IN], f[FG_GEMM_TA] ? f[FG_GEMM_K] : f[FG_GEMM_M],
                      f[FG_GEMM_TA] ? f[FG_GEMM_M] : f[FG_GEMM_K], f[FG_GEMM_LDA],
                      f[FG_GEMM_BATCH]) &&
           layout_new(cx, &plan->b, f[FG_GEMM_IN], f[FG_GEMM_TB] ? f[FG_GEMM_N] : f[FG_GEMM_K],
                      f[FG_GEMM_TB] ? f[FG_GEMM_K] : f[FG_GEMM_N], f[FG_GEMM_LDB],
                      f[FG_GEMM_BATCH]) &&
           layout_new(cx, &plan->c, f[FG_GEMM_OUT], f[FG_GEMM_M], f[FG_GEMM_N], f[FG_GEMM_LDC],
                      f[FG_GEMM_BATCH]);
}

int fg_cuda_gemm_candidates(FgRtCx *cx, const FgGemmPlan *plan,
                            cublasLtMatmulHeuristicResult_t *out, int most)
{
    const uint64_t *f = plan->key.field;
    cublasLtMatmulPreference_t preference;
    if (!ok(cx, cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"))
        return 0;
    uint32_t align = (uint32_t)f[FG_GEMM_ALIGN], scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    size_t workspace = f[FG_GEMM_WORKSPACE];
    struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } wish[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align},
    };
    int n = 0;
    bool fine = true;
    for (size_t i = 0; i < sizeof wish / sizeof *wish && fine; i++)
        fine = ok(cx,
                  cublasLtMatmulPreferenceSetAttribute(preference, wish[i].name, wish[i].value,
                                                       wish[i].bytes),
                  "cublasLtMatmulPreferenceSetAttribute");
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (fine)
        status = cublasLtMatmulAlgoGetHeuristic(cx->gemm->handle, plan->op, plan->a, plan->b,
                                                plan->c, plan->c, preference, most, out, &n);
    cublasLtMatmulPreferenceDestroy(preference);
    if (fine && (status != CUBLAS_STATUS_SUCCESS || n == 0)) {
        fg_cuda_raise(cx,
                      "no product of %" PRIu64 " x %" PRIu64 " x %" PRIu64
                      " within a workspace of %zu bytes: %s",
                      f[FG_GEMM_N], f[FG_GEMM_M], f[FG_GEMM_K], workspace,
                      cublasLtGetStatusString(status));
        n = 0;
    }
    return n;
}

/* The choice of a file, else the library's first. */
static bool choose(FgRtCx *cx, FgGemmPlan *plan)
{
    if (fg_cuda_gemm_recall(cx, plan))
        return true;
    cublasLtMatmulHeuristicResult_t result;
    if (cx->fail.failed || fg_cuda_gemm_candidates(cx, plan, &result, 1) == 0)
        return false;
    plan->algo = result.algo;
    return true;
}

static FgGemmPlan *find_plan(FgRtCx *cx, const FgGemmKey *key)
{
    FgCudaGemm *gemm = cx->gemm;
    for (size_t i = 0; i < gemm->n_plans; i++)
        if (memcmp(&gemm->plans[i]->key, key, sizeof *key) == 0)
            return gemm->plans[i];
    if (!fg_cuda_gemm_grow(cx, (void **)&gemm->plans, gemm->n_plans, &gemm->max_plans,
                           sizeof *gemm->plans))
        return NULL;
    FgGemmPlan *plan = calloc(1, sizeof *plan);
    if (!plan) {
        fg_cuda_raise(cx, "out of memory for matrix products");
        return NULL;
    }
    plan->key = *key;
    if (!describe(cx, plan) || !choose(cx, plan)) {
        plan_free(plan);
        return NULL;
    }
    gemm->plans[gemm->n_plans++] = plan;
    return plan;
}

cublasStatus_t fg_cuda_gemm_launch(FgRtCx *cx, cudaStream_t stream, const FgGemmPlan *plan,
                                   const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1, beta = plan->key.field[FG_GEMM_ADDS] ? 1 : 0;
    const FgGemmOperands *on = &plan->last;
    if (on->bias) {
        cublasStatus_t status = cublasLtMatmulDescSetAttribute(
            plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &on->bias, sizeof on->bias);
        if (status != CUBLAS_STATUS_SUCCESS)
            return status;
    }
    return cublasLtMatmul(cx->gemm->handle, plan->op, &one, on->a, plan->a, on->b, plan->b, &beta,
                          on->added, plan->c, on->result, plan->c, algo, on->workspace,
                          plan->key.field[FG_GEMM_WORKSPACE], stream);
}

/* ---- products, row-major ---- */

typedef struct Matrix {
    const char *data;
    uint64_t ld;     /* elements from one stored row to the next */
    bool transposed; /* stored the other way round */
} Matrix;

typedef struct Product { /* y[m,n] = a[m,k] b[k,n] (+ bias) (+ plus) */
    Matrix a, b;
    char *y;
    const char *bias;
    const char *plus; /* like y, which it may be; NULL: none */
    uint64_t m, n, k, batch, dt, out;
    bool accumulate; /* y is added to */
    uint64_t ws, ws_bytes;
} Product;

static uint64_t alignment(const Product *p, const void *workspace)
{
    uint64_t bits = (uint64_t)(uintptr_t)p->a.data | (uint64_t)(uintptr_t)p->b.data |
                    (uint64_t)(uintptr_t)p->y | (uint64_t)(uintptr_t)p->bias |
                    (uint64_t)(uintptr_t)p->plus | (uint64_t)(uintptr_t)workspace | 256;
    return bits & (~bits + 1);
}

static void multiply(FgRtCx *cx, cudaStream_t stream, const Product *p)
{
    if (p->m == 0 || p->n == 0 || p->batch == 0)
        return;
    if (p->k == 0 || p->batch > INT32_MAX) {
        fg_cuda_raise(cx, "%" PRIu64 " products over %" PRIu64 " terms are not possible on the GPU",
                      p->batch, p->k);
        return;
    }
    void *workspace = fg_cuda_at(cx, p->ws);
    FgGemmKey key = {0};
    uint64_t *f = key.field;
    f[FG_GEMM_M] = p->n;
    f[FG_GEMM_N] = p->m;
    f[FG_GEMM_K] = p->k;
    f[FG_GEMM_BATCH] = p->batch;
    f[FG_GEMM_TA] = p->b.transposed;
    f[FG_GEMM_TB] = p->a.transposed;
    f[FG_GEMM_LDA] = p->b.ld;
    f[FG_GEMM_LDB] = p->a.ld;
    f[FG_GEMM_LDC] = p->n;
    f[FG_GEMM_IN] = p->dt;
    f[FG_GEMM_OUT] = p->out;
    f[FG_GEMM_BIAS] = p->bias != NULL;
    f[FG_GEMM_ADDS] = p->accumulate || p->plus;
    f[FG_GEMM_ALIGN] = alignment(p, workspace);
    f[FG_GEMM_WORKSPACE] = workspace ? p->ws_bytes : 0;
    FgGemmPlan *plan = find_plan(cx, &key);
    if (!plan)
        return;
    plan->last =
        (FgGemmOperands){p->b.data, p->a.data, p->bias, p->plus ? p->plus : p->y, p->y, workspace};
    ok(cx, fg_cuda_gemm_launch(cx, stream, plan, &plan->algo), "cublasLtMatmul");
}

/* A result in a dtype that the library does not write from these operands: it goes through the
 * upper half of the workspace in f32, some rows at a time, and is rounded from there. */
static void multiply_converted(FgRtCx *cx, cudaStream_t stream, uint32_t node, Product p,
                               uint64_t y)
{
    uint64_t half = p.ws_bytes / 512 * 256, size = element_bytes(p.dt);
    uint64_t rows = p.n && p.ws != FG_RT_NONE ? half / (p.n * sizeof(float)) : 0, out = p.out;
    bool accumulate = p.accumulate;
    if (rows == 0 && p.m > 0 && p.n > 0) {
        fg_cuda_raise(cx, "the workspace has %" PRIu64 " bytes, %" PRIu64 " are needed", p.ws_bytes,
                      2 * p.n * (uint64_t)sizeof(float));
        return;
    }
    Product part = p;
    part.ws_bytes = half;
    part.out = FG_RT_F32;
    part.accumulate = false;
    part.y = fg_cuda_at(cx, p.ws + half);
    for (uint64_t row = 0; row < p.m && p.n > 0; row += rows) {
        part.m = p.m - row < rows ? p.m - row : rows;
        part.a.data = p.a.data + row * (p.a.transposed ? 1 : p.a.ld) * size;
        multiply(cx, stream, &part);
        fg_cuda_grad_write(cx, stream, node, p.ws + half, y + row * p.n * element_bytes(out),
                           part.m * p.n, FG_RT_F32, out, accumulate);
    }
}

void fg_cuda_linear(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t w,
                    uint64_t b, uint64_t plus, uint64_t y, uint64_t m, uint64_t n, uint64_t k,
                    uint64_t layout, uint64_t dt, uint64_t ws, uint64_t ws_bytes)
{
    (void)node;
    Product p = {.a = {fg_cuda_at(cx, x), k, false},
                 .b = {fg_cuda_at(cx, w), layout ? n : k, layout == 0},
                 .y = fg_cuda_at(cx, y),
                 .bias = fg_cuda_at(cx, b),
                 .plus = fg_cuda_at(cx, plus),
                 .m = m,
                 .n = n,
                 .k = k,
                 .batch = 1,
                 .dt = dt,
                 .out = dt,
                 .ws = ws,
                 .ws_bytes = ws_bytes};
    multiply(cx, stream, &p);
}

void fg_cuda_linear_dx(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t dy, uint64_t w,
                       uint64_t plus, uint64_t dx, uint64_t m, uint64_t n, uint64_t k,
                       uint64_t layout, uint64_t dt, uint64_t ws, uint64_t ws_bytes)
{
    (void)node;
    Product p = {.a = {fg_cuda_at(cx, dy), n, false},
                 .b = {fg_cuda_at(cx, w), layout ? n : k, layout != 0},
                 .y = fg_cuda_at(cx, dx),
                 .plus = fg_cuda_at(cx, plus),
                 .m = m,
                 .n = k,
                 .k = n,
                 .batch = 1,
                 .dt = dt,
                 .out = dt,
                 .ws = ws,
                 .ws_bytes = ws_bytes};
    multiply(cx, stream, &p);
}

void fg_cuda_linear_dw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t dy,
                       uint64_t dw, uint64_t m, uint64_t n, uint64_t k, uint64_t layout,
                       uint64_t dt, uint64_t wire, uint64_t accumulate, uint64_t ws,
                       uint64_t ws_bytes)
{
    uint64_t rows = layout ? k : n, cols = layout ? n : k;
    Product p = {.a = {fg_cuda_at(cx, layout ? x : dy), rows, true},
                 .b = {fg_cuda_at(cx, layout ? dy : x), cols, false},
                 .y = fg_cuda_at(cx, dw),
                 .m = rows,
                 .n = cols,
                 .k = m,
                 .batch = 1,
                 .dt = dt,
                 .out = wire,
                 .accumulate = accumulate != 0,
                 .ws = ws,
                 .ws_bytes = ws_bytes};
    if (wire == dt || wire == FG_RT_F32)
        multiply(cx, stream, &p);
    else
        multiply_converted(cx, stream, node, p, dw);
}

void fg_cuda_vocab_dx(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t dlogits, uint64_t w,
                      uint64_t part, uint64_t m, uint64_t n, uint64_t k, uint64_t dt, uint64_t ws,
                      uint64_t ws_bytes)
{
    (void)node;
    Product p = {.a = {fg_cuda_at(cx, dlogits), n, false},
                 .b = {fg_cuda_at(cx, w), k, false},
                 .y = fg_cuda_at(cx, part),
                 .m = m,
                 .n = k,
                 .k = n,
                 .batch = 1,
                 .dt = dt,
                 .out = FG_RT_F32,
                 .ws = ws,
                 .ws_bytes = ws_bytes};
    multiply(cx, stream, &p);
}

void fg_cuda_vocab_dw(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t x, uint64_t dlogits,
                      uint64_t shard, uint64_t bucket, uint64_t m, uint64_t n, uint64_t k,
                      uint64_t dt, uint64_t shard_dt, uint64_t accumulate, uint64_t ws,
                      uint64_t ws_bytes)
{
    (void)bucket;
    fg_cuda_linear_dw(cx, stream, node, x, dlogits, shard, m, n, k, 0, dt, shard_dt, accumulate, ws,
                      ws_bytes);
}

void fg_cuda_matmul(FgRtCx *cx, cudaStream_t stream, uint32_t node, uint64_t a, uint64_t b,
                    uint64_t y, uint64_t batch, uint64_t m, uint64_t n, uint64_t k, uint64_t ta,
                    uint64_t tb, uint64_t dt, uint64_t ws, uint64_t ws_bytes)
{
    (void)node;
    Product p = {.a = {fg_cuda_at(cx, a), ta ? m : k, ta != 0},
                 .b = {fg_cuda_at(cx, b), tb ? k : n, tb != 0},
                 .y = fg_cuda_at(cx, y),
                 .m = m,
                 .n = n,
                 .k = k,
                 .batch = batch,
                 .dt = dt,
                 .out = dt,
                 .ws = ws,
                 .ws_bytes = ws_bytes};
    multiply(cx, stream, &p);
}
