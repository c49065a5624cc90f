/* Memory and comparison of the rig. */
#include "tests/cuda/kernel_rig.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

uint64_t dtype_bytes(uint64_t dt)
{
    return dt == FG_RT_BF16 || dt == FG_RT_F16 ? 2 : dt == FG_RT_F64 || dt == FG_RT_I64 ? 8 : 4;
}

const char *dtype_name(uint64_t dt)
{
    const char *const names[] = {"f32", "bf16", "f16", "f64", "i32", "i64"};
    return names[dt];
}

static double read_element(const unsigned char *base, uint64_t dt, uint64_t i)
{
    const unsigned char *at = base + i * dtype_bytes(dt);
    switch (dt) {
    case FG_RT_BF16: {
        __nv_bfloat16 value;
        memcpy(&value, at, 2);
        return (double)__bfloat162float(value);
    }
    case FG_RT_F16: {
        __half value;
        memcpy(&value, at, 2);
        return (double)__half2float(value);
    }
    case FG_RT_F64: {
        double value;
        memcpy(&value, at, 8);
        return value;
    }
    case FG_RT_I32: {
        int32_t value;
        memcpy(&value, at, 4);
        return value;
    }
    case FG_RT_I64: {
        int64_t value;
        memcpy(&value, at, 8);
        return (double)value;
    }
    default: {
        float value;
        memcpy(&value, at, 4);
        return (double)value;
    }
    }
}

static void write_element(unsigned char *base, uint64_t dt, uint64_t i, double from)
{
    unsigned char *at = base + i * dtype_bytes(dt);
    float f32 = (float)from;
    __nv_bfloat16 bf16 = __float2bfloat16_rn(f32);
    __half f16 = __float2half_rn(f32);
    int32_t i32 = (int32_t)from;
    int64_t i64 = (int64_t)from;
    const void *value = dt == FG_RT_BF16  ? (const void *)&bf16
                        : dt == FG_RT_F16 ? (const void *)&f16
                        : dt == FG_RT_F64 ? (const void *)&from
                        : dt == FG_RT_I32 ? (const void *)&i32
                        : dt == FG_RT_I64 ? (const void *)&i64
                                          : (const void *)&f32;
    memcpy(at, value, dtype_bytes(dt));
}

Rig::Rig(uint64_t bytes_, uint64_t ws_bytes_, bool with_host)
{
    cudaDeviceProp properties;
    must(cudaGetDeviceProperties(&properties, 0), "device");
    bytes = bytes_;
    ws_bytes = ws_bytes_;
    ws = bytes;
    must(cudaMalloc(&cx.memory, bytes + ws_bytes), "memory");
    must(cudaMalloc(&cx.device_error, sizeof(int)), "memory");
    must(cudaMemset(cx.device_error, 0, sizeof(int)), "memset");
    for (cudaStream_t &stream : cx.streams)
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    cx.sm = properties.major * 10 + properties.minor;
    cx.n_sm = properties.multiProcessorCount;
    cx.shared_bytes = (int)properties.sharedMemPerBlockOptin;
    if (with_host) {
        memory.resize(bytes + ws_bytes);
        first.resize(bytes);
        second.resize(bytes);
    }
    cx.gemm = fg_cuda_gemm_new(&cx);
    FgRtProgram none = {};
    none.ranks = 1;
    adopt(none, 0);
    begin();
}

Rig::~Rig()
{
    fg_cuda_segments_free(cx.segments);
    fg_cuda_gemm_free(cx.gemm);
    cudaFree(cx.device_error);
    cudaFree(cx.memory);
}

void Rig::adopt(const FgRtProgram &with, uint32_t rank)
{
    program = with;
    program.abi = FG_RT_ABI;
    cx.program = &program;
    cx.rank = rank;
    cx.ranks = program.ranks;
    fg_cuda_segments_free(cx.segments);
    cx.segments = fg_cuda_segments_new(&cx);
    if (cx.fail.failed || !cx.segments || !cx.gemm) {
        printf("start: %s\n", cx.fail.text);
        exit(2);
    }
}

void Rig::begin()
{
    uint64_t used = next ? next : bytes;
    next = 0;
    scale = added = 0;
    results.clear();
    if (!memory.empty())
        memset(memory.data(), 0xa5, used); /* guards, and results before they are written */
}

double Rig::random()
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) * 0x1p-53;
}

uint64_t Rig::room(uint64_t dt, uint64_t n, uint64_t skew)
{
    uint64_t at = next + skew * dtype_bytes(dt);
    next = (at + n * dtype_bytes(dt) + 255 + 64) / 256 * 256; /* at least 64 bytes between */
    if (next > bytes) {
        printf("the rig has too little memory\n");
        exit(2);
    }
    return at;
}

void Rig::set(uint64_t at, uint64_t dt, uint64_t i, double value)
{
    write_element(memory.data() + at, dt, i, value);
}

double Rig::get(uint64_t at, uint64_t dt, uint64_t i) const
{
    return read_element(memory.data() + at, dt, i);
}

uint64_t Rig::normal(uint64_t dt, uint64_t n, double scale, uint64_t skew)
{
    uint64_t at = room(dt, n, skew);
    for (uint64_t i = 0; i < n; i++)
        set(at, dt, i,
            scale * (random() + random() + random() + random() - 2) * 1.7320508); /* variance 1 */
    return at;
}

uint64_t Rig::positive(uint64_t dt, uint64_t n, uint64_t skew)
{
    uint64_t at = room(dt, n, skew);
    for (uint64_t i = 0; i < n; i++)
        set(at, dt, i, exp2(4 * random() - 2));
    return at;
}

uint64_t Rig::ids(uint64_t n, uint64_t below)
{
    uint64_t at = room(FG_RT_I32, n);
    for (uint64_t i = 0; i < n; i++)
        set(at, FG_RT_I32, i, floor(random() * random() * (double)below)); /* small ones often */
    return at;
}

uint64_t Rig::bits(uint64_t dt, uint64_t n)
{
    uint64_t at = room(dt, n), size = dtype_bytes(dt);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word = (uint32_t)(random() * 0x1p32);
        memcpy(memory.data() + at + i * size, &word, size);
        if (!std::isfinite(get(at, dt, i)))
            set(at, dt, i, 0);
    }
    return at;
}

uint64_t Rig::values(uint64_t dt, const std::vector<double> &values)
{
    uint64_t at = room(dt, values.size());
    for (size_t i = 0; i < values.size(); i++)
        set(at, dt, i, values[i]);
    return at;
}

uint64_t Rig::ints(const std::vector<int32_t> &values)
{
    return this->values(FG_RT_I32, std::vector<double>(values.begin(), values.end()));
}

uint64_t Rig::result(uint64_t dt, uint64_t n, Compare compare, uint64_t skew)
{
    uint64_t at = room(dt, n, skew);
    changes(at, dt, n, compare);
    return at;
}

void Rig::changes(uint64_t at, uint64_t dt, uint64_t n, Compare compare)
{
    results.push_back({at, n, dt, compare});
}

void Rig::start()
{
    must(cudaMemcpy(cx.memory, initial.data(), initial.size(), cudaMemcpyHostToDevice), "copy");
    must(cudaDeviceSynchronize(), "copy"); /* it may return while the last pages are on their way */
}

FgRtCx *Rig::host_cx()
{
    return host_reference(&program, memory.data(), memory.size(), cx.rank);
}

void Rig::fetch(std::vector<unsigned char> &to)
{
    must(cudaDeviceSynchronize(), cx.fail.text);
    must(cudaMemcpy(to.data(), cx.memory, next, cudaMemcpyDeviceToHost), "copy");
}

void Rig::count(const std::string &name, bool good, const char *why)
{
    passed += good;
    failed += !good;
    if (!good)
        printf("FAILED %s: %s\n", name.c_str(), why);
}

/* By dtype: a result may differ from the host's by `own` of its value (one unit in the last place
 * for the short ones) and by `largest` of the largest value of its array (sums that cancel). */
static const struct {
    double own, largest;
} TOLERANCE[] = {{4e-6, 2e-6}, {0x1p-7, 2e-6}, {0x1p-10, 2e-6}, {1e-7, 1e-7}, {0, 0}, {0, 0}};

static bool is_close(double got, double want, double largest, double added, uint64_t dt)
{
    if (std::isnan(want) || std::isinf(want))
        return std::isnan(want) ? std::isnan(got) : got == want;
    double least = dt == FG_RT_F16 ? 0x1p-24 : 0; /* its subnormal numbers */
    double twice = added > 0 ? TOLERANCE[dt].own * (fabs(want) + added) : 0;
    return fabs(got - want) <=
           TOLERANCE[dt].own * fabs(want) + TOLERANCE[dt].largest * largest + least + twice;
}

static void canonical(const unsigned char *from, int64_t *limbs)
{
    memcpy(limbs, from, FG_RT_NORM_LIMBS * sizeof *limbs);
    for (int i = 0; i + 2 < FG_RT_NORM_LIMBS; i++) {
        limbs[i + 1] += limbs[i] >> 32;
        limbs[i] &= UINT32_MAX;
    }
}

static std::string compare_result(const Result &r, const unsigned char *got,
                                  const unsigned char *want, double scale, double added)
{
    char text[160] = "";
    if (r.compare == LIMBS) {
        int64_t a[FG_RT_NORM_LIMBS], b[FG_RT_NORM_LIMBS];
        canonical(got + r.at, a);
        canonical(want + r.at, b);
        for (int i = 0; i < FG_RT_NORM_LIMBS; i++)
            if (a[i] != b[i]) {
                snprintf(text, sizeof text, "limb %d is %" PRIx64 ", not %" PRIx64, i, a[i], b[i]);
                return text;
            }
        return text;
    }
    double largest = scale, worst = 0;
    uint64_t n_bad = 0, at = 0;
    for (uint64_t i = 0; i < r.n; i++) {
        double value = fabs(read_element(want + r.at, r.dt, i));
        largest = std::isfinite(value) && value > largest ? value : largest;
    }
    for (uint64_t i = 0; i < r.n; i++) {
        double a = read_element(got + r.at, r.dt, i), b = read_element(want + r.at, r.dt, i);
        bool good = r.compare == SAME ? a == b || (std::isnan(a) && std::isnan(b))
                                      : is_close(a, b, largest, added, r.dt);
        n_bad += !good;
        double off = std::isfinite(a - b) ? fabs(a - b) : INFINITY;
        if (!good && off >= worst) {
            worst = off;
            at = i;
        }
    }
    if (n_bad)
        snprintf(text, sizeof text,
                 "%" PRIu64 " of %" PRIu64 ", worst at %" PRIu64 ": %.9g, not %.9g (largest %.3g)",
                 n_bad, r.n, at, read_element(got + r.at, r.dt, at),
                 read_element(want + r.at, r.dt, at), largest);
    return text;
}

void Rig::compare(const std::string &name)
{
    std::string why;
    const char *host_error = host_reference_error();
    int reported = 0;
    must(cudaMemcpy(&reported, cx.device_error, sizeof reported, cudaMemcpyDeviceToHost), "copy");
    must(cudaMemset(cx.device_error, 0, sizeof reported), "memset");
    must(cudaDeviceSynchronize(), "memset");
    if (host_error)
        why = std::string("on the host: ") + host_error;
    else if (cx.fail.failed)
        why = cx.fail.text;
    else if (reported)
        why = "a bad value was reported";
    cx.fail.failed = 0;
    for (size_t i = 0; i < results.size() && why.empty(); i++)
        why = compare_result(results[i], first.data(), memory.data(), scale, added);
    /* All else is as the host left it; and a second run gives the same bits. */
    for (const Result &r : results) {
        uint64_t size = r.n * dtype_bytes(r.dt);
        if (why.empty() && memcmp(first.data() + r.at, second.data() + r.at, size) != 0)
            why = "two runs differ";
        memcpy(first.data() + r.at, memory.data() + r.at, size);
    }
    for (uint64_t i = 0; i < next && why.empty(); i++)
        if (first[i] != memory[i])
            why = "byte " + std::to_string(i) + " outside the results was written";
    count(name, why.empty(), why.c_str());
}
