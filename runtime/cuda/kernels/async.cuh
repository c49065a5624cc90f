/* Copies from device memory into shared memory that run on while the thread works. A thread closes
 * groups of copies, and waits for its own alone; where others read them, a barrier is theirs. */
#ifndef FG_RUNTIME_CUDA_KERNELS_ASYNC_CUH
#define FG_RUNTIME_CUDA_KERNELS_ASYNC_CUH

#include <inttypes.h>

/* Copies of 8 or 16 bytes. Devices before sm_80 copy at once. */
template <int BYTES>
static __device__ __forceinline__ void fg_copy_async(void *to, const void *from)
{
    static_assert(BYTES == 8 || BYTES == 16, "what one copy can");
#if __CUDA_ARCH__ >= 800
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
#else
    if constexpr (BYTES == 16)
        *(uint4 *)to = *(const uint4 *)from;
    else
        *(uint2 *)to = *(const uint2 *)from;
#endif
}

static __device__ __forceinline__ void fg_copies_close()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Until at most LATER of the closed groups are under way: those closed last. */
template <int LATER> static __device__ __forceinline__ void fg_copies_await()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}

#endif
