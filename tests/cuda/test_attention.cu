/* Attention on the GPU against a naive reference in double: both implementations, forward and
 * backward, every dtype, odd sizes.
 *
 * All buffers of a case lie in one allocation with guards between them; outputs start as NaN, so
 * what is not written shows. The reference reads the operands as the GPU does, rounded to the
 * dtype. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/cuda/attention.h"

namespace
{

int passed, failed;

void check(bool ok, const char *name, const char *what, double value)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED %s: %s (%g)\n", name, what, value);
}

void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(2);
    }
}

struct Case {
    int batch, seq_q, seq_k, heads, kv_heads, dim, causal, window;
};

const Case CASES[] = {
    {1, 1, 1, 4, 4, 8, 1, 0},       {2, 7, 7, 4, 1, 12, 1, 0},      {1, 33, 33, 4, 2, 64, 1, 0},
    {2, 129, 129, 4, 1, 64, 1, 0},  {1, 129, 129, 4, 4, 80, 1, 0},  {1, 129, 129, 4, 2, 128, 1, 0},
    {2, 33, 33, 4, 2, 12, 0, 0},    {1, 129, 129, 4, 1, 64, 0, 0},  {1, 33, 129, 4, 2, 64, 1, 0},
    {1, 129, 33, 4, 2, 64, 1, 0},   {1, 7, 33, 4, 4, 80, 0, 0},     {2, 129, 129, 4, 2, 64, 1, 17},
    {1, 129, 129, 4, 4, 64, 0, 33}, {1, 64, 129, 4, 1, 128, 1, 40}, {1, 33, 33, 4, 4, 256, 1, 0},
    {1, 70, 70, 2, 1, 200, 1, 0},   {1, 65, 65, 3, 1, 96, 1, 5},    {3, 128, 128, 8, 2, 64, 1, 0},
    {1, 1, 33, 4, 2, 64, 1, 0},     {2, 256, 256, 4, 2, 128, 1, 0}, {1, 33, 33, 4, 4, 13, 1, 4},
};

/* ---- dtypes ---- */

const char *dtype_name(uint64_t dt)
{
    return dt == FG_RT_F32 ? "f32" : dt == FG_RT_BF16 ? "bf16" : "f16";
}

size_t width(uint64_t dt)
{
    return dt == FG_RT_F32 ? 4 : 2;
}

void put(unsigned char *p, uint64_t dt, size_t i, float x)
{
    if (dt == FG_RT_F32)
        reinterpret_cast<float *>(p)[i] = x;
    else if (dt == FG_RT_F16)
        reinterpret_cast<__half *>(p)[i] = __float2half_rn(x);
    else
        reinterpret_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(x);
}

double get(const unsigned char *p, uint64_t dt, size_t i)
{
    if (dt == FG_RT_F32)
        return reinterpret_cast<const float *>(p)[i];
    if (dt == FG_RT_F16)
        return __half2float(reinterpret_cast<const __half *>(p)[i]);
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(p)[i]);
}

/* ---- the memory of a case ---- */

enum Buffer { BQ, BK, BV, BD, BO, BLSE, BDQ, BDK, BDV, N_BUFFERS };
const char *const BUFFER_NAMES[] = {"q", "k", "v", "do", "o", "lse", "dq", "dk", "dv"};
constexpr size_t GUARD = 256;

struct Memory {
    Case c;
    uint64_t dt;
    size_t offset[N_BUFFERS], count[N_BUFFERS], bytes, ws, ws_bytes;
    std::vector<unsigned char> host; /* everything but the workspace */
};

size_t element(const Memory &m, int buffer)
{
    return buffer == BLSE ? 4 : width(m.dt);
}

Memory lay_out(const Case &c, uint64_t dt, size_t ws_bytes)
{
    Memory m = {};
    m.c = c;
    m.dt = dt;
    size_t nq = (size_t)c.batch * c.seq_q * c.heads * c.dim,
           nk = (size_t)c.batch * c.seq_k * c.kv_heads * c.dim;
    const size_t counts[] = {nq, nk, nk, nq, nq, (size_t)c.batch * c.heads * c.seq_q, nq, nk, nk};
    size_t at = GUARD;
    for (int i = 0; i < N_BUFFERS; i++) {
        m.count[i] = counts[i];
        m.offset[i] = at;
        at += (counts[i] * element(m, i) + GUARD - 1) / GUARD * GUARD + GUARD;
    }
    m.bytes = m.ws = at;
    m.ws_bytes = ws_bytes;
    m.host.assign(at, 0xff); /* NaN in every dtype; guards too */
    uint32_t state = 12345;
    for (int i = BQ; i <= BD; i++)
        for (size_t j = 0; j < m.count[i]; j++) {
            state = state * 1664525u + 1013904223u;
            put(&m.host[m.offset[i]], dt, j, ((float)(state >> 8) / (1 << 24) - 0.5f) * 3.0f);
        }
    return m;
}

double value(const Memory &m, const std::vector<unsigned char> &all, int buffer, size_t i)
{
    return get(&all[m.offset[buffer]], buffer == BLSE ? (uint64_t)FG_RT_F32 : m.dt, i);
}

/* ---- reference ---- */

typedef std::vector<double> Doubles;
struct Reference {
    Doubles out[N_BUFFERS];
};

bool sees(const Case &c, int i, int j)
{
    int place = i + c.seq_k - c.seq_q;
    return (!c.causal || j <= place) && (!c.window || place - j < c.window);
}

size_t q_row(const Case &c, int b, int i, int h)
{
    return (((size_t)b * c.seq_q + i) * c.heads + h) * c.dim;
}

size_t k_row(const Case &c, int b, int j, int h)
{
    return (((size_t)b * c.seq_k + j) * c.kv_heads + h / (c.heads / c.kv_heads)) * c.dim;
}

double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* One query row: its output, then its part of every gradient. */
void reference_row(const Case &c, const Doubles *in, Reference *ref, int b, int h, int i)
{
    double scale = 1 / sqrt((double)c.dim), most = -INFINITY, total = 0;
    size_t q = q_row(c, b, i, h), stats = ((size_t)b * c.heads + h) * c.seq_q + i;
    Doubles p(c.seq_k, 0.0);
    for (int j = 0; j < c.seq_k; j++)
        if (sees(c, i, j)) {
            p[j] = scale * dot(&in[BQ][q], &in[BK][k_row(c, b, j, h)], c.dim);
            most = fmax(most, p[j]);
        }
    for (int j = 0; j < c.seq_k; j++) {
        p[j] = sees(c, i, j) ? exp(p[j] - most) : 0;
        total += p[j];
    }
    ref->out[BLSE][stats] = most + log(total);
    if (total == 0)
        return;
    double delta = 0;
    for (int j = 0; j < c.seq_k; j++) {
        p[j] /= total;
        for (int d = 0; d < c.dim; d++)
            ref->out[BO][q + d] += p[j] * in[BV][k_row(c, b, j, h) + d];
        delta += p[j] * dot(&in[BD][q], &in[BV][k_row(c, b, j, h)], c.dim);
    }
    for (int j = 0; j < c.seq_k; j++) {
        size_t k = k_row(c, b, j, h);
        double ds = p[j] == 0 ? 0 : p[j] * (dot(&in[BD][q], &in[BV][k], c.dim) - delta) * scale;
        for (int d = 0; d < c.dim && p[j] != 0; d++) {
            ref->out[BDQ][q + d] += ds * in[BK][k + d];
            ref->out[BDK][k + d] += ds * in[BQ][q + d];
            ref->out[BDV][k + d] += p[j] * in[BD][q + d];
        }
    }
}

Reference reference(const Memory &m)
{
    Reference ref;
    Doubles in[4];
    for (int i = BQ; i <= BD; i++)
        for (size_t j = 0; j < m.count[i]; j++)
            in[i].push_back(value(m, m.host, i, j));
    for (int i = BO; i < N_BUFFERS; i++)
        ref.out[i].assign(m.count[i], 0.0);
    for (int b = 0; b < m.c.batch; b++)
        for (int h = 0; h < m.c.heads; h++)
            for (int i = 0; i < m.c.seq_q; i++)
                reference_row(m.c, in, &ref, b, h, i);
    return ref;
}

/* ---- a run ---- */

FgRtCx context(int builtin)
{
    FgRtCx cx;
    memset(&cx, 0, sizeof cx);
    cx.ranks = 1;
    cx.builtin_attention = builtin;
    int device = 0, major = 0, minor = 0;
    must(cudaGetDevice(&device), "device");
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
    must(cudaDeviceGetAttribute(&cx.n_sm, cudaDevAttrMultiProcessorCount, device), "device");
    cx.sm = major * 10 + minor;
    return cx;
}

void call(FgRtCx *cx, cudaStream_t stream, const Memory &m)
{
    const Case &c = m.c;
    const size_t *at = m.offset;
    fg_cuda_attention(cx, stream, 0, at[BQ], at[BK], at[BV], at[BO], at[BLSE], c.batch, c.seq_q,
                      c.seq_k, c.heads, c.kv_heads, c.dim, c.causal, c.window, m.dt, m.ws,
                      m.ws_bytes, 0.0);
    fg_cuda_attention_back(cx, stream, 0, at[BQ], at[BK], at[BV], at[BO], at[BLSE], at[BD], at[BDQ],
                           at[BDK], at[BDV], c.batch, c.seq_q, c.seq_k, c.heads, c.kv_heads, c.dim,
                           c.causal, c.window, m.dt, m.ws, m.ws_bytes, 0.0);
}

std::vector<unsigned char> run(FgRtCx *cx, cudaStream_t stream, const Memory &m, bool captured)
{
    std::vector<unsigned char> out(m.bytes);
    must(cudaMemcpy(cx->memory, m.host.data(), m.bytes, cudaMemcpyHostToDevice), "copy");
    must(cudaDeviceSynchronize(), "copy"); /* it may return while the last pages are on their way */
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (captured)
        must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    call(cx, stream, m);
    if (captured) {
        must(cudaStreamEndCapture(stream, &graph), "capture");
        must(cudaGraphInstantiate(&exec, graph, 0), "graph");
        must(cudaGraphLaunch(exec, stream), "graph");
    }
    must(cudaStreamSynchronize(stream), "run");
    if (captured) {
        must(cudaGraphExecDestroy(exec), "graph");
        must(cudaGraphDestroy(graph), "graph");
    }
    must(cudaMemcpy(out.data(), cx->memory, m.bytes, cudaMemcpyDeviceToHost), "copy");
    return out;
}

/* ||out - reference|| / ||reference||, or the former alone where the latter is rounding (a softmax
 * over one key has gradients 0); infinities must agree. */
double error(const Memory &m, const std::vector<unsigned char> &out, const Reference &ref,
             int buffer)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < m.count[buffer]; i++) {
        double x = value(m, out, buffer, i), y = ref.out[buffer][i];
        if (x == y)
            off += 0;
        else if (std::isinf(y))
            return INFINITY;
        else
            off += (x - y) * (x - y);
        all += std::isinf(y) ? 0 : y * y;
    }
    return off == 0 ? 0 : sqrt(off / (all < 1e-20 ? 1 : all));
}

bool guards_stand(const Memory &m, const std::vector<unsigned char> &out)
{
    size_t at = 0;
    for (int i = 0; i <= N_BUFFERS; i++) {
        size_t end = i < N_BUFFERS ? m.offset[i] : m.bytes;
        for (; at < end; at++)
            if (out[at] != 0xff)
                return false;
        at = end + (i < N_BUFFERS ? m.count[i] * element(m, i) : 0);
    }
    return true;
}

void compare(const Memory &m, const std::vector<unsigned char> &out, const Reference &ref,
             const char *name)
{
    for (int i = BO; i < N_BUFFERS; i++) {
        double limit = i == BLSE || m.dt == FG_RT_F32 ? 1e-5 : m.dt == FG_RT_F16 ? 3e-3 : 2e-2;
        if (m.c.seq_k == 1 && (i == BDQ || i == BDK))
            limit = 1e-1;
        double e = error(m, out, ref, i);
        check(e <= limit, name, BUFFER_NAMES[i], e);
    }
    check(guards_stand(m, out), name, "nothing is written beside the results", 0);
}

void test_case(FgRtCx *cx, cudaStream_t stream, const Case &c, uint64_t dt, size_t ws_bytes,
               const char *how)
{
    char name[160];
    snprintf(name, sizeof name, "%s %s b%d q%d k%d h%d/%d d%d%s w%d", how, dtype_name(dt), c.batch,
             c.seq_q, c.seq_k, c.heads, c.kv_heads, c.dim, c.causal ? " causal" : "", c.window);
    Memory m = lay_out(c, dt, ws_bytes);
    must(cudaMalloc(&cx->memory, m.bytes + ws_bytes + 256), "memory");
    Reference ref = reference(m);
    std::vector<unsigned char> out = run(cx, stream, m, false);
    check(!cx->fail.failed, name, cx->fail.text, 0);
    compare(m, out, ref, name);
    bool repeats = cx->builtin_attention || cx->deterministic;
    std::vector<unsigned char> again = run(cx, stream, m, false), graph = run(cx, stream, m, true);
    if (repeats)
        check(out == again && out == graph, name, "runs repeat bit by bit, captured too", 0);
    else
        compare(m, graph, ref, name);
    must(cudaFree(cx->memory), "memory");
    memset(&cx->fail, 0, sizeof cx->fail);
}

/* With the least workspace the library goes by key heads; with none it refuses, if it needs any. */
void test_workspace(FgRtCx *cx, cudaStream_t stream)
{
    const Case c = {3, 128, 128, 8, 2, 64, 1, 0};
    FgCudaAttentionShape s = {3, 128, 128, 8, 2, 64, 1, 0, FG_RT_BF16, 0.125f};
    uint64_t wanted = 0, least = 0;
    if (!fg_cuda_attention_workspace(cx, &s, 1, &wanted, &least)) {
        printf("the library has no plan: its workspace is not tested\n");
        return;
    }
    printf("attention_back wants %llu bytes, works with %llu\n", (unsigned long long)wanted,
           (unsigned long long)least);
    check(least <= wanted, "workspace", "pieces want less", (double)least);
    test_case(cx, stream, c, FG_RT_BF16, least, "pieces");
    if (least == 0)
        return;
    Memory m = lay_out(c, FG_RT_BF16, 0);
    must(cudaMalloc(&cx->memory, m.bytes + 256), "memory");
    run(cx, stream, m, false);
    check(cx->fail.failed && strstr(cx->fail.text, "workspace"), "workspace", "none is refused", 0);
    must(cudaFree(cx->memory), "memory");
    memset(&cx->fail, 0, sizeof cx->fail);
}

} // namespace

int main()
{
    const uint64_t dtypes[] = {FG_RT_F32, FG_RT_F16, FG_RT_BF16};
    const struct {
        const char *name;
        int builtin, deterministic;
    } ways[] = {{"builtin", 1, 0}, {"library", 0, 0}, {"deterministic", 0, 1}};
    cudaStream_t stream;
    must(cudaStreamCreate(&stream), "stream");
    for (const auto &way : ways) {
        FgRtCx cx = context(way.builtin);
        cx.deterministic = way.deterministic;
        for (uint64_t dt : dtypes)
            for (const Case &c : CASES)
                if (way.builtin || dt != FG_RT_F32)
                    test_case(&cx, stream, c, dt, (size_t)64 << 20, way.name);
        if (!way.builtin && !way.deterministic)
            test_workspace(&cx, stream);
        fg_cuda_attention_close(&cx);
    }
    must(cudaStreamDestroy(stream), "stream");
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
