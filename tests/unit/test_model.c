/* The model loader: what a good file becomes, what every kind of bad one is told, and that nothing
 * crashes it.
 *
 * Bad files are made from one good text by replacing a fragment; each case names the message id and
 * the place. */
#include "base/file.h"
#include "frontend/model.h"
#include "ir/op_table.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

static const char good[] =
    "{\"foregather\": 1,\n"
    " \"name\": \"small\",\n"
    " \"dims\": {\"batch\": 2, \"seq\": 4, \"vocab\": 10, \"hidden\": 8, \"half\": \"hidden / 2\", "
    "\"layers\": 3},\n"
    " \"inputs\": {\"tokens\": {\"role\": \"tokens\", \"shape\": [\"batch\", \"seq\"]},\n"
    "            \"labels\": {\"role\": \"labels\", \"shape\": [\"batch\", \"seq\"]}},\n"
    " \"params\": {\"embed\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 0.5}, "
    "\"tied\": [\"head\"]},\n"
    "            \"extra\": {\"shape\": [3]},\n"
    "            \"norm\": {\"shape\": [\"hidden\"], \"init\": {\"constant\": 1}}},\n"
    " \"nodes\": [\n"
    "  {\"op\": \"embedding\", \"in\": [\"tokens\", \"embed\"], \"out\": \"x0\"},\n"
    "  {\"repeat\": \"layers\", \"prefix\": \"layers.{i}.\", \"carry\": {\"x\": {\"from\": \"x0\", "
    "\"next\": \"y\"}},\n"
    "   \"params\": {\"w\": {\"shape\": [\"hidden\", \"hidden\"]}, \"b\": {\"shape\": "
    "[\"hidden\"]}},\n"
    "   \"nodes\": [\n"
    "    {\"op\": \"linear\", \"in\": [\"x\", \"w\", \"b\"], \"out\": \"h\", \"layout\": "
    "\"in_out\"},\n"
    "    {\"op\": \"add\", \"in\": [\"x\", \"h\"], \"out\": \"y\"}]},\n"
    "  {\"op\": \"rmsnorm\", \"in\": [\"x\", \"norm\"], \"out\": \"xn\", \"eps\": 1e-5},\n"
    "  {\"op\": \"linear\", \"in\": [\"xn\", \"head\"], \"out\": \"logits\"},\n"
    "  {\"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"], \"out\": \"loss\"}],\n"
    " \"loss\": \"loss\"}\n";

static FgModelOptions options(void)
{
    return (FgModelOptions){.numerics = {.accumulate = 1}};
}

/* The good text with the first `from` replaced. */
static char *edited(FgArena *arena, const char *from, const char *to)
{
    const char *at = strstr(good, from);
    if (!at) {
        printf("not in the good text: %s\n", from);
        abort();
    }
    return fg_arena_printf(arena, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
}

typedef struct Loaded {
    FgArena *arena;
    FgDiags *diags;
    FgModule *module;
    const char *text; /* of the diagnostics */
} Loaded;

static Loaded load(FgArena *arena, const char *text, const FgModelOptions *with)
{
    Loaded l = {.arena = arena, .diags = fg_diags_new(arena)};
    FgModelOptions plain = options();
    l.module = fg_model_parse(arena, l.diags, "m.json", text, strlen(text), with ? with : &plain);
    FgBuf buf;
    fg_buf_init(&buf, arena);
    fg_diags_render(l.diags, &buf);
    l.text = fg_buf_text(&buf);
    return l;
}

static const char *printed(Loaded *l)
{
    FgBuf buf;
    fg_buf_init(&buf, l->arena);
    fg_module_print(l->module, &buf);
    return fg_buf_text(&buf);
}

static uint32_t find_param(const FgModule *m, const char *name)
{
    for (uint32_t i = 0; i < m->params.len; i++) {
        if (strcmp(m->params.data[i].name, name) == 0)
            return i;
    }
    return FG_NO_ID;
}

/* ---- good files ---- */
static void structure(int *failures)
{
    FgArena *a = fg_arena_new();
    Loaded l = load(a, good, NULL);
    CHECK(l.module != NULL);
    if (!l.module) {
        printf("%s", l.text);
        return;
    }
    FgModule *m = l.module;
    CHECK(fg_module_verify(m));
    CHECK_STR(m->name, "small");
    CHECK_EQ_U64(m->params.len, 9);
    CHECK_EQ_U64(m->inputs.len, 2);
    const FgFunc *step = fg_func(m, "step");
    CHECK_EQ_U64(step->order.len, 1 + 3 * 2 + 2 + 2);
    const FgNode *node = fg_node(m, step->order.data[3]);
    CHECK_STR(node->name, "layers.1.h");
    CHECK_EQ_U64(node->layer, 1);
    CHECK_EQ_U64(node->loc.line, 14);
    CHECK_EQ_U64(node->loc.col, 5);
    CHECK_STR(fg_node_attr(node, "layout")->word, "in_out");
    CHECK_EQ_U64(fg_node(m, step->order.data[0])->layer, -1);
    /* The carried value: layer 1 reads what layer 0 made; the norm reads layer 2. */
    CHECK(node->operands[0] == fg_node(m, step->order.data[2])->results[0]);
    CHECK(fg_node(m, step->order.data[7])->operands[0] ==
          fg_node(m, step->order.data[6])->results[0]);
    /* The head is the embedding under its tied name. */
    const FgParam *embed = &m->params.data[find_param(m, "embed")];
    CHECK(fg_node(m, step->order.data[8])->operands[1] == embed->value);
    CHECK_EQ_U64(embed->n_tied, 1);
    CHECK_STR(embed->tied[0], "head");
    CHECK_NEAR(embed->init_scale, 0.5, 0);
    CHECK(embed->decay && !m->params.data[find_param(m, "norm")].decay);
    CHECK_EQ_U64(m->params.data[find_param(m, "extra")].value, FG_NO_ID);
    const FgParam *w = &m->params.data[find_param(m, "layers.2.w")];
    CHECK(w->init == FG_INIT_NORMAL && w->init_scale == 0.02 && w->type->rank == 2);
    /* The loss is a cross entropy with the seed. */
    const FgNode *loss = fg_node(m, fg_value(m, m->loss)->def);
    CHECK(loss->op == FG_OP_cross_entropy && loss->n_operands == 3);
    CHECK(fg_node(m, fg_value(m, loss->operands[2])->def)->op == FG_OP_loss_seed);
    CHECK_EQ_U64(fg_diags_errors(l.diags), 0);
    CHECK(strstr(l.text, "m.json:7:13: note: nothing reads the parameter 'extra'"));
    fg_arena_free(a);
}

static void any_order(int *failures)
{
    FgArena *a = fg_arena_new();
    Loaded first = load(a, good, NULL);
    /* The embedding moved to the end of the file. */
    char *text = edited(
        a, "  {\"op\": \"embedding\", \"in\": [\"tokens\", \"embed\"], \"out\": \"x0\"},\n", "");
    char *end = strstr(text, "\"out\": \"loss\"}]");
    CHECK(end != NULL);
    text = fg_arena_printf(
        a, "%.*s, {\"op\": \"embedding\", \"in\": [\"tokens\", \"embed\"], \"out\": \"x0\"}]%s",
        (int)(end - text) + 14, text, end + 15);
    Loaded moved = load(a, text, NULL);
    CHECK(first.module && moved.module);
    if (moved.module) {
        const FgFunc *step = fg_func(moved.module, "step");
        CHECK(fg_node(moved.module, step->order.data[0])->op == FG_OP_embedding);
        CHECK_EQ_U64(step->order.len, fg_func(first.module, "step")->order.len);
        CHECK(fg_module_fingerprint(moved.module) == fg_module_fingerprint(first.module));
    } else {
        printf("%s", moved.text);
    }
    fg_arena_free(a);
}

static void with_options(int *failures)
{
    FgArena *a = fg_arena_new();
    FgModelOptions with = options();
    with.numerics.compute = FG_BF16;
    with.batch = 5;
    with.seq = 7;
    with.decay = FG_DECAY_ALL;
    FgDimOverride hidden = {"hidden", 6};
    fg_vec_push(a, &with.dims, hidden);
    char *text =
        edited(a, "{\"shape\": [\"hidden\"], \"init\"",
               "{\"dtype\": \"fp32\", \"trainable\": false, \"shape\": [\"hidden\"], \"init\"");
    text = fg_arena_strdup(a, text);
    Loaded l = load(a, good, &with);
    CHECK(l.module != NULL);
    if (l.module) {
        const char *dump = printed(&l);
        CHECK(strstr(dump, "i32[5, 7]"));
        CHECK(strstr(dump, "bf16[5, 7, 6]"));
        CHECK(l.module->params.data[find_param(l.module, "norm")].decay);
        CHECK(l.module->params.data[0].type->dtype == FG_BF16);
    }
    with.decay = FG_DECAY_NONE;
    FgModelOptions plain = options();
    plain.decay = FG_DECAY_NONE;
    Loaded frozen = load(a, text, &plain);
    CHECK(frozen.module != NULL);
    if (frozen.module) {
        const FgParam *norm = &frozen.module->params.data[find_param(frozen.module, "norm")];
        CHECK(!norm->trainable && !norm->decay && norm->type->dtype == FG_F32);
        CHECK(!frozen.module->params.data[0].decay);
    }
    fg_arena_free(a);
}

static void small_forms(int *failures)
{
    FgArena *a = fg_arena_new();
    static const struct {
        const char *from, *to, *expect;
    } cases[] = {
        /* three inputs of concat are two nodes */
        {"{\"op\": \"rmsnorm\", \"in\": [\"x\", \"norm\"]",
         "{\"op\": \"concat\", \"in\": [\"x\", \"x\", \"x\"], \"axis\": 1, \"out\": \"c\"},\n"
         "{\"op\": \"slice\", \"in\": \"c\", \"axis\": 1, \"start\": \"seq * 2\", \"count\": "
         "\"seq\", \"out\": \"s\"},\n"
         "{\"op\": \"rmsnorm\", \"in\": [\"s\", \"norm\"]",
         "f32[2, 12, 8] = concat"},
        {"\"out\": \"h\", \"layout\": \"in_out\"", "\"out\": \"h\", \"name\": \"proj\"",
         "name(\"layers.2.proj\")"},
        {"\"next\": \"y\"}},", "\"next\": \"y\"}}, \"comment\": \"a block\",", "layers.2.b"},
        {"{\"op\": \"rmsnorm\", \"in\": [\"x\", \"norm\"]",
         "{\"op\": \"reshape\", \"in\": \"x\", \"shape\": [-1, \"half\"], \"out\": \"flat\"},\n"
         "{\"op\": \"reshape\", \"in\": \"flat\", \"shape\": [\"batch\", \"seq\", \"hidden\"], "
         "\"out\": \"r\"},\n"
         "{\"op\": \"rmsnorm\", \"in\": [\"r\", \"norm\"]",
         "f32[16, 4] = reshape"},
        {"\"b\": {\"shape\": [\"hidden\"]}",
         "\"b\": {\"shape\": [\"hidden * (i + 1) / (i + 1)\"], \"tied\": [\"t.{i}\"]}",
         "tied(\"t.2\")"},
        {"\"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"]",
         "\"op\": \"mean\", \"in\": [\"logits\"]", "= mean"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Loaded l = load(a, edited(a, cases[i].from, cases[i].to), NULL);
        CHECK(l.module != NULL);
        if (!l.module)
            printf("case %zu:\n%s", i, l.text);
        else if (!strstr(printed(&l), cases[i].expect))
            CHECK_STR(printed(&l), cases[i].expect);
    }
    fg_arena_free(a);
}

static void nested_repeat(int *failures)
{
    FgArena *a = fg_arena_new();
    Loaded l =
        load(a,
             edited(a, "{\"op\": \"add\", \"in\": [\"x\", \"h\"], \"out\": \"y\"}",
                    "{\"repeat\": 2, \"index\": \"e\", \"prefix\": \"inner.{e}.\", "
                    "\"carry\": {\"z\": {\"from\": \"h\", \"next\": \"n\"}},"
                    "\"params\": {\"g\": {\"shape\": [\"hidden\"]}},"
                    "\"nodes\": [{\"op\": \"mul\", \"in\": [\"z\", \"g\"], \"out\": \"n\"}]},"
                    "{\"op\": \"add\", \"in\": [\"x\", \"z\"], \"out\": \"y\"}"),
             NULL);
    CHECK(l.module != NULL);
    if (l.module) {
        CHECK(find_param(l.module, "layers.2.inner.1.g") != FG_NO_ID);
        const FgFunc *step = fg_func(l.module, "step");
        CHECK_EQ_U64(step->order.len, 1 + 3 * 4 + 2 + 2);
        CHECK_STR(fg_node(l.module, step->order.data[7])->name, "layers.1.inner.1.n");
        CHECK_EQ_U64(fg_node(l.module, step->order.data[7])->layer, 1);
    } else {
        printf("%s", l.text);
    }
    fg_arena_free(a);
}

static const char *read_file(FgArena *arena, const char *name)
{
    char *text = NULL;
    size_t len;
    const char *error;
    if (!fg_file_read(arena, fg_arena_printf(arena, "%s/%s", FG_SOURCE_DIR, name), &text, &len,
                      &error))
        printf("%s\n", error);
    return text;
}

/* The page's example is a model as it stands. */
static void documented(int *failures)
{
    FgArena *a = fg_arena_new();
    const char *page = read_file(a, "docs/model-format.md");
    const char *start = page ? strstr(page, "```json\n") : NULL;
    const char *end = start ? strstr(start + 8, "```") : NULL;
    CHECK(end != NULL);
    if (end) {
        Loaded l = load(a, fg_arena_strndup(a, start + 8, (size_t)(end - start) - 8), NULL);
        CHECK(l.module && l.module->params.len == 8);
        CHECK_STR(l.text, "");
    }
    fg_arena_free(a);
}

static int64_t count_elements(const FgModule *m)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < m->params.len; i++)
        n += fg_type_elements(m->params.data[i].type);
    return n;
}

/* Known sizes of known models. */
static void examples(int *failures)
{
    static const struct {
        const char *name;
        int64_t elements;
        uint32_t tensors;
    } cases[] = {{"examples/llama-3.2-1b.json", 1235814400, 146},
                 {"examples/llama-3.1-8b.json", 8030261248, 291},
                 {"examples/llama-3.1-70b.json", 70553706496, 723},
                 {"examples/llama-3.1-405b.json", 405853388800, 1137},
                 {"examples/gpt2.json", 124439808, 148}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FgArena *a = fg_arena_new();
        const char *text = read_file(a, cases[i].name);
        CHECK(text != NULL);
        Loaded l = load(a, text ? text : "", NULL);
        CHECK(l.module && fg_module_verify(l.module));
        CHECK_EQ_U64(l.module ? count_elements(l.module) : 0, cases[i].elements);
        CHECK_EQ_U64(l.module ? l.module->params.len : 0, cases[i].tensors);
        fg_arena_free(a);
    }
}

/* ---- bad files ---- */
typedef struct Bad {
    const char *from, *to;
    FgDiagId id;
    const char *expect; /* a piece of the rendered text */
} Bad;

static void expect_bad(int *failures, const Bad *bad, const FgModelOptions *with)
{
    FgArena *a = fg_arena_new();
    Loaded l = load(a, edited(a, bad->from, bad->to), with);
    bool found = strstr(l.text, bad->expect) != NULL;
    if (l.module || !found || !fg_diags_has(l.diags, bad->id))
        printf("with %s\nexpected %s [%s]\ngot %s", bad->to, bad->expect, fg_diag_name(bad->id),
               l.text);
    CHECK(!l.module);
    CHECK(found);
    CHECK(fg_diags_has(l.diags, bad->id));
    fg_arena_free(a);
}

static void bad_files(int *failures)
{
    static const Bad cases[] = {
        {"\"foregather\": 1,\n", "\"foregather\": 1\n", FG_D_JSON_SYNTAX,
         "m.json:2:2: error: expected ',' or '}', found '\"' [json-syntax]\n"
         "   \"name\": \"small\",\n   ^\n1 error\n"},
        {"\"loss\"}\n", "\"loss\"", FG_D_JSON_SYNTAX, "expected ',' or '}', found end of the text"},
        {"\"small\"", "\"sm\\qall\"", FG_D_JSON_SYNTAX, "after a backslash"},
        {"\"small\"", "\"sm\\u0000\"", FG_D_JSON_SYNTAX,
         "m.json:2:13: error: \\u0000 has no place in a name or text"},
        {"\"name\"", "\"na\\u0000me\"", FG_D_JSON_SYNTAX, "\\u0000 has no place"},
        {"\"small\"", "\"small", FG_D_JSON_SYNTAX, "m.json:2:10: error: this string has no end"},
        {"\"small\"", "\"sm\xff\xffll\"", FG_D_JSON_SYNTAX, "m.json:2:"},
        {"\"small\"", "01", FG_D_JSON_SYNTAX, "m.json:2:11"},
        {"\"small\"", "nil", FG_D_JSON_SYNTAX, "expected a value, found 'n'"},
        {"\"batch\": 2", "\"batch\": 99999999999999999999", FG_D_JSON_SYNTAX, "too big integer"},
        {"\"small\",", "\"small\", \"name\": \"other\",", FG_D_DUPLICATE_KEY,
         "m.json:2:19: error: the key 'name' is given twice"},
        {"\"foregather\": 1", "\"foregather\": 2", FG_D_BAD_VALUE,
         "m.json:1:16: error: this program reads"},
        {"\"foregather\": 1,", "", FG_D_MISSING_KEY, "the key 'foregather' is missing"},
        {"\"dims\"", "\"dimms\"", FG_D_UNKNOWN_KEY, "did you mean 'dims'?"},
        {"\"name\": \"small\"", "\"name\": 7", FG_D_WRONG_TYPE,
         "'name' must be a string, not an integer"},
        {"\"hidden / 2\"", "\"hidden / 3\"", FG_D_BAD_EXPRESSION, "8 / 3 leaves a remainder"},
        {"\"hidden / 2\"", "\"hiden / 2\"", FG_D_UNKNOWN_DIM, "did you mean 'hidden'?"},
        {"\"hidden\": 8", "\"hidden\": \"half * 2\"", FG_D_DIM_CYCLE, "is defined by itself"},
        {"\"hidden\": 8", "\"hidden\": 0", FG_D_BAD_VALUE,
         "the dim 'hidden' is 0; dims are 1 or more"},
        {"\"hidden\": 8", "\"hidden\": 4611686018427387904", FG_D_OVERFLOW, "2^62"},
        {"\"hidden / 2\"", "\"hidden * 9223372036854775807\"", FG_D_OVERFLOW, "overflows 64 bits"},
        {"\"role\": \"tokens\"", "\"role\": \"token\"", FG_D_BAD_VALUE, "did you mean 'tokens'?"},
        {"\"labels\", \"shape\": [\"batch\", ", "\"labels\", \"shape\": [", FG_D_BAD_VALUE,
         "input 'labels' does not begin with the 2 rows of a micro-step, as 'tokens' does"},
        {"\"inputs\": {", "\"inputs\": {\"mask\": {\"role\": \"other\", \"shape\": [\"seq\"]},",
         FG_D_BAD_VALUE, "input 'mask' does not begin with the 2 rows"},
        {"\"role\": \"labels\"", "\"role\": \"tokens\"", FG_D_BAD_VALUE,
         "a second input has the role"},
        {"\"init\": {\"normal\": 0.5}", "\"init\": {\"normal\": -0.5}", FG_D_BAD_VALUE,
         "must not be negative"},
        {"\"init\": {\"normal\": 0.5}", "\"init\": {}", FG_D_BAD_VALUE, "an initialiser is one of"},
        {"\"shape\": [3]", "\"shape\": [-3]", FG_D_BAD_VALUE, "this size is -3"},
        {"\"shape\": [3]", "\"shape\": 3", FG_D_WRONG_TYPE,
         "'shape' must be a list, not an integer"},
        {"\"shape\": [3]", "\"shape\": [3], \"dtype\": \"int7\"", FG_D_BAD_VALUE, "no dtype"},
        {"\"extra\"", "\"ex tra\"", FG_D_BAD_VALUE, "is no name"},
        {"\"tied\": [\"head\"]", "\"tied\": [\"norm\"]", FG_D_DUPLICATE_NAME,
         "'norm' is defined twice"},
        {"\"embedding\"", "\"embeding\"", FG_D_UNKNOWN_OP,
         "m.json:10:10: error: unknown op 'embeding'"},
        {"\"embedding\"", "\"embeding\"", FG_D_UNKNOWN_OP, "note: did you mean 'embedding'?"},
        {"\"embedding\"", "\"linear_dx\"", FG_D_UNKNOWN_OP, "did you mean 'linear'?"},
        {"\"embedding\"", "\"gather\"", FG_D_UNKNOWN_OP, "unknown op 'gather'"},
        {"\"op\": \"embedding\", ", "", FG_D_MISSING_KEY, "the key 'op' is missing"},
        {"\"eps\"", "\"epsilon\"", FG_D_UNKNOWN_KEY, "a 'rmsnorm' node has no key 'epsilon'"},
        {"\"eps\": 1e-5", "\"eps\": \"small\"", FG_D_WRONG_TYPE,
         "'eps' must be a number, not a string"},
        {"\"in_out\"", "\"inout\"", FG_D_BAD_VALUE, "did you mean 'in_out'?"},
        {"[\"xn\", \"head\"]", "[\"xm\", \"head\"]", FG_D_UNDEFINED_VALUE,
         "m.json:17:27: error: nothing defines 'xm'"},
        {"[\"logits\", \"labels\"]", "[\"logts\", \"labels\"]", FG_D_UNDEFINED_VALUE,
         "did you mean 'logits'?"},
        {"\"next\": \"y\"", "\"next\": \"yy\"", FG_D_UNDEFINED_VALUE, "m.json:11:"},
        {"\"from\": \"x0\"", "\"from\": \"x\"", FG_D_CYCLE,
         "the carried value 'x' starts from itself"},
        {"[\"xn\", \"head\"]", "[\"xn\"]", FG_D_ARITY, "'linear' takes at least 2 inputs, not 1"},
        {"[\"x\", \"h\"]", "[\"x\", \"h\", \"h\"]", FG_D_ARITY,
         "'add' takes exactly 2 inputs, not 3"},
        {"\"out\": \"xn\"", "\"out\": [\"xn\", \"xm\"]", FG_D_ARITY, "makes 1 value"},
        {"\"in\": [\"x\", \"norm\"]", "\"in\": [\"x\", \"embed\"]", FG_D_SHAPE,
         "m.json:16:3: error: "},
        {"\"in\": [\"x\", \"norm\"]", "\"in\": [\"x\", \"embed\"]", FG_D_SHAPE,
         "note: 'embed' is f32[10, 8], defined here"},
        {"\"out\": \"xn\"", "\"out\": \"x0\"", FG_D_DUPLICATE_NAME, "'x0' is defined twice"},
        {"\"out\": \"h\"", "\"out\": \"x\"", FG_D_DUPLICATE_NAME, "'x' is defined twice"},
        {"\"layers.{i}.\"", "\"layers.\"", FG_D_DUPLICATE_NAME, "put the index into \"prefix\""},
        {"\"layers.{i}.\"", "\"layers.{j}.\"", FG_D_BAD_VALUE, "'{j}' is the index of no repeat"},
        {"\"repeat\": \"layers\"", "\"repeat\": 0", FG_D_BAD_VALUE, "this repeat is made 0 times"},
        {"\"repeat\": \"layers\"", "\"repeat\": 4000000000", FG_D_OVERFLOW, "unroll to more than"},
        {"[\"x\", \"w\", \"b\"]", "[\"y\", \"w\", \"b\"]", FG_D_CYCLE,
         "these nodes depend on each other: 'layers.0.y' -> 'layers.0.h' -> 'layers.0.y'"},
        {"{\"op\": \"rmsnorm\"",
         "{\"op\": \"neg\", \"in\": \"x\", \"out\": \"spare\"},\n  {\"op\": \"rmsnorm\"",
         FG_D_UNUSED_OUTPUT, "m.json:16:35: error: nothing reads 'spare'"},
        {"\"loss\": \"loss\"}", "\"loss\": \"tokens\"}", FG_D_BAD_LOSS, "is not made by a node"},
        {"\"loss\": \"loss\"}", "\"loss\": \"logits\"}", FG_D_BAD_LOSS,
         "a cross_entropy that is not the loss"},
        {"\"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"]",
         "\"op\": \"neg\", \"in\": [\"logits\"]", FG_D_BAD_LOSS, "the loss 'loss' is no scalar"},
        {"\"nodes\": [\n  {", "\"nodes\": [7, {", FG_D_WRONG_TYPE, "a node must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_bad(failures, &cases[i], NULL);
}

static void bad_options(int *failures)
{
    FgModelOptions with = options();
    FgDimOverride dim = {"hiden", 4};
    FgArena *a = fg_arena_new();
    fg_vec_push(a, &with.dims, dim);
    expect_bad(failures,
               &(Bad){"small", "small", FG_D_UNKNOWN_DIM,
                      "--dim: the model has no dim 'hiden' [unknown-dim]"},
               &with);
    with = options();
    with.batch = -1;
    expect_bad(failures, &(Bad){"small", "small", FG_D_BAD_VALUE, "--batch: the dim 'batch' is -1"},
               &with);
    with = options();
    with.seq = 3;
    expect_bad(failures,
               &(Bad){"\"seq\": 4, ", "", FG_D_UNKNOWN_DIM, "--seq: the model has no dim 'seq'"},
               &with);
    fg_arena_free(a);
}

static void several_errors(int *failures)
{
    FgArena *a = fg_arena_new();
    char *text = edited(a, "\"eps\": 1e-5", "\"epps\": 1e-5");
    char *at = strstr(text, "\"in_out\"");
    memcpy(at, "\"on_out\"", 8);
    at = strstr(text, "\"labels\"], \"out\"");
    memcpy(at, "\"lapels\"", 8);
    Loaded l = load(a, text, NULL);
    CHECK(!l.module);
    CHECK(fg_diags_has(l.diags, FG_D_UNKNOWN_KEY) && fg_diags_has(l.diags, FG_D_BAD_VALUE) &&
          fg_diags_has(l.diags, FG_D_UNDEFINED_VALUE));
    /* The one inside the repeat is told once, not three times. */
    CHECK_EQ_U64(fg_diags_errors(l.diags), 3);
    fg_arena_free(a);
}

static void deep_nesting(int *failures)
{
    FgArena *a = fg_arena_new();
    size_t n = 3000000;
    char *text = fg_arena_alloc(a, n + 1);
    memset(text, '[', n);
    Loaded l = load(a, text, NULL);
    CHECK(!l.module && fg_diags_has(l.diags, FG_D_JSON_DEPTH));
    CHECK(strstr(l.text,
                 "m.json:1:201: error: lists and objects are nested more than 200 levels deep"));
    for (size_t i = 0; i + 5 <= n; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    l = load(a, text, NULL);
    CHECK(!l.module && fg_diags_has(l.diags, FG_D_JSON_DEPTH));
    fg_arena_free(a);
}

/* Dims that refer to later ones, each in as many parentheses as are allowed. */
static void deep_dims(int *failures)
{
    FgArena *a = fg_arena_new();
    for (int n = 40; n <= 4000; n += 3960) {
        FgBuf buf;
        fg_buf_init(&buf, a);
        fg_buf_puts(&buf, "\"hidden\": \"d0\"");
        for (int i = 0; i < n; i++)
            fg_buf_printf(&buf, ", \"d%d\": \"%.*sd%d%.*s\"", i, 40,
                          "((((((((((((((((((((((((((((((((((((((((", i + 1, 40,
                          "))))))))))))))))))))))))))))))))))))))))");
        fg_buf_printf(&buf, ", \"d%d\": 8", n);
        Loaded l = load(a, edited(a, "\"hidden\": 8", fg_buf_text(&buf)), NULL);
        CHECK((l.module != NULL) == (n == 40));
        CHECK(n == 40 || strstr(l.text, "dims are defined by each other here"));
    }
    fg_arena_free(a);
}

/* A chain of nodes that stands backwards in the file, far deeper than a recursive sort could go. */
static void long_backwards(int *failures)
{
    FgArena *a = fg_arena_new();
    FgBuf buf;
    fg_buf_init(&buf, a);
    const int n = 20000;
    fg_buf_puts(&buf, "{\"foregather\": 1, \"inputs\": {\"x0\": {\"role\": \"other\", \"shape\": "
                      "[2]}}, \"params\": {\"w\": {\"shape\": [2]}}, \"nodes\": [\n"
                      "{\"op\": \"sum\", \"in\": \"x20000\", \"out\": \"loss\"},\n"
                      "{\"op\": \"mul\", \"in\": [\"x0\", \"w\"], \"out\": \"y0\"}");
    for (int i = n; i > 0; i--)
        fg_buf_printf(&buf, ",\n{\"op\": \"neg\", \"in\": \"%s%d\", \"out\": \"x%d\"}",
                      i > 1 ? "x" : "y", i - 1, i);
    fg_buf_puts(&buf, "], \"loss\": \"loss\"}");
    Loaded l = load(a, fg_buf_text(&buf), NULL);
    CHECK(l.module && fg_func(l.module, "step")->order.len == (uint32_t)n + 2);
    fg_arena_free(a);
}

/* ---- noise ---- */
static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Truncated, with bytes flipped, with pieces copied over others: a module or errors, never a crash.
 * Every module is verified, and every failure has said something. */
static void noise(int *failures)
{
    static const char *const words[] = {"\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "null",
                                        "-1",
                                        "0",
                                        "\\u00e9",
                                        "\"x\"",
                                        "1e999",
                                        "{i}",
                                        "\"repeat\": 2,",
                                        "true",
                                        "\n",
                                        "9223372036854775807",
                                        "\"op\""};
    uint32_t state = 12345;
    size_t len = sizeof good - 1;
    uint32_t modules = 0;
    for (int round = 0; round < 700; round++) {
        FgArena *a = fg_arena_new();
        char *text = fg_arena_alloc(a, len * 2);
        memcpy(text, good, len);
        size_t n = len;
        if (round % 7 == 0)
            n = next(&state) % len;
        for (uint32_t k = next(&state) % 4; k > 0 && n > 40; k--) {
            const char *word = words[next(&state) % (sizeof words / sizeof *words)];
            size_t w = strlen(word), at = next(&state) % (n - 30);
            if (k % 2)
                text[at] = (char)next(&state);
            else
                memcpy(text + at, word, w);
        }
        if (round % 5 == 0 && n > 200)
            memmove(text + next(&state) % (n - 100), text + next(&state) % (n - 100),
                    1 + next(&state) % 80);
        FgDiags *diags = fg_diags_new(a);
        FgModelOptions with = options();
        FgModule *m = fg_model_parse(a, diags, "noise", text, n, &with);
        FgBuf buf;
        fg_buf_init(&buf, a);
        fg_diags_render(diags, &buf);
        CHECK((m != NULL) == (fg_diags_errors(diags) == 0));
        if (m) {
            modules++;
            CHECK(fg_module_verify(m));
        }
        fg_arena_free(a);
    }
    CHECK(modules > 20 && modules < 600);
}

UNIT_MAIN({"structure", structure}, {"any order", any_order}, {"with options", with_options},
          {"small forms", small_forms}, {"nested repeat", nested_repeat},
          {"documented", documented}, {"examples", examples}, {"bad files", bad_files},
          {"bad options", bad_options}, {"several errors", several_errors},
          {"deep nesting", deep_nesting}, {"deep dims", deep_dims},
          {"long backwards", long_backwards}, {"noise", noise})
