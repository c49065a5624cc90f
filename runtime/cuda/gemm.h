/* Matrix products by cuBLASLt: choosing algorithms by measurement, and the file that keeps the
 * choice (gemm_file.h). Products that no choice is known for take the library's first within the
 * planned workspace. */
#ifndef FG_RUNTIME_CUDA_GEMM_H
#define FG_RUNTIME_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/cuda/cx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the choices of a file's text, for products that are not made yet; `path` is for messages.
 * Whether it had any for this device and library; raises on a text that is no such file. */
bool fg_cuda_gemm_take(FgRtCx *cx, const char *text, size_t bytes, const char *path);
/* The file's text with the choices of all products made so far, in place of what an older text
 * (NULL: none) says of this device and library. The caller frees; NULL: raised. */
char *fg_cuda_gemm_text(FgRtCx *cx, const char *older, size_t older_bytes, size_t *out_bytes);
/* Gives products made already the choices taken since. */
void fg_cuda_gemm_adopt(FgRtCx *cx);
/* The same, from and to files. Reading a whole file: the caller frees; NULL: it cannot be read. */
char *fg_cuda_gemm_load(const char *path, size_t *out_bytes);
void fg_cuda_gemm_read(FgRtCx *cx, const char *path);
void fg_cuda_gemm_write(FgRtCx *cx, const char *path);
/* Times the library's candidates for every product made so far, on the operands of its last call
 * (whose results are lost), and keeps the fastest. What the program's arena holds becomes noise:
 * operands come from there, and from memory, as in a step. Waits for the stream. */
typedef struct FgGemmTuned {
    size_t n, changed; /* products; those for which another algorithm than the first was fastest */
    double first_us, best_us; /* one run of each: by the first choices, by the fastest */
} FgGemmTuned;
FgGemmTuned fg_cuda_gemm_tune(FgRtCx *cx, cudaStream_t stream);
/* The device and the library that choices are for, for people. */
void fg_cuda_gemm_subject(FgRtCx *cx, char *out, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
