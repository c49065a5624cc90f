/* A run: open everything that can be wrong, place the weights, then step, report and save until the
 * steps are done or a signal asks for the end. */
#include "runtime/trainer/trainer.h"

#include "runtime/launch/spawn.h"
#include "runtime/trainer/checkpoint.h"
#include "runtime/trainer/dump_grads.h"
#include "runtime/trainer/loop.h"
#include "runtime/trainer/output.h"
#include "runtime/trainer/profile.h"
#include "runtime/trainer/report.h"
#include "runtime/trainer/shelf.h"
#include "runtime/trainer/start.h"
#include "runtime/trainer/weights.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pthread.h>
#include <unistd.h>

/* A step that was given to the ranks and whose result is still to come. */
typedef struct Given {
    uint64_t step; /* from 1 */
    double lr, start_ms, tokens;
} Given;

typedef struct Run {
    const FgRtProgram *program;
    FgOptions options;
    char *gemm_beside; /* PROGRAM.gemm, owned */
    FgWorld *world;
    FgLoop loop;
    FgFeed feed;
    FgReport report;
    FgProgress progress;
    FgShelf shelf; /* with --save, in rank 0's process */
    Given given[FG_RT_MOST_RESULTS];
    uint64_t n_given, n_taken; /* steps of this run */
    double taken_ms;           /* when the last result came */
    uint64_t saved_step;       /* of the newest checkpoint of this run; UINT64_MAX: none */
    double busy_ms;            /* of all steps of this run but the first */
    sigset_t stop_signals, old_signals;
    uint64_t skipped_in_a_row; /* steps */
    bool signalled;            /* a signal was taken */
    int stopped_by;            /* a signal, or 0 */
} Run;

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* ---- before the first step ---- */

/* What the run will write, tried before anything costs time; rank 0's process does it for all. */
static bool open_outputs(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    run->shelf.lock = -1;
    if (options->profile_ops && !fg_profile_ops_check(options->profile_ops, run->program, fail))
        return false;
    if (!fg_is_first(run->world))
        return true;
    if (options->dump_grads && !fg_output_check(options->dump_grads, fail))
        return false;
    if (options->profile && !fg_profile_check(options->profile, fail))
        return false;
    if (!options->save)
        return true;
    if (!fg_shelf_open(&run->shelf, options->save, fail))
        return false;
    if (run->shelf.note)
        fg_report_line(&run->report, "%s", run->shelf.note);
    char *later = options->resume ? NULL : fg_shelf_later(options->save, 0);
    bool ok =
        !later || fg_fail(fail,
                          "%s holds checkpoints of another run (%s): --resume %s goes on from "
                          "the newest; to start anew, choose another folder or move them away",
                          options->save, later, options->save);
    free(later);
    return ok;
}

/* Checkpoints that this run would overwrite, and that --resume would prefer to its own. */
static void warn_of_later(Run *run)
{
    const FgOptions *options = &run->options;
    if (!options->save || !fg_is_first(run->world))
        return;
    FgFail none = {0};
    char *later = fg_shelf_later(options->save, run->progress.step);
    char *newest = later ? fg_shelf_newest(options->save, &none) : NULL;
    if (later)
        fg_report_line(&run->report,
                       "warning: %s holds later checkpoints than this run starts from (%s); until "
                       "they are overwritten, --resume %s takes %s",
                       options->save, later, options->save, newest ? newest : "the newest");
    free(later);
    free(newest);
    fg_fail_clear(&none);
}

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
    uint64_t rows = run->feed.rows * run->program->accumulate;
    if (!fg_checkpoint_load(&run->loop.store, run->world, run->options.resume, &run->progress,
                            &path, fail))
        return false;
    fg_report_line(&run->report, "resumed  %s, %llu steps done", path,
                   (unsigned long long)run->progress.step);
    free(path);
    if (run->progress.step_rows && run->progress.step_rows != rows)
        fg_report_line(&run->report,
                       "note: a step had %llu rows before (on %llu rank%s) and has %llu from here "
                       "on; --global-batch sets it",
                       (unsigned long long)run->progress.step_rows,
                       (unsigned long long)run->progress.ranks, run->progress.ranks == 1 ? "" : "s",
                       (unsigned long long)rows);
    warn_of_later(run);
    run->feed.position = run->progress.position;
    run->feed.rows_seen = run->progress.rows;
    run->options.seed = run->progress.seed;
    return true;
}

static bool place_weights(Run *run, FgFail *fail)
{
    bool ok = true;
    run->progress.seed = run->options.seed;
    if (run->options.resume)
        ok = resume(run, fail);
    else if (run->options.weights)
        ok = load_weights(run, fail);
    else
        fg_weights_init(&run->loop.store, run->options.seed);
    run->progress.step_rows = run->feed.rows * run->program->accumulate;
    return ok;
}

#define FIRST_SCALE 65536 /* as torch's GradScaler: 2^16, doubled after 2000 good steps */
#define WINDOW 2000
#define MOST_SKIPPED 32 /* in a row: then no scale helps */

/* Where the loss scale begins: as the checkpoint left it, but for what an option fixes. */
static void place_scale(Run *run)
{
    const FgOptions *options = &run->options;
    const FgProgress *progress = &run->progress;
    uint64_t hysteresis = options->scale_hysteresis == FG_NOT_GIVEN ? 1 : options->scale_hysteresis;
    FgScale scale = {.scale = options->first_scale > 0 ? options->first_scale : FIRST_SCALE,
                     .left = hysteresis,
                     .updates = progress->step - progress->skipped,
                     .skipped = progress->skipped};
    if (progress->loss_scale > 0) {
        scale.scale = progress->loss_scale;
        scale.good = progress->good_steps;
        scale.left = progress->overflows_left;
    }
    if (options->fixed_scale > 0)
        scale.scale = options->fixed_scale;
    fg_loop_set_scale(&run->loop, &scale, options->dump_grads ? 0 : options->beta1, options->beta2);
}

/* What the command line asks of the runtime. */
static FgRtOptions runtime_options(const Run *run, FgFault *fault)
{
    const FgOptions *options = &run->options;
    FgRtOptions rt = {.checked = options->checked,
                      .poison = options->poison,
                      .profile = options->profile != NULL,
                      .profile_ops = options->profile_ops,
                      .no_graph = options->no_graph,
                      .builtin_attention = strcmp(options->attention, "builtin") == 0,
                      .gemm_cache = options->gemm_cache ? options->gemm_cache : run->gemm_beside,
                      .deterministic = options->deterministic,
                      .fault = fault};
    rt.tune = options->tune         ? FG_RT_TUNE_ALWAYS
              : options->gemm_cache ? FG_RT_TUNE_ONCE
                                    : FG_RT_TUNE_NEVER;
    return rt;
}

static bool open_run(Run *run, FgFail *fail)
{
    FgOptions *options = &run->options;
    FgRtOptions rt = runtime_options(run, fail->fault);
    if (options->dump_grads)
        options->steps = 1;
    if (!fg_report_open(&run->report, fg_is_first(run->world) ? stderr : NULL, options, fail) ||
        !open_outputs(run, fail) || !fg_feed_open(&run->feed, run->program, options, fail))
        return false;
    options->global_batch = run->feed.rows;
    char *idle = fg_options_idle(options);
    if (idle)
        fg_report_line(&run->report, "note: %s: no effect in a program for the host", idle);
    free(idle);
    if (!fg_loop_open(&run->loop, run->program, run->world, &rt, fail))
        return false;
    const char *warning = fg_rt_group_warning(run->loop.group);
    if (*warning)
        fg_report_line(&run->report, "%s", warning);
    if (!place_weights(run, fail))
        return false;
    if (run->program->scales_loss)
        place_scale(run);
    return fg_loop_start(&run->loop, fail) &&
           fg_report_run(&run->report, run->program, options, run->progress.step + 1, fail);
}

/* Chooses algorithms of matrix products, as the group does when it is made, and no more. */
static bool tune(Run *run, FgFail *fail)
{
    FgRtOptions rt = runtime_options(run, fail->fault);
    if (!fg_report_open(&run->report, fg_is_first(run->world) ? stderr : NULL, &run->options,
                        fail) ||
        !fg_loop_open(&run->loop, run->program, run->world, &rt, fail))
        return false;
    const char *warning = fg_rt_group_warning(run->loop.group);
    if (*warning)
        fg_report_line(&run->report, "%s", warning);
    fg_report_line(&run->report, "tuned    %s: algorithms of matrix products, by measurement",
                   rt.gemm_cache);
    return fg_meet(run->world, fail);
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
                     .t = run->progress.step - run->progress.skipped + 1,
                     .window = options->fixed_scale > 0                ? 0
                               : options->scale_window == FG_NOT_GIVEN ? WINDOW
                                                                       : options->scale_window,
                     .hysteresis =
                         options->scale_hysteresis == FG_NOT_GIVEN ? 1 : options->scale_hysteresis};
    if (options->dump_grads) {
        rates.beta1 = 0;
        rates.uncorrected = true;
    }
    return rates;
}

/* A step that was skipped is no failure, unless no smaller scale is to come. */
static bool skipped_step(Run *run, const FgStepRecord *record, FgFail *fail)
{
    bool least = record->loss_scale <= 1 && run->options.fixed_scale == 0;
    if (run->options.dump_grads)
        return fg_fail(fail,
                       "the gradients overflow at a loss scale of %.0f; give a smaller one: "
                       "--loss-scale %.0f",
                       record->loss_scale, record->loss_scale > 16 ? record->loss_scale / 16 : 1);
    if (!least && ++run->skipped_in_a_row < MOST_SKIPPED)
        return true;
    return fg_fail(
        fail,
        "step %llu: loss or gradients are not finite at a loss scale of %.0f%s; a smaller "
        "--lr or a longer --warmup may help, or bf16, whose range is that of f32",
        (unsigned long long)record->step, record->loss_scale,
        least ? ", and there is no smaller one" : ", as in the steps before it");
}

static bool finite_step(Run *run, const FgStepRecord *record, FgFail *fail)
{
    if (record->skipped)
        return skipped_step(run, record, fail);
    run->skipped_in_a_row = 0;
    if (isfinite(record->loss) && isfinite(record->grad_norm))
        return true;
    return fg_fail(
        fail, "step %llu: the %s is not finite; a smaller --lr or a longer --warmup may help",
        (unsigned long long)record->step, isfinite(record->loss) ? "gradient norm" : "loss");
}

/* The oldest result that is to come. A step's time is what passed since the result before it, or
 * since the step was given, whichever is later. */
static bool take_result(Run *run, FgFail *fail)
{
    const Given *given = &run->given[run->n_taken % FG_RT_MOST_RESULTS];
    FgRtResult result;
    if (!fg_loop_result(&run->loop, &result, fail))
        return false;
    double now = now_ms();
    double ms = now - (run->taken_ms > given->start_ms ? run->taken_ms : given->start_ms);
    run->taken_ms = now;
    if (run->n_taken++)
        run->busy_ms += ms;
    FgStepRecord record = {.step = given->step,
                           .loss = result.loss,
                           .grad_norm = result.norm,
                           .learning_rate = given->lr,
                           .ms = ms,
                           .tokens_per_second = given->tokens / (ms > 0 ? ms / 1e3 : 1e-9),
                           .loss_scale = result.scaler[FG_RT_L_USED],
                           .skipped = result.scaler[FG_RT_L_OVER] != 0,
                           .all_skipped = (uint64_t)result.scaler[FG_RT_L_SKIPPED]};
    return fg_report_step(&run->report, &record, fail) && finite_step(run, &record, fail);
}

/* Takes results until at most `left` are to come. */
static bool drain(Run *run, uint64_t left, FgFail *fail)
{
    while (run->n_given - run->n_taken > left)
        if (!take_result(run, fail))
            return false;
    return true;
}

static void note_scale(Run *run)
{
    FgScale scale = fg_loop_get_scale(&run->loop);
    run->progress.loss_scale = scale.scale;
    run->progress.good_steps = scale.good;
    run->progress.overflows_left = scale.left;
    run->progress.skipped = scale.skipped;
}

static bool save(Run *run, FgFail *fail)
{
    char *path;
    if (run->saved_step == run->progress.step)
        return true;
    if (!drain(run, 0, fail) || !fg_loop_flush(&run->loop, fail))
        return false;
    if (run->program->scales_loss)
        note_scale(run);
    if (!fg_checkpoint_save(&run->loop.store, run->world, run->options.save, &run->progress, &path,
                            fail))
        return false;
    run->saved_step = run->progress.step;
    fg_report_line(&run->report, "saved    %s", path);
    free(path);
    return true;
}

static bool step(Run *run, FgFail *fail)
{
    FgRates rates = rates_of(run);
    double start = now_ms();
    char doing[64];
    snprintf(doing, sizeof doing, "step %llu", (unsigned long long)run->progress.step + 1);
    fg_world_doing(run->world, doing);
    if (!fg_feed_next(&run->feed, fail) || !fg_loop_step(&run->loop, &run->feed, &rates, fail))
        return false;
    run->progress.step++;
    run->progress.position = run->feed.position;
    run->progress.rows = run->feed.rows_seen;
    run->given[run->n_given++ % FG_RT_MOST_RESULTS] =
        (Given){run->progress.step, rates.lr, start, (double)fg_feed_step_tokens(&run->feed)};
    /* With a profile every call is waited for: the result is there, and the next step's time must
     * not count as this one's. */
    return drain(run, run->options.profile ? 0 : fg_rt_kind()->ahead, fail);
}

/* Takes a waiting signal, if there is one, and asks all processes to stop after one and the same
 * step. A second signal then has its usual effect. */
static void look_for_signal(Run *run)
{
    struct timespec none = {0};
    int signal = run->signalled ? 0 : sigtimedwait(&run->stop_signals, NULL, &none);
    if (signal <= 0)
        return;
    run->signalled = true;
    pthread_sigmask(SIG_SETMASK, &run->old_signals, NULL);
    fg_world_stop(run->world, signal);
}

static bool all_steps(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    if (run->progress.step >= options->steps)
        fg_report_line(&run->report, "nothing to do: %llu steps are done, --steps asks for %llu",
                       (unsigned long long)run->progress.step, (unsigned long long)options->steps);
    while (run->progress.step < options->steps && fg_world_may_step(run->world)) {
        if (!step(run, fail))
            return false;
        if (options->save_every && run->progress.step % options->save_every == 0 &&
            !save(run, fail))
            return false;
        look_for_signal(run);
    }
    if (!drain(run, 0, fail))
        return false;
    run->stopped_by = fg_world_stopped_by(run->world);
    if (run->stopped_by)
        fg_report_line(&run->report, "stopped  by signal %d after step %llu", run->stopped_by,
                       (unsigned long long)run->progress.step);
    return true;
}

/* ---- after the last step ---- */

static void report_end(Run *run)
{
    const FgRtProgram *program = run->program;
    uint64_t plan = program->state_bytes + program->arena_bytes;
    char *planned = fg_bytes_words(plan + program->reserved_bytes);
    char *states = fg_bytes_words(program->state_bytes);
    char *arena = fg_bytes_words(program->arena_bytes);
    char *reserved = fg_bytes_words(program->reserved_bytes);
    char *measured = fg_bytes_words(fg_loop_touched_bytes(&run->loop));
    uint64_t offloaded = program->host_state_bytes + program->host_arena_bytes;
    fg_report_line(&run->report,
                   "memory   planned %s a rank (states %s, arena %s%s%s), measured %s%s", planned,
                   states, arena, program->reserved_bytes ? ", reserved " : "",
                   program->reserved_bytes ? reserved : "", measured,
                   fg_rt_kind()->process_a_rank ? "" : " (resident pages)");
    if (offloaded) {
        char *host = fg_bytes_words(offloaded);
        fg_report_line(&run->report, "         beside it %s of host memory a rank", host);
        free(host);
    }
    if (run->n_taken > 1)
        fg_report_line(
            &run->report,
            "time     measured %.1f ms a step (mean without the first), predicted %.1f ms",
            run->busy_ms / (double)(run->n_taken - 1), program->predicted_step_us / 1e3);
    free(planned);
    free(states);
    free(arena);
    free(reserved);
    free(measured);
}

static bool dump_grads(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    uint32_t n;
    if (!fg_dump_grads(&run->loop.store, run->world, options->dump_grads, options->weights_prefix,
                       &n, fail))
        return false;
    fg_report_line(&run->report, "wrote    %s: gradients of %u parameter%s", options->dump_grads, n,
                   n == 1 ? "" : "s");
    return true;
}

static bool finish(Run *run, FgFail *fail)
{
    const FgOptions *options = &run->options;
    fg_world_doing(run->world, "the end of the run");
    if (!fg_loop_flush(&run->loop, fail))
        return false;
    if (options->dump_grads && run->n_given && !dump_grads(run, fail))
        return false;
    if (options->save && run->n_given && !save(run, fail))
        return false;
    if (options->profile && fg_is_first(run->world) &&
        !fg_profile_write(options->profile, run->program,
                          fg_rt_group_rank(run->loop.group, run->loop.first), fail))
        return false;
    report_end(run);
    return fg_meet(run->world, fail);
}

/* A signal that stopped the run by way of another process has done its work. */
static void let_signals_be(Run *run)
{
    struct timespec none = {0};
    while (run->stopped_by && !run->signalled &&
           sigtimedwait(&run->stop_signals, NULL, &none) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &run->old_signals, NULL);
}

/* How often the event was met that a fault was asked for at: what a test counts. The process of
 * that rank says it, whoever reports. */
static void report_fault(const Run *run, const FgFault *fault)
{
    if (fault && fg_rt_group_rank(run->loop.group, fault->rank))
        fprintf(stderr, "fault    none came: rank %u had %llu of the kind %s\n", fault->rank,
                (unsigned long long)atomic_load(&fault->seen), fg_fault_name(fault->kind));
}

/* PROGRAM with an ending, or NULL; the caller frees. */
static char *beside_program(const char *ending)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || (size_t)n == sizeof path - 1)
        return NULL;
    path[n] = '\0';
    return fg_text("%s%s", path, ending);
}

static int train(const FgRtProgram *program, const FgOptions *options, FgWorld *world,
                 FgFault *fault, const char *name)
{
    Run run = {.program = program, .options = *options, .world = world, .saved_step = UINT64_MAX};
    FgFail fail = {.fault = fault, .rank = fg_world_place(world)->rank};
    fg_stop_signals(&run.stop_signals);
    pthread_sigmask(SIG_BLOCK, &run.stop_signals, &run.old_signals);
    run.gemm_beside = beside_program(".gemm");
    bool ok = options->tune
                  ? tune(&run, &fail)
                  : open_run(&run, &fail) && all_steps(&run, &fail) && finish(&run, &fail);
    int status = !ok ? 1 : run.stopped_by && !options->save ? 128 + run.stopped_by : 0;
    if (ok) {
        report_fault(&run, fault);
    } else {
        fg_tell(world, &fail); /* the others wait for this process */
    }
    fg_report_close(&run.report);
    fg_shelf_close(&run.shelf);
    if (!ok && fg_world_tells(world))
        fprintf(stderr, "%s: error: %s\n", name, fg_world_failure(world));
    fg_loop_close(&run.loop);
    fg_feed_close(&run.feed);
    let_signals_be(&run);
    free(run.gemm_beside);
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
    const char *asked = getenv("FG_FAULT"); /* docs/runtime.md: for tests */
    FgFault fault;
    if (asked && !fg_fault_parse(&fault, asked)) {
        fprintf(stderr,
                "%s: FG_FAULT is '%s'; it is KIND:N or KIND:N:RANK, KIND one of alloc, "
                "collective, copy, launch, read, write\n",
                name, asked);
        return 2;
    }
    int status = 0;
    FgWorld *world = fg_start(program, &options, argv, &status, &fail);
    if (world)
        status = train(program, &options, world, asked ? &fault : NULL, name);
    else if (fail.text && *fail.text)
        fprintf(stderr, "%s: error: %s\n", name, fail.text);
    fg_world_leave(world);
    fg_fail_clear(&fail);
    return status;
}
