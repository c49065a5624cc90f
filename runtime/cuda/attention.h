/* Attention on a GPU: one description, two implementations.
 *
 * attention.cc chooses: the library (cuDNN) where it has a plan, our own kernels elsewhere. Both
 * take device pointers and only launch work on the stream. */
#ifndef FG_RUNTIME_CUDA_ATTENTION_H
#define FG_RUNTIME_CUDA_ATTENTION_H

#include "runtime/cuda/cx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* q, o and their gradients [batch, seq_q, heads, dim]; k, v and theirs [batch, seq_k, kv_heads,
 * dim]; lse [batch, heads, seq_q]. causal: key j is seen iff j <= i + seq_k - seq_q; window > 0:
 * also iff i + seq_k - seq_q - j < window. */
typedef struct FgCudaAttentionShape {
    uint64_t batch, seq_q, seq_k, heads, kv_heads, dim, causal, window, dt;
    float scale;
} FgCudaAttentionShape;

typedef struct FgCudaAttentionData {
    const void *q, *k, *v;
    void *o;
    float *lse;
    const void *d; /* gradient of o; backward only, like the three below */
    void *dq, *dk, *dv;
} FgCudaAttentionData;

/* Our kernels need no workspace and repeat bit by bit; head dimensions up to FG_CUDA_ATTENTION_DIM.
 */
#define FG_CUDA_ATTENTION_DIM 256
void fg_cuda_attention_builtin(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape *shape,
                               const FgCudaAttentionData *data);
void fg_cuda_attention_back_builtin(FgRtCx *cx, cudaStream_t stream,
                                    const FgCudaAttentionShape *shape,
                                    const FgCudaAttentionData *data);

/* The library's state of this rank, in cx->attention: made by the first call that could use it (at
 * start-up, while rehearsing), freed by close. Once made it holds the plans by shape; one that is
 * not there says why. Where our kernels serve although the library was asked for, rank 0 says so
 * once a shape, on stderr. */
void fg_cuda_attention_close(FgRtCx *cx);
/* Workspace of a call in bytes as the library would like it; with less it goes by batch entries and
 * key heads, down to *least. Both 0 where our kernels serve. Returns whether the library serves.
 * For benchmarks. */
int fg_cuda_attention_workspace(FgRtCx *cx, const FgCudaAttentionShape *shape, int backward,
                                uint64_t *wanted, uint64_t *least);

#ifdef __cplusplus
}
#endif

#endif
