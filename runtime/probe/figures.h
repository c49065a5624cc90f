/* What a probe of a machine comes to: arithmetic on measured times, and the machine file that they
 * make (docs/machine-format.md). Nothing here knows a device.
 *
 * Seconds and bytes throughout; rates per second. */
#ifndef FG_RUNTIME_PROBE_FIGURES_H
#define FG_RUNTIME_PROBE_FIGURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The keys of `beside`, in the file's order: speed of the first engine while the second runs. */
#define FG_PROBE_BESIDE(X)                                                                         \
    X(compute_gather)                                                                              \
    X(compute_reduce)                                                                              \
    X(gather_compute)                                                                              \
    X(reduce_compute)                                                                              \
    X(gather_reduce)                                                                               \
    X(reduce_gather)                                                                               \
    X(compute_update)                                                                              \
    X(update_compute)                                                                              \
    X(gather_update)                                                                               \
    X(update_gather)                                                                               \
    X(reduce_update)                                                                               \
    X(update_reduce)                                                                               \
    X(compute_host)                                                                                \
    X(host_compute)                                                                                \
    X(link_host)                                                                                   \
    X(host_link)                                                                                   \
    X(stash_fetch)                                                                                 \
    X(fetch_stash)                                                                                 \
    X(compute_parts)                                                                               \
    X(parts_compute)                                                                               \
    X(update_parts)                                                                                \
    X(parts_update)                                                                                \
    X(gather_parts)                                                                                \
    X(parts_gather)

typedef enum FgProbeBeside {
#define FG_PROBE_ONE(key) FG_PROBE_##key,
    FG_PROBE_BESIDE(FG_PROBE_ONE)
#undef FG_PROBE_ONE
        FG_PROBE_N_BESIDE
} FgProbeBeside;

/* The same of light work of the compute stream (FgMachine), which a machine file has under `light`.
 */
#define FG_PROBE_LIGHT(X)                                                                          \
    X(compute_gather)                                                                              \
    X(gather_compute)                                                                              \
    X(compute_reduce)                                                                              \
    X(reduce_compute)                                                                              \
    X(compute_update)                                                                              \
    X(update_compute)                                                                              \
    X(compute_parts)                                                                               \
    X(parts_compute)

typedef enum FgProbeLight {
#define FG_PROBE_ONE(key) FG_PROBE_LIGHT_##key,
    FG_PROBE_LIGHT(FG_PROBE_ONE)
#undef FG_PROBE_ONE
        FG_PROBE_N_LIGHT
} FgProbeLight;

enum { FG_PROBE_POINTS = 12, FG_PROBE_HEADS = 2 }; /* the most that a probe measures */

typedef struct FgProbePoint {
    double bytes, seconds;
} FgProbePoint;

typedef struct FgProbeCurve { /* by growing bytes */
    FgProbePoint points[FG_PROBE_POINTS];
    uint32_t n;
} FgProbeCurve;

typedef struct FgProbeFigures {
    const char *name;
    uint32_t ranks;
    uint64_t memory, reserved, workspace, host_memory; /* host_memory of the node */
    uint64_t reserved_parts;                           /* with the curve below */
    double matmul_f32, matmul_bf16, matmul_f16, vector, memory_rate, launch;
    struct {
        double dim, forward, backward;
    } attention[FG_PROBE_HEADS];
    uint32_t n_attention;
    FgProbeCurve gather, reduce, stash, fetch; /* gather and reduce: bytes of whole buffers */
    FgProbeCurve all_to_all;                   /* the same; empty: not measured */
    double beside[FG_PROBE_N_BESIDE];          /* over 0, at most 1; 0: not measured */
    double light_flops, light_matmul; /* light are fewer operations; of both 16-bit types */
    double light[FG_PROBE_N_LIGHT];   /* as `beside` */
} FgProbeFigures;

/* When an engine's equal items ended, one after the other, from some common moment on. */
typedef struct FgProbeTrack {
    const double *ends;
    uint32_t n;
} FgProbeTrack;

/* The time in which all tracks are under way: from the last first end to the first last end. False
 * when there is none. */
bool fg_probe_shared(const FgProbeTrack *tracks, uint32_t n, double *out_from, double *out_to);
/* Items of the track that were done between two moments, in fractions: within an item work goes on
 * evenly. Work before the first end does not count. */
double fg_probe_progress(const FgProbeTrack *track, double from, double to);
/* Speed beside another engine as a part of the speed alone, from seconds of an item: at most 1, and
 * not so little that a file would not take it. */
double fg_probe_factor(double alone, double beside);
/* The straight line through the first two points at nothing: not below 0, and below the first. */
double fg_probe_latency(const FgProbeCurve *curve);
/* More bytes never take less time: what was measured shorter takes a little more than the one
 * before. */
void fg_probe_settle(FgProbeCurve *curve);

/* Writes the machine file. */
void fg_probe_write(FILE *out, const FgProbeFigures *figures);

#endif
