/* Custom functions on the host: what they are handed, and that checked mode catches one that does
 * not keep to what its node declares, in memories small enough for a copy and in larger ones. */
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

/* Two operands of N floats, then the result, then a neighbour; of the arena. */
enum { N = 64, BYTES = 4 * N, STATES = 256, X = STATES, G = X + BYTES, Y = G + BYTES };
enum { SMALL = 4096, LARGE = 16 << 20 };

typedef enum Fault { GOOD, OVERRUN, SPOILS_OPERAND, LEAVES_OUT, N_FAULTS } Fault;
static Fault fault; /* of the function that is called: the ABI hands it nothing else */

static void custom_product(const float *x, const float *g, float *y, const FgCustom *call)
{
    int64_t n = fg_custom_elements(call, 2);
    for (int64_t i = 0; i < n; i++)
        if (fault != LEAVES_OUT || i != n / 2)
            y[i] = x[i] * g[i];
    if (fault == OVERRUN)
        y[n] = 1;
    if (fault == SPOILS_OPERAND)
        ((float *)(uintptr_t)x)[3] = 7;
}

static void call_custom_product(const FgCustom *call)
{
    custom_product(fg_custom_in(call, 0), fg_custom_in(call, 1), fg_custom_out(call, 2), call);
}

static const FgRtCustom customs[] = {{"custom_product", call_custom_product, 2, 1}};
static const int64_t dims[] = {4, 16};
static const FgRtNode nodes[] = {{.name = "product"}};
static const FgRtOperand operands[] = {
    {FG_RT_F32, 0, X, N, 0, 2},
    {FG_RT_F32, 0, G, N, 0, 2},
    {FG_RT_F32, 1, Y, N, 0, 2},
    {FG_RT_F32, 1, UINT64_MAX - 8, N, 0, 2}, /* outside */
};

static Rig open_memory(uint64_t bytes, bool checked)
{
    FgRtProgram program = {.abi = FG_RT_ABI,
                           .ranks = 1,
                           .state_bytes = STATES,
                           .arena_bytes = bytes - STATES,
                           .nodes = nodes,
                           .n_nodes = 1,
                           .dims = dims,
                           .customs = customs,
                           .operands = operands,
                           .n_customs = 1,
                           .n_operands = 4};
    return rig_open_program(&program, (FgRtOptions){.checked = checked});
}

static void product_body(FgRtCx *cx)
{
    fg_rt_fill(cx, 0, FG_COMPUTE, X, N, FG_RT_F32, 3);
    fg_rt_fill(cx, 0, FG_COMPUTE, G, N, FG_RT_F32, 5);
    fg_rt_custom(cx, 0, FG_COMPUTE, 0, 0, 3);
}

static void gets_its_operands(int *failures)
{
    for (int checked = 0; checked < 2; checked++) {
        Rig rig = open_memory(SMALL, checked);
        fault = GOOD;
        rig_run(&rig, product_body);
        rig_check_ok(&rig, "the product", failures);
        float y[N];
        fg_rt_read(rig.cx, Y, y, sizeof y);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(y[i], 15, 0);
        rig_close(&rig);
    }
}

static void faults_are_caught(int *failures)
{
    static const char *const says[N_FAULTS] = {
        [OVERRUN] = "write outside the declared effects",
        [SPOILS_OPERAND] = "write outside the declared effects",
        [LEAVES_OUT] = "a declared result was not written",
    };
    const uint64_t sizes[] = {SMALL, LARGE};
    for (int s = 0; s < 2; s++) {
        for (Fault f = GOOD; f < N_FAULTS; f++) {
            Rig rig = open_memory(sizes[s], true);
            fault = f;
            rig_run(&rig, product_body);
            FgRtStatus status = fg_rt_status(rig.cx);
            CHECK(status.ok == (f == GOOD));
            CHECK(f == GOOD || strstr(status.text, says[f]));
            if (f != GOOD && !strstr(status.text, says[f]))
                printf("expected '%s', got '%s'\n", says[f], status.text);
            rig_close(&rig);
        }
    }
    fault = GOOD;
}

/* ---- tables that contradict themselves: of programs that were never proved ---- */

static void no_function(FgRtCx *cx)
{
    fg_rt_custom(cx, 0, FG_COMPUTE, 1, 0, 3);
}

static void no_rows(FgRtCx *cx)
{
    fg_rt_custom(cx, 0, FG_COMPUTE, 0, 3, 2);
}

static void too_few(FgRtCx *cx)
{
    fg_rt_custom(cx, 0, FG_COMPUTE, 0, 0, 2);
}

static void outside(FgRtCx *cx)
{
    fg_rt_custom(cx, 0, FG_COMPUTE, 0, 1, 3);
}

static void bad_tables_are_refused(int *failures)
{
    static const struct {
        FgRtBody *body;
        const char *says;
    } cases[] = {{no_function, "none of the program's tables"},
                 {no_rows, "none of the program's tables"},
                 {too_few, "does not take so many operands"},
                 {outside, "lies outside the memory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Rig rig = open_memory(SMALL, false);
        rig_run(&rig, cases[i].body);
        FgRtStatus status = fg_rt_status(rig.cx);
        CHECK(!status.ok && strstr(status.text, cases[i].says));
        CHECK_STR(status.call, "custom");
        rig_close(&rig);
    }
}

static void reads_without_order_are_caught(int *failures)
{
    Rig rig = open_memory(SMALL, true);
    rig_run(&rig, too_few); /* reads X and G, which nothing wrote */
    FgRtStatus status = fg_rt_status(rig.cx);
    CHECK(!status.ok && strstr(status.text, "read of memory that was never written"));
    rig_close(&rig);
}

/* ---- what users compute with ---- */

static void shapes_and_conversions(int *failures)
{
    const FgCustom call = {.operands = operands, .n_operands = 4, .dims = dims};
    CHECK_EQ_U64(fg_custom_rank(&call, 0), 2);
    CHECK(fg_custom_dim(&call, 0, 0) == 4 && fg_custom_dim(&call, 0, 1) == 16);
    CHECK(fg_custom_dim(&call, 0, -1) == 16 && fg_custom_dim(&call, 0, -2) == 4);
    CHECK_NEAR(fg_from_bf16(fg_to_bf16(1.00390625f)), 1, 0); /* half way: to even */
    CHECK_NEAR(fg_from_bf16(fg_to_bf16(1.01171875f)), 1.015625, 0);
    CHECK_NEAR(fg_from_f16(fg_to_f16(65504)), 65504, 0);
    CHECK_NEAR(fg_from_f16(fg_to_f16(0x1p-24f)), 0x1p-24, 0);
}

UNIT_MAIN({"gets_its_operands", gets_its_operands}, {"faults_are_caught", faults_are_caught},
          {"bad_tables_are_refused", bad_tables_are_refused},
          {"reads_without_order_are_caught", reads_without_order_are_caught},
          {"shapes_and_conversions", shapes_and_conversions})
