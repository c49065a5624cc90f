/* Matrix products by cuBLASLt: choosing algorithms by measurement, and the file that keeps the
 * choice.
 *
 * The file is text: `foregather-gemm 1`, then for each device and library version a block
 *   device <name>
 *   cublaslt <version>
 *   gemm <key, FG_GEMM_FIELDS numbers> algo <16 words of 8 hexadecimal digits> us <measured>
 * Blocks of other devices and versions are kept for them and not used. A program reads the file
 * that FG_GEMM_CACHE names when it starts; products it does not list take the library's first
 * choice within the planned workspace. */
#ifndef FG_RUNTIME_CUDA_GEMM_H
#define FG_RUNTIME_CUDA_GEMM_H

#include "runtime/cuda/cx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the choices of a file for products not made yet. Raises on a file that is not one. */
void fg_cuda_gemm_read(FgRtCx *cx, const char *path);
/* Appends a block with the choices made so far. Raises when it cannot. */
void fg_cuda_gemm_write(FgRtCx *cx, const char *path);
/* Times the library's candidates for every product made so far, on the operands of its last call
 * (whose results are lost), and keeps the fastest. Waits for the stream. */
void fg_cuda_gemm_tune(FgRtCx *cx, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
