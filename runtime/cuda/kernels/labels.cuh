/* Labels of a loss, gathered or sharded. */
#ifndef FG_RUNTIME_CUDA_KERNELS_LABELS_CUH
#define FG_RUNTIME_CUDA_KERNELS_LABELS_CUH

#include "runtime/cuda/kernels/common.cuh"

/* Whether a label counts; one that is no word is reported and does not. */
static __device__ inline bool label_counts(int32_t label, int64_t ignore, uint64_t vocab,
                                           int *device_error, uint32_t node)
{
    if ((int64_t)label == ignore)
        return false;
    if (label >= 0 && (uint64_t)label < vocab)
        return true;
    fg_report(device_error, node);
    return false;
}

#endif
