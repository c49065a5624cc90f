/* Collectives among one, two and three ranks, and what becomes of a group when one of them fails:
 * everybody ends. */
#include <unistd.h>

#include "tests/runtime/rig.h"
#include "tests/unit/unit.h"

enum { OWN = 5, MOST_RANKS = 3, SHARD = 0, WHOLE = 1024, SUM = 2048, LIMBS = 3072, BYTES = 8192 };
enum { IDS = 4096, ALL_IDS = 5120, SCRATCH = 6144 };

static Rig open_ranks(uint32_t ranks, FgRtOptions options)
{
    alarm(60); /* a hang is a failure */
    FgRtProgram program = {.abi = FG_RT_ABI, .ranks = ranks, .state_bytes = BYTES};
    return rig_open_program(&program, options);
}

static float *floats(Rig *rig, uint32_t rank, uint64_t offset)
{
    return fg_rt_memory(fg_rt_group_rank(rig->group, rank), offset);
}

static uint32_t n_ranks(FgRtCx *cx)
{
    return fg_rt_program(cx)->ranks;
}

/* ---- results ---- */

static void gather_body(FgRtCx *cx)
{
    fg_rt_gather(cx, 0, FG_GATHER, SHARD, WHOLE, OWN * 4);
}

static void gather(int *failures)
{
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        Rig rig = open_ranks(ranks, (FgRtOptions){.checked = 1});
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t i = 0; i < OWN; i++)
                floats(&rig, rank, SHARD)[i] = (float)(100 * rank + i);
        rig_run(&rig, gather_body);
        rig_check_ok(&rig, "gather", failures);
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t i = 0; i < ranks * OWN; i++)
                CHECK(floats(&rig, rank, WHOLE)[i] == (float)(100 * (i / OWN) + i % OWN));
        rig_close(&rig);
    }
}

static void reduce_body(FgRtCx *cx)
{
    fg_rt_reduce_scatter(cx, 0, FG_REDUCE, WHOLE, SUM, OWN * n_ranks(cx), FG_RT_F32, FG_RT_F32, 0);
    fg_rt_reduce_scatter(cx, 1, FG_REDUCE, WHOLE, SUM, OWN * n_ranks(cx), FG_RT_F32, FG_RT_F32, 1);
}

/* In rank order and f32: 1 + 2^-24 + 2^-24 is 1, the other way round it is more. */
static void reduce_scatter_adds_in_rank_order(int *failures)
{
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        Rig rig = open_ranks(ranks, (FgRtOptions){.checked = 1});
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t i = 0; i < OWN * ranks; i++)
                floats(&rig, rank, WHOLE)[i] = i % 2 ? (float)(rank + 1) : rank ? 0x1p-24f : 1.0f;
        rig_run(&rig, reduce_body);
        rig_check_ok(&rig, "reduce_scatter", failures);
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t i = 0; i < OWN; i++) {
                float sum = (rank * OWN + i) % 2 ? (float)(ranks * (ranks + 1) / 2) : 1.0f;
                CHECK(floats(&rig, rank, SUM)[i] == 2 * sum);
            }
        rig_close(&rig);
    }
}

static void reduce_bf16_body(FgRtCx *cx)
{
    fg_rt_reduce_scatter(cx, 0, FG_REDUCE, WHOLE, SUM, 2 * n_ranks(cx), FG_RT_BF16, FG_RT_BF16, 0);
    fg_rt_reduce_scatter(cx, 1, FG_REDUCE, WHOLE, SUM + 64, 2 * n_ranks(cx), FG_RT_BF16, FG_RT_F32,
                         0);
}

/* 256 + 1 + 1 is 258 when it is rounded once; bf16 alone would stay at 256. */
static void reduce_scatter_rounds_once(int *failures)
{
    Rig rig = open_ranks(3, (FgRtOptions){.checked = 1});
    for (uint32_t rank = 0; rank < 3; rank++)
        for (uint32_t i = 0; i < 6; i++)
            ((uint16_t *)(void *)floats(&rig, rank, WHOLE))[i] = rank ? 0x3f80 : 0x4380;
    rig_run(&rig, reduce_bf16_body);
    rig_check_ok(&rig, "reduce_scatter", failures);
    for (uint32_t rank = 0; rank < 3; rank++) {
        CHECK_EQ_U64(((uint16_t *)(void *)floats(&rig, rank, SUM))[1], 0x4381);
        CHECK(floats(&rig, rank, SUM + 64)[1] == 258);
    }
    rig_close(&rig);
}

/* parts[r] is what rank r holds of the rank's slice. */
static void all_to_all_body(FgRtCx *cx)
{
    fg_rt_all_to_all(cx, 0, FG_REDUCE, WHOLE, SUM, OWN * n_ranks(cx), FG_RT_F32);
}

static void all_to_all(int *failures)
{
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        Rig rig = open_ranks(ranks, (FgRtOptions){.checked = 1});
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t i = 0; i < OWN * ranks; i++)
                floats(&rig, rank, WHOLE)[i] = (float)(100 * rank + i);
        rig_run(&rig, all_to_all_body);
        rig_check_ok(&rig, "all_to_all", failures);
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t i = 0; i < OWN * ranks; i++)
                CHECK(floats(&rig, rank, SUM)[i] ==
                      (float)(100 * (i / OWN) + rank * OWN + i % OWN));
        rig_close(&rig);
    }
}

/* ---- rows of lookups ---- */

enum { TOKENS = 4, HIDDEN = 3, VOCAB = 7, FIRST = 2, PADDING = 5 };

static uint64_t slice_of(uint32_t ranks)
{
    return (FIRST + VOCAB * HIDDEN + 2 + ranks - 1) / ranks; /* borders lie inside rows */
}

static uint64_t dtype_of(FgRtCx *cx)
{
    return fg_rt_program(cx)->clip > 0 ? FG_RT_BF16 : FG_RT_F32; /* any flag that bodies see */
}

static void lookup_body(FgRtCx *cx)
{
    uint64_t own = slice_of(n_ranks(cx)), tokens = (uint64_t)TOKENS * n_ranks(cx);
    fg_rt_exchange(cx, 0, FG_REDUCE, IDS, ALL_IDS, TOKENS * 4);
    fg_rt_exchange(cx, 1, FG_REDUCE, SHARD, WHOLE, TOKENS * HIDDEN * 4);
    for (uint32_t adds = 0; adds < 2; adds++)
        fg_rt_lookup_dw(cx, 2 + adds, FG_REDUCE, ALL_IDS, WHOLE, SUM, 0, tokens, HIDDEN, VOCAB,
                        FIRST, own, PADDING, FG_RT_F32, dtype_of(cx), adds, SCRATCH, 512);
}

static int32_t token_of(uint32_t rank, uint32_t t)
{
    return (int32_t)((3 * rank + 2 * t) % VOCAB);
}

/* What element i of the bucket gets, added in rank and token order: 1 + 2^-24 + 2^-24 is 1. */
static float row_sum(uint32_t ranks, uint64_t i)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (uint32_t t = 0; t < TOKENS; t++) {
            uint64_t at = FIRST + (uint64_t)token_of(rank, t) * HIDDEN;
            if (i >= at && i < at + HIDDEN && token_of(rank, t) != PADDING)
                sum += rank + t ? 0x1p-24f * (float)(1 + rank) : 1.0f + (float)(i - at);
        }
    return sum;
}

static void check_lookup(Rig *rig, uint32_t ranks, bool narrow, int *failures)
{
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (uint64_t i = 0, own = slice_of(ranks); i < own; i++) {
            double sum = row_sum(ranks, rank * own + i);
            if (narrow) {
                uint32_t bits = (uint32_t)((uint16_t *)(void *)floats(rig, rank, SUM))[i] << 16;
                float got;
                memcpy(&got, &bits, sizeof got);
                CHECK(got == rig_round(FG_RT_BF16, rig_round(FG_RT_BF16, sum) + sum));
            } else {
                CHECK(floats(rig, rank, SUM)[i] == rig_round(FG_RT_F32, sum + sum));
            }
        }
}

static void lookups_add_rows_to_slices(int *failures)
{
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int narrow = 0; narrow < 2; narrow++) {
            alarm(60);
            FgRtProgram program = {
                .abi = FG_RT_ABI, .ranks = ranks, .clip = narrow, .state_bytes = BYTES};
            Rig rig = rig_open_program(&program, (FgRtOptions){.checked = 1});
            for (uint32_t rank = 0; rank < ranks; rank++) {
                for (uint32_t i = 0; i < slice_of(ranks); i++)
                    floats(&rig, rank, SUM)[i] = 77; /* to be overwritten */
                for (uint32_t t = 0; t < TOKENS; t++) {
                    ((int32_t *)(void *)floats(&rig, rank, IDS))[t] = token_of(rank, t);
                    for (uint32_t c = 0; c < HIDDEN; c++)
                        floats(&rig, rank, SHARD)[t * HIDDEN + c] =
                            rank + t ? 0x1p-24f * (float)(1 + rank) : 1.0f + (float)c;
                }
            }
            rig_run(&rig, lookup_body);
            rig_check_ok(&rig, "lookup_dw", failures);
            check_lookup(&rig, ranks, narrow != 0, failures);
            rig_close(&rig);
        }
}

static void all_reduce_body(FgRtCx *cx)
{
    fg_rt_all_reduce(cx, 0, FG_REDUCE, LIMBS, OWN, FG_RT_I64);
    fg_rt_all_reduce(cx, 1, FG_REDUCE, SUM, 1, FG_RT_F64);
}

static void all_reduce(int *failures)
{
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        Rig rig = open_ranks(ranks, (FgRtOptions){.checked = 1});
        for (uint32_t rank = 0; rank < ranks; rank++) {
            for (int i = 0; i < OWN; i++)
                ((int64_t *)(void *)floats(&rig, rank, LIMBS))[i] = ((int64_t)1 << 40) * i + rank;
            *(double *)(void *)floats(&rig, rank, SUM) = 0.5 + rank;
        }
        rig_run(&rig, all_reduce_body);
        rig_check_ok(&rig, "all_reduce", failures);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            int64_t rest = ranks * (ranks - 1) / 2;
            for (int i = 0; i < OWN; i++)
                CHECK(((int64_t *)(void *)floats(&rig, rank, LIMBS))[i] ==
                      ((int64_t)ranks << 40) * i + rest);
            CHECK(*(double *)(void *)floats(&rig, rank, SUM) == 0.5 * ranks + (double)rest);
        }
        rig_close(&rig);
    }
}

static void all_reduce_f32_body(FgRtCx *cx)
{
    fg_rt_all_reduce(cx, 0, FG_REDUCE, SUM, 1, FG_RT_F32);
}

static void all_reduce_refuses_other_types(int *failures)
{
    Rig rig = open_ranks(2, (FgRtOptions){0});
    rig_run(&rig, all_reduce_f32_body);
    CHECK(strstr(fg_rt_status(rig.cx).text, "i64 and f64 only") != NULL);
    rig_close(&rig);
}

/* Collectives without anything between them: a rank that runs ahead must not disturb one that still
 * reads. Each round doubles the shards of two ranks. */
enum { ROUNDS = 100 };
static void many_body(FgRtCx *cx)
{
    for (int i = 0; i < ROUNDS; i++) {
        fg_rt_gather(cx, 0, FG_GATHER, SHARD, WHOLE, OWN * 4);
        fg_rt_reduce_scatter(cx, 1, FG_REDUCE, WHOLE, SHARD, OWN * n_ranks(cx), FG_RT_F32,
                             FG_RT_F32, 0);
    }
}

static void many_collectives(int *failures)
{
    Rig rig = open_ranks(2, (FgRtOptions){0});
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < OWN; i++)
            floats(&rig, rank, SHARD)[i] = (float)(10 * rank + i + 1);
    rig_run(&rig, many_body);
    rig_check_ok(&rig, "many collectives", failures);
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < OWN; i++)
            CHECK(floats(&rig, rank, SHARD)[i] == ldexpf((float)(10 * rank + i + 1), ROUNDS));
    rig_close(&rig);
}

/* ---- failures ---- */

static void long_body(FgRtCx *cx)
{
    fg_rt_fill(cx, 0, FG_COMPUTE, SHARD, OWN, FG_RT_F32, 1);
    fg_rt_join(cx);
    fg_rt_gather(cx, 1, FG_GATHER, SHARD, WHOLE, OWN * 4);
    fg_rt_join(cx);
    fg_rt_reduce_scatter(cx, 2, FG_REDUCE, WHOLE, SUM, OWN * n_ranks(cx), FG_RT_F32, FG_RT_F32, 0);
    fg_rt_all_reduce(cx, 3, FG_REDUCE, LIMBS, OWN, FG_RT_I64);
    fg_rt_release(cx, 4, FG_COMPUTE, WHOLE, OWN * 4 * n_ranks(cx));
}

static void driver_body(FgRtCx *cx)
{
    long_body(cx);
    fg_rt_barrier(cx);
}

/* The calls of long_body by kind: what fails at the n-th, and its node. */
typedef struct Site {
    FgFaultKind kind;
    uint64_t n;
    const char *call;
    uint32_t node;
} Site;

static const Site SITES[] = {
    {FG_FAULT_LAUNCH, 1, "fill", 0},
    {FG_FAULT_COLLECTIVE, 1, "gather", 1},
    {FG_FAULT_COLLECTIVE, 2, "reduce_scatter", 2},
    {FG_FAULT_COLLECTIVE, 3, "all_reduce", 3},
    {FG_FAULT_LAUNCH, 2, "release", 4},
};

static void every_fault_ends_every_rank(int *failures)
{
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (size_t i = 0; i < sizeof SITES / sizeof *SITES; i++) {
                FgFault fault = {.kind = SITES[i].kind, .n = SITES[i].n, .rank = rank};
                Rig rig = open_ranks(ranks, (FgRtOptions){.fault = &fault});
                rig_run(&rig, driver_body);
                rig_run(&rig, driver_body); /* a failed group stays failed and does not hang */
                for (uint32_t any = 0; any < ranks; any++) {
                    FgRtStatus status = fg_rt_status(fg_rt_group_rank(rig.group, any));
                    CHECK(!status.ok);
                    CHECK_EQ_U64(status.rank, rank);
                    CHECK_EQ_U64(status.node, SITES[i].node);
                    CHECK_STR(status.call, SITES[i].call);
                }
                rig_close(&rig);
            }
}

static void late_fault_does_not_happen(int *failures)
{
    FgFault fault = {.kind = FG_FAULT_COLLECTIVE, .n = 4, .rank = 1};
    Rig rig = open_ranks(2, (FgRtOptions){.fault = &fault});
    rig_run(&rig, driver_body);
    rig_check_ok(&rig, "three collectives", failures);
    rig_run(&rig, driver_body);
    CHECK(!fg_rt_status(rig.cx).ok);
    rig_close(&rig);
}

static void copies_fail_and_give_zeros(int *failures)
{
    for (uint64_t n = 1; n <= 3; n++) {
        FgFault fault = {.kind = FG_FAULT_COPY, .n = n, .rank = 1};
        Rig rig = open_ranks(2, (FgRtOptions){.fault = &fault});
        FgRtCx *cx = fg_rt_group_rank(rig.group, 1);
        float one = 1, back = 2;
        fg_rt_write(cx, SHARD, &one, sizeof one);
        fg_rt_copy(cx, SUM, SHARD, sizeof one);
        fg_rt_read(cx, SUM, &back, sizeof back);
        FgRtStatus status = fg_rt_status(rig.cx);
        CHECK(!status.ok && back == 0);
        CHECK_EQ_U64(status.rank, 1);
        CHECK_EQ_U64(status.node, UINT32_MAX);
        rig_close(&rig);
    }
}

static void memory_that_is_not_there(int *failures)
{
    char error[256] = "";
    FgRtProgram program = {.abi = FG_RT_ABI, .ranks = 2, .state_bytes = 4096};
    for (uint64_t n = 1; n <= 3; n++) {
        FgFault fault = {.kind = FG_FAULT_ALLOC, .n = n, .rank = 0};
        FgRtOptions options = {.fault = &fault, .profile = 1};
        CHECK(!fg_rt_group_new(&program, NULL, &options, error, sizeof error));
        CHECK(strstr(error, n == 2 ? "rank 0: cannot map" : "out of memory") != NULL);
    }
}

static void faults_are_read(int *failures)
{
    static const char *const bad[] = {"",        "write",    "write:",  "write:x",   "wright:1",
                                      "read:1:", "read:1:x", "read:-1", "read:1:2:3"};
    FgFault fault;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!fg_fault_parse(&fault, bad[i]));
    CHECK(fg_fault_parse(&fault, "write:2:3"));
    CHECK(fault.kind == FG_FAULT_WRITE && fault.n == 2 && fault.rank == 3);
    CHECK(!fg_fault_hits(&fault, FG_FAULT_WRITE, 0) && !fg_fault_hits(&fault, FG_FAULT_READ, 3));
    CHECK(!fg_fault_hits(&fault, FG_FAULT_WRITE, 3) && fg_fault_hits(&fault, FG_FAULT_WRITE, 3) &&
          !fg_fault_hits(&fault, FG_FAULT_WRITE, 3));
    CHECK(fg_fault_parse(&fault, "alloc:0") && !fg_fault_hits(&fault, FG_FAULT_ALLOC, 0));
    CHECK_EQ_U64(atomic_load(&fault.seen), 1);
}

static void disagree_body(FgRtCx *cx)
{
    if (fg_rt_rank(cx) == 0)
        fg_rt_gather(cx, 0, FG_GATHER, SHARD, WHOLE, OWN * 4);
    else
        fg_rt_all_reduce(cx, 1, FG_REDUCE, LIMBS, OWN, FG_RT_I64);
}

static void different_collectives_are_an_error(int *failures)
{
    Rig rig = open_ranks(2, (FgRtOptions){0});
    rig_run(&rig, disagree_body);
    CHECK(strstr(fg_rt_status(rig.cx).text,
                 "ranks disagree: rank 0 is at gather of node 0, rank 1 at all_reduce of "
                 "node 1") != NULL);
    rig_close(&rig);
}

static void driver_fails_body(FgRtCx *cx)
{
    if (fg_rt_rank(cx) == 1)
        fg_rt_fail(cx, "read", "the data file ended");
    else
        fg_rt_barrier(cx);
}

static void driver_can_end_the_group(int *failures)
{
    Rig rig = open_ranks(3, (FgRtOptions){0});
    rig_run(&rig, driver_fails_body);
    FgRtStatus status = fg_rt_status(rig.cx);
    CHECK_STR(status.call, "read");
    CHECK_STR(status.text, "the data file ended");
    CHECK_EQ_U64(status.rank, 1);
    rig_close(&rig);
}

/* ---- contexts ---- */

static void touch_body(FgRtCx *cx)
{
    fg_rt_fill(cx, 0, FG_COMPUTE, 1 << 20, 1 << 18, FG_RT_F32, 1);
}

static void touched_bytes_are_measured(int *failures)
{
    FgRtProgram program = {
        .abi = FG_RT_ABI, .ranks = 1, .state_bytes = 1 << 20, .arena_bytes = 7 << 20};
    for (int checked = 0; checked < 2; checked++) {
        Rig rig = rig_open_program(&program, (FgRtOptions){.checked = checked});
        uint64_t before = fg_rt_touched_bytes(rig.cx);
        rig_run(&rig, touch_body);
        rig_check_ok(&rig, "fill", failures);
        CHECK_EQ_U64(fg_rt_touched_bytes(rig.cx) - before, 1 << 20);
        rig_close(&rig);
    }
}

static void profile_counts_calls(int *failures)
{
    static const FgRtNode nodes[] = {{.name = "a"}, {.name = "b"}};
    FgRtProgram program = {
        .abi = FG_RT_ABI, .ranks = 1, .state_bytes = 8 << 20, .nodes = nodes, .n_nodes = 2};
    Rig rig = rig_open_program(&program, (FgRtOptions){.profile = 1});
    for (int i = 0; i < 3; i++)
        rig_run(&rig, touch_body);
    uint64_t calls;
    double start;
    CHECK(fg_rt_node_us(rig.cx, 0, &calls, &start) > 0);
    CHECK(calls == 3 && start >= 0);
    CHECK(fg_rt_node_us(rig.cx, 1, &calls, &start) == 0);
    CHECK(calls == 0 && start == 0);
    rig_close(&rig);
}

static void groups_that_cannot_be(int *failures)
{
    char error[200];
    FgRtOptions options = {0};
    FgRtProgram old = {.abi = FG_RT_ABI + 1, .ranks = 1};
    CHECK(!fg_rt_group_new(&old, NULL, &options, error, sizeof error));
    CHECK(strstr(error, "ABI") != NULL);
    FgRtProgram wide = {.abi = FG_RT_ABI, .ranks = 2, .host_state_bytes = (uint64_t)1 << 46};
    CHECK(!fg_rt_group_new(&wide, NULL, &options, error, sizeof error));
    CHECK(strstr(error, "bytes of host memory for what is offloaded") != NULL);
    FgRtProgram huge = {.abi = FG_RT_ABI, .ranks = 2, .state_bytes = (uint64_t)1 << 62};
    CHECK(!fg_rt_group_new(&huge, NULL, &options, error, sizeof error));
    CHECK(strstr(error, "cannot map") != NULL);
}

static void memory_has_an_end(int *failures)
{
    Rig rig = open_ranks(1, (FgRtOptions){0});
    CHECK(fg_rt_memory(rig.cx, BYTES - 1) != NULL);
    CHECK(fg_rt_memory(rig.cx, BYTES) == NULL);
    rig_close(&rig);
}

UNIT_MAIN({"gather", gather},
          {"reduce_scatter_adds_in_rank_order", reduce_scatter_adds_in_rank_order},
          {"reduce_scatter_rounds_once", reduce_scatter_rounds_once}, {"all_to_all", all_to_all},
          {"lookups_add_rows_to_slices", lookups_add_rows_to_slices}, {"all_reduce", all_reduce},
          {"all_reduce_refuses_other_types", all_reduce_refuses_other_types},
          {"many_collectives", many_collectives},
          {"every_fault_ends_every_rank", every_fault_ends_every_rank},
          {"late_fault_does_not_happen", late_fault_does_not_happen},
          {"copies_fail_and_give_zeros", copies_fail_and_give_zeros},
          {"memory_that_is_not_there", memory_that_is_not_there},
          {"faults_are_read", faults_are_read},
          {"different_collectives_are_an_error", different_collectives_are_an_error},
          {"driver_can_end_the_group", driver_can_end_the_group},
          {"touched_bytes_are_measured", touched_bytes_are_measured},
          {"profile_counts_calls", profile_counts_calls},
          {"groups_that_cannot_be", groups_that_cannot_be},
          {"memory_has_an_end", memory_has_an_end})
