/* What AdamW does to an element and to four in a row, shared by the updates of a whole slice
 * (optimizer.cu) and of some rows of it (adamw_rows.cu). */
#ifndef FG_RUNTIME_CUDA_KERNELS_ADAMW_CUH
#define FG_RUNTIME_CUDA_KERNELS_ADAMW_CUH

#include "runtime/cuda/kernels/norm_window.cuh"
#include "runtime/cuda/kernels/segments.cuh"

/* The operations and their order are those of runtime/host/optimizer.c, without contraction: the
 * moments have the same bits. Root and quotient are those of the special function units, within 2
 * units in the last place of the step, which is itself a small part of the weight: exact ones take
 * twice the instructions, and the update waits for its instructions rather than for memory. A root
 * below the least normal number is 0, where eps is all that counts. */
typedef struct AdamW {
    float factor, beta1, rest1, beta2, rest2, rate, root, eps, keep;
} AdamW;

static __device__ AdamW adamw_scalars(const float *set, bool factored)
{
    AdamW s;
    s.factor = factored ? set[FG_RT_S_FACTOR] : 1.0f;
    s.beta1 = set[FG_RT_S_BETA1];
    s.rest1 = __fsub_rn(1.0f, s.beta1);
    s.beta2 = set[FG_RT_S_BETA2];
    s.rest2 = __fsub_rn(1.0f, s.beta2);
    s.rate = __fdiv_rn(set[FG_RT_S_LR], set[FG_RT_S_CORRECT1]);
    s.root = __fdiv_rn(1.0f, __fsqrt_rn(set[FG_RT_S_CORRECT2]));
    s.eps = set[FG_RT_S_EPS];
    s.keep = __fsub_rn(1.0f, __fmul_rn(set[FG_RT_S_LR], set[FG_RT_S_DECAY])); /* where it decays */
    return s;
}

static __device__ void adamw_one(const AdamW &s, float keep, float grad, float &w, float &m,
                                 float &v)
{
    float g = __fmul_rn(grad, s.factor);
    m = __fadd_rn(__fmul_rn(s.beta1, m), __fmul_rn(s.rest1, g));
    v = __fadd_rn(__fmul_rn(s.beta2, v), __fmul_rn(__fmul_rn(s.rest2, g), g));
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
    root = __fadd_rn(__fmul_rn(root, s.root), s.eps);
    w = __fsub_rn(__fmul_rn(w, keep), __fmul_rn(s.rate, __fdividef(m, root)));
}

template <class G, class S> struct AdamWArrays {
    const G *grad; /* the sum, or n_parts of it, `part` elements each */
    float *w, *m, *v;
    S *shard; /* NULL: w is the shard */
    uint64_t part;
    uint32_t n_parts; /* at least 2 where there are any */
};

/* The sum of parts, rounded to their dtype. */
template <int V, class G> static __device__ __forceinline__ void round_sum(float (&g)[V])
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        G rounded;
        fg_put(&rounded, g[j]);
        g[j] = fg_get(&rounded);
    }
}

/* The gradient of V elements: with PARTS the parts' sum in rank order, in f32, rounded once. */
template <bool PARTS, int V, class G, class S>
static __device__ __forceinline__ void gradient(const AdamWArrays<G, S> &a, uint64_t at,
                                                float (&g)[V])
{
    fg_load<V>(a.grad + at, g);
    if constexpr (PARTS) {
        float more[V];
        for (uint32_t p = 1; p < a.n_parts; p++) {
            fg_load<V>(a.grad + p * a.part + at, more);
#pragma unroll
            for (int j = 0; j < V; j++)
                g[j] = __fadd_rn(g[j], more[j]);
        }
        round_sum<V, G>(g);
    }
}

/* Four elements from `at` on, whose states were read already, and whose gradient is g. */
template <class G, class S>
static __device__ __forceinline__ void adamw_update(const AdamWArrays<G, S> &a, const AdamW &s,
                                                    float keep, uint64_t at, const float (&g)[4],
                                                    float (&w)[4], float (&m)[4], float (&v)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        adamw_one(s, keep, g[j], w[j], m[j], v[j]);
    fg_store<4>(a.w + at, w);
    fg_store<4>(a.m + at, m);
    fg_store<4>(a.v + at, v);
    if (a.shard)
        fg_store<4>(a.shard + at, w);
}

/* Elements at .. at + 4 of those in [begin, end); their gradients come back in g, 0 elsewhere. */
template <bool PARTS, class G, class S>
static __device__ __forceinline__ void adamw_four(const AdamWArrays<G, S> &a, const AdamW &s,
                                                  float keep, uint64_t at, uint64_t begin,
                                                  uint64_t end, bool wide, float (&g)[4])
{
    const int V = 4;
    if (wide && at >= begin && at + V <= end) {
        float w[V], m[V], v[V];
        gradient<PARTS>(a, at, g);
        fg_load<V>(a.w + at, w);
        fg_load<V>(a.m + at, m);
        fg_load<V>(a.v + at, v);
        adamw_update(a, s, keep, at, g, w, m, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        uint64_t k = at + j;
        g[j] = 0;
        if (k < begin || k >= end)
            continue;
        float w = a.w[k], m = a.m[k], v = a.v[k];
        float one[1];
        gradient<PARTS>(a, k, one);
        g[j] = one[0];
        adamw_one(s, keep, g[j], w, m, v);
        a.w[k] = w;
        a.m[k] = m;
        a.v[k] = v;
        if (a.shard)
            fg_put(a.shard + k, w);
    }
}

#endif
