/* Strides of an op that walks its operands in another order than they lie in.
 *
 * Each kind fills dims and up to two rows of strides; normalising and sharing are common to all. */
#include "codegen/layout.h"

#include <string.h>

typedef struct Walk {
    uint32_t rank, n_operands;
    int64_t *dims;
    int64_t *strides[2];
} Walk;

bool fg_layout_parse(const char *word, size_t len, FgLayoutKind *out)
{
    static const char *const names[] = {"binary", "transpose", "broadcast", "reduce"};
    for (uint32_t i = 0; i < FG_N_LAYOUTS; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], word, len) == 0) {
            *out = (FgLayoutKind)i;
            return true;
        }
    }
    return false;
}

static const FgType *type_of(const FgArgsCx *cx, uint32_t value)
{
    return cx->module->values.data[value].type;
}

static Walk walk_new(FgArena *arena, const FgType *type, uint32_t n_operands)
{
    Walk walk = {.rank = type->rank, .n_operands = n_operands};
    walk.dims = FG_NEW_ARRAY(arena, int64_t, type->rank + 1);
    for (uint32_t i = 0; i < type->rank; i++)
        walk.dims[i] = type->dims[i];
    for (uint32_t k = 0; k < n_operands; k++)
        walk.strides[k] = FG_NEW_ARRAY(arena, int64_t, type->rank + 1);
    return walk;
}

/* Strides of a dense tensor, aligned at the last of `rank` dimensions; 0 where it is repeated. */
static void broadcast_strides(const FgType *type, uint32_t rank, const int64_t *dims,
                              int64_t *strides)
{
    int64_t step = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t at = rank - 1 - i;
        int64_t dim = i < type->rank ? type->dims[type->rank - 1 - i] : 1;
        strides[at] = dim == dims[at] ? step : 0;
        step *= dim;
    }
}

static void transpose_strides(const FgType *type, const FgAttr *perm, int64_t *strides)
{
    for (uint32_t i = 0; i < perm->n_ints; i++) {
        int64_t from = perm->ints[i] < 0 ? perm->ints[i] + (int64_t)type->rank : perm->ints[i];
        int64_t step = 1;
        for (uint32_t j = (uint32_t)from + 1; j < type->rank; j++)
            step *= type->dims[j];
        strides[i] = step;
    }
}

static bool is_reduced(const FgAttr *axes, uint32_t rank, uint32_t dim)
{
    for (uint32_t i = 0; i < axes->n_ints; i++) {
        int64_t axis = axes->ints[i] < 0 ? axes->ints[i] + (int64_t)rank : axes->ints[i];
        if (axis == (int64_t)dim)
            return true;
    }
    return axes->n_ints == 0;
}

static void reduce_strides(const FgType *type, const FgAttr *axes, int64_t *of_result)
{
    int64_t step = 1;
    for (uint32_t i = type->rank; i-- > 0;) {
        bool reduced = is_reduced(axes, type->rank, i);
        of_result[i] = reduced ? 0 : step;
        step *= reduced ? 1 : type->dims[i];
    }
}

/* Whether dimensions i and i + 1 can be walked as one in every operand. */
static bool mergeable(const Walk *walk, uint32_t i)
{
    for (uint32_t k = 0; k < walk->n_operands; k++) {
        if (walk->strides[k][i] != walk->strides[k][i + 1] * walk->dims[i + 1])
            return false;
    }
    return true;
}

static void drop_dim(Walk *walk, uint32_t at)
{
    walk->rank--;
    for (uint32_t i = at; i < walk->rank; i++) {
        walk->dims[i] = walk->dims[i + 1];
        for (uint32_t k = 0; k < walk->n_operands; k++)
            walk->strides[k][i] = walk->strides[k][i + 1];
    }
}

/* A walk keeps at least one dimension. */
static void normalise(Walk *walk)
{
    for (uint32_t i = walk->rank; i-- > 0;) {
        if (walk->dims[i] == 1 && walk->rank > 1)
            drop_dim(walk, i);
    }
    for (uint32_t i = walk->rank; i-- > 1;) {
        if (mergeable(walk, i - 1)) {
            walk->dims[i] *= walk->dims[i - 1];
            drop_dim(walk, i - 1);
        }
    }
    if (walk->rank == 0) {
        walk->dims[0] = 1;
        walk->rank = 1;
    }
}

static bool equal_at(const FgLayouts *table, uint32_t at, const int64_t *row, uint32_t len)
{
    return memcmp(table->data + at, row, len * sizeof *row) == 0;
}

static uint64_t share(FgArgsCx *cx, const Walk *walk)
{
    uint32_t len = 1 + walk->rank * (1 + walk->n_operands), at = 0;
    int64_t *row = FG_NEW_ARRAY(cx->arena, int64_t, len);
    row[at++] = walk->rank;
    for (uint32_t i = 0; i < walk->rank; i++)
        row[at++] = walk->dims[i];
    for (uint32_t k = 0; k < walk->n_operands; k++) {
        for (uint32_t i = 0; i < walk->rank; i++)
            row[at++] = walk->strides[k][i];
    }
    for (uint32_t i = 0; i + len <= cx->layouts.len; i++) {
        if (equal_at(&cx->layouts, i, row, len))
            return i;
    }
    uint32_t index = cx->layouts.len;
    for (uint32_t i = 0; i < len; i++)
        fg_vec_push(cx->arena, &cx->layouts, row[i]);
    return index;
}

uint64_t fg_node_layout(FgArgsCx *cx, const FgNode *node, FgLayoutKind kind)
{
    const FgType *x = type_of(cx, node->operands[0]), *y = type_of(cx, node->results[0]);
    Walk walk;
    switch (kind) {
    case FG_LAYOUT_binary: {
        const FgType *b = type_of(cx, node->operands[1]);
        int64_t n = fg_type_elements(y);
        if (fg_type_elements(x) == n && fg_type_elements(b) == n)
            return UINT64_MAX;
        walk = walk_new(cx->arena, y, 2);
        broadcast_strides(x, y->rank, y->dims, walk.strides[0]);
        broadcast_strides(b, y->rank, y->dims, walk.strides[1]);
        break;
    }
    case FG_LAYOUT_transpose:
        walk = walk_new(cx->arena, y, 1);
        transpose_strides(x, fg_node_attr(node, "perm"), walk.strides[0]);
        break;
    case FG_LAYOUT_broadcast:
        walk = walk_new(cx->arena, y, 1);
        broadcast_strides(x, y->rank, y->dims, walk.strides[0]);
        break;
    case FG_LAYOUT_reduce:
        walk = walk_new(cx->arena, x, 2);
        broadcast_strides(x, x->rank, x->dims, walk.strides[0]);
        reduce_strides(x, fg_node_attr(node, "axes"), walk.strides[1]);
        break;
    case FG_N_LAYOUTS:
    default:
        FG_BUG("no such layout");
    }
    normalise(&walk);
    return share(cx, &walk);
}
