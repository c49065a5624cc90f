/* The checker on what outlives the function that begins it: gathered copies, over micro-steps and
 * round the period, and gradients that add up over micro-steps. Three schedules that are right, and
 * each way to break them. */
#include "tests/unit/edited.h"
#include "tests/unit/unit.h"

#include <string.h>

#define HEAD(accumulate)                                                                           \
    HEAD_WITH(accumulate, "state %W.6 : f32[256] role(gathered, 0) mem(gathered) at(2304)\n")
#define HEAD_WITH(accumulate, state)                                                               \
    "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=0.0, "     \
    "accumulate=" accumulate ")\n"                                                                 \
    "memory states(2304) arena(3840)\n"                                                            \
    "param 0 @w : f32[16, 16] init(normal, 0.02) trainable bucket(0 + 0)\n"                        \
    "bucket 0 @b dtype(f32) trainable elements(256) params(0) parts(1, 0) states(shard=%s.0, "     \
    "moment1=%m.1, "                                                                               \
    "moment2=%v.2, grad_shard=%g.3)\n"                                                             \
    "state %s.0 : f32[128] role(shard, 0) mem(parameters) at(0)\n"                                 \
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(512)\n"                              \
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer) at(1024)\n"                             \
    "state %g.3 : f32[128] role(grad_shard, 0) mem(gradients) at(5632)\n"                          \
    "state %scalars.4 : f32[32] role(scalars) mem(constants) at(1536)\n"                           \
    "state %norm.5 : i64[24] role(norm) mem(constants) at(1664)\n" state
#define UPDATE                                                                                     \
    "  #25 %norm.5 = norm_add %g.3 bucket(0) stream(reduce)\n"                                     \
    "  #26 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) stream(reduce)\n"

/* Gathered in @first, released in @last, of two micro-steps. */
static const char kept[] =
    HEAD("2") "func @first {\n"
              "  #1 %W.6 = gather %s.0 bucket(0) stream(gather)\n"
              "  #2 %w.10 : f32[16, 16] in %W.6+0 = view %W.6\n"
              "  #3 %y.11 : f32[] at(3328) = mean %w.10 wait(#1)\n"
              "  #4 %x.12 : f32[256] at(3584) = full {shape = [256], value = 1.0}\n"
              "  #5 %B.13 : f32[256] mem(gradients) at(4608) = grad_buffer bucket(0)\n"
              "  #6 %dw.14 : f32[16, 16] in %B.13+0 = grad_write %x.12\n"
              "  #7 %g.3 = reduce_scatter %B.13 bucket(0) stream(reduce) wait(#6)\n"
              "}\n"
              "func @last {\n"
              "  #12 %w.20 : f32[16, 16] in %W.6+0 = view %W.6\n"
              "  #13 %y.21 : f32[] at(3328) = mean %w.20\n"
              "  #14 release %W.6 bucket(0)\n"
              "  #21 %x.22 : f32[256] at(3584) = full {shape = [256], value = 1.0}\n"
              "  #22 %B.23 : f32[256] mem(gradients) at(4608) = grad_buffer bucket(0)\n"
              "  #23 %dw.24 : f32[16, 16] in %B.23+0 = grad_write %x.22\n"
              "  #24 %g.3 = reduce_scatter %B.23 {accumulate = true} bucket(0) stream(reduce) "
              "wait(#23)\n" UPDATE "}\n";

/* Gathered in @prologue and at the end of each step, released in the step. */
static const char round_period[] =
    HEAD("1") "func @prologue {\n"
              "  #1 %W.6 = gather %s.0 bucket(0) stream(gather)\n"
              "}\n"
              "func @step {\n"
              "  #12 %w.20 : f32[16, 16] in %W.6+0 = view %W.6\n"
              "  #13 %y.21 : f32[] at(3328) = mean %w.20\n"
              "  #14 release %W.6 bucket(0)\n"
              "  #21 %x.22 : f32[256] at(3584) = full {shape = [256], value = 1.0}\n"
              "  #22 %B.23 : f32[256] mem(gradients) at(4608) = grad_buffer bucket(0)\n"
              "  #23 %dw.24 : f32[16, 16] in %B.23+0 = grad_write %x.22\n"
              "  #24 %g.3 = reduce_scatter %B.23 bucket(0) stream(reduce) wait(#23)\n" UPDATE
              "  #27 %W.6 = gather %s.0 bucket(0) stream(gather) wait(#14, #26)\n"
              "}\n";

/* Begun in @first, reduced in @last, of three micro-steps. */
static const char summed[] = HEAD_WITH(
    "3, accumulate_in=whole",
    "state %B.6 : f32[256] role(grad_whole, 0) mem(gradients) "
    "at(4608)\n") "func @first {\n"
                  "  #1 %B.6 = grad_buffer bucket(0)\n"
                  "  #2 %x.11 : f32[256] at(3584) = full {shape = [256], value = 1.0}\n"
                  "  #3 %dw.12 : f32[16, 16] in %B.6+0 = grad_write %x.11\n"
                  "}\n"
                  "func @middle {\n"
                  "  #5 %x.13 : f32[256] at(3584) = full {shape = [256], value = 1.0}\n"
                  "  #6 %dw.14 : f32[16, 16] in %B.6+0 = grad_write %x.13 {accumulate = true}\n"
                  "}\n"
                  "func @last {\n"
                  "  #8 %x.15 : f32[256] at(3584) = full {shape = [256], value = 1.0}\n"
                  "  #9 %dw.16 : f32[16, 16] in %B.6+0 = grad_write %x.15 {accumulate = true}\n"
                  "  #10 %g.3 = reduce_scatter %B.6 bucket(0) stream(reduce) wait(#9)\n" UPDATE
                  "}\n";

static void right(int *failures)
{
    FgArena *arena = fg_arena_new();
    CHECK_STR(text_verdict(arena, kept, failures), "");
    CHECK_STR(text_verdict(arena, round_period, failures), "");
    CHECK_STR(text_verdict(arena, summed, failures), "");
    fg_arena_free(arena);
}

typedef struct Fault {
    const char *text, *message;
    const char *from, *to, *from2, *to2; /* two edits; the second one may be NULL */
} Fault;

static void each_fault(int *failures)
{
    static const Fault faults[] = {
        /* a copy that the update has outrun */
        {kept, "it reads stale weights: %w.20 was gathered before the update of bucket b",
         "  #14 release %W.6 bucket(0)\n", "",
         "  #26 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) stream(reduce)\n",
         "  #26 _, %m.1, %v.2, %s.0, _ = adamw %g.3, %scalars.4 bucket(0) stream(reduce)\n"
         "  #30 %y.30 : f32[] at(3328) = mean %w.20 wait(#26)\n"
         "  #14 release %W.6 bucket(0)\n"},
        {round_period, "it reads stale weights: %w.20 was gathered before the update of bucket b",
         "  #27 %W.6 = gather %s.0 bucket(0) stream(gather) wait(#14, #26)\n", "", "  #25 ",
         "  #27 %W.6 = gather %s.0 bucket(0) stream(gather) wait(#14)\n  #25 "},
        /* gathers and releases that do not alternate over the borders */
        {kept, "is gathered at the end of a step, but not before the first one",
         "  #14 release %W.6 bucket(0)\n", "", NULL, NULL},
        {kept, "it gathers %W.6 again, which was not released since the last time", "  #12 ",
         "  #30 %W.6 = gather %s.0 bucket(0) stream(gather)\n  #12 ", "mean %w.20",
         "mean %w.20 wait(#30)"},
        {kept, "it reads %w.20 after its release #30 release", "  #3 %y.11",
         "  #30 release %W.6 bucket(0) wait(#1)\n  #3 %y.11", NULL, NULL},
        {round_period, "is released at the end of a step, but gathered before the first one",
         "  #27 %W.6 = gather %s.0 bucket(0) stream(gather) wait(#14, #26)\n", "", NULL, NULL},
        {round_period, "it reads %w.20 before #27 gather makes it",
         "  #1 %W.6 = gather %s.0 bucket(0) stream(gather)\n",
         "  #1 %q.40 : f32[] at(3328) = full {shape = [], value = 1.0}\n", NULL, NULL},
        /* its memory given away in another function than the one that gathers */
        {kept, "it reads %w.20, but #4 full wrote %x.12 into the same bytes",
         "%x.12 : f32[256] at(3584)", "%x.12 : f32[256] at(2304)", NULL, NULL},
        {summed, "it writes a gradient into %B.6, which has not begun", "%x.13 : f32[256] at(3584)",
         "%x.13 : f32[256] at(4608)", NULL, NULL},
        /* contributions that do not all add up */
        {summed, "it adds to %dw.12, which no earlier contribution has written", "grad_write %x.11",
         "grad_write %x.11 {accumulate = true}", NULL, NULL},
        {summed, "it overwrites %dw.12 of an earlier contribution; it must accumulate",
         "grad_write %x.13 {accumulate = true}", "grad_write %x.13", NULL, NULL},
        {summed, "@middle ends with 1 of 2 contributions to %B.6",
         "  #6 %dw.14 : f32[16, 16] in %B.6+0 = grad_write %x.13 {accumulate = true}\n", "", NULL,
         NULL},
        {summed, "it reduces %B.6 after 2 of 3 contributions",
         "  #9 %dw.16 : f32[16, 16] in %B.6+0 = grad_write %x.15 {accumulate = true}\n", "",
         " wait(#9)", " wait(#8)"},
        /* begun once, reduced once */
        {summed, "it begins %B.6 again before its reduction", "  #5 ",
         "  #30 %B.6 = grad_buffer bucket(0)\n  #5 ", NULL, NULL},
        {summed, "it writes a gradient into %B.6, which has not begun", "grad_write %x.11\n",
         "grad_write %x.11\n  #30 %g.3 = reduce_scatter %B.6 bucket(0) stream(reduce) wait(#3)\n",
         NULL, NULL},
        {summed, "@last never reduces %B.6",
         "  #10 %g.3 = reduce_scatter %B.6 bucket(0) stream(reduce) wait(#9)\n", "", NULL, NULL},
        {summed, "it updates bucket b with 4 of 3 reductions",
         "%B.6 bucket(0) stream(reduce) wait(#9)",
         "%B.6 {accumulate = true} bucket(0) stream(reduce) wait(#9)", "grad_write %x.11\n",
         "grad_write %x.11\n  #30 %g.3 = reduce_scatter %B.6 bucket(0) stream(reduce) wait(#3)\n"
         "  #31 %B.6 = grad_buffer bucket(0) wait(#30)\n"
         "  #32 %dw.40 : f32[16, 16] in %B.6+0 = grad_write %x.11 wait(#30)\n"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        FgArena *arena = fg_arena_new();
        const char *text =
            text_edited(arena, faults[i].text, faults[i].from, faults[i].to, failures);
        if (faults[i].from2)
            text = text_edited(arena, text, faults[i].from2, faults[i].to2, failures);
        const char *said = text_verdict(arena, text, failures);
        if (!strstr(said, faults[i].message)) {
            printf("fault %zu: \"%s\" is not in:\n%s\n", i, faults[i].message, said);
            ++*failures;
        }
        fg_arena_free(arena);
    }
}

UNIT_MAIN({"right", right}, {"each_fault", each_fault})
