/* The kinds of work that a training step does side by side, as graphs. */
#ifndef FG_RUNTIME_PROBE_ENGINES_H
#define FG_RUNTIME_PROBE_ENGINES_H

#include "runtime/probe/rig.h"

typedef struct FgProbeLayer { /* a Llama layer's products, forward and backward */
    const char *name;
    uint64_t tokens, hidden, kv, ffn, dt;
    bool with_norms; /* a small kernel follows each product, about as many as a layer has */
} FgProbeLayer;

typedef struct FgProbeAttention {
    uint64_t batch, seq, heads, kv_heads, dim, dt;
    bool backward;
} FgProbeAttention;

/* Each fills memory with what it works on, where that matters, and captures `times` repetitions.
 * False: the group has failed. The caller frees the works, after a failure too. */
bool fg_probe_layer(FgProbeRig *rig, const FgProbeLayer *layer, uint32_t times, FgProbeWork *out);
bool fg_probe_attention(FgProbeRig *rig, const FgProbeAttention *shape, FgProbeWork *out);
/* amount: bytes of the whole buffer, in bf16; less where the ranks do not divide them. */
bool fg_probe_gather(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out);
bool fg_probe_reduce(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out);
/* The same in parts, with more than one rank, after fg_cuda_parts_open. */
bool fg_probe_parts(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out);
/* AdamW over FG_PROBE_SLICE elements; amount: bytes read and written. */
bool fg_probe_update(FgProbeRig *rig, uint32_t times, FgProbeWork *out);
/* Copies to or from pinned host memory, at most FG_PROBE_COPY bytes. */
bool fg_probe_stash(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out);
bool fg_probe_fetch(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out);
/* A copy on the device; amount: bytes read and written. */
bool fg_probe_copy(FgProbeRig *rig, FgProbeWork *out);
bool fg_probe_vector(FgProbeRig *rig, FgProbeWork *out);
/* Kernels that do next to nothing; amount: how many. */
bool fg_probe_tiny(FgProbeRig *rig, FgProbeWork *out);

#endif
