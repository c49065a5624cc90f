/* The calls that multiply matrices, with sums folded in, against the host's; and the choice of their
 * algorithms, which a file keeps. */
#include "runtime/cuda/gemm.h"
#include "tests/cuda/kernel_cases.h"

/* The operand `plus`: none, a matrix of its own, or the one that the result takes the place of. */
enum Plus { ABSENT, APART, IN_PLACE };

/* Places it and the result of `n` elements. */
static uint64_t place_plus(Rig &r, Plus plus, uint64_t dt, uint64_t n, uint64_t *result)
{
    uint64_t at = plus == ABSENT ? NONE : r.normal(dt, n);
    if (plus == IN_PLACE)
        r.changes(at, dt, n);
    *result = plus == IN_PLACE ? at : r.result(dt, n);
    return at;
}

static void linear_case(Rig &r, uint64_t dt, const uint64_t shape[3], uint64_t layout, bool biased,
                        Plus plus)
{
    uint64_t m = shape[0], n = shape[1], k = shape[2], y;
    r.begin();
    uint64_t x = r.normal(dt, m * k), w = r.normal(dt, n * k), b = biased ? r.normal(dt, n) : NONE;
    uint64_t more = place_plus(r, plus, dt, m * n, &y);
    r.scale = sqrt((double)k);
    r.added = (biased ? 4 : 0) + (plus == ABSENT ? 0 : 4);
    CHECK(r, label("linear", dt, {m, n, k, layout, (uint64_t)biased, (uint64_t)plus}), linear, x, w,
          b, more, y, m, n, k, layout, dt, r.ws, r.ws_bytes);
}

static void linear_dx_case(Rig &r, uint64_t dt, const uint64_t shape[3], uint64_t layout, Plus plus)
{
    uint64_t m = shape[0], n = shape[1], k = shape[2], dx;
    r.begin();
    uint64_t d = r.normal(dt, m * n), w = r.normal(dt, n * k);
    uint64_t more = place_plus(r, plus, dt, m * k, &dx);
    r.scale = sqrt((double)n);
    r.added = plus == ABSENT ? 0 : 4;
    CHECK(r, label("linear_dx", dt, {m, n, k, layout, (uint64_t)plus}), linear_dx, d, w, more, dx,
          m, n, k, layout, dt, r.ws, r.ws_bytes);
}

void test_linear(Rig &r)
{
    static const uint64_t shapes[][3] = {{1, 1, 1},     {3, 5, 7},       {64, 64, 64},
                                         {33, 257, 65}, {128, 255, 512}, {257, 512, 384}};
    for (uint64_t dt : FLOATS)
        for (const auto &shape : shapes)
            for (uint64_t layout : {0, 1}) {
                uint64_t m = shape[0], n = shape[1], k = shape[2];
                for (int biased = 0; biased < 2; biased++)
                    for (int plus : {0, 1, 2})
                        linear_case(r, dt, shape, layout, biased, (Plus)plus);
                for (int plus : {0, 1, 2})
                    linear_dx_case(r, dt, shape, layout, (Plus)plus);
                for (uint64_t wire : FLOATS)
                    for (uint64_t accumulate : {0, 1}) {
                        r.begin();
                        uint64_t x = r.normal(dt, m * k);
                        uint64_t d = r.normal(dt, m * n), dw = r.normal(wire, n * k);
                        r.changes(dw, wire, n * k);
                        r.scale = sqrt((double)m);
                        r.added = accumulate ? 4 : 0;
                        CHECK(r, label("linear_dw", dt, {m, n, k, layout, wire, accumulate}),
                              linear_dw, x, d, dw, m, n, k, layout, dt, wire, accumulate, r.ws,
                              r.ws_bytes);
                    }
            }
}

void test_matmul(Rig &r)
{
    for (uint64_t dt : FLOATS)
        for (uint64_t batch : {1, 5})
            for (uint64_t ta : {0, 1})
                for (uint64_t tb : {0, 1})
                    for (uint64_t m : {7, 64}) {
                        uint64_t n = 33, k = 48;
                        r.begin();
                        uint64_t a = r.normal(dt, batch * m * k), b = r.normal(dt, batch * k * n);
                        uint64_t y = r.result(dt, batch * m * n);
                        r.scale = sqrt((double)k);
                        CHECK(r, label("matmul", dt, {batch, ta, tb, m}), matmul, a, b, y, batch, m,
                              n, k, ta, tb, dt, r.ws, r.ws_bytes);
                    }
}

void test_choice(Rig &r)
{
    const char *path = "foregather-gemm-test.txt";
    uint64_t dt = FG_RT_BF16, m = 512, n = 512, k = 512;
    r.begin();
    uint64_t x = r.normal(dt, m * k), w = r.normal(dt, n * k), y = r.result(dt, m * n);
    CHECK(r, "linear before measuring", linear, x, w, NONE, NONE, y, m, n, k, (uint64_t)0, dt, r.ws,
          r.ws_bytes);
    fg_cuda_gemm_free(r.cx.gemm);
    r.cx.gemm = fg_cuda_gemm_new(&r.cx);
    CHECK(r, "linear alone", linear, x, w, NONE, NONE, y, m, n, k, (uint64_t)0, dt, r.ws,
          r.ws_bytes);
    remove(path);
    fg_cuda_gemm_tune(&r.cx, r.cx.streams[FG_COMPUTE]);
    fg_cuda_gemm_write(&r.cx, path);
    CHECK(r, "linear as measured", linear, x, w, NONE, NONE, y, m, n, k, (uint64_t)0, dt, r.ws,
          r.ws_bytes);
    fg_cuda_gemm_free(r.cx.gemm);
    r.cx.gemm = fg_cuda_gemm_new(&r.cx);
    fg_cuda_gemm_read(&r.cx, path);
    CHECK(r, "linear as the file says", linear, x, w, NONE, NONE, y, m, n, k, (uint64_t)0, dt, r.ws,
          r.ws_bytes);
    FILE *file = fopen(path, "a");
    if (file) {
        fputs("gemm 1 2 3\n", file);
        fclose(file);
    }
    fg_cuda_gemm_write(&r.cx, path);
    r.count("a broken file of choices is not overwritten", r.cx.fail.failed != 0,
            "nothing was raised");
    r.cx.fail.failed = 0;
    fg_cuda_gemm_read(&r.cx, path);
    r.count("a broken file of choices", r.cx.fail.failed != 0, "nothing was raised");
    r.cx.fail.failed = 0;
    remove(path);
}
