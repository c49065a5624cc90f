/* Critical path, exposure and reasons, against schedules whose run is found by hand. A product of
 * two 16 x 16 matrices takes 1 us, a gather of 1024 bytes 2 us; everything else takes no time to
 * speak of. */
#include "passes/profile.h"
#include "passes/why.h"
#include "tests/unit/unit.h"

#define US 1e-6

static FgMachine machine(void)
{
    static FgCurvePoint point[] = {{1024.0, 2.0 * US}};
    FgMachine m = {.name = "test",
                   .ranks = 2,
                   .matmul_f32 = 8192.0 / US,
                   .vector_flops = 1e30,
                   .memory_rate = 1e30,
                   .compute_beside_gather = 1.0,
                   .compute_beside_reduce = 1.0,
                   .gather_beside_compute = 1.0,
                   .reduce_beside_compute = 1.0,
                   .gather_beside_reduce = 1.0,
                   .reduce_beside_gather = 1.0};
    m.gather.data = m.reduce.data = point;
    m.gather.len = m.reduce.len = 1;
    return m;
}

/* Buffers of 1024 bytes in an arena at 2048: %W and %V at its start, one after the other. */
static FgModule *parsed(FgArena *arena, const char *body, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    const char *text = fg_arena_printf(
        arena,
        "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=0.0, "
        "accumulate=1)\n"
        "memory states(2048) arena(4096)\n"
        "state %%s.0 : f32[128] role(shard, 0) mem(parameters) at(0)\n"
        "state %%x.1 : f32[16, 16] role(input, 0) mem(inputs) at(1024)\n"
        "func @step {\n%s}\n",
        body);
    FgModule *module = fg_module_parse(arena, diags, "test.fg", text, strlen(text));
    FgBuf out;
    fg_buf_init(&out, arena);
    fg_diags_render(diags, &out);
    CHECK_STR(fg_buf_text(&out), "");
    return module;
}

#define GATHER                                                                                     \
    "  #1 %W.11 : f32[256] mem(gathered) at(2048) = gather %s.0 name(\"w\") stream(gather)\n"      \
    "  #2 %w.12 : f32[16, 16] in %W.11+0 mem(gathered) = view %W.11\n"
#define ALONE "  #3 %a.13 : f32[16, 16] at(4096) = linear %x.1, %x.1 name(\"a\")\n"
#define USE                                                                                        \
    "  #4 %y.14 : f32[16, 16] at(5120) = linear %x.1, %w.12 name(\"y\") wait(#1)\n  #5 release "   \
    "%W.11\n"
/* The second gather takes the first one's memory, once that is released. */
#define AGAIN                                                                                      \
    "  #6 %V.15 : f32[256] mem(gathered) at(2048) = gather %s.0 name(\"v\") stream(gather) "       \
    "wait(#5)\n  #7 %v.16 : f32[16, 16] in %V.15+0 mem(gathered) = view %V.15\n"                   \
    "  #8 %z.17 : f32[16, 16] at(4096) = linear %x.1, %v.16 name(\"z\") wait(#6)\n"

/* gather 0-2, a 0-1, y 2-3, gather 3-5, z 5-6: the path leaves a out. */
static void critical_path(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine m = machine();
    FgModule *module = parsed(arena, GATHER ALONE USE AGAIN, failures);
    FgProfile p;
    FgSim sim;
    fg_simulate(arena, module, &m, &sim);
    fg_profile(arena, module, &m, &p);
    CHECK_NEAR(sim.step_us, 6.0, 1e-9);
    CHECK_NEAR(sim.exposed_us[FG_STREAM_GATHER], 3.0, 1e-9); /* 1-2 and 3-5 */
    CHECK_NEAR(sim.exposed_us[FG_STREAM_COMPUTE], 0.0, 0.0);
    CHECK_NEAR(fg_idle_us(&sim, FG_STREAM_COMPUTE), 3.0, 1e-9);
    CHECK_NEAR(fg_idle_us(&sim, FG_STREAM_GATHER), 2.0, 1e-9);
    static const uint32_t wanted[] = {1, 4, 6, 8};
    CHECK_EQ_U64(p.path.len, 4);
    double sum = 0.0;
    for (uint32_t i = 0; i < p.path.len && i < 4; i++) {
        CHECK_EQ_U64(p.path.data[i].first, wanted[i]);
        CHECK_EQ_U64(p.path.data[i].nodes, 1);
        sum += p.path.data[i].end_us - p.path.data[i].start_us;
    }
    CHECK_NEAR(sum, sim.step_us, 1e-9);
    CHECK_EQ_U64(p.transfers.len, 2);
    CHECK_NEAR(p.run[1].stall_us, 1.0, 1e-9);
    CHECK_NEAR(p.run[6].stall_us, 2.0, 1e-9);
    /* By dependencies alone z needs its gather: 2 + 1; the gathers alone take 4. */
    CHECK_STR(sim.bound_engine, "gather");
    CHECK_NEAR(sim.bound_us, 4.0, 1e-9);
    CHECK(sim.bound_node == 1 || sim.bound_node == 6);
    fg_arena_free(arena);
}

/* Two products in a row, in one phase and at one place, are one run. */
static void runs_join(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine m = machine();
    FgModule *module =
        parsed(arena, ALONE "  #4 %b.14 : f32[16, 16] at(5120) = linear %a.13, %x.1 name(\"a\")\n",
               failures);
    FgProfile p;
    FgSim sim;
    fg_simulate(arena, module, &m, &sim);
    fg_profile(arena, module, &m, &p);
    CHECK_EQ_U64(p.path.len, 1);
    CHECK_EQ_U64(p.path.data[0].nodes, 2);
    CHECK_EQ_U64(p.path.data[0].last, 4);
    CHECK_STR(sim.bound_engine, "compute");
    fg_arena_free(arena);
}

static void reasons(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine m = machine();
    FgModule *module = parsed(arena, GATHER ALONE USE AGAIN, failures);
    FgProfile p;
    fg_profile(arena, module, &m, &p);
    FgAwaited first = fg_decides(arena, module, p.run, 1),
              use = fg_decides(arena, module, p.run, 4);
    FgAwaited again = fg_decides(arena, module, p.run, 6);
    CHECK_EQ_U64(first.why, FG_WHY_START);
    CHECK_EQ_U64(use.why, FG_WHY_DATA);
    CHECK_EQ_U64(use.node, 1);
    CHECK_EQ_U64(use.value, 11);
    CHECK_EQ_U64(use.bytes, 1024);
    CHECK_EQ_U64(again.why, FG_WHY_MEMORY);
    CHECK_EQ_U64(again.node, 5);
    CHECK_EQ_U64(again.value, 11);
    CHECK_EQ_U64(again.bytes, 1024);
    /* The use also follows a on its stream, the second gather the first. */
    FgAwaitedVec all = fg_awaits(arena, module, p.run, 4);
    CHECK_EQ_U64(all.len, 2);
    CHECK_EQ_U64(all.data[0].why, FG_WHY_ENGINE);
    CHECK_EQ_U64(all.data[0].node, 3);
    fg_arena_free(arena);
}

/* What reads first and is overwritten then, in its own place, is neither data nor memory. */
static void overwritten(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgMachine m = machine();
    FgModule *module =
        parsed(arena,
               ALONE "  #6 %V.15 : f32[256] mem(gathered) at(2048) = gather %s.0 stream(gather)\n"
                     "  #7 %a.13 = linear %x.1, %x.1 {layout = in_out} stream(copy) wait(#3)\n",
               failures);
    FgProfile p;
    if (module) {
        fg_profile(arena, module, &m, &p);
        CHECK_EQ_U64(fg_decides(arena, module, p.run, 7).why, FG_WHY_OVERWRITE);
    }
    fg_arena_free(arena);
}

/* Before y (at 1-2 of the issue order: a) 1024 bytes of a and 1024 of the first buffer live. A
 * budget with room for 3 buffers lets the second gather go no further than y. */
static void room(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgModule *module = parsed(arena, GATHER ALONE USE AGAIN, failures);
    FgRoom r;
    /* Behind the release only y lives; while y is made, W and y do; before, W and a. */
    fg_gather_room(arena, module, 2048 + 3 * 1024, 6, &r);
    CHECK_EQ_U64(r.needs_bytes, 1024);
    CHECK_EQ_U64(r.barrier, FG_BARRIER_START);
    CHECK_EQ_U64(r.earlier, 2);
    fg_gather_room(arena, module, 2048 + 2 * 1024, 6, &r);
    CHECK_EQ_U64(r.barrier, FG_BARRIER_MEMORY);
    CHECK_EQ_U64(r.earlier, 0);
    CHECK_EQ_U64(r.node, 4);
    CHECK_EQ_U64(r.live_bytes, 2048);
    CHECK_EQ_U64(r.left_bytes, 0);
    CHECK_EQ_U64(r.tenants.len, 2);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r.tenants.len; i++)
        sum += r.tenants.data[i].bytes;
    CHECK_EQ_U64(sum, r.live_bytes);
    fg_arena_free(arena);
}

UNIT_MAIN({"critical_path", critical_path}, {"runs_join", runs_join}, {"reasons", reasons},
          {"overwritten", overwritten}, {"room", room})
