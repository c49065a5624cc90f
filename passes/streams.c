/* streams: the fewest waits that order all conflicting accesses.
 *
 * sched -> sched, after memplan. The order is walked with a map of the memory: for each byte range
 * the last writer and the last reader of each stream since. A node must follow the last writer of
 * what it reads, and the last writer and readers of what it writes; on its own stream program order
 * does that, on another a wait must. Since addresses are what is compared, data dependencies and
 * the reuse of an address are one case. Vector clocks drop every wait that another one implies. All
 * streams join at the end of a function, so each starts with a clean map.
 *
 * Cost: O(accesses x ranges touched); the map is a sorted array.
 */
#include "passes/lower.h"

#include <string.h>

#define NEVER 0 /* positions count from 1 */

typedef struct Range {
    uint64_t begin, end;
    uint32_t writer;               /* position, or NEVER */
    uint32_t reader[FG_N_STREAMS]; /* last position on each stream since the write */
} Range;

typedef struct Clock {
    uint32_t seen[FG_N_STREAMS]; /* last position on each stream that is known to be complete */
} Clock;

typedef struct Cx {
    FgModule *m;
    FgArena *scratch;
    const FgIdVec *order;
    FG_VEC(Range) map; /* sorted, disjoint */
    Clock *at;         /* position -> clock after the node */
    Clock now[FG_N_STREAMS];
    uint32_t workspace;
    bool changed; /* some node waits for others than before */
} Cx;

static FgStream stream_at(const Cx *cx, uint32_t position)
{
    return cx->m->nodes.data[cx->order->data[position - 1]].stream;
}

/* First range that ends after `address`. */
static uint32_t find(const Cx *cx, uint64_t address)
{
    uint32_t low = 0, high = cx->map.len;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (cx->map.data[mid].end <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void insert_at(Cx *cx, uint32_t i, Range range)
{
    fg_vec_push(cx->scratch, &cx->map, range);
    memmove(&cx->map.data[i + 1], &cx->map.data[i], (cx->map.len - 1 - i) * sizeof range);
    cx->map.data[i] = range;
}

/* Makes `address` a border if a range spans it. */
static void split(Cx *cx, uint64_t address)
{
    uint32_t i = find(cx, address);
    if (i == cx->map.len || cx->map.data[i].begin >= address)
        return;
    Range left = cx->map.data[i];
    left.end = address;
    cx->map.data[i].begin = address;
    insert_at(cx, i, left);
}

static void need(uint32_t *needs, const Cx *cx, uint32_t position)
{
    if (position == NEVER)
        return;
    FgStream s = stream_at(cx, position);
    if (position > needs[s])
        needs[s] = position;
}

static void need_range(const Cx *cx, uint64_t begin, uint64_t end, bool write, uint32_t *needs)
{
    for (uint32_t i = find(cx, begin); i < cx->map.len && cx->map.data[i].begin < end; i++) {
        need(needs, cx, cx->map.data[i].writer);
        for (int s = 0; write && s < FG_N_STREAMS; s++)
            need(needs, cx, cx->map.data[i].reader[s]);
    }
}

static void mark_write(Cx *cx, uint64_t begin, uint64_t end, uint32_t position)
{
    split(cx, begin);
    split(cx, end);
    uint32_t first = find(cx, begin), last = first;
    while (last < cx->map.len && cx->map.data[last].begin < end)
        last++;
    Range range = {begin, end, position, {NEVER}};
    if (last == first) {
        insert_at(cx, first, range);
        return;
    }
    cx->map.data[first] = range;
    memmove(&cx->map.data[first + 1], &cx->map.data[last], (cx->map.len - last) * sizeof range);
    cx->map.len -= last - first - 1;
}

static void mark_read(Cx *cx, uint64_t begin, uint64_t end, uint32_t position, FgStream stream)
{
    split(cx, begin);
    split(cx, end);
    uint64_t at = begin;
    uint32_t i = find(cx, begin);
    while (at < end) {
        if (i == cx->map.len ||
            cx->map.data[i].begin > at) { /* never written in this function: a state */
            uint64_t to =
                i == cx->map.len || cx->map.data[i].begin > end ? end : cx->map.data[i].begin;
            insert_at(cx, i, (Range){at, to, NEVER, {NEVER}});
        }
        cx->map.data[i].reader[stream] = position;
        at = cx->map.data[i++].end;
    }
}

/* ---- accesses of a node ---- */
typedef void AccessFn(Cx *cx, uint64_t begin, uint64_t end, bool write, uint32_t position,
                      FgStream stream, uint32_t *needs);

static void access_value(Cx *cx, uint32_t v, bool write, uint32_t position, FgStream stream,
                         uint32_t *needs, AccessFn *access)
{
    if (v == FG_NO_ID)
        return;
    const FgValue *value = fg_value(cx->m, v);
    uint64_t begin = fg_value(cx->m, value->root)->offset + value->root_offset;
    access(cx, begin, begin + fg_type_bytes(value->type), write, position, stream, needs);
}

static void each_access(Cx *cx, const FgNode *node, uint32_t position, uint32_t *needs,
                        AccessFn *access)
{
    bool release =
        node->op == FG_OP_release; /* ends the content: like a write for whoever comes next */
    for (uint32_t k = 0; k < node->n_operands; k++)
        access_value(cx, node->operands[k], release, position, node->stream, needs, access);
    for (uint32_t k = 0; k < node->n_results; k++)
        access_value(cx, node->results[k], true, position, node->stream, needs, access);
    if (fg_op_has(node->op, FG_OPF_WORKSPACE))
        access_value(cx, cx->workspace, true, position, node->stream, needs, access);
}

static void look(Cx *cx, uint64_t begin, uint64_t end, bool write, uint32_t position,
                 FgStream stream, uint32_t *needs)
{
    (void)position;
    (void)stream;
    need_range(cx, begin, end, write, needs);
}

static void mark(Cx *cx, uint64_t begin, uint64_t end, bool write, uint32_t position,
                 FgStream stream, uint32_t *needs)
{
    (void)needs;
    if (write)
        mark_write(cx, begin, end, position);
    else
        mark_read(cx, begin, end, position, stream);
}

/* ---- waits ---- */
static bool implied(const Cx *cx, const uint32_t *needs, FgStream s)
{
    for (int o = 0; o < FG_N_STREAMS; o++)
        if (o != (int)s && needs[o] != NEVER && cx->at[needs[o]].seen[s] >= needs[s])
            return true;
    return false;
}

static void add_waits(Cx *cx, FgNode *node, uint32_t *needs)
{
    FgModule *m = cx->m;
    Clock *now = &cx->now[node->stream];
    for (int s = 0; s < FG_N_STREAMS; s++)
        if (s == (int)node->stream || needs[s] <= now->seen[s])
            needs[s] = NEVER;
    uint32_t *waits = FG_NEW_ARRAY(m->arena, uint32_t, FG_N_STREAMS), n = 0;
    for (int s = 0; s < FG_N_STREAMS; s++)
        if (needs[s] != NEVER && !implied(cx, needs, (FgStream)s))
            waits[n++] = cx->order->data[needs[s] - 1];
    cx->changed |=
        n != node->n_waits || (n > 0 && memcmp(waits, node->waits, n * sizeof *waits) != 0);
    node->waits = waits;
    node->n_waits = n;
    for (int s = 0; s < FG_N_STREAMS; s++) {
        if (needs[s] == NEVER)
            continue;
        for (int o = 0; o < FG_N_STREAMS; o++)
            if (cx->at[needs[s]].seen[o] > now->seen[o])
                now->seen[o] = cx->at[needs[s]].seen[o];
    }
}

static void order_function(Cx *cx, const FgIdVec *order)
{
    cx->order = order;
    cx->map.len = 0;
    cx->at = FG_NEW_ARRAY(cx->scratch, Clock, order->len + 1);
    memset(cx->now, 0, sizeof cx->now);
    for (uint32_t i = 0; i < order->len; i++) {
        FgNode *node = fg_node(cx->m, order->data[i]);
        uint32_t needs[FG_N_STREAMS] = {NEVER}, position = i + 1;
        if (fg_node_is_name(node)) {
            cx->at[position] = cx->now[node->stream];
            continue;
        }
        each_access(cx, node, position, needs, look);
        add_waits(cx, node, needs);
        each_access(cx, node, position, needs, mark);
        cx->now[node->stream].seen[node->stream] = position;
        cx->at[position] = cx->now[node->stream];
    }
}

FgPassResult fg_pass_streams(FgPassCx *pass)
{
    FgModule *m = pass->module;
    Cx cx = {.m = m, .scratch = pass->scratch};
    for (uint32_t v = 0; v < m->values.len; v++)
        if (m->values.data[v].kind == FG_VALUE_STATE && m->values.data[v].role == FG_ROLE_WORKSPACE)
            cx.workspace = v;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        order_function(&cx, &m->funcs.data[f].order);
    return cx.changed ? FG_PASS_CHANGED : FG_PASS_UNCHANGED;
}
