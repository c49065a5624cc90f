/* A fuzz target: what libFuzzer calls, and where the smoke run of the suite begins. */
#ifndef FG_TESTS_FUZZ_H
#define FG_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Must return 0 whatever the bytes are; what is wrong aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files under the source folder to start from, then NULL; words that the format knows, then NULL.
 */
extern const char *const fuzz_seeds[];
extern const char *const fuzz_words[];

#endif
