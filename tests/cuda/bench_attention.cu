/* Milliseconds of attention at the shapes of the 1B and 8B models, forward and backward, by each
 * implementation; and the workspace that the library wants. Medians over runs that rotate among
 * sets of operands larger than the cache. */
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/cuda/attention.h"

namespace
{

struct Row {
    const char *name;
    uint64_t batch, seq, heads, kv_heads, dim;
};

const Row ROWS[] = {{"1B 1x512", 1, 512, 32, 8, 64},
                    {"1B 4x2048", 4, 2048, 32, 8, 64},
                    {"8B 1x4096", 1, 4096, 32, 8, 128}};

constexpr int SETS = 3, RUNS = 21;

void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(2);
    }
}

/* bf16 operands in (-1.5, 1.5): random upper halves of floats. */
void fill(unsigned char *device, size_t bytes)
{
    std::vector<uint16_t> host(bytes / 2);
    uint32_t state = 99;
    for (uint16_t &x : host) {
        state = state * 1664525u + 1013904223u;
        float value = ((float)(state >> 8) / (1 << 24) - 0.5f) * 3.0f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        x = (uint16_t)(bits >> 16);
    }
    must(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice), "copy");
}

struct Set {
    uint64_t q, k, v, d, o, lse, dq, dk, dv, end;
};

Set lay_out(const Row &r, uint64_t at)
{
    uint64_t nq = r.batch * r.seq * r.heads * r.dim * 2,
             nk = r.batch * r.seq * r.kv_heads * r.dim * 2;
    Set s;
    s.q = at;
    s.k = s.q + nq;
    s.v = s.k + nk;
    s.d = s.v + nk;
    s.o = s.d + nq;
    s.dq = s.o + nq;
    s.dk = s.dq + nq;
    s.dv = s.dk + nk;
    s.lse = s.dv + nk;
    s.end = s.lse + r.batch * r.heads * r.seq * 4;
    return s;
}

void forward(FgRtCx *cx, cudaStream_t stream, const Row &r, const Set &s, uint64_t ws,
             uint64_t ws_bytes)
{
    fg_cuda_attention(cx, stream, 0, s.q, s.k, s.v, s.o, s.lse, r.batch, r.seq, r.seq, r.heads,
                      r.kv_heads, r.dim, 1, 0, FG_RT_BF16, ws, ws_bytes, 0.0);
}

void backward(FgRtCx *cx, cudaStream_t stream, const Row &r, const Set &s, uint64_t ws,
              uint64_t ws_bytes)
{
    fg_cuda_attention_back(cx, stream, 0, s.q, s.k, s.v, s.o, s.lse, s.d, s.dq, s.dk, s.dv, r.batch,
                           r.seq, r.seq, r.heads, r.kv_heads, r.dim, 1, 0, FG_RT_BF16, ws, ws_bytes,
                           0.0);
}

typedef void Call(FgRtCx *, cudaStream_t, const Row &, const Set &, uint64_t, uint64_t);

double median_ms(FgRtCx *cx, cudaStream_t stream, const Row &r, const Set *sets, uint64_t ws,
                 uint64_t ws_bytes, Call *call)
{
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < RUNS + 3; i++) {
        must(cudaEventRecord(begin, stream), "event");
        call(cx, stream, r, sets[i % SETS], ws, ws_bytes);
        must(cudaEventRecord(end, stream), "event");
        must(cudaEventSynchronize(end), "run");
        float ms = 0;
        must(cudaEventElapsedTime(&ms, begin, end), "event");
        if (i >= 3)
            times.push_back(ms);
    }
    must(cudaEventDestroy(begin), "event");
    must(cudaEventDestroy(end), "event");
    if (cx->fail.failed) {
        printf("failed: %s\n", cx->fail.text);
        memset(&cx->fail, 0, sizeof cx->fail);
        return -1;
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Causal: half of the scores. Forward has two products, backward five. */
double teraflops(const Row &r, int products, double ms)
{
    return products * 2.0 * r.batch * r.heads * r.seq * r.seq * r.dim / 2 / ms / 1e9;
}

void measure(FgRtCx *cx, cudaStream_t stream, const Row &r, uint64_t ws_bytes, const char *how)
{
    Set sets[SETS];
    uint64_t at = 0;
    for (Set &s : sets) {
        s = lay_out(r, at);
        at = (s.end + 255) / 256 * 256;
    }
    must(cudaMalloc(&cx->memory, at + ws_bytes), "memory");
    for (const Set &s : sets)
        fill(cx->memory + s.q, s.o - s.q);
    double f = median_ms(cx, stream, r, sets, at, ws_bytes, forward);
    double b = median_ms(cx, stream, r, sets, at, ws_bytes, backward);
    printf("%-10s %-22s workspace %7.1f MB  forward %8.3f ms (%5.0f TFLOP/s)  backward %8.3f ms "
           "(%5.0f TFLOP/s)\n",
           r.name, how, (double)ws_bytes / 1e6, f, teraflops(r, 2, f), b, teraflops(r, 5, b));
    must(cudaFree(cx->memory), "memory");
}

void library(FgRtCx *cx, cudaStream_t stream, const Row &r, const char *how)
{
    FgCudaAttentionShape s = {r.batch, r.seq, r.seq, r.heads,    r.kv_heads,
                              r.dim,   1,     0,     FG_RT_BF16, 0};
    uint64_t wanted = 0, least = 0, wanted_forward = 0, least_forward = 0;
    s.scale = r.dim == 64 ? 0.125f : 0.08838834764f;
    if (!fg_cuda_attention_workspace(cx, &s, 0, &wanted_forward, &least_forward) ||
        !fg_cuda_attention_workspace(cx, &s, 1, &wanted, &least)) {
        printf("%-10s %s: the library has no plan\n", r.name, how);
        return;
    }
    printf("%-10s %-22s wants %" PRIu64 " bytes forward, %" PRIu64 " backward; works with %" PRIu64
           " and %" PRIu64 "\n",
           r.name, how, wanted_forward, wanted, least_forward, least);
    measure(cx, stream, r, std::max(wanted, wanted_forward), how);
    if (!cx->deterministic)
        measure(cx, stream, r, std::max(std::min(wanted, (uint64_t)32 << 20), least),
                "library, 32 MiB");
}

} // namespace

int main()
{
    cudaStream_t stream;
    must(cudaStreamCreate(&stream), "stream");
    for (int way = 0; way < 3; way++) {
        FgRtCx cx;
        memset(&cx, 0, sizeof cx);
        int device = 0, major = 0, minor = 0;
        must(cudaGetDevice(&device), "device");
        must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
        must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
        cx.sm = major * 10 + minor;
        cx.ranks = 1;
        cx.builtin_attention = way == 2;
        cx.deterministic = way == 1;
        for (const Row &r : ROWS)
            if (way == 2)
                measure(&cx, stream, r, 0, "builtin");
            else
                library(&cx, stream, r, way == 1 ? "library, deterministic" : "library");
        fg_cuda_attention_close(&cx);
    }
    must(cudaStreamDestroy(stream), "stream");
    return 0;
}
