/* Rounding is done here from the definition, by scaling and rint, not by the runtime's own code. */
#include "tests/runtime/rig.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nothing(FgRtCx *cx)
{
    (void)cx;
}

Rig rig_open_program(const FgRtProgram *program, FgRtOptions options)
{
    Rig rig = {.program = *program, .seed = 12345};
    char error[256] = "";
    /* The group keeps a pointer to the program, so it must not move: it lives on the heap. */
    FgRtProgram *copy = malloc(sizeof *copy);
    *copy = *program;
    rig.group = fg_rt_group_new(copy, NULL, &options, error, sizeof error);
    if (!rig.group) {
        printf("no group: %s\n", error);
        free(copy);
        return rig;
    }
    rig.cx = fg_rt_group_rank(rig.group, 0);
    return rig;
}

Rig rig_open(uint64_t bytes)
{
    FgRtProgram program = {
        .abi = FG_RT_ABI, .ranks = 1, .state_bytes = bytes, .arena_bytes = RIG_WORKSPACE};
    Rig rig = rig_open_program(&program, (FgRtOptions){.checked = 1});
    rig.ws = bytes;
    return rig;
}

void rig_close(Rig *rig)
{
    const FgRtProgram *program = rig->group ? fg_rt_program(rig->cx) : NULL;
    fg_rt_group_free(rig->group);
    free((void *)(uintptr_t)program);
    for (size_t i = 0; i < rig->n_kept; i++)
        free(rig->kept[i]);
    free(rig->kept);
}

void rig_begin(Rig *rig)
{
    fg_rt_run_body(rig->cx, nothing);
}

typedef struct Run {
    FgRtCx *cx;
    FgRtBody *body;
} Run;

static void *run_rank(void *context)
{
    const Run *run = context;
    fg_rt_run_body(run->cx, run->body);
    return NULL;
}

void rig_run(Rig *rig, FgRtBody *body)
{
    uint32_t n = rig->program.ranks;
    pthread_t *threads = malloc(n * sizeof *threads);
    Run *runs = malloc(n * sizeof *runs);
    for (uint32_t i = 0; i < n; i++) {
        runs[i] = (Run){fg_rt_group_rank(rig->group, i), body};
        pthread_create(&threads[i], NULL, run_rank, &runs[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    free(runs);
}

double rig_random(Rig *rig)
{
    rig->seed = rig->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(rig->seed >> 11) * 0x1p-52 - 1;
}

/* Keeps `bits` significant bits, fewer below the smallest normal number 2^lowest. */
static double round_bits(double value, int bits, int lowest, double largest)
{
    if (value == 0 || !isfinite(value))
        return value;
    int exponent;
    frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
    if (exponent - 1 < lowest)
        exponent = lowest + 1;
    double rounded = ldexp(rint(ldexp(value, bits - exponent)), exponent - bits);
    return fabs(rounded) > largest ? copysign((double)INFINITY, value) : rounded;
}

double rig_round(uint64_t dt, double value)
{
    switch (dt) {
    case FG_RT_F32:
        return (double)(float)value;
    case FG_RT_BF16:
        return round_bits(value, 8, -126, 0x1.fep127);
    case FG_RT_F16:
        return round_bits(value, 11, -14, 65504);
    default:
        return value;
    }
}

static uint64_t size_of(uint64_t dt)
{
    return dt == FG_RT_F64 || dt == FG_RT_I64 ? 8 : dt == FG_RT_BF16 || dt == FG_RT_F16 ? 2 : 4;
}

static Array reserve(Rig *rig, uint64_t dt, uint64_t n)
{
    Array array = {rig->next, n, dt, calloc(n + 1, sizeof *array.v)};
    rig->next += (n * size_of(dt) + 63) / 64 * 64;
    if (rig->next > rig->program.state_bytes) {
        printf("the rig has too little memory\n");
        abort(); /* a mistake in the test, nothing to count */
    }
    double **kept = realloc(rig->kept, (rig->n_kept + 1) * sizeof *kept);
    if (!kept)
        abort();
    rig->kept = kept;
    kept[rig->n_kept++] = array.v;
    return array;
}

static void put(Rig *rig, const Array *array, uint64_t index, double value)
{
    uint8_t *to = (uint8_t *)fg_rt_memory(rig->cx, array->at) + index * size_of(array->dt);
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    uint16_t high = (uint16_t)(bits >> 16);
    if (array->dt == FG_RT_BF16)
        memcpy(to, &high, sizeof high);
    else if (array->dt == FG_RT_F64)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &narrow, sizeof narrow);
}

Array rig_values(Rig *rig, uint64_t dt, uint64_t n, double scale)
{
    Array array = reserve(rig, dt, n);
    for (uint64_t i = 0; i < n; i++) {
        array.v[i] = rig_round(dt, scale * rig_random(rig));
        put(rig, &array, i, array.v[i]);
    }
    return array;
}

Array rig_ids(Rig *rig, const int32_t *ids, uint64_t n)
{
    Array array = reserve(rig, FG_RT_I32, n);
    memcpy(fg_rt_memory(rig->cx, array.at), ids, n * sizeof *ids);
    return array;
}

Array rig_result(Rig *rig, uint64_t dt, uint64_t n)
{
    return reserve(rig, dt, n);
}

static double f16_value(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double fraction = half & 1023, sign = half & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

double rig_get(Rig *rig, const Array *array, uint64_t index)
{
    const uint8_t *from =
        (const uint8_t *)fg_rt_memory(rig->cx, array->at) + index * size_of(array->dt);
    double wide;
    float narrow;
    uint16_t half;
    uint32_t bits;
    if (array->dt == FG_RT_F64) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    if (array->dt == FG_RT_BF16 || array->dt == FG_RT_F16) {
        memcpy(&half, from, sizeof half);
        if (array->dt == FG_RT_F16)
            return f16_value(half);
        bits = (uint32_t)half << 16;
        memcpy(&narrow, &bits, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&narrow, from, sizeof narrow);
    return (double)narrow;
}

void rig_check(Rig *rig, const Array *result, double tolerance, const char *what, int *failures)
{
    double largest = 0;
    for (uint64_t i = 0; i < result->n; i++)
        largest = fabs(result->v[i]) > largest ? fabs(result->v[i]) : largest;
    double margin = tolerance * largest;
    rig_check_ok(rig, what, failures);
    int shown = 0;
    for (uint64_t i = 0; i < result->n; i++) {
        double got = rig_get(rig, result, i), expected = result->v[i];
        if (got >= rig_round(result->dt, expected - margin) &&
            got <= rig_round(result->dt, expected + margin))
            continue;
        if (shown++ < 3)
            printf("%s: element %llu is %.9g, not %.9g\n", what, (unsigned long long)i, got,
                   expected);
        ++*failures;
    }
}

void rig_check_ok(Rig *rig, const char *what, int *failures)
{
    FgRtStatus status = fg_rt_status(rig->cx);
    if (status.ok)
        return;
    printf("%s: rank %u, %s: %s\n", what, status.rank, status.call, status.text);
    ++*failures;
}
