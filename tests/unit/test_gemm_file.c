/* The file of chosen algorithms: what is for a device and a version is found, what is for others is
 * kept, and what is no such file is refused at its line. */
#include "runtime/cuda/gemm_file.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define KEY "1 2 3 4 5 6 7 8 9 10 11 12 13 14 "
#define ALGO " algo 0 1 2 3 4 5 6 7 8 9 a b c d e ffffffff us "
#define HEAD "foregather-gemm 1\ndevice A 1\ncublaslt 7\n"

static bool parse(FgGemmFile *out, const char *text, const char *device, char *error)
{
    return fg_gemm_file_parse(out, text, strlen(text), device, 7, error, 128);
}

static void blocks(int *failures)
{
    const char *text = HEAD "gemm " KEY "15" ALGO "1.5\n" /* of A 1, twice: the later counts */
                            "gemm " KEY "15" ALGO "2.5\n\n"
                            "cublaslt 8\ngemm " KEY "16" ALGO "1\n"
                            "device A\ncublaslt 7\ngemm " KEY "17" ALGO "3\n"
                            "gemm " KEY "18" ALGO "4";
    char error[128] = "";
    FgGemmFile file;
    CHECK(parse(&file, text, "A 1", error));
    CHECK_STR(error, "");
    CHECK(file.n == 1 && file.n_other == 3);
    CHECK_EQ_U64(file.entries[0].key[14], 15);
    CHECK_EQ_U64(file.entries[0].algo[15], 0xffffffff);
    CHECK_NEAR(file.entries[0].us, 2.5, 0);
    fg_gemm_file_free(&file);
    CHECK(parse(&file, text, "A", error));
    CHECK(file.n == 2 && file.n_other == 3);
    fg_gemm_file_free(&file);
    CHECK(parse(&file, text, "B", error));
    CHECK(file.n == 0 && file.n_other == 5);
    fg_gemm_file_free(&file);
}

/* New choices for one device stand in the place of its old ones, beside those of others. */
static void rewriting(int *failures)
{
    const char *text = HEAD "gemm " KEY "15" ALGO "1.5\n"
                            "cublaslt 8\ngemm " KEY "16" ALGO "1.25\n"
                            "device B\ncublaslt 7\ngemm " KEY "17" ALGO "3.000\n";
    FgGemmEntry entry = {.key = {20, 21}, .algo = {0xabc}, .us = 9};
    char error[128] = "", *made = NULL;
    size_t bytes = 0;
    FgGemmFile file;
    FILE *out = open_memstream(&made, &bytes);
    CHECK(out != NULL);
    if (!out)
        return;
    fg_gemm_file_write(out, text, strlen(text), "A 1", 7, &entry, 1);
    fclose(out);
    CHECK_STR(made, "foregather-gemm 1\ndevice A 1\ncublaslt 8\ngemm " KEY "16" ALGO "1.25\n"
                    "device B\ncublaslt 7\ngemm " KEY "17" ALGO "3.000\n"
                    "device A 1\ncublaslt 7\ngemm 20 21 0 0 0 0 0 0 0 0 0 0 0 0 0 algo 00000abc "
                    "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 "
                    "00000000 00000000 00000000 00000000 00000000 00000000 00000000 us 9.000\n");
    CHECK(parse(&file, made, "A 1", error));
    CHECK(file.n == 1 && file.n_other == 2 && file.entries[0].algo[0] == 0xabc);
    fg_gemm_file_free(&file);
    free(made);
}

static void refusals(int *failures)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "line 1: not a line of a foregather-gemm 1 file"},
        {"foregather-gemm 2\n", "line 1: "},
        {HEAD "gemm 1 2 3\n", "line 4: "},
        {HEAD "gemm " KEY "15" ALGO "x\n", "line 4: "},
        {HEAD "gemm " KEY "15" ALGO "1.5 6\n", "line 4: "},
        {HEAD "gemm " KEY "-1" ALGO "1\n", "line 4: "},
        {HEAD "gemm " KEY "15 algo 0 1 2 3 us 1\n", "line 4: "},
        {HEAD "gemm " KEY "15 algo 100000000 1 2 3 4 5 6 7 8 9 a b c d e f us 1\n", "line 4: "},
        {HEAD "\nhello\n", "line 5: "},
        {"foregather-gemm 1\ncublaslt x\n", "line 2: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char error[128] = "";
        FgGemmFile file;
        CHECK(!parse(&file, cases[i].text, "A 1", error));
        CHECK(strncmp(error, cases[i].error, strlen(cases[i].error)) == 0);
        CHECK(file.n == 0 && !file.entries);
    }
}

UNIT_MAIN({"blocks", blocks}, {"rewriting", rewriting}, {"refusals", refusals})
