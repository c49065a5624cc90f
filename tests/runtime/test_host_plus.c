/* The operand `plus` of products and norms' gradients: in f32 the bits of the call without it and
 * of an addition after it; in bf16 the sum rounded once; the same bits where the result lies in its
 * memory. */
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

typedef enum Kind { LINEAR, BIASED, LINEAR_DX, RMSNORM_DX, LAYERNORM_DX, N_KINDS } Kind;
static const char *const NAMES[N_KINDS + 1] = {"linear",     "linear with bias", "linear_dx",
                                               "rmsnorm_dx", "layernorm_dx",     ""};

/* Rows and columns of the result, and terms of a product's sums. */
typedef struct Size {
    uint64_t m, n, k;
} Size;

typedef struct Operands {
    Kind kind;
    Size size;
    uint64_t layout, dt, a, w, b;
} Operands;

static void call(Rig *rig, const Operands *o, uint64_t plus, uint64_t y)
{
    Size s = o->size;
    FgRtCx *cx = rig->cx;
    switch (o->kind) {
    case LINEAR:
    case BIASED:
        fg_rt_linear(cx, 0, FG_COMPUTE, o->a, o->w, o->kind == BIASED ? o->b : FG_RT_NONE, plus, y,
                     s.m, s.n, s.k, o->layout, o->dt, rig->ws, RIG_WORKSPACE);
        break;
    case LINEAR_DX:
        fg_rt_linear_dx(cx, 0, FG_COMPUTE, o->a, o->w, plus, y, s.m, s.k, s.n, o->layout, o->dt,
                        rig->ws, RIG_WORKSPACE);
        break;
    case RMSNORM_DX:
        fg_rt_rmsnorm_dx(cx, 0, FG_COMPUTE, o->a, o->w, o->b, plus, y, s.m, s.n, o->dt, 1e-5);
        break;
    case LAYERNORM_DX:
        fg_rt_layernorm_dx(cx, 0, FG_COMPUTE, o->a, o->w, o->b, plus, y, s.m, s.n, o->dt, 1e-5);
        break;
    case N_KINDS:
    default:
        break;
    }
}

static Operands operands(Rig *rig, Kind kind, Size s, uint64_t layout, uint64_t dt)
{
    bool norm = kind >= RMSNORM_DX;
    uint64_t a = rig_values(rig, dt, norm ? s.m * s.n : s.m * s.k, 1).at;
    uint64_t w = rig_values(rig, dt, norm ? s.n : s.n * s.k, 1).at;
    uint64_t b = rig_values(rig, dt, norm ? s.m * s.n : s.n, 1).at;
    return (Operands){kind, s, layout, dt, a, w, b};
}

static bool same(Rig *rig, const Array *a, const Array *b)
{
    return memcmp(fg_rt_memory(rig->cx, a->at), fg_rt_memory(rig->cx, b->at), a->n * 4) == 0;
}

static void is_an_addition(Kind kind, Size s, uint64_t layout, int *failures)
{
    Rig rig = rig_open(3 << 20);
    uint64_t n = s.m * s.n, f32 = FG_RT_F32;
    Operands o = operands(&rig, kind, s, layout, f32);
    Array plus = rig_values(&rig, f32, n, 3), old = rig_result(&rig, f32, n);
    Array apart = rig_result(&rig, f32, n), sum = rig_result(&rig, f32, n);
    memcpy(fg_rt_memory(rig.cx, old.at), fg_rt_memory(rig.cx, plus.at), n * 4);
    rig_begin(&rig);
    call(&rig, &o, FG_RT_NONE, sum.at);
    fg_rt_binary(rig.cx, 0, FG_COMPUTE, FG_RT_ADD, plus.at, sum.at, sum.at, n, n, n, FG_RT_NONE,
                 f32);
    call(&rig, &o, plus.at, apart.at);
    call(&rig, &o, old.at, old.at);
    rig_check_ok(&rig, NAMES[kind], failures);
    bool good = same(&rig, &apart, &sum) && same(&rig, &old, &sum);
    if (!good)
        printf("%s %d x %d x %d\n", NAMES[kind], (int)s.m, (int)s.n, (int)s.k);
    CHECK(good);
    rig_close(&rig);
}

/* bf16 operands and their exact copies in f32: the f32 result, rounded, within the order of sums.
 */
static void rounds_once(Kind kind, Size s, uint64_t layout, int *failures)
{
    Rig rig = rig_open(3 << 20);
    uint64_t n = s.m * s.n, bf16 = FG_RT_BF16, f32 = FG_RT_F32;
    Operands o = operands(&rig, kind, s, layout, bf16), wide = o;
    uint64_t sizes[] = {kind >= RMSNORM_DX ? n : s.m * s.k, kind >= RMSNORM_DX ? s.n : s.n * s.k,
                        kind >= RMSNORM_DX ? n : s.n};
    wide.dt = f32;
    wide.a = rig_result(&rig, f32, sizes[0]).at;
    wide.w = rig_result(&rig, f32, sizes[1]).at;
    wide.b = rig_result(&rig, f32, sizes[2]).at;
    Array plus = rig_values(&rig, bf16, n, 3), y = rig_result(&rig, bf16, n);
    Array more = rig_result(&rig, f32, n), exact = rig_result(&rig, f32, n);
    rig_begin(&rig);
    fg_rt_cast(rig.cx, 0, FG_COMPUTE, o.a, wide.a, sizes[0], bf16, f32);
    fg_rt_cast(rig.cx, 0, FG_COMPUTE, o.w, wide.w, sizes[1], bf16, f32);
    fg_rt_cast(rig.cx, 0, FG_COMPUTE, o.b, wide.b, sizes[2], bf16, f32);
    fg_rt_cast(rig.cx, 0, FG_COMPUTE, plus.at, more.at, n, bf16, f32);
    call(&rig, &wide, more.at, exact.at);
    call(&rig, &o, plus.at, y.at);
    call(&rig, &o, plus.at, plus.at);
    for (uint64_t i = 0; i < n; i++)
        y.v[i] = plus.v[i] = rig_get(&rig, &exact, i);
    rig_check(&rig, &y, RIG_TOLERANCE, NAMES[kind], failures);
    rig_check(&rig, &plus, RIG_TOLERANCE, NAMES[kind], failures);
    rig_close(&rig);
}

static void every_size(void (*one)(Kind, Size, uint64_t, int *), int *failures)
{
    static const Size sizes[] = {{1, 1, 1}, {5, 7, 3}, {3, 600, 40}, {530, 9, 30}, {4, 6, 1100}};
    for (int kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (uint64_t layout = 0; layout < (kind < RMSNORM_DX ? 2u : 1u); layout++)
                one((Kind)kind, sizes[i], layout, failures);
}

static void f32_is_an_addition(int *failures)
{
    every_size(is_an_addition, failures);
}

static void bf16_rounds_once(int *failures)
{
    every_size(rounds_once, failures);
}

static void of_nothing(int *failures)
{
    is_an_addition(BIASED, (Size){3, 5, 0}, 0, failures);
}

static void tiles_need_the_workspace(int *failures)
{
    Rig rig = rig_open(1 << 16);
    Array x = rig_values(&rig, FG_RT_F32, 64, 1), y = rig_result(&rig, FG_RT_F32, 64);
    rig_begin(&rig);
    fg_rt_linear(rig.cx, 0, FG_COMPUTE, x.at, x.at, FG_RT_NONE, x.at, y.at, 8, 8, 8, 0, FG_RT_F32,
                 rig.ws, 64);
    CHECK(strstr(fg_rt_status(rig.cx).text, "workspace has 64 bytes") != NULL);
    rig_close(&rig);
}

UNIT_MAIN({"f32_is_an_addition", f32_is_an_addition}, {"bf16_rounds_once", bf16_rounds_once},
          {"of_nothing", of_nothing}, {"tiles_need_the_workspace", tiles_need_the_workspace})
