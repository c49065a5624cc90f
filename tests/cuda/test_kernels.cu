/* Every call of the ABI on the GPU (but attention and collectives, which have tests of their own)
 * against the host's kernel of the same name: all dtypes, odd sizes, addresses out of line, results
 * in place, twice. */
#include "tests/cuda/kernel_cases.h"

static const uint64_t SIZES[] = {1, 3, 7, 64, 255, 257, 4099, 70001};

std::string label(const char *call, uint64_t dt, std::initializer_list<uint64_t> sizes)
{
    std::string text = std::string(call) + " " + dtype_name(dt);
    for (uint64_t size : sizes)
        text += " " + std::to_string(size);
    return text;
}

/* ---- elements ---- */

static void test_unary(Rig &r)
{
    for (uint64_t kind = FG_RT_NEG; kind <= FG_RT_POW; kind++)
        for (uint64_t dt : FLOATS)
            for (uint64_t n : {257, 4099}) {
                bool positive = kind == FG_RT_LOG || kind == FG_RT_SQRT || kind == FG_RT_RSQRT ||
                                kind == FG_RT_POW;
                double a = kind == FG_RT_POW ? 1.7 : 0.3;
                r.begin();
                uint64_t x = positive ? r.positive(dt, n) : r.normal(dt, n, 2);
                uint64_t y = r.result(dt, n);
                CHECK(r, label("unary", dt, {kind, n}), unary, kind, x, y, n, dt, a);
                r.begin();
                x = positive ? r.positive(dt, n) : r.normal(dt, n, 2);
                r.changes(x, dt, n);
                CHECK(r, label("unary in place", dt, {kind, n}), unary, kind, x, x, n, dt, a);
                r.begin();
                x = positive ? r.positive(dt, n) : r.normal(dt, n, 2);
                uint64_t d = r.normal(dt, n), dx = r.result(dt, n);
                CHECK(r, label("unary_back", dt, {kind, n}), unary_back, kind, x, d, dx, n, dt, a);
            }
    for (uint64_t n : SIZES) {
        r.begin();
        uint64_t x = r.normal(FG_RT_BF16, n, 1, 1), y = r.result(FG_RT_BF16, n, CLOSE, 3);
        CHECK(r, label("unary out of line", FG_RT_BF16, {n}), unary, FG_RT_SILU, x, y, n,
              FG_RT_BF16, 0.0);
    }
}

static void test_gated(Rig &r)
{
    for (uint64_t kind : {FG_RT_SILU, FG_RT_GELU, FG_RT_GELU_TANH, FG_RT_RELU, FG_RT_SIGMOID})
        for (uint64_t dt : FLOATS)
            for (uint64_t n : SIZES) {
                r.begin();
                uint64_t g = r.normal(dt, n, 2), u = r.normal(dt, n), y = r.result(dt, n);
                CHECK(r, label("gated", dt, {kind, n}), gated, kind, g, u, y, n, dt);
                r.begin();
                g = r.normal(dt, n, 2), u = r.normal(dt, n);
                uint64_t d = r.normal(dt, n), du = r.result(dt, n);
                r.changes(g, dt, n);
                CHECK(r, label("gated_back in place", dt, {kind, n}), gated_back, kind, g, u, d, g,
                      du, n, dt);
                r.begin();
                g = r.normal(dt, n, 2, 1), u = r.normal(dt, n);
                d = r.normal(dt, n, 1, 1), du = r.result(dt, n);
                uint64_t dg = r.result(dt, n);
                CHECK(r, label("gated_back", dt, {kind, n}), gated_back, kind, g, u, d, dg, du, n,
                      dt);
            }
}

/* A device of no multiprocessors gets grids of one block, which comes around again. */
static void test_turns(Rig &r)
{
    const uint64_t n = 300001;
    int n_sm = r.cx.n_sm;
    r.cx.n_sm = 0;
    for (uint64_t dt : FLOATS) {
        r.begin();
        uint64_t x = r.normal(dt, n, 2), y = r.result(dt, n);
        CHECK(r, label("unary in turns", dt, {n}), unary, FG_RT_SILU, x, y, n, dt, 0.0);
        r.begin();
        x = r.normal(dt, n), y = r.normal(FG_RT_F32, n);
        r.changes(y, FG_RT_F32, n);
        CHECK(r, label("grad_write in turns", dt, {n}), grad_write, x, y, n, dt, FG_RT_F32,
              (uint64_t)1);
        r.begin();
        uint64_t g = r.normal(dt, n, 2), u = r.normal(dt, n), d = r.normal(dt, n);
        uint64_t du = r.result(dt, n);
        r.changes(g, dt, n);
        CHECK(r, label("gated_back in turns", dt, {n}), gated_back, FG_RT_SILU, g, u, d, g, du, n,
              dt);
    }
    r.cx.n_sm = n_sm;
}

static void test_binary(Rig &r)
{
    /* [rank, dims, strides of a, strides of b] */
    static const int64_t layouts[] = {
        2, 33, 64, 64, 1,  0, 1,                      /* 0: a row to all rows */
        2, 33, 64, 64, 1,  1, 0,                      /* 7: a column */
        2, 33, 65, 65, 1,  0, 1,                      /* 14: odd rows */
        3, 5,  6,  7,  42, 7, 1,  0,  0, 1,           /* 21 */
        4, 2,  3,  4,  5,  0, 20, 5,  1, 60, 0, 0, 1, /* 31 */
        1, 1,  0,  0,                                 /* 44: scalars */
        9, 2,  3,  2,  3,  2, 3,  2,  3, 2,           /* 48: nothing merges */
        0, 1,  0,  3,  0,  6, 0,  12, 0, 1,  0, 2, 0, 6, 0, 12, 0, 36,
    };
    FgRtProgram program = {};
    program.ranks = 1;
    program.layouts = layouts;
    program.n_layouts = sizeof layouts / sizeof *layouts;
    r.adopt(program, 0);
    static const struct {
        uint64_t layout, n_a, n_b, n;
    } cases[] = {
        {NONE, 4099, 4099, 4099}, {0, 2112, 64, 2112}, {7, 2112, 33, 2112}, {14, 2145, 65, 2145},
        {21, 210, 7, 210},        {31, 60, 120, 120},  {44, 1, 1, 1}};
    for (uint64_t kind = FG_RT_ADD; kind <= FG_RT_DIV; kind++)
        for (uint64_t dt : FLOATS)
            for (const auto &c : cases) {
                r.begin();
                uint64_t a = r.normal(dt, c.n_a), b = r.positive(dt, c.n_b), y = r.result(dt, c.n);
                CHECK(r, label("binary", dt, {kind, c.layout, c.n}), binary, kind, a, b, y, c.n_a,
                      c.n_b, c.n, c.layout, dt);
                if (c.n_a != c.n)
                    continue;
                r.begin();
                a = r.normal(dt, c.n_a), b = r.positive(dt, c.n_b);
                r.changes(a, dt, c.n);
                CHECK(r, label("binary in place", dt, {kind, c.layout, c.n}), binary, kind, a, b, a,
                      c.n_a, c.n_b, c.n, c.layout, dt);
            }
    r.begin();
    uint64_t a = r.normal(FG_RT_F32, 36), b = r.normal(FG_RT_F32, 72), y = r.room(FG_RT_F32, 2592);
    r.check_raises("binary of nine dimensions", fg_cuda_binary, (uint64_t)FG_RT_ADD, a, b, y,
                   (uint64_t)36, (uint64_t)72, (uint64_t)2592, (uint64_t)48, (uint64_t)FG_RT_F32);
}

static void test_storage(Rig &r)
{
    const uint64_t all[] = {FG_RT_F32, FG_RT_BF16, FG_RT_F16, FG_RT_F64, FG_RT_I32, FG_RT_I64};
    for (uint64_t from : all)
        for (uint64_t to : all)
            for (uint64_t n : {1, 7, 257, 4099}) {
                r.begin();
                uint64_t x = r.normal(from, n, 100), y = r.result(to, n, SAME);
                CHECK(r, label("cast", from, {to, n}), cast, x, y, n, from, to);
            }
    for (uint64_t dt : all)
        for (double value : {0.0, 1.0, -3.0, 100.3})
            for (uint64_t n : {1, 7, 257, 4099}) {
                r.begin();
                uint64_t y = r.result(dt, n, SAME);
                CHECK(r, label("fill", dt, {n}), fill, y, n, dt, value);
            }
    for (uint64_t dt : FLOATS)
        for (uint64_t wire : FLOATS)
            for (uint64_t n : {1, 7, 257, 4099})
                for (uint64_t accumulate : {0, 1}) {
                    r.begin();
                    uint64_t x = r.normal(dt, n), w = r.normal(wire, n);
                    r.changes(w, wire, n, SAME);
                    CHECK(r, label("grad_write", dt, {wire, n, accumulate}), grad_write, x, w, n,
                          dt, wire, accumulate);
                }
    for (uint64_t accumulate : {0, 1}) {
        r.begin();
        uint64_t loss = r.normal(FG_RT_F32, 1), acc = r.normal(FG_RT_F64, 1);
        r.changes(acc, FG_RT_F64, 1, SAME);
        CHECK(r, "loss_add", loss_add, loss, acc, accumulate);
    }
}

/* ---- shapes ---- */

static void test_shapes(Rig &r)
{
    /* [rank, dims, strides of x] */
    static const int64_t layouts[] = {
        2, 33, 65, 1,  33,                   /* 0: a transpose */
        2, 64, 64, 1,  64,                   /* 5 */
        4, 2,  3,  5,  7,    105, 7,  21, 1, /* 10: two inner dimensions swapped */
        3, 4,  16, 8,  0,    8,   1,         /* 19: a broadcast in front */
        2, 9,  16, 1,  0,                    /* 26: a broadcast behind */
        3, 3,  40, 50, 2000, 1,   40,        /* 31: transposes, by batch */
        1, 77, 1,                            /* 38: a copy */
    };
    FgRtProgram program = {};
    program.ranks = 1;
    program.layouts = layouts;
    program.n_layouts = sizeof layouts / sizeof *layouts;
    r.adopt(program, 0);
    static const struct {
        uint64_t layout, n_x, n;
    } cases[] = {{0, 2145, 2145}, {5, 4096, 4096},  {10, 210, 210}, {19, 128, 512},
                 {26, 9, 144},    {31, 6000, 6000}, {38, 77, 77}};
    for (uint64_t dt : {FG_RT_F32, FG_RT_BF16, FG_RT_F64})
        for (const auto &c : cases)
            for (uint64_t skew : {0, 1}) {
                r.begin();
                uint64_t x = r.normal(dt, c.n_x, 1, skew), y = r.result(dt, c.n, SAME);
                CHECK(r, label("copy_strided", dt, {c.layout, c.n, skew}), copy_strided, x, y,
                      c.n_x, c.n, c.layout, (uint64_t)dt);
            }
    static const struct {
        uint64_t outer, dim, inner, start, count;
    } cuts[] = {{1, 7, 1, 2, 3},   {3, 7, 5, 0, 4},   {5, 16, 64, 8, 8},
                {9, 12, 8, 11, 1}, {2, 9, 257, 3, 6}, {1, 4099, 16, 99, 4000}};
    for (uint64_t dt : {FG_RT_F32, FG_RT_BF16})
        for (const auto &c : cuts) {
            uint64_t whole = c.outer * c.dim * c.inner, part = c.outer * c.count * c.inner;
            r.begin();
            uint64_t x = r.normal(dt, whole), y = r.result(dt, part, SAME);
            CHECK(r, label("slice", dt, {c.dim, c.inner}), slice, x, y, c.outer, c.dim, c.inner,
                  c.start, c.count, (uint64_t)dt);
            r.begin();
            uint64_t dy = r.normal(dt, part), dx = r.result(dt, whole, SAME);
            CHECK(r, label("slice_back", dt, {c.dim, c.inner}), slice_back, dy, dx, c.outer, c.dim,
                  c.inner, c.start, c.count, (uint64_t)dt);
            r.begin();
            uint64_t a = r.normal(dt, whole), b = r.normal(dt, part);
            y = r.result(dt, whole + part, SAME);
            CHECK(r, label("concat", dt, {c.dim, c.inner}), concat, a, b, y, c.outer, c.dim,
                  c.count, c.inner, (uint64_t)dt);
        }
}

/* ---- sums and rows ---- */

static void test_sums(Rig &r)
{
    /* [rank, dims, strides of x, strides of y] */
    static const int64_t layouts[] = {
        2, 37,    257, 257, 1,   1,  0,           /* 0: rows */
        2, 37,    257, 257, 1,   0,  1,           /* 7: columns */
        1, 70001, 1,   0,                         /* 14: everything */
        3, 11,    13,  17,  221, 17, 1, 1,  0, 0, /* 18 */
        3, 11,    13,  17,  221, 17, 1, 0,  1, 0, /* 28 */
        3, 11,    13,  17,  221, 17, 1, 17, 0, 1, /* 38 */
        2, 70000, 3,   3,   1,   0,  1,           /* 48: few columns, long */
    };
    FgRtProgram program = {};
    program.ranks = 1;
    program.layouts = layouts;
    program.n_layouts = sizeof layouts / sizeof *layouts;
    r.adopt(program, 0);
    static const struct {
        uint64_t layout, n_x, n;
    } cases[] = {{0, 9509, 37},  {7, 9509, 257},  {14, 70001, 1}, {18, 2431, 11},
                 {28, 2431, 13}, {38, 2431, 187}, {48, 210000, 3}};
    for (uint64_t dt : FLOATS)
        for (const auto &c : cases) {
            r.begin();
            uint64_t x = r.normal(dt, c.n_x), y = r.result(dt, c.n);
            r.scale = sqrt((double)(c.n_x / c.n));
            CHECK(r, label("reduce_sum", dt, {c.layout}), reduce_sum, x, y, c.n_x, c.n, c.layout,
                  dt, 0.37);
        }
    for (uint64_t dt : FLOATS)
        for (uint64_t wire : {dt, (uint64_t)FG_RT_F32})
            for (uint64_t rows : {1, 33, 4099})
                for (uint64_t cols : {1, 7, 64, 257, 512})
                    for (uint64_t accumulate : {0, 1}) {
                        r.begin();
                        uint64_t x = r.normal(dt, rows * cols), y = r.normal(wire, cols);
                        r.changes(y, wire, cols);
                        r.scale = sqrt((double)rows);
                        CHECK(r, label("column_sum", dt, {wire, rows, cols, accumulate}),
                              column_sum, x, y, rows, cols, dt, wire, accumulate);
                    }
}

static void test_softmax(Rig &r)
{
    for (uint64_t dt : FLOATS)
        for (uint64_t rows : {1, 5})
            for (uint64_t cols : SIZES) {
                r.begin();
                uint64_t x = r.normal(dt, rows * cols, 3), y = r.result(dt, rows * cols);
                CHECK(r, label("softmax", dt, {rows, cols}), softmax, x, y, rows, cols, dt);
                r.begin();
                x = r.normal(dt, rows * cols, 3, 1);
                r.set(x, dt, 0, cols > 1 ? -INFINITY : 0);
                r.changes(x, dt, rows * cols);
                CHECK(r, label("softmax in place", dt, {rows, cols}), softmax, x, x, rows, cols,
                      dt);
                r.begin();
                y = r.positive(dt, rows * cols);
                uint64_t d = r.normal(dt, rows * cols), dx = r.result(dt, rows * cols);
                for (uint64_t i = 0; i < rows * cols; i++)
                    r.set(y, dt, i, r.get(y, dt, i) / (double)cols);
                CHECK(r, label("softmax_back", dt, {rows, cols}), softmax_back, y, d, dx, rows,
                      cols, dt);
            }
}

static void test_norms(Rig &r)
{
    const double eps = 1e-5;
    for (uint64_t dt : FLOATS)
        for (uint64_t rows : {1, 5, 259})
            for (uint64_t cols : {1, 3, 7, 64, 255, 257, 2048, 4099, 6152}) {
                uint64_t n = rows * cols;
                uint64_t skew = cols == 64 && rows == 5; /* out of line once */
                r.begin();
                uint64_t x = r.normal(dt, n, 1, skew), w = r.normal(dt, cols),
                         b = r.normal(dt, cols), y = r.result(dt, n);
                CHECK(r, label("rmsnorm", dt, {rows, cols}), rmsnorm, x, w, y, rows, cols, dt, eps);
                if (cols > 1) /* of one column the variance is 0, the rest is rounding */
                    CHECK(r, label("layernorm", dt, {rows, cols}), layernorm, x, w, b, y, rows,
                          cols, dt, eps);
                r.begin();
                x = r.normal(dt, n, 1, skew), w = r.normal(dt, cols);
                uint64_t d = r.normal(dt, n), dx = r.result(dt, n);
                r.scale = cols > 1 ? 1 : 16; /* of one column, terms of dy w / |x| cancel */
                CHECK(r, label("rmsnorm_dx", dt, {rows, cols}), rmsnorm_dx, x, w, d, NONE, dx, rows,
                      cols, dt, eps);
                if (cols > 3)
                    CHECK(r, label("layernorm_dx", dt, {rows, cols}), layernorm_dx, x, w, d, NONE,
                          dx, rows, cols, dt, eps);
                for (uint64_t in_place : {0, 1}) {
                    r.begin();
                    x = r.normal(dt, n, 1, skew), w = r.normal(dt, cols), d = r.normal(dt, n);
                    uint64_t plus = r.normal(dt, n, 1, skew), sum = plus;
                    if (in_place)
                        r.changes(plus, dt, n);
                    else
                        sum = r.result(dt, n);
                    r.scale = cols > 1 ? 1 : 16; /* of one column, terms of dy w / |x| cancel */
                    CHECK(r, label("rmsnorm_dx plus", dt, {rows, cols, in_place}), rmsnorm_dx, x, w,
                          d, plus, sum, rows, cols, dt, eps);
                    if (cols > 3)
                        CHECK(r, label("layernorm_dx plus", dt, {rows, cols, in_place}),
                              layernorm_dx, x, w, d, plus, sum, rows, cols, dt, eps);
                }
                for (uint64_t wire : {dt, (uint64_t)FG_RT_F32})
                    for (uint64_t accumulate : {0, 1}) {
                        r.begin();
                        x = r.normal(dt, n, 1, skew), d = r.normal(dt, n);
                        uint64_t dw = r.normal(wire, cols);
                        r.changes(dw, wire, cols);
                        r.scale = sqrt((double)rows);
                        CHECK(r, label("rmsnorm_dw", dt, {rows, cols, wire, accumulate}),
                              rmsnorm_dw, x, d, dw, rows, cols, dt, wire, accumulate, eps);
                        if (cols > 1)
                            CHECK(r, label("layernorm_dw", dt, {rows, cols, wire, accumulate}),
                                  layernorm_dw, x, d, dw, rows, cols, dt, wire, accumulate, eps);
                    }
            }
}

/* Both gradients in one call, and what they differ by from those of a call each: nothing. */
#define BACK(side, name)                                                                           \
    [=](FgRtCx *cx, auto... stream) {                                                              \
        side##_##name##_back(cx, stream..., x, w, d, plus, dx, dw, rows, cols, dt, wire,           \
                             accumulate, 1e-5);                                                    \
        side##_##name##_dx(cx, stream..., x, w, d, plus, dx_alone, rows, cols, dt, 1e-5);          \
        side##_##name##_dw(cx, stream..., x, d, dw_alone, rows, cols, dt, wire, accumulate, 1e-5); \
        side##_binary(cx, stream..., FG_RT_SUB, dx, dx_alone, dx_alone, n, n, n, NONE, dt);        \
        side##_binary(cx, stream..., FG_RT_SUB, dw, dw_alone, dw_alone, cols, cols, cols, NONE,    \
                      wire);                                                                       \
    }

static void norms_back(Rig &r, uint64_t dt, uint64_t wire, uint64_t rows, uint64_t cols,
                       uint64_t accumulate, bool adds, uint64_t skew)
{
    for (bool centred : {false, true}) {
        uint64_t n = rows * cols;
        r.begin();
        uint64_t x = r.normal(dt, n, 1, skew), w = r.normal(dt, cols), d = r.normal(dt, n);
        uint64_t plus = adds ? r.normal(dt, n) : NONE, dx = r.result(dt, n);
        uint64_t dw = r.normal(wire, cols), dw_alone = r.normal(wire, cols);
        for (uint64_t i = 0; i < cols; i++)
            r.set(dw_alone, wire, i, r.get(dw, wire, i));
        uint64_t dx_alone = r.result(dt, n, SAME);
        r.changes(dw, wire, cols);
        r.changes(dw_alone, wire, cols, SAME);
        r.scale = sqrt((double)rows);
        std::string sizes = label("_back", dt, {wire, rows, cols, accumulate, adds, skew});
        if (centred)
            r.check("layernorm" + sizes, BACK(fg_host, layernorm), BACK(fg_cuda, layernorm));
        else
            r.check("rmsnorm" + sizes, BACK(fg_host, rmsnorm), BACK(fg_cuda, rmsnorm));
    }
}

/* Shapes of rows that a block holds, in one piece a thread or two, with threads to spare, in
 * several groups a block and an odd one last; and of rows that it does not. */
static void test_norms_back(Rig &r)
{
    static const struct {
        uint64_t rows, cols;
    } shapes[] = {{1, 256},  {5, 264},  {259, 2048}, {1101, 2048}, {7, 2056},
                  {3, 4096}, {6, 4104}, {301, 8192}, {5, 16384},   {5, 257}};
    for (uint64_t dt : FLOATS)
        for (const auto &s : shapes)
            for (uint64_t accumulate : {0, 1})
                norms_back(r, dt, accumulate ? (uint64_t)FG_RT_F32 : dt, s.rows, s.cols, accumulate,
                           accumulate == 0 || s.rows == 5, s.rows == 6);
    for (bool centred : {false, true}) { /* in the memory of what is added */
        const uint64_t rows = 601, cols = 2048, n = rows * cols, dt = FG_RT_BF16;
        r.begin();
        uint64_t x = r.normal(dt, n), w = r.normal(dt, cols), d = r.normal(dt, n);
        uint64_t plus = r.normal(dt, n), dw = r.result(dt, cols);
        r.changes(plus, dt, n);
        r.scale = sqrt((double)rows);
        if (centred)
            CHECK(r, "layernorm_back in place", layernorm_back, x, w, d, plus, plus, dw, rows, cols,
                  dt, dt, (uint64_t)0, 1e-5);
        else
            CHECK(r, "rmsnorm_back in place", rmsnorm_back, x, w, d, plus, plus, dw, rows, cols, dt,
                  dt, (uint64_t)0, 1e-5);
    }
}

static void test_rope(Rig &r)
{
    for (double factor : {0.0, 32.0}) {
        r.begin();
        uint64_t table = r.result(FG_RT_F32, 2 * 99 * 32);
        CHECK(r, "rope_table", rope_table, table, (uint64_t)99, (uint64_t)32, 500000.0, factor, 1.0,
              4.0, 8192.0);
    }
    /* Whole and partial rotations; one head and more than a block takes; sequences that do not fill
     * their last block; pairs that fill more than a block, whole and as single elements. */
    static const struct {
        uint64_t batch, seq, heads, dim, half;
    } cases[] = {{1, 1, 1, 2, 1},       {2, 5, 3, 64, 32},    {2, 7, 4, 80, 16},  {3, 3, 2, 10, 3},
                 {3, 41, 9, 64, 32},    {2, 130, 1, 128, 64}, {2, 3, 300, 16, 8}, {1, 2, 700, 9, 4},
                 {1, 2, 2, 4352, 2080}, {1, 2, 3, 1050, 523}, {9, 500, 8, 24, 8}};
    for (uint64_t dt : FLOATS)
        for (const auto &c : cases)
            for (uint64_t inverse : {0, 1}) {
                uint64_t n = c.batch * c.seq * c.heads * c.dim;
                uint64_t skew = c.heads == 9 && inverse; /* out of line once */
                r.begin();
                uint64_t x = r.normal(dt, n, 1, skew);
                uint64_t table = r.normal(FG_RT_F32, 2 * c.seq * c.half);
                uint64_t y = r.result(dt, n);
                CHECK(r, label("rope", dt, {c.seq, c.heads, c.dim}), rope, x, table, y, c.batch,
                      c.seq, c.heads, c.dim, c.half, inverse, dt);
                r.begin();
                x = r.normal(dt, n), table = r.normal(FG_RT_F32, 2 * c.seq * c.half);
                r.changes(x, dt, n);
                CHECK(r, label("rope in place", dt, {c.seq, c.heads, c.dim}), rope, x, table, x,
                      c.batch, c.seq, c.heads, c.dim, c.half, inverse, dt);
            }
}

int main()
{
    Rig r((uint64_t)96 << 20, (uint64_t)8 << 20, true);
    static const struct {
        const char *name;
        void (*run)(Rig &);
    } tests[] = {{"unary", test_unary},
                 {"gated", test_gated},
                 {"turns", test_turns},
                 {"binary", test_binary},
                 {"storage", test_storage},
                 {"shapes", test_shapes},
                 {"sums", test_sums},
                 {"softmax", test_softmax},
                 {"norms", test_norms},
                 {"norms_back", test_norms_back},
                 {"rope", test_rope},
                 {"loss", test_loss},
                 {"lookup", test_lookup},
                 {"lookup_rows", test_lookup_rows},
                 {"row_set", test_row_set},
                 {"vocab", test_vocab},
                 {"vocab_loss", test_vocab_loss},
                 {"linear", test_linear},
                 {"matmul", test_matmul},
                 {"choice", test_choice},
                 {"update", test_update}};
    for (const auto &test : tests) {
        int passed = r.passed, failed = r.failed;
        test.run(r);
        printf("%s: %d passed, %d failed\n", test.name, r.passed - passed, r.failed - failed);
        fflush(stdout);
    }
    printf("%d passed, %d failed\n", r.passed, r.failed);
    return r.failed != 0;
}
