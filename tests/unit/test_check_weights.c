/* The checker on how old weights are: all that a step reads of a bucket is of one version, that
 * which the last update left, wherever the shard lies and whatever copies bring it. Every call is
 * on one stream, so that nothing races and no wait is needed: each fault is one of contents alone.
 */
#include "tests/unit/edited.h"
#include "tests/unit/unit.h"

#include <string.h>

/* One weight on two ranks, its shard in host memory, updated in two parts. With clipping: the
 * update is that of the step before, and @flush does it alone. */
#define HEAD                                                                                       \
    "module @tiny level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=1.0, "     \
    "accumulate=1)\n"                                                                              \
    "memory states(1856) arena(7744) host_states(512) host_arena(512)\n"                           \
    "param 0 @w : f32[16, 16] init(normal, 0.02) trainable bucket(0 + 0)\n"                        \
    "bucket 0 @b dtype(f32) trainable elements(256) params(0) states(shard=%s.0, moment1=%m.1, "   \
    "moment2=%v.2, grad_shard=%g.3)\n"                                                             \
    "state %s.0 : f32[128] role(shard, 0) mem(parameters) host at(0)\n"                            \
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(0)\n"                                \
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer) at(512)\n"                              \
    "state %g.3 : f32[128] role(grad_shard, 0) mem(gradients) at(7488)\n"                          \
    "state %scalars.4 : f32[32] role(scalars) mem(constants) at(1024)\n"                           \
    "state %norm.5 : i64[24] role(norm) mem(constants) at(1152)\n"                                 \
    "func @step {\n"
#define UPDATE(v, id)                                                                              \
    "  #" v "0 %ha." v "0 : f32[64] in %s.0+0 = view %s.0\n"                                       \
    "  #" v "1 %hb." v "1 : f32[64] in %s.0+256 = view %s.0\n"                                     \
    "  #" v "2 %ga." v "2 : f32[64] in %g.3+0 = view %g.3\n"                                       \
    "  #" v "3 %gb." v "3 : f32[64] in %g.3+256 = view %g.3\n"                                     \
    "  #" v "4 %ma." v "4 : f32[64] in %m.1+0 = view %m.1\n"                                       \
    "  #" v "5 %mb." v "5 : f32[64] in %m.1+256 = view %m.1\n"                                     \
    "  #" v "6 %va." v "6 : f32[64] in %v.2+0 = view %v.2\n"                                       \
    "  #" v "7 %vb." v "7 : f32[64] in %v.2+256 = view %v.2\n"                                     \
    "  #" id "0 %a." id "0 : f32[64] at(8000) = fetch %ha." v "0 bucket(0)\n"                      \
    "  #" id "1 %b." id "1 : f32[64] at(8256) = fetch %hb." v "1 bucket(0)\n"                      \
    "  #" id "2 _, %ma." v "4, %va." v "6, %a." id "0 = adamw_part %ga." v                         \
    "2, %scalars.4 {first = 0, pending = true} bucket(0)\n"                                        \
    "  #" id "3 %ha." v "0 = stash %a." id "0 bucket(0)\n"                                         \
    "  #" id "4 _, %mb." v "5, %vb." v "7, %b." id "1 = adamw_part %gb." v                         \
    "3, %scalars.4 {first = 64, pending = true} bucket(0)\n"                                       \
    "  #" id "5 %hb." v "1 = stash %b." id "1 bucket(0)\n"
#define STEP                                                                                       \
    "  #39 %S.39 : f32[128] at(2880) = fetch %s.0 bucket(0)\n"                                     \
    "  #1 %W.9 : f32[256] mem(gathered) at(3392) = gather %S.39 bucket(0)\n"                       \
    "  #2 %w.10 : f32[16, 16] in %W.9+0 = view %W.9\n"                                             \
    "  #0 %x.8 : f32[16, 16] at(1856) = full {shape = [16, 16], value = 1.0}\n"                    \
    "  #3 %y.11 : f32[16, 16] at(4416) = linear %x.8, %w.10\n"                                     \
    "  #5 release %W.9 bucket(0)\n"                                                                \
    "  #7 %dy.13 : f32[16, 16] at(5440) = full {shape = [16, 16], value = 1.0} phase(backward)\n"  \
    "  #8 %B.14 : f32[256] mem(gradients) at(6464) = grad_buffer bucket(0) phase(backward)\n"      \
    "  #9 %dw.15 : f32[16, 16] in %B.14+0 = linear_dw %x.8, %dy.13 phase(backward)\n"              \
    "  #10 %g.3 = reduce_scatter %B.14 bucket(0) phase(backward)\n"                                \
    "  #11 %norm.5 = norm_add %g.3 bucket(0)\n"                                                    \
    "  #12 %norm.5 = all_reduce %norm.5\n"                                                         \
    "  #13 %scalars.4 = clip_factor %norm.5 {clip = 1.0}\n"                                        \
    "}\n"

static const char in_host_memory[] =
    HEAD UPDATE("2", "3") STEP "func @flush {\n" UPDATE("6", "4") "}\n";

/* The same with the shard on the device. */
static const char *on_the_device(FgArena *arena, int *failures)
{
    static const char *const edits[] = {"host_states(512) host_arena(512)",
                                        "host_states(0) host_arena(0)",
                                        "host at(0)",
                                        "at(1344)",
                                        "  #30 %a.30 : f32[64] at(8000) = fetch %ha.20 bucket(0)\n",
                                        "",
                                        "  #31 %b.31 : f32[64] at(8256) = fetch %hb.21 bucket(0)\n",
                                        "",
                                        "  #33 %ha.20 = stash %a.30 bucket(0)\n",
                                        "",
                                        "  #35 %hb.21 = stash %b.31 bucket(0)\n",
                                        "",
                                        "  #40 %a.40 : f32[64] at(8000) = fetch %ha.60 bucket(0)\n",
                                        "",
                                        "  #41 %b.41 : f32[64] at(8256) = fetch %hb.61 bucket(0)\n",
                                        "",
                                        "  #43 %ha.60 = stash %a.40 bucket(0)\n",
                                        "",
                                        "  #45 %hb.61 = stash %b.41 bucket(0)\n",
                                        "",
                                        "%a.30 =",
                                        "%ha.20 =",
                                        "%b.31 =",
                                        "%hb.21 =",
                                        "%a.40 =",
                                        "%ha.60 =",
                                        "%b.41 =",
                                        "%hb.61 =",
                                        "  #39 %S.39 : f32[128] at(2880) = fetch %s.0 bucket(0)\n",
                                        "",
                                        "gather %S.39",
                                        "gather %s.0"};
    const char *text = in_host_memory;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i += 2)
        text = text_edited(arena, text, edits[i], edits[i + 1], failures);
    return text;
}

#define COPY "  #50 %T.50 : f32[128] at(8512) = fetch %s.0 bucket(0)\n"
#define READ "  #51 %z.51 : f32[] at(9024) = mean %T.50\n"
#define AWAY "  #52 %h.52 : f32[128] host at(512) = stash %T.50\n"
#define BACK                                                                                       \
    "  #53 %U.53 : f32[128] at(9040) = fetch %h.52\n  #54 %z.54 : f32[] at(9552) = mean %U.53\n"

static void right(int *failures)
{
    FgArena *arena = fg_arena_new();
    CHECK_STR(text_verdict(arena, in_host_memory, failures), "");
    CHECK_STR(text_verdict(arena, on_the_device(arena, failures), failures), "");
    /* Weights that are used without a gather, from a copy that was made behind the update. */
    const char *text = text_edited(arena, in_host_memory, "  #39 ", COPY READ "  #39 ", failures);
    CHECK_STR(text_verdict(arena, text, failures), "");
    text = text_edited(arena, in_host_memory, "  #39 ", COPY AWAY BACK "  #39 ", failures);
    CHECK_STR(text_verdict(arena, text, failures), "");
    fg_arena_free(arena);
}

typedef struct Fault {
    const char *message;
    const char *moves[9];             /* lines, each with the one that it comes to stand before */
    const char *before[3], *lines[3]; /* lines that are added, each before another one */
} Fault;

static void refuses(const char *text, const Fault *fault, int *failures)
{
    FgArena *arena = fg_arena_new();
    for (int i = 0; fault->moves[i]; i += 2)
        text = text_moved(arena, text, fault->moves[i], fault->moves[i + 1], failures);
    for (int i = 0; fault->before[i]; i++)
        text = text_edited(arena, text, fault->before[i],
                           fg_arena_printf(arena, "%s%s", fault->lines[i], fault->before[i]),
                           failures);
    const char *said = text_verdict(arena, text, failures);
    if (!strstr(said, fault->message)) {
        printf("\"%s\" is not in:\n%s\n", fault->message, said);
        ++*failures;
    }
    fg_arena_free(arena);
}

static void each_fault(int *failures)
{
    static const Fault faults[] = {
        /* the update of the step before, behind all that this step reads */
        {"#3 linear in @step: it reads %w.10 before the update of bucket b by the gradient of the "
         "step before",
         {"  #32 ", "  #10 ", "  #33 ", "  #10 ", "  #34 ", "  #10 ", "  #35 ", "  #10 "},
         {0},
         {0}},
        /* ... and its second part alone: half of the weights are new */
        {"it gathers %S.39, which is not the shard of b as it is now",
         {"  #34 ", "  #10 ", "  #35 ", "  #10 "},
         {0},
         {0}},
        /* fetched before, or between the parts, and gathered behind them */
        {"it gathers %S.39, which is not the shard of b as it is now",
         {"  #39 ", "  #30 "},
         {0},
         {0}},
        {"it gathers %S.39, which is not the shard of b as it is now",
         {"  #39 ", "  #34 "},
         {0},
         {0}},
        {"it fetches %s.0, of which %b.31 is newer", {"  #39 ", "  #35 "}, {0}, {0}},
        /* not gathered, but used as they are */
        {"#51 mean in @step: it reads the weights of b before the step's update",
         {0},
         {"  #32 "},
         {COPY READ}},
        {"#51 mean in @step: it reads weights of b that were fetched before their update",
         {0},
         {"  #32 ", "  #39 "},
         {COPY, READ}},
        {"#51 mean in @step: it reads weights of b that were fetched before their update",
         {0},
         {"  #34 ", "  #39 "},
         {COPY, READ}},
        /* away once more, and back behind the update */
        {"#52 stash in @step: it reads the weights of b before the step's update",
         {0},
         {"  #32 ", "  #39 "},
         {COPY AWAY, BACK}},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        refuses(in_host_memory, &faults[i], failures);
}

static void each_fault_on_the_device(int *failures)
{
    static const Fault faults[] = {
        {"#3 linear in @step: it reads %w.10 before the update of bucket b by the gradient of the "
         "step before",
         {"  #32 ", "  #10 ", "  #34 ", "  #10 "},
         {0},
         {0}},
        {"it gathers %s.0 between the parts of its update: some of the weights are new",
         {"  #34 ", "  #10 "},
         {0},
         {0}},
    };
    FgArena *arena = fg_arena_new();
    const char *text = on_the_device(arena, failures);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        refuses(text, &faults[i], failures);
    fg_arena_free(arena);
}

UNIT_MAIN({"right", right}, {"each_fault", each_fault},
          {"each_fault_on_the_device", each_fault_on_the_device})
