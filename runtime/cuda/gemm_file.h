/* The file that keeps chosen algorithms of matrix products, as text; nothing here knows a device.
 *
 *   foregather-gemm 1
 *   device NVIDIA H200
 *   cublaslt 130000
 *   gemm <key, 15 numbers> algo <16 words of 8 hexadecimal digits> us <measured>
 *   ...
 *
 * A block is for one device and one version of the library; a file may hold several. What a key
 * and an algorithm mean is known to gemm_plan.h and the library. */
#ifndef FG_RUNTIME_CUDA_GEMM_FILE_H
#define FG_RUNTIME_CUDA_GEMM_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FG_GEMM_KEY_NUMBERS = 15, FG_GEMM_ALGO_WORDS = 16 };

typedef struct FgGemmEntry {
    uint64_t key[FG_GEMM_KEY_NUMBERS];
    uint32_t algo[FG_GEMM_ALGO_WORDS];
    double us; /* measured; 0: not */
} FgGemmEntry;

typedef struct FgGemmFile { /* zeroed: empty */
    FgGemmEntry *entries;   /* of the device and version asked for; a later one of a key is newer */
    size_t n, room;
    size_t n_other; /* entries of other devices or versions */
} FgGemmFile;

/* Reads all lines. False with `error`: "line 3: ...", or that memory is out. */
bool fg_gemm_file_parse(FgGemmFile *out, const char *text, size_t bytes, const char *device,
                        uint64_t version, char *error, size_t error_bytes);
void fg_gemm_file_free(FgGemmFile *file);
/* Writes a file with these entries for the device and version; other blocks of an older text (NULL:
 * none), which was parsed without an error, are kept. */
void fg_gemm_file_write(FILE *out, const char *older, size_t older_bytes, const char *device,
                        uint64_t version, const FgGemmEntry *entries, size_t n);

#endif
