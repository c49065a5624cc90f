/* The checker's view of memory: which bytes a node reads and writes, where they lie, and maps over
 * addresses.
 *
 * All addresses at which an access begins or ends are known before the walk, so that a map is an
 * array over these bounds and a bit for each that says "a run begins here". Splitting sets a bit,
 * merging clears bits; finding the run of a bound scans words. No balancing, and the cost of an
 * access is the number of runs it covers. */
#include "passes/check_internal.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 16

/* ---- accesses ---- */

bool fg_check_works(const FgNode *node)
{
    const FgOpInfo *info = fg_op_info(node->op);
    return info->call && !(info->flags & FG_OPF_VIEW) && node->op != FG_OP_release;
}

void fg_check_accesses(const FgCheck *check, const FgNode *node, FgCheckAccessVec *out)
{
    out->len = 0;
    if (!fg_check_works(node))
        return;
    for (uint32_t i = 0; i < node->n_operands; i++)
        if (node->operands[i] != FG_NO_ID)
            fg_vec_push(check->arena, out,
                        ((FgCheckAccess){node->operands[i], true, false, false}));
    for (uint32_t i = 0; i < node->n_results; i++)
        if (node->results[i] != FG_NO_ID)
            fg_vec_push(check->arena, out,
                        ((FgCheckAccess){node->results[i], check->updates[node->id], true, false}));
    if (fg_op_info(node->op)->flags & FG_OPF_WORKSPACE)
        for (uint32_t i = 0; i < check->workspaces.len; i++)
            fg_vec_push(check->arena, out,
                        ((FgCheckAccess){check->workspaces.data[i], false, true, true}));
}

/* ---- placement ---- */

uint64_t fg_check_address(const FgModule *module, uint32_t value)
{
    const FgValue *it = &module->values.data[value];
    uint64_t at = it->root_offset;
    while (it->root != it->id) {
        it = &module->values.data[it->root];
        at += it->root == it->id ? 0 : it->root_offset;
    }
    return it->offset == FG_NO_OFFSET ? FG_NO_OFFSET : it->offset + at;
}

static bool is_fixed(const FgCheck *check, const FgValue *value)
{
    return value->kind == FG_VALUE_STATE && value->offset < check->module->state_bytes;
}

/* One value that some node accesses: false when it has no usable address. */
static bool check_place(FgCheck *check, const FgNode *node, uint32_t id)
{
    const FgModule *module = check->module;
    const FgValue *value = &module->values.data[id], *root = &module->values.data[check->root[id]];
    uint64_t at = fg_check_address(module, id), bytes = fg_type_bytes(value->type);
    if (at == FG_NO_OFFSET) {
        fg_check_fail(check, node, 0, "%s has no address; run memplan",
                      fg_check_value_text(check, id));
        return false;
    }
    uint64_t inside = at - root->offset;
    if (inside > fg_type_bytes(root->type) || bytes > fg_type_bytes(root->type) - inside) {
        fg_check_fail(check, node, 1, "%s reaches beyond the memory of %s that it lies in",
                      fg_check_value_text(check, id), fg_check_value_text(check, root->id));
        return false;
    }
    uint64_t end = module->state_bytes + module->arena_bytes;
    bool state = root->kind == FG_VALUE_STATE && root->role != FG_ROLE_GRAD_SHARD;
    uint64_t low = root->kind == FG_VALUE_STATE ? 0 : module->state_bytes;
    uint64_t high = state || is_fixed(check, root) ? module->state_bytes : end;
    if (at < low || at > high || bytes > high - at) {
        fg_check_fail(check, node, 2, "%s lies at %llu..%llu, outside the %s at %llu..%llu",
                      fg_check_value_text(check, id), (unsigned long long)at,
                      (unsigned long long)(at + bytes), high == end ? "arena" : "state region",
                      (unsigned long long)low, (unsigned long long)high);
        return false;
    }
    uint64_t align = fg_type_elements(value->type) > 1 || id == root->id
                         ? ALIGN
                         : fg_dtype_bytes(value->type->dtype);
    if (at % align)
        fg_check_fail(check, node, 3, "%s lies at %llu, which is no multiple of %llu",
                      fg_check_value_text(check, id), (unsigned long long)at,
                      (unsigned long long)align);
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const FgValue *x = *(const FgValue *const *)a, *y = *(const FgValue *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Fixed states keep their bytes to themselves. */
static void check_states(FgCheck *check)
{
    const FgModule *module = check->module;
    FG_VEC(const FgValue *) states = {0};
    for (uint32_t i = 0; i < module->values.len; i++) {
        const FgValue *value = &module->values.data[i];
        if (value->root == value->id && is_fixed(check, value))
            fg_vec_push(check->arena, &states, value);
    }
    if (states.len)
        qsort(states.data, states.len, sizeof *states.data, by_offset);
    for (uint32_t i = 1; i < states.len; i++) {
        const FgValue *a = states.data[i - 1], *b = states.data[i];
        if (a->offset + fg_type_bytes(a->type) > b->offset)
            fg_check_fail_module(check, "the states %s and %s overlap",
                                 fg_check_value_text(check, a->id),
                                 fg_check_value_text(check, b->id));
    }
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t bound_index(const FgCheckSpace *space, uint64_t address)
{
    uint32_t lo = 0, hi = space->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (space->bounds[mid] < address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void fg_check_space(FgCheck *check, FgCheckSpace *out)
{
    const FgModule *module = check->module;
    bool *placed = FG_NEW_ARRAY(check->arena, bool, module->values.len);
    FG_VEC(uint64_t) bounds = {0};
    check_states(check);
    for (uint32_t i = 0; i < module->nodes.len; i++) {
        const FgNode *node = &module->nodes.data[i];
        if (check->position[i] == FG_CHECK_NONE || node->op == FG_OP_hold)
            continue;
        uint32_t n = node->n_operands + node->n_results;
        uint32_t scratch =
            fg_op_info(node->op)->flags & FG_OPF_WORKSPACE ? check->workspaces.len : 0;
        for (uint32_t k = 0; k < n + scratch; k++) {
            uint32_t id = k < node->n_operands ? node->operands[k]
                          : k < n              ? node->results[k - node->n_operands]
                                               : check->workspaces.data[k - n];
            if (id == FG_NO_ID || placed[id] || !check_place(check, node, id))
                continue;
            placed[id] = true;
            uint64_t at = fg_check_address(module, id);
            fg_vec_push(check->arena, &bounds, at);
            fg_vec_push(check->arena, &bounds, at + fg_type_bytes(module->values.data[id].type));
        }
    }
    if (bounds.len)
        qsort(bounds.data, bounds.len, sizeof *bounds.data, by_number);
    uint32_t n = 0;
    for (uint32_t i = 0; i < bounds.len; i++)
        if (!n || bounds.data[n - 1] != bounds.data[i])
            bounds.data[n++] = bounds.data[i];
    *out =
        (FgCheckSpace){bounds.data, n, FG_NEW_ARRAY(check->arena, FgCheckSpan, module->values.len)};
    for (uint32_t i = 0; i < module->values.len; i++) {
        if (!placed[i])
            continue;
        uint64_t at = fg_check_address(module, i);
        out->spans[i].lo = bound_index(out, at);
        out->spans[i].hi = bound_index(out, at + fg_type_bytes(module->values.data[i].type));
    }
}

/* ---- cells ---- */

void fg_check_cells_init(FgCheckCells *cells, FgArena *arena, uint32_t n, size_t size)
{
    /* One run more than bounds, so that an empty space has one too. */
    *cells = (FgCheckCells){FG_NEW_ARRAY(arena, uint64_t, (size_t)n / 64 + 1),
                            FG_NEW_ARRAY(arena, char, ((size_t)n + 1) * size), size, n};
    cells->starts[0] = 1;
}

void fg_check_cells_reset(FgCheckCells *cells)
{
    memset(cells->starts, 0, (cells->n / 64 + 1) * sizeof *cells->starts);
    cells->starts[0] = 1;
    memset(cells->facts, 0, cells->size);
}

uint32_t fg_check_cells_find(const FgCheckCells *cells, uint32_t at)
{
    uint32_t word = at / 64;
    uint64_t bits = cells->starts[word] & (UINT64_MAX >> (63 - at % 64));
    while (!bits)
        bits = cells->starts[--word];
    return word * 64 + 63 - (uint32_t)__builtin_clzll(bits);
}

uint32_t fg_check_cells_next(const FgCheckCells *cells, uint32_t at)
{
    uint32_t last = cells->n / 64, word = ++at / 64;
    if (word > last)
        return cells->n;
    uint64_t bits = cells->starts[word] & (UINT64_MAX << at % 64);
    while (!bits && word < last)
        bits = cells->starts[++word];
    uint32_t found = bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : cells->n;
    return found < cells->n ? found : cells->n;
}

static void split_at(FgCheckCells *cells, uint32_t at)
{
    uint32_t from = fg_check_cells_find(cells, at);
    if (from == at)
        return;
    memcpy(fg_check_cells_at(cells, at), fg_check_cells_at(cells, from), cells->size);
    cells->starts[at / 64] |= UINT64_C(1) << at % 64;
}

void fg_check_cells_split(FgCheckCells *cells, FgCheckSpan span)
{
    split_at(cells, span.lo);
    split_at(cells, span.hi);
}

void *fg_check_cells_merge(FgCheckCells *cells, FgCheckSpan span)
{
    fg_check_cells_split(cells, span);
    for (uint32_t at = span.lo; (at = fg_check_cells_next(cells, at)) < span.hi;)
        cells->starts[at / 64] &= ~(UINT64_C(1) << at % 64);
    return fg_check_cells_at(cells, span.lo);
}
