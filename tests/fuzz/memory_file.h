/* Bytes as a file, for parsers that open a path. */
#ifndef FG_TESTS_FUZZ_MEMORY_FILE_H
#define FG_TESTS_FUZZ_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Replaces the bytes of the one file in memory and gives its path; aborts when that fails. */
const char *memory_file(const uint8_t *data, size_t size);

#endif
