/* A rank without a model, for tests and timings of single calls: device memory handed out from the
 * bottom, and for tests the same memory on the host, where the host runtime's kernel of the same
 * name makes the reference.
 *
 * A case places operands and results, runs the call on both sides, and compares: results by the
 * tolerance of their dtype, all other bytes bit by bit, and a second run on the device with the
 * first. */
#ifndef FG_TESTS_CUDA_KERNEL_RIG_H
#define FG_TESTS_CUDA_KERNEL_RIG_H

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/cuda/cx.h"

/* The host's kernels; their FgRtCx is another one: host_reference.c makes it. */
extern "C" {
#define FG_RT_CALL(name, effects, params, args)                                                    \
    void fg_host_##name(FgRtCx *cx, FG_RT_UNPAREN params);
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs)                                  \
    void fg_host_##name(FgRtCx *cx, FG_RT_UNPAREN params, FG_RT_UNPAREN fparams);
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F
FgRtCx *host_reference(const FgRtProgram *program, void *memory, uint64_t bytes, uint32_t rank);
const char *host_reference_error(void); /* since the last host_reference; NULL: none */
}

void must(cudaError_t error, const char *what);

/* How a result is compared. */
enum Compare { CLOSE, SAME, LIMBS };

struct Result {
    uint64_t at, n, dt;
    Compare compare;
};

class Rig
{
  public:
    Rig(uint64_t bytes, uint64_t ws_bytes, bool with_host);
    ~Rig();

    /* The program's parameters: buckets of `program` with tables that outlive the rig. */
    void adopt(const FgRtProgram &with, uint32_t rank);

    void begin(); /* forgets what was placed */
    /* `skew` elements from an aligned address on. */
    uint64_t room(uint64_t dt, uint64_t n, uint64_t skew = 0);
    uint64_t normal(uint64_t dt, uint64_t n, double scale = 1, uint64_t skew = 0);
    uint64_t positive(uint64_t dt, uint64_t n, uint64_t skew = 0); /* in [0.25, 4) */
    uint64_t ids(uint64_t n, uint64_t below);
    uint64_t bits(uint64_t dt, uint64_t n); /* any finite numbers, the smallest too */
    uint64_t values(uint64_t dt, const std::vector<double> &values);
    uint64_t ints(const std::vector<int32_t> &values);
    uint64_t result(uint64_t dt, uint64_t n, Compare compare = CLOSE, uint64_t skew = 0);
    /* An operand that the call changes. */
    void changes(uint64_t at, uint64_t dt, uint64_t n, Compare compare = CLOSE);
    double get(uint64_t at, uint64_t dt, uint64_t i) const;
    void set(uint64_t at, uint64_t dt, uint64_t i, double value);

    /* Runs and compares one case. */
    template <class Host, class Device, class... Args>
    void check(const std::string &name, Host on_host, Device on_device, Args... args)
    {
        initial.assign(memory.begin(), memory.begin() + (ptrdiff_t)next);
        on_host(host_cx(), args...);
        run_device([&] { on_device(&cx, cx.streams[FG_COMPUTE], NODE, args...); });
        compare(name);
    }
    /* The call reports a bad token or label; it raises an error of its own. */
    template <class Device, class... Args>
    void check_error(const std::string &name, Device on_device, Args... args)
    {
        initial.assign(memory.begin(), memory.begin() + (ptrdiff_t)next);
        start();
        on_device(&cx, cx.streams[FG_COMPUTE], NODE, args...);
        must(cudaDeviceSynchronize(), name.c_str());
        int error = 0;
        must(cudaMemcpy(&error, cx.device_error, sizeof error, cudaMemcpyDeviceToHost), "copy");
        must(cudaMemset(cx.device_error, 0, sizeof error), "memset");
        count(name, error == (int)NODE + 1, "the bad value was not reported");
    }
    template <class Device, class... Args>
    void check_raises(const std::string &name, Device on_device, Args... args)
    {
        initial.assign(memory.begin(), memory.begin() + (ptrdiff_t)next);
        start();
        on_device(&cx, cx.streams[FG_COMPUTE], NODE, args...);
        must(cudaDeviceSynchronize(), name.c_str());
        count(name, cx.fail.failed != 0, "nothing was raised");
        cx.fail.failed = 0;
    }
    void count(const std::string &name, bool good, const char *why);

    static const uint32_t NODE = 41;
    FgRtCx cx = {};
    FgRtProgram program = {};
    uint64_t ws, ws_bytes;
    double scale = 0; /* of what was summed, where results may cancel; begin() forgets it */
    /* Largest old value or bias of a product in a short dtype: the library may round before it
     * adds. */
    double added = 0;
    int passed = 0, failed = 0;

  private:
    void start(); /* sends the operands as they were placed */
    FgRtCx *host_cx();
    template <class F> void run_device(F call)
    {
        start();
        call();
        fetch(first);
        start();
        call();
        fetch(second);
    }
    void fetch(std::vector<unsigned char> &to);
    void compare(const std::string &name);
    double random(); /* uniform in [0, 1) */

    uint64_t bytes, next = 0, seed = 88172645463325252u;
    std::vector<unsigned char> memory, initial, first, second;
    std::vector<Result> results;
};

uint64_t dtype_bytes(uint64_t dt);
const char *dtype_name(uint64_t dt);

#endif
