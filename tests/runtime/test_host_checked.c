/* Checked mode: one plan that is right, and for each fault a plan that is wrong in that way alone.
 */
#include "runtime/host/effects.h"
#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

/* A is state, the rest arena. */
enum { A = 0, STATES = 256, B = 256, C = 512, D = 768, END = 1024, N = 64, BYTES = 4 * N };

static const FgRtNode NODES[] = {{.name = "first"}, {.name = "second"}, {.name = "third"}};

static Rig open_arena(void)
{
    FgRtProgram program = {.abi = FG_RT_ABI,
                           .ranks = 1,
                           .state_bytes = STATES,
                           .arena_bytes = END - STATES,
                           .nodes = NODES,
                           .n_nodes = 3,
                           .n_events = 2};
    return rig_open_program(&program, (FgRtOptions){.checked = 1});
}

static void copy(FgRtCx *cx, uint32_t node, FgRtStream stream, uint64_t from, uint64_t to)
{
    fg_rt_cast(cx, node, stream, from, to, N, FG_RT_F32, FG_RT_F32);
}

/* The body must fail with a text that holds each word; NULL: it must not fail. */
static void expect(FgRtBody *body, const char *word, const char *other, int *failures)
{
    Rig rig = open_arena();
    rig_run(&rig, body);
    rig_run(&rig, body); /* what one body leaves is there for the next */
    FgRtStatus status = fg_rt_status(rig.cx);
    if (!word) {
        rig_check_ok(&rig, "the plan", failures);
    } else if (status.ok || !strstr(status.text, word) || (other && !strstr(status.text, other))) {
        printf("expected '%s' and '%s', got '%s'\n", word, other ? other : "", status.text);
        ++*failures;
    }
    rig_close(&rig);
}

/* ---- order ---- */

static void ordered_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    fg_rt_record(cx, FG_COMPUTE, 0);
    fg_rt_wait(cx, FG_GATHER, 0);
    copy(cx, 1, FG_GATHER, B, C);
    fg_rt_record(cx, FG_GATHER, 1);
    fg_rt_wait(cx, FG_REDUCE, 1); /* through the gather stream it follows the compute stream too */
    copy(cx, 2, FG_REDUCE, C, B);
    fg_rt_release(cx, 2, FG_REDUCE, C, BYTES);
}

static void a_right_plan_passes(int *failures)
{
    expect(ordered_body, NULL, NULL, failures);
}

static void unordered_read_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    copy(cx, 1, FG_GATHER, B, C);
}

static void early_record_body(FgRtCx *cx)
{
    fg_rt_record(cx, FG_COMPUTE, 0); /* before the write that it should cover */
    copy(cx, 0, FG_COMPUTE, A, B);
    fg_rt_wait(cx, FG_GATHER, 0);
    copy(cx, 1, FG_GATHER, B, C);
}

static void read_without_wait(int *failures)
{
    expect(unordered_read_body, "read without waiting for the write", "cast of node 0 (first)",
           failures);
    expect(early_record_body, "read without waiting for the write", "cast of node 1 (second)",
           failures);
}

static void unordered_write_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    copy(cx, 1, FG_GATHER, A, B);
}

static void overwrite_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    fg_rt_join(cx);
    copy(cx, 1, FG_COMPUTE, B, C);
    copy(cx, 2, FG_REDUCE, A, B); /* the reader of B may still run */
}

static void send_buffer_body(FgRtCx *cx)
{
    fg_rt_gather(cx, 0, FG_GATHER, A, B, BYTES);
    fg_rt_fill(cx, 1, FG_COMPUTE, A, N, FG_RT_F32, 0); /* a peer may still read it */
}

static void write_without_wait(int *failures)
{
    expect(send_buffer_body, "write without waiting for an earlier read",
           "gather of node 0 (first)", failures);
    expect(unordered_write_body, "write without waiting for an earlier write", "node 0 (first)",
           failures);
    expect(overwrite_body, "write without waiting for an earlier read", "node 1 (second)",
           failures);
}

static void reads_together_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    copy(cx, 1, FG_GATHER, A, C);
    copy(cx, 2, FG_REDUCE, A, D);
}

static void reads_need_no_order(int *failures)
{
    expect(reads_together_body, NULL, NULL, failures);
}

static void unrecorded_body(FgRtCx *cx)
{
    fg_rt_wait(cx, FG_GATHER, 1);
}

static void no_event_body(FgRtCx *cx)
{
    fg_rt_record(cx, FG_GATHER, 2);
}

static void events(int *failures)
{
    expect(unrecorded_body, "event 1 is waited for before it is recorded", NULL, failures);
    expect(no_event_body, "does not exist", NULL, failures);
}

static void two_streams_body(FgRtCx *cx)
{
    fg_rt_gather(cx, 0, FG_GATHER, A, B, BYTES);
    fg_rt_gather(cx, 1, FG_COMPUTE, A, C, BYTES);
}

static void communicators_serialise(int *failures)
{
    expect(two_streams_body, "two unordered collectives", "gather of node 0 (first)", failures);
}

/* ---- contents ---- */

static void unwritten_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, B, C);
}

static void partly_written_body(FgRtCx *cx)
{
    fg_rt_fill(cx, 0, FG_COMPUTE, B, N - 1, FG_RT_F32, 0);
    copy(cx, 1, FG_COMPUTE, B, C);
}

static void read_of_unwritten(int *failures)
{
    expect(unwritten_body, "never written at byte 256", "node 0 (first)", failures);
    expect(partly_written_body, "never written at byte 508", "node 1 (second)", failures);
}

static void released_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    fg_rt_release(cx, 1, FG_COMPUTE, B, BYTES);
    copy(cx, 2, FG_COMPUTE, B, C);
}

static void twice_released_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    fg_rt_release(cx, 1, FG_COMPUTE, B, BYTES);
    fg_rt_release(cx, 2, FG_COMPUTE, B, BYTES);
}

static void read_after_release(int *failures)
{
    expect(released_body, "read after release", "release of node 1 (second)", failures);
    expect(twice_released_body, "released twice", "node 1 (second)", failures);
    Rig rig = open_arena();
    rig_run(&rig, ordered_body);
    float released;
    memcpy(&released, fg_rt_memory(rig.cx, C), sizeof released);
    CHECK(isnan(released));
    rig_close(&rig);
}

static void torn_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    copy(cx, 1, FG_COMPUTE, A, B + 64); /* the plan gave both the same place */
    copy(cx, 2, FG_COMPUTE, B, D);
}

static void parts_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B); /* one value, then parts of it, read whole and in part */
    fg_rt_fill(cx, 1, FG_COMPUTE, B + 32, 8, FG_RT_F32, 2);
    copy(cx, 2, FG_COMPUTE, B, C);
    fg_rt_cast(cx, 2, FG_COMPUTE, C + 64, D, 8, FG_RT_F32, FG_RT_F32);
}

static void read_of_overwritten(int *failures)
{
    expect(torn_body, "partly overwritten", "node 1 (second)", failures);
    expect(parts_body, NULL, NULL, failures);
}

static void workspace_body(FgRtCx *cx)
{
    fg_rt_linear(cx, 0, FG_COMPUTE, A, A, FG_RT_NONE, FG_RT_NONE, C, 4, 4, 4, 0, FG_RT_F32, B,
                 BYTES);
    copy(cx, 1, FG_COMPUTE, B, D);
}

static void read_of_workspace(int *failures)
{
    expect(workspace_body, "used workspace", "linear of node 0 (first)", failures);
}

/* ---- single calls ---- */

static void outside_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, END - BYTES + 4);
}

static void huge_body(FgRtCx *cx)
{
    fg_rt_fill(cx, 0, FG_COMPUTE, A, (uint64_t)1 << 62, FG_RT_F32, 0);
}

static void ranges(int *failures)
{
    expect(outside_body, "access outside the memory", NULL, failures);
    expect(huge_body, "make no sense", NULL, failures); /* 2^64 bytes */
}

static void overlap_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, A);
}

static void partial_overlap_body(FgRtCx *cx)
{
    fg_rt_unary(cx, 0, FG_COMPUTE, FG_RT_NEG, A, A + 4, N, FG_RT_F32, 0);
}

static void in_place_body(FgRtCx *cx)
{
    fg_rt_unary(cx, 0, FG_COMPUTE, FG_RT_NEG, A, A, N, FG_RT_F32, 0);
    fg_rt_binary(cx, 1, FG_COMPUTE, FG_RT_MUL, A, A, A, N, N, N, FG_RT_NONE, FG_RT_F32);
}

static void results_and_operands(int *failures)
{
    expect(overlap_body, "overlaps another operand", NULL, failures);
    expect(partial_overlap_body, "overlaps another operand", NULL, failures);
    expect(in_place_body, NULL, NULL, failures);
}

/* A call that writes where it does not say: a gather whose peer wrote outside (played by a body of
 * ours). */
static void undeclared_body(FgRtCx *cx)
{
    copy(cx, 0, FG_COMPUTE, A, B);
    *(float *)fg_rt_memory(cx, D + 8) = 1;
    copy(cx, 1, FG_COMPUTE, A, C);
}

static void undeclared_write(int *failures)
{
    expect(undeclared_body, "write outside the declared effects at byte 776", "node 1 (second)",
           failures);
}

/* ---- the effects language ---- */

static void effects_case(const char *text, const uint64_t *args, int32_t count, uint64_t bytes,
                         int *failures)
{
    FgCallInfo info = {"call", text, "(x, n, dt, flag)"};
    FgCall call = {&info, 0, FG_COMPUTE, args, 4};
    FgEffect effects[8];
    const char *bad;
    const FgRtProgram program = {.ranks = 3};
    int32_t n = fg_effects_read(&call, &program, 1, effects, &bad);
    if (n != count || (n > 0 && effects[n - 1].bytes != bytes)) {
        printf("'%s': %d effects, the last of %llu bytes\n", text, n,
               n > 0 ? (unsigned long long)effects[n - 1].bytes : 0);
        ++*failures;
    }
}

static void effects_language(int *failures)
{
    const uint64_t args[] = {64, 10, FG_RT_BF16, 0}, absent[] = {FG_RT_NONE, 10, FG_RT_F32, 1};
    effects_case("read(x, n*size(dt))", args, 1, 20, failures);
    effects_case("read(x, n) write(x, 2*(n + 3)*ranks/2)", args, 2, 39, failures);
    effects_case("read(x, n*rank)", args, 1, 10, failures);
    effects_case("read(x, n)", absent, 0, 0, failures);
    effects_case("comm(gather)", args, 1, 0, failures);
    effects_case("read(y, n)", args, -1, 0, failures);
    effects_case("read(x, n", args, -1, 0, failures);
    effects_case("read(x, n/flag)", args, -1, 0, failures);
    effects_case("peek(x, n)", args, -1, 0, failures);
    effects_case("read(x, n n)", args, -1, 0, failures);
    effects_case("read(x, 4000000000*4000000000*4000000000)", args, -1, 0, failures);
}

static void fresh_follows_its_flag(int *failures)
{
    for (uint64_t flag = 0; flag < 2; flag++) {
        const uint64_t args[] = {64, 10, FG_RT_F32, flag};
        FgCallInfo info = {"call", "fresh(x, n, flag)", "(x, n, dt, flag)"};
        FgCall call = {&info, 0, FG_COMPUTE, args, 4};
        FgEffect effect;
        const char *bad;
        const FgRtProgram program = {.ranks = 1};
        CHECK(fg_effects_read(&call, &program, 0, &effect, &bad) == 1);
        CHECK(effect.kind == (flag ? FG_EFFECT_UPDATE : FG_EFFECT_WRITE));
    }
}

/* Every row of the table has effects that can be read, and names what it writes. */
static void all_effects_are_well_formed(int *failures)
{
    static const FgCallInfo rows[] = {
#define FG_RT_CALL(name, effects, params, args) {#name, effects, #args},
#define FG_RT_CALL_F(name, effects, params, args, fparams, fargs) {#name, effects, #args},
#include "runtime/fg_rt_calls.def"
#undef FG_RT_CALL
#undef FG_RT_CALL_F
    };
    const FgRtOperand operands[] = {{0}, {.written = 1, .elements = 1}};
    const FgRtProgram program = {.ranks = 1, .operands = operands, .n_operands = 2};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t n_args = 1;
        for (const char *at = rows[i].args; *at; at++)
            n_args += *at == ',';
        uint64_t args[32];
        CHECK(n_args <= 32);
        for (int j = 0; j < 32; j++)
            args[j] = 1; /* sizes of one, bf16, flags set */
        FgCall call = {&rows[i], 0, FG_COMPUTE, args, n_args};
        FgEffect effects[32];
        const char *bad;
        CHECK(fg_effects_count(rows[i].effects) <= 32);
        int32_t n = fg_effects_read(&call, &program, 0, effects, &bad);
        int writes = 0;
        for (int32_t j = 0; j < n; j++)
            writes += effects[j].kind == FG_EFFECT_WRITE || effects[j].kind == FG_EFFECT_UPDATE;
        if (writes == 0) {
            printf("%s: %s\n", rows[i].name, n < 0 ? bad : "writes nothing");
            ++*failures;
        }
    }
}

UNIT_MAIN({"a_right_plan_passes", a_right_plan_passes}, {"read_without_wait", read_without_wait},
          {"write_without_wait", write_without_wait}, {"reads_need_no_order", reads_need_no_order},
          {"events", events}, {"communicators_serialise", communicators_serialise},
          {"read_of_unwritten", read_of_unwritten}, {"read_after_release", read_after_release},
          {"read_of_overwritten", read_of_overwritten}, {"read_of_workspace", read_of_workspace},
          {"ranges", ranges}, {"results_and_operands", results_and_operands},
          {"undeclared_write", undeclared_write}, {"effects_language", effects_language},
          {"fresh_follows_its_flag", fresh_follows_its_flag},
          {"all_effects_are_well_formed", all_effects_are_well_formed})
