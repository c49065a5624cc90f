/* Attention by cuDNN where it has a plan, by our own kernels elsewhere: behind the C interface of
 * cx.h.
 *
 * cuDNN's attention is a graph of operations that it recognises; the vendor's header-only library
 * (FG_CUDNN_FRONTEND: it was found at configure time) builds those graphs. cuDNN itself is opened
 * when the program runs, so that a program also starts where it is missing. A plan belongs to a
 * shape and a workspace. Where the whole call wants more workspace than the schedule gave it, the
 * plan covers fewer batch entries, then fewer key heads, and the call runs it piece by piece:
 * memory is what was planned, and time pays. Building a plan touches no stream; execution only
 * launches. */
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>

#include "runtime/cuda/attention.h"

#if FG_CUDNN_FRONTEND
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB /* plans are not written to files: half the compile time */
#include <cudnn_frontend.h>
#include <dlfcn.h>

namespace cudnn_frontend
{
void *cudnn_dlhandle = nullptr; /* the one global that the headers ask for */
}
#endif

namespace
{

/* Part of a call: `batch` entries and `kv_heads` key heads with their query heads. */
struct Piece {
    uint64_t batch, kv_heads;
};

#if FG_CUDNN_FRONTEND

namespace fe = cudnn_frontend;

enum Uid : int64_t { Q = 1, K, V, O, STATS, D, DQ, DK, DV };

struct Key {
    FgCudaAttentionShape shape;
    uint64_t backward, ws_bytes;

    auto tie() const
    {
        return std::tie(shape.batch, shape.seq_q, shape.seq_k, shape.heads, shape.kv_heads,
                        shape.dim, shape.causal, shape.window, shape.dt, shape.scale, backward,
                        ws_bytes);
    }
    bool operator<(const Key &other) const
    {
        return tie() < other.tie();
    }
};

struct Plan {
    std::shared_ptr<fe::graph::Graph> graph; /* none: our kernels, for the reason of `why` */
    Piece piece = {};
    uint64_t workspace = 0;
    std::string why;
};

#endif

} // namespace

struct FgCudaAttention {
    std::string why; /* not empty: no library at all */
#if FG_CUDNN_FRONTEND
    cudnnHandle_t handle = nullptr;
    std::map<Key, Plan> plans;
#endif
};

namespace
{

#if FG_CUDNN_FRONTEND

/* ---- one plan ---- */

std::shared_ptr<fe::graph::Tensor_attributes> tensor(fe::graph::Graph &graph, Uid uid,
                                                     const char *name)
{
    return graph.tensor(fe::graph::Tensor_attributes().set_uid(uid).set_name(name));
}

/* [batch, seq, heads, dim] in memory, of which the piece takes some batch entries and heads;
 * cuDNN's order is b, h, s, d. */
void lay_out(fe::graph::Tensor_attributes &t, uint64_t batch, uint64_t seq, uint64_t heads,
             uint64_t all_heads, uint64_t dim)
{
    auto n = [](uint64_t x) { return static_cast<int64_t>(x); };
    t.set_dim({n(batch), n(heads), n(seq), n(dim)})
        .set_stride({n(seq * all_heads * dim), n(dim), n(all_heads * dim), 1});
}

void lay_out_stats(fe::graph::Tensor_attributes &t, uint64_t batch, uint64_t heads, uint64_t seq)
{
    auto n = [](uint64_t x) { return static_cast<int64_t>(x); };
    t.set_dim({n(batch), n(heads), n(seq), 1})
        .set_stride({n(heads * seq), n(seq), 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
}

template <typename Attributes> void set_mask(Attributes &attributes, const FgCudaAttentionShape &s)
{
    attributes.set_attn_scale(s.scale);
    if (s.causal || s.window)
        attributes.set_diagonal_alignment(s.seq_q == s.seq_k
                                              ? fe::DiagonalAlignment_t::TOP_LEFT
                                              : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    if (s.causal)
        attributes.set_diagonal_band_right_bound(0);
    if (s.window && s.window < s.seq_q + s.seq_k)
        attributes.set_diagonal_band_left_bound(static_cast<int>(s.window));
}

void describe_forward(fe::graph::Graph &graph, const FgCudaAttentionShape &s, Piece piece)
{
    uint64_t heads = s.heads / s.kv_heads * piece.kv_heads;
    auto q = tensor(graph, Q, "q"), k = tensor(graph, K, "k"), v = tensor(graph, V, "v");
    lay_out(*q, piece.batch, s.seq_q, heads, s.heads, s.dim);
    lay_out(*k, piece.batch, s.seq_k, piece.kv_heads, s.kv_heads, s.dim);
    lay_out(*v, piece.batch, s.seq_k, piece.kv_heads, s.kv_heads, s.dim);
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_mask(attributes, s);
    auto [o, stats] = [&] {
        auto outputs = graph.sdpa(q, k, v, attributes);
        return std::make_pair(outputs[0], outputs[1]);
    }();
    o->set_output(true).set_uid(O);
    lay_out(*o, piece.batch, s.seq_q, heads, s.heads, s.dim);
    stats->set_output(true).set_uid(STATS);
    lay_out_stats(*stats, piece.batch, heads, s.seq_q);
}

void describe_backward(fe::graph::Graph &graph, const FgCudaAttentionShape &s, Piece piece,
                       bool deterministic)
{
    uint64_t heads = s.heads / s.kv_heads * piece.kv_heads;
    auto q = tensor(graph, Q, "q"), k = tensor(graph, K, "k"), v = tensor(graph, V, "v");
    auto o = tensor(graph, O, "o"), d = tensor(graph, D, "do"), stats = tensor(graph, STATS, "lse");
    for (auto &t : {q, o, d})
        lay_out(*t, piece.batch, s.seq_q, heads, s.heads, s.dim);
    for (auto &t : {k, v})
        lay_out(*t, piece.batch, s.seq_k, piece.kv_heads, s.kv_heads, s.dim);
    lay_out_stats(*stats, piece.batch, heads, s.seq_q);
    auto attributes = fe::graph::SDPA_backward_attributes().set_name("attention_back");
    attributes.set_deterministic_algorithm(deterministic);
    set_mask(attributes, s);
    auto outputs = graph.sdpa_backward(q, k, v, o, d, stats, attributes);
    outputs[0]->set_output(true).set_uid(DQ);
    lay_out(*outputs[0], piece.batch, s.seq_q, heads, s.heads, s.dim);
    outputs[1]->set_output(true).set_uid(DK);
    outputs[2]->set_output(true).set_uid(DV);
    for (size_t i = 1; i < 3; i++)
        lay_out(*outputs[i], piece.batch, s.seq_k, piece.kv_heads, s.kv_heads, s.dim);
}

Plan build(cudnnHandle_t handle, const FgCudaAttentionShape &s, bool backward, bool deterministic,
           Piece piece)
{
    Plan plan;
    auto graph = std::make_shared<fe::graph::Graph>();
    graph->set_io_data_type(s.dt == FG_RT_BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (backward)
        describe_backward(*graph, s, piece, deterministic);
    else
        describe_forward(*graph, s, piece);
    fe::error_t error = graph->build(handle, {fe::HeurMode_t::A});
    int64_t workspace = 0;
    if (error.is_good())
        error = graph->get_workspace_size(workspace);
    if (error.is_bad()) {
        plan.why = error.get_message();
        return plan;
    }
    plan.graph = graph;
    plan.piece = piece;
    plan.workspace = static_cast<uint64_t>(workspace);
    return plan;
}

/* ---- the plan of a call ---- */

uint64_t largest_divisor(uint64_t n, uint64_t at_most)
{
    uint64_t found = 1;
    for (uint64_t i = 1; i <= n && i <= at_most; i++)
        if (n % i == 0)
            found = i;
    return found;
}

/* The largest piece not above 1 / parts of the whole: whole entries of the batch, or key heads of
 * one. */
Piece piece_of(const FgCudaAttentionShape &s, uint64_t parts)
{
    if (parts <= s.batch)
        return {largest_divisor(s.batch, s.batch / parts), s.kv_heads};
    uint64_t heads = s.batch * s.kv_heads / parts;
    return {1, largest_divisor(s.kv_heads, heads ? heads : 1)};
}

/* Workspaces grow in proportion to the piece, so the second try nearly always fits. */
Plan plan_within(FgCudaAttention *attention, const FgCudaAttentionShape &s, bool backward,
                 bool deterministic, uint64_t ws_bytes)
{
    Piece piece = {s.batch, s.kv_heads};
    for (;;) {
        Plan plan = build(attention->handle, s, backward, deterministic, piece);
        if (!plan.graph || plan.workspace <= ws_bytes || (piece.batch == 1 && piece.kv_heads == 1))
            return plan;
        uint64_t parts = s.batch * s.kv_heads / (piece.batch * piece.kv_heads),
                 over = plan.workspace;
        uint64_t wanted =
            ws_bytes ? parts * ((over + ws_bytes - 1) / ws_bytes) : s.batch * s.kv_heads;
        Piece next = piece_of(s, wanted < s.batch * s.kv_heads ? wanted : s.batch * s.kv_heads);
        if (next.batch == piece.batch && next.kv_heads == piece.kv_heads)
            next = piece_of(s, s.batch * s.kv_heads);
        piece = next;
    }
}

bool library_takes(const FgCudaAttentionShape &s)
{
    return (s.dt == FG_RT_BF16 || s.dt == FG_RT_F16) && s.batch && s.seq_q && s.seq_k && s.dim;
}

const Plan &plan_of(FgRtCx *cx, const FgCudaAttentionShape &s, bool backward, uint64_t ws_bytes)
{
    FgCudaAttention *attention = cx->attention;
    Key key = {s, backward, ws_bytes};
    auto found = attention->plans.find(key);
    if (found != attention->plans.end())
        return found->second;
    Plan plan;
    try {
        plan = plan_within(attention, s, backward, cx->deterministic != 0, ws_bytes);
    } catch (const std::exception &e) {
        plan.why = e.what();
    }
    /* Its deterministic backward keeps whole matrices of scores; ours repeats too, and needs none.
     */
    if (plan.graph && plan.workspace > ws_bytes && backward && cx->deterministic) {
        plan.graph = nullptr;
        plan.why = "a deterministic one wants " + std::to_string(plan.workspace) +
                   " bytes of workspace, " + std::to_string(ws_bytes) + " are planned";
    }
    if (!plan.graph && cx->rank == 0)
        fprintf(stderr,
                "attention%s of %" PRIu64 " x %" PRIu64 " places, %" PRIu64 "/%" PRIu64
                " heads of %" PRIu64 ": our own kernel; cuDNN has no plan: %s\n",
                backward ? "_back" : "", s.seq_q, s.seq_k, s.heads, s.kv_heads, s.dim,
                plan.why.c_str());
    return attention->plans.emplace(key, std::move(plan)).first->second;
}

/* ---- execution ---- */

template <typename T> void *advance(T *p, uint64_t bytes)
{
    return const_cast<char *>(static_cast<const char *>(static_cast<const void *>(p))) + bytes;
}

/* One piece: batch entries from `b`, key heads from `h`. */
void execute(FgRtCx *cx, const Plan &plan, const FgCudaAttentionShape &s,
             const FgCudaAttentionData &data, bool backward, uint64_t b, uint64_t h, void *ws)
{
    uint64_t head = h * (s.heads / s.kv_heads);
    uint64_t q = (b * s.seq_q * s.heads + head) * s.dim * 2,
             k = (b * s.seq_k * s.kv_heads + h) * s.dim * 2;
    uint64_t stats = (b * s.heads + head) * s.seq_q * sizeof(float);
    std::unordered_map<int64_t, void *> at = {{Q, advance(data.q, q)},
                                              {K, advance(data.k, k)},
                                              {V, advance(data.v, k)},
                                              {O, advance(data.o, q)},
                                              {STATS, advance(data.lse, stats)}};
    if (backward) {
        at[D] = advance(data.d, q);
        at[DQ] = advance(data.dq, q);
        at[DK] = advance(data.dk, k);
        at[DV] = advance(data.dv, k);
    }
    fe::error_t error = plan.graph->execute(cx->attention->handle, at, ws);
    if (error.is_bad())
        fg_cuda_raise(cx, "cuDNN attention: %s", error.get_message().c_str());
}

/* Whether the library did the call, or failed at it. */
bool by_library(FgRtCx *cx, cudaStream_t stream, const FgCudaAttentionShape &s,
                const FgCudaAttentionData &data, bool backward, void *ws, uint64_t ws_bytes)
{
    if (!library_takes(s))
        return false;
    const Plan &plan = plan_of(cx, s, backward, ws_bytes);
    if (!plan.graph)
        return false;
    if (plan.workspace > ws_bytes) {
        fg_cuda_raise(cx,
                      "cuDNN needs %" PRIu64
                      " bytes of workspace even for one key head, and the plan has %" PRIu64
                      ": compile with a machine file of \"workspace\": %" PRIu64
                      ", or run with --attention builtin",
                      plan.workspace, ws_bytes, plan.workspace);
        return true;
    }
    if (cudnnStatus_t status = fe::detail::set_stream(cx->attention->handle, stream);
        status != CUDNN_STATUS_SUCCESS) {
        fg_cuda_raise(cx, "cuDNN takes no stream: %s", fe::detail::get_error_string(status));
        return true;
    }
    try {
        for (uint64_t b = 0; b < s.batch; b += plan.piece.batch)
            for (uint64_t h = 0; h < s.kv_heads; h += plan.piece.kv_heads)
                execute(cx, plan, s, data, backward, b, h, ws);
    } catch (const std::exception &e) {
        fg_cuda_raise(cx, "cuDNN attention: %s", e.what());
    }
    return true;
}

/* ---- the library ---- */

void open_library(FgCudaAttention *attention, const FgRtCx *cx)
{
    if (cx->sm < 80) {
        attention->why = "cuDNN's attention needs sm_80 or newer";
        return;
    }
    /* The headers look for the runtime of CUDA 12 first; this program is linked with 13's. */
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so.13", 0);
    if (!fe::cudnn_dlhandle)
        fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!fe::cudnn_dlhandle) {
        attention->why = std::string("cuDNN is not here: ") + dlerror();
        return;
    }
    try {
        cudnnStatus_t status = fe::detail::create_handle(&attention->handle);
        if (status != CUDNN_STATUS_SUCCESS)
            attention->why =
                std::string("cuDNN does not start: ") + fe::detail::get_error_string(status);
    } catch (const std::exception &e) {
        attention->why = std::string("cuDNN does not start: ") + e.what();
    }
}

void close_library(FgCudaAttention *attention)
{
    attention->plans.clear();
    if (attention->handle)
        fe::detail::destroy_handle(attention->handle);
}

#else

void open_library(FgCudaAttention *attention, const FgRtCx *)
{
    attention->why = "this program was built without the cuDNN frontend's headers";
}

void close_library(FgCudaAttention *)
{
}

bool by_library(FgRtCx *, cudaStream_t, const FgCudaAttentionShape &, const FgCudaAttentionData &,
                bool, void *, uint64_t)
{
    return false;
}

#endif

bool library_ready(FgRtCx *cx, uint64_t dt)
{
    if (cx->builtin_attention || dt == FG_RT_F32)
        return false;
    if (!cx->attention) {
        cx->attention = new (std::nothrow) FgCudaAttention;
        if (!cx->attention) {
            fg_cuda_raise(cx, "out of host memory");
            return false;
        }
        open_library(cx->attention, cx);
        if (!cx->attention->why.empty() && cx->rank == 0)
            fprintf(stderr, "attention: our own kernels (%s)\n", cx->attention->why.c_str());
    }
    return cx->attention->why.empty();
}

bool describe(FgRtCx *cx, FgCudaAttentionShape *s, double scale)
{
    s->scale = static_cast<float>(scale == 0 ? 1 / std::sqrt(static_cast<double>(s->dim)) : scale);
    if (s->kv_heads == 0 || s->heads % s->kv_heads != 0) {
        fg_cuda_raise(cx, "%" PRIu64 " query heads cannot share %" PRIu64 " key heads", s->heads,
                      s->kv_heads);
        return false;
    }
    return true;
}

} // namespace

extern "C" {

void fg_cuda_attention(FgRtCx *cx, cudaStream_t stream, uint32_t, uint64_t q, uint64_t k,
                       uint64_t v, uint64_t o, uint64_t lse, uint64_t batch, uint64_t seq_q,
                       uint64_t seq_k, uint64_t heads, uint64_t kv_heads, uint64_t dim,
                       uint64_t causal, uint64_t window, uint64_t dt, uint64_t ws,
                       uint64_t ws_bytes, double scale)
{
    FgCudaAttentionShape s = {batch, seq_q, seq_k, heads, kv_heads, dim, causal, window, dt, 0};
    FgCudaAttentionData data = {};
    data.q = fg_cuda_at(cx, q);
    data.k = fg_cuda_at(cx, k);
    data.v = fg_cuda_at(cx, v);
    data.o = fg_cuda_at(cx, o);
    data.lse = static_cast<float *>(fg_cuda_at(cx, lse));
    if (!describe(cx, &s, scale))
        return;
    if (!library_ready(cx, dt) ||
        !by_library(cx, stream, s, data, false, fg_cuda_at(cx, ws), ws_bytes))
        fg_cuda_attention_builtin(cx, stream, &s, &data);
}

void fg_cuda_attention_back(FgRtCx *cx, cudaStream_t stream, uint32_t, uint64_t q, uint64_t k,
                            uint64_t v, uint64_t o, uint64_t lse, uint64_t d, uint64_t dq,
                            uint64_t dk, uint64_t dv, uint64_t batch, uint64_t seq_q,
                            uint64_t seq_k, uint64_t heads, uint64_t kv_heads, uint64_t dim,
                            uint64_t causal, uint64_t window, uint64_t dt, uint64_t ws,
                            uint64_t ws_bytes, double scale)
{
    FgCudaAttentionShape s = {batch, seq_q, seq_k, heads, kv_heads, dim, causal, window, dt, 0};
    FgCudaAttentionData data = {};
    data.q = fg_cuda_at(cx, q);
    data.k = fg_cuda_at(cx, k);
    data.v = fg_cuda_at(cx, v);
    data.o = fg_cuda_at(cx, o);
    data.lse = static_cast<float *>(fg_cuda_at(cx, lse));
    data.d = fg_cuda_at(cx, d);
    data.dq = fg_cuda_at(cx, dq);
    data.dk = fg_cuda_at(cx, dk);
    data.dv = fg_cuda_at(cx, dv);
    if (!describe(cx, &s, scale))
        return;
    if (!library_ready(cx, dt) ||
        !by_library(cx, stream, s, data, true, fg_cuda_at(cx, ws), ws_bytes))
        fg_cuda_attention_back_builtin(cx, stream, &s, &data);
}

void fg_cuda_attention_close(FgRtCx *cx)
{
    if (cx->attention)
        close_library(cx->attention);
    delete cx->attention;
    cx->attention = nullptr;
}

int fg_cuda_attention_workspace(FgRtCx *cx, const FgCudaAttentionShape *shape, int backward,
                                uint64_t *wanted, uint64_t *least)
{
    *wanted = *least = 0;
#if FG_CUDNN_FRONTEND
    if (!library_ready(cx, shape->dt) || !library_takes(*shape))
        return 0;
    const Plan &whole = plan_of(cx, *shape, backward != 0, UINT64_MAX),
               &piece = plan_of(cx, *shape, backward != 0, 0);
    *wanted = whole.workspace;
    *least = piece.workspace;
    return whole.graph != nullptr;
#else
    (void)cx;
    (void)shape;
    (void)backward;
    return 0;
#endif
}
}
