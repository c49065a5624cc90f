/* The generator is counter-based (the finaliser of splitmix64 over key + counter), so any slice of
 * a parameter can be made anywhere: each process makes its own, by several threads. Loading goes
 * through a buffer of a fixed number of elements: no tensor is ever held twice. */
#include "runtime/trainer/weights.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 262144u
#define MOST_THREADS 16
#define TWO_PI 6.28318530717958647692

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t name_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* In [0, 1), 53 bits. */
static double unit(uint64_t key, uint64_t counter)
{
    return (double)(mix(key ^ mix(counter)) >> 11) * 0x1p-53;
}

static float value_at(const FgRtParam *param, uint64_t key, uint64_t index)
{
    double scale = param->init_scale;
    if (param->init == FG_RT_CONSTANT)
        return (float)scale;
    if (param->init == FG_RT_UNIFORM)
        return (float)(scale * (2 * unit(key, index) - 1));
    double radius = sqrt(-2 * log(1 - unit(key, 2 * index)));
    return (float)(scale * radius * cos(TWO_PI * unit(key, 2 * index + 1)));
}

static uint64_t param_key(const FgRtParam *param, uint64_t seed)
{
    return mix(seed) ^ name_hash(param->name);
}

float fg_init_value(const FgRtParam *param, uint64_t seed, uint64_t index)
{
    return value_at(param, param_key(param, seed), index);
}

/* One of n threads: every n-th chunk is its own. */
typedef struct Maker {
    const FgStore *store;
    uint64_t seed, index, n;
    pthread_t thread;
} Maker;

static void *make(void *maker_)
{
    const Maker *maker = maker_;
    const FgStore *store = maker->store;
    float *values = fg_new(CHUNK, sizeof *values);
    uint64_t chunk = 0, first, count;
    for (uint32_t i = 0; i < store->program->n_params; i++) {
        const FgRtParam *param = &store->program->params[i];
        uint64_t key = param_key(param, maker->seed);
        for (first = 0; (count = fg_store_here(store, i, &first, CHUNK)); first += count) {
            if (chunk++ % maker->n != maker->index)
                continue;
            for (uint64_t k = 0; k < count; k++)
                values[k] = value_at(param, key, first + k);
            fg_store_set(store, i, FG_PART_WEIGHT, first, count, values);
        }
    }
    free(values);
    return NULL;
}

static uint64_t thread_count(const FgStore *store)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < store->program->n_params; i++)
        chunks += store->program->params[i].elements / CHUNK;
    uint64_t n = processors < 1              ? 1
                 : processors > MOST_THREADS ? MOST_THREADS
                                             : (uint64_t)processors;
    return n < chunks ? n : chunks ? chunks : 1;
}

void fg_weights_init(const FgStore *store, uint64_t seed)
{
    uint64_t n = thread_count(store), started = 1;
    Maker *makers = fg_new(n, sizeof *makers);
    for (uint64_t i = 0; i < n; i++)
        makers[i] = (Maker){.store = store, .seed = seed, .index = i, .n = n};
    while (started < n &&
           pthread_create(&makers[started].thread, NULL, make, &makers[started]) == 0)
        started++;
    make(&makers[0]);
    for (uint64_t i = started; i < n; i++) /* threads that could not be had */
        make(&makers[i]);
    for (uint64_t i = 1; i < started; i++)
        pthread_join(makers[i].thread, NULL);
    free(makers);
}

/* ---- files ---- */

static const FgTensor *find_as(const FgSafetensors *file, const char *prefix, const char *name)
{
    char *whole = fg_text("%s%s", prefix, name);
    const FgTensor *tensor = fg_safetensors_find(file, whole);
    free(whole);
    return tensor;
}

static const FgTensor *find_param(const FgStore *store, const FgSafetensors *file,
                                  const char *prefix, const FgRtParam *param)
{
    const FgTensor *tensor = find_as(file, prefix, param->name);
    for (uint32_t k = 0; !tensor && k < param->n_tied; k++)
        tensor = find_as(file, prefix, store->program->tied[param->tied_first + k]);
    return tensor;
}

/* The file's name that ends with the parameter's: what comes before it is the prefix to give. */
static const char *longer_name(const FgSafetensors *file, const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < fg_safetensors_count(file); i++) {
        const char *candidate = fg_safetensors_at(file, i)->name;
        size_t whole = strlen(candidate);
        if (whole > length && strcmp(candidate + whole - length, name) == 0)
            return candidate;
    }
    return NULL;
}

static void report_missing(const FgSafetensors *file, const char *prefix, const char *name,
                           FgFail *fail)
{
    uint32_t n = fg_safetensors_count(file);
    const char **names = fg_new(n, sizeof *names);
    for (uint32_t i = 0; i < n; i++)
        names[i] = fg_safetensors_at(file, i)->name;
    char *whole = fg_text("%s%s", prefix, name);
    const char *longer = longer_name(file, name),
               *near = longer ? NULL : fg_nearest(whole, names, n);
    fg_fail_add(fail, "\n  missing: %s", whole);
    if (longer)
        fg_fail_add(fail, " (there is '%s': --weights-prefix '%.*s')", longer,
                    (int)(strlen(longer) - strlen(name)), longer);
    else if (near)
        fg_fail_add(fail, " (there is '%s')", near);
    free(whole);
    free(names);
}

static bool tensor_fits(const FgStore *store, const FgRtParam *param, const FgTensor *tensor,
                        FgFail *fail)
{
    const int64_t *dims = store->program->dims + param->dims_first;
    bool same = tensor->rank == param->rank;
    for (uint32_t k = 0; same && k < param->rank; k++)
        same = tensor->dims[k] == dims[k];
    if (same && fg_st_is_float(tensor->dtype))
        return true;
    char *got = fg_tensor_text(tensor), *want = fg_dims_text(dims, param->rank);
    fg_fail_add(fail, "\n  wrong: %s is %s, this model has %s, in F32, BF16 or F16", tensor->name,
                got, want);
    free(got);
    free(want);
    return false;
}

static bool same_values(const FgTensor *a, const FgTensor *b)
{
    if (a->dtype == b->dtype)
        return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
    float *x = fg_new(CHUNK, sizeof *x), *y = fg_new(CHUNK, sizeof *y);
    bool same = true;
    for (uint64_t first = 0; same && first < a->elements; first += CHUNK) {
        uint64_t left = a->elements - first, count = left < CHUNK ? left : CHUNK;
        fg_tensor_floats(a, first, count, x);
        fg_tensor_floats(b, first, count, y);
        same = memcmp(x, y, count * sizeof *x) == 0;
    }
    free(x);
    free(y);
    return same;
}

/* The file's tensors under the parameter's other names, which must hold what `tensor` does; how
 * many there are. */
static uint32_t check_tied(const FgStore *store, const FgSafetensors *file, const char *prefix,
                           const FgRtParam *param, const FgTensor *tensor, FgFail *fail)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < param->n_tied; k++) {
        const FgTensor *other = find_as(file, prefix, store->program->tied[param->tied_first + k]);
        if (!other || other == tensor)
            continue;
        n++;
        if (tensor_fits(store, param, other, fail) && !same_values(tensor, other))
            fg_fail_add(fail,
                        "\n  differ: %s and %s, two names of one tied parameter; leave one out, or "
                        "compile a model that does not tie them",
                        tensor->name, other->name);
    }
    return n;
}

/* What lies here of it: nothing else of the file is read. */
static void copy_tensor(const FgStore *store, uint32_t param, FgPart part, const FgTensor *tensor,
                        float *values)
{
    uint64_t first, count;
    for (first = 0; (count = fg_store_here(store, param, &first, CHUNK)); first += count) {
        fg_tensor_floats(tensor, first, count, values);
        fg_store_set(store, param, part, first, count, values);
    }
}

/* Every parameter's tensor, or a full report and NULL. The caller frees. *out_known: tensors of the
 * file that belong to these parameters. */
static const FgTensor **match(const FgStore *store, const FgSafetensors *file, const char *prefix,
                              bool trained_only, uint32_t *out_known, FgFail *fail)
{
    const FgRtProgram *program = store->program;
    const FgTensor **tensors = fg_new(program->n_params, sizeof *tensors);
    FgFail report = {0};
    *out_known = 0;
    for (uint32_t i = 0; i < program->n_params; i++) {
        if (trained_only && !fg_store_is_trained(store, i))
            continue;
        tensors[i] = find_param(store, file, prefix, &program->params[i]);
        if (!tensors[i])
            report_missing(file, prefix, program->params[i].name, &report);
        else if (tensor_fits(store, &program->params[i], tensors[i], &report))
            *out_known +=
                1 + check_tied(store, file, prefix, &program->params[i], tensors[i], &report);
    }
    if (!report.text)
        return tensors;
    fg_fail(fail, "%s does not hold this model's parameters:%s", fg_safetensors_path(file),
            report.text);
    fg_fail_clear(&report);
    free(tensors);
    return NULL;
}

static bool load(const FgStore *store, const FgSafetensors *file, const char *prefix, FgPart part,
                 uint32_t *out_known, FgFail *fail)
{
    const FgTensor **tensors = match(store, file, prefix, part != FG_PART_WEIGHT, out_known, fail);
    if (!tensors)
        return false;
    float *values = fg_new(CHUNK, sizeof *values);
    for (uint32_t i = 0; i < store->program->n_params; i++)
        if (tensors[i])
            copy_tensor(store, i, part, tensors[i], values);
    free(values);
    free(tensors);
    return true;
}

bool fg_weights_load(const FgStore *store, const FgSafetensors *file, const char *prefix,
                     uint32_t *out_extra, FgFail *fail)
{
    uint32_t known;
    if (!load(store, file, prefix, FG_PART_WEIGHT, &known, fail))
        return false;
    uint32_t held = fg_safetensors_count(file);
    *out_extra = held > known ? held - known : 0;
    return true;
}

bool fg_weights_load_part(const FgStore *store, const FgSafetensors *file, FgPart part,
                          FgFail *fail)
{
    uint32_t known;
    return load(store, file, "", part, &known, fail);
}
