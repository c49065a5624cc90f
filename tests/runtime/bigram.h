/* A program written by hand, small enough to know its numbers: the next token's logits are a row of
 * one table [8, 8], the loss is the cross-entropy. It has all that the trainer drives: a bucket
 * over ranks with a gap at its end, a parameter that nothing reads, accumulation, clipping with a
 * pending update, a flush. */
#ifndef FG_TESTS_RUNTIME_BIGRAM_H
#define FG_TESTS_RUNTIME_BIGRAM_H

#include "runtime/fg_rt.h"

#include <stdbool.h>

enum { BIGRAM_VOCAB = 8, BIGRAM_SEQ = 4, BIGRAM_MAX_BATCH = 6 };

typedef struct Bigram {
    FgRtProgram program;
    FgRtBucket bucket;
    FgRtInput inputs[2];
    int64_t dims[8];
} Bigram;

/* Fills in place: the program points into it. bf16: the working copy has a master. */
void bigram_make(Bigram *out, uint32_t ranks, uint32_t batch, uint32_t accumulate, double clip,
                 bool bf16);

#endif
