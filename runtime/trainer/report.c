/* Numbers in the log carry 17 digits, so that a reader gets back the very same doubles; what is not
 * finite becomes null. */
#include "runtime/trainer/report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *fg_bytes_words(uint64_t bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof UNITS / sizeof *UNITS) {
        value /= 1024;
        unit++;
    }
    int decimals = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    return fg_text("%.*f %s", decimals, value, UNITS[unit]);
}

/* "1,235,814,400"; the caller frees. */
static char *count_words(uint64_t n)
{
    char *text = fg_text("%llu", (unsigned long long)n);
    size_t length = strlen(text), commas = (length - 1) / 3;
    char *words = fg_new(length + commas + 1, 1), *at = words;
    for (size_t i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = text[i];
    }
    free(text);
    return words;
}

static uint64_t count_elements(const FgRtProgram *program)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < program->n_params; i++)
        n += program->params[i].elements;
    return n;
}

bool fg_report_open(FgReport *out_report, FILE *stream, const FgOptions *options, FgFail *fail)
{
    *out_report = (FgReport){.stream = stream,
                             .log = -1,
                             .log_path = options->log,
                             .steps = options->steps,
                             .print_every = options->print_every};
    if (!stream)
        return true;
    out_report->live = isatty(fileno(stream)) == 1;
    if (!options->log)
        return true;
    if (!fg_file_fault(fail, FG_FAULT_WRITE))
        out_report->log = open(options->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return out_report->log >= 0 ||
           fg_fail(fail, "%s: cannot be opened: %s", options->log, strerror(errno));
}

void fg_report_close(FgReport *report)
{
    if (report->line_open)
        fputc('\n', report->stream);
    if (report->log >= 0)
        close(report->log);
    *report = (FgReport){.log = -1};
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* What a disk that is full took of a line is cut off again. */
static bool put_line(int fd, const char *line, FgFail *fail)
{
    size_t bytes = strlen(line), done = 0;
    while (done < bytes) {
        ssize_t n = fg_file_fault(fail, FG_FAULT_WRITE) ? -1 : write(fd, line + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    struct stat info;
    int why = errno;
    if (done < bytes && done && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        ftruncate(fd, info.st_size - (off_t)done) == 0)
        done = 0;
    errno = why;
    return done == bytes;
}

/* Takes the record. */
static bool append(FgReport *report, json_t *record, FgFail *fail)
{
    char *text = report->log >= 0 ? json_dumps(record, JSON_COMPACT) : NULL;
    char *line = text ? fg_text("%s\n", text) : NULL;
    bool ok = report->log < 0 || (line && put_line(report->log, line, fail));
    json_decref(record);
    free(text);
    free(line);
    return ok || fg_fail(fail, "%s: cannot be written: %s", report->log_path, strerror(errno));
}

static json_t *run_record(const FgRtProgram *program, const FgOptions *options, uint64_t first_step)
{
    static const char *const SHAPES[] = {"constant", "linear", "cosine"};
    char *print = fg_text("%016llx", (unsigned long long)program->fingerprint);
    json_t *record =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "event", "run", "model", program->model,
                  "schedule", program->plan, "precision", program->precision, "fingerprint", print,
                  "parameters", (json_int_t)count_elements(program));
    json_t *sizes = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ranks", (json_int_t)program->ranks, "batch",
        (json_int_t)program->batch, "accumulate", (json_int_t)program->accumulate, "global_batch",
        (json_int_t)options->global_batch, "steps", (json_int_t)options->steps, "first_step",
        (json_int_t)first_step, "warmup", (json_int_t)options->warmup, "seed",
        (json_int_t)options->seed);
    json_t *rates =
        json_pack("{s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:f}", "lr", options->lr, "min_lr",
                  options->min_lr, "lr_schedule", SHAPES[options->lr_schedule], "beta1",
                  options->beta1, "beta2", options->beta2, "eps", options->eps, "weight_decay",
                  options->weight_decay, "clip", program->clip);
    json_object_update(record, sizes);
    json_object_update(record, rates);
    json_decref(sizes);
    json_decref(rates);
    free(print);
    return record;
}

bool fg_report_run(FgReport *report, const FgRtProgram *program, const FgOptions *options,
                   uint64_t first_step, FgFail *fail)
{
    if (!report->stream)
        return true;
    char *elements = count_words(count_elements(program));
    uint64_t rows = options->global_batch * program->accumulate;
    char *steps = first_step > options->steps
                      ? fg_text("no step to do")
                      : fg_text("steps %llu to %llu", (unsigned long long)first_step,
                                (unsigned long long)options->steps);
    fg_report_line(report,
                   "%s   %s parameters   %u rank%s   %s   schedule %s   %llu row%s a step in %u "
                   "micro-step%s   %s",
                   program->model, elements, program->ranks, program->ranks == 1 ? "" : "s",
                   program->precision, program->plan, (unsigned long long)rows,
                   rows == 1 ? "" : "s", program->accumulate, program->accumulate == 1 ? "" : "s",
                   steps);
    free(elements);
    free(steps);
    return append(report, run_record(program, options, first_step), fail);
}

/* A NaN's sign says nothing and is left out. */
static double plain(double x)
{
    return isnan(x) ? fabs(x) : x;
}

static void print_step(FgReport *report, const FgStepRecord *record)
{
    bool stays = !report->live || record->skipped;
    char *tokens = count_words((uint64_t)(record->tokens_per_second + 0.5));
    char *scale = record->loss_scale > 0 ? fg_text("   scale %.0f%s", record->loss_scale,
                                                   record->skipped ? ", overflow: skipped" : "")
                                         : fg_text("%s", "");
    fprintf(report->stream,
            "%sstep %llu/%llu   loss %.6f   grad norm %.4f   lr %.3e%s   %.1f ms   %s tokens/s%s",
            report->live ? "\r" : "", (unsigned long long)record->step,
            (unsigned long long)report->steps, plain(record->loss), plain(record->grad_norm),
            record->learning_rate, scale, record->ms, tokens, stays ? "\n" : "\033[K");
    fflush(report->stream);
    report->line_open = !stays;
    free(scale);
    free(tokens);
}

bool fg_report_step(FgReport *report, const FgStepRecord *record, FgFail *fail)
{
    if (!report->stream)
        return true;
    if (record->step % report->print_every == 0 || record->step == report->steps ||
        !isfinite(record->loss) || !isfinite(record->grad_norm))
        print_step(report, record);
    json_t *object =
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)record->step, "loss",
                  number(record->loss), "grad_norm", number(record->grad_norm), "learning_rate",
                  number(record->learning_rate), "ms", number(record->ms), "tokens_per_second",
                  number(record->tokens_per_second));
    if (object && record->loss_scale > 0) {
        json_object_set_new(object, "loss_scale", json_real(record->loss_scale));
        json_object_set_new(object, "skipped", json_boolean(record->skipped));
        json_object_set_new(object, "skipped_steps", json_integer((json_int_t)record->all_skipped));
    }
    return append(report, object, fail);
}

void fg_report_line(FgReport *report, const char *format, ...)
{
    if (!report->stream)
        return;
    va_list args;
    va_start(args, format);
    char *text = fg_textv(format, args);
    va_end(args);
    fprintf(report->stream, "%s%s\n", report->line_open ? "\n" : "", text);
    fflush(report->stream);
    report->line_open = false;
    free(text);
}
