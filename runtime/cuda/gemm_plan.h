/* The inside of gemm.c and gemm_choice.c: products by shape, and the algorithms chosen for them. */
#ifndef FG_RUNTIME_CUDA_GEMM_PLAN_H
#define FG_RUNTIME_CUDA_GEMM_PLAN_H

#include "runtime/cuda/gemm.h"
#include "runtime/cuda/gemm_file.h"

/* What an algorithm depends on. The library's view: column-major, operands exchanged. */
enum {
    FG_GEMM_M,
    FG_GEMM_N,
    FG_GEMM_K,
    FG_GEMM_BATCH,
    FG_GEMM_TA,
    FG_GEMM_TB,
    FG_GEMM_LDA,
    FG_GEMM_LDB,
    FG_GEMM_LDC,
    FG_GEMM_IN,
    FG_GEMM_OUT,
    FG_GEMM_BIAS,
    FG_GEMM_ADDS,  /* a matrix is added: the result's old content, or another */
    FG_GEMM_ALIGN, /* least alignment of the operands, at most 256 bytes */
    FG_GEMM_WORKSPACE,
    FG_GEMM_FIELDS
};

typedef struct FgGemmKey {
    uint64_t field[FG_GEMM_FIELDS];
} FgGemmKey;

/* As a file has them. */
_Static_assert((int)FG_GEMM_FIELDS == (int)FG_GEMM_KEY_NUMBERS, "a file keeps whole keys");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == FG_GEMM_ALGO_WORDS * sizeof(uint32_t),
               "a file keeps whole algorithms");

typedef struct FgGemmOperands {
    const void *a, *b, *bias;
    const void *added; /* like the result, which it may be; read where the key says so */
    void *result, *workspace;
} FgGemmOperands;

typedef struct FgGemmPlan {
    FgGemmKey key;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    FgGemmOperands last; /* of the last call, for measuring */
    double us;           /* measured; 0: not */
} FgGemmPlan;

struct FgCudaGemm {
    cublasLtHandle_t handle;
    FgGemmPlan **plans;
    size_t n_plans, max_plans;
    FgGemmFile file; /* choices that were taken */
};

/* The library's candidates within the workspace, best guess first. 0: raised. */
int fg_cuda_gemm_candidates(FgRtCx *cx, const FgGemmPlan *plan,
                            cublasLtMatmulHeuristicResult_t *out, int most);
/* The product on the operands of its last call. */
cublasStatus_t fg_cuda_gemm_launch(FgRtCx *cx, cudaStream_t stream, const FgGemmPlan *plan,
                                   const cublasLtMatmulAlgo_t *algo);
/* The choice taken for a plan, if there is one. true: the plan has it; the library may refuse it:
 * then it raises. */
bool fg_cuda_gemm_recall(FgRtCx *cx, FgGemmPlan *plan);
/* Room for one more element of `size` bytes. false: raised. */
bool fg_cuda_gemm_grow(FgRtCx *cx, void **array, size_t n, size_t *most, size_t size);

#endif
