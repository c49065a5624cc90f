/* The IR's own behaviour: building, printing, parsing, copying, fingerprints, and every rule of the
 * verifier.
 *
 * Rules are tried one by one: a small valid module as text, one place changed, and the message that
 * must come. */
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#include "base/arena.h"
#include "ir/op_fns.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char graph_text[] =
    "module @m level(graph) ranks(0) numerics(compute=f32, wire=f32, shard=f32, clip=0.0, "
    "accumulate=1)\n"
    "param 0 @w : f32[8, 4] init(normal, 0.02) trainable decay tied(\"head\", \"a\\\"b\") "
    "value(%w.0) loc(\"m.json\":3:5)\n"
    "param 1 @\"odd name\" : f32[8] init(constant, 0.0)\n"
    "input 0 @tokens : i32[2, 3] role(tokens) value(%tokens.1) loc(\"m.json\":9:1)\n"
    "input 1 @labels : i32[2, 3] role(labels) value(%labels.2)\n"
    "loss %loss.6\n"
    "func @step {\n"
    "  #0 %x.3 : f32[2, 3, 4] = embedding %tokens.1, %w.0 {padding_idx = 0} name(\"embed\") "
    "loc(\"m.json\":12:5)\n"
    "  #3 %y.4 : f32[2, 3, 8] = linear %x.3, %w.0 layer(0)\n"
    "  #4 %seed.5 : f32[] = loss_seed\n"
    "  #5 %loss.6 : f32[], %lse.7 : f32[2, 3] = cross_entropy %y.4, %labels.2, %seed.5\n"
    "  #6 %dw.9 : f32[8, 4] = linear_dw %x.3, %y.4 phase(backward) layer(0) origin(#3)\n"
    "  #7 grad %dw.9 {param = 0} phase(backward)\n"
    "}\n";

static const char sched_text[] =
    "module @s level(sched) ranks(2) numerics(compute=f32, wire=f32, shard=f32, clip=1.0, "
    "accumulate=1)\n"
    "memory states(4096) arena(2048)\n"
    "plan @zero3 recompute(full) {\n"
    "  bucket @b params(0) linger(2)\n"
    "  gather @b uses(0..3) ahead(-1)\n"
    "}\n"
    "param 0 @w : f32[8, 8] init(uniform, 0.1) trainable bucket(0 + 0)\n"
    "input 0 @x : f32[4, 8] role(other) value(%x.0)\n"
    "bucket 0 @b dtype(f32) trainable elements(64) params(0) states(shard=%s.1, moment1=%m.2, "
    "moment2=%v.3, grad_shard=%g.4)\n"
    "state %x.0 : f32[4, 8] role(input, 0) mem(inputs) at(0)\n"
    "state %s.1 : f32[32] role(shard, 0) mem(parameters) at(256)\n"
    "state %m.2 : f32[32] role(moment1, 0) mem(optimizer) at(512)\n"
    "state %v.3 : f32[32] role(moment2, 0) mem(optimizer) at(768)\n"
    "state %g.4 : f32[32] role(grad_shard, 0) mem(gradients) at(4096)\n"
    "state %scalars.5 : f32[32] role(scalars, 0) mem(constants) at(1024)\n"
    "func @step {\n"
    "  #0 _, %m.2, %v.3, %s.1, _ = adamw %g.4, %scalars.5 {pending = true} bucket(0) phase(update) "
    "stream(reduce)\n"
    "  #1 %b.6 : f32[64] mem(gathered) at(4352) = gather %s.1 bucket(0) stream(gather) wait(#0)\n"
    "  #2 %w.7 : f32[8, 8] in %b.6+0 mem(gathered) = view %b.6\n"
    "  #3 %y.8 : f32[4, 8] at(4608) = linear %x.0, %w.7 wait(#1)\n"
    "  #4 %z.9 : f32[4, 8] in %y.8+0 = silu %y.8\n"
    "  #5 release %b.6 bucket(0)\n"
    "  #6 %buf.10 : f32[64] mem(gradients) at(4864) = grad_buffer bucket(0) phase(backward)\n"
    "  #7 %dw.11 : f32[8, 8] in %buf.10+0 mem(gradients) = linear_dw %x.0, %z.9 "
    "phase(backward) layer(3) origin(#3)\n"
    "  #8 %g.4 = reduce_scatter %buf.10 bucket(0) phase(backward) stream(reduce) wait(#7)\n"
    "}\n"
    "ids nodes(9) values(14)\n";

typedef struct World {
    FgArena *arena;
    FgDiags *diags;
} World;

static World world(void)
{
    FgArena *arena = fg_arena_new();
    return (World){arena, fg_diags_new(arena)};
}

static FgModule *parse(World *w, const char *text)
{
    return fg_module_parse(w->arena, w->diags, "t.fg", text, strlen(text));
}

static const char *print(World *w, const FgModule *m)
{
    FgBuf out;
    fg_buf_init(&out, w->arena);
    fg_module_print(m, &out);
    return fg_buf_text(&out);
}

static const char *messages(World *w)
{
    FgBuf out;
    fg_buf_init(&out, w->arena);
    fg_diags_render(w->diags, &out);
    return fg_buf_text(&out);
}

/* `text` with its first `from` replaced; NULL when there is none. */
static char *replaced(FgArena *arena, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        return NULL;
    return fg_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

/* ---- building ---- */
static void builds_nodes(int *failures)
{
    World w = world();
    FgModule *m = fg_module_new(w.arena, w.diags, "m");
    FgParam p = {.name = "layer.w",
                 .type = fg_type(m, FG_F32, 2, (const int64_t[]){8, 4}),
                 .init = FG_INIT_NORMAL,
                 .trainable = true};
    uint32_t param = fg_add_param(m, &p);
    FgInput in = {.name = "x",
                  .type = fg_type(m, FG_F32, 2, (const int64_t[]){3, 4}),
                  .role = FG_INPUT_OTHER};
    fg_add_input(m, &in);
    uint32_t x = m->inputs.data[0].value;
    CHECK(fg_type(m, FG_F32, 2, (const int64_t[]){3, 4}) == in.type);
    CHECK_EQ_U64(m->params.data[param].value, FG_NO_ID);
    uint32_t weight = fg_param_value(m, param);
    CHECK_EQ_U64(fg_param_value(m, param), weight);
    FgIdVec order = {0};
    FgBuilder b = {.module = m, .order = &order, .layer = -1, .origin = FG_NO_ID};
    b.phase = FG_PHASE_FORWARD;
    FgNode *n = fg_node_new(&b, FG_OP_linear, (const uint32_t[]){x, weight}, 2);
    uint32_t y = fg_node_finish(&b, n, "a b");
    n = fg_node_new(&b, FG_OP_scale, &y, 1);
    fg_node_set_float(m, n, "factor", 0.1);
    uint32_t z = fg_node_finish(&b, n, "z");
    fg_add_func(m, "step")->order = order;
    CHECK_STR(fg_value(m, y)->name, "a_b");
    CHECK_EQ_U64(fg_value(m, z)->def, 1);
    CHECK(fg_module_verify(m));
    CHECK_STR(print(&w, m),
              "module @m level(graph) ranks(0) numerics(compute=f32, wire=f32, shard=f32, "
              "clip=0.0, accumulate=1)\n"
              "param 0 @layer.w : f32[8, 4] init(normal, 0.0) trainable value(%layer.w.1)\n"
              "input 0 @x : f32[3, 4] role(other) value(%x.0)\n"
              "func @step {\n"
              "  #0 %a_b.2 : f32[3, 8] = linear %x.0, %layer.w.1\n"
              "  #1 %z.3 : f32[3, 8] = scale %a_b.2 {factor = 0.1}\n"
              "}\n");
    fg_arena_free(w.arena);
}

static void reports_bad_nodes(int *failures)
{
    World w = world();
    FgModule *m = fg_module_new(w.arena, w.diags, "m");
    FgInput in = {.name = "x", .type = fg_type(m, FG_F32, 1, (const int64_t[]){4})};
    fg_add_input(m, &in);
    uint32_t x = m->inputs.data[0].value;
    FgIdVec order = {0};
    FgBuilder b = {.module = m, .order = &order, .layer = -1, .origin = FG_NO_ID};
    CHECK_EQ_U64(fg_node_finish(&b, fg_node_new(&b, FG_OP_linear, &x, 1), "y"), FG_NO_ID);
    CHECK(strstr(messages(&w), "'linear' takes the operands 'x w b? plus?', 1 were given") != NULL);
    CHECK_EQ_U64(fg_node_finish(&b, fg_node_new(&b, FG_OP_scale, &x, 1), "y"), FG_NO_ID);
    CHECK(strstr(messages(&w), "'scale' needs the attribute 'factor'") != NULL);
    const uint32_t missing[] = {x, FG_NO_ID};
    CHECK_EQ_U64(fg_node_finish(&b, fg_node_new(&b, FG_OP_add, missing, 2), "y"), FG_NO_ID);
    CHECK_EQ_U64(fg_diags_errors(w.diags), 3);
    CHECK_EQ_U64(order.len, 0);
    fg_arena_free(w.arena);
}

static void attributes_have_defaults(int *failures)
{
    World w = world();
    FgModule *m = fg_module_new(w.arena, w.diags, "m");
    FgIdVec order = {0};
    FgBuilder b = {.module = m, .order = &order, .layer = -1, .origin = FG_NO_ID};
    FgNode *n = fg_node_new(&b, FG_OP_attention, NULL, 0);
    CHECK(fg_node_attr(n, "causal")->set && fg_node_attr(n, "causal")->i == 1);
    CHECK_EQ_U64(fg_node_attr(n, "window")->i, 0);
    n = fg_node_new(&b, FG_OP_linear, NULL, 0);
    CHECK_STR(fg_node_attr(n, "layout")->word, "out_in");
    n = fg_node_new(&b, FG_OP_transpose, NULL, 0);
    CHECK(!fg_node_attr(n, "perm")->set);
    fg_node_set_ints(m, n, "perm", (const int64_t[]){1, 0}, 2);
    CHECK(fg_node_attr(n, "perm")->set && fg_node_attr(n, "perm")->ints[0] == 1);
    fg_arena_free(w.arena);
}

/* ---- text ---- */
static void check_round_trip(int *failures, const char *text)
{
    World w = world();
    FgModule *m = parse(&w, text);
    CHECK_STR(messages(&w), "");
    if (m) {
        CHECK_STR(print(&w, m), text);
        CHECK(fg_module_verify(m));
        CHECK_STR(messages(&w), "");
        World other = world();
        FgModule *copy = fg_module_clone(m, other.arena);
        const char *copied = print(&other, copy);
        CHECK_EQ_U64(fg_module_fingerprint(copy), fg_module_fingerprint(m));
        CHECK_EQ_U64(copy->values.len, m->values.len);
        CHECK_STR(copied, text);
        fg_arena_free(w.arena); /* the copy shares nothing but the diagnostics */
        CHECK(copy->nodes.len > 0 && copy->types.len > 0);
        fg_arena_free(other.arena);
        return;
    }
    fg_arena_free(w.arena);
}

static void round_trips(int *failures)
{
    check_round_trip(failures, graph_text);
    check_round_trip(failures, sched_text);
}

static void reads_hand_written_text(int *failures)
{
    World w = world();
    FgModule *m = parse(&w, "// ids, indices and usual fields may be left out\r\n"
                            "\n"
                            "module @h\n"
                            "param @w : f32[2, 2] value(%w) // a comment\n"
                            "input @x : f32[3, 2] value(%7)\n"
                            "func @step {\n"
                            "\n"
                            "  %y.1:f32[3,2]=linear %7,%w\n"
                            "  %z : f32[3, 2] = add %y.1, %1\n"
                            "}");
    CHECK_STR(messages(&w), "");
    CHECK(m != NULL);
    if (m) {
        CHECK(fg_module_verify(m));
        const char *text = print(&w, m);
        CHECK(strstr(text, "#0 %y.1 : f32[3, 2] = linear %v.7, %w.8\n") != NULL);
        CHECK(strstr(text, "#1 %z.9 : f32[3, 2] = add %y.1, %y.1\n") != NULL);
        CHECK_STR(print(&w, parse(&w, text)), text);
    }
    fg_arena_free(w.arena);
}

static void keeps_holes(int *failures)
{
    World w = world();
    FgModule *m = parse(&w, graph_text);
    CHECK(m && m->nodes.len == 8 && m->values.len == 10);
    if (m) {
        FgFunc *step = fg_func(m, "step");
        step->order.len -= 2; /* the table's last rows are holes now */
        const char *text = print(&w, m);
        CHECK(strstr(text, "ids nodes(8) values(10)\n") != NULL);
        FgModule *again = parse(&w, text);
        CHECK(again && again->nodes.len == 8 && again->values.len == 10);
        if (again)
            CHECK_STR(print(&w, again), text);
    }
    fg_arena_free(w.arena);
}

static void fingerprint_ignores_names(int *failures)
{
    World w = world();
    uint64_t base = fg_module_fingerprint(parse(&w, sched_text));
    static const struct {
        const char *from, *to;
        bool same;
    } cases[] = {{"layer(3) origin(#3)", "name(\"n\") layer(3) loc(\"a\":1:2)", true},
                 {"plan @zero3 recompute(full)", "plan @compiled recompute(none)", true},
                 {"at(4608)", "at(4612)", false},
                 {" wait(#1)", "", false},
                 {"clip=1.0", "clip=2.0", false},
                 {"uniform, 0.1", "uniform, 0.2", false},
                 {"{pending = true} ", "", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = replaced(w.arena, sched_text, cases[i].from, cases[i].to);
        FgModule *m = text ? parse(&w, text) : NULL;
        CHECK(m != NULL);
        if (m)
            CHECK((fg_module_fingerprint(m) == base) == cases[i].same);
    }
    CHECK_STR(messages(&w), "");
    fg_arena_free(w.arena);
}

typedef struct Bad {
    const char *from, *to;
    const char *message; /* a part of the one message that must come first */
} Bad;

static void check_bad(int *failures, const char *base, const Bad *bad, bool parses)
{
    World w = world();
    char *text = replaced(w.arena, base, bad->from, bad->to);
    CHECK(text != NULL);
    if (!text)
        return;
    FgModule *m = parse(&w, text);
    bool good = m && fg_module_verify(m);
    if ((m != NULL) != parses || good || !strstr(messages(&w), bad->message)) {
        printf("case \"%s\" -> \"%s\": wanted \"%s\", got:\n%s\n", bad->from, bad->to, bad->message,
               messages(&w));
        ++*failures;
    }
    fg_arena_free(w.arena);
}

static void parser_rejects(int *failures)
{
    static const Bad cases[] = {
        {"module @m", "modul @m", "t.fg:1:1: error: the text must begin with a module line"},
        {"param 1 @", "module @n\nparam 1 @", "a second module line"},
        {"level(graph)", "level(grph)", "did you mean 'graph'"},
        {"level(graph)", "levels(graph)", "expected level, ranks or numerics"},
        {"clip=0.0", "clop=0.0", "numerics have no 'clop'"},
        {"ranks(0)", "ranks(99999999999)", "does not fit 32 bits"},
        {"ranks(0)", "ranks(99999999999999999999999)", "does not fit 64 bits"},
        {"param 1", "param 2", "t.fg:3:7: error: the next index is 1"},
        {"f32[8, 4] init", "f33[8, 4] init", "expected an element type"},
        {"f32[8, 4] init", "f32[8, 0] init", "every dimension is at least 1"},
        {"f32[8, 4] init", "f32[99999999999, 99999999999] init", "more than 2^63 bytes"},
        {"init(normal", "init(gauss", "'gauss' is not an initialiser"},
        {"role(tokens)", "role(token)", "did you mean 'tokens'"},
        {"\"a\\\"b\"", "\"a\\xb\"", "no such escape"},
        {"\"m.json\":9:1)", "\"m.json:9:1)", "the string does not end"},
        {"loss %loss.6", "loss loss", "expected a value"},
        {"loss %loss.6", "loss %", "a name must follow the %"},
        {"loss %loss.6", "loss %loss.99999", "too large for the text"},
        {"loss %loss.6", "loss %other.6", "is called"},
        {"loss %loss.6", "loss %l.8", "t.fg:6:6: error: nothing makes the value %l.8"},
        {"= embedding", "= embeding", "did you mean 'embedding'"},
        {"{padding_idx = 0}", "{padding = 0}", "'embedding' has no attribute 'padding'"},
        {"{padding_idx = 0}", "{padding_idx = x}", "expected an integer"},
        {"{param = 0}", "", "'grad' needs the attribute 'param'"},
        {"linear %x.3, %w.0", "linear %x.3, %w.0 {layout = up}", "must be one of: out_in in_out"},
        {"%y.4 : f32", "%x.3 : f32", "value %x.3 is declared twice"},
        {"%y.4 : f32[2, 3, 8] =", "%y.4 =", "needs a type where it is first made"},
        {"#3 %y.4", "#0 %y.4", "node #0 stands here a second time"},
        {"layer(0)", "layer(-2)", "a layer is -1 or an index"},
        {"layer(0)", "layr(0)", "a node has no field 'layr'"},
        {"origin(#3)", "origin(#)", "the number of a node must follow the #"},
        {"origin(#3)", "origin(#3", "expected ')'"},
        {"origin(#3)", "origin(#77777)", "too large for the text"},
        {"phase(backward)", "phase(backwards)", "did you mean 'backward'"},
        {"func @step {", "func @step", "expected '{'"},
        {"}\n", "", "expected '}' at the end of the function"},
        {"}\n", "}\nfunc @step {\n}\n", "function 'step' stands here a second time"},
        {"}\n", "}\n?\n", "no IR starts with this character"},
        {"}\n", "}\nids nodes(4000000)\n", "more ids than the text warrants"},
        {"}\n", "}\nstat %q : f32[]\n", "expected a statement"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_bad(failures, graph_text, &cases[i], false);
    static const Bad sched[] = {
        {"gather @b", "gather @c", "the plan has no bucket 'c'"},
        {"shard=%s.1", "slice=%s.1", "a bucket has no state 'slice'"},
        {"mem(gathered)", "mem(gather)", "did you mean 'gathered'"},
        {"role(moment1", "role(moment3", "'moment3' is not a role"},
        {"states(4096) arena", "states(4096) arenas",
         "expected states, arena, host_states or host_arena"},
        {"stream(gather)", "stream(gathers)", "did you mean 'gather'"},
    };
    for (size_t i = 0; i < sizeof sched / sizeof *sched; i++)
        check_bad(failures, sched_text, &sched[i], false);
}

static void parser_goes_on(int *failures)
{
    World w = world();
    CHECK(!parse(&w, "module @m levl(graph)\nparam @p : f3[]\ninput @x : f32[2] value(%x)\n"
                     "func @step {\n  %y : f32[2] = sil %x\n  %z : f32[2] = silu %x {a = 1}\n}\n"));
    CHECK_EQ_U64(fg_diags_errors(w.diags), 4);
    fg_arena_free(w.arena);
}

/* ---- the verifier ---- */
static void verifier_rejects_graph(int *failures)
{
    static const Bad cases[] = {
        {"f32[2, 3, 8] = linear", "f32[2, 3, 9] = linear",
         "#3 linear: %y.4 is f32[2, 3, 9], but the op makes f32[2, 3, 8]"},
        {"linear %x.3, %w.0", "linear %w.0", "takes the operands 'x w b? plus?', 1 are given"},
        {"linear %x.3, %w.0", "linear %x.3, _", "operand 1 of 'x w b? plus?' must be given"},
        {", %lse.7 : f32[2, 3] =", " =", "makes the results 'loss lse', 1 are given"},
        {"embedding %tokens.1", "embedding %dw.9", "%dw.9 is used before it is made"},
        {"{param = 0}", "{param = 7}", "there is no parameter 7"},
        {"layer(0)", "bucket(0)", "a bucket at graph level"},
        {"layer(0)", "stream(gather)", "streams and waits belong to level sched"},
        {"#7 grad %dw.9 {param = 0}", "#7 release %dw.9", "does not stand at level graph"},
        {"%y.4 : f32[2, 3, 8] =", "%y.4 : f32[2, 3, 8] in %x.3+0 =", "%y.4 lies outside its root"},
        {"f32[8] init", "i32[8] init", "is not of a float type"},
        {"@\"odd name\"", "@w", "two parameters are called 'w'"},
        {"loss %loss.6", "loss %lse.7", "the loss is no scalar"},
        {"func @step", "func @first", "the functions at level graph are: step"},
        {"accumulate=1", "accumulate=0", "accumulate is at least 1"},
        {"clip=0.0", "clip=nan", "clip and chunk at least 0"},
        {"loss %loss.6", "state %q : f32[] role(loss, 0) mem(constants)\nloss %loss.6",
         "there are no states at graph level"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_bad(failures, graph_text, &cases[i], true);
}

static void verifier_rejects_sched(int *failures)
{
    static const Bad cases[] = {
        {"ranks(2)", "ranks(0)", "has at least one rank"},
        {"ranks(2)", "ranks(3)", "bucket 'b' has 64 elements for 3 ranks"},
        {"ranks(2)", "ranks(4)", "its shard is f32[32], not f32[16]"},
        {"bucket(0 + 0)", "bucket(0 + 8)", "does not lie inside bucket 'b'"},
        {"bucket(0 + 0)", "bucket(3 + 0)", "lies in bucket 3, which is not there"},
        {"bucket(0 + 0)", "", "parameter 'w' and bucket 'b' do not agree"},
        {"elements(64) params(0)", "elements(64) params(4)", "names parameter 4"},
        {"elements(64) params(0)", "elements(64) params(0, 0)", "overlaps the one before"},
        {"dtype(f32) trainable", "dtype(f32)", "is not trainable, and its states"},
        {"dtype(f32) trainable", "dtype(bf16) trainable", "is not of the type of bucket 'b'"},
        {"shard=%s.1, ", "", "bucket 'b' has no shard"},
        {"shard=%s.1", "shard=%m.2", "its shard is no such state"},
        {"bucket @b params(0)", "bucket @b params(9)", "names no parameter by 9"},
        {"uses(0..3)", "uses(4..3)", "has no bucket or no uses"},
        {"  gather @b", "  bucket @b\n  gather @b", "two buckets of the plan are called 'b'"},
        {"at(1024)", "at(4032)", "%scalars.5 lies at 4032 with 128 bytes, outside [0, 4096)"},
        {"at(1024)", "", "%scalars.5 has no address"},
        {"at(4608)", "at(8192)", "%y.8 lies at 8192"},
        {"at(4608)", "at(128)", "%y.8 lies at 128"},
        {"at(4608)", "", "%y.8 has no address"},
        {"in %b.6+0", "in %b.6+4", "%w.7 lies outside its root %b.6"},
        {"in %b.6+0", "in %b.6+0 at(4352)", "has an address of its own"},
        {"in %b.6+0", "in %x.0+0", "%w.7 lies outside its root %x.0"},
        {"in %b.6+0 mem(gathered)", "mem(gathered) at(4352)", "the view %w.7 does not lie in %b.6"},
        {"in %y.8+0", "in %w.7+0", "the root of %z.9, lies in another value itself"},
        {"in %y.8+0", "in %buf.10+0", "the root of %z.9, is not made before in this function"},
        {"wait(#1)", "wait(#8)", "waits for #8, which does not stand before it"},
        {"wait(#7)", "wait(#0)", "waits for #0 on its own stream"},
        {"stream(reduce) wait(#7)", "stream(gather)\n  %g.4 = reduce_scatter %buf.10 bucket(0)",
         "its communicator serves stream gather since #8"},
        {"gather %s.1", "gather %m.2", "%m.2 is not the shard of bucket 'b'"},
        {"_, %m.2, %v.3, %s.1", "%m.2, %m.2, %v.3, %s.1", "%m.2 is not the master"},
        {"_, %m.2, %v.3, %s.1", "_, _, %v.3, %s.1", "result 1 of 'master? moment1"},
        {"%s.1, _ = adamw", "%s.1, %v.3 = adamw", "its last result is not the norm"},
        {"release %b.6 bucket(0)", "release %b.6", "it names no bucket that is there"},
        {"release %b.6", "release %y.8", "%y.8 is f32[4, 8], bucket 'b' has 64 elements"},
        {"  #4 %z.9", "  %y.8 = silu %y.8\n  #4 %z.9", "%y.8 is made a second time"},
        {"  #5 release", "}\nfunc @flush {\n  #5 release", "%b.6 is made in another function"},
        {"func @step", "func @steps", "the functions at level sched are: init prologue first"},
        {"role(other) value(%x.0)", "role(other) value(%s.1)", "input 'x' is f32[4, 8]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_bad(failures, sched_text, &cases[i], true);
}

static void verifier_sees_broken_tables(int *failures)
{
    World w = world();
    FgModule *m = parse(&w, graph_text);
    fg_node(m, 3)->operands = (const uint32_t[]){3, 999};
    CHECK(!fg_module_verify(m));
    CHECK(strstr(messages(&w), "it reads value 999, which is not there") != NULL);
    m = parse(&w, graph_text);
    fg_vec_push(w.arena, &fg_func(m, "step")->order, 3);
    CHECK(!fg_module_verify(m));
    CHECK(strstr(messages(&w), "it stands in a function a second time") != NULL);
    m = parse(&w, graph_text);
    fg_vec_push(w.arena, &fg_func(m, "step")->order, 5000);
    CHECK(!fg_module_verify(m));
    CHECK(strstr(messages(&w), "holds node #5000, which is not there") != NULL);
    m = parse(&w, graph_text);
    fg_func(m, "step")->order.len = 2;
    CHECK(!fg_module_verify(m));
    CHECK(strstr(messages(&w), "nothing makes the loss %loss.6") != NULL);
    fg_arena_free(w.arena);
}

/* Places of nodes without loc(...) are those of the text, and do not show in the next print. */
static void messages_point_into_the_text(int *failures)
{
    World w = world();
    FgModule *m = parse(&w, "module @m\ninput @x : f32[3] value(%x)\nfunc @step {\n"
                            "  %y : f32[4] = silu %x\n}\n");
    CHECK(m && !fg_module_verify(m));
    CHECK(strstr(messages(&w), "t.fg:4:3: error: #0 silu: ") != NULL);
    CHECK(m && !strstr(print(&w, m), "loc("));
    fg_arena_free(w.arena);
}

/* ---- damage ---- */
static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Any character somewhere, or a digit in place of a digit: most of the first are refused, most of
 * the second read. */
static void damage(char *text, size_t len, bool digits, uint64_t *seed)
{
    static const char alphabet[] = "0123456789#%@{}()[]=:,.+-_\"\\/ \nabcefgilmnorstuvw";
    for (uint32_t k = 0; k < 3; k++) {
        size_t at = next_random(seed) % len;
        uint32_t n = digits ? 10 : (uint32_t)sizeof alphabet - 1;
        for (size_t i = 0; digits && i < len && (text[at] < '0' || text[at] > '9'); i++)
            at = (at + 1) % len;
        text[at] = alphabet[next_random(seed) % n];
    }
}

static void damaged_text_never_crashes(int *failures)
{
    uint64_t seed = 1;
    uint32_t parsed = 0;
    for (int i = 0; i < 3000; i++) {
        World w = world();
        char *text = fg_arena_strdup(w.arena, i % 2 ? graph_text : sched_text);
        size_t len = strlen(text);
        damage(text, len, i % 4 < 2, &seed);
        if (i % 16 == 15)
            len = next_random(&seed) % len;
        FgModule *m = fg_module_parse(w.arena, w.diags, "t.fg", text, len);
        CHECK((m == NULL) == (fg_diags_errors(w.diags) > 0));
        if (m) {
            parsed++;
            fg_module_verify(m);
            const char *once = print(&w, m);
            FgModule *again = parse(&w, once);
            CHECK(again != NULL);
            if (again)
                CHECK_STR(print(&w, again), once);
        }
        fg_arena_free(w.arena);
    }
    CHECK(parsed > 200 && parsed < 2800);
}

/* Texts that end where memory ends: nothing behind them may be read. */
static void never_reads_past_the_end(int *failures)
{
    static const char *const ends[] = {
        "module @\"", "module @\"\\", "module @\"\\u00", "module /", "%", "#", "-", "1.", "1e"};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        World w = world();
        size_t len = strlen(ends[i]);
        char *text = memory + page - len;
        memcpy(text, ends[i], len);
        CHECK(fg_module_parse(w.arena, w.diags, "t.fg", text, len) == NULL);
        fg_arena_free(w.arena);
    }
    munmap(memory, 2 * page);
}

#define CASE(f) {#f, f}
UNIT_MAIN(CASE(builds_nodes), CASE(reports_bad_nodes), CASE(attributes_have_defaults),
          CASE(round_trips), CASE(reads_hand_written_text), CASE(keeps_holes),
          CASE(fingerprint_ignores_names), CASE(parser_rejects), CASE(parser_goes_on),
          CASE(verifier_rejects_graph), CASE(verifier_rejects_sched),
          CASE(verifier_sees_broken_tables), CASE(messages_point_into_the_text),
          CASE(damaged_text_never_crashes), CASE(never_reads_past_the_end))
