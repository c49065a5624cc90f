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

bool fg_check_works(const FgTraceNode *node)
{
    return node->entry && node->kind != FG_TRACE_RELEASE;
}

void fg_check_accesses(const FgCheck *check, const FgTraceNode *node, FgTraceAccessVec *out)
{
    out->len = 0;
    if (!fg_check_works(node))
        return;
    for (uint32_t i = 0; i < node->n_accesses; i++)
        fg_vec_push(check->arena, out, node->accesses[i]);
}

/* ---- placement ---- */

static bool is_fixed(const FgCheck *check, const FgTraceBuffer *value)
{
    const FgTrace *trace = check->trace;
    return value->state && value->at != FG_NO_OFFSET &&
           (value->at < trace->state_bytes || value->at >= FG_HOST_BASE);
}

/* One value that some node accesses: false when it has no usable address. */
static bool check_place(FgCheck *check, const FgTraceNode *node, uint32_t id)
{
    const FgTrace *trace = check->trace;
    const FgTraceBuffer *value = &trace->buffers.data[id],
                        *root = &trace->buffers.data[check->root[id]];
    uint64_t at = trace->buffers.data[id].at, bytes = value->bytes;
    if (at == FG_NO_OFFSET) {
        fg_check_fail(check, node, 0, "%s has no address; run memplan",
                      fg_check_value_text(check, id));
        return false;
    }
    uint64_t inside = at - root->at;
    if (inside > root->bytes || bytes > root->bytes - inside) {
        fg_check_fail(check, node, 1, "%s reaches beyond the memory of %s that it lies in",
                      fg_check_value_text(check, id), fg_check_value_text(check, root->id));
        return false;
    }
    bool host = root->at >= FG_HOST_BASE;
    uint64_t begin = host ? FG_HOST_BASE : 0;
    uint64_t states = begin + (host ? trace->host_state_bytes : trace->state_bytes);
    uint64_t end = states + (host ? trace->host_arena_bytes : trace->arena_bytes);
    bool state = root->state && root->role != FG_ROLE_GRAD_SHARD;
    uint64_t low = root->state ? begin : states;
    uint64_t high = state || is_fixed(check, root) ? states : end;
    if (at < low || at > high || bytes > high - at) {
        fg_check_fail(check, node, 2, "%s lies at %llu..%llu, outside the %s at %llu..%llu%s",
                      fg_check_value_text(check, id), (unsigned long long)at,
                      (unsigned long long)(at + bytes), high == end ? "arena" : "state region",
                      (unsigned long long)low, (unsigned long long)high,
                      state ? ": what lives from step to step must be part of the plan" : "");
        return false;
    }
    uint64_t align = value->elements > 1 || id == root->id
                         ? ALIGN
                         : value->bytes / (value->elements ? value->elements : 1);
    if (at % align)
        fg_check_fail(check, node, 3, "%s lies at %llu, which is no multiple of %llu",
                      fg_check_value_text(check, id), (unsigned long long)at,
                      (unsigned long long)align);
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const FgTraceBuffer *x = *(const FgTraceBuffer *const *)a,
                        *y = *(const FgTraceBuffer *const *)b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Fixed states keep their bytes to themselves. */
static void check_states(FgCheck *check)
{
    const FgTrace *trace = check->trace;
    FG_VEC(const FgTraceBuffer *) states = {0};
    for (uint32_t i = 0; i < trace->buffers.len; i++) {
        const FgTraceBuffer *value = &trace->buffers.data[i];
        if (value->root == value->id && is_fixed(check, value))
            fg_vec_push(check->arena, &states, value);
    }
    if (states.len)
        qsort(states.data, states.len, sizeof *states.data, by_offset);
    for (uint32_t i = 1; i < states.len; i++) {
        const FgTraceBuffer *a = states.data[i - 1], *b = states.data[i];
        if (a->at + a->bytes > b->at)
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

uint32_t fg_check_bound(const FgCheckSpace *space, uint64_t address)
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
    const FgTrace *trace = check->trace;
    bool *placed = FG_NEW_ARRAY(check->arena, bool, trace->buffers.len);
    FG_VEC(uint64_t) bounds = {0};
    check_states(check);
    for (uint32_t i = 0; i < trace->nodes.len; i++) {
        const FgTraceNode *node = &trace->nodes.data[i];
        if (check->position[i] == FG_CHECK_NONE || node->kind == FG_TRACE_HOLD)
            continue;
        uint32_t n = node->n_operands + node->n_results;
        for (uint32_t k = 0; k < n + node->n_accesses; k++) {
            uint32_t id = k < node->n_operands ? node->operands[k]
                          : k < n              ? node->results[k - node->n_operands]
                                               : node->accesses[k - n].buffer;
            if (id == FG_NO_ID || placed[id] || !check_place(check, node, id))
                continue;
            placed[id] = true;
            uint64_t at = trace->buffers.data[id].at;
            fg_vec_push(check->arena, &bounds, at);
            fg_vec_push(check->arena, &bounds, at + trace->buffers.data[id].bytes);
        }
    }
    for (uint32_t i = 0; i < trace->buffers.len; i++) { /* of some states only parts are named */
        const FgTraceBuffer *it = &trace->buffers.data[i];
        if (!it->state || it->root != i || placed[i] || it->at == FG_NO_OFFSET)
            continue;
        placed[i] = true;
        fg_vec_push(check->arena, &bounds, it->at);
        fg_vec_push(check->arena, &bounds, it->at + it->bytes);
    }
    if (bounds.len)
        qsort(bounds.data, bounds.len, sizeof *bounds.data, by_number);
    uint32_t n = 0;
    for (uint32_t i = 0; i < bounds.len; i++)
        if (!n || bounds.data[n - 1] != bounds.data[i])
            bounds.data[n++] = bounds.data[i];
    *out =
        (FgCheckSpace){bounds.data, n, FG_NEW_ARRAY(check->arena, FgCheckSpan, trace->buffers.len)};
    for (uint32_t i = 0; i < trace->buffers.len; i++) {
        if (!placed[i])
            continue;
        uint64_t at = trace->buffers.data[i].at;
        out->spans[i].lo = fg_check_bound(out, at);
        out->spans[i].hi = fg_check_bound(out, at + trace->buffers.data[i].bytes);
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
