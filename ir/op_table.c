/* The op table in memory: ops.def expanded once into an array of FgOpInfo, and the few questions
 * asked of it.
 *
 * The column macros of ops.def (ATTRS, INFER, GRAD ...) are given meaning only here and in
 * op_fns.h; code generation reads the call column as text through FgOpInfo. */
#include "ir/op_table.h"

#include "ir/op_fns.h"

#include <string.h>

#define SPEC(attr, kind_, required_, number_, choices_)                                            \
    {.name = #attr,                                                                                \
     .kind = (kind_),                                                                              \
     .required = (required_),                                                                      \
     .number = (number_),                                                                          \
     .choices = (choices_)}
#define INT(attr, value) SPEC(attr, FG_ATTR_INT, false, value, NULL)
#define FLOAT(attr, value) SPEC(attr, FG_ATTR_FLOAT, false, value, NULL)
#define BOOL(attr, value) SPEC(attr, FG_ATTR_BOOL, false, value, NULL)
#define WORD(attr, words) SPEC(attr, FG_ATTR_WORD, false, 0, words)
#define INTS(attr) SPEC(attr, FG_ATTR_INTS, false, 0, NULL)
#define REQ_INT(attr) SPEC(attr, FG_ATTR_INT, true, 0, NULL)
#define REQ_FLOAT(attr) SPEC(attr, FG_ATTR_FLOAT, true, 0, NULL)
#define REQ_INTS(attr) SPEC(attr, FG_ATTR_INTS, true, 0, NULL)
#define TEXT(attr) SPEC(attr, FG_ATTR_TEXT, false, 0, NULL)
#define REQ_TEXT(attr) SPEC(attr, FG_ATTR_TEXT, true, 0, NULL)

/* An attribute list of any length as the two fields it fills. */
#define ATTRS(...)                                                                                 \
    .attrs = (const FgAttrSpec[]){__VA_ARGS__},                                                    \
    .n_attrs = sizeof((const FgAttrSpec[]){__VA_ARGS__}) / sizeof(FgAttrSpec)
#define ATTRS_NONE .attrs = NULL, .n_attrs = 0
#define INFER(f) .infer = fg_infer_##f
#define GRAD(f) .grad = fg_grad_##f, .no_grad = NULL
#define NO_GRAD(why) .grad = NULL, .no_grad = (why)
#define COST(f) .cost = fg_cost_##f
#define CALL(entry, args) .call = (entry), .call_args = (args)
#define NO_CALL .call = NULL, .call_args = NULL

static const FgOpInfo ops[FG_N_OPS] = {
#define FG_OP(name_, operands_, results_, levels_, flags_, attrs_, infer_, grad_, cost_, call_,    \
              doc_)                                                                                \
    [FG_OP_##name_] = {.name = #name_,                                                             \
                       .operands = (operands_),                                                    \
                       .results = (results_),                                                      \
                       .levels = (uint32_t)(levels_),                                              \
                       .flags = (uint32_t)(flags_),                                                \
                       attrs_,                                                                     \
                       infer_,                                                                     \
                       grad_,                                                                      \
                       cost_,                                                                      \
                       call_,                                                                      \
                       .doc = (doc_)},
#include "ir/ops.def"
#undef FG_OP
};

const FgOpInfo *fg_op_info(FgOp op)
{
    FG_ASSERT((uint32_t)op < FG_N_OPS);
    return &ops[op];
}

bool fg_op_parse(const char *name, FgOp *out)
{
    for (uint32_t i = 0; i < FG_N_OPS; i++) {
        if (strcmp(ops[i].name, name) == 0) {
            *out = (FgOp)i;
            return true;
        }
    }
    return false;
}

/* Counts the words of an operand or result column: all of them, and those that must be there. */
static void count_words(const char *words, uint32_t *out_all, uint32_t *out_needed, bool *out_rest)
{
    *out_all = *out_needed = 0;
    *out_rest = false;
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        if (n >= 3 && memcmp(p + n - 3, "...", 3) == 0) {
            *out_rest = true;
        } else if (n > 0) {
            ++*out_all;
            if (p[n - 1] != '?')
                *out_needed = *out_all;
        }
        p += n;
        p += strspn(p, " ");
    }
}

void fg_op_arity(FgOp op, uint32_t *out_min, uint32_t *out_max, uint32_t *out_results)
{
    const FgOpInfo *info = fg_op_info(op);
    uint32_t all, needed;
    bool rest;
    count_words(info->results, out_results, &needed, &rest);
    count_words(info->operands, &all, &needed, &rest);
    *out_min = needed;
    *out_max = rest ? UINT32_MAX : all;
}

uint32_t fg_op_plus(FgOp op)
{
    uint32_t min, max, results;
    fg_op_arity(op, &min, &max, &results);
    return fg_op_info(op)->flags & FG_OPF_PLUS ? max - 1 : FG_NO_ID;
}

bool fg_node_accumulates(const FgNode *node, uint32_t result)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs && result + 1 == node->n_results; i++)
        if (strcmp(info->attrs[i].name, "accumulate") == 0)
            return node->attrs[i].i != 0;
    return false;
}

/* The words of a custom node's element types, one a result. */
static uint32_t n_words(const char *words)
{
    uint32_t all, needed;
    bool rest;
    count_words(words, &all, &needed, &rest);
    return all;
}

uint32_t fg_node_results(const FgNode *node)
{
    if (node->op == FG_OP_custom) {
        const char *dtypes = fg_node_attr(node, "dtypes")->word;
        return dtypes ? n_words(dtypes) : 0;
    }
    uint32_t min, max, n;
    fg_op_arity(node->op, &min, &max, &n);
    return n;
}

void fg_node_cost(const FgModule *module, const FgNode *node, FgCost *cost)
{
    *cost = (FgCost){0};
    fg_op_info(node->op)->cost(module, node, cost);
}
