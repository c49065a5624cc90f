/* Choosing algorithms of matrix products by measurement, and the file that keeps the choice. */
#include "runtime/cuda/core.h"
#include "runtime/cuda/gemm_plan.h"
#include "runtime/launch/whole_file.h"

#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CANDIDATES = 16, RUNS = 4, ROUNDS = 5, N_EVENTS = 2 * RUNS };
/* The library's first choice stays unless another is this much faster: less is noise. */
static const double worth = 0.98;
/* More than any device's cache holds; the start of the noise, which is copied on from there. */
#define FLUSH_BYTES ((uint64_t)160 << 20)
#define SEED_BYTES ((size_t)1 << 20)

typedef struct Bench {
    cudaStream_t stream;
    cudaEvent_t events[N_EVENTS];
    unsigned char *from, *to; /* a copy between them empties the cache of all else */
    uint64_t bytes;           /* 0: there is no arena to do it in */
} Bench;

/* In a step a product's operands come from memory: other nodes ran since they were written or
 * gathered. And a chip that multiplies zeros takes less power, and runs faster, than in a step. */
static void fill_with_noise(FgRtCx *cx, const Bench *bench)
{
    uint64_t arena = cx->program->arena_bytes, state = 1;
    unsigned char *memory = cx->memory + cx->program->state_bytes;
    uint64_t filled = arena < SEED_BYTES ? arena : SEED_BYTES;
    uint16_t *noise = malloc(SEED_BYTES);
    if (!noise) {
        fg_cuda_raise(cx, "out of memory for noise");
        return;
    }
    for (size_t i = 0; i < SEED_BYTES / sizeof *noise; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t draw = (uint32_t)(state >> 40); /* bf16 of -2 to 2, most of it small */
        noise[i] = (uint16_t)((draw & 0x807f) | (0x3c00 + (draw >> 16) % 8 * 0x80));
    }
    fg_cuda_check(cx, cudaMemcpy(memory, noise, filled, cudaMemcpyHostToDevice), "cudaMemcpy");
    free(noise);
    for (; filled && filled < arena && !cx->fail.failed;) {
        uint64_t more = arena - filled < filled ? arena - filled : filled;
        fg_cuda_check(
            cx,
            cudaMemcpyAsync(memory + filled, memory, more, cudaMemcpyDeviceToDevice, bench->stream),
            "cudaMemcpyAsync");
        filled += more;
    }
}

static bool bench_open(FgRtCx *cx, cudaStream_t stream, Bench *out)
{
    const FgRtProgram *program = cx->program;
    uint64_t half = program->arena_bytes / 2 / 256 * 256;
    *out = (Bench){.stream = stream};
    for (int i = 0; i < N_EVENTS; i++)
        fg_cuda_check(cx, cudaEventCreate(&out->events[i]), "cudaEventCreate");
    if (half) {
        out->bytes = half < FLUSH_BYTES ? half : FLUSH_BYTES;
        out->from = cx->memory + program->state_bytes;
        out->to = out->from + half;
        fill_with_noise(cx, out);
    }
    return !cx->fail.failed;
}

static void bench_close(Bench *bench)
{
    for (int i = 0; i < N_EVENTS; i++)
        if (bench->events[i])
            cudaEventDestroy(bench->events[i]);
}

/* Microseconds of the shortest run; negative when the algorithm does not run. */
static double measure(FgRtCx *cx, const Bench *bench, const FgGemmPlan *plan,
                      const cublasLtMatmulAlgo_t *algo)
{
    double best = -1;
    for (size_t i = 0; i < RUNS; i++) {
        if (bench->bytes)
            fg_cuda_check(cx,
                          cudaMemcpyAsync(bench->to, bench->from, bench->bytes,
                                          cudaMemcpyDeviceToDevice, bench->stream),
                          "cudaMemcpyAsync");
        fg_cuda_check(cx, cudaEventRecord(bench->events[2 * i], bench->stream), "cudaEventRecord");
        if (fg_cuda_gemm_launch(cx, bench->stream, plan, algo) != CUBLAS_STATUS_SUCCESS)
            return -1;
        fg_cuda_check(cx, cudaEventRecord(bench->events[2 * i + 1], bench->stream),
                      "cudaEventRecord");
    }
    fg_cuda_check(cx, cudaEventSynchronize(bench->events[N_EVENTS - 1]), "cudaEventSynchronize");
    for (size_t i = 0; i < RUNS && !cx->fail.failed; i++) {
        float ms = 0;
        fg_cuda_check(cx, cudaEventElapsedTime(&ms, bench->events[2 * i], bench->events[2 * i + 1]),
                      "cudaEventElapsedTime");
        best = best < 0 || (double)ms * 1e3 < best ? (double)ms * 1e3 : best;
    }
    return best;
}

/* All candidates in turn, several times over, since clocks drift; the shortest time of each counts.
 * Those far behind after a round are left out. */
static void tune_plan(FgRtCx *cx, const Bench *bench, FgGemmPlan *plan, FgGemmTuned *tuned)
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
            double us = measure(cx, bench, plan, &found[i].algo);
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
    tuned->n++;
    tuned->changed += fastest != 0;
    tuned->first_us += best[0] > 0 ? best[0] : best[fastest];
    tuned->best_us += best[fastest];
}

FgGemmTuned fg_cuda_gemm_tune(FgRtCx *cx, cudaStream_t stream)
{
    FgGemmTuned tuned = {0};
    Bench bench;
    if (bench_open(cx, stream, &bench))
        for (size_t i = 0; i < cx->gemm->n_plans && !cx->fail.failed; i++)
            tune_plan(cx, &bench, cx->gemm->plans[i], &tuned);
    bench_close(&bench);
    return tuned;
}

/* ---- what was chosen ---- */

bool fg_cuda_gemm_recall(FgRtCx *cx, FgGemmPlan *plan)
{
    const FgGemmFile *file = &cx->gemm->file;
    for (size_t i = 0; i < file->n; i++) {
        const FgGemmEntry *entry = &file->entries[i];
        cublasLtMatmulAlgo_t algo;
        cublasLtMatmulHeuristicResult_t result;
        if (memcmp(entry->key, plan->key.field, sizeof entry->key) != 0)
            continue;
        memcpy(&algo, entry->algo, sizeof algo);
        cublasStatus_t status = cublasLtMatmulAlgoCheck(cx->gemm->handle, plan->op, plan->a,
                                                        plan->b, plan->c, plan->c, &algo, &result);
        if (status == CUBLAS_STATUS_SUCCESS &&
            result.workspaceSize <= plan->key.field[FG_GEMM_WORKSPACE]) {
            plan->algo = algo;
            plan->us = entry->us;
            return true;
        }
        fg_cuda_raise(cx,
                      "the file of chosen algorithms lists one that the library refuses for a "
                      "product of %" PRIu64 " x %" PRIu64 " x %" PRIu64
                      " (%s): remove the file, or measure again",
                      plan->key.field[FG_GEMM_N], plan->key.field[FG_GEMM_M],
                      plan->key.field[FG_GEMM_K], cublasLtGetStatusString(status));
        return false;
    }
    return false;
}

void fg_cuda_gemm_adopt(FgRtCx *cx)
{
    for (size_t i = 0; i < cx->gemm->n_plans && !cx->fail.failed; i++)
        (void)fg_cuda_gemm_recall(cx, cx->gemm->plans[i]);
}

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

void fg_cuda_gemm_subject(FgRtCx *cx, char *out, size_t bytes)
{
    char name[256] = "";
    (void)device_name(cx, name, sizeof name);
    snprintf(out, bytes, "%s with cuBLASLt %zu", name, cublasLtGetVersion());
}

bool fg_cuda_gemm_take(FgRtCx *cx, const char *text, size_t bytes, const char *path)
{
    char name[256], error[128];
    FgGemmFile file;
    if (!device_name(cx, name, sizeof name))
        return false;
    if (!fg_gemm_file_parse(&file, text, bytes, name, cublasLtGetVersion(), error, sizeof error)) {
        fg_cuda_raise(cx, "%s: %s", path, error);
        return false;
    }
    fg_gemm_file_free(&cx->gemm->file);
    cx->gemm->file = file;
    return file.n > 0;
}

char *fg_cuda_gemm_text(FgRtCx *cx, const char *older, size_t older_bytes, size_t *out_bytes)
{
    const FgCudaGemm *gemm = cx->gemm;
    char name[256], *text = NULL;
    if (!device_name(cx, name, sizeof name))
        return NULL;
    FgGemmEntry *entries = calloc(gemm->n_plans + 1, sizeof *entries);
    FILE *out = entries ? open_memstream(&text, out_bytes) : NULL;
    for (size_t i = 0; out && i < gemm->n_plans; i++) {
        memcpy(entries[i].key, gemm->plans[i]->key.field, sizeof entries[i].key);
        memcpy(entries[i].algo, &gemm->plans[i]->algo, sizeof entries[i].algo);
        entries[i].us = gemm->plans[i]->us;
    }
    if (out)
        fg_gemm_file_write(out, older, older_bytes, name, cublasLtGetVersion(), entries,
                           gemm->n_plans);
    bool ok = out && fclose(out) == 0;
    free(entries);
    if (ok)
        return text;
    free(text);
    fg_cuda_raise(cx, "out of memory for the file of algorithms");
    return NULL;
}

/* ---- the file ---- */

char *fg_cuda_gemm_load(const char *path, size_t *out_bytes)
{
    const size_t piece = 1 << 16;
    FILE *file = fopen(path, "r");
    char *text = NULL;
    bool ok = file != NULL;
    *out_bytes = 0;
    while (ok && !feof(file)) {
        char *grown = realloc(text, *out_bytes + piece);
        ok = grown != NULL;
        if (ok) {
            text = grown;
            *out_bytes += fread(text + *out_bytes, 1, piece, file);
            ok = !ferror(file);
        }
    }
    if (file)
        fclose(file);
    if (ok)
        return text;
    free(text);
    return NULL;
}

void fg_cuda_gemm_read(FgRtCx *cx, const char *path)
{
    size_t bytes;
    char *text = fg_cuda_gemm_load(path, &bytes);
    if (text)
        (void)fg_cuda_gemm_take(cx, text, bytes, path);
    else
        fg_cuda_raise(cx, "%s: cannot be read", path);
    free(text);
}

void fg_cuda_gemm_write(FgRtCx *cx, const char *path)
{
    size_t older_bytes, bytes = 0;
    char *older = fg_cuda_gemm_load(path, &older_bytes), error[128];
    FgGemmFile file = {0};
    bool hidden = !older && access(path, F_OK) == 0;
    bool ours = !older || fg_gemm_file_parse(&file, older, older_bytes, "", 0, error, sizeof error);
    fg_gemm_file_free(&file);
    if (hidden) {
        fg_cuda_raise(cx, "%s is not overwritten: it cannot be read", path);
        return;
    }
    if (!ours)
        fg_cuda_raise(cx, "%s is not overwritten: %s", path, error);
    char *text = ours ? fg_cuda_gemm_text(cx, older, older_bytes, &bytes) : NULL;
    if (text && !fg_cuda_fault(cx, FG_FAULT_WRITE, "the file of algorithms") &&
        !fg_whole_file_put(path, text, bytes))
        fg_cuda_raise(cx, "%s: cannot be written: %s", path, strerror(errno));
    free(older);
    free(text);
}
