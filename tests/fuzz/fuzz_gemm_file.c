/* Files of chosen algorithms: what is accepted is kept through writing and reading, for the device
 * asked for and for others. */
#include "fuzz.h"

#include "runtime/cuda/gemm_file.h"

#include <stdlib.h>
#include <string.h>

const char *const fuzz_seeds[] = {"tests/fuzz/seeds/choices.gemm", NULL};
const char *const fuzz_words[] = {"foregather-gemm 1\n",
                                  "device NVIDIA H200\n",
                                  "device \n",
                                  "cublaslt 130000\n",
                                  "cublaslt 1\n",
                                  "gemm ",
                                  " algo ",
                                  " us ",
                                  "18446744073709551616",
                                  "ffffffff",
                                  "100000000",
                                  "1e400",
                                  "nan",
                                  "\r\n",
                                  "\n",
                                  NULL};

#define DEVICE "NVIDIA H200"
#define VERSION 130000

static void must(int good)
{
    if (!good)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FgGemmFile first, second;
    char error[128] = "", *text = NULL;
    size_t bytes = 0;
    if (!fg_gemm_file_parse(&first, (const char *)data, size, DEVICE, VERSION, error,
                            sizeof error)) {
        must(*error && !first.entries && !first.n);
        return 0;
    }
    FILE *out = open_memstream(&text, &bytes);
    must(out != NULL);
    fg_gemm_file_write(out, (const char *)data, size, DEVICE, VERSION, first.entries, first.n);
    fclose(out);
    must(fg_gemm_file_parse(&second, text, bytes, DEVICE, VERSION, error, sizeof error));
    must(second.n == first.n && second.n_other == first.n_other);
    for (size_t i = 0; i < first.n; i++)
        must(memcmp(first.entries[i].key, second.entries[i].key, sizeof first.entries[i].key) ==
                 0 &&
             memcmp(first.entries[i].algo, second.entries[i].algo, sizeof first.entries[i].algo) ==
                 0);
    fg_gemm_file_free(&first);
    fg_gemm_file_free(&second);
    free(text);
    return 0;
}
