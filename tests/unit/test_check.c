/* The checker against schedules that are right, and against each way to break them: every case is a
 * right schedule with one or two edits of its text, and the message that must come. */
#include "ir/ir.h"
#include "passes/compile.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

/* One weight on two ranks, without clipping. The gradient buffer %B takes the place of the gathered
 * copy %W. */
static const char plain[] =
    "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=0.0, "
    "accumulate=1)\n"
    "memory states(2304) arena(4640)\n"
    "param 0 @w : f32[16, 16] init(normal, 0.02) trainable bucket(0 + 0)\n"
    "bucket 0 @b dtype(f32) trainable elements(256) params(0) states(shard=%s.0, moment1=%m.1, "
    "moment2=%v.2, grad_shard=%g.3)\n"
    "state %s.0 : f32[128] role(shard, 0) mem(parameters) at(0)\n"
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(512)\n"
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer) at(1024)\n"
    "state %g.3 : f32[128] role(grad_shard, 0) mem(gradients) at(6432)\n"
    "state %scalars.4 : f32[32] role(scalars) mem(constants) at(1536)\n"
    "state %norm.5 : i64[24] role(norm) mem(constants) at(1664)\n"
    "state %ws.6 : f32[64] role(workspace) mem(workspace) at(1856)\n"
    "state %acc.7 : f64[] role(loss) mem(constants) at(2112)\n"
    "func @step {\n"
    "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n"
    "  #1 %W.9 : f32[256] mem(gathered) at(2304) = gather %s.0 bucket(0) stream(gather)\n"
    "  #2 %w.10 : f32[16, 16] in %W.9+0 = view %W.9\n"
    "  #3 %y.11 : f32[16, 16] at(4352) = linear %x.8, %w.10 wait(#1)\n"
    "  #4 %loss.12 : f32[] at(6416) = mean %y.11\n"
    "  #5 release %W.9 bucket(0)\n"
    "  #6 %acc.7 = loss_add %loss.12\n"
    "  #15 %acc.7 = all_reduce %acc.7 stream(reduce) wait(#6)\n"
    "  #7 %dy.13 : f32[16, 16] at(5376) = full {shape = [16, 16], value = 1.0} phase(backward)\n"
    "  #8 %B.14 : f32[256] mem(gradients) at(2304) = grad_buffer bucket(0) phase(backward)\n"
    "  #9 %dw.15 : f32[16, 16] in %B.14+0 = linear_dw %x.8, %dy.13 phase(backward)\n"
    "  #10 %g.3 = reduce_scatter %B.14 bucket(0) phase(backward) stream(reduce) wait(#9)\n"
    "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n"
    "  #12 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) phase(update) stream(reduce)\n"
    "  #13 %norm.5 = all_reduce %norm.5 phase(update) stream(reduce)\n"
    "  #14 %scalars.4 = clip_factor %norm.5 phase(update) stream(reduce)\n"
    "}\n";

/* The same with clipping: the update is pending, and @flush does it alone. */
static const char clipped[] =
    "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=1.0, "
    "accumulate=1)\n"
    "memory states(2304) arena(4640)\n"
    "param 0 @w : f32[16, 16] init(normal, 0.02) trainable bucket(0 + 0)\n"
    "bucket 0 @b dtype(f32) trainable elements(256) params(0) states(shard=%s.0, moment1=%m.1, "
    "moment2=%v.2, grad_shard=%g.3)\n"
    "state %s.0 : f32[128] role(shard, 0) mem(parameters) at(0)\n"
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(512)\n"
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer) at(1024)\n"
    "state %g.3 : f32[128] role(grad_shard, 0) mem(gradients) at(6432)\n"
    "state %scalars.4 : f32[32] role(scalars) mem(constants) at(1536)\n"
    "state %norm.5 : i64[24] role(norm) mem(constants) at(1664)\n"
    "state %ws.6 : f32[64] role(workspace) mem(workspace) at(1856)\n"
    "func @step {\n"
    "  #20 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
    "phase(update) "
    "stream(reduce)\n"
    "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n"
    "  #1 %W.9 : f32[256] mem(gathered) at(2304) = gather %s.0 bucket(0) stream(gather) wait(#20)\n"
    "  #2 %w.10 : f32[16, 16] in %W.9+0 = view %W.9\n"
    "  #3 %y.11 : f32[16, 16] at(4352) = linear %x.8, %w.10 wait(#1)\n"
    "  #5 release %W.9 bucket(0)\n"
    "  #7 %dy.13 : f32[16, 16] at(5376) = full {shape = [16, 16], value = 1.0} phase(backward)\n"
    "  #8 %B.14 : f32[256] mem(gradients) at(2304) = grad_buffer bucket(0) phase(backward)\n"
    "  #9 %dw.15 : f32[16, 16] in %B.14+0 = linear_dw %x.8, %dy.13 phase(backward)\n"
    "  #10 %g.3 = reduce_scatter %B.14 bucket(0) phase(backward) stream(reduce) wait(#9)\n"
    "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n"
    "  #13 %norm.5 = all_reduce %norm.5 phase(update) stream(reduce)\n"
    "  #14 %scalars.4 = clip_factor %norm.5 {clip = 1.0} phase(update) stream(reduce)\n"
    "}\n"
    "func @flush {\n"
    "  #30 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
    "phase(update) "
    "stream(reduce)\n"
    "}\n";

/* Two micro-steps: @first reduces, @last adds and updates. */
static const char accumulated[] =
    "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=0.0, "
    "accumulate=2)\n"
    "memory states(2304) arena(4640)\n"
    "param 0 @w : f32[16, 16] init(normal, 0.02) trainable bucket(0 + 0)\n"
    "bucket 0 @b dtype(f32) trainable elements(256) params(0) states(shard=%s.0, moment1=%m.1, "
    "moment2=%v.2, grad_shard=%g.3)\n"
    "state %s.0 : f32[128] role(shard, 0) mem(parameters) at(0)\n"
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(512)\n"
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer) at(1024)\n"
    "state %g.3 : f32[128] role(grad_shard, 0) mem(gradients) at(6432)\n"
    "state %scalars.4 : f32[32] role(scalars) mem(constants) at(1536)\n"
    "state %norm.5 : i64[24] role(norm) mem(constants) at(1664)\n"
    "func @first {\n"
    "  #0 %x.8 : f32[256] at(3328) = full {shape = [256], value = 1.0}\n"
    "  #1 %B.9 : f32[256] mem(gradients) at(2304) = grad_buffer bucket(0)\n"
    "  #2 %dw.10 : f32[16, 16] in %B.9+0 = grad_write %x.8\n"
    "  #3 %g.3 = reduce_scatter %B.9 bucket(0) stream(reduce) wait(#2)\n"
    "}\n"
    "func @last {\n"
    "  #10 %x.11 : f32[256] at(3328) = full {shape = [256], value = 1.0}\n"
    "  #11 %B.12 : f32[256] mem(gradients) at(2304) = grad_buffer bucket(0)\n"
    "  #12 %dw.13 : f32[16, 16] in %B.12+0 = grad_write %x.11\n"
    "  #13 %g.3 = reduce_scatter %B.12 {accumulate = true} bucket(0) stream(reduce) wait(#12)\n"
    "  #14 %norm.5 = norm_add %g.3 bucket(0) stream(reduce)\n"
    "  #15 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) stream(reduce)\n"
    "}\n";

/* ---- helpers ---- */

/* `text` with the first `from` replaced, which must be there. */
static char *edited(FgArena *arena, const char *text, const char *from, const char *to,
                    int *failures)
{
    const char *hit = strstr(text, from);
    CHECK(hit != NULL);
    if (!hit)
        return fg_arena_strdup(arena, text);
    return fg_arena_printf(arena, "%.*s%s%s", (int)(hit - text), text, to, hit + strlen(from));
}

/* Checks a schedule; the diagnostics' text, or NULL when it is proved. */
static const char *verdict(FgArena *arena, const char *text, uint64_t budget, FgProof *proof,
                           int *failures)
{
    FgDiags *diags = fg_diags_new(arena);
    FgModule *module = fg_module_parse(arena, diags, "tiny.fg", text, strlen(text));
    FgBuf out;
    fg_buf_init(&out, arena);
    CHECK(module != NULL);
    bool ok = module && fg_check(arena, module, budget, proof);
    fg_diags_render(diags, &out);
    CHECK(ok == (fg_diags_errors(diags) == 0));
    return ok ? NULL : fg_buf_text(&out);
}

static void proves(const char *text, int *failures)
{
    FgArena *arena = fg_arena_new();
    FgProof proof;
    const char *said = verdict(arena, text, UINT64_MAX, &proof, failures);
    if (said) {
        printf("%s\n", said);
        ++*failures;
    }
    fg_arena_free(arena);
}

static void rejects(const char *text, const char *const edits[9], const char *message,
                    int *failures)
{
    FgArena *arena = fg_arena_new();
    FgProof proof;
    for (int i = 0; edits[i]; i += 2)
        text = edited(arena, text, edits[i], edits[i + 1], failures);
    const char *said = verdict(arena, text, UINT64_MAX, &proof, failures);
    if (!said || !strstr(said, message)) {
        printf("not said: %s\nsaid: %s\n", message, said ? said : "(proved)");
        ++*failures;
    }
    fg_arena_free(arena);
}

#define REJECTS(name, base, message, ...)                                                          \
    static void name(int *failures)                                                                \
    {                                                                                              \
        const char *const edits[9] = {__VA_ARGS__};                                                \
        rejects(base, edits, message, failures);                                                   \
    }

/* ---- what is right ---- */

static void right(int *failures)
{
    proves(plain, failures);
    proves(clipped, failures);
    proves(accumulated, failures);
    FgArena *arena = fg_arena_new();
    FgProof proof = {0};
    CHECK(!verdict(arena, plain, 2304 + 4640, &proof, failures));
    CHECK_EQ_U64(proof.nodes, 15); /* all but the view */
    CHECK_EQ_U64(proof.gathers, 1);
    CHECK_EQ_U64(proof.waits, 3);
    CHECK_EQ_U64(proof.reuses, 1); /* the gradient buffer over the gathered copy */
    fg_arena_free(arena);
}

static void over_budget(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgProof proof;
    const char *said = verdict(arena, plain, 2304 + 4640 - 1, &proof, failures);
    CHECK(said && strstr(said, "exceed the budget"));
    fg_arena_free(arena);
}

/* ---- order ---- */
REJECTS(
    read_during_gather, plain,
    "#3 linear in @step: it reads %w.10 before its gather #1 gather is known to be complete; it "
    "needs wait(#1)",
    " wait(#1)", "")
REJECTS(reduce_during_backward, plain,
        "#10 reduce_scatter in @step: it reads %B.14 while #9 linear_dw may still write",
        " wait(#9)", "")
REJECTS(write_during_read, plain, /* the copy's memory is overwritten while the copy stream reads */
        "it writes %B.14 while #4 mean may still read the same bytes; it needs wait(#4)",
        "= mean %y.11", "= mean %w.10 stream(copy) wait(#3)")
REJECTS(write_during_write, plain, "it writes %dy.13 while #4 mean may still write the same bytes",
        "at(6416) = mean %y.11", "at(5376) = mean %y.11 stream(copy) wait(#3)",
        "%acc.7 = loss_add %loss.12", "%acc.7 = loss_add %loss.12 stream(copy)")
REJECTS(wait_on_later, plain, "it waits for #10 reduce_scatter, which is issued later: a cycle",
        "wait(#1)", "wait(#1, #10)")
REJECTS(wait_on_nothing, clipped, "it waits for #30, which is no node of @step", "wait(#1)",
        "wait(#1, #30)")
REJECTS(wait_on_own_stream, plain, "it waits for #3 linear on its own stream", "mean %y.11",
        "mean %y.11 wait(#3)")
REJECTS(wait_on_view, plain, "is never emitted: one has no call", "stream(reduce) wait(#9)",
        "stream(reduce) wait(#9, #2)")
REJECTS(communicator_on_two_streams, plain,
        "#13 all_reduce in @step: it uses the reduce communicator on stream gather, but #15 "
        "all_reduce does on stream reduce",
        "all_reduce %norm.5 phase(update) stream(reduce)",
        "all_reduce %norm.5 phase(update) stream(gather) wait(#12)")
REJECTS(not_in_place, plain,
        "its operand %x.8 and %y.11 share bytes, and it does not work in place",
        "%y.11 : f32[16, 16] at(4352)", "%y.11 : f32[16, 16] at(3328)")

REJECTS(plus_is_a_factor, plain,
        "its operand %x.8 and %y.11 share bytes, and it does not work in place",
        "%y.11 : f32[16, 16] at(4352) = linear %x.8, %w.10",
        "%y.11 : f32[16, 16] at(3328) = linear %x.8, %w.10, _, %x.8")

/* A result that takes the place of what is added to it. */
static void plus_in_place(int *failures)
{
    FgArena *arena = fg_arena_new();
    FgProof proof;
    const char *text = edited(
        arena, plain, "view %W.9\n",
        "view %W.9\n  #41 %r.41 : f32[16, 16] at(4352) = full {shape = [16, 16], value = 1.0}\n",
        failures);
    text = edited(arena, text, "linear %x.8, %w.10", "linear %x.8, %w.10, _, %r.41", failures);
    CHECK(!verdict(arena, text, UINT64_MAX, &proof, failures));
    fg_arena_free(arena);
}

/* ---- contents ---- */
REJECTS(overwritten, plain, "it reads %x.8, but #3 linear wrote %y.11 into the same bytes",
        "%y.11 : f32[16, 16] at(4352)", "%y.11 : f32[16, 16] at(3344)")
REJECTS(read_before_made, plain, "it reads %dy.13 before #7 full makes it", "mean %y.11",
        "mean %dy.13")
REJECTS(read_before_gather, plain, "it reads %w.10 before #1 gather makes it",
        "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n",
        "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n"
        "  #40 %z.40 : f32[] at(6944) = mean %w.10\n",
        "arena(4640)", "arena(4656)")
REJECTS(never_written, plain, "it reads %acc.7, whose bytes nothing has written",
        "%acc.7 = loss_add %loss.12", "%acc.7 = loss_add %loss.12 {accumulate = true}")
REJECTS(used_after_release, plain, "it reads %w.10 after its release #5 release",
        "%dy.13 : f32[16, 16] at(5376) = full {shape = [16, 16], value = 1.0}",
        "%dy.13 : f32[16, 16] at(5376) = linear %x.8, %w.10")
REJECTS(memory_given_away, plain, "it reads %w.10, but #41 full wrote %x.8 into the same bytes",
        "  #3 %y.11", "  #41 %x.8 = full {shape = [16, 16], value = 1.0}\n  #3 %y.11",
        "%x.8 : f32[16, 16] at(3328)", "%x.8 : f32[16, 16] at(2320)")
REJECTS(
    stale_weights, plain,
    "#48 mean in @step: it reads stale weights: %w.10 was gathered before the update of bucket b",
    "  #5 release %W.9 bucket(0)\n", "", "%B.14 : f32[256] mem(gradients) at(2304)",
    "%B.14 : f32[256] mem(gradients) at(4352)", "  #13 ",
    "  #48 %z.48 : f32[] at(3328) = mean %w.10 wait(#12)\n  #5 release %W.9 bucket(0)\n  #13 ")
/* Gathered again behind the update, as it is now: but not as forward read it. */
REJECTS(
    weights_of_two_steps, plain,
    "#48 mean in @step: it reads %w.47 after the update of bucket b in this step; update the "
    "weights after their last read",
    "  #13 ",
    "  #45 %W.46 : f32[256] mem(gathered) at(2304) = gather %s.0 bucket(0) stream(gather) "
    "wait(#12)\n"
    "  #46 %w.47 : f32[16, 16] in %W.46+0 = view %W.46\n"
    "  #48 %z.48 : f32[] at(3328) = mean %w.47 wait(#45)\n  #49 release %W.46 bucket(0)\n  #13 ")

/* The same where nothing else reads them. */
REJECTS(
    read_after_the_update, plain,
    "#48 mean in @step: it reads %w.47 after the update of bucket b in this step; update the "
    "weights after their last read",
    " = linear %x.8, %w.10 wait(#1)", " = linear %x.8, %x.8", "release %W.9 bucket(0)",
    "release %W.9 bucket(0) wait(#1)", "  #13 ",
    "  #45 %W.46 : f32[256] mem(gathered) at(2304) = gather %s.0 bucket(0) stream(gather) "
    "wait(#12)\n"
    "  #46 %w.47 : f32[16, 16] in %W.46+0 = view %W.46\n"
    "  #48 %z.48 : f32[] at(3328) = mean %w.47 wait(#45)\n  #49 release %W.46 bucket(0)\n  #13 ")

/* ---- gathers ---- */
REJECTS(released_twice, plain, "it releases %W.9, which is not gathered here", "  #6 ",
        "  #42 release %W.9 bucket(0)\n  #6 ")
REJECTS(never_released, plain, "it gathers %W.9 again, which was not released since",
        "  #5 release %W.9 bucket(0)\n", "")
REJECTS(given_away_before_release, plain,
        "it releases %W.9, whose bytes hold %B.14: memory was given away before the release",
        "  #5 release %W.9 bucket(0)\n", "", "  #9 %dw", "  #5 release %W.9 bucket(0)\n  #9 %dw")
REJECTS(wrong_shard, plain, "it gathers %m.1, which is not the shard of b", "gather %s.0",
        "gather %m.1")

/* ---- gradients ---- */
REJECTS(reduced_twice, plain, "it reduces %B.14, which has not begun or was reduced already",
        "  #11 ",
        "  #43 %g.3 = reduce_scatter %B.14 {accumulate = true} bucket(0) stream(reduce)\n  #11 ")
REJECTS(reduced_in_part, plain, "it reduces %B.14 before the gradient of \"w\" is written there",
        "  #9 %dw.15 : f32[16, 16] in %B.14+0 = linear_dw %x.8, %dy.13 phase(backward)\n", "",
        "wait(#9)", "wait(#8)")
REJECTS(first_accumulates, plain, "it adds to %dw.15, which no earlier contribution has written",
        "linear_dw %x.8, %dy.13", "linear_dw %x.8, %dy.13 {accumulate = true}")
REJECTS(second_overwrites, plain, "it overwrites %dw.15 of an earlier contribution", "  #10 ",
        "  #44 %e.44 : f32[16, 16] in %B.14+0 = linear_dw %x.8, %dy.13\n  #10 ", "wait(#9)",
        "wait(#44)")
REJECTS(contributes_late, plain, "it contributes to %B.14 after its reduction", "  #11 ",
        "  #44 %e.44 : f32[16, 16] in %B.14+0 = linear_dw %x.8, %dy.13 {accumulate = true}\n  #11 ")
REJECTS(buffer_not_begun, plain, "it writes a gradient into %B.14, which has not begun",
        "  #8 %B.14 : f32[256] mem(gradients) at(2304) = grad_buffer bucket(0) phase(backward)\n",
        "", "  #10 %g.3",
        "  #8 %B.14 : f32[256] mem(gradients) at(2304) = grad_buffer bucket(0)\n  #10 %g.3")
REJECTS(never_reduced, plain, "@step never reduces %B.14",
        "  #10 %g.3 = reduce_scatter %B.14 bucket(0) phase(backward) stream(reduce) wait(#9)\n", "")
REJECTS(adds_to_nothing, plain, "it adds to %g.3, which holds no gradient of this step",
        "reduce_scatter %B.14 bucket(0)", "reduce_scatter %B.14 {accumulate = true} bucket(0)")
REJECTS(micro_step_lost, accumulated,
        "it overwrites the reduced gradient of b that no update has used",
        "reduce_scatter %B.12 {accumulate = true}", "reduce_scatter %B.12")

/* ---- gradients in parts ---- */
/* `plain` with the parts of both ranks where the sum was, and an update that begins the norm. */
static const char *in_parts(FgArena *arena, int *failures)
{
    static const char *const edits[] = {
        "arena(4640)",
        "arena(5152)",
        "%g.3 : f32[128]",
        "%g.3 : f32[256]",
        "reduce_scatter %B.14",
        "all_to_all %B.14",
        "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n",
        "",
        "%s.0, _ = adamw %g.3, %scalars.4 bucket(0)",
        "%s.0, %norm.5 = adamw_parts %g.3, %scalars.4 {adds = false} bucket(0)"};
    const char *text = plain;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i += 2)
        text = edited(arena, text, edits[i], edits[i + 1], failures);
    return text;
}

static void parts(int *failures)
{
    FgArena *arena = fg_arena_new();
    proves(in_parts(arena, failures), failures);
    fg_arena_free(arena);
}

#define REJECTS_PARTS(name, message, ...)                                                          \
    static void name(int *failures)                                                                \
    {                                                                                              \
        FgArena *arena = fg_arena_new();                                                           \
        const char *const edits[9] = {__VA_ARGS__};                                                \
        rejects(in_parts(arena, failures), edits, message, failures);                              \
        fg_arena_free(arena);                                                                      \
    }

REJECTS_PARTS(parts_not_summed, "it updates bucket b from parts without adding them up",
              "%norm.5 = adamw_parts %g.3, %scalars.4 {adds = false}", "_ = adamw %g.3, %scalars.4")
REJECTS_PARTS(parts_counted, "it counts the gradient of b, which is in parts that are not summed",
              "  #12 ",
              "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n  #12 ")
REJECTS_PARTS(parts_added_to_nothing, "the first norm_add of a step must start from zero",
              "{adds = false} ", "")
REJECTS_PARTS(parts_reduced_twice, "it reduces %B.14, which has not begun or was reduced already",
              "  #12 ", "  #43 %g.3 = all_to_all %B.14 bucket(0) stream(reduce)\n  #12 ")
REJECTS(sum_taken_for_parts, plain, "it adds up parts of the gradient of bucket b, which is a sum",
        "%s.0, _ = adamw %g.3, %scalars.4 bucket(0)",
        "%s.0, _ = adamw_parts %g.3, %scalars.4 bucket(0)")
REJECTS(parts_too_small, plain, "do not have the sizes of bucket b", "reduce_scatter %B.14",
        "all_to_all %B.14")

/* ---- updates ---- */
REJECTS(not_updated, plain, "the step does not update bucket b",
        "  #12 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) phase(update) "
        "stream(reduce)\n",
        "")
REJECTS(updated_twice, plain, "it updates bucket b a second time in a step", "  #13 ",
        "  #45 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) stream(reduce)\n  #13 ")
REJECTS(
    updated_with_part, accumulated, "it updates bucket b with 1 of 2 reductions of a step",
    "  #13 %g.3 = reduce_scatter %B.12 {accumulate = true} bucket(0) stream(reduce) wait(#12)\n",
    "", "  #14 %norm.5 = norm_add %g.3 bucket(0) stream(reduce)\n", "")
REJECTS(update_of_next_gradient, clipped,
        "it overwrites the reduced gradient of b that no update has used",
        "  #20 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
        "phase(update) "
        "stream(reduce)\n",
        "", " wait(#20)", "")
REJECTS(pending_gradient_lost,
        clipped, /* the slice is placed over an activation of the next step */
        "it reads %g.3, but #0 full wrote %x.8 into the same bytes", "mem(gradients) at(6432)",
        "mem(gradients) at(3328)",
        "  #20 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
        "phase(update) "
        "stream(reduce)\n"
        "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n",
        "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n"
        "  #20 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
        "phase(update) "
        "stream(reduce) wait(#0)\n")
REJECTS(no_flush, clipped, "there is no @flush", "func @flush", "func @other")
REJECTS(gather_before_pending_update, clipped,
        "it reads stale weights: %w.10 was gathered before the update of bucket b", "  #20 _,",
        "  #50 _,",
        "  #50 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
        "phase(update) "
        "stream(reduce)\n"
        "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n"
        "  #1 %W.9 : f32[256] mem(gathered) at(2304) = gather %s.0 bucket(0) stream(gather) "
        "wait(#20)\n",
        "  #0 %x.8 : f32[16, 16] at(3328) = full {shape = [16, 16], value = 1.0}\n"
        "  #1 %W.9 : f32[256] mem(gathered) at(2304) = gather %s.0 bucket(0) stream(gather)\n"
        "  #50 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
        "phase(update) "
        "stream(reduce) wait(#1)\n")

/* ---- norm and loss ---- */
REJECTS(norm_before_reduction, accumulated,
        "it counts the gradient of b before the reductions of all micro-steps", "  #13 ",
        "  #16 %norm.5 = norm_add %g.3 bucket(0) stream(reduce)\n  #13 ",
        "  #14 %norm.5 = norm_add %g.3 bucket(0) stream(reduce)\n", "")
REJECTS(norm_twice, plain, "it counts the gradient of b a second time", "  #13 ",
        "  #46 %norm.5 = norm_add %g.3 {accumulate = true} bucket(0) stream(reduce)\n  #13 ")
REJECTS(norm_twice_by_update, plain, "it counts the gradient of b a second time",
        "%s.0, _ = adamw %g.3", "%s.0, %norm.5 = adamw %g.3")
REJECTS(norm_begun_by_update, plain, "the first norm_add of a step must start from zero",
        "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n", "",
        "%s.0, _ = adamw %g.3", "%s.0, %norm.5 = adamw %g.3")
REJECTS(norm_not_reset, plain, "the first norm_add of a step must start from zero", "norm_add %g.3",
        "norm_add %g.3 {accumulate = true}")
REJECTS(norm_without_bucket, plain, "it takes the norm before bucket b is counted in it",
        "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n", "")
REJECTS(factor_before_norm, plain, "it reads the norm before its sum over ranks",
        "  #13 %norm.5 = all_reduce %norm.5 phase(update) stream(reduce)\n", "")
REJECTS(no_factor, clipped, "the step makes no clipping factor",
        "  #14 %scalars.4 = clip_factor %norm.5 {clip = 1.0} phase(update) stream(reduce)\n", "")
REJECTS(loss_twice_from_zero, plain, "the first loss_add of a step must start from zero", "  #7 ",
        "  #47 %acc.7 = loss_add %loss.12\n  #7 ")

REJECTS(loss_reduced_twice, plain, "it sums the loss over ranks a second time", "  #7 ",
        "  #49 %acc.7 = all_reduce %acc.7 stream(reduce)\n  #7 ")
REJECTS(loss_not_reduced, plain, "the step does not sum its loss over ranks",
        "  #15 %acc.7 = all_reduce %acc.7 stream(reduce) wait(#6)\n", "")
REJECTS(loss_added_late, plain, "it adds to the loss after its sum over ranks", "  #7 ",
        "  #47 %acc.7 = loss_add %loss.12 {accumulate = true} wait(#15)\n  #7 ")
REJECTS(memory_taken_before_release,
        plain, /* the release is on another stream, which nothing awaits */
        "it writes %B.14 while #5 release may still read the same bytes; it needs wait(#5)",
        "  #5 release %W.9 bucket(0)", "  #5 release %W.9 bucket(0) stream(copy) wait(#3)")

/* ---- places ---- */
REJECTS(no_address, plain, "%y.11 has no address", "%y.11 : f32[16, 16] at(4352)",
        "%y.11 : f32[16, 16]")
REJECTS(outside_arena, plain, "%y.11 lies at 6400..7424, outside the arena at 2304..6944",
        "%y.11 : f32[16, 16] at(4352)", "%y.11 : f32[16, 16] at(6400)")
REJECTS(result_among_states, plain, "outside the arena", "%y.11 : f32[16, 16] at(4352)",
        "%y.11 : f32[16, 16] at(1024)")
REJECTS(misaligned, plain, "%y.11 lies at 4356, which is no multiple of 16",
        "%y.11 : f32[16, 16] at(4352)", "%y.11 : f32[16, 16] at(4356)")
REJECTS(states_overlap, plain, "the states %m.1 and %v.2 overlap", "mem(optimizer) at(1024)",
        "mem(optimizer) at(1008)")
REJECTS(view_outside, plain, "%w.10 does not lie inside %W.9", "in %W.9+0 = view",
        "in %x.8+0 = view")
REJECTS(beyond_root, plain, "%dw.15 reaches beyond the memory of %B.14", "in %B.14+0 = linear_dw",
        "in %B.14+16 = linear_dw")

UNIT_MAIN(
    {"right", right}, {"over_budget", over_budget}, {"read_during_gather", read_during_gather},
    {"reduce_during_backward", reduce_during_backward}, {"write_during_read", write_during_read},
    {"write_during_write", write_during_write}, {"wait_on_later", wait_on_later},
    {"wait_on_nothing", wait_on_nothing}, {"wait_on_own_stream", wait_on_own_stream},
    {"wait_on_view", wait_on_view}, {"communicator_on_two_streams", communicator_on_two_streams},
    {"not_in_place", not_in_place}, {"plus_is_a_factor", plus_is_a_factor},
    {"plus_in_place", plus_in_place}, {"overwritten", overwritten},
    {"read_before_made", read_before_made}, {"read_before_gather", read_before_gather},
    {"never_written", never_written}, {"used_after_release", used_after_release},
    {"memory_given_away", memory_given_away}, {"stale_weights", stale_weights},
    {"weights_of_two_steps", weights_of_two_steps},
    {"read_after_the_update", read_after_the_update}, {"released_twice", released_twice},
    {"never_released", never_released}, {"given_away_before_release", given_away_before_release},
    {"wrong_shard", wrong_shard}, {"reduced_twice", reduced_twice},
    {"reduced_in_part", reduced_in_part}, {"first_accumulates", first_accumulates},
    {"second_overwrites", second_overwrites}, {"contributes_late", contributes_late},
    {"buffer_not_begun", buffer_not_begun}, {"never_reduced", never_reduced},
    {"adds_to_nothing", adds_to_nothing}, {"micro_step_lost", micro_step_lost}, {"parts", parts},
    {"parts_not_summed", parts_not_summed}, {"parts_counted", parts_counted},
    {"parts_added_to_nothing", parts_added_to_nothing},
    {"parts_reduced_twice", parts_reduced_twice}, {"sum_taken_for_parts", sum_taken_for_parts},
    {"parts_too_small", parts_too_small}, {"not_updated", not_updated},
    {"updated_twice", updated_twice}, {"updated_with_part", updated_with_part},
    {"update_of_next_gradient", update_of_next_gradient},
    {"pending_gradient_lost", pending_gradient_lost}, {"no_flush", no_flush},
    {"gather_before_pending_update", gather_before_pending_update},
    {"norm_before_reduction", norm_before_reduction}, {"norm_twice", norm_twice},
    {"norm_twice_by_update", norm_twice_by_update}, {"norm_begun_by_update", norm_begun_by_update},
    {"norm_not_reset", norm_not_reset}, {"norm_without_bucket", norm_without_bucket},
    {"factor_before_norm", factor_before_norm}, {"no_factor", no_factor},
    {"loss_twice_from_zero", loss_twice_from_zero}, {"loss_reduced_twice", loss_reduced_twice},
    {"loss_not_reduced", loss_not_reduced}, {"loss_added_late", loss_added_late},
    {"memory_taken_before_release", memory_taken_before_release}, {"no_address", no_address},
    {"outside_arena", outside_arena}, {"result_among_states", result_among_states},
    {"misaligned", misaligned}, {"states_overlap", states_overlap}, {"view_outside", view_outside},
    {"beyond_root", beyond_root})
