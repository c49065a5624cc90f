/* Rules that a node satisfies by itself: those of its row, of its level, and of the bucket it works
 * on. */
#include "ir/op_fns.h"
#include "ir/verify.h"

#include <inttypes.h>
#include <string.h>

/* True when word `i` of an operand or result column ends with '?'. */
static bool is_optional(const char *words, uint32_t i)
{
    const char *p = words;
    for (;;) {
        size_t n = strcspn(p, " ");
        if (i-- == 0)
            return n > 0 && p[n - 1] == '?';
        p += n;
        p += strspn(p, " ");
        if (!*p)
            return false; /* one of "xs..." */
    }
}

static bool verify_counts(FgVerifier *v, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    uint32_t min, max, n_results;
    fg_op_arity(node->op, &min, &max, &n_results);
    if (node->attrs)
        n_results = fg_node_results(node);
    if (node->n_operands < min || node->n_operands > max) {
        fg_verify_fail_node(v, node, "the op takes the operands '%s', %u are given", info->operands,
                            node->n_operands);
        return false;
    }
    if (node->n_results != n_results) {
        fg_verify_fail_node(v, node, "the op makes the results '%s', %u are given", info->results,
                            node->n_results);
        return false;
    }
    for (uint32_t i = 0; i < node->n_operands; i++) {
        if (node->operands[i] == FG_NO_ID && !is_optional(info->operands, i)) {
            fg_verify_fail_node(v, node, "operand %u of '%s' must be given", i, info->operands);
            return false;
        }
    }
    for (uint32_t i = 0; i < n_results; i++) {
        if (node->results[i] == FG_NO_ID && !is_optional(info->results, i)) {
            fg_verify_fail_node(v, node, "result %u of '%s' must be given", i, info->results);
            return false;
        }
    }
    return true;
}

static bool verify_attrs(FgVerifier *v, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    for (uint32_t i = 0; i < info->n_attrs; i++) {
        const FgAttrSpec *spec = &info->attrs[i];
        const FgAttr *a = &node->attrs[i];
        if (!a->set && !spec->optional) {
            fg_verify_fail_node(v, node, "the attribute '%s' is not set", spec->name);
            return false;
        }
        if (a->set && spec->kind == FG_ATTR_WORD &&
            (!a->word || !fg_word_in(spec->choices, a->word))) {
            fg_verify_fail_node(v, node, "the attribute '%s' must be one of: %s", spec->name,
                                spec->choices);
            return false;
        }
    }
    if (node->op == FG_OP_grad && (fg_node_attr(node, "param")->i < 0 ||
                                   fg_node_attr(node, "param")->i >= v->m->params.len)) {
        fg_verify_fail_node(v, node, "there is no parameter %" PRId64,
                            fg_node_attr(node, "param")->i);
        return false;
    }
    return true;
}

static void verify_fields(FgVerifier *v, const FgNode *node)
{
    FgLevel level = v->m->level;
    if (level == FG_LEVEL_GRAPH && node->bucket != FG_NO_ID)
        fg_verify_fail_node(v, node, "a bucket at graph level");
    if (level != FG_LEVEL_SCHED && (node->stream != FG_STREAM_COMPUTE || node->n_waits > 0))
        fg_verify_fail_node(v, node, "streams and waits belong to level sched");
}

bool fg_verify_node_shape(FgVerifier *v, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    if (!(info->levels & 1u << v->m->level)) {
        fg_verify_fail_node(v, node, "the op does not stand at level %s",
                            fg_level_name(v->m->level));
        return false;
    }
    verify_fields(v, node);
    return verify_counts(v, node) && verify_attrs(v, node);
}

void fg_verify_node_types(FgVerifier *v, const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    const FgType **types = FG_NEW_ARRAY(v->scratch, const FgType *, node->n_results);
    if (node->n_results == 0 && info->infer == fg_infer_none)
        return;
    /* Inference may intern a type that the module does not have yet; nothing a reader could notice.
     */
    if (!info->infer((FgModule *)v->m, node, types)) {
        v->ok = false;
        return;
    }
    for (uint32_t i = 0; i < node->n_results; i++) {
        if (node->results[i] == FG_NO_ID || info->infer == fg_infer_given)
            continue;
        const FgValue *x = &v->m->values.data[node->results[i]];
        if (x->type != types[i])
            fg_verify_fail_node(v, node, "%s is %s, but the op makes %s",
                                fg_verify_value_text(v, x->id), fg_verify_type_text(v, x->type),
                                fg_verify_type_text(v, types[i]));
    }
    if (v->m->level != FG_LEVEL_SCHED || !(info->flags & FG_OPF_VIEW))
        return;
    const FgValue *x = &v->m->values.data[node->operands[0]];
    const FgValue *y = &v->m->values.data[node->results[0]];
    if (y->root != x->root || y->root_offset < x->root_offset ||
        y->root_offset + fg_type_bytes(y->type) > x->root_offset + fg_type_bytes(x->type))
        fg_verify_fail_node(v, node, "the view %s does not lie in %s",
                            fg_verify_value_text(v, y->id), fg_verify_value_text(v, x->id));
}

/* ---- buckets ---- */
static void expect_state(FgVerifier *v, const FgNode *node, uint32_t id, uint32_t expected,
                         FgRole role)
{
    if (id != expected)
        fg_verify_fail_node(v, node, "%s is not the %s of bucket '%s'", fg_verify_value_text(v, id),
                            fg_role_name(role), v->m->buckets.data[node->bucket].name);
}

static void expect_whole(FgVerifier *v, const FgNode *node, uint32_t id)
{
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    const FgType *t = v->m->values.data[id].type;
    if ((uint64_t)fg_type_elements(t) != b->elements)
        fg_verify_fail_node(v, node, "%s is %s, bucket '%s' has %" PRIu64 " elements",
                            fg_verify_value_text(v, id), fg_verify_type_text(v, t), b->name,
                            b->elements);
}

/* The bucket's reduced gradient: summed, or the parts of all ranks. */
static void expect_gradient_of(FgVerifier *v, const FgNode *node, uint32_t id, uint32_t parts)
{
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    const FgType *t = v->m->values.data[id].type;
    uint64_t want = v->m->ranks ? b->elements / v->m->ranks * parts : 0; /* 0: said elsewhere */
    expect_state(v, node, id, b->grad_shard, FG_ROLE_GRAD_SHARD);
    if ((uint64_t)fg_type_elements(t) != want)
        fg_verify_fail_node(v, node, "%s is %s, not the %" PRIu64 " elements of %s of bucket '%s'",
                            fg_verify_value_text(v, id), fg_verify_type_text(v, t), want,
                            parts > 1 ? "the parts of all ranks" : "a slice", b->name);
}

static void expect_gradient(FgVerifier *v, const FgNode *node, uint32_t id)
{
    expect_gradient_of(v, node, id, 1);
}

static void expect_parts(FgVerifier *v, const FgNode *node, uint32_t id)
{
    expect_gradient_of(v, node, id, v->m->ranks);
}

/* A state that is made is one of those that outlive a function. */
static void expect_carried(FgVerifier *v, const FgNode *node, uint32_t id, FgRole role)
{
    const FgValue *x = &v->m->values.data[id];
    if (x->kind == FG_VALUE_STATE && (x->role != role || x->index != node->bucket))
        fg_verify_fail_node(
            v, node, "%s is no carried %s of bucket '%s'", fg_verify_value_text(v, id),
            role == FG_ROLE_GATHERED ? "copy" : "gradient", v->m->buckets.data[node->bucket].name);
}

/* Rows of a parameter of the bucket: its table begins where `first` says and has their width. */
static void expect_lookup(FgVerifier *v, const FgNode *node)
{
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    const FgType *ids = v->m->values.data[node->operands[0]].type;
    const FgType *rows = v->m->values.data[node->operands[1]].type;
    int64_t first = fg_node_attr(node, "first")->i, vocab = fg_node_attr(node, "vocab")->i;
    bool found = false;
    for (uint32_t i = 0; i < b->n_params; i++) {
        const FgParam *p = &v->m->params.data[b->params[i]];
        found |= (int64_t)p->bucket_offset == first &&
                 vocab * fg_type_cols(rows) == fg_type_elements(p->type);
    }
    if (!found || fg_type_elements(ids) != fg_type_rows(rows))
        fg_verify_fail_node(v, node, "%s of %s are no rows of a parameter of bucket '%s' at %lld",
                            fg_verify_value_text(v, node->operands[1]),
                            fg_verify_value_text(v, node->operands[0]), b->name, (long long)first);
}

/* A set of the rows of a parameter of the bucket. */
static void expect_rows(FgVerifier *v, const FgNode *node)
{
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    int64_t table = fg_node_attr(node, "table")->i, hidden = fg_node_attr(node, "hidden")->i;
    int64_t vocab = fg_node_attr(node, "vocab")->i;
    int64_t bits = 32 * fg_type_elements(v->m->values.data[node->operands[2]].type);
    bool found = false;
    for (uint32_t i = 0; i < b->n_params; i++) {
        const FgParam *p = &v->m->params.data[b->params[i]];
        found |= hidden > 0 && (int64_t)p->bucket_offset == table && vocab <= bits &&
                 fg_type_elements(p->type) / hidden == vocab &&
                 fg_type_elements(p->type) % hidden == 0;
    }
    if (!found)
        fg_verify_fail_node(v, node, "%s is no set of rows of a parameter of bucket '%s' at %lld",
                            fg_verify_value_text(v, node->operands[2]), b->name, (long long)table);
}

static bool is_host(const FgVerifier *v, uint32_t id)
{
    const FgValue *x = id == FG_NO_ID ? NULL : &v->m->values.data[id];
    return x && fg_verify_is_value(v, x->root) && v->m->values.data[x->root].host;
}

/* Host memory is for stash to write and for fetch to read. */
void fg_verify_node_host(FgVerifier *v, const FgNode *node)
{
    if (fg_op_info(node->op)->flags & FG_OPF_VIEW)
        return;
    for (uint32_t i = 0; i < node->n_operands; i++)
        if (is_host(v, node->operands[i]) != (node->op == FG_OP_fetch))
            fg_verify_fail_node(v, node, "%s lies in %s memory, which it does not read",
                                fg_verify_value_text(v, node->operands[i]),
                                node->op == FG_OP_fetch ? "device" : "host");
    for (uint32_t i = 0; i < node->n_results; i++)
        if (is_host(v, node->results[i]) != (node->op == FG_OP_stash))
            fg_verify_fail_node(v, node, "%s lies in %s memory, which it does not write",
                                fg_verify_value_text(v, node->results[i]),
                                node->op == FG_OP_stash ? "device" : "host");
}

/* The gather of a shard that lies in host memory reads what was fetched of it. */
static void expect_shard(FgVerifier *v, const FgNode *node)
{
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    const FgType *x = v->m->values.data[node->operands[0]].type;
    if (!is_host(v, b->shard))
        expect_state(v, node, node->operands[0], b->shard, FG_ROLE_SHARD);
    else if (x != v->m->values.data[b->shard].type)
        fg_verify_fail_node(v, node, "%s is no shard of bucket '%s'",
                            fg_verify_value_text(v, node->operands[0]), b->name);
}

/* All that an update in parts works on has as many elements, and lies inside the slice. */
static void expect_part(FgVerifier *v, const FgNode *node)
{
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    int64_t first = fg_node_attr(node, "first")->i;
    int64_t n = fg_type_elements(v->m->values.data[node->operands[0]].type);
    int64_t slice = (int64_t)(b->elements / v->m->ranks);
    bool fits = first >= 0 && first <= slice && n <= slice - first;
    for (uint32_t i = 0; i < node->n_results; i++)
        fits = fits && (node->results[i] == FG_NO_ID ||
                        fg_type_elements(v->m->values.data[node->results[i]].type) == n);
    if (!fits || (node->results[0] == FG_NO_ID) != (b->master == FG_NO_ID))
        fg_verify_fail_node(v, node, "its states are not one part of those of bucket '%s'",
                            b->name);
}

void fg_verify_node_bucket(FgVerifier *v, const FgNode *node)
{
    static const FgOp with_bucket[] = {FG_OP_gather,         FG_OP_release,    FG_OP_grad_buffer,
                                       FG_OP_reduce_scatter, FG_OP_lookup_dw,  FG_OP_all_to_all,
                                       FG_OP_vocab_dw,       FG_OP_vocab_db,   FG_OP_norm_add,
                                       FG_OP_adamw,          FG_OP_adamw_part, FG_OP_adamw_parts,
                                       FG_OP_adamw_rows};
    bool needs = false;
    for (size_t i = 0; i < sizeof with_bucket / sizeof *with_bucket; i++)
        needs = needs || node->op == with_bucket[i];
    if (node->bucket == FG_NO_ID && !needs)
        return;
    if (node->bucket >= v->m->buckets.len) {
        fg_verify_fail_node(v, node, "it names no bucket that is there");
        return;
    }
    const FgBucket *b = &v->m->buckets.data[node->bucket];
    if (!needs)
        return;
    if (node->op == FG_OP_gather) {
        expect_shard(v, node);
        expect_whole(v, node, node->results[0]);
        expect_carried(v, node, node->results[0], FG_ROLE_GATHERED);
    } else if (node->op == FG_OP_release) {
        expect_whole(v, node, node->operands[0]);
    } else if (node->op == FG_OP_grad_buffer) {
        expect_whole(v, node, node->results[0]);
        expect_carried(v, node, node->results[0], FG_ROLE_GRADIENTS);
    } else if (node->op == FG_OP_reduce_scatter) {
        expect_whole(v, node, node->operands[0]);
        expect_gradient(v, node, node->results[0]);
    } else if (node->op == FG_OP_all_to_all) {
        expect_whole(v, node, node->operands[0]);
        expect_parts(v, node, node->results[0]);
    } else if (node->op == FG_OP_lookup_dw) {
        expect_gradient(v, node, node->results[0]);
        expect_lookup(v, node);
    } else if (node->op == FG_OP_vocab_dw || node->op == FG_OP_vocab_db) {
        expect_gradient(v, node, node->results[0]);
    } else if (node->op == FG_OP_norm_add) {
        expect_gradient(v, node, node->operands[0]);
    } else if (node->op == FG_OP_adamw_part) {
        expect_part(v, node);
    } else {
        if (node->op == FG_OP_adamw_rows)
            expect_rows(v, node);
        if (node->op == FG_OP_adamw_parts)
            expect_parts(v, node, node->operands[0]);
        else if (node->operands[0] != FG_NO_ID)
            expect_gradient(v, node, node->operands[0]);
        expect_state(v, node, node->results[0], b->master, FG_ROLE_MASTER);
        expect_state(v, node, node->results[1], b->moment1, FG_ROLE_MOMENT1);
        expect_state(v, node, node->results[2], b->moment2, FG_ROLE_MOMENT2);
        expect_state(v, node, node->results[3], b->shard, FG_ROLE_SHARD);
        if (node->results[4] != FG_NO_ID &&
            v->m->values.data[v->m->values.data[node->results[4]].root].role != FG_ROLE_NORM)
            fg_verify_fail_node(v, node, "its last result is not the norm");
    }
}
