/* Whole runs of the trainer over a program written by hand, against the same arithmetic in double
 * precision. */
#include "runtime/trainer/safetensors.h"
#include "runtime/trainer/shelf.h"
#include "runtime/trainer/trainer.h"
#include "runtime/trainer/weights.h"
#include "tests/runtime/bigram.h"
#include "tests/runtime/scratch.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { V = BIGRAM_VOCAB, S = BIGRAM_SEQ, N = V * V, N_TOKENS = 400, MAX_STEPS = 40 };

static int32_t token_at(uint32_t i)
{
    return (int32_t)((i * i + i / 3) % V);
}

typedef struct Run {
    char *folder, *tokens;
    int status;
    char *text; /* what went to standard error */
} Run;

static Run run_new(void)
{
    Run run = {.folder = scratch_new()};
    unsigned char *bytes = calloc(1024 + 2 * N_TOKENS, 1);
    memcpy(bytes, &(int32_t[]){20240520, 1, N_TOKENS}, 12);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        bytes[1024 + 2 * i] = (unsigned char)token_at(i);
    run.tokens = scratch_path(run.folder, "tokens.bin");
    scratch_write(run.tokens, bytes, 1024 + 2 * N_TOKENS);
    free(bytes);
    return run;
}

static void run_free(Run *run)
{
    scratch_remove(run->folder);
    free(run->folder);
    free(run->tokens);
    free(run->text);
}

/* Runs `prog --data TOKENS line`, in which every @ stands for the folder; standard error goes into
 * run->text. */
static int go(Run *run, const FgRtProgram *program, const char *line)
{
    char text[2048] = "";
    char *argv[40] = {(char *)(uintptr_t)"prog", (char *)(uintptr_t)"--data", run->tokens};
    int argc = 3;
    size_t length = 0, bytes;
    for (; *line && length < sizeof text - 512; line++) {
        if (*line == '@')
            length += (size_t)snprintf(text + length, 512, "%s", run->folder);
        else
            text[length++] = *line;
        text[length] = 0;
    }
    for (char *word = strtok(text, " "); word && argc < 40; word = strtok(NULL, " "))
        argv[argc++] = word;
    char *path = scratch_path(run->folder, "stderr");
    int kept = dup(2);
    if (kept < 0 || !freopen(path, "w", stderr))
        abort();
    run->status = fg_trainer_main(program, argc, argv);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    free(run->text);
    run->text = scratch_read(path, &bytes);
    free(path);
    return run->status;
}

static bool says(const Run *run, const char *part)
{
    if (run->text && strstr(run->text, part))
        return true;
    printf("status %d, text:\n%s\n  not: %s\n", run->status, run->text ? run->text : "", part);
    return false;
}

/* Numbers of a key in the log, in order; their count. */
static uint32_t logged(const Run *run, const char *name, const char *key, double *out)
{
    char *path = scratch_path(run->folder, name), quoted[64];
    size_t bytes;
    uint32_t n = 0;
    char *text = scratch_read(path, &bytes);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    for (char *at = text; at && n < MAX_STEPS && (at = strstr(at, quoted));)
        out[n++] = strtod(at += strlen(quoted), NULL);
    free(text);
    free(path);
    return n;
}

/* ---- the reference: the same model, in double, on one rank ---- */

typedef struct Reference {
    double w[N], m[N], v[N], grad[N], loss, norm;
    uint32_t position, t;
} Reference;

static void reference_start(Reference *ref)
{
    Bigram bigram;
    bigram_make(&bigram, 1, 1, 1, 0, false);
    *ref = (Reference){0};
    for (uint64_t i = 0; i < N; i++)
        ref->w[i] = (double)fg_init_value(&bigram.program.params[0], 42, i);
}

static void reference_gradient(Reference *ref, uint32_t rows, uint32_t accumulate)
{
    double scale = 1.0 / (rows * S * accumulate);
    memset(ref->grad, 0, sizeof ref->grad);
    ref->loss = ref->norm = 0;
    for (uint32_t k = 0; k < accumulate; k++) {
        if (ref->position + rows * S + 1 > N_TOKENS)
            ref->position = 0;
        for (uint32_t i = 0; i < rows * S; i++) {
            int32_t x = token_at(ref->position + i), y = token_at(ref->position + i + 1);
            double sum = 0, *row = ref->w + x * V;
            for (int j = 0; j < V; j++)
                sum += exp(row[j]);
            ref->loss += scale * (log(sum) - row[y]);
            for (int j = 0; j < V; j++)
                ref->grad[x * V + j] += scale * (exp(row[j]) / sum - (j == y));
        }
        ref->position += rows * S;
    }
    for (int i = 0; i < N; i++)
        ref->norm += ref->grad[i] * ref->grad[i];
    ref->norm = sqrt(ref->norm);
}

/* lr 1e-2, betas 0.9 and 0.95, eps 1e-8, decay 0.1: what the runs below use. */
static void reference_update(Reference *ref, double clip)
{
    double factor = clip > 0 ? fmin(1, clip / (ref->norm + 1e-6)) : 1;
    ref->t++;
    for (int i = 0; i < N; i++) {
        double g = ref->grad[i] * factor;
        ref->m[i] = 0.9 * ref->m[i] + 0.1 * g;
        ref->v[i] = 0.95 * ref->v[i] + 0.05 * g * g;
        ref->w[i] *= 1 - 1e-2 * 0.1;
        ref->w[i] -= 1e-2 * ref->m[i] / (1 - pow(0.9, ref->t)) /
                     (sqrt(ref->v[i] / (1 - pow(0.95, ref->t))) + 1e-8);
    }
}

#define COMMON "--steps 20 --lr 1e-2 --beta1 0.9 --beta2 0.95 --weight-decay 0.1 "

static void follows(int *failures, uint32_t ranks, uint32_t batch, uint32_t rows,
                    uint32_t accumulate, double clip, const char *more)
{
    Run run = run_new();
    Bigram bigram;
    Reference ref;
    double losses[MAX_STEPS], norms[MAX_STEPS];
    char line[256];
    snprintf(line, sizeof line, COMMON "--log @/log --global-batch %u%s", rows, more);
    bigram_make(&bigram, ranks, batch, accumulate, clip, false);
    if (go(&run, &bigram.program, line) != 0) {
        printf("%s\n", run.text);
        ++*failures;
    }
    CHECK_EQ_U64(logged(&run, "log", "loss", losses), 20);
    CHECK_EQ_U64(logged(&run, "log", "grad_norm", norms), 20);
    reference_start(&ref);
    for (int s = 0; s < 20 && !*failures; s++) {
        reference_gradient(&ref, rows, accumulate);
        CHECK_NEAR(losses[s], ref.loss, 2e-6 * ref.loss);
        CHECK_NEAR(norms[s], ref.norm, 1e-5 * ref.norm);
        reference_update(&ref, clip);
    }
    run_free(&run);
}

static void unclipped(int *failures)
{
    follows(failures, 1, 6, 6, 1, 0, "");
    follows(failures, 2, 3, 6, 1, 0, " --checked");
    follows(failures, 3, 2, 6, 1, 0, "");
}

static void clipped(int *failures)
{
    follows(failures, 1, 5, 5, 3, 0.05, "");
    follows(failures, 2, 3, 5, 2, 0.05, "");
    follows(failures, 3, 2, 5, 4, 0.05, " --checked");
    follows(failures, 3, 2, 2, 1, 0.05, ""); /* two ranks without a row */
}

static void gradients(int *failures)
{
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        Run run = run_new();
        Bigram bigram;
        Reference ref;
        FgFail fail = {0};
        bigram_make(&bigram, ranks, 6 / ranks, 2, ranks == 2 ? 1e3 : 0, false);
        CHECK(go(&run, &bigram.program,
                 "--dump-grads @/g --steps 9 --log @/log --weights-prefix p.") == 0);
        char *path = scratch_path(run.folder, "g");
        FgSafetensors *file = fg_safetensors_open(path, &fail);
        const FgTensor *table = file ? fg_safetensors_find(file, "p.table") : NULL;
        double steps[MAX_STEPS];
        CHECK(table && table->dtype == FG_ST_F32 && table->rank == 2 && table->dims[1] == V);
        CHECK(file && fg_safetensors_count(file) == 1);
        CHECK_EQ_U64(logged(&run, "log", "loss", steps), 1);
        reference_start(&ref);
        reference_gradient(&ref, 6, 2);
        for (uint64_t i = 0; table && i < N; i++) {
            float got;
            fg_tensor_floats(table, i, 1, &got);
            CHECK_NEAR((double)got, ref.grad[i], 1e-7);
        }
        fg_safetensors_close(file);
        free(path);
        run_free(&run);
    }
}

/* ---- stopping and going on ---- */

static void same_file(int *failures, const Run *run, const char *left, const char *right,
                      const char *name)
{
    char a[128], b[128];
    size_t n = 0, k = 0;
    snprintf(a, sizeof a, "%s/%s", left, name);
    snprintf(b, sizeof b, "%s/%s", right, name);
    char *path_a = scratch_path(run->folder, a), *path_b = scratch_path(run->folder, b);
    char *text_a = scratch_read(path_a, &n), *text_b = scratch_read(path_b, &k);
    if (!text_a || !text_b || n != k || memcmp(text_a, text_b, n) != 0) {
        printf("%s and %s differ\n", a, b);
        ++*failures;
    }
    free(path_a);
    free(path_b);
    free(text_a);
    free(text_b);
}

static void resumes(int *failures, uint32_t ranks, double clip, bool bf16)
{
    static const char *const FILES[] = {"manifest.json", "model.safetensors", "exp_avg.safetensors",
                                        "exp_avg_sq.safetensors", "master.safetensors"};
    Run run = run_new();
    Bigram bigram;
    double whole[MAX_STEPS], second[MAX_STEPS];
    const char *lr = "--lr 1e-2 --lr-schedule cosine --warmup 3 --steps 20 --global-batch 5 ";
    char line[512];
    bigram_make(&bigram, ranks, (5 + ranks - 1) / ranks, 2, clip, bf16);
    snprintf(line, sizeof line, "%s --save @/a --log @/whole", lr);
    CHECK(go(&run, &bigram.program, line) == 0);
    snprintf(line, sizeof line, "%s --save @/b --save-every 7", lr);
    CHECK(go(&run, &bigram.program, line) == 0);
    snprintf(line, sizeof line, "%s --save @/c --resume @/b/step-000007 --log @/second", lr);
    CHECK(go(&run, &bigram.program, line) == 0);
    CHECK(says(&run, "/b/step-000007, 7 steps done"));
    for (int i = 0; i < (bf16 ? 5 : 4); i++) {
        same_file(failures, &run, "a/step-000020", "b/step-000020", FILES[i]);
        same_file(failures, &run, "a/step-000020", "c/step-000020", FILES[i]);
    }
    CHECK_EQ_U64(logged(&run, "whole", "loss", whole), 20);
    CHECK_EQ_U64(logged(&run, "second", "loss", second), 13);
    CHECK(memcmp(whole + 7, second, 13 * sizeof *second) == 0);
    run_free(&run);
}

static void resume_is_bitwise(int *failures)
{
    resumes(failures, 1, 0, false);
    resumes(failures, 2, 0.05, false);
    resumes(failures, 3, 0.05, true);
    resumes(failures, 2, 0, true);
}

static void resume_on_other_ranks(int *failures)
{
    Run run = run_new();
    Bigram two, three;
    double whole[MAX_STEPS], second[MAX_STEPS];
    bigram_make(&two, 2, 3, 1, 0.05, true);
    bigram_make(&three, 3, 2, 1, 0.05, false);
    CHECK(go(&run, &two.program, "--steps 12 --lr 1e-2 --log @/whole") == 0);
    CHECK(go(&run, &two.program, "--steps 6 --lr 1e-2 --save @/d --save-every 2") == 0);
    CHECK(go(&run, &three.program, "--steps 12 --lr 1e-2 --resume @/d --log @/second") == 0);
    CHECK(says(&run, "step-000006"));
    CHECK_EQ_U64(logged(&run, "whole", "loss", whole), 12);
    CHECK_EQ_U64(logged(&run, "second", "loss", second), 6);
    for (int s = 0; s < 6; s++) /* bf16 against fp32: a rounding of 2^-9 on logits below 1 */
        CHECK_NEAR(second[s], whole[6 + s], 4e-3);
    CHECK(go(&run, &three.program, "--steps 6 --resume @/d") == 0);
    CHECK(says(&run, "nothing to do") && says(&run, "no step to do"));
    CHECK(go(&run, &three.program, "--resume @/none") == 1);
    CHECK(says(&run, "cannot be read"));
    CHECK(go(&run, &three.program, "--resume @") == 1);
    CHECK(says(&run, "no checkpoint here"));
    run_free(&run);
}

/* One bit of each file, in turn: of a number in the manifest, in the middle of the tensors. */
static void damage_is_found(int *failures)
{
    static const char *const FILES[] = {"manifest.json", "exp_avg.safetensors",
                                        "exp_avg_sq.safetensors", "master.safetensors",
                                        "model.safetensors"};
    Run run = run_new();
    Bigram bigram;
    bigram_make(&bigram, 2, 3, 1, 0, true);
    CHECK(go(&run, &bigram.program, "--steps 3 --save @/e") == 0);
    for (int i = 0; i < 5; i++) {
        char name[128];
        snprintf(name, sizeof name, "e/step-000003/%s", FILES[i]);
        char *path = scratch_path(run.folder, name);
        size_t n = 0;
        char *bytes = scratch_read(path, &n), *number = bytes ? strstr(bytes, "\"rows\"") : NULL;
        CHECK(bytes && (i > 0 || number));
        char *bit = i > 0 ? bytes + n - n / 4 : number ? strchr(number, ',') - 1 : NULL;
        if (bytes && bit) {
            *bit ^= 1;
            CHECK(scratch_write(path, bytes, n));
            int status = go(&run, &bigram.program, "--steps 4 --resume @/e");
            CHECK(status == (i == 4 ? 0 : 1)); /* masters are read, not what was rounded */
            CHECK(i == 4 || (says(&run, FILES[i]) && says(&run, "damaged: ")));
            *bit ^= 1;
            CHECK(scratch_write(path, bytes, n));
        }
        free(bytes);
        free(path);
    }
    CHECK(go(&run, &bigram.program, "--steps 4 --resume @/e") == 0);
    run_free(&run);
}

/* A manifest of an older program, which had no sums, with a count below zero: no place to read. */
static void counts_are_counts(int *failures)
{
    static const char *const KEYS[] = {"\"position\": ", "\"step\": ", "\"rows\": "};
    Run run = run_new();
    Bigram bigram;
    bigram_make(&bigram, 2, 3, 1, 0, false);
    CHECK(go(&run, &bigram.program, "--steps 3 --save @/f --seed 18446744073709551615") == 0);
    char *path = scratch_path(run.folder, "f/step-000003/manifest.json"), *at;
    size_t n = 0;
    char *text = scratch_read(path, &n);
    CHECK(text && (at = strstr(text, "\"sum\"")) && (at[1] = 'S'));
    for (int i = 0; text && i < 3; i++) {
        size_t before = (size_t)(strstr(text, KEYS[i]) + strlen(KEYS[i]) - text);
        char *made = fg_text("%.*s-%s", (int)before, text, text + before);
        CHECK(scratch_write(path, made, n + 1));
        CHECK(go(&run, &bigram.program, "--steps 4 --resume @/f") == 1);
        CHECK(says(&run, "is not a whole number"));
        free(made);
    }
    CHECK(text && scratch_write(path, text, n)); /* of a seed all 64 bits count */
    CHECK(go(&run, &bigram.program, "--steps 4 --resume @/f") == 0);
    free(text);
    free(path);
    run_free(&run);
}

static void stops_on_a_signal(int *failures)
{
    for (int with_save = 0; with_save < 2; with_save++) {
        Run run = run_new();
        Bigram bigram;
        int status = 0;
        bigram_make(&bigram, 2, 3, 1, 0.5, false);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) /* as a script starts it that traps SIGINT: that one is not for it */
            signal(SIGINT, SIG_IGN);
        if (child == 0)
            _exit(go(&run, &bigram.program,
                     with_save ? "--steps 100000000 --save @/s --log @/log"
                               : "--steps 100000000 --log @/log"));
        double first[MAX_STEPS];
        for (int i = 0; i < 1000 && logged(&run, "log", "loss", first) < 3; i++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        kill(child, SIGINT);
        kill(child, SIGTERM);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK_EQ_U64(WEXITSTATUS(status), with_save ? 0 : 128 + SIGTERM);
        if (with_save) {
            CHECK(go(&run, &bigram.program, "--steps 1 --resume @/s") == 0);
            CHECK(says(&run, "nothing to do"));
        }
        run_free(&run);
    }
}

/* ---- what goes wrong ---- */

static void errors(int *failures)
{
    Run run = run_new();
    Bigram bigram;
    bigram_make(&bigram, 2, 2, 1, 0, false);
    CHECK(go(&run, &bigram.program, "--step 3") == 2);
    CHECK(says(&run, "did you mean '--steps'?"));
    CHECK(go(&run, &bigram.program, "--local-ranks 3") == 2);
    CHECK(says(&run, "compiled for 2"));
    /* All ranks are in this process: what stands in a shell is left alone, a launcher is not. */
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    CHECK(go(&run, &bigram.program, "--steps 1") == 0);
    CHECK(go(&run, &bigram.program, "--steps 1 --local-ranks 2") == 0);
    setenv("LOCAL_RANK", "0", 1);
    CHECK(go(&run, &bigram.program, "--steps 1") == 1);
    CHECK(says(&run, "torchrun started several processes") && says(&run, "unset LOCAL_RANK"));
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_RANK");
    CHECK(go(&run, &bigram.program, "--global-batch 5") == 2);
    CHECK(says(&run, "1 to 4 rows"));
    CHECK(go(&run, &bigram.program, "--weights @/none") == 1);
    CHECK(says(&run, "cannot be opened"));
    CHECK(go(&run, &bigram.program, "--log @/no/log") == 1);
    CHECK(says(&run, "cannot be opened"));
    CHECK(go(&run, &bigram.program, "--save @/tokens.bin/x") == 1);
    CHECK(says(&run, "cannot be created"));
    CHECK(go(&run, &bigram.program, "--steps 60 --lr 1e38 --weight-decay 0") == 1);
    CHECK(says(&run, "is not finite"));
    CHECK(!strstr(run.text, "-nan"));
    run_free(&run);
}

/* Nothing is trained for a place that cannot be written. */
static void bad_places(int *failures)
{
    static const char *const LINES[] = {"--save @/tokens.bin", "--dump-grads @/no/x",
                                        "--dump-grads @",      "--profile @/no/x",
                                        "--profile @",         "--log @"};
    Run run = run_new();
    Bigram bigram;
    bigram_make(&bigram, 2, 2, 1, 0, false);
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        CHECK(go(&run, &bigram.program, LINES[i]) == 1);
        CHECK(says(&run, "error: ") && !strstr(run.text, "step 1/"));
    }
    run_free(&run);
}

/* A run writes over nothing that it reads, nor twice into one file, whatever the names. */
static void files_stay_apart(int *failures)
{
    static const struct {
        const char *line, *says;
    } ROWS[] = {
        {"--dump-grads @/tokens.bin", "--dump-grads @/tokens.bin would be written over --data"},
        {"--profile @/./tokens.bin", "would be written over --data"},
        {"--log @/soft", "would be written over --data"},
        {"--log @/hard", "would be written over --data"},
        {"--weights @/w --dump-grads @/w", "would be written over --weights"},
        {"--log @/new --dump-grads @/new", "--log and --dump-grads would both write"},
        {"--log @/new --profile @/./new", "--log and --profile would both write"},
        {"--log @/dangling --profile @/nowhere", "--log and --profile would both write"},
        {"--save @/new/ --profile @/new", "--profile and --save would both write"},
        {"--dump-grads /proc/self/exe", "would be written over the program"},
        {"--resume @/ck --save @/ck --log @/ck/step-000001/manifest.json",
         "over a file of the checkpoint"},
        {"--resume @/ck/step-000001 --profile @/ck/step-000001/exp_avg.safetensors",
         "over a file of the checkpoint"},
    };
    Run run = run_new();
    Bigram bigram;
    size_t before, after;
    bigram_make(&bigram, 2, 2, 1, 0, false);
    char *soft = scratch_path(run.folder, "soft"), *hard = scratch_path(run.folder, "hard");
    char *dangling = scratch_path(run.folder, "dangling"), *w = scratch_path(run.folder, "w");
    CHECK(symlink("tokens.bin", soft) == 0 && link(run.tokens, hard) == 0);
    CHECK(symlink("nowhere", dangling) == 0 && scratch_write(w, "weights", 7));
    CHECK(go(&run, &bigram.program, "--steps 1 --save @/ck --log @/log --profile @/table") == 0);
    char *was = scratch_read(run.tokens, &before);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        CHECK(go(&run, &bigram.program, ROWS[i].line) == 2);
        const char *part = strchr(ROWS[i].says, '@');
        CHECK(says(&run, part ? part + 1 : ROWS[i].says) && !strstr(run.text, "step 1/"));
    }
    char *is = scratch_read(run.tokens, &after);
    CHECK(before == after && memcmp(was, is, before) == 0);
    CHECK(go(&run, &bigram.program, "--steps 2 --resume @/ck --save @/ck --log @/log") == 0);
    CHECK(go(&run, &bigram.program, "--steps 2 --log /dev/null --profile /dev/null") == 0);
    free(was);
    free(is);
    free(soft);
    free(hard);
    free(dangling);
    free(w);
    run_free(&run);
}

static void folders_of_other_runs(int *failures)
{
    Run run = run_new();
    Bigram bigram;
    FgShelf shelf;
    FgFail fail = {0};
    bigram_make(&bigram, 2, 2, 1, 0, false);
    CHECK(go(&run, &bigram.program, "--steps 6 --save @/ck --save-every 2") == 0);
    CHECK(go(&run, &bigram.program, "--steps 2 --save @/ck") == 1);
    CHECK(says(&run, "holds checkpoints of another run (step-000002, step-000004, step-000006)"));
    CHECK(go(&run, &bigram.program, "--steps 4 --resume @/ck/step-000002 --save @/ck") == 0);
    CHECK(says(&run, "(step-000004, step-000006)") && says(&run, "/ck takes "));
    CHECK(says(&run, "saved    ") && !strstr(run.text, "note:"));
    CHECK(go(&run, &bigram.program, "--steps 8 --resume @/ck --save @/ck --global-batch 3") == 0);
    CHECK(says(&run, "a step had 4 rows before (on 2 ranks) and has 3 from here on"));
    CHECK(!strstr(run.text, "warning:"));
    char *folder = scratch_path(run.folder, "ck");
    CHECK(fg_shelf_open(&shelf, folder, &fail));
    CHECK(go(&run, &bigram.program, "--steps 9 --resume @/ck --save @/ck") == 1);
    CHECK(says(&run, "another run is saving here") && !strstr(run.text, "step 9/"));
    fg_shelf_close(&shelf);
    free(folder);
    run_free(&run);
}

static void a_failing_call(int *failures)
{
    Run run = run_new();
    Bigram bigram;
    size_t bytes;
    char *text = scratch_read(run.tokens, &bytes);
    text[1024 + 2 * 9] = 8; /* the second rank's second token */
    scratch_write(run.tokens, text, bytes);
    free(text);
    bigram_make(&bigram, 3, 2, 1, 0.1, false);
    CHECK(go(&run, &bigram.program, "--steps 3") == 1);
    CHECK(says(&run, "rank 1, embedding 'logits' (bigram.json:7:9)"));
    run_free(&run);
}

static void what_it_reports(int *failures)
{
    Run run = run_new();
    Bigram bigram;
    double values[MAX_STEPS];
    bigram_make(&bigram, 2, 2, 1, 0, false);
    CHECK(go(&run, &bigram.program, "--steps 3 --log @/log") == 0);
    CHECK(says(&run, "bigram   67 parameters   2 ranks   fp32"));
    CHECK(says(&run, "step 3/3   loss "));
    CHECK(says(&run, "memory   planned 6.50 KiB a rank"));
    CHECK(says(&run, "predicted 0.1 ms"));
    CHECK(!strchr(run.text, '\r'));
    CHECK(go(&run, &bigram.program, "--steps 2 --log @/log") == 0);
    CHECK(go(&run, &bigram.program, "--steps 7 --print-every 3 --profile @/profile") == 0);
    CHECK(!strstr(run.text, "step 1/7") && !strstr(run.text, "step 2/7"));
    CHECK(says(&run, "step 3/7") && says(&run, "step 6/7") && says(&run, "step 7/7"));
    CHECK(!strstr(run.text, "step 4/7"));
    CHECK(go(&run, &bigram.program, "--dump-grads @/g --global-batch 1") == 0);
    CHECK(says(&run, "step 1/1") && says(&run, "1 row a step"));
    CHECK(says(&run, "/g: gradients of 1 parameter\n"));
    CHECK(go(&run, &bigram.program, "--dump-grads @/g") == 0); /* in place of the old one */
    CHECK_EQ_U64(logged(&run, "log", "event", values), 2);
    CHECK_EQ_U64(logged(&run, "log", "learning_rate", values), 5);
    CHECK_NEAR(values[4], 3e-4, 0);
    CHECK_EQ_U64(logged(&run, "log", "tokens_per_second", values), 5);
    CHECK_EQ_U64(logged(&run, "log", "ms", values), 5);
    run_free(&run);
}

/* Whether a table of --profile has a row of an op. */
static bool times(const Run *run, const char *name, const char *op)
{
    uint64_t bytes;
    char column[32], *path = scratch_path(run->folder, name), *text = scratch_read(path, &bytes);
    snprintf(column, sizeof column, "\t%s\t", op);
    bool found = text && strstr(text, column);
    free(path);
    free(text);
    return found;
}

static void a_profile_of_some(int *failures)
{
    Run run = run_new();
    Bigram bigram;
    bigram_make(&bigram, 2, 2, 1, 0, false);
    CHECK(go(&run, &bigram.program, "--steps 2 --profile @/all") == 0);
    CHECK(times(&run, "all", "adamw") && times(&run, "all", "gather"));
    CHECK(times(&run, "all", "cross_entropy"));
    CHECK(go(&run, &bigram.program, "--steps 2 --profile @/some --profile-ops adamw,gather") == 0);
    CHECK(times(&run, "some", "adamw") && times(&run, "some", "gather"));
    CHECK(!times(&run, "some", "cross_entropy"));
    CHECK(go(&run, &bigram.program, "--steps 2 --profile @/none --profile-ops gather,adam") == 1);
    CHECK(says(&run, "no node of the program is 'adam'"));
    CHECK(go(&run, &bigram.program, "--steps 2 --profile @/none --profile-ops gather,") == 1);
    CHECK(says(&run, "no node of the program is ''"));
    run_free(&run);
}

UNIT_MAIN({"unclipped runs follow the reference", unclipped},
          {"clipped runs follow the reference", clipped}, {"gradients", gradients},
          {"resume is bitwise", resume_is_bitwise},
          {"resume on other ranks", resume_on_other_ranks}, {"damage is found", damage_is_found},
          {"counts are counts", counts_are_counts}, {"stops on a signal", stops_on_a_signal},
          {"errors", errors}, {"bad places", bad_places}, {"files stay apart", files_stay_apart},
          {"folders of other runs", folders_of_other_runs}, {"a failing call", a_failing_call},
          {"what it reports", what_it_reports}, {"a profile of some", a_profile_of_some})
