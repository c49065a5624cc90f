/* Random models: each block reads the running value [batch, seq, hidden] and makes the next one. */
#include "random_model.h"

#include "base/str.h"

uint64_t random_next(Random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t random_below(Random *r, uint32_t n)
{
    return (uint32_t)(random_next(r) % n);
}

typedef struct Writer {
    Random random, more; /* more: for what `twice` adds, apart, so that the rest stays as it was */
    FgBuf params, nodes;
    uint32_t serial; /* of values */
    const char *x;   /* running value */
    bool local;      /* inside a repeat */
} Writer;

static bool chance(Writer *w, uint32_t percent)
{
    return random_below(&w->random, 100) < percent;
}

static const char *fresh(Writer *w, const char *hint)
{
    return fg_arena_printf(w->nodes.arena, "%s%u", hint, w->serial++);
}

static const char *param(Writer *w, const char *hint, const char *shape, const char *init)
{
    const char *name = fresh(w, hint);
    fg_buf_printf(&w->params, "%s\"%s\": {\"shape\": [%s], \"init\": %s%s}",
                  w->params.len ? ",\n    " : "", name, shape, init,
                  chance(w, 10) ? ", \"trainable\": false" : "");
    return name;
}

/* One node; returns the name of its result. */
static const char *node(Writer *w, const char *op, const char *in, const char *attrs)
{
    const char *out = fresh(w, "v");
    fg_buf_printf(&w->nodes, "%s{\"op\": \"%s\", \"in\": [%s], \"out\": \"%s\"%s}",
                  w->nodes.len ? ",\n    " : "", op, in, out, attrs);
    return out;
}

static const char *list2(Writer *w, const char *a, const char *b)
{
    return fg_arena_printf(w->nodes.arena, "\"%s\", \"%s\"", a, b);
}

static const char *list(Writer *w, const char *a, const char *b)
{
    return b ? list2(w, a, b) : fg_arena_printf(w->nodes.arena, "\"%s\"", a);
}

static const char *list3(Writer *w, const char *a, const char *b, const char *c)
{
    return fg_arena_printf(w->nodes.arena, "\"%s\", \"%s\", \"%s\"", a, b, c);
}

static const char *linear(Writer *w, const char *x, const char *in, const char *out)
{
    FgArena *arena = w->nodes.arena;
    bool swapped = chance(w, 30);
    const char *shape = swapped ? fg_arena_printf(arena, "\"%s\", \"%s\"", in, out)
                                : fg_arena_printf(arena, "\"%s\", \"%s\"", out, in);
    const char *weight = param(w, "w", shape, "{\"normal\": 0.2}");
    const char *attrs = swapped ? ", \"layout\": \"in_out\"" : "";
    if (chance(w, 40)) {
        const char *bias =
            param(w, "b", fg_arena_printf(arena, "\"%s\"", out), "{\"uniform\": 0.1}");
        return node(w, "linear", list3(w, x, weight, bias), attrs);
    }
    return node(w, "linear", list(w, x, weight), attrs);
}

static const char *norm(Writer *w, const char *x)
{
    const char *gain = param(w, "g", "\"hidden\"", "{\"constant\": 1}");
    if (chance(w, 50))
        return node(w, "rmsnorm", list(w, x, gain), ", \"eps\": 1e-5");
    const char *bias = param(w, "b", "\"hidden\"", "{\"uniform\": 0.1}");
    return node(w, "layernorm", list3(w, x, gain, bias), "");
}

static const char *activation(Writer *w, const char *x)
{
    static const char *const ops[] = {"silu", "gelu", "gelu_tanh", "relu", "tanh", "sigmoid"};
    return node(w, ops[random_below(&w->random, 6)], list(w, x, NULL), "");
}

static const char *mlp(Writer *w, const char *x)
{
    const char *a = activation(w, linear(w, x, "hidden", "wide"));
    if (chance(w, 50)) {
        const char *gate = linear(w, x, "hidden", "wide");
        a = node(w, "mul", list(w, a, gate), "");
    }
    return linear(w, a, "wide", "hidden");
}

static const char *heads(Writer *w, const char *x, const char *n)
{
    const char *shape =
        fg_arena_printf(w->nodes.arena, ", \"shape\": [\"batch\", \"seq\", \"%s\", \"head\"]", n);
    return node(w, "reshape", list(w, x, NULL), shape);
}

static const char *attention(Writer *w, const char *x)
{
    const char *q = heads(w, linear(w, x, "hidden", "hidden"), "heads");
    const char *k = heads(w, linear(w, x, "hidden", "kv * head"), "kv");
    const char *v = heads(w, linear(w, x, "hidden", "kv * head"), "kv");
    if (chance(w, 50)) {
        q = node(w, "rope", list(w, q, "rope"), "");
        k = node(w, "rope", list(w, k, "rope"), "");
    }
    const char *attrs = chance(w, 30)   ? ", \"window\": 3"
                        : chance(w, 20) ? ", \"causal\": false"
                                        : "";
    const char *o = node(w, "attention", list3(w, q, k, v), attrs);
    o = node(w, "reshape", list(w, o, NULL), ", \"shape\": [\"batch\", \"seq\", \"hidden\"]");
    return linear(w, o, "hidden", "hidden");
}

static const char *shapes(Writer *w, const char *x)
{
    const char *a = node(w, "slice", list(w, x, NULL), ", \"axis\": 2, \"start\": 0, \"count\": 2");
    const char *b = node(w, "slice", list(w, x, NULL),
                         ", \"axis\": 2, \"start\": 2, \"count\": \"hidden - 2\"");
    const char *c = node(w, "concat", list(w, b, a), ", \"axis\": 2");
    const char *t = node(w, "transpose", list(w, c, NULL), ", \"perm\": [1, 0, 2]");
    t = node(w, "softmax", list(w, t, NULL), "");
    t = node(w, "transpose", list(w, t, NULL), ", \"perm\": [1, 0, 2]");
    return node(w, "mul", list(w, t, c), "");
}

/* An op with one value in two of its places, directly or by another name; a parameter before what
 * it multiplies. */
static const char *twice(Writer *w, const char *x)
{
    static const char *const gates[] = {", \"kind\": \"silu\"", ", \"kind\": \"relu\""};
    const char *whole = ", \"shape\": [\"batch\", \"seq\", \"hidden\"]", *f, *q;
    switch (random_below(&w->more, 8)) {
    case 0: /* swish by hand */
        f = node(w, "sigmoid", list(w, x, NULL), "");
        return random_below(&w->more, 2) ? node(w, "mul", list2(w, x, f), "")
                                         : node(w, "mul", list2(w, f, x), "");
    case 1:
        return node(w, "gated", list2(w, x, x), gates[random_below(&w->more, 2)]);
    case 2:
        f = node(w, "tanh", list(w, x, NULL), "");
        return node(w, "add", list(w, node(w, "sub", list2(w, f, f), ""), x), "");
    case 3:
        return node(w, "tanh", list(w, node(w, "mul", list2(w, x, x), ""), NULL), "");
    case 4: /* a view of the value */
        f = node(w, "tanh", list(w, x, NULL), "");
        q = node(w, "reshape", list(w, f, NULL),
                 ", \"shape\": [1, \"batch\", \"seq\", \"hidden\"]");
        return node(w, "reshape", list(w, node(w, "mul", list2(w, f, q), ""), NULL), whole);
    case 5:
        q = heads(w, x, "heads");
        return node(w, "reshape", list(w, node(w, "attention", list3(w, q, q, q), ""), NULL),
                    whole);
    default:
        f = param(w, "r", "\"hidden\"", "{\"uniform\": 0.3}");
        return node(w, random_below(&w->more, 2) ? "mul" : "sub", list2(w, f, x), "");
    }
}

static void block(Writer *w)
{
    const char *x = w->x, *y = chance(w, 70) ? norm(w, x) : x;
    switch (random_below(&w->random, 4)) {
    case 0:
        y = attention(w, y);
        break;
    case 1:
        y = shapes(w, y);
        break;
    default:
        y = mlp(w, y);
        break;
    }
    if (chance(w, 20)) { /* a broadcast row, and its gradient summed */
        const char *row = param(w, "r", "\"hidden\"", "{\"uniform\": 0.3}");
        y = node(w, chance(w, 50) ? "mul" : "add", list(w, y, row), "");
    }
    if (random_below(&w->more, 3) == 0)
        y = twice(w, y);
    w->x = node(w, "add", list(w, x, y), "");
}

static void repeat(Writer *w)
{
    FgArena *arena = w->nodes.arena;
    const char *from = w->x, *carried = fresh(w, "x");
    Writer inner = {
        .random = w->random, .more = w->more, .serial = w->serial, .x = carried, .local = true};
    fg_buf_init(&inner.params, arena);
    fg_buf_init(&inner.nodes, arena);
    block(&inner);
    if (chance(&inner, 50))
        block(&inner);
    w->random = inner.random;
    w->more = inner.more;
    w->serial = inner.serial;
    fg_buf_printf(
        &w->nodes,
        "%s{\"repeat\": \"layers\", \"index\": \"i\", \"prefix\": \"l%u.{i}.\", \"carry\": "
        "{\"%s\": "
        "{\"from\": \"%s\", \"next\": \"%s\"}},\n    \"params\": {%s},\n    \"nodes\": [%s]}",
        w->nodes.len ? ",\n    " : "", w->serial, carried, from, inner.x,
        fg_buf_text(&inner.params), fg_buf_text(&inner.nodes));
    w->x = carried;
}

static void body(Writer *w, bool shared)
{
    const char *weight =
        shared ? param(w, "shared", "\"hidden\", \"hidden\"", "{\"normal\": 0.3}") : NULL;
    uint32_t n = 1 + random_below(&w->random, 3);
    for (uint32_t i = 0; i < n; i++) {
        if (weight)
            w->x = node(w, "linear", list(w, w->x, weight), "");
        if (chance(w, 50))
            repeat(w);
        else
            block(w);
    }
}

const char *random_model(FgArena *arena, uint64_t seed)
{
    Writer w = {.random = {seed * 7919 + 1}, .more = {seed * 7907 + 3}};
    fg_buf_init(&w.params, arena);
    fg_buf_init(&w.nodes, arena);
    static const uint32_t kv_of[] = {1, 2, 4};
    uint32_t kv = kv_of[random_below(&w.random, 3)], head = 2 + 2 * random_below(&w.random, 3);
    uint32_t vocab = 11 + random_below(&w.random, 30);
    bool tied = chance(&w, 50);
    fg_buf_printf(&w.params,
                  "\"embed\": {\"shape\": [\"vocab\", \"hidden\"], \"init\": {\"normal\": 0.3}%s}",
                  tied ? ", \"tied\": [\"head.weight\"]" : "");
    if (!tied)
        fg_buf_puts(&w.params, ",\n    \"head.weight\": {\"shape\": [\"vocab\", \"hidden\"]}");
    if (chance(&w, 20))
        fg_buf_puts(&w.params, ",\n    \"unused\": {\"shape\": [3, 5]}");
    fg_buf_puts(
        &w.nodes,
        "{\"op\": \"rope_table\", \"out\": \"rope\", \"seq\": \"seq\", \"half\": \"head / 2\"}");
    w.x = node(&w, "embedding", "\"tokens\", \"embed\"",
               chance(&w, 30) ? ", \"padding_idx\": 0" : "");
    w.x = node(&w, "add",
               list(&w, w.x, node(&w, "scale", list(&w, w.x, NULL), ", \"factor\": 0.5")), "");
    /* rope must have a use whatever the blocks are */
    const char *r = heads(&w, w.x, "heads");
    r = node(&w, "rope", list(&w, r, "rope"), "");
    w.x = node(&w, "reshape", list(&w, r, NULL), ", \"shape\": [\"batch\", \"seq\", \"hidden\"]");
    body(&w, chance(&w, 30));
    bool bias = chance(&w, 30);
    const char *logits =
        bias
            ? node(&w, "linear",
                   list3(&w, w.x, "head.weight", param(&w, "b", "\"vocab\"", "{\"uniform\": 0.1}")),
                   "")
            : node(&w, "linear", list(&w, w.x, "head.weight"), "");
    if (chance(&w, 20))
        logits = node(&w, "reshape", list(&w, logits, NULL),
                      ", \"shape\": [\"batch\", \"seq\", \"vocab\"]");
    const char *loss = node(&w, "cross_entropy", list(&w, logits, "labels"), "");
    return fg_arena_printf(arena,
                           "{\"foregather\": 1, \"name\": \"random\",\n"
                           "  \"dims\": {\"batch\": %u, \"seq\": %u, \"vocab\": %u, \"heads\": 4, "
                           "\"kv\": %u, \"head\": %u, \"hidden\": "
                           "\"heads * head\", \"wide\": %u, \"layers\": %u},\n"
                           "  \"inputs\": {\"tokens\": {\"role\": \"tokens\", \"shape\": "
                           "[\"batch\", \"seq\"]}, \"labels\": {\"role\": "
                           "\"labels\", \"shape\": [\"batch\", \"seq\"]}},\n"
                           "  \"params\": {%s},\n  \"nodes\": [%s],\n  \"loss\": \"%s\"}\n",
                           1 + random_below(&w.random, 2), 3 + random_below(&w.random, 5), vocab,
                           kv, head, 7 + random_below(&w.random, 20),
                           1 + random_below(&w.random, 3), fg_buf_text(&w.params),
                           fg_buf_text(&w.nodes), loss);
}
