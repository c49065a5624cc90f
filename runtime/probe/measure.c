/* First each engine alone: products long enough for the clocks to settle, then memory, curves of
 * collectives and host copies. Then engines side by side, as pairs, and as the triples that a step
 * has, which are printed beside what the pairs' factors make of them. Then what the process takes
 * of the device, everything loaded. Last, with more than one rank, gradients in parts: their
 * communicator is opened for that, and what it takes is told apart. */
#include "runtime/probe/measure.h"

#include "runtime/probe/engines.h"

#include <inttypes.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)
/* Seconds: for clocks to settle; of a figure; of a point of a curve; of engines side by side. */
static const double settle_s = 0.5, figure_s = 0.3, point_s = 0.02, pair_s = 0.15;

static const FgProbeLayer large = {
    "8B layer, 4096 tokens, bf16", 4096, 4096, 1024, 14336, FG_RT_BF16, false};
static const FgProbeLayer wide = {
    "1B layer, 8192 tokens, bf16", 8192, 2048, 512, 8192, FG_RT_BF16, false};
static const FgProbeLayer narrow = {
    "1B layer, 512 tokens, bf16", 512, 2048, 512, 8192, FG_RT_BF16, false};
/* Operations of a product: those of `narrow` take up to 1.7e10, those that fill a device more. */
static const double light_flops = 5e10;

/* ---- rates ---- */

/* Times a work that was just captured, prints its rate, and frees it. */
static bool rate_of(FgProbeRig *rig, FgProbeWork *work, double goal, const char *unit, double scale,
                    double *out_rate)
{
    bool ok = fg_probe_time(rig, work, goal);
    *out_rate = work->seconds > 0 ? work->amount / work->seconds : 0;
    if (ok)
        fg_probe_say(rig, "%-28s %8.1f %s", work->name, *out_rate / scale, unit);
    fg_probe_work_free(work);
    return ok;
}

static bool layer_rate(FgProbeRig *rig, const FgProbeLayer *layer, uint32_t times, double goal,
                       double *out_rate)
{
    FgProbeWork work;
    bool ok = fg_probe_layer(rig, layer, times, &work) &&
              rate_of(rig, &work, goal, "TFLOP/s", 1e12, out_rate);
    fg_probe_work_free(&work);
    return ok;
}

/* Products of two models: the rate at which both of them together run. */
static bool mean_rate(FgProbeRig *rig, uint64_t dt, double *out_rate)
{
    FgProbeLayer first = large, second = wide;
    double a, b;
    first.dt = second.dt = dt;
    if (dt == FG_RT_F16) {
        first.name = "8B layer, 4096 tokens, f16";
        second.name = "1B layer, 8192 tokens, f16";
    }
    if (!layer_rate(rig, &first, 1, figure_s, &a) || !layer_rate(rig, &second, 2, figure_s, &b))
        return false;
    *out_rate = 2 / (1 / a + 1 / b);
    return true;
}

static bool measure_products(FgProbeRig *rig, FgProbeFigures *out)
{
    FgProbeLayer single = {"1B layer, 2048 tokens, f32", 2048, 2048, 512, 8192, FG_RT_F32, false};
    double ignored;
    bool tensor = rig->cx->sm >= 80; /* older chips have bf16 only by detours, at f32's rate */
    fg_probe_say(rig, "products, after %.1f s for clocks to settle", settle_s);
    if (!layer_rate(rig, &single, 1, figure_s / 2, &out->matmul_f32) ||
        !layer_rate(rig, tensor ? &large : &single, 1, settle_s, &ignored) ||
        !mean_rate(rig, FG_RT_F16, &out->matmul_f16))
        return false;
    out->matmul_bf16 = out->matmul_f32;
    out->light_flops = light_flops;
    return !tensor || (mean_rate(rig, FG_RT_BF16, &out->matmul_bf16) &&
                       layer_rate(rig, &narrow, 16, figure_s, &out->light_matmul));
}

static bool attention_rate(FgProbeRig *rig, FgProbeAttention shape, bool backward, double *out_rate)
{
    FgProbeWork work;
    shape.backward = backward;
    bool ok = fg_probe_attention(rig, &shape, &work) &&
              rate_of(rig, &work, figure_s / 2, "TFLOP/s", 1e12, out_rate);
    fg_probe_work_free(&work);
    return ok;
}

static bool measure_attention(FgProbeRig *rig, FgProbeFigures *out)
{
    uint64_t dt = rig->cx->sm >= 80 ? FG_RT_BF16 : FG_RT_F16;
    const FgProbeAttention shapes[FG_PROBE_HEADS] = {{4, 2048, 32, 8, 64, dt, false},
                                                     {1, 4096, 32, 8, 128, dt, false}};
    for (uint32_t i = 0; i < FG_PROBE_HEADS; i++) {
        fg_probe_say(rig, "heads of %" PRIu64 ", %" PRIu64 " x %" PRIu64 " tokens", shapes[i].dim,
                     shapes[i].batch, shapes[i].seq);
        if (!attention_rate(rig, shapes[i], false, &out->attention[i].forward) ||
            !attention_rate(rig, shapes[i], true, &out->attention[i].backward))
            return false;
        out->attention[i].dim = (double)shapes[i].dim;
        out->n_attention = i + 1;
    }
    return true;
}

/* Copies and updates are memory's two kinds of traffic; its rate is that of as much of each. */
static bool measure_memory(FgProbeRig *rig, FgProbeFigures *out)
{
    FgProbeWork copy = {0}, update = {0}, vector = {0}, tiny = {0};
    double copied = 0, updated = 0, launched = 0;
    /* Arithmetic first: a device that rested needs a moment to raise its clocks. */
    bool ok = fg_probe_vector(rig, &vector) &&
              rate_of(rig, &vector, figure_s, "GFLOP/s", 1e9, &out->vector) &&
              fg_probe_copy(rig, &copy) && rate_of(rig, &copy, figure_s, "GB/s", 1e9, &copied) &&
              fg_probe_update(rig, 8, &update) &&
              rate_of(rig, &update, figure_s, "GB/s", 1e9, &updated) && fg_probe_tiny(rig, &tiny) &&
              rate_of(rig, &tiny, figure_s, "a ms", 1e3, &launched);
    FgProbeWork *works[] = {&copy, &update, &vector, &tiny};
    for (uint32_t i = 0; i < 4; i++)
        fg_probe_work_free(works[i]);
    if (!ok)
        return false;
    out->memory_rate = 2 / (1 / copied + 1 / updated);
    out->launch = 1 / launched;
    return true;
}

/* ---- curves ---- */

typedef bool Maker(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out);

static bool measure_curve(FgProbeRig *rig, Maker *make, uint64_t first, uint64_t last,
                          FgProbeCurve *out)
{
    double part = rig->cx->ranks > 1 ? 1 - 1.0 / rig->cx->ranks : 0.5;
    bool link = make == fg_probe_gather || make == fg_probe_reduce || make == fg_probe_parts,
         ok = true;
    for (uint64_t bytes = first; ok && bytes <= last && out->n < FG_PROBE_POINTS; bytes *= 4) {
        uint32_t times = bytes <= 16 * MIB ? 16 : bytes <= 256 * MIB ? 4 : 2;
        FgProbeWork work;
        ok = make(rig, bytes, times, &work) && fg_probe_time(rig, &work, point_s);
        FgProbePoint point = {work.amount / times, work.seconds / times};
        fg_probe_work_free(&work);
        if (!ok)
            break;
        out->points[out->n++] = point;
        fg_probe_say(rig, "%-8s %12.0f bytes %10.1f us %8.1f GB/s%s", work.name, point.bytes,
                     point.seconds * 1e6, point.bytes * (link ? part : 1) / point.seconds / 1e9,
                     link ? " (bus)" : "");
    }
    fg_probe_settle(out);
    return ok;
}

/* ---- engines side by side ---- */

enum { COMPUTE, GATHER, REDUCE, UPDATE, STASH, FETCH, LIGHT, PARTS, N_ENGINES };

typedef struct Engines {
    FgProbeWork works[N_ENGINES]; /* those without a graph are not measured */
    double alone[N_ENGINES];
    double speed[N_ENGINES][N_ENGINES]; /* of one beside another; 0: not measured */
} Engines;

enum { BUCKET_MIB = 128, COPY_MIB = 64 };

/* Large products, and the light work of few tokens, which wants memory more than arithmetic. */
static bool open_compute(FgProbeRig *rig, Engines *e)
{
    FgProbeLayer layer = rig->cx->sm >= 80 ? large : wide, small = narrow;
    if (rig->cx->sm < 80)
        layer.dt = small.dt = FG_RT_F16;
    layer.name = "compute";
    small.name = "light";
    small.with_norms = true;
    return fg_probe_layer(rig, &layer, 1, &e->works[COMPUTE]) &&
           fg_probe_layer(rig, &small, 16, &e->works[LIGHT]);
}

static bool engines_open(FgProbeRig *rig, Engines *e)
{
    const uint64_t bucket = BUCKET_MIB * MIB, copy = COPY_MIB * MIB;
    return open_compute(rig, e) && fg_probe_gather(rig, bucket, 8, &e->works[GATHER]) &&
           fg_probe_reduce(rig, bucket, 8, &e->works[REDUCE]) &&
           fg_probe_update(rig, 16, &e->works[UPDATE]) &&
           fg_probe_stash(rig, copy, 4, &e->works[STASH]) &&
           fg_probe_fetch(rig, copy, 4, &e->works[FETCH]);
}

/* Those that gradients in parts meet. */
static bool engines_open_parts(FgProbeRig *rig, Engines *e)
{
    return open_compute(rig, e) && fg_probe_gather(rig, BUCKET_MIB * MIB, 8, &e->works[GATHER]) &&
           fg_probe_update(rig, 16, &e->works[UPDATE]) &&
           fg_probe_parts(rig, BUCKET_MIB * MIB, 8, &e->works[PARTS]);
}

/* Alone, by the same way of measuring as beside others. */
static bool engines_alone(FgProbeRig *rig, Engines *e)
{
    for (uint32_t i = 0; i < N_ENGINES; i++) {
        FgProbeWork *work = &e->works[i];
        double goal = i == COMPUTE ? settle_s : pair_s;
        if (!work->exec)
            continue;
        if (!fg_probe_time(rig, work, pair_s / 4) ||
            !fg_probe_together(rig, &work, 1, goal, &e->alone[i]))
            return false;
        work->seconds = e->alone[i];
        fg_probe_say(rig, "%-8s alone %8.3f ms", work->name, e->alone[i] * 1e3);
    }
    return true;
}

/* Runs the engines of a set together and prints how fast each was, and, for more than two, what
 * the pairs' factors make of it. */
static bool measure_set(FgProbeRig *rig, Engines *e, const uint32_t *set, uint32_t n)
{
    FgProbeWork *works[FG_PROBE_MOST_WORKS] = {NULL};
    double seconds[FG_PROBE_MOST_WORKS] = {0};
    for (uint32_t i = 0; i < n; i++)
        works[i] = &e->works[set[i]];
    if (!fg_probe_together(rig, works, n, pair_s, seconds))
        return false;
    char line[256];
    int at = 0;
    for (uint32_t i = 0; i < n; i++) {
        double speed = fg_probe_factor(e->alone[set[i]], seconds[i]), product = 1;
        for (uint32_t k = 0; k < n; k++)
            if (k != i && n > 2)
                product *= e->speed[set[i]][set[k]];
        if (n == 2)
            e->speed[set[i]][set[1 - i]] = speed;
        at += snprintf(line + at, sizeof line - (size_t)at, "%s%s %.3f", i ? " | " : "",
                       works[i]->name, speed);
        if (n > 2)
            at += snprintf(line + at, sizeof line - (size_t)at, " (pairs: %.3f)", product);
    }
    fg_probe_say(rig, "together %s", line);
    return true;
}

static bool engines_together(FgProbeRig *rig, Engines *e)
{
    static const struct {
        uint32_t n, set[FG_PROBE_MOST_WORKS];
    } sets[] = {{2, {COMPUTE, GATHER}},         {2, {COMPUTE, REDUCE}},
                {2, {COMPUTE, UPDATE}},         {2, {GATHER, REDUCE}},
                {2, {GATHER, UPDATE}},          {2, {REDUCE, UPDATE}},
                {3, {COMPUTE, GATHER, REDUCE}}, {3, {COMPUTE, GATHER, UPDATE}},
                {3, {COMPUTE, REDUCE, UPDATE}}, {4, {COMPUTE, GATHER, REDUCE, UPDATE}},
                {2, {LIGHT, GATHER}},           {2, {LIGHT, REDUCE}},
                {2, {LIGHT, UPDATE}},           {2, {COMPUTE, STASH}},
                {2, {COMPUTE, FETCH}},          {2, {GATHER, STASH}},
                {2, {GATHER, FETCH}},           {2, {REDUCE, STASH}},
                {2, {REDUCE, FETCH}},           {2, {STASH, FETCH}}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (!measure_set(rig, e, sets[i].set, sets[i].n))
            return false;
    double alone = e->alone[COMPUTE], later;
    FgProbeWork *compute = &e->works[COMPUTE];
    if (!fg_probe_together(rig, &compute, 1, figure_s, &later))
        return false;
    fg_probe_say(rig, "compute alone again %8.3f ms (%+.1f %%)", later * 1e3,
                 (later / alone - 1) * 100);
    return true;
}

static bool parts_together(FgProbeRig *rig, Engines *e)
{
    static const struct {
        uint32_t n, set[FG_PROBE_MOST_WORKS];
    } sets[] = {{2, {COMPUTE, PARTS}},
                {2, {UPDATE, PARTS}},
                {2, {GATHER, PARTS}},
                {2, {COMPUTE, GATHER}},
                {2, {COMPUTE, UPDATE}},
                {2, {GATHER, UPDATE}},
                {3, {COMPUTE, GATHER, PARTS}},
                {4, {COMPUTE, GATHER, UPDATE, PARTS}},
                {2, {LIGHT, PARTS}},
                {2, {LIGHT, GATHER}},
                {2, {LIGHT, UPDATE}},
                {3, {LIGHT, UPDATE, PARTS}},
                {4, {LIGHT, GATHER, UPDATE, PARTS}}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (!measure_set(rig, e, sets[i].set, sets[i].n))
            return false;
    return true;
}

static double mean2(double a, double b)
{
    return (a + b) / 2;
}

static void put_beside(const Engines *e, double *out)
{
    const double(*s)[N_ENGINES] = e->speed;
    out[FG_PROBE_compute_gather] = s[COMPUTE][GATHER];
    out[FG_PROBE_compute_reduce] = s[COMPUTE][REDUCE];
    out[FG_PROBE_gather_compute] = s[GATHER][COMPUTE];
    out[FG_PROBE_reduce_compute] = s[REDUCE][COMPUTE];
    out[FG_PROBE_gather_reduce] = s[GATHER][REDUCE];
    out[FG_PROBE_reduce_gather] = s[REDUCE][GATHER];
    out[FG_PROBE_compute_update] = s[COMPUTE][UPDATE];
    out[FG_PROBE_update_compute] = s[UPDATE][COMPUTE];
    out[FG_PROBE_gather_update] = s[GATHER][UPDATE];
    out[FG_PROBE_update_gather] = s[UPDATE][GATHER];
    out[FG_PROBE_reduce_update] = s[REDUCE][UPDATE];
    out[FG_PROBE_update_reduce] = s[UPDATE][REDUCE];
    out[FG_PROBE_compute_host] = mean2(s[COMPUTE][STASH], s[COMPUTE][FETCH]);
    out[FG_PROBE_host_compute] = mean2(s[STASH][COMPUTE], s[FETCH][COMPUTE]);
    out[FG_PROBE_link_host] =
        mean2(mean2(s[GATHER][STASH], s[GATHER][FETCH]), mean2(s[REDUCE][STASH], s[REDUCE][FETCH]));
    out[FG_PROBE_host_link] =
        mean2(mean2(s[STASH][GATHER], s[FETCH][GATHER]), mean2(s[STASH][REDUCE], s[FETCH][REDUCE]));
    out[FG_PROBE_stash_fetch] = s[STASH][FETCH];
    out[FG_PROBE_fetch_stash] = s[FETCH][STASH];
}

static void put_light(const Engines *e, double *out)
{
    const double(*s)[N_ENGINES] = e->speed;
    out[FG_PROBE_LIGHT_compute_gather] = s[LIGHT][GATHER];
    out[FG_PROBE_LIGHT_gather_compute] = s[GATHER][LIGHT];
    out[FG_PROBE_LIGHT_compute_reduce] = s[LIGHT][REDUCE];
    out[FG_PROBE_LIGHT_reduce_compute] = s[REDUCE][LIGHT];
    out[FG_PROBE_LIGHT_compute_update] = s[LIGHT][UPDATE];
    out[FG_PROBE_LIGHT_update_compute] = s[UPDATE][LIGHT];
}

static void put_light_parts(const Engines *e, double *out)
{
    out[FG_PROBE_LIGHT_compute_parts] = e->speed[LIGHT][PARTS];
    out[FG_PROBE_LIGHT_parts_compute] = e->speed[PARTS][LIGHT];
}

static void put_beside_parts(const Engines *e, double *out)
{
    const double(*s)[N_ENGINES] = e->speed;
    out[FG_PROBE_compute_parts] = s[COMPUTE][PARTS];
    out[FG_PROBE_parts_compute] = s[PARTS][COMPUTE];
    out[FG_PROBE_update_parts] = s[UPDATE][PARTS];
    out[FG_PROBE_parts_update] = s[PARTS][UPDATE];
    out[FG_PROBE_gather_parts] = s[GATHER][PARTS];
    out[FG_PROBE_parts_gather] = s[PARTS][GATHER];
}

/* All engines but gradients in parts, or these with those that they meet. */
static bool measure_beside(FgProbeRig *rig, bool parts, FgProbeFigures *out)
{
    Engines *e = calloc(1, sizeof *e);
    if (!e) {
        fg_cuda_raise(rig->cx, "out of memory for engines");
        return false;
    }
    bool ok = parts ? engines_open_parts(rig, e) : engines_open(rig, e);
    ok = ok && engines_alone(rig, e) && (parts ? parts_together(rig, e) : engines_together(rig, e));
    if (ok && parts) {
        put_beside_parts(e, out->beside);
        put_light_parts(e, out->light);
    } else if (ok) {
        put_beside(e, out->beside);
        put_light(e, out->light);
    }
    for (uint32_t i = 0; i < N_ENGINES; i++)
        fg_probe_work_free(&e->works[i]);
    free(e);
    return ok;
}

/* ---- memory ---- */

/* Bytes that processes could still take of the host, by the system and by its limit for us. */
static uint64_t host_memory_left(void)
{
    unsigned long long kib = 0, limit = 0;
    char line[128];
    bool found = false;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    if (file)
        fclose(file);
    uint64_t left = found ? (uint64_t)kib << 10 : (uint64_t)1 << 30;
    file = fopen("/sys/fs/cgroup/memory.max", "r");
    if (file && fscanf(file, "%llu", &limit) == 1 && limit < left)
        left = limit;
    if (file)
        fclose(file);
    return left;
}

/* What the process takes beside its allocation, in whole MiB; the largest of the ranks. */
static bool taken_beside(FgProbeRig *rig, uint64_t *out)
{
    double beside[FG_PROBE_AGREE] = {0}, most = 0;
    FgRtCx *cx = rig->cx;
    uint64_t used = fg_cuda_memory_used(rig->group), own = rig->group->bytes;
    beside[cx->rank % FG_PROBE_AGREE] = used > own ? (double)(used - own) : 0;
    if (!fg_probe_mean(rig, beside, FG_PROBE_AGREE))
        return false;
    for (uint32_t i = 0; i < FG_PROBE_AGREE; i++)
        most = beside[i] * cx->ranks > most ? beside[i] * cx->ranks : most;
    *out = ((uint64_t)most + MIB - 1) / MIB * MIB;
    return true;
}

static bool measure_taken(FgProbeRig *rig, FgProbeFigures *out)
{
    FgRtCx *cx = rig->cx;
    size_t left = 0, all = 0;
    if (!taken_beside(rig, &out->reserved))
        return false;
    fg_cuda_check(cx, cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
    out->memory = all / MIB * MIB;
    out->workspace = rig->cx->sm >= 80 ? 144 * MIB : 32 * MIB;
    out->host_memory = host_memory_left() / 4 * 3 / MIB * MIB;
    fg_probe_say(rig,
                 "memory   device %" PRIu64 " MiB, taken beside allocations %" PRIu64
                 " MiB; host, to spare: %" PRIu64 " MiB",
                 out->memory / MIB, out->reserved / MIB, out->host_memory / MIB);
    return !fg_cuda_failed(cx);
}

/* ---- gradients in parts ---- */

static bool measure_parts(FgProbeRig *rig, FgProbeFigures *out)
{
    uint64_t with;
    if (rig->cx->ranks == 1)
        return true;
    if (!fg_cuda_parts_open(rig->group) ||
        !measure_curve(rig, fg_probe_parts, MIB / 16, FG_PROBE_LARGEST, &out->all_to_all) ||
        !measure_beside(rig, true, out) || !taken_beside(rig, &with))
        return false;
    out->reserved_parts = with > out->reserved ? with - out->reserved : 0;
    fg_probe_say(rig, "memory   taken for gradients in parts %" PRIu64 " MiB",
                 out->reserved_parts / MIB);
    return true;
}

bool fg_probe_measure(FgProbeRig *rig, FgProbeFigures *out)
{
    const uint64_t least = MIB / 16;
    return measure_memory(rig, out) && measure_products(rig, out) && measure_attention(rig, out) &&
           measure_curve(rig, fg_probe_gather, least, FG_PROBE_LARGEST, &out->gather) &&
           measure_curve(rig, fg_probe_reduce, least, FG_PROBE_LARGEST, &out->reduce) &&
           measure_curve(rig, fg_probe_stash, least, FG_PROBE_COPY, &out->stash) &&
           measure_curve(rig, fg_probe_fetch, least, FG_PROBE_COPY, &out->fetch) &&
           measure_beside(rig, false, out) && measure_taken(rig, out) && measure_parts(rig, out);
}
