/* Choosing algorithms of matrix products by measurement, and the file that keeps the choice. */
#include "runtime/cuda/core.h"
#include "runtime/cuda/gemm_plan.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CANDIDATES = 16, RUNS = 4, ROUNDS = 5 };
/* The library's first choice stays unless another is this much faster: less is noise. */
static const double worth = 0.98;

/* Microseconds of one run; negative when the algorithm does not run. */
static double measure(FgRtCx *cx, cudaStream_t stream, const FgGemmPlan *plan,
                      const cublasLtMatmulAlgo_t *algo, const cudaEvent_t events[2])
{
    if (fg_cuda_gemm_launch(cx, stream, plan, algo) != CUBLAS_STATUS_SUCCESS)
        return -1;
    fg_cuda_check(cx, cudaEventRecord(events[0], stream), "cudaEventRecord");
    for (int i = 0; i < RUNS; i++)
        if (fg_cuda_gemm_launch(cx, stream, plan, algo) != CUBLAS_STATUS_SUCCESS)
            return -1;
    fg_cuda_check(cx, cudaEventRecord(events[1], stream), "cudaEventRecord");
    fg_cuda_check(cx, cudaEventSynchronize(events[1]), "cudaEventSynchronize");
    float ms = 0;
    fg_cuda_check(cx, cudaEventElapsedTime(&ms, events[0], events[1]), "cudaEventElapsedTime");
    return (double)ms * 1e3 / (double)RUNS;
}

/* All candidates in turn, several times over, since clocks drift; the shortest time of each counts.
 * Those far behind after a round are left out. */
static void tune_plan(FgRtCx *cx, cudaStream_t stream, FgGemmPlan *plan,
                      const cudaEvent_t events[2])
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    double best[CANDIDATES];
    int n = fg_cuda_gemm_candidates(cx, plan, found, CANDIDATES), fastest = 0;
    for (int i = 0; i < n; i++)
        best[i] = found[i].state == CUBLAS_STATUS_SUCCESS ? 0 : -1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n && !cx->fail.failed; i++) {
            if (best[i] < 0 || (round > 0 && best[i] > 1.2 * best[fastest]))
                continue;
            double us = measure(cx, stream, plan, &found[i].algo, events);
            best[i] = us < 0 || best[i] == 0 || us < best[i] ? us : best[i];
        }
        for (int i = 0; i < n; i++)
            if (best[i] > 0 && (best[fastest] <= 0 || best[i] < best[fastest]))
                fastest = i;
    }
    if (n == 0 || best[fastest] <= 0)
        return;
    if (best[0] > 0 && best[fastest] > worth * best[0])
        fastest = 0;
    plan->algo = found[fastest].algo;
    plan->us = best[fastest];
}

void fg_cuda_gemm_tune(FgRtCx *cx, cudaStream_t stream)
{
    cudaEvent_t events[2] = {NULL, NULL};
    fg_cuda_check(cx, cudaEventCreate(&events[0]), "cudaEventCreate");
    fg_cuda_check(cx, cudaEventCreate(&events[1]), "cudaEventCreate");
    for (size_t i = 0; i < cx->gemm->n_plans && !cx->fail.failed; i++)
        tune_plan(cx, stream, cx->gemm->plans[i], events);
    for (int i = 0; i < 2; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
}

/* ---- the file ---- */

static const char heading[] = "foregather-gemm 1";

static bool device_name(FgRtCx *cx, char *out, size_t bytes)
{
    int device = 0;
    struct cudaDeviceProp properties;
    fg_cuda_check(cx, cudaGetDevice(&device), "cudaGetDevice");
    fg_cuda_check(cx, cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    if (cx->fail.failed)
        return false;
    snprintf(out, bytes, "%s", properties.name);
    return true;
}

/* One line after `gemm`. */
static bool parse_choice(const char *text, FgGemmChoice *out)
{
    char *end = NULL;
    for (int i = 0; i < FG_GEMM_FIELDS; i++, text = end) {
        out->key.field[i] = strtoull(text, &end, 10);
        if (end == text)
            return false;
    }
    if (strncmp(text, " algo", 5) != 0)
        return false;
    text += 5;
    uint32_t words[sizeof out->algo / sizeof(uint32_t)];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++, text = end) {
        words[i] = (uint32_t)strtoul(text, &end, 16);
        if (end == text)
            return false;
    }
    memcpy(&out->algo, words, sizeof words);
    return sscanf(text, " us %lf", &out->us) == 1;
}

static bool add_choice(FgRtCx *cx, const FgGemmChoice *choice)
{
    FgCudaGemm *gemm = cx->gemm;
    for (size_t i = 0; i < gemm->n_choices; i++)
        if (memcmp(&gemm->choices[i].key, &choice->key, sizeof choice->key) == 0) {
            gemm->choices[i] = *choice; /* a later block is newer */
            return true;
        }
    if (!fg_cuda_gemm_grow(cx, (void **)&gemm->choices, gemm->n_choices, &gemm->max_choices,
                           sizeof *gemm->choices))
        return false;
    gemm->choices[gemm->n_choices++] = *choice;
    return true;
}

void fg_cuda_gemm_read(FgRtCx *cx, const char *path)
{
    char name[256], line[1024];
    unsigned long n_line = 0;
    bool device = false, version = false, good = true;
    if (!device_name(cx, name, sizeof name))
        return;
    FILE *file = fopen(path, "r");
    if (!file) {
        fg_cuda_raise(cx, "%s: cannot be read", path);
        return;
    }
    while (good && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        n_line++;
        FgGemmChoice choice;
        if (n_line == 1)
            good = strcmp(line, heading) == 0;
        else if (strncmp(line, "device ", 7) == 0)
            device = strcmp(line + 7, name) == 0;
        else if (strncmp(line, "cublaslt ", 9) == 0)
            version = strtoull(line + 9, NULL, 10) == cublasLtGetVersion();
        else if (strncmp(line, "gemm", 4) == 0)
            good =
                parse_choice(line + 4, &choice) && (!device || !version || add_choice(cx, &choice));
        else
            good = *line == '\0';
    }
    fclose(file);
    if (n_line == 0 || !good)
        fg_cuda_raise(cx, "%s:%lu: not a line of a %s file", path, n_line, heading);
}

static void put_choices(FgRtCx *cx, FILE *file, const char *name)
{
    fprintf(file, "%s\ndevice %s\ncublaslt %zu\n", heading, name, cublasLtGetVersion());
    for (size_t i = 0; i < cx->gemm->n_plans; i++) {
        const FgGemmPlan *plan = cx->gemm->plans[i];
        fprintf(file, "gemm");
        for (int j = 0; j < FG_GEMM_FIELDS; j++)
            fprintf(file, " %" PRIu64, plan->key.field[j]);
        fprintf(file, " algo");
        uint32_t words[sizeof plan->algo / sizeof(uint32_t)];
        memcpy(words, &plan->algo, sizeof words);
        for (size_t j = 0; j < sizeof words / sizeof *words; j++)
            fprintf(file, " %08" PRIx32, words[j]);
        fprintf(file, " us %.3f\n", plan->us);
    }
}

/* Beside its place, then renamed: who reads it finds it whole. */
void fg_cuda_gemm_write(FgRtCx *cx, const char *path)
{
    char name[256];
    if (!device_name(cx, name, sizeof name))
        return;
    size_t room = strlen(path) + 32;
    char *made = malloc(room);
    if (made)
        snprintf(made, room, "%s.tmp-%ld", path, (long)getpid());
    int fd = made ? open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool ok = file && !fg_cuda_fault(cx, FG_FAULT_WRITE, "the file of algorithms");
    if (ok)
        put_choices(cx, file, name);
    if (file)
        ok = fclose(file) == 0 && ok;
    else if (fd >= 0)
        close(fd);
    if (ok && rename(made, path) == 0) {
        free(made);
        return;
    }
    if (fd >= 0)
        unlink(made);
    free(made);
    fg_cuda_raise(cx, "%s: cannot be written", path);
}
