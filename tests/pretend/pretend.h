/* A pretended GPU: enough of CUDA and NCCL, in host memory, for everything of runtime/cuda that is
 * no kernel to run on a machine without a device. Kernels are the host's, but those that a program
 * holds, which are its own (device.cuh); devices are processes that read each other's memory; all
 * is done at once, in the order asked.
 *
 * It shows that processes, memory, graphs, files and failures are driven rightly. It shows nothing
 * about orders that streams allow, nor about the runtime's kernels. */
#ifndef FG_TESTS_PRETEND_PRETEND_H
#define FG_TESTS_PRETEND_PRETEND_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/fg_rt.h"

/* The run has failed: nobody waits any longer. */
bool pretend_over(void);
/* Device memory, as cudaMemGetInfo counts it: what was allocated, and what was said to be taken. */
void pretend_take(uint64_t bytes);
void *pretend_alloc(uint64_t bytes);
void pretend_free(void *memory);
/* Between the beginning and the end of a capture nothing is executed. */
bool pretend_capturing(void);
/* The one context of this process, for those who must not know its inside. */
typedef struct PretendRank {
    const FgRtProgram *program;
    void *memory;
    uint64_t bytes;
    uint32_t rank;
} PretendRank;
PretendRank pretend_rank(const void *cx);
/* A kernel met a bad token or label. */
void pretend_bad(void *cx, uint32_t node);
/* e^x as on the host, for kernels that a program holds (device.cuh). */
float pretend_exp(float x);
/* Runs the body that a graph was captured from. */
void pretend_launch(const void *exec);

#endif
