/* One table drives parsing, suggestions and --help. Values are given as `--name value` or
 * `--name=value`. */
#include "runtime/trainer/options.h"

#include "runtime/driver.h"
#include "runtime/loss_scale.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum Kind { TEXT, COUNT, REAL, SHAPE, FLAG, HEADING } Kind;

typedef struct Row {
    Kind kind;
    const char *name, *value, *help;
    size_t field; /* offset in FgOptions */
} Row;

#define FIELD(name) offsetof(FgOptions, name)

enum { MOST_WINDOW = 1 << 24 }; /* whole numbers that a float holds */

static const Row ROWS[] = {
    {HEADING, "Input", NULL, NULL, 0},
    {TEXT, "--data", "FILE",
     "token file (llm.c .bin, u16 or u32); read in order, from the start again at its end",
     FIELD(data)},
    {TEXT, "--inputs", "FILE",
     "safetensors file: one fixed batch, used at every micro-step, tensors named as the inputs",
     FIELD(inputs)},
    {COUNT, "--global-batch", "R",
     "rows of a micro-step over all ranks; missing rows are ignored ones (default: all)",
     FIELD(global_batch)},
    {HEADING, "Training", NULL, NULL, 0},
    {COUNT, "--steps", "N", "optimizer steps of the whole run (default 10)", FIELD(steps)},
    {REAL, "--lr", "X", "learning rate (default 3e-4)", FIELD(lr)},
    {COUNT, "--warmup", "N", "steps of linear warm-up (default 0)", FIELD(warmup)},
    {REAL, "--min-lr", "X", "rate at the end of a decaying schedule (default 0)", FIELD(min_lr)},
    {SHAPE, "--lr-schedule", "SHAPE", "constant, linear or cosine (default constant)",
     FIELD(lr_schedule)},
    {REAL, "--beta1", "X", "AdamW (default 0.9)", FIELD(beta1)},
    {REAL, "--beta2", "X", "AdamW (default 0.95)", FIELD(beta2)},
    {REAL, "--eps", "X", "AdamW (default 1e-8)", FIELD(eps)},
    {REAL, "--weight-decay", "X", "AdamW, on the parameters marked at compile time (default 0.1)",
     FIELD(weight_decay)},
    {HEADING, "Loss scale (fp16 programs)", NULL, NULL, 0},
    {TEXT, "--loss-scale", "X", "dynamic (default), or a power of two that stays",
     FIELD(loss_scale)},
    {REAL, "--loss-scale-init", "X", "where a dynamic scale begins (default 65536)",
     FIELD(first_scale)},
    {COUNT, "--loss-scale-window", "N",
     "steps without overflow after which it doubles (default 2000)", FIELD(scale_window)},
    {COUNT, "--loss-scale-hysteresis", "N", "overflows before it is halved (default 1: at once)",
     FIELD(scale_hysteresis)},
    {HEADING, "Weights", NULL, NULL, 0},
    {TEXT, "--weights", "FILE", "safetensors file to start from (default: initialise)",
     FIELD(weights)},
    {TEXT, "--weights-prefix", "P", "what the file's names have before the model's names",
     FIELD(weights_prefix)},
    {COUNT, "--seed", "N",
     "of the initialisation (default 42); the result does not depend on the ranks", FIELD(seed)},
    {HEADING, "Output", NULL, NULL, 0},
    {TEXT, "--log", "FILE", "append one JSON object a step", FIELD(log)},
    {COUNT, "--print-every", "N", "print the line of every N-th step, and the last (default 1)",
     FIELD(print_every)},
    {TEXT, "--save", "DIR", "write checkpoints DIR/step-NNNNNN, one at the end", FIELD(save)},
    {COUNT, "--save-every", "N", "and one every N steps", FIELD(save_every)},
    {TEXT, "--resume", "DIR", "continue from a checkpoint, or the newest one in DIR, up to --steps",
     FIELD(resume)},
    {TEXT, "--dump-grads", "FILE",
     "write the first step's gradients (after clipping) as safetensors, then stop",
     FIELD(dump_grads)},
    {HEADING, "Running", NULL, NULL, 0},
    {COUNT, "--local-ranks", "N",
     "ranks on this machine, when no launcher starts them: as many as were compiled for",
     FIELD(local_ranks)},
    {TEXT, "--rendezvous", "HOST:PORT",
     "where processes meet: rank 0's node and a free port (default: as the launcher says)",
     FIELD(rendezvous)},
    {COUNT, "--join-timeout", "S", "seconds that processes wait for each other (default 300)",
     FIELD(join_s)},
    {TEXT, "--profile", "FILE", "write the time spent in each node as a table", FIELD(profile)},
    {TEXT, "--profile-ops", "OP,...", "time these ops alone: less time goes into timing",
     FIELD(profile_ops)},
    {FLAG, "--checked", NULL,
     "verify order, memory and declared effects of every call (host programs)", FIELD(checked)},
    {FLAG, "--poison", NULL, "fill memory with NaN when it is released, and the arena at start",
     FIELD(poison)},
    {FLAG, "--no-graph", NULL, "launch every call by itself, not whole steps (cuda programs)",
     FIELD(no_graph)},
    {TEXT, "--attention", "WORD", "library where it can (default), or builtin (cuda programs)",
     FIELD(attention)},
    {TEXT, "--gemm-cache", "FILE",
     "algorithms of matrix products; measured and written when FILE is not there (cuda programs; "
     "default: PROGRAM.gemm, if it is there)",
     FIELD(gemm_cache)},
    {FLAG, "--tune", NULL,
     "measure algorithms of matrix products, write them as --gemm-cache says, and stop (cuda "
     "programs)",
     FIELD(tune)},
    {FLAG, "--deterministic", NULL,
     "two runs give the same bits; attention may take longer (cuda programs)",
     FIELD(deterministic)},
    {FLAG, "--help", NULL, "this text", FIELD(help)},
    {FLAG, "--version", NULL, "what was compiled", FIELD(version)},
};
#define N_ROWS (sizeof ROWS / sizeof *ROWS)

static const char *const SHAPES[] = {"constant", "linear", "cosine"};

static const Row *find_row(const char *word, size_t length)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (ROWS[i].kind != HEADING && strlen(ROWS[i].name) == length &&
            memcmp(ROWS[i].name, word, length) == 0)
            return &ROWS[i];
    return NULL;
}

static bool unknown(const char *word, FgFail *fail)
{
    const char *names[N_ROWS];
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        if (ROWS[i].kind != HEADING)
            names[n++] = ROWS[i].name;
    const char *near = fg_nearest(word, names, n);
    if (word[0] != '-')
        return fg_fail(fail, "unexpected argument '%s'", word);
    if (near)
        return fg_fail(fail, "unknown option '%s'; did you mean '%s'?", word, near);
    return fg_fail(fail, "unknown option '%s'; --help lists them", word);
}

static bool read_count(const Row *row, const char *text, void *out, FgFail *fail)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return fg_fail(fail, "%s: '%s' is not a whole number", row->name, text);
    *(uint64_t *)out = value;
    return true;
}

static bool read_real(const Row *row, const char *text, void *out, FgFail *fail)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return fg_fail(fail, "%s: '%s' is not a number", row->name, text);
    if (value < 0)
        return fg_fail(fail, "%s: %s is below 0", row->name, text);
    *(double *)out = value;
    return true;
}

static bool read_shape(const char *text, void *out, FgFail *fail)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (strcmp(SHAPES[i], text) == 0) {
            *(FgLrShape *)out = (FgLrShape)i;
            return true;
        }
    return fg_fail(fail, "--lr-schedule: '%s' is not constant, linear or cosine", text);
}

static bool set_value(FgOptions *options, const Row *row, const char *text, FgFail *fail)
{
    void *field = (char *)options + row->field;
    switch (row->kind) {
    case TEXT:
        *(const char **)field = text;
        return true;
    case COUNT:
        return read_count(row, text, field, fail);
    case REAL:
        return read_real(row, text, field, fail);
    case SHAPE:
        return read_shape(text, field, fail);
    case FLAG:
    case HEADING:
        break;
    }
    return fg_fail(fail, "%s takes no value", row->name);
}

/* Takes argv[*at] and its value; leaves *at at the next one. */
static bool take(FgOptions *options, int argc, char *const *argv, int *at, FgFail *fail)
{
    const char *word = argv[(*at)++], *equals = strchr(word, '=');
    const Row *row = find_row(word, equals ? (size_t)(equals - word) : strlen(word));
    if (!row)
        return unknown(word, fail);
    if (row->kind == FLAG && !equals) {
        *(bool *)((char *)options + row->field) = true;
        return true;
    }
    if (equals)
        return set_value(options, row, equals + 1, fail);
    if (*at >= argc)
        return fg_fail(fail, "%s needs a value: %s %s", row->name, row->name, row->value);
    return set_value(options, row, argv[(*at)++], fail);
}

static bool scale_options(FgOptions *options, FgFail *fail)
{
    const char *word = options->loss_scale;
    char *end;
    options->fixed_scale = word && strcmp(word, "dynamic") != 0 ? strtod(word, &end) : 0;
    if (word && strcmp(word, "dynamic") != 0 && (*end || !fg_scale_allowed(options->fixed_scale)))
        return fg_fail(fail, "--loss-scale: '%s' is not dynamic or a power of two from 1 to 2^64",
                       word);
    if (options->first_scale != 0 && !fg_scale_allowed(options->first_scale))
        return fg_fail(fail, "--loss-scale-init must be a power of two from 1 to 2^64");
    bool tuned = options->first_scale != 0 || options->scale_window != FG_NOT_GIVEN ||
                 options->scale_hysteresis != FG_NOT_GIVEN;
    if (tuned && options->fixed_scale > 0)
        return fg_fail(fail,
                       "--loss-scale %s stays: --loss-scale-init, -window and -hysteresis are "
                       "for a dynamic scale",
                       word);
    if (options->scale_window == 0 || options->scale_hysteresis == 0)
        return fg_fail(fail, "--loss-scale-window and --loss-scale-hysteresis must be at least 1");
    if ((options->scale_window != FG_NOT_GIVEN && options->scale_window > MOST_WINDOW) ||
        (options->scale_hysteresis != FG_NOT_GIVEN && options->scale_hysteresis > MOST_WINDOW))
        return fg_fail(fail, "--loss-scale-window and --loss-scale-hysteresis are at most %d",
                       MOST_WINDOW);
    return true;
}

static bool consistent(FgOptions *options, FgFail *fail)
{
    if (!scale_options(options, fail))
        return false;
    if (options->tune && !fg_rt_kind()->process_a_rank)
        return fg_fail(fail, "--tune is for cuda programs: on the host there is nothing to choose");
    if (options->tune && (options->data || options->inputs || options->save || options->resume ||
                          options->dump_grads || options->profile || options->log))
        return fg_fail(fail, "--tune stops before the first step: it takes no data and writes "
                             "nothing else");
    if (!options->tune && !options->data == !options->inputs)
        return fg_fail(fail, options->data ? "--data and --inputs exclude each other"
                                           : "give --data FILE or --inputs FILE");
    if (options->profile_ops && !options->profile)
        return fg_fail(fail, "--profile-ops is about --profile FILE, which is not given");
    if (options->beta1 >= 1 || options->beta2 >= 1)
        return fg_fail(fail, "--beta1 and --beta2 must be below 1");
    if (options->steps == 0)
        return fg_fail(fail, "--steps must be at least 1");
    if (strcmp(options->attention, "library") != 0 && strcmp(options->attention, "builtin") != 0)
        return fg_fail(fail, "--attention: '%s' is not library or builtin", options->attention);
    if (options->join_s == 0 || options->join_s > 1000000)
        return fg_fail(fail, "--join-timeout must be 1 to 1000000 seconds");
    if (options->print_every == 0)
        return fg_fail(fail, "--print-every must be at least 1");
    if (options->save_every && !options->save)
        return fg_fail(fail, "--save-every needs --save DIR");
    if (*options->weights_prefix && !options->weights && !options->dump_grads)
        return fg_fail(fail, "--weights-prefix is of the names in --weights FILE and --dump-grads "
                             "FILE; give one of them");
    if (options->weights && options->resume)
        return fg_fail(fail, "--weights and --resume exclude each other");
    if (options->dump_grads && (options->save || options->resume))
        return fg_fail(fail, "--dump-grads stops after one step; it goes with neither --save nor "
                             "--resume");
    return true;
}

bool fg_options_parse(FgOptions *out_options, int argc, char *const *argv, FgFail *fail)
{
    *out_options = (FgOptions){.weights_prefix = "",
                               .attention = "library",
                               .steps = 10,
                               .print_every = 1,
                               .seed = 42,
                               .global_batch = FG_NOT_GIVEN,
                               .local_ranks = FG_NOT_GIVEN,
                               .scale_window = FG_NOT_GIVEN,
                               .scale_hysteresis = FG_NOT_GIVEN,
                               .join_s = 300,
                               .lr = 3e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .weight_decay = 0.1};
    for (int at = 1; at < argc;)
        if (!take(out_options, argc, argv, &at, fail))
            return false;
    if (out_options->help || out_options->version)
        return true;
    return consistent(out_options, fail);
}

bool fg_options_fit(const FgOptions *options, const FgRtProgram *program, FgFail *fail)
{
    uint64_t rows = (uint64_t)program->batch * program->ranks;
    if (options->local_ranks != FG_NOT_GIVEN && options->local_ranks != program->ranks)
        return fg_fail(fail,
                       "--local-ranks %llu: this program was compiled for %u; for %llu, compile "
                       "again with: foregather compile MODEL --ranks %llu",
                       (unsigned long long)options->local_ranks, program->ranks,
                       (unsigned long long)options->local_ranks,
                       (unsigned long long)options->local_ranks);
    if (!program->scales_loss &&
        (options->loss_scale || options->first_scale != 0 ||
         options->scale_window != FG_NOT_GIVEN || options->scale_hysteresis != FG_NOT_GIVEN))
        return fg_fail(fail,
                       "this program computes in %s and does not scale its loss; --loss-scale is "
                       "for those compiled with --precision fp16",
                       program->precision);
    if (options->global_batch == FG_NOT_GIVEN)
        return true;
    if (options->global_batch == 0 || options->global_batch > rows)
        return fg_fail(fail,
                       "--global-batch %llu: this program takes 1 to %llu rows a micro-step "
                       "(batch %u on %u ranks)",
                       (unsigned long long)options->global_batch, (unsigned long long)rows,
                       program->batch, program->ranks);
    return true;
}

char *fg_options_idle(const FgOptions *options)
{
    const struct {
        bool given;
        const char *name;
    } rows[] = {{options->rendezvous != NULL, "--rendezvous"},
                {options->no_graph, "--no-graph"},
                {strcmp(options->attention, "builtin") == 0, "--attention"},
                {options->gemm_cache != NULL, "--gemm-cache"}};
    FgFail list = {0};
    for (size_t i = 0; !fg_rt_kind()->process_a_rank && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            fg_fail_add(&list, "%s%s", list.text ? ", " : "", rows[i].name);
    return list.text;
}

void fg_options_help(FILE *stream, const FgRtProgram *program, const char *name)
{
    fprintf(stream,
            "usage: %s (--data FILE | --inputs FILE) [options]\n\n"
            "Trains %s on %u rank%s, batch %u a rank, %u micro-step%s a step (%s, schedule %s).\n",
            name, program->model, program->ranks, program->ranks == 1 ? "" : "s", program->batch,
            program->accumulate, program->accumulate == 1 ? "" : "s", program->precision,
            program->plan);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (ROWS[i].kind == HEADING) {
            fprintf(stream, "\n%s\n", ROWS[i].name);
            continue;
        }
        char *left = fg_text("%s %s", ROWS[i].name, ROWS[i].value ? ROWS[i].value : "");
        fprintf(stream, "  %-22s %s\n", left, ROWS[i].help);
        free(left);
    }
    fprintf(stream, "\nSIGINT and SIGTERM end the run after the step in work: with a checkpoint "
                    "and status 0 when "
                    "--save\nis given, otherwise with 128 + the signal. Status: 0 done, 1 bad "
                    "input or a failure, "
                    "2 usage.\n");
}
