/* One function for each distinct chain: its expression, the repetition and the dtypes of its
 * operands. The expression is printed once, as a function of floats that host and GPUs share:
 *
 *   FG_INLINE float value_fused_0(float x0, float x1, float x2)
 *   {
 *       float t0 = fg_round_bf16(x0 * x1);
 *       return x2 + t0;
 *   }
 *
 * The host loops over it; a kernel does in packs of eight elements, where all repetitions allow it,
 * then one by one. Only the last rounding is left to the store. readback/chain.c knows these forms
 * and no others. Names of chains begin with `fused_`. */
#include "codegen/chain.h"

#include "codegen/ctext.h"
#include "ir/chain.h"

#include <inttypes.h>
#include <string.h>

#define PACK 8

typedef struct Chain {
    FgArena *arena;
    const FgModule *module;
    const FgNode *node;
    const char *name;
    const int64_t *repeat;
    uint32_t n; /* operands */
    FgChain steps;
} Chain;

static FgDtype dtype_of(const FgModule *module, uint32_t value)
{
    return module->values.data[value].type->dtype;
}

/* What two nodes with one function have in common. */
static const char *key_of(FgArena *arena, const FgModule *module, const FgNode *node)
{
    FgBuf key;
    fg_buf_init(&key, arena);
    fg_buf_puts(&key, fg_node_attr(node, "expression")->word);
    for (uint32_t i = 0; i < node->n_operands; i++)
        fg_buf_printf(&key, " %s %" PRId64, fg_dtype_name(dtype_of(module, node->operands[i])),
                      fg_node_attr(node, "repeat")->ints[i]);
    return fg_buf_text(&key);
}

const char *fg_chain_function(FgArgsCx *cx, const FgNode *node)
{
    const char *key = key_of(cx->arena, cx->module, node);
    uint32_t n = 0;
    for (uint32_t i = 0; i < cx->customs.len; i++) {
        const FgNode *other = &cx->module->nodes.data[cx->customs.data[i].node];
        if (other->op != FG_OP_fused)
            continue;
        if (strcmp(key_of(cx->arena, cx->module, other), key) == 0)
            return cx->customs.data[i].function;
        n++;
    }
    return fg_arena_printf(cx->arena, "fused_%u", n);
}

static Chain chain_of(const FgEmit *emit, const FgCustomRow *row)
{
    Chain chain = {.arena = emit->arena,
                   .module = emit->module,
                   .node = &emit->module->nodes.data[row->node],
                   .name = row->function};
    const char *error;
    chain.repeat = fg_node_attr(chain.node, "repeat")->ints;
    chain.n = chain.node->n_operands;
    if (!fg_chain_parse(emit->arena, fg_node_attr(chain.node, "expression")->word, &chain.steps,
                        &error))
        FG_BUG("%s", error);
    return chain;
}

/* ---- the expression ---- */

static const char *arg_text(const Chain *chain, FgChainArg arg)
{
    return fg_arena_printf(chain->arena, "%c%u", arg.is_step ? 't' : 'x', arg.index);
}

static void put_value(const Chain *chain, FgBuf *out, const FgChainStep *step)
{
    static const char signs[FG_N_CHAIN_OPS] = {
        [FG_CHAIN_add] = '+', [FG_CHAIN_sub] = '-', [FG_CHAIN_mul] = '*', [FG_CHAIN_div] = '/'};
    const FgChainInfo *info = fg_chain_info(step->op);
    const char *a = arg_text(chain, step->args[0]), *b = arg_text(chain, step->args[1]);
    if (signs[step->op]) {
        fg_buf_printf(out, "%s %c %s", a, signs[step->op], b);
        return;
    }
    if (step->op == FG_CHAIN_keep) {
        fg_buf_puts(out, a);
        return;
    }
    fg_buf_printf(out, "fg_chain_%s(%s", info->name, a);
    if (info->n_operands == 2)
        fg_buf_printf(out, ", %s", b);
    if (info->number) {
        fg_buf_puts(out, ", ");
        fg_c_double(out, step->number);
    }
    fg_buf_puts(out, ")");
}

static void put_element(const Chain *chain, FgBuf *out)
{
    fg_buf_puts(out, "/* ");
    fg_c_comment(out, fg_chain_text(chain->arena, &chain->steps));
    fg_buf_printf(out, " */\nFG_INLINE float value_%s(", chain->name);
    for (uint32_t i = 0; i < chain->n; i++)
        fg_buf_printf(out, "%sfloat x%u", i ? ", " : "", i);
    fg_buf_puts(out, ")\n{\n");
    uint32_t last = chain->steps.steps.len - 1;
    for (uint32_t i = 0; i <= last; i++) {
        const FgChainStep *step = &chain->steps.steps.data[i];
        bool rounds = step->dtype != FG_F32 && i < last;
        if (i < last)
            fg_buf_printf(out, "    float t%u = ", i);
        else
            fg_buf_puts(out, "    return ");
        if (rounds)
            fg_buf_printf(out, "fg_round_%s(", fg_dtype_name(step->dtype));
        put_value(chain, out, step);
        fg_buf_puts(out, rounds ? ");\n" : ";\n");
    }
    fg_buf_puts(out, "}\n\n");
}

/* ---- loops ---- */

static const char *c_type(FgDtype dtype)
{
    return dtype == FG_F32 ? "float" : dtype == FG_BF16 ? "FgBf16" : "FgF16";
}

/* "const float *x0, FgBf16 *y, ", or the types alone. */
static void put_params(const Chain *chain, FgBuf *out, bool names)
{
    for (uint32_t i = 0; i < chain->n; i++) {
        fg_buf_printf(out, "const %s *", c_type(dtype_of(chain->module, chain->node->operands[i])));
        if (names)
            fg_buf_printf(out, "x%u", i);
        fg_buf_puts(out, ", ");
    }
    fg_buf_printf(out, "%s *%s, ", c_type(dtype_of(chain->module, chain->node->results[0])),
                  names ? "y" : "");
}

/* "i", "i % 64", "i / 64"; for packs the same of `p` and an eighth. */
static const char *index_text(const Chain *chain, uint32_t k, const char *of, int64_t per)
{
    int64_t repeat = chain->repeat[k];
    if (repeat == 0)
        return of;
    int64_t m = repeat < 0 ? -repeat : repeat;
    return fg_arena_printf(chain->arena, "%s %c %" PRId64, of, repeat < 0 ? '/' : '%',
                           m % per ? m : m / per);
}

/* Element `index` of operand k as a float. */
static void put_load(const Chain *chain, FgBuf *out, uint32_t k, const char *index)
{
    FgDtype dtype = dtype_of(chain->module, chain->node->operands[k]);
    if (dtype == FG_F32)
        fg_buf_printf(out, "x%u[%s]", k, index);
    else
        fg_buf_printf(out, "fg_from_%s(x%u[%s])", fg_dtype_name(dtype), k, index);
}

static void put_assignment(const Chain *chain, FgBuf *out)
{
    FgDtype to = dtype_of(chain->module, chain->node->results[0]);
    fg_buf_puts(out, "        y[i] = ");
    if (to != FG_F32)
        fg_buf_printf(out, "fg_to_%s(", fg_dtype_name(to));
    fg_buf_printf(out, "value_%s(", chain->name);
    for (uint32_t k = 0; k < chain->n; k++) {
        fg_buf_puts(out, k ? ", " : "");
        put_load(chain, out, k, index_text(chain, k, "i", 1));
    }
    fg_buf_puts(out, to == FG_F32 ? ");\n" : "));\n");
}

void fg_emit_chain(FgEmit *emit, FgBuf *out, const FgCustomRow *row)
{
    Chain chain = chain_of(emit, row);
    if (emit->info->cuda) {
        fg_buf_printf(out, "void %s(", chain.name);
        put_params(&chain, out, false);
        fg_buf_puts(out, "const FgCustom *);\n\n");
        return;
    }
    put_element(&chain, out);
    fg_buf_printf(out, "static void %s(", chain.name);
    put_params(&chain, out, true);
    fg_buf_printf(out,
                  "const FgCustom *call)\n{\n    int64_t n = fg_custom_elements(call, %u);\n"
                  "    for (int64_t i = 0; i < n; i++)\n",
                  chain.n);
    put_assignment(&chain, out);
    fg_buf_puts(out, "}\n\n");
}

/* ---- kernels ---- */

/* Whether a pack's elements go with a pack of each operand, or with one element of it. A single
 * element goes with everything. */
static bool packs(const Chain *chain)
{
    for (uint32_t k = 0; k < chain->n; k++)
        if (chain->repeat[k] % PACK != 0 && chain->repeat[k] != 1)
            return false;
    return true;
}

static void put_pack_loop(const Chain *chain, FgBuf *out)
{
    fg_buf_puts(out, "    for (int64_t p = fg_thread(); p < packs; p += fg_threads()) {\n");
    for (uint32_t k = 0; k < chain->n; k++) {
        const char *index = index_text(chain, k, "p", PACK);
        bool whole = chain->repeat[k] >= 0 && chain->repeat[k] != 1;
        fg_buf_printf(out, "        FgPack a%u = ", k);
        if (whole)
            fg_buf_printf(out, "fg_pack(x%u, %s);\n", k, index);
        else {
            fg_buf_puts(out, "fg_pack_of(");
            put_load(chain, out, k, index);
            fg_buf_puts(out, ");\n");
        }
    }
    fg_buf_printf(out,
                  "        FgPack b;\n        for (int j = 0; j < %d; j++)\n"
                  "            b.v[j] = value_%s(",
                  PACK, chain->name);
    for (uint32_t k = 0; k < chain->n; k++)
        fg_buf_printf(out, "%sa%u.v[j]", k ? ", " : "", k);
    fg_buf_puts(out, ");\n        fg_unpack(y, p, b);\n    }\n");
}

static void put_kernel(const Chain *chain, FgBuf *out)
{
    bool packed = packs(chain);
    fg_buf_printf(out, "FG_KERNEL kernel_%s(", chain->name);
    put_params(chain, out, true);
    fg_buf_puts(out, packed ? "int64_t n, int64_t packs)\n{\n" : "int64_t n)\n{\n");
    if (packed)
        put_pack_loop(chain, out);
    fg_buf_printf(out, "    for (int64_t i = %sfg_thread(); i < n; i += fg_threads())\n",
                  packed ? "8 * packs + " : "");
    put_assignment(chain, out);
    fg_buf_puts(out, "}\n\n");
}

static void put_launch(const Chain *chain, FgBuf *out)
{
    bool packed = packs(chain);
    fg_buf_printf(out, "extern \"C\" void %s(", chain->name);
    put_params(chain, out, true);
    fg_buf_printf(out, "const FgCustom *call)\n{\n    int64_t n = fg_custom_elements(call, %u);\n",
                  chain->n);
    if (packed)
        fg_buf_puts(out, "    int64_t packs = fg_chain_packs(call);\n");
    fg_buf_printf(out,
                  "    kernel_%s<<<fg_chain_blocks(n, %s), FG_CHAIN_THREADS, 0, "
                  "fg_chain_stream(call)>>>(",
                  chain->name, packed ? "packs" : "0");
    for (uint32_t k = 0; k < chain->n; k++)
        fg_buf_printf(out, "x%u, ", k);
    fg_buf_puts(out, packed ? "y, n, packs);\n}\n" : "y, n);\n}\n");
}

bool fg_emit_has_kernels(const FgEmit *emit)
{
    for (uint32_t i = 0; i < emit->args.customs.len && emit->info->cuda; i++)
        if (emit->module->nodes.data[emit->args.customs.data[i].node].op == FG_OP_fused)
            return true;
    return false;
}

void fg_emit_kernels(FgEmit *emit, FgBuf *out)
{
    for (uint32_t i = 0; i < emit->args.customs.len; i++) {
        const FgCustomRow *row = &emit->args.customs.data[i];
        if (emit->module->nodes.data[row->node].op != FG_OP_fused)
            continue;
        Chain chain = chain_of(emit, row);
        fg_buf_puts(out, "\n");
        put_element(&chain, out);
        put_kernel(&chain, out);
        put_launch(&chain, out);
    }
}
