/* The simulator and the curves, against figures found by hand. The machine makes a product of two
 * 16 x 16 matrices (8192 FLOP) take 1 us and gathers or reduces 1024 bytes in 2 us; everything else
 * takes no time to speak of. */
#include "passes/compile.h"
#include "passes/simulate.h"
#include "tests/unit/unit.h"

#define US 1e-6

static FgMachine machine(void)
{
    static FgCurvePoint point[] = {{1024.0, 2.0 * US}};
    FgMachine m = {.name = "test",
                   .ranks = 2,
                   .matmul_f32 = 8192.0 / US,
                   .matmul_bf16 = 4.0 * 8192.0 / US,
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

static FgSim simulated(const char *accumulate, const char *body, const FgMachine *m, int *failures)
{
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    const char *text = fg_arena_printf(
        arena,
        "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=0.0, "
        "accumulate=%s)\n"
        "state %%s.0 : f32[128] role(shard, 0) mem(parameters)\n"
        "state %%x.1 : f32[16, 16] role(input, 0) mem(inputs)\n"
        "state %%g.2 : f32[128] role(grad_shard, 0) mem(gradients)\n"
        "state %%p.3 : f32[256] role(grad_shard, 1) mem(gradients)\n"
        "state %%B.4 : f32[256] role(input, 1) mem(inputs)\n"
        "%s",
        accumulate, body);
    FgModule *module = fg_module_parse(arena, diags, "test.fg", text, strlen(text));
    FgSim sim = {0};
    FgBuf out;
    fg_buf_init(&out, arena);
    fg_diags_render(diags, &out);
    CHECK_STR(fg_buf_text(&out), "");
    if (module)
        fg_simulate(arena, module, m, &sim);
    sim.bound_engine = sim.bound_engine ? sim.bound_engine : "";
    fg_arena_free(arena);
    return sim;
}

#define GATHER                                                                                     \
    "  #1 %W.11 : f32[256] = gather %s.0 stream(gather)\n  #2 %w.12 : f32[16, 16] in %W.11+0 = "   \
    "view %W.11\n"
#define ALONE "  #3 %a.13 : f32[16, 16] = linear %x.1, %x.1\n"
#define USE "  #4 %y.14 : f32[16, 16] = linear %x.1, %w.12 wait(#1)\n"

static void exposed_gather(int *failures)
{
    FgMachine m = machine();
    FgSim sim = simulated("1", "func @step {\n" GATHER USE "}\n", &m, failures);
    CHECK_NEAR(sim.step_us, 3.0, 1e-9);
    CHECK_NEAR(sim.exposed_gather_us, 2.0, 1e-9);
    CHECK_NEAR(sim.exposed_reduce_us, 0.0, 1e-9);
    CHECK_NEAR(sim.busy_us[FG_STREAM_COMPUTE], 1.0, 1e-9);
    CHECK_NEAR(sim.busy_us[FG_STREAM_GATHER], 2.0, 1e-9);
    CHECK_NEAR(sim.bound_us, 3.0, 1e-9); /* the use depends on the gather */
    CHECK_STR(sim.bound_engine, "dependencies");
    CHECK_EQ_U64(sim.gathers, 1);
    CHECK_EQ_U64(sim.gather_bytes, 1024);
}

static void hidden_gather(int *failures)
{
    FgMachine m = machine();
    FgSim sim = simulated("1", "func @step {\n" GATHER ALONE USE "}\n", &m, failures);
    CHECK_NEAR(sim.step_us, 3.0, 1e-9);
    CHECK_NEAR(sim.exposed_gather_us, 1.0, 1e-9);
    CHECK_NEAR(sim.bound_us, 3.0, 1e-9);
}

/* Beside a gather, compute runs at half speed: 1 us takes 2, and both end together. */
static void slow_compute(int *failures)
{
    FgMachine m = machine();
    m.compute_beside_gather = 0.5;
    FgSim sim = simulated("1", "func @step {\n" GATHER ALONE USE "}\n", &m, failures);
    CHECK_NEAR(sim.step_us, 3.0, 1e-9);
    CHECK_NEAR(sim.exposed_gather_us, 0.0, 1e-9);
    CHECK_NEAR(sim.busy_us[FG_STREAM_COMPUTE], 3.0, 1e-9);
    CHECK_NEAR(sim.compute_us, 2.0, 1e-9);
    CHECK_NEAR(sim.slowed_us, 1.0, 1e-9);
    CHECK_NEAR(sim.bound_us, 3.0, 1e-9);
}

/* Beside compute, a gather runs at half speed: 0.5 of 2 us are done after the first product, the
 * rest runs alone. */
static void slow_gather(int *failures)
{
    FgMachine m = machine();
    m.gather_beside_compute = 0.5;
    FgSim sim = simulated("1", "func @step {\n" GATHER ALONE USE "}\n", &m, failures);
    CHECK_NEAR(sim.step_us, 3.5, 1e-9);
    CHECK_NEAR(sim.exposed_gather_us, 1.5, 1e-9);
    CHECK_NEAR(sim.busy_us[FG_STREAM_GATHER], 2.5, 1e-9);
}

/* Three engines at once: factors multiply. compute at 0.5 * 0.4 while both collectives run. */
static void factors_multiply(int *failures)
{
    FgMachine m = machine();
    m.compute_beside_gather = 0.5;
    m.compute_beside_reduce = 0.4;
    FgSim sim = simulated("1",
                          "func @step {\n"
                          "  #5 %B.15 : f32[256] = gather %s.0 stream(gather)\n"
                          "  #6 %g.2 = reduce_scatter %x.1 stream(reduce)\n" ALONE "}\n",
                          &m, failures);
    CHECK_NEAR(sim.step_us, 2.0 + 0.6, 1e-9); /* 0.4 of the product in 2 us, then 0.6 alone */
    CHECK_NEAR(sim.compute_us + sim.slowed_us + sim.exposed_gather_us + sim.exposed_reduce_us,
               sim.step_us, 1e-9);
}

/* A product on the copy stream stands for an update: 1 us alone, a quarter as fast beside compute,
 * which is half as fast; from 2 us on it is alone. */
static void update_beside_compute(int *failures)
{
    const char *body =
        "func @step {\n" ALONE "  #5 %u.15 : f32[16, 16] = linear %x.1, %x.1 stream(copy)\n}\n";
    FgMachine m = machine();
    m.compute_beside_update = 0.5;
    m.update_beside_compute = 0.25;
    FgSim sim = simulated("1", body, &m, failures);
    CHECK_NEAR(sim.step_us, 2.5, 1e-9);
    CHECK_NEAR(sim.slowed_us, 1.0, 1e-9);
    m = machine(); /* not measured: as reductions */
    m.compute_beside_reduce = 0.5;
    m.reduce_beside_compute = 0.25;
    sim = simulated("1", body, &m, failures);
    CHECK_NEAR(sim.step_us, 2.5, 1e-9);
    m.compute_beside_update = m.update_beside_compute = 1.0;
    sim = simulated("1", body, &m, failures);
    CHECK_NEAR(sim.step_us, 1.0, 1e-9);
}

/* 1 us of update beside 2 us of a gather: alone where nothing was measured; else the update takes
 * 2 us, in which half of the gather is done, or the other way round. */
static void update_beside_link(int *failures)
{
    const char *body = "func @step {\n  #5 %B.15 : f32[256] = gather %s.0 stream(gather)\n"
                       "  #6 %u.16 : f32[16, 16] = linear %x.1, %x.1 stream(copy)\n}\n";
    FgMachine m = machine();
    CHECK_NEAR(simulated("1", body, &m, failures).step_us, 2.0, 1e-9);
    m.update_beside_gather = m.gather_beside_update = 0.5;
    CHECK_NEAR(simulated("1", body, &m, failures).step_us, 3.0, 1e-9);
    const char *reduce = "func @step {\n  #5 %g.2 = reduce_scatter %x.1 stream(reduce)\n"
                         "  #6 %u.16 : f32[16, 16] = linear %x.1, %x.1 stream(copy)\n}\n";
    CHECK_NEAR(simulated("1", reduce, &m, failures).step_us, 2.0, 1e-9);
    m.update_beside_reduce = 0.25;
    m.reduce_beside_update = 0.5;
    CHECK_NEAR(simulated("1", reduce, &m, failures).step_us, 4.0, 1e-9);
}

/* Gradients in parts run on the stream of reductions, at the curve and beside factors of gathers
 * where nothing else is said: a product at 0.5 beside 2 us of them takes 1 us of its own time until
 * then. */
static void parts_beside_compute(int *failures)
{
    const char *body = "func @step {\n  #5 %p.3 = all_to_all %B.4 stream(reduce)\n" ALONE "}\n";
    FgMachine m = machine();
    CHECK_NEAR(simulated("1", body, &m, failures).step_us, 2.0, 1e-9);
    m.compute_beside_reduce = 0.25; /* is another engine */
    m.compute_beside_gather = 0.4;
    FgSim sim = simulated("1", body, &m, failures);
    CHECK_NEAR(sim.step_us, 2.2, 1e-9);
    CHECK_NEAR(sim.slowed_us, 1.2, 1e-9);
    CHECK_NEAR(sim.joint_us, 2.2, 1e-9);
    CHECK_EQ_U64(sim.reduce_bytes, 1024);
    m.compute_beside_parts = 0.8;
    m.parts_beside_compute = 0.5;
    sim = simulated("1", body, &m, failures);
    CHECK_NEAR(sim.step_us, 1.25 + 1.375, 1e-9);
    CHECK_NEAR(sim.joint_us, 1.25 + 1.375, 1e-9);
    CHECK_NEAR(sim.joint_price[FG_ENGINE_PARTS], 1.0, 1e-9);
}

/* A second of compute beside a second of gathers, as large work and as light work: as what is
 * missing of light work, and with factors of its own. Both kinds of compute share a stream: where
 * each has a second to do, nothing makes two seconds less. */
static void light_beside_gather(int *failures)
{
    FgMachine m = machine();
    double work[FG_N_ENGINES] = {0}, price[FG_N_ENGINES], speed[FG_N_ENGINES];
    bool running[FG_N_ENGINES] = {[FG_ENGINE_LIGHT] = true, [FG_STREAM_GATHER] = true};
    m.compute_beside_gather = 0.8;
    m.gather_beside_compute = 0.5;
    fg_engine_speeds(&m, running, speed);
    CHECK(speed[FG_ENGINE_LIGHT] == 0.8 && speed[FG_STREAM_GATHER] == 0.5);
    m.light_beside_gather = 0.9;
    m.gather_beside_light = 0.75;
    m.update_beside_light = 0.25;
    fg_engine_speeds(&m, running, speed);
    CHECK(speed[FG_ENGINE_LIGHT] == 0.9 && speed[FG_STREAM_GATHER] == 0.75);
    running[FG_ENGINE_LIGHT] = false;
    running[FG_STREAM_COMPUTE] = true;
    fg_engine_speeds(&m, running, speed);
    CHECK(speed[FG_STREAM_COMPUTE] == 0.8 && speed[FG_STREAM_GATHER] == 0.5);
    work[FG_STREAM_COMPUTE] = work[FG_ENGINE_LIGHT] = 1;
    CHECK_NEAR(fg_joint_bound(&m, work, price), 2.0, 1e-9);
}

/* A node of compute beside a gather of 2 us takes 1 us alone. A threshold above its operations
 * makes it light: the run has its factors, and the bound, too. */
static void light_in_a_run(int *failures)
{
    const char *body = "func @step {\n" GATHER ALONE "}\n";
    FgMachine m = machine();
    m.compute_beside_gather = 0.25;
    m.light_beside_gather = 0.8;
    FgSim large = simulated("1", body, &m, failures);
    CHECK_NEAR(large.step_us, 2.5, 1e-9); /* half of it behind the gather */
    m.light_flops = 1e18;
    FgSim light = simulated("1", body, &m, failures);
    CHECK_NEAR(light.step_us, 2.0, 1e-9);
    CHECK_NEAR(light.busy_us[FG_STREAM_COMPUTE], 1.25, 1e-9);
    CHECK_NEAR(light.joint_us, 2.0, 1e-9);
    CHECK_NEAR(light.slowed_us, 0.25, 1e-9);
}

/* Causal attention of 64 tokens and 2 heads of 64: 2 * 64 * 65 / 2 pairs, 4 * 64 operations each;
 * the rate lies in the middle between those of 32 and 96. */
static void attention_rate(int *failures)
{
    static FgAttentionRate rates[] = {{32, 1e12, 5e11}, {96, 3e12, 1e12}};
    FgArena *arena = fg_arena_new();
    FgDiags *diags = fg_diags_new(arena);
    FgMachine m = machine();
    const char *text =
        "module @tiny level(sched) ranks(2) numerics(compute=bf16, wire=bf16, shard=bf16, "
        "clip=0.0, accumulate=1)\n"
        "state %q.0 : bf16[1, 64, 2, 64] role(input, 0) mem(inputs)\n"
        "func @step {\n"
        "  #1 %o.1 : bf16[1, 64, 2, 64], %l.2 : f32[1, 2, 64] = attention %q.0, %q.0, %q.0\n"
        "}\n";
    FgModule *module = fg_module_parse(arena, diags, "test.fg", text, strlen(text));
    CHECK(module != NULL);
    FgSim sim = {0};
    double flops = 2 * 64 * 65 / 2 * 4 * 64;
    if (module)
        fg_simulate(arena, module, &m, &sim);
    CHECK_NEAR(sim.step_us, flops / m.matmul_bf16 * 1e6, 1e-6);
    m.attention.data = rates;
    m.attention.len = 2;
    if (module)
        fg_simulate(arena, module, &m, &sim);
    CHECK_NEAR(sim.step_us, flops / 2e12 * 1e6, 1e-6);
    m.attention.len = 1; /* beyond what was measured: the last rate */
    if (module)
        fg_simulate(arena, module, &m, &sim);
    CHECK_NEAR(sim.step_us, flops / 1e12 * 1e6, 1e-6);
    fg_arena_free(arena);
}

static void join_waits_for_reduction(int *failures)
{
    FgMachine m = machine();
    FgSim sim = simulated("1",
                          "func @step {\n" ALONE
                          "  #6 %g.2 = reduce_scatter %a.13 stream(reduce) wait(#3)\n"
                          "}\n",
                          &m, failures);
    CHECK_NEAR(sim.step_us, 3.0, 1e-9);
    CHECK_NEAR(sim.exposed_reduce_us, 2.0, 1e-9);
    CHECK_NEAR(sim.bound_us, 3.0, 1e-9);
}

/* What only streams and waits order is no dependency: the bound is that of the engine. */
static void bound_by_engine(int *failures)
{
    FgMachine m = machine();
    FgSim sim = simulated("1",
                          "func @step {\n"
                          "  #5 %B.15 : f32[256] = gather %s.0 stream(gather)\n"
                          "  #6 %C.16 : f32[256] = gather %s.0 stream(gather)\n"
                          "  #3 %a.13 : f32[16, 16] = linear %x.1, %x.1 wait(#6)\n"
                          "}\n",
                          &m, failures);
    CHECK_NEAR(sim.step_us, 5.0, 1e-9);
    CHECK_NEAR(sim.bound_us, 4.0, 1e-9);
    CHECK_STR(sim.bound_engine, "gather");
}

static void micro_steps(int *failures)
{
    FgMachine m = machine();
    const char *body = "func @prologue {\n  #9 %p.19 : f32[16, 16] = linear %x.1, %x.1\n}\n"
                       "func @first {\n" GATHER USE "}\n"
                       "func @middle {\n  #5 %a.15 : f32[16, 16] = linear %x.1, %x.1\n}\n"
                       "func @last {\n  #6 %b.16 : f32[16, 16] = linear %x.1, %x.1\n"
                       "  #7 %B.17 : f32[256] = gather %s.0 stream(gather)\n}\n";
    FgSim sim = simulated("5", body, &m, failures);
    CHECK_NEAR(sim.step_us, 3.0 + 3 * 1.0 + 2.0, 1e-9);
    CHECK_NEAR(sim.busy_us[FG_STREAM_COMPUTE], 5.0, 1e-9);
    CHECK_EQ_U64(sim.gathers, 2);
    sim = simulated("2", body, &m, failures);
    CHECK_NEAR(sim.step_us, 3.0 + 2.0, 1e-9);
}

static void curve(int *failures)
{
    FgCurvePoint points[] = {{100.0, 1.0}, {200.0, 1.5}, {400.0, 4.0}};
    FgCurve three = {points, 3, 3}, none = {NULL, 0, 0};
    CHECK_NEAR(fg_curve_seconds(&three, 1.0), 1.0, 1e-12);
    CHECK_NEAR(fg_curve_seconds(&three, 150.0), 1.25, 1e-12);
    CHECK_NEAR(fg_curve_seconds(&three, 200.0), 1.5, 1e-12);
    CHECK_NEAR(fg_curve_seconds(&three, 300.0), 2.75, 1e-12);
    CHECK_NEAR(fg_curve_seconds(&three, 800.0), 8.0, 1e-12); /* 100 bytes a second go on */
    CHECK_NEAR(fg_curve_seconds(&none, 800.0), 0.0, 0.0);
}

/* Compute and gathers at 3/4 and 1/2 beside each other: 3 s and 1 s of work take 3.5 s, in which
 * gathers run for 2 s and compute makes 1.5 s beside them and 1.5 s alone. At speeds that add up to
 * less than 1 nothing is better than one after the other. */
static void joint_rates(int *failures)
{
    FgMachine m = machine();
    double work[FG_N_ENGINES] = {0}, price[FG_N_ENGINES];
    work[FG_STREAM_COMPUTE] = 3;
    work[FG_STREAM_GATHER] = 1;
    CHECK_NEAR(fg_joint_bound(&m, work, price), 3.0, 1e-9); /* nothing slows anything */
    CHECK_NEAR(price[FG_STREAM_COMPUTE], 1.0, 1e-9);
    m.compute_beside_gather = 0.75;
    m.gather_beside_compute = 0.5;
    CHECK_NEAR(fg_joint_bound(&m, work, price), 3.5, 1e-9);
    CHECK_NEAR(price[FG_STREAM_COMPUTE], 1.0, 1e-9);
    CHECK_NEAR(price[FG_STREAM_GATHER], 0.5, 1e-9);
    m.compute_beside_gather = 0.4;
    CHECK_NEAR(fg_joint_bound(&m, work, price), 4.0, 1e-9);
    work[FG_STREAM_REDUCE] = 2; /* beside both at full speed, they beside it */
    CHECK_NEAR(fg_joint_bound(&m, work, price), 4.0, 1e-9);
    m.gather_beside_reduce = m.reduce_beside_gather = 0.5; /* one link: it is busy for 3 s */
    m.compute_beside_gather = m.gather_beside_compute = 1;
    work[FG_STREAM_COMPUTE] = 2.5;
    CHECK_NEAR(fg_joint_bound(&m, work, price), 3.0, 1e-9);
    CHECK_NEAR(price[FG_STREAM_GATHER] + price[FG_STREAM_REDUCE], 2.0, 1e-9);
    work[FG_STREAM_GATHER] = 0;
    work[FG_ENGINE_PARTS] = 1; /* behind the 2 s of reductions, never beside them */
    CHECK_NEAR(fg_joint_bound(&m, work, price), 3.0, 1e-9);
    work[FG_STREAM_COMPUTE] = work[FG_ENGINE_PARTS] = work[FG_STREAM_REDUCE] = 0;
    CHECK_NEAR(fg_joint_bound(&m, work, price), 0.0, 1e-9);
}

UNIT_MAIN({"exposed_gather", exposed_gather}, {"hidden_gather", hidden_gather},
          {"slow_compute", slow_compute}, {"slow_gather", slow_gather},
          {"factors_multiply", factors_multiply}, {"update_beside_compute", update_beside_compute},
          {"update_beside_link", update_beside_link},
          {"parts_beside_compute", parts_beside_compute},
          {"light_beside_gather", light_beside_gather}, {"light_in_a_run", light_in_a_run},
          {"attention_rate", attention_rate},
          {"join_waits_for_reduction", join_waits_for_reduction},
          {"bound_by_engine", bound_by_engine}, {"micro_steps", micro_steps}, {"curve", curve},
          {"joint_rates", joint_rates})
