/* Algorithms of matrix products at a program's start: rank 0 looks for the file that keeps them,
 * and all ranks use what it says; or all measure, and use what rank 0 found, so that a run does not
 * depend on which rank measured what. */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cuda/core.h"
#include "runtime/cuda/gemm.h"

typedef enum How { FIRST_CHOICES, FROM_FILE, MEASURED } How;

static How how_here(const FgRtOptions *options)
{
    /* One that is there and cannot be read is an error, not one that is missing. */
    bool there = options->gemm_cache && access(options->gemm_cache, F_OK) == 0;
    if (options->gemm_cache && options->tune == FG_RT_TUNE_ALWAYS)
        return MEASURED;
    if (there)
        return FROM_FILE;
    return options->gemm_cache && options->tune == FG_RT_TUNE_ONCE ? MEASURED : FIRST_CHOICES;
}

static bool share(FgRtGroup *group, void *data, size_t bytes)
{
    return !fg_cuda_failed(&group->cx) &&
           (!group->world || fg_world_share(group->world, data, bytes));
}

/* Rank 0's text to all; `text` is owned by the caller afterwards, too. NULL: the run failed. */
static char *share_text(FgRtGroup *group, char *text, size_t *bytes)
{
    FgRtCx *cx = &group->cx;
    if (cx->rank == 0 && !text)
        return NULL; /* raised; the others learn of it */
    if (!share(group, bytes, sizeof *bytes))
        return text;
    if (cx->rank != 0)
        text = malloc(*bytes + 1);
    if (!text)
        fg_cuda_raise(cx, "out of memory for the file of algorithms");
    else
        (void)share(group, text, *bytes);
    return text;
}

static bool take(FgRtGroup *group, char *text, size_t bytes)
{
    FgRtCx *cx = &group->cx;
    const char *path = group->options.gemm_cache;
    bool any = text && !fg_cuda_failed(cx) && fg_cuda_gemm_take(cx, text, bytes, path);
    if (!any && !fg_cuda_failed(cx)) {
        char subject[300];
        fg_cuda_gemm_subject(cx, subject, sizeof subject);
        fg_cuda_warn(group,
                     "products %s has no algorithms for %s: the library's first choices are used; "
                     "--tune measures",
                     path, subject);
    }
    return !fg_cuda_failed(cx);
}

static bool from_file(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    size_t bytes = 0;
    char *text = cx->rank == 0 ? fg_cuda_gemm_load(group->options.gemm_cache, &bytes) : NULL;
    if (cx->rank == 0 && !text)
        fg_cuda_raise(cx, "%s: cannot be read", group->options.gemm_cache);
    text = share_text(group, text, &bytes);
    bool ok = take(group, text, bytes);
    free(text);
    return ok && fg_cuda_bodies_rehearse(group);
}

static bool by_measurement(FgRtGroup *group)
{
    FgRtCx *cx = &group->cx;
    size_t bytes = 0;
    if (!fg_cuda_bodies_rehearse(group))
        return false;
    FgGemmTuned tuned = fg_cuda_gemm_tune(cx, cx->streams[FG_COMPUTE]);
    if (cx->rank == 0 && !fg_cuda_failed(cx))
        fg_cuda_gemm_write(cx, group->options.gemm_cache);
    char *text = cx->rank == 0 && !fg_cuda_failed(cx)
                     ? fg_cuda_gemm_load(group->options.gemm_cache, &bytes)
                     : NULL;
    if (cx->rank == 0 && !text && !fg_cuda_failed(cx))
        fg_cuda_raise(cx, "%s: cannot be read", group->options.gemm_cache);
    text = share_text(group, text, &bytes);
    if (take(group, text, bytes))
        fg_cuda_gemm_adopt(cx);
    fg_cuda_warn(group,
                 "products %zu measured: one run of each takes %.1f us, by the library's first "
                 "choices %.1f us; %zu differ",
                 tuned.n, tuned.best_us, tuned.first_us, tuned.changed);
    free(text);
    return !fg_cuda_failed(cx);
}

bool fg_cuda_products_open(FgRtGroup *group)
{
    How how = how_here(&group->options);
    if (!share(group, &how, sizeof how))
        return false;
    if (how == MEASURED && group->options.deterministic) {
        fg_cuda_raise(&group->cx,
                      "--deterministic measures no algorithms, and %s is not there: --tune writes "
                      "it, choices differ from run to run",
                      group->options.gemm_cache);
        return false;
    }
    return how == FROM_FILE  ? from_file(group)
           : how == MEASURED ? by_measurement(group)
                             : fg_cuda_bodies_rehearse(group);
}
