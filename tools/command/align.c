/* Alignment. Lines are unique, so a longest common subsequence is a longest increasing run of right
 * positions, taken in left order: n log n, exact, and no table of n^2. */
#include "tools/command/align.h"

#include "base/map.h"
#include "ir/op_table.h"

/* ---- lines ---- */
static uint32_t root_of(const FgModule *m, uint32_t value)
{
    while (m->values.data[value].root != value)
        value = m->values.data[value].root;
    return value;
}

static bool reads_root(const FgModule *m, const FgNode *node, uint32_t root)
{
    for (uint32_t i = 0; i < node->n_operands; i++) {
        if (node->operands[i] != FG_NO_ID && root_of(m, node->operands[i]) == root)
            return true;
    }
    return false;
}

/* Bookkeeping without work on a device: not a line. */
static bool is_silent(const FgNode *node)
{
    return !fg_op_info(node->op)->call || node->op == FG_OP_release ||
           node->op == FG_OP_grad_buffer;
}

static bool is_compute(const FgNode *node)
{
    return node->stream == FG_STREAM_COMPUTE && !is_silent(node);
}

uint32_t fg_first_use(const FgModule *m, const FgFunc *func, uint32_t at)
{
    const FgNode *gather = &m->nodes.data[func->order.data[at]];
    uint32_t root = root_of(m, gather->results[0]);
    for (uint32_t i = at + 1; i < func->order.len; i++) {
        const FgNode *node = &m->nodes.data[func->order.data[i]];
        if (!is_silent(node) && reads_root(m, node, root))
            return i;
    }
    return func->order.len;
}

const char *fg_node_text(FgArena *arena, const FgModule *m, const FgFunc *func, uint32_t at)
{
    const FgNode *node = &m->nodes.data[func->order.data[at]];
    const char *op = fg_op_info(node->op)->name;
    if (node->bucket != FG_NO_ID && node->bucket < m->buckets.len) {
        const char *text = fg_arena_printf(arena, "%s @%s", op, m->buckets.data[node->bucket].name);
        uint32_t use = node->op == FG_OP_gather ? fg_first_use(m, func, at) : func->order.len;
        if (use < func->order.len)
            text = fg_arena_printf(arena, "%s for %s", text,
                                   fg_phase_name(m->nodes.data[func->order.data[use]].phase));
        return text;
    }
    return fg_arena_printf(arena, "%s %s %s", op, node->name, fg_phase_name(node->phase));
}

/* The second line of one text becomes "text, 2nd time". */
static const char *unique(FgArena *arena, FgMap *seen, const char *text)
{
    uint32_t n = 0;
    fg_map_get(seen, text, &n);
    fg_map_set(seen, text, n + 1);
    if (n == 0)
        return text;
    uint32_t nth = n + 1;
    const char *ending = nth % 100 / 10 == 1 ? "th"
                         : nth % 10 == 1     ? "st"
                         : nth % 10 == 2     ? "nd"
                         : nth % 10 == 3     ? "rd"
                                             : "th";
    return fg_arena_printf(arena, "%s, %u%s time", text, nth, ending);
}

FgLines fg_schedule_lines(FgArena *arena, const FgModule *m, const FgFunc *func)
{
    FgLines lines = {0};
    FgMap seen;
    uint32_t n = func->order.len;
    uint32_t *before = FG_NEW_ARRAY(arena, uint32_t, n + 1);
    fg_map_init(&seen, arena);
    for (uint32_t i = 0; i < n; i++)
        before[i + 1] = before[i] + is_compute(&m->nodes.data[func->order.data[i]]);
    for (uint32_t i = 0; i < n; i++) {
        const FgNode *node = &m->nodes.data[func->order.data[i]];
        if (is_silent(node))
            continue;
        FgLine line = {unique(arena, &seen, fg_node_text(arena, m, func, i)), node->id, before[i],
                       0, is_compute(node)};
        if (node->op == FG_OP_gather)
            line.ahead = before[fg_first_use(m, func, i)] - before[i];
        fg_vec_push(arena, &lines, line);
    }
    return lines;
}

/* ---- alignment ---- */
typedef struct Align {
    FgArena *arena;
    const FgLines *left, *right;
    uint32_t *to_right; /* left index -> right index of the same text, or FG_NO_ID */
    uint32_t *to_left;
    bool *equal; /* by left index: in the common subsequence */
    FgChanges changes;
} Align;

static void match(Align *a)
{
    FgMap places;
    fg_map_init(&places, a->arena);
    a->to_right = FG_NEW_ARRAY(a->arena, uint32_t, a->left->len + 1);
    a->to_left = FG_NEW_ARRAY(a->arena, uint32_t, a->right->len + 1);
    for (uint32_t i = 0; i < a->right->len; i++) {
        fg_map_add(&places, a->right->data[i].text, i);
        a->to_left[i] = FG_NO_ID;
    }
    for (uint32_t i = 0; i < a->left->len; i++) {
        uint32_t at;
        bool found = fg_map_get(&places, a->left->data[i].text, &at);
        a->to_right[i] = found ? at : FG_NO_ID;
        if (found)
            a->to_left[at] = i;
    }
}

/* The heaviest run that ends before some right position: its weight, and the left index of its last
 * line. */
typedef struct Best {
    uint64_t weight;
    uint32_t last;
} Best;

/* tree[k] covers the right positions below k as Fenwick's trees do. */
static Best best_below(const Best *tree, uint32_t position)
{
    Best best = {0, FG_NO_ID};
    for (uint32_t k = position; k > 0; k &= k - 1) {
        if (tree[k].weight > best.weight)
            best = tree[k];
    }
    return best;
}

static void record(Best *tree, uint32_t n, uint32_t position, Best best)
{
    for (uint32_t k = position + 1; k <= n; k += k & (~k + 1)) {
        if (best.weight > tree[k].weight)
            tree[k] = best;
    }
}

static void mark_equal(Align *a)
{
    uint32_t n = a->right->len;
    Best *tree = FG_NEW_ARRAY(a->arena, Best, n + 1);
    uint32_t *previous = FG_NEW_ARRAY(a->arena, uint32_t, a->left->len + 1);
    a->equal = FG_NEW_ARRAY(a->arena, bool, a->left->len + 1);
    for (uint32_t i = 0; i < a->left->len; i++) {
        if (a->to_right[i] == FG_NO_ID)
            continue;
        Best best = best_below(tree, a->to_right[i]);
        previous[i] = best.last;
        best.weight += a->left->data[i].computes ? n + 1 : 1;
        best.last = i;
        record(tree, n, a->to_right[i], best);
    }
    for (uint32_t i = best_below(tree, n).last; i != FG_NO_ID; i = previous[i])
        a->equal[i] = true;
}

static void push_equal(Align *a, uint32_t left, uint32_t right)
{
    FgChange *last = a->changes.len > 0 ? &a->changes.data[a->changes.len - 1] : NULL;
    if (last && last->kind == FG_CHANGE_EQUAL) {
        last->n++;
        return;
    }
    FgChange change = {FG_CHANGE_EQUAL, 1, &a->left->data[left], &a->right->data[right], 0};
    fg_vec_push(a->arena, &a->changes, change);
}

static void push_removed(Align *a, uint32_t left)
{
    FgChange change = {FG_CHANGE_REMOVED, 1, &a->left->data[left], NULL, 0};
    if (a->to_right[left] == FG_NO_ID)
        fg_vec_push(a->arena, &a->changes, change);
}

static void push_right(Align *a, uint32_t right)
{
    FgChange change = {FG_CHANGE_ADDED, 1, NULL, &a->right->data[right], 0};
    if (a->to_left[right] != FG_NO_ID) {
        change.kind = FG_CHANGE_MOVED;
        change.left = &a->left->data[a->to_left[right]];
        change.earlier = (int64_t)change.left->compute - (int64_t)change.right->compute;
    }
    fg_vec_push(a->arena, &a->changes, change);
}

FgChanges fg_align(FgArena *arena, const FgLines *left, const FgLines *right)
{
    Align a = {.arena = arena, .left = left, .right = right};
    uint32_t l = 0;
    match(&a);
    mark_equal(&a);
    for (uint32_t r = 0; r < right->len; r++) {
        uint32_t from = a.to_left[r];
        if (from == FG_NO_ID || !a.equal[from]) {
            push_right(&a, r);
            continue;
        }
        for (; l < from; l++)
            push_removed(&a, l);
        push_equal(&a, from, r);
        l = from + 1;
    }
    for (; l < left->len; l++)
        push_removed(&a, l);
    return a.changes;
}
