/* Achieved rates of the kernels and of matrix products at the shapes of Llama-3.2-1B and of the 8B
 * model: which of them are far from what the device can do.
 *
 * Memory-bound calls: bytes that they must move (each operand read once, each result written once)
 * over the median time of single runs, and the share of a plain copy's rate that this is. Operands
 * are rotated among sets that are together larger than the cache. Products: before and after
 * choosing algorithms by measurement.
 *
 * Options: `kernels`, `layers` (of those: the calls of layers and losses) or `products` alone;
 * `products FILE` writes the choices to a file. */
#include <algorithm>
#include <functional>

#include "runtime/cuda/gemm.h"
#include "tests/cuda/kernel_rig.h"

static const uint64_t TOKENS = 8192, HIDDEN = 2048, WIDE = 8192, VOCAB = 128256;
static const uint64_t OWNED = 617907200; /* elements of a rank's slice: 1B on two ranks */
static const uint64_t MEMORY = (uint64_t)24 << 30;
static const uint64_t BF16 = FG_RT_BF16, F32 = FG_RT_F32, NONE = FG_RT_NONE;
enum { RUNS = 15, SETS = 4 };

/* Random bits that are ordinary numbers in bf16 and in f32, all over a range of memory. */
__global__ void scatter_kernel(uint32_t *to, uint64_t n)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
        /* exponents 120 to 127, both halves; any sign, any mantissa */
        to[i] = ((uint32_t)(x >> 32) & 0x83ff83ffu) | 0x3c003c00u;
    }
}

__global__ void ids_kernel(int32_t *to, uint64_t n, uint32_t below)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = (int32_t)((i * 2654435761u) % below);
}

static void fill_memory(Rig &r)
{
    scatter_kernel<<<1024, 256>>>((uint32_t *)r.cx.memory, MEMORY / 4);
    must(cudaDeviceSynchronize(), "fill");
}

struct Bench {
    Rig &rig;
    cudaStream_t stream;
    cudaEvent_t events[2];
    FgRtCx *cx;

    explicit Bench(Rig &r) : rig(r), stream(r.cx.streams[FG_COMPUTE]), cx(&r.cx)
    {
        for (cudaEvent_t &event : events)
            must(cudaEventCreate(&event), "event");
    }

    void good(const char *what)
    {
        if (cx->fail.failed) {
            printf("%s: %s\n", what, cx->fail.text);
            exit(2);
        }
    }

    /* Median microseconds of call(set). */
    double us(const char *what, const std::function<void(int)> &call)
    {
        std::vector<float> times;
        for (int run = 0; run < RUNS + 2; run++) {
            float ms;
            must(cudaEventRecord(events[0], stream), what);
            call(run % SETS);
            must(cudaEventRecord(events[1], stream), what);
            must(cudaEventSynchronize(events[1]), what);
            must(cudaEventElapsedTime(&ms, events[0], events[1]), what);
            if (run >= 2)
                times.push_back(ms);
        }
        good(what);
        std::sort(times.begin(), times.end());
        return (double)times[times.size() / 2] * 1e3;
    }

    double rate = 0; /* of the copy that the first call of `moves` is, in MB/s */

    void moves(const char *what, double bytes, const std::function<void(int)> &call)
    {
        double time = us(what, call);
        rate = rate > 0 ? rate : bytes / time;
        printf("%-34s %9.1f us  %8.1f MB  %7.0f GB/s  %4.0f %%\n", what, time, bytes * 1e-6,
               bytes / time * 1e-3, 100 * bytes / time / rate);
        fflush(stdout);
    }
};

/* The same place in each set. */
struct Sets {
    uint64_t bytes;
    uint64_t at(int set, uint64_t offset) const
    {
        return (uint64_t)set * bytes + offset;
    }
};

static void bench_copy(Bench &b)
{
    const uint64_t block = TOKENS * WIDE * 2;
    b.moves("copy (library)", 2 * (double)block, [&](int i) {
        unsigned char *from = b.cx->memory + (uint64_t)(2 * i) * block;
        must(cudaMemcpyAsync(from + block, from, block, cudaMemcpyDeviceToDevice, b.stream),
             "copy");
    });
}

static void bench_rows(Bench &b)
{
    const double row = (double)(TOKENS * HIDDEN * 2), wide = (double)(TOKENS * WIDE * 2);
    const uint64_t block = TOKENS * WIDE * 2; /* 134 MB */
    const Sets s = {3 * block};
    const uint64_t x = 0, y = block, u = y + block / 2, z = 2 * block;
    FgRtCx *cx = b.cx;
    cudaStream_t st = b.stream;
    const uint64_t w = s.at(SETS, 0), small = w + (1 << 20);
    b.moves("unary scale", 2 * wide, [&](int i) {
        fg_cuda_unary(cx, st, 0, FG_RT_SCALE, s.at(i, x), s.at(i, y), TOKENS * WIDE, BF16, 0.5);
    });
    b.moves("unary gelu", 2 * wide, [&](int i) {
        fg_cuda_unary(cx, st, 0, FG_RT_GELU, s.at(i, x), s.at(i, y), TOKENS * WIDE, BF16, 0);
    });
    b.moves("cast f32 to bf16", 1.5 * wide, [&](int i) {
        fg_cuda_cast(cx, st, 0, s.at(i, x), s.at(i, y), TOKENS * WIDE / 2, F32, BF16);
    });
    b.moves("rmsnorm", 2 * row, [&](int i) {
        fg_cuda_rmsnorm(cx, st, 0, s.at(i, x), w, s.at(i, y), TOKENS, HIDDEN, BF16, 1e-5);
    });
    b.moves("rmsnorm_dx", 3 * row, [&](int i) {
        fg_cuda_rmsnorm_dx(cx, st, 0, s.at(i, x), w, s.at(i, y), NONE, s.at(i, z), TOKENS, HIDDEN,
                           BF16, 1e-5);
    });
    b.moves("rmsnorm_dw", 2 * row, [&](int i) {
        fg_cuda_rmsnorm_dw(cx, st, 0, s.at(i, x), s.at(i, y), small, TOKENS, HIDDEN, BF16, BF16, 0,
                           1e-5);
    });
    b.moves("rmsnorm_back", 4 * row, [&](int i) {
        fg_cuda_rmsnorm_back(cx, st, 0, s.at(i, x), w, s.at(i, y), s.at(i, u), s.at(i, z), small,
                             TOKENS, HIDDEN, BF16, BF16, 0, 1e-5);
    });
    b.moves("rmsnorm_back without plus", 3 * row, [&](int i) {
        fg_cuda_rmsnorm_back(cx, st, 0, s.at(i, x), w, s.at(i, y), NONE, s.at(i, z), small, TOKENS,
                             HIDDEN, BF16, BF16, 0, 1e-5);
    });
    b.moves("layernorm_back", 4 * row, [&](int i) {
        fg_cuda_layernorm_back(cx, st, 0, s.at(i, x), w, s.at(i, y), s.at(i, u), s.at(i, z), small,
                               TOKENS, HIDDEN, BF16, BF16, 0, 1e-5);
    });
    b.moves("rmsnorm of 4096", 2 * row, [&](int i) {
        fg_cuda_rmsnorm(cx, st, 0, s.at(i, x), w, s.at(i, y), TOKENS / 2, 2 * HIDDEN, BF16, 1e-5);
    });
    b.moves("rmsnorm_back of 4096", 4 * row, [&](int i) {
        fg_cuda_rmsnorm_back(cx, st, 0, s.at(i, x), w, s.at(i, y), s.at(i, u), s.at(i, z), small,
                             TOKENS / 2, 2 * HIDDEN, BF16, BF16, 0, 1e-5);
    });
    b.moves("rmsnorm_back of 8192", 4 * row, [&](int i) {
        fg_cuda_rmsnorm_back(cx, st, 0, s.at(i, x), w, s.at(i, y), s.at(i, u), s.at(i, z), small,
                             TOKENS / 4, 4 * HIDDEN, BF16, BF16, 0, 1e-5);
    });
    b.moves("rmsnorm, 512 rows", row / 8, [&](int i) {
        fg_cuda_rmsnorm(cx, st, 0, s.at(i, x), w, s.at(i, y), 512, HIDDEN, BF16, 1e-5);
    });
    b.moves("rmsnorm_back, 512 rows", row / 4, [&](int i) {
        fg_cuda_rmsnorm_back(cx, st, 0, s.at(i, x), w, s.at(i, y), s.at(i, u), s.at(i, z), small,
                             512, HIDDEN, BF16, BF16, 0, 1e-5);
    });
    b.moves("layernorm", 2 * row, [&](int i) {
        fg_cuda_layernorm(cx, st, 0, s.at(i, x), w, w, s.at(i, y), TOKENS, HIDDEN, BF16, 1e-5);
    });
    b.moves("column_sum", row, [&](int i) {
        fg_cuda_column_sum(cx, st, 0, s.at(i, x), small, TOKENS, HIDDEN, BF16, BF16, 0);
    });
    b.moves("column_sum of 8192", wide, [&](int i) {
        fg_cuda_column_sum(cx, st, 0, s.at(i, x), small, TOKENS, WIDE, BF16, BF16, 0);
    });
    b.moves("softmax of 2048", 2 * row, [&](int i) {
        fg_cuda_softmax(cx, st, 0, s.at(i, x), s.at(i, y), TOKENS, HIDDEN, BF16);
    });
    b.moves("slice", row, [&](int i) {
        fg_cuda_slice(cx, st, 0, s.at(i, x), s.at(i, y), TOKENS, 4, HIDDEN / 4, 1, 2, BF16);
    });
}

/* What a layer does with every token besides products, norms and attention. */
struct Layer {
    const char *name;
    uint64_t batch, seq, heads, kv_heads, dim, hidden, wide;
};

static const Layer LAYERS[] = {{"1B 4x2048", 4, 2048, 32, 8, 64, 2048, 8192},
                               {"8B 1x4096", 1, 4096, 32, 8, 128, 4096, 14336},
                               {"1B 1x512", 1, 512, 32, 8, 64, 2048, 8192}};

static void bench_layer(Bench &b, const Layer &l)
{
    const Sets s = {5 * TOKENS * WIDE * 2};
    const uint64_t tokens = l.batch * l.seq, block = tokens * l.wide * 2;
    const uint64_t x = 0, y = block, z = 2 * block, u = 3 * block, table = s.at(SETS, 0);
    FgRtCx *cx = b.cx;
    cudaStream_t st = b.stream;
    auto moves = [&](const char *what, double bytes, const std::function<void(int)> &call) {
        b.moves((std::string(l.name) + " " + what).c_str(), bytes, call);
    };
    auto rope = [&](const char *what, uint64_t heads, uint64_t to, uint64_t inverse) {
        moves(what, (double)(2 * tokens * heads * l.dim * 2), [&](int i) {
            fg_cuda_rope(cx, st, 0, s.at(i, x), table, s.at(i, to), l.batch, l.seq, heads, l.dim,
                         l.dim / 2, inverse, BF16);
        });
    };
    rope("rope q", l.heads, y, 0);
    rope("rope k", l.kv_heads, y, 0);
    rope("rope q in place, back", l.heads, x, 1);
    moves("add", (double)(3 * tokens * l.hidden * 2), [&](int i) {
        fg_cuda_binary(cx, st, 0, FG_RT_ADD, s.at(i, x), s.at(i, y), s.at(i, z), tokens * l.hidden,
                       tokens * l.hidden, tokens * l.hidden, NONE, BF16);
    });
    moves("gated silu", 3.0 * (double)block, [&](int i) {
        fg_cuda_gated(cx, st, 0, FG_RT_SILU, s.at(i, x), s.at(i, y), s.at(i, z), tokens * l.wide,
                      BF16);
    });
    moves("gated_back silu in place", 5.0 * (double)block, [&](int i) {
        fg_cuda_gated_back(cx, st, 0, FG_RT_SILU, s.at(i, x), s.at(i, y), s.at(i, z), s.at(i, x),
                           s.at(i, u), tokens * l.wide, BF16);
    });
}

/* Loss and gradient of a few tokens. */
static void bench_loss(Bench &b, const char *name, uint64_t tokens)
{
    const double logits = (double)(tokens * VOCAB * 2);
    const uint64_t ids = TOKENS * VOCAB * 2, loss = ids + (1 << 20), lse = loss + 256;
    FgRtCx *cx = b.cx;
    cudaStream_t st = b.stream;
    ids_kernel<<<32, 256, 0, st>>>((int32_t *)(cx->memory + ids), tokens, (uint32_t)VOCAB);
    b.moves((std::string(name) + " cross_entropy").c_str(), logits, [&](int) {
        fg_cuda_cross_entropy(cx, st, 0, 0, ids, NONE, loss, lse, tokens, VOCAB, (uint64_t)-100,
                              BF16);
    });
    b.moves((std::string(name) + " cross_entropy_back").c_str(), 2 * logits, [&](int) {
        fg_cuda_cross_entropy_back(cx, st, 0, 0, ids, lse, NONE, NONE, 0, tokens, VOCAB,
                                   (uint64_t)-100, BF16);
    });
}

static void bench_layers(Bench &b)
{
    for (const Layer &layer : LAYERS) {
        fill_memory(b.rig);
        bench_layer(b, layer);
    }
    fill_memory(b.rig);
    for (const Layer &layer : LAYERS)
        bench_loss(b, layer.name, layer.batch * layer.seq);
}

static void bench_vocab(Bench &b)
{
    const uint64_t bytes = TOKENS * VOCAB * 2, ids = bytes, rest = ids + (1 << 20);
    const uint64_t weight = VOCAB * HIDDEN * 2, rows = rest + weight;
    FgRtCx *cx = b.cx;
    cudaStream_t st = b.stream;
    ids_kernel<<<32, 256, 0, st>>>((int32_t *)(cx->memory + ids), TOKENS, (uint32_t)VOCAB);
    b.moves("embedding", 2.0 * (double)(TOKENS * HIDDEN * 2), [&](int) {
        fg_cuda_embedding(cx, st, 0, ids, rest, rows, TOKENS, HIDDEN, VOCAB, BF16);
    });
    b.moves("embedding_dw", (double)(VOCAB * HIDDEN * 2 + TOKENS * HIDDEN * 2), [&](int) {
        fg_cuda_embedding_dw(cx, st, 0, ids, rows, rest, TOKENS, HIDDEN, VOCAB, NONE, BF16, BF16, 0,
                             b.rig.ws, b.rig.ws_bytes);
    });
    b.moves("embedding_dw (accumulate)", 3.0 * (double)(TOKENS * HIDDEN * 2), [&](int) {
        fg_cuda_embedding_dw(cx, st, 0, ids, rows, rest, TOKENS, HIDDEN, VOCAB, NONE, BF16, BF16, 1,
                             b.rig.ws, b.rig.ws_bytes);
    });
    /* Of two ranks' tokens, what lies in one's slice. */
    ids_kernel<<<32, 256, 0, st>>>((int32_t *)(cx->memory + ids), 2 * TOKENS, (uint32_t)VOCAB);
    b.moves("lookup_dw of two ranks", 3.0 * (double)(TOKENS * HIDDEN * 2), [&](int) {
        fg_cuda_lookup_dw(cx, st, 0, ids, 0, rest, 0, 2 * TOKENS, HIDDEN, VOCAB, 0,
                          VOCAB * HIDDEN / 2, NONE, BF16, BF16, 1, b.rig.ws, b.rig.ws_bytes);
    });
    /* A fifth of the tokens alike, as in text. */
    ids_kernel<<<32, 256, 0, st>>>((int32_t *)(cx->memory + ids), TOKENS, 5);
    b.moves("embedding_dw of five ids", (double)(VOCAB * HIDDEN * 2 + TOKENS * HIDDEN * 2),
            [&](int) {
                fg_cuda_embedding_dw(cx, st, 0, ids, rows, rest, TOKENS, HIDDEN, VOCAB, NONE, BF16,
                                     BF16, 0, b.rig.ws, b.rig.ws_bytes);
            });
}

static void bench_update(Bench &b)
{
    static const FgRtParam param = {"all", 0, 0, OWNED, 0, 1, FG_RT_NORMAL, 1, 1, 1, 0, 0};
    static const uint32_t first[] = {0};
    static const FgRtBucket bucket = {"all", FG_RT_BF16, 1, OWNED, 0, 1, 0, 0, 0, 0, 0, 0};
    FgRtProgram program = {};
    program.ranks = 1;
    program.clip = 1;
    program.params = &param;
    program.n_params = 1;
    program.buckets = &bucket;
    program.n_buckets = 1;
    program.bucket_params = first;
    b.rig.adopt(program, 0);
    FgRtCx *cx = b.cx;
    cudaStream_t st = b.stream;
    const uint64_t n = OWNED, scalars = 0, norm = 4096, grad = 8192, grad32 = grad;
    const uint64_t shard = grad + 4 * n, master = shard + 2 * n, m1 = master + 4 * n;
    const uint64_t m2 = m1 + 4 * n;
    const float set[FG_RT_SET] = {0, 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1, 1, 1};
    must(cudaMemcpy(cx->memory, set, sizeof set, cudaMemcpyHostToDevice), "scalars");
    must(cudaMemset(cx->memory + m2, 0, 4 * n), "moments");
    b.moves("adamw, bf16 gradient", 28.0 * (double)n, [&](int) {
        fg_cuda_adamw(cx, st, 0, grad, master, m1, m2, shard, NONE, scalars, 0, n, BF16, BF16, 0);
    });
    b.moves("adamw and norm, bf16 gradient", 28.0 * (double)n, [&](int) {
        fg_cuda_adamw(cx, st, 0, grad, master, m1, m2, shard, norm, scalars, 0, n, BF16, BF16, 0);
    });
    b.moves("adamw, f32 gradient", 30.0 * (double)n, [&](int) {
        fg_cuda_adamw(cx, st, 0, grad32, master, m1, m2, shard, NONE, scalars, 0, n, F32, BF16, 0);
    });
    b.moves("norm_add bf16", 2.0 * (double)n,
            [&](int) { fg_cuda_norm_add(cx, st, 0, grad, norm, 0, n, BF16, 0); });
    b.moves("norm_add f32", 4.0 * (double)n,
            [&](int) { fg_cuda_norm_add(cx, st, 0, grad32, norm, 0, n, F32, 0); });
    b.moves("clip_factor", 200, [&](int) { fg_cuda_clip_factor(cx, st, 0, norm, scalars, 1.0); });
}

/* ---- products ---- */

struct Product {
    const char *name;
    uint64_t m, n, k;
};

static const Product PRODUCTS[] = {
    {"1B 512 q, o", 512, 2048, 2048},        {"1B 512 k, v", 512, 512, 2048},
    {"1B 512 gate, up", 512, 8192, 2048},    {"1B 512 down", 512, 2048, 8192},
    {"1B 512 head", 512, 128256, 2048},      {"1B 8192 q, o", 8192, 2048, 2048},
    {"1B 8192 k, v", 8192, 512, 2048},       {"1B 8192 gate, up", 8192, 8192, 2048},
    {"1B 8192 down", 8192, 2048, 8192},      {"1B 8192 head", 8192, 128256, 2048},
    {"8B 4096 q, o", 4096, 4096, 4096},      {"8B 4096 k, v", 4096, 1024, 4096},
    {"8B 4096 gate, up", 4096, 14336, 4096}, {"8B 4096 down", 4096, 4096, 14336},
    {"8B 4096 head", 4096, 128256, 4096},
};

static void product_row(Bench &b, const Product &p, const char *when)
{
    FgRtCx *cx = b.cx;
    cudaStream_t st = b.stream;
    /* Sets far enough apart that weights come from memory, as they do in a step. */
    uint64_t x = 0, w = p.m * p.k * 2, d = w + p.n * p.k * 2, out = d + p.m * p.n * 2;
    uint64_t all = out + std::max(p.m * p.n, std::max(p.m, p.n) * p.k) * 2;
    double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
    double forward = b.us(p.name, [&](int i) {
        uint64_t at = (uint64_t)i * all;
        fg_cuda_linear(cx, st, 0, at + x, at + w, NONE, NONE, at + out, p.m, p.n, p.k, 0, BF16,
                       b.rig.ws, b.rig.ws_bytes);
    });
    double dx = b.us(p.name, [&](int i) {
        uint64_t at = (uint64_t)i * all;
        fg_cuda_linear_dx(cx, st, 0, at + d, at + w, NONE, at + out, p.m, p.n, p.k, 0, BF16,
                          b.rig.ws, b.rig.ws_bytes);
    });
    double dw = b.us(p.name, [&](int i) {
        uint64_t at = (uint64_t)i * all;
        fg_cuda_linear_dw(cx, st, 0, at + x, at + d, at + out, p.m, p.n, p.k, 0, BF16, BF16, 0,
                          b.rig.ws, b.rig.ws_bytes);
    });
    printf("%-18s %-8s y %8.1f us %4.0f  dx %8.1f us %4.0f  dw %8.1f us %4.0f TFLOP/s\n", p.name,
           when, forward, flops / forward * 1e-6, dx, flops / dx * 1e-6, dw, flops / dw * 1e-6);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    std::string only = argc > 1 ? argv[1] : "";
    Rig r(MEMORY, (uint64_t)32 << 20, false);
    Bench b(r);
    if (only == "layers") {
        fill_memory(r);
        bench_copy(b);
        bench_layers(b);
        return 0;
    }
    if (only != "products") {
        fill_memory(r);
        bench_copy(b);
        bench_rows(b);
        bench_layers(b);
        fill_memory(r);
        bench_vocab(b);
        fill_memory(r);
        bench_update(b);
    }
    if (only != "kernels") {
        fill_memory(r);
        for (const Product &p : PRODUCTS) { /* in turn, since clocks fall while the chip warms up */
            product_row(b, p, "first");
            fg_cuda_gemm_tune(b.cx, b.stream);
            b.good("measuring");
            product_row(b, p, "measured");
            if (argc > 2)
                fg_cuda_gemm_write(b.cx, argv[2]);
            b.good("writing");
            fg_cuda_gemm_free(r.cx.gemm);
            r.cx.gemm = fg_cuda_gemm_new(&r.cx);
        }
    }
    return 0;
}
