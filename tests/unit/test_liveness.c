/* Circular liveness and the ledger, against intervals found by hand. */
#include "passes/liveness.h"

#include "passes/compile.h"
#include "tests/unit/unit.h"

static FgModule *parsed(FgArena *arena, const char *text, int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgModule *module = fg_module_parse(arena, diags, "test.fg", text, strlen(text));
    FgBuf out;
    fg_buf_init(&out, arena);
    fg_diags_render(diags, &out);
    CHECK_STR(fg_buf_text(&out), "");
    return module;
}

/* A period of `period` places, in which values live so: "value begin end bytes" a line, in order.
 */
static void lives(int *failures, const char *text, const char *intervals, uint32_t period)
{
    FgArena *arena = fg_arena_new();
    FgModule *module = parsed(arena, text, failures);
    FgIntervalVec found = {0};
    FgBuf out;
    uint32_t len = 0;
    fg_buf_init(&out, arena);
    if (module)
        fg_intervals(arena, module, &found, &len);
    for (uint32_t i = 0; i < found.len; i++) {
        const FgInterval *it = &found.data[i];
        fg_buf_printf(&out, "%s %u %u %u\n", module->values.data[it->value].name, it->begin,
                      it->end, (unsigned)it->bytes);
    }
    CHECK_STR(fg_buf_text(&out), intervals);
    CHECK_EQ_U64(len, period);
    fg_arena_free(arena);
}

#define HEAD(clip, accumulate)                                                                     \
    "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=" clip     \
    ", accumulate=" accumulate ")\n"
#define STATES                                                                                     \
    "state %s.0 : f32[128] role(shard, 0) mem(parameters)\n"                                       \
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer)\n"                                      \
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer)\n"                                      \
    "state %g.3 : f32[128] role(grad_shard, 0) mem(gradients)\n"                                   \
    "state %c.4 : f32[32] role(scalars) mem(constants)\n"
#define BUCKET                                                                                     \
    "param 0 @w : f32[256] init(normal, 0.02) trainable bucket(0 + 0)\n"                           \
    "bucket 0 @b dtype(f32) trainable elements(256) params(0) states(shard=%s.0, moment1=%m.1, "   \
    "moment2=%v.2, grad_shard=%g.3)\n"

static void results_and_views(int *failures)
{
    lives(failures,
          HEAD("0.0", "1") BUCKET STATES
          "func @step {\n"
          "  #0 %W.5 : f32[256] = gather %s.0 bucket(0) stream(gather)\n"
          "  #1 %w.6 : f32[16, 16] in %W.5+0 = view %W.5\n"
          "  #2 %x.7 : f32[16, 16] = full {shape = [16, 16], value = 1.0}\n"
          "  #3 %y.8 : f32[16, 16] in %x.7+0 = exp %x.7\n" /* in place: lives in x */
          "  #4 %z.9 : f32[16, 16] = linear %y.8, %w.6\n"
          "  #5 %n.10 : f32[256] in %z.9+0 = reshape %z.9 {shape = [256]}\n" /* a name: no access */
          "  #6 release %W.5 bucket(0)\n" /* the life ends here */
          "  #7 %u.11 : f32[] = mean %y.8\n"
          "}\n",
          "W 0 6 1024\nx 2 7 1024\nz 4 4 1024\nu 7 7 4\n", 8);
}

/* With clipping a gradient slice lives from its reduction over the cut to the update of the next
 * step: through @flush too. */
static void gradient_slice_wraps(int *failures)
{
    lives(failures,
          HEAD("1.0", "1") BUCKET STATES
          "func @step {\n"
          "  #0 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %c.4 {pending = true} bucket(0)\n"
          "  #1 %B.5 : f32[256] = grad_buffer bucket(0)\n"
          "  #2 %d.6 : f32[256] in %B.5+0 = full {shape = [256], value = 1.0}\n"
          "  #3 %g.3 = reduce_scatter %B.5 bucket(0) stream(reduce)\n"
          "  #4 hold %B.5\n" /* keeps the buffer */
          "}\n"
          "func @flush {\n"
          "  #5 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %c.4 {pending = true} bucket(0)\n"
          "}\n",
          "B 1 4 1024\ng 3 0 512\n", 6);
}

/* Over micro-steps it lives from the first reduction to the update after the last one. */
static void gradient_slice_accumulates(int *failures)
{
    lives(failures,
          HEAD("0.0", "3") BUCKET STATES
          "func @last {\n" /* the order of the text does not matter */
          "  #6 %C.7 : f32[256] = grad_buffer bucket(0)\n"
          "  #7 %g.3 = reduce_scatter %C.7 {accumulate = true} bucket(0)\n"
          "  #8 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %c.4 bucket(0)\n"
          "}\n"
          "func @init {\n"
          "  #9 %t.8 : f32[256] = full {shape = [256], value = 1.0}\n"
          "  #10 %u.9 : f32[] = mean %t.8\n"
          "}\n"
          "func @first {\n"
          "  #0 %A.5 : f32[256] = grad_buffer bucket(0)\n"
          "  #1 %g.3 = reduce_scatter %A.5 bucket(0)\n"
          "}\n"
          "func @middle {\n"
          "  #3 %B.6 : f32[256] = grad_buffer bucket(0)\n"
          "  #4 %g.3 = reduce_scatter %B.6 {accumulate = true} bucket(0)\n"
          "}\n",
          "A 0 1 1024\ng 1 6 512\nB 2 3 1024\nC 4 5 1024\nt 7 8 1024\nu 8 8 4\n", 9);
}

/* A node that adds to a gradient makes the other one afresh. */
static void one_result_accumulates(int *failures)
{
    lives(failures,
          HEAD("0.0", "1") BUCKET STATES
          "func @step {\n"
          "  #0 %x.5 : f32[16, 16] = full {shape = [16, 16], value = 1.0}\n"
          "  #1 %y.6 : f32[16] = full {shape = [16], value = 1.0}\n"
          "  #2 %B.7 : f32[256] = grad_buffer bucket(0)\n"
          "  #3 %d.8 : f32[16, 16], %p.9 : f32[16] in %B.7+0 = rmsnorm_back %x.5, %y.6, %x.5\n"
          "  #4 %e.10 : f32[16, 16], %q.11 : f32[16] in %B.7+0 = rmsnorm_back %x.5, %y.6, %d.8 "
          "{accumulate = true}\n"
          "  #5 %u.12 : f32[] = mean %e.10\n"
          "}\n",
          "x 0 4 1024\ny 1 4 64\nB 2 4 1024\nd 3 4 1024\ne 4 5 1024\nu 5 5 4\n", 6);
}

/* Written afresh twice in a period: two stretches. Never written: always live. */
static void several_stretches(int *failures)
{
    lives(failures,
          HEAD("0.0", "1") BUCKET STATES "func @step {\n"
                                         "  #0 %g.3 = full {shape = [128], value = 1.0}\n"
                                         "  #1 %a.5 : f32[] = mean %g.3\n"
                                         "  #2 %b.6 : f32[] = mean %s.0\n"
                                         "  #3 %g.3 = full {shape = [128], value = 1.0}\n"
                                         "  #4 %c.7 : f32[] = mean %g.3\n"
                                         "}\n",
          "g 0 1 512\na 1 1 4\nb 2 2 4\ng 3 4 512\nc 4 4 4\n", 5);
    lives(failures,
          HEAD("0.0", "1") BUCKET STATES "func @step {\n"
                                         "  #0 %b.6 : f32[] = mean %s.0\n"
                                         "  #1 %a.5 : f32[] = mean %g.3\n"
                                         "  #2 %c.7 : f32[] = mean %s.0\n"
                                         "}\n",
          "g 0 2 512\nb 0 0 4\na 1 1 4\nc 2 2 4\n", 3);
}

static void ledger(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgModule *module = parsed(
        arena,
        HEAD("0.0",
             "1") "memory states(2048) arena(4096)\n"
                  "state %s.0 : f32[100] role(shard, 0) mem(parameters) at(0)\n"
                  "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(512)\n"
                  "state %i.2 : i32[64] role(input, 0) mem(inputs) at(1024)\n"
                  "func @step {\n"
                  "  #0 %a.3 : f32[256] at(2048) = full {shape = [256], value = 1.0}\n"
                  "  #1 %W.4 : f32[256] mem(gathered) at(3072) = gather %s.0 stream(gather)\n"
                  "  #2 %b.5 : f32[256] at(4096) = mul %a.3, %W.4 name(\"layers.7.mlp.up\") "
                  "phase(backward) layer(7)\n"
                  "  #3 %c.6 : f32[] at(2048) = mean %b.5\n"
                  "}\n",
        failures);
    FgLedger out;
    fg_ledger(arena, module, &out);
    CHECK_EQ_U64(out.peak_bytes, 2048 + 4096);
    CHECK_EQ_U64(out.arena_bytes, 4096);
    CHECK_EQ_U64(out.arena_bound_bytes, 3072);
    CHECK_EQ_U64(out.unused_bytes, 1024);
    CHECK_EQ_U64(out.peak_node, 2);
    CHECK_STR(out.peak_phase, "backward layers.7");
    CHECK_EQ_U64(out.by_class[FG_MEM_PARAMETERS], 512); /* with the gap up to the next state */
    CHECK_EQ_U64(out.by_class[FG_MEM_OPTIMIZER], 512);
    CHECK_EQ_U64(out.by_class[FG_MEM_INPUTS], 1024); /* the rest of the state region */
    CHECK_EQ_U64(out.by_class[FG_MEM_ACTIVATIONS], 2048);
    CHECK_EQ_U64(out.by_class[FG_MEM_GATHERED], 1024);
    uint64_t sum = out.unused_bytes;
    for (int c = 0; c < FG_N_MEM_CLASSES; c++)
        sum += out.by_class[c];
    CHECK_EQ_U64(sum, out.peak_bytes);
    fg_arena_free(arena);
}

UNIT_MAIN({"results_and_views", results_and_views}, {"gradient_slice_wraps", gradient_slice_wraps},
          {"gradient_slice_accumulates", gradient_slice_accumulates},
          {"one_result_accumulates", one_result_accumulates},
          {"several_stretches", several_stretches}, {"ledger", ledger})
