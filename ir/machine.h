/* A machine: what the planner knows of the hardware. Presets and files are read by
 * frontend/machine.c; docs/machine-format.md describes the file. Rates are sustained ones; SI units
 * (bytes, seconds, per second). */
#ifndef FG_IR_MACHINE_H
#define FG_IR_MACHINE_H

#include "base/vec.h"
#include "ir/types.h"

typedef struct FgCurvePoint {
    double bytes;   /* whole buffer of the collective (gathered or to be reduced) */
    double seconds; /* alone on the link */
} FgCurvePoint;

typedef FG_VEC(
    FgCurvePoint) FgCurve; /* by bytes; linear between points, last rate beyond, first time below */

/* Operations a second of attention's products, forward and backward, with heads of `dim`. */
typedef struct FgAttentionRate {
    double dim, forward, backward;
} FgAttentionRate;

typedef struct FgMachine {
    const char *name;
    uint32_t ranks, ranks_per_node;
    uint64_t memory_bytes;    /* offered to the process on each device */
    uint64_t reserved_bytes;  /* taken off it: context, communicators, library state */
    uint64_t reserved_parts;  /* more of it where gradients come in parts: their communicator */
    bool reserved_estimated;  /* the constant was not measured, and the summary says so */
    uint64_t workspace_bytes; /* scratch of library calls, in the plan */
    double matmul_f32, matmul_bf16, matmul_f16; /* FLOP/s */
    FG_VEC(FgAttentionRate) attention;          /* bf16 and f16, by dim; empty: as matmul */
    double vector_flops;                        /* FLOP/s outside the matrix units */
    double memory_rate;                         /* bytes/s, read + write */
    double launch_seconds;                      /* least time of a device call */
    FgCurve gather, reduce;                     /* all-gather and reduce-scatter at `ranks` */
    FgCurve all_to_all;                         /* empty: as gathers, which take the same way */
    /* Speed of one engine while another runs beside it, as a fraction of its speed alone. */
    double compute_beside_gather, compute_beside_reduce;
    double gather_beside_compute, reduce_beside_compute;
    double gather_beside_reduce, reduce_beside_gather;
    /* Pinned host memory that the ranks of a node share, 0 where the machine file says nothing of
     * it, and copies to and from it. Factors of 0 count as 1. */
    uint64_t host_node_bytes;
    FgCurve stash, fetch;
    double compute_beside_host, host_beside_compute;
    double link_beside_host, host_beside_link; /* the link: gathers and reductions */
    double stash_beside_fetch, fetch_beside_stash;
    /* Updates: kernels bound by memory on the copy stream. Factors of 0: compute and updates slow
     * each other as compute and reductions do, collectives and updates not at all. */
    double compute_beside_update, update_beside_compute;
    double gather_beside_update, update_beside_gather;
    double reduce_beside_update, update_beside_reduce;
    /* Gradients in parts (all_to_all), which go through copy engines. Factors of 0: as gathers
     * beside compute and updates; FG_PARTS_BESIDE_GATHER. */
    double compute_beside_parts, parts_beside_compute;
    double update_beside_parts, parts_beside_update;
    double gather_beside_parts, parts_beside_gather;
    /* Light work: what the compute stream runs whose products take fewer operations than this (0:
     * nothing counts as light). It wants memory more than the matrix units, so products are slower,
     * and others slow it, and it them, in another way. Figures of 0: as for all other compute. */
    double light_flops, light_bf16, light_f16; /* operations; FLOP/s */
    double light_beside_gather, gather_beside_light;
    double light_beside_reduce, reduce_beside_light;
    double light_beside_update, update_beside_light;
    double light_beside_parts, parts_beside_light;
} FgMachine;

/* Gathers and parts share the links: each, where nothing was measured. */
#define FG_PARTS_BESIDE_GATHER 0.6

/* Host memory of one rank: an equal share of its node's. */
uint64_t fg_machine_host_bytes(const FgMachine *machine);

/* Seconds for `bytes` on a curve. */
double fg_curve_seconds(const FgCurve *curve, double bytes);

#endif
