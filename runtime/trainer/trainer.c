/* A run: open everything that can be wrong, place the weights, then step, report and save until the
 * steps are done or a signal asks for the end. */
#include "runtime/trainer/trainer.h"

#include "runtime/trainer/checkpoint.h"
#include "runtime/trainer/dump_grads.h"
#include "runtime/trainer/loop.h"
#include "runtime/trainer/report.h"
#include "runtime/trainer/weights.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pthread.h>

typedef struct Run {
    const FgRtProgram *program;
    FgOptions options;
    FgLoop loop;
    FgFeed feed;
    FgReport report;
    FgProgress progress;
    uint64_t saved_step; /* of the newest checkpoint of this run; UINT64_MAX: none */
    double busy_ms;      /* of all steps of this run but the first */
    uint64_t timed_steps;
    sigset_t stop_signals, old_signals;
    int stopped_by; /* a signal, or 0 */
} Run;

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* ---- before the first step ---- */

static bool load_weights(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    uint32_t extra = 0;
    FgSafetensors *file = fg_safetensors_open(options->weights, fail);
    bool ok =
        file && fg_weights_load(&run->loop.store, file, options->weights_prefix, &extra, fail);
    fg_safetensors_close(file);
    if (ok && extra)
        fg_report_line(&run->report, "%s: %u tensor%s that this model does not have, left out",
                       options->weights, extra, extra == 1 ? "" : "s");
    return ok;
}

static bool resume(Run *run, FgFail *fail)
{
    char *path;
    if (!fg_checkpoint_load(&run->loop.store, run->options.resume, &run->progress, &path, fail))
        return false;
    fg_report_line(&run->report, "resumed  %s, %llu steps done", path,
                   (unsigned long long)run->progress.step);
    free(path);
    run->feed.position = run->progress.position;
    run->feed.rows_seen = run->progress.rows;
    run->options.seed = run->progress.seed;
    return true;
}

static bool place_weights(Run *run, FgFail *fail)
{
    run->progress.seed = run->options.seed;
    if (run->options.resume)
        return resume(run, fail);
    if (run->options.weights)
        return load_weights(run, fail);
    fg_weights_init(&run->loop.store, run->options.seed);
    return true;
}

static bool open_run(Run *run, FgFail *fail)
{
    FgOptions *options = &run->options;
    if (!fg_options_fit(options, run->program, fail) ||
        !fg_report_open(&run->report, stderr, options, fail) ||
        !fg_feed_open(&run->feed, run->program, options, fail))
        return false;
    options->global_batch = run->feed.rows;
    if (options->dump_grads)
        options->steps = 1;
    return fg_loop_open(&run->loop, run->program, options->checked, fail) &&
           place_weights(run, fail) && fg_loop_start(&run->loop, fail) &&
           fg_report_run(&run->report, run->program, options, run->progress.step + 1, fail);
}

/* ---- steps ---- */

static FgRates rates_of(const Run *run)
{
    const FgOptions *options = &run->options;
    FgLrSchedule schedule = {options->lr_schedule, options->lr, options->min_lr, options->warmup,
                             options->steps};
    FgRates rates = {.lr = fg_lr_at(&schedule, run->progress.step),
                     .beta1 = options->beta1,
                     .beta2 = options->beta2,
                     .eps = options->eps,
                     .weight_decay = options->weight_decay,
                     .t = run->progress.step + 1};
    if (options->dump_grads) {
        rates.beta1 = 0;
        rates.uncorrected = true;
    }
    return rates;
}

static bool save(Run *run, FgFail *fail)
{
    char *path;
    if (run->saved_step == run->progress.step)
        return true;
    if (!fg_loop_flush(&run->loop, fail) ||
        !fg_checkpoint_save(&run->loop.store, run->options.save, &run->progress, &path, fail))
        return false;
    run->saved_step = run->progress.step;
    fg_report_line(&run->report, "saved    %s", path);
    free(path);
    return true;
}

static bool finite_step(const Run *run, const FgStepResult *result, FgFail *fail)
{
    if (isfinite(result->loss) && isfinite(result->norm))
        return true;
    return fg_fail(
        fail, "step %llu: the %s is not finite; a smaller --lr or a longer --warmup may help",
        (unsigned long long)run->progress.step, isfinite(result->loss) ? "gradient norm" : "loss");
}

static bool step(Run *run, FgFail *fail)
{
    FgStepResult result;
    FgRates rates = rates_of(run);
    double start = now_ms();
    fg_feed_next(&run->feed);
    if (!fg_loop_step(&run->loop, &run->feed, &rates, &result, fail))
        return false;
    double ms = now_ms() - start;
    run->progress.step++;
    run->progress.position = run->feed.position;
    run->progress.rows = run->feed.rows_seen;
    if (run->timed_steps++)
        run->busy_ms += ms;
    FgStepRecord record = {.step = run->progress.step,
                           .loss = result.loss,
                           .grad_norm = result.norm,
                           .learning_rate = rates.lr,
                           .ms = ms,
                           .tokens_per_second = (double)fg_feed_step_tokens(&run->feed) /
                                                (ms > 0 ? ms / 1e3 : 1e-9)};
    return fg_report_step(&run->report, &record, fail) && finite_step(run, &result, fail);
}

/* Takes a waiting signal, if there is one. A second signal then has its usual effect. */
static void look_for_signal(Run *run)
{
    struct timespec none = {0};
    int signal = sigtimedwait(&run->stop_signals, NULL, &none);
    if (signal <= 0)
        return;
    run->stopped_by = signal;
    pthread_sigmask(SIG_SETMASK, &run->old_signals, NULL);
    fg_report_line(&run->report, "stopped  by signal %d after step %llu", signal,
                   (unsigned long long)run->progress.step);
}

static bool all_steps(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    if (run->progress.step >= options->steps)
        fg_report_line(&run->report, "nothing to do: %llu steps are done, --steps asks for %llu",
                       (unsigned long long)run->progress.step, (unsigned long long)options->steps);
    while (run->progress.step < options->steps && !run->stopped_by) {
        if (!step(run, fail))
            return false;
        if (options->save_every && run->progress.step % options->save_every == 0 &&
            !save(run, fail))
            return false;
        look_for_signal(run);
    }
    return true;
}

/* ---- after the last step ---- */

static void report_end(Run *run)
{
    const FgRtProgram *program = run->program;
    uint64_t touched = fg_loop_touched_bytes(&run->loop);
    char *planned = fg_bytes_words(program->state_bytes + program->arena_bytes);
    char *states = fg_bytes_words(program->state_bytes);
    char *arena = fg_bytes_words(program->arena_bytes);
    char *measured = fg_bytes_words(touched);
    fg_report_line(&run->report, "memory   planned %s a rank (states %s, arena %s), measured %s",
                   planned, states, arena, measured);
    if (run->timed_steps > 1)
        fg_report_line(&run->report, "time     measured %.1f ms a step, predicted %.1f ms",
                       run->busy_ms / (double)(run->timed_steps - 1),
                       program->predicted_step_us / 1e3);
    free(planned);
    free(states);
    free(arena);
    free(measured);
}

static bool finish(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    if (!fg_loop_flush(&run->loop, fail))
        return false;
    if (options->dump_grads && run->progress.step &&
        !fg_dump_grads(&run->loop.store, options->dump_grads, options->weights_prefix, fail))
        return false;
    if (options->save && run->timed_steps && !save(run, fail))
        return false;
    report_end(run);
    return true;
}

static int train(const FgRtProgram *program, const FgOptions *options, const char *name)
{
    Run run = {.program = program, .options = *options, .saved_step = UINT64_MAX};
    FgFail fail = {0};
    sigemptyset(&run.stop_signals);
    sigaddset(&run.stop_signals, SIGINT);
    sigaddset(&run.stop_signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &run.stop_signals, &run.old_signals);
    bool ok = open_run(&run, &fail) && all_steps(&run, &fail) && finish(&run, &fail);
    int status = !ok ? 1 : run.stopped_by && !options->save ? 128 + run.stopped_by : 0;
    fg_report_close(&run.report);
    fg_loop_close(&run.loop);
    fg_feed_close(&run.feed);
    pthread_sigmask(SIG_SETMASK, &run.old_signals, NULL);
    if (!ok)
        fprintf(stderr, "%s: error: %s\n", name, fail.text);
    fg_fail_clear(&fail);
    return status;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int fg_trainer_main(const FgRtProgram *program, int argc, char **argv)
{
    FgOptions options;
    FgFail fail = {0};
    const char *name = argc > 0 ? base_name(argv[0]) : program->model;
    if (!fg_options_parse(&options, argc, argv, &fail)) {
        fprintf(stderr, "%s: %s\n%s --help lists the options\n", name, fail.text, name);
        fg_fail_clear(&fail);
        return 2;
    }
    if (options.help)
        fg_options_help(stdout, program, name);
    else if (options.version)
        printf(
            "%s: ranks %u, batch %u, %s, schedule %s, plan fingerprint %016llx, runtime ABI %u\n",
            program->model, program->ranks, program->batch, program->precision, program->plan,
            (unsigned long long)program->fingerprint, program->abi);
    if (options.help || options.version)
        return fflush(stdout) == 0 ? 0 : 1;
    return train(program, &options, name);
}
