/* Arithmetic on measured times, and the machine file.
 *
 * Two engines are compared over the time in which both are under way: what the longer one does
 * after the other's end would count as undisturbed work. */
#include "runtime/probe/figures.h"

#include <inttypes.h>

bool fg_probe_shared(const FgProbeTrack *tracks, uint32_t n, double *out_from, double *out_to)
{
    *out_from = *out_to = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (tracks[i].n < 2)
            return false;
        double first = tracks[i].ends[0], last = tracks[i].ends[tracks[i].n - 1];
        *out_from = i == 0 || first > *out_from ? first : *out_from;
        *out_to = i == 0 || last < *out_to ? last : *out_to;
    }
    return n > 0 && *out_from < *out_to;
}

double fg_probe_progress(const FgProbeTrack *track, double from, double to)
{
    double done = 0;
    for (uint32_t i = 1; i < track->n; i++) {
        double start = track->ends[i - 1], end = track->ends[i];
        double first = start > from ? start : from, last = end < to ? end : to;
        if (first < last)
            done += (last - first) / (end - start);
    }
    return done;
}

double fg_probe_factor(double alone, double beside)
{
    const double least = 0.01;
    double factor = beside > 0 ? alone / beside : 1;
    return factor > 1 ? 1 : factor > least ? factor : least;
}

double fg_probe_latency(const FgProbeCurve *curve)
{
    if (curve->n == 0)
        return 0;
    const FgProbePoint *a = &curve->points[0], *b = &curve->points[1];
    double latency = a->seconds;
    if (curve->n > 1)
        latency -= a->bytes * (b->seconds - a->seconds) / (b->bytes - a->bytes);
    double most = 0.99 * a->seconds; /* still below it when it was rounded */
    return latency < 0 ? 0 : latency > most ? most : latency;
}

void fg_probe_settle(FgProbeCurve *curve)
{
    const double longer = 1.00001; /* rounding in the file must not turn the order round */
    for (uint32_t i = 1; i < curve->n; i++)
        if (curve->points[i].seconds < longer * curve->points[i - 1].seconds)
            curve->points[i].seconds = longer * curve->points[i - 1].seconds;
}

/* ---- the file ---- */

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

/* `part` of the bytes is what travels. */
static void put_curve(FILE *out, const char *key, const char *rates, const FgProbeCurve *curve,
                      double part)
{
    fprintf(out, " \"%s\": {\"latency\": %.4g, \"%s\": [", key, fg_probe_latency(curve), rates);
    for (uint32_t i = 0; i < curve->n; i++) {
        const FgProbePoint *point = &curve->points[i];
        fprintf(out, "%s[%.10g, %.7g]",
                i == 0  ? ""
                : i % 4 ? ", "
                        : ",\n   ",
                point->bytes, point->bytes * part / point->seconds);
    }
    fputs("]},\n", out);
}

/* Those that were measured, behind `n` others of their object. */
static void put_factors(FILE *out, const char *const *keys, const double *factors, uint32_t n_keys,
                        uint32_t n)
{
    for (uint32_t i = 0; i < n_keys; i++) {
        if (!(factors[i] > 0))
            continue;
        fprintf(out, "%s\"%s\": %.3f", n == 0 ? "" : n % 4 ? ", " : ",\n   ", keys[i], factors[i]);
        n++;
    }
}

static void put_beside(FILE *out, const FgProbeFigures *f)
{
#define FG_PROBE_ONE(key) #key,
    static const char *const keys[] = {FG_PROBE_BESIDE(FG_PROBE_ONE)};
    static const char *const light[] = {FG_PROBE_LIGHT(FG_PROBE_ONE)};
#undef FG_PROBE_ONE
    fputs(" \"beside\": {", out);
    put_factors(out, keys, f->beside, FG_PROBE_N_BESIDE, 0);
    fprintf(out, "},\n \"light\": {\"flops\": %.3g", f->light_flops);
    if (f->light_matmul > 0)
        fprintf(out, ", \"bf16\": %.4g, \"f16\": %.4g", f->light_matmul, f->light_matmul);
    put_factors(out, light, f->light, FG_PROBE_N_LIGHT, f->light_matmul > 0 ? 3 : 1);
    fputs("}}\n", out);
}

void fg_probe_write(FILE *out, const FgProbeFigures *f)
{
    double part = f->ranks > 1 ? (double)(f->ranks - 1) / f->ranks : 0.5;
    fputs("{\"foregather_machine\": 1, \"name\": ", out);
    put_text(out, f->name);
    fprintf(out,
            ", \"ranks\": %" PRIu32 ",\n"
            " \"memory\": %" PRIu64 ", \"reserved\": %" PRIu64 ", \"workspace\": %" PRIu64 ",\n",
            f->ranks, f->memory, f->reserved, f->workspace);
    fprintf(out, " \"matmul\": {\"f32\": %.4g, \"bf16\": %.4g, \"f16\": %.4g},\n", f->matmul_f32,
            f->matmul_bf16, f->matmul_f16);
    if (f->n_attention)
        fputs(" \"attention\": [", out);
    for (uint32_t i = 0; i < f->n_attention; i++)
        fprintf(out, "%s[%g, %.4g, %.4g]%s", i ? ", " : "", f->attention[i].dim,
                f->attention[i].forward, f->attention[i].backward,
                i + 1 == f->n_attention ? "],\n" : "");
    fprintf(out, " \"vector\": %.4g, \"memory_rate\": %.4g, \"launch\": %.3g,\n", f->vector,
            f->memory_rate, f->launch);
    fprintf(out, " \"host_memory\": %" PRIu64 ",\n", f->host_memory);
    put_curve(out, "stash", "rates", &f->stash, 1);
    put_curve(out, "fetch", "rates", &f->fetch, 1);
    put_curve(out, "gather", "bus_rates", &f->gather, part);
    put_curve(out, "reduce", "bus_rates", &f->reduce, part);
    if (f->all_to_all.n) {
        put_curve(out, "all_to_all", "bus_rates", &f->all_to_all, part);
        fprintf(out, " \"reserved_parts\": %" PRIu64 ",\n", f->reserved_parts);
    }
    put_beside(out, f);
}
