/* What is measured is what programs call: the runtime's own calls, on memory laid out as a step's
 * is. */
#include "runtime/probe/engines.h"

#include "runtime/cuda/shard.h"
#include "runtime/probe/kernels.h"

static uint64_t item_bytes(uint64_t dt)
{
    return dt == FG_RT_F32 ? 4 : 2;
}

/* ---- products ---- */

typedef struct Shape {
    uint64_t n, k;
} Shape;

enum { N_SHAPES = 7 };

static void layer_shapes(const FgProbeLayer *l, Shape *out)
{
    const Shape shapes[N_SHAPES] = {
        {l->hidden, l->hidden}, {l->kv, l->hidden},  {l->kv, l->hidden}, {l->hidden, l->hidden},
        {l->ffn, l->hidden},    {l->ffn, l->hidden}, {l->hidden, l->ffn}};
    for (int i = 0; i < N_SHAPES; i++)
        out[i] = shapes[i];
}

/* What a layer has between its products is small and wants memory: norms stand for all of it. */
static void issue_norm(FgProbeRig *rig, cudaStream_t stream, const FgProbeLayer *l)
{
    if (l->with_norms)
        fg_cuda_rmsnorm(rig->cx, stream, 0, rig->at.x, rig->at.weights, rig->at.y, l->tokens,
                        l->hidden, l->dt, 1e-5);
}

/* Weights come from memory, not from the cache: each product has its own. */
static void issue_layer(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    const FgProbeLayer *l = what;
    const FgProbePlaces *at = &rig->at;
    uint64_t offset[N_SHAPES], end = 0, ws = at->workspace, ws_bytes = at->workspace_bytes;
    Shape shapes[N_SHAPES];
    layer_shapes(l, shapes);
    for (int i = 0; i < N_SHAPES; i++) {
        offset[i] = end;
        end += shapes[i].n * shapes[i].k * item_bytes(l->dt);
        fg_cuda_linear(rig->cx, stream, 0, at->x, at->weights + offset[i], FG_RT_NONE, FG_RT_NONE,
                       at->y, l->tokens, shapes[i].n, shapes[i].k, 0, l->dt, ws, ws_bytes);
        issue_norm(rig, stream, l);
    }
    for (int i = N_SHAPES - 1; i >= 0; i--) {
        uint64_t n = shapes[i].n, k = shapes[i].k;
        fg_cuda_linear_dx(rig->cx, stream, 0, at->dy, at->weights + offset[i], FG_RT_NONE, at->y,
                          l->tokens, n, k, 0, l->dt, ws, ws_bytes);
        fg_cuda_linear_dw(rig->cx, stream, 0, at->x, at->dy, at->weight_grads + offset[i],
                          l->tokens, n, k, 0, l->dt, l->dt, 0, ws, ws_bytes);
        issue_norm(rig, stream, l);
    }
}

bool fg_probe_layer(FgProbeRig *rig, const FgProbeLayer *layer, uint32_t times, FgProbeWork *out)
{
    Shape shapes[N_SHAPES];
    uint64_t weights = 0, widest = layer->ffn > layer->hidden ? layer->ffn : layer->hidden;
    cudaStream_t stream = rig->cx->streams[FG_COMPUTE];
    layer_shapes(layer, shapes);
    for (int i = 0; i < N_SHAPES; i++)
        weights += shapes[i].n * shapes[i].k;
    *out = (FgProbeWork){.name = layer->name, .stream = FG_COMPUTE};
    out->amount = 6.0 * (double)weights * (double)layer->tokens * times;
    fg_probe_fill(rig->cx, stream, rig->at.weights, layer->dt, weights, 0.02);
    fg_probe_fill(rig->cx, stream, rig->at.x, layer->dt, layer->tokens * widest, 1);
    fg_probe_fill(rig->cx, stream, rig->at.dy, layer->dt, layer->tokens * widest, 1);
    return fg_probe_capture(rig, out, issue_layer, layer, times);
}

/* ---- attention ---- */

static void issue_attention(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    const FgProbeAttention *a = what;
    uint64_t size = item_bytes(a->dt), q = a->batch * a->seq * a->heads * a->dim * size,
             kv = a->batch * a->seq * a->kv_heads * a->dim * size;
    uint64_t from = rig->at.weights, to = rig->at.weight_grads;
    uint64_t at_k = from + q, at_v = at_k + kv, d = at_v + kv, lse = to + q, dq = lse + q,
             dk = dq + q, dv = dk + kv;
    if (a->backward)
        fg_cuda_attention_back(rig->cx, stream, 0, from, at_k, at_v, to, lse, d, dq, dk, dv,
                               a->batch, a->seq, a->seq, a->heads, a->kv_heads, a->dim, 1, 0, a->dt,
                               rig->at.workspace, rig->at.workspace_bytes, 0);
    else
        fg_cuda_attention(rig->cx, stream, 0, from, at_k, at_v, to, lse, a->batch, a->seq, a->seq,
                          a->heads, a->kv_heads, a->dim, 1, 0, a->dt, rig->at.workspace,
                          rig->at.workspace_bytes, 0);
}

bool fg_probe_attention(FgProbeRig *rig, const FgProbeAttention *a, FgProbeWork *out)
{
    enum { TIMES = 4 };
    uint64_t elements = a->batch * a->seq * (2 * a->heads + 2 * a->kv_heads) * a->dim;
    double pairs =
        (double)(a->batch * a->heads) * (double)a->seq * (double)(a->seq + 1) / 2; /* causal */
    *out = (FgProbeWork){.name = a->backward ? "attention, backward" : "attention, forward",
                         .stream = FG_COMPUTE};
    out->amount = TIMES * (a->backward ? 10.0 : 4.0) * pairs * (double)a->dim;
    fg_probe_fill(rig->cx, rig->cx->streams[FG_COMPUTE], rig->at.weights, a->dt, elements, 1);
    return fg_probe_capture(rig, out, issue_attention, a, TIMES);
}

/* ---- collectives ---- */

/* Elements of bf16 that the ranks share evenly. */
static uint64_t shared_elements(const FgProbeRig *rig, uint64_t bytes)
{
    uint64_t each = bytes / 2 / rig->cx->ranks / 128 * 128;
    return (each ? each : 128) * rig->cx->ranks;
}

static void issue_gather(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    uint64_t elements = *(const uint64_t *)what;
    fg_cuda_gather(rig->cx, stream, 0, rig->at.gather_shard, rig->at.gather_whole,
                   elements / rig->cx->ranks * 2);
}

static void issue_reduce(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    uint64_t elements = *(const uint64_t *)what;
    fg_cuda_reduce_scatter(rig->cx, stream, 0, rig->at.reduce_whole, rig->at.reduce_shard, elements,
                           FG_RT_BF16, FG_RT_BF16, 0);
}

static void issue_parts(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    uint64_t elements = *(const uint64_t *)what;
    fg_cuda_all_to_all(rig->cx, stream, 0, rig->at.reduce_whole, rig->at.parts, elements,
                       FG_RT_BF16);
}

bool fg_probe_parts(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out)
{
    uint64_t elements = shared_elements(rig, bytes);
    *out = (FgProbeWork){
        .name = "parts", .stream = FG_REDUCE, .amount = 2.0 * (double)elements * times};
    return fg_probe_capture(rig, out, issue_parts, &elements, times);
}

bool fg_probe_gather(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out)
{
    uint64_t elements = shared_elements(rig, bytes);
    *out = (FgProbeWork){
        .name = "gather", .stream = FG_GATHER, .amount = 2.0 * (double)elements * times};
    return fg_probe_capture(rig, out, issue_gather, &elements, times);
}

bool fg_probe_reduce(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out)
{
    uint64_t elements = shared_elements(rig, bytes);
    *out = (FgProbeWork){
        .name = "reduce", .stream = FG_REDUCE, .amount = 2.0 * (double)elements * times};
    return fg_probe_capture(rig, out, issue_reduce, &elements, times);
}

/* ---- memory ---- */

static void issue_update(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    const FgProbePlaces *at = &rig->at;
    (void)what;
    fg_cuda_adamw(rig->cx, stream, 0, at->grad, at->master, at->moment1, at->moment2, at->shard,
                  FG_RT_NONE, at->scalars, 0, FG_PROBE_SLICE, FG_RT_BF16, FG_RT_BF16,
                  FG_RT_CURRENT);
}

bool fg_probe_update(FgProbeRig *rig, uint32_t times, FgProbeWork *out)
{
    const double bytes = 28; /* of an element: gradient, master, two moments; these and the shard */
    *out = (FgProbeWork){.name = "update", .stream = FG_COPY};
    out->amount = bytes * (double)FG_PROBE_SLICE * times;
    fg_probe_fill(rig->cx, rig->cx->streams[FG_COPY], rig->at.grad, FG_RT_BF16, FG_PROBE_SLICE,
                  0.01);
    return fg_probe_capture(rig, out, issue_update, NULL, times);
}

static void issue_stash(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    fg_cuda_stash(rig->cx, stream, 0, rig->at.stashed, rig->at.host_stashed,
                  *(const uint64_t *)what);
}

static void issue_fetch(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    fg_cuda_fetch(rig->cx, stream, 0, rig->at.host_fetched, rig->at.fetched,
                  *(const uint64_t *)what);
}

bool fg_probe_stash(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out)
{
    *out = (FgProbeWork){.name = "stash", .stream = FG_STASH, .amount = (double)bytes * times};
    return fg_probe_capture(rig, out, issue_stash, &bytes, times);
}

bool fg_probe_fetch(FgProbeRig *rig, uint64_t bytes, uint32_t times, FgProbeWork *out)
{
    *out = (FgProbeWork){.name = "fetch", .stream = FG_FETCH, .amount = (double)bytes * times};
    return fg_probe_capture(rig, out, issue_fetch, &bytes, times);
}

enum { COPY_TIMES = 8, TINY_TIMES = 512, VECTOR_TIMES = 4 };

static void issue_copy(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    (void)what;
    fg_cuda_check(rig->cx,
                  cudaMemcpyAsync(fg_cuda_at(rig->cx, rig->at.gather_whole),
                                  fg_cuda_at(rig->cx, rig->at.reduce_whole), FG_PROBE_LARGEST / 2,
                                  cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
}

bool fg_probe_copy(FgProbeRig *rig, FgProbeWork *out)
{
    *out = (FgProbeWork){.name = "copy", .stream = FG_COMPUTE};
    out->amount = (double)FG_PROBE_LARGEST * COPY_TIMES;
    return fg_probe_capture(rig, out, issue_copy, NULL, COPY_TIMES);
}

static void issue_tiny(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    (void)what;
    fg_cuda_shard_add(rig->cx, stream, fg_cuda_at(rig->cx, rig->at.x), FG_RT_F32,
                      fg_cuda_at(rig->cx, rig->at.y), FG_RT_F32, 1024, 0);
}

bool fg_probe_tiny(FgProbeRig *rig, FgProbeWork *out)
{
    *out = (FgProbeWork){.name = "tiny kernels", .stream = FG_COMPUTE, .amount = TINY_TIMES};
    return fg_probe_capture(rig, out, issue_tiny, NULL, TINY_TIMES);
}

static void issue_vector(FgProbeRig *rig, cudaStream_t stream, const void *what)
{
    (void)what;
    (void)fg_probe_arithmetic(rig->cx, stream, rig->at.y);
}

bool fg_probe_vector(FgProbeRig *rig, FgProbeWork *out)
{
    *out = (FgProbeWork){.name = "arithmetic", .stream = FG_COMPUTE};
    out->amount =
        VECTOR_TIMES * fg_probe_arithmetic(rig->cx, rig->cx->streams[FG_COMPUTE], rig->at.y);
    return fg_probe_capture(rig, out, issue_vector, NULL, VECTOR_TIMES);
}
