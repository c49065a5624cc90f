/* Sums over rows, column by column: gradients of biases and gains. */
#ifndef FG_RUNTIME_CUDA_KERNELS_COLUMNS_CUH
#define FG_RUNTIME_CUDA_KERNELS_COLUMNS_CUH

#include "runtime/cuda/kernels/norm_rows.cuh"

/* What normalises a row: z = (x - mean) * scale. */
typedef float2 FgRowStats; /* mean, scale */

/* Fills stats[0..rows) for rows [first, first + rows) of x. */
typedef struct FgStatsSource {
    const void *x;
    bool centred;
    float eps;
} FgStatsSource;
void fg_cuda_row_stats(FgRtCx *cx, cudaStream_t stream, const FgStatsSource *source, uint64_t first,
                       uint64_t rows, uint64_t cols, uint64_t dt, FgRowStats *stats);

/* to[cols] (+)= sum over rows of dy, or of dy z where `source` is given. Runs on the compute stream
 * alone: it uses that stream's scratch. */
void fg_cuda_columns(FgRtCx *cx, cudaStream_t stream, const void *dy, const FgStatsSource *source,
                     void *to, uint64_t rows, uint64_t cols, uint64_t dt, uint64_t wire,
                     uint64_t accumulate);

/* dw[cols] (+)= the sums of `rows`, whose scratch is that stream's, and dx where it is given, in
 * one pass. false: nothing is done, for rows that do not fit. */
bool fg_cuda_norm_back(FgRtCx *cx, cudaStream_t stream, const FgNormRows *rows, void *dw,
                       uint64_t wire, uint64_t accumulate);

#endif
