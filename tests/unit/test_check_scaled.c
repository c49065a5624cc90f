/* The checker against a step whose loss is scaled: a right schedule, and each way to put the scale
 * in or take it out wrongly, with the message that must come. */
#include "ir/ir.h"
#include "passes/compile.h"
#include "tests/unit/unit.h"

/* One weight on two ranks; the loss is its sum times the loss's factor. */
static const char scaled[] =
    "module @tiny level(sched) ranks(2) numerics(compute=f16, wire=f16, shard=f16, clip=0.0, "
    "accumulate=1)\n"
    "memory states(3072) arena(3360)\n"
    "param 0 @w : f16[16, 16] init(normal, 0.02) trainable bucket(0 + 0)\n"
    "bucket 0 @b dtype(f16) trainable elements(256) params(0) states(shard=%s.0, master=%p.16, "
    "moment1=%m.1, moment2=%v.2, grad_shard=%g.3)\n"
    "state %s.0 : f16[128] role(shard, 0) mem(parameters) at(0)\n"
    "state %p.16 : f32[128] role(master, 0) mem(master) at(256)\n"
    "state %m.1 : f32[128] role(moment1, 0) mem(optimizer) at(768)\n"
    "state %v.2 : f32[128] role(moment2, 0) mem(optimizer) at(1280)\n"
    "state %g.3 : f16[128] role(grad_shard, 0) mem(gradients) at(6176)\n"
    "state %scalars.4 : f32[32] role(scalars) mem(constants) at(1792)\n"
    "state %norm.5 : i64[24] role(norm) mem(constants) at(1920)\n"
    "state %ws.6 : f32[64] role(workspace) mem(workspace) at(2112)\n"
    "state %acc.7 : f64[] role(loss) mem(constants) at(2368)\n"
    "state %scaler.17 : f64[16] role(scaler) mem(constants) at(2384)\n"
    "func @init {\n"
    "  #40 %s.0 = cast %p.16 {to = f16} bucket(0) phase(start)\n"
    "}\n"
    "func @step {\n"
    "  #19 %scalars.4 = loss_scale %scaler.17 stream(reduce)\n"
    "  #20 %p.16, %m.1, %v.2, %s.0 = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
    "phase(update) stream(reduce)\n"
    "  #1 %W.9 : f16[256] mem(gathered) at(3072) = gather %s.0 bucket(0) stream(gather) wait(#20)\n"
    "  #2 %w.10 : f16[16, 16] in %W.9+0 = view %W.9\n"
    "  #21 %seed.18 : f32[] in %scalars.4+0 = view %scalars.4\n"
    "  #22 %w32.19 : f32[16, 16] at(3584) = cast %w.10 {to = f32} wait(#1)\n"
    "  #5 release %W.9 bucket(0)\n"
    "  #23 %sum.20 : f32[] at(4608) = sum %w32.19\n"
    "  #24 %loss.12 : f32[] at(4624) = mul %sum.20, %seed.18 wait(#20)\n"
    "  #6 %acc.7 = loss_add %loss.12\n"
    "  #15 %acc.7 = all_reduce %acc.7 stream(reduce) wait(#6)\n"
    "  #8 %B.14 : f16[256] mem(gradients) at(5152) = grad_buffer bucket(0) phase(backward)\n"
    "  #25 %d32.21 : f32[16, 16] at(3584) = broadcast %seed.18 {shape = [16, 16]} "
    "phase(backward)\n"
    "  #26 %d.22 : f16[16, 16] at(4640) = cast %d32.21 {to = f16} phase(backward)\n"
    "  #9 %dw.15 : f16[16, 16] in %B.14+0 = grad_write %d.22 phase(backward)\n"
    "  #10 %g.3 = reduce_scatter %B.14 bucket(0) phase(backward) stream(reduce) wait(#9)\n"
    "  #11 %norm.5 = norm_add %g.3 bucket(0) phase(update) stream(reduce)\n"
    "  #13 %norm.5 = all_reduce %norm.5 phase(update) stream(reduce)\n"
    "  #14 %scalars.4, %scaler.17, %acc.7 = scale_step %norm.5 phase(update) stream(reduce)\n"
    "}\n"
    "func @flush {\n"
    "  #30 %p.16, %m.1, %v.2, %s.0 = adamw %g.3, %scalars.4 {pending = true} bucket(0) "
    "phase(update) stream(reduce)\n"
    "}\n";

static const char put_in[] = "  #19 %scalars.4 = loss_scale %scaler.17 stream(reduce)\n";
static const char taken_out[] =
    "  #14 %scalars.4, %scaler.17, %acc.7 = scale_step %norm.5 phase(update) stream(reduce)\n";
static const char loss_sum[] = "  #15 %acc.7 = all_reduce %acc.7 stream(reduce) wait(#6)\n";
static const char norm_sum[] = "  #13 %norm.5 = all_reduce %norm.5 phase(update) stream(reduce)\n";

/* What the checker says of the schedule with up to two replacements, each at its first place. */
static const char *verdict(FgArena *arena, const char *const edits[4], int *failures)
{
    const char *text = scaled;
    for (int i = 0; i < 4 && edits[i]; i += 2) {
        const char *hit = strstr(text, edits[i]);
        CHECK(hit != NULL);
        if (hit)
            text = fg_arena_printf(arena, "%.*s%s%s", (int)(hit - text), text, edits[i + 1],
                                   hit + strlen(edits[i]));
    }
    FgDiags *diags = fg_diags_new(arena);
    FgModule *module = fg_module_parse(arena, diags, "tiny.fg", text, strlen(text));
    FgProof proof;
    FgBuf out;
    fg_buf_init(&out, arena);
    bool ok = module && fg_check(arena, module, UINT64_MAX, &proof);
    fg_diags_render(diags, &out);
    return ok ? "" : fg_buf_text(&out);
}

static void right(int *failures)
{
    FgArena *arena = fg_arena_new();
    const char *none[4] = {NULL}, *said = verdict(arena, none, failures);
    CHECK(!*said);
    if (*said)
        printf("%s\n", said);
    fg_arena_free(arena);
}

static void wrong(int *failures)
{
    static const struct {
        const char *edits[4], *message;
    } cases[] = {
        {{put_in, ""}, "it reads the loss's factor before the scale is in it"},
        {{put_in, "  #19 %scalars.4 = loss_scale %scaler.17 stream(reduce)\n"
                  "  #50 %scalars.4 = loss_scale %scaler.17 stream(reduce)\n"},
         "it scales the loss a second time"},
        {{taken_out, ""}, "the step makes no clipping factor"},
        {{taken_out, "  #14 %scalars.4 = clip_factor %norm.5 phase(update) stream(reduce)\n"},
         "it leaves the loss's scale in the gradient"},
        {{loss_sum, ""}, "it reads the loss before its sum over ranks"},
        {{norm_sum, ""}, "it reads the norm before its sum over ranks"},
        {{taken_out,
          "  #14 %scalars.4, %scaler.17, %acc.7 = scale_step %norm.5 phase(update) "
          "stream(reduce)\n"
          "  #51 %acc.7 = loss_add %loss.12 {accumulate = true} phase(update) wait(#14)\n"},
         "it adds to the loss after the scale was taken out"},
        {{"compute=f16", "compute=f32"}, "it scales the loss of a program that does not"},
        {{"func @flush", "func @other"}, "there is no @flush"},
        {{" = broadcast %seed.18 {shape = [16, 16]} phase(backward)\n",
          " = broadcast %seed.18 {shape = [16, 16]} phase(backward)\n"
          "  #52 %scalars.4 = loss_scale %scaler.17 phase(backward) stream(copy)\n"},
         "it scales the loss a second time"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FgArena *arena = fg_arena_new();
        const char *said = verdict(arena, cases[i].edits, failures);
        CHECK(strstr(said, cases[i].message) != NULL);
        if (!strstr(said, cases[i].message))
            printf("not said: %s\nsaid: %s\n", cases[i].message, *said ? said : "(proved)");
        fg_arena_free(arena);
    }
}

UNIT_MAIN({"right", right}, {"wrong", wrong})
