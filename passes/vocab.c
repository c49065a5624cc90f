/* vocab: marks the tables that stay with the owners of their rows. Graph level, after autodiff.
 *
 * Under the numerics `vocab=sharded` a table is marked `sharded` when all that reads it can be done
 * where its rows lie: lookups (embedding), and the head whose logits go into the loss and nowhere
 * else. A tied weight is marked when both are so; a head's bias goes with its weight. Every other
 * embedding or head stays gathered, and a note says why. `travel` does what the mark says.
 *
 * How many tokens travel at a time (`chunk`) is decided here too, unless it is given: so many that
 * all ranks' together are about 4096. Logits are then [4096, rows of a rank], long enough for
 * matrix units, and never whole. Beyond 256 pieces it is the pieces that grow, so that the plan
 * does not grow with the tokens.
 *
 *   param 0 @w ... value(%w)              param 0 @w ... sharded value(%w)
 *   %x = embedding %ids, %w          ->   %x = embedding %ids, %w
 *   %l = linear %y, %w
 *   %s, %e = cross_entropy %l, ...
 */
#include "passes/vocab.h"

#include <string.h>

#define CHUNK_TOKENS 4096 /* of all ranks */
#define MAX_PIECES 256    /* each is some twelve nodes */

typedef struct Cx {
    FgModule *m;
    FgUses uses;
    int64_t tokens; /* the most that a rank looks up, or has a loss for, in one node */
} Cx;

static const FgNode *node_of(const Cx *cx, uint32_t id)
{
    return &cx->m->nodes.data[id];
}

static void count_tokens(Cx *cx, uint32_t value)
{
    int64_t n = fg_type_elements(fg_value(cx->m, value)->type);
    cx->tokens = n > cx->tokens ? n : cx->tokens;
}

/* Is this the contribution of a lookup, or of the head, to the parameter's gradient? */
static bool is_own_gradient(const Cx *cx, const FgNode *grad, const FgHead *head)
{
    uint32_t g = grad->operands[0];
    const FgValue *value = fg_value(cx->m, g);
    if (value->kind != FG_VALUE_RESULT || fg_uses_only(&cx->uses, g) != grad->id)
        return false;
    const FgNode *def = node_of(cx, value->def);
    return def->op == FG_OP_embedding_dw || (head && (def->id == head->dw || def->id == head->db));
}

/* Every `grad` of the parameter is one of its lookups' or the head's. */
static bool gradients_are_own(const Cx *cx, uint32_t param, const FgHead *head)
{
    const FgIdVec *order = &fg_func(cx->m, "step")->order;
    for (uint32_t i = 0; i < order->len; i++) {
        const FgNode *node = node_of(cx, order->data[i]);
        if (node->op == FG_OP_grad && fg_node_attr(node, "param")->i == param &&
            !is_own_gradient(cx, node, head))
            return false;
    }
    return true;
}

/* The bias of a head is used by it alone; FG_NO_ID: there is none. */
static bool bias_is_own(const Cx *cx, const FgHead *head, uint32_t *out_bias)
{
    const FgNode *linear = node_of(cx, head->linear);
    *out_bias = FG_NO_ID;
    if (linear->n_operands < 3 || linear->operands[2] == FG_NO_ID)
        return true;
    const FgValue *bias = fg_value(cx->m, linear->operands[2]);
    *out_bias = bias->index;
    return bias->kind == FG_VALUE_PARAM && fg_uses_only(&cx->uses, bias->id) == linear->id &&
           gradients_are_own(cx, bias->index, head);
}

/* Whether all uses of a table are lookups or one head; *out_head is set where there is one. */
static bool uses_match(Cx *cx, uint32_t value, FgHead *head, bool *has_head, const char **why)
{
    const FgIdVec *of = &cx->uses.of[value];
    *has_head = false;
    for (uint32_t i = 0; i < of->len; i++) {
        const FgNode *node = node_of(cx, of->data[i]);
        if (node->op != FG_OP_linear)
            continue;
        *why = "it lies the other way round (layout in_out): its rows are no words";
        if (strcmp(fg_node_attr(node, "layout")->word, "out_in") != 0)
            return false;
        *why = "it is the weight of two linear nodes";
        if (*has_head || node->operands[1] != value ||
            !fg_head_match(&cx->uses, node->id, head, why))
            return false;
        *has_head = true;
    }
    *why = "something else reads it than lookups and the head";
    for (uint32_t i = 0; i < of->len; i++) {
        const FgNode *node = node_of(cx, of->data[i]);
        bool lookup = node->op == FG_OP_embedding && node->operands[1] == value;
        bool own = *has_head && (node->id == head->linear || node->id == head->dx);
        if (!lookup && !own)
            return false;
    }
    return true;
}

static void mark(Cx *cx, uint32_t param)
{
    FgModule *m = cx->m;
    FgHead head;
    bool has_head;
    uint32_t value = m->params.data[param].value, bias = FG_NO_ID;
    const char *why;
    bool ok = uses_match(cx, value, &head, &has_head, &why);
    if (ok) {
        why = "its gradient, or its bias's, is used elsewhere";
        ok = gradients_are_own(cx, param, has_head ? &head : NULL) &&
             (!has_head || bias_is_own(cx, &head, &bias));
    }
    if (!ok) {
        fg_diag(m->diags, m->params.data[param].loc, FG_D_STAYS_GATHERED, "'%s' stays gathered: %s",
                m->params.data[param].name, why);
        return;
    }
    m->params.data[param].sharded = true;
    if (bias != FG_NO_ID)
        m->params.data[bias].sharded = true;
    for (uint32_t i = 0; i < cx->uses.of[value].len; i++) {
        const FgNode *node = node_of(cx, cx->uses.of[value].data[i]);
        if (node->op == FG_OP_embedding)
            count_tokens(cx, node->operands[0]);
    }
    if (has_head)
        count_tokens(cx, node_of(cx, head.loss)->operands[1]);
}

/* A table that is looked up, or the weight of a linear node that makes the logits of a loss. */
static bool is_table(const Cx *cx, uint32_t param)
{
    const FgParam *p = &cx->m->params.data[param];
    if (p->value == FG_NO_ID || p->type->rank != 2)
        return false;
    const FgIdVec *of = &cx->uses.of[p->value];
    for (uint32_t i = 0; i < of->len; i++) {
        const FgNode *node = node_of(cx, of->data[i]);
        if (node->op == FG_OP_embedding && node->operands[1] == p->value)
            return true;
        if (node->op != FG_OP_linear || node->operands[1] != p->value)
            continue;
        const FgIdVec *users = &cx->uses.of[node->results[0]];
        for (uint32_t k = 0; k < users->len; k++)
            if (node_of(cx, users->data[k])->op == FG_OP_cross_entropy)
                return true;
    }
    return false;
}

static int64_t default_chunk(int64_t tokens, uint32_t ranks)
{
    int64_t all = tokens * (int64_t)(ranks ? ranks : 1);
    int64_t pieces = (all + CHUNK_TOKENS - 1) / CHUNK_TOKENS;
    if (pieces > MAX_PIECES)
        pieces = MAX_PIECES;
    return (tokens + pieces - 1) / pieces;
}

FgPassResult fg_pass_vocab(FgPassCx *pass)
{
    FgModule *m = pass->module;
    if (m->numerics.vocab != FG_VOCAB_SHARDED)
        return FG_PASS_UNCHANGED;
    Cx cx = {.m = m, .uses = fg_uses(pass->scratch, m)};
    for (uint32_t p = 0; p < m->params.len; p++)
        if (is_table(&cx, p) && !m->params.data[p].sharded)
            mark(&cx, p);
    if (cx.tokens == 0)
        return FG_PASS_UNCHANGED;
    if (m->numerics.chunk == 0)
        m->numerics.chunk = default_chunk(cx.tokens, pass->machine->ranks);
    return FG_PASS_CHANGED;
}
