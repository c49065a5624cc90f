/* CUDA C++ read without CUDA's headers: what stands for them, and how libclang is told so. */
#ifndef FG_READBACK_CUDA_H
#define FG_READBACK_CUDA_H

#define FG_CUDA_STUB_PATH "/nowhere/foregather/cuda-stub.h"
#define FG_CUDA_ARGS                                                                               \
    "-x", "cuda", "--cuda-host-only", "-nocudalib", "-nocudainc", "-Wno-unknown-cuda-version",     \
        "-std=c++17", "-D__CUDACC__", "-include", FG_CUDA_STUB_PATH

#define FG_CUDA_STUB                                                                               \
    "#define __host__ __attribute__((host))\n"                                                     \
    "#define __device__ __attribute__((device))\n"                                                 \
    "#define __global__ __attribute__((global))\n"                                                 \
    "#define __shared__ __attribute__((shared))\n"                                                 \
    "#define __forceinline__ inline\n"                                                             \
    "#define __launch_bounds__(...)\n"                                                             \
    "typedef struct CUstream_st *cudaStream_t;\n"                                                  \
    "typedef int cudaError_t;\n"                                                                   \
    "struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1); };\n"   \
    "extern const dim3 threadIdx, blockIdx, blockDim, gridDim;\n"                                  \
    "extern \"C\" int cudaConfigureCall(dim3, dim3, unsigned long = 0, cudaStream_t = 0);\n"       \
    "extern \"C\" unsigned __cudaPushCallConfiguration(dim3, dim3, unsigned long = 0,\n"           \
    "                                                  void * = 0);\n"                             \
    "extern \"C\" int cudaLaunchKernel(const void *, dim3, dim3, void **, unsigned long,\n"        \
    "                                cudaStream_t);\n"

#endif
